//! A CCP datapath behind a socket, and the messages queued for it.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use ccplane_agent::{Agent, CcpDatapath, DatapathId};
use ccplane_units::Time;
use ccplane_wire::{WireCommand, WireError, v1};
use nix::errno::Errno;
use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockType, UnixAddr, connect, send, sendmmsg, sendto,
};

use super::PeerCloseReason;
use crate::socket;

/// Limit of messages queued for a peer: one second of commands for thousands of flows.
const QUEUED_MESSAGES_MAX: usize = 16_384;
/// Messages sent per system call.
const BATCH_MESSAGES: usize = 64;

pub(super) struct DatagramPeer {
    pub ccp: CcpDatapath,
    pub address: UnixAddr,
    pub uid: u32,
    /// Socket connected to the peer, which saves the path lookup per send. `None` if the peer
    /// refuses connections.
    socket: Option<OwnedFd>,
    connect_tried: bool,
    /// True if the peer has packed several messages into a datagram and is therefore assumed to
    /// parse them too. The reference datapaths parse only one message per datagram.
    accepts_batches: bool,
    outbox: Outbox,
}

/// Queue of serialised messages.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// End offset of each message.
    ends: Vec<usize>,
    /// Number of messages already sent.
    sent: usize,
}

impl DatagramPeer {
    pub fn new(id: DatapathId, address: UnixAddr, uid: u32) -> DatagramPeer {
        DatagramPeer {
            ccp: CcpDatapath::new(id),
            address,
            uid,
            socket: None,
            connect_tried: false,
            accepts_batches: false,
            outbox: Outbox::default(),
        }
    }

    /// Passes the messages of a datagram to the agent.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        agent: &mut Agent,
        now: Time,
    ) -> Result<(), WireError> {
        let heard = self.ccp.handle(now, datagram, agent)?;
        self.accepts_batches |= heard.messages > 1;
        if heard.ready {
            // A restarted datapath has a new socket at the same path, so the connected socket is
            // stale.
            (self.socket, self.connect_tried) = (None, false);
            self.outbox.clear();
        }
        Ok(())
    }

    /// Handles a peer whose state is unknown as if it had sent READY.
    pub fn ready(&mut self, agent: &mut Agent, now: Time) {
        self.outbox.clear();
        self.ccp.ready(0, agent, now);
    }

    /// Queues a command. Commands that CCP cannot express are returned to the agent as refusals.
    pub fn send(
        &mut self,
        command: &WireCommand,
        agent: &mut Agent,
        now: Time,
    ) -> Result<(), PeerCloseReason> {
        let start = self.outbox.bytes.len();
        self.ccp
            .encode_command(now, command, agent, &mut self.outbox.bytes);
        if self.outbox.bytes.len() > start {
            self.outbox.ends.push(self.outbox.bytes.len());
        }
        match self.outbox.unsent() {
            waiting if waiting > QUEUED_MESSAGES_MAX => Err(PeerCloseReason::Stuck(waiting)),
            _ => Ok(()),
        }
    }

    /// Sends queued messages until the peer's receive queue is full.
    pub fn flush(&mut self, unconnected: &OwnedFd) -> Result<(), PeerCloseReason> {
        while self.outbox.unsent() > 0 {
            self.connect();
            let result = match &self.socket {
                Some(socket) if self.accepts_batches => self.outbox.send_together(socket),
                Some(socket) => self.outbox.send(socket),
                None => self.outbox.send_to(unconnected, &self.address),
            };
            match result {
                Ok(sent) => self.outbox.sent += sent,
                Err(why) if socket::is_transient(why) => {
                    self.outbox.drop_sent();
                    return Ok(());
                }
                // The peer has connected its socket to ours and accepts datagrams only from that
                // one.
                Err(Errno::EPERM) if self.socket.is_some() => self.socket = None,
                Err(why) => return Err(PeerCloseReason::Gone(why)),
            }
        }
        self.outbox.clear();
        Ok(())
    }

    /// Returns the socket to poll for writability.
    pub fn fd_to_watch(&self) -> Option<BorrowedFd<'_>> {
        self.socket
            .as_ref()
            .filter(|_| self.outbox.unsent() > 0)
            .map(AsFd::as_fd)
    }

    pub fn is_blocked_unwatched(&self) -> bool {
        self.socket.is_none() && self.outbox.unsent() > 0
    }

    fn connect(&mut self) {
        if self.connect_tried {
            return;
        }
        self.connect_tried = true;
        let socket = socket::open(SockType::Datagram).ok();
        self.socket = socket.filter(|fd| connect(fd.as_raw_fd(), &self.address).is_ok());
    }
}

impl Outbox {
    fn unsent(&self) -> usize {
        self.ends.len() - self.sent
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.sent = 0;
    }

    /// Drops sent messages, so that a queue that never runs empty does not grow.
    fn drop_sent(&mut self) {
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

    /// Sends as many messages as fit into one datagram.
    fn send_together(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        let start = self
            .sent
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        let waiting = &self.ends[self.sent..];
        let count = waiting
            .partition_point(|end| end - start <= v1::MESSAGE_BYTES_MAX)
            .max(1);
        let end = waiting[count - 1];
        send(
            socket.as_raw_fd(),
            &self.bytes[start..end],
            MsgFlags::MSG_DONTWAIT,
        )
        .map(|_| count)
    }

    /// Sends a batch of messages, each as a datagram of its own, for peers that parse one per
    /// datagram.
    fn send(&self, socket: &OwnedFd) -> Result<usize, Errno> {
        if self.unsent() == 1 {
            return send(
                socket.as_raw_fd(),
                self.message(self.sent),
                MsgFlags::MSG_DONTWAIT,
            )
            .map(|_| 1);
        }
        let count = self.unsent().min(BATCH_MESSAGES);
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
