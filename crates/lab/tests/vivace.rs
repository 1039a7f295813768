//! PCC Vivace in the simulator: what its paper promises, on simulated links.

use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_lab::Quiet;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::sim::{self, Options};

fn run(contender: &str, seconds: u32, topology: &str, workload: &str) -> ContenderResult {
    let text = format!(
        "contenders = [\"{contender}\"]\nduration = \"{seconds}s\"\nsample = \"100ms\"\n\
         [topology.dumbbell]\n{topology}\n[[workload]]\n{workload}\n"
    );
    let scenario = Scenario::parse("test.toml", &text, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let options = Options {
        seeds: scenario.seeds,
        threads: 1,
        command: String::new(),
        repeat: String::new(),
        packet_logs: None,
    };
    let mut result = sim::run(&scenario, &Registry::builtin(), &options, &Quiet).unwrap();
    result.contenders.remove(0)
}

const LINK: &str = "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:1bdp\"";

/// Mean goodput of each flow between two seconds, Mbit/s.
fn goodputs(result: &ContenderResult, from: f64, to: f64) -> Vec<f64> {
    let of = |samples: &Vec<ccplane_lab::result::Sample>| {
        let at = |s: f64| {
            let ns = (s * 1e9) as u64;
            samples
                .iter()
                .take_while(|x| x.at_ns <= ns)
                .last()
                .map_or(0, |x| x.received)
        };
        (at(to) - at(from)) as f64 * 8.0 / 1e6 / (to - from)
    };
    result.series.flows.iter().map(of).collect()
}

/// Of the payload that 96 Mbit/s carry: 1448 of 1500 bytes.
const PAYLOAD: f64 = 92.7;

#[test]
fn alone_it_fills_nine_tenths_of_the_link_and_no_queue() {
    let result = run("vivace", 20, LINK, "bulk = {}");
    let mbit = goodputs(&result, 2.0, 20.0)[0];
    assert!(mbit > 0.9 * PAYLOAD, "{mbit}");
    assert!(result.figures.delay_mean_ms < 3.0, "{:?}", result.figures);
    assert!(result.audit.sound, "{:?}", result.audit);
    // Where only losses cost it fills the queue, and more of the link.
    let loss = run("vivace:utility=loss", 20, LINK, "bulk = {}");
    assert!(goodputs(&loss, 2.0, 20.0)[0] > 0.97 * PAYLOAD);
    assert!(loss.figures.delay_mean_ms > 10.0, "{:?}", loss.figures);
}

#[test]
fn two_flows_come_to_share() {
    let result = run("vivace", 60, LINK, "bulk = { flows = 2, stagger = \"5s\" }");
    let [first, second] = goodputs(&result, 20.0, 60.0)[..] else {
        panic!("two flows")
    };
    assert!((0.75..1.33).contains(&(first / second)), "{first} {second}");
    assert!(first + second > 0.85 * PAYLOAD, "{first} {second}");
}

#[test]
fn a_percent_of_random_loss_does_not_hurt() {
    let lossy = format!("{LINK}\nloss = \"1%\"");
    let mbit = goodputs(&run("vivace", 30, &lossy, "bulk = {}"), 5.0, 30.0)[0];
    assert!(mbit > 0.8 * PAYLOAD, "{mbit}");
    // What it does to Cubic.
    let cubic = goodputs(&run("native:cubic", 30, &lossy, "bulk = {}"), 5.0, 30.0)[0];
    assert!(cubic < 0.25 * PAYLOAD, "{cubic}");
}

#[test]
fn it_follows_a_link_that_changes() {
    let events = "bulk = {}\n[[event]]\nat = \"10s\"\nlink = \"bottleneck\"\nrate = \"24mbit\"\n\
                  [[event]]\nat = \"20s\"\nlink = \"bottleneck\"\nrate = \"96mbit\"";
    let result = run("vivace", 35, LINK, events);
    assert!(goodputs(&result, 13.0, 20.0)[0] > 0.85 * PAYLOAD / 4.0);
    assert!(goodputs(&result, 28.0, 35.0)[0] > 0.85 * PAYLOAD);
}

#[test]
fn an_agent_that_hears_an_rtt_late_learns_more_slowly_and_the_same() {
    let result = run("vivace", 20, LINK, "bulk = {}\n[steering]\nstaleness = \"20ms\"");
    let mbit = goodputs(&result, 5.0, 20.0)[0];
    assert!(mbit > 0.9 * PAYLOAD, "{mbit}");
}
