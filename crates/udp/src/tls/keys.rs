//! Keys of a connection, what they do to a packet, and how they are renewed (RFC 9001, 5 and 6).

use std::fmt;

use rustls::quic::{HeaderProtectionKey, PacketKey, PacketKeySet, Secrets};

use super::replay::{REMEMBERED, Replay};
use crate::codec::{NUMBER, PHASE};

/// Bytes that sealing adds behind the segment.
pub const TAG: usize = 16;

/// Bytes of sealed text that header protection takes for its sample (RFC 9001, 5.4.2).
const SAMPLE: usize = 16;

/// A datagram that was not sealed with this key, or was changed on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sealed with this key, or changed on the way")]
pub struct Tampered;

/// Why a datagram stays closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unopened {
    /// It came before its key.
    Early,
    /// It was sealed with another key, or changed.
    Forged,
    /// It came before.
    Replayed,
    /// So many were forged that the keys have to be given up (RFC 9001, 6.6).
    Spent,
}

/// Keys of the handshake's second level. The few numbers under them are for all to read: header
/// keys would take a tenth of what a stranger may make a server hold.
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

    /// Seals `datagram[head..end]` in place, behind its number, which ends the head. `None` also
    /// where a stranger has asked for more answers than the key bears.
    pub fn seal(&self, number: u64, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        if number >= self.local.confidentiality_limit() {
            return None;
        }
        let place = datagram.get_mut(head.checked_sub(NUMBER)?..)?;
        *place.first_chunk_mut()? = u32::try_from(number).ok()?.to_be_bytes();
        encrypt(&*self.local, number, datagram, head, end)
    }

    /// Opens `datagram[head..]` in place; where it ends without the tag.
    pub fn open(&self, datagram: &mut [u8], head: usize) -> Result<usize, Tampered> {
        let number = datagram
            .get(..head)
            .and_then(|front| front.last_chunk())
            .ok_or(Tampered)?;
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
    ours: Box<dyn HeaderProtectionKey>,
    theirs: Box<dyn HeaderProtectionKey>,
    packet: PacketKeySet,
    /// Those of the next phase, made beforehand so that a packet of it takes no longer than others
    /// (RFC 9001, 6.3), and what later ones are made of.
    next: PacketKeySet,
    secrets: Secrets,
    /// The peer's of the last phase, for packets that were overtaken.
    previous: Option<Previous>,
    phase: bool,
    /// The number of the next packet, and of the first in this phase.
    number: u64,
    first: u64,
    /// The peer has used the keys of this phase.
    confirmed: bool,
    renew_after: u64,
    replay: Replay,
    forged: u64,
    renewed: u64,
}

/// A key that is not in use any more.
struct Previous {
    remote: Box<dyn PacketKey>,
    /// The first number of the phase after it, once one was seen.
    until: Option<u64>,
}

impl Keys {
    pub fn new(keys: rustls::quic::Keys, mut secrets: Secrets, renew_after: Option<u64>) -> Keys {
        // RFC 9001, 6.6: AES-GCM bears 2^23 packets under one key. At half of that there is time
        // for the peer to follow.
        let most = keys.local.packet.confidentiality_limit() / 2;
        Keys {
            ours: keys.local.header,
            theirs: keys.remote.header,
            packet: PacketKeySet {
                local: keys.local.packet,
                remote: keys.remote.packet,
            },
            next: secrets.next_packet_keys(),
            secrets,
            previous: None,
            phase: false,
            number: 0,
            first: 0,
            confirmed: false,
            renew_after: renew_after.map_or(most, |packets| packets.clamp(1, most)),
            replay: Replay::new(),
            forged: 0,
            renewed: 0,
        }
    }

    /// How often they were renewed.
    pub fn renewed(&self) -> u64 {
        self.renewed
    }

    /// The key phase and the last bits of the number of the next packet. Where it is time for it,
    /// the keys are new ones.
    #[inline]
    pub fn next(&mut self) -> (bool, u32) {
        if self.number - self.first >= self.renew_after && self.confirmed {
            self.renew(None);
        }
        (self.phase, self.number as u32)
    }

    /// Seals `datagram[head..end]` in place as the [`next`](Keys::next) packet, whose envelope
    /// `datagram[..head]` is; the length with the tag. `None` where there is no room for the tag,
    /// or the keys are worn out because the peer does not follow.
    #[inline]
    pub fn seal(&mut self, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        if self.is_worn_out() {
            return None;
        }
        let length = encrypt(&*self.packet.local, self.number, datagram, head, end)?;
        mask(&*self.ours, datagram, head)?;
        self.number += 1;
        Some(length)
    }

    /// Nothing more may be sealed with them.
    pub fn is_worn_out(&self) -> bool {
        self.number - self.first >= self.packet.local.confidentiality_limit()
    }

    /// Opens `datagram[head..]` in place, whose envelope `datagram[..head]` is; where it ends
    /// without the tag.
    #[inline]
    pub fn open(&mut self, datagram: &mut [u8], head: usize) -> Result<usize, Unopened> {
        let (phase, number) = mask(&*self.theirs, datagram, head).ok_or(Unopened::Forged)?;
        let number = whole(number, self.replay.next());
        if !self.replay.is_fresh(number) {
            return Err(Unopened::Replayed);
        }
        let overtaken = |previous: &&Previous| previous.until.is_none_or(|until| number < until);
        let opened = if phase == self.phase {
            decrypt(&*self.packet.remote, number, datagram, head)
        } else if let Some(previous) = self.previous.as_ref().filter(overtaken) {
            decrypt(&*previous.remote, number, datagram, head)
        } else {
            let opened = decrypt(&*self.next.remote, number, datagram, head);
            if opened.is_ok() {
                self.renew(Some(number));
            }
            opened
        };
        let Ok(end) = opened else {
            return Err(self.forged());
        };
        if phase == self.phase {
            self.confirmed = true;
            if let Some(previous) = &mut self.previous {
                let until = *previous.until.get_or_insert(number);
                // What it could still open is too old to be taken.
                if number >= until.saturating_add(REMEMBERED) {
                    self.previous = None;
                }
            }
        }
        self.replay.note(number);
        Ok(end)
    }

    #[cold]
    fn forged(&mut self) -> Unopened {
        self.forged += 1;
        if self.forged >= self.packet.remote.integrity_limit() {
            Unopened::Spent
        } else {
            Unopened::Forged
        }
    }

    /// Both directions go on to the next keys: by our will, or because the peer's packet `until` is
    /// the first under them.
    #[cold]
    fn renew(&mut self, until: Option<u64>) {
        let further = self.secrets.next_packet_keys();
        let current = std::mem::replace(&mut self.next, further);
        let old = std::mem::replace(&mut self.packet, current);
        self.previous = Some(Previous {
            remote: old.remote,
            until,
        });
        self.phase = !self.phase;
        self.first = self.number;
        self.confirmed = until.is_some();
        self.renewed += 1;
    }

    /// As if so many packets had been sealed under these keys, and so many forgeries had come.
    #[cfg(test)]
    pub fn age(&mut self, sealed: u64, forged: u64) {
        self.number += sealed;
        self.forged += forged;
    }

    #[cfg(test)]
    pub fn seal_at(&mut self, datagram: &mut [u8], head: usize, end: usize) -> Option<usize> {
        let (phase, number) = self.next();
        datagram[0] = datagram[0] & !PHASE | if phase { PHASE } else { 0 };
        datagram[head - NUMBER..head].copy_from_slice(&number.to_be_bytes());
        self.seal(datagram, head, end)
    }
}

/// Seals `datagram[head..end]` in place, and authenticates what is before it.
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
    let place = room.first_chunk_mut::<TAG>()?;
    let tag = packet.encrypt_in_place(number, front, text).ok()?;
    place.copy_from_slice(tag.as_ref());
    Some(end + TAG)
}

/// Puts header protection on, or takes it off, which is the same (RFC 9001, 5.4.1): over the
/// number, which ends the head, and the key phase in the first byte. What they are afterwards.
/// QUIC's first byte has other bits than ours: it is made for the call, with a number of four
/// bytes, whose length the mask leaves alone in both directions.
#[inline]
fn mask(header: &dyn HeaderProtectionKey, datagram: &mut [u8], head: usize) -> Option<(bool, u32)> {
    const LONG_FORM: u8 = 0x80;
    const QUIC_PHASE: u8 = 0x04;
    const FOUR_BYTES: u8 = 0x03;
    let (front, rest) = datagram.split_at_mut_checked(head)?;
    let sample = rest.get(..SAMPLE)?;
    let (first, front) = front.split_first_mut()?;
    let number = front.last_chunk_mut::<NUMBER>()?;
    let before = if *first & PHASE != 0 { QUIC_PHASE } else { 0 };
    let mut bits = LONG_FORM | FOUR_BYTES | before;
    header.encrypt_in_place(sample, &mut bits, number).ok()?;
    let phase = bits & QUIC_PHASE != 0;
    *first = *first & !PHASE | if phase { PHASE } else { 0 };
    Some((phase, u32::from_be_bytes(*number)))
}

#[inline]
fn decrypt(
    packet: &dyn PacketKey,
    number: u64,
    datagram: &mut [u8],
    head: usize,
) -> Result<usize, Tampered> {
    let (front, text) = datagram.split_at_mut_checked(head).ok_or(Tampered)?;
    let text = packet
        .decrypt_in_place(number, front, text)
        .map_err(|_| Tampered)?;
    Ok(head + text.len())
}

/// The packet number with these last 32 bits that is nearest to the expected one (RFC 9000, A.3).
fn whole(number: u32, expected: u64) -> u64 {
    const WINDOW: u64 = 1 << 32;
    let candidate = expected & !(WINDOW - 1) | u64::from(number);
    if candidate + WINDOW / 2 <= expected {
        candidate + WINDOW
    } else if candidate > expected + WINDOW / 2 && candidate >= WINDOW {
        candidate - WINDOW
    } else {
        candidate
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(…)")
    }
}
