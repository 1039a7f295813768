//! `ccplane run` in the simulator: all contenders and seeds on all cores.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ccplane_lab::result::RunResult;
use ccplane_lab::scenario::{Scenario, Seeds};
use ccplane_lab::sim::{self, Options, Watch};
use ccplane_lab::{Contender, Error, files};
use ccplane_report::Provenance;
use ccplane_units::Duration;
use indicatif::ProgressBar;

use super::{RunArgs, TransportArg, bar, command_line, failure, print, warn};
use crate::Registry;
use crate::exit::{Failure, Kind};
use crate::interrupt;

/// Runs the command.
pub fn run(args: &RunArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let scenario = match &args.scenario {
        Some(file) => super::scenario(file, args)?,
        None => of_options(args)?,
    };
    let seeds = args.seeds.unwrap_or(scenario.seeds);
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let command = command_line();
    // Before the load is our own.
    let provenance = Provenance::now(crate::build(), command.clone(), false);
    let options = Options {
        seeds,
        threads: threads.max(1),
        repeat: without_seeds(&command),
        packet_logs: args.pcap.then(|| args.out.join("packets")),
        command,
    };
    let watch = Shown {
        bar: bar(sim::virtual_time(&scenario, seeds).as_micros().max(1)),
        micros: AtomicU64::new(0),
        stop: interrupt::flag()?,
        out: &args.out,
        unwritten: AtomicBool::new(false),
    };
    let result = sim::run(&scenario, registry, &options, &watch).map_err(failure)?;
    watch.bar.finish_and_clear();
    if watch.unwritten.load(Ordering::Relaxed) {
        tracing::warn!(
            "the results of single seeds could not be written to {}",
            args.out.display()
        );
    }
    let unwritable = |e| Failure::new(Kind::Failed, e);
    let page = files::write(&result, &args.out, &provenance).map_err(unwritable)?;
    files::write_scenario(&scenario.text, &args.out).map_err(unwritable)?;
    print(&result, &page, json);
    if !json {
        println!("{}", speed(&result, &scenario, seeds));
    }
    warn(&result);
    Ok(())
}

/// The options as the file that says the same: it is kept with the results, to go on from.
fn of_options(args: &RunArgs) -> Result<Scenario, Failure> {
    if args.alg.is_empty() && args.vs.is_empty() {
        return Err(failure(Error::NoContender));
    }
    let quoted = |text: &dyn std::fmt::Display| serde_json::Value::String(text.to_string()).to_string();
    let contenders: Vec<String> = args.alg.iter().chain(&args.vs).map(|c: &Contender| quoted(c)).collect();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name} = {value}");
    };
    line("contenders", &format!("[{}]", contenders.join(", ")));
    line("duration", &quoted(&args.duration));
    line("sample", &quoted(&args.sample));
    line("\n[topology.dumbbell]\nrtt", &quoted(&args.rtt));
    match &args.trace {
        Some(file) => line(
            "trace",
            &quoted(&std::path::absolute(file).unwrap_or(file.clone()).display()),
        ),
        None => line("rate", &quoted(&args.rate)),
    }
    line("queue", &quoted(&args.queue));
    line("loss", &quoted(&args.loss));
    line("\n[[workload]]\nbulk", &format!("{{ flows = {} }}", args.flows));
    if args.transport == TransportArg::Rc3 {
        line("\n[transport]\nrc3", "true");
    }
    Scenario::parse("options", &text, Path::new(".")).map_err(|problem| failure(Error::Scenario(problem)))
}

/// The command without its seeds, to which others can be added.
fn without_seeds(command: &str) -> String {
    let mut words = command.split(' ');
    let mut kept: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--seeds" | "--seed" => drop(words.next()),
            word if word.starts_with("--seeds=") || word.starts_with("--seed=") => {}
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// How fast it was, and the digest by which two machines can compare what they got.
fn speed(result: &RunResult, scenario: &Scenario, seeds: Seeds) -> String {
    let simulated = sim::virtual_time(scenario, seeds);
    let wall: f64 = result.contenders.iter().filter_map(|c| c.host.wall_s).sum();
    let hops: u64 = result
        .contenders
        .iter()
        .filter_map(|c| c.audit.simulation.as_ref())
        .map(|a| a.hops)
        .sum();
    let digest = result.digest.as_deref().unwrap_or_default();
    format!(
        "{simulated} simulated in {wall:.3} s ({:.1} ns a packet and link); digest {digest}",
        wall * 1e9 / hops.max(1) as f64
    )
}

/// Progress on a terminal, nothing in a pipe; results of single seeds go to folders of their own.
struct Shown<'a> {
    bar: ProgressBar,
    micros: AtomicU64,
    stop: Arc<AtomicBool>,
    out: &'a Path,
    unwritten: AtomicBool,
}

impl Watch for Shown<'_> {
    fn advanced(&self, by: Duration) {
        let sum = self.micros.fetch_add(by.as_micros(), Ordering::Relaxed) + by.as_micros();
        self.bar.set_position(sum);
    }
    fn seed_done(&self, seed: u64, result: RunResult) {
        self.bar.set_message(format!("seed {seed} is done"));
        if files::write_figures(&result, &self.out.join(format!("seed-{seed}"))).is_err() {
            self.unwritten.store(true, Ordering::Relaxed);
        }
    }
    fn cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_repeated_with_its_own_seed() {
        assert_eq!(
            without_seeds("ccplane run a.toml --seeds 1..50 --threads 2"),
            "ccplane run a.toml --threads 2"
        );
        assert_eq!(without_seeds("ccplane run a.toml --seed=3"), "ccplane run a.toml");
    }
}
