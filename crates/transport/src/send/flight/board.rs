//! Ring buffer of the scoreboard: segments that were cut from the stream and are not acknowledged,
//! indexed by number.
//!
//! A look-up is an addition and a mask for any window. The size is a power of two and doubles when
//! needed. The memory is freed when nothing is outstanding.

use ccplane_units::Time;

use crate::number::SequenceNumber;
use crate::send::rate::{DeliveryRate, Stamp};

/// State of a segment that was cut from the stream.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct SentSegment {
    /// Time of the last transmission.
    pub sent_at: Time,
    /// Low 32 bits of the stream offset. Less than 4 GB are outstanding.
    pub offset: u32,
    /// State of the delivery-rate sampler at the transmission.
    pub stamp: Stamp,
    /// Payload length, bytes.
    pub length: u16,
    /// Number of transmissions in class 0.
    pub transmission: u8,
    flags: u8,
    /// Level in which RC3 sent the segment, from 0 on.
    pub level: u8,
}

const _: () = assert!(size_of::<SentSegment>() <= 32);

impl SentSegment {
    /// SACKed: received beyond the cumulative ACK.
    pub const SACKED_FLAG: u8 = 1;
    /// Marked lost and not yet retransmitted.
    pub const LOST_FLAG: u8 = 1 << 1;
    /// Retransmitted. The other fields describe the last transmission.
    pub const RETRANSMITTED_FLAG: u8 = 1 << 2;
    /// Carries the end of the stream.
    pub const FIN_FLAG: u8 = 1 << 3;
    /// Sent while the application limited sending.
    pub const APP_LIMITED_FLAG: u8 = 1 << 4;
    /// Sent in a class above 0.
    pub const RC3_FLAG: u8 = 1 << 5;
    /// Sent by class 0 and RC3. RC3's copy has arrived and is counted.
    pub const RC3_ARRIVED_FLAG: u8 = 1 << 6;
    /// Sent by class 0 and RC3. RC3's copy has arrived, and the copy of class 0 is in RC3's list of
    /// echoes ([`Rc3Loop`](crate::rc3::Rc3Loop)).
    pub const ECHO_FLAG: u8 = 1 << 7;

    pub(super) fn new(offset: u64, length: u16, fin: bool) -> SentSegment {
        SentSegment {
            offset: offset as u32,
            length,
            flags: if fin { SentSegment::FIN_FLAG } else { 0 },
            ..SentSegment::default()
        }
    }

    /// Returns true if any of `flags` is set.
    #[inline(always)]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    #[inline(always)]
    pub(super) fn set(&mut self, flags: u8) {
        self.flags |= flags;
    }

    #[inline(always)]
    pub(super) fn clear(&mut self, flags: u8) {
        self.flags &= !flags;
    }

    /// Records a transmission. `idle`: nothing else is in flight.
    #[inline(always)]
    pub(super) fn on_send(&mut self, rate: &mut DeliveryRate, now: Time, idle: bool) {
        self.stamp = rate.on_send(now, idle);
        let limited = if rate.is_app_limited() {
            SentSegment::APP_LIMITED_FLAG
        } else {
            0
        };
        self.flags = self.flags & !SentSegment::APP_LIMITED_FLAG | limited;
    }

    /// Returns the input of the delivery-rate sampler for the delivery of this segment.
    #[inline(always)]
    pub fn rate_sample_input(&self) -> (Time, &Stamp, bool) {
        (
            self.sent_at,
            &self.stamp,
            self.has(SentSegment::APP_LIMITED_FLAG),
        )
    }
}

/// Ring buffer. A number may be looked up only if it is cut and not yet acknowledged.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Box<[SentSegment]>);

/// Minimum number of slots.
const SLOTS_MIN: usize = 8;

impl Board {
    #[inline(always)]
    pub fn get(&self, number: SequenceNumber) -> &SentSegment {
        &self.0[number.0 as usize & self.0.len().wrapping_sub(1)]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, number: SequenceNumber) -> &mut SentSegment {
        let place = number.0 as usize & self.0.len().wrapping_sub(1);
        &mut self.0[place]
    }

    /// Appends a segment to the `held` segments from `first` on.
    #[inline(always)]
    pub fn push(&mut self, first: SequenceNumber, held: u32, sent: SentSegment) {
        if held as usize >= self.0.len() {
            self.grow(first, held);
        }
        *self.get_mut(first.wrapping_add(held)) = sent;
    }

    #[cold]
    fn grow(&mut self, first: SequenceNumber, held: u32) {
        let places = (self.0.len() * 2).max(SLOTS_MIN);
        let mut larger = Board(vec![SentSegment::default(); places].into_boxed_slice());
        for n in 0..held {
            *larger.get_mut(first.wrapping_add(n)) = *self.get(first.wrapping_add(n));
        }
        *self = larger;
    }

    pub fn free(&mut self) {
        self.0 = Box::default();
    }

    pub fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<SentSegment>()
    }
}
