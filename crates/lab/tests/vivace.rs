//! PCC Vivace in the simulator, compared with the claims of its paper.

use ccplane_lab::result::ContenderResult;

use crate::common::{PAYLOAD, goodput, simulate_one};

fn run(contender: &str, seconds: u32, topology: &str, workload: &str) -> ContenderResult {
    let dumbbell = format!("[topology.dumbbell]\n{topology}\n[[workload]]\n{workload}\n");
    simulate_one(
        contender,
        &format!("duration = \"{seconds}s\"\nsample = \"100ms\"\n{dumbbell}"),
    )
}

const LINK: &str = "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:1bdp\"";

#[test]
fn alone_it_fills_nine_tenths_of_the_link_and_no_queue() {
    let result = run("vivace", 20, LINK, "bulk = {}");
    let mbit = goodput(&result, 0, 2.0, 20.0);
    assert!(mbit > 0.9 * PAYLOAD, "{mbit}");
    assert!(result.metrics.delay_mean_ms < 3.0, "{:?}", result.metrics);
    // If only losses reduce the utility, it fills the queue and more of the link.
    let loss = run("vivace:utility=loss", 20, LINK, "bulk = {}");
    assert!(goodput(&loss, 0, 2.0, 20.0) > 0.97 * PAYLOAD);
    assert!(loss.metrics.delay_mean_ms > 10.0, "{:?}", loss.metrics);
}

#[test]
fn two_flows_come_to_share() {
    let result = run("vivace", 60, LINK, "bulk = { flows = 2, stagger = \"5s\" }");
    let [first, second] = [0, 1].map(|flow| goodput(&result, flow, 20.0, 60.0));
    assert!((0.75..1.33).contains(&(first / second)), "{first} {second}");
    assert!(first + second > 0.85 * PAYLOAD, "{first} {second}");
}

#[test]
fn a_percent_of_random_loss_does_not_hurt() {
    let lossy = format!("{LINK}\nloss = \"1%\"");
    let mbit = goodput(&run("vivace", 30, &lossy, "bulk = {}"), 0, 5.0, 30.0);
    assert!(mbit > 0.8 * PAYLOAD, "{mbit}");
    // Cubic on the same link, for comparison.
    let cubic = goodput(&run("native:cubic", 30, &lossy, "bulk = {}"), 0, 5.0, 30.0);
    assert!(cubic < 0.25 * PAYLOAD, "{cubic}");
}

#[test]
fn it_follows_a_link_that_changes() {
    let events = "bulk = {}\n[[event]]\nat = \"10s\"\nlink = \"bottleneck\"\nrate = \"24mbit\"\n\
                  [[event]]\nat = \"20s\"\nlink = \"bottleneck\"\nrate = \"96mbit\"";
    let result = run("vivace", 35, LINK, events);
    assert!(goodput(&result, 0, 13.0, 20.0) > 0.85 * PAYLOAD / 4.0);
    assert!(goodput(&result, 0, 28.0, 35.0) > 0.85 * PAYLOAD);
}

#[test]
fn an_agent_that_hears_an_rtt_late_learns_more_slowly_and_the_same() {
    let result = run(
        "vivace",
        20,
        LINK,
        "bulk = {}\n[steering]\nstaleness = \"20ms\"",
    );
    let mbit = goodput(&result, 0, 5.0, 20.0);
    assert!(mbit > 0.9 * PAYLOAD, "{mbit}");
}
