//! Plan of a seed: network, flows, the operator's limits, agents, and faults.

use std::sync::Arc;

use ccplane_datapath::OperatorLimits;
use ccplane_qdisc::{DelayDistribution, DelayModel, Ecn};
use ccplane_sim::{LinkSpec, Network, NodeId, SimError, TransportConfig, topology};
use ccplane_units::{Duration, Rate, Time};

use crate::bus::Bus;
use crate::disk::Space;
use crate::random::Draw;

/// Everything that a seed determines.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// 0: dumbbell; 1: parking lot with two bottlenecks; 2: incast; 3: leaf-spine fabric.
    pub shape: u64,
    pub rate: Rate,
    pub delay: Duration,
    pub queue: &'static str,
    pub config: Arc<TransportConfig>,
    pub flows: Vec<FlowPlan>,
    pub limits: OperatorLimits,
    /// Algorithms of the agent and its successors.
    pub algorithms: Vec<&'static str>,
    /// Version of the messages between agents and datapath.
    pub version: Version,
    /// One-way delay of a message.
    pub message: Duration,
    /// In version 2: a peer that sends an invalid message is disconnected, as on the Unix socket.
    /// Otherwise the message is ignored, as on datagram sockets.
    pub strict: bool,
    /// Stream sockets to agents on another host; without them messages keep their boundaries.
    pub bus: Option<Bus>,
    /// Disk of the packet log and another of the agents' log; without one, neither is written.
    pub disk: Option<Space>,
    /// Time that an agent takes per message read and per unit of work (`Agent::work`). Zero without
    /// hostile tenants.
    pub work: Duration,
    /// Time after which there are no faults: agents are present and links are restored.
    pub calm: Time,
    pub faults: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Two,
    /// CCP's version 1. Its agents send no heartbeats, and count as silent after this time, if set.
    One {
        silence: Option<Duration>,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct FlowPlan {
    pub from: u64,
    pub to: u64,
    pub start: Time,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Index among the seed's faults, independent of faults left out.
    pub id: u64,
    pub at: Time,
    pub lasts: Duration,
    pub what: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The agent dies. Its successor runs this algorithm.
    Dies(&'static str),
    /// The agent neither receives nor sends.
    Hangs,
    /// An additional agent is present, with this algorithm.
    Second(&'static str),
    /// The agent's clock steps by this many µs.
    Clock(i64),
    /// Every report is sent this many times.
    Flood(u64),
    /// This many of a thousand messages are affected.
    Messages(Harm, u64),
    /// A bottleneck is down.
    Down,
    /// A bottleneck has this percentage of its rate.
    Slow(u64),
    /// This many of a thousand packets are lost.
    Loss(u64),
    /// Packets are reordered by jitter of up to this percentage of the delay.
    Reorder(u64),
    /// No message passes between the datapath and its remote agents.
    Cut,
    /// Connections to remote agents are reset, possibly within a frame.
    Reset,
    /// A hostile datapath at the same agents sends this many messages per second.
    Hostile(Attack, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Opens and closes flows that do not exist, some with the numbers of the other tenant's flows.
    Flows,
    /// Reports, refusals and flow ends for flows that the tenant does not have.
    Reports,
    Unknown,
    Garbage,
    /// Messages that each cause a line in the log, and datapaths that reconnect over and over.
    Log,
}

/// Effect of a fault on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Late,
    Lost,
    Doubled,
    Overtaken,
    Truncated,
    Flipped,
}

const ALGORITHMS: [&str; 13] = [
    "reno", "cubic", "bbr", "bbr3", "dctcp", "swift", "timely", "constant", "vegas", "copa",
    "ledbat++", "nimbus", "vivace",
];
/// Algorithms whose programs can be expressed in version 1.
const VERSION_1_ALGORITHMS: [&str; 3] = ["reno", "cubic", "dctcp"];
const QUEUES: [&str; 6] = [
    "droptail:8p",
    "droptail:30p",
    "droptail:200p",
    "codel",
    "fq_codel",
    "ecn:10p:60p",
];
const ATTACKS: [Attack; 5] = [
    Attack::Flows,
    Attack::Reports,
    Attack::Unknown,
    Attack::Garbage,
    Attack::Log,
];
const MESSAGE_FAULTS: [Harm; 6] = [
    Harm::Late,
    Harm::Lost,
    Harm::Doubled,
    Harm::Overtaken,
    Harm::Truncated,
    Harm::Flipped,
];

impl Plan {
    pub fn new(seed: u64) -> Plan {
        let mut draw = Draw::new(seed, 1);
        let delay = Duration::from_micros(draw.log(500, 40_000));
        let rate = Rate::from_bits_per_sec(draw.log(500_000, 12_000_000));
        let calm = Time::from_micros(draw.from(1_000_000, 4_000_000));
        let mss = *draw.pick(&[1448, 1448, 1000, 536]);
        let config = TransportConfig {
            mss,
            discard: true,
            pacing: draw.hits(200),
            ecn: if draw.hits(400) {
                Ecn::Ect0
            } else {
                Ecn::NotEct
            },
            ack_every: draw.from(1, 2) as u8,
            first_number: if draw.hits(300) { u32::MAX - 50 } else { 0 },
            // Endpoints never give up, since every flow must complete: a server waits for its
            // client for longer than any outage.
            max_rto: Duration::from_secs(5),
            max_retries: u8::MAX,
            open_retries: u8::MAX,
            // An absent peer is given up after the idle timeout, however.
            idle_timeout: Duration::from_secs(60),
            ..TransportConfig::default()
        };
        let in_calm = rate.bytes_per_sec() as u128 * u128::from(calm.as_nanos()) / 1_000_000_000;
        let count = draw.from(1, 4);
        let flows = (0..count)
            .map(|_| FlowPlan {
                from: draw.next(),
                to: draw.next(),
                start: Time::from_micros(draw.below(calm.as_micros() * 3 / 4)),
                bytes: draw.log(1_000, (in_calm as u64 * 2 / count).max(2_000)),
            })
            .collect();
        let segment = u64::from(mss);
        let limits = OperatorLimits {
            min_cwnd: *draw.pick(&[segment, 1220, 2 * segment]),
            max_cwnd: *draw.pick(&[u64::MAX, u64::MAX, 16 * segment, 64 * segment]),
            max_rate: *draw.pick(&[u64::MAX, u64::MAX, 200_000, 1_000_000]),
            agent_timeout: Duration::from_micros(draw.log(20_000, 500_000)),
        };
        let algorithms: Vec<&str> = (0..3).map(|_| *draw.pick(&ALGORITHMS)).collect();
        let faults = (0..draw.from(0, 8))
            .map(|id| Fault::new(seed, id, calm))
            .collect();
        let plan = Plan {
            seed,
            shape: draw.below(4),
            rate,
            delay,
            queue: draw.pick::<&str>(&QUEUES),
            config: Arc::new(config),
            flows,
            limits,
            algorithms,
            version: Version::Two,
            message: Duration::from_micros(draw.log(5, 2_000)),
            strict: draw.hits(700),
            bus: None,
            disk: None,
            work: Duration::ZERO,
            calm,
            faults,
        };
        // Drawn from separate streams, so that plans with version 2 stay the same.
        let (mut first, mut second) = (Draw::new(seed, 99), Draw::new(seed, 98));
        let mut plan = match (first.hits(250), second.hits(250)) {
            (true, _) => plan.in_version_1(&mut first),
            (false, true) => plan.far(&mut second),
            (false, false) => plan,
        };
        let mut draw = Draw::new(seed, 96);
        plan.disk = draw.hits(250).then(|| Space {
            room: draw.log(1 << 8, 1 << 20) as usize,
            write: draw.log(1, 1 << 16) as usize,
        });
        let mut draw = Draw::new(seed, 97);
        match draw.hits(250) {
            true => plan.with_hostile_tenant(&mut draw),
            false => plan,
        }
    }

    /// Adds a hostile tenant. In half of these plans the agents have no other faults, so that
    /// nothing else can cause a fallback.
    fn with_hostile_tenant(mut self, draw: &mut Draw) -> Plan {
        self.work = Duration::from_nanos(draw.log(500, 4_000));
        if draw.hits(500) {
            self.faults.retain(|fault| !fault.silences_agents());
        }
        let calm = self.calm.as_micros();
        for id in 0..draw.from(1, 3) {
            let at = draw.below(calm);
            self.faults.push(Fault {
                id: 200 + id,
                at: Time::from_micros(at),
                lasts: Duration::from_micros(draw.log(10_000, 2_000_000).min(calm - at)),
                what: FaultKind::Hostile(*draw.pick(&ATTACKS), draw.log(1_000, 20_000)),
            });
        }
        self
    }

    /// Returns true if there is a hostile tenant and no fault that affects the agents: then no flow
    /// may fall back. In version 1 with an agent timeout, flows also fall back when their agent has
    /// nothing to send.
    pub fn only_hostile(&self) -> bool {
        if matches!(self.version, Version::One { silence: Some(_) }) {
            return false;
        }
        let hostile = |fault: &Fault| matches!(fault.what, FaultKind::Hostile(..));
        self.faults.iter().any(hostile) && !self.faults.iter().any(Fault::silences_agents)
    }

    /// Moves the agents to another host, behind connections that deliver everything in order, or
    /// break.
    fn far(mut self, draw: &mut Draw) -> Plan {
        self.message = Duration::from_micros(draw.log(500, 50_000));
        // The default: 3 RTTs plus 200 ms.
        self.limits.agent_timeout = self.message * 6 + Duration::from_millis(200);
        self.strict = true;
        self.faults.retain(
            |fault| !matches!(fault.what, FaultKind::Messages(harm, _) if harm != Harm::Late),
        );
        // Flows start while the network is cut, and an abandoned connection is re-established
        // before the calm.
        let begin = self.calm.as_micros();
        self.calm += Duration::from_secs(6);
        let calm = self.calm.as_micros();
        for id in 0..draw.from(1, 3) {
            let at = draw.below(begin);
            self.faults.push(Fault {
                id: 100 + id,
                at: Time::from_micros(at),
                lasts: Duration::from_micros(draw.log(1_000, 4_000_000).min(calm - at)),
                what: FaultKind::Cut,
            });
        }
        self.bus = Some(Bus {
            send_buffer: draw.log(1 << 14, 1 << 17) as usize,
            read_buffer: draw.log(1, 1 << 16) as usize,
            delay: self.message,
            seed: self.seed,
        });
        for id in 0..draw.below(3) {
            self.faults.push(Fault {
                id: 150 + id,
                at: Time::from_micros(draw.below(begin)),
                lasts: Duration::ZERO,
                what: FaultKind::Reset,
            });
        }
        self
    }

    /// Returns the time at which connections established at `since` are reset.
    pub fn reset_after(&self, since: Time) -> Time {
        let resets = self
            .faults
            .iter()
            .filter(|f| f.what == FaultKind::Reset && f.at > since);
        resets.map(|reset| reset.at).min().unwrap_or(Time::MAX)
    }

    /// Returns the end of the current cut, if there is one.
    pub fn cut_until(&self, now: Time) -> Option<Time> {
        let cuts = self
            .faults
            .iter()
            .filter(|f| f.what == FaultKind::Cut && f.is_on(now));
        cuts.map(Fault::end).max()
    }

    /// Returns the time at which a connection established at `since` is abandoned, and the time of
    /// the next one: as in `link::TlsUplink`, after four agent timeouts but at least 2 s, with
    /// exponential backoff between attempts.
    pub fn given_up(&self, since: Time) -> Option<(Time, Time)> {
        let patience = (self.limits.agent_timeout * 4).max(Duration::from_secs(2));
        let cuts = self
            .faults
            .iter()
            .filter(|f| f.what == FaultKind::Cut && f.at >= since && f.lasts > patience);
        let cut = cuts.min_by_key(|cut| cut.at)?;
        let (given_up, mut wait) = (cut.at + patience, Duration::from_millis(100));
        let mut next = given_up + wait;
        while next < cut.end() {
            wait = (wait * 2).min(Duration::from_secs(5));
            next += wait;
        }
        // Handshakes of TCP and TLS, and the welcome message.
        Some((given_up, next + self.message * 6))
    }

    fn in_version_1(mut self, draw: &mut Draw) -> Plan {
        let silence = draw.hits(500);
        self.version = Version::One {
            silence: silence.then(|| Duration::from_micros(draw.log(20_000, 2_000_000))),
        };
        for algorithm in &mut self.algorithms {
            *algorithm = draw.pick::<&str>(&VERSION_1_ALGORITHMS);
        }
        for fault in &mut self.faults {
            if let FaultKind::Dies(algorithm) | FaultKind::Second(algorithm) = &mut fault.what {
                *algorithm = draw.pick::<&str>(&VERSION_1_ALGORITHMS);
            }
        }
        self
    }

    /// Returns true if messages can be corrupted without being detected: then flows need not
    /// complete.
    pub fn lies(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault.what, FaultKind::Messages(Harm::Flipped, _)))
    }

    /// Returns true if a data-centre algorithm is used. It mistakes the delay of these paths for
    /// queueing and reduces its window to a hundredth of a packet (Swift) or its rate to the
    /// minimum (TIMELY).
    pub fn crawls(&self) -> bool {
        let steered = self.faults.iter().filter_map(|fault| match fault.what {
            FaultKind::Dies(algorithm) | FaultKind::Second(algorithm) => Some(algorithm),
            _ => None,
        });
        let mut all = steered.chain(self.algorithms.iter().copied());
        all.any(|algorithm| matches!(algorithm, "swift" | "timely"))
    }

    #[must_use]
    pub fn without(&self, ids: &[u64]) -> Plan {
        let faults = self
            .faults
            .iter()
            .filter(|fault| !ids.contains(&fault.id))
            .copied()
            .collect();
        Plan {
            faults,
            ..self.clone()
        }
    }

    /// Returns the name of the link that the faults affect.
    pub fn bottleneck(&self) -> &'static str {
        match self.shape {
            0 | 2 => "bottleneck",
            1 => "bottleneck1",
            _ => "leaf1->spine1",
        }
    }

    pub fn network(&self) -> Result<Network, SimError> {
        // Access links have no loss and a sufficient queue, so that the packets seen there are all
        // packets sent and received by the hosts.
        let access = LinkSpec::new(
            Rate::from_bits_per_sec(100_000_000),
            Duration::from_micros(50),
        );
        let rtt = self.delay * 2;
        let link = LinkSpec::new(self.rate, self.delay);
        let core = match self.queue.parse() {
            Ok(queue) => link.clone().with_queue(queue, rtt),
            Err(_) => {
                return Err(SimError::InvalidTopology(format!(
                    "invalid queue `{}`",
                    self.queue
                )));
            }
        };
        Ok(match self.shape {
            0 => topology::dumbbell(3, &access, core, link),
            1 => topology::parking_lot(2, &access, &core),
            2 => topology::incast(4, &access, core),
            _ => topology::leaf_spine(2, 2, 2, &access, &core),
        }?)
    }

    /// Returns the source and destination host of a flow.
    pub fn hosts(&self, flow: &FlowPlan, network: &Network) -> Option<(NodeId, NodeId)> {
        let hosts: Vec<NodeId> = network.hosts().collect();
        let named = |name: String| network.find_node(&name);
        Some(match self.shape {
            0 => (
                named(format!("left{}", 1 + flow.from % 3))?,
                named(format!("right{}", 1 + flow.to % 3))?,
            ),
            2 => (
                named(format!("sender{}", 1 + flow.from % 4))?,
                named("receiver".into())?,
            ),
            _ => {
                let from = (flow.from % hosts.len() as u64) as usize;
                let other = 1 + (flow.to % (hosts.len() as u64 - 1)) as usize;
                (hosts[from], hosts[(from + other) % hosts.len()])
            }
        })
    }

    /// Returns the delay model of [`FaultKind::Reorder`].
    pub fn jitter(&self, percent: u64) -> DelayModel {
        DelayModel::Jitter {
            delay: self.delay,
            spread: self.delay * percent / 100,
            shape: DelayDistribution::Uniform,
            reorder: true,
        }
    }
}

impl Fault {
    fn new(seed: u64, id: u64, calm: Time) -> Fault {
        let draw = &mut Draw::new(seed, 100 + id);
        let at = draw.below(calm.as_micros());
        let lasts = draw.log(1_000, 2_000_000).min(calm.as_micros() - at);
        let share = draw.log(5, 500);
        let what = match draw.below(20) {
            0..=2 => FaultKind::Dies(draw.pick::<&str>(&ALGORITHMS)),
            3..=4 => FaultKind::Hangs,
            5 => FaultKind::Second(draw.pick::<&str>(&ALGORITHMS)),
            6 => FaultKind::Clock(
                draw.log(1_000, 100_000_000) as i64 * if draw.hits(500) { 1 } else { -1 },
            ),
            7 => FaultKind::Flood(draw.log(2, 60)),
            8..=14 => FaultKind::Messages(*draw.pick(&MESSAGE_FAULTS), share),
            15..=16 => FaultKind::Down,
            17 => FaultKind::Slow(draw.log(3, 300)),
            18 => FaultKind::Loss(share / 2),
            _ => FaultKind::Reorder(draw.from(1, 100)),
        };
        Fault {
            id,
            at: Time::from_micros(at),
            lasts: Duration::from_micros(lasts),
            what,
        }
    }

    /// Returns true if the fault can delay or drop an agent's heartbeats. Floods of reports,
    /// hostile tenants and faults of the packet network must not.
    fn silences_agents(&self) -> bool {
        match self.what {
            FaultKind::Dies(_)
            | FaultKind::Hangs
            | FaultKind::Second(_)
            | FaultKind::Clock(_)
            | FaultKind::Messages(..) => true,
            FaultKind::Cut | FaultKind::Reset => true,
            FaultKind::Flood(_)
            | FaultKind::Down
            | FaultKind::Slow(_)
            | FaultKind::Loss(_)
            | FaultKind::Reorder(_)
            | FaultKind::Hostile(..) => false,
        }
    }

    pub fn end(&self) -> Time {
        self.at + self.lasts
    }

    pub fn is_on(&self, now: Time) -> bool {
        self.at <= now && now < self.end()
    }
}
