//! A datapath's end of the link between hosts.

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
use ccplane_wire::{Command, Event, v2};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt,
};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ClientConfig, ClientConnection};

use super::keys::{self, KEYS, Keys, Role};
use super::stream::{CHUNK, Closed, Stream};
use super::{TlsAddress, trust};
use crate::backoff::Backoff;
use crate::identity::Fingerprint;
use crate::random;
use crate::{Clock, LinkError, Remote, Sent};

/// How long an attempt may take, to the agent's welcome, and the look-up of a name before it. A
/// path of a second's round trip takes three of them.
const PATIENCE: Duration = Duration::from_secs(4);
/// An agent that said nothing for so many times the silence after which flows fall back is looked
/// for anew. A network that comes back after a moment lets TCP go on by itself; after a long one a
/// new connection is there sooner than TCP's next attempt to send.
const SILENCES: u64 = 4;
/// But not before this: a new connection announces every flow.
const LEAST_SILENCE: Duration = Duration::from_secs(2);
/// Chunks read before other work has its turn.
const CHUNKS: usize = 4;
/// Between two looks at an attempt: this at least, and this at most.
const LOOKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// How long reports may wait for others, of an agent that has not said it: as
/// [`Algorithm::latency`](ccplane_agent::Algorithm::latency).
const LATENCY: Duration = Duration::from_millis(1);

/// A connection to an agent on another host, made again when it was lost.
///
/// Reports that are not urgent travel together: they wait for the agent's next word, or for
/// [`latency`](ccplane_agent::Algorithm::latency) since the last packet left. One that has nothing
/// to wait for leaves at once.
pub struct TlsUplink {
    address: TlsAddress,
    clock: Arc<dyn TimeProvider>,
    /// What the owner calls now when [`Clock`] shows zero.
    epoch: Time,
    since: Clock,
    stage: Stage,
    backoff: Backoff,
    packet: v2::Packet,
    /// Something in the packet does not wait.
    urgent: bool,
    /// When the last packet left.
    sent: Time,
    /// The agent has said something since.
    answered: bool,
    /// When the agent last said something.
    heard: Time,
    /// The silence after which it is looked for anew.
    silence: Option<Duration>,
    latency: Duration,
    /// Of this process; another in a test.
    pub(super) process: u64,
    pub(super) way: u64,
    round_trip: Option<Duration>,
    buffer: Box<[u8]>,
}

enum Stage {
    /// Nothing before this moment. Why the last attempt failed, if one did.
    Waiting(Time, Option<Arc<FarError>>),
    /// The name is looked up, in a thread of its own: that may take as long as the resolver does.
    Naming(Receiver<io::Result<Addresses>>, Attempt),
    Connecting(OwnedFd, Attempt),
    Greeting(Stream, Greeting),
    Up(Stream),
}

/// Of a name.
type Addresses = IntoIter<SocketAddr>;

impl Stage {
    /// Its number: they follow each other, until one is made anew.
    fn number(&self) -> u8 {
        match self {
            Stage::Waiting(..) => 0,
            Stage::Naming(..) => 1,
            Stage::Connecting(..) => 2,
            Stage::Greeting(..) => 3,
            Stage::Up(_) => 4,
        }
    }
}

struct Attempt {
    /// When the look-up began, then the connecting.
    began: Time,
    /// Addresses that were not tried.
    rest: Addresses,
    config: Arc<ClientConfig>,
    keyring: Keyring,
}

struct Greeting {
    began: Time,
    /// When the datapath said who it is, with the last of the handshake.
    said: Option<Time>,
    keyring: Keyring,
}

/// Which agents' keys count no more, as far as this host was told.
struct Keyring(PathBuf);

/// Why an agent on another host cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarError {
    /// The name has no address.
    #[error("the name has no address: {0}")]
    Name(io::Error),
    /// Nobody answers there.
    #[error(
        "{0}; start one there with `ccplane agent --tls 0.0.0.0:{1}`, and let its firewall pass the port"
    )]
    Connect(io::Error, u16),
    /// It takes too long.
    #[error("it does not answer within {0}: the network between is cut or filtered, or it hangs")]
    Late(Duration),
    /// TLS fails, or the connection does.
    #[error("{0}")]
    Broken(String),
    /// It was there, and is not now.
    #[error("the connection was lost; it is taken up again")]
    Lost,
}

impl TlsUplink {
    /// An end that is not connected yet.
    pub fn new(address: &TlsAddress) -> TlsUplink {
        TlsUplink::with_clock(address, Arc::new(DefaultTimeProvider))
    }

    /// The same, by a clock that says whether certificates are valid.
    pub(super) fn with_clock(address: &TlsAddress, clock: Arc<dyn TimeProvider>) -> TlsUplink {
        TlsUplink {
            address: address.clone(),
            clock,
            epoch: Time::ZERO,
            since: Clock::new(),
            stage: Stage::Waiting(Time::ZERO, None),
            backoff: Backoff::new(random::dice()),
            packet: v2::Packet::new(),
            urgent: false,
            sent: Time::ZERO,
            answered: true,
            heard: Time::ZERO,
            silence: None,
            latency: LATENCY,
            process: super::process(),
            way: super::random(),
            round_trip: None,
            buffer: vec![0; CHUNK].into_boxed_slice(),
        }
    }

    /// Something that was sent waits for room.
    #[cfg(test)]
    pub(super) fn waits(&self) -> bool {
        matches!(&self.stage, Stage::Up(stream) if stream.waits())
    }

    /// The owner's time. It is asked where a call does not say it.
    fn now(&self) -> Time {
        self.epoch + Duration::from_nanos(self.since.now().as_nanos())
    }

    /// The owner says what time it is.
    fn tell_time(&mut self, now: Time) {
        self.since = Clock::new();
        self.epoch = now;
    }

    /// A first step: the key is read anew, as it may be a new one, and a name is looked up.
    fn begin(&mut self) -> Result<Stage, LinkError> {
        let folder = self.address.keys.as_deref().unwrap_or(Path::new(KEYS));
        let keys = Keys::load(folder, Role::Datapath)?;
        let config = trust::datapath(&keys, Arc::clone(&self.clock))?;
        let attempt = Attempt {
            began: self.now(),
            rest: Vec::new().into_iter(),
            config,
            keyring: Keyring(keys.revoked),
        };
        let (host, port) = (self.address.host.clone(), self.address.port);
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.start(attempt, vec![SocketAddr::new(address, port)].into_iter());
        }
        let (says, named) = sync_channel(1);
        // Where it takes too long nobody waits for it any more, and it is for nothing.
        let look_up = move || drop(says.send((&*host, port).to_socket_addrs()));
        let thread = thread::Builder::new()
            .name("ccplane-name".to_owned())
            .spawn(look_up);
        thread.map_err(|why| self.unnamed(why))?;
        Ok(Stage::Naming(named, attempt))
    }

    fn unnamed(&self, why: io::Error) -> LinkError {
        self.far(Arc::new(FarError::Name(why)))
    }

    /// Begins to connect to the first of these addresses to which it can.
    fn start(&self, attempt: Attempt, mut addresses: Addresses) -> Result<Stage, LinkError> {
        let socket = self.next_of(&mut addresses, io::Error::other("there is none"))?;
        let attempt = Attempt {
            began: self.now(),
            rest: addresses,
            ..attempt
        };
        Ok(Stage::Connecting(socket, attempt))
    }

    /// A socket that connects to the next of these addresses to which it can; `why` it could not to
    /// the one before.
    fn next_of(&self, addresses: &mut Addresses, mut why: io::Error) -> Result<OwnedFd, LinkError> {
        for address in addresses {
            match start(address) {
                Ok(socket) => return Ok(socket),
                Err(failed) => why = failed,
            }
        }
        Err(self.far(Arc::new(FarError::Connect(why, self.address.port))))
    }

    /// Goes on with an attempt as far as it goes without waiting.
    fn step(&mut self, now: Time, stage: Stage) -> Result<Stage, LinkError> {
        match stage {
            Stage::Waiting(until, why) if now < until => {
                let why = why.unwrap_or_else(|| Arc::new(FarError::Lost));
                self.stage = Stage::Waiting(until, Some(Arc::clone(&why)));
                Err(self.far(why))
            }
            Stage::Waiting(..) => self.begin(),
            Stage::Naming(named, attempt) => match named.try_recv() {
                Ok(found) => self.start(attempt, found.map_err(|why| self.unnamed(why))?),
                Err(TryRecvError::Empty) => {
                    self.unless_late(now, attempt.began, Stage::Naming(named, attempt))
                }
                Err(TryRecvError::Disconnected) => {
                    Err(self.unnamed(io::Error::other("nothing came of looking it up")))
                }
            },
            Stage::Connecting(socket, mut attempt) => {
                let connected = is_connected(&socket);
                if !matches!(connected, Ok(true)) {
                    let socket = match connected {
                        Ok(_) => socket,
                        Err(why) => self.next_of(&mut attempt.rest, why)?,
                    };
                    return self.unless_late(
                        now,
                        attempt.began,
                        Stage::Connecting(socket, attempt),
                    );
                }
                let Attempt {
                    began,
                    config,
                    keyring,
                    ..
                } = attempt;
                self.measured(began);
                let name = trust::agent_name().map_err(|why| self.broken(&Closed::Tls(why)))?;
                let tls = ClientConnection::new(config, name)
                    .map_err(|why| self.broken(&Closed::Tls(why)))?;
                let stream = Stream::new(TcpStream::from(socket), tls.into());
                let mut stream = stream.map_err(|why| self.broken(&Closed::Failed(why)))?;
                stream.flush().map_err(|why| self.broken(&why))?;
                let greeting = Greeting {
                    began,
                    said: None,
                    keyring,
                };
                Ok(Stage::Greeting(stream, greeting))
            }
            Stage::Greeting(mut stream, mut greeting) => {
                let mut welcomed = None;
                let read = stream.read(&mut self.buffer, &mut |frame| match (frame, welcomed) {
                    (Frame::Hello(hello), None) => {
                        welcomed = Some(hello);
                        Ok(())
                    }
                    // Nothing has been asked yet.
                    _ => Err(Closed::Ours("it did not begin with its welcome".to_owned())),
                });
                let read = read.and_then(|_| stream.flush());
                read.map_err(|why| self.broken(&why))?;
                if let (Some(welcome), Some(said)) = (welcomed, greeting.said) {
                    if welcome.way != self.way {
                        let why = "it welcomed somebody else".to_owned();
                        return Err(self.broken(&Closed::Ours(why)));
                    }
                    self.measured(said);
                    return Ok(Stage::Up(stream));
                }
                if !stream.is_handshaking() && greeting.said.is_none() {
                    self.check(&stream, &greeting.keyring)?;
                    let hello = Hello {
                        process: self.process,
                        way: self.way,
                    };
                    let said = stream
                        .frame(&framed::hello(hello))
                        .and_then(|()| stream.flush());
                    said.map_err(|why| self.broken(&why))?;
                    greeting.said = Some(self.now());
                }
                let began = greeting.began;
                self.unless_late(now, began, Stage::Greeting(stream, greeting))
            }
            up @ Stage::Up(_) => Ok(up),
        }
    }

    /// An agent whose key was revoked is none.
    fn check(&self, stream: &Stream, keyring: &Keyring) -> Result<(), LinkError> {
        let revoked = keys::revoked(&keyring.0)?;
        let key = stream
            .certificate()
            .map(|certificate| Fingerprint::of(certificate));
        match key.is_some_and(|key| revoked.contains_key(&key)) {
            true => Err(self.broken(&Closed::Ours("its key was revoked".to_owned()))),
            false => Ok(()),
        }
    }

    fn unless_late(&self, now: Time, began: Time, stage: Stage) -> Result<Stage, LinkError> {
        match now.since(began) > PATIENCE {
            true => Err(self.far(Arc::new(FarError::Late(PATIENCE)))),
            false => Ok(stage),
        }
    }

    /// What was sent at `since` has been answered.
    fn measured(&mut self, since: Time) {
        let took = self.now().since(since);
        self.round_trip = Some(self.round_trip.map_or(took, |before| before.min(took)));
    }

    fn far(&self, why: Arc<FarError>) -> LinkError {
        LinkError::Far {
            address: self.address.clone(),
            why,
        }
    }

    fn broken(&self, why: &Closed) -> LinkError {
        self.far(Arc::new(FarError::Broken(in_words(why))))
    }

    /// Waits before the next attempt.
    fn rest(&mut self, now: Time, why: Option<Arc<FarError>>) {
        self.backoff.failed(now);
        self.stage = Stage::Waiting(self.backoff.until(), why);
    }

    /// Sends the packet; false if something of it or of the one before is left for lack of room, or
    /// there is no agent.
    fn send(&mut self) -> bool {
        let now = self.now();
        let Stage::Up(stream) = &mut self.stage else {
            return false;
        };
        let sent = stream.flush().and_then(|room| {
            // One packet at most waits in the stream, and one here.
            if !room || self.packet.is_empty() {
                return Ok(room);
            }
            stream.packet(&self.packet)?;
            self.packet.clear();
            (self.urgent, self.sent, self.answered) = (false, now, false);
            stream.flush()
        });
        match sent {
            Ok(sent) => sent,
            Err(why) => {
                // What it said before it closed tells more.
                let last = stream.read(&mut self.buffer, &mut |_| Ok(()));
                let why = last
                    .err()
                    .filter(|last| matches!(last, Closed::Goodbye(_)))
                    .unwrap_or(why);
                self.lost(now, &why);
                false
            }
        }
    }

    /// When the packet leaves that may wait for others.
    fn due(&self) -> Time {
        self.sent + self.latency
    }

    fn lost(&mut self, now: Time, why: &Closed) {
        let words = in_words(why);
        tracing::warn!(agent = %self.address, why = words, "the agent is gone");
        if let Stage::Up(stream) = std::mem::replace(&mut self.stage, Stage::Waiting(now, None)) {
            stream.end(why);
        }
        self.packet.clear();
        self.rest(now, Some(Arc::new(FarError::Broken(words))));
    }
}

fn in_words(why: &Closed) -> String {
    match why {
        Closed::Tls(why) => trust::in_words(why, "an agent"),
        why => why.to_string(),
    }
}

/// A socket that has begun to connect.
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

impl Remote for TlsUplink {
    fn connect(&mut self, now: Time) -> Result<(), LinkError> {
        self.tell_time(now);
        loop {
            let stage = std::mem::replace(&mut self.stage, Stage::Waiting(now, None));
            let resting = matches!(&stage, Stage::Waiting(until, _) if now < *until);
            let before = stage.number();
            let next = match self.step(now, stage) {
                Ok(next) => next,
                Err(why) => {
                    if !resting {
                        let far = match &why {
                            LinkError::Far { why, .. } => Some(Arc::clone(why)),
                            _ => None,
                        };
                        self.rest(now, far);
                    }
                    return Err(why);
                }
            };
            self.stage = next;
            let stays = self.stage.number() == before;
            match (self.is_connected(), stays) {
                (true, true) => return Ok(()),
                (true, false) => {
                    tracing::info!(agent = %self.address, "connected");
                    self.packet.clear();
                    self.backoff.connected(now);
                    (self.urgent, self.sent, self.answered, self.heard) =
                        (false, Time::ZERO, true, now);
                    self.latency = LATENCY;
                    return Ok(());
                }
                (false, true) => return Err(LinkError::Connecting),
                (false, false) => {}
            }
        }
    }

    fn is_connected(&self) -> bool {
        matches!(self.stage, Stage::Up(_))
    }

    fn next_attempt(&self, now: Time) -> Duration {
        let (least, most) = LOOKS;
        let looks = |began: Time| (now.since(began) / 8).clamp(least, most);
        match &self.stage {
            Stage::Waiting(until, _) => until.since(now).max(least),
            Stage::Naming(_, attempt) | Stage::Connecting(_, attempt) => looks(attempt.began),
            Stage::Greeting(_, greeting) => looks(greeting.began),
            Stage::Up(_) => most,
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    fn event(&mut self, event: &Event<'_>) -> Sent {
        if !self.is_connected() {
            return Sent::NoAgent;
        }
        if self.packet.event(event).is_err() {
            self.send();
            if !self.is_connected() {
                return Sent::NoAgent;
            }
            if self.packet.event(event).is_err() {
                return Sent::Full;
            }
        }
        if let Event::Ready { datapath } = event {
            let silence = datapath.fallback_after;
            self.silence = silence.map(|silence| (silence * SILENCES).max(LEAST_SILENCE));
        }
        self.urgent |= !matches!(event, Event::Report { urgent: false, .. });
        Sent::Yes
    }

    fn flush(&mut self) -> bool {
        let waits =
            !self.packet.is_empty() && !self.urgent && !self.answered && self.now() < self.due();
        // What waits for company is not behind.
        waits || self.send()
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Command)) {
        self.tell_time(now);
        let Stage::Up(stream) = &mut self.stage else {
            return;
        };
        let (latency, mut said) = (&mut self.latency, false);
        let mut take = |frame: Frame<'_>| {
            let Frame::Packet(packet) = frame else {
                return Err(Closed::Ours("it welcomed twice".to_owned()));
            };
            said = true;
            v2::read_commands(packet, &mut |command| {
                if let Command::Offer(offer) = &command {
                    *latency = offer.latency.min(*latency);
                }
                sink(command);
            })?;
            Ok(())
        };
        let mut read = Ok(0);
        for _ in 0..CHUNKS {
            read = stream.read(&mut self.buffer, &mut take);
            if !matches!(read, Ok(1..)) {
                break;
            }
        }
        if said {
            (self.heard, self.answered) = (now, true);
        }
        let silent = now.since(self.heard);
        match read {
            Err(why) => self.lost(now, &why),
            Ok(_) if self.silence.is_some_and(|most| silent > most) => {
                let why = format!("it was silent for {silent}");
                self.lost(now, &Closed::Ours(why));
            }
            Ok(_) => {}
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        if !self.is_connected() {
            return None;
        }
        let due = match &self.stage {
            Stage::Up(stream) if stream.waits() => Some(self.now() + LOOKS.0),
            _ => (!self.packet.is_empty()).then(|| self.due()),
        };
        let silent = self.silence.map(|most| self.heard + most + LOOKS.0);
        due.into_iter().chain(silent).min()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.stage {
            Stage::Waiting(..) | Stage::Naming(..) => None,
            Stage::Connecting(socket, _) => Some(socket.as_fd()),
            Stage::Greeting(stream, _) | Stage::Up(stream) => Some(stream.as_fd()),
        }
    }
}
