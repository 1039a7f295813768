//! Agent side of protocol version 1: decodes messages of a CCP datapath into events, and encodes
//! commands as messages.

use std::collections::HashMap;
use std::sync::Arc;

use ccplane_datapath::{Capabilities, Program};
use ccplane_units::{Bytes, Time};
use ccplane_wire::{
    DatapathInfo, FlowInfo, FlowStats, Refusal, WireCommand, WireError, WireEvent, v1,
};

use crate::{Agent, DatapathId};

#[cfg(test)]
mod tests;

/// CCP datapath as seen by an agent, without the socket. [`CcpV1Client`](crate::CcpV1Client) is the
/// counterpart for CCP agents.
///
/// CREATE, MEASURE and READY become events; commands become INSTALL, CHANGEPROG and UPDATE_FIELD. A
/// CCP datapath takes any message as a sign of life and chooses algorithms without a list, so
/// heartbeats and offers are not sent.
#[derive(Debug)]
pub struct CcpDatapath {
    id: DatapathId,
    /// Program index of each flow, by the datapath's number of the flow; `None` before the first
    /// program.
    flows: HashMap<u32, Option<usize>>,
    /// Installed programs; index n has number n + 1 in the datapath. A CCP datapath clears its
    /// table when number 1 arrives, so a restarted agent finds room.
    programs: Vec<Arc<Program>>,
    /// Fields of the report being decoded.
    fields: Vec<u64>,
}

/// Summary of a decoded datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramContents {
    /// Number of messages.
    pub messages: usize,
    /// It contained a READY: the datapath has restarted, and queued commands for it are obsolete.
    pub ready: bool,
}

impl CcpDatapath {
    /// Creates the state for a datapath with nothing installed and no known flows.
    pub fn new(id: DatapathId) -> CcpDatapath {
        CcpDatapath {
            id,
            flows: HashMap::new(),
            programs: Vec::new(),
            fields: Vec::new(),
        }
    }

    /// Identifier of the datapath.
    pub fn id(&self) -> DatapathId {
        self.id
    }

    /// Passes the events of a datagram to the agent. After an error the rest of it is ignored.
    pub fn handle(
        &mut self,
        now: Time,
        datagram: &[u8],
        agent: &mut Agent,
    ) -> Result<DatagramContents, WireError> {
        let mut heard = DatagramContents::default();
        for message in v1::messages(datagram) {
            heard.messages += 1;
            match message? {
                v1::V1Message::Measure {
                    flow,
                    program,
                    fields,
                } => {
                    let mut values = std::mem::take(&mut self.fields);
                    values.clear();
                    values.extend(fields.iter());
                    self.report(flow, program, &values, agent, now);
                    self.fields = values;
                }
                v1::V1Message::Create { flow, create } => {
                    self.open(flow, flow_info(&create), agent, now)
                }
                v1::V1Message::Ready { id } => {
                    heard.ready = true;
                    self.ready(id, agent, now);
                }
                other => return Err(unexpected_from_datapath(&other)),
            }
        }
        Ok(heard)
    }

    /// Resets the state after a READY or a reconnection, when the datapath's state is unknown. Its
    /// flows are learned from their reports.
    pub fn ready(&mut self, id: u32, agent: &mut Agent, now: Time) {
        self.flows.clear();
        self.programs.clear();
        let datapath = ccp_datapath(id);
        agent.handle(now, self.id, WireEvent::Ready { datapath });
    }

    fn open(&mut self, flow: u32, info: FlowInfo, agent: &mut Agent, now: Time) {
        self.flows.insert(flow, None);
        let flow = u64::from(flow);
        agent.handle(now, self.id, WireEvent::FlowOpened { flow, info });
    }

    fn report(&mut self, flow: u32, number: u32, fields: &[u64], agent: &mut Agent, now: Time) {
        if fields.is_empty() {
            self.flows.remove(&flow);
            let closed = WireEvent::FlowClosed {
                flow: u64::from(flow),
                stats: FlowStats::default(),
            };
            return agent.handle(now, self.id, closed);
        }
        if !self.flows.contains_key(&flow) {
            // The flow is older than this agent. CCP cannot announce it again, but its reports
            // reveal it.
            let info = FlowInfo {
                live: true,
                ..FlowInfo::default()
            };
            self.open(flow, info, agent, now);
        }
        let installed = (number as usize)
            .checked_sub(1)
            .and_then(|index| self.programs.get(index));
        let report = WireEvent::Report {
            flow: u64::from(flow),
            program: installed.map_or(0, |program| program.uid()),
            urgent: false,
            fields,
        };
        agent.handle(now, self.id, report);
    }

    /// Encodes a command, appending at most one message to `out`. A command that version 1 cannot
    /// express is returned to the agent as a refusal.
    pub fn encode_command(
        &mut self,
        now: Time,
        command: &WireCommand,
        agent: &mut Agent,
        out: &mut Vec<u8>,
    ) {
        let Err(why) = self.write(command, out) else {
            return;
        };
        let (flow, program) = match command {
            WireCommand::Install { program, .. } => (None, program.uid()),
            WireCommand::SetProgram { flow, uid, .. } => (Some(*flow), *uid),
            WireCommand::Update { flow, .. } | WireCommand::Release { flow } => (Some(*flow), 0),
            WireCommand::Offer(_) | WireCommand::Heartbeat { .. } => (None, 0),
        };
        agent.handle(now, self.id, WireEvent::Refused { flow, program, why });
    }

    fn write(&mut self, command: &WireCommand, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let unsayable = |why: WireError| Refusal::Unsupported(why.to_string());
        match command {
            WireCommand::Install { program, .. } => {
                let known = self.programs.iter().position(|p| p.uid() == program.uid());
                let index = known.unwrap_or(self.programs.len());
                v1::install(out, index as u32 + 1, program).map_err(unsayable)?;
                if known.is_none() {
                    self.programs.push(program.clone());
                }
                Ok(())
            }
            WireCommand::SetProgram { flow, uid, updates } => {
                let index = self.programs.iter().position(|p| p.uid() == *uid);
                let index = index.ok_or(Refusal::UnknownProgram(*uid))?;
                let flow = self.flow(*flow)?;
                let number = index as u32 + 1;
                v1::change_program(out, flow, number, &self.programs[index], updates.as_slice())
                    .map_err(unsayable)?;
                self.flows.insert(flow, Some(index));
                Ok(())
            }
            WireCommand::Update { flow, updates } => {
                let flow = self.flow(*flow)?;
                let program = self
                    .flows
                    .get(&flow)
                    .copied()
                    .flatten()
                    .and_then(|index| self.programs.get(index));
                v1::update_fields(out, flow, program.map(|p| &**p), updates.as_slice())
                    .map_err(unsayable)
            }
            // Not expressible in version 1.
            WireCommand::Release { .. } => Err(Refusal::NoRelease),
            WireCommand::Offer(_) | WireCommand::Heartbeat { .. } => Ok(()),
        }
    }

    fn flow(&self, flow: u64) -> Result<u32, Refusal> {
        let known = u32::try_from(flow)
            .ok()
            .filter(|flow| self.flows.contains_key(flow));
        known.ok_or(Refusal::UnknownFlow)
    }
}

/// Describes a CCP datapath, with the capabilities that every one has by definition.
pub fn ccp_datapath(id: u32) -> DatapathInfo {
    let all = [
        Capabilities::PACING,
        Capabilities::RTT,
        Capabilities::DELIVERY_RATE,
        Capabilities::ECN,
    ];
    DatapathInfo {
        id,
        kind: "ccp".to_owned(),
        capabilities: all
            .into_iter()
            .fold(Capabilities::CWND, |all, one| all.union(one)),
        max_programs: 10,
        max_instrs: 255,
        max_vars: 110,
        agent_timeout: None,
    }
}

/// Checks that a datagram contains only messages that a datapath may send.
pub fn check_datagram(datagram: &[u8]) -> Result<(), WireError> {
    for message in v1::messages(datagram) {
        match message? {
            v1::V1Message::Measure { .. }
            | v1::V1Message::Create { .. }
            | v1::V1Message::Ready { .. } => {}
            other => return Err(unexpected_from_datapath(&other)),
        }
    }
    Ok(())
}

/// Error for a message that only an agent may send.
fn unexpected_from_datapath(message: &v1::V1Message<'_>) -> WireError {
    let value = match message {
        v1::V1Message::UpdateField { .. } => 3,
        v1::V1Message::ChangeProgram { .. } => 4,
        _ => 2,
    };
    WireError::UnknownValue {
        what: "message from a datapath of type",
        value,
    }
}

fn flow_info(create: &v1::Create<'_>) -> FlowInfo {
    let window = Bytes::new(u64::from(create.init_cwnd));
    FlowInfo {
        algorithm: create.algorithm.to_owned(),
        init_cwnd: window,
        mss: Bytes::new(u64::from(create.mss)),
        local: create.source,
        peer: create.destination,
        cwnd: window,
        ..FlowInfo::default()
    }
}
