//! Runs short versions of all supported shipped scenarios on kernel TCP and compares them with the
//! simulator. The others are refused with a reason. Needs root; without it the tests report that
//! they are skipped.

use std::path::Path;

use crate::host::{registers, steers};
use ccplane_algorithms::Registry;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::{Scenario, Seeds};
use ccplane_lab::{Backend, Error, NoProgress, RunOptions, Sim, run};
use ccplane_testbed::{RealPackets, TransportKind};

/// Parts of a scenario's text, and shorter values for them.
type Replacement = &'static [(&'static str, &'static str)];

/// Returns a shipped scenario with other durations, one contender and one seed.
fn shipped(file: &str, contender: &str, replace: &[(&str, &str)]) -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut text = std::fs::read_to_string(folder.join(file)).unwrap();
    for (old, new) in replace {
        assert!(text.contains(old), "{file} has no `{old}`");
        text = text.replacen(old, new, 1);
    }
    let mut scenario = Scenario::parse(file, &text, &folder).unwrap();
    scenario.contenders = vec![contender.parse().unwrap()];
    scenario.seeds = Seeds::one(1);
    scenario
}

fn at(backend: &dyn Backend, scenario: &Scenario) -> ContenderResult {
    let options = RunOptions::single(1, "ccplane run scenario.toml");
    let result = run(
        backend,
        scenario,
        &Registry::builtin(),
        &options,
        &NoProgress,
    )
    .unwrap();
    result.contenders.into_iter().next().unwrap()
}

/// Accepted difference of the kernel's goodput, relative to the simulator's. Slow start is a large
/// part of a short run, and a busy machine adds losses: the bound detects workloads that do not run
/// or run twice.
const GOODPUT: f64 = 0.35;

/// Accepted ratio if a handful of random losses, different in every run, determines the goodput.
const BY_CHANCE: f64 = 3.0;

/// A graph whose bottleneck is neither the first link of the file nor the last one of the path.
const UNREPORTED: &str = r#"
contenders = ["native:cubic"]
duration = "2s"
node = [
    { name = "a" },
    { name = "left", switch = true },
    { name = "right", switch = true },
    { name = "b" },
]
link = [
    { from = "right", to = "left", delay = "10ms", one_way = true },
    { from = "a", to = "left" },
    { from = "left", to = "right", rate = "24mbit", delay = "10ms", queue = "droptail:60kB", one_way = true },
    { from = "right", to = "b" },
]
[[workload]]
from = "a"
to = "b"
bulk = {}
"#;

#[test]
fn a_scenario_without_report_runs_everywhere_and_shows_its_bottleneck() {
    let scenario = Scenario::parse("unreported.toml", UNREPORTED, Path::new(".")).unwrap();
    let shown = |backend: &dyn Backend| {
        let options = RunOptions::single(1, "ccplane run unreported.toml");
        let result = run(
            backend,
            &scenario,
            &Registry::builtin(),
            &options,
            &NoProgress,
        )
        .unwrap();
        assert_eq!(result.setup.link.as_deref(), Some("left->right"));
        let line = result.setup.line();
        assert!(
            line.contains("left->right, 24 Mbit/s · 20 ms round trip · droptail:60000B, 60 kB"),
            "{line}"
        );
        let metrics = &result.contenders[0].metrics;
        assert!(
            metrics.goodput_mbit > 15.0 && metrics.delay_p95_ms > 5.0,
            "{metrics:?}"
        );
    };
    shown(&Sim::default());
    if steers("a_scenario_without_report_runs_everywhere_and_shows_its_bottleneck") {
        let _turn = registers();
        shown(&RealPackets::new(TransportKind::Tcp));
    }
}

/// Shipped scenarios, each with a contender and replacements that shorten it. The first list runs
/// by default and takes 19 s; the second is ignored.
const SCENARIOS: [&[(&str, &str, Replacement)]; 2] = [
    &[
        ("01-one-flow.toml", "native:reno", &[("10s", "2s")]),
        ("04-bursts-of-loss.toml", "native:cubic", &[("10s", "4s")]),
        (
            "14-rate-steps.toml",
            "native:cubic",
            &[("15s", "3s"), ("\"5s\"", "\"1s\""), ("\"10s\"", "\"2s\"")],
        ),
        (
            "15-outage.toml",
            "native:reno",
            &[
                ("10s", "3s"),
                ("\"4s\"", "\"1s\""),
                ("\"4.5s\"", "\"1.5s\""),
            ],
        ),
        // With sizes from a table, one response in a thousand has more bytes than all others
        // together, and the result depends on whether it completes.
        (
            "18-requests.toml",
            "native:cubic",
            &[("20s", "3s"), ("table = \"caida\"", "fixed = \"30kB\"")],
        ),
        ("21-mixed.toml", "cubic", &[("20s", "4s"), ("8s", "1s")]),
    ],
    &[
        (
            "02-fairness.toml",
            "native:cubic",
            &[("15s", "4s"), ("\"1s\"", "\"500ms\"")],
        ),
        ("03-random-loss.toml", "native:cubic", &[("10s", "4s")]),
        ("05-codel.toml", "native:cubic", &[("15s", "2s")]),
        ("06-fq-codel.toml", "native:cubic", &[("10s", "2s")]),
        ("16-cellular.toml", "native:cubic", &[("10s", "3s")]),
        (
            "17-cross-traffic.toml",
            "native:reno",
            &[
                ("10s", "4s"),
                ("on = \"2s\", off = \"2s\"", "on = \"1s\", off = \"1s\""),
            ],
        ),
        ("20-trace.toml", "native:cubic", &[("5s", "9s")]),
    ],
];

#[test]
fn scenarios_run_on_kernel_tcp_as_in_the_simulator() {
    if steers("scenarios_run_on_kernel_tcp_as_in_the_simulator") {
        run_as_in_the_simulator(SCENARIOS[0]);
    }
}

#[test]
#[ignore = "long: half a minute of real packets"]
fn the_remaining_scenarios_run_on_kernel_tcp_as_in_the_simulator() {
    if steers("the_remaining_scenarios_run_on_kernel_tcp_as_in_the_simulator") {
        run_as_in_the_simulator(SCENARIOS[1]);
    }
}

fn run_as_in_the_simulator(scenarios: &[(&str, &str, Replacement)]) {
    let _turn = registers();
    for &(file, contender, replace) in scenarios {
        let scenario = shipped(file, contender, replace);
        let (real, simulated) = (
            at(&RealPackets::new(TransportKind::Tcp), &scenario),
            at(&Sim::default(), &scenario),
        );
        let goodputs = [&real, &simulated].map(|result| result.metrics.goodput_mbit);
        let drops = [&real, &simulated].map(|result| result.metrics.queue_drops);
        let done = [&real, &simulated].map(|result| {
            let completions = result.metrics.completions.as_ref();
            completions.map_or((0, 0.0), |all| {
                all.classes
                    .last()
                    .map_or((0, 0.0), |class| (class.flows, class.p50_ms))
            })
        });
        println!(
            "{file}, kernel and simulator: {goodputs:.2?} Mbit/s, {drops:?} drops, completed flows \
             and their median {done:?}"
        );
        let ratio = goodputs[0] / goodputs[1];
        let likely = match file {
            "03-random-loss.toml" | "04-bursts-of-loss.toml" | "21-mixed.toml" => {
                1.0 / BY_CHANCE..BY_CHANCE
            }
            _ => 1.0 - GOODPUT..1.0 + GOODPUT,
        };
        assert!(
            likely.contains(&ratio),
            "{file}: {goodputs:?} Mbit/s, {:?}",
            real.audit
        );
        assert_eq!(real.workloads.len(), simulated.workloads.len(), "{file}");
        let flows = [&real, &simulated].map(|result| result.metrics.flows.len());
        assert_eq!(flows[0], flows[1], "{file}");
        match file {
            // The flows of a trace are the same in every backend, and all of them complete.
            "20-trace.toml" => assert_eq!((done[0].0, done[1].0), (120, 120), "{file}"),
            "06-fq-codel.toml" | "18-requests.toml" => {
                let share = done[0].0 as f64 / done[1].0 as f64;
                assert!((0.8..1.2).contains(&share), "{file}: {done:?}");
                assert!(
                    (done[0].1 / done[1].1 - 1.0).abs() < 0.2,
                    "{file}: {done:?}"
                );
            }
            _ => {}
        }
    }
}

#[test]
fn the_other_scenarios_are_refused_with_the_reason() {
    for (file, contender, reason) in [
        ("07-dctcp.toml", "native:reno", "a rate of 10gbit"),
        ("08-incast.toml", "native:reno", "a rate of 10gbit"),
        (
            "09-parking-lot.toml",
            "native:reno",
            "nodes and links around one bottleneck",
        ),
        (
            "10-web-search.toml",
            "native:reno",
            "nodes and links around one bottleneck",
        ),
        (
            "11-fat-tree.toml",
            "native:reno",
            "nodes and links around one bottleneck",
        ),
        (
            "12-tree-192.toml",
            "native:reno",
            "nodes and links around one bottleneck",
        ),
        (
            "13-internet2.toml",
            "native:reno",
            "nodes and links around one bottleneck",
        ),
        ("19-graph.toml", "native:reno", "only one bottleneck"),
    ] {
        let scenario = shipped(file, contender, &[]);
        match RealPackets::new(TransportKind::Tcp).prepare(&scenario, &Registry::builtin()) {
            Err(Error::NotOnLinux { parts, .. }) => {
                assert!(
                    parts.iter().any(|part| part.contains(reason)),
                    "{file}: {parts:?}"
                );
            }
            Err(error) => panic!("{file}: {error}"),
            Ok(_) => panic!("{file} is not refused"),
        }
    }
}
