//! From records to the points of lines: distributions, rates, windows, with as many points as a
//! picture can show.

use crate::metrics::{Distribution, mbits};
use crate::result::{ContenderResult, Sample, Setup};

/// Points along a line; beyond that a page of 1,200 pixels shows no more, and a long run would make
/// a page of many MB.
pub(super) const LINE_POINTS_MAX: usize = 3_000;

/// Shares at which a distribution is drawn: a pixel is a fifth of a percent.
const ECDF_POINTS: usize = 1_001;

/// A line, as it is drawn.
pub(super) type Points = Vec<(f64, f64)>;

/// The empirical distribution function: values at up to [`ECDF_POINTS`] evenly spaced shares, in
/// percent, the smallest and the largest value included.
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

/// Width of bins of the flows' goodput, s: wide enough that each flow has some packets in each.
pub(super) fn flow_bin_s(setup: &Setup) -> f64 {
    (setup.bin_ms.max(100.0) / 1e3).max(setup.duration_s / LINE_POINTS_MAX as f64)
}

/// Goodput, Mbit/s, in `bins` of `width` seconds, of looks at what was received: nanoseconds, and
/// bytes by then.
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

/// What `of` reads of samples on a grid of `step` seconds: of the latest sample at or before each
/// point, nothing before the first.
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

/// When a counter of a flow's socket had risen since the sample before, s.
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
