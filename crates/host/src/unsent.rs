//! Data of a socket that is still queued on this host.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Returns the number of bytes, including the kernel's overhead, sent on a UDP socket and still in
/// a queue or a driver of this host (`SIOCOUTQ`). Excludes data already passed to a TUN device or
/// the loopback interface.
pub fn unsent_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, another name of SIOCOUTQ, writes an int at the pointer, and the descriptor
    // is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    Errno::result(result)?;
    Ok(usize::try_from(bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn unsent_bytes_are_zero_for_idle_sockets_and_absent_for_files() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        assert_eq!(unsent_bytes(socket.as_fd()).expect("a socket"), 0);
        let file = std::fs::File::open("/dev/null").expect("every host has it");
        assert!(unsent_bytes(file.as_fd()).is_err());
    }
}
