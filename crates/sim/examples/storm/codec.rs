//! Encoding of messages between agent and datapath: version 2, or version 1 with the translation at
//! both ends.

use std::collections::VecDeque;

use ccplane_agent::{Agent, CcpDatapath, CcpV1Client, DatapathId};
use ccplane_units::Time;
use ccplane_wire::{WireCommand, WireEvent, v1, v2};

use crate::plan::Version;

/// Name under which the datapath keeps the programs of a CCP agent; its flows request no algorithm
/// by name.
const CCP_ALGORITHM_NAME: &str = "ccp";

/// Codec of both ends of a connection.
#[derive(Debug)]
pub enum Speech {
    Two,
    One(Box<Ends>),
}

/// State of version 1 at both ends.
#[derive(Debug)]
pub struct Ends {
    datapath: CcpV1Client,
    agent: CcpDatapath,
    /// The agent has registered the datapath.
    known: bool,
}

impl Speech {
    pub fn new(version: Version) -> Speech {
        match version {
            Version::Two => Speech::Two,
            Version::One { silence } => Speech::One(Box::new(Ends {
                datapath: CcpV1Client::new(CCP_ALGORITHM_NAME, silence),
                agent: CcpDatapath::new(DatapathId(u32::MAX)),
                known: false,
            })),
        }
    }

    /// Starts a connection: the agent knows the datapath by `id`.
    pub fn connected(&mut self, now: Time, id: DatapathId) {
        if let Speech::One(ends) = self {
            ends.datapath.on_connected(now);
            (ends.agent, ends.known) = (CcpDatapath::new(id), false);
        }
    }

    /// Encodes an event of the datapath; empty if its version has no such message.
    pub fn event(&mut self, event: &WireEvent<'_>) -> Result<Vec<u8>, String> {
        match self {
            Speech::Two => {
                let mut packet = v2::PacketWriter::new();
                let wrong = |why| format!("an event cannot be encoded: {why}");
                packet.push_event(event).map_err(wrong)?;
                Ok(packet.as_bytes().to_vec())
            }
            Speech::One(ends) => {
                let mut out = Vec::new();
                ends.datapath.encode_event(event, &mut out);
                if out.len() > CcpV1Client::message_len_max(event) {
                    return Err(format!("{} bytes for {event:?}", out.len()));
                }
                Ok(out)
            }
        }
    }

    /// Delivers bytes to the agent. Returns false if they are no valid message.
    pub fn hear(&mut self, clock: Time, id: DatapathId, bytes: &[u8], agent: &mut Agent) -> bool {
        match self {
            Speech::Two => {
                let handle = &mut |event: WireEvent<'_>| agent.handle(clock, id, event);
                v2::read_events(bytes, &mut Vec::new(), handle).is_ok()
            }
            Speech::One(ends) => {
                let ready = matches!(
                    v1::messages(bytes).next(),
                    Some(Ok(v1::V1Message::Ready { .. }))
                );
                // As over a socket, a datapath is registered with its first valid message.
                if !ends.known && v1::messages(bytes).any(|message| message.is_err()) {
                    return true;
                }
                if !std::mem::replace(&mut ends.known, true) && !ready {
                    ends.agent.ready(0, agent, clock);
                }
                if ends.agent.handle(clock, bytes, agent).is_err() {
                    agent.on_disconnect(id);
                    (ends.agent, ends.known) = (CcpDatapath::new(id), false);
                }
                // The datapath is not notified.
                true
            }
        }
    }

    /// Encodes a command of the agent; `None` if its version has no such message.
    pub fn command(
        &mut self,
        clock: Time,
        command: &WireCommand,
        agent: &mut Agent,
    ) -> Option<Vec<u8>> {
        match self {
            Speech::Two => {
                let mut packet = v2::PacketWriter::new();
                packet.push_command(command).ok()?;
                Some(packet.as_bytes().to_vec())
            }
            Speech::One(ends) => {
                let mut out = Vec::new();
                ends.agent.encode_command(clock, command, agent, &mut out);
                (!out.is_empty()).then_some(out)
            }
        }
    }

    /// Decodes bytes at the datapath. Returns false if they are no valid message.
    pub fn read(&mut self, now: Time, bytes: &[u8], ready: &mut VecDeque<WireCommand>) -> bool {
        match self {
            Speech::Two => {
                v2::read_commands(bytes, &mut |command| ready.push_back(command)).is_ok()
            }
            Speech::One(ends) => {
                // Invalid messages are ignored; the agent may send valid ones later.
                let _ = ends.datapath.handle(now, bytes);
                ready.extend(std::iter::from_fn(|| ends.datapath.poll()));
                true
            }
        }
    }

    /// Returns the next deadline of the datapath's end.
    pub fn next_deadline(&self) -> Option<Time> {
        match self {
            Speech::Two => None,
            Speech::One(ends) => ends.datapath.next_deadline(),
        }
    }

    /// Handles the deadlines of the datapath's end.
    pub fn on_deadline(&mut self, now: Time, ready: &mut VecDeque<WireCommand>) {
        if let Speech::One(ends) = self {
            ends.datapath.on_deadline(now);
            ready.extend(std::iter::from_fn(|| ends.datapath.poll()));
        }
    }
}
