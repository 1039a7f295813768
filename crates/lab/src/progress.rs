//! What a caller sees of long work, and how it stops it: one trait for runs, experiments and
//! evaluations.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::result::{RunResult, Setup};

/// What a caller may show and decide while work goes on; called from every thread of it.
pub trait Progress: Sync {
    /// A run begins, with this set-up.
    fn began(&self, _setup: &Setup) {}
    /// So much of the whole is done, 0 to 1; `what` went on last.
    fn advanced(&self, _share: f64, _what: &str) {}
    /// Every contender of one of several seeds is done; the result is what a run with this seed
    /// alone gives.
    fn seed_done(&self, _seed: u64, _result: RunResult) {}
    /// Whether to stop now.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Shows nothing, never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {}

/// The progress of one of several pieces of work that follow one another and take as long as one
/// another.
pub struct ProgressStep<'a> {
    whole: &'a dyn Progress,
    index: usize,
    of: usize,
}

impl<'a> ProgressStep<'a> {
    /// The `index`-th of so many, from 0; `what` is about to begin.
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

/// The progress of pieces of work that go on beside one another: each counts by its weight.
pub(crate) struct Pieces<'a> {
    whole: &'a dyn Progress,
    total: u64,
    done: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Pieces<'a> {
    /// Of pieces whose weights add up to so much.
    pub fn new(whole: &'a dyn Progress, total: u64) -> Pieces<'a> {
        Pieces {
            whole,
            total,
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// One of them; `label` names it wherever it has nothing else to say.
    pub fn piece(&self, weight: u64, label: impl Into<String>) -> Piece<'_> {
        Piece {
            all: self,
            weight,
            told: AtomicU64::new(0),
            label: label.into(),
        }
    }

    /// No piece is to go on: one of them failed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.whole.cancelled()
    }
}

/// The progress of one of several [`Pieces`].
pub(crate) struct Piece<'a> {
    all: &'a Pieces<'a>,
    weight: u64,
    /// Of the weight, what has been counted.
    told: AtomicU64,
    label: String,
}

impl Piece<'_> {
    /// It is done.
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
        // Nothing goes backwards, and nothing counts twice.
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
