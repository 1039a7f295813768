//! Replay protection by packet number.

/// Size of the replay window in packets, one bit each. Packets reordered by more than this count as
/// lost. 4096 packets are 5 ms at 10 Gbit/s.
pub(super) const WINDOW_PACKETS: u64 = 4096;
const WINDOW_WORDS: usize = (WINDOW_PACKETS / 64) as usize;

/// Sliding window over packet numbers, as in RFC 4303, section 3.4.3.
#[derive(Clone, Debug)]
pub struct Replay {
    /// One more than the highest number seen; 0 before the first.
    next: u64,
    seen: [u64; WINDOW_WORDS],
}

impl Replay {
    /// Creates an empty window.
    pub const fn new() -> Replay {
        Replay {
            next: 0,
            seen: [0; WINDOW_WORDS],
        }
    }

    /// Returns one more than the highest number seen.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// Returns true if `number` is neither a duplicate nor older than the window.
    pub fn is_fresh(&self, number: u64) -> bool {
        if number >= self.next {
            return number != u64::MAX;
        }
        self.next - number <= WINDOW_PACKETS && self.seen[word(number)] & bit(number) == 0
    }

    /// Marks `number` as seen. Only for authenticated packets: a forged number would advance the
    /// window.
    pub fn insert(&mut self, number: u64) {
        if number >= self.next {
            // These bits belong to numbers that have left the window.
            let skipped = (number - self.next).min(WINDOW_PACKETS);
            for n in number - skipped..number {
                self.seen[word(n)] &= !bit(n);
            }
            self.next = number.saturating_add(1);
        }
        self.seen[word(number)] |= bit(number);
    }
}

impl Default for Replay {
    fn default() -> Replay {
        Replay::new()
    }
}

fn word(number: u64) -> usize {
    (number / 64) as usize % WINDOW_WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_number_of_all_is_never_fresh() {
        assert!(!Replay::new().is_fresh(u64::MAX));
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(
            start in any::<u64>(),
            steps in prop::collection::vec((0u64..10_000, 0u64..9_000), 1..400),
        ) {
            let (mut replay, mut model, mut highest) =
                (Replay::new(), BTreeSet::new(), None::<u64>);
            let mut base = start.min(u64::MAX / 2);
            for (ahead, behind) in steps {
                base += ahead;
                let number = base.saturating_sub(behind);
                let old = highest.is_some_and(|h| number < h && h + 1 - number > WINDOW_PACKETS);
                let fresh = !old && !model.contains(&number);
                prop_assert_eq!(replay.is_fresh(number), fresh);
                if fresh {
                    replay.insert(number);
                    model.insert(number);
                    highest = highest.max(Some(number));
                }
            }
        }
    }
}
