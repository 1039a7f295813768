//! What the simulator costs: the scenarios of `facts/simulators.md`, timed. `ccplane bench sim` prints the figures.
//!
//! A hop is one packet over one link, data and acknowledgements alike. Times are processor time of the one thread that
//! simulates, so that what else the machine does counts little, and the median of several runs of which each simulates
//! the same; making the network and its flows is not counted.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::Instant;

use ccplane_agent::{Agent, Options};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::{Ecn, QueueSpec, Size};
use ccplane_transport::Native;
use ccplane_units::{Duration, Rate, Time};
use nix::time::ClockId;

use crate::end::End;
use crate::flow::Flow;
use crate::{
    Config, Congestion, FlowSpec, LinkSpec, Network, NodeId, SimError, SimOptions, Simulation, SteerOptions, parallel,
    settings, topology,
};

/// What runs of one scenario came to.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Wall-clock time of the median run, s.
    pub wall_s: f64,
    /// Processor time of the median run, s.
    pub cpu_s: f64,
    /// Hops of one run.
    pub hops: u64,
    /// Events of one run.
    pub events: u64,
    /// Bytes that the simulation took at the end of a run.
    pub memory: usize,
    /// What every run came to; they have to agree.
    pub digest: u64,
}

impl Cost {
    /// Nanoseconds a hop.
    pub fn ns_per_hop(&self) -> f64 {
        self.cpu_s * 1e9 / self.hops.max(1) as f64
    }

    /// Events a hop.
    pub fn events_per_hop(&self) -> f64 {
        self.events as f64 / self.hops.max(1) as f64
    }

    /// Hops in a second of processor time.
    pub fn hops_per_s(&self) -> f64 {
        self.hops as f64 / self.cpu_s
    }
}

/// Processor time of this thread so far, s.
fn cpu_s() -> f64 {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    now.map_or(0.0, |now| now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9)
}

/// How many runs a figure is the median of.
pub const RUNS: usize = 5;

/// Times a scenario from `warm` to `end`: what comes before, slow start and cold caches, is not counted. With
/// [`Time::ZERO`] everything is.
pub fn cost(
    runs: usize,
    warm: Time,
    end: Time,
    make: impl Fn() -> Result<Simulation, SimError>,
) -> Result<Cost, SimError> {
    let mut all = Vec::with_capacity(runs);
    for _ in 0..runs.max(1) {
        let mut sim = make()?;
        if warm > Time::ZERO {
            sim.run_until(warm)?;
        }
        let before = sim.counters();
        let (began, began_cpu) = (Instant::now(), cpu_s());
        sim.run_until(end)?;
        let (wall_s, cpu_s) = (began.elapsed().as_secs_f64(), cpu_s() - began_cpu);
        let after = sim.counters();
        all.push(Cost {
            wall_s,
            cpu_s,
            hops: after.hops - before.hops,
            events: after.events - before.events,
            memory: sim.memory(),
            digest: sim.digest(),
        });
    }
    all.sort_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
    Ok(all[all.len() / 2])
}

/// `senders` to one, 10 Gbit/s, 20 µs round-trip time, drop-tail of so many packets. `steered`: under Cubic of an agent
/// in the simulation that hears of each flow once an RTT; otherwise under native Cubic.
pub fn incast(senders: u32, queue: u64, steered: bool) -> Result<Simulation, SimError> {
    let link = LinkSpec::new(gbit(10), Duration::from_micros(5));
    let queue = QueueSpec::DropTail(Size::Packets(queue));
    let network = topology::incast(senders, &link, link.clone().with_queue(queue, Duration::ZERO))?;
    let mut sim = Simulation::new(network, SimOptions::default())?;
    let congestion = if steered {
        steered_cubic(&mut sim)?
    } else {
        Congestion::Native(Native::cubic())
    };
    let config = settings();
    let hosts: Vec<NodeId> = sim.network().hosts().collect();
    let receiver = hosts[0];
    // Spread over half a millisecond: 10 000 handshakes at one instant would be another experiment.
    for (n, sender) in (0..).zip(&hosts[1..]) {
        let flow = FlowSpec::new(*sender, receiver)
            .at(Time::from_nanos(n * 500_000 / u64::from(senders)))
            .under(congestion.clone())
            .with(Arc::clone(&config));
        sim.add_flow(flow)?;
    }
    Ok(sim)
}

/// 10 000 to one, 10 Gbit/s, 20 µs, with a queue that has room for three packets of each, so that all of them are
/// active at all times.
pub fn incast_10000() -> Result<Simulation, SimError> {
    incast(10_000, 30_000, false)
}

/// A fat tree of `k`-port switches at 100 Gbit/s, 500 ns a link (100 m): each host sends to another one (a fixed
/// permutation that leads half of the tree on), DCTCP, segments of 4096 bytes on the wire as in htsim's, marks above 10
/// of them (half a bandwidth-delay product), 100 a port.
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
    let config = Arc::new(Config {
        mss: WIRE - 52,
        ecn: Ecn::Ect0,
        ..settings().as_ref().clone()
    });
    for (n, from) in hosts.iter().enumerate() {
        let to = hosts[(n + count / 2 + 1) % count];
        let flow = FlowSpec::new(*from, to)
            .under(Congestion::Native(Native::dctcp()))
            .with(Arc::clone(&config));
        sim.add_flow(flow)?;
    }
    Ok(sim)
}

/// One Cubic flow over 96 Mbit/s and 20 ms, with a drop-tail queue of so many packets: 160 are one BDP.
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
    let mut idle = FlowSpec::new(from, to).bytes(0);
    idle.finish = false;
    for _ in 0..10 {
        sim.add_flow(idle.clone())?;
    }
    sim.run_until(Time::from_micros(5_000_000))?;
    let heap = sim.connection_heap_bytes(1..11) / 10;
    Ok(2 * size_of::<End>() + size_of::<Native>() + size_of::<Flow>() + heap)
}

/// How many times faster 50 seeds of the dumbbell (10 s each) are on two threads than on one.
pub fn parallel_speedup() -> Result<f64, SimError> {
    let one = |seed| -> Result<u64, SimError> {
        let mut sim = dumbbell(160, seed)?;
        sim.run_until(Time::from_micros(10_000_000))?;
        Ok(sim.digest())
    };
    let timed = |threads| -> Result<(f64, Vec<u64>), SimError> {
        let began = Instant::now();
        let digests: Result<Vec<u64>, SimError> = parallel::run(1..51, threads, one).into_iter().collect();
        Ok((began.elapsed().as_secs_f64(), digests?))
    };
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let ((one, first), (two, second)) = (timed(1)?, timed(2)?);
        if first != second {
            return Err(SimError::Shape(
                "a result depends on the number of threads; please report it".into(),
            ));
        }
        ratios.push(one / two);
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[RUNS / 2])
}

fn ends(network: &Network) -> Result<(NodeId, NodeId), SimError> {
    let node = |name| network.node(name).ok_or(SimError::Shape(format!("no host `{name}`")));
    Ok((node("left1")?, node("right1")?))
}

fn gbit(gbit: u64) -> Rate {
    Rate::from_bits_per_sec(gbit * 1_000_000_000)
}

/// Adds an agent with Cubic to the simulation.
fn steered_cubic(sim: &mut Simulation) -> Result<Congestion, SimError> {
    let none = |why: String| SimError::UnknownAlgorithm(format!("cubic: {why}"));
    let cubic = Registry::builtin()
        .by_name("cubic", &Parameters::default())
        .map_err(|why| none(why.to_string()))?;
    let mut agent = Agent::new(Options::default());
    agent.add_boxed(cubic).map_err(|why| none(why.to_string()))?;
    let id = sim.host_agent(agent, SteerOptions::default());
    Ok(Congestion::Steered(id, "cubic".into()))
}
