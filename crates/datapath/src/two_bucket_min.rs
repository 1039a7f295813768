//! Windowed minimum in two buckets: the current one and the one before.
//!
//! The minimum covers one to two buckets. It needs two values, whereas an exact sliding minimum
//! stores a queue of candidates. Three filters of the workspace differ and do not use these types:
//!
//! - The transport's minimum RTT packs its current bucket into four bytes, as its connections are
//!   numerous.
//! - Algorithms that measure a base delay over minutes keep ten buckets (RFC 6817, section 4.2), so
//!   that only a tenth of the history expires at once.
//! - BBR keeps one value with its time. It expires as a whole, and ProbeRTT measures the next one.

use ccplane_units::Duration;

/// Value of a windowed minimum.
pub trait MinSample: Copy {
    /// Returns the lesser of two values.
    fn lesser(self, other: Self) -> Self;
}

impl MinSample for u64 {
    #[inline]
    fn lesser(self, other: u64) -> u64 {
        self.min(other)
    }
}

impl MinSample for f64 {
    #[inline]
    fn lesser(self, other: f64) -> f64 {
        self.min(other)
    }
}

impl MinSample for Duration {
    #[inline]
    fn lesser(self, other: Duration) -> Duration {
        self.min(other)
    }
}

/// Minimum of the current and the previous bucket. The caller decides when a bucket ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoBucketMin<T> {
    /// Minimum of both buckets.
    min: T,
    /// Minimum of the current bucket.
    recent: T,
}

impl<T: MinSample> TwoBucketMin<T> {
    /// Starts the first bucket with `value`.
    #[inline]
    pub fn new(value: T) -> TwoBucketMin<T> {
        TwoBucketMin {
            min: value,
            recent: value,
        }
    }

    /// Adds `value` to the current bucket.
    #[inline]
    pub fn add(&mut self, value: T) {
        self.recent = self.recent.lesser(value);
        self.min = self.min.lesser(value);
    }

    /// Starts a new bucket with `value`. The bucket before the current one expires.
    #[inline]
    pub fn rotate(&mut self, value: T) {
        self.min = self.recent.lesser(value);
        self.recent = value;
    }

    /// Returns the minimum of both buckets.
    #[inline]
    pub fn min(&self) -> T {
        self.min
    }

    /// Returns the minimum of the current bucket.
    #[inline]
    pub fn recent(&self) -> T {
        self.recent
    }
}

/// Minimum over the last half to one window of a clock: a time in ns, or a count of values. The
/// default filter has no value yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfWindowMin<T> {
    buckets: Option<TwoBucketMin<T>>,
    /// End of the current bucket.
    half_end: u64,
}

impl<T> Default for HalfWindowMin<T> {
    fn default() -> HalfWindowMin<T> {
        HalfWindowMin {
            buckets: None,
            half_end: 0,
        }
    }
}

impl<T: MinSample> HalfWindowMin<T> {
    /// Adds a value and returns the minimum. `half` is half of the window, not 0 and the same at
    /// every call. Buckets start with their first value, so the minimum of sparse values may be one
    /// and a half windows old. A value that follows a gap of a whole bucket is the only one in the
    /// window.
    #[inline]
    pub fn update(&mut self, now: u64, half: u64, value: T) -> T {
        debug_assert!(half > 0, "half of a window");
        let expired = now >= self.half_end.saturating_add(half);
        let buckets = match &mut self.buckets {
            Some(buckets) if !expired => {
                if now < self.half_end {
                    buckets.add(value);
                    return buckets.min();
                }
                buckets.rotate(value);
                buckets
            }
            buckets => buckets.insert(TwoBucketMin::new(value)),
        };
        self.half_end = now.saturating_add(half);
        buckets.min()
    }

    /// Returns the minimum, or `None` before the first value.
    #[inline]
    pub fn get(&self) -> Option<T> {
        self.buckets.as_ref().map(TwoBucketMin::min)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_minimum_expires_after_one_to_two_halves() {
        let mut filter = HalfWindowMin::default();
        assert_eq!(filter.get(), None);
        filter.update(0, 5_000, 50);
        for now in (1_000..20_000).step_by(1_000) {
            filter.update(now, 5_000, 80);
            assert_eq!(filter.get() == Some(50), now < 10_000, "at {now}");
        }
        filter.update(50_000, 5_000, 90);
        assert_eq!(filter.get(), Some(90), "a whole window without values");
    }

    #[test]
    fn a_count_is_a_clock() {
        let mut filter = HalfWindowMin::default();
        for n in 1..=97 {
            filter.update(n, 32, if n == 32 { 7 } else { 9 });
            assert_eq!(filter.get() == Some(7), (32..=64).contains(&n), "{n}");
        }
    }

    proptest! {
        #[test]
        fn the_minimum_covers_one_to_three_halves(
            half in 1u64..20,
            values in prop::collection::vec((0u64..6, 0u64..100), 1..200),
        ) {
            let mut filter = HalfWindowMin::default();
            let mut all: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (step, value) in values {
                now += step;
                all.push((now, value));
                filter.update(now, half, value);
                let least_since = |from: u64| {
                    all.iter().filter(|(at, _)| *at >= from).map(|(_, value)| *value).min()
                };
                let min = filter.get();
                prop_assert!(min <= least_since((now + 1).saturating_sub(half)));
                prop_assert!(min >= least_since((now + 1).saturating_sub(3 * half)));
            }
        }
    }
}
