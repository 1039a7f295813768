//! Queue of lost segments, in the order of their numbers.
//!
//! The receiver delivers in order, so the first missing segment blocks everything behind it. A
//! retransmission that was lost again is usually that segment, and must not wait for the repair of
//! later ones.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use crate::number::SequenceNumber;

/// Priority queue of segment numbers, lowest first.
///
/// RACK and timeouts mark segments in ascending order, so nearly every push appends to `ascending`.
/// A lost retransmission precedes segments that are already queued and goes into `earlier`, at
/// logarithmic cost. Entries stay when a segment is delivered after all: the caller skips them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostQueue {
    ascending: VecDeque<SequenceNumber>,
    earlier: BinaryHeap<LowestFirst>,
}

/// Ordering of the `BinaryHeap` by the lowest number. All numbers in the queue lie within 2^31 of
/// each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LowestFirst(SequenceNumber);

impl Ord for LowestFirst {
    fn cmp(&self, other: &LowestFirst) -> Ordering {
        if self.0 == other.0 {
            Ordering::Equal
        } else if self.0.is_before(other.0) {
            Ordering::Greater
        } else {
            Ordering::Less
        }
    }
}

impl PartialOrd for LowestFirst {
    fn partial_cmp(&self, other: &LowestFirst) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl LostQueue {
    pub fn push(&mut self, number: SequenceNumber) {
        match self.ascending.back() {
            Some(last) if number.is_before(*last) => self.earlier.push(LowestFirst(number)),
            _ => self.ascending.push_back(number),
        }
    }

    /// Removes and returns the lowest number.
    pub fn pop(&mut self) -> Option<SequenceNumber> {
        let earlier = self.earlier.peek().map(|entry| entry.0);
        match (self.ascending.front(), earlier) {
            (Some(first), Some(earlier)) if first.is_before(earlier) => self.ascending.pop_front(),
            (_, Some(_)) => self.earlier.pop().map(|entry| entry.0),
            (_, None) => self.ascending.pop_front(),
        }
    }

    /// Removes all numbers and returns them in arbitrary order.
    pub fn drain(&mut self) -> impl Iterator<Item = SequenceNumber> {
        self.ascending
            .drain(..)
            .chain(self.earlier.drain().map(|entry| entry.0))
    }

    pub fn clear(&mut self) {
        self.ascending.clear();
        self.earlier.clear();
    }

    pub fn len(&self) -> usize {
        self.ascending.len() + self.earlier.len()
    }

    pub fn heap_bytes(&self) -> usize {
        (self.ascending.capacity() + self.earlier.capacity()) * size_of::<SequenceNumber>()
    }
}
