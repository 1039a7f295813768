//! Address, identifiers and keys of one connection: turns its segments into datagrams and back.

use std::net::SocketAddr;
use std::ops::Range;

use crate::codec::{
    self, ALERT, CodecError, Cover, Crypto, Envelope, MAX_ENVELOPE, NUMBER, Source,
};
use crate::tls::{Handshake, Keys, Level, Refused, TAG, Tls, Unopened};
use ccplane_transport::{Kind, LEAST_MSS, Proof, Segment, Side};

use super::Dropped;
use super::flight::write_part;

/// Most payload of a segment where datagrams have `size` bytes. SACK ranges beside data have to do
/// with what is left.
///
/// A client names itself (10 bytes) only until it has heard of the connection, and has nothing to
/// echo and no marks to count (15) before that: no datagram has both.
pub fn mss(size: usize, sealed: bool, stamps: bool) -> u16 {
    let reserve = codec::MAX_DATA_HEADER - codec::DATA_HEADER - codec::STAMPS;
    size.saturating_sub(usize::from(overhead(sealed, stamps)) + reserve)
        .clamp(1, usize::from(u16::MAX)) as u16
}

/// What a segment of data takes in its datagram beside the payload, bytes: of a sender that knows
/// its peer, and gets neither data nor marks from it.
pub fn overhead(sealed: bool, stamps: bool) -> u16 {
    const NAME: usize = 10;
    let envelope = MAX_ENVELOPE - NAME - if sealed { 0 } else { NUMBER };
    let header = codec::DATA_HEADER + if stamps { codec::STAMPS } else { 0 };
    (envelope + header + if sealed { TAG } else { 0 }) as u16
}

/// Datagrams that a path may carry where it does not carry full ones: over IPv4, packets of 28
/// bytes more. Jumbo frames, Ethernet, PPPoE (1492), tunnels inside one another, IPv6's least
/// (1280, in IPv6 a datagram of 1232), and what IPv4 promises (576).
const NARROWER: [usize; 17] = [
    8972, 4324, 2276, 1472, 1464, 1452, 1444, 1424, 1404, 1392, 1372, 1352, 1312, 1252, 1232, 996,
    548,
];
/// A path that has become narrower in the middle carries these, mostly (RFC 8899, 5.1.2:
/// `BASE_PLPMTU`).
pub const BASE: usize = 1232;
/// And else these, or little else works on it either (`MIN_PLPMTU`).
pub const LEAST: usize = 548;

/// The sizes in which a hello is sent: the full one, and when that is not answered, smaller ones
/// with it (RFC 8899, 5.3: a table).
pub fn sizes(full: usize) -> impl Iterator<Item = usize> {
    std::iter::once(full).chain(NARROWER.into_iter().filter(move |size| *size < full))
}

/// What a datagram is written into and read from. See [`Endpoint`](super::Endpoint).
pub(super) struct Session {
    pub address: SocketAddr,
    /// Our identifier, by which the peer's datagrams find this.
    pub local: u64,
    /// The peer's; `None` while a client waits for it.
    pub remote: Option<u64>,
    /// Our MSS, for the peer to know.
    pub mss: u16,
    /// Bytes of a datagram that the path carries.
    pub size: usize,
    /// Bytes of the largest that was tried.
    full: usize,
    /// Bytes of the largest that the peer takes too.
    pub most: usize,
    secure: Option<Box<Secure>>,
}

/// TLS of a connection.
struct Secure {
    /// Once the handshake is over.
    keys: Option<Box<Keys>>,
    /// A client's, until the server has shown that it is over there, too.
    greeting: Option<Box<Greeting>>,
}

/// A client's part of the handshake.
struct Greeting {
    handshake: Handshake,
    /// What the server asks to be shown in hellos.
    cookie: Option<u64>,
    /// How much of the last flight has left; nothing while it is not due.
    flight: Option<usize>,
    /// It has left once.
    flown: bool,
    refused: Option<Refused>,
}

/// What came of a datagram of a client's handshake.
pub(super) enum Heard {
    /// There is more to come.
    More,
    /// The server asks for another hello, with its cookie.
    Again,
    /// It is over, and this is the server's answer.
    Reply(Segment),
    /// It has failed.
    Refused,
}

impl Session {
    /// A client's, before it knows the server's identifier.
    pub fn client(
        address: SocketAddr,
        local: u64,
        mss: u16,
        size: usize,
        tls: Option<&Tls>,
    ) -> Result<Session, Refused> {
        let greeting = tls.map(|tls| {
            Ok(Box::new(Greeting {
                handshake: Handshake::client(tls, local)?,
                cookie: None,
                flight: None,
                flown: false,
                refused: None,
            }))
        });
        let greeting = greeting.transpose()?;
        Ok(Session {
            address,
            local,
            remote: None,
            mss,
            size,
            full: size,
            most: size,
            secure: greeting.map(|greeting| {
                Box::new(Secure {
                    keys: None,
                    greeting: Some(greeting),
                })
            }),
        })
    }

    /// A server's, with the keys of its handshake where there was one.
    pub fn server(
        address: SocketAddr,
        local: u64,
        client: Source,
        (mss, size): (u16, usize),
        keys: Option<Box<Keys>>,
    ) -> Session {
        // The client takes no more than it says, and knows what the path to us carries.
        let most = taken(size, mss, client.mss).min(size);
        Session {
            address,
            local,
            remote: Some(client.id),
            mss,
            size: most,
            full: size,
            most,
            secure: keys.map(|keys| {
                Box::new(Secure {
                    keys: Some(keys),
                    greeting: None,
                })
            }),
        }
    }

    /// Its keys, where it is not to be.
    pub fn into_keys(self) -> Option<Box<Keys>> {
        self.secure?.keys
    }

    /// Why the handshake has failed, if it has.
    pub fn refused(&self) -> Option<&Refused> {
        self.secure.as_ref()?.greeting.as_ref()?.refused.as_ref()
    }

    /// How often its keys were renewed.
    pub fn renewed(&self) -> u64 {
        self.keys().map_or(0, Keys::renewed)
    }

    /// Its keys have sealed all that they may.
    pub fn is_worn_out(&self) -> bool {
        self.keys().is_some_and(Keys::is_worn_out)
    }

    fn keys(&self) -> Option<&Keys> {
        self.secure.as_ref()?.keys.as_deref()
    }

    /// Writes a segment as a datagram; `prove` gives its nonces, `fill` is given the place of its
    /// payload. Its length, `None` where it does not fit, which a segment of at most the [`mss`]
    /// always does, or where the keys are worn out.
    #[inline]
    pub fn write(
        &mut self,
        segment: &Segment,
        side: &mut Side,
        out: &mut [u8],
        prove: impl FnOnce(&Side) -> Proof,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        if segment.kind == Kind::Open {
            return self.write_hello(segment, side, out);
        }
        let cover = match &mut self.secure {
            Some(secure) => {
                let (phase, number) = secure.keys.as_mut()?.next();
                Cover::Sealed { phase, number }
            }
            None => Cover::Plain,
        };
        let envelope = Envelope {
            to: self.remote.unwrap_or(0),
            from: segment.has(Segment::PROOF).then_some(self.source()),
            cover,
        };
        let size = match segment.kind {
            Kind::PathProbe => usize::from(segment.length),
            _ => self.size,
        };
        let size = size.min(out.len());
        let text = size.checked_sub(if self.secure.is_some() { TAG } else { 0 })?;
        let payload = match segment.kind {
            Kind::Data => usize::from(segment.length),
            _ => 0,
        };
        let head = envelope.write(out)?;
        let room = text.checked_sub(head + payload)?;
        let header = codec::write(segment, side, &mut out[head..], room, prove)?;
        let mut end = head + header + payload;
        fill(out.get_mut(head + header..end)?);
        if segment.kind == Kind::PathProbe {
            // Padding: it is its length that is tried.
            out.get_mut(end..text)?.fill(0);
            end = text;
        }
        match &mut self.secure {
            Some(secure) => secure.keys.as_mut()?.seal(out, head, end),
            None => Some(end),
        }
    }

    fn source(&self) -> Source {
        Source {
            id: self.local,
            mss: self.mss,
        }
    }

    /// A hello is padded, so that the answer cannot be the larger one, and so that a path that does
    /// not carry full datagrams shows at once and not in the middle.
    #[cold]
    fn write_hello(&mut self, segment: &Segment, side: &mut Side, out: &mut [u8]) -> Option<usize> {
        let greeting = self
            .secure
            .as_ref()
            .and_then(|secure| secure.greeting.as_ref());
        let size = self.nth(segment.transmission);
        let out = out.get_mut(..size)?;
        let envelope = Envelope {
            to: greeting.and_then(|greeting| greeting.cookie).unwrap_or(0),
            from: Some(self.source()),
            cover: match greeting {
                Some(_) => Cover::Handshake,
                None => Cover::Plain,
            },
        };
        let mut end = envelope.write(out)?;
        if let Some(greeting) = greeting {
            let bytes = greeting.handshake.said(Level::Plain);
            end += Crypto { offset: 0, bytes }.write(&mut out[end..])?;
        }
        end += codec::write(segment, side, &mut out[end..], size - end, |_| {
            Proof::default()
        })?;
        out.get_mut(end..)?.fill(0);
        Some(size)
    }

    /// The `n`-th of the [`sizes`], from 1: the full one where there is none such.
    fn nth(&self, n: u8) -> usize {
        let step = usize::from(n.saturating_sub(1));
        sizes(self.full).nth(step).unwrap_or(self.full)
    }

    /// A client's last flight leaves before what proves that it hears the server: the first time,
    /// and when that is repeated.
    pub fn begin_flight(&mut self, segment: &Segment) {
        let secure = self
            .secure
            .as_deref_mut()
            .filter(|secure| secure.keys.is_some());
        if let Some(greeting) = secure.and_then(|secure| secure.greeting.as_mut()) {
            let due = !greeting.flown || segment.kind == Kind::Ack || segment.transmission > 1;
            greeting.flight = due.then_some(0);
            greeting.flown = true;
        }
    }

    /// The next datagram of that flight.
    pub fn write_flight(&mut self, out: &mut [u8]) -> Option<usize> {
        let envelope = Envelope {
            to: self.remote?,
            from: Some(self.source()),
            cover: Cover::SealedHandshake,
        };
        let greeting = self.secure.as_deref_mut()?.greeting.as_deref_mut()?;
        let at = greeting.flight.take()?;
        let size = self.size.min(out.len());
        let (length, at) = write_part(
            &mut greeting.handshake,
            envelope,
            &[],
            at,
            &[],
            &mut out[..size],
        )?;
        greeting.flight = (at < greeting.handshake.said(Level::Sealed).len()).then_some(at);
        Some(length)
    }

    /// Reads a datagram whose identifier is this connection's, and opens it in place; with the
    /// place of its payload.
    #[inline]
    pub fn read(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<(Segment, Proof, Range<usize>), Dropped> {
        let Some(remote) = self.remote else {
            return self.read_answer(envelope, head, datagram, side);
        };
        // A server knows the client's identifier; a client that has its answer needs no other.
        if envelope.from.is_some_and(|source| source.id != remote) {
            return Err(Dropped::Unknown);
        }
        let end = match (&mut self.secure, envelope.cover) {
            (None, Cover::Plain) => datagram.len(),
            (Some(secure), Cover::Sealed { .. }) => {
                let keys = secure.keys.as_mut().ok_or(Dropped::Early)?;
                let end = keys.open(datagram, head)?;
                if secure.greeting.is_some() {
                    // The server has the client's last flight: it could not seal this otherwise.
                    secure.greeting = None;
                }
                end
            }
            (Some(_), Cover::Plain) => return Err(Dropped::Plain),
            (None, _) => return Err(Dropped::Sealed),
            // Late.
            (Some(_), _) => return Err(Dropped::Unknown),
        };
        let (segment, proof, payload) = parse(datagram, head..end, side)?;
        match segment.kind {
            Kind::Open | Kind::OpenReply => Err(Dropped::Unknown),
            _ => Ok((segment, proof, payload)),
        }
    }

    /// The answer to a client's hello makes the server known, where there is no TLS.
    #[cold]
    fn read_answer(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<(Segment, Proof, Range<usize>), Dropped> {
        match (&self.secure, envelope.cover) {
            (None, Cover::Plain) => {}
            (None, _) => return Err(Dropped::Sealed),
            (Some(_), Cover::Plain) => return Err(Dropped::Plain),
            (Some(_), _) => return Err(Dropped::Early),
        }
        let server = server(envelope)?;
        let (segment, proof, payload) = parse(datagram, head..datagram.len(), side)?;
        if segment.kind != Kind::OpenReply {
            return Err(Dropped::Unknown);
        }
        self.remote = Some(server);
        Ok((self.take_reply(segment), proof, payload))
    }

    /// An answer says which hello it is for, which tells what the path carries.
    fn take_size(&mut self, answer: &Segment) {
        let carries = self.nth(answer.echo_transmission);
        self.mss = self.mss.saturating_sub((self.full - carries) as u16).max(1);
        (self.full, self.size) = (carries, carries);
    }

    /// The server's answer, which also says what it takes.
    fn take_reply(&mut self, mut segment: Segment) -> Segment {
        self.take_size(&segment);
        self.most = self.most.min(taken(self.full, self.mss, segment.length));
        self.size = self.size.min(self.most);
        segment.length = segment.length.min(self.mss);
        segment
    }

    /// Takes a datagram of the handshake, which is a server's.
    #[cold]
    pub fn hear(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
    ) -> Result<Heard, Dropped> {
        let server = server(envelope)?;
        if self.remote.is_some_and(|remote| remote != server) {
            return Err(Dropped::Unknown);
        }
        let secure = self.secure.as_deref_mut().ok_or(Dropped::Sealed)?;
        // Once the server has what it asked for, what it says comes late.
        let greeting = secure.greeting.as_deref_mut().ok_or(Dropped::Unknown)?;
        if greeting.refused.is_some() {
            return Err(Dropped::Unknown);
        }
        let rest = datagram
            .get(head..)
            .ok_or(Dropped::Malformed(CodecError::Short))?;
        let (part, length) = Crypto::read(rest).map_err(Dropped::Malformed)?;
        let head = head + length;
        let outcome = if envelope.cover == Cover::Handshake {
            if greeting.handshake.has_keys() {
                // The peer says nothing in the open any more: this is somebody else's, or late.
                return Err(Dropped::Unknown);
            }
            match (part.offset, part.bytes) {
                (ALERT, [alert]) => Err(Refused::by(*alert)),
                // Asked for a cookie twice, it would go round for ever.
                (0, []) if greeting.cookie.is_none() => {
                    let mut side = Side::default();
                    let (segment, ..) = parse(datagram, head..datagram.len(), &mut side)?;
                    if segment.kind != Kind::OpenReply {
                        return Err(Dropped::Unknown);
                    }
                    greeting.cookie = Some(server);
                    self.take_size(&segment);
                    return Ok(Heard::Again);
                }
                _ => return Err(Dropped::Unknown),
            }
        } else {
            let handshake = &mut greeting.handshake;
            let heard = handshake.hear(Level::Plain, part.offset, part.bytes);
            if heard.is_ok() && handshake.has_keys() {
                self.remote = Some(server);
            }
            heard.map(|()| head + NUMBER)
        };
        let opened = match outcome {
            Ok(head) => {
                let end = greeting.handshake.open(datagram, head)?;
                let text = datagram
                    .get(head..end)
                    .ok_or(Dropped::Malformed(CodecError::Short))?;
                let (part, length) = Crypto::read(text).map_err(Dropped::Malformed)?;
                match (part.offset, part.bytes) {
                    (ALERT, [alert]) => Err(Refused::by(*alert)),
                    (ALERT, _) => return Err(Dropped::Malformed(CodecError::Short)),
                    // It comes again although everything of it is here.
                    _ if secure.keys.is_some() => return Ok(Heard::More),
                    (offset, bytes) => greeting
                        .handshake
                        .hear(Level::Sealed, offset, bytes)
                        .and_then(|()| greeting.handshake.finish(server))
                        .map(|keys| (keys, head + length..end)),
                }
            }
            Err(why) => Err(why),
        };
        match opened {
            Ok((None, _)) => Ok(Heard::More),
            Ok((Some(keys), text)) => {
                let (segment, ..) = parse(datagram, text, &mut Side::default())?;
                if segment.kind != Kind::OpenReply {
                    return Err(Dropped::Unknown);
                }
                secure.keys = Some(keys);
                Ok(Heard::Reply(self.take_reply(segment)))
            }
            Err(why) => {
                greeting.refused = Some(why);
                Ok(Heard::Refused)
            }
        }
    }
}

/// Bytes of a datagram for a peer whose MSS is `theirs`, where one of `size` goes with an MSS of
/// `ours`. A connection sends segments of [`LEAST_MSS`] to whoever takes less.
fn taken(size: usize, ours: u16, theirs: u16) -> usize {
    size.saturating_sub(usize::from(ours)) + usize::from(theirs.max(LEAST_MSS))
}

/// The identifier by which a server is known.
fn server(envelope: &Envelope) -> Result<u64, Dropped> {
    let source = envelope.from.filter(|source| source.id != 0);
    source.map(|source| source.id).ok_or(Dropped::Unknown)
}

impl From<Unopened> for Dropped {
    fn from(why: Unopened) -> Dropped {
        match why {
            Unopened::Early => Dropped::Early,
            Unopened::Forged => Dropped::Forged,
            Unopened::Replayed => Dropped::Replayed,
            Unopened::Spent => Dropped::Spent,
        }
    }
}

/// Writes a server's answer to the hello of `client`, where there is no TLS.
pub(super) fn answer(
    server: Source,
    client: u64,
    segment: &Segment,
    side: &mut Side,
    out: &mut [u8],
) -> Option<usize> {
    let envelope = Envelope {
        to: client,
        from: Some(server),
        cover: Cover::Plain,
    };
    let head = envelope.write(out)?;
    let room = out.len().checked_sub(head)?;
    Some(head + codec::write(segment, side, &mut out[head..], room, |_| Proof::default())?)
}

/// Reads the segment in `datagram[text]` and its nonces, with the place of its payload.
pub(super) fn parse(
    datagram: &[u8],
    text: Range<usize>,
    side: &mut Side,
) -> Result<(Segment, Proof, Range<usize>), Dropped> {
    let bytes = datagram
        .get(text.clone())
        .ok_or(Dropped::Malformed(CodecError::Short))?;
    let (segment, proof, header) = codec::read(bytes, side).map_err(Dropped::Malformed)?;
    Ok((segment, proof, text.start + header..text.end))
}
