//! Sent packets by the numbers that the kernel assigns to them for transmit timestamps
//! (`SOF_TIMESTAMPING_OPT_ID`).

use std::collections::VecDeque;

/// Bounded queue of sent packets; when full, the oldest is dropped.
#[derive(Debug)]
pub struct RecentItems<T> {
    held: VecDeque<(u32, T)>,
    most: usize,
}

impl<T> RecentItems<T> {
    /// Creates a queue of at most `most` packets.
    pub fn new(most: usize) -> RecentItems<T> {
        RecentItems {
            held: VecDeque::new(),
            most,
        }
    }

    /// Appends `what` as the kernel's packet `number`. A number that is not larger than the last
    /// one means that the kernel's counter was reset, so all earlier packets are dropped.
    pub fn push(&mut self, number: u32, what: T) {
        if self
            .held
            .back()
            .is_some_and(|(last, _)| number.wrapping_sub(*last) as i32 <= 0)
        {
            self.held.clear();
        }
        if self.held.len() == self.most {
            self.held.pop_front();
        }
        self.held.push_back((number, what));
    }

    /// Returns the kernel's packet `number`. Numbers wrap at 2^32.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let first = self.held.front()?.0;
        let place = number.wrapping_sub(first);
        let found = self
            .held
            .binary_search_by_key(&place, |(held, _)| held.wrapping_sub(first));
        self.held.get_mut(found.ok()?).map(|(_, what)| what)
    }

    /// Returns the packet with this key. Keys must ascend with the numbers.
    pub fn find<K: Ord>(&self, key: &K, of: impl Fn(&T) -> K) -> Option<&T> {
        let found = self.held.binary_search_by_key(key, |(_, what)| of(what));
        self.held.get(found.ok()?).map(|(_, what)| what)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
