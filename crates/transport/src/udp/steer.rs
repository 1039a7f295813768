//! Connections steered by an agent: in this process and thread, or in another process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use ccplane_agent::link::{Remote, Sent};
use ccplane_agent::{Agent, DatapathId, MAX_PROGRAMS, MAX_VARS, TableId, Tables};
use ccplane_datapath::{self as datapath, Capabilities, Limits, Urgency};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{Command, Event, FlowInfo, FlowStats};

use crate::{Connection, Reports, Steered};

/// How soon to look again for an agent that is not there. Its flows run the fallback meanwhile.
const RETRY: Duration = Duration::from_millis(100);

/// The one datapath that an agent of this process has.
const HERE: DatapathId = DatapathId(0);

/// The datapath of this process's connections: their flows, the programs they run, and the way to their agent.
pub struct Steering {
    reports: Out,
    tables: Tables,
    flows: BTreeMap<u64, Local>,
    /// When to look for the agent again.
    retry: Time,
}

/// Where reports go.
struct Out {
    way: Way,
    /// Whose reports are being made.
    flow: u64,
    queued: u64,
}

enum Way {
    InProcess(Box<Agent>),
    Link(Box<dyn Remote>),
}

struct Local {
    flow: datapath::Flow<MAX_VARS>,
    table: TableId,
    info: FlowInfo,
    opened: Time,
    reports: u64,
}

impl Steering {
    /// By an agent that runs here, between the datagrams. An algorithm that takes long keeps them waiting.
    /// `capabilities` are the host's ([`Host::capabilities`](super::Host::capabilities)).
    pub fn in_process(agent: Agent, limits: Limits, capabilities: Capabilities, now: Time) -> Steering {
        let mut steering = Steering::new(Way::InProcess(Box::new(agent)), limits, capabilities);
        steering.announce();
        steering.turn(now);
        steering
    }

    /// By an agent in another process; an error when there is none. If it goes away later, flows run the fallback until it is
    /// there again.
    pub fn over(
        mut remote: Box<dyn Remote>,
        limits: Limits,
        capabilities: Capabilities,
        now: Time,
    ) -> Result<Steering, ccplane_agent::LinkError> {
        remote.connect(now)?;
        let mut steering = Steering::new(Way::Link(remote), limits, capabilities);
        steering.announce();
        Ok(steering)
    }

    fn new(way: Way, limits: Limits, capabilities: Capabilities) -> Steering {
        Steering {
            reports: Out {
                way,
                flow: 0,
                queued: 0,
            },
            tables: Tables::new(limits, capabilities),
            flows: BTreeMap::new(),
            retry: Time::ZERO,
        }
    }

    /// Tells an agent that may be new what there is.
    fn announce(&mut self) {
        let datapath = self.tables.describe(std::process::id(), "udp");
        self.reports.way.event(Time::ZERO, Event::Ready { datapath });
        for (flow, local) in &self.flows {
            let info = FlowInfo {
                live: true,
                ..local.info.clone()
            };
            self.reports
                .way
                .event(Time::ZERO, Event::FlowOpened { flow: *flow, info });
        }
    }

    /// A flow begins that asks for `algorithm`.
    pub fn open(
        &mut self,
        now: Time,
        id: u64,
        algorithm: &str,
        cwnd: u64,
        mss: u64,
        addresses: (SocketAddr, SocketAddr),
    ) {
        let info = FlowInfo {
            algorithm: algorithm.to_owned(),
            init_cwnd: Bytes::new(cwnd),
            cwnd: Bytes::new(cwnd),
            mss: Bytes::new(mss),
            local: addresses.0,
            peer: addresses.1,
            ..FlowInfo::default()
        };
        let local = Local {
            flow: datapath::Flow::new(now, cwnd),
            table: TableId::NOBODY,
            info: info.clone(),
            opened: now,
            reports: 0,
        };
        self.flows.insert(id, local);
        self.reports.way.event(now, Event::FlowOpened { flow: id, info });
    }

    /// A flow ends.
    pub fn close(&mut self, now: Time, id: u64, connection: &Connection) {
        self.settle();
        if let Some(local) = self.flows.remove(&id) {
            let figures = connection.stats();
            let stats = FlowStats {
                bytes_acked: Bytes::new(figures.acked),
                packets_lost: u64::from(figures.lost),
                reports: local.reports,
                lifetime: now.since(local.opened),
            };
            self.reports.way.event(now, Event::FlowClosed { flow: id, stats });
            self.reports.way.flush();
        }
    }

    /// What controls connection `id`; `None` for one that was not opened here.
    #[inline]
    pub fn control(&mut self, id: u64) -> Option<Steered<'_, impl Reports, MAX_VARS, MAX_PROGRAMS>> {
        if self.reports.flow != id {
            self.settle();
        }
        let local = self.flows.get_mut(&id)?;
        self.reports.flow = id;
        Some(Steered {
            flow: &mut local.flow,
            programs: self.tables.of(local.table),
            reports: &mut self.reports,
        })
    }

    /// Counts the reports made so far for the flow that made them.
    fn settle(&mut self) {
        let queued = std::mem::take(&mut self.reports.queued);
        if let Some(local) = self.flows.get_mut(&self.reports.flow) {
            local.reports += queued;
        }
    }

    /// Notes how a connection does, for an agent that is new to it.
    pub fn note(&mut self, id: u64, connection: &Connection) {
        if let Some(local) = self.flows.get_mut(&id) {
            local.info.cwnd = Bytes::new(connection.cwnd());
            local.info.ssthresh = Bytes::new(connection.ssthresh());
            local.info.srtt = connection.srtt();
        }
    }

    /// Sends what is to be sent and takes what the agent said.
    pub fn turn(&mut self, now: Time) {
        if let Way::Link(uplink) = &mut self.reports.way
            && !uplink.is_connected()
            && now >= self.retry
        {
            self.retry = now + RETRY;
            if uplink.connect(now).is_ok() {
                self.announce();
            }
        }
        if let Way::InProcess(agent) = &mut self.reports.way
            && agent.next_deadline().is_some_and(|due| due <= now)
        {
            agent.on_deadline(now);
        }
        while let Some(command) = self.reports.way.command() {
            self.take(now, &command);
        }
        // A link may have several at once.
        let mut commands = Vec::new();
        if let Way::Link(uplink) = &mut self.reports.way {
            uplink.receive(now, &mut |command| commands.push(command));
        }
        commands.iter().for_each(|command| self.take(now, command));
        self.reports.way.flush();
    }

    /// When to call [`turn`](Steering::turn) at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        match &self.reports.way {
            Way::InProcess(agent) => agent.next_deadline(),
            Way::Link(uplink) if uplink.is_connected() => uplink.next_deadline(),
            Way::Link(_) => Some(self.retry),
        }
    }

    /// What to wait on for commands.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.reports.way {
            Way::InProcess(_) => None,
            Way::Link(uplink) => uplink.as_fd(),
        }
    }

    fn take(&mut self, now: Time, command: &Command) {
        let flows = &mut self.flows;
        let answer = self.tables.handle(now, command, |flow| {
            let local = flows.get_mut(&flow)?;
            Some((&mut local.flow, &mut local.table))
        });
        if let Some(event) = answer {
            self.reports.way.event(now, event);
        }
    }
}

impl Reports for Out {
    fn take(&mut self, now: Time, urgency: Urgency, program: u32, fields: &[u64]) -> bool {
        let urgent = urgency == Urgency::Urgent;
        let flow = self.flow;
        let taken = self.way.event(
            now,
            Event::Report {
                flow,
                program,
                urgent,
                fields,
            },
        );
        self.queued += u64::from(taken);
        taken
    }
}

impl Way {
    /// Whether the event was taken; only a report has a second chance.
    fn event(&mut self, now: Time, event: Event<'_>) -> bool {
        match self {
            Way::InProcess(agent) => {
                agent.handle(now, HERE, event);
                true
            }
            Way::Link(uplink) => match uplink.event(&event) {
                Sent::Yes => true,
                Sent::Full | Sent::NoAgent => false,
            },
        }
    }

    fn command(&mut self) -> Option<Command> {
        match self {
            Way::InProcess(agent) => agent.poll().map(|(_, command)| command),
            Way::Link(_) => None,
        }
    }

    fn flush(&mut self) {
        if let Way::Link(uplink) = self {
            uplink.flush();
        }
    }
}
