//! Proof of receipt: detects a receiver that acknowledges data it never received.
//!
//! A receiver that conceals losses, or acknowledges ahead of arrivals, makes its sender exceed the
//! capacity of the path (Savage et al., "TCP Congestion Control with a Misbehaving Receiver",
//! 1999). RFC 3540 counters this with a random nonce in each segment and the sum of nonces in each
//! ACK. Its nonces have one bit; these have 16.
//!
//! - The nonce of a number is the difference of two values of a keyed hash: `P(number + 1) -
//!   P(number)`. The sum over `start..end` is then `P(end) - P(start)`. A sender stores no nonces,
//!   and an ACK costs it one hash for the cumulative part, one for the echo and two per SACK range.
//!   Cumulative ACK and SACK both need the proof: a receiver could otherwise SACK data it never
//!   received.
//! - The mark belongs to one transmission of a number. The receiver echoes the mark of the segment
//!   that triggered the ACK. Without it a receiver could receive a retransmission, claim that the
//!   original arrived, and have the reduction undone (Eifel, RFC 3522). A DSACK undoes a reduction
//!   only with the mark of the original.
//!
//! The hash is SipHash-1-3 with a random key per connection, which never leaves the sender. After
//! 2^32 segments (6 TB) the numbers, and with them the nonces, repeat.
//!
//! The parts of a split segment carry the same nonce. A receiver can therefore conceal the loss of
//! a part for one flight: while segments are sent that were cut before the path MTU shrank. CE
//! counts, time stamps and windows are not proved.

#[cfg(test)]
mod tests;

use siphasher::sip::SipHasher13;

use crate::connection::{Connection, ConnectionState};
use crate::error::ConnectionError;
use crate::number::SequenceNumber;
use crate::segment::{Segment, SegmentKind, SideData};
use crate::send::acknowledge::clip;

/// Nonces of a segment, carried next to its header. All are zero if the peer requires no proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Data: nonce of the segment's number.
    pub nonce: u16,
    /// Data: mark of this transmission.
    pub mark: u16,
    /// Sum of the nonces of all segments acknowledged by this one, wrapping.
    pub sum: u16,
    /// Mark of the segment that triggered the ACK; 0 if none did.
    pub echo: u16,
}

/// Transmission count of an original.
const ORIGINAL_TRANSMISSION: u8 = 1;

/// Secret key of a connection's nonces.
#[derive(Clone)]
pub(crate) struct NonceKey {
    hasher: SipHasher13,
    /// P of the first number.
    first_number: u16,
}

impl std::fmt::Debug for NonceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NonceKey")
    }
}

impl NonceKey {
    fn new(key: &[u8; 16], first: SequenceNumber) -> NonceKey {
        let mut key = NonceKey {
            hasher: SipHasher13::new_with_key(key),
            first_number: 0,
        };
        key.first_number = key.prefix(first);
        key
    }

    #[inline]
    fn hash(&self, number: SequenceNumber, transmission: u8) -> u64 {
        #[cfg(test)]
        tests::HASHES.set(tests::HASHES.get() + 1);
        let input = u64::from(number.0) | u64::from(transmission) << 32;
        self.hasher.hash(&input.to_le_bytes())
    }

    /// P in the module documentation.
    #[inline]
    fn prefix(&self, number: SequenceNumber) -> u16 {
        self.hash(number, ORIGINAL_TRANSMISSION) as u16
    }

    /// Sum of the nonces of `start..end`.
    #[inline]
    fn sum(&self, start: SequenceNumber, end: SequenceNumber) -> u16 {
        self.prefix(end).wrapping_sub(self.prefix(start))
    }

    #[inline]
    fn mark(&self, number: SequenceNumber, transmission: u8) -> u16 {
        (self.hash(number, transmission) >> 16) as u16
    }

    /// Returns nonce and mark of a segment. The hash of a first transmission yields both P and the
    /// mark.
    #[inline]
    fn nonces(&self, number: SequenceNumber, transmission: u8) -> (u16, u16) {
        let first = self.hash(number, ORIGINAL_TRANSMISSION);
        let nonce = self
            .prefix(number.wrapping_add(1))
            .wrapping_sub(first as u16);
        let mark = match transmission {
            ORIGINAL_TRANSMISSION => (first >> 16) as u16,
            again => self.mark(number, again),
        };
        (nonce, mark)
    }
}

impl Connection {
    /// Requires the peer to prove receipt, with a random key. Must be called before the first
    /// segment is sent.
    pub fn require_proof(&mut self, key: &[u8; 16]) {
        let first = SequenceNumber(self.config.first_number);
        self.nonce_key = Some(Box::new(NonceKey::new(key, first)));
    }

    /// Returns the nonces of a segment returned by [`transmit`](Connection::transmit), for those
    /// ranges in `side` that are actually sent. Must be called before the next segment is
    /// processed.
    #[inline]
    pub fn prove(&self, segment: &Segment, side: &SideData) -> Proof {
        let ranges = if segment.has_side() {
            side.ranges()
        } else {
            &[]
        };
        let mut proof = Proof {
            sum: self.receiver.nonce_sum(ranges),
            ..Proof::default()
        };
        if segment.echo_transmission != 0 {
            proof.echo = self.receiver.echo_mark(segment.class);
        }
        if segment.kind == SegmentKind::Data
            && let Some(key) = &self.nonce_key
        {
            (proof.nonce, proof.mark) = key.nonces(segment.number, segment.transmission);
        }
        proof
    }

    /// Checks the receipt that a segment claims. Returns false and ends the connection if the claim
    /// is false.
    #[inline]
    pub(crate) fn check_proof(
        &mut self,
        segment: &Segment,
        side: &SideData,
        proof: &Proof,
    ) -> bool {
        if self.nonce_key.is_none()
            || segment.kind > SegmentKind::Data
            || matches!(
                self.state,
                ConnectionState::Opening | ConnectionState::Closed
            )
        {
            return true;
        }
        if self.expected_proof(segment, side) == Some((proof.sum, proof.echo)) {
            return true;
        }
        self.invalidate();
        self.abort_with(ConnectionError::FalseReceipt);
        false
    }

    /// Returns the sum of nonces and the mark that a truthful segment carries. `None` if no honest
    /// peer sends such a segment.
    #[inline]
    pub(crate) fn expected_proof(&self, segment: &Segment, side: &SideData) -> Option<(u16, u16)> {
        let key = self.nonce_key.as_deref()?;
        let mut sum = key.prefix(segment.ack).wrapping_sub(key.first_number);
        let ranges = if segment.has_side() {
            side.ranges()
        } else {
            &[]
        };
        for range in ranges {
            // A range that would be ignored must not count here either: it could cancel another
            // one.
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

    /// Returns true if a DSACK proves by its mark that the original arrived. Without proofs every
    /// DSACK counts.
    pub(crate) fn proves_original(&self, segment: &Segment, duplicate: SequenceNumber) -> bool {
        self.nonce_key.is_none()
            || (segment.echo == duplicate && segment.echo_transmission == ORIGINAL_TRANSMISSION)
    }
}
