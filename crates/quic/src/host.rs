//! QUIC connections on a UDP socket, run by whoever calls [`Host::turn`]: a connection has one
//! stream, in both directions.
//!
//! It is what `ccplane quic` and experiments use, on any stack that is built in, with any control:
//! the stack's own, or a [`Plane`](crate::Plane)'s. An application has a driver of its own, noq's
//! for example, and needs nothing but [`Plane`](crate::Plane).
#![expect(
    clippy::disallowed_methods,
    reason = "it waits for deadlines of a clock"
)]

mod congestion;
mod noq;
mod qlog;
#[cfg(feature = "host-runtime")]
mod runtime;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Instant;

use ccplane_link::identity::{Fingerprint, Identity, IdentityError};
use ccplane_units::{Duration, Rate};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::{PlaneError, Stack};

pub use congestion::{Congestion, Native, UnknownNative};

/// The protocol (ALPN): a file a stream.
const PROTOCOL: &[u8] = b"ccplane-quic/1";

/// Part of all connections that peers may hold who have not proved their address.
const UNPROVED_PART: usize = 4;

/// How a host is set up.
#[derive(Debug)]
pub struct Options {
    /// The QUIC stack; see [`built_in`].
    pub stack: Stack,
    /// Where to bind.
    pub local: SocketAddr,
    /// Bytes under way that a connection has room for, at either end.
    pub window: usize,
    /// How long a peer may be silent; for ever where there is none.
    pub idle_timeout: Option<Duration>,
    /// The stack's own limit on what a connection sends, whatever decides its window; nothing is no
    /// limit. noq alone has one.
    pub max_rate: Option<Rate>,
    /// A folder for a qlog of each connection, `client-N.sqlog` or `server-N.sqlog`; made where it
    /// is not there.
    pub qlog: Option<PathBuf>,
    /// Connections at once at most; one more is refused. Each may hold twice the window.
    pub most: usize,
    /// Connections of one address at once at most, where the stack is noq; an IPv6 /64 counts as
    /// one address.
    pub per_address: usize,
    /// What decides the windows of its connections, whoever opened them.
    pub congestion: Congestion,
}

impl Options {
    /// The window as the stacks take it: 32 bits, as s2n-quic has no more for what is to be sent.
    fn window(&self) -> u32 {
        u32::try_from(self.window).unwrap_or(u32::MAX)
    }

    /// Connections at once whose peer has not proved its address. With more of them, a peer has to
    /// prove it by a Retry packet (RFC 9000, 8.1.2), which costs it a round trip.
    fn unproved_max(&self) -> usize {
        (self.most / UNPROVED_PART).max(1)
    }
}

/// Why a host cannot be made, or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The stack is not in this build.
    #[error("{stack} is not built in: it needs the feature `{feature}`")]
    NotBuiltIn {
        /// Its name.
        stack: &'static str,
        /// The feature of the command that brings it.
        feature: &'static str,
    },
    /// The stack has no such control of its own.
    #[error(transparent)]
    Native(#[from] UnknownNative),
    /// The stack has no limit of its own.
    #[error("{stack} has no limit of its own on what a connection sends: noq has")]
    NoLimit {
        /// Its name.
        stack: &'static str,
    },
    /// The socket could not be made.
    #[error("no UDP socket at {address}: {why}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// The socket does not work any more.
    #[error("cannot {what}: {why}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// Why.
        why: io::Error,
    },
    /// A log cannot be made.
    #[error("no qlog in {folder}: {why}")]
    Log {
        /// The folder.
        folder: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// No certificate.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The plane is of another stack.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The stack cannot begin.
    #[error("{stack} cannot begin: {why}")]
    Start {
        /// Its name.
        stack: &'static str,
        /// Why.
        why: String,
    },
    /// The stack runs no more: its socket failed, or it panicked.
    #[error("{stack} has ended by itself")]
    Ended {
        /// Its name.
        stack: &'static str,
    },
    /// No connection can be begun there.
    #[error("no connection to {to}: {why}")]
    Connect {
        /// Where to.
        to: SocketAddr,
        /// Why.
        why: String,
    },
}

/// A connection in figures. What its stack does not tell is zero, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Smoothed RTT.
    pub srtt: Duration,
    /// The window, bytes.
    pub cwnd: u64,
    /// The slow-start threshold, bytes; nothing where the control has none.
    pub ssthresh: Option<u64>,
    /// The ordered pacing rate, bytes/s; nothing where the stack paces by itself, or does not say.
    pub pacing_rate: Option<u64>,
    /// The largest UDP payload, bytes.
    pub mtu: u16,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost, without probes for the MTU.
    pub lost: u64,
}

/// Whether a host can be made of this stack; else an error that names the feature.
pub fn built_in(stack: Stack) -> Result<(), HostError> {
    let (is, feature) = match stack {
        Stack::Noq => (true, "noq"),
        Stack::Quinn => (cfg!(feature = "host-quinn"), "quinn"),
        Stack::S2n => (cfg!(feature = "host-s2n"), "s2n"),
    };
    let stack = stack.name();
    if is {
        Ok(())
    } else {
        Err(HostError::NotBuiltIn { stack, feature })
    }
}

/// The error code with which a connection is closed that is not needed any more, or that its
/// application gives up.
const fn code(well: bool) -> u32 {
    if well { 0 } else { 1 }
}

/// Which side of its connections a host is on.
enum Side<'i> {
    Opens(Option<Fingerprint>),
    Accepts(&'i Identity),
}

/// Why a host that listens opens no connection.
const LISTENS: &str = "this host accepts connections";

/// A socket and its connections, of one stack.
trait Driver: Send {
    fn local(&self) -> SocketAddr;
    fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError>;
    fn accepted(&mut self) -> Option<u64>;
    fn write(&mut self, id: u64, bytes: &[u8]) -> usize;
    fn finish(&mut self, id: u64);
    fn read(&mut self, id: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize;
    fn has_sent_all(&self, id: u64) -> bool;
    fn has_read_all(&self, id: u64) -> bool;
    fn is_connected(&self, id: u64) -> bool;
    fn failure(&self, id: u64) -> Option<&str>;
    fn stats(&mut self, id: u64) -> Option<Stats>;
    fn close(&mut self, id: u64, well: bool);
    fn count(&self) -> usize;
    /// Runs once through everything, without waiting; whether there was anything to do.
    fn work(&mut self) -> Result<bool, HostError>;
    /// Returns true if a peer was refused since the last call, as there are as many connections as
    /// allowed.
    fn was_crowded(&mut self) -> bool {
        false
    }
    /// What ends the wait for more to do: an event, or a moment.
    fn awaits(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>);
    /// Socket of strangers, which ends it too when it is readable.
    fn awaits_strangers(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A socket and its connections.
pub struct Host(Box<dyn Driver>);

impl Host {
    /// A host that opens connections to hosts of this fingerprint, or to whoever is there.
    pub fn bind(options: Options, trusted: Option<Fingerprint>) -> Result<Host, HostError> {
        Host::new(options, &Side::Opens(trusted))
    }

    /// A host that accepts them, under this identity.
    pub fn listen(options: Options, identity: &Identity) -> Result<Host, HostError> {
        Host::new(options, &Side::Accepts(identity))
    }

    fn new(options: Options, side: &Side<'_>) -> Result<Host, HostError> {
        built_in(options.stack)?;
        if let Some(folder) = &options.qlog {
            fs::create_dir_all(folder).map_err(|why| HostError::Log {
                folder: folder.clone(),
                why,
            })?;
        }
        let driver: Box<dyn Driver> = match options.stack {
            Stack::Noq => Box::new(noq::Noq::new(options, side)?),
            #[cfg(feature = "host-quinn")]
            Stack::Quinn => Box::new(runtime::quinn::host(options, side)?),
            #[cfg(feature = "host-s2n")]
            Stack::S2n => Box::new(runtime::s2n::host(options, side)?),
            #[cfg(not(all(feature = "host-quinn", feature = "host-s2n")))]
            _ => unreachable!("it is built in"),
        };
        Ok(Host(driver))
    }

    /// Where it is bound.
    pub fn local(&self) -> SocketAddr {
        self.0.local()
    }

    /// Begins a connection. Whether it comes to be is seen later.
    pub fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError> {
        self.0.connect(to)
    }

    /// The next connection that a peer has opened.
    pub fn accepted(&mut self) -> Option<u64> {
        self.0.accepted()
    }

    /// Writes to a connection's stream as much as there is room for; how much.
    pub fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        self.0.write(id, bytes)
    }

    /// The stream ends with what was written.
    pub fn finish(&mut self, id: u64) {
        self.0.finish(id);
    }

    /// Reads what has arrived, `most` bytes at most; how many.
    pub fn read(&mut self, id: u64, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        self.0.read(id, most, &mut take)
    }

    /// Everything that was written, and the stream's end, is acknowledged.
    pub fn has_sent_all(&self, id: u64) -> bool {
        self.0.has_sent_all(id)
    }

    /// Everything that the peer wrote was read, and its end.
    pub fn has_read_all(&self, id: u64) -> bool {
        self.0.has_read_all(id)
    }

    /// Its handshake is over.
    pub fn is_connected(&self, id: u64) -> bool {
        self.0.is_connected(id)
    }

    /// Why it ended early, if it did.
    pub fn failure(&self, id: u64) -> Option<&str> {
        self.0.failure(id)
    }

    /// A connection in figures.
    pub fn stats(&mut self, id: u64) -> Option<Stats> {
        self.0.stats(id)
    }

    /// Returns true if a peer was refused since the last call, as there are as many connections as
    /// allowed. noq alone reports it.
    pub fn was_crowded(&mut self) -> bool {
        self.0.was_crowded()
    }

    /// Ends a connection: `well`, or given up. The peer is told at the next turns.
    pub fn close(&mut self, id: u64, well: bool) {
        self.0.close(id, well);
    }

    /// Connections that live, those included whose peer is still to hear of their end.
    pub fn count(&self) -> usize {
        self.0.count()
    }

    /// Runs once through everything: receives, takes deadlines, sends. Where there was nothing to
    /// do it waits for the next event, `longest` at most.
    pub fn turn(&mut self, longest: Duration) -> Result<(), HostError> {
        Host::turn_all(std::slice::from_mut(self), longest)
    }

    /// The same for several that share a thread.
    pub fn turn_all(hosts: &mut [Host], longest: Duration) -> Result<(), HostError> {
        let mut busy = false;
        for host in hosts.iter_mut() {
            busy |= host.0.work()?;
        }
        if busy {
            Ok(())
        } else {
            Host::wait_all(hosts, longest)
        }
    }

    fn wait_all(hosts: &[Host], longest: Duration) -> Result<(), HostError> {
        let awaited: Vec<_> = hosts.iter().map(|host| host.0.awaits()).collect();
        let next = awaited.iter().filter_map(|(_, _, due)| *due).min();
        let now = Instant::now();
        let longest = next.map_or(longest, |next| {
            longest.min(next.saturating_duration_since(now).into())
        });
        let mut fds: Vec<PollFd<'_>> = awaited
            .iter()
            .map(|(fd, events, _)| PollFd::new(*fd, *events))
            .collect();
        let strangers = hosts.iter().filter_map(|host| host.0.awaits_strangers());
        fds.extend(strangers.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let timeout = TimeSpec::from_duration(longest.to_std());
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(why) => Err(HostError::Socket {
                what: "wait",
                why: why.into(),
            }),
        }
    }
}
