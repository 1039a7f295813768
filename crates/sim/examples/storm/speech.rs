//! How agent and datapath say things to each other: as bytes of version 2, or of version 1 with
//! what either end makes of it.

use std::collections::VecDeque;

use ccplane_agent::{Agent, CcpDatapath, DatapathId, Foreign};
use ccplane_units::Time;
use ccplane_wire::{Command, Event, v1, v2};

use crate::plan::Version;

/// Flows ask for no algorithm in particular; this is what those of a CCP agent are kept under.
const OF_CCP: &str = "ccp";

/// Both ends of a connection, without what lies between them.
#[derive(Debug)]
pub enum Speech {
    Two,
    One(Box<Ends>),
}

/// Of version 1: what each end makes of what it hears.
#[derive(Debug)]
pub struct Ends {
    datapath: Foreign,
    agent: CcpDatapath,
    /// The agent has heard of this datapath.
    known: bool,
}

impl Speech {
    pub fn new(version: Version) -> Speech {
        match version {
            Version::Two => Speech::Two,
            Version::One { silence } => Speech::One(Box::new(Ends {
                datapath: Foreign::new(OF_CCP, silence),
                agent: CcpDatapath::new(DatapathId(u32::MAX)),
                known: false,
            })),
        }
    }

    /// The datapath has found an agent, which knows it by `id` from now on.
    pub fn connected(&mut self, now: Time, id: DatapathId) {
        if let Speech::One(ends) = self {
            ends.datapath.connected(now);
            (ends.agent, ends.known) = (CcpDatapath::new(id), false);
        }
    }

    /// What the datapath sends; nothing where its version has no word for it.
    pub fn event(&mut self, event: &Event<'_>) -> Result<Vec<u8>, String> {
        match self {
            Speech::Two => {
                let mut packet = v2::Packet::new();
                let wrong = |why| format!("an event cannot be written: {why}");
                packet.event(event).map_err(wrong)?;
                Ok(packet.as_bytes().to_vec())
            }
            Speech::One(ends) => {
                let mut out = Vec::new();
                ends.datapath.event(event, &mut out);
                if out.len() > Foreign::most(event) {
                    return Err(format!("{} bytes for {event:?}", out.len()));
                }
                Ok(out)
            }
        }
    }

    /// Gives the agent what came. False when that is no message.
    pub fn hear(&mut self, clock: Time, id: DatapathId, bytes: &[u8], agent: &mut Agent) -> bool {
        match self {
            Speech::Two => {
                let handle = &mut |event: Event<'_>| agent.handle(clock, id, event);
                v2::read_events(bytes, &mut Vec::new(), handle).is_ok()
            }
            Speech::One(ends) => {
                let ready = matches!(
                    v1::messages(bytes).next(),
                    Some(Ok(v1::Message::Ready { .. }))
                );
                // It is a datapath from its first message on that can be read, as over a socket.
                if !ends.known && v1::messages(bytes).any(|message| message.is_err()) {
                    return true;
                }
                if !std::mem::replace(&mut ends.known, true) && !ready {
                    ends.agent.ready(0, agent, clock);
                }
                if ends.agent.handle(clock, bytes, agent).is_err() {
                    agent.disconnected(id);
                    (ends.agent, ends.known) = (CcpDatapath::new(id), false);
                }
                // The datapath does not notice.
                true
            }
        }
    }

    /// What the agent sends, if its version has a word for it.
    pub fn command(
        &mut self,
        clock: Time,
        command: &Command,
        agent: &mut Agent,
    ) -> Option<Vec<u8>> {
        match self {
            Speech::Two => {
                let mut packet = v2::Packet::new();
                packet.command(command).ok()?;
                Some(packet.as_bytes().to_vec())
            }
            Speech::One(ends) => {
                let mut out = Vec::new();
                ends.agent.command(clock, command, agent, &mut out);
                (!out.is_empty()).then_some(out)
            }
        }
    }

    /// The datapath reads what came. False when that is no message.
    pub fn read(&mut self, now: Time, bytes: &[u8], ready: &mut VecDeque<Command>) -> bool {
        match self {
            Speech::Two => {
                v2::read_commands(bytes, &mut |command| ready.push_back(command)).is_ok()
            }
            Speech::One(ends) => {
                // What is no message is passed over: an agent that sends it may send better ones.
                let _ = ends.datapath.handle(now, bytes);
                ready.extend(std::iter::from_fn(|| ends.datapath.poll()));
                true
            }
        }
    }

    /// When the datapath's end has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        match self {
            Speech::Two => None,
            Speech::One(ends) => ends.datapath.next_deadline(),
        }
    }

    /// Does what the datapath's end has to do by now.
    pub fn on_deadline(&mut self, now: Time, ready: &mut VecDeque<Command>) {
        if let Speech::One(ends) = self {
            ends.datapath.on_deadline(now);
            ready.extend(std::iter::from_fn(|| ends.datapath.poll()));
        }
    }
}
