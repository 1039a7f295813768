//! Path MTU to another host, as known to the kernel.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;

/// Returns the path MTU to an address in bytes: the MTU of the outgoing interface, or less if a
/// router reported so (RFC 1191, RFC 8201) to any socket of this namespace. The kernel keeps such
/// reports for 10 minutes. Nothing is sent.
pub fn path_mtu(to: SocketAddr) -> io::Result<u32> {
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let (any, level, option): (&str, _, _) = match to {
        SocketAddr::V4(_) => ("0.0.0.0:0", libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => ("[::]:0", libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let socket = UdpSocket::bind(any)?;
    // The kernel reports it for connected sockets only.
    socket.connect(to)?;
    let mut mtu: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both options write one int; both variables outlive the call, and `length` states the
    // available space.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut mtu).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(mtu.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_to_this_host_is_the_loopback_mtu() {
        // An IPv4 packet has at most 65,535 bytes, even if the device accepts more.
        let device = crate::mtu("lo").unwrap();
        let loopback = device.min(65_535);
        assert_eq!(path_mtu("127.0.0.1:1".parse().unwrap()).unwrap(), loopback);
        assert_eq!(
            path_mtu("[::ffff:127.0.0.1]:1".parse().unwrap()).unwrap(),
            loopback
        );
        if crate::has_ipv6() {
            assert!((loopback..=device).contains(&path_mtu("[::1]:1".parse().unwrap()).unwrap()));
        }
    }
}
