//! Finds the longest of many queues in logarithmic time.
//!
//! This is a tournament tree (Knuth, The Art of Computer Programming 3, section 5.2.3): each inner
//! node stores the winner of its two children. A changed queue replays the matches from its leaf to
//! the root, but only when the longest queue is asked for, so that a queue that never fills up pays
//! only for recording the change.

/// Maximum number of recorded changes. Beyond it the whole tree is replayed, which costs about as
/// much as some tens of changes.
const RECORDED_CHANGES_MAX: usize = 64;

/// Tournament tree over the queues 0, 1, 2, …
#[derive(Clone, Debug, Default)]
pub(crate) struct LongestQueueTree {
    /// Winner of each inner node, with the root at 1. The length is the number of leaves, a power
    /// of two.
    winners: Vec<u32>,
    /// Queues whose matches have to be replayed; `all` replaces the list when it is full.
    changed: Vec<u32>,
    all_changed: bool,
}

impl LongestQueueTree {
    /// Records that a queue was added or that its key changed.
    #[inline]
    pub fn mark_changed(&mut self, queue: usize) {
        if self.changed.len() < RECORDED_CHANGES_MAX {
            self.changed.push(queue as u32);
        } else {
            self.all_changed = true;
        }
    }

    /// Returns the queue with the greatest key among `count` queues. Keys must be distinct, and
    /// must not change between calls except for queues passed to
    /// [`changes`](LongestQueueTree::changes).
    pub fn find_longest<K: Ord>(&mut self, count: usize, key: impl Fn(usize) -> K) -> usize {
        let leaves = count.next_power_of_two();
        if self.winners.len() != leaves {
            self.winners.resize(leaves, 0);
            self.all_changed = true;
        }
        if self.all_changed {
            (1..leaves)
                .rev()
                .for_each(|node| self.replay_match(node, count, &key));
        } else {
            for at in 0..self.changed.len() {
                let mut node = (leaves + self.changed[at] as usize) / 2;
                while node > 0 {
                    self.replay_match(node, count, &key);
                    node /= 2;
                }
            }
        }
        self.changed.clear();
        self.all_changed = false;
        self.winners.get(1).map_or(0, |winner| *winner as usize)
    }

    /// Replays the match of an inner node.
    #[inline]
    fn replay_match<K: Ord>(&mut self, node: usize, count: usize, key: &impl Fn(usize) -> K) {
        let leaves = self.winners.len();
        let of = |below: usize| match below.checked_sub(leaves) {
            Some(leaf) => leaf,
            None => self.winners[below] as usize,
        };
        let (left, right) = (of(2 * node), of(2 * node + 1));
        // Leaves beyond the last queue never win, except against each other: the left child is
        // valid wherever the match matters.
        let right_wins = right < count && key(right) > key(left);
        self.winners[node] = if right_wins { right } else { left } as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_greatest_whatever_changed(
            changes in proptest::collection::vec((0_usize..200, 0_u32..50, any::<bool>()), 1..600),
        ) {
            let mut keys: Vec<u32> = Vec::new();
            let mut longest = LongestQueueTree::default();
            for (queue, key, ask) in changes {
                let queue = queue.min(keys.len());
                if queue == keys.len() {
                    keys.push(key);
                } else {
                    keys[queue] = key;
                }
                longest.mark_changed(queue);
                if ask {
                    let expected = (0..keys.len()).max_by_key(|&queue| (keys[queue], queue));
                    prop_assert_eq!(
                        Some(longest.find_longest(keys.len(), |queue| (keys[queue], queue))),
                        expected
                    );
                }
            }
        }
    }
}
