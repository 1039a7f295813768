//! Scheduling of threads with deadlines.

use std::time::Duration;

use nix::errno::Errno;

use crate::Error;

/// Gives the calling thread the lowest real-time priority (`SCHED_FIFO` 1): above all ordinary
/// threads, below other real-time threads. Threads and processes that it starts are ordinary again.
///
/// An ordinary thread, at any nice value, waits until the running thread's slice ends, some
/// milliseconds. The kernel throttles a real-time thread that never sleeps for 50 ms of every
/// second if others want its core (`sched_rt_runtime_us`), so that it cannot lock up a machine: for
/// such a thread, see [`reserve_cpu`].
pub fn raise_priority() -> Result<(), Error> {
    set_real_time_priority(1)
}

/// Gives the calling thread the highest real-time priority (`SCHED_FIFO` 99): above everything
/// except reservations. For a thread that sleeps nearly always and measures how long a CPU is
/// unavailable.
pub fn highest_priority() -> Result<(), Error> {
    set_real_time_priority(99)
}

fn set_real_time_priority(priority: i32) -> Result<(), Error> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the call reads `parameters`, which outlives it; process 0 is the calling thread.
    let result = unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters)
    };
    Errno::result(result).map_err(|e| Error::system("give a thread real-time priority", e))?;
    Ok(())
}

/// Nice value of a lower-priority compute thread. At 10 an ordinary thread on the same core gets
/// nine times as much of it. At 19 the compute thread could starve until its flows fall back.
const LOWER_PRIORITY_NICE: libc::c_int = 10;

/// Lowers the priority of the calling thread, as `nice -n 10` does.
pub fn lower_priority() -> Result<(), Error> {
    // SAFETY: the call takes numbers only; on Linux process 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWER_PRIORITY_NICE) };
    Errno::result(result).map_err(|e| Error::system("lower a thread's priority", e))?;
    Ok(())
}

/// Reserves `runtime` of every `period` on some processor for the calling thread
/// (`SCHED_DEADLINE`), ahead of all real-time priorities. Threads and processes that it starts are
/// ordinary.
///
/// A thread that exceeds its reservation waits for the rest of the period. The kernel refuses
/// reservations that would leave less than 5 % of all processors to others, threads that may not
/// run on all of them, and periods below 100 µs (`sched_deadline_period_min_us`).
pub fn reserve_cpu(runtime: Duration, period: Duration) -> Result<(), Error> {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_DEADLINE as u32,
        sched_flags: libc::SCHED_FLAG_RESET_ON_FORK as u64,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: ns(runtime),
        sched_deadline: ns(period),
        sched_period: ns(period),
    };
    // SAFETY: the call reads `attributes`, which states its size and outlives it; process 0 is the
    // calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) };
    Errno::result(result).map_err(|e| Error::system("reserve processor time for a thread", e))?;
    Ok(())
}
