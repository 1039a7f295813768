//! Sent packets by the numbers that the kernel assigns to them for transmit timestamps
//! (`SOF_TIMESTAMPING_OPT_ID`).

use std::collections::VecDeque;

/// Bounded queue of sent packets; when full, the oldest is dropped.
#[derive(Debug)]
pub struct RecentItems<T> {
    items: VecDeque<(u32, T)>,
    capacity: usize,
}

impl<T> RecentItems<T> {
    /// Creates a queue of at most `most` packets.
    pub fn new(most: usize) -> RecentItems<T> {
        RecentItems {
            items: VecDeque::new(),
            capacity: most,
        }
    }

    /// Appends `what` as the kernel's packet `number`. A number that is not larger than the last
    /// one means that the kernel's counter was reset, so all earlier packets are dropped.
    pub fn push(&mut self, number: u32, item: T) {
        if self
            .items
            .back()
            .is_some_and(|(last, _)| number.wrapping_sub(*last) as i32 <= 0)
        {
            self.items.clear();
        }
        if self.items.len() == self.capacity {
            self.items.pop_front();
        }
        self.items.push_back((number, item));
    }

    /// Returns the kernel's packet `number`. Numbers wrap at 2^32.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let first = self.items.front()?.0;
        let place = number.wrapping_sub(first);
        let found = self
            .items
            .binary_search_by_key(&place, |(held, _)| held.wrapping_sub(first));
        self.items.get_mut(found.ok()?).map(|(_, what)| what)
    }

    /// Returns the packet with this key. Keys must ascend with the numbers.
    pub fn find<K: Ord>(&self, key: &K, of: impl Fn(&T) -> K) -> Option<&T> {
        let found = self.items.binary_search_by_key(key, |(_, what)| of(what));
        self.items.get(found.ok()?).map(|(_, what)| what)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}
