//! Socket options that the libraries in use do not offer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_RCVLOWAT`: wakes the reader of `socket` only once `bytes` wait for it. The kernel takes at
/// most half the receive buffer.
pub fn wake_reader_at(socket: &impl AsFd, bytes: i32) -> io::Result<()> {
    // SAFETY: the option's value is an int, which outlives the call and whose size is stated.
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
