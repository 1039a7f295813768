//! Quantities with typed units: [`Time`], [`Duration`], [`Bytes`], [`Packets`], [`Rate`] and
//! [`Probability`]; IP prefixes: [`Prefix`]; plain [statistics](stats); and the
//! [mixer](splitmix) of seeds.
//!
//! `no_std`, without allocation. Times are nanoseconds since an epoch chosen by the driver.
//! Arithmetic on times and durations saturates, so that no input makes a state machine panic. The
//! types parse the usual notation (`96mbit`, `20ms`), and `Display` prints it.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod parse;
mod prefix;
mod print;
pub mod splitmix;
pub mod stats;
#[cfg(test)]
mod tests;

pub use parse::ParseError;
pub use prefix::{Prefix, PrefixError};

use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// Nanoseconds since the driver's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The driver's epoch.
    pub const ZERO: Time = Time(0);
    /// Latest representable time, 584 years after the epoch.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns the time `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Time {
        Time(ns)
    }

    /// Returns the time `us` microseconds after the epoch; saturates.
    pub const fn from_micros(us: u64) -> Time {
        Time(us.saturating_mul(1_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds since the epoch, for output.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Duration since `earlier`; zero if `earlier` is in the future.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(by.0))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, by: Duration) {
        *self = *self + by;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(by.0))
    }
}

/// Duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// Zero duration.
    pub const ZERO: Duration = Duration(0);
    /// Longest representable duration, 584 years.
    pub const MAX: Duration = Duration(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Duration {
        Duration(ns)
    }

    /// `us` microseconds; saturates.
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds; saturates.
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds; saturates.
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Seconds, for output.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Converts to the standard library's type.
    pub const fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.0)
    }

    /// Subtracts `other`; saturates at zero.
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }
}

impl From<core::time::Duration> for Duration {
    fn from(std: core::time::Duration) -> Duration {
        Duration(u64::try_from(std.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    fn mul(self, by: u64) -> Duration {
        Duration(self.0.saturating_mul(by))
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    /// Division by zero returns [`Duration::MAX`].
    fn div(self, by: u64) -> Duration {
        Duration(self.0.checked_div(by).unwrap_or(u64::MAX))
    }
}

/// Amount of data in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// `n` bytes.
    pub const fn new(n: u64) -> Bytes {
        Bytes(n)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    /// Saturates at zero.
    fn sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

/// Number of packets (segments).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packets(u64);

impl Packets {
    /// `n` packets.
    pub const fn new(n: u64) -> Packets {
        Packets(n)
    }

    /// The number of packets.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Data rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

const NANOS_PER_SEC: u128 = 1_000_000_000;

impl Rate {
    /// `n` bytes per second.
    pub const fn from_bytes_per_sec(n: u64) -> Rate {
        Rate(n)
    }

    /// `n` bits per second, rounded down to whole bytes per second.
    pub const fn from_bits_per_sec(n: u64) -> Rate {
        Rate(n / 8)
    }

    /// Bytes per second.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0
    }

    /// Bits per second; saturates.
    pub const fn bits_per_sec(self) -> u64 {
        self.0.saturating_mul(8)
    }

    /// Transmission time of `amount`, rounded down; [`Duration::MAX`] at rate zero. A link that
    /// must not drift has to carry the remainder over itself.
    pub const fn transmission_time(self, amount: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let ns = amount.0 as u128 * NANOS_PER_SEC / self.0 as u128;
        Duration(if ns > u64::MAX as u128 {
            u64::MAX
        } else {
            ns as u64
        })
    }

    /// Rate of `amount` per `time`, rounded down; saturates, also for a zero `time`.
    pub const fn from_bytes_over(amount: Bytes, time: Duration) -> Rate {
        if time.0 == 0 {
            return Rate(u64::MAX);
        }
        let rate = amount.0 as u128 * NANOS_PER_SEC / time.0 as u128;
        Rate(if rate > u64::MAX as u128 {
            u64::MAX
        } else {
            rate as u64
        })
    }

    /// Amount transmitted in `time`, rounded down; saturates. `rate.bytes_in(rtt)` is the BDP.
    pub const fn bytes_in(self, time: Duration) -> Bytes {
        let bytes = self.0 as u128 * time.0 as u128 / NANOS_PER_SEC;
        Bytes(if bytes > u64::MAX as u128 {
            u64::MAX
        } else {
            bytes as u64
        })
    }
}

/// Probability in units of 2^-32: a comparison with a random u32 decides, without floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

impl Probability {
    /// Probability 0.
    pub const NEVER: Probability = Probability(0);
    /// Probability 1.
    pub const ALWAYS: Probability = Probability(1 << 32);

    /// Returns the probability `parts` / 2^32; larger values are clamped to 1.
    pub const fn from_parts(parts: u64) -> Probability {
        Probability(if parts > Self::ALWAYS.0 {
            Self::ALWAYS.0
        } else {
            parts
        })
    }

    /// Probability × 2^32.
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// Returns true with this probability, for a uniformly distributed `random`.
    pub const fn hits(self, random: u32) -> bool {
        (random as u64) < self.0
    }

    /// Value between 0 and 1, for output.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / (1u64 << 32) as f64
    }
}
