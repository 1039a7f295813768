//! Seeds of runs: one, or a range.

use std::fmt;
use std::str::FromStr;

/// Range of seeds, one run each: `7`, or `1..50`, which includes both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// Creates a range of one seed.
    pub fn one(seed: u64) -> Seeds {
        Seeds {
            first: seed,
            last: seed,
        }
    }

    /// Creates a range of `count` seeds, at least one, from the first.
    pub fn consecutive(first: u64, count: u64) -> Seeds {
        Seeds {
            first,
            last: first.saturating_add(count.max(1) - 1),
        }
    }

    /// Returns all seeds in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        self.first..=self.last
    }

    /// Returns the number of seeds.
    pub fn count(self) -> u64 {
        self.last - self.first + 1
    }

    /// Returns the first seed.
    pub fn first(self) -> u64 {
        self.first
    }
}

/// Error for a text that is not a valid range of seeds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a valid set of seeds; write one seed (`7`) or a range (`1..50`), at most \
     {SEEDS_MAX} seeds"
)]
pub struct BadSeeds(String);

/// Maximum number of seeds. The results of every seed are kept, and no confidence interval needs a
/// million.
const SEEDS_MAX: u64 = 1_000_000;

impl FromStr for Seeds {
    type Err = BadSeeds;

    fn from_str(text: &str) -> Result<Seeds, BadSeeds> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u64>().ok();
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last && last - first < SEEDS_MAX => {
                Ok(Seeds { first, last })
            }
            _ => Err(BadSeeds(text.escape_debug().take(40).collect())),
        }
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}..{}", self.first, self.last)
        }
    }
}
