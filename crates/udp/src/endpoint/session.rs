//! Address, identifiers and keys of one connection: converts between segments and datagrams.

use std::net::SocketAddr;
use std::ops::Range;

use crate::codec::{
    self, ALERT_OFFSET, ClientAddress, CodecError, Cover, Crypto, ENVELOPE_BYTES_MAX, Envelope,
    PACKET_NUMBER_BYTES,
};
use crate::tls::{Handshake, HandshakeError, Keys, Level, OpenFailure, TAG_BYTES, Tls};
use ccplane_transport::{PEER_MSS_MIN, Proof, Segment, SegmentKind, SideData};

use super::DropReason;
use super::flight::write_part;

/// Returns the largest segment payload for datagrams of `size` bytes. SACK ranges on data segments
/// use only the space that is left.
///
/// A client sends its identifier (10 bytes) only until the server has confirmed the connection, and
/// has neither an echo nor ECN counts (15 bytes) before then; no datagram carries both.
pub fn mss(size: usize, sealed: bool, stamps: bool) -> u16 {
    let reserve =
        codec::DATA_HEADER_BYTES_MAX - codec::DATA_HEADER_BYTES - codec::DATA_TIMESTAMP_BYTES;
    size.saturating_sub(usize::from(overhead(sealed, stamps)) + reserve)
        .clamp(1, usize::from(u16::MAX)) as u16
}

/// Returns the bytes of a data segment's datagram besides its payload, for an established
/// connection that receives neither data nor CE marks.
pub fn overhead(sealed: bool, stamps: bool) -> u16 {
    const NAME: usize = 10;
    let envelope = ENVELOPE_BYTES_MAX - NAME - if sealed { 0 } else { PACKET_NUMBER_BYTES };
    let header = codec::DATA_HEADER_BYTES
        + if stamps {
            codec::DATA_TIMESTAMP_BYTES
        } else {
            0
        };
    (envelope + header + if sealed { TAG_BYTES } else { 0 }) as u16
}

/// Datagram sizes of common paths, largest first; an IPv4 packet has 28 bytes more. They stand for
/// jumbo frames, Ethernet, PPPoE (1492), nested tunnels, IPv6's minimum (1280, a datagram of 1232
/// bytes) and IPv4's guarantee (576).
const PLPMTU_TABLE: [usize; 17] = [
    8972, 4324, 2276, 1472, 1464, 1452, 1444, 1424, 1404, 1392, 1372, 1352, 1312, 1252, 1232, 996,
    548,
];
/// Datagram size used first when the path MTU has shrunk (`BASE_PLPMTU`, RFC 8899, section 5.1.2).
pub const BASE_PLPMTU: usize = 1232;
/// Smallest datagram size (`MIN_PLPMTU`): on a path that cannot carry it, little else works either.
pub const MIN_PLPMTU: usize = 548;

/// Returns the sizes of hellos: the full one, then, if it is not answered, smaller ones too (a
/// table as in RFC 8899, section 5.3).
pub fn hello_sizes(full: usize) -> impl Iterator<Item = usize> {
    std::iter::once(full).chain(PLPMTU_TABLE.into_iter().filter(move |size| *size < full))
}

/// Datagram layer of one connection; see [`Endpoint`](super::Endpoint).
pub(super) struct Session {
    pub address: SocketAddr,
    /// Local identifier, which the peer's datagrams carry.
    pub local: u64,
    /// Peer's identifier; `None` while a client waits for the answer.
    pub remote: Option<u64>,
    /// Local MSS, sent to the peer.
    pub mss: u16,
    /// Datagram size that the path carries, bytes.
    pub size: usize,
    /// Largest datagram size tried, bytes.
    size_tried_max: usize,
    /// Largest datagram size that the peer accepts too, bytes.
    pub size_max: usize,
    tls: Option<Box<TlsState>>,
}

/// TLS state of a connection.
struct TlsState {
    /// Connection keys, once the handshake is complete.
    keys: Option<Box<Keys>>,
    /// A client's handshake, until the server has confirmed that it is complete.
    client_handshake: Option<Box<ClientHandshake>>,
}

/// Client side of the handshake.
struct ClientHandshake {
    handshake: Handshake,
    /// Cookie that the server requested in further hellos.
    cookie: Option<u64>,
    /// Bytes of the last flight already sent; `None` while it is not due.
    flight_sent: Option<usize>,
    /// Set once the last flight has been sent.
    flight_complete: bool,
    error: Option<HandshakeError>,
}

/// Outcome of a handshake datagram received by a client.
pub(super) enum HandshakeOutcome {
    /// More datagrams are needed.
    Incomplete,
    /// The server requests another hello with its cookie.
    HelloRequested,
    /// The handshake is complete; contains the server's answer.
    Complete(Segment),
    /// The handshake has failed.
    Failed,
}

impl Session {
    /// Creates a client session; the server's identifier is not known yet.
    pub fn client(
        address: SocketAddr,
        local: u64,
        mss: u16,
        size: usize,
        tls: Option<&Tls>,
    ) -> Result<Session, HandshakeError> {
        let greeting = tls.map(|tls| {
            Ok(Box::new(ClientHandshake {
                handshake: Handshake::client(tls, local)?,
                cookie: None,
                flight_sent: None,
                flight_complete: false,
                error: None,
            }))
        });
        let greeting = greeting.transpose()?;
        Ok(Session {
            address,
            local,
            remote: None,
            mss,
            size,
            size_tried_max: size,
            size_max: size,
            tls: greeting.map(|greeting| {
                Box::new(TlsState {
                    keys: None,
                    client_handshake: Some(greeting),
                })
            }),
        })
    }

    /// Creates a server session, with the handshake's keys under TLS.
    pub fn server(
        address: SocketAddr,
        local: u64,
        client: ClientAddress,
        (mss, size): (u16, usize),
        keys: Option<Box<Keys>>,
    ) -> Session {
        // The client's MSS limits what it accepts, and its hello has shown what the path carries.
        let most = accepted_size(size, mss, client.mss).min(size);
        Session {
            address,
            local,
            remote: Some(client.id),
            mss,
            size: most,
            size_tried_max: size,
            size_max: most,
            tls: keys.map(|keys| {
                Box::new(TlsState {
                    keys: Some(keys),
                    client_handshake: None,
                })
            }),
        }
    }

    /// Returns the keys of a session that was not admitted.
    pub fn into_keys(self) -> Option<Box<Keys>> {
        self.tls?.keys
    }

    /// Returns the reason for which the handshake failed, if it did.
    pub fn handshake_error(&self) -> Option<&HandshakeError> {
        self.tls.as_ref()?.client_handshake.as_ref()?.error.as_ref()
    }

    /// Returns the number of key updates.
    pub fn key_updates(&self) -> u64 {
        self.keys().map_or(0, Keys::key_updates)
    }

    /// Returns true if the keys have reached their confidentiality limit.
    pub fn keys_exhausted(&self) -> bool {
        self.keys().is_some_and(Keys::is_exhausted)
    }

    fn keys(&self) -> Option<&Keys> {
        self.tls.as_ref()?.keys.as_deref()
    }

    /// Encodes a segment into `out`. `prove` returns its nonces; `fill` writes the payload. Returns
    /// the length; `None` if the keys are worn out or the segment does not fit, which cannot happen
    /// up to the [`mss`].
    #[inline]
    pub fn write(
        &mut self,
        segment: &Segment,
        side: &mut SideData,
        out: &mut [u8],
        prove: impl FnOnce(&SideData) -> Proof,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        if segment.kind == SegmentKind::Open {
            return self.write_hello(segment, side, out);
        }
        let cover = match &mut self.tls {
            Some(secure) => {
                let (phase, number) = secure.keys.as_mut()?.next_packet();
                Cover::Sealed { phase, number }
            }
            None => Cover::Plain,
        };
        let envelope = Envelope {
            to: self.remote.unwrap_or(0),
            from: segment
                .has_flag(Segment::PROOF_FLAG)
                .then_some(self.source()),
            cover,
        };
        let size = match segment.kind {
            SegmentKind::PathProbe => usize::from(segment.length),
            _ => self.size,
        };
        let size = size.min(out.len());
        let text = size.checked_sub(if self.tls.is_some() { TAG_BYTES } else { 0 })?;
        let payload = match segment.kind {
            SegmentKind::Data => usize::from(segment.length),
            _ => 0,
        };
        let head = envelope.write(out)?;
        let room = text.checked_sub(head + payload)?;
        let header = codec::write(segment, side, &mut out[head..], room, prove)?;
        let mut end = head + header + payload;
        fill(out.get_mut(head + header..end)?);
        if segment.kind == SegmentKind::PathProbe {
            // Padding: the datagram's length is what a probe tests.
            out.get_mut(end..text)?.fill(0);
            end = text;
        }
        match &mut self.tls {
            Some(secure) => secure.keys.as_mut()?.seal(out, head, end),
            None => Some(end),
        }
    }

    fn source(&self) -> ClientAddress {
        ClientAddress {
            id: self.local,
            mss: self.mss,
        }
    }

    /// Writes a padded hello. The padding keeps the answer no larger than the hello, and reveals at
    /// once, not mid-transfer, if the path does not carry full datagrams.
    #[cold]
    fn write_hello(
        &mut self,
        segment: &Segment,
        side: &mut SideData,
        out: &mut [u8],
    ) -> Option<usize> {
        let greeting = self
            .tls
            .as_ref()
            .and_then(|secure| secure.client_handshake.as_ref());
        let size = self.hello_size(segment.transmission);
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
            let bytes = greeting.handshake.output(Level::Plain);
            end += Crypto { offset: 0, bytes }.write(&mut out[end..])?;
        }
        end += codec::write(segment, side, &mut out[end..], size - end, |_| {
            Proof::default()
        })?;
        out.get_mut(end..)?.fill(0);
        Some(size)
    }

    /// Returns the `n`-th of the [`sizes`], counted from 1; the full size if there is no such
    /// entry.
    fn hello_size(&self, n: u8) -> usize {
        let step = usize::from(n.saturating_sub(1));
        hello_sizes(self.size_tried_max)
            .nth(step)
            .unwrap_or(self.size_tried_max)
    }

    /// Schedules the client's last flight before the segment that confirms the server's answer, and
    /// again when that segment is retransmitted.
    pub fn begin_flight(&mut self, segment: &Segment) {
        let secure = self
            .tls
            .as_deref_mut()
            .filter(|secure| secure.keys.is_some());
        if let Some(greeting) = secure.and_then(|secure| secure.client_handshake.as_mut()) {
            let due = !greeting.flight_complete
                || segment.kind == SegmentKind::Ack
                || segment.transmission > 1;
            greeting.flight_sent = due.then_some(0);
            greeting.flight_complete = true;
        }
    }

    /// Writes the next datagram of the flight.
    pub fn write_flight(&mut self, out: &mut [u8]) -> Option<usize> {
        let envelope = Envelope {
            to: self.remote?,
            from: Some(self.source()),
            cover: Cover::SealedHandshake,
        };
        let greeting = self.tls.as_deref_mut()?.client_handshake.as_deref_mut()?;
        let at = greeting.flight_sent.take()?;
        let size = self.size.min(out.len());
        let (length, at) = write_part(
            &mut greeting.handshake,
            envelope,
            &[],
            at,
            &[],
            &mut out[..size],
        )?;
        greeting.flight_sent = (at < greeting.handshake.output(Level::Sealed).len()).then_some(at);
        Some(length)
    }

    /// Decrypts a datagram of this connection in place and reads it. Returns the segment, its
    /// nonces and the range of the payload.
    #[inline]
    pub fn read(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut SideData,
    ) -> Result<(Segment, Proof, Range<usize>), DropReason> {
        let Some(remote) = self.remote else {
            return self.read_answer(envelope, head, datagram, side);
        };
        // A server has the client's identifier; a client with the server's answer accepts no other.
        if envelope.from.is_some_and(|source| source.id != remote) {
            return Err(DropReason::UnknownConnection);
        }
        let end = match (&mut self.tls, envelope.cover) {
            (None, Cover::Plain) => datagram.len(),
            (Some(secure), Cover::Sealed { .. }) => {
                let keys = secure
                    .keys
                    .as_mut()
                    .ok_or(DropReason::HandshakeIncomplete)?;
                let end = keys.open(datagram, head)?;
                if secure.client_handshake.is_some() {
                    // Sealing this datagram required the client's last flight, so the server has
                    // it.
                    secure.client_handshake = None;
                }
                end
            }
            (Some(_), Cover::Plain) => return Err(DropReason::NotEncrypted),
            (None, _) => return Err(DropReason::Encrypted),
            // Late handshake datagram.
            (Some(_), _) => return Err(DropReason::UnknownConnection),
        };
        let (segment, proof, payload) = parse(datagram, head..end, side)?;
        match segment.kind {
            SegmentKind::Open | SegmentKind::OpenReply => Err(DropReason::UnknownConnection),
            _ => Ok((segment, proof, payload)),
        }
    }

    /// Reads the answer to a client's hello without TLS, which contains the server's identifier.
    #[cold]
    fn read_answer(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
        side: &mut SideData,
    ) -> Result<(Segment, Proof, Range<usize>), DropReason> {
        match (&self.tls, envelope.cover) {
            (None, Cover::Plain) => {}
            (None, _) => return Err(DropReason::Encrypted),
            (Some(_), Cover::Plain) => return Err(DropReason::NotEncrypted),
            (Some(_), _) => return Err(DropReason::HandshakeIncomplete),
        }
        let server = server_id(envelope)?;
        let (segment, proof, payload) = parse(datagram, head..datagram.len(), side)?;
        if segment.kind != SegmentKind::OpenReply {
            return Err(DropReason::UnknownConnection);
        }
        self.remote = Some(server);
        Ok((self.take_reply(segment), proof, payload))
    }

    /// Sets the datagram size from the hello that was answered.
    fn take_size(&mut self, answer: &Segment) {
        let carries = self.hello_size(answer.echo_transmission);
        self.mss = self
            .mss
            .saturating_sub((self.size_tried_max - carries) as u16)
            .max(1);
        (self.size_tried_max, self.size) = (carries, carries);
    }

    /// Applies the limits in the server's answer.
    fn take_reply(&mut self, mut segment: Segment) -> Segment {
        self.take_size(&segment);
        self.size_max =
            self.size_max
                .min(accepted_size(self.size_tried_max, self.mss, segment.length));
        self.size = self.size.min(self.size_max);
        segment.length = segment.length.min(self.mss);
        segment
    }

    /// Processes a handshake datagram of a server.
    #[cold]
    pub fn on_handshake(
        &mut self,
        envelope: &Envelope,
        head: usize,
        datagram: &mut [u8],
    ) -> Result<HandshakeOutcome, DropReason> {
        let server = server_id(envelope)?;
        if self.remote.is_some_and(|remote| remote != server) {
            return Err(DropReason::UnknownConnection);
        }
        let secure = self.tls.as_deref_mut().ok_or(DropReason::Encrypted)?;
        // After confirmation by the server, its handshake datagrams are late copies.
        let greeting = secure
            .client_handshake
            .as_deref_mut()
            .ok_or(DropReason::UnknownConnection)?;
        if greeting.error.is_some() {
            return Err(DropReason::UnknownConnection);
        }
        let rest = datagram
            .get(head..)
            .ok_or(DropReason::Malformed(CodecError::Short))?;
        let (part, length) = Crypto::read(rest).map_err(DropReason::Malformed)?;
        let head = head + length;
        let outcome = if envelope.cover == Cover::Handshake {
            if greeting.handshake.has_keys() {
                // The server has switched to sealed datagrams: this one is forged or late.
                return Err(DropReason::UnknownConnection);
            }
            match (part.offset, part.bytes) {
                (ALERT_OFFSET, [alert]) => Err(HandshakeError::from_alert(*alert)),
                // A second cookie request is ignored, since it could loop forever.
                (0, []) if greeting.cookie.is_none() => {
                    let mut side = SideData::default();
                    let (segment, ..) = parse(datagram, head..datagram.len(), &mut side)?;
                    if segment.kind != SegmentKind::OpenReply {
                        return Err(DropReason::UnknownConnection);
                    }
                    greeting.cookie = Some(server);
                    self.take_size(&segment);
                    return Ok(HandshakeOutcome::HelloRequested);
                }
                _ => return Err(DropReason::UnknownConnection),
            }
        } else {
            let handshake = &mut greeting.handshake;
            let heard = handshake.receive(Level::Plain, part.offset, part.bytes);
            if heard.is_ok() && handshake.has_keys() {
                self.remote = Some(server);
            }
            heard.map(|()| head + PACKET_NUMBER_BYTES)
        };
        let opened = match outcome {
            Ok(head) => {
                let end = greeting.handshake.open(datagram, head)?;
                let text = datagram
                    .get(head..end)
                    .ok_or(DropReason::Malformed(CodecError::Short))?;
                let (part, length) = Crypto::read(text).map_err(DropReason::Malformed)?;
                match (part.offset, part.bytes) {
                    (ALERT_OFFSET, [alert]) => Err(HandshakeError::from_alert(*alert)),
                    (ALERT_OFFSET, _) => return Err(DropReason::Malformed(CodecError::Short)),
                    // Retransmission of data we already have.
                    _ if secure.keys.is_some() => return Ok(HandshakeOutcome::Incomplete),
                    (offset, bytes) => greeting
                        .handshake
                        .receive(Level::Sealed, offset, bytes)
                        .and_then(|()| greeting.handshake.finish(server))
                        .map(|keys| (keys, head + length..end)),
                }
            }
            Err(why) => Err(why),
        };
        match opened {
            Ok((None, _)) => Ok(HandshakeOutcome::Incomplete),
            Ok((Some(keys), text)) => {
                let (segment, ..) = parse(datagram, text, &mut SideData::default())?;
                if segment.kind != SegmentKind::OpenReply {
                    return Err(DropReason::UnknownConnection);
                }
                secure.keys = Some(keys);
                Ok(HandshakeOutcome::Complete(self.take_reply(segment)))
            }
            Err(why) => {
                greeting.error = Some(why);
                Ok(HandshakeOutcome::Failed)
            }
        }
    }
}

/// Returns the datagram size for a peer whose MSS is `theirs`, if datagrams of `size` bytes
/// correspond to an MSS of `ours`. Peers with a smaller MSS than [`PEER_MSS_MIN`] still get
/// segments of that minimum.
fn accepted_size(size: usize, ours: u16, theirs: u16) -> usize {
    size.saturating_sub(usize::from(ours)) + usize::from(theirs.max(PEER_MSS_MIN))
}

/// Returns the server's identifier from its envelope.
fn server_id(envelope: &Envelope) -> Result<u64, DropReason> {
    let source = envelope.from.filter(|source| source.id != 0);
    source
        .map(|source| source.id)
        .ok_or(DropReason::UnknownConnection)
}

impl From<OpenFailure> for DropReason {
    fn from(why: OpenFailure) -> DropReason {
        match why {
            OpenFailure::HandshakeIncomplete => DropReason::HandshakeIncomplete,
            OpenFailure::Forged => DropReason::Forged,
            OpenFailure::Replayed => DropReason::Replayed,
            OpenFailure::IntegrityLimit => DropReason::IntegrityLimit,
        }
    }
}

/// Writes a server's answer to the hello of `client` without TLS.
pub(super) fn answer(
    server: ClientAddress,
    client: u64,
    segment: &Segment,
    side: &mut SideData,
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

/// Reads the segment in `datagram[text]`. Returns it with its nonces and the range of its payload.
pub(super) fn parse(
    datagram: &[u8],
    text: Range<usize>,
    side: &mut SideData,
) -> Result<(Segment, Proof, Range<usize>), DropReason> {
    let bytes = datagram
        .get(text.clone())
        .ok_or(DropReason::Malformed(CodecError::Short))?;
    let (segment, proof, header) = codec::read(bytes, side).map_err(DropReason::Malformed)?;
    Ok((segment, proof, text.start + header..text.end))
}
