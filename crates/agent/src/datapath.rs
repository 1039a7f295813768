//! Datapath side of the protocol: flows and their programs, outgoing reports and incoming commands.
//!
//! A [`Datapath`] stores its flows by number. [`DatapathCore`] is the part that all flows share;
//! the simulator stores its flows itself and uses only this. In both cases a transport runs a flow
//! as [`FlowMut`], and events leave through a [`AgentChannel`]: to an agent in this thread
//! ([`InlineChannel`]), or, with `ccplane-link`, to an agent in another thread or process.

mod agent_event;
mod inline_channel;

use std::collections::BTreeMap;

use ccplane_datapath::{Flow, Outcome, ProgramTable, Signals, SteeredFlow, Transport, Urgency};
use ccplane_units::{Bytes, Rate, Time};
use ccplane_wire::{DatapathInfo, FlowInfo, FlowStats, WireCommand, WireEvent};

pub use agent_event::{AgentEvent, recycle_events};
pub use inline_channel::{Delays, InlineChannel};

use crate::program_tables::{FLOW_VARS_MAX, PROGRAMS_MAX, ProgramTables, TableId};

/// Channel to an agent and back. It has no clock: the caller passes the time.
pub trait AgentChannel: Send {
    /// Sends a report. Returns false if there is no room or no agent: the report then stays in its
    /// flow, where it accumulates, and is offered again at the next call of the flow. No
    /// measurement is lost.
    fn try_report(&mut self, now: Time, report: &WireEvent<'_>) -> bool;

    /// Sends any other event. The channel must queue the event if it has no room.
    fn send(&mut self, now: Time, event: WireEvent<'static>);

    /// Receives from the agent. Called once per turn, before [`recv`](AgentChannel::recv), so
    /// that an agent that sends continuously cannot block its datapath.
    fn poll(&mut self, _now: Time) {}

    /// Returns the next item received from the agent. Called until it returns `None`.
    fn recv(&mut self, now: Time) -> Option<Incoming>;

    /// Sends queued events as far as there is room. Called last in a turn.
    fn flush(&mut self, _now: Time) {}

    /// Latest time of the next turn.
    fn next_deadline(&self) -> Option<Time>;
}

/// Item received by a datapath.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the common one, and a box would allocate per command"
)]
pub enum Incoming {
    /// An agent has connected that may be new: the datapath announces itself and all live flows
    /// before it takes the next item.
    AgentConnected,
    /// Command from the agent.
    Command(WireCommand),
}

/// Datapath: flows by number, and the state they share.
#[derive(Debug)]
pub struct Datapath<W> {
    core: DatapathCore<W>,
    /// Flows by number, each with the description that is sent to a new agent.
    flows: BTreeMap<u64, FlowState<FlowInfo>>,
}

impl<W: AgentChannel> Datapath<W> {
    /// Creates a datapath without flows and announces it.
    pub fn new(now: Time, shared: DatapathCore<W>) -> Datapath<W> {
        let flows = BTreeMap::new();
        let mut datapath = Datapath {
            core: shared,
            flows,
        };
        datapath.announce(now);
        datapath.poll(now);
        datapath
    }

    /// Opens a flow.
    pub fn open(&mut self, now: Time, flow: u64, info: FlowInfo) {
        let local = self.core.open(now, flow, info.clone(), info);
        self.flows.insert(flow, local);
    }

    /// Closes a flow. `acked` and `lost` are its totals of acknowledged bytes and lost packets.
    pub fn close(&mut self, now: Time, flow: u64, acked: Bytes, lost: u64) {
        if let Some(local) = self.flows.remove(&flow) {
            self.core.close(now, flow, &local, acked, lost);
            self.core.channel.flush(now);
        }
    }

    /// Borrows a flow for a call of its transport; `None` if it is not open here.
    #[inline]
    pub fn flow(&mut self, flow: u64) -> Option<FlowMut<'_, W, FlowInfo>> {
        let local = self.flows.get_mut(&flow)?;
        Some(self.core.flow_mut(flow, local))
    }

    /// Returns true if the flow is on the fallback; `None` if it is not open here.
    pub fn in_fallback(&self, flow: u64) -> Option<bool> {
        Some(self.flows.get(&flow)?.flow().in_fallback())
    }

    /// Number of reports that a flow has made; `None` if it is not open here.
    pub fn reports(&self, flow: u64) -> Option<u64> {
        Some(self.flows.get(&flow)?.reports)
    }

    /// Number of reports that all live flows have made.
    pub fn total_reports(&self) -> u64 {
        self.flows.values().map(|local| local.reports).sum()
    }

    /// Sends queued events without receiving commands.
    pub fn flush(&mut self, now: Time) {
        self.core.channel.flush(now);
    }

    /// Applies the agent's commands, and sends queued events.
    pub fn poll(&mut self, now: Time) {
        self.core.channel.poll(now);
        while let Some(brought) = self.core.channel.recv(now) {
            match brought {
                Incoming::AgentConnected => self.announce(now),
                Incoming::Command(command) => self
                    .core
                    .apply_command(now, &command, |flow| self.flows.get_mut(&flow)),
            }
        }
        self.core.channel.flush(now);
    }

    /// Latest time to call [`poll`](Datapath::poll).
    pub fn next_deadline(&self) -> Option<Time> {
        self.core.channel.next_deadline()
    }

    /// Channel to the agent.
    pub fn channel(&self) -> &W {
        &self.core.channel
    }

    /// Channel to the agent.
    pub fn channel_mut(&mut self) -> &mut W {
        &mut self.core.channel
    }

    fn announce(&mut self, now: Time) {
        let flows = self
            .flows
            .iter()
            .map(|(flow, local)| (*flow, local.user_data.clone()));
        self.core.announce(now, flows);
    }
}

/// State shared by the flows of a datapath: their programs and the channel to their agent.
#[derive(Debug)]
pub struct DatapathCore<W> {
    /// Channel to the agent.
    pub channel: W,
    tables: ProgramTables,
    id: u32,
    kind: &'static str,
}

impl<W: AgentChannel> DatapathCore<W> {
    /// Creates the shared state. `id` and `kind` of the datapath are reported to its agent.
    pub fn new(id: u32, kind: &'static str, tables: ProgramTables, channel: W) -> DatapathCore<W> {
        DatapathCore {
            channel,
            tables,
            id,
            kind,
        }
    }

    /// Describes the datapath to an agent.
    pub fn describe(&self) -> DatapathInfo {
        self.tables.describe(self.id, self.kind)
    }

    /// Announces the datapath and its flows to an agent that may be new.
    pub fn announce(&mut self, now: Time, flows: impl Iterator<Item = (u64, FlowInfo)>) {
        let datapath = self.describe();
        self.channel.send(now, WireEvent::Ready { datapath });
        for (flow, info) in flows {
            let info = FlowInfo { live: true, ..info };
            self.channel.send(now, WireEvent::FlowOpened { flow, info });
        }
    }

    /// Opens a flow.
    pub fn open<T>(&mut self, now: Time, flow: u64, info: FlowInfo, user_data: T) -> FlowState<T> {
        let local = FlowState::new(now, info.init_cwnd, user_data);
        self.channel.send(now, WireEvent::FlowOpened { flow, info });
        local
    }

    /// Closes a flow. `acked` and `lost` are its totals of acknowledged bytes and lost packets.
    pub fn close<T>(
        &mut self,
        now: Time,
        flow: u64,
        local: &FlowState<T>,
        acked: Bytes,
        lost: u64,
    ) {
        let stats = FlowStats {
            bytes_acked: acked,
            packets_lost: lost,
            reports: local.reports,
            lifetime: now.since(local.flow.opened()),
        };
        self.channel
            .send(now, WireEvent::FlowClosed { flow, stats });
    }

    /// Applies a command. `find` returns the live flow of a number.
    pub fn apply_command<'f, T: 'f>(
        &mut self,
        now: Time,
        command: &WireCommand,
        find: impl FnOnce(u64) -> Option<&'f mut FlowState<T>>,
    ) {
        let find = |flow| find(flow).map(|local| (&mut local.flow, &mut local.table));
        if let Some(answer) = self.tables.handle(now, command, find) {
            self.channel.send(now, answer);
        }
    }

    /// Fields that a flow's program has accumulated since its last report, in order.
    pub fn unreported_fields<'a, T>(&self, local: &'a FlowState<T>) -> &'a [u64] {
        local.flow.report(self.tables.get(local.table))
    }

    /// Borrows a flow for a call of its transport.
    #[inline(always)]
    pub fn flow_mut<'a, T>(
        &'a mut self,
        number: u64,
        local: &'a mut FlowState<T>,
    ) -> FlowMut<'a, W, T> {
        let shared = self;
        FlowMut {
            state: local,
            core: shared,
            number,
        }
    }
}

/// State of a flow in its datapath.
#[derive(Debug)]
pub struct FlowState<T = ()> {
    flow: Flow<FLOW_VARS_MAX>,
    table: TableId,
    reports: u64,
    /// User data. A struct around this one would take 64 bytes more, because of the alignment of
    /// flows.
    pub user_data: T,
}

impl<T> FlowState<T> {
    /// Creates a flow that runs no program yet.
    pub fn new(now: Time, init_cwnd: Bytes, user_data: T) -> FlowState<T> {
        FlowState {
            flow: Flow::new(now, init_cwnd.get()),
            table: TableId::NO_TABLE,
            reports: 0,
            user_data,
        }
    }

    /// The flow's program, window and clock.
    #[inline(always)]
    pub fn flow(&self) -> &Flow<FLOW_VARS_MAX> {
        &self.flow
    }
}

/// Records the outcome of a call in the description that is sent to a new agent.
pub fn record_outcome(info: &mut FlowInfo, transport: &Transport, outcome: &Outcome) {
    info.cwnd = Bytes::new(outcome.cwnd.unwrap_or(transport.cwnd));
    info.ssthresh = Bytes::new(outcome.ssthresh.unwrap_or(transport.ssthresh));
    info.rate = Rate::from_bytes_per_sec(outcome.rate.unwrap_or(transport.rate));
}

/// Flow borrowed for one call of its transport, with its programs and the channel for its reports.
#[derive(Debug)]
pub struct FlowMut<'a, W, T = ()> {
    state: &'a mut FlowState<T>,
    core: &'a mut DatapathCore<W>,
    number: u64,
}

impl<W: AgentChannel, T> SteeredFlow for FlowMut<'_, W, T> {
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
        self.state.flow.next_deadline()
    }
}

impl<W: AgentChannel, T> FlowMut<'_, W, T> {
    /// The flow's user data.
    pub fn user_data(&mut self) -> &mut T {
        &mut self.state.user_data
    }

    /// Runs the flow. A report requested by the call is sent at once if there is room.
    #[inline(always)]
    fn run(
        &mut self,
        now: Time,
        run: impl FnOnce(&mut Flow<FLOW_VARS_MAX>, &ProgramTable<PROGRAMS_MAX>) -> Outcome,
    ) -> Outcome {
        let FlowState {
            flow,
            table,
            reports,
            ..
        } = &mut *self.state;
        let programs = self.core.tables.get(*table);
        let outcome = run(flow, programs);
        if let Some(urgency) = outcome.report {
            let report = WireEvent::Report {
                flow: self.number,
                program: flow.program_uid().unwrap_or(0),
                urgent: urgency == Urgency::Urgent,
                fields: flow.report(programs),
            };
            if self.core.channel.try_report(now, &report) {
                flow.report_queued(programs);
                *reports += 1;
            }
        }
        outcome
    }
}

impl<W: AgentChannel + ?Sized> AgentChannel for Box<W> {
    fn try_report(&mut self, now: Time, report: &WireEvent<'_>) -> bool {
        (**self).try_report(now, report)
    }

    fn send(&mut self, now: Time, event: WireEvent<'static>) {
        (**self).send(now, event);
    }

    fn poll(&mut self, now: Time) {
        (**self).poll(now);
    }

    fn recv(&mut self, now: Time) -> Option<Incoming> {
        (**self).recv(now)
    }

    fn flush(&mut self, now: Time) {
        (**self).flush(now);
    }

    fn next_deadline(&self) -> Option<Time> {
        (**self).next_deadline()
    }
}
