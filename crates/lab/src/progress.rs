//! Progress reporting and cancellation of long work: one trait for runs, experiments and
//! evaluations.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::result::{RunResult, Setup};

/// Observer of long work, which can also cancel it. All threads call it.
pub trait Progress: Sync {
    /// A run with this set-up starts.
    fn began(&self, _setup: &Setup) {}
    /// The share `_share` of the whole work is done, 0 to 1. `_what` is the latest activity.
    fn advanced(&self, _share: f64, _what: &str) {}
    /// All contenders of one of several seeds are done. The result equals a run with this seed
    /// only.
    fn seed_done(&self, _seed: u64, _result: RunResult) {}
    /// Returns true to cancel the work.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Observer that shows nothing and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {}

/// Progress of one of several steps that run one after the other and take equally long.
pub struct ProgressStep<'a> {
    whole: &'a dyn Progress,
    index: usize,
    of: usize,
}

impl<'a> ProgressStep<'a> {
    /// Starts step `index`, counted from 0, of `of` steps. `what` is its description.
    pub fn begin(whole: &'a dyn Progress, index: usize, of: usize, what: &str) -> ProgressStep<'a> {
        let step = ProgressStep { whole, index, of };
        step.advanced(0.0, what);
        step
    }
}

impl Progress for ProgressStep<'_> {
    fn advanced(&self, share: f64, what: &str) {
        let done = self.index as f64 + share.clamp(0.0, 1.0);
        self.whole.advanced(done / self.of.max(1) as f64, what);
    }

    fn cancelled(&self) -> bool {
        self.whole.cancelled()
    }
}

/// Progress of concurrent pieces of work, each with a weight.
pub(crate) struct Pieces<'a> {
    whole: &'a dyn Progress,
    total: u64,
    done: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Pieces<'a> {
    /// Creates the progress of pieces whose weights sum to `total`.
    pub fn new(whole: &'a dyn Progress, total: u64) -> Pieces<'a> {
        Pieces {
            whole,
            total,
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Creates a piece; `label` prefixes its activities.
    pub fn piece(&self, weight: u64, label: impl Into<String>) -> Piece<'_> {
        Piece {
            all: self,
            weight,
            told: AtomicU64::new(0),
            label: label.into(),
        }
    }

    /// Cancels all pieces, after the failure of one.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true if the pieces must stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.whole.cancelled()
    }
}

/// Progress of one of several [`Pieces`].
pub(crate) struct Piece<'a> {
    all: &'a Pieces<'a>,
    weight: u64,
    /// Part of the weight that has been counted.
    told: AtomicU64,
    label: String,
}

impl Piece<'_> {
    /// Marks the piece as done.
    pub fn finish(&self) {
        self.advanced(1.0, "");
    }
}

impl Progress for Piece<'_> {
    fn advanced(&self, share: f64, what: &str) {
        let now = (share.clamp(0.0, 1.0) * self.weight as f64) as u64;
        let more = now.saturating_sub(self.told.fetch_max(now, Ordering::Relaxed));
        let done = self.all.done.fetch_add(more, Ordering::Relaxed) + more;
        let share = done as f64 / self.all.total.max(1) as f64;
        if what.is_empty() {
            self.all.whole.advanced(share, &self.label);
        } else {
            self.all
                .whole
                .advanced(share, &format!("{:<22} {what}", self.label));
        }
    }

    fn cancelled(&self) -> bool {
        self.all.stopped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct ProgressLog(Mutex<Vec<(u32, String)>>);

    impl Progress for ProgressLog {
        fn advanced(&self, share: f64, what: &str) {
            self.0
                .lock()
                .unwrap()
                .push(((share * 1e3).round() as u32, what.to_owned()));
        }
    }

    #[test]
    fn steps_and_pieces_add_up_to_the_whole() {
        let seen = ProgressLog::default();
        let pieces = Pieces::new(&seen, 100);
        let (one, other) = (pieces.piece(75, "one"), pieces.piece(25, "other"));
        one.advanced(0.5, "");
        other.advanced(0.4, "7 Mbit/s");
        // Progress never decreases, and no weight counts twice.
        one.advanced(0.2, "");
        one.finish();
        other.finish();
        let step = ProgressStep::begin(&seen, 1, 4, "third");
        step.advanced(0.5, "third");
        let shares: Vec<u32> = seen
            .0
            .lock()
            .unwrap()
            .iter()
            .map(|(share, _)| *share)
            .collect();
        assert_eq!(shares, [370, 470, 470, 850, 1000, 250, 375]);
        assert_eq!(
            seen.0.lock().unwrap()[1].1,
            format!("{:<22} 7 Mbit/s", "other")
        );
    }
}
