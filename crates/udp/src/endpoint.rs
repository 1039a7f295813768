//! Connections of one local address. Opens them without trusting a source address, demultiplexes
//! datagrams, and drops and counts invalid ones.
//!
//! A client's hello carries its random identifier and is padded to a full datagram. If it is not
//! answered, further hellos are sent in all common path MTU sizes; the largest that is answered
//! gives the path MTU.
//!
//! With TLS the hello carries the client's first flight and the answer the server's, which is at
//! most three times as long as the hello. The server keeps the handshake until the client has
//! completed it, and only then creates the connection. It keeps at most 256 handshakes of
//! unverified clients. Beyond that limit, or always if configured so, it answers with a stateless
//! cookie (see [`Cookies`]), which the next hello has to return as proof that the client receives
//! at its address.
//!
//! Without TLS the answer to a hello is always stateless: the identifier in it is derived from a
//! secret, and the client's first data proves that it was received. A forged address thus costs the
//! server one hash and attracts fewer bytes than were sent.
//!
//! A datagram belongs to a connection if it has the connection's identifiers and, under TLS, a
//! valid seal. Off-path senders can neither inject data nor reset a connection.

mod cookie;
mod flight;
#[doc(hidden)]
pub mod fuzz;
mod pending;
mod quota;
mod session;
#[cfg(test)]
mod tests;

pub use cookie::{COOKIE_LIFETIME_MAX, Cookies};
pub use pending::PENDING_HANDSHAKES_MAX;
pub use quota::ListenLimits;
pub use session::{BASE_PLPMTU, MIN_PLPMTU, hello_sizes, mss, overhead};

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ccplane_units::Time;

use crate::codec::{ClientAddress, CodecError, Cover, Crypto, Envelope, HEADER_BYTES_MAX};
use crate::tls::{Handshake, HandshakeError, Level, Tls};
use ccplane_transport::{Connection, Proof, Segment, SegmentKind, SideData, TransportConfig};

use pending::{Pending, PendingHandshakes, encode};
use quota::ConnectionQuota;
use session::{HandshakeOutcome, Session};

/// Bytes of the smallest hello that is answered under TLS: the smallest of the [`sizes`]. Three
/// times as many bytes hold the server's whole flight.
const HELLO_BYTES_MIN: usize = MIN_PLPMTU;
/// Bytes that may be sent to an unverified address per byte received from it (RFC 9000, section
/// 8.1).
const ANTI_AMPLIFICATION_FACTOR: usize = 3;

/// Identifiers of closed connections that are remembered while they could still open a new one.
/// Beyond the limit the oldest is forgotten; a late copy of its first datagram then opens a
/// connection that ends by the idle timeout.
const CLOSED_IDS_MAX: usize = 4096;

/// Demultiplexer of all connections of a local address; see the [module](self).
pub struct Endpoint {
    listening: Option<Listener>,
    tls: Option<Tls>,
    /// Bytes of a full datagram.
    size: usize,
    config: Arc<TransportConfig>,
    sessions: BTreeMap<u64, Session>,
    /// Closed connections with the time of closing, oldest first.
    closed: VecDeque<(Time, u64)>,
    counters: DropCounters,
}

struct Listener {
    cookies: Cookies,
    quota: ConnectionQuota,
    pending: PendingHandshakes,
    /// Set when a client was rejected because of the limit on all connections.
    crowded: bool,
}

/// Outcome of a received datagram.
#[derive(Debug)]
pub enum DatagramOutcome {
    /// Segment of connection `id` with its nonces and the range of its payload in the datagram.
    Segment(u64, Segment, Proof, Range<usize>),
    /// First segment of a client whose address is now verified. The caller passes `open` to
    /// [`Connection::accept`], discards the answer, and then handles `segment`.
    Accepted {
        /// Identifier of the new connection.
        id: u64,
        /// Reconstructed hello.
        open: Segment,
        /// Received segment.
        segment: Segment,
        /// Nonces of the segment.
        proof: Proof,
        /// Range of the payload in the datagram.
        payload: Range<usize>,
    },
    /// Answer in `out`: total bytes, and bytes per datagram; the last datagram may be shorter.
    Answer(usize, usize),
    /// Answer of one datagram in `out`: a TLS alert with the reason for a failed handshake.
    Alert(usize),
    /// Handshake datagram that needs no further action.
    Nothing,
    /// The server requests another hello of client `id` at once ([`Connection::resend_open`]).
    HelloRequested(u64),
    /// The handshake of client `id` has failed; see [`Endpoint::handshake_error`].
    HandshakeFailed(u64),
    /// Connection `id` has reached the limit of forgeries and must be closed (RFC 9001, section
    /// 6.6).
    IntegrityLimit(u64),
}

/// Reason for which a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DropReason {
    /// Not a valid datagram of this protocol.
    #[error("not a ccplane datagram: {0}")]
    Malformed(CodecError),
    /// In plain text, and this endpoint requires TLS.
    #[error("not encrypted, but this host requires TLS")]
    NotEncrypted,
    /// Sealed, or a TLS hello, and this endpoint does not use TLS.
    #[error("encrypted, but TLS is off on this host")]
    Encrypted,
    /// Sealed with another key, or modified.
    #[error("encrypted with another key, or modified in transit")]
    Forged,
    /// Forged like [`DropReason::Forged`], and the connection has reached the limit of forgeries
    /// for its keys.
    #[error("forged, and the limit of forgeries for the connection's keys is reached")]
    IntegrityLimit,
    /// The handshake of its connection is not complete.
    #[error("received before the end of its handshake")]
    HandshakeIncomplete,
    /// TLS rejected the handshake.
    #[error(
        "handshake failed: its certificate is not listed with --client, or its TLS is not \
        compatible"
    )]
    HandshakeFailed,
    /// Duplicate of an earlier datagram.
    #[error("a repetition")]
    Replayed,
    /// No connection has its identifiers, and it cannot open one.
    #[error("unknown connection")]
    UnknownConnection,
    /// The connection has another peer address.
    #[error("the address is not the address of its connection")]
    AddressMismatch,
    /// Too many connections in total, or from this address.
    #[error("too many connections")]
    TooManyConnections,
    /// Source port 0: it cannot be answered, and trying to would be an error of the socket.
    #[error("sent from port 0, which cannot receive a reply")]
    SourcePortZero,
    /// A hello to an endpoint that does not listen.
    #[error("a hello, but this host does not accept connections")]
    NotListening,
    /// A hello smaller than its answer may be.
    #[error("the hello is smaller than its reply")]
    HelloTooSmall,
}

/// Dropped datagrams by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounters {
    /// [`DropReason::Malformed`].
    pub malformed: u64,
    /// [`DropReason::NotEncrypted`] and [`DropReason::Encrypted`].
    pub mismatched: u64,
    /// [`DropReason::Forged`], [`DropReason::IntegrityLimit`] and [`DropReason::HandshakeFailed`].
    pub forged: u64,
    /// [`DropReason::Replayed`].
    pub replayed: u64,
    /// [`DropReason::UnknownConnection`], [`DropReason::HandshakeIncomplete`],
    /// [`DropReason::AddressMismatch`], [`DropReason::SourcePortZero`],
    /// [`DropReason::NotListening`] and [`DropReason::HelloTooSmall`].
    pub unknown: u64,
    /// [`DropReason::TooManyConnections`].
    pub full: u64,
}

impl DropCounters {
    fn count(&mut self, why: DropReason) {
        *match why {
            DropReason::Malformed(_) => &mut self.malformed,
            DropReason::NotEncrypted | DropReason::Encrypted => &mut self.mismatched,
            DropReason::Forged | DropReason::IntegrityLimit | DropReason::HandshakeFailed => {
                &mut self.forged
            }
            DropReason::Replayed => &mut self.replayed,
            DropReason::UnknownConnection
            | DropReason::HandshakeIncomplete
            | DropReason::AddressMismatch
            | DropReason::SourcePortZero
            | DropReason::NotListening
            | DropReason::HelloTooSmall => &mut self.unknown,
            DropReason::TooManyConnections => &mut self.full,
        } += 1;
    }

    /// Returns the sum of all counters.
    pub fn total(&self) -> u64 {
        self.malformed + self.mismatched + self.forged + self.replayed + self.unknown + self.full
    }
}

impl Endpoint {
    /// Creates an endpoint whose datagrams have at most `size` bytes. `config` applies to all
    /// connections; its MSS must not exceed [`mss`].
    pub fn new(config: Arc<TransportConfig>, size: usize, tls: Option<Tls>) -> Endpoint {
        Endpoint {
            listening: None,
            tls,
            size,
            config,
            sessions: BTreeMap::new(),
            closed: VecDeque::new(),
            counters: DropCounters::default(),
        }
    }

    /// Accepts connections, within limits. `secret` must be random and new at each start.
    pub fn listen(&mut self, secret: [u8; 32], limits: ListenLimits) {
        self.listening = Some(Listener {
            cookies: Cookies::new(secret),
            quota: ConnectionQuota::new(limits),
            pending: PendingHandshakes::default(),
            crowded: false,
        });
    }

    /// Starts a connection with the random identifier `id`. Returns false if `id` is in use, or 0.
    pub fn connect(&mut self, address: SocketAddr, id: u64) -> Result<bool, HandshakeError> {
        if id == 0 || self.sessions.contains_key(&id) {
            return Ok(false);
        }
        let session = Session::client(address, id, self.config.mss, self.size, self.tls.as_ref())?;
        self.sessions.insert(id, session);
        Ok(true)
    }

    /// Encodes a segment of connection `id` into `out`. `prove` returns its nonces; `fill` writes
    /// the payload. Returns the length and the destination.
    #[inline]
    pub fn write(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &mut SideData,
        out: &mut [u8],
        prove: impl FnOnce(&SideData) -> Proof,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<(usize, SocketAddr)> {
        let session = self.sessions.get_mut(&id)?;
        let length = session.write(segment, side, out, prove, fill)?;
        Some((length, session.address))
    }

    /// Starts the client's last handshake flight if one has to precede `segment`, which proves the
    /// client's address. [`write_flight`](Endpoint::write_flight) writes it.
    #[cold]
    pub fn begin_flight(&mut self, id: u64, segment: &Segment) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.begin_flight(segment);
        }
    }

    /// Writes the next datagram of the flight and returns its length and destination; `None` at the
    /// end.
    #[cold]
    pub fn write_flight(&mut self, id: u64, out: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let session = self.sessions.get_mut(&id)?;
        let length = session.write_flight(out)?;
        Some((length, session.address))
    }

    /// Processes a datagram, which may be decrypted in place. `out` must have room for an answer.
    #[inline]
    pub fn receive(
        &mut self,
        now: Time,
        address: SocketAddr,
        datagram: &mut [u8],
        side: &mut SideData,
        out: &mut [u8],
    ) -> Result<DatagramOutcome, DropReason> {
        let arrival = self.demultiplex(now, address, datagram, side, out);
        arrival.inspect_err(|&why| self.counters.count(why))
    }

    fn demultiplex(
        &mut self,
        now: Time,
        address: SocketAddr,
        datagram: &mut [u8],
        side: &mut SideData,
        out: &mut [u8],
    ) -> Result<DatagramOutcome, DropReason> {
        if address.port() == 0 {
            return Err(DropReason::SourcePortZero);
        }
        let (envelope, head) = Envelope::read(datagram).map_err(DropReason::Malformed)?;
        let received = ReceivedDatagram {
            now,
            address,
            envelope,
            head,
        };
        let Some(session) = self.sessions.get_mut(&envelope.to) else {
            return self.receive_unconnected(received, datagram, side, out);
        };
        if session.address != address {
            return Err(DropReason::AddressMismatch);
        }
        if matches!(envelope.cover, Cover::Handshake | Cover::SealedHandshake) {
            let heard = session.on_handshake(&envelope, head, datagram)?;
            return Ok(match heard {
                HandshakeOutcome::Incomplete => DatagramOutcome::Nothing,
                HandshakeOutcome::HelloRequested => DatagramOutcome::HelloRequested(envelope.to),
                HandshakeOutcome::Complete(segment) => {
                    DatagramOutcome::Segment(envelope.to, segment, Proof::default(), 0..0)
                }
                HandshakeOutcome::Failed => DatagramOutcome::HandshakeFailed(envelope.to),
            });
        }
        match session.read(&envelope, head, datagram, side) {
            Ok((segment, proof, payload)) => Ok(DatagramOutcome::Segment(
                envelope.to,
                segment,
                proof,
                payload,
            )),
            Err(DropReason::IntegrityLimit) => {
                self.counters.count(DropReason::IntegrityLimit);
                Ok(DatagramOutcome::IntegrityLimit(envelope.to))
            }
            Err(why) => Err(why),
        }
    }

    /// Handles a datagram without a connection; it may open one.
    #[cold]
    fn receive_unconnected(
        &mut self,
        received: ReceivedDatagram,
        datagram: &mut [u8],
        side: &mut SideData,
        out: &mut [u8],
    ) -> Result<DatagramOutcome, DropReason> {
        let ReceivedDatagram { envelope, .. } = received;
        let source = envelope
            .from
            .filter(|source| source.id != 0)
            .ok_or(DropReason::UnknownConnection)?;
        match (&self.tls, envelope.cover, envelope.to) {
            (None, Cover::Plain, 0) => self.answer_hello(received, source, datagram, out),
            (None, Cover::Plain, _) => self.accept(received, source, datagram, side),
            (None, ..) => Err(DropReason::Encrypted),
            (Some(_), Cover::Plain, _) => Err(DropReason::NotEncrypted),
            (Some(_), Cover::Handshake, _) => self.on_tls_hello(received, source, datagram, out),
            (Some(_), Cover::SealedHandshake, _) => {
                self.on_client_flight(received, source, datagram, out)
            }
            (Some(_), Cover::Sealed { .. }, _) => {
                self.accept_sealed(received, source, datagram, side)
            }
        }
    }

    /// Answers a hello without keeping state.
    fn answer_hello(
        &mut self,
        received: ReceivedDatagram,
        source: ClientAddress,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<DatagramOutcome, DropReason> {
        let listening = self.listener_with_room(received.address)?;
        let (open, ..) = session::parse(
            datagram,
            received.head..datagram.len(),
            &mut SideData::default(),
        )?;
        let us = ClientAddress {
            id: listening
                .cookies
                .issue(received.now, received.address, source.id),
            mss: self.config.mss,
        };
        let segment = self.build_answer(received.now, &open)?;
        let limit = datagram.len().min(out.len());
        let answer = session::answer(
            us,
            source.id,
            &segment,
            &mut SideData::default(),
            &mut out[..limit],
        );
        let length = answer.ok_or(DropReason::HelloTooSmall)?;
        Ok(DatagramOutcome::Answer(length, length))
    }

    /// Returns the listening side if it has room for another connection from this address.
    fn listener_with_room(&mut self, address: SocketAddr) -> Result<&mut Listener, DropReason> {
        let listening = self.listening.as_mut().ok_or(DropReason::NotListening)?;
        if listening.quota.has_room(address) {
            return Ok(listening);
        }
        listening.crowded |= listening.quota.is_full();
        Err(DropReason::TooManyConnections)
    }

    /// Returns a server's answer to a hello.
    fn build_answer(&self, now: Time, open: &Segment) -> Result<Segment, DropReason> {
        let mut reply =
            Connection::accept(&self.config, now, open).ok_or(DropReason::UnknownConnection)?;
        let mut segment = reply
            .transmit(now, 0, &mut SideData::default())
            .ok_or(DropReason::UnknownConnection)?;
        // From the echoed transmission the client learns which of its hellos the path carried.
        (segment.echo, segment.echo_transmission) = (open.number, open.transmission);
        Ok(segment)
    }

    /// Answers a hello with the server's handshake flight, or with a cookie that the next hello has
    /// to return.
    fn on_tls_hello(
        &mut self,
        received: ReceivedDatagram,
        source: ClientAddress,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<DatagramOutcome, DropReason> {
        let ReceivedDatagram {
            now,
            address,
            envelope,
            head,
        } = received;
        self.listener_with_room(address)?;
        if datagram.len() < HELLO_BYTES_MIN {
            return Err(DropReason::HelloTooSmall);
        }
        let (part, length) = Crypto::read(datagram.get(head..).unwrap_or_default())
            .map_err(DropReason::Malformed)?;
        let (open, ..) = session::parse(
            datagram,
            head + length..datagram.len(),
            &mut SideData::default(),
        )?;
        let mut segment = [0; HEADER_BYTES_MAX];
        let count = encode(&self.build_answer(now, &open)?, &mut segment)
            .ok_or(DropReason::HelloTooSmall)?;
        let segment = &segment[..count];
        let (Some(listening), Some(tls)) = (&mut self.listening, &self.tls) else {
            return Err(DropReason::NotListening);
        };
        listening.pending.expire(now);
        let mss = self.config.mss;
        let id = match listening.pending.find(address, source.id) {
            Some(id) => id,
            None => {
                let proved = envelope.to != 0;
                let id = if proved {
                    envelope.to
                } else {
                    listening.cookies.issue(now, address, source.id)
                };
                let us = ClientAddress { id, mss };
                if !proved && (tls.retry || !listening.pending.has_room_for_unverified()) {
                    let length =
                        retry(us, source.id, segment, out).ok_or(DropReason::HelloTooSmall)?;
                    return Ok(DatagramOutcome::Answer(length, length));
                }
                if proved && !listening.cookies.verify(now, address, source.id, id) {
                    return Err(DropReason::UnknownConnection);
                }
                if self.sessions.contains_key(&id)
                    || self.closed.iter().any(|(_, ended)| *ended == id)
                {
                    return Err(DropReason::UnknownConnection);
                }
                if proved && !listening.pending.make_room_for(address, id) {
                    return Err(DropReason::TooManyConnections);
                }
                let mut handshake =
                    Handshake::server(tls, id).map_err(|_| DropReason::NotListening)?;
                let heard = handshake.receive(Level::Plain, part.offset, part.bytes);
                if heard.is_err() {
                    let envelope = Envelope {
                        to: source.id,
                        from: Some(us),
                        cover: Cover::Handshake,
                    };
                    let alert = handshake.alert().ok_or(DropReason::HandshakeFailed)?;
                    let length = flight::write_alert(&mut handshake, envelope, alert, out)
                        .ok_or(DropReason::HelloTooSmall)?;
                    self.counters.count(DropReason::HandshakeFailed);
                    return Ok(DatagramOutcome::Alert(length));
                }
                // The client's first flight must fit into one datagram: nothing is reassembled for
                // unverified clients.
                if !handshake.has_keys() {
                    return Err(DropReason::HandshakeFailed);
                }
                listening
                    .pending
                    .insert(now, id, address, source, proved, handshake);
                id
            }
        };
        let (most, size) = (
            datagram.len() * ANTI_AMPLIFICATION_FACTOR,
            datagram.len().min(self.size),
        );
        let pending = listening
            .pending
            .get(id)
            .ok_or(DropReason::UnknownConnection)?;
        let answer = pending.write_flight(ClientAddress { id, mss }, segment, size, most, out);
        let (length, each) = answer.ok_or(DropReason::HelloTooSmall)?;
        Ok(DatagramOutcome::Answer(length, each))
    }

    /// Returns the unfinished handshake to which a client's datagram belongs.
    fn pending_handshake(
        &mut self,
        received: &ReceivedDatagram,
        source: ClientAddress,
    ) -> Result<&mut Pending, DropReason> {
        let pending = self
            .listening
            .as_mut()
            .and_then(|listening| listening.pending.get(received.envelope.to))
            .ok_or(DropReason::UnknownConnection)?;
        if pending.address != received.address {
            return Err(DropReason::AddressMismatch);
        }
        if pending.client.id != source.id {
            return Err(DropReason::UnknownConnection);
        }
        Ok(pending)
    }

    /// Processes the last flight of a client's handshake.
    fn on_client_flight(
        &mut self,
        received: ReceivedDatagram,
        source: ClientAddress,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<DatagramOutcome, DropReason> {
        let id = received.envelope.to;
        let pending = self.pending_handshake(&received, source)?;
        if pending.on_datagram(received.head, datagram)? {
            return Ok(DatagramOutcome::Nothing);
        }
        let us = ClientAddress {
            id,
            mss: self.config.mss,
        };
        let length = self
            .listening
            .as_mut()
            .and_then(|listening| listening.pending.remove(id))
            .and_then(|mut pending| pending.alert(us, out));
        let length = length.ok_or(DropReason::HandshakeFailed)?;
        self.counters.count(DropReason::HandshakeFailed);
        Ok(DatagramOutcome::Alert(length))
    }

    /// Opens a connection for a client that returns an identifier issued to its address.
    fn accept(
        &mut self,
        received: ReceivedDatagram,
        source: ClientAddress,
        datagram: &mut [u8],
        side: &mut SideData,
    ) -> Result<DatagramOutcome, DropReason> {
        let id = received.envelope.to;
        let listening = self
            .listening
            .as_ref()
            .ok_or(DropReason::UnknownConnection)?;
        if !listening
            .cookies
            .verify(received.now, received.address, source.id, id)
            || self.closed.iter().any(|(_, ended)| *ended == id)
        {
            return Err(DropReason::UnknownConnection);
        }
        self.listener_with_room(received.address)?;
        let mut session = Session::server(
            received.address,
            id,
            source,
            (self.config.mss, self.size),
            None,
        );
        let (segment, proof, payload) =
            session.read(&received.envelope, received.head, datagram, side)?;
        if !segment.has_flag(Segment::PROOF_FLAG) {
            return Err(DropReason::UnknownConnection);
        }
        Ok(self.register(id, session, source, (segment, proof, payload)))
    }

    /// Opens a connection for a client that has completed the TLS handshake.
    fn accept_sealed(
        &mut self,
        received: ReceivedDatagram,
        source: ClientAddress,
        datagram: &mut [u8],
        side: &mut SideData,
    ) -> Result<DatagramOutcome, DropReason> {
        let id = received.envelope.to;
        let ours = (self.config.mss, self.size);
        self.pending_handshake(&received, source)?;
        let listening = self.listener_with_room(received.address)?;
        let pending = listening
            .pending
            .get(id)
            .ok_or(DropReason::UnknownConnection)?;
        let keys = pending.keys.take().ok_or(DropReason::HandshakeIncomplete)?;
        let mut session = Session::server(received.address, id, source, ours, Some(keys));
        let read = session.read(&received.envelope, received.head, datagram, side);
        let proved = read.and_then(|(segment, proof, payload)| {
            let proves = segment.has_flag(Segment::PROOF_FLAG);
            proves
                .then_some((segment, proof, payload))
                .ok_or(DropReason::UnknownConnection)
        });
        match proved {
            Ok(first) => {
                listening.pending.remove(id);
                Ok(self.register(id, session, source, first))
            }
            // The datagram may have been forged; the client's own may still arrive.
            Err(why) => {
                pending.keys = session.into_keys();
                Err(why)
            }
        }
    }

    /// Registers the connection together with its first segment.
    fn register(
        &mut self,
        id: u64,
        session: Session,
        source: ClientAddress,
        (segment, proof, payload): (Segment, Proof, Range<usize>),
    ) -> DatagramOutcome {
        if let Some(listening) = &mut self.listening {
            listening.quota.insert(id, session.address);
        }
        self.sessions.insert(id, session);
        let mut open = Segment::default();
        (open.kind, open.length, open.window) = (SegmentKind::Open, source.mss, segment.window);
        open.number.0 = self.config.first_number;
        DatagramOutcome::Accepted {
            id,
            open,
            segment,
            proof,
            payload,
        }
    }

    /// Returns true if a client was rejected since the last call because of the limit on all
    /// connections.
    pub fn was_crowded(&mut self) -> bool {
        let listening = self.listening.as_mut();
        listening.is_some_and(|listening| std::mem::take(&mut listening.crowded))
    }

    /// Removes a connection. Later datagrams for it are dropped.
    pub fn remove(&mut self, now: Time, id: u64) {
        let Some(listening) = self.sessions.remove(&id).and(self.listening.as_mut()) else {
            return;
        };
        listening.quota.release(id);
        let over = |at: Time| now.since(at) > COOKIE_LIFETIME_MAX;
        while self.closed.len() >= CLOSED_IDS_MAX
            || self.closed.front().is_some_and(|(at, _)| over(*at))
        {
            self.closed.pop_front();
        }
        self.closed.push_back((now, id));
    }

    /// Returns the reason for which a client's handshake failed, if it did.
    pub fn handshake_error(&self, id: u64) -> Option<&HandshakeError> {
        self.sessions.get(&id)?.handshake_error()
    }

    /// Returns the number of key updates of a connection.
    pub fn key_updates(&self, id: u64) -> u64 {
        self.sessions.get(&id).map_or(0, Session::key_updates)
    }

    /// Returns true if a connection has reached the confidentiality limit of its keys: it cannot
    /// send any more and has to be closed.
    pub fn keys_exhausted(&self, id: u64) -> bool {
        self.sessions.get(&id).is_some_and(Session::keys_exhausted)
    }

    /// Returns the number of handshakes in progress.
    pub fn pending(&self) -> usize {
        self.listening
            .as_ref()
            .map_or(0, |listening| listening.pending.len())
    }

    /// Returns the peer address of a connection.
    pub fn address(&self, id: u64) -> Option<SocketAddr> {
        self.sessions.get(&id).map(|session| session.address)
    }

    /// Returns the datagram size that the path of a connection carries, bytes.
    pub fn size(&self, id: u64) -> Option<usize> {
        self.sessions.get(&id).map(|session| session.size)
    }

    /// Returns the largest datagram size that both ends accept, bytes.
    pub fn size_max(&self, id: u64) -> Option<usize> {
        self.sessions.get(&id).map(|session| session.size_max)
    }

    /// Limits the datagrams of a connection to `size` bytes, except for hellos and probes.
    pub fn set_size(&mut self, id: u64, size: usize) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.size = size;
        }
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns true if there are no connections.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the counters of dropped datagrams.
    pub fn counters(&self) -> DropCounters {
        self.counters
    }
}

/// Received datagram: arrival time, source address and envelope.
#[derive(Clone, Copy)]
struct ReceivedDatagram {
    now: Time,
    address: SocketAddr,
    envelope: Envelope,
    head: usize,
}

/// Writes a request for another hello, with the server's identifier as the cookie.
fn retry(us: ClientAddress, client: u64, segment: &[u8], out: &mut [u8]) -> Option<usize> {
    let envelope = Envelope {
        to: client,
        from: Some(us),
        cover: Cover::Handshake,
    };
    let head = envelope.write(out)?;
    let nothing = Crypto {
        offset: 0,
        bytes: &[],
    };
    let head = head + nothing.write(&mut out[head..])?;
    out.get_mut(head..head + segment.len())?
        .copy_from_slice(segment);
    Some(head + segment.len())
}
