//! Nimbus in the simulator, compared with the claims of its paper.

use ccplane_lab::result::ContenderResult;

use crate::common::{PAYLOAD, delay, simulate_one};

/// Runs on the paper's link: 96 Mbit/s, 50 ms, a buffer of two BDP. `more` is added to the
/// scenario.
fn run(contender: &str, seconds: u32, more: &str) -> ContenderResult {
    run_on(contender, seconds, "droptail:2bdp", more)
}

fn run_on(contender: &str, seconds: u32, queue: &str, more: &str) -> ContenderResult {
    simulate_one(
        contender,
        &format!(
            "duration = \"{seconds}s\"\nsample = \"100ms\"\n\
             [topology.dumbbell]\npairs = 2\nrate = \"96mbit\"\nrtt = \"50ms\"\n\
             queue = \"{queue}\"\n\
             [[workload]]\nfrom = \"left1\"\nto = \"right1\"\nbulk = {{}}\n{more}"
        ),
    )
}

/// Returns the first flow's goodput between two times in s, Mbit/s.
fn goodput(result: &ContenderResult, from: f64, to: f64) -> f64 {
    crate::common::goodput(result, 0, from, to)
}

const CUBIC: &str = "[[workload]]\nname = \"cross\"\nfrom = \"left2\"\nto = \"right2\"\n\
                     algorithm = \"native:cubic\"\n";

/// Target delay of BasicDelay: a quarter of 50 ms.
const TARGET_MS: f64 = 12.5;
/// Range of the mean queueing delay at rest. The law targets the minimum RTT of 10 ms, and the mean
/// is up to a tenth above it.
const RESTING_DELAY_MS: std::ops::Range<f64> = 0.85 * TARGET_MS..1.1 * TARGET_MS;

#[test]
fn alone_it_fills_the_link_and_keeps_the_queue_short() {
    for contender in ["nimbus", "nimbus:delay=copa"] {
        let result = run(contender, 20, "");
        assert!(goodput(&result, 5.0, 20.0) > 0.99 * PAYLOAD, "{contender}");
        let mean = delay(&result, 5.0, 20.0);
        assert!(mean < RESTING_DELAY_MS.end, "{contender}: {mean} ms");
    }
}

#[test]
fn it_competes_with_cubic_within_seconds_and_stops_when_it_has_gone() {
    let cross = |start| format!("{CUBIC}start = \"{start}\"\nstop = \"40s\"\nbulk = {{}}\n");
    // The pulse's phase at the start of the other flow determines the first seconds. From 5 s on,
    // the share is fair in each phase: a third to two thirds.
    for start in ["15s", "15.03s", "15.06s"] {
        let mbit = goodput(&run("nimbus", 40, &cross(start)), 20.0, 40.0);
        assert!(
            (PAYLOAD / 3.0..PAYLOAD * 2.0 / 3.0).contains(&mbit),
            "{start}: {mbit}"
        );
    }
    let result = run("nimbus", 55, &cross("15s"));
    // It competes by filling the queue, as Cubic does.
    assert!(delay(&result, 25.0, 40.0) > 3.0 * TARGET_MS);
    // Afterwards it returns to delay mode.
    assert!(goodput(&result, 45.0, 55.0) > 0.98 * PAYLOAD);
    let mean = delay(&result, 45.0, 55.0);
    assert!(RESTING_DELAY_MS.contains(&mean), "{mean} ms");

    // Without mode switching it starves.
    let starved = run("nimbus:competitive=off", 40, &cross("15s"));
    assert!(goodput(&starved, 20.0, 40.0) < PAYLOAD / 6.0);
}

#[test]
fn beside_a_constant_rate_it_takes_the_rest_and_does_not_compete() {
    for start in [0, 15] {
        let cross = format!(
            "[[workload]]\nfrom = \"left2\"\nto = \"right2\"\nstart = \"{start}s\"\n\
             datagrams = {{ rate = \"48mbit\" }}\n"
        );
        let result = run("nimbus", 40, &cross);
        let (mbit, ms) = (goodput(&result, 20.0, 40.0), delay(&result, 20.0, 40.0));
        assert!(
            (0.98..1.01).contains(&(mbit / PAYLOAD * 2.0)),
            "from {start} s: {mbit} Mbit/s"
        );
        assert!(RESTING_DELAY_MS.contains(&ms), "from {start} s: {ms} ms");
    }
}

#[test]
fn a_capacity_that_changes_is_known_after_some_seconds() {
    let events = "[[event]]\nat = \"15s\"\nlink = \"bottleneck\"\nrate = \"48mbit\"\n\
                  [[event]]\nat = \"35s\"\nlink = \"bottleneck\"\nrate = \"96mbit\"\n";
    let result = run("nimbus", 55, events);
    assert!(goodput(&result, 25.0, 35.0) > 0.98 * PAYLOAD / 2.0);
    // With the old estimate of the capacity it would detect its own traffic as elastic and fill the
    // queue.
    let mean = delay(&result, 27.0, 35.0);
    assert!(RESTING_DELAY_MS.contains(&mean), "{mean} ms");
    assert!(goodput(&result, 45.0, 55.0) > 0.98 * PAYLOAD);
    let mean = delay(&result, 45.0, 55.0);
    assert!(RESTING_DELAY_MS.contains(&mean), "{mean} ms");
}

#[test]
fn an_agent_that_hears_an_rtt_late_does_as_well() {
    let late = format!(
        "{CUBIC}start = \"15s\"\nstop = \"35s\"\nbulk = {{}}\n[steering]\nstaleness = \"50ms\"\n"
    );
    let result = run("nimbus", 35, &late);
    assert!(goodput(&result, 5.0, 15.0) > 0.98 * PAYLOAD);
    let mean = delay(&result, 5.0, 15.0);
    assert!(RESTING_DELAY_MS.contains(&mean), "{mean} ms");
    assert!(goodput(&result, 22.0, 35.0) > PAYLOAD / 3.0);
}

#[test]
fn a_buffer_shorter_than_its_target_is_not_filled_for_ever() {
    let result = run_on("nimbus", 20, "droptail:0.1bdp", "");
    let f = &result.metrics;
    assert!(goodput(&result, 5.0, 20.0) > 0.8 * PAYLOAD, "{f:?}");
    // Without a limit the law would lose a seventh: 0.8 (1 - S/R) = -0.125.
    let lost = f.queue_drops as f64 * 1448.0 * 8.0 / 1e6 / 20.0 / goodput(&result, 0.0, 20.0);
    assert!(lost < 0.05, "{lost}");
}
