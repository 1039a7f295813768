//! The scheduling priority of a thread that has deadlines.

use nix::errno::Errno;

use crate::Error;

/// The highest priority of an ordinary thread, nice(2).
const HIGHEST_NICE: libc::c_int = -20;

/// Gives the calling thread the highest ordinary priority (nice −20).
///
/// Not a real-time class: a thread that spins in one may be throttled for 50 ms of every second
/// (`sched_rt_runtime_us`), which is worse than any lateness that it would avoid.
pub fn raise_priority() -> Result<(), Error> {
    // SAFETY: takes numbers and returns one; `PRIO_PROCESS` with 0 is the calling thread on Linux.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST_NICE) };
    Errno::result(result).map_err(|e| match e {
        Errno::EACCES | Errno::EPERM => Error::Permission {
            what: "raise the priority of a thread".into(),
        },
        _ => Error::system("raise the priority of a thread", e),
    })?;
    Ok(())
}
