//! Mapping from packet numbers to TCP sequence numbers.

use ccplane_transport::SequenceNumber;

/// One direction of a flow.
///
/// Packets are numbered consecutively, and all but the last of a write are full-sized, so a
/// sequence number is a product. A shorter segment sets a mark, from which the following ones are
/// counted.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Pairs of (packet number, sequence number), ordered by number. Marks far in the past are
    /// dropped.
    marks: Vec<(SequenceNumber, u64)>,
    /// Payload of a full-sized segment, bytes: the longest seen.
    segment_bytes: u64,
}

/// Maximum number of marks: no window is so large that an ACK refers to an older one.
const MARKS_MAX: usize = 4_096;

/// Sequence number of the first byte; the SYN takes 0 (RFC 9293, section 3.4).
const SEQUENCE_NUMBER_FIRST: u64 = 1;

impl Sequence {
    /// Starts a direction of a connection with the number of its first segment.
    pub fn set_first_number(&mut self, first: SequenceNumber) {
        if self.marks.is_empty() {
            self.marks.push((first, SEQUENCE_NUMBER_FIRST));
        }
    }

    /// Records a segment that starts at `offset` in the stream; with `fin` it is the last.
    pub fn record_segment(&mut self, number: SequenceNumber, offset: u64, length: u64, fin: bool) {
        self.set_first_number(SequenceNumber(0));
        self.segment_bytes = self.segment_bytes.max(length);
        let at = offset + SEQUENCE_NUMBER_FIRST;
        if self.sequence_number(number) != at {
            self.insert_mark(number, at);
        }
        // A FIN takes one sequence number.
        let end = at + length + u64::from(fin);
        let next = number.wrapping_add(1);
        if self.sequence_number(next) != end && (fin || length < self.segment_bytes) {
            self.insert_mark(next, end);
        }
    }

    /// Returns the sequence number of the first byte of this segment.
    pub fn sequence_number(&self, number: SequenceNumber) -> u64 {
        let after = self.marks.partition_point(|mark| !number.is_before(mark.0));
        match after.checked_sub(1).and_then(|last| self.marks.get(last)) {
            Some((marked, at)) => at + u64::from(number.since(*marked)) * self.segment_bytes,
            None => SEQUENCE_NUMBER_FIRST,
        }
    }

    fn insert_mark(&mut self, number: SequenceNumber, at: u64) {
        let place = self.marks.partition_point(|mark| mark.0.is_before(number));
        match self.marks.get_mut(place) {
            Some(mark) if mark.0 == number => mark.1 = at,
            _ => self.marks.insert(place, (number, at)),
        }
        if self.marks.len() > MARKS_MAX {
            self.marks.drain(..MARKS_MAX / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_segments_in_between_are_known() {
        let mut sequence = Sequence::default();
        sequence.set_first_number(SequenceNumber(u32::MAX));
        assert_eq!(sequence.sequence_number(SequenceNumber(u32::MAX)), 1);
        // Segments of 1,000 bytes except the third, of 200; then a lost one, and the last of 5
        // bytes with FIN.
        let n = |n: u32| SequenceNumber(u32::MAX).wrapping_add(n);
        sequence.record_segment(n(0), 0, 1_000, false);
        sequence.record_segment(n(1), 1_000, 1_000, false);
        sequence.record_segment(n(2), 2_000, 200, false);
        sequence.record_segment(n(4), 3_200, 5, true);
        sequence.record_segment(n(1), 1_000, 1_000, false);
        let all: Vec<u64> = (0..6).map(|i| sequence.sequence_number(n(i))).collect();
        assert_eq!(all, [1, 1_001, 2_001, 2_201, 3_201, 3_207]);
        // The short segment itself is missing; the next one reveals its length.
        let mut sequence = Sequence::default();
        sequence.record_segment(SequenceNumber(0), 0, 1_000, false);
        sequence.record_segment(SequenceNumber(2), 1_200, 1_000, false);
        assert_eq!(
            [0, 1, 2, 3].map(|i| sequence.sequence_number(SequenceNumber(i))),
            [1, 1_001, 1_201, 2_201]
        );
    }

    #[test]
    fn marks_are_bounded() {
        let mut sequence = Sequence::default();
        sequence.record_segment(SequenceNumber(0), 0, 1_000, false);
        for i in 0..10_000 {
            sequence.record_segment(SequenceNumber(1 + i), 1_000 + u64::from(i) * 10, 10, false);
        }
        assert!(sequence.marks.len() <= MARKS_MAX);
        assert_eq!(sequence.sequence_number(SequenceNumber(10_001)), 101_001);
        assert_eq!(sequence.sequence_number(SequenceNumber(9_001)), 91_001);
    }
}
