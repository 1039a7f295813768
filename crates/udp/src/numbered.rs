//! What was handed to the kernel, by the numbers under which it tells when each of them left
//! (`SOF_TIMESTAMPING_OPT_ID`).

use std::collections::VecDeque;

/// What was handed over last, so many at most: of more the oldest are forgotten.
#[derive(Debug)]
pub struct Numbered<T> {
    held: VecDeque<(u32, T)>,
    most: usize,
}

impl<T> Numbered<T> {
    /// Of at most so many.
    pub fn new(most: usize) -> Numbered<T> {
        Numbered {
            held: VecDeque::new(),
            most,
        }
    }

    /// The kernel counted `what` as `number`, later than all before. A number that is not larger is
    /// of a kernel that counts anew: what was before is forgotten.
    pub fn sent(&mut self, number: u32, what: T) {
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

    /// What the kernel counted as `number`. Numbers go round at 2^32.
    pub fn of(&mut self, number: u32) -> Option<&mut T> {
        let first = self.held.front()?.0;
        let place = number.wrapping_sub(first);
        let found = self
            .held
            .binary_search_by_key(&place, |(held, _)| held.wrapping_sub(first));
        self.held.get_mut(found.ok()?).map(|(_, what)| what)
    }

    /// By something else that ascends with the numbers.
    pub fn find<K: Ord>(&self, key: &K, of: impl Fn(&T) -> K) -> Option<&T> {
        let found = self.held.binary_search_by_key(key, |(_, what)| of(what));
        self.held.get(found.ok()?).map(|(_, what)| what)
    }

    /// How many are held.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
