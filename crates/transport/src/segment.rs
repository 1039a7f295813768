//! What two ends say to each other: [`Segment`] in every packet, [`Side`] in those that carry SACK
//! ranges or time stamps.
//!
//! Segments are typed and have no payload. A codec turns them into bytes (`ccplane-udp`'s). The
//! simulator carries them as they are.

use ccplane_qdisc::Ecn;
use ccplane_units::Time;

use crate::number::Number;

/// What a segment is for. Each acknowledges, except the first of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// An acknowledgement alone, without a number of its own.
    #[default]
    Ack,
    /// Stream data, the end of the stream, or both.
    Data,
    /// A client asks for a connection; `length` is its MSS.
    Open,
    /// A server's answer to it; `length` is its MSS. The driver may put a cookie beside it.
    OpenReply,
    /// The connection is given up; nothing follows.
    Abort,
    /// A driver asks whether the path carries datagrams of `length` bytes; it is none of the
    /// connection's ([`Connection`](crate::Connection) takes no notice).
    PathProbe,
    /// The answer: one of `length` bytes has arrived.
    PathReply,
}

/// What a packet says, without its payload. Plain data of 40 bytes, so that a simulator can copy it
/// about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// [`Kind::Data`]: the number of this segment. Otherwise the number that the next new one will have.
    pub number: Number,
    /// Everything before this number has arrived.
    pub ack: Number,
    /// Window: how many bytes beyond the acknowledged ones its sender will take.
    pub window: u32,
    /// ECN: packets of data that had arrived here with CE, from the beginning on, wrapping
    /// (accurate ECN's r.cep).
    pub ce_packets: u32,
    /// ECN: bytes of payload in them, wrapping (accurate ECN's r.ceb).
    pub ce_bytes: u32,
    /// The number of the segment that made its receiver acknowledge; see `echo_transmission`.
    pub echo: Number,
    offset_low: u32,
    offset_high: u16,
    /// Bytes of payload.
    pub length: u16,
    /// What the segment is for.
    pub kind: Kind,
    /// A set of the `Segment::` constants.
    pub flags: u8,
    /// Priority class, as its sender means it, below [`MAX_CLASSES`](crate::MAX_CLASSES): 0 is the
    /// ordinary one, higher classes are below it in every queue.
    pub class: u8,
    /// The class that the packet's marking (its DSCP) says on the way. Queues go by it. The sender
    /// sets it to `class`, a network may change it, and a driver sets it on arrival.
    pub band: u8,
    /// In classes above 0, where something of the class is answered: one more than the `band` in
    /// which that arrived, the highest in the order of priority if it was several. 0 otherwise.
    pub echo_band: u8,
    /// The ECN field of the packet. The sender chooses it, queues on the way may set [`Ecn::Ce`].
    pub ecn: Ecn,
    /// How many times this segment was sent, this time included; stays at 255.
    pub transmission: u8,
    /// `transmission` of the segment that made its receiver acknowledge; 0 when there was none. It
    /// tells the answer to an original from the answer to a retransmission, for RTT samples (Karn)
    /// and undo (RFC 3522, Eifel).
    pub echo_transmission: u8,
}

impl Segment {
    /// The stream ends with this segment.
    pub const FIN: u8 = 1;
    /// The sender has not heard yet that its address counts as proved: the driver puts the server's
    /// cookie beside.
    pub const PROOF: u8 = 1 << 1;
    /// Asks for an acknowledgement at once: window probes.
    pub const PROBE: u8 = 1 << 2;
    /// A [`Side`] belongs to it.
    pub const SIDE: u8 = 1 << 3;

    /// Where in the stream the payload begins, bytes.
    #[inline(always)]
    pub const fn offset(&self) -> u64 {
        (self.offset_high as u64) << 32 | self.offset_low as u64
    }

    /// Says where in the stream the payload begins; 48 bits of it are kept, which are 281 TB.
    #[inline(always)]
    pub const fn set_offset(&mut self, offset: u64) {
        self.offset_low = offset as u32;
        self.offset_high = (offset >> 32) as u16;
    }

    /// Whether all the `flags` are set.
    #[inline(always)]
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether a [`Side`] belongs to it.
    #[inline(always)]
    pub const fn has_side(&self) -> bool {
        self.has(Segment::SIDE)
    }
}

/// Segments `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// The first.
    pub start: Number,
    /// The one after the last.
    pub end: Number,
}

/// Most SACK ranges in an acknowledgement, as many as TCP's options have room for (RFC 2018,
/// section 3).
pub const MAX_RANGES: usize = 4;

/// What a segment was cut to for a path that has become narrower since: datagrams with a part each,
/// put together by the driver of the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Part {
    /// Where in the segment's payload it begins, bytes.
    pub begin: u16,
    /// Bytes of the segment's payload; 0: this is no part, but all of it.
    pub whole: u16,
}

/// What only some segments carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Side {
    /// With data, t1: when it was sent. With an acknowledgement: t1 of the segment that is being
    /// answered. A driver may put a better one in its place, as with t3: see
    /// [`Connection::handle_arrived`](crate::Connection::handle_arrived).
    pub t1: Time,
    /// With an acknowledgement, t2: when the segment that is being answered arrived, by the clock
    /// there.
    pub t2: Time,
    /// With an acknowledgement, t3: when that was sent, by the clock there.
    pub t3: Time,
    /// Segments that arrived beyond the acknowledged ones; the range with the latest arrival first
    /// (RFC 2018, section 4).
    ranges: [Range; MAX_RANGES],
    count: u8,
    duplicate: bool,
    /// The stamps say something. An acknowledgement of nothing, a window update for one, has none.
    pub stamped: bool,
    /// With data: which part of the segment this is.
    pub part: Part,
}

impl Side {
    /// SACK ranges, the one with the latest arrival first, without the duplicate.
    #[inline]
    pub fn ranges(&self) -> &[Range] {
        let all = self
            .ranges
            .get(..usize::from(self.count))
            .unwrap_or(&self.ranges);
        if self.duplicate {
            all.get(1..).unwrap_or(&[])
        } else {
            all
        }
    }

    /// DSACK: what arrived a second time (RFC 2883).
    #[inline]
    pub fn duplicate(&self) -> Option<Range> {
        if self.duplicate {
            self.ranges.first().copied()
        } else {
            None
        }
    }

    /// Adds a range; false when there is no more room.
    #[inline]
    pub fn push(&mut self, range: Range) -> bool {
        match self.ranges.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = range;
                self.count += 1;
                true
            }
            None => false,
        }
    }

    /// Begins anew with a range that arrived twice.
    #[inline]
    pub fn set_duplicate(&mut self, range: Range) {
        self.ranges[0] = range;
        self.count = 1;
        self.duplicate = true;
    }

    /// Forgets the last range, where a codec has no room for it; false when there is none.
    pub fn pop(&mut self) -> bool {
        let any = self.count > 0;
        self.count = self.count.saturating_sub(1);
        self.duplicate &= self.count > 0;
        any
    }

    /// Whether it says nothing, so that it need not be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.stamped && self.part.whole == 0
    }
}

const _: () = assert!(size_of::<Segment>() == 40 && align_of::<Segment>() == 4);
const _: () = assert!(size_of::<Side>() <= 64);
