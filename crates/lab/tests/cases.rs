//! Regression tests for inputs that once gave a wrong result: the scenarios of `tests/cases` with
//! the bounds of `expectations.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::metrics::longest_stall;
use ccplane_lab::result::{ContenderResult, RunResult};
use ccplane_lab::scenario::Scenario;
use serde::Deserialize;

use crate::common::try_run;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    expect: Vec<Expectation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    scenario: String,
    contender: String,
    metric: String,
    over: Option<String>,
    min: Option<f64>,
    max: Option<f64>,
    was: f64,
    #[expect(dead_code, reason = "for the reader of the table; shown by `Debug`")]
    why: String,
}

impl Expectation {
    fn allows(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.max.is_none_or(|max| value <= max)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases")
}

fn simulate(scenario: &str) -> RunResult {
    let path = folder().join(format!("{scenario}.toml"));
    let scenario = Scenario::read(&path).unwrap_or_else(|error| panic!("{error}"));
    try_run(&scenario, scenario.seeds, 2).unwrap()
}

/// Returns a metric of a contender's run, in the unit of its name.
fn metric(result: &ContenderResult, name: &str) -> f64 {
    let metrics = &result.metrics;
    match name {
        "goodput_mbit" => metrics.goodput_mbit,
        "utilisation" => metrics.utilisation,
        "delay_mean_ms" => metrics.delay_mean_ms,
        "delay_p50_ms" => metrics.delay_p50_ms,
        "delay_p95_ms" => metrics.delay_p95_ms,
        "jain" => metrics.jain.expect("`jain` needs two flows"),
        "retransmitted" => metrics.retransmissions as f64,
        "queue_drops" => metrics.queue_drops as f64,
        "cwnd_max_packets" => {
            let samples = result.series.flows.iter().flatten();
            samples
                .map(|sample| sample.tcp.cwnd)
                .max()
                .map_or(0.0, f64::from)
        }
        "first_ssthresh_packets" => {
            let samples = result.series.flows.iter().flatten();
            let thresholds = samples.map(|sample| sample.tcp.ssthresh);
            // ssthresh is infinite before the first exit from slow start.
            thresholds
                .filter(|&packets| packets < 1 << 30)
                .find(|&packets| packets > 0)
                .map_or(0.0, f64::from)
        }
        "longest_stall_s" => longest_stall_s(result),
        unknown => panic!("no metric `{unknown}`: add it to crates/lab/tests/cases.rs"),
    }
}

/// Returns the longest stall of in-order delivery of any flow, with the resolution of the
/// scenario's `sample`.
fn longest_stall_s(result: &ContenderResult) -> f64 {
    let flows = result.series.flows.iter();
    let stalls = flows
        .map(|samples| longest_stall(samples.iter().map(|sample| (sample.at_ns, sample.received))));
    stalls.max().unwrap_or(0) as f64 / 1e9
}

#[test]
fn every_case_is_within_its_bounds() {
    let text = fs::read_to_string(folder().join("expectations.toml")).unwrap();
    let table: Table =
        toml::from_str(&text).unwrap_or_else(|error| panic!("expectations.toml: {error}"));
    let mut by_scenario: BTreeMap<&str, Vec<&Expectation>> = BTreeMap::new();
    for expected in &table.expect {
        assert!(
            expected.min.is_some() || expected.max.is_some(),
            "no bound: {expected:?}"
        );
        assert!(
            !expected.allows(expected.was),
            "`was` is within the bounds: {expected:?}"
        );
        by_scenario
            .entry(&expected.scenario)
            .or_default()
            .push(expected);
    }
    let mut outside = Vec::new();
    for (scenario, expectations) in by_scenario {
        let result = simulate(scenario);
        let of = |name: &str| {
            let contender = result
                .contenders
                .iter()
                .find(|contender| contender.label == name);
            contender.unwrap_or_else(|| panic!("{scenario}: no contender `{name}`"))
        };
        for expected in expectations {
            let mut value = metric(of(&expected.contender), &expected.metric);
            if let Some(over) = &expected.over {
                value /= metric(of(over), &expected.metric);
            }
            println!(
                "{scenario}: {} {} {value:.4} (was {})",
                expected.contender, expected.metric, expected.was
            );
            if !expected.allows(value) {
                outside.push(format!("{scenario}: {value:.4} is outside {expected:?}"));
            }
        }
    }
    assert!(outside.is_empty(), "{}", outside.join("\n"));
}

/// A scenario without an expectation would test nothing.
#[test]
fn every_scenario_has_an_expectation() {
    let text = fs::read_to_string(folder().join("expectations.toml")).unwrap();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name != "expectations"
            && path
                .extension()
                .is_some_and(|extension| extension == "toml")
        {
            assert!(
                text.contains(&format!("scenario = \"{name}\"")),
                "{name} has no expectation"
            );
        }
    }
}
