//! noq's state machines on a UDP socket, run by whoever calls [`Host::turn`]: a connection has one stream, in both directions.
//!
//! It is what `ccplane quic` and experiments use, with any control, noq's own or a [`Plane`](crate::Plane)'s. An application has a driver of its own,
//! noq's for example, and needs nothing but [`Plane`](crate::Plane).
#![expect(clippy::disallowed_methods, reason = "the driver of the connections' clock")]

mod congestion;
mod connection;
mod line;
mod qlog;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ccplane_identity::{Fingerprint, Identity, IdentityError, NAME};
use ccplane_udp::{Inbox, Socket, passes};
use ccplane_units::{Duration, Rate};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, ConnectError, Connection as State, ConnectionError, ConnectionHandle, DatagramEvent, EcnCodepoint,
    Endpoint, EndpointConfig, FourTuple, IdleTimeout, Incoming, ServerConfig, TransportConfig, VarInt,
};

use crate::PlaneError;

pub use congestion::{Congestion, Native, UnknownNative};
use connection::Connection;
use line::Line;
use qlog::Qlog;

/// The protocol (ALPN): a file a stream.
const PROTOCOL: &[u8] = b"ccplane-quic/1";
/// Batches of one connection before the others have their turn.
const BATCHES: usize = 32;

/// How a host is set up.
#[derive(Debug)]
pub struct Options {
    /// Where to bind.
    pub local: SocketAddr,
    /// Bytes under way that a connection has room for, at either end.
    pub window: usize,
    /// How long a peer may be silent; for ever where there is none.
    pub idle_timeout: Option<Duration>,
    /// The stack's own limit on what a connection sends, whatever decides its window; nothing is no limit.
    pub max_rate: Option<Rate>,
    /// A folder for a qlog of each connection, `client-N.sqlog` or `server-N.sqlog`; made where it is not there.
    pub qlog: Option<PathBuf>,
    /// Connections at once at most; one more is refused. Each may hold twice the window.
    pub most: usize,
    /// What decides the windows of connections that it accepts.
    pub accepted: Congestion,
}

/// Why a host cannot be made, or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
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
    /// No connection can be begun there.
    #[error("no connection to {to}: {why}")]
    Connect {
        /// Where to.
        to: SocketAddr,
        /// Why.
        why: ConnectError,
    },
}

/// A connection in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Smoothed RTT.
    pub srtt: Duration,
    /// The window, bytes.
    pub cwnd: u64,
    /// The slow-start threshold, bytes; nothing where the control has none.
    pub ssthresh: Option<u64>,
    /// The ordered pacing rate, bytes/s; nothing where noq paces by itself.
    pub pacing_rate: Option<u64>,
    /// The largest UDP payload, bytes.
    pub mtu: u16,
    /// Packets sent.
    pub sent: u64,
    /// Packets lost, without probes for the MTU.
    pub lost: u64,
}

/// A socket and its connections.
pub struct Host {
    options: Options,
    endpoint: Endpoint,
    line: Line,
    inbox: Inbox,
    connections: BTreeMap<u64, Connection>,
    /// The numbers of connections by noq's handles.
    numbers: HashMap<ConnectionHandle, u64>,
    next: u64,
    accepted: VecDeque<u64>,
    /// Answers of the endpoint itself.
    answer: Vec<u8>,
}

impl Host {
    /// A host that opens connections.
    pub fn bind(options: Options) -> Result<Host, HostError> {
        Host::new(options, None)
    }

    /// A host that accepts them too, under this identity.
    pub fn listen(options: Options, identity: &Identity) -> Result<Host, HostError> {
        let tls = QuicServerConfig::try_from(identity.server(PROTOCOL, &[])?).map_err(unsuitable)?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(transport(&options, &options.accepted)?));
        config.max_incoming(options.most);
        Host::new(options, Some(config))
    }

    fn new(options: Options, server: Option<ServerConfig>) -> Result<Host, HostError> {
        if let Some(folder) = &options.qlog {
            fs::create_dir_all(folder).map_err(|why| HostError::Log {
                folder: folder.clone(),
                why,
            })?;
        }
        let address = options.local;
        let socket = Socket::bind(address).map_err(|why| HostError::Bind { address, why })?;
        let endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), server.map(Arc::new), true);
        Ok(Host {
            options,
            endpoint,
            line: Line::new(socket),
            inbox: Inbox::new(),
            connections: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 1,
            accepted: VecDeque::new(),
            answer: Vec::new(),
        })
    }

    /// Where it is bound.
    pub fn local(&self) -> SocketAddr {
        self.line.socket.local()
    }

    /// Begins a connection to a host of this fingerprint, or to whoever is there. Whether it comes to be is seen later.
    pub fn connect(
        &mut self,
        to: SocketAddr,
        trusted: Option<Fingerprint>,
        congestion: &Congestion,
    ) -> Result<u64, HostError> {
        let tls = ccplane_identity::client(PROTOCOL, trusted, None)?;
        let tls = QuicClientConfig::try_from(tls).map_err(unsuitable)?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport(&self.options, congestion)?));
        let begun = self.endpoint.connect(Instant::now(), config, to, NAME);
        let (handle, state) = begun.map_err(|why| HostError::Connect { to, why })?;
        Ok(self.keep(handle, state, true))
    }

    /// The next connection that a peer has opened.
    pub fn accepted(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    /// Writes to a connection's stream as much as there is room for; how much.
    pub fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        self.of(id).map_or(0, |connection| connection.write(bytes))
    }

    /// The stream ends with what was written.
    pub fn finish(&mut self, id: u64) {
        if let Some(connection) = self.of(id) {
            connection.finish();
        }
    }

    /// Reads what has arrived, `most` bytes at most; how many.
    pub fn read(&mut self, id: u64, most: usize, take: impl FnMut(&[u8])) -> usize {
        self.of(id).map_or(0, |connection| connection.read(most, take))
    }

    /// Everything that was written, and the stream's end, is acknowledged.
    pub fn has_sent_all(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(Connection::has_sent_all)
    }

    /// Everything that the peer wrote was read, and its end.
    pub fn has_read_all(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(Connection::has_read_all)
    }

    /// Its handshake is over.
    pub fn is_connected(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.connected)
    }

    /// Why it ended early, if it did.
    pub fn failure(&self, id: u64) -> Option<&ConnectionError> {
        self.connections.get(&id)?.failure.as_ref()
    }

    /// A connection in figures.
    pub fn stats(&mut self, id: u64) -> Option<Stats> {
        self.of(id).map(Connection::stats)
    }

    /// Ends a connection: `well`, or given up. The peer is told at the next turns.
    pub fn close(&mut self, id: u64, well: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.close(Instant::now(), well);
        }
    }

    /// Connections that live, those included whose peer is still to hear of their end.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// Runs once through everything: receives, takes deadlines, sends. Where there was nothing to do it waits for the next
    /// event, `longest` at most.
    pub fn turn(&mut self, longest: Duration) -> Result<(), HostError> {
        Host::turn_all(std::slice::from_mut(self), longest)
    }

    /// The same for several that share a thread.
    pub fn turn_all(hosts: &mut [Host], longest: Duration) -> Result<(), HostError> {
        let mut busy = false;
        for host in hosts.iter_mut() {
            busy |= host.work()?;
        }
        if busy { Ok(()) } else { Host::wait_all(hosts, longest) }
    }

    fn of(&mut self, id: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    fn keep(&mut self, handle: ConnectionHandle, state: State, client: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        let mut connection = Connection::new(handle, state, client);
        if let Some(folder) = &self.options.qlog {
            let name = format!("{}-{id}", if client { "client" } else { "server" });
            // A connection goes on without its log.
            connection.log = Qlog::create(folder, &name, client, Instant::now())
                .inspect_err(|why| tracing::warn!("no qlog {name} in {}: {why}", folder.display()))
                .ok();
        }
        self.numbers.insert(handle, id);
        self.connections.insert(id, connection);
        id
    }

    fn work(&mut self) -> Result<bool, HostError> {
        let mut busy = self.receive()?;
        let now = Instant::now();
        for connection in self.connections.values_mut() {
            if connection.state.poll_timeout().is_some_and(|due| due <= now) {
                connection.state.handle_timeout(now);
            }
            while let Some(event) = connection.state.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(connection.handle, event) {
                    connection.state.handle_event(event);
                }
            }
            connection.events();
            connection.note(now);
        }
        busy |= self.transmit(now)?;
        let numbers = &mut self.numbers;
        self.connections.retain(|_, connection| {
            let over = connection.removed && connection.state.is_drained();
            if over {
                numbers.remove(&connection.handle);
            }
            !over
        });
        Ok(busy)
    }

    fn receive(&mut self) -> Result<bool, HostError> {
        let Host {
            endpoint,
            line,
            inbox,
            connections,
            numbers,
            answer,
            ..
        } = self;
        let now = Instant::now();
        let (mut any, mut calls, mut answers) = (false, Vec::new(), Vec::new());
        let received = match line.socket.receive(inbox) {
            Ok(received) => received,
            Err(why) if passes(&why) => return Ok(false),
            Err(why) => return Err(HostError::Socket { what: "receive", why }),
        };
        received.each(|from, ecn, data| {
            any = true;
            let (path, ecn) = (FourTuple::from_remote(from), EcnCodepoint::from_bits(ecn));
            answer.clear();
            match endpoint.handle(now, path, ecn, (&*data).into(), answer) {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    let known = numbers.get(&handle).and_then(|id| connections.get_mut(id));
                    if let Some(connection) = known {
                        connection.state.handle_event(event);
                    }
                }
                Some(DatagramEvent::NewConnection(incoming)) => calls.push(incoming),
                Some(DatagramEvent::Response(transmit)) => answers.push((transmit, std::mem::take(answer))),
                None => {}
            }
        });
        for (transmit, contents) in &answers {
            self.line.respond(transmit, contents)?;
        }
        for incoming in calls {
            self.accept(incoming, now)?;
        }
        Ok(any)
    }

    fn accept(&mut self, incoming: Incoming, now: Instant) -> Result<(), HostError> {
        self.answer.clear();
        let answer = if self.connections.len() >= self.options.most {
            Some(self.endpoint.refuse(incoming, &mut self.answer))
        } else {
            match self.endpoint.accept(incoming, now, &mut self.answer, None) {
                Ok((handle, state)) => {
                    let id = self.keep(handle, state, false);
                    self.accepted.push_back(id);
                    None
                }
                Err(refused) => refused.response,
            }
        };
        match answer {
            Some(transmit) => self.line.respond(&transmit, &self.answer),
            None => Ok(()),
        }
    }

    fn transmit(&mut self, now: Instant) -> Result<bool, HostError> {
        if !self.line.resume()? {
            return Ok(false);
        }
        let mut any = false;
        for connection in self.connections.values_mut() {
            for _ in 0..BATCHES {
                let next = |most, contents: &mut Vec<u8>| connection.state.poll_transmit(now, most, contents);
                match self.line.send(next)? {
                    None => break,
                    Some(true) => any = true,
                    Some(false) => return Ok(true),
                }
            }
        }
        Ok(any)
    }

    fn wait_all(hosts: &mut [Host], longest: Duration) -> Result<(), HostError> {
        let now = Instant::now();
        let due = |host: &Host| {
            let timers = host
                .connections
                .values()
                .filter_map(|connection| connection.state.poll_timeout());
            timers.min()
        };
        let next = hosts.iter().filter_map(due).min();
        let longest = next.map_or(longest, |next| longest.min(next.saturating_duration_since(now).into()));
        let events = |host: &Host| match host.line.is_blocked() {
            true => PollFlags::POLLIN | PollFlags::POLLOUT,
            false => PollFlags::POLLIN,
        };
        let mut fds: Vec<PollFd<'_>> = hosts
            .iter()
            .map(|host| PollFd::new(host.line.socket.as_fd(), events(host)))
            .collect();
        let timeout = TimeSpec::from_duration(std::time::Duration::from_nanos(longest.as_nanos()));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(why) => Err(HostError::Socket {
                what: "wait",
                why: why.into(),
            }),
        }
    }
}

/// TLS without what QUIC needs of it.
fn unsuitable(why: impl std::fmt::Display) -> IdentityError {
    rustls::Error::General(why.to_string()).into()
}

fn transport(options: &Options, congestion: &Congestion) -> Result<TransportConfig, PlaneError> {
    let mut config = TransportConfig::default();
    let window = u32::try_from(options.window).unwrap_or(u32::MAX >> 2);
    config
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(window.into())
        .datagram_receive_buffer_size(None)
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(1));
    let timeout = options.idle_timeout.and_then(|idle| {
        let idle = std::time::Duration::from_nanos(idle.as_nanos());
        IdleTimeout::try_from(idle).ok()
    });
    config.max_idle_timeout(timeout);
    config.max_outgoing_bytes_per_second(options.max_rate.map(Rate::bytes_per_sec));
    congestion.put_into(&mut config)?;
    Ok(config)
}
