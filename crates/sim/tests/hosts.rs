//! One agent that controls the datapaths of several hosts.

use ccplane_agent::datapath::InlineChannel;
use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Registry, UnknownAlgorithm};
use ccplane_qdisc::QueueSpec;
use ccplane_sim::{
    AgentId, FlowControl, FlowId, FlowSpec, LinkSpec, Network, SimError, SimOptions, Simulation,
    SteerOptions,
};
use ccplane_units::{Duration, Rate, Time};

const GROUP_RATE_BITS: f64 = 40e6;

/// Two hosts that send to a third over 96 Mbit/s and 20 ms, controlled by one agent with a larger
/// delay to the second host. Their flows form one group of 40 Mbit/s.
struct Two {
    sim: Simulation,
    hosts: [AgentId; 2],
    flows: Vec<FlowId>,
}

fn agent(parameters: &str) -> Result<Agent, UnknownAlgorithm> {
    let mut agent = Agent::new(AgentOptions::default());
    agent
        .add_boxed(Registry::builtin().by_name("group", &parameters.parse()?)?)
        .expect("the program compiles");
    Ok(agent)
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn two(parameters: &str) -> Two {
    let rtt = Duration::from_millis(20);
    let mut network = Network::new();
    let (router, to) = (network.add_switch("router"), network.add_host("to"));
    let narrow = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), rtt / 4)
        .with_queue(QueueSpec::ONE_BDP, rtt);
    network.add_duplex_link(router, to, narrow, LinkSpec::wire(rtt / 4));
    let from = ["a", "b"].map(|name| {
        let host = network.add_host(name);
        network.add_duplex_link(
            host,
            router,
            LinkSpec::wire(rtt / 4),
            LinkSpec::wire(rtt / 4),
        );
        host
    });
    let mut sim = Simulation::new(network, SimOptions::seeded(1)).expect("valid");
    let first = sim.host_agent(
        agent(parameters).expect("valid parameters"),
        SteerOptions::default(),
    );
    let further = SteerOptions {
        to_agent: Duration::from_millis(5),
        from_agent: Duration::from_millis(5),
        ..SteerOptions::default()
    };
    let second = sim
        .host_additional_datapath(first, further)
        .expect("the agent is there");
    let hosts = [first, second];
    let flows = hosts
        .iter()
        .zip(from)
        .map(|(host, from)| {
            sim.add_flow(
                FlowSpec::new(from, to)
                    .with_congestion(FlowControl::Steered(*host, "group".into())),
            )
        })
        .collect::<Result<Vec<_>, SimError>>()
        .expect("paths");
    Two { sim, hosts, flows }
}

impl Two {
    /// Returns the rate of each flow until this time, Mbit/s.
    fn rates(&mut self, until: u64) -> Vec<f64> {
        let received = |two: &Two| -> Vec<u64> {
            let flow = |flow: &FlowId| two.sim.flow(*flow).map_or(0, |view| view.received);
            two.flows.iter().map(flow).collect()
        };
        let (before, begin) = (received(self), self.sim.now());
        self.sim.run_until(ms(until)).expect("no stall");
        let time = self.sim.now().since(begin).as_secs_f64();
        let after = received(self);
        after
            .iter()
            .zip(&before)
            .map(|(a, b)| (a - b) as f64 * 8.0 / time)
            .collect()
    }
}

#[test]
fn what_the_agent_hears_of_one_host_it_tells_the_other() {
    let mut two = two("rate=40mbit");
    two.rates(1_000);
    let rates = two.rates(3_000);
    assert!(
        rates
            .iter()
            .all(|rate| (rate / (GROUP_RATE_BITS / 2.0) - 1.0).abs() < 0.01),
        "{rates:?}"
    );
    // After one flow has ended, the flow of the other host gets the whole rate.
    assert!(two.sim.abort(two.flows[0]));
    two.rates(3_200);
    let rates = two.rates(5_000);
    assert!(
        rates[0] == 0.0 && (rates[1] / GROUP_RATE_BITS - 1.0).abs() < 0.01,
        "{rates:?}"
    );
    let stats = two
        .sim
        .algorithm(two.hosts[1], "group")
        .expect("the agent of both");
    assert_eq!((stats.opened, stats.flows, stats.refusals), (2, 1, 0));
}

/// Groups select their members by the addresses of the simulated hosts.
#[test]
fn flows_have_addresses() {
    // Nodes are numbered in order of creation: router, receiver, and the two senders.
    let mut two = two("rate=10mbit,prefix=10.0.0.3");
    two.rates(2_000);
    let rates = two.rates(4_000);
    assert!((rates[0] / 10e6 - 1.0).abs() < 0.01, "{rates:?}");
    assert!(rates[1] > 70e6, "{rates:?}");
}

#[test]
fn an_agent_that_is_not_there_has_no_other_datapath() {
    let mut two = two("as=1");
    let [_, second] = two.hosts;
    assert!(
        two.sim
            .host_additional_datapath(second, SteerOptions::default())
            .is_some(),
        "through another datapath of it"
    );
    let way = Box::new(InlineChannel::new(Agent::new(AgentOptions::default())));
    let behind = two.sim.host_behind_channel(way, SteerOptions::default());
    assert!(
        two.sim
            .host_additional_datapath(behind, SteerOptions::default())
            .is_none(),
        "whose agent is elsewhere"
    );
    let mut other = Simulation::new(Network::new(), SimOptions::default());
    if let Ok(other) = &mut other {
        assert!(
            other
                .host_additional_datapath(second, SteerOptions::default())
                .is_none()
        );
    }
}
