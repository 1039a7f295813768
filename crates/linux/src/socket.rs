//! Socket options missing in the libraries in use.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets `SO_RCVLOWAT`: the reader of `socket` wakes only once `bytes` are available. The kernel
/// caps this at half the receive buffer.
pub fn wake_reader_at(socket: &impl AsFd, bytes: i32) -> io::Result<()> {
    // SAFETY: the option's value is an int that outlives the call, and its size is passed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const bytes).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
