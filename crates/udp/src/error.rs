//! Errors of sockets and of the transfers over them.

use std::io;
use std::net::SocketAddr;

use ccplane_link::LinkError;
use nix::errno::Errno;

use crate::tls::HandshakeError;

/// Fatal error of the UDP driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// The socket could not be opened.
    #[error("cannot bind a UDP socket to {address}: {why}")]
    Bind {
        /// Local address.
        address: SocketAddr,
        /// Error of the operating system.
        why: io::Error,
    },
    /// The path does not carry datagrams of this size.
    #[error(
        "datagrams of {size} bytes are too long for the path to {address}; choose a smaller --mtu"
    )]
    TooLong {
        /// Destination.
        address: SocketAddr,
        /// UDP payload, bytes.
        size: usize,
    },
    /// The kernel cannot timestamp packets.
    #[error("cannot enable kernel timestamps: {0}")]
    Stamps(io::Error),
    /// A socket operation failed.
    #[error("cannot {what}: {why}")]
    Socket {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operating system.
        why: io::Error,
    },
    /// The operating system's random number generator failed.
    #[error("cannot get random numbers from the operating system: {0}")]
    Random(io::Error),
    /// TLS could not be configured.
    #[error(transparent)]
    Tls(#[from] HandshakeError),
    /// The agent cannot be reached.
    #[error(transparent)]
    Agent(#[from] LinkError),
}

/// Returns true for errors of a single datagram or of the path, not of the socket: the next
/// datagram may succeed. Some can be provoked with a forged source address.
pub fn passes(why: &io::Error) -> bool {
    matches!(
        why.raw_os_error()
            .map_or(Errno::UnknownErrno, Errno::from_raw),
        Errno::ECONNREFUSED
            | Errno::EHOSTUNREACH
            | Errno::ENETUNREACH
            | Errno::EHOSTDOWN
            | Errno::ENETDOWN
            | Errno::ENOPROTOOPT
            | Errno::EPROTO
            | Errno::EACCES
            | Errno::EPERM
            | Errno::EMSGSIZE
            | Errno::ENOBUFS
            | Errno::ENOMEM
            | Errno::EINTR
            // `EINVAL`: destination port 0. `EIO`: `quinn-udp` found a device without segmentation
            // offload and disables it from now on.
            | Errno::EIO
            | Errno::EINVAL
    )
}
