//! What is simulated for it: the scenarios of `facts/simulators.md`.

use std::sync::Arc;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::{Ecn, QueueSpec, Size};
use ccplane_sim::{
    FLOW_BYTES, FlowControl, FlowSpec, LinkSpec, Network, NodeId, SimError, SimOptions, Simulation,
    SteerOptions, TransportConfig, default_transport, topology,
};
use ccplane_transport::Native;
use ccplane_units::{Duration, Rate, Time};

/// `senders` to one, 10 Gbit/s, 20 µs round-trip time, drop-tail of so many packets. `steered`:
/// under Cubic of an agent in the simulation that hears of each flow once an RTT; otherwise under
/// native Cubic.
pub fn incast(senders: u32, queue: u64, steered: bool) -> Result<Simulation, SimError> {
    let link = LinkSpec::new(gbit(10), Duration::from_micros(5));
    let queue = QueueSpec::DropTail(Size::Packets(queue));
    let network = topology::incast(
        senders,
        &link,
        link.clone().with_queue(queue, Duration::ZERO),
    )?;
    let mut sim = Simulation::new(network, SimOptions::default())?;
    let congestion = if steered {
        steered_cubic(&mut sim)?
    } else {
        FlowControl::Native(Native::cubic())
    };
    let config = default_transport();
    let hosts: Vec<NodeId> = sim.network().hosts().collect();
    let receiver = hosts[0];
    // Spread over half a millisecond: 10 000 handshakes at one instant would be another experiment.
    for (n, sender) in (0..).zip(&hosts[1..]) {
        let flow = FlowSpec::new(*sender, receiver)
            .starting_at(Time::from_nanos(n * 500_000 / u64::from(senders)))
            .with_congestion(congestion.clone())
            .with_transport(Arc::clone(&config));
        sim.add_flow(flow)?;
    }
    Ok(sim)
}

/// 10 000 to one, 10 Gbit/s, 20 µs, with a queue that has room for three packets of each, so that
/// all of them are active at all times.
pub fn incast_10000() -> Result<Simulation, SimError> {
    incast(10_000, 30_000, false)
}

/// A fat tree of `k`-port switches at 100 Gbit/s, 500 ns a link (100 m): each host sends to another
/// one (a fixed permutation that leads half of the tree on), DCTCP, segments of 4096 bytes on the
/// wire as in htsim's, marks above 10 of them (half a bandwidth-delay product), 100 a port.
pub fn fat_tree(k: u32) -> Result<Simulation, SimError> {
    const WIRE: u16 = 4_096;
    let queue = QueueSpec::Ecn {
        threshold: Size::Packets(10),
        limit: Size::Packets(100),
    };
    let link = LinkSpec::new(gbit(100), Duration::from_nanos(500))
        .with_mtu(u32::from(WIRE))
        .with_queue(queue, Duration::ZERO);
    let mut sim = Simulation::new(topology::fat_tree(k, &link, &link)?, SimOptions::default())?;
    let hosts: Vec<NodeId> = sim.network().hosts().collect();
    let count = hosts.len();
    let config = Arc::new(TransportConfig {
        mss: WIRE - 52,
        ecn: Ecn::Ect0,
        ..default_transport().as_ref().clone()
    });
    for (n, from) in hosts.iter().enumerate() {
        let to = hosts[(n + count / 2 + 1) % count];
        let flow = FlowSpec::new(*from, to)
            .with_congestion(FlowControl::Native(Native::dctcp()))
            .with_transport(Arc::clone(&config));
        sim.add_flow(flow)?;
    }
    Ok(sim)
}

/// One Cubic flow over 96 Mbit/s and 20 ms, with a drop-tail queue of so many packets: 160 are one
/// BDP.
pub fn dumbbell(queue: u64, seed: u64) -> Result<Simulation, SimError> {
    let rtt = Duration::from_millis(20);
    let access = LinkSpec::new(gbit(1), Duration::ZERO);
    let link = LinkSpec::new(Rate::from_bits_per_sec(96_000_000), rtt / 2);
    let queue = QueueSpec::DropTail(Size::Packets(queue));
    let network = topology::dumbbell(1, &access, link.clone().with_queue(queue, rtt), link)?;
    let (from, to) = ends(&network)?;
    let mut sim = Simulation::new(network, SimOptions::seeded(seed))?;
    sim.add_flow(FlowSpec::new(from, to))?;
    Ok(sim)
}

/// A queue for an 11 000-packet window on the dumbbell.
pub const BIG_QUEUE: u64 = 10_840;

/// Bytes that an idle flow takes, both ends of it, once it is open and has nothing in flight.
pub fn idle_flow_bytes() -> Result<usize, SimError> {
    let mut sim = dumbbell(160, 1)?;
    let (from, to) = ends(sim.network())?;
    let mut idle = FlowSpec::new(from, to).with_bytes(0);
    idle.finish = false;
    for _ in 0..10 {
        sim.add_flow(idle.clone())?;
    }
    sim.run_until(Time::from_micros(5_000_000))?;
    Ok(FLOW_BYTES + sim.connection_heap_bytes(1..11) / 10)
}

fn ends(network: &Network) -> Result<(NodeId, NodeId), SimError> {
    let node = |name| {
        network
            .find_node(name)
            .ok_or(SimError::InvalidTopology(format!("no host `{name}`")))
    };
    Ok((node("left1")?, node("right1")?))
}

fn gbit(gbit: u64) -> Rate {
    Rate::from_bits_per_sec(gbit * 1_000_000_000)
}

/// Adds an agent with Cubic to the simulation.
fn steered_cubic(sim: &mut Simulation) -> Result<FlowControl, SimError> {
    let none = |why: String| SimError::UnknownAlgorithm(format!("cubic: {why}"));
    let cubic = Registry::builtin()
        .by_name("cubic", &Parameters::default())
        .map_err(|why| none(why.to_string()))?;
    let mut agent = Agent::new(AgentOptions::default());
    agent
        .add_boxed(cubic)
        .map_err(|why| none(why.to_string()))?;
    let id = sim.host_agent(agent, SteerOptions::default());
    Ok(FlowControl::Steered(id, "cubic".into()))
}
