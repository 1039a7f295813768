//! Connections of one address: opens them without trusting anybody, tells their datagrams apart, drops and counts the rest.
//!
//! A client's hello carries its random identifier and is padded to a full datagram. If nobody answers, further ones come in all sizes
//! that paths have, and the largest that is answered is what this path carries. A listening endpoint answers it from
//! nothing but a secret (see [`Cookies`]) and forgets it: the identifier that it answers with proves to have been received
//! when the client's first data carries it, and only then is there any state. So a forged address costs a hash and draws
//! fewer bytes than it sent. What has a connection's identifiers and, with a [`Key`], its seal, belongs to the connection;
//! nothing else moves it: neither data nor resets of who is not on the path.

mod cookie;
#[doc(hidden)]
pub mod fuzz;
mod session;
mod shares;
#[cfg(test)]
mod tests;

pub use cookie::{Cookies, VALID};
pub use session::{BASE, LEAST, mss, overhead, sizes};
pub use shares::{LEAST_WINDOW, Limits};

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ccplane_units::Time;

use crate::codec::{CodecError, Envelope, Source};
use crate::crypto::{Key, Keys};
use ccplane_transport::{Config, Connection, Kind, Segment, Side};

use session::Session;
use shares::Shares;

/// Identifiers of ended connections that are remembered while they could still open a new one. Beyond it the oldest are
/// forgotten, and a copy of their first datagram that comes late opens a connection that ends by its idle timeout.
const MOST_ENDED: usize = 4096;

/// See the [module](self).
pub struct Endpoint {
    listening: Option<Listening>,
    key: Option<Key>,
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
    /// Numbers the answers.
    answers: u64,
}

/// What became of a datagram.
#[derive(Debug)]
pub enum Arrival {
    /// A segment of connection `id`; the payload is in this part of the datagram.
    Segment(u64, Segment, Range<usize>),
    /// The same, of a client whose address is proved now: [`Connection::accept`] takes `open`, its answer is not to be
    /// sent, and then the segment is to be handled.
    Accepted {
        /// The new connection.
        id: u64,
        /// The hello, made again.
        open: Segment,
        /// What came.
        segment: Segment,
        /// Where its payload is.
        payload: Range<usize>,
        /// Bytes of its receive window; no more than the endpoint's own configuration says.
        window: u32,
    },
    /// The answer to a hello is in `out`, so many bytes of it.
    Answer(usize),
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Dropped {
    /// It is no datagram of ccplane's.
    #[error("not one of ccplane's: {0}")]
    Malformed(CodecError),
    /// It is not sealed, and there is a key.
    #[error("not encrypted, where --key asks for it: the other side has no key")]
    Plain,
    /// It is sealed, and there is no key.
    #[error("encrypted, and there is no --key to open it with")]
    Sealed,
    /// It was sealed with another key, or changed.
    #[error("encrypted with another key, or changed on the way")]
    Forged,
    /// It came before.
    #[error("a repetition")]
    Replayed,
    /// No connection has its identifiers, and they open none.
    #[error("of no connection")]
    Unknown,
    /// The connection has another address.
    #[error("from another address than its connection's")]
    Moved,
    /// There are as many connections as are allowed, of all or of this address, or no memory for one more.
    #[error("one connection too many")]
    Full,
    /// Its sender has no port: nothing can be sent there, and an attempt would be an error of the socket.
    #[error("from port 0, which cannot be answered")]
    Portless,
    /// A hello for somebody who does not listen.
    #[error("a hello for a client")]
    Deaf,
    /// A hello smaller than its answer.
    #[error("a hello smaller than its answer")]
    Small,
}

/// Datagrams dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// [`Dropped::Malformed`].
    pub malformed: u64,
    /// [`Dropped::Plain`] and [`Dropped::Sealed`].
    pub mismatched: u64,
    /// [`Dropped::Forged`].
    pub forged: u64,
    /// [`Dropped::Replayed`].
    pub replayed: u64,
    /// [`Dropped::Unknown`], [`Dropped::Moved`], [`Dropped::Portless`], [`Dropped::Deaf`] and [`Dropped::Small`].
    pub unknown: u64,
    /// [`Dropped::Full`].
    pub full: u64,
}

impl Counters {
    fn count(&mut self, why: Dropped) {
        *match why {
            Dropped::Malformed(_) => &mut self.malformed,
            Dropped::Plain | Dropped::Sealed => &mut self.mismatched,
            Dropped::Forged => &mut self.forged,
            Dropped::Replayed => &mut self.replayed,
            Dropped::Unknown | Dropped::Moved | Dropped::Portless | Dropped::Deaf | Dropped::Small => &mut self.unknown,
            Dropped::Full => &mut self.full,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.malformed + self.mismatched + self.forged + self.replayed + self.unknown + self.full
    }
}

impl Endpoint {
    /// An endpoint whose datagrams have at most `size` bytes. `config` is every connection's, with an MSS of no more than
    /// [`mss`] says.
    pub fn new(config: Arc<Config>, size: usize, key: Option<Key>) -> Endpoint {
        Endpoint {
            listening: None,
            key,
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
            answers: 0,
        });
    }

    /// Begins a connection under a random identifier; false where it is in use, or 0.
    pub fn connect(&mut self, address: SocketAddr, id: u64) -> bool {
        if id == 0 || self.sessions.contains_key(&id) {
            return false;
        }
        let session = Session::client(address, id, self.config.mss, self.size, self.key.as_ref());
        self.sessions.insert(id, session);
        true
    }

    /// Writes a segment of connection `id` as a datagram; `fill` is given the place of its payload. Its length and where it goes.
    #[inline]
    pub fn write(
        &mut self,
        id: u64,
        segment: &Segment,
        side: &mut Side,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<(usize, SocketAddr)> {
        let session = self.sessions.get_mut(&id)?;
        let length = session.write(segment, side, out, fill)?;
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
        if let Some(session) = self.sessions.get_mut(&envelope.to) {
            if session.address != address {
                return Err(Dropped::Moved);
            }
            let (segment, payload) = session.read(&envelope, head, datagram, side)?;
            return Ok(Arrival::Segment(envelope.to, segment, payload));
        }
        let source = envelope.from.filter(|source| source.id != 0).ok_or(Dropped::Unknown)?;
        if envelope.to == 0 {
            self.answer(now, address, source, &envelope, head, datagram, out)
        } else {
            self.accept(now, address, source, &envelope, head, datagram, side)
        }
    }

    /// Answers a hello, and forgets it.
    #[expect(clippy::too_many_arguments, reason = "a datagram and what was read of it")]
    fn answer(
        &mut self,
        now: Time,
        address: SocketAddr,
        source: Source,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        out: &mut [u8],
    ) -> Result<Arrival, Dropped> {
        let listening = self.listening.as_mut().ok_or(Dropped::Deaf)?;
        let window = listening.shares.window(address, u64::from(self.config.receive_buffer));
        let window = window.ok_or(Dropped::Full)?;
        let key = self.key.as_ref();
        let end = session::open(
            key,
            |key| Keys::hello(key, source.id).for_server().1,
            envelope,
            head,
            datagram,
        )?;
        let mut side = Side::default();
        let (open, _) = session::parse(datagram, head..end, &mut side)?;
        let local = listening.cookies.issue(now, address, source.id);
        let mut reply = Connection::accept(&self.config, now, &open).ok_or(Dropped::Unknown)?;
        let mut segment = reply.transmit(now, 0, &mut side).ok_or(Dropped::Unknown)?;
        // Which of several hellos it is tells the client what the path carries.
        (segment.echo, segment.echo_transmission) = (open.number, open.transmission);
        // Of two that are answered at once the second may get less; what it sends beyond that is dropped and comes again.
        segment.window = segment.window.min(u32::try_from(window).unwrap_or(u32::MAX));
        let number = listening.answers;
        listening.answers += 1;
        let us = Source {
            id: local,
            mss: self.config.mss,
        };
        let limit = datagram.len().min(out.len());
        let answer = session::answer(key, number, us, source.id, &segment, &mut side, &mut out[..limit]);
        let length = answer.ok_or(Dropped::Small)?;
        Ok(Arrival::Answer(length))
    }

    /// Opens a connection for who comes with an identifier that was an answer to its address.
    #[expect(clippy::too_many_arguments, reason = "a datagram and what was read of it")]
    fn accept(
        &mut self,
        now: Time,
        address: SocketAddr,
        source: Source,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<Arrival, Dropped> {
        let id = envelope.to;
        let listening = self.listening.as_mut().ok_or(Dropped::Unknown)?;
        if !listening.cookies.knows(now, address, source.id, id) || self.ended.iter().any(|(_, ended)| *ended == id) {
            return Err(Dropped::Unknown);
        }
        let window = listening.shares.window(address, u64::from(self.config.receive_buffer));
        let window = window.ok_or(Dropped::Full)?;
        let ours = (self.config.mss, self.size);
        let mut session = Session::server(address, (id, source.id), ours, self.key.as_ref(), now.as_nanos());
        // It takes no more than it says, and knows what the path to us carries.
        session.most = self.size - usize::from(self.config.mss.saturating_sub(source.mss)).min(self.size);
        session.size = session.most;
        let (segment, payload) = session.read(envelope, head, datagram, side)?;
        if !segment.has(Segment::PROOF) {
            return Err(Dropped::Unknown);
        }
        self.sessions.insert(id, session);
        listening.shares.hold(id, address, window);
        let mut open = Segment::default();
        (open.kind, open.length, open.window) = (Kind::Open, source.mss, segment.window);
        open.number.0 = self.config.first_number;
        Ok(Arrival::Accepted {
            id,
            open,
            segment,
            payload,
            window: u32::try_from(window).unwrap_or(u32::MAX),
        })
    }

    /// Forgets a connection. What still comes for it is dropped.
    pub fn remove(&mut self, now: Time, id: u64) {
        let Some(listening) = self.sessions.remove(&id).and(self.listening.as_mut()) else {
            return;
        };
        listening.shares.release(id);
        let over = |at: Time| now.since(at) > VALID;
        while self.ended.len() >= MOST_ENDED || self.ended.front().is_some_and(|(at, _)| over(*at)) {
            self.ended.pop_front();
        }
        self.ended.push_back((now, id));
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
