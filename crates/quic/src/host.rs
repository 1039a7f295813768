//! QUIC connections on a UDP socket, driven by calls of [`QuicHost::poll`]. Each connection has one
//! bidirectional stream.
//!
//! It serves `ccplane send --over quic` and experiments, on any stack that is built in and with any
//! congestion control: the stack's own or a [`Plane`](crate::QuicPlane)'s. An application that uses
//! a stack's own driver, such as noq's, needs only a [`Plane`](crate::QuicPlane).
#![expect(
    clippy::disallowed_methods,
    reason = "the thread waits for deadlines of a clock"
)]

mod configuration;
mod congestion;
mod connections;
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

pub use congestion::{Native, QuicCongestion, UnknownNative};

/// ALPN protocol identifier: one file per stream.
const ALPN_PROTOCOL: &[u8] = b"ccplane-quic/1";

/// Divisor of the connection limit that gives the limit for peers with unverified addresses.
const UNVALIDATED_LIMIT_DIVISOR: usize = 4;

/// Options of a host.
#[derive(Debug)]
pub struct HostOptions {
    /// QUIC stack; see [`built_in`].
    pub stack: Stack,
    /// Local address.
    pub local: SocketAddr,
    /// Flow-control window of a connection in either direction, bytes.
    pub window: usize,
    /// Time without packets from the peer after which a connection fails; `None` disables the
    /// timeout.
    pub idle_timeout: Option<Duration>,
    /// Rate limit per connection, enforced by the stack independently of the congestion control;
    /// supported only by noq.
    pub max_rate: Option<Rate>,
    /// Directory for one qlog file per connection, `client-N.sqlog` or `server-N.sqlog`; created if
    /// it does not exist.
    pub qlog: Option<PathBuf>,
    /// Differentiated Services codepoint of the packets, 0 to 63; only noq supports other than 0.
    pub dscp: u8,
    /// Maximum number of connections; further ones are refused. Each may hold twice the window.
    pub connections_max: usize,
    /// Maximum number of connections per address, or per IPv6 /64. Supported only by noq.
    pub per_address: usize,
    /// Congestion control of all connections.
    pub congestion: QuicCongestion,
}

impl HostOptions {
    /// Returns the window in 32 bits, the limit of s2n-quic's send buffer.
    fn window(&self) -> u32 {
        u32::try_from(self.window).unwrap_or(u32::MAX)
    }

    /// Returns the maximum number of connections from unverified addresses. Beyond it a peer has to
    /// verify its address with a Retry packet (RFC 9000, section 8.1.2), which costs a round trip.
    fn unverified_max(&self) -> usize {
        (self.connections_max / UNVALIDATED_LIMIT_DIVISOR).max(1)
    }
}

/// Error of a host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The stack is not part of this build.
    #[error("{stack} is not part of this build (feature `{feature}`)")]
    NotBuiltIn {
        /// Name of the stack.
        stack: &'static str,
        /// Cargo feature of the command that enables it.
        feature: &'static str,
    },
    /// The stack does not have this congestion control.
    #[error(transparent)]
    Native(#[from] UnknownNative),
    /// The stack has no rate limit.
    #[error("{stack} cannot limit the rate of a connection")]
    NoLimit {
        /// Name of the stack.
        stack: &'static str,
    },
    /// The stack cannot mark its packets.
    #[error("{stack} cannot set the DSCP of its packets")]
    NoDscp {
        /// Name of the stack.
        stack: &'static str,
    },
    /// The socket could not be opened.
    #[error("cannot bind a UDP socket to {address}: {why}")]
    Bind {
        /// Local address.
        address: SocketAddr,
        /// Error of the operating system.
        why: io::Error,
    },
    /// A socket operation failed.
    #[error("cannot {what}: {why}")]
    Socket {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        why: io::Error,
    },
    /// The log directory or file could not be created.
    #[error("cannot write a qlog in {folder}: {why}")]
    Log {
        /// Log directory.
        folder: PathBuf,
        /// Error of the operating system.
        why: io::Error,
    },
    /// The certificate could not be loaded or created.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The plane was created for another stack.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The stack could not be started.
    #[error("cannot start {stack}: {why}")]
    Start {
        /// Name of the stack.
        stack: &'static str,
        /// Reason.
        why: String,
    },
    /// The stack's thread has ended: its socket failed, or it panicked.
    #[error("{stack} has ended unexpectedly")]
    Ended {
        /// Name of the stack.
        stack: &'static str,
    },
    /// The connection could not be started.
    #[error("cannot connect to {to}: {why}")]
    Connect {
        /// Remote address.
        to: SocketAddr,
        /// Reason.
        why: String,
    },
}

/// Statistics of a connection. Values that the stack does not report are zero or `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicStats {
    /// Smoothed RTT.
    pub srtt: Duration,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Slow-start threshold, bytes; `None` if the control has none.
    pub ssthresh: Option<u64>,
    /// Pacing rate set by the control, bytes/s; `None` if the stack chooses its own or does not
    /// report it.
    pub pacing_rate: Option<u64>,
    /// Largest UDP payload, bytes.
    pub mtu: u16,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost, without MTU probes.
    pub lost: u64,
}

/// Returns an error that names the missing Cargo feature if the stack is not built in.
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

/// Returns the application error code of CONNECTION_CLOSE: 0 for a normal end, 1 for an abort.
const fn code(well: bool) -> u32 {
    if well { 0 } else { 1 }
}

/// Role of a host in its connections.
enum HostRole<'i> {
    Client(Option<Fingerprint>),
    Server(&'i Identity),
}

/// Error for `connect` on a listening host.
const LISTENING_HOST_ERROR: &str = "this host accepts connections";

/// Socket and connections of one stack.
trait Driver: Send {
    fn local(&self) -> SocketAddr;
    fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError>;
    fn accept(&mut self) -> Option<u64>;
    fn connection(&self, id: u64) -> Option<&dyn Connection>;
    fn connection_mut(&mut self, id: u64) -> Option<&mut dyn Connection>;
    fn connection_count(&self) -> usize;
    /// Runs one turn without waiting. Returns true if there was anything to do.
    fn process(&mut self) -> Result<bool, HostError>;
    /// Returns true if a peer was refused since the last call because of the limit on all
    /// connections.
    fn was_crowded(&mut self) -> bool {
        false
    }
    /// Returns the descriptor, events and deadline to wait for.
    fn wait_source(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>);
    /// Returns the socket of unverified peers, whose readability also ends the wait.
    fn unverified_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Connection of a driver with its stream; see the functions of [`QuicHost`].
trait Connection {
    fn write(&mut self, bytes: &[u8]) -> usize;
    fn finish(&mut self);
    fn read(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> usize;
    fn status(&self) -> &ConnectionStatus;
    fn stats(&mut self) -> QuicStats;
    fn close(&mut self, graceful: bool);
}

/// State of a connection and its stream.
#[derive(Default)]
struct ConnectionStatus {
    connected: bool,
    /// All written data and the end of the stream are acknowledged.
    sent_all: bool,
    /// The peer's stream was read to its end.
    read_all: bool,
    failure: Option<String>,
}

/// QUIC socket with its connections.
pub struct QuicHost(Box<dyn Driver>);

impl QuicHost {
    /// Creates a host that opens connections to servers with the fingerprint `trusted`, or to any
    /// server.
    pub fn bind(options: HostOptions, trusted: Option<Fingerprint>) -> Result<QuicHost, HostError> {
        QuicHost::new(options, &HostRole::Client(trusted))
    }

    /// Creates a host that accepts connections under `identity`.
    pub fn listen(options: HostOptions, identity: &Identity) -> Result<QuicHost, HostError> {
        QuicHost::new(options, &HostRole::Server(identity))
    }

    fn new(options: HostOptions, side: &HostRole<'_>) -> Result<QuicHost, HostError> {
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
            Stack::Quinn => Box::new(runtime::quinn::driver(&options, side)?),
            #[cfg(feature = "host-s2n")]
            Stack::S2n => Box::new(runtime::s2n::driver(&options, side)?),
            #[cfg(not(all(feature = "host-quinn", feature = "host-s2n")))]
            _ => unreachable!("the stack is part of this build"),
        };
        Ok(QuicHost(driver))
    }

    /// Returns the local address.
    pub fn local(&self) -> SocketAddr {
        self.0.local()
    }

    /// Starts a connection; later calls report whether it was established.
    pub fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError> {
        self.0.connect(to)
    }

    /// Returns the next accepted connection.
    pub fn accept(&mut self) -> Option<u64> {
        self.0.accept()
    }

    /// Writes to a connection's stream as far as there is room and returns the number of bytes.
    pub fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        let connection = self.0.connection_mut(id);
        connection.map_or(0, |connection| connection.write(bytes))
    }

    /// Ends the outgoing stream.
    pub fn finish(&mut self, id: u64) {
        if let Some(connection) = self.0.connection_mut(id) {
            connection.finish();
        }
    }

    /// Passes up to `most` received bytes to `take` and returns their number.
    pub fn read(&mut self, id: u64, most: usize, mut take: impl FnMut(&[u8])) -> usize {
        let connection = self.0.connection_mut(id);
        connection.map_or(0, |connection| connection.read(most, &mut take))
    }

    /// Returns true if all written data and the end of the stream are acknowledged.
    pub fn has_sent_all(&self, id: u64) -> bool {
        let connection = self.0.connection(id);
        connection.is_some_and(|connection| connection.status().sent_all)
    }

    /// Returns true if the peer's stream was read to its end.
    pub fn has_read_all(&self, id: u64) -> bool {
        let connection = self.0.connection(id);
        connection.is_some_and(|connection| connection.status().read_all)
    }

    /// Returns true once the handshake is complete.
    pub fn is_connected(&self, id: u64) -> bool {
        let connection = self.0.connection(id);
        connection.is_some_and(|connection| connection.status().connected)
    }

    /// Returns the reason for which the connection failed, if it did.
    pub fn failure(&self, id: u64) -> Option<&str> {
        self.0.connection(id)?.status().failure.as_deref()
    }

    /// Returns the statistics of a connection.
    pub fn stats(&mut self, id: u64) -> Option<QuicStats> {
        Some(self.0.connection_mut(id)?.stats())
    }

    /// Returns true if a peer was refused since the last call because of the limit on all
    /// connections. Only noq reports it.
    pub fn was_crowded(&mut self) -> bool {
        self.0.was_crowded()
    }

    /// Closes a connection, normally if `well` is set, else with an abort. The next turns notify
    /// the peer.
    pub fn close(&mut self, id: u64, graceful: bool) {
        if let Some(connection) = self.0.connection_mut(id) {
            connection.close(graceful);
        }
    }

    /// Returns the number of connections, including closed ones whose peer is not notified yet.
    pub fn connection_count(&self) -> usize {
        self.0.connection_count()
    }

    /// Runs one turn: receives, runs expired timers, sends. If there was nothing to do, waits up to
    /// `longest` for the next event.
    pub fn poll(&mut self, timeout: Duration) -> Result<(), HostError> {
        QuicHost::poll_all(std::slice::from_mut(self), timeout)
    }

    /// Runs one turn of several hosts on one thread.
    pub fn poll_all(hosts: &mut [QuicHost], timeout: Duration) -> Result<(), HostError> {
        let mut busy = false;
        for host in hosts.iter_mut() {
            busy |= host.0.process()?;
        }
        if busy {
            Ok(())
        } else {
            QuicHost::wait_all(hosts, timeout)
        }
    }

    fn wait_all(hosts: &[QuicHost], longest: Duration) -> Result<(), HostError> {
        let awaited: Vec<_> = hosts.iter().map(|host| host.0.wait_source()).collect();
        let next = awaited.iter().filter_map(|(_, _, due)| *due).min();
        let now = Instant::now();
        let longest = next.map_or(longest, |next| {
            longest.min(next.saturating_duration_since(now).into())
        });
        let mut fds: Vec<PollFd<'_>> = awaited
            .iter()
            .map(|(fd, events, _)| PollFd::new(*fd, *events))
            .collect();
        let unverified = hosts.iter().filter_map(|host| host.0.unverified_fd());
        fds.extend(unverified.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
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
