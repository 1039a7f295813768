//! Storm tests: agents, their channels, datapaths, transport and network in one simulation, with
//! faults in all of them.
//!
//! `storm --seeds A..B [--threads N] [--done FILE]` runs the seeds from A up to but excluding B,
//! except those that FILE records as done. `storm --seed N [--without 1,4]` runs a single seed
//! without these of its faults, and prints its plan. See `docs/storm.md`.

mod bus;
mod channel;
mod check;
mod codec;
mod disk;
mod done_seeds;
mod plan;
mod random;
mod shrink;
mod storm;
mod tenant;

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use done_seeds::FinishedSeeds;
use plan::Plan;
use storm::Outcome;

/// Seeds recorded as done in one step. A larger number writes less often; a smaller one loses less
/// when a run is interrupted.
const SEEDS_PER_BATCH: u64 = 100;

struct Args {
    seeds: Range<u64>,
    without: Vec<u64>,
    one: bool,
    threads: usize,
    done: FinishedSeeds,
}

fn main() -> ExitCode {
    match parse_args().and_then(run) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("storm: {error}");
            ExitCode::from(2)
        }
    }
}

fn parse_args() -> Result<Args, Box<dyn Error>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut args = Args {
        seeds: 0..2_000,
        without: Vec::new(),
        one: false,
        threads: cores,
        done: FinishedSeeds::default(),
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--seeds" => {
                args.seeds = done_seeds::parse_range(&value)
                    .ok_or(format!("`{value}` is not a range of seeds; write A..B"))?
            }
            "--seed" => {
                let seed = value.parse()?;
                (args.seeds, args.one) = (seed..seed + 1, true);
            }
            "--without" => {
                args.without = value.split(',').map(str::parse).collect::<Result<_, _>>()?
            }
            "--threads" => args.threads = value.parse()?,
            "--done" => args.done = FinishedSeeds::read(Path::new(&value))?,
            _ => {
                return Err(format!(
                    "unknown option {name}; the options are --seeds, --seed, --without, --threads \
                     and --done"
                )
                .into());
            }
        }
    }
    Ok(args)
}

/// Runs the requested seeds and returns the number of failures.
fn run(args: Args) -> Result<u64, Box<dyn Error>> {
    // A panic is reported in the one line of its failure.
    if !args.one {
        std::panic::set_hook(Box::new(|_| ()));
    }
    if args.one {
        let plan = Plan::new(args.seeds.start).without(&args.without);
        println!("{plan:#?}");
        return match shrink::attempt(&plan) {
            Ok(outcome) => {
                println!("{outcome:?}");
                Ok(0)
            }
            Err(failure) => {
                println!("{}", shrink::failure_line(&plan, &args.without, &failure));
                Ok(1)
            }
        };
    }
    let sum = run_seeds(&args.seeds, args.threads, args.done, &|line| {
        println!("{line}")
    })?;
    println!(
        "{} seeds, {} failed; {} events, {} messages, {} of them altered; {} seeds done in total",
        sum.seeds,
        sum.failed,
        sum.total.events,
        sum.total.messages,
        sum.total.harmed,
        sum.done.count(),
    );
    Ok(sum.failed)
}

/// Totals of many runs.
struct Sum {
    done: FinishedSeeds,
    seeds: u64,
    failed: u64,
    total: Outcome,
}

/// Runs the seeds that are not done.
fn run_seeds(
    seeds: &Range<u64>,
    threads: usize,
    done: FinishedSeeds,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Sum, Box<dyn Error>> {
    let next = AtomicU64::new(seeds.start);
    let state = Mutex::new(Sum {
        done,
        seeds: 0,
        failed: 0,
        total: Outcome::default(),
    });
    let work = || -> std::io::Result<()> {
        loop {
            let start = next.fetch_add(SEEDS_PER_BATCH, Ordering::Relaxed);
            let end = (start + SEEDS_PER_BATCH).min(seeds.end);
            if start >= seeds.end {
                return Ok(());
            }
            let mut good = start;
            for seed in start..end {
                if state.lock().is_ok_and(|state| state.done.has(seed)) {
                    continue;
                }
                let plan = Plan::new(seed);
                let result = shrink::attempt(&plan);
                let line = result.as_ref().err().map(|failure| {
                    let (without, failure) = shrink::shrink(&plan, failure.clone(), Vec::new());
                    shrink::failure_line(&plan, &without, &failure)
                });
                let Ok(mut state) = state.lock() else {
                    return Ok(());
                };
                state.seeds += 1;
                match result {
                    Ok(outcome) => {
                        let sum = &mut state.total;
                        sum.events += outcome.events;
                        sum.messages += outcome.messages;
                        sum.harmed += outcome.harmed;
                        sum.digest = sum.digest.wrapping_add(outcome.digest);
                    }
                    Err(_) => {
                        state.failed += 1;
                        let line = line.unwrap_or_default();
                        tell(&line);
                        state.done.note(&format!("# {line}"))?;
                        if good < seed {
                            state.done.add(good..seed)?;
                        }
                        good = seed + 1;
                    }
                }
            }
            let Ok(mut state) = state.lock() else {
                return Ok(());
            };
            if good < end && (good..end).any(|seed| !state.done.has(seed)) {
                state.done.add(good..end)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or(Ok(())))
    })?;
    Ok(state.into_inner().map_err(|_| "a thread panicked")?)
}

#[cfg(test)]
mod tests {
    use ccplane_units::Time;

    use super::*;

    /// Runs storms; each failure is one line.
    fn do_no_harm(seeds: Range<u64>) {
        let told = Mutex::new(Vec::new());
        let tell = |line: &str| told.lock().expect("no thread panics").push(line.to_owned());
        let sum =
            run_seeds(&seeds, 2, FinishedSeeds::default(), &tell).expect("no file is written");
        assert_eq!(
            sum.failed,
            0,
            "{:#?}",
            told.lock().expect("no thread panics")
        );
    }

    #[test]
    fn two_hundred_storms_do_no_harm() {
        do_no_harm(0..200);
    }

    #[test]
    #[ignore = "long: the remaining 1,800 of 2,000 seeds"]
    fn two_thousand_storms_do_no_harm() {
        do_no_harm(200..2_000);
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        for seed in 0..20 {
            let plan = Plan::new(seed);
            assert_eq!(
                shrink::attempt(&plan),
                shrink::attempt(&Plan::new(seed)),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn far_agents_are_among_them_and_connections_that_are_given_up() {
        let plans: Vec<Plan> = (0..2_000).map(Plan::new).collect();
        let is_far = |plan: &&Plan| {
            plan.faults
                .iter()
                .any(|fault| fault.what == plan::FaultKind::Cut)
        };
        let far = plans.iter().filter(is_far).count();
        let lost = plans
            .iter()
            .filter(|plan| plan.given_up(Time::ZERO).is_some())
            .count();
        assert!(
            far > 200 && lost > 20,
            "of 2,000: {far} remote, {lost} given up"
        );
    }

    /// A full disk affects the packet log and the agents' log only.
    #[test]
    fn a_full_disk_changes_nothing_for_flows() {
        let space = disk::Space {
            room: 900,
            write: 11,
        };
        for seed in 0..60 {
            let mut plan = Plan::new(seed);
            plan.disk = None;
            let without = shrink::attempt(&plan);
            plan.disk = Some(space);
            assert_eq!(shrink::attempt(&plan), without, "seed {seed}");
        }
    }

    /// Frames are delivered unchanged however writes and reads split them, and partial frames do
    /// not survive a reset.
    #[test]
    fn a_stream_keeps_the_borders_of_packets() {
        let packet =
            |number: u8| [vec![0xcc, 2], vec![number; 1 + 7 * usize::from(number)]].concat();
        for read_buffer in [1, 3, 1_000] {
            let (delay, seed) = (ccplane_units::Duration::from_micros(10), read_buffer as u64);
            let send_buffer = 700;
            let mut stream = bus::Stream::new(bus::Bus {
                send_buffer,
                read_buffer,
                delay,
                seed,
            });
            for round in 0..3 {
                (0..100).for_each(|number| stream.send(Time::ZERO, packet(number)));
                let until = if round == 1 {
                    Time::from_micros(900)
                } else {
                    Time::MAX
                };
                let came: Vec<_> =
                    std::iter::from_fn(|| stream.receive(until).expect("the frames as sent"))
                        .collect();
                assert_eq!(came, (0..came.len() as u8).map(packet).collect::<Vec<_>>());
                assert!(came.len() < 100 || round != 1, "{}", came.len());
                stream.reset();
            }
        }
    }

    #[test]
    fn hostile_tenants_are_in_hundreds_of_them_and_nothing_else_in_half() {
        let plans: Vec<Plan> = (0..2_000).map(Plan::new).collect();
        let sends = |plan: &&Plan| {
            plan.faults
                .iter()
                .any(|f| matches!(f.what, plan::FaultKind::Hostile(..)))
        };
        let hostile = plans.iter().filter(sends).count();
        let only = plans.iter().filter(|plan| plan.only_hostile()).count();
        assert!(
            hostile > 400 && only > 200,
            "of 2,000: {hostile} hostile, {only} without another cause"
        );
    }

    /// The check detects an agent that takes a hundred times as long per message as plans with
    /// hostile tenants allow.
    #[test]
    fn an_agent_that_a_tenant_keeps_busy_is_found() {
        let slow = |seed| {
            let mut plan = Plan::new(seed);
            plan.work = plan.work * 200;
            plan
        };
        let plans = (0..60).map(slow).filter(Plan::only_hostile);
        let found = plans.filter_map(|plan| shrink::attempt(&plan).err());
        assert!(
            found
                .filter(|failure| failure.what.contains("because of a hostile tenant"))
                .count()
                > 0
        );
    }

    #[test]
    fn seeds_that_are_done_are_not_done_again() {
        let path = std::env::temp_dir().join(format!("ccplane-storm-{}", std::process::id()));
        let file = || FinishedSeeds::read(&path).expect("a readable file");
        let count = |seeds: Range<u64>| {
            run_seeds(&seeds, 1, file(), &|_| ())
                .expect("a writable file")
                .seeds
        };
        let counts = [count(5..8), count(5..8), count(3..10)];
        let done = file();
        std::fs::remove_file(&path).expect("exists");
        assert_eq!((counts, done.count()), ([3, 0, 4], 7));
    }
}
