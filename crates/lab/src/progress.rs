//! Progress reporting and cancellation of long work: one trait for runs, experiments and
//! evaluations.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::result::{RunResult, Setup};

/// Observer of long work, which can also cancel it. All threads call it.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use ccplane_lab::Progress;
///
/// /// Cancels the work after a time limit.
/// struct TimeLimit(Instant, Duration);
///
/// impl Progress for TimeLimit {
///     fn is_cancelled(&self) -> bool {
///         self.0.elapsed() > self.1
///     }
/// }
/// ```
pub trait Progress: Sync {
    /// A run with this set-up starts.
    fn on_start(&self, _setup: &Setup) {}
    /// The share `_share` of the whole work is done, 0 to 1. `_what` is the latest activity.
    fn on_progress(&self, _share: f64, _what: &str) {}
    /// All contenders of one of several seeds are done. The result equals a run with this seed
    /// only.
    fn on_seed_done(&self, _seed: u64, _result: RunResult) {}
    /// Returns true to cancel the work.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Observer that shows nothing and never cancels.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// Progress of one of several steps that run one after the other and take equally long.
pub struct ProgressStep<'a> {
    parent: &'a dyn Progress,
    index: usize,
    count: usize,
}

impl<'a> ProgressStep<'a> {
    /// Starts step `index`, counted from 0, of `of` steps. `what` is its description.
    pub fn begin(whole: &'a dyn Progress, index: usize, of: usize, what: &str) -> ProgressStep<'a> {
        let step = ProgressStep {
            parent: whole,
            index,
            count: of,
        };
        step.on_progress(0.0, what);
        step
    }
}

impl Progress for ProgressStep<'_> {
    fn on_progress(&self, share: f64, what: &str) {
        let done = self.index as f64 + share.clamp(0.0, 1.0);
        self.parent
            .on_progress(done / self.count.max(1) as f64, what);
    }

    fn is_cancelled(&self) -> bool {
        self.parent.is_cancelled()
    }
}

/// Progress of concurrent pieces of work, each with a weight.
pub(crate) struct Pieces<'a> {
    parent: &'a dyn Progress,
    total: u64,
    done: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Pieces<'a> {
    /// Creates the progress of pieces whose weights sum to `total`.
    pub fn new(whole: &'a dyn Progress, total: u64) -> Pieces<'a> {
        Pieces {
            parent: whole,
            total,
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Creates a piece; `label` prefixes its activities.
    pub fn piece(&self, weight: u64, label: impl Into<String>) -> Piece<'_> {
        Piece {
            pieces: self,
            weight,
            reported: AtomicU64::new(0),
            label: label.into(),
        }
    }

    /// Cancels all pieces, after the failure of one.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns true if the pieces must stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.parent.is_cancelled()
    }
}

/// Progress of one of several [`Pieces`].
pub(crate) struct Piece<'a> {
    pieces: &'a Pieces<'a>,
    weight: u64,
    /// Part of the weight that has been counted.
    reported: AtomicU64,
    label: String,
}

impl Piece<'_> {
    /// Marks the piece as done.
    pub fn finish(&self) {
        self.on_progress(1.0, "");
    }
}

impl Progress for Piece<'_> {
    fn on_progress(&self, share: f64, what: &str) {
        let now = (share.clamp(0.0, 1.0) * self.weight as f64) as u64;
        let more = now.saturating_sub(self.reported.fetch_max(now, Ordering::Relaxed));
        let done = self.pieces.done.fetch_add(more, Ordering::Relaxed) + more;
        let share = done as f64 / self.pieces.total.max(1) as f64;
        if what.is_empty() {
            self.pieces.parent.on_progress(share, &self.label);
        } else {
            self.pieces
                .parent
                .on_progress(share, &format!("{:<22} {what}", self.label));
        }
    }

    fn is_cancelled(&self) -> bool {
        self.pieces.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct ProgressLog(Mutex<Vec<(u32, String)>>);

    impl Progress for ProgressLog {
        fn on_progress(&self, share: f64, what: &str) {
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
        one.on_progress(0.5, "");
        other.on_progress(0.4, "7 Mbit/s");
        // Progress never decreases, and no weight counts twice.
        one.on_progress(0.2, "");
        one.finish();
        other.finish();
        let step = ProgressStep::begin(&seen, 1, 4, "third");
        step.on_progress(0.5, "third");
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
