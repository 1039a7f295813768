//! One CCP datapath behind a socket, and what waits to be sent to it.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ccplane_agent::{Agent, CcpDatapath, DatapathId};
use ccplane_units::Time;
use ccplane_wire::{Command, WireError, v1};
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockType, UnixAddr, connect, send, sendmmsg, sendto,
};

use super::Closed;
use crate::socket;

/// Messages that may wait for a peer that does not read: a second of commands for thousands of
/// flows.
const MOST_WAITING: usize = 16_384;
/// Messages sent with one system call.
const BATCH: usize = 64;

pub(super) struct Peer {
    pub ccp: CcpDatapath,
    pub address: UnixAddr,
    pub uid: u32,
    /// Connected to it, so that a send needs no look-up of the path; `None` where it refuses that.
    socket: Option<OwnedFd>,
    tried: bool,
    /// It sends several messages in a datagram, and so is taken to read them as well; the
    /// reference's datapaths read one.
    batches: bool,
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
            ccp: CcpDatapath::new(id),
            address,
            uid,
            socket: None,
            tried: false,
            batches: false,
            outbox: Outbox::default(),
        }
    }

    /// Gives the agent what a datagram holds.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        agent: &mut Agent,
        now: Time,
    ) -> Result<(), WireError> {
        let heard = self.ccp.handle(now, datagram, agent)?;
        self.batches |= heard.messages > 1;
        if heard.ready {
            // A datapath that started again has a socket of its own at the path: the old one is
            // dead.
            (self.socket, self.tried) = (None, false);
            self.outbox.clear();
        }
        Ok(())
    }

    /// It is not known what it has.
    pub fn ready(&mut self, agent: &mut Agent, now: Time) {
        self.outbox.clear();
        self.ccp.ready(0, agent, now);
    }

    /// Puts a command into the outbox. What CCP cannot say goes back to the agent as a refusal.
    pub fn send(&mut self, command: &Command, agent: &mut Agent, now: Time) -> Result<(), Closed> {
        let start = self.outbox.bytes.len();
        self.ccp
            .command(now, command, agent, &mut self.outbox.bytes);
        if self.outbox.bytes.len() > start {
            self.outbox.ends.push(self.outbox.bytes.len());
        }
        match self.outbox.waiting() {
            waiting if waiting > MOST_WAITING => Err(Closed::Stuck(waiting)),
            _ => Ok(()),
        }
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
        let Some(last) = self.sent.checked_sub(1) else {
            return;
        };
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
        let start = self
            .sent
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        let waiting = &self.ends[self.sent..];
        let count = waiting
            .partition_point(|end| end - start <= v1::MAX_MESSAGE)
            .max(1);
        let end = waiting[count - 1];
        send(
            socket.as_raw_fd(),
            &self.bytes[start..end],
            MsgFlags::MSG_DONTWAIT,
        )
        .map(|_| count)
    }

    /// Many messages with one call, each a datagram of its own: CCP datapaths read one from each.
    fn send(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        if self.waiting() == 1 {
            return send(
                socket.as_raw_fd(),
                self.message(self.sent),
                MsgFlags::MSG_DONTWAIT,
            )
            .map(|_| 1);
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
        sendto(
            socket.as_raw_fd(),
            self.message(self.sent),
            to,
            MsgFlags::MSG_DONTWAIT,
        )
        .map(|_| 1)
    }
}
