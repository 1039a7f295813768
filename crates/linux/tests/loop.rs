//! The control loop on real packets over loopback: program in the kernel, reports, decisions,
//! windows.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::sync::atomic::AtomicBool;

use crate::common::*;

#[test]
fn an_algorithm_in_the_agent_steers_a_tcp_connection() {
    if !can_run("an_algorithm_in_the_agent_steers_a_tcp_connection") {
        return;
    }
    let _host = lock_host();
    let agent = agent_of("t_loop", 1000);
    let kernel = load(&agent, &patient());
    assert!(available("ccp_t_loop"));
    let running = RunningAgent::start(kernel, agent);
    let sink = Sink::start("127.0.0.1");
    let bytes = 200 << 20;
    let started = std::time::Instant::now();
    let sent = send(sink.address, "ccp_t_loop", bytes, &AtomicBool::new(false))
        .expect("the transfer completes");
    let took = started.elapsed();
    assert_eq!(sent, sink.received());
    let kernel = running.stop();
    let (name, _, counters) = kernel.counters().next().expect("one algorithm");
    eprintln!(
        "{name}: {counters:?}, {:.1} Gbit/s",
        bytes as f64 * 8e-9 / took.as_secs_f64()
    );
    assert!(
        counters.opened >= 1 && counters.reports >= 10,
        "{counters:?}"
    );
    assert_eq!(
        (counters.ring_lost, counters.fallbacks, counters.faults),
        (0, 0, 0)
    );
    drop(kernel);
    assert!(
        !available("ccp_t_loop"),
        "unregistered with its last holder"
    );
}
