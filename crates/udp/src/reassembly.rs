//! Segments retransmitted in parts because the path MTU has shrunk since they were cut. A segment
//! keeps its number and its offset in the stream, so the transport is not involved. The receiver
//! accepts a segment's parts in order and keeps those that arrived, so the next transmission needs
//! to deliver only the missing ones.

use std::collections::BTreeMap;

use ccplane_transport::{Ecn, Segment, SegmentPart};

/// Incomplete segments per connection, which bounds the memory that a peer can fill. Further ones
/// are dropped and will be retransmitted.
const INCOMPLETE_SEGMENTS_MAX: usize = 1024;

/// Returns the start and end of each part of a segment with `length` payload bytes, at most `step`
/// bytes per part.
pub(crate) fn parts(length: u16, step: u16) -> impl Iterator<Item = (u16, u16)> {
    let step = step.max(1);
    (0..length.div_ceil(step)).map(move |n| {
        (
            n * step,
            length.min(n.saturating_mul(step).saturating_add(step)),
        )
    })
}

/// Incomplete segments, by their offset in the stream.
#[derive(Debug, Default)]
pub(crate) struct SegmentReassembly {
    segments: BTreeMap<u64, PartialSegment>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PartialSegment {
    /// Contiguous bytes received from the start of the segment.
    bytes: u16,
    /// Set if any part had CE: the whole segment then counts as marked, as with fragments (RFC
    /// 3168, section 5.3).
    marked: bool,
}

impl SegmentReassembly {
    /// Records a part, whose payload the caller stores. Returns the segment once it is complete.
    /// `received` is the number of stream bytes received in order.
    pub fn insert(
        &mut self,
        segment: &Segment,
        part: SegmentPart,
        received: u64,
    ) -> Option<Segment> {
        let end = part.begin.checked_add(segment.length)?;
        let offset = segment.offset().checked_sub(u64::from(part.begin))?;
        if end > part.whole || segment.length == 0 {
            return None;
        }
        if self.segments.len() >= INCOMPLETE_SEGMENTS_MAX {
            self.segments = self.segments.split_off(&received);
        }
        let begun = self.segments.get(&offset).copied().unwrap_or_default();
        if part.begin > begun.bytes
            || (begun.bytes == 0 && self.segments.len() >= INCOMPLETE_SEGMENTS_MAX)
        {
            return None;
        }
        let marked = begun.marked || segment.ecn == Ecn::Ce;
        if end < part.whole {
            let bytes = end.max(begun.bytes);
            self.segments
                .insert(offset, PartialSegment { bytes, marked });
            return None;
        }
        self.segments.remove(&offset);
        let mut whole = *segment;
        if marked {
            whole.ecn = Ecn::Ce;
        }
        whole.length = part.whole;
        whole.set_offset(offset);
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ccplane_transport::{SegmentKind, SequenceNumber};

    fn part(offset: u64, (begin, end): (u16, u16), whole: u16) -> (Segment, SegmentPart) {
        let mut segment = Segment::default();
        (segment.kind, segment.number, segment.length) =
            (SegmentKind::Data, SequenceNumber(7), end - begin);
        segment.set_offset(offset + u64::from(begin));
        (segment, SegmentPart { begin, whole })
    }

    #[test]
    fn only_lost_fragments_need_retransmission() {
        let mut parts = SegmentReassembly::default();
        let mut take = |range| {
            let (segment, part) = part(5000, range, 1400);
            parts.insert(&segment, part, 5000)
        };
        assert_eq!(take((0, 600)), None);
        assert_eq!(take((1200, 1400)), None, "the previous fragment is missing");
        // Retransmission with another cut, whose first part is lost.
        assert_eq!(take((500, 1000)), None);
        let whole = take((1000, 1400)).expect("the message is complete");
        assert_eq!(
            (whole.offset(), whole.length, whole.number),
            (5000, 1400, SequenceNumber(7))
        );
        // A complete retransmission is a duplicate segment; the transport detects it.
        assert_eq!(take((0, 700)), None);
        assert!(take((700, 1400)).is_some());
    }

    #[test]
    fn a_mark_on_one_part_is_a_mark_on_the_segment() {
        for marked in 0..3 {
            let mut parts = SegmentReassembly::default();
            let mut last = None;
            for n in 0..3 {
                let (mut segment, part) = part(5000, (n * 400, n * 400 + 400), 1200);
                segment.ecn = if n == marked { Ecn::Ce } else { Ecn::Ect0 };
                last = parts.insert(&segment, part, 5000);
            }
            assert_eq!(last.map(|whole| whole.ecn), Some(Ecn::Ce), "part {marked}");
        }
    }

    #[test]
    fn a_peer_that_begins_segments_without_end_fills_no_memory() {
        let mut parts = SegmentReassembly::default();
        for n in 0..10_000 {
            let (segment, part) = part(n * 2000, (0, 100), 2000);
            assert_eq!(parts.insert(&segment, part, 0), None);
        }
        assert_eq!(parts.segments.len(), INCOMPLETE_SEGMENTS_MAX);
        // Segments completed by other means make room.
        let (segment, part) = part(1 << 30, (0, 100), 2000);
        assert_eq!(parts.insert(&segment, part, 1 << 29), None);
        assert_eq!(parts.segments.len(), 1);
    }

    proptest! {
        /// Parts are contiguous and cover the whole segment; transmissions with losses complete it
        /// once all parts have arrived.
        #[test]
        fn any_cut_comes_together(
            length in 1u16..,
            transmissions in prop::collection::vec((1u16..3000, any::<u64>()), 1..20),
            last in 1u16..,
        ) {
            let mut parts = SegmentReassembly::default();
            for (step, lost) in transmissions.into_iter().chain([(last, 0)]) {
                let mut end = 0;
                let mut complete = false;
                for (n, range) in super::parts(length, step).enumerate() {
                    prop_assert!(range.0 == end && range.1 > range.0 && range.1 - range.0 <= step);
                    end = range.1;
                    if lost >> (n % 64) & 1 == 0 {
                        let (segment, part) = part(1 << 40, range, length);
                        complete = parts
                            .insert(&segment, part, 1 << 40)
                            .is_some_and(|whole| whole.length == length);
                    }
                }
                prop_assert_eq!(end, length);
                prop_assert!(complete || lost != 0);
            }
        }

        /// Inconsistent parts, which no honest sender creates, are dropped.
        #[test]
        fn any_part_is_taken_without_a_panic(
            offset in 0u64..1 << 48,
            begin: u16,
            length: u16,
            whole: u16,
        ) {
            let (mut segment, _) = part(0, (0, 0), 0);
            segment.length = length;
            segment.set_offset(offset);
            if let Some(found) =
                SegmentReassembly::default().insert(&segment, SegmentPart { begin, whole }, 0)
            {
                prop_assert!(begin == 0 && length == whole && found == segment);
            }
        }
    }
}
