//! CPU time from the kernel's accounting: of this process, of one of its threads, and of the whole
//! machine.

use std::fs;
use std::path::Path;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// CPU time used so far, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Time of the reading, `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// This process, all threads, user and system.
    pub process_ns: u64,
    /// Busy time of this machine: includes interrupts, excludes idle and iowait.
    pub machine_ns: u64,
    /// Interrupts and softirqs, included in `machine_ns`. If all packets on the machine are ours
    /// this is work for them, like `ksoftirqd`'s.
    pub interrupts_ns: u64,
    /// Time stolen by a hypervisor.
    pub stolen_ns: u64,
    /// CPU time of the thread passed to [`Reading::now`]; 0 without one.
    pub thread_ns: u64,
}

impl Reading {
    /// Reads the counters now.
    pub fn now(thread: Option<Pid>) -> Reading {
        let stat = fs::read_to_string("/proc/stat").ok();
        let stat = stat.as_deref().unwrap_or_default();
        let (machine_ns, interrupts_ns) = busy_ns(stat, tick_ns()).unwrap_or_default();
        Reading {
            at_ns: crate::traffic::monotonic_ns(),
            process_ns: process_ns(),
            machine_ns,
            interrupts_ns,
            stolen_ns: stolen_ns(stat, tick_ns()).unwrap_or_default(),
            thread_ns: thread.and_then(thread_ns).unwrap_or(0),
        }
    }

    /// Returns CPU use since `earlier` in percent of one CPU: process, machine, thread.
    pub fn percent_since(&self, earlier: &Reading) -> (f64, f64, f64) {
        let wall = self.at_ns.saturating_sub(earlier.at_ns).max(1) as f64;
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 * 100.0 / wall;
        (
            share(self.process_ns, earlier.process_ns),
            share(self.machine_ns, earlier.machine_ns),
            share(self.thread_ns, earlier.thread_ns),
        )
    }

    /// Returns CPU use of other processes since `earlier`, in percent of one CPU. The kernel may
    /// charge interrupt time to the interrupted process as well; the result is then too small.
    pub fn others_percent_since(&self, earlier: &Reading) -> f64 {
        let (process, machine, _) = self.percent_since(earlier);
        let wall = self.at_ns.saturating_sub(earlier.at_ns).max(1) as f64;
        let interrupts =
            self.interrupts_ns.saturating_sub(earlier.interrupts_ns) as f64 * 100.0 / wall;
        (machine - interrupts - process).max(0.0)
    }

    /// Returns the time stolen by a hypervisor since `earlier`, in percent of one CPU.
    pub fn stolen_percent_since(&self, earlier: &Reading) -> f64 {
        let wall = self.at_ns.saturating_sub(earlier.at_ns).max(1) as f64;
        self.stolen_ns.saturating_sub(earlier.stolen_ns) as f64 * 100.0 / wall
    }

    /// Returns the CPU seconds of the process since `earlier`.
    pub fn process_s_since(&self, earlier: &Reading) -> f64 {
        self.process_ns.saturating_sub(earlier.process_ns) as f64 / 1e9
    }

    /// Returns the CPU seconds of the whole machine since `earlier`.
    pub fn machine_s_since(&self, earlier: &Reading) -> f64 {
        self.machine_ns.saturating_sub(earlier.machine_ns) as f64 / 1e9
    }
}

/// Returns the CPU time of this process, all threads, user and system, nanoseconds.
pub fn process_ns() -> u64 {
    // `getrusage` cannot fail for the calling process.
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| [usage.user_time(), usage.system_time()])
        .map(|times| {
            times
                .iter()
                .map(|t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_usec() as u64 * 1_000)
                .sum()
        })
        .unwrap_or(0)
}

/// Returns the CPU time of the calling thread, nanoseconds.
#[expect(clippy::disallowed_methods, reason = "measurements of CPU cost use it")]
pub fn this_thread_ns() -> u64 {
    // `clock_gettime` cannot fail for the calling thread.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}

/// The first field of `schedstat` is the time on a CPU. It needs `CONFIG_SCHED_INFO`, which all
/// distributions set.
fn thread_ns(thread: Pid) -> Option<u64> {
    schedstat_ns(format!("/proc/self/task/{thread}/schedstat").as_ref())
}

fn schedstat_ns(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Returns the CPU time of all threads of another process, nanoseconds; 0 if it has ended. Threads
/// that have ended do not count.
pub fn other_process_ns(process: Pid) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter();
    threads
        .flatten()
        .flatten()
        .filter_map(|thread| schedstat_ns(&thread.path().join("schedstat")))
        .sum()
}

/// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal, in
/// ticks. Returns the total busy time and the part of it in interrupts.
fn busy_ns(stat: &str, tick_ns: u64) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks.as_slice() else {
        return None;
    };
    let interrupts = irq + softirq;
    let busy = user + nice + system + interrupts;
    Some((
        busy.saturating_mul(tick_ns),
        interrupts.saturating_mul(tick_ns),
    ))
}

/// Parses the eighth field of the same line (steal). Kernels without it do not report stolen time.
fn stolen_ns(stat: &str, tick_ns: u64) -> Option<u64> {
    let ticks: u64 = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .nth(7)?
        .parse()
        .ok()?;
    Some(ticks.saturating_mul(tick_ns))
}

fn tick_ns() -> u64 {
    let hertz = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|hz| u64::try_from(hz).ok())
        .unwrap_or(100);
    1_000_000_000 / hertz.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_out_idle_wait_and_steal() {
        let stat = "cpu  10 1 5 1000 50 2 3 99 0 0\ncpu0 1 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ns(stat, 10_000_000), Some((210_000_000, 50_000_000)));
        assert_eq!(stolen_ns(stat, 10_000_000), Some(990_000_000));
        assert_eq!(busy_ns("intr 5", 1), None);
        assert_eq!(busy_ns("cpu  1 2", 1), None);
    }

    #[test]
    fn interrupts_do_not_count_as_other_processes() {
        let later = Reading {
            at_ns: 1_000,
            process_ns: 900,
            machine_ns: 1_600,
            interrupts_ns: 500,
            stolen_ns: 0,
            thread_ns: 0,
        };
        assert_eq!(later.others_percent_since(&Reading::default()), 20.0);
        let none = Reading {
            interrupts_ns: 800,
            ..later
        };
        assert_eq!(none.others_percent_since(&Reading::default()), 0.0);
    }

    #[test]
    fn work_shows_in_the_thread_and_in_the_process() {
        let before = Reading::now(Some(nix::unistd::gettid()));
        let mut x = 1u64;
        while process_ns() < before.process_ns + 30_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let after = Reading::now(Some(nix::unistd::gettid()));
        assert!(after.process_s_since(&before) >= 0.03);
        assert!(after.thread_ns > before.thread_ns, "{before:?} {after:?}");
        assert!(after.percent_since(&before).0 > 0.0);
        assert!(other_process_ns(Pid::this()) > 0);
        assert_eq!(
            other_process_ns(Pid::from_raw(0)),
            0,
            "there is no such process"
        );
    }
}
