//! Host that drives noq's state machines on a UDP socket.
#![expect(
    clippy::disallowed_methods,
    reason = "the driver of the connections' clock"
)]

mod connection;
mod initial_socket;
mod link;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ccplane_udp::{Inbox, Socket, passes, source_of};
use ccplane_units::Rate;
use nix::poll::PollFlags;
use noq_proto::{
    ClientConfig, Connection as State, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, FourTuple, Incoming, Transmit,
};

use super::configuration::define_configuration;
use super::connections::ConnectionTable;
use super::{Connection, Driver, HostError, HostOptions, HostRole, LISTENING_HOST_ERROR};
use crate::Stack;

use connection::NoqConnection;
use initial_socket::InitialSocket;
use link::NoqLink;

/// Batches sent per connection before the next one is served.
const BATCHES_PER_TURN_MAX: usize = 32;

define_configuration!(Stack::Noq, noq_proto, noq, [
    NewReno => NewRenoConfig, Cubic => CubicConfig, Bbr3 => Bbr3Config
]);

/// UDP socket with its noq connections.
pub(super) struct Noq {
    options: HostOptions,
    endpoint: Endpoint,
    /// Configuration of outgoing connections.
    client: Option<ClientConfig>,
    link: NoqLink,
    inbox: Inbox,
    table: ConnectionTable<NoqConnection>,
    /// Connection identifiers by noq's handles.
    ids: HashMap<ConnectionHandle, u64>,
    /// Buffer for responses of the endpoint.
    answer: Vec<u8>,
    /// Present while connections are accepted.
    initial_socket: Option<InitialSocket>,
    crowded: bool,
}

impl Noq {
    pub fn new(options: HostOptions, side: &HostRole<'_>) -> Result<Noq, HostError> {
        let mut transport = transport_config(&options)?;
        transport.max_outgoing_bytes_per_second(options.max_rate.map(Rate::bytes_per_sec));
        let (client, server) = endpoint_configs(&options, side, transport)?;
        let server = server.map(Arc::new);
        let address = options.local;
        let bind = |why| HostError::Bind { address, why };
        let socket = Socket::bind(address).map_err(bind)?;
        let initial_socket = server
            .as_ref()
            .map(|_| InitialSocket::new(&socket, options.per_address, Instant::now()))
            .transpose()
            .map_err(bind)?;
        let link = NoqLink::new(socket, options.dscp);
        Ok(Noq {
            table: ConnectionTable::new(&options),
            options,
            client,
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), server, true),
            link,
            inbox: Inbox::new(),
            ids: HashMap::new(),
            answer: Vec::new(),
            initial_socket,
            crowded: false,
        })
    }

    fn insert(&mut self, handle: ConnectionHandle, state: State, client: bool) -> u64 {
        let id = self.table.insert(client, |qlog| {
            NoqConnection::new(handle, state, client, qlog)
        });
        self.ids.insert(handle, id);
        id
    }

    /// Receives datagrams of connections, then those of unverified peers unless they are paused.
    fn receive(&mut self) -> Result<bool, HostError> {
        let any = self.receive_from(false)?;
        let begin = Instant::now();
        let initial_socket = self.initial_socket.as_ref();
        if initial_socket.is_none_or(|initial_socket| initial_socket.paused_until(begin).is_some())
        {
            return Ok(any);
        }
        let more = self.receive_from(true)?;
        if let Some(initial_socket) = &mut self.initial_socket
            && more
        {
            initial_socket.pause(begin, Instant::now());
        }
        Ok(any || more)
    }

    fn receive_from(&mut self, from_initial_socket: bool) -> Result<bool, HostError> {
        let Noq {
            endpoint,
            link,
            inbox,
            table,
            ids,
            answer,
            initial_socket,
            ..
        } = self;
        let now = Instant::now();
        let (mut any, mut calls, mut answers) = (false, Vec::new(), Vec::new());
        let mut lent = None;
        let received = match initial_socket {
            Some(initial_socket) if from_initial_socket => {
                let inbox = lent.insert(std::mem::take(&mut initial_socket.inbox));
                initial_socket.socket.receive(inbox)
            }
            _ => link.socket.receive(inbox),
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
            if let Some(initial_socket) = initial_socket
                && from_initial_socket
                && !initial_socket.admit(now, from.ip())
            {
                return;
            }
            let (path, ecn) = (FourTuple::from_remote(from), EcnCodepoint::from_bits(ecn));
            answer.clear();
            match endpoint.handle(now, path, ecn, (&*data).into(), answer) {
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    let known = ids
                        .get(&handle)
                        .and_then(|id| table.connections.get_mut(id));
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
        if let (Some(initial_socket), Some(inbox)) = (&mut self.initial_socket, lent) {
            initial_socket.inbox = inbox;
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
            Some(initial_socket) => {
                initial_socket.respond(now, transmit, contents);
                Ok(())
            }
            None => self.link.respond(transmit, contents),
        }
    }

    /// Accepts a connection, or answers with a Retry packet while there are many unverified peers.
    /// Unverified connections do not count against the limit on the others.
    fn accept_incoming(&mut self, incoming: Incoming, now: Instant) -> Result<(), HostError> {
        let verified = incoming.remote_address_validated();
        let address = incoming.remote_address();
        let source = source_of(address.ip());
        let (mut unverified, mut of_source) = (0, 0);
        for connection in self.table.connections.values() {
            unverified += usize::from(connection.is_unverified());
            of_source += usize::from(connection.source == Some(source));
        }
        let is_full = self.table.connections.len() - unverified >= self.options.connections_max;
        self.crowded |= is_full;
        let mut answer = std::mem::take(&mut self.answer);
        answer.clear();
        let transmit = if !verified && unverified >= self.options.unverified_max() {
            if let Some(initial_socket) = &mut self.initial_socket {
                initial_socket.record_flood(now);
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
                    if let Some(connection) = self.table.connections.get_mut(&id) {
                        connection.source = Some(source);
                        connection.address_verified = verified;
                    }
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
        for connection in self.table.connections.values_mut() {
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
        self.table.accepted.pop_front()
    }

    fn connection(&self, id: u64) -> Option<&dyn Connection> {
        Some(self.table.connections.get(&id)?)
    }

    fn connection_mut(&mut self, id: u64) -> Option<&mut dyn Connection> {
        Some(self.table.connections.get_mut(&id)?)
    }

    fn connection_count(&self) -> usize {
        self.table.connections.len()
    }

    fn process(&mut self) -> Result<bool, HostError> {
        let mut busy = self.receive()?;
        let now = Instant::now();
        for connection in self.table.connections.values_mut() {
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
        let ids = &mut self.ids;
        self.table.connections.retain(|_, connection| {
            let over = connection.removed && connection.state.is_drained();
            if over {
                ids.remove(&connection.handle);
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
            .table
            .connections
            .values()
            .filter_map(|connection| connection.state.poll_timeout());
        let initial_socket = self.initial_socket.as_ref();
        let pause =
            initial_socket.and_then(|initial_socket| initial_socket.paused_until(Instant::now()));
        (self.link.socket.as_fd(), events, timers.chain(pause).min())
    }

    fn unverified_fd(&self) -> Option<BorrowedFd<'_>> {
        let initial_socket = self.initial_socket.as_ref()?;
        let is_paused = initial_socket.paused_until(Instant::now()).is_some();
        (!is_paused).then(|| initial_socket.socket.as_fd())
    }

    fn was_crowded(&mut self) -> bool {
        std::mem::take(&mut self.crowded)
    }
}
