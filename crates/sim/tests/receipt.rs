//! Receivers that conceal losses, and proof of receipt, in virtual time.

use std::sync::Arc;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::Registry;
use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    AgentId, ConnectionError, DataDirection, FlowControl, FlowId, FlowSpec, FlowView, LinkId,
    LinkSpec, Native, Network, NodeId, SimOptions, Simulation, SteerOptions, TransportConfig,
    default_transport,
};
use ccplane_units::{Duration, Rate, Time};

const LINK_BITS: u64 = 10_000_000;
/// Rate of the sender's own link, which bounds its sending rate.
const ACCESS_BITS: u64 = 100_000_000;
const RUN_SECONDS: u64 = 5;

/// A link of 10 Mbit/s behind one of 100 Mbit/s; 15 ms.
struct Path {
    sim: Simulation,
    from: NodeId,
    to: NodeId,
    link: LinkId,
    agent: AgentId,
}

impl Path {
    fn new(seed: u64) -> Path {
        let rtt = Duration::from_millis(20);
        let mut network = Network::new();
        let (from, router, to) = (
            network.add_host("from"),
            network.add_switch("router"),
            network.add_host("to"),
        );
        let access = LinkSpec::new(Rate::from_bits_per_sec(ACCESS_BITS), rtt / 4);
        // Narrower than the receiver's own link, so that packets are dropped here.
        let back = LinkSpec::new(Rate::from_bits_per_sec(LINK_BITS), rtt / 4)
            .with_queue(QueueSpec::ONE_BDP, rtt);
        network.add_duplex_link(from, router, access, back);
        let narrow = LinkSpec::new(Rate::from_bits_per_sec(LINK_BITS), rtt / 4)
            .with_queue(QueueSpec::ONE_BDP, rtt);
        let (link, _) = network.add_duplex_link(router, to, narrow, LinkSpec::wire(rtt / 4));
        let mut sim = Simulation::new(network, SimOptions::seeded(seed)).expect("valid");
        let mut agent = Agent::new(AgentOptions::default());
        agent
            .add_boxed(
                Registry::builtin()
                    .by_name("bbr", &Default::default())
                    .expect("a built-in algorithm"),
            )
            .expect("the program compiles");
        let agent = sim.host_agent(agent, SteerOptions::default());
        Path {
            sim,
            from,
            to,
            link,
            agent,
        }
    }

    fn flow(&mut self, congestion: &str) -> FlowId {
        let congestion = match congestion {
            "bbr" => FlowControl::Steered(self.agent, "bbr".into()),
            _ => FlowControl::Native(Native::cubic()),
        };
        let spec = FlowSpec::new(self.from, self.to).with_congestion(congestion);
        self.sim.add_flow(spec).expect("a path")
    }

    fn run(&mut self) {
        let end = Time::ZERO + Duration::from_secs(RUN_SECONDS);
        self.sim.run_until(end).expect("no stall");
    }

    fn view(&self, flow: FlowId) -> FlowView {
        self.sim.flow(flow).expect("the flow was added")
    }

    /// Returns the offered load of the narrow link over the whole run, relative to its capacity.
    fn load(&self) -> f64 {
        let view = self.sim.link(self.link).expect("the link is there");
        let packet = 1_500.0;
        (view.accepted_bytes as f64 + view.queue_drops as f64 * packet) * 8.0
            / (LINK_BITS * RUN_SECONDS) as f64
    }
}

#[test]
fn a_receiver_that_conceals_losses_is_sent_more_than_its_link_carries() {
    for congestion in ["cubic", "bbr"] {
        let mut honest = Path::new(1);
        honest.flow(congestion);
        honest.run();
        let mut concealing = Path::new(1);
        concealing
            .sim
            .conceal_losses(concealing.to)
            .expect("a host");
        let flow = concealing.flow(congestion);
        concealing.run();
        let (honest, load) = (honest.load(), concealing.load());
        assert!(
            honest < 1.1,
            "{congestion}: {honest} from an honest receiver"
        );
        assert!(
            load > 2.0,
            "{congestion}: {load} times the capacity of the link"
        );
        assert_eq!(concealing.view(flow).failure, None);
    }
}

#[test]
fn proof_of_receipt_ends_the_connection_of_a_receiver_that_conceals_losses() {
    for congestion in ["cubic", "bbr"] {
        let mut path = Path::new(1);
        path.sim.require_proof();
        path.sim.conceal_losses(path.to).expect("a host");
        let flow = path.flow(congestion);
        path.run();
        let view = path.view(flow);
        assert_eq!(
            view.failure,
            Some(ConnectionError::FalseReceipt),
            "{congestion}"
        );
        assert!(
            path.load() < 1.0,
            "{congestion}: {} times the capacity of the link",
            path.load()
        );
        // The receiver was notified, and no state of the flow is left.
        path.sim
            .run_until(Time::ZERO + Duration::from_secs(2 * RUN_SECONDS))
            .expect("no stall");
        assert!(
            path.sim
                .resources_in_use()
                .iter()
                .all(|(_, left)| *left == 0),
            "{:?}",
            path.sim.resources_in_use()
        );
    }
}

/// Nonces do not change packet sizes.
#[test]
fn proof_of_receipt_changes_nothing_between_honest_ends() {
    let own = default_transport();
    let rc3 = Arc::new(TransportConfig {
        rc3: Some(ccplane_sim::Rc3::default()),
        ..(*own).clone()
    });
    let stamped = Arc::new((*own).clone().stamped());
    for (transport, name) in [(own, "plain"), (rc3, "rc3"), (stamped, "stamped")] {
        let digest = |is_proved: bool| {
            let mut path = Path::new(7);
            if is_proved {
                path.sim.require_proof();
            }
            let flows: Vec<FlowId> = [None, Some(3_000_000), Some(20_000)]
                .into_iter()
                .map(|bytes| {
                    let mut spec =
                        FlowSpec::new(path.from, path.to).with_transport(transport.clone());
                    spec.bytes = bytes;
                    path.sim.add_flow(spec).expect("a path")
                })
                .collect();
            path.run();
            assert!(
                flows.iter().all(|flow| path.view(*flow).failure.is_none()),
                "{name}"
            );
            assert!(
                path.view(flows[0]).retransmitted > 0,
                "{name}: nothing was lost"
            );
            path.sim.digest()
        };
        assert_eq!(digest(true), digest(false), "{name}");
    }
}

/// The endpoint that aborts has the reason, whichever it is.
#[test]
fn a_client_that_conceals_losses_of_the_answer_ends_the_flow() {
    let mut path = Path::new(1);
    path.sim.require_proof();
    path.sim.conceal_losses(path.from).expect("a host");
    let spec = FlowSpec {
        finish: false,
        ..FlowSpec::new(path.from, path.to).with_bytes(200)
    };
    let flow = path.sim.add_flow(spec).expect("a path");
    path.sim
        .run_until(Time::ZERO + Duration::from_secs(1))
        .expect("no stall");
    assert!(
        path.sim
            .write(flow, DataDirection::Backward, 5_000_000, false)
    );
    path.run();
    assert_eq!(path.view(flow).failure, Some(ConnectionError::FalseReceipt));
}

/// An honest receiver next to one that conceals losses keeps its flow.
#[test]
fn only_the_flow_of_the_false_receipts_ends() {
    let rtt = Duration::from_millis(20);
    let mut network = Network::new();
    let (from, router) = (network.add_host("from"), network.add_switch("router"));
    let narrow = LinkSpec::new(Rate::from_bits_per_sec(LINK_BITS), rtt / 4)
        .with_queue(QueueSpec::ONE_BDP, rtt);
    network.add_duplex_link(from, router, narrow, LinkSpec::wire(rtt / 4));
    let to = ["honest", "concealing"].map(|name| {
        let host = network.add_host(name);
        // The last link is narrower, so that losses are not at the sender's own.
        let slow = LinkSpec::new(Rate::from_bits_per_sec(LINK_BITS / 4), rtt / 4)
            .with_queue(QueueSpec::ONE_BDP, rtt);
        network.add_duplex_link(router, host, slow, LinkSpec::wire(rtt / 4));
        host
    });
    let mut sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
    sim.require_proof();
    sim.conceal_losses(to[1]).expect("a host");
    let flows = to.map(|to| sim.add_flow(FlowSpec::new(from, to)).expect("a path"));
    sim.run_until(Time::ZERO + Duration::from_secs(RUN_SECONDS))
        .expect("no stall");
    let failures = flows.map(|flow| sim.flow(flow).and_then(|view| view.failure));
    assert_eq!(failures, [None, Some(ConnectionError::FalseReceipt)]);
}
