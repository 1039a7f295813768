//! Datapath side of protocol version 1: encodes events of ccplane's flows for a CCP agent, and
//! decodes its commands.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ccplane_datapath::Program;
use ccplane_units::{Duration, Time};
use ccplane_wire::{FlowInfo, Updates, WireCommand, WireError, WireEvent, v1};

use crate::agent::HEARTBEAT_INTERVAL_MIN;

#[cfg(test)]
mod tests;

/// CCP agent as seen by a datapath, without the socket.
///
/// Events become READY, CREATE and MEASURE; INSTALL, CHANGEPROG and UPDATE_FIELD become commands. A
/// CCP agent sends no heartbeats, so this generates them while the agent is connected: an algorithm
/// may set a window once and then send nothing. If `silence` is set, they stop after that long
/// without a message, and the flows fall back.
///
/// Programs run as in the reference datapath: one `(fallthrough)` applies to all later clauses of
/// the same call.
#[derive(Debug)]
pub struct CcpV1Client {
    algorithm: Arc<str>,
    agent_timeout: Option<Duration>,
    /// Time of the agent's last message or connection.
    last_received: Time,
    /// Next heartbeat and the interval; `None` before the datapath is ready, or if it never falls
    /// back.
    heartbeat: Option<(Time, Duration)>,
    /// Programs by the agent's number.
    programs: HashMap<u32, Arc<Program>>,
    flows: BTreeMap<u64, FlowRecord>,
    /// The datapath's flow number by the agent's, which has 32 bits.
    by_number: HashMap<u32, u64>,
    /// Last number assigned to a flow.
    last_number: u32,
    commands: VecDeque<WireCommand>,
}

/// State of a flow.
#[derive(Clone, Copy, Debug)]
struct FlowRecord {
    number: u32,
    /// The agent's number of its program.
    program: Option<u32>,
}

/// Maximum programs of an agent. The reference datapath has 10; the limit keeps an agent that
/// installs without end from filling memory.
const PROGRAMS_MAX: usize = 256;

impl CcpV1Client {
    /// Creates the state for flows that ask for `algorithm`.
    pub fn new(algorithm: &str, agent_timeout: Option<Duration>) -> CcpV1Client {
        CcpV1Client {
            algorithm: Arc::from(algorithm),
            agent_timeout,
            last_received: Time::ZERO,
            heartbeat: None,
            programs: HashMap::new(),
            flows: BTreeMap::new(),
            by_number: HashMap::new(),
            last_number: 0,
            commands: VecDeque::new(),
        }
    }

    /// Handles a connection of an agent that may be new: all flows and programs are forgotten.
    pub fn on_connected(&mut self, now: Time) {
        self.last_received = now;
        self.heartbeat = None;
        self.programs.clear();
        self.flows.clear();
        self.by_number.clear();
        self.commands.clear();
    }

    /// Maximum length of the message for an event, bytes.
    pub fn message_len_max(event: &WireEvent<'_>) -> usize {
        match event {
            WireEvent::Report { fields, .. } => 16 + 8 * fields.len(),
            _ => v1::CREATE,
        }
    }

    /// Encodes an event, appending at most one message to `out`.
    pub fn encode_event(&mut self, event: &WireEvent<'_>, out: &mut Vec<u8>) {
        match event {
            WireEvent::Ready { datapath } => {
                // A third of the agent timeout: one heartbeat may be lost and the next one late by
                // an interval.
                let every = datapath
                    .agent_timeout
                    .map(|silence| (silence / 3).max(HEARTBEAT_INTERVAL_MIN));
                self.heartbeat = every.map(|every| (self.last_received, every));
                v1::ready(out, datapath.id);
            }
            WireEvent::FlowOpened { flow, info } => {
                let number = self.assign_number(*flow);
                if let Err(why) = v1::create(out, number, &create(info)) {
                    tracing::warn!(flow, %why, "cannot announce a flow to the agent; it stays on \
                        the fallback");
                }
            }
            WireEvent::Report {
                flow,
                program,
                fields,
                ..
            } => {
                // A MEASURE without fields would end the flow.
                let number = self
                    .flows
                    .get(flow)
                    .and_then(|known| Some((known.number, self.program_number(known, *program)?)));
                if let Some((number, program)) = number.filter(|_| !fields.is_empty())
                    && let Err(why) = v1::measure(out, number, program, fields)
                {
                    tracing::warn!(flow, %why, "cannot encode a report");
                }
            }
            WireEvent::FlowClosed { flow, .. } => {
                if let Some(known) = self.flows.remove(flow) {
                    self.by_number.remove(&known.number);
                    // Without fields it is short, and always fits.
                    let _ = v1::measure(out, known.number, known.program.unwrap_or(0), &[]);
                }
            }
            WireEvent::Refused { flow, program, why } => {
                tracing::warn!(flow, program, %why, "the datapath refused a command of the CCP \
                    agent, whose protocol has no error reply");
            }
            WireEvent::Installed { .. } => {}
        }
    }

    /// Handles a datagram of the agent. After an error the rest of it is ignored.
    pub fn handle(&mut self, now: Time, datagram: &[u8]) -> Result<(), WireError> {
        self.last_received = now;
        for message in v1::messages(datagram) {
            match message? {
                v1::V1Message::Install(install) => self.install(&install)?,
                v1::V1Message::ChangeProgram {
                    flow,
                    program,
                    updates,
                } => {
                    let Some(code) = self.programs.get(&program).cloned() else {
                        tracing::warn!(
                            flow,
                            program,
                            "the agent selected a program that it did not install"
                        );
                        continue;
                    };
                    let Some((id, known)) = self.find(flow) else {
                        continue;
                    };
                    known.program = Some(program);
                    let updates = decode(updates, Some(&code))?;
                    let uid = code.uid();
                    self.commands.push_back(WireCommand::SetProgram {
                        flow: id,
                        uid,
                        updates,
                    });
                }
                v1::V1Message::UpdateField { flow, updates } => {
                    let Some((id, known)) = self.find(flow) else {
                        continue;
                    };
                    let program = known.program;
                    let code = program.and_then(|number| self.programs.get(&number));
                    let updates = decode(updates, code.map(|code| &**code))?;
                    self.commands
                        .push_back(WireCommand::Update { flow: id, updates });
                }
                v1::V1Message::Create { .. } => return Err(unexpected_from_agent(0)),
                v1::V1Message::Measure { .. } => return Err(unexpected_from_agent(1)),
                v1::V1Message::Ready { .. } => return Err(unexpected_from_agent(5)),
            }
        }
        Ok(())
    }

    /// Returns the next command for the datapath.
    pub fn poll(&mut self) -> Option<WireCommand> {
        self.commands.pop_front()
    }

    /// Time at which [`on_deadline`](CcpV1Client::on_deadline) is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.heartbeat.map(|(due, _)| due)
    }

    /// Runs everything due at `now`: a heartbeat, unless the agent timed out.
    pub fn on_deadline(&mut self, now: Time) {
        let Some((due, every)) = &mut self.heartbeat else {
            return;
        };
        if now < *due {
            return;
        }
        *due = now + *every;
        if self
            .agent_timeout
            .is_none_or(|silence| now.since(self.last_received) < silence)
        {
            let algorithm = self.algorithm.clone();
            self.commands
                .push_back(WireCommand::Heartbeat { algorithm });
        }
    }

    fn install(&mut self, install: &v1::program::Install<'_>) -> Result<(), WireError> {
        if self.programs.len() >= PROGRAMS_MAX && !self.programs.contains_key(&install.program) {
            tracing::warn!(most = PROGRAMS_MAX, "the agent installed too many programs");
            return Ok(());
        }
        let program = install.decode()?.with_sticky_fallthrough()?;
        let program = Arc::new(program.with_uid(install.identity()));
        self.programs.insert(install.program, program.clone());
        let algorithm = self.algorithm.clone();
        self.commands
            .push_back(WireCommand::Install { algorithm, program });
        Ok(())
    }

    /// The agent's number of the program with this identity on a flow; `None` for a program of an
    /// earlier agent.
    fn program_number(&self, known: &FlowRecord, uid: u32) -> Option<u32> {
        let has = |number: &u32| {
            self.programs
                .get(number)
                .is_some_and(|program| program.uid() == uid)
        };
        // The same program may be installed under several numbers.
        known
            .program
            .filter(has)
            .or_else(|| self.programs.keys().copied().find(|number| has(number)))
    }

    fn find(&mut self, number: u32) -> Option<(u64, &mut FlowRecord)> {
        // An unknown flow ended while the command was in flight.
        let flow = *self.by_number.get(&number)?;
        Some((flow, self.flows.get_mut(&flow)?))
    }

    /// The agent's number of a flow that opens. A flow that is announced again keeps its number.
    fn assign_number(&mut self, flow: u64) -> u32 {
        if let Some(known) = self.flows.get_mut(&flow) {
            known.program = None;
            return known.number;
        }
        loop {
            // From 1 on, as in the reference datapath.
            self.last_number = self.last_number.checked_add(1).unwrap_or(1);
            if !self.by_number.contains_key(&self.last_number) {
                break;
            }
        }
        self.by_number.insert(self.last_number, flow);
        let number = self.last_number;
        self.flows.insert(
            flow,
            FlowRecord {
                number,
                program: None,
            },
        );
        number
    }
}

/// Builds a CREATE. A live flow continues from its current window; CREATE cannot state that it is
/// live.
fn create(info: &FlowInfo) -> v1::Create<'_> {
    let narrow = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    // CCP does not support IPv6: such addresses, used only in logs, are left out.
    let or_none = |address: SocketAddr| match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port()),
    };
    v1::Create {
        init_cwnd: narrow(info.cwnd.get()),
        mss: narrow(info.mss.get()),
        source: or_none(info.local),
        destination: or_none(info.peer),
        algorithm: &info.algorithm,
    }
}

fn decode(updates: v1::RawUpdates<'_>, program: Option<&Program>) -> Result<Updates, WireError> {
    updates
        .iter()
        .map(|update| update.decode(program))
        .collect()
}

fn unexpected_from_agent(kind: u64) -> WireError {
    WireError::UnknownValue {
        what: "message from an agent of type",
        value: kind,
    }
}
