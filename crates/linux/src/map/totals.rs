//! What connections did in sum: `bpf/totals.h` in Rust.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ccplane_units::{Bytes, Duration, Rate};

use crate::map::layout::{CpuTotals, Plane};

/// Buckets of a histogram. `CCP_BUCKETS`.
pub const BUCKETS: usize = 20;
/// Histograms of RTTs, in µs, begin at 64 µs. `CCP_RTT_BASE`.
pub const RTTS: u32 = 6;
/// Histograms of delivery rates, in bytes/s, begin at 16 KiB/s. `CCP_RATE_BASE`.
pub const RATES: u32 = 14;
/// Histograms of the time that callbacks take, in ns, begin at 1.024 µs.
pub const TIMES: u32 = 10;

/// Counts by size. Bucket `i` holds what is at most 2^(base + i), the last one the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many are in each.
    pub counts: [u64; BUCKETS],
    /// The sum of what was counted.
    pub sum: u64,
}

impl Histogram {
    /// Counts a value. `base` is that of all values of this histogram.
    pub fn add(&mut self, base: u32, value: u64) {
        self.counts[Histogram::bucket(base, value)] += 1;
        self.sum = self.sum.wrapping_add(value);
    }

    /// The bucket of a value.
    pub fn bucket(base: u32, value: u64) -> usize {
        let above = value
            .saturating_sub(1)
            .checked_ilog2()
            .map_or(0, |log| log + 1);
        (above.saturating_sub(base) as usize).min(BUCKETS - 1)
    }

    /// The largest value of each bucket but the last.
    pub fn bounds(base: u32) -> impl Iterator<Item = u64> {
        (0..BUCKETS as u32 - 1).map(move |bucket| 1 << (base + bucket))
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Histogram) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|i| self.counts[i] + other.counts[i]),
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

/// What connections did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes acknowledged.
    pub acked: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Packets marked lost.
    pub lost: u64,
    /// Smoothed RTTs, µs, from [`RTTS`] on: one at each look at a connection.
    pub rtt: Histogram,
    /// Delivery rates, bytes/s, from [`RATES`] on, likewise.
    pub rate: Histogram,
}

impl Totals {
    /// One look at a connection; what is 0 was not measured.
    pub fn sample(&mut self, rtt: Duration, rate: Rate) {
        if rtt.as_micros() > 0 {
            self.rtt.add(RTTS, rtt.as_micros());
        }
        if rate.bytes_per_sec() > 0 {
            self.rate.add(RATES, rate.bytes_per_sec());
        }
    }

    /// Adds counts of a connection.
    pub fn count(&mut self, acked: Bytes, retransmits: u64, lost: u64) {
        self.acked += acked.get();
        self.retransmits += retransmits;
        self.lost += lost;
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Totals) -> Totals {
        Totals {
            acked: self.acked + other.acked,
            retransmits: self.retransmits + other.retransmits,
            lost: self.lost + other.lost,
            rtt: self.rtt.with(&other.rtt),
            rate: self.rate.with(&other.rate),
        }
    }

    /// As the words of a `struct ccp_totals` say; words that are missing are 0.
    pub(crate) fn from_words(words: impl Iterator<Item = u64>) -> Totals {
        let mut words = words;
        let mut next = || words.next().unwrap_or(0);
        let (acked, retransmits, lost, rtt_sum, rate_sum) =
            (next(), next(), next(), next(), next());
        let mut histogram = |sum| Histogram {
            counts: std::array::from_fn(|_| next()),
            sum,
        };
        Totals {
            acked,
            retransmits,
            lost,
            rtt: histogram(rtt_sum),
            rate: histogram(rate_sum),
        }
    }
}

/// What flows of a plane did that ended, all CPUs together.
pub(crate) fn of(plane: &Plane) -> Totals {
    plane
        .ended
        .iter()
        .fold(Totals::default(), |sum, cpu| sum.with(&read(cpu)))
}

fn read(cpu: &CpuTotals) -> Totals {
    let load = |word: &AtomicU64| word.load(Relaxed);
    let histogram = |counts: &[AtomicU64; BUCKETS], sum: &AtomicU64| Histogram {
        counts: std::array::from_fn(|i| load(&counts[i])),
        sum: load(sum),
    };
    Totals {
        acked: load(&cpu.acked),
        retransmits: load(&cpu.retransmits),
        lost: load(&cpu.lost),
        rtt: histogram(&cpu.rtt, &cpu.rtt_sum),
        rate: histogram(&cpu.rate, &cpu.rate_sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_at_most_its_bound() {
        for (bucket, bound) in Histogram::bounds(RTTS).enumerate() {
            assert_eq!(Histogram::bucket(RTTS, bound), bucket, "{bound}");
            assert_eq!(Histogram::bucket(RTTS, bound + 1), bucket + 1, "{bound}");
        }
        assert_eq!(Histogram::bucket(RTTS, 0), 0);
        assert_eq!(Histogram::bucket(RTTS, u64::MAX), BUCKETS - 1);
        assert_eq!(Histogram::bounds(RTTS).count(), BUCKETS - 1);
    }

    #[test]
    fn words_are_read_in_their_order() {
        let totals = Totals::from_words(1..);
        assert_eq!((totals.acked, totals.retransmits, totals.lost), (1, 2, 3));
        assert_eq!((totals.rtt.sum, totals.rate.sum), (4, 5));
        assert_eq!((totals.rtt.counts[0], totals.rtt.counts[19]), (6, 25));
        assert_eq!(totals.rate.counts[0], 26);
    }
}
