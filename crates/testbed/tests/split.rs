//! Algorithms with every decision in the agent (`split=agent`), in the simulator, over UDP and on
//! kernel TCP.

use crate::common::{scenario, simulate};
use crate::host::{registers, steers};
use ccplane_algorithms::Registry;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::{NoProgress, RunOptions, run};
use ccplane_testbed::{RealPackets, TransportKind};

fn text(contenders: &str, seconds: u64, loss: &str) -> String {
    format!(
        "contenders = [{contenders}]\nduration = \"{seconds}s\"\n[topology.dumbbell]\n\
         rate = \"24mbit\"\nrtt = \"20ms\"\n\
         queue = \"droptail:1bdp\"\nloss = \"{loss}\"\n[[workload]]\nbulk = {{ flows = 1 }}\n"
    )
}

/// The agent fills the link like the transport's own algorithm, and reduces as often.
#[test]
fn an_agent_alone_does_as_the_transport_itself() {
    for (name, loss) in [
        ("reno", "0%"),
        ("cubic", "0%"),
        ("reno", "0.3%"),
        ("cubic", "0.3%"),
    ] {
        let contenders = format!("\"{name}:split=agent\", \"native:{name}\"");
        let result = simulate(&text(&contenders, 30, loss));
        let metrics = |n: usize| &result.contenders[n].metrics;
        let (agent, native) = (metrics(0), metrics(1));
        let ratio = agent.goodput_mbit / native.goodput_mbit;
        assert!((0.93..1.07).contains(&ratio), "{name}, {loss}: {ratio}");
        let delay = (agent.delay_mean_ms - native.delay_mean_ms).abs();
        assert!(delay < 1.5, "{name}, {loss}: {delay} ms apart");
        // Slow start in steps of one report overshoots further: up to two more windows of 80
        // packets are lost.
        let most = native.retransmissions + 160;
        assert!(
            agent.retransmissions <= most,
            "{name}, {loss}: {}",
            agent.retransmissions
        );
    }
}

fn on_packets(over: TransportKind, contender: &str) -> ContenderResult {
    let scenario = scenario(&text(&format!("{contender:?}"), 5, "0%"));
    let options = RunOptions::single(1, "ccplane run");
    run(
        &RealPackets::new(over),
        &scenario,
        &Registry::builtin(),
        &options,
        &NoProgress,
    )
    .unwrap()
    .contenders
    .remove(0)
}

/// Slow start fills the path, the window is reduced after losses, and there is no retransmission
/// timeout.
#[test]
fn an_agent_alone_steers_kernel_tcp_and_the_transport_over_udp() {
    if !steers("an_agent_alone_steers_kernel_tcp_and_the_transport_over_udp") {
        return;
    }
    let _one = registers();
    for contender in ["reno:split=agent", "cubic:split=agent"] {
        for over in [TransportKind::Tcp, TransportKind::Udp] {
            let real = on_packets(over, contender);
            let metrics = &real.metrics;
            println!("{contender}, {over:?}: {metrics:?}");
            assert!(
                metrics.utilisation > 0.9 || !real.audit.sound,
                "{contender}, {over:?}"
            );
            // Losses of slow start and of a few sawteeth. A flow that never reduces would lose
            // packets in every round trip.
            assert!(metrics.retransmissions > 0, "{contender}, {over:?}");
            assert!(
                metrics.retransmissions < 300 || !real.audit.sound,
                "{contender}, {over:?}"
            );
        }
    }
}
