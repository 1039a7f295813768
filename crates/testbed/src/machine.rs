//! Disturbances by the machine during a measurement, observed independently of the measured
//! process.
//!
//! Both sides of a comparison are accepted or rejected by these observations alone. Whether a run
//! counts never depends on its result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ccplane_units::Duration;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::cpu::Reading;
use crate::traffic::{monotonic_ns, wait_until};

/// Interval at which a CPU is probed. A longer one misses short stalls; a tenth of it costs 1 % of
/// each CPU.
const STALL_POLL_INTERVAL_NS: u64 = 1_000_000;

/// CPU use of other processes, in percent of one CPU, above which results are invalid. Kernel
/// threads stay well below it, except for those that handle interrupts.
pub(crate) const OTHER_CPU_PERCENT_MAX: f64 = 20.0;

/// Time stolen by a hypervisor, in percent of one CPU. Smaller values are the noise of some ticks
/// on an idle host; larger ones lower a result by the same share.
const STOLEN_CPU_PERCENT_MAX: f64 = 2.0;

/// Observed state of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineState {
    /// Longest time for which a CPU did not run a ready thread of the highest priority,
    /// milliseconds. Absent if that priority is not permitted: the probe would then measure the
    /// contender's own load.
    pub stall_ms: Option<f64>,
    /// CPU time stolen by a hypervisor, in percent of one CPU.
    pub stolen_percent: f64,
    /// CPU use of other processes, in percent of one CPU.
    pub others_percent: f64,
}

impl MachineState {
    /// Returns the disturbances of a run that tolerates stalls up to `longest_stall`, a sentence
    /// each.
    pub fn disturbances(&self, longest_stall: Duration) -> Vec<String> {
        let stall = self
            .stall_ms
            .filter(|ms| *ms > longest_stall.as_secs_f64() * 1e3);
        let stall = stall.map(|ms| format!("the host paused for {ms:.1} ms"));
        let stolen = (self.stolen_percent > STOLEN_CPU_PERCENT_MAX).then(|| {
            format!(
                "the hypervisor gave {:.0} % of a CPU to other guests",
                self.stolen_percent
            )
        });
        let others = (self.others_percent > OTHER_CPU_PERCENT_MAX)
            .then(|| format!("other processes used {:.0} % of a CPU", self.others_percent));
        [stall, stolen, others].into_iter().flatten().collect()
    }
}

/// Observes the machine until finished: a thread per CPU, at a higher priority than all threads of
/// a run.
pub struct MachineWatch {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Option<u64>>>,
    start_reading: Reading,
}

impl MachineWatch {
    /// Starts observing.
    pub fn start() -> MachineWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let ours = Pid::from_raw(0);
        let cpus = sched_getaffinity(ours).unwrap_or_default();
        let watched = (0..CpuSet::count()).filter(|cpu| cpus.is_set(*cpu).unwrap_or(false));
        let threads = watched.filter_map(|cpu| {
            let stop = stop.clone();
            let name = thread::Builder::new().name("lab-watch".into());
            // A CPU whose thread cannot be started is not observed.
            name.spawn(move || longest_stall(cpu, &stop)).ok()
        });
        MachineWatch {
            threads: threads.collect(),
            stop,
            start_reading: Reading::now(None),
        }
    }

    /// Stops and returns the state of the machine since the start.
    pub fn finish(mut self) -> MachineState {
        let after = Reading::now(None);
        self.stop.store(true, Ordering::Relaxed);
        let stalls = self
            .threads
            .drain(..)
            .filter_map(|thread| thread.join().ok().flatten());
        MachineState {
            stall_ms: stalls.max().map(|ns| ns as f64 / 1e6),
            stolen_percent: after.stolen_percent_since(&self.start_reading),
            others_percent: after.others_percent_since(&self.start_reading),
        }
    }
}

impl Drop for MachineWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns the largest wake-up delay of a thread on this CPU, nanoseconds.
fn longest_stall(cpu: usize, stop: &AtomicBool) -> Option<u64> {
    let mut only = CpuSet::new();
    only.set(cpu).ok()?;
    sched_setaffinity(Pid::from_raw(0), &only).ok()?;
    ccplane_host::highest_priority().ok()?;
    let mut longest = 0;
    while !stop.load(Ordering::Relaxed) {
        let wanted = monotonic_ns() + STALL_POLL_INTERVAL_NS;
        wait_until(wanted);
        longest = longest.max(monotonic_ns().saturating_sub(wanted));
    }
    Some(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbances_of_the_machine_are_named() {
        let limit = Duration::from_millis(5);
        let calm = MachineState {
            stall_ms: Some(4.0),
            stolen_percent: 1.0,
            others_percent: 10.0,
        };
        assert!(calm.disturbances(limit).is_empty());
        let busy = MachineState {
            stall_ms: Some(87.6),
            stolen_percent: 12.0,
            others_percent: 150.0,
        };
        assert_eq!(
            busy.disturbances(limit),
            [
                "the host paused for 87.6 ms",
                "the hypervisor gave 12 % of a CPU to other guests",
                "other processes used 150 % of a CPU"
            ]
        );
        let unseen = MachineState {
            stall_ms: None,
            ..calm
        };
        assert!(
            unseen.disturbances(Duration::ZERO).is_empty(),
            "not permitted to look"
        );
    }

    #[test]
    fn a_watch_measures_or_lacks_permission() {
        let watch = MachineWatch::start();
        wait_until(monotonic_ns() + 20_000_000);
        let machine = watch.finish();
        assert!(machine.stall_ms.is_none_or(|ms| ms > 0.0), "{machine:?}");
    }
}
