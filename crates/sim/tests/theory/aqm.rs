//! Delay-based AQM: CoDel's control law and standing queue (RFC 8289), DualPI2's set points (RFC
//! 9332).

use ccplane_qdisc::{DropReason, Ecn};
use ccplane_sim::{
    Carrier, Duty, FlowControl, LinkSpec, LinkStep, Native, Network, PacketEvent, Pairs,
    SimOptions, Simulation, Tracer, TransportConfig, Workload, WorkloadSpec, default_transport,
};
use ccplane_units::{Duration, Time};

use super::path::{Path, at, config, mbit, within};

#[derive(Default)]
struct Drops(Vec<Time>);

impl Tracer for Drops {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        if seen.step == LinkStep::Dropped(DropReason::Aqm) {
            self.0.push(now);
        }
    }
}

/// Under an unresponsive overload, the first drop is one interval after the sojourn time exceeded
/// the target, and the drop after n drops is interval / sqrt(n) later (RFC 8289, section 3.2).
#[test]
fn codel_drops_faster_and_faster_under_overload() {
    let (line, load, bytes) = (12.0, 1.1, 1500);
    let (target, interval) = (0.005, 0.1);
    let transmission = f64::from(bytes) * 8.0 / (line * 1e6);
    let mut network = Network::new();
    let (from, to) = (network.add_host("from"), network.add_host("to"));
    let switch = network.add_switch("switch");
    let forward = LinkSpec::new(mbit(line), Duration::ZERO)
        .with_queue("codel".parse().unwrap(), Duration::ZERO);
    let wire = LinkSpec::wire(Duration::ZERO);
    network.add_duplex_link(from, switch, wire.clone(), wire.clone());
    network.add_duplex_link(switch, to, forward, wire);
    let mut sim =
        Simulation::with_tracer(network, SimOptions::default(), Drops::default()).unwrap();
    let workload = WorkloadSpec {
        name: "overload".into(),
        pairs: Pairs::List(vec![(from, to)]),
        kind: Workload::Paced {
            rate: mbit(line * load),
            duty: Duty::Always,
            carrier: Carrier::Datagrams {
                bytes,
                poisson: false,
            },
        },
        start: Time::ZERO,
        stop: None,
    };
    let congestion = FlowControl::Native(Native::new_reno());
    sim.add_workload(workload, congestion, default_transport())
        .unwrap();
    // After 2 s the drop rate equals the overload, and the control law has settled.
    sim.run_until(at(2.0)).unwrap();
    let drops: Vec<f64> = sim
        .tracer()
        .0
        .iter()
        .map(|drop| drop.as_secs_f64())
        .collect();
    // A packet that leaves at t arrived at t / load.
    let first = target / (1.0 - 1.0 / load) + interval;
    assert!(
        (0.0..transmission).contains(&(drops[0] - first)),
        "the first drop at {}",
        drops[0]
    );
    // A drop waits for the end of a transmission, which does not shift the next one.
    let mut expected = drops[0];
    let count = drops.len();
    for (n, drop) in (1..).zip(drops) {
        let late = drop - expected;
        assert!(
            (-1e-9..transmission).contains(&late),
            "drop {n} is {late} s late"
        );
        expected += interval / f64::from(n).sqrt();
    }
    assert!((90..=110).contains(&count), "{count} drops");
}

/// Returns the mean queueing delay, ms, and the utilisation of the line, after 20 s.
fn standing(
    queue: &str,
    flows: u32,
    native: &Native,
    ecn: Ecn,
    (line, rtt_ms): (f64, u64),
) -> (f64, f64) {
    let rtt = Duration::from_millis(rtt_ms);
    let forward = LinkSpec::new(mbit(line), rtt / 2).with_queue(queue.parse().unwrap(), rtt);
    let mut path = Path::new(forward, LinkSpec::wire(rtt / 2), 1);
    for _ in 0..flows {
        path.flow(native.clone(), TransportConfig { ecn, ..config() });
    }
    path.run_until(20.0);
    let before = path.link();
    path.run_until(50.0);
    let after = path.link();
    let waited = after
        .sojourn_sum
        .saturating_sub(before.sojourn_sum)
        .as_secs_f64();
    let carried = (after.accepted_bytes - before.accepted_bytes) as f64 * 8.0 / 30.0;
    (
        waited * 1e3 / (after.accepted - before.accepted) as f64,
        carried / (line * 1e6),
    )
}

/// A few flows leave a standing queue of about CoDel's target, 5 ms. CoDel holds the minimum
/// sojourn time of an interval at the target. With more flows, each of which has less effect, the
/// mean is above it.
#[test]
fn codel_holds_a_standing_queue_near_its_target() {
    for native in [Native::new_reno(), Native::cubic()] {
        let (delay, utilisation) = standing("codel", 4, &native, Ecn::NotEct, (96.0, 20));
        assert!(within("CoDel, ms", delay, 5.0, 15.0));
        assert!(within("utilisation", utilisation, 1.0, 1.0));
    }
}

/// An integral controller holds the classic queue at 15 ms without a steady-state error.
#[test]
fn dualpi2_holds_the_classic_queue_at_its_target() {
    for ecn in [Ecn::NotEct, Ecn::Ect0] {
        for native in [Native::new_reno(), Native::cubic()] {
            for (flows, line) in [(4, (96.0, 20)), (10, (50.0, 50))] {
                let (delay, utilisation) = standing("dualpi2", flows, &native, ecn, line);
                assert!(within("DualPI2, classic, ms", delay, 15.0, 3.0));
                assert!(within("utilisation", utilisation, 1.0, 1.0));
            }
        }
    }
}

/// Low-latency packets are marked from a sojourn time of 1 ms on: many flows stay just below it, a
/// few oscillate below it.
#[test]
fn dualpi2_holds_the_low_latency_queue_below_its_step() {
    let (delay, utilisation) = standing("dualpi2", 20, &Native::dctcp(), Ecn::Ect1, (96.0, 20));
    assert!(within("DualPI2, L4S, 20 flows, ms", delay, 1.0, 15.0) && delay < 1.0);
    assert!(within("utilisation", utilisation, 1.0, 8.0));
    let (delay, utilisation) = standing("dualpi2", 4, &Native::dctcp(), Ecn::Ect1, (50.0, 50));
    assert!((0.5..1.0).contains(&delay), "{delay} ms");
    assert!(within("utilisation", utilisation, 1.0, 4.0));
}
