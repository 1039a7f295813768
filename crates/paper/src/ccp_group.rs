//! Our own experiment for what CCP's authors expect of an agent on another machine: one policy for
//! the flows of several hosts.
//!
//! Eight senders on two hosts, steered by one agent as one group, share a bottleneck with a flow of
//! Cubic. What the group gets is set beside what that flow gets, and what each member gets beside
//! the others', while one falls idle and returns, and another is killed. A second run gives the
//! group a limit instead, and the agent is moved away: 1, 10 and 50 ms each way.

mod kernel;
mod shown;

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

use super::page::Findings;
use super::simulations::{self, Job};
use super::{Datapath, Experiment, Options, Outcome};
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Error, Progress, ProgressStep};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-group",
    title: "A group of flows on two hosts that takes one flow's share, or keeps to one limit, and what a far agent costs",
    source: "ccplane's own, for an expectation of Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018",
    takes: "45 minutes (a minute of it simulated); two minutes with --quick",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: Some(KERNEL_REPEATS),
    run: super::Run::Code(group),
};

/// The bottleneck of CCP's evaluation, with a queue of a BDP.
const RATE: Rate = Rate::from_bits_per_sec(96_000_000);
const RTT: Duration = Duration::from_millis(20);
/// A host's own link.
const HOST: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// What a packet takes in its host at random, at most: four times what the bottleneck takes for
/// one. Without, packets come to the full queue at moments that never change, and who finds it full
/// is a matter of phase (Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched
/// Gateways", 1992, who ask for the time of one packet at least).
const JITTER: Duration = Duration::from_micros(500);
/// Members, half of them on each host.
const MEMBERS: u32 = 8;
/// The limit: what the bottleneck carries is more than twice as much.
const LIMIT_BITS: u64 = 40_000_000;
/// How far the agent is, each way, µs. The first is an agent on the host (papers/ccp-evaluation).
const DELAYS_US: [u64; 4] = [20, 1_000, 10_000, 50_000];
/// Everybody starts within this, by the seed's draw.
const STARTS: Duration = Duration::from_secs(1);
/// Between two looks at what has arrived.
const LOOK: Duration = Duration::from_millis(100);
/// Seeds of the full version. Constants of the algorithm were chosen on 1 to 10.
const SEEDS: std::ops::RangeInclusive<u64> = 11..=20;
const QUICK_SEEDS: std::ops::RangeInclusive<u64> = 11..=12;

/// When what happens, seconds. The idle member is the last of the first host, the one that is
/// killed the last of the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Course {
    /// From here on it counts.
    steady: u64,
    idle: u64,
    returns: u64,
    killed: u64,
    end: u64,
}

const FULL: Course = Course {
    steady: 10,
    idle: 40,
    returns: 70,
    killed: 100,
    end: 130,
};
const QUICK: Course = Course {
    steady: 5,
    idle: 15,
    returns: 25,
    killed: 35,
    end: 45,
};

/// On kernel TCP, where seconds are seconds. Whoever starts first has two or three times as much at
/// first, and some 15 s pass until shares are those that last.
const KERNEL: Course = Course {
    steady: 20,
    idle: 30,
    returns: 40,
    killed: 50,
    end: 65,
};
const KERNEL_QUICK: Course = Course {
    steady: 3,
    idle: 9,
    returns: 15,
    killed: 21,
    end: 27,
};
const KERNEL_REPEATS: usize = 3;
const KERNEL_QUICK_REPEATS: usize = 1;

/// Who shares the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// The group as one flow, beside a flow of the transport's own Cubic; its agent is so many µs
    /// away.
    Share(u64),
    /// Two flows of Cubic: how equal those are.
    Flows,
    /// The eight as flows of their own beside the same flow: what a group is for.
    Apart,
    /// The group within a limit, alone.
    Limit(u64),
    /// And beside the flow of Cubic.
    LimitBeside,
    /// As the first, with hosts that neither pace nor take any time.
    Bare,
}

impl Who {
    fn label(self) -> String {
        match self {
            Who::Share(us) => format!("share-{us}us"),
            Who::Flows => "flows".to_owned(),
            Who::Apart => "apart".to_owned(),
            Who::Limit(us) => format!("limit-{us}us"),
            Who::LimitBeside => "limit-beside".to_owned(),
            Who::Bare => "bare".to_owned(),
        }
    }

    /// All of them.
    fn all() -> impl Iterator<Item = Who> {
        let others = [Who::Flows, Who::Apart, Who::LimitBeside, Who::Bare];
        DELAYS_US
            .map(Who::Share)
            .into_iter()
            .chain(DELAYS_US.map(Who::Limit))
            .chain(others)
    }

    /// Members of the group, or flows in its place.
    fn members(self) -> u32 {
        if self == Who::Flows { 1 } else { MEMBERS }
    }

    /// Whether there is a flow of Cubic beside them.
    fn has_beside(self) -> bool {
        !matches!(self, Who::Limit(_))
    }

    /// Of the group; `None` where nobody is steered.
    fn parameters(self) -> Option<Parameters> {
        match self {
            Who::Flows | Who::Apart => None,
            Who::Share(_) | Who::Bare => Some(Parameters::new().with("as", "1")),
            Who::Limit(_) | Who::LimitBeside => {
                Some(Parameters::new().with("rate", format!("{LIMIT_BITS}bit")))
            }
        }
    }

    /// How far its agent is, µs.
    fn delay(self) -> u64 {
        match self {
            Who::Share(us) | Who::Limit(us) => us,
            Who::Flows | Who::Apart | Who::LimitBeside | Who::Bare => DELAYS_US[0],
        }
    }
}

/// A simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    who: Who,
    seed: u64,
    course: Course,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// Bytes that arrived of each member, look by look, and of the flow beside them, which is the
    /// last.
    arrived: Vec<Vec<u64>>,
    /// Packets that the bottleneck dropped.
    drops: u64,
    /// Mean time at the bottleneck, ms.
    delay_ms: f64,
}

impl Job for Point {
    type Result = Seen;

    fn name(&self) -> String {
        format!("{}-{}", self.who.label(), self.seed)
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn run(&self) -> Result<Seen, Error> {
        self.simulate().map_err(simulations::broken(
            &self.who.label(),
            self.seed,
            EXPERIMENT.name,
        ))
    }
}

impl Point {
    fn simulate(&self) -> Result<Seen, SimError> {
        let bottleneck = LinkSpec::new(RATE, RTT / 2).with_queue(QueueSpec::ONE_BDP, RTT);
        let bare = self.who == Who::Bare;
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
        // As under Linux' fq.
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
        let mut start = || Time::ZERO + Duration::from_nanos(random.next_u64() % STARTS.as_nanos());
        let members = self.who.members();
        let mut flows = Vec::new();
        for member in 0..members {
            // Half of them are on each host.
            let host = usize::from(member >= members.div_ceil(2));
            let congestion = match &hosts {
                Some(hosts) => FlowControl::Steered(hosts[host], Arc::from(GROUP)),
                None => FlowControl::Native(Native::cubic()),
            };
            let (from, to) = pairs[host];
            let spec = FlowSpec::new(from, to)
                .starting_at(start())
                .with_congestion(congestion)
                .with_transport(transport.clone());
            // The last of the first host writes by turns.
            flows.push(match members > 1 && member == IDLES {
                true => Turns::start(&mut sim, spec, self.course)?,
                false => sim.add_flow(spec)?,
            });
        }
        if self.who.has_beside() {
            let (from, to) = pairs[2];
            flows.push(
                sim.add_flow(
                    FlowSpec::new(from, to)
                        .starting_at(start())
                        .with_transport(transport.clone()),
                )?,
            );
        }
        let mut seen = Seen {
            arrived: vec![Vec::new(); flows.len()],
            ..Seen::default()
        };
        let (mut now, end) = (Time::ZERO, at(self.course.end));
        while now < end {
            now += LOOK;
            sim.run_until(now)?;
            if now == at(self.course.killed) && members > 1 {
                sim.abort(flows[KILLED as usize]);
            }
            for (flow, arrived) in flows.iter().zip(&mut seen.arrived) {
                arrived.push(sim.flow(*flow).map_or(0, |view| view.received));
            }
        }
        seen.drops = sim.link(link).map_or(0, |view| view.queue_drops);
        seen.delay_ms = sim
            .sojourns(link)
            .map_or(0.0, |sojourns| sojourns.mean() / 1e6);
        Ok(seen)
    }

    /// One agent, and the two hosts whose flows it steers; nothing where nobody is steered.
    fn agents(&self, sim: &mut Simulation) -> Result<Option<[ccplane_sim::AgentId; 2]>, SimError> {
        let Some(parameters) = self.who.parameters() else {
            return Ok(None);
        };
        let wrong = |error: &dyn std::fmt::Display| SimError::InvalidTopology(error.to_string());
        let algorithm = Registry::builtin()
            .by_name(GROUP, &parameters)
            .map_err(|e| wrong(&e))?;
        let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
        agent.add_boxed(algorithm).map_err(|e| wrong(&e))?;
        let delay = Duration::from_micros(self.who.delay());
        let options = SteerOptions {
            to_agent: delay,
            from_agent: delay,
            ..SteerOptions::default()
        };
        let first = sim.host_agent(agent, options);
        let second = sim
            .host_additional_datapath(first, options)
            .ok_or_else(|| {
                SimError::InvalidTopology("the agent takes no second host".to_owned())
            })?;
        Ok(Some([first, second]))
    }
}

const GROUP: &str = "group";
/// The last member of the first host, and that of the second.
const IDLES: u32 = MEMBERS / 2 - 1;
const KILLED: u32 = MEMBERS - 1;
/// The stream of random numbers for start times.
const STREAM: u128 = 0x67_726f_7570;

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// A flow whose application has nothing to send for a while.
struct Turns {
    flow: FlowId,
    course: Course,
    written: u64,
}

/// It keeps so much unsent, bytes, and looks so often. It is three times what a member has in
/// flight, and gone in half a second.
const BACKLOG: u64 = 400_000;
const WRITES: Duration = Duration::from_millis(10);

impl Turns {
    fn start(sim: &mut Simulation, spec: FlowSpec, course: Course) -> Result<FlowId, SimError> {
        let begins = spec.start + WRITES;
        let spec = FlowSpec {
            bytes: Some(0),
            finish: false,
            ..spec
        };
        let flow = sim.add_flow(spec)?;
        let turns = Turns {
            flow,
            course,
            written: 0,
        };
        sim.add_app(Box::new(turns), begins);
        Ok(flow)
    }
}

impl App for Turns {
    fn wake(
        &mut self,
        now: Time,
        _me: AppId,
        _cause: WakeReason,
        world: &mut World,
    ) -> Option<Time> {
        if (at(self.course.idle)..at(self.course.returns)).contains(&now) {
            return Some(at(self.course.returns));
        }
        let received = world.flow(self.flow)?.received;
        let wanted = (received + BACKLOG).saturating_sub(self.written);
        if wanted > 0 && world.write(self.flow, DataDirection::Forward, wanted, false) {
            self.written += wanted;
        }
        Some(now + WRITES)
    }
}

fn group(
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let mut findings = Findings::default();
    if options.on(Datapath::Sim) {
        simulated(&mut findings, options, progress)?;
    }
    if options.on(Datapath::Linux) {
        on_kernel_tcp(&mut findings, options, registry, progress)?;
    }
    findings.finish(&EXPERIMENT, options)
}

fn simulated(
    findings: &mut Findings,
    options: &Options,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let (course, seeds) = if options.quick {
        (QUICK, QUICK_SEEDS)
    } else {
        (FULL, SEEDS)
    };
    let points: Vec<Point> = Who::all()
        .flat_map(|who| seeds.clone().map(move |seed| Point { who, seed, course }))
        .collect();
    let seen = simulations::run(&points, options.threads, &options.parts(), progress)?;
    let results = shown::Results(points.into_iter().zip(seen).collect());
    shown::simulated(findings, &results, course);
    Ok(())
}

/// The same in real time: who comes first changes from round to round.
fn on_kernel_tcp(
    findings: &mut Findings,
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let near = DELAYS_US[0];
    let (course, whos) = if options.quick {
        (
            KERNEL_QUICK,
            vec![Who::Share(near), Who::Share(10_000), Who::Limit(near)],
        )
    } else {
        (KERNEL, Who::all().collect())
    };
    let rounds = options.repeats(KERNEL_REPEATS, KERNEL_QUICK_REPEATS);
    let (mut results, mut unsound, mut fallbacks) = (Vec::new(), 0, 0);
    for (round, seed) in SEEDS.take(rounds).enumerate() {
        let mut order = whos.clone();
        order.rotate_left(round % whos.len());
        for who in order {
            let point = Point { who, seed, course };
            let step =
                ProgressStep::begin(progress, results.len(), rounds * whos.len(), &point.name());
            let judge = |(_, disturbed, _): &kernel::Ran| Disturbed::from(disturbed);
            let run = || kernel::run(&point, registry, &step);
            let name = format!("kernel-{}.json", point.name());
            let (seen, disturbed, fell_back) =
                options.parts().part(&name, &point.key(), judge, run)?;
            unsound += usize::from(!disturbed.is_empty());
            fallbacks += fell_back;
            results.push((point, seen));
        }
    }
    let of = results.len();
    shown::on_kernel_tcp(findings, &shown::Results(results), course);
    findings.fact("kernel_group_fallbacks", fallbacks);
    findings.disturbed(unsound, of);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Course = Course {
        steady: 2,
        idle: 4,
        returns: 6,
        killed: 8,
        end: 10,
    };

    /// Members of both hosts get something, whoever shares; the idle one nothing while it is idle,
    /// and the killed one nothing after.
    #[test]
    fn everybody_gets_something_while_he_is_there() {
        for who in [
            Who::Share(20),
            Who::Share(50_000),
            Who::Limit(1_000),
            Who::Apart,
        ] {
            let point = Point {
                who,
                seed: 1,
                course: SHORT,
            };
            let seen = point.run().unwrap();
            let between = |flow: usize, from: f64, to: f64| {
                let at = |seconds: f64| seen.arrived[flow][(seconds * 10.0) as usize - 1];
                at(to) - at(from)
            };
            for flow in 0..seen.arrived.len() {
                assert!(between(flow, 2.0, 4.0) > 100_000, "{who:?} {flow}");
            }
            assert_eq!(between(IDLES as usize, 5.0, 6.0), 0, "{who:?}");
            assert!(between(IDLES as usize, 6.0, 8.0) > 100_000, "{who:?}");
            assert_eq!(between(KILLED as usize, 8.2, 10.0), 0, "{who:?}");
            assert_eq!(seen, point.run().unwrap(), "the same again");
        }
    }
}
