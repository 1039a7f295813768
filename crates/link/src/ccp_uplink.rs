//! The datapath's end of a CCP agent's socket: version-1 messages over Unix datagrams.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ccplane_agent::CcpV1Client;
use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent, v1};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, UnixAddr, bind, connect, recv, send};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::unlink;

use super::backoff::Backoff;
use super::derived_path::DerivedPath;
use super::random;
use super::warning::Warning;
use super::{AgentConnection, CcpAddress, LinkError, SendOutcome, socket};

/// Longest datagram for the agent, bytes; the reference agent's receive buffer is no larger.
const DATAGRAM_BYTES_MAX: usize = 1024;
/// Limit of datagrams per call of `receive`, so that an agent that sends without pause cannot
/// starve the datapath.
const DATAGRAMS_PER_CALL_MAX: usize = 64;

/// A connection to a CCP agent's socket that is re-established when an agent returns.
///
/// The agent replies to the path this socket is bound to, in the directory for temporary files. The
/// socket is connected, so the kernel rejects datagrams from anyone but the agent.
#[derive(Debug)]
pub struct CcpUplink {
    path: PathBuf,
    client: CcpV1Client,
    socket: Option<CcpEnd>,
    /// Messages to be sent with the next flush.
    datagram: Vec<u8>,
    buffer: Box<[u8]>,
    backoff: Backoff,
    /// Time of the last call that passed a time.
    now: Time,
    garbage: Warning,
}

/// The socket, and the paths under which agents reach it.
#[derive(Debug)]
struct CcpEnd {
    fd: OwnedFd,
    path: PathBuf,
    /// Symbolic link for portus 0.6 and 0.7.
    _derived: Option<DerivedPath>,
}

impl Drop for CcpEnd {
    fn drop(&mut self) {
        // Ignore errors: the path may already be gone.
        let _ = unlink(&self.path);
    }
}

impl CcpUplink {
    /// Creates an unconnected uplink for flows of `algorithm`.
    pub fn new(address: &CcpAddress, algorithm: &str) -> CcpUplink {
        CcpUplink {
            path: address.path.clone(),
            client: CcpV1Client::new(algorithm, address.timeout),
            socket: None,
            datagram: Vec::with_capacity(DATAGRAM_BYTES_MAX),
            buffer: vec![0; v1::MESSAGE_BYTES_MAX].into_boxed_slice(),
            backoff: Backoff::new(random::seeded_rng()),
            now: Time::ZERO,
            garbage: Warning::default(),
        }
    }

    fn open(&self) -> Result<CcpEnd, Errno> {
        let fd = socket::open(SockType::Datagram)?;
        // Connect before binding, so that nobody else can send to the socket.
        connect(fd.as_raw_fd(), &UnixAddr::new(&self.path)?)?;
        // The agent may run as another user. A socket's mode before `bind` is the mode of its path,
        // less the umask.
        let all = Mode::S_IRUSR | Mode::S_IWUSR | Mode::S_IWGRP | Mode::S_IWOTH;
        fchmod(&fd, all)?;
        let path = unique_path();
        bind(fd.as_raw_fd(), &UnixAddr::new(&path)?)?;
        let _derived = match DerivedPath::create_for(&self.path, &path) {
            Some(Err(why)) => {
                let path = self.path.display();
                tracing::warn!(%path, %why, "cannot create the link that portus 0.6 and 0.7 reply \
                    to (0.8 does not need it)");
                None
            }
            linked => linked.and_then(Result::ok),
        };
        let end = CcpEnd { fd, path, _derived };
        nix::sys::stat::fchmodat(
            nix::fcntl::AT_FDCWD,
            &end.path,
            all,
            nix::sys::stat::FchmodatFlags::FollowSymlink,
        )?;
        Ok(end)
    }

    fn on_lost(&mut self, why: &dyn std::fmt::Display) {
        tracing::warn!(path = %self.path.display(), %why, "lost the connection to the agent");
        self.socket = None;
        self.datagram.clear();
        self.backoff.on_failure(self.now);
    }
}

/// Returns a path unique to this connection. Agents remember paths: a reused one would be taken for
/// the previous datapath.
fn unique_path() -> PathBuf {
    static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("ccplane-{}-{number}.sock", std::process::id()))
}

impl AgentConnection for CcpUplink {
    fn connect(&mut self, now: Time) -> Result<(), LinkError> {
        self.now = now;
        if self.socket.is_some() {
            return Ok(());
        }
        self.backoff.admit(now)?;
        let end = self.open().map_err(|why| {
            self.backoff.on_absent(now);
            LinkError::NoCcpAgent {
                path: self.path.clone(),
                why,
            }
        })?;
        self.backoff.connected(now);
        self.datagram.clear();
        self.client.on_connected(now);
        self.socket = Some(end);
        Ok(())
    }

    fn next_attempt(&self, now: Time) -> Duration {
        self.backoff.next_attempt().since(now)
    }

    fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    fn queue_event(&mut self, event: &WireEvent<'_>) -> SendOutcome {
        if self.socket.is_none() {
            return SendOutcome::NoAgent;
        }
        if self.datagram.len() + CcpV1Client::message_len_max(event) > DATAGRAM_BYTES_MAX
            && !self.flush()
        {
            return match self.socket {
                Some(_) => SendOutcome::Full,
                None => SendOutcome::NoAgent,
            };
        }
        self.client.encode_event(event, &mut self.datagram);
        SendOutcome::Queued
    }

    fn flush(&mut self) -> bool {
        let Some(end) = &self.socket else {
            return false;
        };
        if self.datagram.is_empty() {
            return true;
        }
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match send(end.fd.as_raw_fd(), &self.datagram, flags) {
            Ok(_) => {
                self.datagram.clear();
                true
            }
            Err(why) if socket::is_transient(why) => false,
            Err(why) => {
                self.on_lost(&why);
                false
            }
        }
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(WireCommand)) {
        self.now = now;
        for _ in 0..DATAGRAMS_PER_CALL_MAX {
            let Some(end) = &self.socket else { return };
            match recv(end.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => {
                    if let Err(why) = self.client.handle(now, &self.buffer[..length])
                        && let Some(times) = self.garbage.due(now)
                    {
                        tracing::warn!(path = %self.path.display(), %why, times, "the agent sent \
                            an invalid message");
                    }
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(why) => self.on_lost(&why),
            }
        }
        if self.socket.is_some() {
            self.client.on_deadline(now);
        }
        while let Some(command) = self.client.poll() {
            sink(command);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.socket.as_ref().and(self.client.next_deadline())
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(|end| end.fd.as_fd())
    }
}
