//! WireGuard tunnel to one peer, implemented by `boringtun`: encryption, handshakes, rekeying and
//! keepalives, without a socket.
//!
//! Every data message carries a session index and a counter. Both ends read them from the header
//! (WireGuard, section 5.4.6), so sendbox and receivebox identify packets by them. Rekeying, every
//! two minutes, starts a new session with a counter of 0.
//!
//! `boringtun` reads the system clock, so tunnels only work in real time.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};
use boringtun::x25519;

use super::keys::{PresharedKey, PrivateKey, PublicKey};

/// Bytes a data message adds to its packet: a header of 16 and a tag of 16.
pub const DATA_OVERHEAD_BYTES: usize = 32;
/// Length of the longest handshake message; buffers must have at least this many bytes.
const HANDSHAKE_BYTES_MAX: usize = 148;
/// Interval between calls of [`Tunnel::tick`], the resolution of WireGuard's timers. `boringtun`
/// does not benefit from a shorter interval.
pub const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// Ticks without an outgoing packet before a keepalive is sent to keep NAT mappings alive: 25 s, as
/// WireGuard's own pages recommend, because most NATs keep a mapping for 30 s.
const KEEPALIVE_TICKS: u128 = 25_000 / TICK_INTERVAL.as_millis();

/// Handshakes per second above which initiators must return a cookie, which proves that they
/// receive at their address. A handshake costs four X25519 multiplications, about 0.2 ms. A lower
/// limit would slow the start of a large hub; at a higher one, forged initiations could use more
/// than a tenth of a core.
const HANDSHAKES_PER_SECOND_MAX: u64 = 200;
/// Session age at which the responder initiates a handshake itself. The initiator renews the
/// session after 120 s (WireGuard, section 6.1); if a flood at this side drops its initiations, the
/// session would expire after 180 s.
const SESSION_RENEWAL_AGE: Duration = Duration::from_secs(135);

/// Bits of the session index that contain the peer index. The 8 bits below them belong to
/// `boringtun`.
const PEER_INDEX_BITS: u32 = 12;
const PEER_INDICES: u32 = 1 << PEER_INDEX_BITS;

/// Consecutive unconfirmed responses after which the peer is reported to ignore them. A single one
/// may simply be lost.
const UNCONFIRMED_RESPONSES_MAX: u8 = 3;

/// Message type of an initiation.
pub const INITIATION_TYPE: u8 = 1;
const RESPONSE_TYPE: u8 = 2;
const COOKIE_TYPE: u8 = 3;
const DATA_TYPE: u8 = 4;

/// Packet number of a data message, the same at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelNumber {
    /// Receiver index of the session.
    pub session: u32,
    /// Counter within the session.
    pub counter: u64,
}

impl TunnelNumber {
    /// Reads the number from the header of a data message; returns `None` for other messages.
    pub fn parse(datagram: &[u8]) -> Option<TunnelNumber> {
        let header: &[u8; 16] = datagram.first_chunk()?;
        let &[
            DATA_TYPE,
            0,
            0,
            0,
            s0,
            s1,
            s2,
            s3,
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
        ] = header
        else {
            return None;
        };
        Some(TunnelNumber {
            session: u32::from_le_bytes([s0, s1, s2, s3]),
            counter: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        })
    }
}

/// Result of encrypting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealOutcome {
    /// The buffer contains a datagram.
    Datagram {
        /// Length of the datagram.
        bytes: usize,
        /// Packet number of the datagram.
        number: TunnelNumber,
    },
    /// There is no session, so the packet has to wait. [`Tunnel::initiate_handshake`] initiates a
    /// handshake.
    NoSession,
}

/// Contents of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramKind {
    /// A packet, now in the buffer, or a keepalive.
    Packet {
        /// Length of the packet; 0 for a keepalive.
        bytes: usize,
        /// Packet number.
        number: TunnelNumber,
        /// Source address of the packet; `None` for a keepalive.
        source: Option<IpAddr>,
    },
    /// A handshake message or a cookie reply. The buffer contains the response, if any.
    Handshake {
        /// Length of the response; 0 if there is none.
        answer: usize,
        /// True if the sender proved that it has the peer's key.
        authentic: bool,
    },
    /// The datagram is not valid.
    Refused(Refusal),
}

/// Cause for refusing a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The counter was received before or is older than the replay window.
    Replayed,
    /// The session does not exist or has expired.
    UnknownSession,
    /// The authentication failed.
    Forged,
}

/// State shared by all tunnels of a gateway: its keys and handshake rate limiters.
#[derive(Clone)]
pub struct HandshakeDemux {
    private: x25519::StaticSecret,
    public: x25519::PublicKey,
    limiter: Arc<RateLimiter>,
    /// Verifies handshakes that another limiter has already admitted.
    unlimited: Arc<RateLimiter>,
    /// Upper bits of every session index, random so that indices differ after a restart.
    epoch: u32,
}

/// Recipient of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The tunnel of the peer with this index.
    Index(u32),
    /// The tunnel of this peer, which initiates a handshake.
    Peer(PublicKey),
    /// No tunnel; the buffer contains a reply of this length.
    Answer(usize),
    /// No tunnel.
    Unknown,
}

impl HandshakeDemux {
    /// Creates the state for a gateway's key. `random` must differ on every start.
    pub fn new(key: &PrivateKey, random: u32) -> HandshakeDemux {
        let private = key.secret();
        let public = x25519::PublicKey::from(&private);
        HandshakeDemux {
            limiter: Arc::new(RateLimiter::new(&public, HANDSHAKES_PER_SECOND_MAX)),
            unlimited: Arc::new(RateLimiter::new(&public, u64::MAX)),
            private,
            public,
            epoch: random % PEER_INDICES,
        }
    }

    /// Creates the tunnel to a peer with an index below 4,096. With `keepalive`, a session is
    /// established before a packet needs it and NAT mappings are kept alive; it is meant for peers
    /// with a known endpoint.
    pub fn tunnel(
        &self,
        place: u32,
        peer: PublicKey,
        preshared_key: Option<PresharedKey>,
        keepalive: bool,
    ) -> Tunnel {
        let secret = preshared_key.map(PresharedKey::bytes);
        let index = (self.epoch << PEER_INDEX_BITS) | (place % PEER_INDICES);
        let limiter = Some(Arc::clone(&self.unlimited));
        Tunnel {
            tunn: Tunn::new(
                self.private.clone(),
                peer.x25519(),
                secret,
                None,
                index,
                limiter,
            ),
            keepalive,
            quiet: 0,
            established: false,
            unconfirmed_answers: 0,
            fault: None,
        }
    }

    /// Returns the tunnel named by the receiver index of a data message, response or cookie reply.
    /// The tunnel itself verifies the message.
    pub fn recipient(&self, datagram: &[u8]) -> Recipient {
        let session = match Tunn::parse_incoming_packet(datagram) {
            Ok(Packet::PacketData(data)) => data.receiver_idx,
            Ok(Packet::HandshakeResponse(response)) => response.receiver_idx,
            Ok(Packet::PacketCookieReply(cookie)) => cookie.receiver_idx,
            _ => return Recipient::Unknown,
        };
        match session >> (8 + PEER_INDEX_BITS) == self.epoch {
            true => Recipient::Index((session >> 8) % PEER_INDICES),
            false => Recipient::Unknown,
        }
    }

    /// Returns the peer that sent an initiation, or, above `HANDSHAKES_PER_SECOND_MAX` per second,
    /// a cookie reply in `room`, which has at least 148 bytes.
    ///
    /// Reading the sender's key costs an X25519 multiplication, so the cookie is checked first.
    pub fn identify(&self, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> Recipient {
        self.verify(&self.limiter, from, datagram, room)
    }

    /// Identifies the sender like [`identify`](HandshakeDemux::identify), without a rate limit; the
    /// caller enforces its own.
    pub fn identify_unlimited(&self, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> Recipient {
        self.verify(&self.unlimited, from, datagram, room)
    }

    fn verify(
        &self,
        limiter: &RateLimiter,
        from: IpAddr,
        datagram: &[u8],
        room: &mut [u8],
    ) -> Recipient {
        match limiter.verify_packet(Some(from), datagram, room) {
            Ok(Packet::HandshakeInit(initiation)) => {
                match parse_handshake_anon(&self.private, &self.public, &initiation) {
                    Ok(handshake) => {
                        Recipient::Peer(PublicKey::from_bytes(handshake.peer_static_public))
                    }
                    Err(_) => Recipient::Unknown,
                }
            }
            Err(TunnResult::WriteToNetwork(cookie)) => Recipient::Answer(cookie.len()),
            _ => Recipient::Unknown,
        }
    }

    /// Resets the rate limiter's counter, at most once per second.
    pub fn tick(&self) {
        self.limiter.reset_count();
    }
}

/// A tunnel to one peer. Methods write a packet or a datagram into the caller's buffer and return
/// its length.
pub struct Tunnel {
    tunn: Tunn,
    keepalive: bool,
    /// Ticks since the last outgoing packet.
    quiet: u128,
    /// True if there is a session to encrypt with, as of the last handshake or tick.
    established: bool,
    /// Responses to the peer's initiations since the last authenticated data message.
    unconfirmed_answers: u8,
    fault: Option<HandshakeFault>,
}

/// Handshake fault since the last authenticated data message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The peer's response does not decrypt. It is encrypted with the preshared key.
    AnswerRejected,
    /// The peer repeats its initiation: it rejects the responses, or they are lost.
    AnswerIgnored,
}

impl HandshakeFault {
    /// Returns the name used by `status --json`.
    pub const fn name(self) -> &'static str {
        match self {
            HandshakeFault::AnswerRejected => "answer_rejected",
            HandshakeFault::AnswerIgnored => "answer_ignored",
        }
    }

    /// Returns the likely cause and the fix.
    pub const fn explanation(self) -> &'static str {
        match self {
            HandshakeFault::AnswerRejected => {
                "no keys: cannot decrypt the peer's response, because `preshared_key` differs or \
                is set at only one site; write the same line at both sites"
            }
            HandshakeFault::AnswerIgnored => {
                "no keys: the peer sends initiations but does not accept the responses; \
                `preshared_key` differs or is set at only one site, or a firewall drops the \
                responses"
            }
        }
    }
}

impl Tunnel {
    /// Returns whether there is a session to encrypt with.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Enables or disables proactive handshakes and keepalives.
    pub fn set_keepalive(&mut self, keepalive: bool) {
        self.keepalive = keepalive;
    }

    /// Returns the age of the session; `None` without one.
    pub fn age(&self) -> Option<Duration> {
        // `boringtun` mistakes the eighth of its own unconfirmed responses in a row for a session.
        self.established
            .then(|| self.tunn.time_since_last_handshake())
            .flatten()
    }

    /// Returns the handshake fault since the last authenticated data message, if any.
    pub fn fault(&self) -> Option<HandshakeFault> {
        self.fault
    }

    /// Records an authenticated data message or response.
    fn confirm(&mut self) {
        (self.established, self.unconfirmed_answers, self.fault) = (true, 0, None);
    }

    /// Records a response to an initiation.
    fn count_answer(&mut self) {
        self.unconfirmed_answers = self.unconfirmed_answers.saturating_add(1);
        if self.unconfirmed_answers >= UNCONFIRMED_RESPONSES_MAX {
            self.fault = Some(HandshakeFault::AnswerIgnored);
        }
    }

    /// Encrypts a packet into `room`, which is at least [`DATA_OVERHEAD_BYTES`] bytes longer. An
    /// empty packet is a keepalive.
    pub fn seal(&mut self, packet: &[u8], room: &mut [u8]) -> SealOutcome {
        if !self.established
            || room.len() < (packet.len() + DATA_OVERHEAD_BYTES).max(HANDSHAKE_BYTES_MAX)
        {
            return SealOutcome::NoSession;
        }
        if self.age().is_none() {
            // The session expired since the last tick. `boringtun` would queue the packet, which
            // the caller counts as lost.
            self.established = false;
            return SealOutcome::NoSession;
        }
        let TunnResult::WriteToNetwork(datagram) = self.tunn.encapsulate(packet, room) else {
            return SealOutcome::NoSession;
        };
        self.quiet = 0;
        TunnelNumber::parse(datagram).map_or(SealOutcome::NoSession, |number| {
            SealOutcome::Datagram {
                bytes: datagram.len(),
                number,
            }
        })
    }

    /// Decrypts a datagram from this address into `room`, which is at least as long.
    pub fn open(&mut self, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> DatagramKind {
        // `boringtun` treats an empty datagram as a request for queued packets.
        if datagram.is_empty() || room.len() < datagram.len().max(HANDSHAKE_BYTES_MAX) {
            return DatagramKind::Refused(Refusal::Forged);
        }
        let of = TunnelNumber::parse(datagram);
        let (bytes, source) = match self.tunn.decapsulate(Some(from), datagram, room) {
            TunnResult::WriteToTunnelV4(packet, source) => (packet.len(), Some(IpAddr::V4(source))),
            TunnResult::WriteToTunnelV6(packet, source) => (packet.len(), Some(IpAddr::V6(source))),
            // Keepalive or cookie reply.
            TunnResult::Done => (0, None),
            TunnResult::WriteToNetwork(answer) => {
                let authentic = answer.first() != Some(&COOKIE_TYPE);
                let answer = answer.len();
                match datagram.first() {
                    Some(&RESPONSE_TYPE) => self.confirm(),
                    Some(&INITIATION_TYPE) if authentic => self.count_answer(),
                    _ => {}
                }
                return DatagramKind::Handshake { answer, authentic };
            }
            TunnResult::Err(why) => {
                // The response refers to our initiation and its `mac1` is valid, so only the
                // preshared key can differ.
                if datagram.first() == Some(&RESPONSE_TYPE)
                    && matches!(why, WireGuardError::InvalidAeadTag)
                {
                    self.fault = Some(HandshakeFault::AnswerRejected);
                }
                return DatagramKind::Refused(Refusal::from_wireguard(&why));
            }
        };
        match of {
            Some(number) => {
                // The first packet of a new session confirms that the initiator has the keys.
                self.confirm();
                DatagramKind::Packet {
                    bytes,
                    number,
                    source,
                }
            }
            None => DatagramKind::Handshake {
                answer: 0,
                // An attacker who has seen an initiation in transit can forge a cookie reply to it.
                authentic: datagram.first() != Some(&COOKIE_TYPE),
            },
        }
    }

    /// Writes the next datagram that was queued for the handshake into `room`; returns `None` if
    /// there is none.
    pub fn next_queued(&mut self, room: &mut [u8]) -> Option<(usize, Option<TunnelNumber>)> {
        match self.tunn.decapsulate(None, &[], room) {
            TunnResult::WriteToNetwork(datagram) => {
                Some((datagram.len(), TunnelNumber::parse(datagram)))
            }
            _ => None,
        }
    }

    /// Initiates a handshake because a packet is waiting. Returns the length of the initiation in
    /// `room`, or `None` if a handshake is already in progress.
    pub fn initiate_handshake(&mut self, room: &mut [u8]) -> Option<usize> {
        self.initiate(room, false)
    }

    /// Initiates a handshake even if there is a session or a handshake in progress.
    pub fn rekey(&mut self, room: &mut [u8]) -> Option<usize> {
        self.initiate(room, true)
    }

    fn initiate(&mut self, room: &mut [u8], again: bool) -> Option<usize> {
        if room.len() < HANDSHAKE_BYTES_MAX {
            return None;
        }
        match self.tunn.format_handshake_initiation(room, again) {
            TunnResult::WriteToNetwork(datagram) => Some(datagram.len()),
            _ => None,
        }
    }

    /// Runs the timers; to be called every [`TICK_INTERVAL`]. Returns the length of a datagram in
    /// `room`, if one is to be sent, and its packet number if it is a keepalive.
    pub fn tick(&mut self, room: &mut [u8]) -> Option<(usize, Option<TunnelNumber>)> {
        if room.len() < HANDSHAKE_BYTES_MAX {
            return None;
        }
        let sent = match self.tunn.update_timers(room) {
            TunnResult::WriteToNetwork(datagram) => {
                Some((datagram.len(), TunnelNumber::parse(datagram)))
            }
            _ => None,
        };
        self.established = self.age().is_some();
        if sent.is_none() && self.keepalive && !self.established {
            // WireGuard initiates a handshake only for a packet and gives up after 90 s. With
            // keepalive, neither is wanted.
            return self.initiate(room, false).map(|bytes| (bytes, None));
        }
        if sent.is_none() && is_overdue(self.age()) {
            // `None` if a handshake is already in progress.
            if let Some(bytes) = self.initiate(room, false) {
                return Some((bytes, None));
            }
        }
        self.quiet += 1;
        if sent.is_some() {
            self.quiet = 0;
        } else if self.keepalive && self.quiet >= KEEPALIVE_TICKS {
            return match self.seal(&[], room) {
                SealOutcome::Datagram { bytes, number } => Some((bytes, Some(number))),
                SealOutcome::NoSession => None,
            };
        }
        sent
    }
}

/// Returns whether the initiator should already have renewed a session of this age.
fn is_overdue(age: Option<Duration>) -> bool {
    age.is_some_and(|age| age > SESSION_RENEWAL_AGE)
}

impl Refusal {
    fn from_wireguard(why: &WireGuardError) -> Refusal {
        match why {
            WireGuardError::InvalidCounter | WireGuardError::DuplicateCounter => Refusal::Replayed,
            WireGuardError::NoCurrentSession | WireGuardError::WrongIndex => {
                Refusal::UnknownSession
            }
            _ => Refusal::Forged,
        }
    }
}

#[cfg(test)]
mod tests;
