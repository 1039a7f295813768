//! Connections of one address: opens them without trusting anybody, tells their datagrams apart,
//! drops and counts the rest.
//!
//! A client's hello carries its random identifier and is padded to a full datagram. If nobody
//! answers, further ones come in all sizes that paths have, and the largest that is answered is
//! what this path carries.
//!
//! With TLS the hello has the client's first flight, and the answer the server's: at most three
//! times the bytes of the hello. The server keeps the handshake until the client has gone through
//! with it, and only then is there a connection. It keeps 256 handshakes of strangers at a time.
//! One more, or any if it was told so, is answered with a cookie alone, from nothing but a secret
//! (see [`Cookies`]): it has to come back with the next hello, and proves that the client receives
//! at its address.
//!
//! Without TLS a hello is answered from that secret, always, and forgotten: the identifier in the
//! answer proves to have been received when the client's first data carries it. So a forged address
//! costs a hash and draws fewer bytes than it sent.
//!
//! What has a connection's identifiers and, under TLS, its seal, belongs to the connection; nothing
//! else moves it: neither data nor resets of who is not on the path.

mod cookie;
mod flight;
#[doc(hidden)]
pub mod fuzz;
mod pending;
mod session;
mod shares;
#[cfg(test)]
mod tests;

pub use cookie::{Cookies, VALID};
pub use pending::MOST_PENDING;
pub use session::{BASE, LEAST, mss, overhead, sizes};
pub use shares::Limits;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ccplane_units::Time;

use crate::codec::{CodecError, Cover, Crypto, Envelope, MAX_HEADER, Source};
use crate::tls::{Handshake, Level, Refused, Tls};
use ccplane_transport::{Config, Connection, Kind, Proof, Segment, Side};

use pending::{Waiting, encode};
use session::{Heard, Session};
use shares::Shares;

/// Bytes of the smallest hello that TLS answers: the smallest of the [`sizes`]. Three times it
/// holds our whole flight.
const LEAST_HELLO: usize = LEAST;
/// Bytes that may go to an address that has proved nothing, for each that came from it (RFC 9000,
/// 8.1).
const AMPLIFICATION: usize = 3;

/// Identifiers of ended connections that are remembered while they could still open a new one.
/// Beyond it the oldest are forgotten, and a copy of their first datagram that comes late opens a
/// connection that ends by its idle timeout.
const MOST_ENDED: usize = 4096;

/// See the [module](self).
pub struct Endpoint {
    listening: Option<Listening>,
    tls: Option<Tls>,
    /// Bytes of a datagram.
    size: usize,
    config: Arc<Config>,
    sessions: BTreeMap<u64, Session>,
    /// When each was ended, the oldest first.
    ended: VecDeque<(Time, u64)>,
    counters: Counters,
}

struct Listening {
    cookies: Cookies,
    shares: Shares,
    waiting: Waiting,
    /// A client was turned away for want of a connection for any address.
    crowded: bool,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum Arrival {
    /// A segment of connection `id` and its nonces; the payload is in this part of the datagram.
    Segment(u64, Segment, Proof, Range<usize>),
    /// The same, of a client whose address is proved now: [`Connection::accept`] takes `open`, its
    /// answer is not to be sent, and then the segment is to be handled.
    Accepted {
        /// The new connection.
        id: u64,
        /// The hello, made again.
        open: Segment,
        /// What came.
        segment: Segment,
        /// Its nonces.
        proof: Proof,
        /// Where its payload is.
        payload: Range<usize>,
    },
    /// An answer is in `out`: so many bytes, in datagrams of so many each, the last of which may be
    /// shorter.
    Answer(usize, usize),
    /// The same, of one datagram: the handshake of whoever is there has failed, and this tells why.
    Alert(usize),
    /// It was part of a handshake, and nothing else is to be done.
    Nothing,
    /// The server asks client `id` for another hello, at once ([`Connection::open_again`]).
    Again(u64),
    /// The handshake of client `id` has failed, as [`Endpoint::refused`] says.
    Refused(u64),
    /// So much that was forged has come for connection `id` that it must end (RFC 9001, 6.6).
    Spent(u64),
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Dropped {
    /// It is no datagram of ccplane's.
    #[error("not one of ccplane's: {0}")]
    Malformed(CodecError),
    /// It is not sealed, and this endpoint speaks TLS.
    #[error("not encrypted, and nothing else is taken here")]
    Plain,
    /// It is sealed, or asks for TLS, and this endpoint speaks none.
    #[error("encrypted, and nothing encrypted is taken here")]
    Sealed,
    /// It was sealed with another key, or changed.
    #[error("encrypted with another key, or changed on the way")]
    Forged,
    /// As [`Dropped::Forged`], and with it so many that the connection's keys have to be given up.
    #[error("forged, and with it more than the keys bear")]
    Spent,
    /// It is of a connection whose handshake is not over.
    #[error("from before the end of its handshake")]
    Early,
    /// TLS does not take what it says.
    #[error(
        "its handshake fails, as its certificate is not one that --client names, or as it asks for what is not spoken here"
    )]
    Refused,
    /// It came before.
    #[error("a repetition")]
    Replayed,
    /// No connection has its identifiers, and they open none.
    #[error("of no connection")]
    Unknown,
    /// The connection has another address.
    #[error("from another address than its connection's")]
    Moved,
    /// There are as many connections as are allowed, of all or of this address.
    #[error("one connection too many")]
    Full,
    /// Its sender has no port: nothing can be sent there, and an attempt would be an error of the
    /// socket.
    #[error("from port 0, which cannot be answered")]
    Portless,
    /// A hello for somebody who does not listen.
    #[error("a hello for a client")]
    Deaf,
    /// A hello that is too small for its answer.
    #[error("a hello too small for its answer")]
    Small,
}

/// Datagrams dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// [`Dropped::Malformed`].
    pub malformed: u64,
    /// [`Dropped::Plain`] and [`Dropped::Sealed`].
    pub mismatched: u64,
    /// [`Dropped::Forged`], [`Dropped::Spent`] and [`Dropped::Refused`].
    pub forged: u64,
    /// [`Dropped::Replayed`].
    pub replayed: u64,
    /// [`Dropped::Unknown`], [`Dropped::Early`], [`Dropped::Moved`], [`Dropped::Portless`],
    /// [`Dropped::Deaf`] and [`Dropped::Small`].
    pub unknown: u64,
    /// [`Dropped::Full`].
    pub full: u64,
}

impl Counters {
    fn count(&mut self, why: Dropped) {
        *match why {
            Dropped::Malformed(_) => &mut self.malformed,
            Dropped::Plain | Dropped::Sealed => &mut self.mismatched,
            Dropped::Forged | Dropped::Spent | Dropped::Refused => &mut self.forged,
            Dropped::Replayed => &mut self.replayed,
            Dropped::Unknown
            | Dropped::Early
            | Dropped::Moved
            | Dropped::Portless
            | Dropped::Deaf
            | Dropped::Small => &mut self.unknown,
            Dropped::Full => &mut self.full,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.malformed + self.mismatched + self.forged + self.replayed + self.unknown + self.full
    }
}

impl Endpoint {
    /// An endpoint whose datagrams have at most `size` bytes. `config` is every connection's, with
    /// an MSS of no more than [`mss`] says.
    pub fn new(config: Arc<Config>, size: usize, tls: Option<Tls>) -> Endpoint {
        Endpoint {
            listening: None,
            tls,
            size,
            config,
            sessions: BTreeMap::new(),
            ended: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Lets clients open connections, within limits. The secret is random and new at each start.
    pub fn listen(&mut self, secret: [u8; 32], limits: Limits) {
        self.listening = Some(Listening {
            cookies: Cookies::new(secret),
            shares: Shares::new(limits),
            waiting: Waiting::default(),
            crowded: false,
        });
    }

    /// Begins a connection under a random identifier; false where it is in use, or 0.
    pub fn connect(&mut self, address: SocketAddr, id: u64) -> Result<bool, Refused> {
        if id == 0 || self.sessions.contains_key(&id) {
            return Ok(false);
        }
        let session = Session::client(address, id, self.config.mss, self.size, self.tls.as_ref())?;
        self.sessions.insert(id, session);
        Ok(true)
    }

    /// Writes a segment of connection `id` as a datagram; `prove` gives its nonces, `fill` is given
    /// the place of its payload. Its length and where it goes.
    #[inline]
    pub fn write(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &mut Side,
        out: &mut [u8],
        prove: impl FnOnce(&Side) -> Proof,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<(usize, SocketAddr)> {
        let session = self.sessions.get_mut(&id)?;
        let length = session.write(segment, side, out, prove, fill)?;
        Some((length, session.address))
    }

    /// A client's handshake ends with a flight of its own, before a segment that proves its
    /// address: whether there is one, which [`write_flight`](Endpoint::write_flight) writes.
    #[cold]
    pub fn begin_flight(&mut self, id: u64, segment: &Segment) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.begin_flight(segment);
        }
    }

    /// Writes the next datagram of that flight: its length and where it goes; `None` when there is
    /// no more.
    #[cold]
    pub fn write_flight(&mut self, id: u64, out: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let session = self.sessions.get_mut(&id)?;
        let length = session.write_flight(out)?;
        Some((length, session.address))
    }

    /// Takes a datagram, which it may decrypt in place. `out` has room for an answer.
    #[inline]
    pub fn receive(
        &mut self,
        now: Time,
        address: SocketAddr,
        datagram: &mut [u8],
        side: &mut Side,
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        let arrival = self.take(now, address, datagram, side, out);
        arrival.inspect_err(|&why| self.counters.count(why))
    }

    fn take(
        &mut self,
        now: Time,
        address: SocketAddr,
        datagram: &mut [u8],
        side: &mut Side,
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        if address.port() == 0 {
            return Err(Dropped::Portless);
        }
        let (envelope, head) = Envelope::read(datagram).map_err(Dropped::Malformed)?;
        let came = Came {
            now,
            address,
            envelope,
            head,
        };
        let Some(session) = self.sessions.get_mut(&envelope.to) else {
            return self.take_of_none(came, datagram, side, out);
        };
        if session.address != address {
            return Err(Dropped::Moved);
        }
        if matches!(envelope.cover, Cover::Handshake | Cover::SealedHandshake) {
            let heard = session.hear(&envelope, head, datagram)?;
            return Ok(match heard {
                Heard::More => Arrival::Nothing,
                Heard::Again => Arrival::Again(envelope.to),
                Heard::Reply(segment) => {
                    Arrival::Segment(envelope.to, segment, Proof::default(), 0..0)
                }
                Heard::Refused => Arrival::Refused(envelope.to),
            });
        }
        match session.read(&envelope, head, datagram, side) {
            Ok((segment, proof, payload)) => {
                Ok(Arrival::Segment(envelope.to, segment, proof, payload))
            }
            Err(Dropped::Spent) => {
                self.counters.count(Dropped::Spent);
                Ok(Arrival::Spent(envelope.to))
            }
            Err(why) => Err(why),
        }
    }

    /// A datagram of no connection: it may become one.
    #[cold]
    fn take_of_none(
        &mut self,
        came: Came,
        datagram: &mut [u8],
        side: &mut Side,
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        let Came { envelope, .. } = came;
        let source = envelope
            .from
            .filter(|source| source.id != 0)
            .ok_or(Dropped::Unknown)?;
        match (&self.tls, envelope.cover, envelope.to) {
            (None, Cover::Plain, 0) => self.answer(came, source, datagram, out),
            (None, Cover::Plain, _) => self.accept(came, source, datagram, side),
            (None, ..) => Err(Dropped::Sealed),
            (Some(_), Cover::Plain, _) => Err(Dropped::Plain),
            (Some(_), Cover::Handshake, _) => self.greet(came, source, datagram, out),
            (Some(_), Cover::SealedHandshake, _) => self.hear(came, source, datagram, out),
            (Some(_), Cover::Sealed { .. }, _) => self.accept_sealed(came, source, datagram, side),
        }
    }

    /// Answers a hello, and forgets it.
    fn answer(
        &mut self,
        came: Came,
        source: Source,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        let listening = self.listening(came.address)?;
        let (open, ..) = session::parse(datagram, came.head..datagram.len(), &mut Side::default())?;
        let us = Source {
            id: listening.cookies.issue(came.now, came.address, source.id),
            mss: self.config.mss,
        };
        let segment = self.reply(came.now, &open)?;
        let limit = datagram.len().min(out.len());
        let answer = session::answer(
            us,
            source.id,
            &segment,
            &mut Side::default(),
            &mut out[..limit],
        );
        let length = answer.ok_or(Dropped::Small)?;
        Ok(Arrival::Answer(length, length))
    }

    /// Returns the listening side, if it has room for one more connection from this address.
    fn listening(&mut self, address: SocketAddr) -> Result<&mut Listening, Dropped> {
        let listening = self.listening.as_mut().ok_or(Dropped::Deaf)?;
        if listening.shares.has_room(address) {
            return Ok(listening);
        }
        listening.crowded |= listening.shares.is_full();
        Err(Dropped::Full)
    }

    /// What a server answers to a hello.
    fn reply(&self, now: Time, open: &Segment) -> Result<Segment, Dropped> {
        let mut reply = Connection::accept(&self.config, now, open).ok_or(Dropped::Unknown)?;
        let mut segment = reply
            .transmit(now, 0, &mut Side::default())
            .ok_or(Dropped::Unknown)?;
        // Which of several hellos it is tells the client what the path carries.
        (segment.echo, segment.echo_transmission) = (open.number, open.transmission);
        Ok(segment)
    }

    /// Answers a hello with our side of the handshake, or asks for another one with a cookie.
    fn greet(
        &mut self,
        came: Came,
        source: Source,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        let Came {
            now,
            address,
            envelope,
            head,
        } = came;
        self.listening(address)?;
        if datagram.len() < LEAST_HELLO {
            return Err(Dropped::Small);
        }
        let (part, length) =
            Crypto::read(datagram.get(head..).unwrap_or_default()).map_err(Dropped::Malformed)?;
        let (open, ..) = session::parse(
            datagram,
            head + length..datagram.len(),
            &mut Side::default(),
        )?;
        let mut segment = [0; MAX_HEADER];
        let count = encode(&self.reply(now, &open)?, &mut segment).ok_or(Dropped::Small)?;
        let segment = &segment[..count];
        let (Some(listening), Some(tls)) = (&mut self.listening, &self.tls) else {
            return Err(Dropped::Deaf);
        };
        listening.waiting.expire(now);
        let mss = self.config.mss;
        let id = match listening.waiting.find(address, source.id) {
            Some(id) => id,
            None => {
                let proved = envelope.to != 0;
                let id = if proved {
                    envelope.to
                } else {
                    listening.cookies.issue(now, address, source.id)
                };
                let us = Source { id, mss };
                if !proved && (tls.retry || !listening.waiting.has_room_for_strangers()) {
                    let length = retry(us, source.id, segment, out).ok_or(Dropped::Small)?;
                    return Ok(Arrival::Answer(length, length));
                }
                if proved && !listening.cookies.knows(now, address, source.id, id) {
                    return Err(Dropped::Unknown);
                }
                if self.sessions.contains_key(&id)
                    || self.ended.iter().any(|(_, ended)| *ended == id)
                {
                    return Err(Dropped::Unknown);
                }
                if proved && !listening.waiting.make_room_for(address, id) {
                    return Err(Dropped::Full);
                }
                let mut handshake = Handshake::server(tls, id).map_err(|_| Dropped::Deaf)?;
                let heard = handshake.hear(Level::Plain, part.offset, part.bytes);
                if heard.is_err() {
                    let envelope = Envelope {
                        to: source.id,
                        from: Some(us),
                        cover: Cover::Handshake,
                    };
                    let alert = handshake.alert().ok_or(Dropped::Refused)?;
                    let length = flight::write_alert(&mut handshake, envelope, alert, out)
                        .ok_or(Dropped::Small)?;
                    self.counters.count(Dropped::Refused);
                    return Ok(Arrival::Alert(length));
                }
                // The whole of it is in one datagram: nothing is put together for strangers.
                if !handshake.has_keys() {
                    return Err(Dropped::Refused);
                }
                listening
                    .waiting
                    .begin(now, id, address, source, proved, handshake);
                id
            }
        };
        let (most, size) = (
            datagram.len() * AMPLIFICATION,
            datagram.len().min(self.size),
        );
        let pending = listening.waiting.get(id).ok_or(Dropped::Unknown)?;
        let answer = pending.answer(Source { id, mss }, segment, size, most, out);
        let (length, each) = answer.ok_or(Dropped::Small)?;
        Ok(Arrival::Answer(length, each))
    }

    /// Takes the last flight of a client's handshake.
    fn hear(
        &mut self,
        came: Came,
        source: Source,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        let id = came.envelope.to;
        let waiting = &mut self.listening.as_mut().ok_or(Dropped::Unknown)?.waiting;
        let pending = waiting.get(id).ok_or(Dropped::Unknown)?;
        if pending.address != came.address {
            return Err(Dropped::Moved);
        }
        if pending.client.id != source.id {
            return Err(Dropped::Unknown);
        }
        if pending.hear(came.head, datagram)? {
            return Ok(Arrival::Nothing);
        }
        let us = Source {
            id,
            mss: self.config.mss,
        };
        let length = waiting
            .remove(id)
            .and_then(|mut pending| pending.alert(us, out));
        let length = length.ok_or(Dropped::Refused)?;
        self.counters.count(Dropped::Refused);
        Ok(Arrival::Alert(length))
    }

    /// Opens a connection for who comes with an identifier that was an answer to its address.
    fn accept(
        &mut self,
        came: Came,
        source: Source,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<Arrival, Dropped> {
        let id = came.envelope.to;
        let listening = self.listening.as_ref().ok_or(Dropped::Unknown)?;
        if !listening
            .cookies
            .knows(came.now, came.address, source.id, id)
            || self.ended.iter().any(|(_, ended)| *ended == id)
        {
            return Err(Dropped::Unknown);
        }
        self.listening(came.address)?;
        let mut session =
            Session::server(came.address, id, source, (self.config.mss, self.size), None);
        let (segment, proof, payload) = session.read(&came.envelope, came.head, datagram, side)?;
        if !segment.has(Segment::PROOF) {
            return Err(Dropped::Unknown);
        }
        Ok(self.admit(id, session, source, (segment, proof, payload)))
    }

    /// Opens a connection for who has gone through the handshake.
    fn accept_sealed(
        &mut self,
        came: Came,
        source: Source,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<Arrival, Dropped> {
        let id = came.envelope.to;
        let ours = (self.config.mss, self.size);
        let waiting = &mut self.listening.as_mut().ok_or(Dropped::Unknown)?.waiting;
        let pending = waiting.get(id).ok_or(Dropped::Unknown)?;
        if pending.address != came.address {
            return Err(Dropped::Moved);
        }
        if pending.client.id != source.id {
            return Err(Dropped::Unknown);
        }
        let listening = self.listening(came.address)?;
        let pending = listening.waiting.get(id).ok_or(Dropped::Unknown)?;
        let keys = pending.keys.take().ok_or(Dropped::Early)?;
        let mut session = Session::server(came.address, id, source, ours, Some(keys));
        let read = session.read(&came.envelope, came.head, datagram, side);
        let proved = read.and_then(|(segment, proof, payload)| {
            let proves = segment.has(Segment::PROOF);
            proves
                .then_some((segment, proof, payload))
                .ok_or(Dropped::Unknown)
        });
        match proved {
            Ok(first) => {
                listening.waiting.remove(id);
                Ok(self.admit(id, session, source, first))
            }
            // It was somebody else's, perhaps: the client may still come.
            Err(why) => {
                pending.keys = session.into_keys();
                Err(why)
            }
        }
    }

    /// There is a connection now, with its first segment.
    fn admit(
        &mut self,
        id: u64,
        session: Session,
        source: Source,
        (segment, proof, payload): (Segment, Proof, Range<usize>),
    ) -> Arrival {
        if let Some(listening) = &mut self.listening {
            listening.shares.hold(id, session.address);
        }
        self.sessions.insert(id, session);
        let mut open = Segment::default();
        (open.kind, open.length, open.window) = (Kind::Open, source.mss, segment.window);
        open.number.0 = self.config.first_number;
        Arrival::Accepted {
            id,
            open,
            segment,
            proof,
            payload,
        }
    }

    /// Returns true if a client was turned away since the last call, as there are as many
    /// connections as allowed of all addresses together.
    pub fn was_crowded(&mut self) -> bool {
        let listening = self.listening.as_mut();
        listening.is_some_and(|listening| std::mem::take(&mut listening.crowded))
    }

    /// Forgets a connection. What still comes for it is dropped.
    pub fn remove(&mut self, now: Time, id: u64) {
        let Some(listening) = self.sessions.remove(&id).and(self.listening.as_mut()) else {
            return;
        };
        listening.shares.release(id);
        let over = |at: Time| now.since(at) > VALID;
        while self.ended.len() >= MOST_ENDED || self.ended.front().is_some_and(|(at, _)| over(*at))
        {
            self.ended.pop_front();
        }
        self.ended.push_back((now, id));
    }

    /// Why the handshake of a client's connection has failed, if it has.
    pub fn refused(&self, id: u64) -> Option<&Refused> {
        self.sessions.get(&id)?.refused()
    }

    /// How often the keys of a connection were renewed.
    pub fn renewed(&self, id: u64) -> u64 {
        self.sessions.get(&id).map_or(0, Session::renewed)
    }

    /// Whether a connection has sealed all that its keys bear: nothing more can be sent, and it has
    /// to end.
    pub fn is_worn_out(&self, id: u64) -> bool {
        self.sessions.get(&id).is_some_and(Session::is_worn_out)
    }

    /// Handshakes that are under way.
    pub fn pending(&self) -> usize {
        self.listening
            .as_ref()
            .map_or(0, |listening| listening.waiting.len())
    }

    /// The address at the other end of a connection.
    pub fn address(&self, id: u64) -> Option<SocketAddr> {
        self.sessions.get(&id).map(|session| session.address)
    }

    /// Bytes of a datagram that the path of a connection carries.
    pub fn size(&self, id: u64) -> Option<usize> {
        self.sessions.get(&id).map(|session| session.size)
    }

    /// Bytes of the largest that both of its ends take.
    pub fn most(&self, id: u64) -> Option<usize> {
        self.sessions.get(&id).map(|session| session.most)
    }

    /// From now on datagrams of a connection have so many bytes at most; hellos and probes apart.
    pub fn resize(&mut self, id: u64, size: usize) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.size = size;
        }
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// What was dropped so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// A datagram that has come: when, from where, and its head.
#[derive(Clone, Copy)]
struct Came {
    now: Time,
    address: SocketAddr,
    envelope: Envelope,
    head: usize,
}

/// Asks for another hello, which has our identifier for a cookie.
fn retry(us: Source, client: u64, segment: &[u8], out: &mut [u8]) -> Option<usize> {
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
