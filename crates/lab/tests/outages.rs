//! No algorithm sends more than one segment into an outage: between a retransmission timeout and
//! the next delivery one segment is in flight (RFC 5681, 3.1), regardless of the window that the
//! algorithm or its agent sets.

use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_lab::transport::switched_on;
use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, NetworkChange, SimOptions, Simulation, SteerOptions,
    default_transport, topology,
};
use ccplane_transport::Native;
use ccplane_units::{Duration, Rate, Time};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Outage {
    rate_mbit: u64,
    rtt_ms: u64,
    begin_ms: u64,
    length_ms: u64,
}

/// Behaviour of a flow during an outage, after the RTT in which it begins.
#[derive(Debug)]
struct Course {
    /// Maximum number of segments in flight between a timeout and the next delivery.
    in_flight: u32,
    timeouts: u16,
    delivered_after: bool,
}

fn simulate(name: &str, outage: Outage) -> Course {
    let registry = Registry::builtin();
    let rtt = Duration::from_millis(outage.rtt_ms);
    let network = topology::dumbbell(
        1,
        &LinkSpec::wire(Duration::ZERO),
        LinkSpec::new(
            Rate::from_bits_per_sec(outage.rate_mbit * 1_000_000),
            rtt / 2,
        )
        .with_queue(QueueSpec::ONE_BDP, rtt),
        LinkSpec::wire(rtt / 2),
    )
    .unwrap();
    let (from, to) = (
        network.find_node("left1").unwrap(),
        network.find_node("right1").unwrap(),
    );
    let link = network.find_link("bottleneck").unwrap();
    let mut sim = Simulation::new(network, SimOptions::default()).unwrap();
    let begin = Time::ZERO + Duration::from_millis(outage.begin_ms);
    let end = begin + Duration::from_millis(outage.length_ms);
    sim.schedule(begin, NetworkChange::Down(link)).unwrap();
    sim.schedule(end, NetworkChange::Up(link)).unwrap();
    let flow = match name.strip_prefix("native:") {
        Some(native) => FlowSpec::new(from, to)
            .with_congestion(FlowControl::Native(native.parse::<Native>().unwrap())),
        None => {
            let algorithm = registry.by_name(name, &Parameters::new()).unwrap();
            let wants = algorithm.requested_capabilities();
            let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
            agent.add_boxed(algorithm).unwrap();
            let agent = sim.host_agent(agent, SteerOptions::default());
            FlowSpec::new(from, to)
                .with_congestion(FlowControl::Steered(agent, Arc::from(name)))
                .with_transport(Arc::new(switched_on((*default_transport()).clone(), wants)))
        }
    };
    let flow = sim.add_flow(flow).unwrap();
    let mut course = Course {
        in_flight: 0,
        timeouts: 0,
        delivered_after: false,
    };
    let mut now = begin;
    let mut delivered = 0;
    while now < end + Duration::from_secs(20) {
        sim.run_until(now).unwrap();
        let (sender, _) = sim.connections(flow).expect("the flow lives");
        if sender.consecutive_timeouts() > 0 {
            course.in_flight = course.in_flight.max(sender.in_flight());
        }
        let stats = sender.stats();
        course.timeouts = stats.timeouts;
        if now <= end {
            delivered = stats.delivered;
        } else if stats.delivered > delivered {
            course.delivered_after = true;
            break;
        }
        now += Duration::from_millis(3);
    }
    course
}

fn check(name: &str, outage: Outage) {
    let course = simulate(name, outage);
    assert!(course.in_flight <= 1, "{name}, {outage:?}: {course:?}");
    assert!(
        course.timeouts > 0 && course.delivered_after,
        "{name}, {outage:?}: {course:?}"
    );
}

/// Returns every algorithm of the registry that runs on single connections, and the transport's own
/// congestion controls.
fn names() -> Vec<String> {
    let registry = Registry::builtin();
    let steered = registry
        .names()
        .filter(|name| {
            let algorithm = registry.by_name(name, &Parameters::new());
            algorithm.is_ok_and(|algorithm| {
                algorithm
                    .required_capabilities()
                    .missing_from(ccplane_transport::CAPABILITIES)
                    .is_empty()
            })
        })
        .map(str::to_owned);
    steered
        .chain(Native::NAMES.map(|name| format!("native:{name}")))
        .collect()
}

#[test]
fn one_segment_for_each_timeout_under_every_algorithm() {
    for name in names() {
        let outage = Outage {
            rate_mbit: 50,
            rtt_ms: 40,
            begin_ms: 3_000,
            length_ms: 5_000,
        };
        check(&name, outage);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn one_segment_for_each_timeout_in_any_outage(
        name in prop::sample::select(names()),
        (rate_mbit, rtt_ms) in (1u64..60, 2u64..200).prop_filter(
            "the queue of one bandwidth-delay product holds no packet",
            // 1 Mbit/s times 1 ms is 125 bytes.
            |(rate_mbit, rtt_ms)| rate_mbit * rtt_ms * 125 >= 1500,
        ),
        begin_ms in 300u64..3_000,
        length_ms in 2_000u64..6_000,
    ) {
        check(&name, Outage { rate_mbit, rtt_ms, begin_ms, length_ms });
    }
}
