//! Ranges of segment numbers received out of order, at the receiver and mirrored at the sender.
//!
//! The ranges are sorted, disjoint and not adjacent. Memory and time depend on the number of holes,
//! not on the length of the ranges. Most changes are at either end.

use std::collections::VecDeque;

use crate::number::SequenceNumber;
use crate::segment::Range;

/// Range with the stream offset of its end, which only the receiver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffsetRange {
    pub range: Range,
    pub end_offset: u64,
    /// Sum of the nonces of its segments, wrapping; only the receiver uses it.
    pub nonce_sum: u16,
}

/// Maximum number of ranges that either end tracks. Data beyond them counts as lost. Real paths
/// have a few hundred at most. A higher limit would let a peer fill memory, 24 bytes per range.
pub(crate) const RANGES_MAX: usize = 1 << 14;

#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet(VecDeque<OffsetRange>);

impl RangeSet {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.len() >= RANGES_MAX
    }

    #[inline]
    pub fn first(&self) -> Option<&OffsetRange> {
        self.0.front()
    }

    #[inline]
    pub fn last(&self) -> Option<&OffsetRange> {
        self.0.back()
    }

    #[inline]
    pub fn pop_first(&mut self) -> Option<OffsetRange> {
        self.0.pop_front()
    }

    pub fn iter(&self) -> impl Iterator<Item = &OffsetRange> {
        self.0.iter()
    }

    /// Index of the first range that ends at `number` or later.
    fn position(&self, number: SequenceNumber) -> usize {
        match self.0.back() {
            None => 0,
            Some(last) if last.range.end.is_before(number) => self.0.len(),
            _ => self
                .0
                .partition_point(|span| span.range.end.is_before(number)),
        }
    }

    pub fn find(&self, number: SequenceNumber) -> Option<Range> {
        self.find_span(number).map(|span| span.range)
    }

    pub fn find_span(&self, number: SequenceNumber) -> Option<&OffsetRange> {
        let span = self.0.get(self.position(number.wrapping_add(1)))?;
        number
            .is_within(span.range.start, span.range.end)
            .then_some(span)
    }

    /// Adds `range`, which must be non-empty and shorter than 2^31. Calls `fresh` for each part
    /// that was not in the set. Returns false and changes nothing if the set is full.
    pub fn insert(&mut self, range: Range, end_offset: u64, fresh: impl FnMut(Range)) -> bool {
        self.insert_with(range, end_offset, 0, fresh)
    }

    /// Adds a range of one segment with its nonce, which is added only if the segment is new.
    pub fn insert_with(
        &mut self,
        range: Range,
        end_offset: u64,
        nonce: u16,
        mut fresh: impl FnMut(Range),
    ) -> bool {
        let Range { start, end } = range;
        let mut is_new = false;
        let mut fresh = |range| {
            is_new = true;
            fresh(range);
        };
        let from = self.position(start);
        let mut span = OffsetRange {
            range,
            end_offset,
            nonce_sum: 0,
        };
        let mut reached = start;
        let mut to = from;
        while let Some(next) = self
            .0
            .get(to)
            .filter(|next| !end.is_before(next.range.start))
        {
            if reached.is_before(next.range.start) {
                fresh(Range {
                    start: reached,
                    end: next.range.start,
                });
            }
            if next.range.start.is_before(span.range.start) {
                span.range.start = next.range.start;
            }
            if span.range.end.is_before(next.range.end) || span.range.end == next.range.end {
                span.range.end = next.range.end;
                span.end_offset = next.end_offset;
            }
            span.nonce_sum = span.nonce_sum.wrapping_add(next.nonce_sum);
            reached = reached.max(next.range.end);
            to += 1;
        }
        if to == from {
            if self.0.len() >= RANGES_MAX {
                return false;
            }
            fresh(range);
            span.nonce_sum = nonce;
            self.0.insert(from, span);
            return true;
        }
        if reached.is_before(end) {
            fresh(Range {
                start: reached,
                end,
            });
        }
        if is_new {
            span.nonce_sum = span.nonce_sum.wrapping_add(nonce);
        }
        if let Some(first) = self.0.get_mut(from) {
            *first = span;
        }
        if to > from + 1 {
            self.0.drain(from + 1..to);
        }
        true
    }

    /// Removes all numbers before `number`.
    pub fn remove_before(&mut self, number: SequenceNumber) {
        while let Some(first) = self.0.front_mut() {
            if first.range.start.is_before(number) && number.is_before(first.range.end) {
                first.range.start = number;
            }
            if !first.range.start.is_before(number) {
                return;
            }
            self.0.pop_front();
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<OffsetRange>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn range(start: u32, end: u32) -> Range {
        Range {
            start: SequenceNumber(start),
            end: SequenceNumber(end),
        }
    }

    #[test]
    fn a_filled_hole_joins_its_neighbours() {
        let mut set = RangeSet::default();
        let mut seen = Vec::new();
        for (start, end) in [(10, 12), (14, 16), (12, 14), (30, 31), (9, 32)] {
            assert!(set.insert(range(start, end), u64::from(end), |new| {
                seen.push((new.start.0, new.end.0))
            }));
        }
        assert_eq!(
            seen,
            [
                (10, 12),
                (14, 16),
                (12, 14),
                (30, 31),
                (9, 10),
                (16, 30),
                (31, 32)
            ]
        );
        assert_eq!(set.iter().count(), 1);
        assert_eq!(set.find(SequenceNumber(31)), Some(range(9, 32)));
        assert_eq!(set.find(SequenceNumber(32)), None);
        set.remove_before(SequenceNumber(20));
        assert_eq!(set.first().map(|span| span.range), Some(range(20, 32)));
    }

    proptest! {
        /// Compares with a set of numbers, around the wrap.
        #[test]
        fn as_a_set_of_numbers(
            first in prop::sample::select(vec![0u32, u32::MAX - 30]),
            steps in prop::collection::vec((0u32..60, 1u32..12, 0u32..8), 1..60),
        ) {
            let mut set = RangeSet::default();
            let mut model = BTreeSet::new();
            for (start, length, forget) in steps {
                let at = |n: u32| first.wrapping_add(n);
                let mut fresh = BTreeSet::new();
                set.insert(range(at(start), at(start + length)), 0, |new| {
                    let mut n = new.start;
                    while n != new.end {
                        assert!(
                            fresh.insert(n.since(SequenceNumber(first))),
                            "returned twice"
                        );
                        n = n.wrapping_add(1);
                    }
                });
                let expected: BTreeSet<u32> = (start..start + length)
                    .filter(|n| model.insert(*n))
                    .collect();
                prop_assert_eq!(fresh, expected);
                if forget == 0 {
                    set.remove_before(SequenceNumber(at(start)));
                    model = model.split_off(&start);
                }
                let held: Vec<u32> = set
                    .iter()
                    .flat_map(|span| {
                        let from = span.range.start.since(SequenceNumber(first));
                        from..from + span.range.end.since(span.range.start)
                    })
                    .collect();
                prop_assert_eq!(held, model.iter().copied().collect::<Vec<_>>());
                for n in 0..72 {
                    prop_assert_eq!(
                        set.find(SequenceNumber(at(n))).is_some(),
                        model.contains(&n)
                    );
                }
            }
        }
    }
}
