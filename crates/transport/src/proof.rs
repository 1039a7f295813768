//! Proof of receipt: a receiver that acknowledges what it never got is found out.
//!
//! A receiver that conceals losses, or acknowledges ahead of what arrives, makes its sender exceed
//! what the path carries (Savage et al., "TCP Congestion Control with a Misbehaving Receiver",
//! 1999). RFC 3540 answers with a random nonce in each segment and their sum in each ACK. It has
//! one bit for a nonce; here a nonce has 16.
//!
//! - The nonce of a number is the difference of two values of a keyed hash: `P(number + 1) -
//!   P(number)`. The sum over `start..end` is then `P(end) - P(start)`, so that a sender stores no
//!   nonces, and an ACK costs it one hash for its cumulative part, one for its echo and two for
//!   each SACK range. Both parts need a proof: a receiver could otherwise SACK what it never got.
//! - The mark of a transmission belongs to a number and a transmission of it. The receiver echoes
//!   the mark of the segment that it answers. Without it a receiver could let a retransmission
//!   arrive, claim that the original did, and have the reduction undone (Eifel, RFC 3522). A DSACK
//!   undoes a reduction only where the mark shows the original.
//!
//! The hash is SipHash-1-3 with a random key per connection, which never leaves the sender. After
//! 2^32 segments (6 TB) the numbers, and with them the nonces, start again.
//!
//! Parts of one segment carry the same nonce. A receiver can conceal the loss of a part as long as
//! segments leave that were cut before their path became narrower: a flight. CE counts, time stamps
//! and windows are a receiver's word, without proof.

#[cfg(test)]
mod tests;

use siphasher::sip::SipHasher13;

use crate::connection::{Connection, State};
use crate::error::Failure;
use crate::number::Number;
use crate::segment::{Kind, Segment, Side};
use crate::send::acknowledge::clip;

/// The nonces in a segment, next to its fields. All are zero where the peer asks for no proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Data: nonce of the segment's number.
    pub nonce: u16,
    /// Data: mark of this transmission.
    pub mark: u16,
    /// Sum of the nonces of all that the segment acknowledges, wrapping.
    pub sum: u16,
    /// Mark of the segment that is being answered; 0 where none is.
    pub echo: u16,
}

/// Transmission of an original.
const FIRST: u8 = 1;

/// Key of the nonces of a connection.
#[derive(Clone)]
pub(crate) struct NonceKey {
    hasher: SipHasher13,
    /// P of the first number.
    first: u16,
}

impl std::fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NonceKey")
    }
}

impl NonceKey {
    fn new(key: &[u8; 16], first: Number) -> NonceKey {
        let mut key = NonceKey {
            hasher: SipHasher13::new_with_key(key),
            first: 0,
        };
        key.first = key.prefix(first);
        key
    }

    #[inline]
    fn hash(&self, number: Number, transmission: u8) -> u64 {
        #[cfg(test)]
        tests::HASHES.set(tests::HASHES.get() + 1);
        let input = u64::from(number.0) | u64::from(transmission) << 32;
        self.hasher.hash(&input.to_le_bytes())
    }

    /// P of the module's page.
    #[inline]
    fn prefix(&self, number: Number) -> u16 {
        self.hash(number, FIRST) as u16
    }

    /// Sum of the nonces of `start..end`.
    #[inline]
    fn sum(&self, start: Number, end: Number) -> u16 {
        self.prefix(end).wrapping_sub(self.prefix(start))
    }

    /// Mark of a transmission.
    #[inline]
    fn mark(&self, number: Number, transmission: u8) -> u16 {
        (self.hash(number, transmission) >> 16) as u16
    }

    /// Nonce and mark of a segment. The hash of a first transmission has P as well.
    #[inline]
    fn nonces(&self, number: Number, transmission: u8) -> (u16, u16) {
        let first = self.hash(number, FIRST);
        let nonce = self.prefix(number.plus(1)).wrapping_sub(first as u16);
        let mark = match transmission {
            FIRST => (first >> 16) as u16,
            again => self.mark(number, again),
        };
        (nonce, mark)
    }
}

impl Connection {
    /// Requires the peer to prove receipt, with a random key. To be called before the first segment
    /// leaves.
    pub fn require_proof(&mut self, key: &[u8; 16]) {
        let first = Number(self.config.first_number);
        self.nonces = Some(Box::new(NonceKey::new(key, first)));
    }

    /// Returns the nonces for a segment that [`transmit`](Connection::transmit) has given, with the
    /// ranges in `side` that really leave. To be called before the next segment is handled.
    #[inline]
    pub fn prove(&self, segment: &Segment, side: &Side) -> Proof {
        let ranges = if segment.has_side() {
            side.ranges()
        } else {
            &[]
        };
        let mut proof = Proof {
            sum: self.receiver.sum(ranges),
            ..Proof::default()
        };
        if segment.echo_transmission != 0 {
            proof.echo = self.receiver.echo_mark(segment.class);
        }
        if segment.kind == Kind::Data
            && let Some(key) = &self.nonces
        {
            (proof.nonce, proof.mark) = key.nonces(segment.number, segment.transmission);
        }
        proof
    }

    /// Checks what a segment claims to have received. Returns false, and ends the connection, where
    /// the claim is false.
    #[inline]
    pub(crate) fn check_proof(&mut self, segment: &Segment, side: &Side, proof: &Proof) -> bool {
        if self.nonces.is_none()
            || segment.kind > Kind::Data
            || matches!(self.state, State::Opening | State::Closed)
        {
            return true;
        }
        if self.claimed(segment, side) == Some((proof.sum, proof.echo)) {
            return true;
        }
        self.invalidate();
        self.give_up(Failure::FalseReceipt);
        false
    }

    /// Returns the sum of the nonces that a segment claims to have received, and the mark that it
    /// answers. `None` where no honest peer claims that.
    #[inline]
    pub(crate) fn claimed(&self, segment: &Segment, side: &Side) -> Option<(u16, u16)> {
        let key = self.nonces.as_deref()?;
        let mut sum = key.prefix(segment.ack).wrapping_sub(key.first);
        let ranges = if segment.has_side() {
            side.ranges()
        } else {
            &[]
        };
        for range in ranges {
            // A range that would be left out must not count either: it could cancel another one.
            if clip(*range, segment.ack, self.flight.cut()) != Some(*range) {
                return None;
            }
            sum = sum.wrapping_add(key.sum(range.start, range.end));
        }
        let echo = match segment.echo_transmission {
            0 => 0,
            transmission => key.mark(segment.echo, transmission),
        };
        Some((sum, echo))
    }

    /// Whether a DSACK says by its mark that the original arrived. Without proofs every DSACK does.
    pub(crate) fn shows_original(&self, segment: &Segment, duplicate: Number) -> bool {
        self.nonces.is_none() || (segment.echo == duplicate && segment.echo_transmission == FIRST)
    }
}
