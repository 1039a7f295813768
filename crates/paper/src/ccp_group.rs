//! A group of flows on two hosts, for `papers/ccp/group.py`: what CCP's authors expect of an agent
//! on another machine, one policy for the flows of several hosts.
//!
//! Eight senders on two hosts, steered by one agent as one group, share a bottleneck with a flow of
//! Cubic, while one member falls idle and returns, and another is killed. In other runs the group
//! has a limit, and the agent is 1, 10 and 50 ms away.

mod kernel;

use std::sync::Arc;

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::{DelayDistribution, DelayModel, QueueSpec};
use ccplane_sim::{
    App, AppId, DataDirection, FlowControl, FlowId, FlowSpec, LinkSpec, Native, SimError,
    SimOptions, Simulation, SteerOptions, TransportConfig, WakeReason, World, default_transport,
    topology,
};
use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use serde::{Deserialize, Serialize};

use super::program::{Program, Tables, disturbances_cell};
use super::simulations::{self, Job};
use super::{Datapath, Options};
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Error, Progress, ProgressStep};

pub(super) const PROGRAM: Program = Program {
    script: "ccp/group",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: Some(KERNEL_REPEATS),
    measure,
};

/// Bottleneck of CCP's evaluation, with a queue of one BDP.
const RATE: Rate = Rate::from_bits_per_sec(96_000_000);
const RTT: Duration = Duration::from_millis(20);
/// Rate of a host's own link.
const HOST: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// Maximum random delay of a packet in its host: four times the bottleneck's time per packet.
/// Without it, packets reach the full queue at moments that never change, and the losses of a flow
/// are a matter of phase. Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched
/// Gateways", 1992, recommend the time of one packet at least.
const JITTER: Duration = Duration::from_micros(500);
/// Members, half of them on each host.
const MEMBERS: u32 = 8;
/// Limit of the group, less than half of the bottleneck's rate.
const LIMIT_BITS: u64 = 40_000_000;
/// Distances of the agent, each way, µs. The first is an agent on the host.
const DISTANCES_US: [u64; 4] = [20, 1_000, 10_000, 50_000];
/// Flows start within this time, drawn from the seed.
const START_SPREAD: Duration = Duration::from_secs(1);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Seeds of the full version. Constants of the algorithm were chosen on 1 to 10.
const SEEDS: std::ops::RangeInclusive<u64> = 11..=20;
const QUICK_SEEDS: std::ops::RangeInclusive<u64> = 11..=12;

/// Times of events, seconds. The idle member is the last of the first host, the killed one the last
/// of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timeline {
    /// Start of the evaluation.
    steady: u64,
    idle: u64,
    returns: u64,
    killed: u64,
    end: u64,
}

const FULL: Timeline = Timeline {
    steady: 10,
    idle: 40,
    returns: 70,
    killed: 100,
    end: 130,
};
const QUICK: Timeline = Timeline {
    steady: 5,
    idle: 15,
    returns: 25,
    killed: 35,
    end: 45,
};

/// Timeline on kernel TCP, in real time. The flow that starts first has two or three times its
/// share in the beginning; shares settle within some 15 s.
const KERNEL: Timeline = Timeline {
    steady: 20,
    idle: 30,
    returns: 40,
    killed: 50,
    end: 65,
};
const KERNEL_QUICK: Timeline = Timeline {
    steady: 3,
    idle: 9,
    returns: 15,
    killed: 21,
    end: 27,
};
const KERNEL_REPEATS: usize = 3;
const KERNEL_QUICK_REPEATS: usize = 1;

/// Flows that share the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// The group as one flow, next to a flow of the transport's own Cubic, with the agent's
    /// distance in µs.
    Share(u64),
    /// Two flows of Cubic.
    Flows,
    /// The eight as flows of their own, next to the same flow.
    Apart,
    /// The group within a limit, alone.
    Limit(u64),
    /// The group within a limit, next to the flow of Cubic.
    LimitWithOther,
    /// Like `Share`, with hosts that neither pace nor delay packets.
    Bare,
}

impl Sharing {
    fn name(self) -> &'static str {
        match self {
            Sharing::Share(_) => "share",
            Sharing::Flows => "flows",
            Sharing::Apart => "apart",
            Sharing::Limit(_) => "limit",
            Sharing::LimitWithOther => "limit-beside",
            Sharing::Bare => "bare",
        }
    }

    fn label(self) -> String {
        match self {
            Sharing::Share(us) | Sharing::Limit(us) => format!("{}-{us}us", self.name()),
            _ => self.name().to_owned(),
        }
    }

    fn all() -> impl Iterator<Item = Sharing> {
        let others = [
            Sharing::Flows,
            Sharing::Apart,
            Sharing::LimitWithOther,
            Sharing::Bare,
        ];
        DISTANCES_US
            .map(Sharing::Share)
            .into_iter()
            .chain(DISTANCES_US.map(Sharing::Limit))
            .chain(others)
    }

    /// Returns the number of members of the group, or of flows in its place.
    fn members(self) -> u32 {
        if self == Sharing::Flows { 1 } else { MEMBERS }
    }

    /// Returns true if there is a flow of Cubic next to them.
    fn has_other(self) -> bool {
        !matches!(self, Sharing::Limit(_))
    }

    /// Returns the group's parameters; `None` without a group.
    fn parameters(self) -> Option<Parameters> {
        match self {
            Sharing::Flows | Sharing::Apart => None,
            Sharing::Share(_) | Sharing::Bare => Some(Parameters::new().with("as", "1")),
            Sharing::Limit(_) | Sharing::LimitWithOther => {
                Some(Parameters::new().with("rate", format!("{LIMIT_BITS}bit")))
            }
        }
    }

    /// Returns the distance of the agent, µs.
    fn distance_us(self) -> u64 {
        match self {
            Sharing::Share(us) | Sharing::Limit(us) => us,
            _ => DISTANCES_US[0],
        }
    }
}

/// Run of one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    sharing: Sharing,
    seed: u64,
    timeline: Timeline,
}

/// Measurements of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Measurement {
    /// Bytes received of each flow until each sample. The flow next to the members is the last.
    arrived: Vec<Vec<u64>>,
    /// Packets that the bottleneck dropped.
    drops: u64,
    /// Mean time at the bottleneck, ms.
    delay_ms: f64,
}

impl Job for Point {
    type Result = Measurement;

    fn name(&self) -> String {
        format!("{}-{}", self.sharing.label(), self.seed)
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Measurement, Error> {
        self.simulate().map_err(simulations::broken(
            &self.sharing.label(),
            self.seed,
            "ccp-group",
        ))
    }
}

impl Point {
    fn simulate(&self) -> Result<Measurement, SimError> {
        let bottleneck = LinkSpec::new(RATE, RTT / 2).with_queue(QueueSpec::ONE_BDP, RTT);
        let bare = self.sharing == Sharing::Bare;
        let host = LinkSpec::new(HOST, Duration::ZERO).with_queue(QueueSpec::UNLIMITED, RTT);
        let host = match bare {
            true => host,
            false => host.with_delay(DelayModel::Jitter {
                delay: JITTER / 2,
                spread: JITTER / 2,
                shape: DelayDistribution::Uniform,
                reorder: false,
            }),
        };
        // As with Linux's fq.
        let transport = Arc::new(TransportConfig {
            pacing: !bare,
            ..TransportConfig::clone(&default_transport())
        });
        let network = topology::dumbbell(3, &host, bottleneck, LinkSpec::wire(RTT / 2))?;
        let missing = |what: &str| SimError::InvalidTopology(format!("the dumbbell has no {what}"));
        let node = |name: String| network.find_node(&name).ok_or_else(|| missing(&name));
        let pairs = (1..=3)
            .map(|n| Ok((node(format!("left{n}"))?, node(format!("right{n}"))?)))
            .collect::<Result<Vec<_>, SimError>>()?;
        let link = network
            .find_link("bottleneck")
            .ok_or_else(|| missing("bottleneck"))?;
        let mut sim = Simulation::new(network, SimOptions::seeded(self.seed))?;
        sim.record_sojourns(link)?;
        let hosts = self.agents(&mut sim)?;
        let mut random = Pcg64::new(u128::from(self.seed), STREAM);
        let mut start =
            || Time::ZERO + Duration::from_nanos(random.next_u64() % START_SPREAD.as_nanos());
        let members = self.sharing.members();
        let mut flows = Vec::new();
        for member in 0..members {
            // Half of the members are on each host.
            let host = usize::from(member >= members.div_ceil(2));
            let congestion = match &hosts {
                Some(hosts) => FlowControl::Steered(hosts[host], Arc::from(ALGORITHM)),
                None => FlowControl::Native(Native::cubic()),
            };
            let (from, to) = pairs[host];
            let spec = FlowSpec::new(from, to)
                .starting_at(start())
                .with_congestion(congestion)
                .with_transport(transport.clone());
            // The last of the first host falls idle.
            flows.push(match members > 1 && member == IDLE_MEMBER {
                true => IdleFlow::start(&mut sim, spec, self.timeline)?,
                false => sim.add_flow(spec)?,
            });
        }
        if self.sharing.has_other() {
            let (from, to) = pairs[2];
            flows.push(
                sim.add_flow(
                    FlowSpec::new(from, to)
                        .starting_at(start())
                        .with_transport(transport.clone()),
                )?,
            );
        }
        let mut measured = Measurement {
            arrived: vec![Vec::new(); flows.len()],
            ..Measurement::default()
        };
        let (mut now, end) = (Time::ZERO, at(self.timeline.end));
        while now < end {
            now += SAMPLE_INTERVAL;
            sim.run_until(now)?;
            if now == at(self.timeline.killed) && members > 1 {
                sim.abort(flows[KILLED_MEMBER as usize]);
            }
            for (flow, arrived) in flows.iter().zip(&mut measured.arrived) {
                arrived.push(sim.flow(*flow).map_or(0, |view| view.received));
            }
        }
        measured.drops = sim.link(link).map_or(0, |view| view.queue_drops);
        measured.delay_ms = sim
            .sojourns(link)
            .map_or(0.0, |sojourns| sojourns.mean() / 1e6);
        Ok(measured)
    }

    /// Creates one agent with the two hosts whose flows it steers; `None` without a group.
    fn agents(&self, sim: &mut Simulation) -> Result<Option<[ccplane_sim::AgentId; 2]>, SimError> {
        let Some(parameters) = self.sharing.parameters() else {
            return Ok(None);
        };
        let wrong = |error: &dyn std::fmt::Display| SimError::InvalidTopology(error.to_string());
        let algorithm = Registry::builtin()
            .by_name(ALGORITHM, &parameters)
            .map_err(|e| wrong(&e))?;
        let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
        agent.add_boxed(algorithm).map_err(|e| wrong(&e))?;
        let delay = Duration::from_micros(self.sharing.distance_us());
        let options = SteerOptions {
            to_agent: delay,
            from_agent: delay,
            ..SteerOptions::default()
        };
        let first = sim.host_agent(agent, options);
        let second = sim
            .host_additional_datapath(first, options)
            .ok_or_else(|| {
                SimError::InvalidTopology("the agent does not accept a second host".to_owned())
            })?;
        Ok(Some([first, second]))
    }
}

const ALGORITHM: &str = "group";
/// Last member of the first host, and last member of the second.
const IDLE_MEMBER: u32 = MEMBERS / 2 - 1;
const KILLED_MEMBER: u32 = MEMBERS - 1;
/// Stream of random numbers for start times.
const STREAM: u128 = 0x67_726f_7570;

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// Application of a flow that has nothing to send for a while.
struct IdleFlow {
    flow: FlowId,
    timeline: Timeline,
    written: u64,
}

/// Bytes that the application keeps unsent, and the interval at which it writes. It is three times
/// what a member has in flight, and sent within half a second.
const BACKLOG: u64 = 400_000;
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

impl IdleFlow {
    fn start(sim: &mut Simulation, spec: FlowSpec, timeline: Timeline) -> Result<FlowId, SimError> {
        let begins = spec.start + WRITE_INTERVAL;
        let spec = FlowSpec {
            bytes: Some(0),
            finish: false,
            ..spec
        };
        let flow = sim.add_flow(spec)?;
        let turns = IdleFlow {
            flow,
            timeline,
            written: 0,
        };
        sim.add_app(Box::new(turns), begins);
        Ok(flow)
    }
}

impl App for IdleFlow {
    fn wake(
        &mut self,
        now: Time,
        _me: AppId,
        _cause: WakeReason,
        world: &mut World,
    ) -> Option<Time> {
        if (at(self.timeline.idle)..at(self.timeline.returns)).contains(&now) {
            return Some(at(self.timeline.returns));
        }
        let received = world.flow(self.flow)?.received;
        let wanted = (received + BACKLOG).saturating_sub(self.written);
        if wanted > 0 && world.write(self.flow, DataDirection::Forward, wanted, false) {
            self.written += wanted;
        }
        Some(now + WRITE_INTERVAL)
    }
}

/// Row of the table of runs.
#[derive(Serialize)]
struct RunRow {
    run: String,
    sharing: &'static str,
    distance_us: u64,
    seed: u64,
    steady_s: u64,
    idle_s: u64,
    returns_s: u64,
    killed_s: u64,
    end_s: u64,
    queue_drops: u64,
    delay_mean_ms: f64,
    fallbacks: u64,
    disturbances: Option<String>,
}

/// Goodput of a flow in a phase of its run. Members are 0 to 7, the flow next to them is 8.
#[derive(Serialize)]
struct PhaseRow {
    run: String,
    phase: &'static str,
    flow: u32,
    /// False for a member that is idle or killed in this phase.
    sends: bool,
    goodput_mbit: f64,
}

/// Goodput of a flow in the half second up to a time.
#[derive(Serialize)]
struct CourseRow {
    run: String,
    time_s: f64,
    flow: u32,
    goodput_mbit: f64,
}

/// Interval of a run. Times in seconds.
struct Phase {
    name: &'static str,
    start: f64,
    end: f64,
    idle_sends: bool,
    killed_sends: bool,
}

/// Round trips after an event within which shares are to settle, and over which they are then
/// measured.
const SETTLING_RTTS: u64 = 10;
const COURSE_STEP_S: f64 = 0.5;

impl Timeline {
    /// Returns the time between two events, from ten round trips after the first on; the ten round
    /// trips after that of the return and of the kill; and the whole run.
    fn phases(&self) -> [Phase; 7] {
        let settling = (RTT * SETTLING_RTTS).as_secs_f64();
        let [steady, idle, returns, killed, end] =
            [self.steady, self.idle, self.returns, self.killed, self.end].map(|s| s as f64);
        let phase = |name, start, end, idle_sends, killed_sends| Phase {
            name,
            start,
            end,
            idle_sends,
            killed_sends,
        };
        let (back, left) = (returns + settling, killed + settling);
        [
            phase("steady", steady, idle, true, true),
            // The data that the idle member has left to send arrives within a second.
            phase("idle", idle + 1.0, returns, false, true),
            phase("returned", back, killed, true, true),
            phase("killed", left, end, true, false),
            phase("soon returned", back, back + settling, true, true),
            phase("soon killed", left, left + settling, true, false),
            phase("all", steady, end, true, true),
        ]
    }
}

impl Measurement {
    /// Returns the goodput of a flow between two times in seconds.
    fn goodput_mbit(&self, flow: usize, start: f64, end: f64) -> Option<f64> {
        let arrived = self.arrived.get(flow)?;
        let bytes = |time: f64| {
            let sample = (time / SAMPLE_INTERVAL.as_secs_f64()).round() as usize;
            arrived.get(sample.checked_sub(1)?).copied()
        };
        let received = bytes(end)?.saturating_sub(bytes(start)?);
        Some(received as f64 * 8.0 / 1e6 / (end - start))
    }
}

/// Run with its measurements, disturbances and flows that fell back to the datapath's own
/// algorithm.
type PointResult = (Point, Measurement, Vec<String>, u64);

fn measure(
    options: &Options,
    datapath: Datapath,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let results = match datapath {
        Datapath::Sim => simulated(options, progress)?,
        Datapath::Linux => on_kernel_tcp(options, registry, progress)?,
    };
    let (mut runs, mut phases, mut course) = (Vec::new(), Vec::new(), Vec::new());
    for (point, measured, disturbances, fallbacks) in &results {
        let timeline = point.timeline;
        runs.push(RunRow {
            run: point.name(),
            sharing: point.sharing.name(),
            distance_us: point.sharing.distance_us(),
            seed: point.seed,
            steady_s: timeline.steady,
            idle_s: timeline.idle,
            returns_s: timeline.returns,
            killed_s: timeline.killed,
            end_s: timeline.end,
            queue_drops: measured.drops,
            delay_mean_ms: measured.delay_ms,
            fallbacks: *fallbacks,
            disturbances: disturbances_cell(disturbances),
        });
        for index in 0..measured.arrived.len() {
            let flow = match index as u32 {
                member if member < point.sharing.members() => member,
                _ => MEMBERS,
            };
            phases.extend(timeline.phases().into_iter().filter_map(|phase| {
                Some(PhaseRow {
                    run: point.name(),
                    phase: phase.name,
                    flow,
                    sends: (phase.idle_sends || flow != IDLE_MEMBER)
                        && (phase.killed_sends || flow != KILLED_MEMBER),
                    goodput_mbit: measured.goodput_mbit(index, phase.start, phase.end)?,
                })
            }));
            let steps = (timeline.end as f64 / COURSE_STEP_S) as u32;
            course.extend((2..=steps).filter_map(|step| {
                let time_s = f64::from(step) * COURSE_STEP_S;
                Some(CourseRow {
                    run: point.name(),
                    time_s,
                    flow,
                    goodput_mbit: measured.goodput_mbit(index, time_s - COURSE_STEP_S, time_s)?,
                })
            }));
        }
    }
    let mut tables = Tables::default();
    tables.add("runs", &runs)?;
    tables.add("phases", &phases)?;
    tables.add("course", &course)?;
    Ok(tables)
}

fn simulated(options: &Options, progress: &dyn Progress) -> Result<Vec<PointResult>, Error> {
    let (timeline, seeds) = match options.quick {
        true => (QUICK, QUICK_SEEDS),
        false => (FULL, SEEDS),
    };
    let points: Vec<Point> = Sharing::all()
        .flat_map(|sharing| {
            seeds.clone().map(move |seed| Point {
                sharing,
                seed,
                timeline,
            })
        })
        .collect();
    let measured = simulations::run(&points, options.threads, &options.parts(), progress)?;
    let results = points.into_iter().zip(measured);
    Ok(results
        .map(|(point, measured)| (point, measured, Vec::new(), 0))
        .collect())
}

/// Makes the runs in real time. The order of the settings rotates from round to round.
fn on_kernel_tcp(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Vec<PointResult>, Error> {
    let near = DISTANCES_US[0];
    let (timeline, all) = if options.quick {
        let few = [
            Sharing::Share(near),
            Sharing::Share(10_000),
            Sharing::Limit(near),
        ];
        (KERNEL_QUICK, few.to_vec())
    } else {
        (KERNEL, Sharing::all().collect())
    };
    let rounds = options.repeats(KERNEL_REPEATS, KERNEL_QUICK_REPEATS);
    let mut results = Vec::new();
    for (round, seed) in SEEDS.take(rounds).enumerate() {
        let mut order = all.clone();
        order.rotate_left(round % all.len());
        for sharing in order {
            let point = Point {
                sharing,
                seed,
                timeline,
            };
            let total = rounds * all.len();
            let step = ProgressStep::begin(progress, results.len(), total, &point.name());
            let judge = |(_, disturbed, _): &kernel::KernelRun| Disturbed::from(disturbed);
            let run = || kernel::run(&point, registry, &step);
            let name = format!("kernel-{}.json", point.name());
            let (measured, disturbances, fallbacks) =
                options.parts().part(&name, &point.key(), judge, run)?;
            results.push((point, measured, disturbances, fallbacks));
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Timeline = Timeline {
        steady: 2,
        idle: 4,
        returns: 6,
        killed: 8,
        end: 10,
    };

    #[test]
    fn goodput_is_that_of_the_samples_in_between() {
        let arrived = vec![(1..=100).map(|sample| sample * 100_000).collect()];
        let measured = Measurement {
            arrived,
            ..Measurement::default()
        };
        // 100,000 bytes in 100 ms.
        for phase in &SHORT.phases() {
            let mbit = measured.goodput_mbit(0, phase.start, phase.end).unwrap();
            assert!((mbit - 8.0).abs() < 1e-9, "{}: {mbit}", phase.name);
        }
        assert_eq!(measured.goodput_mbit(0, 0.0, 1.0), None);
        assert_eq!(measured.goodput_mbit(1, 2.0, 4.0), None);
    }

    /// Every member receives data while it sends: the idle one not while it is idle, the killed one
    /// not after.
    #[test]
    fn every_member_receives_while_it_sends() {
        for sharing in [
            Sharing::Share(20),
            Sharing::Share(50_000),
            Sharing::Limit(1_000),
            Sharing::Apart,
        ] {
            let point = Point {
                sharing,
                seed: 1,
                timeline: SHORT,
            };
            let measured = point.run().unwrap();
            let between = |flow: usize, from: f64, to: f64| {
                let at = |seconds: f64| measured.arrived[flow][(seconds * 10.0) as usize - 1];
                at(to) - at(from)
            };
            for flow in 0..measured.arrived.len() {
                assert!(between(flow, 2.0, 4.0) > 100_000, "{sharing:?} {flow}");
            }
            assert_eq!(between(IDLE_MEMBER as usize, 5.0, 6.0), 0, "{sharing:?}");
            assert!(
                between(IDLE_MEMBER as usize, 6.0, 8.0) > 100_000,
                "{sharing:?}"
            );
            assert_eq!(between(KILLED_MEMBER as usize, 8.2, 10.0), 0, "{sharing:?}");
            assert_eq!(measured, point.run().unwrap(), "deterministic");
        }
    }
}
