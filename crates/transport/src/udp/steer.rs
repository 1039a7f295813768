//! Connections steered by an agent: in this process and thread, or in another process.

use std::collections::{BTreeMap, VecDeque};
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

/// How soon to look whether an agent that does not keep up has room again. Sooner would cost CPU that it may need; later would keep
/// new flows waiting for it.
const ROOM: Duration = Duration::from_millis(1);

/// Answers to commands are dropped while so much waits for an agent that takes nothing. Fewer would lose those to a burst of
/// commands; more would let an agent that asks without end and never listens fill memory.
const MOST_OWED: usize = 1024;

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
    Link(Link),
}

/// An agent in another process, and what it is to be told once it has room: the beginnings and ends of flows, as many as there are
/// flows, and answers, up to [`MOST_OWED`]. A report that finds no room stays with its flow; these have nowhere else to wait.
struct Link {
    remote: Box<dyn Remote>,
    owed: VecDeque<Event<'static>>,
    /// When to look for room.
    look: Time,
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
        let link = Link {
            remote,
            owed: VecDeque::new(),
            look: Time::MAX,
        };
        let mut steering = Steering::new(Way::Link(link), limits, capabilities);
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
        if let Way::Link(link) = &mut self.reports.way {
            link.owed.clear();
        }
        self.reports.way.tell(Time::ZERO, Event::Ready { datapath });
        for (flow, local) in &self.flows {
            let info = FlowInfo {
                live: true,
                ..local.info.clone()
            };
            self.reports
                .way
                .tell(Time::ZERO, Event::FlowOpened { flow: *flow, info });
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
        self.reports.way.tell(now, Event::FlowOpened { flow: id, info });
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
            self.reports.way.tell(now, Event::FlowClosed { flow: id, stats });
            self.reports.way.flush(now);
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
        if let Way::Link(link) = &mut self.reports.way
            && !link.remote.is_connected()
            && now >= self.retry
        {
            self.retry = now + RETRY;
            if link.remote.connect(now).is_ok() {
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
        if let Way::Link(link) = &mut self.reports.way {
            link.remote.receive(now, &mut |command| commands.push(command));
        }
        commands.iter().for_each(|command| self.take(now, command));
        self.reports.way.flush(now);
    }

    /// When to call [`turn`](Steering::turn) at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        match &self.reports.way {
            Way::InProcess(agent) => agent.next_deadline(),
            Way::Link(link) if link.remote.is_connected() => {
                let due = link.remote.next_deadline().unwrap_or(Time::MAX).min(link.look);
                (due != Time::MAX).then_some(due)
            }
            Way::Link(_) => Some(self.retry),
        }
    }

    /// What to wait on for commands.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.reports.way {
            Way::InProcess(_) => None,
            Way::Link(link) => link.remote.as_fd(),
        }
    }

    fn take(&mut self, now: Time, command: &Command) {
        let flows = &mut self.flows;
        let answer = self.tables.handle(now, command, |flow| {
            let local = flows.get_mut(&flow)?;
            Some((&mut local.flow, &mut local.table))
        });
        if let Some(event) = answer {
            self.reports.way.tell(now, event);
        }
    }
}

impl Reports for Out {
    fn take(&mut self, now: Time, urgency: Urgency, program: u32, fields: &[u64]) -> bool {
        let urgent = urgency == Urgency::Urgent;
        let flow = self.flow;
        let report = Event::Report {
            flow,
            program,
            urgent,
            fields,
        };
        let taken = self.way.report(now, report);
        self.queued += u64::from(taken);
        taken
    }
}

impl Way {
    /// Whether a report was taken. None overtakes what its agent is still to be told.
    fn report(&mut self, now: Time, report: Event<'_>) -> bool {
        match self {
            Way::InProcess(agent) => {
                agent.handle(now, HERE, report);
                true
            }
            Way::Link(link) => link.owed.is_empty() && link.remote.event(&report) == Sent::Yes,
        }
    }

    /// Tells what is no report.
    fn tell(&mut self, now: Time, event: Event<'static>) {
        match self {
            Way::InProcess(agent) => agent.handle(now, HERE, event),
            Way::Link(link) => link.tell(event),
        }
    }

    fn command(&mut self) -> Option<Command> {
        match self {
            Way::InProcess(agent) => agent.poll().map(|(_, command)| command),
            Way::Link(_) => None,
        }
    }

    fn flush(&mut self, now: Time) {
        if let Way::Link(link) = self {
            link.pay();
            link.look = if link.owed.is_empty() { Time::MAX } else { now + ROOM };
            link.remote.flush();
        }
    }
}

impl Link {
    fn tell(&mut self, event: Event<'static>) {
        match event {
            // It never hears of a flow that ended before there was room for its beginning.
            Event::FlowClosed { flow, .. } if self.forget(flow) => {}
            Event::Installed { .. } | Event::Refused { .. } if self.owed.len() >= MOST_OWED => {}
            event => self.owed.push_back(event),
        }
        self.pay();
    }

    /// Whether a flow's beginning was still owed.
    fn forget(&mut self, closed: u64) -> bool {
        let before = self.owed.len();
        self.owed
            .retain(|event| !matches!(event, Event::FlowOpened { flow, .. } if *flow == closed));
        self.owed.len() < before
    }

    /// Hands over what is owed, as far as there is room.
    fn pay(&mut self) {
        while let Some(event) = self.owed.front() {
            match self.remote.event(event) {
                Sent::Yes => drop(self.owed.pop_front()),
                Sent::Full => return,
                // The next agent is told of everything that lives then.
                Sent::NoAgent => self.owed.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ccplane_agent::LinkError;

    use super::*;

    /// An agent that takes so many events, then has no room.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<(usize, Vec<String>)>>);

    impl Slow {
        fn allow(&self, events: usize) {
            self.0.lock().unwrap().0 = events;
        }

        fn heard(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap().1)
        }
    }

    impl Remote for Slow {
        fn connect(&mut self, _now: Time) -> Result<(), LinkError> {
            Ok(())
        }

        fn is_connected(&self) -> bool {
            true
        }

        fn event(&mut self, event: &Event<'_>) -> Sent {
            let (room, heard) = &mut *self.0.lock().unwrap();
            if *room == 0 {
                return Sent::Full;
            }
            *room -= 1;
            heard.push(match event {
                Event::Ready { .. } => "ready".to_owned(),
                Event::FlowOpened { flow, .. } => format!("{flow} opened"),
                Event::FlowClosed { flow, .. } => format!("{flow} closed"),
                Event::Report { flow, .. } => format!("{flow} reports"),
                other => format!("{other:?}"),
            });
            Sent::Yes
        }

        fn flush(&mut self) -> bool {
            true
        }

        fn receive(&mut self, _now: Time, _sink: &mut dyn FnMut(Command)) {}

        fn next_deadline(&self) -> Option<Time> {
            None
        }

        fn as_fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn an_agent_without_room_hears_of_every_flow_that_lives_and_of_every_end_once_it_has_some() {
        let (slow, now) = (Slow::default(), Time::from_micros(1));
        slow.allow(2);
        let limits = Limits::default();
        let mut steering = Steering::over(Box::new(slow.clone()), limits, Capabilities::CWND, now).unwrap();
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let connection = Connection::connect(&Arc::default(), now);
        for id in 1..=3 {
            steering.open(now, id, "reno", 14_480, 1448, (nowhere, nowhere));
        }
        assert_eq!(slow.heard(), ["ready", "1 opened"]);
        // Its reports do not overtake its beginning; they stay with the flow.
        assert!(!steering.reports.take(now, Urgency::Normal, 1, &[1]));
        steering.close(now, 1, &connection);
        steering.close(now, 2, &connection);
        assert_eq!(slow.heard(), [] as [&str; 0]);
        steering.turn(now);
        assert_eq!(steering.next_deadline(), Some(now + ROOM));
        slow.allow(100);
        steering.turn(now + ROOM);
        assert_eq!(slow.heard(), ["3 opened", "1 closed"]);
        assert_eq!(steering.next_deadline(), None);
        assert!(steering.reports.take(now, Urgency::Normal, 1, &[1]));
    }

    #[test]
    fn an_agent_that_asks_without_end_and_never_listens_fills_no_memory() {
        let (slow, now) = (Slow::default(), Time::from_micros(1));
        slow.allow(1);
        let limits = Limits::default();
        let mut steering = Steering::over(Box::new(slow.clone()), limits, Capabilities::CWND, now).unwrap();
        for flow in 0..10 * MOST_OWED as u64 {
            // Of flows that are not there: each is refused.
            let uid = 1;
            let updates = Default::default();
            steering.take(now, &Command::SetProgram { flow, uid, updates });
        }
        let Way::Link(link) = &steering.reports.way else {
            panic!("it was made over a link")
        };
        assert_eq!(link.owed.len(), MOST_OWED);
    }
}
