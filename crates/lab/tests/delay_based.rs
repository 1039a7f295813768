//! Delay-based algorithms in the simulator, compared with the literature: short queues alone, and
//! competition with Cubic. The standard link is 96 Mbit/s with 20 ms and a drop-tail queue of one
//! BDP (160 packets, 20 ms).

use ccplane_lab::result::ContenderResult;

use crate::common::{PAYLOAD, simulate_one};

/// Runs one contender on a dumbbell with these workloads.
fn dumbbell(contender: &str, seconds: u32, link: &str, workloads: &str) -> ContenderResult {
    simulate_one(
        contender,
        &format!("duration = \"{seconds}s\"\n[topology.dumbbell]\n{link}\n{workloads}"),
    )
}

const STANDARD: &str = "rate = \"96mbit\"\nrtt = \"20ms\"";
const DEEP_QUEUE: &str = "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:2bdp\"";
const ONE_FLOW: &str = "[[workload]]\nbulk = {}\n";

fn beside(other: &str) -> String {
    format!(
        "[[workload]]\nbulk = {{}}\n[[workload]]\nname = \"cross\"\nalgorithm = {other:?}\n\
         bulk = {{}}\n"
    )
}

/// Brakmo and Peterson 1995, section 4.3: α to β segments in the queue, 0.25 to 0.5 ms here. Arun
/// and Balakrishnan 2018, section 3: a queue between zero and 2.5/δ packets, 0.6 ms. These hold in
/// the median, since Vegas, as in Linux, leaves slow start with a queue that takes seconds to
/// drain.
#[test]
fn vegas_and_copa_keep_the_queue_small_alone_at_full_utilisation() {
    for name in ["vegas", "copa:mode=default", "copa"] {
        let f = dumbbell(name, 20, STANDARD, ONE_FLOW).metrics;
        assert!(f.utilisation > 0.97, "{name}: {}", f.utilisation);
        assert!(f.delay_p50_ms < 0.7, "{name}: {} ms", f.delay_p50_ms);
        // Copa does not overshoot.
        assert!(
            name == "vegas" || (f.delay_mean_ms < 1.0 && f.queue_drops == 0),
            "{name}: {f:?}"
        );
    }
}

/// Mo, La, Anantharam, Walrand, "Analysis and Comparison of TCP Reno and Vegas", INFOCOM 1999. RFC
/// 9743 requires every new algorithm to be evaluated in competition with Cubic.
#[test]
fn vegas_starves_beside_cubic() {
    let f = dumbbell("vegas", 60, STANDARD, &beside("native:cubic")).metrics;
    assert!(f.goodput_mbit < 0.1 * PAYLOAD, "{} Mbit/s", f.goodput_mbit);
}

/// Long and fast paths, on which Copa's velocity overshoots the target by one RTT's change; the
/// paper's abstract claims support for long paths. Also a buffer of 0.3 BDP: slow start overflows
/// it once, and all losses of one round trip count once.
#[test]
fn copa_settles_on_long_and_fast_paths_and_in_small_buffers() {
    let paths = [
        ("96mbit", "10ms", 5),
        ("96mbit", "50ms", 10),
        ("96mbit", "100ms", 15),
        ("96mbit", "200ms", 20),
        ("1gbit", "10ms", 3),
    ];
    for (rate, rtt, seconds) in paths {
        for queue in ["1bdp", "0.3bdp"] {
            let link = format!("rate = {rate:?}\nrtt = {rtt:?}\nqueue = \"droptail:{queue}\"");
            let f = dumbbell("copa", seconds, &link, ONE_FLOW).metrics;
            assert!(
                f.utilisation > 0.9,
                "{rate} {rtt} {queue}: {}",
                f.utilisation
            );
            assert!(
                f.delay_p50_ms < 1.0,
                "{rate} {rtt} {queue}: {} ms",
                f.delay_p50_ms
            );
        }
    }
}

/// Arun and Balakrishnan 2018, section 2.2 and its figure 9.
#[test]
fn copa_competes_with_cubic_only_in_its_auto_mode() {
    let share = |name| {
        dumbbell(name, 60, DEEP_QUEUE, &beside("native:cubic"))
            .metrics
            .goodput_mbit
            / PAYLOAD
    };
    let (auto, default) = (share("copa"), share("copa:mode=default"));
    assert!(default < 0.15, "{default}");
    assert!((0.25..0.75).contains(&auto), "{auto}");
}

/// Section 2.3 of the same paper: flows with the same δ have the same rate. Several of them still
/// empty the queue, so none switches to competitive mode.
#[test]
fn copa_flows_share_fairly_with_a_small_queue() {
    for mode in ["copa", "copa:mode=default"] {
        let f = dumbbell(
            mode,
            30,
            STANDARD,
            "[[workload]]\nbulk = { flows = 4, stagger = \"1s\" }\n",
        )
        .metrics;
        assert!(f.jain.unwrap() > 0.95, "{mode}: {:?}", f.flows);
        assert!(f.utilisation > 0.95, "{mode}: {}", f.utilisation);
        assert!(f.delay_mean_ms < 5.0, "{mode}: {} ms", f.delay_mean_ms);
    }
}

/// Flows that mistake each other for buffer-filling flows would fill the queue until a loss, which
/// takes long in a deep buffer.
#[test]
fn copa_flows_do_not_compete_with_each_other_in_a_deep_buffer() {
    let link = "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:5bdp\"";
    let f = dumbbell("copa", 30, link, "[[workload]]\nbulk = { flows = 4 }\n").metrics;
    assert!(f.delay_p50_ms < 5.0 && f.jain.unwrap() > 0.95, "{f:?}");
}

/// LEDBAT++ draft, abstract and section 4.4: it yields to other traffic, and a slowdown costs at
/// most a tenth of the capacity.
#[test]
fn ledbat_plus_plus_fills_the_link_alone_and_yields_to_cubic() {
    // The queue must be able to hold 60 ms of delay.
    let link = "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:6bdp\"";
    let alone = dumbbell("ledbat++", 60, link, ONE_FLOW).metrics;
    assert!(alone.utilisation > 0.85, "{}", alone.utilisation);
    assert!(alone.delay_p95_ms < 66.0, "{} ms", alone.delay_p95_ms);
    let beside = dumbbell("ledbat++", 60, link, &beside("native:cubic")).metrics;
    assert!(
        beside.goodput_mbit < 0.1 * PAYLOAD,
        "{} Mbit/s",
        beside.goodput_mbit
    );
}

/// Purpose of slowdowns (section 4.4): a later flow measures the true base delay, so the first flow
/// does not starve.
#[test]
fn ledbat_plus_plus_has_no_advantage_for_the_latecomer() {
    let link = "rate = \"96mbit\"\nrtt = \"20ms\"\nqueue = \"droptail:6bdp\"";
    let two = "[[workload]]\nbulk = { flows = 2, stagger = \"20s\" }\n";
    let f = dumbbell("ledbat++", 120, link, two).metrics;
    assert!(f.jain.unwrap() > 0.8, "{:?}", f.flows);
}

#[test]
fn a_constant_rate_is_that_rate() {
    let f = dumbbell("constant:rate=48mbit", 10, STANDARD, ONE_FLOW).metrics;
    // The rate counts payload only.
    assert!((47.5..48.1).contains(&f.goodput_mbit), "{}", f.goodput_mbit);
    assert!(f.delay_p99_ms < 1.0 && f.queue_drops == 0, "{f:?}");
    // The window is half a BDP.
    let f = dumbbell("constant:cwnd=80p", 10, STANDARD, ONE_FLOW).metrics;
    assert!((45.0..47.0).contains(&f.goodput_mbit), "{}", f.goodput_mbit);
}
