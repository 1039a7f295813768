//! Bytes that a socket has handed over and the network has not taken yet.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Bytes, with the kernel's own overhead, that were sent on a UDP socket and wait in a queue or a
/// driver of this host (`SIOCOUTQ`). What a TUN device or the loopback interface has taken does not
/// count any more.
pub fn unsent_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request, which is TIOCOUTQ by another name, writes an int where it is told to,
    // and the descriptor is open.
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
    fn nothing_waits_where_nothing_was_sent_and_a_file_has_no_such_queue() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        assert_eq!(unsent_bytes(socket.as_fd()).expect("a socket"), 0);
        let file = std::fs::File::open("/dev/null").expect("every host has it");
        assert!(unsent_bytes(file.as_fd()).is_err());
    }
}
