//! A datapath in the agent's own process and thread: for simulators and tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccplane_datapath::{self as datapath, Capabilities, Limits, Outcome, ProgramTable, Signals, Transport, Urgency};
use ccplane_units::{Bytes, Time};
use ccplane_wire::{Command, DatapathInfo, Event, FlowInfo, FlowStats, Refusal};

/// Flows of [`datapath::Flow`], whose events go to a closure and whose commands come by a call. It has no clock and no
/// thread: the caller is the transport and the driver at once.
pub struct InProcess {
    info: DatapathInfo,
    limits: Limits,
    tables: Vec<(Arc<str>, ProgramTable<PROGRAMS>)>,
    /// The empty table of flows that have no program yet: it makes them fall back when none comes.
    nobody: ProgramTable<PROGRAMS>,
    flows: BTreeMap<u64, Local>,
}

struct Local {
    flow: datapath::Flow<VARS>,
    /// Index of the table of its program.
    table: Option<usize>,
    info: FlowInfo,
    opened: Time,
    stats: FlowStats,
}

/// Programs of an algorithm, and variables of a program, that this datapath has room for.
const PROGRAMS: usize = 8;
const VARS: usize = 32;

/// What takes the events.
pub type Sink<'s> = dyn FnMut(Event<'_>) + 's;

impl InProcess {
    /// A datapath without flows. [`ready`](InProcess::ready) announces it.
    pub fn new(id: u32, capabilities: Capabilities, limits: Limits) -> InProcess {
        let info = DatapathInfo {
            id,
            kind: "in-process".to_owned(),
            capabilities,
            max_programs: PROGRAMS as u32,
            max_instrs: datapath::MAX_INSTRS as u32,
            max_vars: VARS as u32,
            fallback_after: Some(limits.fallback_after),
        };
        InProcess {
            info,
            limits,
            tables: Vec::new(),
            nobody: ProgramTable::new(limits, capabilities),
            flows: BTreeMap::new(),
        }
    }

    /// Announces the datapath and every flow that lives, as to an agent that is new.
    pub fn ready(&self, sink: &mut Sink<'_>) {
        sink(Event::Ready {
            datapath: self.info.clone(),
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
            table: None,
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
        match command {
            Command::Install { algorithm, program } => {
                let uid = program.uid();
                let table = self.table_of(algorithm);
                match self.tables[table].1.install(program.as_ref().clone()) {
                    Ok(()) => sink(Event::Installed { program: uid }),
                    Err(why) => sink(Event::Refused {
                        flow: None,
                        program: uid,
                        why: why.into(),
                    }),
                }
            }
            Command::Heartbeat { algorithm } => {
                let table = self.table_of(algorithm);
                self.tables[table].1.heartbeat(now);
            }
            Command::SetProgram { flow, uid, updates } => {
                let command = datapath::Command::SetProgram {
                    uid: *uid,
                    updates: updates.as_slice(),
                };
                let refused = self.command(now, *flow, Some(*uid), &command);
                refuse(*flow, *uid, refused, sink);
            }
            Command::Update { flow, updates } => {
                let refused = self.command(now, *flow, None, &datapath::Command::Update(updates.as_slice()));
                refuse(*flow, 0, refused, sink);
            }
        }
    }

    fn command(
        &mut self,
        now: Time,
        flow: u64,
        uid: Option<u32>,
        command: &datapath::Command<'_>,
    ) -> Result<(), Refusal> {
        let local = self.flows.get_mut(&flow).ok_or(Refusal::UnknownFlow)?;
        let table = match uid {
            Some(uid) => self.tables.iter().position(|(_, table)| table.get(uid).is_some()),
            None => local.table,
        };
        let (_, programs) = table
            .and_then(|t| self.tables.get(t))
            .ok_or(Refusal::UnknownProgram(uid.unwrap_or(0)))?;
        local.flow.apply(now, command, programs)?;
        local.table = table;
        Ok(())
    }

    fn call(
        &mut self,
        flow: u64,
        transport: &Transport,
        sink: &mut Sink<'_>,
        run: impl FnOnce(&mut Local, &ProgramTable<PROGRAMS>) -> Outcome,
    ) -> Outcome {
        let Some(local) = self.flows.get_mut(&flow) else {
            return Outcome::default();
        };
        let table = local
            .table
            .and_then(|index| self.tables.get(index))
            .map_or(&self.nobody, |(_, table)| table);
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

    fn table_of(&mut self, algorithm: &Arc<str>) -> usize {
        match self.tables.iter().position(|(name, _)| name == algorithm) {
            Some(index) => index,
            None => {
                self.tables.push((
                    algorithm.clone(),
                    ProgramTable::new(self.limits, self.info.capabilities),
                ));
                self.tables.len() - 1
            }
        }
    }
}

fn refuse(flow: u64, program: u32, result: Result<(), Refusal>, sink: &mut Sink<'_>) {
    if let Err(why) = result {
        sink(Event::Refused {
            flow: Some(flow),
            program,
            why,
        });
    }
}
