//! Conversion of records to the points of lines, at the resolution of a chart: distributions,
//! rates, windows.

use crate::metrics::{Distribution, mbits};
use crate::result::{ContenderResult, Sample, Setup};

/// Maximum number of points per line. A chart of 1,200 pixels shows no more, and the page of a long
/// run would have many MB.
pub(super) const LINE_POINTS_MAX: usize = 3_000;

/// Maximum number of points of a distribution: one pixel is a fifth of a percent.
const ECDF_POINTS: usize = 1_001;

/// Points of a line.
pub(super) type Points = Vec<(f64, f64)>;

/// Returns the empirical distribution function: values at up to [`ECDF_POINTS`] evenly spaced
/// shares, in percent, including the smallest and the largest value.
pub(super) fn ecdf(distribution: &Distribution) -> Points {
    let n = distribution.len().min(ECDF_POINTS);
    let share = |i: usize| {
        if n > 1 {
            i as f64 / (n - 1) as f64
        } else {
            1.0
        }
    };
    (0..n)
        .filter_map(|i| {
            Some((
                distribution.quantile(share(i))?,
                (i + 1) as f64 * 100.0 / n as f64,
            ))
        })
        .collect()
}

/// Returns the bin width of the flows' goodput, s: wide enough for several packets per flow and
/// bin.
pub(super) fn flow_bin_s(setup: &Setup) -> f64 {
    (setup.bin_ms.max(100.0) / 1e3).max(setup.duration_s / LINE_POINTS_MAX as f64)
}

/// Returns the goodput, Mbit/s, in `bins` of `width` seconds. `looks` are samples of (time in ns,
/// cumulative bytes).
pub(super) fn rates(looks: impl Iterator<Item = (u64, u64)>, width: f64, bins: usize) -> Points {
    let mut looks = looks.peekable();
    let first = looks.next().unwrap_or_default();
    let (mut now, mut last) = (first, (0, 0));
    (1..=bins)
        .map(|bin| {
            let until = (bin as f64 * width * 1e9) as u64;
            while let Some(next) = looks.next_if(|(at, _)| *at <= until) {
                now = next;
            }
            let rate = mbits(now.1.saturating_sub(last.1), now.0.saturating_sub(last.0));
            last = now;
            ((bin as f64 - 0.5) * width, rate)
        })
        .collect()
}

/// Returns a value of the samples on a grid of `step` seconds. Each point takes the latest sample
/// at or before it; points before the first sample are left out.
pub(super) fn on_grid(
    flow: &[Sample],
    step: f64,
    points: usize,
    of: impl Fn(&Sample) -> f64,
) -> Points {
    let mut at = 0;
    (0..points)
        .filter_map(|i| {
            let until = ((i as f64 + 0.5) * step * 1e9) as u64;
            while flow.get(at).is_some_and(|s| s.at_ns <= until) {
                at += 1;
            }
            let sample = at.checked_sub(1).and_then(|last| flow.get(last))?;
            Some((i as f64 * step, of(sample)))
        })
        .collect()
}

/// Returns the times, s, of samples at which a counter of a flow's socket has increased.
pub(super) fn rises(flow: &[Sample], of: impl Fn(&Sample) -> u32) -> Vec<f64> {
    let pairs = flow.iter().zip(flow.iter().skip(1));
    let rose = pairs.filter(|(before, after)| of(after) > of(before));
    rose.map(|(_, after)| after.at_ns as f64 / 1e9).collect()
}

pub(super) fn throughput(c: &ContenderResult) -> Distribution {
    Distribution::new(c.series.throughputs())
}

pub(super) fn delay(c: &ContenderResult) -> Distribution {
    Distribution::new(c.series.delays())
}
