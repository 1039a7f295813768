//! The datapath's end of the [`Local`](super::Local) link.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent, v2};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, UnixAddr, connect, recv, send};

use super::backoff::Backoff;
use super::random;
use super::{AgentConnection, LinkError, SendOutcome, socket};

/// A connection to an agent that is re-established when the agent returns.
///
/// After each [`connect`](Uplink::connect) the datapath announces itself and every live flow,
/// because the agent may have restarted. The caller keeps reports that are refused, see
/// [`Uplink::event`].
#[derive(Debug)]
pub struct Uplink {
    path: PathBuf,
    socket: Option<OwnedFd>,
    packet: v2::PacketWriter,
    buffer: Box<[u8]>,
    backoff: Backoff,
    /// Time of the last call that passed a time.
    now: Time,
}

/// Limit of packets per call of `receive`, so that an agent that sends without pause cannot starve
/// the datapath.
const PACKETS_PER_CALL_MAX: usize = 64;

impl Uplink {
    /// Creates an unconnected uplink.
    pub fn new(path: &Path) -> Uplink {
        Uplink {
            path: path.to_owned(),
            socket: None,
            packet: v2::PacketWriter::new(),
            buffer: vec![0; v2::PACKET_BYTES_MAX].into_boxed_slice(),
            backoff: Backoff::new(random::seeded_rng()),
            now: Time::ZERO,
        }
    }

    /// Connects if not connected. Returns an error if there is no agent.
    pub fn connect(&mut self) -> Result<(), LinkError> {
        if self.socket.is_some() {
            return Ok(());
        }
        let no_agent = |why| LinkError::NoAgent {
            path: self.path.clone(),
            why,
        };
        let socket = socket::open(SockType::SeqPacket).map_err(no_agent)?;
        let address = UnixAddr::new(&self.path).map_err(no_agent)?;
        connect(socket.as_raw_fd(), &address).map_err(no_agent)?;
        self.packet.clear();
        self.socket = Some(socket);
        Ok(())
    }

    /// Returns whether an agent is connected, as far as is known.
    pub fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Queues an event for the agent. If a report is refused, leave it in the flow (do not call
    /// [`report_queued`](ccplane_datapath::Flow::report_queued)), so that no measurement is lost.
    pub fn event(&mut self, event: &WireEvent<'_>) -> SendOutcome {
        if self.socket.is_none() {
            return SendOutcome::NoAgent;
        }
        if self.packet.push_event(event).is_ok() {
            return SendOutcome::Queued;
        }
        self.flush();
        if self.packet.push_event(event).is_ok() {
            SendOutcome::Queued
        } else {
            SendOutcome::Full
        }
    }

    /// Sends queued events if there is room. Returns whether the queue is empty.
    pub fn flush(&mut self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        if self.packet.is_empty() {
            return true;
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(socket.as_raw_fd(), self.packet.as_bytes(), flags) {
            Ok(_) => {
                self.packet.clear();
                true
            }
            Err(why) if socket::is_transient(why) => false,
            Err(why) => {
                self.on_lost(&why);
                false
            }
        }
    }

    /// Passes the commands that have arrived to `sink`.
    pub fn receive(&mut self, sink: &mut dyn FnMut(WireCommand)) {
        for _ in 0..PACKETS_PER_CALL_MAX {
            let Some(socket) = &self.socket else { return };
            match recv(socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => self.on_lost(&"it closed the connection"),
                Ok(length) => {
                    if let Err(why) = v2::read_commands(&self.buffer[..length], sink) {
                        self.on_lost(&why);
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                Err(why) => self.on_lost(&why),
            }
        }
    }

    /// Returns the descriptor to poll for commands.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    fn on_lost(&mut self, why: &dyn std::fmt::Display) {
        tracing::warn!(path = %self.path.display(), %why, "lost the connection to the agent");
        self.socket = None;
        self.packet.clear();
        self.backoff.on_failure(self.now);
    }
}

impl AgentConnection for Uplink {
    fn connect(&mut self, now: Time) -> Result<(), LinkError> {
        self.now = now;
        if self.socket.is_some() {
            return Ok(());
        }
        self.backoff.admit(now)?;
        let connected = Uplink::connect(self);
        match connected {
            Ok(()) => self.backoff.connected(now),
            Err(_) => self.backoff.on_absent(now),
        }
        connected
    }

    fn next_attempt(&self, now: Time) -> Duration {
        self.backoff.next_attempt().since(now)
    }

    fn is_connected(&self) -> bool {
        Uplink::is_connected(self)
    }

    fn queue_event(&mut self, event: &WireEvent<'_>) -> SendOutcome {
        Uplink::event(self, event)
    }

    fn flush(&mut self) -> bool {
        Uplink::flush(self)
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(WireCommand)) {
        self.now = now;
        Uplink::receive(self, sink);
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Uplink::as_fd(self)
    }
}
