//! Helpers: simulation of a scenario, and metrics of its result.

#![allow(dead_code, reason = "no test file uses all of it")]

use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_lab::result::{ContenderResult, RunResult};
use ccplane_lab::scenario::{Scenario, Seeds};
use ccplane_lab::{Error, NoProgress, RunOptions, Sim, run};
use ccplane_units::stats::mean;

/// Payload rate of a 96 Mbit/s link, Mbit/s: 1448 of 1500 bytes.
pub const PAYLOAD: f64 = 96.0 * 1448.0 / 1500.0;

pub fn scenario(text: &str) -> Scenario {
    Scenario::parse("test.toml", text, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap()
}

pub fn options(seeds: Seeds, threads: usize) -> RunOptions {
    RunOptions {
        seeds,
        threads,
        command: "ccplane run test.toml".into(),
        repeat_command: "ccplane run test.toml".into(),
    }
}

/// Runs all contenders of a scenario with these seeds.
pub fn try_run(scenario: &Scenario, seeds: Seeds, threads: usize) -> Result<RunResult, Error> {
    let options = options(seeds, threads);
    let registry = Registry::builtin();
    run(&Sim::default(), scenario, &registry, &options, &NoProgress)
}

/// Runs all contenders of a scenario with its seeds.
pub fn simulate(text: &str) -> RunResult {
    let scenario = scenario(text);
    try_run(&scenario, scenario.seeds, 1).unwrap()
}

/// Runs one contender in a scenario without contenders, and prints its metrics.
pub fn simulate_one(contender: &str, scenario: &str) -> ContenderResult {
    let mut result = simulate(&format!("contenders = [{contender:?}]\n{scenario}"));
    let contender = result.contenders.remove(0);
    println!("{}: {:?}", contender.label, contender.metrics);
    assert!(contender.audit.sound, "{:?}", contender.audit);
    contender
}

/// Returns a flow's mean goodput between two times in s, Mbit/s.
pub fn goodput(result: &ContenderResult, flow: usize, from: f64, to: f64) -> f64 {
    let samples = &result.series.flows[flow];
    let at = |s: f64| {
        let ns = (s * 1e9) as u64;
        let until = samples.iter().take_while(|x| x.at_ns <= ns);
        until.last().map_or(0, |x| x.received)
    };
    (at(to) - at(from)) as f64 * 8.0 / 1e6 / (to - from)
}

/// Returns the mean queueing delay between two times in s, ms.
pub fn delay(result: &ContenderResult, from: f64, to: f64) -> f64 {
    let bin = |s: f64| (s * 1e9) as usize / result.series.bin_ns as usize;
    let bins = &result.series.delay_ms[bin(from)..bin(to)];
    mean(bins.iter().flatten().copied()).expect("bins with packets")
}
