//! A thread that uses CPU time during a run. It makes a run comparable with one whose agent uses as
//! much CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ccplane_lab::Error;

use crate::traffic::{monotonic_ns, wait_until};

/// Length of a burst: 1 ms, like a slow callback. Shorter bursts cost more to start than they last;
/// longer ones occupy a core for a scheduler's slice.
const CPU_BURST_NS: u64 = 1_000_000;

/// Computes at low priority until dropped.
pub(crate) struct Burner {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Burner {
    /// Starts a thread that uses this percentage of one CPU.
    pub fn start(percent: f64) -> Result<Burner, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let body = move || {
            // No privilege is needed. On failure the thread keeps its priority.
            let _ = ccplane_host::lower_priority();
            burn(pause_ns(percent), &stopped);
        };
        let thread = thread::Builder::new().name("lab-burn".into()).spawn(body);
        let thread = thread.map_err(Error::traffic("start a thread that computes", ""))?;
        Ok(Burner {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

/// Returns the pause between two bursts, or `None` for a share of 0.1 % or less.
fn pause_ns(percent: f64) -> Option<u64> {
    let share = (percent / 100.0).clamp(0.0, 1.0);
    (share > 0.001).then(|| ((1.0 / share - 1.0) * CPU_BURST_NS as f64) as u64)
}

fn burn(pause_ns: Option<u64>, stop: &AtomicBool) {
    let Some(pause_ns) = pause_ns else {
        return;
    };
    let mut next = monotonic_ns();
    while !stop.load(Ordering::Relaxed) {
        let until = monotonic_ns() + CPU_BURST_NS;
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
        next = (next + CPU_BURST_NS + pause_ns).max(monotonic_ns());
        wait_until(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_pauses_make_the_share() {
        assert_eq!(pause_ns(100.0), Some(0));
        assert_eq!(pause_ns(50.0), Some(CPU_BURST_NS));
        assert_eq!(pause_ns(20.0), Some(4 * CPU_BURST_NS));
        assert_eq!(pause_ns(0.0), None);
        drop(Burner::start(10.0).unwrap());
    }
}
