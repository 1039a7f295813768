//! WireGuard to one peer, by `boringtun`: packets to datagrams and back, handshakes, keepalives,
//! new keys. No socket.
//!
//! Every datagram of data carries its session and a counter within it. Both ends read the two from
//! the header (WireGuard, section 5.4.6), so the boxes identify packets by them. New keys, every
//! two minutes, start a new session, and the counter begins again.
//!
//! `boringtun` reads the clock by itself, so tunnels run in real time only.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};
use boringtun::x25519;

use super::keys::{PresharedKey, PrivateKey, PublicKey};

/// What a datagram has more than its packet: a header of 16 bytes and a tag of 16.
pub const OVERHEAD: usize = 32;
/// No handshake is longer; so much room does a call want at least.
const LONGEST_HANDSHAKE: usize = 148;
/// How often [`Tunnel::tick`] is due. Later, and timers fire later than WireGuard has them; sooner
/// is of no use.
pub const TICK: Duration = Duration::from_millis(250);
/// After so many ticks in which nothing was sealed comes a keepalive, so that an address
/// translation keeps its entry (25 s, as WireGuard's own pages advise: most keep one for 30 s).
const QUIET: u128 = 25_000 / TICK.as_millis();

/// Handshakes a second before they have to bring a cookie back, which says that they receive at
/// their address. Each costs four multiplications on the curve, some 0.2 ms: fewer would slow the
/// start of a large hub, more let forged ones cost a tenth of a core.
const HANDSHAKES: u64 = 200;
/// Age of keys at which the side that was called calls itself. The other side renews them after 120
/// s (WireGuard, section 6.1). If a flood at this side hides its calls, the tunnel would end after
/// 180 s.
const RENEW_AGE: Duration = Duration::from_secs(135);

/// Bits of a session's number that say which peer of this gateway it belongs to; below them are 8
/// of `boringtun`'s own.
const PLACE_BITS: u32 = 12;
const PLACES: u32 = 1 << PLACE_BITS;

/// Unconfirmed answers in a row from which on the peer is said to ignore them. The first may be
/// lost.
const ANSWERS_IGNORED: u8 = 3;

/// First byte of an initiation.
pub const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE: u8 = 3;
const DATA: u8 = 4;

/// Which packet of a tunnel. Both ends know it by the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    /// Of which keys: the receiver's number of the session.
    pub session: u32,
    /// Its count under these.
    pub counter: u64,
}

impl Number {
    /// Of a datagram of data, from its header; `None` for a handshake or a cookie.
    pub fn of(datagram: &[u8]) -> Option<Number> {
        let header: &[u8; 16] = datagram.first_chunk()?;
        let &[
            DATA,
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
        Some(Number {
            session: u32::from_le_bytes([s0, s1, s2, s3]),
            counter: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
        })
    }
}

/// What came of a packet that was to be sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// A datagram of so many bytes is in the buffer.
    Datagram {
        /// Of the datagram.
        bytes: usize,
        /// Its number.
        number: Number,
    },
    /// There are no keys yet: the packet has to wait. [`Tunnel::knock`] asks for some.
    NoSession,
}

/// What a datagram held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// A packet of so many bytes, now in the buffer; none for a keepalive.
    Packet {
        /// Of the packet.
        bytes: usize,
        /// Its number.
        number: Number,
        /// Its source address; `None` for a keepalive.
        source: Option<IpAddr>,
    },
    /// A handshake or a cookie; `answer` is how many bytes in the buffer are to be sent back.
    Handshake {
        /// Bytes of the answer, 0 for none.
        answer: usize,
        /// Whether its sender has proved who it is.
        authentic: bool,
    },
    /// It is not the peer's, or was there before.
    Refused(Refusal),
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A number that has come already, or one too far back to be known.
    Replayed,
    /// Keys that are not there, or not any more.
    UnknownSession,
    /// Not sealed or signed by the peer.
    Forged,
}

/// What all tunnels of a gateway have in common: its key, and how many handshakes it takes.
#[derive(Clone)]
pub struct Door {
    private: x25519::StaticSecret,
    public: x25519::PublicKey,
    limiter: Arc<RateLimiter>,
    /// Checks handshakes that were admitted already.
    unlimited: Arc<RateLimiter>,
    /// The upper bits of every session's number, random: after a restart the numbers are others.
    epoch: u32,
}

/// Whom a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// The tunnel at this place.
    Place(u32),
    /// The tunnel of this peer, which begins a handshake.
    Peer(PublicKey),
    /// Nobody; so many bytes in the buffer are to be sent back.
    Answer(usize),
    /// Nobody.
    Nobody,
}

impl Door {
    /// A gateway's. `random` has to differ from start to start.
    pub fn new(key: &PrivateKey, random: u32) -> Door {
        let private = key.secret();
        let public = x25519::PublicKey::from(&private);
        Door {
            limiter: Arc::new(RateLimiter::new(&public, HANDSHAKES)),
            unlimited: Arc::new(RateLimiter::new(&public, u64::MAX)),
            private,
            public,
            epoch: random % PLACES,
        }
    }

    /// A tunnel to this peer, at a place below 4,096 of the gateway's table. `keepalive`: keys are
    /// there before a packet wants them, and an address translation on the way keeps its entry; for
    /// a peer whose endpoint is known.
    pub fn tunnel(
        &self,
        place: u32,
        peer: PublicKey,
        preshared_key: Option<PresharedKey>,
        keepalive: bool,
    ) -> Tunnel {
        let secret = preshared_key.map(PresharedKey::bytes);
        let index = (self.epoch << PLACE_BITS) | (place % PLACES);
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

    /// Returns the tunnel that a datagram of data or an answer names in its header. The tunnel
    /// checks the rest.
    pub fn place(&self, datagram: &[u8]) -> For {
        let session = match Tunn::parse_incoming_packet(datagram) {
            Ok(Packet::PacketData(data)) => data.receiver_idx,
            Ok(Packet::HandshakeResponse(response)) => response.receiver_idx,
            Ok(Packet::PacketCookieReply(cookie)) => cookie.receiver_idx,
            _ => return For::Nobody,
        };
        match session >> (8 + PLACE_BITS) == self.epoch {
            true => For::Place((session >> 8) % PLACES),
            false => For::Nobody,
        }
    }

    /// Returns the peer that an initiation comes from, or beyond `HANDSHAKES` per second an answer
    /// that asks for a cookie. `room` takes it, at least 148 bytes.
    ///
    /// The sender's key is read here, which costs a multiplication on the curve: cookies are asked
    /// for before.
    pub fn whom(&self, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> For {
        self.verify(&self.limiter, from, datagram, room)
    }

    /// Returns the same without a limit. The caller has one.
    pub fn initiator(&self, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> For {
        self.verify(&self.unlimited, from, datagram, room)
    }

    fn verify(&self, limiter: &RateLimiter, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> For {
        match limiter.verify_packet(Some(from), datagram, room) {
            Ok(Packet::HandshakeInit(initiation)) => {
                match parse_handshake_anon(&self.private, &self.public, &initiation) {
                    Ok(half) => For::Peer(PublicKey::from_bytes(half.peer_static_public)),
                    Err(_) => For::Nobody,
                }
            }
            Err(TunnResult::WriteToNetwork(cookie)) => For::Answer(cookie.len()),
            _ => For::Nobody,
        }
    }

    /// Forgets how many handshakes came; it looks at the clock and does so once a second.
    pub fn tick(&self) {
        self.limiter.reset_count();
    }
}

/// A tunnel to one peer. Every call has room for a packet or a datagram, and says how much of it
/// was used.
pub struct Tunnel {
    tunn: Tunn,
    keepalive: bool,
    /// Ticks since something was sealed.
    quiet: u128,
    /// There are keys to seal with, as of the last handshake or tick.
    established: bool,
    /// Answers to the peer's initiations since something arrived under agreed keys.
    unconfirmed_answers: u8,
    fault: Option<HandshakeFault>,
}

/// Fault of the handshakes since something arrived under agreed keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// The peer's answer does not open. It is sealed with the preshared key.
    AnswerRejected,
    /// The peer repeats its initiation: it rejects this side's answers, or they do not arrive.
    AnswerIgnored,
}

impl HandshakeFault {
    /// One word, as `status --json` has it.
    pub const fn name(self) -> &'static str {
        match self {
            HandshakeFault::AnswerRejected => "answer_rejected",
            HandshakeFault::AnswerIgnored => "answer_ignored",
        }
    }

    /// The likely cause and the fix.
    pub const fn explanation(self) -> &'static str {
        match self {
            HandshakeFault::AnswerRejected => {
                "no keys: the peer's answer does not open, so `preshared_key` differs or only one site has it; \
                 write the same line at both"
            }
            HandshakeFault::AnswerIgnored => {
                "no keys: the peer calls and does not take the answers; `preshared_key` differs or only one site \
                 has it, or a firewall drops the answers"
            }
        }
    }
}

impl Tunnel {
    /// Whether there are keys to seal with.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// From now on keys are there before a packet wants them, and keepalives go, or not.
    pub fn set_keepalive(&mut self, keepalive: bool) {
        self.keepalive = keepalive;
    }

    /// How long ago keys were agreed on; `None` without any.
    pub fn age(&self) -> Option<Duration> {
        // `boringtun` counts the eighth of its own unanswered answers in a row as keys.
        self.established
            .then(|| self.tunn.time_since_last_handshake())
            .flatten()
    }

    /// Fault of the handshakes since something arrived under agreed keys, if any.
    pub fn fault(&self) -> Option<HandshakeFault> {
        self.fault
    }

    /// Records that a datagram arrived under agreed keys.
    fn confirm(&mut self) {
        (self.established, self.unconfirmed_answers, self.fault) = (true, 0, None);
    }

    /// Records an answer to an initiation.
    fn count_answer(&mut self) {
        self.unconfirmed_answers = self.unconfirmed_answers.saturating_add(1);
        if self.unconfirmed_answers >= ANSWERS_IGNORED {
            self.fault = Some(HandshakeFault::AnswerIgnored);
        }
    }

    /// Seals a packet into `room`, which is at least [`OVERHEAD`] bytes longer. An empty one is a
    /// keepalive.
    pub fn seal(&mut self, packet: &[u8], room: &mut [u8]) -> Sealed {
        if !self.established || room.len() < (packet.len() + OVERHEAD).max(LONGEST_HANDSHAKE) {
            return Sealed::NoSession;
        }
        if self.age().is_none() {
            // The keys went since the last tick. `boringtun` would queue the packet, which the
            // caller counts as lost.
            self.established = false;
            return Sealed::NoSession;
        }
        let TunnResult::WriteToNetwork(datagram) = self.tunn.encapsulate(packet, room) else {
            return Sealed::NoSession;
        };
        self.quiet = 0;
        Number::of(datagram).map_or(Sealed::NoSession, |number| Sealed::Datagram {
            bytes: datagram.len(),
            number,
        })
    }

    /// Opens a datagram from this address into `room`, which is at least as long.
    pub fn open(&mut self, from: IpAddr, datagram: &[u8], room: &mut [u8]) -> Opened {
        // To `boringtun` an empty one is no datagram.
        if datagram.is_empty() || room.len() < datagram.len().max(LONGEST_HANDSHAKE) {
            return Opened::Refused(Refusal::Forged);
        }
        let of = Number::of(datagram);
        let (bytes, source) = match self.tunn.decapsulate(Some(from), datagram, room) {
            TunnResult::WriteToTunnelV4(packet, source) => (packet.len(), Some(IpAddr::V4(source))),
            TunnResult::WriteToTunnelV6(packet, source) => (packet.len(), Some(IpAddr::V6(source))),
            // A keepalive, or a cookie.
            TunnResult::Done => (0, None),
            TunnResult::WriteToNetwork(answer) => {
                let authentic = answer.first() != Some(&COOKIE);
                let answer = answer.len();
                match datagram.first() {
                    Some(&RESPONSE) => self.confirm(),
                    Some(&INITIATION) if authentic => self.count_answer(),
                    _ => {}
                }
                return Opened::Handshake { answer, authentic };
            }
            TunnResult::Err(why) => {
                // The answer names this initiation, and its checksum is right.
                if datagram.first() == Some(&RESPONSE)
                    && matches!(why, WireGuardError::InvalidAeadTag)
                {
                    self.fault = Some(HandshakeFault::AnswerRejected);
                }
                return Opened::Refused(Refusal::of(&why));
            }
        };
        match of {
            Some(number) => {
                // The first packet under new keys shows that the caller has them too.
                self.confirm();
                Opened::Packet {
                    bytes,
                    number,
                    source,
                }
            }
            None => Opened::Handshake {
                answer: 0,
                // Who has seen a call on its way can make a cookie for it.
                authentic: datagram.first() != Some(&COOKIE),
            },
        }
    }

    /// The next of what waits to be sent after a handshake, a datagram in `room`; `None` when there
    /// is nothing.
    pub fn rest(&mut self, room: &mut [u8]) -> Option<(usize, Option<Number>)> {
        match self.tunn.decapsulate(None, &[], room) {
            TunnResult::WriteToNetwork(datagram) => Some((datagram.len(), Number::of(datagram))),
            _ => None,
        }
    }

    /// Asks for keys, because a packet waits for them: bytes of the handshake in `room`, if one is
    /// not under way already.
    pub fn knock(&mut self, room: &mut [u8]) -> Option<usize> {
        self.initiate(room, false)
    }

    /// Asks for new keys, whatever there is.
    pub fn renew(&mut self, room: &mut [u8]) -> Option<usize> {
        self.initiate(room, true)
    }

    fn initiate(&mut self, room: &mut [u8], again: bool) -> Option<usize> {
        if room.len() < LONGEST_HANDSHAKE {
            return None;
        }
        match self.tunn.format_handshake_initiation(room, again) {
            TunnResult::WriteToNetwork(datagram) => Some(datagram.len()),
            _ => None,
        }
    }

    /// Its timers, due each [`TICK`]: a datagram to be sent, if any, in `room`: a handshake, or a
    /// keepalive, which has a number.
    pub fn tick(&mut self, room: &mut [u8]) -> Option<(usize, Option<Number>)> {
        if room.len() < LONGEST_HANDSHAKE {
            return None;
        }
        let sent = match self.tunn.update_timers(room) {
            TunnResult::WriteToNetwork(datagram) => Some((datagram.len(), Number::of(datagram))),
            _ => None,
        };
        self.established = self.age().is_some();
        if sent.is_none() && self.keepalive && !self.established {
            // WireGuard calls when a packet wants to go there, and gives up after 90 s; who keeps
            // the way open does neither.
            return self.initiate(room, false).map(|bytes| (bytes, None));
        }
        if sent.is_none() && is_overdue(self.age()) {
            // Nothing if a call is under way already.
            if let Some(bytes) = self.initiate(room, false) {
                return Some((bytes, None));
            }
        }
        self.quiet += 1;
        if sent.is_some() {
            self.quiet = 0;
        } else if self.keepalive && self.quiet >= QUIET {
            return match self.seal(&[], room) {
                Sealed::Datagram { bytes, number } => Some((bytes, Some(number))),
                Sealed::NoSession => None,
            };
        }
        sent
    }
}

/// Returns true if keys of this age have missed their renewal by the other side.
fn is_overdue(age: Option<Duration>) -> bool {
    age.is_some_and(|age| age > RENEW_AGE)
}

impl Refusal {
    fn of(why: &WireGuardError) -> Refusal {
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
