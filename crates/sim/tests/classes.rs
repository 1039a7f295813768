//! Classes at a host: a lower class is sent only when no higher class has data waiting.

use std::sync::{Arc, Mutex};

use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    FlowId, FlowSpec, LinkId, LinkSpec, LinkStep, Network, NodeId, PacketEvent, SimOptions,
    Simulation, Tracer, TransportConfig, default_transport,
};
use ccplane_transport::Rc3;
use ccplane_units::{Duration, Rate, Time};

/// Creates a host whose own link of 10 Mbit/s is the bottleneck, with 40 ms to the receiver and
/// back.
fn network(queue: QueueSpec) -> (Network, NodeId, NodeId, LinkId) {
    let rtt = Duration::from_millis(80);
    let link = LinkSpec::new(Rate::from_bits_per_sec(10_000_000), rtt / 2);
    let mut network = Network::new();
    let (from, to) = (network.add_host("from"), network.add_host("to"));
    let (own, _) = network.add_duplex_link(from, to, link.clone().with_queue(queue, rtt), link);
    (network, from, to, own)
}

/// Creates a flow whose tail is sent in class 1.
fn with_rc3(from: NodeId, to: NodeId, bytes: u64) -> FlowSpec {
    FlowSpec::new(from, to)
        .with_bytes(bytes)
        .with_transport(Arc::new(TransportConfig {
            rc3: Some(Rc3 {
                levels: 1,
                ..Rc3::default()
            }),
            ..default_transport().as_ref().clone()
        }))
}

/// Time, link, flow and class of a data packet.
type Came = (Time, LinkId, FlowId, u8);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Came>>>);

impl Tracer for Log {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        if let (LinkStep::Queued, Some(flow)) = (seen.step, seen.flow)
            && seen.segment.length > 0
        {
            let entry = (now, seen.link, flow, seen.segment.class);
            self.0.lock().expect("one thread").push(entry);
        }
    }
}

impl Log {
    /// Returns the number of packets of this class on this link in this interval.
    fn count(&self, link: LinkId, class: u8, from: Time, until: Time) -> usize {
        let all = self.0.lock().expect("one thread");
        all.iter()
            .filter(|(at, on, _, of)| *on == link && *of == class && (from..until).contains(at))
            .count()
    }
}

fn ms(ms: u64) -> Time {
    Time::from_micros(ms * 1_000)
}

#[test]
fn a_tail_uses_what_nobody_else_wants_and_nothing_more() {
    for queue in ["droptail:inf", "prio:2:1bdp"] {
        let (network, from, to, own) = network(queue.parse().expect("a queue"));
        let log = Log::default();
        let mut sim =
            Simulation::with_tracer(network, SimOptions::default(), log.clone()).expect("valid");
        let long = sim.add_flow(with_rc3(from, to, 4_000_000)).expect("a path");
        // With the other flow, from a few RTTs after its start until its end, there is always data
        // of class 0 waiting.
        let other = FlowSpec::new(from, to)
            .with_bytes(2_000_000)
            .starting_at(ms(100));
        let other = sim.add_flow(other).expect("a path");
        assert!(sim.run_flows(ms(20_000)).expect("no stall"), "{queue}");
        let data = log.0.lock().expect("one thread").clone();
        let of_other = data
            .iter()
            .filter(|(_, on, flow, _)| *on == own && *flow == other);
        let last = of_other
            .map(|(at, ..)| *at)
            .max()
            .expect("the other flow sent packets");
        // A packet takes 1.2 ms. During the first windows there is room for the tail.
        let before = log.count(own, 1, ms(80), ms(400));
        assert!(before > 60, "{queue}: {before} packets of the tail");
        let (busy, quiet) = (ms(600), Time::from_micros(last.as_micros() - 20_000));
        assert!(
            quiet > ms(2_000),
            "{queue}: the other flow ends too early: {last:?}"
        );
        assert_eq!(
            log.count(own, 1, busy, quiet),
            0,
            "{queue}: class 0 is always backlogged"
        );
        assert!(
            log.count(own, 0, busy, quiet) > 500,
            "{queue}: class 0 is sent"
        );
        let view = sim.flow(long).expect("exists");
        assert_eq!(view.received, 4_000_000, "{queue}");
        sim.check().expect("packets are conserved");
    }
}

/// The flow with the tail starts at various times around a fetch of the other flow's next packet.
#[test]
fn a_new_tail_does_not_slip_in_before_class_0() {
    for begins in (600_000..602_400).step_by(200).map(Time::from_micros) {
        let (network, from, to, own) = network("droptail:inf".parse().expect("a queue"));
        let log = Log::default();
        let mut sim =
            Simulation::with_tracer(network, SimOptions::default(), log.clone()).expect("valid");
        sim.add_flow(FlowSpec::new(from, to).with_bytes(4_000_000))
            .expect("a path");
        let new = sim
            .add_flow(with_rc3(from, to, 150_000).starting_at(begins))
            .expect("a path");
        sim.run_until(ms(1_000)).expect("no stall");
        assert_eq!(log.count(own, 1, begins, ms(1_000)), 0, "{begins:?}");
        assert!(log.count(own, 0, begins, ms(1_000)) > 300, "{begins:?}");
        assert!(
            sim.flow(new).is_some_and(|view| view.received > 0),
            "{begins:?}"
        );
    }
}

#[test]
fn a_tail_is_done_sooner_where_the_link_is_free() {
    let time = |spec: fn(NodeId, NodeId, u64) -> FlowSpec| {
        let (network, from, to, _) = network("droptail:inf".parse().expect("a queue"));
        let mut sim = Simulation::new(network, SimOptions::default()).expect("valid");
        let flow = sim.add_flow(spec(from, to, 150_000)).expect("a path");
        assert!(sim.run_flows(ms(20_000)).expect("no stall"));
        sim.flow(flow)
            .and_then(|view| view.finished)
            .expect("the flow finished")
    };
    let plain = time(|from, to, bytes| FlowSpec::new(from, to).with_bytes(bytes));
    let with_tail = time(with_rc3);
    // 104 segments: slow start from 10 takes four RTTs of 80 ms plus the handshake, with RC3 one
    // RTT.
    let saved = plain.since(with_tail);
    assert!(
        saved >= Duration::from_millis(2 * 80),
        "{plain:?}, {with_tail:?}"
    );
}

/// At its own host's link, a flow in a lower band yields to one in the highest band and recovers
/// afterwards, in either order of start.
#[test]
fn a_flow_in_a_lower_band_takes_what_is_left() {
    for queue in ["droptail:inf", "prio:4:1bdp"] {
        for low_first in [true, false] {
            let (network, from, to, _) = network(queue.parse().expect("a queue"));
            let mut sim = Simulation::new(network, SimOptions::default()).expect("valid");
            let (early, late) = (ms(0), ms(2_000));
            let low = FlowSpec::new(from, to)
                .with_band(3)
                .starting_at(if low_first { early } else { late });
            let high = FlowSpec::new(from, to)
                .with_bytes(8_000_000)
                .starting_at(if low_first { late } else { early });
            let (low, high) = (
                sim.add_flow(low).expect("a path"),
                sim.add_flow(high).expect("a path"),
            );
            let received = |sim: &Simulation, flow| sim.flow(flow).map_or(0, |view| view.received);
            sim.run_until(ms(4_000)).expect("no stall");
            let before = (received(&sim, low), received(&sim, high));
            sim.run_until(ms(6_000)).expect("no stall");
            let after = (received(&sim, low), received(&sim, high));
            // Two seconds are 2.5 MB on the wire.
            assert!(
                after.0 - before.0 < 30_000,
                "{queue}: {before:?}, {after:?}"
            );
            assert!(
                after.1 - before.1 > 2_350_000,
                "{queue}: {before:?}, {after:?}"
            );
            sim.run_until(ms(14_000)).expect("no stall");
            assert_eq!(received(&sim, high), 8_000_000, "{queue}");
            let left = received(&sim, low) - after.0;
            assert!(left > 2_000_000, "{queue}: {left}");
            sim.check().expect("packets are conserved");
        }
    }
}
