//! End-to-end tests of the simulator: known times, conservation of packets, determinism, and error
//! messages.

use std::sync::{Arc, Mutex};

use ccplane_agent::{Agent, AgentOptions, Algorithm, Control, FlowInfo, Programs, Report};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::{DelayDistribution, DelayModel, LineSpec, QueueSpec};
use ccplane_sim::{
    FlowControl, FlowSpec, LinkSpec, LinkStep, Native, Network, NetworkChange, NetworkError,
    NodeId, PacketEvent, SimError, SimOptions, Simulation, Spread, SteerOptions, Tracer, parallel,
    topology,
};
use ccplane_units::stats::mean;
use ccplane_units::{Duration, Rate, Time};

fn mbit(mbit: u64) -> Rate {
    Rate::from_bits_per_sec(mbit * 1_000_000)
}

fn us(us: u64) -> Time {
    Time::from_micros(us)
}

fn node(network: &Network, name: &str) -> NodeId {
    network.find_node(name).expect("a node of the topology")
}

/// Dumbbell of 96 Mbit/s and 20 ms with this queue.
fn dumbbell(pairs: u32, queue: &str) -> Network {
    let rtt = Duration::from_millis(20);
    let access = LinkSpec::new(mbit(1_000), Duration::ZERO);
    let link = LinkSpec::new(mbit(96), rtt / 2);
    let queue = queue.parse().expect("a queue");
    topology::dumbbell(pairs, &access, link.clone().with_queue(queue, rtt), link).expect("small")
}

/// Adds bulk flows over all pairs of a dumbbell.
fn bulk(network: Network, pairs: u32, seed: u64) -> Simulation {
    let mut sim = Simulation::new(network, SimOptions::seeded(seed)).expect("a valid network");
    for n in 1..=pairs {
        let (from, to) = (
            node(sim.network(), &format!("left{n}")),
            node(sim.network(), &format!("right{n}")),
        );
        sim.add_flow(FlowSpec::new(from, to)).expect("a path");
    }
    sim
}

/// Tracer that logs arrivals as (time, segment kind, bytes).
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(u64, String, u32)>>>);

impl Tracer for Log {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        if seen.step == LinkStep::Arrived {
            let entry = (
                now.as_nanos(),
                format!("{:?}", seen.segment.kind),
                seen.bytes,
            );
            self.0.lock().expect("one thread").push(entry);
        }
    }
}

#[test]
fn packets_arrive_when_a_hand_says_they_do() {
    // 1 Gbit/s and 10 µs to a switch, 100 Mbit/s and 1 ms to the other host: 8 ns and 80 ns per
    // byte.
    let mut network = Network::new();
    let (a, switch, b) = (
        network.add_host("a"),
        network.add_switch("s"),
        network.add_host("b"),
    );
    let first = LinkSpec::new(mbit(1_000), Duration::from_micros(10));
    let second = LinkSpec::new(mbit(100), Duration::from_millis(1));
    network.add_duplex_link(a, switch, first.clone(), first);
    network.add_duplex_link(switch, b, second.clone(), second);
    let log = Log::default();
    let mut sim =
        Simulation::with_tracer(network, SimOptions::seeded(1), log.clone()).expect("valid");
    sim.add_flow(FlowSpec::new(a, b).with_bytes(3_000))
        .expect("a path");
    sim.run_until(us(4_500)).expect("no stall");
    let log = log.0.lock().expect("one thread");

    // The SYN: 52 bytes, 416 ns and 4160 ns of transmission.
    let (one, two) = (416 + 10_000, 416 + 10_000 + 4_160 + 1_000_000);
    assert_eq!(log[0], (one, "Open".into(), 52));
    assert_eq!(log[1], (two, "Open".into(), 52));
    // The SYN-ACK returns over the same links.
    let (three, four) = (
        two + 4_160 + 1_000_000,
        two + 4_160 + 1_000_000 + 416 + 10_000,
    );
    assert_eq!(log[2], (three, "OpenReply".into(), 52));
    assert_eq!(log[3], (four, "OpenReply".into(), 52));
    // Three segments are sent back to back, the last of 104 bytes; each queues behind the previous
    // one at the slow link.
    let data: Vec<u64> = log
        .iter()
        .filter(|e| e.1 == "Data" && e.2 > 52)
        .map(|e| e.0)
        .collect();
    let at_switch = [four + 22_000, four + 24_000, four + 24_000 + 1_248];
    let at_switch: Vec<u64> = (0..3)
        .map(|n| four + 10_000 + [12_000, 24_000, 24_000 + 156 * 8][n])
        .zip(at_switch)
        .map(|(at, _)| at)
        .collect();
    let begins = at_switch[0];
    let at_host = [120_000, 240_000, 240_000 + 156 * 80].map(|sent| begins + sent + 1_000_000);
    let mut expected = [at_switch, at_host.to_vec()].concat();
    expected.sort_unstable();
    assert_eq!(data, expected);
}

/// Runs three flows over a bottleneck with this queue whose rate, delay and state change. The
/// simulation checks that packets are conserved. Returns the packets that the bottleneck delivered
/// and the bytes that the flows received.
fn run_changing_link(queue: &str) -> (u64, u64) {
    let mut network = dumbbell(3, queue);
    let bottleneck = network.find_link("bottleneck").expect("exists");
    let reverse = network.find_link("reverse").expect("exists");
    let spec = network.spec_mut(bottleneck).expect("exists");
    spec.loss = "gilbert:p=0.1%:r=25%".parse().expect("a model of losses");
    let spec = network.spec_mut(reverse).expect("exists");
    spec.delay = DelayModel::Jitter {
        delay: Duration::from_millis(10),
        spread: Duration::from_millis(2),
        shape: DelayDistribution::Uniform,
        reorder: true,
    };
    let mut sim = bulk(network, 3, 7);
    sim.schedule(
        us(1_000_000),
        NetworkChange::Line(bottleneck, LineSpec::Constant(mbit(24))),
    )
    .expect("before the first packet");
    sim.schedule(
        us(2_000_000),
        NetworkChange::Delay(bottleneck, DelayModel::Fixed(Duration::from_millis(1))),
    )
    .expect("before the first packet");
    sim.schedule(us(2_500_000), NetworkChange::Down(bottleneck))
        .expect("a link");
    sim.schedule(us(2_600_000), NetworkChange::Up(bottleneck))
        .expect("a link");
    // Checked repeatedly, so also while packets are queued and in flight.
    for ms in 1..=40 {
        sim.run_until(us(ms * 100_000))
            .unwrap_or_else(|error| panic!("{queue}: {error}"));
    }
    let view = sim.link(bottleneck).expect("exists");
    assert!(view.losses > 0, "{queue}: {view:?}");
    let received = sim
        .flows()
        .filter_map(|flow| sim.flow(flow))
        .map(|flow| flow.received)
        .sum();
    (view.delivered, received)
}

#[test]
fn packets_are_conserved_whatever_the_links_do() {
    for queue in [
        "droptail:40p",
        "ecn:20p:160p",
        "prio:3:100p",
        "sfq",
        "codel",
        "fq_codel",
        "red:min=30p:max=90p",
        "dualpi2",
    ] {
        let (packets, bytes) = run_changing_link(queue);
        assert!(packets > 10_000, "{queue}: {packets} packets");
        assert!(bytes > 10_000_000, "{queue}: {bytes} bytes");
    }
}

#[test]
fn packets_are_conserved_in_the_examples_of_queues() {
    for queue in QueueSpec::examples() {
        let (packets, bytes) = run_changing_link(queue);
        // Small limits keep the throughput low, and two queues have a rate of 3 Mbit/s.
        let spec: QueueSpec = queue.parse().expect("a queue");
        let (packets_min, bytes_min) =
            if matches!(spec, QueueSpec::Tbf { .. } | QueueSpec::Policer { .. }) {
                (400, 500_000)
            } else {
                (2_000, 3_000_000)
            };
        assert!(packets > packets_min, "{queue}: {packets} packets");
        assert!(bytes > bytes_min, "{queue}: {bytes} bytes");
    }
}

/// Overtaking and overtaken packets are in flight when reordering is switched off.
#[test]
fn time_never_goes_back_whatever_becomes_of_a_delay() {
    let mut network = dumbbell(3, "droptail:1bdp");
    let bottleneck = network.find_link("bottleneck").expect("exists");
    let overtaking = DelayModel::Jitter {
        delay: Duration::from_millis(30),
        spread: Duration::from_millis(29),
        shape: DelayDistribution::Uniform,
        reorder: true,
    };
    network.spec_mut(bottleneck).expect("exists").delay = overtaking;
    let mut sim = bulk(network, 3, 7);
    for ms in (100..2_000).step_by(100) {
        let to = match ms % 200 {
            0 => overtaking,
            _ => DelayModel::Fixed(Duration::from_millis(1)),
        };
        sim.schedule(us(ms * 1_000), NetworkChange::Delay(bottleneck, to))
            .expect("a link");
    }
    let mut before = sim.now();
    while sim.step(us(2_500_000)).expect("no stall") {
        assert!(sim.now() >= before, "{} after {before}", sim.now());
        before = sim.now();
    }
    assert!(sim.link(bottleneck).expect("exists").delivered > 1_000);
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let one = |seed| {
        let mut network = dumbbell(4, "fq_codel");
        let bottleneck = network.find_link("bottleneck").expect("exists");
        network.spec_mut(bottleneck).expect("exists").loss = "0.1%".parse().expect("a probability");
        let mut sim = bulk(network, 4, seed);
        sim.run_until(us(2_000_000)).expect("no stall");
        sim.digest()
    };
    let alone = parallel::run(1..9, 1, one);
    assert_eq!(alone, parallel::run(1..9, 4, one));
    let mut distinct = alone.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(
        distinct.len(),
        alone.len(),
        "another seed gives another run"
    );
}

#[test]
fn a_run_in_slices_is_the_run_in_one() {
    let mut whole = bulk(dumbbell(2, "droptail:1bdp"), 2, 3);
    whole.run_until(us(3_000_000)).expect("no stall");
    let mut sliced = bulk(dumbbell(2, "droptail:1bdp"), 2, 3);
    for ms in 1..=3_000 {
        sliced.run_until(us(ms * 1_000)).expect("no stall");
    }
    assert_eq!(whole.digest(), sliced.digest());
}

#[test]
fn an_agent_steers_flows_with_stale_reports() {
    let mut sim =
        Simulation::new(dumbbell(2, "droptail:1bdp"), SimOptions::seeded(1)).expect("valid");
    let mut agent = Agent::new(AgentOptions::default());
    let cubic = Registry::builtin()
        .by_name("cubic", &Parameters::default())
        .expect("built in");
    agent.add_boxed(cubic).expect("the program compiles");
    let id = sim.host_agent(agent, SteerOptions::default());
    let flow = |sim: &Simulation, n: u32| {
        let end = |side: &str| node(sim.network(), &format!("{side}{n}"));
        FlowSpec::new(end("left"), end("right"))
    };
    for n in 1..=2 {
        let flow = flow(&sim, n).with_congestion(FlowControl::Steered(id, "cubic".into()));
        sim.add_flow(flow).expect("offered");
    }
    sim.run_until(us(20_000_000)).expect("no stall");
    let stats = sim.algorithm(id, "cubic").expect("exists");
    // Two flows, twenty seconds, a report about every 30 ms.
    assert!(stats.flows == 2 && stats.reports > 800, "{stats:?}");
    assert_eq!(
        (stats.refusals, stats.stale_reports > 50),
        (0, false),
        "{stats:?}"
    );
    let views: Vec<_> = sim.flows().filter_map(|flow| sim.flow(flow)).collect();
    let mbit = views.iter().map(|view| view.received).sum::<u64>() as f64 * 8.0 / 20.0 / 1e6;
    assert!(
        (88.0..92.7).contains(&mbit) && views.iter().all(|view| !view.in_fallback),
        "{mbit}"
    );
    // An unknown algorithm is an immediate error.
    let unknown = flow(&sim, 1).with_congestion(FlowControl::Steered(id, "nonesuch".into()));
    assert_eq!(
        sim.add_flow(unknown),
        Err(SimError::UnknownAlgorithm("nonesuch".into()))
    );
}

#[test]
fn short_flows_finish_and_give_their_place_back() {
    let mut sim =
        Simulation::new(dumbbell(1, "droptail:1bdp"), SimOptions::seeded(1)).expect("valid");
    let (from, to) = (node(sim.network(), "left1"), node(sim.network(), "right1"));
    for n in 0..200 {
        let flow = FlowSpec::new(from, to)
            .with_bytes(1 + n * 1_000)
            .starting_at(us(n * 50_000));
        sim.add_flow(flow.with_congestion(FlowControl::Native(Native::new_reno())))
            .expect("a path");
    }
    assert_eq!(sim.run_flows(us(60_000_000)), Ok(true));
    for flow in sim.flows() {
        let view = sim.flow(flow).expect("exists");
        assert_eq!(Some(view.received), view.bytes);
        let took = view.finished.expect("all flows").since(view.started);
        // At least one RTT for the handshake and half an RTT for the data.
        assert!(took >= Duration::from_millis(30), "{took:?}");
    }
    let before = sim.memory();
    sim.run_until(us(70_000_000)).expect("no stall");
    for n in 0..200 {
        sim.add_flow(
            FlowSpec::new(from, to)
                .with_bytes(1_000)
                .starting_at(us(70_000_000 + n * 50_000)),
        )
        .expect("a path");
    }
    sim.run_flows(us(120_000_000)).expect("no stall");
    // Only the records of the flows are new; the slots of their endpoints are reused.
    assert!(
        sim.memory() - before < 200 * 400,
        "{} {}",
        before,
        sim.memory()
    );
}

#[test]
fn flows_spread_over_equal_paths() {
    let link = LinkSpec::new(mbit(1_000), Duration::from_micros(1));
    for spread in [Spread::PerFlow, Spread::Symmetric, Spread::PerPacket] {
        let mut network = topology::leaf_spine(2, 4, 8, &link, &link).expect("small");
        network.spread = spread;
        let mut sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
        for n in 1..=8 {
            for to in 1..=8 {
                let (from, to) = (
                    node(sim.network(), &format!("host1-{n}")),
                    node(sim.network(), &format!("host2-{to}")),
                );
                sim.add_flow(FlowSpec::new(from, to).with_bytes(100_000))
                    .expect("a path");
            }
        }
        assert_eq!(sim.run_flows(us(10_000_000)), Ok(true));
        let over = |sim: &Simulation, name: String| {
            let link = sim.network().find_link(&name).expect("exists");
            sim.link(link).expect("exists").accepted
        };
        let up: Vec<u64> = (1..=4)
            .map(|n| over(&sim, format!("leaf1->spine{n}")))
            .collect();
        let down: Vec<u64> = (1..=4)
            .map(|n| over(&sim, format!("leaf2->spine{n}")))
            .collect();
        assert!(
            up.iter().chain(&down).all(|packets| *packets > 100),
            "{spread:?}: {up:?} {down:?}"
        );
    }
}

#[test]
fn routes_lead_round_a_link_that_is_down() {
    let mut network = Network::new();
    let (a, b) = (network.add_host("a"), network.add_host("b"));
    let switches: Vec<NodeId> = ["s", "t", "u"]
        .map(|name| network.add_switch(name))
        .to_vec();
    let link = LinkSpec::new(mbit(100), Duration::from_millis(1));
    let duplex =
        |network: &mut Network, x, y| network.add_duplex_link(x, y, link.clone(), link.clone());
    duplex(&mut network, a, switches[0]);
    let (direct, _) = duplex(&mut network, switches[0], switches[1]);
    duplex(&mut network, switches[0], switches[2]);
    duplex(&mut network, switches[2], switches[1]);
    duplex(&mut network, switches[1], b);
    let detour = network.find_link("u->t").expect("exists");
    let mut sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
    sim.add_flow(FlowSpec::new(a, b)).expect("a path");
    sim.schedule(us(500_000), NetworkChange::Down(direct))
        .expect("a link");
    sim.schedule(us(1_000_000), NetworkChange::Up(direct))
        .expect("a link");
    sim.run_until(us(500_000)).expect("no stall");
    assert_eq!(sim.link(detour).expect("exists").accepted, 0);
    sim.run_until(us(1_000_000)).expect("no stall");
    let on_detour = sim.link(detour).expect("exists").accepted;
    assert!(on_detour > 2_000, "{on_detour}");
    sim.run_until(us(1_500_000)).expect("no stall");
    let received = sim
        .flows()
        .filter_map(|flow| sim.flow(flow))
        .map(|flow| flow.received)
        .sum::<u64>();
    assert!(received > 15_000_000, "{received}");
}

#[test]
fn mistakes_are_told_by_name() {
    let link = LinkSpec::new(mbit(10), Duration::from_millis(1));
    let make = |network: Network| Simulation::new(network, SimOptions::default()).map(drop);

    let mut network = Network::new();
    network.add_host("a");
    network.add_switch("a");
    assert_eq!(
        make(network),
        Err(SimError::Network(NetworkError::DuplicateName("a".into())))
    );

    let mut network = Network::new();
    let (a, b) = (network.add_host("a"), network.add_host("b"));
    network.add_link(a, b, LinkSpec::new(mbit(0), Duration::ZERO));
    assert_eq!(
        make(network),
        Err(SimError::Network(NetworkError::ZeroRate("a->b".into())))
    );

    let mut network = Network::new();
    let (a, b) = (network.add_host("a"), network.add_host("b"));
    network.add_link(
        a,
        b,
        link.clone()
            .with_queue("droptail:1000B".parse().expect("a queue"), Duration::ZERO),
    );
    let error = make(network)
        .expect_err("a packet has 1500 bytes")
        .to_string();
    assert!(
        error.contains("a->b") && error.contains("less than one packet"),
        "{error}"
    );

    // A path in one direction only.
    let mut network = Network::new();
    let (a, b) = (network.add_host("a"), network.add_host("b"));
    network.add_link(a, b, link.clone());
    let mut sim = Simulation::new(network, SimOptions::default()).expect("valid");
    let error = sim.add_flow(FlowSpec::new(a, b)).expect_err("no path back");
    assert_eq!(
        error,
        SimError::Network(NetworkError::NoRoute {
            from: "b".into(),
            to: "a".into()
        })
    );
    assert!(matches!(
        sim.add_flow(FlowSpec::new(a, a)),
        Err(SimError::Flow { .. })
    ));

    // s routes packets for b to t, and t back to s.
    let mut network = Network::new();
    let (a, b) = (network.add_host("a"), network.add_host("b"));
    let (s, t) = (network.add_switch("s"), network.add_switch("t"));
    network.add_duplex_link(a, s, link.clone(), link.clone());
    network.add_duplex_link(b, t, link.clone(), link.clone());
    let (there, back) = network.add_duplex_link(s, t, link.clone(), link.clone());
    network.add_route(s, b, there);
    network.add_route(t, b, back);
    let error = make(network).expect_err("a loop").to_string();
    assert!(
        error.contains("s -> t -> s") || error.contains("t -> s -> t"),
        "{error}"
    );

    assert!(matches!(
        topology::fat_tree(5, &link, &link),
        Err(NetworkError::InvalidTopology(_))
    ));
    assert!(matches!(
        topology::fat_tree(2_000, &link, &link),
        Err(NetworkError::TooLarge { .. })
    ));
    let large = topology::fat_tree(8, &link, &link).expect("a valid topology");
    let little = SimOptions {
        memory_limit: 100_000,
        ..SimOptions::default()
    };
    assert!(matches!(
        Simulation::new(large, little).map(drop),
        Err(SimError::Network(NetworkError::TooLarge { .. }))
    ));
}

#[test]
fn what_stands_still_is_an_error_with_its_seed() {
    // On a link that loses everything the handshake fails and the flow with it, which is not a
    // stall.
    let mut network = dumbbell(1, "droptail:1bdp");
    let bottleneck = network.find_link("bottleneck").expect("exists");
    network.spec_mut(bottleneck).expect("exists").loss = "100%".parse().expect("a probability");
    let mut sim = Simulation::new(network, SimOptions::seeded(9)).expect("valid");
    let (from, to) = (node(sim.network(), "left1"), node(sim.network(), "right1"));
    let flow = sim
        .add_flow(FlowSpec::new(from, to).with_bytes(1_000))
        .expect("a path");
    assert_eq!(sim.run_flows(us(1_000_000_000)), Ok(true));
    let view = sim.flow(flow).expect("exists");
    assert!(
        view.finished.is_none() && view.failure.is_some(),
        "{view:?}"
    );

    // An application that asks to be woken immediately, for ever.
    struct Restless;
    impl ccplane_sim::App for Restless {
        fn wake(
            &mut self,
            now: Time,
            _: ccplane_sim::AppId,
            _: ccplane_sim::WakeReason,
            _: &mut ccplane_sim::World,
        ) -> Option<Time> {
            Some(now)
        }
    }
    let mut sim = bulk(dumbbell(1, "droptail:1bdp"), 1, 9);
    sim.add_app(Box::new(Restless), us(1_000));
    let error = sim.run_until(us(2_000)).expect_err("no progress");
    assert!(
        matches!(error, SimError::Stalled { seed: 9, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("seed 9"), "{error}");
}

#[test]
fn topologies_have_the_shape_that_they_are_known_by() {
    let link = LinkSpec::new(mbit(10_000), Duration::from_micros(1));
    let count = |network: &Network| {
        let hosts = network.hosts().count();
        (hosts, network.nodes().len() - hosts, network.links().len())
    };
    let tree = topology::fat_tree(4, &link, &link).expect("small");
    assert_eq!(count(&tree), (16, 20, 2 * 48));
    let sim = Simulation::new(tree, SimOptions::seeded(1)).expect("valid");
    let path = |from: &str, to: &str| {
        sim.path(node(sim.network(), from), node(sim.network(), to))
            .expect("connected")
            .links
    };
    assert_eq!(path("host0-0-0", "host0-0-1"), 2);
    assert_eq!(path("host0-0-0", "host0-1-0"), 4);
    assert_eq!(path("host0-0-0", "host3-1-1"), 6);

    // facts/dx.md, 3: 192 hosts and 56 switches; 192 + 32 * 2 + 16 * 4 cables.
    let tree = topology::tree_192(topology::TREE_192_QUEUE);
    assert_eq!(count(&tree), (192, 56, 2 * (192 + 64 + 64)));
    let sim = Simulation::new(tree, SimOptions::seeded(1)).expect("valid");
    let (from, to) = (
        node(sim.network(), "host0-0"),
        node(sim.network(), "host31-5"),
    );
    assert_eq!(
        sim.path(from, to).expect("connected").delay,
        Duration::from_micros(2 * 5 + 4 * 4)
    );

    // facts/rc3.md, 3.1: 110 nodes, 116 cables; RTTs of 24 to 84 ms, 43.6 ms on average over pairs
    // of routers.
    let wan = topology::internet2(topology::INTERNET2_QUEUE);
    assert_eq!(count(&wan), (100, 10, 2 * 116));
    let sim = Simulation::new(wan, SimOptions::seeded(1)).expect("valid");
    let mut rtts = Vec::new();
    for a in 0..10 {
        for b in (0..10).filter(|b| *b != a) {
            let (a, b) = (format!("host{a}-0"), format!("host{b}-0"));
            let path = sim
                .path(node(sim.network(), &a), node(sim.network(), &b))
                .expect("connected");
            rtts.push(path.delay.as_micros() as f64 * 2.0 / 1_000.0);
        }
    }
    let mean = mean(rtts.iter().copied()).expect("rtts");
    assert_eq!(rtts.iter().copied().fold(f64::MAX, f64::min), 24.0);
    assert_eq!(rtts.iter().copied().fold(0.0, f64::max), 84.0);
    assert!((mean - 43.6).abs() < 0.1, "{mean}");
}

#[test]
fn a_host_gives_its_link_packets_in_turn() {
    // Ten flows of one host: its link is the bottleneck, nothing is lost, and all flows get the
    // same rate.
    let link = LinkSpec::new(mbit(100), Duration::from_millis(1));
    let mut network = Network::new();
    let (from, switch, to) = (
        network.add_host("from"),
        network.add_switch("s"),
        network.add_host("to"),
    );
    let (own, _) = network.add_duplex_link(from, switch, link.clone(), link.clone());
    let fast = LinkSpec::new(mbit(1_000), Duration::from_millis(1));
    network.add_duplex_link(switch, to, fast.clone(), fast);
    let mut sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
    for _ in 0..10 {
        sim.add_flow(FlowSpec::new(from, to)).expect("a path");
    }
    sim.run_until(us(5_000_000)).expect("no stall");
    let view = sim.link(own).expect("exists");
    assert_eq!(view.queue_drops, 0);
    // At most the packet in transmission, two packets waiting behind it, and the last accepted one.
    assert!(
        view.sojourn_max <= Duration::from_micros(4 * 120),
        "{:?}",
        view.sojourn_max
    );
    let received: Vec<u64> = sim
        .flows()
        .filter_map(|flow| sim.flow(flow))
        .map(|flow| flow.received)
        .collect();
    let (least, most) = (
        received.iter().min().expect("ten"),
        received.iter().max().expect("ten"),
    );
    assert!(*most as f64 / (*least as f64) < 1.1, "{received:?}");
}

/// Limits its flow to two segments, releases it after two seconds, and takes control again after
/// four.
#[derive(Default)]
struct Leaves(Option<ccplane_agent::FlowId>, bool);

impl Algorithm for Leaves {
    type Flow = ();

    fn name(&self) -> &str {
        "leaves"
    }

    fn programs(&self) -> Programs {
        let text = "(def (Report (volatile acked 0))) (when true (:= Report.acked 1) (:= Cwnd \
                    2896) (report))";
        Programs::new().with("hold", text)
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("hold", &[]);
        control.set_timer(Duration::from_secs(2));
        self.0 = control.flow_id();
    }

    fn on_report(&mut self, (): &mut (), _: &Report<'_>, control: &mut Control<'_>) {
        assert!((2..4).all(|s| {
            !(us(s * 1_000_000 + 50_000)..us((s + 1) * 1_000_000)).contains(&control.now())
        }));
    }

    fn on_timer(&mut self, control: &mut Control<'_>) {
        control.set_timer(Duration::from_secs(2));
        let taken = std::mem::replace(&mut self.1, true);
        let Some(mut flow) = self.0.and_then(|flow| control.flow(flow)) else {
            return;
        };
        match taken {
            false => flow.release(),
            true => flow.set_program("hold", &[]),
        }
    }
}

#[test]
fn a_flow_that_its_algorithm_gives_up_runs_newreno_until_it_takes_it_back() {
    let mut sim =
        Simulation::new(dumbbell(1, "droptail:1bdp"), SimOptions::seeded(1)).expect("valid");
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(Leaves::default()).expect("the program compiles");
    let id = sim.host_agent(agent, SteerOptions::default());
    let [from, to] = ["left1", "right1"].map(|name| node(sim.network(), name));
    let flow = FlowSpec::new(from, to).with_congestion(FlowControl::Steered(id, "leaves".into()));
    let flow = sim.add_flow(flow).expect("offered");
    let mut received = 0;
    // Two segments per 20 ms are 1.2 Mbit/s; NewReno goes through slow start first.
    for (second, in_fallback, mbit) in [
        (2, false, 0.0..1.5),
        (4, true, 20.0..96.0),
        (6, false, 0.0..3.0),
    ] {
        sim.run_until(us(second * 1_000_000 - 100))
            .expect("no stall");
        let view = sim.flow(flow).expect("the flow exists");
        let had = (view.received - received) as f64 * 8.0 / 2.0 / 1e6;
        received = view.received;
        assert!(
            mbit.contains(&had) && view.in_fallback == in_fallback,
            "until {second} s: {had} Mbit/s, {}",
            view.in_fallback
        );
    }
}
