//! Host that drives noq's state machines on a UDP socket.
#![expect(
    clippy::disallowed_methods,
    reason = "the driver of the connections' clock"
)]

mod connection;
mod initial_socket;
mod link;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ccplane_udp::{Inbox, Socket, passes, source_of};
use ccplane_units::Rate;
use nix::poll::PollFlags;
use noq_proto::congestion::{Bbr3Config, CubicConfig, NewRenoConfig};
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::{
    ClientConfig, Connection as State, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, FourTuple, IdleTimeout, Incoming, ServerConfig, Transmit, TransportConfig,
    VarInt,
};

use super::ALPN_PROTOCOL;
use super::qlog::Qlog;
use super::{
    Driver, HostError, HostOptions, HostRole, LISTENING_HOST_ERROR, Native, QuicCongestion,
    QuicStats,
};
use crate::Stack;

use connection::NoqConnection;
use initial_socket::InitialSocket;
use link::NoqLink;

/// Batches sent per connection before the next one is served.
const BATCHES_PER_TURN_MAX: usize = 32;

/// UDP socket with its noq connections.
pub(super) struct Noq {
    options: HostOptions,
    endpoint: Endpoint,
    /// Configuration of outgoing connections.
    client: Option<ClientConfig>,
    link: NoqLink,
    inbox: Inbox,
    connections: BTreeMap<u64, NoqConnection>,
    /// Connection identifiers by noq's handles.
    ids: HashMap<ConnectionHandle, u64>,
    next_id: u64,
    accepted: VecDeque<u64>,
    /// Buffer for responses of the endpoint.
    answer: Vec<u8>,
    /// Present while connections are accepted.
    initial_socket: Option<InitialSocket>,
    crowded: bool,
}

impl Noq {
    pub fn new(options: HostOptions, side: &HostRole<'_>) -> Result<Noq, HostError> {
        let transport = Arc::new(transport(&options)?);
        let (mut client, mut server) = (None, None);
        match side {
            HostRole::Client(trusted) => {
                let crypto = QuicClientConfig::try_from(ccplane_link::identity::client(
                    ALPN_PROTOCOL,
                    *trusted,
                    None,
                )?)
                .map_err(unusable)?;
                let mut config = ClientConfig::new(Arc::new(crypto));
                config.transport_config(transport);
                client = Some(config);
            }
            HostRole::Server(identity) => {
                let crypto = QuicServerConfig::try_from(identity.server(ALPN_PROTOCOL, &[])?)
                    .map_err(unusable)?;
                let mut config = ServerConfig::with_crypto(Arc::new(crypto));
                config.transport_config(transport);
                config.max_incoming(options.connections_max);
                server = Some(Arc::new(config));
            }
        }
        let address = options.local;
        let bind = |why| HostError::Bind { address, why };
        let socket = Socket::bind(address).map_err(bind)?;
        let strangers = server
            .as_ref()
            .map(|_| InitialSocket::new(&socket, options.per_address, Instant::now()))
            .transpose()
            .map_err(bind)?;
        Ok(Noq {
            options,
            client,
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true),
            link: NoqLink::new(socket),
            inbox: Inbox::new(),
            connections: BTreeMap::new(),
            ids: HashMap::new(),
            next_id: 1,
            accepted: VecDeque::new(),
            answer: Vec::new(),
            initial_socket: strangers,
            crowded: false,
        })
    }

    fn connection_mut(&mut self, id: u64) -> Option<&mut NoqConnection> {
        self.connections.get_mut(&id)
    }

    fn insert(&mut self, handle: ConnectionHandle, state: State, client: bool) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut connection = NoqConnection::new(handle, state, client);
        connection.qlog = Qlog::open(self.options.qlog.as_deref(), id, client, Instant::now());
        self.ids.insert(handle, id);
        self.connections.insert(id, connection);
        id
    }

    /// Receives datagrams of connections, then those of unverified peers unless they are paused.
    fn receive(&mut self) -> Result<bool, HostError> {
        let any = self.receive_from(false)?;
        let begin = Instant::now();
        let strangers = self.initial_socket.as_ref();
        if strangers.is_none_or(|strangers| strangers.paused_until(begin).is_some()) {
            return Ok(any);
        }
        let more = self.receive_from(true)?;
        if let Some(strangers) = &mut self.initial_socket
            && more
        {
            strangers.pause(begin, Instant::now());
        }
        Ok(any || more)
    }

    fn receive_from(&mut self, from_initial_socket: bool) -> Result<bool, HostError> {
        let Noq {
            endpoint,
            link: line,
            inbox,
            connections,
            ids: numbers,
            answer,
            initial_socket: strangers,
            ..
        } = self;
        let now = Instant::now();
        let (mut any, mut calls, mut answers) = (false, Vec::new(), Vec::new());
        let mut lent = None;
        let received = match strangers {
            Some(strangers) if from_initial_socket => {
                let inbox = lent.insert(std::mem::take(&mut strangers.inbox));
                strangers.socket.receive(inbox)
            }
            _ => line.socket.receive(inbox),
        };
        let received = match received {
            Ok(received) => Some(received),
            Err(why) if passes(&why) => None,
            Err(why) => {
                return Err(HostError::Socket {
                    what: "receive",
                    why,
                });
            }
        };
        let take = |from: SocketAddr, ecn, data: &mut [u8]| {
            any = true;
            if let Some(strangers) = strangers
                && from_initial_socket
                && !strangers.admit(now, from.ip())
            {
                return;
            }
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
                Some(DatagramEvent::Response(transmit)) => {
                    answers.push((transmit, std::mem::take(answer)))
                }
                None => {}
            }
        };
        if let Some(received) = received {
            received.for_each(take);
        }
        if let (Some(strangers), Some(inbox)) = (&mut self.initial_socket, lent) {
            strangers.inbox = inbox;
        }
        for (transmit, contents) in &answers {
            self.respond(now, transmit, contents)?;
        }
        for incoming in calls {
            self.accept_incoming(incoming, now)?;
        }
        Ok(any)
    }

    /// Sends a response that belongs to no connection, through the socket of unverified peers if
    /// there is one.
    fn respond(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        contents: &[u8],
    ) -> Result<(), HostError> {
        match &mut self.initial_socket {
            Some(strangers) => {
                strangers.respond(now, transmit, contents);
                Ok(())
            }
            None => self.link.respond(transmit, contents),
        }
    }

    /// Accepts a connection, or answers with a Retry packet while there are many unverified peers.
    /// Unverified connections do not count against the limit on the others.
    fn accept_incoming(&mut self, incoming: Incoming, now: Instant) -> Result<(), HostError> {
        let proved = incoming.remote_address_validated();
        let address = incoming.remote_address();
        let source = source_of(address.ip());
        let (mut unproved, mut of_source) = (0, 0);
        for connection in self.connections.values() {
            unproved += usize::from(connection.is_unverified());
            of_source += usize::from(connection.source == Some(source));
        }
        let is_full = self.connections.len() - unproved >= self.options.connections_max;
        self.crowded |= is_full;
        let mut answer = std::mem::take(&mut self.answer);
        answer.clear();
        let transmit = if !proved && unproved >= self.options.unproved_max() {
            if let Some(strangers) = &mut self.initial_socket {
                strangers.record_flood(now);
            }
            match self.endpoint.retry(incoming, &mut answer) {
                Ok(transmit) => Some(transmit),
                Err(why) => {
                    self.endpoint.ignore(why.into_incoming());
                    None
                }
            }
        } else if is_full || of_source >= self.options.per_address {
            Some(self.endpoint.refuse(incoming, &mut answer))
        } else {
            match self.endpoint.accept(incoming, now, &mut answer, None) {
                Ok((handle, state)) => {
                    let id = self.insert(handle, state, false);
                    if let Some(connection) = self.connections.get_mut(&id) {
                        connection.source = Some(source);
                        connection.address_verified = proved;
                    }
                    self.accepted.push_back(id);
                    None
                }
                Err(refused) => refused.response,
            }
        };
        let outcome = transmit.map_or(Ok(()), |transmit| self.respond(now, &transmit, &answer));
        self.answer = answer;
        outcome
    }

    fn transmit(&mut self, now: Instant) -> Result<bool, HostError> {
        if !self.link.resume()? {
            return Ok(false);
        }
        let mut any = false;
        for connection in self.connections.values_mut() {
            for _ in 0..BATCHES_PER_TURN_MAX {
                let next = |most, contents: &mut Vec<u8>| {
                    connection.state.poll_transmit(now, most, contents)
                };
                match self.link.send(next)? {
                    None => break,
                    Some(true) => any = true,
                    Some(false) => return Ok(true),
                }
            }
        }
        Ok(any)
    }
}

impl Driver for Noq {
    fn local(&self) -> SocketAddr {
        self.link.socket.local()
    }

    fn connect(&mut self, to: SocketAddr) -> Result<u64, HostError> {
        let failed = |why: String| HostError::Connect { to, why };
        let config = self
            .client
            .clone()
            .ok_or_else(|| failed(LISTENING_HOST_ERROR.to_owned()))?;
        let begun = self.endpoint.connect(
            Instant::now(),
            config,
            to,
            ccplane_link::identity::SUBJECT_NAME,
        );
        let (handle, state) = begun.map_err(|why| failed(why.to_string()))?;
        Ok(self.insert(handle, state, true))
    }

    fn accept(&mut self) -> Option<u64> {
        self.accepted.pop_front()
    }

    fn write(&mut self, id: u64, bytes: &[u8]) -> usize {
        self.connection_mut(id)
            .map_or(0, |connection| connection.write(bytes))
    }

    fn finish(&mut self, id: u64) {
        if let Some(connection) = self.connection_mut(id) {
            connection.finish();
        }
    }

    fn read(&mut self, id: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        self.connection_mut(id)
            .map_or(0, |connection| connection.read(most, take))
    }

    fn has_sent_all(&self, id: u64) -> bool {
        self.connections
            .get(&id)
            .is_some_and(NoqConnection::has_sent_all)
    }

    fn has_read_all(&self, id: u64) -> bool {
        self.connections
            .get(&id)
            .is_some_and(NoqConnection::has_read_all)
    }

    fn is_connected(&self, id: u64) -> bool {
        self.connections
            .get(&id)
            .is_some_and(|connection| connection.connected)
    }

    fn failure(&self, id: u64) -> Option<&str> {
        self.connections.get(&id)?.failure.as_deref()
    }

    fn stats(&mut self, id: u64) -> Option<QuicStats> {
        self.connection_mut(id).map(NoqConnection::stats)
    }

    fn close(&mut self, id: u64, well: bool) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.close(Instant::now(), well);
        }
    }

    fn connection_count(&self) -> usize {
        self.connections.len()
    }

    fn process(&mut self) -> Result<bool, HostError> {
        let mut busy = self.receive()?;
        let now = Instant::now();
        for connection in self.connections.values_mut() {
            if connection
                .state
                .poll_timeout()
                .is_some_and(|due| due <= now)
            {
                connection.state.handle_timeout(now);
            }
            while let Some(event) = connection.state.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(connection.handle, event) {
                    connection.state.handle_event(event);
                }
            }
            connection.process_events(now);
            connection.log_metrics(now);
        }
        busy |= self.transmit(now)?;
        let numbers = &mut self.ids;
        self.connections.retain(|_, connection| {
            let over = connection.removed && connection.state.is_drained();
            if over {
                numbers.remove(&connection.handle);
            }
            !over
        });
        Ok(busy)
    }

    fn wait_source(&self) -> (BorrowedFd<'_>, PollFlags, Option<Instant>) {
        let events = match self.link.is_blocked() {
            true => PollFlags::POLLIN | PollFlags::POLLOUT,
            false => PollFlags::POLLIN,
        };
        let timers = self
            .connections
            .values()
            .filter_map(|connection| connection.state.poll_timeout());
        let strangers = self.initial_socket.as_ref();
        let pause = strangers.and_then(|strangers| strangers.paused_until(Instant::now()));
        (self.link.socket.as_fd(), events, timers.chain(pause).min())
    }

    fn unverified_fd(&self) -> Option<BorrowedFd<'_>> {
        let strangers = self.initial_socket.as_ref()?;
        let is_paused = strangers.paused_until(Instant::now()).is_some();
        (!is_paused).then(|| strangers.socket.as_fd())
    }

    fn was_crowded(&mut self) -> bool {
        std::mem::take(&mut self.crowded)
    }
}

fn transport(options: &HostOptions) -> Result<TransportConfig, HostError> {
    let mut config = TransportConfig::default();
    let window = options.window();
    config
        .stream_receive_window(VarInt::from_u32(window))
        .receive_window(VarInt::from_u32(window))
        .send_window(window.into())
        .datagram_receive_buffer_size(None)
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(1));
    let timeout = options
        .idle_timeout
        .and_then(|idle| IdleTimeout::try_from(idle.to_std()).ok());
    config.max_idle_timeout(timeout);
    config.max_outgoing_bytes_per_second(options.max_rate.map(Rate::bytes_per_sec));
    match &options.congestion {
        QuicCongestion::Steered(plane) => config.congestion_controller_factory(plane.noq()?),
        QuicCongestion::Native(Native::NewReno) => {
            config.congestion_controller_factory(Arc::new(NewRenoConfig::default()))
        }
        QuicCongestion::Native(Native::Cubic) => {
            config.congestion_controller_factory(Arc::new(CubicConfig::default()))
        }
        QuicCongestion::Native(Native::Bbr3) => {
            config.congestion_controller_factory(Arc::new(Bbr3Config::default()))
        }
        QuicCongestion::Native(other) => return Err(other.unsupported_by(Stack::Noq).into()),
    };
    Ok(config)
}

/// Converts the error for a TLS configuration without the initial cipher suite that QUIC requires.
fn unusable(why: impl std::fmt::Display) -> HostError {
    HostError::Start {
        stack: Stack::Noq.name(),
        why: why.to_string(),
    }
}
