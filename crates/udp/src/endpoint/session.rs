//! Address, identifiers and keys of one connection: turns its segments into datagrams and back.

use std::net::SocketAddr;

use crate::codec::{self, CodecError, Envelope, MAX_ENVELOPE, Source};
use crate::crypto::{Key, Keys, Opener, Replay, Sealer, TAG};
use ccplane_transport::{Kind, Segment, Side};

use super::Dropped;

/// Most payload of a segment where datagrams have `size` bytes. SACK ranges beside data have to do with what is left.
///
/// A client names itself (10 bytes) only until it has heard of the connection, and has nothing to echo and no marks to count (13)
/// before that: no datagram has both.
pub fn mss(size: usize, sealed: bool, stamps: bool) -> u16 {
    let reserve = codec::MAX_DATA_HEADER - codec::DATA_HEADER - codec::STAMPS;
    size.saturating_sub(usize::from(overhead(sealed, stamps)) + reserve)
        .clamp(1, usize::from(u16::MAX)) as u16
}

/// What a segment of data takes in its datagram beside the payload, bytes: of a sender that knows its peer, and gets neither data
/// nor marks from it.
pub fn overhead(sealed: bool, stamps: bool) -> u16 {
    const NAME: usize = 10;
    let envelope = MAX_ENVELOPE - NAME - if sealed { 0 } else { 8 };
    let header = codec::DATA_HEADER + if stamps { codec::STAMPS } else { 0 };
    (envelope + header + if sealed { TAG } else { 0 }) as u16
}

/// Datagrams that a path may carry where it does not carry full ones: over IPv4, packets of 28 bytes more. Jumbo frames, Ethernet, PPPoE
/// (1492), tunnels inside one another, IPv6's least (1280, in IPv6 a datagram of 1232), and what IPv4 promises (576).
const NARROWER: [usize; 17] = [
    8972, 4324, 2276, 1472, 1464, 1452, 1444, 1424, 1404, 1392, 1372, 1352, 1312, 1252, 1232, 996, 548,
];
/// A path that has become narrower in the middle carries these, mostly (RFC 8899, 5.1.2: `BASE_PLPMTU`).
pub const BASE: usize = 1232;
/// And else these, or little else works on it either (`MIN_PLPMTU`).
pub const LEAST: usize = 548;

/// The sizes in which a hello is sent: the full one, and when that is not answered, smaller ones with it (RFC 8899, 5.3: a table).
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
    pub seal: Option<Box<Seal>>,
}

/// A connection's keys and numbers.
pub(super) struct Seal {
    key: Key,
    /// For what is sent, and opens what comes once the peer is known.
    sealer: Sealer,
    opener: Opener,
    /// The number of the next packet.
    next: u64,
    replay: Replay,
}

impl Session {
    /// A client's, before it knows the server's identifier.
    pub fn client(address: SocketAddr, local: u64, mss: u16, size: usize, key: Option<&Key>) -> Session {
        let seal = key.map(|key| {
            let (sealer, opener) = Keys::hello(key, local).for_client();
            Seal::new(key, sealer, opener, 0)
        });
        Session {
            address,
            local,
            remote: None,
            mss,
            size,
            full: size,
            most: size,
            seal,
        }
    }

    /// A server's. `first` numbers its first packet: a number that no earlier connection of the same identifiers reached.
    pub fn server(
        address: SocketAddr,
        (local, remote): (u64, u64),
        (mss, size): (u16, usize),
        key: Option<&Key>,
        first: u64,
    ) -> Session {
        let seal = key.map(|key| {
            let (sealer, opener) = Keys::connection(key, remote, local).for_server();
            Seal::new(key, sealer, opener, first)
        });
        Session {
            address,
            local,
            remote: Some(remote),
            mss,
            size,
            full: size,
            most: size,
            seal,
        }
    }

    /// Writes a segment as a datagram; `fill` is given the place of its payload. Its length, `None` where it does not fit, which
    /// a segment of at most the [`mss`] always does.
    #[inline]
    pub fn write(
        &mut self,
        segment: &Segment,
        side: &mut Side,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let hello = segment.kind == Kind::Open;
        let long = hello || segment.has(Segment::PROOF);
        let envelope = Envelope {
            to: self.remote.filter(|_| !hello).unwrap_or(0),
            from: long.then_some(Source {
                id: self.local,
                mss: self.mss,
            }),
            number: self.seal.as_ref().map(|seal| seal.next),
        };
        let size = match segment.kind {
            Kind::Open => self.nth(segment.transmission),
            Kind::PathProbe => usize::from(segment.length),
            _ => self.size,
        };
        let size = size.min(out.len());
        let text = size.checked_sub(if self.seal.is_some() { TAG } else { 0 })?;
        let payload = match segment.kind {
            Kind::Data => usize::from(segment.length),
            _ => 0,
        };
        let head = envelope.write(out)?;
        let header = codec::write(segment, side, &mut out[head..], text.checked_sub(head + payload)?)?;
        let mut end = head + header + payload;
        fill(out.get_mut(head + header..end)?);
        if hello || segment.kind == Kind::PathProbe {
            // Padding, so that the answer cannot be the larger one, and so that a path that does not carry full
            // datagrams shows at once and not in the middle.
            out.get_mut(end..text)?.fill(0);
            end = text;
        }
        match &mut self.seal {
            Some(seal) => {
                let sealed = seal.sealer.seal(seal.next, out, head, end)?;
                seal.next += 1;
                Some(sealed)
            }
            None => Some(end),
        }
    }

    /// The `n`-th of the [`sizes`], from 1: the full one where there is none such.
    fn nth(&self, n: u8) -> usize {
        let step = usize::from(n.saturating_sub(1));
        sizes(self.full).nth(step).unwrap_or(self.full)
    }

    /// Reads a datagram whose identifier is this connection's, and opens it in place; with the place of its payload.
    #[inline]
    pub fn read(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<(Segment, std::ops::Range<usize>), Dropped> {
        let Some(remote) = self.remote else {
            return self.read_answer(envelope, head, datagram, side);
        };
        // A server knows the client's identifier; a client that has its answer needs no other.
        if envelope.from.is_some_and(|source| source.id != remote) {
            return Err(Dropped::Unknown);
        }
        let end = match (&mut self.seal, envelope.number) {
            (None, None) => datagram.len(),
            (Some(seal), Some(number)) => {
                if !seal.replay.is_fresh(number) {
                    return Err(Dropped::Replayed);
                }
                let end = seal.opener.open(number, datagram, head).map_err(|_| Dropped::Forged)?;
                seal.replay.note(number);
                end
            }
            (Some(_), None) => return Err(Dropped::Plain),
            (None, Some(_)) => return Err(Dropped::Sealed),
        };
        let (segment, payload) = parse(datagram, head..end, side)?;
        match segment.kind {
            Kind::Open | Kind::OpenReply => Err(Dropped::Unknown),
            _ => Ok((segment, payload)),
        }
    }

    /// The answer to a client's hello makes the server known, and the keys with it.
    fn read_answer(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut Side,
    ) -> Result<(Segment, std::ops::Range<usize>), Dropped> {
        let server = envelope
            .from
            .filter(|source| source.id != 0)
            .ok_or(Dropped::Unknown)?
            .id;
        let key = self.seal.as_ref().map(|seal| &seal.key);
        let end = open(
            key,
            |key| Keys::answer(key, self.local, server).for_client().1,
            envelope,
            head,
            datagram,
        )?;
        let (mut segment, payload) = parse(datagram, head..end, side)?;
        if segment.kind != Kind::OpenReply {
            return Err(Dropped::Unknown);
        }
        // The answer says which hello it is for, and what the peer would take.
        self.size = self.nth(segment.echo_transmission);
        self.most = self.full - usize::from(self.mss.saturating_sub(segment.length));
        self.mss = self.mss.saturating_sub((self.full - self.size) as u16).max(1);
        segment.length = segment.length.min(self.mss);
        (segment.echo, segment.echo_transmission) = Default::default();
        self.remote = Some(server);
        if let Some(seal) = &mut self.seal {
            (seal.sealer, seal.opener) = Keys::connection(&seal.key, self.local, server).for_client();
            seal.next = 0;
        }
        Ok((segment, payload))
    }
}

/// Writes a server's answer to the hello of `client`.
pub(super) fn answer(
    key: Option<&Key>,
    number: u64,
    server: Source,
    client: u64,
    segment: &Segment,
    side: &mut Side,
    out: &mut [u8],
) -> Option<usize> {
    let envelope = Envelope {
        to: client,
        from: Some(server),
        number: key.map(|_| number),
    };
    let room = out.len().checked_sub(if key.is_some() { TAG } else { 0 })?;
    let head = envelope.write(out)?;
    let end = head + codec::write(segment, side, &mut out[head..], room.checked_sub(head)?)?;
    match key {
        Some(key) => {
            let (sealer, _) = Keys::answer(key, client, server.id).for_server();
            sealer.seal(number, out, head, end)
        }
        None => Some(end),
    }
}

impl Seal {
    fn new(key: &Key, sealer: Sealer, opener: Opener, next: u64) -> Box<Seal> {
        Box::new(Seal {
            key: key.clone(),
            sealer,
            opener,
            next,
            replay: Replay::new(),
        })
    }
}

/// Opens a datagram of a handshake in place, with keys that serve only for it; where it ends without the tag.
pub(super) fn open(
    key: Option<&Key>,
    opener: impl FnOnce(&Key) -> Opener,
    envelope: &Envelope,
    head: usize,
    datagram: &mut [u8],
) -> Result<usize, Dropped> {
    match (key, envelope.number) {
        (None, None) => Ok(datagram.len()),
        (Some(key), Some(number)) => opener(key).open(number, datagram, head).map_err(|_| Dropped::Forged),
        (Some(_), None) => Err(Dropped::Plain),
        (None, Some(_)) => Err(Dropped::Sealed),
    }
}

/// Reads the segment in `datagram[text]`, with the place of its payload.
pub(super) fn parse(
    datagram: &[u8],
    text: std::ops::Range<usize>,
    side: &mut Side,
) -> Result<(Segment, std::ops::Range<usize>), Dropped> {
    let bytes = datagram
        .get(text.clone())
        .ok_or(Dropped::Malformed(CodecError::Short))?;
    let (segment, header) = codec::read(bytes, side).map_err(Dropped::Malformed)?;
    Ok((segment, text.start + header..text.end))
}
