//! Wire format of [`Segment`]s and datagrams.
//!
//! A datagram is an [`Envelope`], in a handshake a [`Crypto`], a segment header, and the payload up
//! to the end. Integers are big-endian. The encoding is canonical: [`write`](fn@write) reproduces
//! byte for byte what [`read`] accepts. A packet's ECN field and DSCP are in its IP header, not
//! here; the driver passes the class implied by the DSCP next to the class that the sender set.
//!
//! A segment:
//!
//! | bytes | field | in |
//! | --- | --- | --- |
//! | 1 | bits 0-2 kind: 0 Ack, 1 Data, 2 Open, 3 `OpenReply`, 4 Abort, 5 `PathProbe`, 6 `PathReply`; bit 3: an echo follows; bit 4: ECN counts follow; bits 5-7: in classes above 0, one more than the class in which the echoed segment arrived, or 0; else 0 | all |
//! | 1 | bits 0-3 flags: FIN, PROOF, PROBE, SIDE; bits 4-7: priority class, 0 to 7 | all |
//! | 1 | transmission: number of times it was sent | all |
//! | 4 | number | all |
//! | 4 | cumulative ACK: all earlier numbers have arrived | all |
//! | 4 | window, bytes | all |
//! | 6 | offset of the payload in the stream | Data |
//! | 2 | the sender's MSS | Open, `OpenReply` |
//! | 2 | bytes of the probe's datagram | `PathReply` |
//! | 2 | sum of the nonces of everything acknowledged, SACK ranges included ([`Proof`]) | Ack, Data |
//! | 2 + 2 | nonce of its number, and mark of its transmission | Data |
//! | 4 + 1 | number and transmission (not 0) of the echoed segment | if bit 3 is set |
//! | 2 | mark of the echoed segment | Ack, Data; if bit 3 is set |
//! | 4 + 4 | packets and bytes that arrived with CE, not both 0 | if bit 4 is set |
//! | 1 | bits 0-2: ranges, at most 4; bit 3: the first range is a duplicate (D-SACK); bit 4: timestamps follow; bit 5: a part follows; bits 6-7: 0 | SIDE |
//! | 8 each | ranges: start and end | SIDE |
//! | 8, in Acks 24 | t1, or t1, t2, t3, ns | SIDE, bit 4 |
//! | 2 + 2 | for a segment sent in parts: offset of this part in its payload, and its total payload bytes, not 0 | SIDE, bit 5, in Data |
//! | the rest | payload | Data |
//! | the rest | padding, ignored: keeps answers no larger than requests and probes the path MTU | Open, `PathProbe` |

mod crypto;
mod envelope;
#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod tests;

pub use crypto::{ALERT_OFFSET, CRYPTO_HEADER_BYTES, Crypto};
pub use envelope::{
    ClientAddress, Cover, ENVELOPE_BYTES_MAX, Envelope, PACKET_NUMBER_BYTES, VERSION,
};
pub(crate) use envelope::{HELLO_FIRST_BYTE, KEY_PHASE_BIT};

use ccplane_units::Time;

use ccplane_transport::{
    CLASS_COUNT, Proof, Range, SACK_RANGES_MAX, Segment, SegmentKind, SegmentPart, SequenceNumber,
    SideData,
};

/// Bytes of the longest data segment header without SACK ranges, as [`write`](fn@write) produces it
/// when `room` is short.
pub const DATA_HEADER_BYTES_MAX: usize = COMMON_BYTES
    + OFFSET_BYTES
    + NONCE_SUM_BYTES
    + NONCE_BYTES
    + ECHO_BYTES
    + ECN_COUNTS_BYTES
    + DATA_TIMESTAMP_BYTES;
/// Bytes of a data segment header without an echo or ECN counts.
pub const DATA_HEADER_BYTES: usize = COMMON_BYTES + OFFSET_BYTES + NONCE_SUM_BYTES + NONCE_BYTES;
/// Bytes of [`DATA_HEADER_BYTES_MAX`] used by timestamps.
pub const DATA_TIMESTAMP_BYTES: usize = 1 + TIMESTAMP_BYTES;
/// Bytes of the part field, which marks a segment as a part of another.
pub const PART_FIELD_BYTES: usize = 1 + 4;
/// Bytes of the longest segment header.
pub const HEADER_BYTES_MAX: usize = COMMON_BYTES
    + OFFSET_BYTES
    + NONCE_SUM_BYTES
    + NONCE_BYTES
    + ECHO_BYTES
    + ECN_COUNTS_BYTES
    + 1
    + 8 * SACK_RANGES_MAX
    + 3 * TIMESTAMP_BYTES;

const COMMON_BYTES: usize = 15;
const OFFSET_BYTES: usize = 6;
const NONCE_SUM_BYTES: usize = 2;
const NONCE_BYTES: usize = 4;
const ECHO_BYTES: usize = 5 + MARK_BYTES;
const MARK_BYTES: usize = 2;
const ECN_COUNTS_BYTES: usize = 8;
const TIMESTAMP_BYTES: usize = 8;

const ECHO_FLAG: u8 = 1 << 3;
const ECN_COUNTS_FLAG: u8 = 1 << 4;
const DUPLICATE_FLAG: u8 = 1 << 3;
const TIMESTAMPS_FLAG: u8 = 1 << 4;
const PART_FLAG: u8 = 1 << 5;
const SEGMENT_FLAGS_MASK: u8 =
    Segment::FIN_FLAG | Segment::PROOF_FLAG | Segment::PROBE_FLAG | Segment::SIDE_FLAG;

/// Error in a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The datagram is truncated.
    #[error("the datagram is truncated")]
    Short,
    /// Unsupported protocol version.
    #[error(
        "the datagram has version {0} instead of {VERSION}; run the same version of ccplane on \
        both hosts"
    )]
    Version(u8),
    /// Unknown segment kind.
    #[error("unknown segment kind {0}")]
    Kind(u8),
    /// Invalid priority class.
    #[error("segment class {0} is above {last}", last = CLASS_COUNT - 1)]
    Class(u8),
    /// Reserved bits are set.
    #[error("reserved bits are set")]
    Reserved,
    /// Too many SACK ranges.
    #[error("{0} SACK ranges, but at most {SACK_RANGES_MAX} are allowed")]
    Ranges(u8),
    /// An optional field is present although it is empty; the encoding would not be canonical.
    #[error("the segment has an empty {0}")]
    Empty(&'static str),
    /// Payload after a segment that carries none.
    #[error("{0} bytes of payload after a segment without data")]
    Payload(usize),
}

/// Writes a segment header to the front of `out`, using at most `room` bytes. SACK ranges that do
/// not fit are dropped, oldest first; `prove` receives the remaining ranges. Returns the length, or
/// `None` if the header does not fit even without ranges.
// Without the attribute the compiler emits a call, which costs 20 instructions per packet.
#[inline(always)]
pub fn write(
    segment: &Segment,
    side: &mut SideData,
    out: &mut [u8],
    room: usize,
    prove: impl FnOnce(&SideData) -> Proof,
) -> Option<usize> {
    let room = room.min(out.len());
    let mut flags = segment.flags & SEGMENT_FLAGS_MASK;
    if segment.has_side() {
        while length(segment, side) > room && side.pop() {}
        if side.is_empty() {
            flags &= !Segment::SIDE_FLAG;
        }
    }
    let mut out = SegmentWriter {
        out: out.get_mut(..room)?,
        at: 0,
    };
    let echo = segment.echo_transmission != 0;
    let counts = segment.ce_packets != 0 || segment.ce_bytes != 0;
    let has = |there: bool, bit: u8| if there { bit } else { 0 };
    let band = if segment.class != 0 {
        segment.echo_band << 5
    } else {
        0
    };
    out.put([segment.kind as u8 | has(echo, ECHO_FLAG) | has(counts, ECN_COUNTS_FLAG) | band])?;
    out.put([flags | segment.class << 4])?;
    out.put([segment.transmission])?;
    out.put(segment.number.0.to_be_bytes())?;
    out.put(segment.ack.0.to_be_bytes())?;
    out.put(segment.window.to_be_bytes())?;
    match segment.kind {
        SegmentKind::Data => {
            let [_, _, offset @ ..] = segment.offset().to_be_bytes();
            out.put::<OFFSET_BYTES>(offset)?;
        }
        SegmentKind::Open | SegmentKind::OpenReply | SegmentKind::PathReply => {
            out.put(segment.length.to_be_bytes())?
        }
        SegmentKind::Ack | SegmentKind::Abort | SegmentKind::PathProbe => {}
    }
    let proves = proves(segment.kind);
    let proof = if proves {
        prove(side)
    } else {
        Proof::default()
    };
    if proves {
        out.put(proof.sum.to_be_bytes())?;
    }
    if segment.kind == SegmentKind::Data {
        out.put(proof.nonce.to_be_bytes())?;
        out.put(proof.mark.to_be_bytes())?;
    }
    if echo {
        out.put(segment.echo.0.to_be_bytes())?;
        out.put([segment.echo_transmission])?;
        if proves {
            out.put(proof.echo.to_be_bytes())?;
        }
    }
    if counts {
        out.put(segment.ce_packets.to_be_bytes())?;
        out.put(segment.ce_bytes.to_be_bytes())?;
    }
    if flags & Segment::SIDE_FLAG != 0 {
        out.side(segment.kind, side)?;
    }
    Some(out.at)
}

/// Reads a segment and its nonces and returns the header length; the rest of `bytes` is the
/// payload. The segment's ECN field and [`band`](Segment::band) keep their defaults, since they are
/// in the IP header.
#[inline]
pub fn read(bytes: &[u8], side: &mut SideData) -> Result<(Segment, Proof, usize), CodecError> {
    let mut rest = SegmentReader { rest: bytes };
    let [first, second, transmission] = rest.take()?;
    let mut segment = Segment::default();
    segment.echo_band = first >> 5;
    if segment.echo_band != 0 && second >> 4 == 0 {
        return Err(CodecError::Reserved);
    }
    segment.kind = match first & 0b111 {
        0 => SegmentKind::Ack,
        1 => SegmentKind::Data,
        2 => SegmentKind::Open,
        3 => SegmentKind::OpenReply,
        4 => SegmentKind::Abort,
        5 => SegmentKind::PathProbe,
        6 => SegmentKind::PathReply,
        other => return Err(CodecError::Kind(other)),
    };
    segment.flags = second & SEGMENT_FLAGS_MASK;
    segment.class = second >> 4;
    if segment.class >= CLASS_COUNT {
        return Err(CodecError::Class(segment.class));
    }
    segment.transmission = transmission;
    segment.number = SequenceNumber(rest.u32()?);
    segment.ack = SequenceNumber(rest.u32()?);
    segment.window = rest.u32()?;
    match segment.kind {
        SegmentKind::Data => {
            let [a, b, c, d, e, f] = rest.take::<OFFSET_BYTES>()?;
            segment.set_offset(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        }
        SegmentKind::Open | SegmentKind::OpenReply | SegmentKind::PathReply => {
            segment.length = u16::from_be_bytes(rest.take()?)
        }
        SegmentKind::Ack | SegmentKind::Abort | SegmentKind::PathProbe => {}
    }
    let (mut proof, proves) = (Proof::default(), proves(segment.kind));
    if proves {
        proof.sum = rest.u16()?;
    }
    if segment.kind == SegmentKind::Data {
        proof.nonce = rest.u16()?;
        proof.mark = rest.u16()?;
    }
    if first & ECHO_FLAG != 0 {
        segment.echo = SequenceNumber(rest.u32()?);
        [segment.echo_transmission] = rest.take()?;
        if segment.echo_transmission == 0 {
            return Err(CodecError::Empty("echo"));
        }
        if proves {
            proof.echo = rest.u16()?;
        }
    }
    if first & ECN_COUNTS_FLAG != 0 {
        segment.ce_packets = rest.u32()?;
        segment.ce_bytes = rest.u32()?;
        if segment.ce_packets == 0 && segment.ce_bytes == 0 {
            return Err(CodecError::Empty("ECN count"));
        }
    }
    *side = SideData::default();
    if segment.has_side() {
        rest.side(segment.kind, side)?;
    }
    let payload = rest.rest.len();
    match segment.kind {
        SegmentKind::Data => {
            segment.length = u16::try_from(payload).map_err(|_| CodecError::Payload(payload))?
        }
        SegmentKind::Open | SegmentKind::PathProbe => {}
        _ if payload == 0 => {}
        _ => return Err(CodecError::Payload(payload)),
    }
    Ok((segment, proof, bytes.len() - payload))
}

/// Returns true for segments that acknowledge data and have to prove it with nonces.
fn proves(kind: SegmentKind) -> bool {
    matches!(kind, SegmentKind::Ack | SegmentKind::Data)
}

/// Returns the length of a segment's header in bytes.
fn length(segment: &Segment, side: &SideData) -> usize {
    let own = match segment.kind {
        SegmentKind::Data => OFFSET_BYTES + NONCE_SUM_BYTES + NONCE_BYTES,
        SegmentKind::Ack => NONCE_SUM_BYTES,
        SegmentKind::Open | SegmentKind::OpenReply | SegmentKind::PathReply => 2,
        SegmentKind::Abort | SegmentKind::PathProbe => 0,
    };
    let echo = match segment.echo_transmission {
        0 => 0,
        _ if proves(segment.kind) => ECHO_BYTES,
        _ => ECHO_BYTES - MARK_BYTES,
    };
    let counts = if segment.ce_packets != 0 || segment.ce_bytes != 0 {
        ECN_COUNTS_BYTES
    } else {
        0
    };
    let side = if segment.has_side() && !side.is_empty() {
        let ranges = side.ranges().len() + usize::from(side.duplicate().is_some());
        let stamps = if side.stamped {
            stamps(segment.kind)
        } else {
            0
        };
        1 + 8 * ranges
            + stamps
            + if side.part.whole != 0 {
                PART_FIELD_BYTES - 1
            } else {
                0
            }
    } else {
        0
    };
    COMMON_BYTES + own + echo + counts + side
}

/// Returns the bytes of a segment's timestamps: an ACK carries all three, other segments only their
/// transmit time.
fn stamps(kind: SegmentKind) -> usize {
    if kind == SegmentKind::Ack {
        3 * TIMESTAMP_BYTES
    } else {
        TIMESTAMP_BYTES
    }
}

struct SegmentWriter<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl SegmentWriter<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.out.get_mut(self.at..)?.first_chunk_mut()? = bytes;
        self.at += N;
        Some(())
    }

    fn side(&mut self, kind: SegmentKind, side: &SideData) -> Option<()> {
        let duplicate = side.duplicate();
        let ranges = duplicate.iter().chain(side.ranges());
        let has = |there: bool, bit: u8| if there { bit } else { 0 };
        let part = kind == SegmentKind::Data && side.part.whole != 0;
        let marks = has(duplicate.is_some(), DUPLICATE_FLAG)
            | has(side.stamped, TIMESTAMPS_FLAG)
            | has(part, PART_FLAG);
        self.put([ranges.clone().count() as u8 | marks])?;
        for range in ranges {
            self.put(range.start.0.to_be_bytes())?;
            self.put(range.end.0.to_be_bytes())?;
        }
        if side.stamped {
            self.put(side.t1.as_nanos().to_be_bytes())?;
            if kind == SegmentKind::Ack {
                self.put(side.t2.as_nanos().to_be_bytes())?;
                self.put(side.t3.as_nanos().to_be_bytes())?;
            }
        }
        if part {
            self.put(side.part.begin.to_be_bytes())?;
            self.put(side.part.whole.to_be_bytes())?;
        }
        Some(())
    }
}

struct SegmentReader<'a> {
    rest: &'a [u8],
}

impl SegmentReader<'_> {
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(CodecError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline(always)]
    fn u32(&mut self) -> Result<u32, CodecError> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    #[inline(always)]
    fn u16(&mut self) -> Result<u16, CodecError> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    fn time(&mut self) -> Result<Time, CodecError> {
        Ok(Time::from_nanos(u64::from_be_bytes(self.take()?)))
    }

    fn side(&mut self, kind: SegmentKind, side: &mut SideData) -> Result<(), CodecError> {
        let [first] = self.take()?;
        if first & 0b1100_0000 != 0 || first & PART_FLAG != 0 && kind != SegmentKind::Data {
            return Err(CodecError::Reserved);
        }
        let count = first & 0b111;
        if usize::from(count) > SACK_RANGES_MAX {
            return Err(CodecError::Ranges(count));
        }
        if count == 0 && (first & !(TIMESTAMPS_FLAG | PART_FLAG) != 0 || first == 0) {
            return Err(CodecError::Empty("list of ranges"));
        }
        for index in 0..count {
            let range = Range {
                start: SequenceNumber(self.u32()?),
                end: SequenceNumber(self.u32()?),
            };
            if index == 0 && first & DUPLICATE_FLAG != 0 {
                side.set_duplicate(range);
            } else {
                side.push(range);
            }
        }
        if first & TIMESTAMPS_FLAG != 0 {
            side.stamped = true;
            side.t1 = self.time()?;
            if kind == SegmentKind::Ack {
                side.t2 = self.time()?;
                side.t3 = self.time()?;
            }
        }
        if first & PART_FLAG != 0 {
            let ([a, b], [c, d]) = (self.take()?, self.take()?);
            side.part = SegmentPart {
                begin: u16::from_be_bytes([a, b]),
                whole: u16::from_be_bytes([c, d]),
            };
            if side.part.whole == 0 {
                return Err(CodecError::Empty("part"));
            }
        }
        Ok(())
    }
}
