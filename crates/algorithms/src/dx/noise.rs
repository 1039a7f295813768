//! Estimate of the noise in time stamps.
//!
//! A packet that was not queued still shows a delay: time stamps are taken before a packet leaves
//! and after it arrives, and the minimum delay belongs to the luckiest packet. The mean of samples
//! without a queue is therefore above zero, and a decision with a lower threshold mistakes noise
//! for a queue. The bias cannot be measured on the forward path, where a standing queue looks the
//! same: a flow that took it for noise would tolerate ever longer queues. The reverse path has time
//! stamps of the same hosts but not the queue, so its mean above its minimum has the same bias.

use ccplane_datapath::{HalfWindowMin, INFINITY};
use ccplane_units::{Duration, Time};

use crate::windowed_min::WindowedMin;

/// Filter window of the reverse path's minimum, the same as the forward path's
/// (`MIN_FILTER_WINDOW` in the `one_way_delay.rs` of ccplane-datapath).
const REVERSE_MIN_WINDOW: Duration = Duration::from_secs(10);

/// Reports per half of the window of the minimum mean and spread. With fewer, a temporary queue on
/// the reverse path counts as noise. With more, the estimate keeps an earlier quiet period for
/// longer.
const HALF_WINDOW_REPORTS: u64 = 32;

/// σ per spread: E|X − Y| of two normal samples is 2σ/√π. For exponential jitter of both hosts it
/// is accurate to a tenth.
const SIGMA_PER_SPREAD: f64 = 0.886;

/// Maximum bias in spreads. The mean of normal samples is 3.9 σ above the minimum of ten thousand,
/// and the minimum spread of a few hundred blocks is a fifth below their mean. Exponential jitter
/// has a longer tail on the reverse path, where late and early time stamps differ, and needs half
/// of this. A smaller limit starves flows with normal jitter. A larger one lengthens the queue for
/// the others.
const BIAS_SPREADS_MAX: f64 = 4.5;

/// Noise estimate of one flow.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    reverse_min: WindowedMin,
    reverse_mean: ReportMin,
    spread: ReportMin,
}

/// Fields of a report, ns; [`INFINITY`] without a block of samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoiseReport {
    /// Minimum mean difference of successive samples.
    pub spread: u64,
    /// Minimum mean of the reverse path.
    pub reverse_mean: u64,
    /// Minimum sample of the reverse path.
    pub reverse_min: u64,
}

impl Default for Noise {
    fn default() -> Noise {
        Noise {
            reverse_min: WindowedMin::new(REVERSE_MIN_WINDOW),
            reverse_mean: ReportMin::default(),
            spread: ReportMin::default(),
        }
    }
}

impl Noise {
    /// Adds a report. Returns the contribution of noise to the mean of this many `samples`, ns:
    /// bias plus error.
    pub fn update(&mut self, now: Time, report: NoiseReport, stamped: bool, samples: f64) -> u64 {
        let least = self.reverse_min.update(now, report.reverse_min);
        self.reverse_mean.update(report.reverse_mean);
        self.spread.update(report.spread);
        let (Some(least), Some(back), Some(spread)) =
            (least, self.reverse_mean.get(), self.spread.get())
        else {
            return 0;
        };
        // The RTT form uses the minimum of a round, which has no bias, and has no separate reverse
        // path.
        let bias = match stamped {
            true => (back.saturating_sub(least) as f64).min(spread as f64 * BIAS_SPREADS_MAX),
            false => 0.0,
        };
        libm::rint(bias + spread as f64 * SIGMA_PER_SPREAD / libm::sqrt(samples.max(1.0))) as u64
    }
}

/// Minimum of the last 32 to 64 reports that contain a value.
#[derive(Clone, Copy, Debug, Default)]
struct ReportMin {
    filter: HalfWindowMin<u64>,
    reports: u64,
}

impl ReportMin {
    fn update(&mut self, value: u64) {
        if value < INFINITY {
            self.reports += 1;
            self.filter.update(self.reports, HALF_WINDOW_REPORTS, value);
        }
    }

    fn get(&self) -> Option<u64> {
        self.filter.get()
    }
}
