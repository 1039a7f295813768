//! The agent's end: datapaths on other hosts over TLS, one connection each.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use ccplane_agent::LogPermit;
use ccplane_agent::{Agent, DatapathId, FlowId};
use ccplane_units::{Duration, Time};
use ccplane_wire::framed::{self, Frame, Hello};
use ccplane_wire::{WireCommand, WireEvent, v2};
use nix::poll::PollFlags;
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::{ServerConfig, ServerConnection};

use super::keys::{self, Keys, Role};
use super::pending_connections::PendingConnections;
use super::revocations::Revocations;
use super::stream::{CHUNK_BYTES, SHARED_CHUNK_BYTES, Stream, TlsCloseReason};
use super::tenants::{self, Tenant, Tenants};
use super::trust;
use crate::accept_backoff::AcceptBackoff;
use crate::identity::Fingerprint;
use crate::random;
use crate::warning::Warning;
use crate::{DatapathLink, LinkError};

/// Limit of connections in total. Each takes about 100 KB; more datapaths than an agent can handle
/// would only use memory.
const CONNECTIONS_MAX: usize = 1024;
/// Connections accepted per turn. With fewer, hosts that reconnect together wait; with more, a
/// flood delays the datapaths.
const ACCEPTS_PER_TURN: usize = 16;
/// Handshakes that may progress per turn. Each step costs up to 1 ms of signatures and key
/// exchange.
const HANDSHAKES_PER_TURN: usize = 4;
/// Timeout for the handshake and the first message. A shorter one would refuse hosts behind slow
/// links; a longer one would hold a slot for a silent peer.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of bytes queued for a datapath that does not read: one second of commands for some
/// thousand flows. A lower limit would disconnect a datapath that pauses; a higher one would waste
/// memory on dead ones.
const UNSENT_BYTES_MAX: usize = tenants::UNSENT_BYTES_MAX / 4;
/// Lower bound of a datapath's fallback timeout. With a shorter one, heartbeats alone would keep
/// the agent busy.
const FALLBACK_AFTER_MIN: Duration = Duration::from_millis(10);
/// Size of a link's range of datapath ids. Ids wrap around.
const DATAPATH_IDS_PER_LINK: u32 = 1 << 24;

/// Serves datapaths on other hosts. Each must present a datapath certificate that is signed by this
/// agent's CA and not revoked.
pub struct TlsLink {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    revocations: Revocations,
    /// Random id of this process.
    process: u64,
    accept_backoff: AcceptBackoff,
    /// Time of the last `receive`.
    now: Time,
    refusals: Warning,
    base: u32,
    /// Id to try next, relative to `base`.
    next_id: u32,
    pending: PendingConnections<PendingConnection>,
    tenants: Tenants,
    /// Turn counter; rotates which datapath is served first.
    turns: usize,
    /// Sorted by id.
    datapaths: Vec<TlsDatapath>,
    buffer: Box<[u8]>,
    fields: Vec<u64>,
}

/// A connection whose handshake is not complete.
struct PendingConnection {
    stream: Stream,
    peer: SocketAddr,
    accepted_at: Time,
}

/// An authenticated connection.
struct TlsDatapath {
    id: DatapathId,
    name: String,
    key: Fingerprint,
    hello: Hello,
    stream: Stream,
    peer: SocketAddr,
    packet: v2::PacketWriter,
    /// True once the first `Ready` has arrived.
    is_ready: bool,
    /// True once it was logged that the key has too many flows.
    flow_limit_logged: bool,
    closed: Option<TlsCloseReason>,
}

impl TlsLink {
    /// Listens at `address`, with the agent's key from the directory `keys`.
    pub fn bind(address: SocketAddr, keys: &Path) -> Result<TlsLink, LinkError> {
        TlsLink::with_clock(address, keys, Arc::new(DefaultTimeProvider))
    }

    /// Listens with a given clock for certificate validity.
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
            accept_backoff: AcceptBackoff::default(),
            now: Time::ZERO,
            refusals: Warning::default(),
            base: 0,
            next_id: 0,
            pending: PendingConnections::new(random::seeded_rng()),
            tenants: Tenants::default(),
            turns: 0,
            datapaths: Vec::new(),
            buffer: vec![0; CHUNK_BYTES].into_boxed_slice(),
            fields: Vec::new(),
        })
    }

    /// Returns the local address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns the number of connections that are not authenticated.
    #[cfg(test)]
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Returns the id of the first datapath.
    #[cfg(test)]
    pub(super) fn first(&self) -> Option<DatapathId> {
        self.datapaths.first().map(|one| one.id)
    }

    /// Returns the bytes queued for the first datapath.
    #[cfg(test)]
    pub(super) fn unsent(&self) -> usize {
        self.datapaths.first().map_or(0, |one| one.stream.unsent())
    }

    /// Sends bytes to all datapaths, whether they form a frame or not.
    #[cfg(test)]
    pub(super) fn send_to_all(&mut self, bytes: &[u8]) {
        for datapath in &mut self.datapaths {
            datapath
                .stream
                .queue_frame(bytes)
                .and_then(|()| datapath.stream.flush())
                .expect("room");
        }
    }

    fn accept(&mut self, now: Time) -> bool {
        if self.accept_backoff.check_paused(now) {
            return false;
        }
        let mut any = false;
        for _ in 0..ACCEPTS_PER_TURN {
            match self.listener.accept() {
                Ok((socket, peer)) => {
                    any = true;
                    self.begin_handshake(socket, peer, now);
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return any,
                Err(why)
                    if matches!(
                        why.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(why) => {
                    self.accept_backoff.pause(now, &why);
                    return any;
                }
            }
        }
        any
    }

    fn begin_handshake(&mut self, socket: TcpStream, peer: SocketAddr, now: Time) {
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other);
        let stream = match tls.and_then(|tls| Stream::new(socket, tls.into())) {
            Ok(stream) => stream,
            Err(why) => {
                if let Some(times) = self.refusals.due(now) {
                    tracing::warn!(%peer, times, %why, "cannot accept a connection");
                }
                return;
            }
        };
        let stranger = PendingConnection {
            stream,
            peer,
            accepted_at: now,
        };
        let leaves = self.pending.admit(peer.ip().into(), stranger);
        if let Some(other) = leaves
            && let Some(times) = self.refusals.due(now)
        {
            let strangers = self.pending.len();
            tracing::warn!(peer = %other.peer, times, strangers, "too many unauthenticated \
                connections; dropping a new one");
        }
    }

    /// Advances pending handshakes. Returns whether any of them made progress.
    fn advance_handshakes(&mut self, agent: &mut Agent, now: Time) -> bool {
        let (mut welcomed, mut refused) = (Vec::new(), Vec::new());
        let mut any = false;
        let buffer = &mut self.buffer;
        self.pending.serve(HANDSHAKES_PER_TURN, |mut stranger| {
            match stranger.advance(buffer, now) {
                Ok((heard, None)) => {
                    any |= heard;
                    return (Some(stranger), heard);
                }
                Ok((_, Some(hello))) => welcomed.push((stranger, hello)),
                Err(why) => refused.push((stranger, why)),
            }
            any = true;
            (None, true)
        });
        for (stranger, hello) in welcomed {
            match self.authenticate(&stranger, hello, now) {
                Ok((name, key)) => self.add_datapath(agent, now, stranger, (name, key), hello),
                Err(why) => refused.push((stranger, why)),
            }
        }
        for (stranger, why) in refused {
            if let Some(times) = self.refusals.due(now) {
                let why = describe(&why);
                tracing::warn!(peer = %stranger.peer, times, why, "refused a connection");
            }
            stranger.stream.close(&why);
        }
        any
    }

    /// Authenticates a connection and returns the name and fingerprint of its key. From here on the
    /// connection counts towards the key's limits.
    fn authenticate(
        &mut self,
        connection: &PendingConnection,
        hello: Hello,
        now: Time,
    ) -> Result<(String, Fingerprint), TlsCloseReason> {
        let certificate = connection.stream.certificate();
        let certificate = certificate
            .ok_or_else(|| TlsCloseReason::Local("it sent no certificate".to_owned()))?;
        let key = Fingerprint::of_certificate(certificate);
        let name = keys::name_of(certificate).unwrap_or_else(|| "unnamed".to_owned());
        if self.revocations.contains(&key) {
            return Err(TlsCloseReason::Local(revoked(&name)));
        }
        for other in self
            .datapaths
            .iter_mut()
            .filter(|one| one.key == key && one.closed.is_none())
        {
            if other.hello.process != hello.process {
                return Err(TlsCloseReason::Local(format!(
                    "a datapath at {} already uses the key `{name}`; create a key for each process \
                    (`ccplane keys DIR NAME`)",
                    other.peer
                )));
            }
            if other.hello.channel == hello.channel {
                // The datapath reconnected, so the old connection must be dead even if the agent
                // has not noticed.
                other.closed = Some(TlsCloseReason::Local("it reconnected".to_owned()));
            }
        }
        if self.datapaths.len() >= CONNECTIONS_MAX {
            return Err(TlsCloseReason::Local(format!(
                "the agent already has {CONNECTIONS_MAX} datapaths, the maximum"
            )));
        }
        let open = self
            .datapaths
            .iter()
            .filter(|one| one.key == key && one.closed.is_none())
            .count();
        self.tenants
            .entry(key)
            .admit(now, open)
            .map_err(TlsCloseReason::Local)?;
        Ok((name, key))
    }

    /// Returns an unused datapath id. Ids are reused only after all others.
    fn next_datapath_id(&mut self, agent: &Agent) -> DatapathId {
        loop {
            let id = DatapathId(self.base + self.next_id);
            self.next_id = (self.next_id + 1) % DATAPATH_IDS_PER_LINK;
            let live = self
                .datapaths
                .binary_search_by_key(&id, |one| one.id)
                .is_ok();
            if !live && agent.retained_flows(id) == 0 {
                return id;
            }
        }
    }

    fn add_datapath(
        &mut self,
        agent: &mut Agent,
        now: Time,
        connection: PendingConnection,
        (name, key): (String, Fingerprint),
        hello: Hello,
    ) {
        let PendingConnection {
            mut stream, peer, ..
        } = connection;
        let id = self.next_datapath_id(agent);
        agent.set_tenant(id, name.as_str().into());
        if let Some(LogPermit { suppressed }) = agent.take_log_permit(now, id) {
            tracing::info!(datapath = id.0, %name, %peer, suppressed, "a datapath connected");
        }
        let welcome = framed::encode_hello(Hello {
            process: self.process,
            channel: hello.channel,
        });
        let closed = stream.queue_frame(&welcome).err();
        self.tenants.entry(key).connected(id);
        let at = self.datapaths.partition_point(|one| one.id < id);
        let datapath = TlsDatapath {
            id,
            name,
            key,
            hello,
            stream,
            peer,
            packet: v2::PacketWriter::new(),
            is_ready: false,
            flow_limit_logged: false,
            closed,
        };
        self.datapaths.insert(at, datapath);
    }

    /// Closes the connections of revoked keys.
    fn check_revocations(&mut self, now: Time) {
        if !self.revocations.reload_if_due(now) {
            return;
        }
        for datapath in &mut self.datapaths {
            if self.revocations.contains(&datapath.key) {
                datapath.closed = Some(TlsCloseReason::Local(revoked(&datapath.name)));
            }
        }
    }

    fn drop_closed(&mut self, agent: &mut Agent, now: Time) {
        for datapath in self
            .datapaths
            .extract_if(.., |datapath| datapath.closed.is_some())
        {
            let (id, name, peer) = (datapath.id, &datapath.name, datapath.peer);
            let line = agent.take_log_permit(now, id);
            agent.on_disconnect(id);
            self.tenants.entry(datapath.key).disconnected(agent, id);
            match (line, &datapath.closed) {
                (None, _) => {}
                (
                    Some(LogPermit { suppressed }),
                    Some(TlsCloseReason::Gone | TlsCloseReason::Goodbye(_)) | None,
                ) => {
                    tracing::info!(
                        datapath = id.0, %name, %peer, suppressed,
                        "a datapath closed its connection"
                    );
                }
                (Some(LogPermit { suppressed }), Some(why)) => {
                    let why = describe(why);
                    tracing::warn!(datapath = id.0, %name, %peer, why, suppressed, "disconnected a \
                        datapath");
                }
            }
            if let Some(why) = &datapath.closed {
                datapath.stream.close(why);
            }
        }
    }
}

fn revoked(name: &str) -> String {
    format!("the key `{name}` was revoked; create a new one with `ccplane keys DIR {name}`")
}

fn describe(why: &TlsCloseReason) -> String {
    match why {
        TlsCloseReason::Tls(why) => trust::describe(why, "a datapath"),
        why => why.to_string(),
    }
}

impl DatapathLink for TlsLink {
    fn set_id_base(&mut self, base: u32) {
        self.base = base;
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        let mut any = self.accept(now);
        self.now = now;
        any |= self.advance_handshakes(agent, now);
        self.check_revocations(now);
        // If only one key is connected, read in larger chunks to save system calls.
        let chunk = match self.tenants.begin_turn() {
            0 | 1 => CHUNK_BYTES,
            _ => SHARED_CHUNK_BYTES,
        };
        self.turns = self.turns.wrapping_add(1);
        let count = self.datapaths.len();
        for index in 0..count {
            let datapath = &mut self.datapaths[(index + self.turns) % count];
            let tenant = self.tenants.entry(datapath.key);
            while datapath.closed.is_none() && tenant.may_read(now) {
                let before = agent.work_units();
                match datapath.receive(
                    &mut self.buffer[..chunk],
                    &mut self.fields,
                    tenant,
                    agent,
                    now,
                ) {
                    Ok(0) => break,
                    Ok(bytes) => tenant.charge(now, bytes, agent.work_units() - before),
                    Err(why) => datapath.closed = Some(why),
                }
                any = true;
            }
        }
        self.drop_closed(agent, now);
        any
    }

    fn send(&mut self, _agent: &mut Agent, _now: Time, to: DatapathId, command: &WireCommand) {
        let Ok(index) = self.datapaths.binary_search_by_key(&to, |one| one.id) else {
            return;
        };
        let datapath = &mut self.datapaths[index];
        if let Err(why) = datapath.send(command) {
            datapath.closed = Some(why);
        }
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        self.tenants.begin_flush();
        for datapath in self.datapaths.iter_mut().filter(|one| one.closed.is_none()) {
            if let Err(why) = datapath.flush() {
                datapath.closed = Some(why);
            } else if !self
                .tenants
                .entry(datapath.key)
                .add_unsent(datapath.stream.unsent())
            {
                let why = format!(
                    "{} bytes are queued for the datapaths of its key",
                    tenants::UNSENT_BYTES_MAX
                );
                datapath.closed = Some(TlsCloseReason::Local(why));
            }
        }
        self.drop_closed(agent, self.now);
        false
    }

    fn next_deadline(&self) -> Option<Time> {
        self.tenants.next_deadline(self.now)
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if !self.accept_backoff.is_paused() {
            watched.push((self.listener.as_fd(), PollFlags::POLLIN));
        }
        watched.extend(self.pending.iter().map(|one| one.stream.watch(true)));
        watched.extend(self.datapaths.iter().map(|one| {
            let tenant = self.tenants.get(&one.key);
            let reads = !tenant.is_some_and(|tenant| tenant.is_throttled(self.now));
            one.stream.watch(reads)
        }));
    }
}

impl PendingConnection {
    /// Advances the handshake. Returns whether bytes arrived, and the peer's hello once it is
    /// complete.
    fn advance(
        &mut self,
        buffer: &mut [u8],
        now: Time,
    ) -> Result<(bool, Option<Hello>), TlsCloseReason> {
        if now.since(self.accepted_at) > HANDSHAKE_TIMEOUT {
            return Err(TlsCloseReason::Local(
                "it did not complete the handshake in time".to_owned(),
            ));
        }
        let mut hello = None;
        let taken = self
            .stream
            .read(buffer, &mut |frame| match (frame, hello) {
                (Frame::Hello(said), None) => {
                    hello = Some(said);
                    Ok(())
                }
                _ => Err(TlsCloseReason::Local(
                    "its first message is not a hello".to_owned(),
                )),
            })?;
        self.stream.flush()?;
        Ok((taken > 0, hello))
    }
}

impl TlsDatapath {
    /// Reads one chunk and returns its length.
    fn receive(
        &mut self,
        buffer: &mut [u8],
        fields: &mut Vec<u64>,
        tenant: &mut Tenant,
        agent: &mut Agent,
        now: Time,
    ) -> Result<usize, TlsCloseReason> {
        let TlsDatapath {
            stream,
            is_ready: began,
            id,
            name,
            ..
        } = self;
        let (others, mut too_many, mut too_often) =
            (tenant.flows_of_other_datapaths(agent, *id), false, None);
        let taken = stream.read(buffer, &mut |frame| {
            let Frame::Packet(packet) = frame else {
                return Err(TlsCloseReason::Local("it sent a second hello".to_owned()));
            };
            v2::read_events(packet, fields, &mut |mut event| {
                match &mut event {
                    WireEvent::Ready { datapath } => {
                        // The first `Ready` was already charged with the connection.
                        if std::mem::replace(began, true)
                            && let Err(why) = tenant.charge_start(now)
                        {
                            too_often = Some(why);
                        }
                        let silence = datapath.agent_timeout;
                        datapath.agent_timeout =
                            silence.map(|silence| silence.max(FALLBACK_AFTER_MIN));
                    }
                    WireEvent::FlowOpened { flow, .. } => {
                        let id = FlowId {
                            datapath: *id,
                            flow: *flow,
                        };
                        let held = others + agent.retained_flows(id.datapath);
                        if held >= tenants::FLOWS_MAX && !agent.is_open(id) {
                            too_many = true;
                            return;
                        }
                    }
                    WireEvent::FlowClosed { .. }
                    | WireEvent::Report { .. }
                    | WireEvent::Refused { .. }
                    | WireEvent::Installed { .. } => {}
                }
                if too_often.is_none() {
                    agent.handle(now, *id, event);
                }
            })?;
            match too_often.take() {
                Some(why) => Err(TlsCloseReason::Local(why)),
                None => Ok(()),
            }
        })?;
        if too_many && !std::mem::replace(&mut self.flow_limit_logged, true) {
            tracing::warn!(
                datapath = id.0,
                %name,
                "its key has more than {} flows; further flows stay on the datapath's fallback",
                tenants::FLOWS_MAX
            );
        }
        Ok(taken)
    }

    fn send(&mut self, command: &WireCommand) -> Result<(), TlsCloseReason> {
        if self.packet.push_command(command).is_err() {
            self.queue_packet()?;
            self.packet.push_command(command)?;
        }
        Ok(())
    }

    /// Moves the packet to the stream's send queue.
    fn queue_packet(&mut self) -> Result<(), TlsCloseReason> {
        if self.stream.unsent() + self.packet.as_bytes().len() > UNSENT_BYTES_MAX {
            return Err(TlsCloseReason::Local(format!(
                "it does not read; {UNSENT_BYTES_MAX} bytes are queued for it"
            )));
        }
        self.stream.queue_packet(&self.packet)?;
        self.packet.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TlsCloseReason> {
        if !self.packet.is_empty() {
            self.queue_packet()?;
        }
        self.stream.flush()?;
        Ok(())
    }
}
