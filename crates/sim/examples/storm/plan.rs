//! What a seed draws: a network, flows, an owner's limits, agents, and the faults that befall them.

use std::sync::Arc;

use ccplane_datapath::Limits;
use ccplane_qdisc::{DelayModel, Ecn, Shape};
use ccplane_sim::{Config, LinkSpec, Network, NodeId, SimError, topology};
use ccplane_units::{Duration, Rate, Time};

use crate::bus::Bus;
use crate::disk::Space;
use crate::draw::Draw;

/// Everything that a seed says.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// 0: a dumbbell; 1: a parking lot of two bottlenecks; 2: an incast; 3: a fabric of leaves and
    /// spines.
    pub shape: u64,
    pub rate: Rate,
    pub delay: Duration,
    pub queue: &'static str,
    pub config: Arc<Config>,
    pub flows: Vec<FlowPlan>,
    pub limits: Limits,
    /// By what the agent and its successors steer.
    pub algorithms: Vec<&'static str>,
    /// What agents and datapath speak.
    pub version: Version,
    /// How long a message takes.
    pub message: Duration,
    /// In version 2 a peer that says what is no message is cut off, as on the Unix link; otherwise
    /// the message is passed over, as where messages are datagrams.
    pub strict: bool,
    /// The sockets to agents on another host; without them messages keep their borders.
    pub bus: Option<Bus>,
    /// The disk of the packet log and of the agents' log, each; without one neither is written.
    pub disk: Option<Space>,
    /// Time that an agent takes to read a message, and for each unit of its work
    /// (`Agent::work`). Zero where no tenant is hostile.
    pub work: Duration,
    /// From now on there are no faults: agents are there, links are as they were.
    pub calm: Time,
    pub faults: Vec<Fault>,
}

/// A version of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Two,
    /// CCP's, in which an agent has no heartbeats and counts as silent after this long, if ever.
    One {
        silence: Option<Duration>,
    },
}

/// A flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowPlan {
    pub from: u64,
    pub to: u64,
    pub start: Time,
    pub bytes: u64,
}

/// What goes wrong, from when on and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Its place among the seed's faults, also where others are left out.
    pub id: u64,
    pub at: Time,
    pub lasts: Duration,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The agent is gone. It returns with this algorithm.
    Dies(&'static str),
    /// The agent neither hears nor speaks.
    Hangs,
    /// Another agent is there beside it, with this algorithm.
    Second(&'static str),
    /// The agent's clock steps by so many µs.
    Clock(i64),
    /// Every report comes so many times.
    Flood(u64),
    /// Of a thousand messages so many suffer this.
    Messages(Harm, u64),
    /// A bottleneck is down.
    Down,
    /// A bottleneck has this many percent of its rate.
    Slow(u64),
    /// Of a thousand packets so many are lost.
    Loss(u64),
    /// Packets overtake each other, by up to so many percent of the delay.
    Reorder(u64),
    /// Nothing passes between the datapath and its agents, which are far.
    Cut,
    /// The connections to agents on another host end, wherever in a frame they are.
    Reset,
    /// A second datapath at the same agents sends this many messages per second.
    Hostile(Attack, u64),
}

/// Messages of a hostile tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Flows that do not exist begin and end, some under the numbers of the other tenant's flows.
    Flows,
    /// Reports, refusals and ends of flows that the tenant does not have.
    Reports,
    /// Messages of unknown types.
    Unknown,
    /// Random bytes.
    Garbage,
    /// Messages that cause a line of the log each, and datapaths that begin anew over and over.
    Log,
}

/// What a message suffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Late,
    Lost,
    Doubled,
    Overtaken,
    Truncated,
    /// Flipped bits.
    Flipped,
}

const ALGORITHMS: [&str; 13] = [
    "reno", "cubic", "bbr", "bbr3", "dctcp", "swift", "timely", "constant", "vegas", "copa",
    "ledbat++", "nimbus", "vivace",
];
/// Those whose programs version 1 can say.
const OF_VERSION_1: [&str; 3] = ["reno", "cubic", "dctcp"];
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
const HARMS: [Harm; 6] = [
    Harm::Late,
    Harm::Lost,
    Harm::Doubled,
    Harm::Overtaken,
    Harm::Truncated,
    Harm::Flipped,
];

impl Plan {
    /// What this seed draws.
    pub fn new(seed: u64) -> Plan {
        let mut draw = Draw::new(seed, 1);
        let delay = Duration::from_micros(draw.log(500, 40_000));
        let rate = Rate::from_bits_per_sec(draw.log(500_000, 12_000_000));
        let calm = Time::from_micros(draw.from(1_000_000, 4_000_000));
        let mss = *draw.pick(&[1448, 1448, 1000, 536]);
        let config = Config {
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
            // Nobody gives up, so that every flow has to be through in the end: a server waits this
            // long for a client, longer than any outage.
            max_rto: Duration::from_secs(5),
            max_retries: u8::MAX,
            open_retries: u8::MAX,
            // But a peer that is gone is not waited for.
            idle_timeout: Duration::from_secs(60),
            ..Config::default()
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
        let limits = Limits {
            min_cwnd: *draw.pick(&[segment, 1220, 2 * segment]),
            max_cwnd: *draw.pick(&[u64::MAX, u64::MAX, 16 * segment, 64 * segment]),
            max_rate: *draw.pick(&[u64::MAX, u64::MAX, 200_000, 1_000_000]),
            fallback_after: Duration::from_micros(draw.log(20_000, 500_000)),
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
        // Drawn apart, so that it changes nothing for those who speak version 2.
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

    /// Adds a hostile tenant. In half of the plans the agent suffers nothing else, so that a
    /// fallback has no other cause.
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
                what: What::Hostile(*draw.pick(&ATTACKS), draw.log(1_000, 20_000)),
            });
        }
        self
    }

    /// Returns true where a tenant is hostile and agents suffer nothing else: then no flow may fall
    /// back. In version 1 with a silence flows also fall back where their agent has nothing to say.
    pub fn only_hostile(&self) -> bool {
        if matches!(self.version, Version::One { silence: Some(_) }) {
            return false;
        }
        let hostile = |fault: &Fault| matches!(fault.what, What::Hostile(..));
        self.faults.iter().any(hostile) && !self.faults.iter().any(Fault::silences_agents)
    }

    /// With agents on another host, over a connection that brings everything whole and in order, or
    /// breaks.
    fn far(mut self, draw: &mut Draw) -> Plan {
        self.message = Duration::from_micros(draw.log(500, 50_000));
        // 3 round trips and 200 ms, as where nobody says it.
        self.limits.fallback_after = self.message * 6 + Duration::from_millis(200);
        self.strict = true;
        self.faults
            .retain(|fault| !matches!(fault.what, What::Messages(harm, _) if harm != Harm::Late));
        // Flows begin while the network is cut, and a connection that was given up comes back
        // before all is calm.
        let begin = self.calm.as_micros();
        self.calm += Duration::from_secs(6);
        let calm = self.calm.as_micros();
        for id in 0..draw.from(1, 3) {
            let at = draw.below(begin);
            self.faults.push(Fault {
                id: 100 + id,
                at: Time::from_micros(at),
                lasts: Duration::from_micros(draw.log(1_000, 4_000_000).min(calm - at)),
                what: What::Cut,
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
                what: What::Reset,
            });
        }
        self
    }

    /// When connections that began at `since` are reset.
    pub fn reset_after(&self, since: Time) -> Time {
        let resets = self
            .faults
            .iter()
            .filter(|f| f.what == What::Reset && f.at > since);
        resets.map(|reset| reset.at).min().unwrap_or(Time::MAX)
    }

    /// When nothing is cut any more, if something is now.
    pub fn cut_until(&self, now: Time) -> Option<Time> {
        let cuts = self
            .faults
            .iter()
            .filter(|f| f.what == What::Cut && f.is_on(now));
        cuts.map(Fault::end).max()
    }

    /// When a connection is given up that was made at `since`, and when the next one is there: as
    /// `link::TlsUplink` does, after four silences, 2 s at least, with attempts that wait longer
    /// and longer.
    pub fn given_up(&self, since: Time) -> Option<(Time, Time)> {
        let patience = (self.limits.fallback_after * 4).max(Duration::from_secs(2));
        let cuts = self
            .faults
            .iter()
            .filter(|f| f.what == What::Cut && f.at >= since && f.lasts > patience);
        let cut = cuts.min_by_key(|cut| cut.at)?;
        let (given_up, mut wait) = (cut.at + patience, Duration::from_millis(100));
        let mut next = given_up + wait;
        while next < cut.end() {
            wait = (wait * 2).min(Duration::from_secs(5));
            next += wait;
        }
        // TCP's handshake, TLS', and the welcome.
        Some((given_up, next + self.message * 6))
    }

    fn in_version_1(mut self, draw: &mut Draw) -> Plan {
        let silence = draw.hits(500);
        self.version = Version::One {
            silence: silence.then(|| Duration::from_micros(draw.log(20_000, 2_000_000))),
        };
        for algorithm in &mut self.algorithms {
            *algorithm = draw.pick::<&str>(&OF_VERSION_1);
        }
        for fault in &mut self.faults {
            if let What::Dies(algorithm) | What::Second(algorithm) = &mut fault.what {
                *algorithm = draw.pick::<&str>(&OF_VERSION_1);
            }
        }
        self
    }

    /// Whether messages may say what nobody meant: then no flow has to come through.
    pub fn lies(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| matches!(fault.what, What::Messages(Harm::Flipped, _)))
    }

    /// Whether an algorithm steers that is for data centres: it takes the delay of these paths for
    /// a queue, and its window goes to a hundredth of a packet (Swift) or its rate to the least.
    pub fn crawls(&self) -> bool {
        let steered = self.faults.iter().filter_map(|fault| match fault.what {
            What::Dies(algorithm) | What::Second(algorithm) => Some(algorithm),
            _ => None,
        });
        let mut all = steered.chain(self.algorithms.iter().copied());
        all.any(|algorithm| matches!(algorithm, "swift" | "timely"))
    }

    /// The same without these faults.
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

    /// The name of the link that suffers.
    pub fn bottleneck(&self) -> &'static str {
        match self.shape {
            0 | 2 => "bottleneck",
            1 => "bottleneck1",
            _ => "leaf1->spine1",
        }
    }

    /// The network.
    pub fn network(&self) -> Result<Network, SimError> {
        // No queue and no loss where packets come from and go to: what leaves a host and what comes
        // to it is seen there.
        let access = LinkSpec::new(
            Rate::from_bits_per_sec(100_000_000),
            Duration::from_micros(50),
        );
        let rtt = self.delay * 2;
        let link = LinkSpec::new(self.rate, self.delay);
        let core = match self.queue.parse() {
            Ok(queue) => link.clone().with_queue(queue, rtt),
            Err(_) => return Err(SimError::Shape(format!("no queue {}", self.queue))),
        };
        match self.shape {
            0 => topology::dumbbell(3, &access, core, link),
            1 => topology::parking_lot(2, &access, &core),
            2 => topology::incast(4, &access, core),
            _ => topology::leaf_spine(2, 2, 2, &access, &core),
        }
    }

    /// The hosts of a flow, between which there is a path.
    pub fn hosts(&self, flow: &FlowPlan, network: &Network) -> Option<(NodeId, NodeId)> {
        let hosts: Vec<NodeId> = network.hosts().collect();
        let named = |name: String| network.node(&name);
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

    /// How packets are delayed under [`What::Reorder`].
    pub fn jitter(&self, percent: u64) -> DelayModel {
        DelayModel::Jitter {
            delay: self.delay,
            spread: self.delay * percent / 100,
            shape: Shape::Uniform,
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
            0..=2 => What::Dies(draw.pick::<&str>(&ALGORITHMS)),
            3..=4 => What::Hangs,
            5 => What::Second(draw.pick::<&str>(&ALGORITHMS)),
            6 => What::Clock(
                draw.log(1_000, 100_000_000) as i64 * if draw.hits(500) { 1 } else { -1 },
            ),
            7 => What::Flood(draw.log(2, 60)),
            8..=14 => What::Messages(*draw.pick(&HARMS), share),
            15..=16 => What::Down,
            17 => What::Slow(draw.log(3, 300)),
            18 => What::Loss(share / 2),
            _ => What::Reorder(draw.from(1, 100)),
        };
        Fault {
            id,
            at: Time::from_micros(at),
            lasts: Duration::from_micros(lasts),
            what,
        }
    }

    /// Returns true where a fault may keep an agent's heartbeats from its flows. A flood of
    /// reports, a hostile tenant and what happens to packets may not.
    fn silences_agents(&self) -> bool {
        match self.what {
            What::Dies(_) | What::Hangs | What::Second(_) | What::Clock(_) | What::Messages(..) => {
                true
            }
            What::Cut | What::Reset => true,
            What::Flood(_)
            | What::Down
            | What::Slow(_)
            | What::Loss(_)
            | What::Reorder(_)
            | What::Hostile(..) => false,
        }
    }

    pub fn end(&self) -> Time {
        self.at + self.lasts
    }

    /// Whether it is so now.
    pub fn is_on(&self, now: Time) -> bool {
        self.at <= now && now < self.end()
    }
}
