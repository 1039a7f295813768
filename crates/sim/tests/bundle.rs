//! Bundles at switches: the queue of a site moves into its sendbox, and packets are conserved.

use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report,
    box_algorithm,
};
use ccplane_algorithms::{Parameters, by_name};
use ccplane_bundle::{CAPABILITIES, PacketNumbering, Reason, SendboxConfig, SendboxMode};
use ccplane_datapath::Capabilities;
use ccplane_sim::{
    BundleId, BundleSpec, FlowControl, FlowSpec, LinkId, LinkSpec, Native, Network, NetworkChange,
    NodeId, SimError, SimOptions, Simulation, SteerOptions,
};
use ccplane_units::{Duration, Rate, Time};

/// 96 Mbit/s in bytes/s.
const LINK_BYTES_PER_SEC: u64 = 12_000_000;

/// Limits a bundle to 11 of the link's 12 MB/s.
struct FixedRate;

impl Algorithm for FixedRate {
    type Flow = ();

    fn name(&self) -> &str {
        "fixed"
    }

    fn programs(&self) -> Programs {
        let text = "(def (Report (limit 0) (waiting 0))) (when true (:= Report.limit Rate) (:= \
                    Report.waiting Flow.bytes_pending) (report))";
        Programs::new().with("tell", text)
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::PACING
    }

    fn open(&mut self, _: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("tell", &[]);
    }

    fn on_report(&mut self, (): &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        let &[limit, waiting] = report.fields() else {
            return;
        };
        control.gauge("waiting", waiting as f64);
        if limit > 0 {
            control.set_rate(Rate::from_bytes_per_sec(LINK_BYTES_PER_SEC / 12 * 11));
        }
    }
}

/// Two senders behind a sendbox and one without, over a bottleneck of 96 Mbit/s and 50 ms, to a
/// receiver behind a receivebox and one without.
struct Site {
    network: Network,
    senders: [NodeId; 2],
    receiver: NodeId,
    cross: (NodeId, NodeId),
    boxes: (NodeId, NodeId),
    bottleneck: LinkId,
    back: LinkId,
}

fn site() -> Site {
    let mut network = Network::new();
    let wire = || LinkSpec::wire(Duration::ZERO);
    let senders = [network.add_host("a"), network.add_host("b")];
    let receiver = network.add_host("z");
    let cross = (network.add_host("cross"), network.add_host("far"));
    let boxes = (
        network.add_switch("near box"),
        network.add_switch("far box"),
    );
    let routers = (network.add_switch("left"), network.add_switch("right"));
    for sender in senders {
        network.add_duplex_link(sender, boxes.0, wire(), wire());
    }
    network.add_duplex_link(boxes.0, routers.0, wire(), wire());
    network.add_duplex_link(cross.0, routers.0, wire(), wire());
    let rtt = Duration::from_millis(50);
    let link = LinkSpec::new(Rate::from_bytes_per_sec(LINK_BYTES_PER_SEC), rtt / 2);
    let queue = "droptail:3bdp".parse().expect("a queue");
    let (bottleneck, back) = network.add_duplex_link(
        routers.0,
        routers.1,
        link.clone().with_queue(queue, rtt),
        link,
    );
    network.add_duplex_link(routers.1, boxes.1, wire(), wire());
    network.add_duplex_link(boxes.1, receiver, wire(), wire());
    network.add_duplex_link(routers.1, cross.1, wire(), wire());
    Site {
        network,
        senders,
        receiver,
        cross,
        boxes,
        bottleneck,
        back,
    }
}

fn seconds(s: u64) -> Time {
    Time::ZERO + Duration::from_secs(s)
}

fn cubic(from: NodeId, to: NodeId) -> FlowSpec {
    FlowSpec::new(from, to).with_congestion(FlowControl::Native(Native::cubic()))
}

/// Creates the network with a bundle and a Cubic flow from each sender.
fn bundled(config: SendboxConfig, overhead: u32) -> (Simulation, Site, BundleId) {
    let (mut sim, site, bundle) = idle(box_algorithm(FixedRate), config, overhead);
    for sender in site.senders {
        sim.add_flow(cubic(sender, site.receiver)).expect("a path");
    }
    (sim, site, bundle)
}

/// Creates the network with a bundle under an algorithm, without flows.
fn idle(
    algorithm: Box<dyn DynAlgorithm>,
    config: SendboxConfig,
    overhead: u32,
) -> (Simulation, Site, BundleId) {
    let site = site();
    let mut sim = Simulation::new(site.network.clone(), SimOptions::default()).expect("valid");
    let name = algorithm.name().to_owned();
    let mut agent = Agent::new(AgentOptions::default());
    agent.add_boxed(algorithm).expect("the program compiles");
    let options = SteerOptions {
        capabilities: CAPABILITIES,
        ..SteerOptions::default()
    };
    let agent = sim.host_agent(agent, options);
    let bundle = sim
        .add_bundle(BundleSpec {
            from: site.boxes.0,
            to: site.boxes.1,
            agent: Some((agent, name)),
            sendbox: config,
            overhead,
        })
        .expect("a bundle");
    (sim, site, bundle)
}

#[test]
fn the_queue_moves_into_the_box_and_packets_are_conserved() {
    for (marks, overhead) in [(PacketNumbering::Counter, 60), (PacketNumbering::Hash, 0)] {
        let config = SendboxConfig {
            numbering: marks,
            ..SendboxConfig::default()
        };
        let (mut sim, site, bundle) = bundled(config, overhead);
        sim.record_sojourns(site.bottleneck).expect("no packet yet");
        // A flow outside of the bundle.
        sim.add_flow(cubic(site.cross.0, site.cross.1).with_bytes(50_000))
            .expect("a path");
        sim.run_until(seconds(10)).expect("packets are conserved");
        let status = sim.bundle(bundle).expect("exists");
        assert_eq!(
            (status.mode, status.reason),
            (SendboxMode::Delay, Reason::Queue),
            "{marks:?}"
        );
        assert_eq!(
            status.rate,
            Some(Rate::from_bytes_per_sec(LINK_BYTES_PER_SEC / 12 * 11))
        );
        assert!(
            status.backlog.bytes > 100_000,
            "{marks:?}: the queue is at the sendbox: {:?}",
            status.backlog
        );
        let over = status.path.rtt.saturating_sub(Duration::from_millis(50));
        assert!(
            over < Duration::from_millis(3),
            "{marks:?}: no queue at the bottleneck: {over}"
        );
        let off = status
            .path
            .received
            .bytes_per_sec()
            .abs_diff(LINK_BYTES_PER_SEC / 12 * 11);
        assert!(
            off < LINK_BYTES_PER_SEC / 50,
            "{marks:?}: R {:?}",
            status.path.received
        );
        assert_eq!(
            (status.totals.implausible_feedback, status.totals.missing),
            (0, 0),
            "{marks:?}"
        );
        let changes: Vec<Reason> = sim
            .bundle_changes(bundle)
            .iter()
            .map(|change| change.reason)
            .collect();
        assert_eq!(changes, [Reason::Queue]);
        let gauge = sim
            .bundle_gauges(bundle)
            .iter()
            .find(|(name, _)| *name == "waiting");
        assert!(
            gauge.is_some_and(|(_, waiting)| *waiting > 100_000.0),
            "{gauge:?}"
        );
    }
}

/// Three pings that queue behind cross traffic leave the bundle unlimited, at the start and after a
/// transfer, so that the next transfer starts like the first.
#[test]
fn pings_beside_others_do_not_limit_the_next_transfer() {
    for before in [0, 60_000_000] {
        let bundler = by_name("bundler", &Parameters::new()).expect("exists");
        let (mut sim, site, bundle) = idle(bundler, SendboxConfig::default(), 60);
        if before > 0 {
            sim.add_flow(cubic(site.senders[1], site.receiver).with_bytes(before))
                .expect("a path");
        }
        // Cross traffic fills the queue for 4 s.
        sim.add_flow(
            cubic(site.cross.0, site.cross.1)
                .starting_at(seconds(10))
                .with_bytes(40_000_000),
        )
        .expect("a path");
        for second in 11..14 {
            sim.add_flow(
                cubic(site.senders[0], site.receiver)
                    .starting_at(seconds(second))
                    .with_bytes(64),
            )
            .expect("a path");
        }
        sim.run_until(seconds(15)).expect("packets are conserved");
        let idle = sim.bundle(bundle).expect("exists");
        assert_eq!(
            (idle.mode, idle.rate),
            (SendboxMode::Open, None),
            "{before}"
        );
        sim.add_flow(cubic(site.senders[0], site.receiver).starting_at(seconds(15)))
            .expect("a path");
        sim.run_until(seconds(17)).expect("packets are conserved");
        let status = sim.bundle(bundle).expect("exists");
        assert_eq!(
            (status.mode, status.reason),
            (SendboxMode::Delay, Reason::Queue),
            "{before}"
        );
        let arrived = status.totals.received_bytes - idle.totals.received_bytes;
        assert!(
            arrived > LINK_BYTES_PER_SEC * 13 / 10,
            "{before}: {arrived} bytes in 2 s"
        );
    }
}

#[test]
fn a_way_back_that_is_cut_opens_the_bundle() {
    let (mut sim, site, bundle) = bundled(SendboxConfig::default(), 60);
    sim.schedule(seconds(5), NetworkChange::Down(site.back))
        .expect("a time in the future");
    sim.run_until(seconds(7)).expect("packets are conserved");
    let last = sim
        .bundle_changes(bundle)
        .last()
        .copied()
        .expect("the bundle opened");
    assert_eq!(
        (last.to, last.reason),
        (SendboxMode::Open, Reason::NoFeedback)
    );
    let after = last.at.since(seconds(5));
    assert!(after < Duration::from_millis(300), "{after}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_observing_changes_none() {
    let digest = |observe| {
        let config = SendboxConfig {
            observe_only: observe,
            ..SendboxConfig::default()
        };
        let (mut sim, ..) = bundled(config, 0);
        sim.run_until(seconds(3)).expect("packets are conserved");
        sim.digest()
    };
    assert_eq!(digest(false), digest(false));
    assert_ne!(digest(false), digest(true));
}

/// A second bundle on a part of the first one's path: packets of the first tunnel stay in it.
#[test]
fn what_is_in_one_bundle_enters_no_other() {
    let (mut sim, site, outer) = bundled(SendboxConfig::default(), 60);
    let routers = ["left", "right"].map(|name| site.network.find_node(name).expect("exists"));
    let inner = sim
        .add_bundle(BundleSpec {
            from: routers[0],
            to: routers[1],
            agent: None,
            sendbox: SendboxConfig::default(),
            overhead: 60,
        })
        .expect("a bundle");
    sim.add_flow(cubic(site.cross.0, site.cross.1).with_bytes(500_000))
        .expect("a path");
    sim.run_until(seconds(5)).expect("packets are conserved");
    let status = |bundle| sim.bundle(bundle).expect("exists");
    assert_eq!(
        status(outer).mode,
        SendboxMode::Delay,
        "the receivebox receives the packets of the bundle"
    );
    assert!(status(outer).totals.received > 20_000 && status(outer).totals.missing == 0);
    let crossed = status(inner).totals.received;
    assert!(
        (345..500).contains(&crossed),
        "only the cross traffic and messages: {crossed}"
    );
}

#[test]
fn bundles_that_cannot_be_are_refused_with_the_reason() {
    let site = site();
    let mut sim = Simulation::new(site.network.clone(), SimOptions::default()).expect("valid");
    let spec = BundleSpec {
        from: site.boxes.0,
        to: site.boxes.1,
        agent: None,
        sendbox: SendboxConfig::default(),
        overhead: 0,
    };
    let refused = |sim: &mut Simulation, spec: BundleSpec| match sim.add_bundle(spec) {
        Err(SimError::Bundle(why)) => why,
        other => panic!("{other:?}"),
    };
    let host = BundleSpec {
        from: site.senders[0],
        ..spec.clone()
    };
    assert!(refused(&mut sim, host).contains("`a` is a host"));
    let beside = BundleSpec {
        to: site.boxes.0,
        ..spec.clone()
    };
    assert!(refused(&mut sim, beside).contains("no host is behind"));
    // A bundle rejected at the last check leaves no state behind.
    let mut agent = Agent::new(AgentOptions::default());
    agent.add(FixedRate).expect("the program compiles");
    let agent = sim.host_agent(agent, SteerOptions::default());
    let unknown = sim.add_bundle(BundleSpec {
        agent: Some((agent, "unheard of".into())),
        ..spec.clone()
    });
    assert!(
        matches!(unknown, Err(SimError::UnknownAlgorithm(_))),
        "{unknown:?}"
    );
    sim.add_bundle(spec.clone()).expect("a bundle");
    assert!(refused(&mut sim, spec).contains("in two bundles"));
}
