//! The ring behind the scoreboard: segments that were cut from the stream and are not acknowledged,
//! indexed by number.
//!
//! A look-up is an addition and a mask, whatever the window. The size is a power of two and doubles
//! when needed. The memory is freed when nothing is outstanding.

use ccplane_units::Time;

use crate::number::Number;
use crate::send::rate::{DeliveryRate, Stamp};

/// One segment that was cut from the stream.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Sent {
    /// When it was last sent.
    pub at: Time,
    /// Where it begins in the stream: the low 32 bits. Less than 4 GB are outstanding.
    pub offset: u32,
    /// State of the delivery rate when it was sent.
    pub stamp: Stamp,
    /// Bytes of payload.
    pub length: u16,
    /// How often it was sent in class 0.
    pub transmission: u8,
    flags: u8,
    /// The level in which RC3 sent it, from 0 on.
    pub level: u8,
}

const _: () = assert!(size_of::<Sent>() <= 32);

impl Sent {
    /// SACKed: it has arrived beyond the cumulative ACK.
    pub const SACKED: u8 = 1;
    /// Marked lost and not yet retransmitted.
    pub const LOST: u8 = 1 << 1;
    /// Retransmitted. The other fields are of the last transmission.
    pub const REPEATED: u8 = 1 << 2;
    /// The stream ends with it.
    pub const FIN: u8 = 1 << 3;
    /// Sent when the application limited sending.
    pub const APP_LIMITED: u8 = 1 << 4;
    /// Sent in a class above 0.
    pub const RC3: u8 = 1 << 5;
    /// Class 0 and RC3 both sent it. RC3's copy has arrived and is counted.
    pub const CAME: u8 = 1 << 6;
    /// Class 0 and RC3 both sent it. RC3's copy has arrived, and class 0's own is in RC3's list of
    /// echoes ([`Rc3Loop`](crate::rc3::Rc3Loop)).
    pub const ECHOED: u8 = 1 << 7;

    pub(super) fn new(offset: u64, length: u16, fin: bool) -> Sent {
        Sent {
            offset: offset as u32,
            length,
            flags: if fin { Sent::FIN } else { 0 },
            ..Sent::default()
        }
    }

    /// Whether any of `flags` is set.
    #[inline(always)]
    pub fn is(&self, flags: u8) -> bool {
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

    /// It is sent now. `idle`: nothing else is in flight.
    #[inline(always)]
    pub(super) fn on_send(&mut self, rate: &mut DeliveryRate, now: Time, idle: bool) {
        self.stamp = rate.on_send(now, idle);
        let limited = if rate.is_app_limited() {
            Sent::APP_LIMITED
        } else {
            0
        };
        self.flags = self.flags & !Sent::APP_LIMITED | limited;
    }

    /// What the delivery rate needs once it is delivered.
    #[inline(always)]
    pub fn sampled(&self) -> (Time, &Stamp, bool) {
        (self.at, &self.stamp, self.is(Sent::APP_LIMITED))
    }
}

/// The ring. A number that is looked up must have been cut, and not acknowledged before this call.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Box<[Sent]>);

/// Places of the smallest ring.
const LEAST: usize = 8;

impl Board {
    #[inline(always)]
    pub fn get(&self, number: Number) -> &Sent {
        &self.0[number.0 as usize & self.0.len().wrapping_sub(1)]
    }

    #[inline(always)]
    pub fn get_mut(&mut self, number: Number) -> &mut Sent {
        let place = number.0 as usize & self.0.len().wrapping_sub(1);
        &mut self.0[place]
    }

    /// Appends a segment to the `held` segments from `first` on.
    #[inline(always)]
    pub fn push(&mut self, first: Number, held: u32, sent: Sent) {
        if held as usize >= self.0.len() {
            self.grow(first, held);
        }
        *self.get_mut(first.plus(held)) = sent;
    }

    #[cold]
    fn grow(&mut self, first: Number, held: u32) {
        let places = (self.0.len() * 2).max(LEAST);
        let mut larger = Board(vec![Sent::default(); places].into_boxed_slice());
        for n in 0..held {
            *larger.get_mut(first.plus(n)) = *self.get(first.plus(n));
        }
        *self = larger;
    }

    /// Gives the memory back.
    pub fn free(&mut self) {
        self.0 = Box::default();
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.0.len() * size_of::<Sent>()
    }
}
