//! One CCP datapath: its flows, its programs, and what waits to be sent to it.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ccplane_datapath::{Capabilities, Program};
use ccplane_units::{Bytes, Time};
use ccplane_wire::{Command, DatapathInfo, Event, FlowInfo, FlowStats, Refusal, WireError, v1};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockType, UnixAddr, connect, send, sendmmsg, sendto};

use super::Closed;
use crate::link::socket;
use crate::{Agent, DatapathId};

/// Messages that may wait for a peer that does not read: a second of commands for thousands of flows.
const MOST_WAITING: usize = 16_384;
/// Messages sent with one system call.
const BATCH: usize = 64;

pub(super) struct Peer {
    pub id: DatapathId,
    pub address: UnixAddr,
    pub uid: u32,
    /// Connected to it, so that a send needs no look-up of the path; `None` where it refuses that.
    socket: Option<OwnedFd>,
    tried: bool,
    /// It sends several messages in a datagram, and so is taken to read them as well; the reference's datapaths read one.
    batches: bool,
    /// Programs of flows by the datapath's number of the flow; `None` before the first.
    flows: HashMap<u32, Option<usize>>,
    /// Installed programs; the n-th has number n + 1 there. A CCP datapath clears its table when number 1 arrives, so that
    /// an agent that restarts finds room.
    programs: Vec<Arc<Program>>,
    outbox: Outbox,
}

/// Messages one after the other.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// Where each message ends.
    ends: Vec<usize>,
    /// How many have been sent.
    sent: usize,
}

impl Peer {
    pub fn new(id: DatapathId, address: UnixAddr, uid: u32) -> Peer {
        Peer {
            id,
            address,
            uid,
            socket: None,
            tried: false,
            batches: false,
            flows: HashMap::new(),
            programs: Vec::new(),
            outbox: Outbox::default(),
        }
    }

    /// Gives the agent what a datagram holds.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        fields: &mut Vec<u64>,
        agent: &mut Agent,
        now: Time,
    ) -> Result<(), WireError> {
        for (index, message) in v1::messages(datagram).enumerate() {
            let message = message?;
            self.batches |= index > 0;
            match message {
                v1::Message::Measure {
                    flow,
                    program,
                    fields: values,
                } => {
                    fields.clear();
                    fields.extend(values.iter());
                    self.report(flow, program, fields, agent, now);
                }
                v1::Message::Create { flow, create } => self.open(flow, flow_info(&create), agent, now),
                v1::Message::Ready { id } => {
                    // A datapath that started again has a socket of its own at the path: the old one is dead.
                    (self.socket, self.tried) = (None, false);
                    self.ready(id, agent, now);
                }
                v1::Message::Install(_) | v1::Message::UpdateField { .. } | v1::Message::ChangeProgram { .. } => {
                    return Err(unexpected(&message));
                }
            }
        }
        Ok(())
    }

    pub fn ready(&mut self, id: u32, agent: &mut Agent, now: Time) {
        self.flows.clear();
        self.programs.clear();
        self.outbox.clear();
        agent.handle(
            now,
            self.id,
            Event::Ready {
                datapath: datapath_info(id),
            },
        );
    }

    fn open(&mut self, flow: u32, info: FlowInfo, agent: &mut Agent, now: Time) {
        self.flows.insert(flow, None);
        agent.handle(
            now,
            self.id,
            Event::FlowOpened {
                flow: u64::from(flow),
                info,
            },
        );
    }

    fn report(&mut self, flow: u32, number: u32, fields: &[u64], agent: &mut Agent, now: Time) {
        if fields.is_empty() {
            self.flows.remove(&flow);
            let closed = Event::FlowClosed {
                flow: u64::from(flow),
                stats: FlowStats::default(),
            };
            return agent.handle(now, self.id, closed);
        }
        if !self.flows.contains_key(&flow) {
            // The flow lived before this agent did. CCP has no way to announce it again, but its reports tell of it.
            self.open(
                flow,
                FlowInfo {
                    live: true,
                    ..FlowInfo::default()
                },
                agent,
                now,
            );
        }
        let installed = (number as usize)
            .checked_sub(1)
            .and_then(|index| self.programs.get(index));
        let program = installed.map_or(0, |program| program.uid());
        agent.handle(
            now,
            self.id,
            Event::Report {
                flow: u64::from(flow),
                program,
                urgent: false,
                fields,
            },
        );
    }

    /// Puts a command into the outbox. What CCP cannot say goes back to the agent as a refusal.
    pub fn send(&mut self, command: &Command, agent: &mut Agent, now: Time) -> Result<(), Closed> {
        let start = self.outbox.bytes.len();
        let refused = self.write(command).err();
        if self.outbox.bytes.len() > start {
            self.outbox.ends.push(self.outbox.bytes.len());
        }
        if let Some(why) = refused {
            let (flow, program) = match command {
                Command::Install { program, .. } => (None, program.uid()),
                Command::SetProgram { flow, uid, .. } => (Some(*flow), *uid),
                Command::Update { flow, .. } => (Some(*flow), 0),
                Command::Offer(_) | Command::Heartbeat { .. } => (None, 0),
            };
            agent.handle(now, self.id, Event::Refused { flow, program, why });
        }
        match self.outbox.waiting() {
            waiting if waiting > MOST_WAITING => Err(Closed::Stuck(waiting)),
            _ => Ok(()),
        }
    }

    fn write(&mut self, command: &Command) -> Result<(), Refusal> {
        let unsayable = |why: WireError| Refusal::Unsupported(why.to_string());
        match command {
            Command::Install { program, .. } => {
                let known = self.programs.iter().position(|p| p.uid() == program.uid());
                let index = known.unwrap_or(self.programs.len());
                v1::install(&mut self.outbox.bytes, index as u32 + 1, program).map_err(unsayable)?;
                if known.is_none() {
                    self.programs.push(program.clone());
                }
                Ok(())
            }
            Command::SetProgram { flow, uid, updates } => {
                let index = self.programs.iter().position(|p| p.uid() == *uid);
                let index = index.ok_or(Refusal::UnknownProgram(*uid))?;
                let flow = self.flow(*flow)?;
                let number = index as u32 + 1;
                let out = &mut self.outbox.bytes;
                v1::change_program(out, flow, number, &self.programs[index], updates.as_slice()).map_err(unsayable)?;
                self.flows.insert(flow, Some(index));
                Ok(())
            }
            Command::Update { flow, updates } => {
                let flow = self.flow(*flow)?;
                let program = self
                    .flows
                    .get(&flow)
                    .copied()
                    .flatten()
                    .and_then(|index| self.programs.get(index));
                let out = &mut self.outbox.bytes;
                v1::update_fields(out, flow, program.map(|p| &**p), updates.as_slice()).map_err(unsayable)
            }
            // A CCP datapath knows that its agent lives by what arrives, and asks for algorithms without knowing of any.
            Command::Offer(_) | Command::Heartbeat { .. } => Ok(()),
        }
    }

    fn flow(&self, flow: u64) -> Result<u32, Refusal> {
        let known = u32::try_from(flow).ok().filter(|flow| self.flows.contains_key(flow));
        known.ok_or(Refusal::UnknownFlow)
    }

    /// Sends what the peer has room for.
    pub fn flush(&mut self, unconnected: &OwnedFd) -> Result<(), Closed> {
        while self.outbox.waiting() > 0 {
            self.connect();
            let result = match &self.socket {
                Some(socket) if self.batches => self.outbox.send_together(socket),
                Some(socket) => self.outbox.send(socket),
                None => self.outbox.send_to(unconnected, &self.address),
            };
            match result {
                Ok(sent) => self.outbox.sent += sent,
                Err(why) if socket::is_full(why) => {
                    self.outbox.forget_sent();
                    return Ok(());
                }
                // It has connected its socket to ours: it hears only that.
                Err(Errno::EPERM) if self.socket.is_some() => self.socket = None,
                Err(why) => return Err(Closed::Gone(why)),
            }
        }
        self.outbox.clear();
        Ok(())
    }

    /// The socket on which there will be room.
    pub fn waits_for(&self) -> Option<BorrowedFd<'_>> {
        self.socket
            .as_ref()
            .filter(|_| self.outbox.waiting() > 0)
            .map(AsFd::as_fd)
    }

    pub fn waits_unwatched(&self) -> bool {
        self.socket.is_none() && self.outbox.waiting() > 0
    }

    fn connect(&mut self) {
        if self.tried {
            return;
        }
        self.tried = true;
        let socket = socket::open(SockType::Datagram).ok();
        self.socket = socket.filter(|fd| connect(fd.as_raw_fd(), &self.address).is_ok());
    }
}

impl Outbox {
    fn waiting(&self) -> usize {
        self.ends.len() - self.sent
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.sent = 0;
    }

    /// Keeps a queue that never runs empty from growing.
    fn forget_sent(&mut self) {
        let Some(last) = self.sent.checked_sub(1) else { return };
        let start = self.ends[last];
        self.bytes.drain(..start);
        self.ends.drain(..self.sent);
        self.ends.iter_mut().for_each(|end| *end -= start);
        self.sent = 0;
    }

    fn message(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// As many messages in one datagram as it takes.
    fn send_together(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        let start = self.sent.checked_sub(1).map_or(0, |before| self.ends[before]);
        let waiting = &self.ends[self.sent..];
        let count = waiting.partition_point(|end| end - start <= v1::MAX_MESSAGE).max(1);
        let end = waiting[count - 1];
        send(socket.as_raw_fd(), &self.bytes[start..end], MsgFlags::MSG_DONTWAIT).map(|_| count)
    }

    /// Many messages with one call, each a datagram of its own: CCP datapaths read one from each.
    fn send(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        if self.waiting() == 1 {
            return send(socket.as_raw_fd(), self.message(self.sent), MsgFlags::MSG_DONTWAIT).map(|_| 1);
        }
        let count = self.waiting().min(BATCH);
        let mut headers = MultiHeaders::<UnixAddr>::preallocate(count, None);
        let slices: Vec<_> = (0..count)
            .map(|n| [IoSlice::new(self.message(self.sent + n))])
            .collect();
        let to = vec![None; count];
        sendmmsg(
            socket.as_raw_fd(),
            &mut headers,
            slices.iter(),
            to,
            [],
            MsgFlags::MSG_DONTWAIT,
        )
        .map(Iterator::count)
    }

    fn send_to(&self, socket: &OwnedFd, to: &UnixAddr) -> Result<usize, Errno> {
        sendto(socket.as_raw_fd(), self.message(self.sent), to, MsgFlags::MSG_DONTWAIT).map(|_| 1)
    }
}

/// Whether a datagram holds what a datapath may say, and nothing else.
pub(super) fn is_good(datagram: &[u8]) -> Result<(), WireError> {
    for message in v1::messages(datagram) {
        match message? {
            v1::Message::Measure { .. } | v1::Message::Create { .. } | v1::Message::Ready { .. } => {}
            other => return Err(unexpected(&other)),
        }
    }
    Ok(())
}

/// What only an agent may say.
fn unexpected(message: &v1::Message<'_>) -> WireError {
    let value = match message {
        v1::Message::UpdateField { .. } => 3,
        v1::Message::ChangeProgram { .. } => 4,
        _ => 2,
    };
    WireError::Unknown {
        what: "message from a datapath of type",
        value,
    }
}

/// CCP's datapaths have these by definition, and nothing of what came later.
fn datapath_info(id: u32) -> DatapathInfo {
    let all = [
        Capabilities::PACING,
        Capabilities::RTT,
        Capabilities::DELIVERY_RATE,
        Capabilities::ECN,
    ];
    DatapathInfo {
        id,
        kind: "ccp".to_owned(),
        capabilities: all.into_iter().fold(Capabilities::CWND, |all, one| all.with(one)),
        max_programs: 10,
        max_instrs: 255,
        max_vars: 110,
        fallback_after: None,
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
