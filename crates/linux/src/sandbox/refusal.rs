//! Reporting the rejected system call that ends a process.

use std::ffi::{c_int, c_void};
use std::io;
use std::{mem, ptr};

use super::REFUSED_FD;

/// Head of a `siginfo_t` of SIGSYS in the layout of 64-bit kernels.
#[repr(C)]
struct RefusedCall {
    signal: c_int,
    error: c_int,
    code: c_int,
    _padding: c_int,
    address: *const c_void,
    number: c_int,
}

/// Makes the process report a system call that a filter answers with SIGSYS, for
/// [`SandboxedProcess`](super::SandboxedProcess), and then end by that signal. For
/// processes started by [`start`](super::start).
pub fn report_refused_calls() -> io::Result<()> {
    // SAFETY: the handler makes async-signal-safe calls only. A zeroed structure is valid (no
    // flags, empty mask) and outlives the call.
    let result = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut())
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handler(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`, which for SIGSYS starts with the layout of
    // `RefusedCall`. The calls are async-signal-safe.
    unsafe {
        let number = (*information.cast::<RefusedCall>()).number;
        libc::write(REFUSED_FD, (&raw const number).cast(), size_of::<c_int>());
        // If the filter denies changing this action, the filter ends the process; otherwise the
        // signal does.
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
