//! Datagrams that may be cut on their way.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Lets the kernel, and over IPv4 every router, cut what a UDP socket sends into fragments (`IP_PMTUDISC_DONT`, ip(7)).
pub fn may_fragment(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let never: libc::c_int = libc::IP_PMTUDISC_DONT;
    let set = |level, option| {
        // SAFETY: the option takes an int, which is read before the call returns, and the descriptor is open.
        let result = unsafe {
            let length = size_of_val(&never) as libc::socklen_t;
            libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const never).cast(), length)
        };
        Errno::result(result).map(drop)
    };
    if ipv6 {
        set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)?;
        // For IPv4 in IPv6; a socket that has none of it says so.
        let _ = set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER);
        return Ok(());
    }
    Ok(set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)?)
}
