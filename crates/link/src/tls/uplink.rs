//! The datapath's end of the link between hosts.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::vec::IntoIter;

use ccplane_units::{Duration, Time};
use ccplane_wire::framed::{self, Frame, Hello};
use ccplane_wire::{WireCommand, WireEvent, v2};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt,
};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, ClientConnection};

use super::keys::{self, KEY_DIRECTORY, Keys, Role};
use super::stream::{CHUNK_BYTES, Stream, TlsCloseReason};
use super::{TlsAddress, trust};
use crate::backoff::Backoff;
use crate::identity::Fingerprint;
use crate::random;
use crate::{AgentConnection, LinkError, SendOutcome, ThreadClock};

/// Timeout of a connection attempt up to the agent's welcome, and of the DNS lookup before it. On a
/// path with an RTT of 1 s an attempt takes three RTTs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Reconnect after the agent has been silent for this many fallback timeouts. After a short outage
/// TCP recovers by itself; after a long one a new connection is faster than TCP's next
/// retransmission.
const SILENCE_TIMEOUTS: u64 = 4;
/// Lower bound of the silence before a reconnect, because a new connection announces every flow
/// again.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// Chunks read per call of `receive`.
const CHUNKS_PER_CALL: usize = 4;
/// Bounds of the poll interval during an attempt.
const POLL_INTERVAL_BOUNDS: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(50));
/// Batching delay of reports until the agent states its own, see
/// [`Algorithm::latency`](ccplane_agent::Algorithm::latency).
const BATCHING_DELAY_DEFAULT: Duration = Duration::from_millis(1);

/// A connection to an agent on another host that is re-established when it is lost.
///
/// Reports that are not urgent are batched: they wait for the agent's next message, or until
/// [`latency`](ccplane_agent::Algorithm::latency) after the last packet. If the agent has responded
/// since the last packet, a report is sent at once.
pub struct TlsUplink {
    address: TlsAddress,
    clock: Arc<dyn TimeProvider>,
    /// Owner's time at the moment when `since` was zero.
    epoch: Time,
    elapsed: ThreadClock,
    state: UplinkState,
    backoff: Backoff,
    packet: v2::PacketWriter,
    /// True if the packet contains a message that must not wait.
    urgent: bool,
    /// Time of the last packet sent.
    last_sent: Time,
    /// True if the agent has sent a message since then.
    is_answered: bool,
    /// Time of the agent's last message.
    last_received: Time,
    /// Silence after which to reconnect.
    agent_timeout: Option<Duration>,
    latency: Duration,
    /// Id of this process; tests set another.
    pub(super) process: u64,
    pub(super) channel: u64,
    round_trip: Option<Duration>,
    buffer: Box<[u8]>,
}

enum UplinkState {
    /// Idle until this time, with the cause of the last failure.
    Waiting(Time, Option<Arc<RemoteAgentError>>),
    /// DNS lookup in a thread of its own, because the resolver can block for long.
    Resolving(Receiver<io::Result<Addresses>>, Attempt),
    Connecting(OwnedFd, Attempt),
    Handshaking(Stream, PendingHandshake),
    Connected(Stream),
}

/// Addresses of a DNS name.
type Addresses = IntoIter<SocketAddr>;

impl UplinkState {
    /// Returns the number of the stage, which increases until the attempt fails.
    fn number(&self) -> u8 {
        match self {
            UplinkState::Waiting(..) => 0,
            UplinkState::Resolving(..) => 1,
            UplinkState::Connecting(..) => 2,
            UplinkState::Handshaking(..) => 3,
            UplinkState::Connected(_) => 4,
        }
    }
}

struct Attempt {
    /// Start of the DNS lookup, then of the TCP connection.
    began: Time,
    /// Addresses not tried yet.
    addresses: Addresses,
    config: Arc<ClientConfig>,
    keyring: Keyring,
}

struct PendingHandshake {
    began: Time,
    /// Time at which the hello was sent, together with the end of the handshake; `None` before.
    hello_sent: Option<Time>,
    keyring: Keyring,
}

/// Path of the list of revoked agent keys on this host.
struct Keyring(PathBuf);

/// Cause for not reaching an agent on another host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteAgentError {
    /// The DNS name does not resolve.
    #[error("cannot resolve the name: {0}")]
    Resolve(io::Error),
    /// The TCP connection failed; with the port.
    #[error(
        "{0}; start an agent there with `ccplane agent --tls 0.0.0.0:{1}`, and open the port in \
        its firewall"
    )]
    Connect(io::Error, u16),
    /// The attempt timed out.
    #[error(
        "it did not answer within {0}; check the network and firewalls between, and whether \
        the agent hangs"
    )]
    TimedOut(Duration),
    /// TLS or the connection failed.
    #[error("{0}")]
    Broken(String),
    /// The connection was lost and is being re-established.
    #[error("the connection was lost; reconnecting")]
    Lost,
}

impl TlsUplink {
    /// Creates an unconnected uplink.
    pub fn new(address: &TlsAddress) -> TlsUplink {
        TlsUplink::with_clock(address, Arc::new(DefaultTimeProvider))
    }

    /// Creates an unconnected uplink with a given clock for certificate validity.
    pub(super) fn with_clock(address: &TlsAddress, clock: Arc<dyn TimeProvider>) -> TlsUplink {
        TlsUplink {
            address: address.clone(),
            clock,
            epoch: Time::ZERO,
            elapsed: ThreadClock::new(),
            state: UplinkState::Waiting(Time::ZERO, None),
            backoff: Backoff::new(random::seeded_rng()),
            packet: v2::PacketWriter::new(),
            urgent: false,
            last_sent: Time::ZERO,
            is_answered: true,
            last_received: Time::ZERO,
            agent_timeout: None,
            latency: BATCHING_DELAY_DEFAULT,
            process: super::process(),
            channel: super::random(),
            round_trip: None,
            buffer: vec![0; CHUNK_BYTES].into_boxed_slice(),
        }
    }

    /// Returns whether queued bytes wait for socket buffer space.
    #[cfg(test)]
    pub(super) fn waits(&self) -> bool {
        matches!(&self.state, UplinkState::Connected(stream) if stream.has_unsent())
    }

    /// Returns the owner's time, for calls that do not pass it.
    fn now(&self) -> Time {
        self.epoch + Duration::from_nanos(self.elapsed.now().as_nanos())
    }

    /// Sets the owner's time.
    fn set_time(&mut self, now: Time) {
        self.elapsed = ThreadClock::new();
        self.epoch = now;
    }

    /// Starts an attempt: reads the key again, as it may have been replaced, and starts the DNS
    /// lookup.
    fn start_attempt(&mut self) -> Result<UplinkState, LinkError> {
        let folder = self
            .address
            .keys
            .as_deref()
            .unwrap_or(Path::new(KEY_DIRECTORY));
        let keys = Keys::load(folder, Role::Datapath)?;
        let config = trust::datapath(&keys, Arc::clone(&self.clock))?;
        let attempt = Attempt {
            began: self.now(),
            addresses: Vec::new().into_iter(),
            config,
            keyring: Keyring(keys.revoked),
        };
        let (host, port) = (self.address.host.clone(), self.address.port);
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.start(attempt, vec![SocketAddr::new(address, port)].into_iter());
        }
        let (says, named) = sync_channel(1);
        // After a timeout the receiver is gone and the result is dropped.
        let look_up = move || drop(says.send((&*host, port).to_socket_addrs()));
        let thread = thread::Builder::new()
            .name("ccplane-name".to_owned())
            .spawn(look_up);
        thread.map_err(|why| self.resolve_error(why))?;
        Ok(UplinkState::Resolving(named, attempt))
    }

    fn resolve_error(&self, why: io::Error) -> LinkError {
        self.unreachable(Arc::new(RemoteAgentError::Resolve(why)))
    }

    /// Starts to connect to the first address for which that is possible.
    fn start(&self, attempt: Attempt, mut addresses: Addresses) -> Result<UplinkState, LinkError> {
        let socket = self.connect_next(&mut addresses, io::Error::other("no address found"))?;
        let attempt = Attempt {
            began: self.now(),
            addresses,
            ..attempt
        };
        Ok(UplinkState::Connecting(socket, attempt))
    }

    /// Starts to connect to the next address for which that is possible. `why` is the error of the
    /// previous one.
    fn connect_next(
        &self,
        addresses: &mut Addresses,
        mut why: io::Error,
    ) -> Result<OwnedFd, LinkError> {
        for address in addresses {
            match start(address) {
                Ok(socket) => return Ok(socket),
                Err(failed) => why = failed,
            }
        }
        Err(self.unreachable(Arc::new(RemoteAgentError::Connect(why, self.address.port))))
    }

    /// Advances an attempt as far as possible without blocking.
    fn step(&mut self, now: Time, stage: UplinkState) -> Result<UplinkState, LinkError> {
        match stage {
            UplinkState::Waiting(until, why) if now < until => {
                let why = why.unwrap_or_else(|| Arc::new(RemoteAgentError::Lost));
                self.state = UplinkState::Waiting(until, Some(Arc::clone(&why)));
                Err(self.unreachable(why))
            }
            UplinkState::Waiting(..) => self.start_attempt(),
            UplinkState::Resolving(named, attempt) => match named.try_recv() {
                Ok(found) => self.start(attempt, found.map_err(|why| self.resolve_error(why))?),
                Err(TryRecvError::Empty) => {
                    self.check_timeout(now, attempt.began, UplinkState::Resolving(named, attempt))
                }
                Err(TryRecvError::Disconnected) => {
                    Err(self.resolve_error(io::Error::other("the lookup thread ended")))
                }
            },
            UplinkState::Connecting(socket, mut attempt) => {
                let connected = is_connected(&socket);
                if !matches!(connected, Ok(true)) {
                    let socket = match connected {
                        Ok(_) => socket,
                        Err(why) => self.connect_next(&mut attempt.addresses, why)?,
                    };
                    return self.check_timeout(
                        now,
                        attempt.began,
                        UplinkState::Connecting(socket, attempt),
                    );
                }
                let Attempt {
                    began,
                    config,
                    keyring,
                    ..
                } = attempt;
                self.record_round_trip(began);
                let name =
                    trust::agent_name().map_err(|why| self.broken(&TlsCloseReason::Tls(why)))?;
                let tls = ClientConnection::new(config, name)
                    .map_err(|why| self.broken(&TlsCloseReason::Tls(why)))?;
                let stream = Stream::new(TcpStream::from(socket), tls.into());
                let mut stream = stream.map_err(|why| self.broken(&TlsCloseReason::Failed(why)))?;
                stream.flush().map_err(|why| self.broken(&why))?;
                let greeting = PendingHandshake {
                    began,
                    hello_sent: None,
                    keyring,
                };
                Ok(UplinkState::Handshaking(stream, greeting))
            }
            UplinkState::Handshaking(mut stream, mut greeting) => {
                let mut welcomed = None;
                let read = stream.read(&mut self.buffer, &mut |frame| match (frame, welcomed) {
                    (Frame::Hello(hello), None) => {
                        welcomed = Some(hello);
                        Ok(())
                    }
                    // No request has been sent yet, so only a hello is valid.
                    _ => Err(TlsCloseReason::Local(
                        "its first message is not a welcome".to_owned(),
                    )),
                });
                let read = read.and_then(|_| stream.flush());
                read.map_err(|why| self.broken(&why))?;
                if let (Some(welcome), Some(said)) = (welcomed, greeting.hello_sent) {
                    if welcome.channel != self.channel {
                        let why = "its welcome is for another datapath".to_owned();
                        return Err(self.broken(&TlsCloseReason::Local(why)));
                    }
                    self.record_round_trip(said);
                    return Ok(UplinkState::Connected(stream));
                }
                if !stream.is_handshaking() && greeting.hello_sent.is_none() {
                    self.check(&stream, &greeting.keyring)?;
                    let hello = Hello {
                        process: self.process,
                        channel: self.channel,
                    };
                    let said = stream
                        .queue_frame(&framed::encode_hello(hello))
                        .and_then(|()| stream.flush());
                    said.map_err(|why| self.broken(&why))?;
                    greeting.hello_sent = Some(self.now());
                }
                let began = greeting.began;
                self.check_timeout(now, began, UplinkState::Handshaking(stream, greeting))
            }
            up @ UplinkState::Connected(_) => Ok(up),
        }
    }

    /// Rejects an agent whose key was revoked.
    fn check(&self, stream: &Stream, keyring: &Keyring) -> Result<(), LinkError> {
        let revoked = keys::revoked(&keyring.0)?;
        let key = stream
            .certificate()
            .map(|certificate| Fingerprint::of_certificate(certificate));
        match key.is_some_and(|key| revoked.contains_key(&key)) {
            true => Err(self.broken(&TlsCloseReason::Local("its key was revoked".to_owned()))),
            false => Ok(()),
        }
    }

    fn check_timeout(
        &self,
        now: Time,
        began: Time,
        stage: UplinkState,
    ) -> Result<UplinkState, LinkError> {
        match now.since(began) > CONNECT_TIMEOUT {
            true => Err(self.unreachable(Arc::new(RemoteAgentError::TimedOut(CONNECT_TIMEOUT)))),
            false => Ok(stage),
        }
    }

    /// Updates the minimum RTT with an exchange that started at `since`.
    fn record_round_trip(&mut self, since: Time) {
        let took = self.now().since(since);
        self.round_trip = Some(self.round_trip.map_or(took, |before| before.min(took)));
    }

    fn unreachable(&self, why: Arc<RemoteAgentError>) -> LinkError {
        LinkError::RemoteUnreachable {
            address: self.address.clone(),
            why,
        }
    }

    fn broken(&self, why: &TlsCloseReason) -> LinkError {
        self.unreachable(Arc::new(RemoteAgentError::Broken(describe(why))))
    }

    /// Starts the backoff before the next attempt.
    fn back_off(&mut self, now: Time, why: Option<Arc<RemoteAgentError>>) {
        self.backoff.on_failure(now);
        self.state = UplinkState::Waiting(self.backoff.next_attempt(), why);
    }

    /// Sends the packet. Returns false if bytes remain because the socket is full, or if there is
    /// no agent.
    fn send(&mut self) -> bool {
        let now = self.now();
        let UplinkState::Connected(stream) = &mut self.state else {
            return false;
        };
        let sent = stream.flush().and_then(|room| {
            // At most one packet is queued in the stream and one here.
            if !room || self.packet.is_empty() {
                return Ok(room);
            }
            stream.queue_packet(&self.packet)?;
            self.packet.clear();
            (self.urgent, self.last_sent, self.is_answered) = (false, now, false);
            stream.flush()
        });
        match sent {
            Ok(sent) => sent,
            Err(why) => {
                // Read the agent's goodbye, which explains more than the send error.
                let last = stream.read(&mut self.buffer, &mut |_| Ok(()));
                let why = last
                    .err()
                    .filter(|last| matches!(last, TlsCloseReason::Goodbye(_)))
                    .unwrap_or(why);
                self.on_lost(now, &why);
                false
            }
        }
    }

    /// Returns the time at which a batched packet is sent.
    fn due(&self) -> Time {
        self.last_sent + self.latency
    }

    fn on_lost(&mut self, now: Time, why: &TlsCloseReason) {
        let words = describe(why);
        tracing::warn!(agent = %self.address, why = words, "lost the connection to the agent");
        if let UplinkState::Connected(stream) =
            std::mem::replace(&mut self.state, UplinkState::Waiting(now, None))
        {
            stream.close(why);
        }
        self.packet.clear();
        self.back_off(now, Some(Arc::new(RemoteAgentError::Broken(words))));
    }
}

fn describe(why: &TlsCloseReason) -> String {
    match why {
        TlsCloseReason::Tls(why) => trust::describe(why, "an agent"),
        why => why.to_string(),
    }
}

/// Opens a socket and starts a non-blocking connect.
fn start(to: SocketAddr) -> io::Result<OwnedFd> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(socket),
        Err(why) => Err(why.into()),
    }
}

fn is_connected(socket: &OwnedFd) -> io::Result<bool> {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut watched, PollTimeout::ZERO) {
        Ok(0) | Err(Errno::EINTR) => return Ok(false),
        Ok(_) => {}
        Err(why) => return Err(why.into()),
    }
    match getsockopt(socket, sockopt::SocketError)? {
        0 => Ok(true),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

impl AgentConnection for TlsUplink {
    fn connect(&mut self, now: Time) -> Result<(), LinkError> {
        self.set_time(now);
        loop {
            let stage = std::mem::replace(&mut self.state, UplinkState::Waiting(now, None));
            let resting = matches!(&stage, UplinkState::Waiting(until, _) if now < *until);
            let before = stage.number();
            let next = match self.step(now, stage) {
                Ok(next) => next,
                Err(why) => {
                    if !resting {
                        let far = match &why {
                            LinkError::RemoteUnreachable { why, .. } => Some(Arc::clone(why)),
                            _ => None,
                        };
                        self.back_off(now, far);
                    }
                    return Err(why);
                }
            };
            self.state = next;
            let stays = self.state.number() == before;
            match (self.is_connected(), stays) {
                (true, true) => return Ok(()),
                (true, false) => {
                    tracing::info!(agent = %self.address, "connected");
                    self.packet.clear();
                    self.backoff.connected(now);
                    (
                        self.urgent,
                        self.last_sent,
                        self.is_answered,
                        self.last_received,
                    ) = (false, Time::ZERO, true, now);
                    self.latency = BATCHING_DELAY_DEFAULT;
                    return Ok(());
                }
                (false, true) => return Err(LinkError::Connecting),
                (false, false) => {}
            }
        }
    }

    fn is_connected(&self) -> bool {
        matches!(self.state, UplinkState::Connected(_))
    }

    fn next_attempt(&self, now: Time) -> Duration {
        let (interval_min, interval_max) = POLL_INTERVAL_BOUNDS;
        let looks = |began: Time| (now.since(began) / 8).clamp(interval_min, interval_max);
        match &self.state {
            UplinkState::Waiting(until, _) => until.since(now).max(interval_min),
            UplinkState::Resolving(_, attempt) | UplinkState::Connecting(_, attempt) => {
                looks(attempt.began)
            }
            UplinkState::Handshaking(_, greeting) => looks(greeting.began),
            UplinkState::Connected(_) => interval_max,
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    fn queue_event(&mut self, event: &WireEvent<'_>) -> SendOutcome {
        if !self.is_connected() {
            return SendOutcome::NoAgent;
        }
        if self.packet.push_event(event).is_err() {
            self.send();
            if !self.is_connected() {
                return SendOutcome::NoAgent;
            }
            if self.packet.push_event(event).is_err() {
                return SendOutcome::Full;
            }
        }
        if let WireEvent::Ready { datapath } = event {
            let silence = datapath.agent_timeout;
            self.agent_timeout =
                silence.map(|silence| (silence * SILENCE_TIMEOUTS).max(SILENCE_MIN));
        }
        self.urgent |= !matches!(event, WireEvent::Report { urgent: false, .. });
        SendOutcome::Queued
    }

    fn flush(&mut self) -> bool {
        let waits =
            !self.packet.is_empty() && !self.urgent && !self.is_answered && self.now() < self.due();
        // A packet that waits for more reports does not count as unsent.
        waits || self.send()
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(WireCommand)) {
        self.set_time(now);
        let UplinkState::Connected(stream) = &mut self.state else {
            return;
        };
        let (latency, mut said) = (&mut self.latency, false);
        let mut take = |frame: Frame<'_>| {
            let Frame::Packet(packet) = frame else {
                return Err(TlsCloseReason::Local("it sent a second welcome".to_owned()));
            };
            said = true;
            v2::read_commands(packet, &mut |command| {
                if let WireCommand::Offer(offer) = &command {
                    *latency = offer.latency.min(*latency);
                }
                sink(command);
            })?;
            Ok(())
        };
        let mut read = Ok(0);
        for _ in 0..CHUNKS_PER_CALL {
            read = stream.read(&mut self.buffer, &mut take);
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        if said {
            (self.last_received, self.is_answered) = (now, true);
        }
        let silent = now.since(self.last_received);
        match read {
            Err(why) => self.on_lost(now, &why),
            Ok(_) if self.agent_timeout.is_some_and(|timeout| silent > timeout) => {
                let why = format!("no message from it for {silent}");
                self.on_lost(now, &TlsCloseReason::Local(why));
            }
            Ok(_) => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if !self.is_connected() {
            return None;
        }
        let due = match &self.state {
            UplinkState::Connected(stream) if stream.has_unsent() => {
                Some(self.now() + POLL_INTERVAL_BOUNDS.0)
            }
            _ => (!self.packet.is_empty()).then(|| self.due()),
        };
        let silent = self
            .agent_timeout
            .map(|timeout| self.last_received + timeout + POLL_INTERVAL_BOUNDS.0);
        due.into_iter().chain(silent).min()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            UplinkState::Waiting(..) | UplinkState::Resolving(..) => None,
            UplinkState::Connecting(socket, _) => Some(socket.as_fd()),
            UplinkState::Handshaking(stream, _) | UplinkState::Connected(stream) => {
                Some(stream.as_fd())
            }
        }
    }
}
