//! Link to existing CCP datapaths: version-1 messages over Unix datagrams.
//!
//! A datapath is identified by the path its socket is bound to and by the user of its process.
//! Unbound senders cannot be answered and are dropped. Peers do not affect each other: malformed
//! messages or an unread queue close only that peer, and its next valid message opens it again.
//! Peers of a previous agent on the same path are served from the start.

mod peer;

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use ccplane_agent::check_datagram;
use ccplane_agent::{Agent, DatapathId};
use ccplane_units::Time;
use ccplane_wire::{WireCommand, WireError, v1};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockType, SockaddrLike, UnixAddr,
    UnixCredentials, recvmmsg, recvmsg, setsockopt, sockopt,
};
use peer::DatagramPeer;

use super::known_peers::KnownPeers;
use super::socket::{self, BoundSocket};
use super::warning::Warning;
use super::{DatapathLink, LinkError};

/// Datagrams received per system call. A Unix datagram socket queues 10 by default
/// (net.unix.max_dgram_qlen).
const BATCH_DATAGRAMS: usize = 16;
/// Receive calls before pending commands are sent; bounds the delay of a reply during a flood.
const RECEIVE_CALLS_MAX: usize = 8;
/// Largest datagram; longer ones are truncated by the kernel and detected.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// Maximum number of peers. Further datapaths are dropped with a warning.
const PEERS_MAX: usize = 1 << 16;

/// Serves CCP datapaths at a path.
pub struct Datagram {
    socket: BoundSocket,
    base: u32,
    peers: Vec<Option<DatagramPeer>>,
    by_address: HashMap<Address, usize>,
    known_peers: KnownPeers,
    /// True once the remembered datapaths have received this agent's programs.
    peers_restored: bool,
    warnings: Warnings,
    /// Time of the last `receive`.
    now: Time,
    buffer: Box<[u8]>,
    arrived: Vec<ReceivedDatagram>,
    /// True if the last receive call returned a datagram.
    last_receive_succeeded: bool,
    /// True if several datagrams were pending, so that the next call receives a batch.
    is_batching: bool,
    dropped: u64,
}

/// Rate-limited warnings.
#[derive(Default)]
struct Warnings {
    receive: Warning,
    closed: Warning,
    garbage: Warning,
    full: Warning,
    /// Warnings that are logged only once.
    unbound: bool,
    stranger: bool,
}

/// Address of a datagram socket: its path, or a zero byte and its abstract name.
type Address = Vec<u8>;

struct ReceivedDatagram {
    slot: usize,
    len: usize,
    from: Option<UnixAddr>,
    uid: Option<u32>,
    truncated: bool,
}

impl Datagram {
    /// Binds to `path`.
    pub fn bind(path: &Path) -> Result<Datagram, LinkError> {
        let socket = BoundSocket::new(path, SockType::Datagram)?;
        setsockopt(&socket.fd, sockopt::PassCred, &true).map_err(|why| LinkError::Bind {
            path: path.to_owned(),
            what: "credentials",
            why,
        })?;
        Ok(Datagram {
            known_peers: KnownPeers::read(path),
            peers_restored: false,
            warnings: Warnings::default(),
            now: Time::ZERO,
            socket,
            base: 0,
            peers: Vec::new(),
            by_address: HashMap::new(),
            buffer: vec![0; BATCH_DATAGRAMS * DATAGRAM_BYTES_MAX].into_boxed_slice(),
            arrived: Vec::with_capacity(BATCH_DATAGRAMS),
            last_receive_succeeded: false,
            is_batching: false,
            dropped: 0,
        })
    }

    /// Returns the number of dropped datagrams: from unbound senders and other users, and malformed
    /// ones from unknown senders.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Receives one datagram, or a batch in flood mode. Returns how many.
    fn receive_datagrams(&mut self, now: Time) -> usize {
        self.arrived.clear();
        let fd = self.socket.fd.as_raw_fd();
        let result = if self.is_batching {
            self.receive_batch(fd)
        } else {
            self.receive_one(fd)
        };
        match result {
            Ok(()) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(why) => {
                if let Some(times) = self.warnings.receive.due(now) {
                    tracing::warn!(%why, times, "cannot receive");
                }
            }
        }
        self.arrived.len()
    }

    fn receive_one(&mut self, fd: i32) -> Result<(), Errno> {
        let mut control = cmsg_space!(UnixCredentials);
        let mut slices = [IoSliceMut::new(&mut self.buffer[..DATAGRAM_BYTES_MAX])];
        let message =
            recvmsg::<UnixAddr>(fd, &mut slices, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
        self.arrived.push(ReceivedDatagram::new(0, &message));
        Ok(())
    }

    fn receive_batch(&mut self, fd: i32) -> Result<(), Errno> {
        // Fresh headers for each call: the kernel overwrites the address length field, which gives
        // the available space.
        let mut headers = MultiHeaders::<UnixAddr>::preallocate(
            BATCH_DATAGRAMS,
            Some(cmsg_space!(UnixCredentials)),
        );
        let mut chunks = self.buffer.chunks_exact_mut(DATAGRAM_BYTES_MAX);
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH_DATAGRAMS] =
            std::array::from_fn(|_| [IoSliceMut::new(chunks.next().unwrap_or_default())]);
        let messages = recvmmsg(
            fd,
            &mut headers,
            slices.iter_mut(),
            MsgFlags::MSG_DONTWAIT,
            None,
        )?;
        self.arrived.extend(
            messages
                .enumerate()
                .map(|(slot, message)| ReceivedDatagram::new(slot, &message)),
        );
        Ok(())
    }

    /// Returns the peer that sent a datagram. Adds a new peer if the message is valid.
    fn find_or_add_peer(
        &mut self,
        arrived: &ReceivedDatagram,
        agent: &mut Agent,
        now: Time,
    ) -> Option<usize> {
        let Some((from, address)) = arrived.from.and_then(|from| Some((from, address(&from)?)))
        else {
            if !std::mem::replace(&mut self.warnings.unbound, true) {
                tracing::warn!(
                    "dropping datagrams of a sender whose socket has no path, because it cannot be \
                    answered; bind the datapath's socket to a path"
                );
            }
            return None;
        };
        let start = arrived.slot * DATAGRAM_BYTES_MAX;
        let bytes = start..start + arrived.len;
        let ready = is_ready(&self.buffer[bytes.clone()]);
        if let Some(&index) = self.by_address.get(&address) {
            let known = self.peers.get(index)?.as_ref()?;
            if arrived.uid == Some(known.uid) {
                return Some(index);
            }
            // READY from a trusted user on another user's path: the datapath was restarted by a
            // different user.
            if !ready || !arrived.is_trusted() {
                return None;
            }
            self.close(index, agent, now, &PeerCloseReason::Replaced);
        }
        if !arrived.is_trusted() {
            if !std::mem::replace(&mut self.warnings.stranger, true) {
                tracing::warn!(uid = ?arrived.uid, "dropping datagrams of a process of another \
                    user");
            }
            return None;
        }
        let good = if arrived.truncated {
            Err(too_long())
        } else {
            check_datagram(&self.buffer[bytes])
        };
        if let Err(why) = good {
            if let Some(times) = self.warnings.garbage.due(now) {
                tracing::warn!(%why, times, "dropping an invalid message");
            }
            return None;
        }
        let index = self.add(from, address, arrived.uid?, now)?;
        if !ready {
            // The agent restarted, or closed this peer before, so the programs installed there are
            // unknown.
            self.peers[index].as_mut()?.ready(agent, now);
        }
        Some(index)
    }

    fn add(&mut self, from: UnixAddr, address: Address, uid: u32, now: Time) -> Option<usize> {
        let index = self
            .peers
            .iter()
            .position(Option::is_none)
            .unwrap_or(self.peers.len());
        if index >= PEERS_MAX {
            if let Some(times) = self.warnings.full.due(now) {
                tracing::warn!(
                    most = PEERS_MAX,
                    times,
                    "too many datapaths; dropping a datagram of a new one"
                );
            }
            return None;
        }
        if index == self.peers.len() {
            self.peers.push(None);
        }
        self.peers[index] = Some(DatagramPeer::new(
            DatapathId(self.base + index as u32),
            from,
            uid,
        ));
        self.known_peers.add(&address);
        self.by_address.insert(address, index);
        Some(index)
    }

    /// Adds the datapaths of the previous agent as peers, so that they get this agent's programs
    /// without having to ask.
    fn restore_peers(&mut self, agent: &mut Agent, now: Time) {
        for (path, uid) in self.known_peers.paths() {
            let Ok(from) = UnixAddr::new(&path) else {
                continue;
            };
            let Some(address) = address(&from) else {
                continue;
            };
            let Some(index) = self.add(from, address, uid, now) else {
                return;
            };
            if let Some(peer) = &mut self.peers[index] {
                tracing::info!(datapath = peer.ccp.id().0, path = %path.display(), "restored a \
                    datapath of the previous agent");
                peer.ready(agent, now);
            }
        }
    }

    fn close(&mut self, index: usize, agent: &mut Agent, now: Time, why: &PeerCloseReason) {
        let Some(peer) = self.peers.get_mut(index).and_then(Option::take) else {
            return;
        };
        match why {
            PeerCloseReason::Gone(_) | PeerCloseReason::Replaced => {
                tracing::info!(datapath = peer.ccp.id().0, %why, "a datapath left")
            }
            _ => {
                if let Some(times) = self.warnings.closed.due(now) {
                    tracing::warn!(datapath = peer.ccp.id().0, %why, times, "disconnected a \
                        datapath until its next message");
                }
            }
        }
        agent.on_disconnect(peer.ccp.id());
        if let Some(address) = address(&peer.address) {
            self.by_address.remove(&address);
        }
    }

    fn process(&mut self, agent: &mut Agent, now: Time) {
        let arrived = std::mem::take(&mut self.arrived);
        for one in &arrived {
            let Some(index) = self.find_or_add_peer(one, agent, now) else {
                self.dropped += 1;
                continue;
            };
            let start = one.slot * DATAGRAM_BYTES_MAX;
            let datagram = &self.buffer[start..start + one.len];
            let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            let result = if one.truncated {
                Err(too_long())
            } else {
                peer.receive(datagram, agent, now)
            };
            if let Err(why) = result {
                self.close(index, agent, now, &PeerCloseReason::Garbage(why));
            }
        }
        self.arrived = arrived;
    }
}

impl DatapathLink for Datagram {
    fn set_id_base(&mut self, base: u32) {
        self.base = base;
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        self.now = now;
        if !std::mem::replace(&mut self.peers_restored, true) {
            self.restore_peers(agent, now);
        }
        if !self.is_batching {
            // A single datagram is answered before the next receive call, for low latency.
            let any = self.receive_datagrams(now) > 0;
            self.process(agent, now);
            self.is_batching = any && self.last_receive_succeeded;
            self.last_receive_succeeded = any;
            return any;
        }
        for round in 0..RECEIVE_CALLS_MAX {
            let taken = self.receive_datagrams(now);
            self.process(agent, now);
            self.is_batching = taken > 1;
            if !self.is_batching {
                self.last_receive_succeeded = taken > 0;
                return round > 0 || taken > 0;
            }
        }
        true
    }

    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &WireCommand) {
        let index = (to.0 - self.base) as usize;
        let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if let Err(why) = peer.send(command, agent, now) {
            self.close(index, agent, now, &why);
        }
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        let mut again = false;
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers[index].as_mut() else {
                continue;
            };
            match peer.flush(&self.socket.fd) {
                Ok(()) => again |= peer.is_blocked_unwatched(),
                Err(why) => self.close(index, agent, self.now, &why),
            }
        }
        again
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        watched.push((self.socket.fd.as_fd(), PollFlags::POLLIN));
        let waiting = self
            .peers
            .iter()
            .flatten()
            .filter_map(DatagramPeer::fd_to_watch);
        watched.extend(waiting.map(|fd| (fd, PollFlags::POLLOUT)));
    }
}

impl ReceivedDatagram {
    fn is_trusted(&self) -> bool {
        self.uid.is_some_and(socket::is_trusted)
    }

    fn new(slot: usize, message: &RecvMsg<'_, '_, UnixAddr>) -> ReceivedDatagram {
        let uid = message.cmsgs().ok().and_then(|mut all| {
            all.find_map(|one| match one {
                ControlMessageOwned::ScmCredentials(who) => Some(who.uid()),
                _ => None,
            })
        });
        // For unbound senders the kernel returns no address, and nix panics when asked for its
        // path.
        let from = message
            .address
            .filter(|from| from.len() as usize > size_of::<nix::libc::sa_family_t>());
        let cut = message.flags.contains(MsgFlags::MSG_TRUNC);
        ReceivedDatagram {
            slot,
            len: message.bytes,
            from,
            uid,
            truncated: cut,
        }
    }
}

/// Cause for closing a peer.
#[derive(Debug, thiserror::Error)]
enum PeerCloseReason {
    #[error("it sent an invalid message: {0}")]
    Garbage(WireError),
    #[error("it does not read; {0} messages are queued for it")]
    Stuck(usize),
    #[error("its socket is gone: {0}")]
    Gone(Errno),
    #[error("a process of another user took over its path")]
    Replaced,
}

fn address(address: &UnixAddr) -> Option<Address> {
    use std::os::unix::ffi::OsStrExt;
    match (address.path(), address.as_abstract()) {
        (Some(path), _) if !path.as_os_str().is_empty() => {
            Some(path.as_os_str().as_bytes().to_vec())
        }
        (_, Some(name)) => Some([&[0], name].concat()),
        _ => None,
    }
}

/// Checks only the message type; the message may still be malformed.
fn is_ready(datagram: &[u8]) -> bool {
    datagram.len() >= v1::HEADER_BYTES && datagram.starts_with(&[5, 0])
}

fn too_long() -> WireError {
    WireError::TooLong {
        what: "a datagram",
        is: DATAGRAM_BYTES_MAX + 1,
        most: DATAGRAM_BYTES_MAX,
    }
}
