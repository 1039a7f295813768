//! An agent's end: datapaths of other hosts over TLS, a connection each.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ccplane_identity::Fingerprint;
use ccplane_units::{Duration, Time};
use ccplane_wire::framed::{self, Frame, Hello};
use ccplane_wire::{Command, Event, v2};
use nix::poll::PollFlags;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ServerConfig, ServerConnection};

use super::keys::{self, Keys, Role};
use super::stream::{Closed, READ, Stream};
use super::{KeyError, trust};
use crate::lines::Allowed;
use crate::link::rest::Rest;
use crate::link::warning::Warning;
use crate::link::{Link, LinkError};
use crate::{Agent, DatapathId};

/// Connections at once at most. Each takes some 100 KB; many more datapaths than an agent can steer would only take memory.
const MOST_CONNECTIONS: usize = 1024;
/// Of them, those that have not shown a key yet. Fewer would keep hosts waiting that all come back together; more would be memory for
/// whoever has no key.
const MOST_STRANGERS: usize = 64;
/// And of those, from one address. Fewer would keep hosts waiting that come back together from behind one address; more, and four addresses take
/// all places.
const MOST_OF_ONE: usize = 16;
/// How long one may take to show its key. Shorter would refuse hosts behind slow links; longer would hold a place for who says nothing.
const PATIENCE: Duration = Duration::from_secs(5);
/// Flows of a connection that are steered at most: twice what `attach` has room for unless it is told otherwise. Further ones stay with their
/// datapath's fallback, so that a datapath that opens flows without end takes its own share of memory and nobody else's.
const MOST_FLOWS: usize = 1 << 17;
/// Bytes that may wait for a datapath that does not read: the commands of a second for some thousand flows. Fewer would cut one that pauses, more
/// would be memory for one that is gone.
const MOST_WAITING: usize = 1 << 20;
/// How often the list of revoked keys is looked at: within a second of being revoked a key is to count no more.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Numbers of datapaths that a link has.
const NUMBERS: u32 = 1 << 24;

/// Serves datapaths of other hosts. Each shows a key; the key's certificate is of this agent's authority, is a datapath's, and was not revoked.
pub struct TlsLink {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    revocations: Revocations,
    /// Drawn for this process.
    process: u64,
    rest: Rest,
    /// Time of the last receive.
    now: Time,
    refusals: Warning,
    base: u32,
    /// Numbers are not used again, so that a late command never reaches another datapath.
    next: u32,
    strangers: Vec<Stranger>,
    /// In order of their numbers.
    datapaths: Vec<Datapath>,
    buffer: Box<[u8]>,
    fields: Vec<u64>,
}

/// A connection that has not said who it is.
struct Stranger {
    stream: Stream,
    peer: SocketAddr,
    since: Time,
}

/// One that has shown its key and was welcomed.
struct Datapath {
    id: DatapathId,
    name: String,
    key: Fingerprint,
    hello: Hello,
    stream: Stream,
    peer: SocketAddr,
    packet: v2::Packet,
    flows: HashSet<u64>,
    /// It was said that it has too many flows.
    too_many_said: bool,
    closed: Option<Closed>,
}

impl TlsLink {
    /// Listens at `address`, with the agent's key in the folder `keys`.
    pub fn bind(address: SocketAddr, keys: &Path) -> Result<TlsLink, LinkError> {
        TlsLink::with_clock(address, keys, Arc::new(DefaultTimeProvider))
    }

    /// The same, by a clock that says whether certificates are valid.
    pub(super) fn with_clock(
        address: SocketAddr,
        keys: &Path,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<TlsLink, LinkError> {
        let keys = Keys::load(keys, Role::Agent)?;
        let config = trust::agent(&keys, clock)?;
        let revocations = Revocations::read(keys.revoked)?;
        let failed = |why| LinkError::Listen { address, why };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(TlsLink {
            listener,
            config,
            revocations,
            process: super::process(),
            rest: Rest::default(),
            now: Time::ZERO,
            refusals: Warning::default(),
            base: 0,
            next: 0,
            strangers: Vec::new(),
            datapaths: Vec::new(),
            buffer: vec![0; READ].into_boxed_slice(),
            fields: Vec::new(),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// How many have not shown a key.
    #[cfg(test)]
    pub(super) fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// The datapath that was here first.
    #[cfg(test)]
    pub(super) fn first(&self) -> Option<DatapathId> {
        self.datapaths.first().map(|one| one.id)
    }

    /// Bytes that wait for that one.
    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.datapaths.first().map_or(0, |one| one.stream.unsent())
    }

    /// Says something to all, whether it is a frame or not.
    #[cfg(test)]
    pub(super) fn say_to_all(&mut self, bytes: &[u8]) {
        for datapath in &mut self.datapaths {
            datapath
                .stream
                .frame(bytes)
                .and_then(|()| datapath.stream.flush())
                .expect("room");
        }
    }

    fn accept(&mut self, now: Time) -> bool {
        if self.rest.lasts(now) {
            return false;
        }
        let mut any = false;
        // Who connects without end does not keep those from their turn that are here.
        for _ in 0..MOST_STRANGERS {
            match self.listener.accept() {
                Ok((socket, peer)) => {
                    any = true;
                    self.take(socket, peer, now);
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return any,
                Err(why)
                    if matches!(
                        why.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(why) => {
                    self.rest.begin(now, &why);
                    return any;
                }
            }
        }
        any
    }

    fn take(&mut self, socket: TcpStream, peer: SocketAddr, now: Time) {
        let (strangers, datapaths) = (self.strangers.len(), self.datapaths.len());
        let of_one = self.strangers.iter().filter(|one| one.peer.ip() == peer.ip()).count();
        if strangers >= MOST_STRANGERS || of_one >= MOST_OF_ONE || strangers + datapaths >= MOST_CONNECTIONS {
            if let Some(times) = self.refusals.due(now) {
                tracing::warn!(%peer, times, datapaths, strangers, "too many connections: this one is refused");
            }
            return;
        }
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other);
        match tls.and_then(|tls| Stream::new(socket, tls.into())) {
            Ok(stream) => self.strangers.push(Stranger {
                stream,
                peer,
                since: now,
            }),
            Err(why) => {
                if let Some(times) = self.refusals.due(now) {
                    tracing::warn!(%peer, times, %why, "a connection could not be taken");
                }
            }
        }
    }

    /// Looks whether strangers have said who they are; true if one said anything.
    fn greet(&mut self, agent: &mut Agent, now: Time) -> bool {
        let mut any = false;
        for mut stranger in std::mem::take(&mut self.strangers) {
            let heard = stranger.hear(&mut self.buffer, now).and_then(|heard| match heard {
                None => Ok(None),
                Some(hello) => self.know(&stranger, hello).map(Some),
            });
            match heard {
                Ok(None) => self.strangers.push(stranger),
                Ok(Some((name, key, hello))) => {
                    any = true;
                    self.welcome(agent, now, stranger, (name, key), hello);
                }
                Err(why) => {
                    any = true;
                    if let Some(times) = self.refusals.due(now) {
                        let why = in_words(&why);
                        tracing::warn!(peer = %stranger.peer, times, why, "a connection was refused");
                    }
                    stranger.stream.end(&why);
                }
            }
        }
        any
    }

    /// Whether a stranger that has shown a key may stay: its name and its key.
    fn know(&mut self, stranger: &Stranger, hello: Hello) -> Result<(String, Fingerprint, Hello), Closed> {
        let certificate = stranger.stream.certificate();
        let certificate = certificate.ok_or_else(|| Closed::Ours("it shows no certificate".to_owned()))?;
        let key = Fingerprint::of(certificate);
        let name = keys::name_of(certificate).unwrap_or_else(|| "unnamed".to_owned());
        if self.revocations.contain(&key) {
            return Err(Closed::Ours(revoked(&name)));
        }
        for other in self
            .datapaths
            .iter_mut()
            .filter(|one| one.key == key && one.closed.is_none())
        {
            if other.hello.process != hello.process {
                return Err(Closed::Ours(format!(
                    "the key of `{name}` is in use by a datapath at {}: give each process a key of its own (`ccplane keys DIR NAME`)",
                    other.peer
                )));
            }
            if other.hello.way == hello.way {
                // What became of the former connection, the datapath knows better.
                other.closed = Some(Closed::Ours("it connected anew".to_owned()));
            }
        }
        match self.next < NUMBERS {
            true => Ok((name, key, hello)),
            false => Err(Closed::Ours(
                "this agent has had too many datapaths: start it anew".to_owned(),
            )),
        }
    }

    fn welcome(
        &mut self,
        agent: &mut Agent,
        now: Time,
        stranger: Stranger,
        (name, key): (String, Fingerprint),
        hello: Hello,
    ) {
        let Stranger { mut stream, peer, .. } = stranger;
        let id = DatapathId(self.base + self.next);
        self.next += 1;
        agent.set_tenant(id, name.as_str().into());
        if let Some(Allowed { suppressed }) = agent.line(now, id) {
            tracing::info!(datapath = id.0, %name, %peer, suppressed, "a datapath connected");
        }
        let welcome = framed::hello(Hello {
            process: self.process,
            way: hello.way,
        });
        let closed = stream.frame(&welcome).err();
        self.datapaths.push(Datapath {
            id,
            name,
            key,
            hello,
            stream,
            peer,
            packet: v2::Packet::new(),
            flows: HashSet::new(),
            too_many_said: false,
            closed,
        });
    }

    /// Cuts those whose keys were revoked.
    fn look_at_revocations(&mut self, now: Time) {
        if !self.revocations.look(now) {
            return;
        }
        for datapath in &mut self.datapaths {
            if self.revocations.contain(&datapath.key) {
                datapath.closed = Some(Closed::Ours(revoked(&datapath.name)));
            }
        }
    }

    fn drop_closed(&mut self, agent: &mut Agent, now: Time) {
        for datapath in self.datapaths.extract_if(.., |datapath| datapath.closed.is_some()) {
            let (id, name, peer) = (datapath.id, &datapath.name, datapath.peer);
            let line = agent.line(now, id);
            agent.disconnected(id);
            match (line, &datapath.closed) {
                (None, _) => {}
                (Some(Allowed { suppressed }), Some(Closed::Gone | Closed::Goodbye(_)) | None) => {
                    tracing::info!(datapath = id.0, %name, %peer, suppressed, "a datapath closed its connection");
                }
                (Some(Allowed { suppressed }), Some(why)) => {
                    let why = in_words(why);
                    tracing::warn!(datapath = id.0, %name, %peer, why, suppressed, "a datapath's connection ended");
                }
            }
            if let Some(why) = &datapath.closed {
                datapath.stream.end(why);
            }
        }
    }
}

fn revoked(name: &str) -> String {
    format!("the key of `{name}` was revoked: `ccplane keys DIR {name}` makes a new one")
}

fn in_words(why: &Closed) -> String {
    match why {
        Closed::Tls(why) => trust::in_words(why, "a datapath"),
        why => why.to_string(),
    }
}

impl Link for TlsLink {
    fn number_from(&mut self, base: u32) {
        self.base = base;
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        let mut any = self.accept(now);
        self.now = now;
        any |= self.greet(agent, now);
        self.look_at_revocations(now);
        for datapath in self.datapaths.iter_mut().filter(|one| one.closed.is_none()) {
            match datapath.receive(&mut self.buffer, &mut self.fields, agent, now) {
                Ok(taken) => any |= taken,
                Err(why) => datapath.closed = Some(why),
            }
        }
        self.drop_closed(agent, now);
        any
    }

    fn send(&mut self, _agent: &mut Agent, _now: Time, to: DatapathId, command: &Command) {
        let Ok(index) = self.datapaths.binary_search_by_key(&to, |one| one.id) else {
            return;
        };
        let datapath = &mut self.datapaths[index];
        if let Err(why) = datapath.send(command) {
            datapath.closed = Some(why);
        }
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        for datapath in self.datapaths.iter_mut().filter(|one| one.closed.is_none()) {
            if let Err(why) = datapath.flush() {
                datapath.closed = Some(why);
            }
        }
        self.drop_closed(agent, self.now);
        false
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if !self.rest.is_on() {
            watched.push((self.listener.as_fd(), PollFlags::POLLIN));
        }
        let strangers = self.strangers.iter().map(|one| &one.stream);
        let streams = strangers.chain(self.datapaths.iter().map(|one| &one.stream));
        watched.extend(streams.map(|stream| {
            let room = match stream.waits() {
                true => PollFlags::POLLOUT,
                false => PollFlags::empty(),
            };
            (stream.as_fd(), PollFlags::POLLIN | room)
        }));
    }
}

impl Stranger {
    /// Goes on with the handshake; who it says it is, when it has.
    fn hear(&mut self, buffer: &mut [u8], now: Time) -> Result<Option<Hello>, Closed> {
        if now.since(self.since) > PATIENCE {
            return Err(Closed::Ours("it did not show a key in time".to_owned()));
        }
        let mut hello = None;
        self.stream.read(buffer, &mut |frame| match (frame, hello) {
            (Frame::Hello(said), None) => {
                hello = Some(said);
                Ok(())
            }
            _ => Err(Closed::Ours("it did not begin with who it is".to_owned())),
        })?;
        self.stream.flush()?;
        Ok(hello)
    }
}

impl Datapath {
    fn receive(
        &mut self,
        buffer: &mut [u8],
        fields: &mut Vec<u64>,
        agent: &mut Agent,
        now: Time,
    ) -> Result<bool, Closed> {
        let Datapath {
            stream,
            flows,
            id,
            name,
            ..
        } = self;
        let mut too_many = false;
        let taken = stream.read(buffer, &mut |frame| {
            let Frame::Packet(packet) = frame else {
                return Err(Closed::Ours("it said twice who it is".to_owned()));
            };
            v2::read_events(packet, fields, &mut |event| {
                match &event {
                    // It announces anew what lives.
                    Event::Ready { .. } => flows.clear(),
                    Event::FlowOpened { flow, .. } if flows.len() >= MOST_FLOWS && !flows.contains(flow) => {
                        too_many = true;
                        return;
                    }
                    Event::FlowOpened { flow, .. } => drop(flows.insert(*flow)),
                    Event::FlowClosed { flow, .. } => drop(flows.remove(flow)),
                    Event::Report { .. } | Event::Refused { .. } | Event::Installed { .. } => {}
                }
                agent.handle(now, *id, event);
            })?;
            Ok(())
        })?;
        if too_many && !std::mem::replace(&mut self.too_many_said, true) {
            tracing::warn!(datapath = id.0, %name, "it has more than {MOST_FLOWS} flows: the further ones stay with its own control");
        }
        Ok(taken)
    }

    fn send(&mut self, command: &Command) -> Result<(), Closed> {
        if self.packet.command(command).is_err() {
            self.give()?;
            self.packet.command(command)?;
        }
        Ok(())
    }

    /// Gives the packet to the stream.
    fn give(&mut self) -> Result<(), Closed> {
        if self.stream.unsent() + self.packet.as_bytes().len() > MOST_WAITING {
            return Err(Closed::Ours(format!(
                "it does not read: {MOST_WAITING} bytes wait for it"
            )));
        }
        self.stream.packet(&self.packet)?;
        self.packet.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Closed> {
        if !self.packet.is_empty() {
            self.give()?;
        }
        self.stream.flush()?;
        Ok(())
    }
}

/// The list of revoked keys, as the file has it.
struct Revocations {
    path: PathBuf,
    keys: HashMap<Fingerprint, String>,
    next: Time,
    trouble: Warning,
}

impl Revocations {
    fn read(path: PathBuf) -> Result<Revocations, KeyError> {
        let keys = keys::revoked(&path)?;
        Ok(Revocations {
            path,
            keys,
            next: Time::ZERO,
            trouble: Warning::default(),
        })
    }

    fn contain(&self, key: &Fingerprint) -> bool {
        self.keys.contains_key(key)
    }

    /// Looks at the file when it is time; true if it changed. One that cannot be read leaves what was known.
    fn look(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + LOOK_EVERY;
        match keys::revoked(&self.path) {
            Ok(keys) => std::mem::replace(&mut self.keys, keys) != self.keys,
            Err(why) => {
                if let Some(times) = self.trouble.due(now) {
                    tracing::warn!(%why, times, "which keys are revoked is not known anew: those of before are");
                }
                false
            }
        }
    }
}
