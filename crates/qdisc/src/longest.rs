//! Which of many queues is the longest, told again in steps of the logarithm of how many there are.
//!
//! A knockout tournament (Knuth, The Art of Computer Programming 3, section 5.2.3): each inner node
//! of a binary tree has the winner of the two below it. Who changed plays its matches again, from
//! its leaf up. That is put off until somebody asks: a queue that never is full pays for a note
//! only.

/// So many changes at most are noted by name. After more everybody plays again, which takes as long
/// as some tens of them.
const NOTED: usize = 64;

/// The tournament of the queues 0, 1, 2, …
#[derive(Clone, Debug, Default)]
pub(crate) struct Longest {
    /// The winner of each inner node, the root at 1; as many as there are leaves, a power of two.
    winners: Vec<u32>,
    /// Whose matches have to be played again; where they are too many, all.
    changed: Vec<u32>,
    all: bool,
}

impl Longest {
    /// A queue is longer or shorter than it was, has another turn, or is new.
    #[inline]
    pub fn changes(&mut self, queue: usize) {
        if self.changed.len() < NOTED {
            self.changed.push(queue as u32);
        } else {
            self.all = true;
        }
    }

    /// The one of `count` queues whose `key` is the greatest. Keys are those of the last call but
    /// where [`changes`](Longest::changes) said otherwise, and none is the same as another's.
    pub fn of<K: Ord>(&mut self, count: usize, key: impl Fn(usize) -> K) -> usize {
        let leaves = count.next_power_of_two();
        if self.winners.len() != leaves {
            self.winners.resize(leaves, 0);
            self.all = true;
        }
        if self.all {
            (1..leaves)
                .rev()
                .for_each(|node| self.play(node, count, &key));
        } else {
            for at in 0..self.changed.len() {
                let mut node = (leaves + self.changed[at] as usize) / 2;
                while node > 0 {
                    self.play(node, count, &key);
                    node /= 2;
                }
            }
        }
        self.changed.clear();
        self.all = false;
        self.winners.get(1).map_or(0, |winner| *winner as usize)
    }

    /// The match at an inner node.
    #[inline]
    fn play<K: Ord>(&mut self, node: usize, count: usize, key: &impl Fn(usize) -> K) {
        let leaves = self.winners.len();
        let of = |below: usize| match below.checked_sub(leaves) {
            Some(leaf) => leaf,
            None => self.winners[below] as usize,
        };
        let (left, right) = (of(2 * node), of(2 * node + 1));
        // A leaf beyond the last has nobody, and its winner may be anybody: to the left there is
        // somebody.
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
        fn it_is_the_greatest_whatever_changed(changes in proptest::collection::vec((0_usize..200, 0_u32..50, any::<bool>()), 1..600)) {
            let mut keys: Vec<u32> = Vec::new();
            let mut longest = Longest::default();
            for (queue, key, ask) in changes {
                let queue = queue.min(keys.len());
                if queue == keys.len() {
                    keys.push(key);
                } else {
                    keys[queue] = key;
                }
                longest.changes(queue);
                if ask {
                    let expected = (0..keys.len()).max_by_key(|&queue| (keys[queue], queue));
                    prop_assert_eq!(Some(longest.of(keys.len(), |queue| (keys[queue], queue))), expected);
                }
            }
        }
    }
}
