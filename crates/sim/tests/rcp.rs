//! RCP: routers offer rates, and senders follow them.

use ccplane_qdisc::{QueueSpec, RcpConfig, Size};
use ccplane_sim::{
    FlowControl, FlowId, FlowSpec, LinkSpec, Native, Network, SimOptions, Simulation,
    TransportConfig, default_transport,
};
use ccplane_units::{Duration, Rate, Time};

/// Two hosts that send to a third over a router's link of 100 Mbit/s and an RTT of 20 ms; `init` is
/// the initial offer in per cent of the link.
fn simulation(init: u64) -> (Simulation, Vec<FlowSpec>) {
    let rate = Rate::from_bits_per_sec(100_000_000);
    let config = RcpConfig {
        init,
        ..RcpConfig::DEFAULT
    };
    let queue = QueueSpec::Rcp {
        config,
        limit: Size::Bytes(500_000),
    };
    let rtt = Duration::from_millis(20);
    let mut network = Network::new();
    let (router, to) = (network.add_switch("router"), network.add_host("to"));
    let narrow = LinkSpec::new(rate, rtt / 4);
    network.add_duplex_link(router, to, narrow.clone().with_queue(queue, rtt), narrow);
    let wide = LinkSpec::new(Rate::from_bits_per_sec(1_000_000_000), rtt / 4);
    let hosts = ["a", "b"].map(|name| {
        let host = network.add_host(name);
        network.add_duplex_link(host, router, wide.clone(), wide.clone());
        host
    });
    let sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
    let transport = std::sync::Arc::new(TransportConfig {
        ack_every: 1,
        ..TransportConfig::clone(&default_transport())
    });
    let flow = |from| {
        FlowSpec::new(from, to)
            .with_congestion(FlowControl::Native(Native::rcp()))
            .with_transport(transport.clone())
    };
    (sim, hosts.into_iter().map(flow).collect())
}

fn ms(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

/// The handshake returns the rate, so the flow uses the whole link from its first packet on.
#[test]
fn a_flow_alone_takes_a_round_trip_and_a_half_and_its_bytes() {
    let (mut sim, mut flows) = simulation(100);
    let flow = sim
        .add_flow(flows.remove(0).with_bytes(1_448_000))
        .expect("a path");
    assert!(sim.run_flows(ms(5_000)).expect("no stall"));
    let view = sim.flow(flow).expect("exists");
    // 1,000 packets of 1,500 bytes take 120 ms.
    let took = view
        .finished
        .expect("the flow finished")
        .since(view.started)
        .as_micros();
    assert!((149_500..155_000).contains(&took), "{took} µs");
    assert_eq!((view.retransmitted, view.timeouts), (0, 0));
}

/// With an initial offer of a twentieth the flow starts slowly, and the router raises the offer
/// until the link is used.
#[test]
fn the_offer_follows_what_is_spare() {
    let (mut sim, mut flows) = simulation(5);
    let flow = sim.add_flow(flows.remove(0)).expect("a path");
    let received = |sim: &Simulation, flow: FlowId| sim.flow(flow).map_or(0, |view| view.received);
    sim.run_until(ms(100)).expect("no stall");
    let early = received(&sim, flow);
    assert!(early < 200_000, "{early} of 1,200,000");
    sim.run_until(ms(2_000)).expect("no stall");
    let before = received(&sim, flow);
    sim.run_until(ms(3_000)).expect("no stall");
    let used = (received(&sim, flow) - before) as f64 * 8.0 / 1e8;
    assert!(used > 0.9, "{used}");
}

/// When a second flow starts, the router halves its offer, both flows get the same rate, and the
/// initial queue drains.
#[test]
fn two_flows_get_the_same() {
    let (mut sim, mut flows) = simulation(100);
    let second = flows.remove(1).starting_at(ms(500));
    let ids = [flows.remove(0), second].map(|flow| sim.add_flow(flow).expect("a path"));
    sim.run_until(ms(3_000)).expect("no stall");
    let received =
        |sim: &Simulation| ids.map(|flow| sim.flow(flow).map_or(0, |view| view.received));
    let before = received(&sim);
    sim.run_until(ms(5_000)).expect("no stall");
    let after = received(&sim);
    let [one, other] =
        [after[0] - before[0], after[1] - before[1]].map(|bytes| bytes as f64 * 8.0 / 2e8);
    assert!(
        (one - other).abs() < 0.05 && one + other > 0.85,
        "{one} {other}"
    );
    let link = sim.network().find_link("router->to").expect("exists");
    let backlog = sim.link(link).expect("exists").backlog.bytes;
    assert!(backlog < 60_000, "{backlog}");
    sim.check().expect("packets are conserved");
}
