//! Totals over connections: `bpf/totals.h` in Rust.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use ccplane_units::{Bytes, Duration, Rate};

use crate::map::layout::{CpuTotals, PlaneLayout};

/// `CCP_BUCKETS`: buckets of a histogram.
pub const BUCKET_COUNT: usize = 20;
/// `CCP_RTT_BASE`: RTT histograms, in µs, start at 64 µs.
pub const RTT_BASE: u32 = 6;
/// `CCP_RATE_BASE`: delivery rate histograms, in bytes/s, start at 16 KiB/s.
pub const RATE_BASE: u32 = 14;
/// Histograms of callback times, in ns, start at 1.024 µs.
pub const CALLBACK_TIME_BASE: u32 = 10;

/// A histogram with power-of-two buckets. Bucket `i` counts values up to 2^(base + i); the last one
/// counts all larger values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Values per bucket.
    pub counts: [u64; BUCKET_COUNT],
    /// Sum of all values.
    pub sum: u64,
}

impl Histogram {
    /// Counts a value. `base` must be the same for all values of a histogram.
    pub fn add(&mut self, base: u32, value: u64) {
        self.counts[Histogram::bucket(base, value)] += 1;
        self.sum = self.sum.wrapping_add(value);
    }

    /// Returns the bucket index of a value.
    pub fn bucket(base: u32, value: u64) -> usize {
        let above = value
            .saturating_sub(1)
            .checked_ilog2()
            .map_or(0, |log| log + 1);
        (above.saturating_sub(base) as usize).min(BUCKET_COUNT - 1)
    }

    /// Returns the upper bound of each bucket except the last.
    pub fn bounds(base: u32) -> impl Iterator<Item = u64> {
        (0..BUCKET_COUNT as u32 - 1).map(move |bucket| 1 << (base + bucket))
    }

    /// Returns the sum of both histograms.
    #[must_use]
    pub fn merged(&self, other: &Histogram) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|i| self.counts[i] + other.counts[i]),
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

/// Totals over connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTotals {
    /// Bytes acknowledged.
    pub acked: u64,
    /// Retransmitted packets.
    pub retransmits: u64,
    /// Packets marked lost.
    pub lost: u64,
    /// Smoothed RTTs in µs, base [`RTT_BASE`], one per sample of a connection.
    pub rtt: Histogram,
    /// Delivery rates in bytes/s, base [`RATE_BASE`], one per sample of a connection.
    pub rate: Histogram,
}

impl ConnectionTotals {
    /// Adds a sample of a connection; 0 means not measured.
    pub fn add_sample(&mut self, rtt: Duration, rate: Rate) {
        if rtt.as_micros() > 0 {
            self.rtt.add(RTT_BASE, rtt.as_micros());
        }
        if rate.bytes_per_sec() > 0 {
            self.rate.add(RATE_BASE, rate.bytes_per_sec());
        }
    }

    /// Adds the counters of a connection.
    pub fn add_counters(&mut self, acked: Bytes, retransmits: u64, lost: u64) {
        self.acked += acked.get();
        self.retransmits += retransmits;
        self.lost += lost;
    }

    /// Returns the sum of both totals.
    #[must_use]
    pub fn merged(&self, other: &ConnectionTotals) -> ConnectionTotals {
        ConnectionTotals {
            acked: self.acked + other.acked,
            retransmits: self.retransmits + other.retransmits,
            lost: self.lost + other.lost,
            rtt: self.rtt.merged(&other.rtt),
            rate: self.rate.merged(&other.rate),
        }
    }

    /// Reads the words of a `struct ccp_totals`; missing words are 0.
    pub(crate) fn from_words(words: impl Iterator<Item = u64>) -> ConnectionTotals {
        let mut words = words;
        let mut next = || words.next().unwrap_or(0);
        let (acked, retransmits, lost, rtt_sum, rate_sum) =
            (next(), next(), next(), next(), next());
        let mut histogram = |sum| Histogram {
            counts: std::array::from_fn(|_| next()),
            sum,
        };
        ConnectionTotals {
            acked,
            retransmits,
            lost,
            rtt: histogram(rtt_sum),
            rate: histogram(rate_sum),
        }
    }
}

/// Returns the totals of a plane's ended flows over all CPUs.
pub(crate) fn ended_totals(plane: &PlaneLayout) -> ConnectionTotals {
    plane
        .ended
        .iter()
        .fold(ConnectionTotals::default(), |sum, cpu| {
            sum.merged(&read(cpu))
        })
}

fn read(cpu: &CpuTotals) -> ConnectionTotals {
    let load = |word: &AtomicU64| word.load(Relaxed);
    let histogram = |counts: &[AtomicU64; BUCKET_COUNT], sum: &AtomicU64| Histogram {
        counts: std::array::from_fn(|i| load(&counts[i])),
        sum: load(sum),
    };
    ConnectionTotals {
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
        for (bucket, bound) in Histogram::bounds(RTT_BASE).enumerate() {
            assert_eq!(Histogram::bucket(RTT_BASE, bound), bucket, "{bound}");
            assert_eq!(
                Histogram::bucket(RTT_BASE, bound + 1),
                bucket + 1,
                "{bound}"
            );
        }
        assert_eq!(Histogram::bucket(RTT_BASE, 0), 0);
        assert_eq!(Histogram::bucket(RTT_BASE, u64::MAX), BUCKET_COUNT - 1);
        assert_eq!(Histogram::bounds(RTT_BASE).count(), BUCKET_COUNT - 1);
    }

    #[test]
    fn words_are_read_in_their_order() {
        let totals = ConnectionTotals::from_words(1..);
        assert_eq!((totals.acked, totals.retransmits, totals.lost), (1, 2, 3));
        assert_eq!((totals.rtt.sum, totals.rate.sum), (4, 5));
        assert_eq!((totals.rtt.counts[0], totals.rtt.counts[19]), (6, 25));
        assert_eq!(totals.rate.counts[0], 26);
    }
}
