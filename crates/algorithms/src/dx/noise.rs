//! How much of what the stamps say is noise.
//!
//! A packet that did not wait shows a delay all the same: stamps are taken before a packet leaves
//! and after it came, and the least delay ever seen is the luckiest one. So the mean of samples
//! without a queue is above zero, and a decision that compares with less takes noise for a queue at
//! every turn. How far above cannot be seen on the way there, where a queue that stands looks the
//! same: a flow that took that for noise would tolerate ever longer queues. The way back has stamps
//! of the same two hosts and no part in the queue: its mean above its least is the same bias.

use ccplane_datapath::INFINITY;
use ccplane_units::{Duration, Time};

use crate::least::Least;

/// For so long the least of the way back counts: as the least of the way there does
/// (`WINDOW` in `one_way.rs`).
const LEAST_OVER: Duration = Duration::from_secs(10);

/// Reports in each half of the time over which the least mean and the least spread count. Fewer
/// take a queue on the way back, which comes and goes, for noise; more hold on to the quiet of
/// before.
const HALF: u32 = 32;

/// E|X - Y| of two normal samples is 2σ/√π: a spread times this is σ. For exponential jitter of
/// both hosts it is within a tenth.
const SIGMA: f64 = 0.886;

/// A bias is at most so many spreads: the mean of normal samples is 3.9 σ above the least of ten
/// thousand, and the least spread of some hundred blocks is a fifth below their mean. Exponential
/// jitter has a longer tail on the way back, where late and early stamps differ, and needs half of
/// this: less starves flows whose stamps are normal, more is a longer queue for the others.
const MOST_SPREADS: f64 = 4.5;

/// What is known of the noise of one flow's samples.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    back_least: Least,
    back: Halves,
    spread: Halves,
}

/// What a report says, ns; [`INFINITY`] where there was no block of samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The least mean difference of neighbouring samples.
    pub spread: u64,
    /// The least mean of the way back.
    pub back: u64,
    /// Its least sample.
    pub back_least: u64,
}

impl Default for Noise {
    fn default() -> Noise {
        Noise {
            back_least: Least::over(LEAST_OVER),
            back: Halves::default(),
            spread: Halves::default(),
        }
    }
}

impl Noise {
    /// Takes a report. What noise adds to the mean of so many `samples`, ns: its bias and its
    /// error.
    pub fn update(&mut self, now: Time, seen: Seen, stamped: bool, samples: f64) -> u64 {
        let least = self.back_least.update(now, seen.back_least);
        self.back.update(seen.back);
        self.spread.update(seen.spread);
        let (Some(least), Some(back), Some(spread)) =
            (least, self.back.least(), self.spread.least())
        else {
            return 0;
        };
        // The RTT form takes the least of a round, which has no bias, and has no way back of its
        // own.
        let bias = match stamped {
            true => (back.saturating_sub(least) as f64).min(spread as f64 * MOST_SPREADS),
            false => 0.0,
        };
        libm::rint(bias + spread as f64 * SIGMA / libm::sqrt(samples.max(1.0))) as u64
    }
}

/// The least of the last 32 to 64 reports.
#[derive(Clone, Copy, Debug, Default)]
struct Halves {
    before: Option<u64>,
    recent: Option<u64>,
    reports: u32,
}

impl Halves {
    fn update(&mut self, value: u64) {
        if value >= INFINITY {
            return;
        }
        self.reports += 1;
        if self.reports > HALF {
            (self.before, self.recent, self.reports) = (self.recent, None, 1);
        }
        self.recent = Some(self.recent.map_or(value, |recent| recent.min(value)));
    }

    fn least(&self) -> Option<u64> {
        self.before.into_iter().chain(self.recent).min()
    }
}
