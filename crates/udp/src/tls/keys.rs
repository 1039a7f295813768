//! Keys of a connection, packet protection and key updates (RFC 9001, sections 5 and 6).

use std::fmt;

use rustls::quic::{HeaderProtectionKey, PacketKey, PacketKeySet, Secrets};

use super::replay::{Replay, WINDOW_PACKETS};
use crate::codec::{KEY_PHASE_BIT, PACKET_NUMBER_BYTES};

/// Bytes of the authentication tag that sealing appends.
pub const TAG_BYTES: usize = 16;

/// Bytes of ciphertext sampled for header protection (RFC 9001, section 5.4.2).
const SAMPLE_BYTES: usize = 16;

/// Error for a datagram that was sealed with another key or modified in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sealed with this key, or modified in transit")]
pub struct OpenError;

/// Reason for which a datagram cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFailure {
    /// It arrived before its key.
    HandshakeIncomplete,
    /// It was sealed with another key, or modified.
    Forged,
    /// It is a duplicate.
    Replayed,
    /// It is forged, and the limit of forgeries for the keys is reached (RFC 9001, section 6.6).
    IntegrityLimit,
}

/// Keys of the handshake's sealed level. The few packet numbers under them are not protected:
/// header protection keys would add a tenth to the memory that an unverified client can make a
/// server hold.
pub(crate) struct LevelKeys {
    local: Box<dyn PacketKey>,
    remote: Box<dyn PacketKey>,
}

impl LevelKeys {
    pub fn new(keys: rustls::quic::Keys) -> LevelKeys {
        LevelKeys {
            local: keys.local.packet,
            remote: keys.remote.packet,
        }
    }

    /// Seals `datagram[head..end]` in place and writes the packet number to the end of the header.
    /// `None` also if an unverified client has requested more answers than the key's
    /// confidentiality limit.
    pub fn seal(&self, number: u64, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        if number >= self.local.confidentiality_limit() {
            return None;
        }
        let place = datagram.get_mut(head.checked_sub(PACKET_NUMBER_BYTES)?..)?;
        *place.first_chunk_mut()? = u32::try_from(number).ok()?.to_be_bytes();
        encrypt(&*self.local, number, datagram, head, end)
    }

    /// Decrypts `datagram[head..]` in place and returns the end of the plain text.
    pub fn open(&self, datagram: &mut [u8], head: usize) -> Result<usize, OpenError> {
        let number = datagram
            .get(..head)
            .and_then(|front| front.last_chunk())
            .ok_or(OpenError)?;
        decrypt(
            &*self.remote,
            u64::from(u32::from_be_bytes(*number)),
            datagram,
            head,
        )
    }
}

/// Keys of an open connection.
pub(crate) struct Keys {
    local_header: Box<dyn HeaderProtectionKey>,
    remote_header: Box<dyn HeaderProtectionKey>,
    packet: PacketKeySet,
    /// Keys of the next phase, derived in advance so that the first packet of a phase takes no
    /// longer than others (RFC 9001, section 6.3), and the secrets for the phases after it.
    next: PacketKeySet,
    secrets: Secrets,
    /// Peer's key of the previous phase, for reordered packets.
    previous: Option<PreviousKey>,
    phase: bool,
    /// Number of the next packet, and of the first one in this phase.
    number: u64,
    phase_start: u64,
    /// Set once the peer has used the keys of this phase.
    confirmed: bool,
    rekey_after: u64,
    replay: Replay,
    forgeries: u64,
    key_updates: u64,
}

/// Key of the previous phase.
struct PreviousKey {
    remote: Box<dyn PacketKey>,
    /// First packet number of the current phase, once one was received.
    until: Option<u64>,
}

impl Keys {
    pub fn new(keys: rustls::quic::Keys, mut secrets: Secrets, renew_after: Option<u64>) -> Keys {
        // AES-GCM allows 2^23 packets per key (RFC 9001, section 6.6). Updating at half of it
        // leaves the peer time to follow.
        let most = keys.local.packet.confidentiality_limit() / 2;
        Keys {
            local_header: keys.local.header,
            remote_header: keys.remote.header,
            packet: PacketKeySet {
                local: keys.local.packet,
                remote: keys.remote.packet,
            },
            next: secrets.next_packet_keys(),
            secrets,
            previous: None,
            phase: false,
            number: 0,
            phase_start: 0,
            confirmed: false,
            rekey_after: renew_after.map_or(most, |packets| packets.clamp(1, most)),
            replay: Replay::new(),
            forgeries: 0,
            key_updates: 0,
        }
    }

    /// Returns the number of key updates.
    pub fn key_updates(&self) -> u64 {
        self.key_updates
    }

    /// Returns the key phase and the low bits of the number of the next packet. Updates the keys
    /// first if that is due.
    #[inline]
    pub fn next_packet(&mut self) -> (bool, u32) {
        if self.number - self.phase_start >= self.rekey_after && self.confirmed {
            self.update_keys(None);
        }
        (self.phase, self.number as u32)
    }

    /// Seals `datagram[head..end]` in place as the [`next`](Keys::next) packet, with the envelope
    /// in `datagram[..head]`. Returns the length including the tag; `None` if there is no room for
    /// the tag, or if the keys are worn out because the peer does not follow an update.
    #[inline]
    pub fn seal(&mut self, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        if self.is_exhausted() {
            return None;
        }
        let length = encrypt(&*self.packet.local, self.number, datagram, head, end)?;
        mask(&*self.local_header, datagram, head)?;
        self.number += 1;
        Some(length)
    }

    /// Returns true if the keys have reached their confidentiality limit.
    pub fn is_exhausted(&self) -> bool {
        self.number - self.phase_start >= self.packet.local.confidentiality_limit()
    }

    /// Decrypts `datagram[head..]` in place, with the envelope in `datagram[..head]`, and returns
    /// the end of the plain text.
    #[inline]
    pub fn open(&mut self, datagram: &mut [u8], head: usize) -> Result<usize, OpenFailure> {
        let (phase, number) =
            mask(&*self.remote_header, datagram, head).ok_or(OpenFailure::Forged)?;
        let number = whole(number, self.replay.next());
        if !self.replay.is_fresh(number) {
            return Err(OpenFailure::Replayed);
        }
        let overtaken = |previous: &&PreviousKey| previous.until.is_none_or(|until| number < until);
        let opened = if phase == self.phase {
            decrypt(&*self.packet.remote, number, datagram, head)
        } else if let Some(previous) = self.previous.as_ref().filter(overtaken) {
            decrypt(&*previous.remote, number, datagram, head)
        } else {
            let opened = decrypt(&*self.next.remote, number, datagram, head);
            if opened.is_ok() {
                self.update_keys(Some(number));
            }
            opened
        };
        let Ok(end) = opened else {
            return Err(self.on_forgery());
        };
        if phase == self.phase {
            self.confirmed = true;
            if let Some(previous) = &mut self.previous {
                let until = *previous.until.get_or_insert(number);
                // Any packet that the previous key could open is now too old for the replay window.
                if number >= until.saturating_add(WINDOW_PACKETS) {
                    self.previous = None;
                }
            }
        }
        self.replay.insert(number);
        Ok(end)
    }

    #[cold]
    fn on_forgery(&mut self) -> OpenFailure {
        self.forgeries += 1;
        if self.forgeries >= self.packet.remote.integrity_limit() {
            OpenFailure::IntegrityLimit
        } else {
            OpenFailure::Forged
        }
    }

    /// Updates the keys of both directions: on our initiative, or because the peer's packet `until`
    /// is the first of the next phase.
    #[cold]
    fn update_keys(&mut self, until: Option<u64>) {
        let further = self.secrets.next_packet_keys();
        let current = std::mem::replace(&mut self.next, further);
        let old = std::mem::replace(&mut self.packet, current);
        self.previous = Some(PreviousKey {
            remote: old.remote,
            until,
        });
        self.phase = !self.phase;
        self.phase_start = self.number;
        self.confirmed = until.is_some();
        self.key_updates += 1;
    }

    /// Counts `sealed` packets and `forged` forgeries as if they had occurred under the current
    /// keys.
    #[cfg(test)]
    pub fn age(&mut self, sealed: u64, forged: u64) {
        self.number += sealed;
        self.forgeries += forged;
    }

    #[cfg(test)]
    pub fn seal_at(&mut self, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        let (phase, number) = self.next_packet();
        datagram[0] = datagram[0] & !KEY_PHASE_BIT | if phase { KEY_PHASE_BIT } else { 0 };
        datagram[head - PACKET_NUMBER_BYTES..head].copy_from_slice(&number.to_be_bytes());
        self.seal(datagram, head, end)
    }
}

/// Encrypts `datagram[head..end]` in place and authenticates the bytes before it.
#[inline]
fn encrypt(
    packet: &dyn PacketKey,
    number: u64,
    datagram: &mut [u8],
    head: usize,
    end: usize,
) -> Option<usize> {
    let (front, rest) = datagram.split_at_mut_checked(head)?;
    let (text, room) = rest.split_at_mut_checked(end.checked_sub(head)?)?;
    let place = room.first_chunk_mut::<TAG_BYTES>()?;
    let tag = packet.encrypt_in_place(number, front, text).ok()?;
    place.copy_from_slice(tag.as_ref());
    Some(end + TAG_BYTES)
}

/// Applies or removes header protection, which is the same operation (RFC 9001, section 5.4.1), on
/// the packet number at the end of the header and the key phase in the first byte. Returns their
/// new values. The first byte differs from QUIC's, so a QUIC first byte is composed for the call,
/// with a packet number length of four bytes, which the mask does not change in either direction.
#[inline]
fn mask(header: &dyn HeaderProtectionKey, datagram: &mut [u8], head: usize) -> Option<(bool, u32)> {
    const QUIC_LONG_FORM_BIT: u8 = 0x80;
    const QUIC_KEY_PHASE_BIT: u8 = 0x04;
    const PACKET_NUMBER_LENGTH_BITS: u8 = 0x03;
    let (front, rest) = datagram.split_at_mut_checked(head)?;
    let sample = rest.get(..SAMPLE_BYTES)?;
    let (first, front) = front.split_first_mut()?;
    let number = front.last_chunk_mut::<PACKET_NUMBER_BYTES>()?;
    let before = if *first & KEY_PHASE_BIT != 0 {
        QUIC_KEY_PHASE_BIT
    } else {
        0
    };
    let mut bits = QUIC_LONG_FORM_BIT | PACKET_NUMBER_LENGTH_BITS | before;
    header.encrypt_in_place(sample, &mut bits, number).ok()?;
    let phase = bits & QUIC_KEY_PHASE_BIT != 0;
    *first = *first & !KEY_PHASE_BIT | if phase { KEY_PHASE_BIT } else { 0 };
    Some((phase, u32::from_be_bytes(*number)))
}

#[inline]
fn decrypt(
    packet: &dyn PacketKey,
    number: u64,
    datagram: &mut [u8],
    head: usize,
) -> Result<usize, OpenError> {
    let (front, text) = datagram.split_at_mut_checked(head).ok_or(OpenError)?;
    let text = packet
        .decrypt_in_place(number, front, text)
        .map_err(|_| OpenError)?;
    Ok(head + text.len())
}

/// Returns the packet number with these low 32 bits that is closest to the expected one (RFC 9000,
/// appendix A.3).
fn whole(number: u32, expected: u64) -> u64 {
    const PACKET_NUMBER_WINDOW: u64 = 1 << 32;
    let candidate = expected & !(PACKET_NUMBER_WINDOW - 1) | u64::from(number);
    if candidate + PACKET_NUMBER_WINDOW / 2 <= expected {
        candidate + PACKET_NUMBER_WINDOW
    } else if candidate > expected + PACKET_NUMBER_WINDOW / 2 && candidate >= PACKET_NUMBER_WINDOW {
        candidate - PACKET_NUMBER_WINDOW
    } else {
        candidate
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}
