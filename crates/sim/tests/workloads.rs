//! Workloads in simulations: their traffic arrives, in time.

use std::sync::Arc;

use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    AppId, Arrivals, Carrier, ConnectionPolicy, DeliveredMessage, DurationDistribution, Duty,
    FlowControl, FlowView, LinkSpec, Native, NetworkError, NodeId, Pairs, SimError, SimOptions,
    Simulation, SizeTable, TransportConfig, Workload, WorkloadSpec, default_transport, topology,
};
use ccplane_units::{Bytes, Duration, Rate, Time};

const MSS: u32 = 1_448;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// `pairs` senders and receivers across 96 Mbit/s with an RTT of 20 ms.
fn dumbbell(pairs: u32, seed: u64) -> Simulation {
    let bottleneck = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), ms(10)).with_queue(
        "droptail:1bdp".parse::<QueueSpec>().expect("a queue"),
        ms(20),
    );
    let access = LinkSpec::wire(Duration::ZERO);
    let network = topology::dumbbell(pairs, &access, bottleneck, LinkSpec::wire(ms(10)))
        .expect("a valid network");
    let options = SimOptions::seeded(seed);
    Simulation::new(network, options).expect("a valid network")
}

fn across(sim: &Simulation, pairs: u32) -> Pairs {
    let host = |name: String| sim.network().find_node(&name).expect("the host exists");
    Pairs::List(
        (1..=pairs)
            .map(|n| (host(format!("left{n}")), host(format!("right{n}"))))
            .collect(),
    )
}

fn spec(sim: &Simulation, pairs: u32, kind: Workload) -> WorkloadSpec {
    WorkloadSpec {
        name: "test".into(),
        pairs: across(sim, pairs),
        kind,
        start: Time::ZERO,
        stop: None,
    }
}

fn add(sim: &mut Simulation, spec: WorkloadSpec) -> AppId {
    sim.add_workload(
        spec,
        FlowControl::Native(Native::cubic()),
        default_transport(),
    )
    .expect("a valid workload")
}

/// One flow per pair, each `stagger` later than the one before.
fn bulk(bytes: Option<Bytes>, stagger: Duration) -> Workload {
    Workload::Bulk {
        flows: 1,
        bytes,
        stagger,
        spread: Duration::ZERO,
        lifetime: None,
    }
}

/// Runs until the workloads have ended, or until `limit`. Returns true if they have ended.
fn run_workloads(sim: &mut Simulation, workloads: &[AppId], limit: Time) -> bool {
    sim.run_workloads(workloads, limit)
        .expect("the run succeeds")
}

fn flows_of(sim: &Simulation, app: AppId) -> Vec<FlowView> {
    let views = sim.flows().filter_map(|flow| sim.flow(flow));
    views.filter(|view| view.app == Some(app)).collect()
}

#[test]
fn poisson_flows_finish_and_load_the_link() {
    let mut sim = dumbbell(4, 1);
    let poisson = Workload::Poisson {
        arrivals: Arrivals::Load {
            share: 0.5,
            link_rate: Rate::from_bits_per_sec(96_000_000),
        },
        sizes: SizeTable::named("caida").expect("a published table"),
        flows: None,
    };
    let spec = WorkloadSpec {
        stop: Some(at(20_000)),
        ..spec(&sim, 4, poisson)
    };
    let app = add(&mut sim, spec);
    sim.run_until(at(40_000)).expect("the run succeeds");
    let flows = flows_of(&sim, app);
    // 285.4 per second for 20 s.
    assert!((5_400..6_000).contains(&flows.len()), "{}", flows.len());
    assert_eq!(
        sim.workload(app).expect("exists").opened(),
        flows.len() as u64
    );
    for flow in &flows {
        let finished = flow.finished.expect("20 s are enough");
        assert_eq!(Some(flow.received), flow.bytes);
        // The handshake and the data take at least three one-way delays.
        assert!(finished.since(flow.started) >= ms(30), "{flow:?}");
    }
    // Half of the time, short flows meet an empty link: three one-way delays and their own
    // transmission.
    let mut short: Vec<u64> = flows
        .iter()
        .filter(|flow| flow.bytes <= Some(10_000))
        .filter_map(|flow| Some(flow.finished?.since(flow.started).as_micros()))
        .collect();
    short.sort_unstable();
    assert!(
        short[short.len() / 4] < 32_000,
        "{}",
        short[short.len() / 4]
    );
}

#[test]
fn a_constant_rate_arrives_at_that_rate_and_ends() {
    let mut sim = dumbbell(2, 1);
    let constant = Workload::Paced {
        rate: Rate::from_bits_per_sec(8_000_000),
        duty: Duty::Always,
        carrier: Carrier::Stream { write: MSS },
    };
    let spec = WorkloadSpec {
        stop: Some(at(3_000)),
        ..spec(&sim, 2, constant)
    };
    let app = add(&mut sim, spec);
    sim.run_until(at(1_000)).expect("the run succeeds");
    let before: Vec<u64> = flows_of(&sim, app)
        .iter()
        .map(|flow| flow.received)
        .collect();
    sim.run_until(at(2_000)).expect("the run succeeds");
    for (flow, before) in flows_of(&sim, app).iter().zip(before) {
        // 1 MB per second, in writes of one segment.
        assert!(
            (flow.received - before).abs_diff(1_000_000) <= u64::from(MSS),
            "{}",
            flow.received - before
        );
        assert_eq!(flow.retransmitted, 0);
    }
    sim.run_until(at(4_000)).expect("the run succeeds");
    for flow in flows_of(&sim, app) {
        assert!(
            flow.received.abs_diff(3_000_000) <= 2 * u64::from(MSS),
            "{}",
            flow.received
        );
        assert_eq!(flow.failure, None);
    }
}

#[test]
fn datagrams_heed_no_congestion() {
    let mut sim = dumbbell(2, 1);
    let cross = Workload::Paced {
        rate: Rate::from_bits_per_sec(48_000_000),
        duty: Duty::Always,
        carrier: Carrier::Datagrams {
            bytes: 1_500,
            poisson: true,
        },
    };
    let cross = WorkloadSpec {
        pairs: Pairs::one(node(&sim, "left1"), node(&sim, "right1")),
        ..spec(&sim, 1, cross)
    };
    let cross = add(&mut sim, cross);
    let bulk = bulk(None, Duration::ZERO);
    let bulk = WorkloadSpec {
        pairs: Pairs::one(node(&sim, "left2"), node(&sim, "right2")),
        ..spec(&sim, 1, bulk)
    };
    let bulk = add(&mut sim, bulk);
    sim.run_until(at(10_000)).expect("the run succeeds");
    let stats = sim.datagram_stats(cross);
    assert!((39_000..41_000).contains(&stats.sent), "{stats:?}");
    // The elastic flow fills the remaining capacity and the queue, so some datagrams are dropped.
    assert!(stats.received > stats.sent * 95 / 100 && stats.received <= stats.sent);
    assert_eq!(stats.received_bytes, stats.received * 1_500);
    assert!(stats.delay_sum / stats.received > ms(10));
    let flows = flows_of(&sim, bulk);
    let rate = flows[0].received as f64 * 8.0 / 10.0;
    assert!((38e6..50e6).contains(&rate), "{rate}");
}

#[test]
fn endless_flows_are_given_up_when_their_workload_stops() {
    let mut sim = dumbbell(2, 1);
    let bulk = bulk(None, ms(100));
    let spec = WorkloadSpec {
        stop: Some(at(2_000)),
        ..spec(&sim, 2, bulk)
    };
    let app = add(&mut sim, spec);
    sim.run_until(at(2_500)).expect("the run succeeds");
    let then = flows_of(&sim, app);
    assert_eq!(then.len(), 2);
    assert_eq!((then[0].started, then[1].started), (at(0), at(100)));
    let total: u64 = then.iter().map(|flow| flow.received).sum();
    assert!(total > 18_000_000, "{total}");
    sim.run_until(at(10_000)).expect("the run succeeds");
    let after: u64 = flows_of(&sim, app).iter().map(|flow| flow.received).sum();
    assert_eq!(after, total);
}

#[test]
fn requests_and_responses_alternate() {
    let mut sim = dumbbell(3, 1);
    let requests = Workload::Requests {
        connections: 2,
        request: SizeTable::fixed(Bytes::new(200)),
        response: SizeTable::fixed(Bytes::new(10_000)),
        think_time: DurationDistribution::Exponential(ms(50)),
    };
    let spec = WorkloadSpec {
        stop: Some(at(10_000)),
        ..spec(&sim, 3, requests)
    };
    let app = add(&mut sim, spec);
    sim.run_until(at(12_000)).expect("the run succeeds");
    assert_eq!(flows_of(&sim, app).len(), 6);
    let exchanges = sim.workload(app).expect("exists").exchanges();
    // The reverse path has no rate limit: 20 ms per exchange, 40 ms with the handshake, and a mean
    // think time of 50 ms. A response fits into the initial window.
    let first: Vec<u64> = exchanges[..6]
        .iter()
        .map(|e| e.finished.since(e.started).as_micros())
        .collect();
    assert!(
        first.iter().all(|us| (40_000..41_000).contains(us)),
        "{first:?}"
    );
    let later = &exchanges[6..];
    assert!(
        later
            .iter()
            .all(|e| (20_000..21_000).contains(&e.finished.since(e.started).as_micros()))
    );
    // Six connections with one exchange per 70 ms each: 857 exchanges, with a standard deviation of
    // about 17.
    assert!((790..930).contains(&exchanges.len()), "{}", exchanges.len());
    assert!(
        flows_of(&sim, app)
            .iter()
            .all(|flow| flow.failure.is_none())
    );
}

#[test]
fn the_same_seed_gives_the_same_flows() {
    let digest = |seed| {
        let mut sim = dumbbell(4, seed);
        let poisson = Workload::Poisson {
            arrivals: Arrivals::PerSecond(200.0),
            sizes: SizeTable::named("websearch").expect("a published table"),
            flows: Some(100),
        };
        let spec = spec(&sim, 4, poisson);
        add(&mut sim, spec);
        sim.run_until(at(5_000)).expect("the run succeeds");
        sim.digest()
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}

#[test]
fn a_run_can_wait_for_workloads() {
    let mut sim = dumbbell(2, 1);
    let start = |kind, sim: &mut Simulation| {
        let spec = spec(sim, 2, kind);
        add(sim, spec)
    };
    let finite = start(bulk(Some(Bytes::new(1_000_000)), Duration::ZERO), &mut sim);
    let messages = Workload::Messages {
        policy: ConnectionPolicy::Last,
        connections: 2,
        arrivals: Arrivals::PerSecond(100.0),
        sizes: SizeTable::fixed(Bytes::new(10_000)),
        messages: Some(100),
        requested: false,
        request: None,
        seed: None,
    };
    let messages = start(messages, &mut sim);
    start(bulk(None, Duration::ZERO), &mut sim);
    // They have not ended by 10 ms. Later, the run stops at the time of the last arrival.
    assert!(!run_workloads(&mut sim, &[finite, messages], at(10)));
    assert_eq!(sim.now(), at(10));
    assert!(run_workloads(&mut sim, &[finite, messages], at(60_000)));
    let flows = sim.flows().filter_map(|flow| sim.flow(flow));
    let last = flows
        .filter(|view| view.app == Some(finite))
        .filter_map(|view| view.finished)
        .max();
    let served = sim.workload(messages).expect("exists").messages();
    assert_eq!(served.len(), 100);
    assert!(
        served
            .iter()
            .all(|m| m.arrived <= m.started && m.started < m.finished)
    );
    let last_message = served.last().map(|message| message.finished);
    assert_eq!(Some(sim.now()), last.max(last_message));
    assert_eq!(sim.workload(messages).expect("exists").unfinished(), 0);
    // A workload that has ended is not awaited.
    let now = sim.now();
    assert!(run_workloads(&mut sim, &[finite], at(60_000)));
    assert_eq!(sim.now(), now);
}

/// The first requests are due before the connections are open, and wait for them.
#[test]
fn a_requested_message_takes_a_round_trip() {
    for policy in [ConnectionPolicy::Last, ConnectionPolicy::Random] {
        let mut sim = dumbbell(1, 1);
        let messages = Workload::Messages {
            connections: 2,
            policy,
            arrivals: Arrivals::PerSecond(1_000.0),
            sizes: SizeTable::fixed(Bytes::new(1_000)),
            messages: Some(100),
            requested: false,
            request: Some(Bytes::new(100)),
            seed: None,
        };
        let spec = spec(&sim, 1, messages);
        let workload = add(&mut sim, spec);
        assert!(run_workloads(&mut sim, &[workload], at(60_000)));
        let served = sim.workload(workload).expect("exists").messages();
        assert_eq!(served.len(), 100);
        assert!(served.first().is_some_and(|first| first.arrived < at(10)));
        let took = |m: &DeliveredMessage| m.finished.since(m.arrived);
        assert!(served.iter().all(|m| took(m) >= ms(20)), "{served:?}");
    }
}

/// Messages on one connection form one stream: a burst takes its transmission time and one one-way
/// delay, and the end of each message is reported.
#[test]
fn a_burst_on_a_drawn_connection_has_no_pauses() {
    let mut sim = dumbbell(1, 1);
    let messages = Workload::Messages {
        connections: 1,
        policy: ConnectionPolicy::Random,
        arrivals: Arrivals::PerSecond(100_000.0),
        sizes: SizeTable::fixed(Bytes::new(14_480)),
        messages: Some(200),
        requested: false,
        request: None,
        seed: None,
    };
    let spec = spec(&sim, 1, messages);
    let workload = add(&mut sim, spec);
    assert!(run_workloads(&mut sim, &[workload], at(60_000)));
    let served = sim.workload(workload).expect("exists").messages();
    assert_eq!(served.len(), 200);
    assert!(
        served
            .windows(2)
            .all(|w| w[0].arrived <= w[1].arrived && w[0].finished <= w[1].finished)
    );
    // Once the window fills the path, a message takes the transmission time of ten packets, not an
    // RTT.
    let took = |m: &DeliveredMessage| m.finished.since(m.started);
    let late: Vec<Duration> = served[100..].iter().map(took).collect();
    let mean = late.iter().map(|t| t.as_nanos()).sum::<u64>() / late.len() as u64;
    assert!(mean < 3_000_000, "{mean} ns");
}

#[test]
fn mistakes_are_told_with_the_workloads_name() {
    let mut sim = dumbbell(1, 1);
    let switch = node(&sim, "left");
    let add = |sim: &mut Simulation, pairs, kind, config: TransportConfig| {
        let spec = WorkloadSpec {
            name: "cross".into(),
            pairs,
            kind,
            start: Time::ZERO,
            stop: None,
        };
        sim.add_workload(spec, FlowControl::Native(Native::cubic()), Arc::new(config))
            .map(drop)
    };
    let right = node(&sim, "right1");
    let default = TransportConfig::default;
    let to_switch = Pairs::one(switch, right);
    let error = add(&mut sim, to_switch, bulk(None, Duration::ZERO), default()).unwrap_err();
    assert_eq!(
        error,
        SimError::Network(NetworkError::NotAHost("left".into()))
    );
    let nobody = Pairs::List(vec![]);
    let error = add(&mut sim, nobody, bulk(None, Duration::ZERO), default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the workload `cross` has no pair of two different hosts; name senders and receivers"
    );
    // Errors that appear only when a flow starts end the run.
    let left = node(&sim, "left1");
    let config = TransportConfig {
        mss: 0,
        ..TransportConfig::default()
    };
    add(
        &mut sim,
        Pairs::one(left, right),
        bulk(None, Duration::ZERO),
        config,
    )
    .expect("the workload itself is valid");
    let error = sim.run_until(at(1)).unwrap_err();
    assert!(
        error.to_string().contains("its segments are empty"),
        "{error}"
    );
}

fn node(sim: &Simulation, name: &str) -> NodeId {
    sim.network().find_node(name).expect("the node exists")
}
