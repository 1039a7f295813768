//! Packet format of the transport: a [`Segment`] in every packet, and a [`SideData`] in packets
//! with SACK ranges or time stamps.
//!
//! Segments are typed and have no payload. The codec of `ccplane-udp` encodes them into bytes; the
//! simulator carries them unencoded.

use ccplane_qdisc::Ecn;
use ccplane_units::Time;

use crate::number::SequenceNumber;

/// Type of a segment. Every segment acknowledges, except the first of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SegmentKind {
    /// Acknowledgement without data. It consumes no number.
    #[default]
    Ack,
    /// Stream data, the end of the stream, or both.
    Data,
    /// Connection request from a client; `length` is its MSS.
    Open,
    /// Server's reply to [`SegmentKind::Open`]; `length` is its MSS. The driver may attach a
    /// cookie.
    OpenReply,
    /// Abort of the connection; nothing follows.
    Abort,
    /// Path MTU probe of a driver, a datagram of `length` bytes. [`Connection`](crate::Connection)
    /// ignores it.
    PathProbe,
    /// Reply to a path MTU probe: a datagram of `length` bytes has arrived.
    PathReply,
}

/// Header of a packet, without the payload. 40 bytes of plain data, so that a simulator can copy it
/// cheaply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Segment {
    /// [`SegmentKind::Data`]: number of this segment. Otherwise the number of the next new segment.
    pub number: SequenceNumber,
    /// Cumulative ACK: every segment before this number has arrived.
    pub ack: SequenceNumber,
    /// Receive window, bytes beyond the cumulative ACK.
    pub window: u32,
    /// ECN: data packets received with CE since the start, wrapping (accurate ECN's r.cep).
    pub ce_packets: u32,
    /// ECN: payload bytes in those packets, wrapping (accurate ECN's r.ceb).
    pub ce_bytes: u32,
    /// Number of the segment that triggered this acknowledgement; see `echo_transmission`.
    pub echo: SequenceNumber,
    offset_low: u32,
    offset_high: u16,
    /// Payload length, bytes.
    pub length: u16,
    /// Type of the segment.
    pub kind: SegmentKind,
    /// Bit set of the `Segment::` constants.
    pub flags: u8,
    /// Priority class chosen by the sender, below [`CLASS_COUNT`](crate::CLASS_COUNT). 0 is the
    /// default; every queue serves higher classes after it.
    pub class: u8,
    /// Class according to the packet's DSCP, by which queues schedule it. The sender sets it to
    /// `class`, a network may change it, and the receiving driver sets it on arrival.
    pub band: u8,
    /// In acknowledgements of classes above 0: one more than the `band` in which the acknowledged
    /// segment arrived, or the band of highest priority if there were several segments. 0
    /// otherwise.
    pub echo_band: u8,
    /// ECN field of the packet. The sender sets it; queues may change it to [`Ecn::Ce`].
    pub ecn: Ecn,
    /// Number of times this segment was sent, including this time; saturates at 255.
    pub transmission: u8,
    /// `transmission` of the segment that triggered this acknowledgement; 0 if none did. It
    /// distinguishes the ACK of an original from the ACK of a retransmission, for RTT samples
    /// (Karn's algorithm) and undo (Eifel, RFC 3522).
    pub echo_transmission: u8,
}

impl Segment {
    /// The stream ends with this segment.
    pub const FIN_FLAG: u8 = 1;
    /// Proof of address: the server has not confirmed the client's address yet, so the driver
    /// attaches the server's cookie.
    pub const PROOF_FLAG: u8 = 1 << 1;
    /// Window probe: requests an immediate acknowledgement.
    pub const PROBE_FLAG: u8 = 1 << 2;
    /// A [`SideData`] accompanies the segment.
    pub const SIDE_FLAG: u8 = 1 << 3;

    /// Offset of the payload in the stream, bytes.
    #[inline(always)]
    pub const fn offset(&self) -> u64 {
        (self.offset_high as u64) << 32 | self.offset_low as u64
    }

    /// Sets the offset of the payload in the stream. 48 bits are kept, which address 281 TB.
    #[inline(always)]
    pub const fn set_offset(&mut self, offset: u64) {
        self.offset_low = offset as u32;
        self.offset_high = (offset >> 32) as u16;
    }

    /// Returns true if all of `flags` are set.
    #[inline(always)]
    pub const fn has_flag(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns true if a [`SideData`] accompanies the segment.
    #[inline(always)]
    pub const fn has_side(&self) -> bool {
        self.has_flag(Segment::SIDE_FLAG)
    }
}

/// Segments `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Range {
    /// First number.
    pub start: SequenceNumber,
    /// Number after the last.
    pub end: SequenceNumber,
}

/// Maximum SACK ranges in an acknowledgement, as many as fit into TCP's options (RFC 2018 section
/// 3).
pub const SACK_RANGES_MAX: usize = 4;

/// Position of a datagram's payload within a segment. When the path MTU shrinks, segments that were
/// already cut are split into several datagrams, and the receiving driver reassembles them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SegmentPart {
    /// Offset within the segment's payload, bytes.
    pub begin: u16,
    /// Payload bytes of the whole segment; 0 if the segment is not split.
    pub whole: u16,
}

/// Optional header fields, which only some segments carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SideData {
    /// In data: t1, the time of sending. In an acknowledgement: t1 of the segment that triggered
    /// it. A driver may replace t1 and t3 by more precise values: see
    /// [`Connection::handle_at`](crate::Connection::handle_at).
    pub t1: Time,
    /// In an acknowledgement: t2, the arrival time of the segment that triggered it, by the
    /// receiver's clock.
    pub t2: Time,
    /// In an acknowledgement: t3, the time of sending the acknowledgement, by the receiver's clock.
    pub t3: Time,
    /// Segments received beyond the cumulative ACK; the range with the latest arrival first (RFC
    /// 2018 section 4).
    ranges: [Range; SACK_RANGES_MAX],
    count: u8,
    duplicate: bool,
    /// The stamps are valid. An acknowledgement that no segment triggered, such as a window update,
    /// has none.
    pub stamped: bool,
    /// In data: the part of the segment in this datagram.
    pub part: SegmentPart,
}

impl SideData {
    /// SACK ranges without the duplicate, the one with the latest arrival first.
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

    /// DSACK: the range that arrived a second time (RFC 2883).
    #[inline]
    pub fn duplicate(&self) -> Option<Range> {
        if self.duplicate {
            self.ranges.first().copied()
        } else {
            None
        }
    }

    /// Adds a range. Returns false if there is no room left.
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

    /// Replaces all ranges by one that arrived twice.
    #[inline]
    pub fn set_duplicate(&mut self, range: Range) {
        self.ranges[0] = range;
        self.count = 1;
        self.duplicate = true;
    }

    /// Removes the last range, for a codec without room for it. Returns false if there is none.
    pub fn pop(&mut self) -> bool {
        let any = self.count > 0;
        self.count = self.count.saturating_sub(1);
        self.duplicate &= self.count > 0;
        any
    }

    /// Returns true if there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.stamped && self.part.whole == 0
    }
}

const _: () = assert!(size_of::<Segment>() == 40 && align_of::<Segment>() == 4);
const _: () = assert!(size_of::<SideData>() <= 64);
