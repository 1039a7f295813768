//! A datapath in the agent's own process and thread: for simulators and tests.

use std::collections::BTreeMap;

use ccplane_datapath::{self as datapath, Capabilities, Limits, Outcome, ProgramTable, Signals, Transport, Urgency};
use ccplane_units::{Bytes, Time};
use ccplane_wire::{Command, Event, FlowInfo, FlowStats};

use crate::tables::{MAX_PROGRAMS, MAX_VARS, TableId, Tables};

/// Flows of [`datapath::Flow`], whose events go to a closure and whose commands come by a call. It has no clock and no
/// thread: the caller is the transport and the driver at once.
pub struct InProcess {
    id: u32,
    tables: Tables,
    flows: BTreeMap<u64, Local>,
}

struct Local {
    flow: datapath::Flow<MAX_VARS>,
    table: TableId,
    info: FlowInfo,
    opened: Time,
    stats: FlowStats,
}

/// What takes the events.
pub type Sink<'s> = dyn FnMut(Event<'_>) + 's;

impl InProcess {
    /// A datapath without flows. [`ready`](InProcess::ready) announces it.
    pub fn new(id: u32, capabilities: Capabilities, limits: Limits) -> InProcess {
        InProcess {
            id,
            tables: Tables::new(limits, capabilities),
            flows: BTreeMap::new(),
        }
    }

    /// Announces the datapath and every flow that lives, as to an agent that is new.
    pub fn ready(&self, sink: &mut Sink<'_>) {
        sink(Event::Ready {
            datapath: self.tables.describe(self.id, "in-process"),
        });
        for (flow, local) in &self.flows {
            sink(Event::FlowOpened {
                flow: *flow,
                info: FlowInfo {
                    live: true,
                    ..local.info.clone()
                },
            });
        }
    }

    /// A flow begins.
    pub fn open(&mut self, now: Time, flow: u64, info: FlowInfo, sink: &mut Sink<'_>) {
        let local = Local {
            flow: datapath::Flow::new(now, info.init_cwnd.get()),
            table: TableId::NOBODY,
            info: info.clone(),
            opened: now,
            stats: FlowStats::default(),
        };
        self.flows.insert(flow, local);
        sink(Event::FlowOpened { flow, info });
    }

    /// A flow ends.
    pub fn close(&mut self, now: Time, flow: u64, sink: &mut Sink<'_>) {
        if let Some(local) = self.flows.remove(&flow) {
            let stats = FlowStats {
                lifetime: now.since(local.opened),
                ..local.stats
            };
            sink(Event::FlowClosed { flow, stats });
        }
    }

    /// An ACK or a timeout of a flow; see [`datapath::Flow::on_ack`].
    pub fn on_ack(&mut self, flow: u64, transport: &Transport, signals: &Signals, sink: &mut Sink<'_>) -> Outcome {
        self.call(flow, transport, sink, |local, table| {
            local.stats.bytes_acked += Bytes::new(signals.bytes_acked);
            local.stats.packets_lost += signals.lost_pkts_sample;
            local.flow.on_ack(transport, signals, table)
        })
    }

    /// The flow's deadline came; see [`datapath::Flow::on_deadline`].
    pub fn on_deadline(&mut self, flow: u64, transport: &Transport, sink: &mut Sink<'_>) -> Outcome {
        self.call(flow, transport, sink, |local, table| {
            local.flow.on_deadline(transport, table)
        })
    }

    /// When [`on_deadline`](InProcess::on_deadline) of a flow is due.
    pub fn next_deadline(&self, flow: u64) -> Option<Time> {
        self.flows.get(&flow)?.flow.next_deadline()
    }

    /// Takes a command of the agent.
    pub fn handle(&mut self, now: Time, command: &Command, sink: &mut Sink<'_>) {
        let flows = &mut self.flows;
        let answer = self.tables.handle(now, command, |flow| {
            let local = flows.get_mut(&flow)?;
            Some((&mut local.flow, &mut local.table))
        });
        if let Some(event) = answer {
            sink(event);
        }
    }

    fn call(
        &mut self,
        flow: u64,
        transport: &Transport,
        sink: &mut Sink<'_>,
        run: impl FnOnce(&mut Local, &ProgramTable<MAX_PROGRAMS>) -> Outcome,
    ) -> Outcome {
        let Some(local) = self.flows.get_mut(&flow) else {
            return Outcome::default();
        };
        let table = self.tables.of(local.table);
        let outcome = run(local, table);
        local.info.cwnd = Bytes::new(outcome.cwnd.unwrap_or(transport.cwnd));
        local.info.ssthresh = Bytes::new(outcome.ssthresh.unwrap_or(transport.ssthresh));
        if let Some(urgency) = outcome.report {
            local.stats.reports += 1;
            sink(Event::Report {
                flow,
                program: local.flow.program_uid().unwrap_or(0),
                urgent: urgency == Urgency::Urgent,
                fields: local.flow.report(table),
            });
            local.flow.report_queued(table);
        }
        outcome
    }
}
