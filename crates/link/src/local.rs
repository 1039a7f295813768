//! Link to ccplane datapaths on the same host: version-2 packets over `SOCK_SEQPACKET`.
//!
//! Each connection is one datapath. The kernel reports the peer's user and when its process ends,
//! and preserves packet boundaries and order. A packet contains many messages.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use ccplane_agent::{Agent, DatapathId};
use ccplane_units::Time;
use ccplane_wire::{WireCommand, WireError, v2};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, SockType, getsockopt, recv, send, sockopt};

use super::accept_backoff::AcceptBackoff;
use super::socket::{self, BoundSocket};
use super::{DatapathLink, LinkError};

/// Packets received from a connection before the next connection is served.
const PACKETS_PER_CONNECTION_MAX: usize = 16;
/// Limit of packets queued for a datapath that does not read.
const QUEUED_PACKETS_MAX: usize = 256;

/// Serves ccplane datapaths at a path.
pub struct Local {
    /// The standard library's listener, whose `accept` returns an owned socket; it does not check
    /// the socket type.
    listener: UnixListener,
    /// Removes the path when dropped.
    _bound: BoundSocket,
    accept_backoff: AcceptBackoff,
    base: u32,
    /// Id of the next datapath. Ids are never reused, so a late command cannot reach another
    /// datapath.
    next_id: u32,
    connections: Vec<LocalConnection>,
    buffer: Box<[u8]>,
    fields: Vec<u64>,
}

struct LocalConnection {
    id: DatapathId,
    socket: OwnedFd,
    packet: v2::PacketWriter,
    unsent: VecDeque<Vec<u8>>,
    closed: Option<LocalCloseReason>,
}

#[derive(Debug, thiserror::Error)]
enum LocalCloseReason {
    #[error("it closed the connection")]
    Gone,
    #[error("it sent an invalid packet: {0}")]
    Garbage(#[from] WireError),
    #[error("it does not read; {QUEUED_PACKETS_MAX} packets are queued for it")]
    Stuck,
    #[error("the connection failed: {0}")]
    Failed(#[from] Errno),
}

impl Local {
    /// Binds to `path`.
    pub fn bind(path: &Path) -> Result<Local, LinkError> {
        let bound = BoundSocket::new(path, SockType::SeqPacket)?;
        let failed = |why| LinkError::Bind {
            path: path.to_owned(),
            what: "another descriptor",
            why,
        };
        let listener = bound
            .fd
            .try_clone()
            .map_err(|why| failed(Errno::from_raw(why.raw_os_error().unwrap_or(0))))?;
        Ok(Local {
            listener: listener.into(),
            _bound: bound,
            accept_backoff: AcceptBackoff::default(),
            base: 0,
            next_id: 0,
            connections: Vec::new(),
            buffer: vec![0; v2::PACKET_BYTES_MAX].into_boxed_slice(),
            fields: Vec::new(),
        })
    }

    fn accept(&mut self, now: Time) -> bool {
        if self.accept_backoff.check_paused(now) {
            return false;
        }
        let mut any = false;
        while let Some(socket) = self.accept_one(now) {
            any = true;
            match getsockopt(&socket, sockopt::PeerCredentials) {
                Ok(who) if socket::is_trusted(who.uid()) => {
                    let id = DatapathId(self.base + self.next_id);
                    self.next_id += 1;
                    tracing::info!(datapath = id.0, pid = who.pid(), "a datapath connected");
                    let (packet, waiting) = (v2::PacketWriter::new(), VecDeque::new());
                    self.connections.push(LocalConnection {
                        id,
                        socket,
                        packet,
                        unsent: waiting,
                        closed: None,
                    });
                }
                Ok(who) => tracing::warn!(
                    uid = who.uid(),
                    "refused a connection of a process of another user"
                ),
                Err(why) => tracing::warn!(%why, "refused a connection whose user cannot be \
                    determined"),
            }
        }
        any
    }

    fn accept_one(&mut self, now: Time) -> Option<OwnedFd> {
        let accepted = self.listener.accept().and_then(|(socket, _)| {
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        });
        match accepted {
            Ok(socket) => Some(socket),
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                None
            }
            Err(why) => {
                self.accept_backoff.pause(now, &why);
                None
            }
        }
    }

    fn drop_closed(&mut self, agent: &mut Agent) {
        self.connections.retain(|connection| {
            let Some(why) = &connection.closed else {
                return true;
            };
            match why {
                LocalCloseReason::Gone => tracing::info!(
                    datapath = connection.id.0,
                    "a datapath closed its connection"
                ),
                _ => tracing::warn!(datapath = connection.id.0, %why, "disconnected a datapath"),
            }
            agent.on_disconnect(connection.id);
            false
        });
    }
}

impl DatapathLink for Local {
    fn set_id_base(&mut self, base: u32) {
        self.base = base;
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        let mut any = self.accept(now);
        for connection in &mut self.connections {
            match connection.receive(&mut self.buffer, &mut self.fields, agent, now) {
                Ok(taken) => any |= taken,
                Err(why) => connection.closed = Some(why),
            }
        }
        self.drop_closed(agent);
        any
    }

    fn send(&mut self, _agent: &mut Agent, _now: Time, to: DatapathId, command: &WireCommand) {
        let Some(connection) = self.connections.iter_mut().find(|c| c.id == to) else {
            return;
        };
        if let Err(why) = connection.send(command) {
            connection.closed = Some(why);
        }
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        for connection in &mut self.connections {
            if let Err(why) = connection.flush() {
                connection.closed = Some(why);
            }
        }
        self.drop_closed(agent);
        false
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if !self.accept_backoff.is_paused() {
            watched.push((self.listener.as_fd(), PollFlags::POLLIN));
        }
        watched.extend(self.connections.iter().map(|connection| {
            let room = if connection.unsent.is_empty() {
                PollFlags::empty()
            } else {
                PollFlags::POLLOUT
            };
            (connection.socket.as_fd(), PollFlags::POLLIN | room)
        }));
    }
}

impl LocalConnection {
    fn receive(
        &mut self,
        buffer: &mut [u8],
        fields: &mut Vec<u64>,
        agent: &mut Agent,
        now: Time,
    ) -> Result<bool, LocalCloseReason> {
        for taken in 0..PACKETS_PER_CONNECTION_MAX {
            match recv(
                self.socket.as_raw_fd(),
                buffer,
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC,
            ) {
                Ok(0) => return Err(LocalCloseReason::Gone),
                Ok(length) => {
                    let packet = buffer.get(..length).ok_or(WireError::TooLong {
                        what: "a packet",
                        is: length,
                        most: v2::PACKET_BYTES_MAX,
                    })?;
                    v2::read_events(packet, fields, &mut |event| {
                        agent.handle(now, self.id, event)
                    })?;
                }
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(taken > 0),
                Err(Errno::ECONNRESET) => return Err(LocalCloseReason::Gone),
                Err(why) => return Err(why.into()),
            }
        }
        Ok(true)
    }

    fn send(&mut self, command: &WireCommand) -> Result<(), LocalCloseReason> {
        if self.packet.push_command(command).is_err() {
            self.queue()?;
            self.packet.push_command(command)?;
        }
        Ok(())
    }

    fn queue(&mut self) -> Result<(), LocalCloseReason> {
        if self.unsent.len() >= QUEUED_PACKETS_MAX {
            return Err(LocalCloseReason::Stuck);
        }
        self.unsent.push_back(self.packet.as_bytes().to_vec());
        self.packet.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LocalCloseReason> {
        while let Some(packet) = self.unsent.front() {
            if !send_packet(&self.socket, packet)? {
                return if self.packet.is_empty() {
                    Ok(())
                } else {
                    self.queue()
                };
            }
            self.unsent.pop_front();
        }
        if !self.packet.is_empty() {
            if send_packet(&self.socket, self.packet.as_bytes())? {
                self.packet.clear();
            } else {
                self.queue()?;
            }
        }
        Ok(())
    }
}

/// Sends a packet. Returns false if the socket buffer is full.
fn send_packet(socket: &OwnedFd, packet: &[u8]) -> Result<bool, LocalCloseReason> {
    match send(
        socket.as_raw_fd(),
        packet,
        MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
    ) {
        Ok(_) => Ok(true),
        Err(why) if socket::is_transient(why) => Ok(false),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(LocalCloseReason::Gone),
        Err(why) => Err(why.into()),
    }
}
