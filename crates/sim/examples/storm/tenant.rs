//! Hostile tenant: a datapath at the same agent whose messages try to harm other tenants.

use ccplane_agent::{Agent, DatapathId};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Duration, Rate, Time};
use ccplane_wire::{DatapathInfo, FlowInfo, FlowStats, Refusal, WireEvent, v2};

use crate::channel::{MESSAGES_PER_TURN, MessageQueue};
use crate::codec::Speech;
use crate::plan::{Attack, Fault, FaultKind, Plan, Version};
use crate::random::Draw;

/// Interval between bursts of messages.
const BURST_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of events in a packet of version 2.
const EVENTS_PER_PACKET: u64 = 8;

/// Hostile datapath of one fault at one agent. It reads no commands.
#[derive(Debug)]
pub struct Tenant {
    fault: Fault,
    attack: Attack,
    messages_per_second: u64,
    draw: Draw,
    /// Current connection, if any.
    datapath: Option<DatapathId>,
    speech: Speech,
    to_agent: MessageQueue,
    next_burst: Time,
}

impl Tenant {
    /// Creates the hostile tenants of a plan, for one agent.
    pub fn all(plan: &Plan) -> Vec<Tenant> {
        let tenant = |fault: &Fault| match fault.what {
            FaultKind::Hostile(attack, messages_per_second) => Some(Tenant {
                fault: *fault,
                attack,
                messages_per_second,
                draw: Draw::new(plan.seed, 300 + fault.id),
                datapath: None,
                speech: Speech::new(plan.version),
                to_agent: MessageQueue::new(plan),
                next_burst: fault.at,
            }),
            _ => None,
        };
        plan.faults.iter().filter_map(tenant).collect()
    }

    /// Returns the number of flows that the agent keeps for the tenant while it is connected.
    pub fn flows(&self, agent: &Agent) -> usize {
        self.datapath
            .map_or(0, |datapath| agent.retained_flows(datapath))
    }

    /// Returns the time of the next burst, arrival or end.
    pub fn next_due(&self) -> Time {
        let burst = match self.next_burst < self.fault.end() {
            true => self.next_burst,
            false => Time::MAX,
        };
        let end = match self.datapath {
            Some(_) => self.fault.end(),
            None => Time::MAX,
        };
        burst.min(end).min(self.to_agent.next())
    }

    /// Sends due messages and delivers some of those that have arrived. `clock` is the agent's
    /// time. Adds the number of messages that the agent read to `read`.
    pub fn turn(
        &mut self,
        (now, clock): (Time, Time),
        plan: &Plan,
        agent: &mut Agent,
        next_datapath: &mut u32,
        read: &mut u64,
    ) {
        if now >= self.fault.end() {
            self.next_burst = Time::MAX;
            return self.end(agent, read);
        }
        while self.next_burst <= now && self.next_burst < self.fault.end() {
            let sent = self.next_burst;
            self.next_burst += BURST_INTERVAL;
            for _ in 0..self.messages_per_second * BURST_INTERVAL.as_micros() / 1_000_000 {
                if self.to_agent.is_full() {
                    break;
                }
                if self.datapath.is_none() {
                    self.connect(sent, next_datapath);
                }
                let (due, bytes) = ((sent + plan.message).max(now), self.packet(plan));
                match self.attack {
                    Attack::Garbage => self.to_agent.send_invalid(due, bytes),
                    _ => self.to_agent.put(due, true, bytes),
                }
            }
        }
        for _ in 0..MESSAGES_PER_TURN {
            let Some(datapath) = self.datapath else {
                return;
            };
            let Some(bytes) = self.to_agent.arrived(now) else {
                return;
            };
            *read += 1;
            if !self.speech.hear(clock, datapath, &bytes, agent) && plan.strict {
                return self.end(agent, read);
            }
        }
    }

    /// Starts a connection, usually with the mandatory first message.
    fn connect(&mut self, now: Time, next_datapath: &mut u32) {
        let id = DatapathId(*next_datapath);
        *next_datapath += 1;
        self.datapath = Some(id);
        self.speech.connected(now, id);
        if self.draw.hits(800) {
            let bytes = self.ready();
            self.to_agent.put(now, true, bytes);
        }
    }

    /// Ends the connection; the next burst starts another one.
    fn end(&mut self, agent: &mut Agent, read: &mut u64) {
        self.to_agent.reset();
        if let Some(datapath) = self.datapath.take() {
            agent.on_disconnect(datapath);
            *read += 1;
        }
    }

    fn packet(&mut self, plan: &Plan) -> Vec<u8> {
        match self.attack {
            Attack::Garbage => self.garbage(),
            Attack::Unknown => self.unknown(plan.version),
            Attack::Log if self.draw.hits(100) => self.ready(),
            Attack::Flows | Attack::Reports | Attack::Log => self.events(plan.version),
        }
    }

    fn garbage(&mut self) -> Vec<u8> {
        (0..self.draw.log(1, 300))
            .map(|_| self.draw.next() as u8)
            .collect()
    }

    /// Creates a message with a valid frame and an unknown type.
    fn unknown(&mut self, version: Version) -> Vec<u8> {
        let kind = self.draw.from(0x80, 0xff) as u8;
        match version {
            Version::Two => [
                &[v2::MAGIC, v2::VERSION, kind, 0][..],
                &4_u32.to_le_bytes(),
                &[0; 4],
            ]
            .concat(),
            Version::One { .. } => [
                &u16::from(kind).to_le_bytes()[..],
                &8_u16.to_le_bytes(),
                &[0; 4],
            ]
            .concat(),
        }
    }

    /// Creates a Ready event with a long name and a request for frequent heartbeats.
    fn ready(&mut self) -> Vec<u8> {
        let datapath = DatapathInfo {
            id: self.draw.next() as u32,
            kind: "x".repeat(self.draw.log(1, 4_000) as usize),
            capabilities: Capabilities(self.draw.next()),
            max_programs: self.draw.next() as u32,
            max_instrs: self.draw.next() as u32,
            max_vars: self.draw.next() as u32,
            agent_timeout: self
                .draw
                .hits(700)
                .then(|| Duration::from_nanos(self.draw.log(1, 1 << 40))),
        };
        self.say(&[WireEvent::Ready { datapath }])
    }

    fn events(&mut self, version: Version) -> Vec<u8> {
        let count = match version {
            Version::Two => self.draw.from(1, EVENTS_PER_PACKET),
            Version::One { .. } => 1,
        };
        let fields: Vec<u64> = (0..self.draw.below(20)).map(|_| self.draw.next()).collect();
        let events: Vec<WireEvent<'_>> = (0..count).map(|_| self.event(&fields)).collect();
        self.say(&events)
    }

    fn event<'f>(&mut self, fields: &'f [u64]) -> WireEvent<'f> {
        // The other tenant's flows have the lowest numbers.
        let flow = match self.draw.hits(300) {
            true => self.draw.below(5),
            false => self.draw.next(),
        };
        let program = self.draw.log(1, 1 << 20) as u32;
        let why = match self.draw.below(4) {
            0 => Refusal::UnknownProgram(program),
            1 => Refusal::BadTarget("y".repeat(self.draw.log(1, 400) as usize)),
            2 => Refusal::NoRelease,
            _ => Refusal::Other("\n\u{1b}[31mz".repeat(self.draw.log(1, 40) as usize)),
        };
        match (self.attack, self.draw.below(4)) {
            (Attack::Flows, 0..=2) => WireEvent::FlowOpened {
                flow,
                info: self.info(),
            },
            (Attack::Reports, 0..=2) => WireEvent::Report {
                flow,
                program,
                urgent: self.draw.hits(500),
                fields,
            },
            (Attack::Log, 0..=2) | (Attack::Reports, _) => WireEvent::Refused {
                flow: self.draw.hits(700).then_some(flow),
                program,
                why,
            },
            _ => WireEvent::FlowClosed {
                flow,
                stats: FlowStats::default(),
            },
        }
    }

    fn info(&mut self) -> FlowInfo {
        FlowInfo {
            algorithm: if self.draw.hits(900) {
                String::new()
            } else {
                "nobody".to_owned()
            },
            init_cwnd: Bytes::new(self.draw.log(1, u64::MAX)),
            mss: Bytes::new(self.draw.log(1, u64::MAX)),
            cwnd: Bytes::new(self.draw.log(1, u64::MAX)),
            ssthresh: Bytes::new(self.draw.log(1, u64::MAX)),
            rate: Rate::from_bytes_per_sec(self.draw.log(1, u64::MAX)),
            srtt: Duration::from_nanos(self.draw.log(1, u64::MAX)),
            live: self.draw.hits(500),
            ..FlowInfo::default()
        }
    }

    /// Encodes events; garbage if the version has no such messages.
    fn say(&mut self, events: &[WireEvent<'_>]) -> Vec<u8> {
        let mut bytes = match &mut self.speech {
            Speech::Two => {
                let mut packet = v2::PacketWriter::new();
                let written = events.iter().all(|event| packet.push_event(event).is_ok());
                if written {
                    packet.as_bytes().to_vec()
                } else {
                    Vec::new()
                }
            }
            one => events
                .iter()
                .filter_map(|event| one.event(event).ok())
                .flatten()
                .collect(),
        };
        if bytes.is_empty() {
            bytes = self.garbage();
        }
        bytes
    }
}
