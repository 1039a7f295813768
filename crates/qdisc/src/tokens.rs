//! A bucket of tokens: it fills at a rate, up to a burst, and what leaves takes as many as it has
//! bytes.

use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::line::{FASTEST, NANO};

/// The bucket, full at first.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// Bytes per second.
    rate: u64,
    /// Nanobytes.
    burst: u128,
    /// Nanobytes, at `filled`.
    level: u128,
    filled: Time,
}

impl Tokens {
    pub fn new(rate: Rate, burst: Bytes) -> Tokens {
        let burst = u128::from(burst.get()) * u128::from(NANO);
        Tokens {
            rate: rate.bytes_per_sec().clamp(1, FASTEST),
            burst,
            level: burst,
            filled: Time::ZERO,
        }
    }

    /// Changes the rate from `now` on. Tokens stay: a change neither grants nor takes a burst.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.fill(now);
        self.rate = rate.bytes_per_sec().clamp(1, FASTEST);
    }

    /// Whether there are ever as many.
    pub fn ever(&self, bytes: u32) -> bool {
        cost(bytes) <= self.burst
    }

    /// Takes as many, if there are.
    pub fn take(&mut self, now: Time, bytes: u32) -> bool {
        self.fill(now);
        let there = cost(bytes) <= self.level;
        if there {
            self.level -= cost(bytes);
        }
        there
    }

    /// When there are as many, unless others take some before.
    pub fn ready(&self, bytes: u32) -> Time {
        let missing = cost(bytes)
            .saturating_sub(self.level)
            .div_ceil(u128::from(self.rate));
        self.filled + Duration::from_nanos(u64::try_from(missing).unwrap_or(u64::MAX))
    }

    fn fill(&mut self, now: Time) {
        let more = u128::from(now.since(self.filled).as_nanos()) * u128::from(self.rate);
        self.level = self.burst.min(self.level + more);
        self.filled = self.filled.max(now);
    }
}

fn cost(bytes: u32) -> u128 {
    u128::from(bytes) * u128::from(NANO)
}
