//! What can go wrong with sockets and transfers over them.

use std::io;
use std::net::SocketAddr;

use ccplane_link::LinkError;
use nix::errno::Errno;

use crate::tls::Refused;

/// Why the driver cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// The socket could not be made.
    #[error("no UDP socket at {address}: {why}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// Datagrams of this size do not leave.
    #[error(
        "datagrams of {size} bytes are too long for the path to {address}: choose a smaller --mtu"
    )]
    TooLong {
        /// For whom.
        address: SocketAddr,
        /// UDP payload, bytes.
        size: usize,
    },
    /// The kernel does not stamp packets.
    #[error("cannot have the kernel stamp packets: {0}")]
    Stamps(io::Error),
    /// The socket does not work any more.
    #[error("cannot {what}: {why}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// Why.
        why: io::Error,
    },
    /// The operating system has no random numbers.
    #[error("no random numbers from the operating system: {0}")]
    Random(io::Error),
    /// TLS does not begin.
    #[error(transparent)]
    Tls(#[from] Refused),
    /// No agent to steer by.
    #[error(transparent)]
    Agent(#[from] LinkError),
}

/// What a socket says of one datagram, or of the way there, and not of itself: the next one may
/// pass. A forged source makes some of them.
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
            // To port 0; and where `quinn-udp` has met a device without segmentation offload: it
            // does without from now on.
            | Errno::EIO
            | Errno::EINVAL
    )
}
