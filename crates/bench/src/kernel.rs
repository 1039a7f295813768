//! `ccplane bench kernel`: what steering from outside costs the kernel's datapath: TCP over
//! loopback, as fast as the machine goes, under `ccp_reno` and under the kernel's own Reno.
//!
//! The conditions alternate run by run, so that a disturbance of the machine meets all of them.
//! Each ratio is the median over rounds of a run's figure over that of the native run beside it.
//! The traffic is memory to memory through a namespace of our own: the figure is CPU work per
//! packet, not a network's speed.

mod isolation;

use std::fmt::Write;
use std::path::PathBuf;

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_report::{Table, TargetRange, wrap};
use ccplane_testbed::ends::TrafficEnds;
use ccplane_testbed::loopback::{Load, LoopbackRun};
use ccplane_testbed::wire;
use ccplane_units::{Duration, Rate};
use serde_json::json;

use crate::rounds::{Turns, median};
use crate::{Error, Figures};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of flows.
    pub flows: Vec<usize>,
    /// Length of each run. Below a second, slow start and the start of threads weigh in.
    pub run: Duration,
    /// Runs of each condition at each number of flows. The median of one run is that run; five ride
    /// out a disturbance.
    pub rounds: usize,
    /// The program `ccplane-bench`, which runs an agent in a process of its own.
    pub program: PathBuf,
}

/// Where Reno runs, and how often the datapath reports to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// In the kernel, as native code.
    Native,
    /// In a thread of this process, which shares memory with the kernel.
    PerAck,
    Every10Ms,
    /// In the kernel, as a verified BPF program. There is no agent.
    Program,
    /// The same, while the kernel measures the run time of BPF programs.
    ProgramTimed,
    /// In another process, behind a Unix socket.
    ProcessPerAck,
    ProcessEvery10Ms,
}

impl Condition {
    const ALL: &[Condition] = &[Condition::Native, Condition::PerAck, Condition::Every10Ms];
    /// At a fixed rate.
    const FIXED: &[Condition] = &[
        Condition::Native,
        Condition::PerAck,
        Condition::Every10Ms,
        Condition::Program,
        Condition::ProgramTimed,
        Condition::ProcessPerAck,
        Condition::ProcessEvery10Ms,
    ];

    fn contender(self) -> Contender {
        match self {
            Condition::Native => Contender::native("reno"),
            Condition::Program | Condition::ProgramTimed => {
                Contender::ccplane(isolation::PROGRAM_FILE)
            }
            Condition::PerAck | Condition::ProcessPerAck => {
                Contender::ccplane_with("reno", "report", "ack")
            }
            Condition::Every10Ms | Condition::ProcessEvery10Ms => {
                Contender::ccplane_with("reno", "report", "10ms")
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Condition::Native => "native",
            Condition::PerAck => "per_ack",
            Condition::Every10Ms => "10ms",
            Condition::Program => "program",
            Condition::ProgramTimed => "program_timed",
            Condition::ProcessPerAck => "process_per_ack",
            Condition::ProcessEvery10Ms => "process_10ms",
        }
    }
}

/// Each flow takes two threads.
const MOST_FLOWS: usize = 1024;

/// The rate of the runs below saturation. Far lower, and what the machine does anyway is most of
/// its CPU; far higher, and slower machines cannot hold it.
const FIXED: Rate = Rate::from_bits_per_sec(2_000_000_000);
/// Flows that share it.
const FIXED_FLOWS: usize = 4;

/// Measures. `step` hears the share that is done and what comes next, and says whether to go on.
pub fn run(
    options: &Options,
    registry: &Registry,
    mut step: impl FnMut(f64, &str) -> bool,
) -> Result<Figures, Error> {
    check(options)?;
    let loopback = TrafficEnds::loopback()?;
    let below = wire::make(Some(FIXED))?;
    let saturated = options
        .flows
        .iter()
        .map(|flows| (&loopback, *flows, flows.to_string(), Condition::ALL));
    let fixed = (&below, FIXED_FLOWS, "fixed".to_owned(), Condition::FIXED);
    let places = saturated.chain([fixed]);
    let per_round = options.flows.len() * Condition::ALL.len() + Condition::FIXED.len();
    let total = options.rounds * per_round;
    let mut figures = Figures::default();
    let (mut rows, mut attempts) = (Vec::new(), Vec::new());
    let mut user_space = Vec::new();
    for (ends, flows, place, conditions) in places {
        let turns = Turns::take(options.rounds, conditions, |round, who| {
            let (round, name) = (round + 1, who.name());
            let next = format!("{flows} flows, round {round} of {}, {name}", options.rounds);
            if !step(attempts.len() as f64 / total as f64, &next) {
                return Err(Error::Lab(ccplane_lab::Error::Interrupted));
            }
            // Once per round of the runs that it is compared with.
            if place == "fixed" && who == Condition::Native {
                user_space.push(isolation::user_space(&options.program)?);
            }
            let load = Load::new(flows, options.run, options.run);
            let run = isolation::one(ends, who, load, registry, &options.program)?;
            attempts.push(json!({
                "flows": place, "round": round, "who": name, "goodput_gbit": run.goodput_gbit,
                "fallbacks": run.fallbacks, "disturbed": run.disturbed,
            }));
            Ok(run)
        })?;
        match place.as_str() {
            "fixed" => {
                below_saturation(&turns, &mut figures);
                isolation::add(&turns, &user_space, &mut figures);
            }
            _ => rows.push(summarise(flows, &turns, &mut figures)),
        }
    }
    figures.sort();
    figures.fact("attempts", attempts);
    figures.note(text(&rows, options, &figures));
    figures.note(isolation::text(FIXED_FLOWS));
    Ok(figures)
}

fn check(options: &Options) -> Result<(), ccplane_lab::Error> {
    let bad =
        |what, value: String, fix| Err(ccplane_lab::Error::InvalidParameter { what, value, fix });
    if options.flows.is_empty() || options.flows.iter().any(|n| *n == 0 || *n > MOST_FLOWS) {
        return bad(
            "the number of flows",
            format!("{:?}", options.flows),
            "give numbers from 1 to 1024",
        );
    }
    if options.rounds == 0 {
        return bad(
            "the number of rounds",
            "0".into(),
            "give at least 1, better 5",
        );
    }
    if options.run < Duration::from_millis(100) {
        return bad(
            "the length of a run",
            options.run.to_string(),
            "give at least 100ms, better 2s",
        );
    }
    Ok(())
}

/// Adds the median over rounds of a value over that of the native run beside it, with its aim.
/// Returns it.
fn add_ratio(
    figures: &mut Figures,
    (name, place): (&str, &str),
    turns: &Turns<Condition, LoopbackRun>,
    who: Condition,
    value: fn(&LoopbackRun) -> f64,
) -> f64 {
    let ratio = turns.ratio(who, Condition::Native, value);
    let value = ratio.map_or(0.0, |ratio| ratio.value);
    let (aim, paper) = match name {
        "goodput_ratio_per_ack" => (
            TargetRange::AtLeast(0.95),
            "CCP's paper: 29 of 43 Gbit/s = 0.67",
        ),
        "goodput_ratio_10ms" => (
            TargetRange::AtLeast(0.99),
            "CCP's paper: 41 of 43 Gbit/s = 0.95",
        ),
        "cpu_ratio_10ms" | "fixed_cpu_ratio_10ms" => (TargetRange::AtMost(1.05), ""),
        _ => {
            figures.add(format!("{name}{place}"), value, "");
            return value;
        }
    };
    let figure = figures.add(format!("{name}{place}"), value, "x native");
    figure
        .target(aim)
        .in_turns(ratio.and_then(|ratio| ratio.interval));
    if place == "_1" {
        figure.beside(paper);
    }
    value
}

const GOODPUT: fn(&LoopbackRun) -> f64 = |run| run.goodput_gbit;
const CPU: fn(&LoopbackRun) -> f64 = |run| run.cpu_s_per_gb;

/// CPU for each byte at a rate that everybody holds: it scatters less than at saturation, where
/// rates differ, too.
fn below_saturation(turns: &Turns<Condition, LoopbackRun>, figures: &mut Figures) {
    figures.add(
        "fixed_native_gbit",
        turns.median(Condition::Native, GOODPUT),
        "",
    );
    figures.add(
        "fixed_native_cpu_s_per_gb",
        turns.median(Condition::Native, CPU),
        "",
    );
    let per_ack = turns.ratio(Condition::PerAck, Condition::Native, CPU);
    figures.ratio("fixed_cpu_ratio_per_ack", per_ack, "x native");
    add_ratio(
        figures,
        ("fixed_cpu_ratio_10ms", ""),
        turns,
        Condition::Every10Ms,
        CPU,
    );
}

/// Adds the figures for `flows` and gives the table's row.
fn summarise(
    flows: usize,
    turns: &Turns<Condition, LoopbackRun>,
    figures: &mut Figures,
) -> Vec<String> {
    use Condition::{Every10Ms, Native, PerAck};
    let place = format!("_{flows}");
    let mut ratio = |name, who, value| add_ratio(figures, (name, &place), turns, who, value);
    let goodputs = [
        ratio("goodput_ratio_per_ack", PerAck, GOODPUT),
        ratio("goodput_ratio_10ms", Every10Ms, GOODPUT),
    ];
    let cpus = [
        ratio("cpu_ratio_per_ack", PerAck, CPU),
        ratio("cpu_ratio_10ms", Every10Ms, CPU),
    ];
    ratio("machine_cpu_ratio_10ms", Every10Ms, |run| {
        run.machine_cpu_s_per_gb
    });
    let mut add = |name, value| {
        figures.add(format!("{name}{place}"), value, "");
        value
    };
    let goodput = add("goodput_native_gbit", turns.median(Native, GOODPUT));
    let cpu = add("cpu_native_s_per_gb", turns.median(Native, CPU));
    let mut reports = |name, who| add(name, turns.median(who, |run| run.reports_per_s));
    let reports = [
        reports("reports_per_s_per_ack", PerAck),
        reports("reports_per_s_10ms", Every10Ms),
    ];
    add(
        "disturbed_runs",
        turns.all().filter(|run| !run.is_undisturbed()).count() as f64,
    );
    let others = median(turns.all().map(|run| run.others_cpu_percent));
    add("others_cpu_percent", others.round());
    let sum = |value: fn(&LoopbackRun) -> u64| turns.all().map(value).sum::<u64>() as f64;
    add("ring_lost", sum(|run| run.ring_lost));
    add("fallbacks", sum(|run| run.fallbacks));

    let shown = |digits: usize, values: &[f64]| -> Vec<String> {
        values
            .iter()
            .map(|value| format!("{value:.digits$}"))
            .collect()
    };
    let cells = [
        shown(1, &[goodput]),
        shown(3, &goodputs),
        shown(3, &[cpu]),
        shown(3, &cpus),
        shown(0, &reports),
    ];
    std::iter::once(flows.to_string())
        .chain(cells.into_iter().flatten())
        .collect()
}

fn text(rows: &[Vec<String>], options: &Options, figures: &Figures) -> String {
    let headings = [
        "flows",
        "native\nGbit/s",
        "per ACK\n÷ native",
        "10 ms\n÷ native",
        "native\nCPU s/GB",
        "per ACK\n÷ native",
        "10 ms\n÷ native",
        "per ACK\nreports/s",
        "10 ms\nreports/s",
    ];
    let text = Table::new(headings, rows.to_vec()).to_text();
    let mut words = format!(
        "Reno, steered with a report for every ACK and every 10 ms, as a multiple of the native run beside it. Medians \
         of {} rounds with runs of {}; CPU of the whole process (senders, receivers, agent) for each GB received. Aims: goodput 0.95 per ACK \
         and 0.99 at 10 ms, CPU 1.05 at 10 ms. The paper (its host, Linux 4.14, 43 Gbit/s native): 29 per ACK in its \
         table (68 % in its text), 41 every 10 ms.\n",
        options.rounds, options.run
    );
    let sum = |name: &str| -> f64 {
        let each = options
            .flows
            .iter()
            .filter_map(|flows| figures.get(&format!("{name}_{flows}")));
        each.sum()
    };
    let disturbed = sum("disturbed_runs");
    if disturbed > 0.0 {
        let _ = writeln!(
            words,
            "The machine disturbed {disturbed} runs, which count all the same (`attempts` says how); run it on an idle machine."
        );
    }
    let fallbacks = sum("fallbacks");
    if fallbacks > 0.0 {
        let _ = writeln!(
            words,
            "{fallbacks} times a flow fell back to the datapath's own NewReno: a result of ccplane's own, which counts."
        );
    }
    text + "\n" + &wrap(&words, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_over_rounds() {
        let run = |(goodput_gbit, cpu_s_per_gb): (f64, f64)| LoopbackRun {
            goodput_gbit,
            cpu_s_per_gb,
            ..LoopbackRun::default()
        };
        let turns = Turns::take(3, Condition::ALL, |round, who| {
            let runs = match who {
                Condition::Native => [(40.0, 0.5), (10.0, 9.0), (40.0, 0.5)],
                Condition::PerAck => [(38.0, 0.6), (38.0, 0.6), (1.0, 7.0)],
                _ => [(39.6, 0.51); 3],
            };
            Ok::<_, Error>(run(runs[round]))
        })
        .unwrap();
        let mut figures = Figures::default();
        let row = summarise(4, &turns, &mut figures);
        assert_eq!(row[..4], ["4", "40.0", "0.950", "0.990"]);
        below_saturation(&turns, &mut figures);
        for (key, value) in [
            ("goodput_ratio_per_ack_4", 0.95),
            ("goodput_ratio_10ms_4", 0.99),
            ("cpu_ratio_10ms_4", 1.02),
            ("fixed_cpu_ratio_10ms", 1.02),
        ] {
            assert!((figures.get(key).unwrap() - value).abs() < 1e-9, "{key}");
        }
        let json = figures.to_json(&Default::default());
        assert!(json["goodput_ratio_10ms_4_low"].as_f64().unwrap() <= 0.99);
        assert!(
            json.get("cpu_ratio_per_ack_4_low").is_none(),
            "nothing is aimed at with it"
        );
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_made() {
        let run = Duration::from_secs(2);
        for (flows, run, rounds) in [
            (vec![], run, 5),
            (vec![0], run, 5),
            (vec![1], run, 0),
            (vec![1], Duration::ZERO, 5),
        ] {
            let refused = super::run(
                &Options {
                    flows,
                    run,
                    rounds,
                    program: PathBuf::new(),
                },
                &Registry::builtin(),
                |_, _| true,
            );
            assert!(matches!(
                refused,
                Err(Error::Lab(ccplane_lab::Error::InvalidParameter { .. }))
            ));
        }
    }
}
