//! Metrics of a run's raw records: bins, distributions, distances, fairness. All are pure functions
//! of numbers.
//!
//! Times are nanoseconds since the start of the run; the caller chooses the units of values.
//! Nothing here is random or reads a clock, so the same records give the same metrics on every
//! machine.

use ccplane_units::{Duration, Rate, stats};

/// Returns the bytes in each bin of `width_ns` of `[0, until_ns)`. An incomplete last bin is
/// dropped, since it would show as a dip. Events outside of the range are ignored.
pub fn bin_bytes(
    events: impl IntoIterator<Item = (u64, u64)>,
    width_ns: u64,
    until_ns: u64,
) -> Vec<u64> {
    let mut bins = vec![0; count_bins(width_ns, until_ns)];
    for (at, bytes) in events {
        if let Some(bin) = bins.get_mut(bin_of(at, width_ns)) {
            *bin += bytes;
        }
    }
    bins
}

/// Returns the mean of the values in each bin; `None` for an empty bin.
pub fn bin_means(
    events: impl IntoIterator<Item = (u64, f64)>,
    width_ns: u64,
    until_ns: u64,
) -> Vec<Option<f64>> {
    let mut bins = vec![(0.0, 0u64); count_bins(width_ns, until_ns)];
    for (at, value) in events {
        if let Some((sum, n)) = bins.get_mut(bin_of(at, width_ns)) {
            *sum += value;
            *n += 1;
        }
    }
    bins.into_iter()
        .map(|(sum, n)| (n > 0).then(|| sum / n as f64))
        .collect()
}

fn count_bins(width_ns: u64, until_ns: u64) -> usize {
    until_ns
        .checked_div(width_ns)
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(0)
}

fn bin_of(at_ns: u64, width_ns: u64) -> usize {
    at_ns
        .checked_div(width_ns)
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(usize::MAX)
}

/// Converts bytes per bin to Mbit/s.
pub fn mbits(bytes: u64, width_ns: u64) -> f64 {
    if width_ns == 0 {
        0.0
    } else {
        bytes as f64 * 8_000.0 / width_ns as f64
    }
}

/// Centred moving average over `2 * reach + 1` values, with fewer at both ends; for charts only.
pub fn smooth(values: &[f64], reach: usize) -> Vec<f64> {
    (0..values.len())
        .map(|i| {
            let window = &values[i.saturating_sub(reach)..values.len().min(i + reach + 1)];
            stats::mean(window.iter().copied()).unwrap_or(0.0)
        })
        .collect()
}

/// Empirical distribution: finite values, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution(Vec<f64>);

impl Distribution {
    /// Creates a distribution of the finite values.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Distribution {
        let mut values: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        stats::sort_floats(&mut values);
        Distribution(values)
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values in ascending order.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Returns the arithmetic mean.
    pub fn mean(&self) -> Option<f64> {
        stats::mean(self.0.iter().copied())
    }

    /// Returns the `p`-quantile by [nearest rank](stats::nearest_rank).
    pub fn quantile(&self, p: f64) -> Option<f64> {
        stats::nearest_rank(&self.0, p)
    }

    /// Returns the median; of an even number of values, the mean of the middle two.
    pub fn median(&self) -> Option<f64> {
        stats::median(&self.0)
    }

    /// Returns the Kolmogorov-Smirnov distance: the largest vertical gap between the two empirical
    /// distribution functions, 0 (equal) to 1 (disjoint). `None` if either is empty.
    ///
    /// It is a distance only. Consecutive bins of one flow are not independent, so it gives no
    /// p-value.
    pub fn ks(&self, other: &Distribution) -> Option<f64> {
        if self.is_empty() || other.is_empty() {
            return None;
        }
        let (a, b) = (&self.0, &other.0);
        let (mut i, mut j, mut gap) = (0, 0, 0.0_f64);
        while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
            // Both functions step over a tie before they are compared, so only flat parts count.
            let at = x.min(*y);
            i += a
                .get(i..)
                .map_or(0, |rest| rest.partition_point(|v| *v <= at));
            j += b
                .get(j..)
                .map_or(0, |rest| rest.partition_point(|v| *v <= at));
            gap = gap.max((i as f64 / a.len() as f64 - j as f64 / b.len() as f64).abs());
        }
        Some(gap)
    }
}

/// Returns Jain's fairness index of the flows' shares (Jain, Chiu, Hawe 1984): 1 if equal, 1/n if
/// one flow has everything. `None` for fewer than two flows, or if all shares are zero.
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (shares.len() > 1 && squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

/// Returns the longest interval between two increases of a flow's received bytes, ns: the longest
/// stall of in-order delivery. `samples` are times and cumulative bytes, in order. Time before the
/// first byte and after the last one does not count.
pub fn longest_stall(samples: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let (mut longest, mut received, mut progress) = (0, 0, None);
    for (at, bytes) in samples {
        if bytes > received {
            longest = longest.max(progress.map_or(0, |last| at - last));
            (received, progress) = (bytes, Some(at));
        }
    }
    longest
}

/// Returns the completion time of a flow on an idle path, ns: its bytes at the path's lowest rate,
/// and one RTT (Bundler, EuroSys 2021, section 7.1).
pub fn alone_ns(rtt: Duration, rate: Option<Rate>, bytes: u64) -> u64 {
    let sending = rate.map_or(0, |rate| {
        u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_sec().max(1))
    });
    rtt.as_nanos()
        .saturating_add(u64::try_from(sending).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_count_what_fell_into_them() {
        let events = [(0, 10), (19, 5), (20, 1), (59, 2), (60, 100), (65, 100)];
        assert_eq!(bin_bytes(events, 20, 65), [15, 1, 2]);
        assert_eq!(bin_bytes(events, 0, 65), [] as [u64; 0]);
        assert_eq!(
            bin_means([(1, 2.0), (2, 4.0), (41, 7.0)], 20, 60),
            [Some(3.0), None, Some(7.0)]
        );
    }

    #[test]
    fn a_full_96_mbit_link_carries_160_packets_in_20_ms() {
        assert_eq!(mbits(160 * 1500, 20_000_000), 96.0);
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        // Textbook example of the nearest-rank method: 15 20 35 40 50.
        let d = Distribution::new([35.0, 15.0, 50.0, 20.0, 40.0]);
        assert_eq!(d.quantile(0.05), Some(15.0));
        assert_eq!(d.quantile(0.30), Some(20.0));
        assert_eq!(d.quantile(0.40), Some(20.0));
        assert_eq!(d.quantile(0.50), Some(35.0));
        assert_eq!(d.quantile(1.00), Some(50.0));
        assert_eq!(d.mean(), Some(32.0));
        assert_eq!(Distribution::default().quantile(0.5), None);
    }

    #[test]
    fn ks_has_known_answers() {
        let d = |v: &[f64]| Distribution::new(v.iter().copied());
        assert_eq!(d(&[1.0, 2.0, 3.0]).ks(&d(&[1.0, 2.0, 3.0])), Some(0.0));
        assert_eq!(d(&[1.0, 2.0]).ks(&d(&[3.0, 4.0])), Some(1.0));
        // F jumps to 1 at 1 and G is 3/4 at 1: within a tie there is no gap.
        assert_eq!(d(&[1.0, 1.0]).ks(&d(&[1.0, 1.0, 1.0, 2.0])), Some(0.25));
        assert_eq!(d(&[1.0, 2.0, 3.0, 4.0]).ks(&d(&[2.5, 3.5])), Some(0.5));
        assert_eq!(d(&[1.0]).ks(&d(&[])), None);
    }

    #[test]
    fn jain_has_known_answers() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[1.0, 2.0]), Some(0.9));
        assert_eq!(jain(&[5.0]), None);
        assert_eq!(jain(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_stall_lies_between_two_increases() {
        assert_eq!(longest_stall([]), 0);
        assert_eq!(longest_stall([(0, 0), (50, 0), (60, 7), (90, 7)]), 0);
        assert_eq!(
            longest_stall([(0, 1), (10, 1), (30, 2), (35, 3), (99, 3)]),
            30
        );
    }

    /// Definition of the distance: the largest gap over all points at which either function steps.
    fn ks_by_definition(a: &Distribution, b: &Distribution) -> f64 {
        a.values()
            .iter()
            .chain(b.values())
            .map(|x| (share_up_to(a, *x) - share_up_to(b, *x)).abs())
            .fold(0.0, f64::max)
    }

    /// Returns the share of values at or below `x`.
    fn share_up_to(distribution: &Distribution, x: f64) -> f64 {
        let values = distribution.values().iter();
        values.filter(|value| **value <= x).count() as f64 / distribution.len() as f64
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        // Small integers make ties common.
        prop::collection::vec((0u8..12).prop_map(f64::from), 1..60)
    }

    proptest! {
        #[test]
        fn ks_is_the_largest_gap(a in values(), b in values()) {
            let (a, b) = (Distribution::new(a), Distribution::new(b));
            let gap = a.ks(&b).unwrap();
            prop_assert!((gap - ks_by_definition(&a, &b)).abs() < 1e-12);
            prop_assert_eq!(gap, b.ks(&a).unwrap());
            prop_assert_eq!(a.ks(&a), Some(0.0));
        }

        #[test]
        fn ks_obeys_the_triangle(a in values(), b in values(), c in values()) {
            let (a, b, c) = (Distribution::new(a), Distribution::new(b), Distribution::new(c));
            prop_assert!(a.ks(&c).unwrap() <= a.ks(&b).unwrap() + b.ks(&c).unwrap() + 1e-12);
        }

        #[test]
        fn quantile_and_share_are_inverse(a in values(), p in 0.001f64..1.0) {
            let d = Distribution::new(a);
            let x = d.quantile(p).unwrap();
            prop_assert!(share_up_to(&d, x) >= p - 1e-12);
            let smaller = d.values().iter().filter(|v| **v < x).count() as f64;
            prop_assert!(smaller / (d.len() as f64) < p);
        }

        #[test]
        fn jain_lies_between_one_over_n_and_one(
            shares in prop::collection::vec(0.0f64..1e9, 2..50),
            k in 0.5f64..100.0,
        ) {
            if let Some(index) = jain(&shares) {
                prop_assert!(index >= 1.0 / shares.len() as f64 - 1e-9 && index <= 1.0 + 1e-9);
                let scaled: Vec<f64> = shares.iter().map(|x| x * k).collect();
                prop_assert!((jain(&scaled).unwrap() - index).abs() < 1e-9);
            }
        }

        #[test]
        fn binning_loses_nothing_inside(
            events in prop::collection::vec((0u64..1000, 0u64..5000), 0..100),
            width in 1u64..200,
        ) {
            let until = 1000 / width * width;
            let inside: u64 = events.iter().filter(|(at, _)| *at < until).map(|(_, b)| b).sum();
            prop_assert_eq!(bin_bytes(events, width, 1000).iter().sum::<u64>(), inside);
        }

        #[test]
        fn smoothing_stays_within_the_values(v in values(), reach in 0usize..10) {
            let low = v.iter().copied().fold(f64::MAX, f64::min);
            let high = v.iter().copied().fold(f64::MIN, f64::max);
            let s = smooth(&v, reach);
            prop_assert_eq!(s.len(), v.len());
            prop_assert!(s.iter().all(|x| *x >= low - 1e-9 && *x <= high + 1e-9));
        }
    }
}
