//! The scheduling priority of a thread that has deadlines.

use nix::errno::Errno;

use crate::Error;

/// Gives the calling thread the lowest real-time priority (`SCHED_FIFO` 1): above every ordinary thread, below every
/// other real-time one. Threads and processes that it starts are ordinary again.
///
/// An ordinary thread, of whatever niceness, waits for the slice of the one that runs, some milliseconds. A real-time
/// thread that never sleeps is stopped for 50 ms of every second where others want its core
/// (`sched_rt_runtime_us`), so that it cannot lock up a machine.
pub fn raise_priority() -> Result<(), Error> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: reads the structure that it is given; process 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &lowest) };
    Errno::result(result).map_err(|e| Error::system("give a thread real-time priority", e))?;
    Ok(())
}
