//! The datapath's side of the protocol: its flows and their programs, the reports that leave and
//! the commands that come.
//!
//! A [`Datapath`] keeps its flows by number. Who keeps flows elsewhere, as the simulator does,
//! takes [`Shared`], what the flows of a datapath have in common. In both a transport runs a flow
//! as [`Lent`], and events leave by a [`Way`]: to an agent of this thread ([`Here`]), or, with
//! `ccplane-link`, of another thread or another process.

mod here;
mod message;

use std::collections::BTreeMap;

use ccplane_datapath::{Flow, Outcome, ProgramTable, Signals, SteeredFlow, Transport, Urgency};
use ccplane_units::{Bytes, Rate, Time};
use ccplane_wire::{Command, DatapathInfo, Event, FlowInfo, FlowStats};

pub use here::{Delays, Here};
pub use message::{Message, recycle_events};

use crate::tables::{MAX_PROGRAMS, MAX_VARS, TableId, Tables};

/// To an agent and back. It has no clock: its owner says what time it is.
pub trait Way: Send {
    /// Takes a report. False when there is no room, or nobody to take it: it stays in its flow
    /// then, where it goes on adding up, and is offered again at the flow's next call. Nothing that
    /// was measured is lost.
    fn report(&mut self, now: Time, report: &Event<'_>) -> bool;

    /// Takes anything but a report. It has nowhere else to wait: a way that has no room keeps it.
    fn tell(&mut self, now: Time, event: Event<'static>);

    /// Looks for what has come. Called before [`bring`](Way::bring), once a turn: an agent that
    /// never stops talking does not hold its datapath for ever.
    fn look(&mut self, _now: Time) {}

    /// The next of what has come to the datapath by now. Called until there is nothing.
    fn bring(&mut self, now: Time) -> Option<Brought>;

    /// Sends what was taken, as far as there is room. Called last in a turn.
    fn flush(&mut self, _now: Time) {}

    /// When the next turn is due at the latest.
    fn next_deadline(&self) -> Option<Time>;
}

/// What comes to a datapath.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and a box would allocate per command"
)]
pub enum Brought {
    /// An agent is there that may be new: the datapath announces itself and every flow that lives,
    /// before anything else is brought.
    Agent,
    /// A command.
    Command(Command),
}

/// A datapath: its flows by their numbers, and what they share.
#[derive(Debug)]
pub struct Datapath<W> {
    shared: Shared<W>,
    /// Beside each flow what a new agent is told of it.
    flows: BTreeMap<u64, Local<FlowInfo>>,
}

impl<W: Way> Datapath<W> {
    /// A datapath without flows, which announces itself.
    pub fn new(now: Time, shared: Shared<W>) -> Datapath<W> {
        let flows = BTreeMap::new();
        let mut datapath = Datapath { shared, flows };
        datapath.announce(now);
        datapath.turn(now);
        datapath
    }

    /// A flow begins.
    pub fn open(&mut self, now: Time, flow: u64, info: FlowInfo) {
        let local = self.shared.open(now, flow, info.clone(), info);
        self.flows.insert(flow, local);
    }

    /// A flow ends, of which so much was acknowledged and so many packets were lost.
    pub fn close(&mut self, now: Time, flow: u64, acked: Bytes, lost: u64) {
        if let Some(local) = self.flows.remove(&flow) {
            self.shared.close(now, flow, &local, acked, lost);
            self.shared.way.flush(now);
        }
    }

    /// A flow, for a call of its transport; nothing where it was not opened here.
    #[inline]
    pub fn flow(&mut self, flow: u64) -> Option<Lent<'_, W, FlowInfo>> {
        let local = self.flows.get_mut(&flow)?;
        Some(self.shared.lend(flow, local))
    }

    /// Whether a flow is on the fallback; nothing where it was not opened here.
    pub fn in_fallback(&self, flow: u64) -> Option<bool> {
        Some(self.flows.get(&flow)?.flow().in_fallback())
    }

    /// How many reports a flow has made; nothing where it was not opened here.
    pub fn reports(&self, flow: u64) -> Option<u64> {
        Some(self.flows.get(&flow)?.reports)
    }

    /// How many reports the flows that live have made together.
    pub fn all_reports(&self) -> u64 {
        self.flows.values().map(|local| local.reports).sum()
    }

    /// Sends what is to be sent, and takes nothing.
    pub fn flush(&mut self, now: Time) {
        self.shared.way.flush(now);
    }

    /// Takes what the agent said, and sends what is to be sent.
    pub fn turn(&mut self, now: Time) {
        self.shared.way.look(now);
        while let Some(brought) = self.shared.way.bring(now) {
            match brought {
                Brought::Agent => self.announce(now),
                Brought::Command(command) => self
                    .shared
                    .take(now, &command, |flow| self.flows.get_mut(&flow)),
            }
        }
        self.shared.way.flush(now);
    }

    /// When to call [`turn`](Datapath::turn) at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        self.shared.way.next_deadline()
    }

    /// To its agent.
    pub fn way(&self) -> &W {
        &self.shared.way
    }

    /// To its agent.
    pub fn way_mut(&mut self) -> &mut W {
        &mut self.shared.way
    }

    fn announce(&mut self, now: Time) {
        let flows = self
            .flows
            .iter()
            .map(|(flow, local)| (*flow, local.beside.clone()));
        self.shared.announce(now, flows);
    }
}

/// What the flows of a datapath share: their programs, and the way to their agent.
#[derive(Debug)]
pub struct Shared<W> {
    /// To their agent.
    pub way: W,
    tables: Tables,
    id: u32,
    kind: &'static str,
}

impl<W: Way> Shared<W> {
    /// For a datapath of this number and kind, which it tells its agent.
    pub fn new(id: u32, kind: &'static str, tables: Tables, way: W) -> Shared<W> {
        Shared {
            way,
            tables,
            id,
            kind,
        }
    }

    /// What the datapath says of itself.
    pub fn describe(&self) -> DatapathInfo {
        self.tables.describe(self.id, self.kind)
    }

    /// Tells an agent that may be new what there is.
    pub fn announce(&mut self, now: Time, flows: impl Iterator<Item = (u64, FlowInfo)>) {
        let datapath = self.describe();
        self.way.tell(now, Event::Ready { datapath });
        for (flow, info) in flows {
            let info = FlowInfo { live: true, ..info };
            self.way.tell(now, Event::FlowOpened { flow, info });
        }
    }

    /// A flow begins.
    pub fn open<T>(&mut self, now: Time, flow: u64, info: FlowInfo, beside: T) -> Local<T> {
        let local = Local::new(now, info.init_cwnd, beside);
        self.way.tell(now, Event::FlowOpened { flow, info });
        local
    }

    /// A flow ends, of which so much was acknowledged and so many packets were lost.
    pub fn close<T>(&mut self, now: Time, flow: u64, local: &Local<T>, acked: Bytes, lost: u64) {
        let stats = FlowStats {
            bytes_acked: acked,
            packets_lost: lost,
            reports: local.reports,
            lifetime: now.since(local.flow.opened()),
        };
        self.way.tell(now, Event::FlowClosed { flow, stats });
    }

    /// Does what a command says. `find` gives the flow of a number, if it lives.
    pub fn take<'f, T: 'f>(
        &mut self,
        now: Time,
        command: &Command,
        find: impl FnOnce(u64) -> Option<&'f mut Local<T>>,
    ) {
        let find = |flow| find(flow).map(|local| (&mut local.flow, &mut local.table));
        if let Some(answer) = self.tables.handle(now, command, find) {
            self.way.tell(now, answer);
        }
    }

    /// What a flow's program has added up since its last report, in the order of its fields.
    pub fn unreported<'a, T>(&self, local: &'a Local<T>) -> &'a [u64] {
        local.flow.report(self.tables.of(local.table))
    }

    /// A flow and its number, for a call of its transport.
    #[inline(always)]
    pub fn lend<'a, T>(&'a mut self, number: u64, local: &'a mut Local<T>) -> Lent<'a, W, T> {
        let shared = self;
        Lent {
            local,
            shared,
            number,
        }
    }
}

/// A flow as its datapath keeps it.
#[derive(Debug)]
pub struct Local<T = ()> {
    flow: Flow<MAX_VARS>,
    table: TableId,
    reports: u64,
    /// What else its owner keeps. In a struct around this one it would take 64 bytes more, by the
    /// alignment of flows.
    pub beside: T,
}

impl<T> Local<T> {
    /// A flow that runs no program yet.
    pub fn new(now: Time, init_cwnd: Bytes, beside: T) -> Local<T> {
        Local {
            flow: Flow::new(now, init_cwnd.get()),
            table: TableId::NOBODY,
            reports: 0,
            beside,
        }
    }

    /// The flow's program, window and clock.
    #[inline(always)]
    pub fn flow(&self) -> &Flow<MAX_VARS> {
        &self.flow
    }
}

/// Notes what a call of a flow came to in what a new agent is told of it.
pub fn note(info: &mut FlowInfo, transport: &Transport, outcome: &Outcome) {
    info.cwnd = Bytes::new(outcome.cwnd.unwrap_or(transport.cwnd));
    info.ssthresh = Bytes::new(outcome.ssthresh.unwrap_or(transport.ssthresh));
    info.rate = Rate::from_bytes_per_sec(outcome.rate.unwrap_or(transport.rate));
}

/// A flow lent to one call of its transport, with its programs and the way of its reports.
#[derive(Debug)]
pub struct Lent<'a, W, T = ()> {
    local: &'a mut Local<T>,
    shared: &'a mut Shared<W>,
    number: u64,
}

impl<W: Way, T> SteeredFlow for Lent<'_, W, T> {
    #[inline(always)]
    fn on_ack(&mut self, transport: &Transport, signals: &Signals) -> Outcome {
        self.run(transport.now, |flow, programs| {
            flow.on_ack(transport, signals, programs)
        })
    }

    #[inline(always)]
    fn on_deadline(&mut self, transport: &Transport) -> Outcome {
        self.run(transport.now, |flow, programs| {
            flow.on_deadline(transport, programs)
        })
    }

    #[inline(always)]
    fn next_deadline(&self) -> Option<Time> {
        self.local.flow.next_deadline()
    }
}

impl<W: Way, T> Lent<'_, W, T> {
    /// What its owner keeps with it.
    pub fn beside(&mut self) -> &mut T {
        &mut self.local.beside
    }

    /// Runs the flow. A report that the call asks for leaves at once, if there is room.
    #[inline(always)]
    fn run(
        &mut self,
        now: Time,
        run: impl FnOnce(&mut Flow<MAX_VARS>, &ProgramTable<MAX_PROGRAMS>) -> Outcome,
    ) -> Outcome {
        let Local {
            flow,
            table,
            reports,
            ..
        } = &mut *self.local;
        let programs = self.shared.tables.of(*table);
        let outcome = run(flow, programs);
        if let Some(urgency) = outcome.report {
            let report = Event::Report {
                flow: self.number,
                program: flow.program_uid().unwrap_or(0),
                urgent: urgency == Urgency::Urgent,
                fields: flow.report(programs),
            };
            if self.shared.way.report(now, &report) {
                flow.report_queued(programs);
                *reports += 1;
            }
        }
        outcome
    }
}

impl<W: Way + ?Sized> Way for Box<W> {
    fn report(&mut self, now: Time, report: &Event<'_>) -> bool {
        (**self).report(now, report)
    }

    fn tell(&mut self, now: Time, event: Event<'static>) {
        (**self).tell(now, event);
    }

    fn look(&mut self, now: Time) {
        (**self).look(now);
    }

    fn bring(&mut self, now: Time) -> Option<Brought> {
        (**self).bring(now)
    }

    fn flush(&mut self, now: Time) {
        (**self).flush(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        (**self).next_deadline()
    }
}
