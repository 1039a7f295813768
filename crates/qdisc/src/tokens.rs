//! Token bucket. It fills at a rate up to a burst size, and a packet takes as many tokens as it has
//! bytes.

use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::line::{NANOBYTES_PER_BYTE, RATE_MAX};

/// Token bucket, initially full.
#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    /// Bytes per second.
    rate: u64,
    /// Nanobytes.
    burst: u128,
    /// Tokens at the time `refilled_at`, nanobytes.
    level: u128,
    refilled_at: Time,
}

impl Tokens {
    pub fn new(rate: Rate, burst: Bytes) -> Tokens {
        let burst = u128::from(burst.get()) * u128::from(NANOBYTES_PER_BYTE);
        Tokens {
            rate: rate.bytes_per_sec().clamp(1, RATE_MAX),
            burst,
            level: burst,
            refilled_at: Time::ZERO,
        }
    }

    /// Changes the rate from `now` on and keeps the tokens, so that a change neither grants nor
    /// removes a burst.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.refill(now);
        self.rate = rate.bytes_per_sec().clamp(1, RATE_MAX);
    }

    /// Returns true if the bucket can ever hold that many tokens.
    pub fn can_hold(&self, bytes: u32) -> bool {
        cost(bytes) <= self.burst
    }

    /// Takes the tokens if there are enough.
    pub fn try_take(&mut self, now: Time, bytes: u32) -> bool {
        self.refill(now);
        let there = cost(bytes) <= self.level;
        if there {
            self.level -= cost(bytes);
        }
        there
    }

    /// Returns the time at which there will be enough tokens, if none are taken before.
    pub fn ready_at(&self, bytes: u32) -> Time {
        let missing = cost(bytes)
            .saturating_sub(self.level)
            .div_ceil(u128::from(self.rate));
        self.refilled_at + Duration::from_nanos(u64::try_from(missing).unwrap_or(u64::MAX))
    }

    fn refill(&mut self, now: Time) {
        let more = u128::from(now.since(self.refilled_at).as_nanos()) * u128::from(self.rate);
        self.level = self.burst.min(self.level + more);
        self.refilled_at = self.refilled_at.max(now);
    }
}

fn cost(bytes: u32) -> u128 {
    u128::from(bytes) * u128::from(NANOBYTES_PER_BYTE)
}
