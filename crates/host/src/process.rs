//! Processes that do not outlive their owner.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};

/// Makes `command` end (by SIGKILL) when the thread that starts it ends, however that happens, and begin with no
/// signal blocked, whatever this thread blocks. What the command itself has started lives on.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let prepare = || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        SigSet::empty().thread_set_mask()?;
        Ok::<(), io::Error>(())
    };
    // SAFETY: between fork and exec the closure makes two system calls, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) }
}
