//! What can go wrong with sockets and transfers over them.

use std::io;
use std::net::SocketAddr;

use ccplane_agent::LinkError;

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
    #[error("datagrams of {size} bytes are too long for the path to {address}: choose a smaller --mtu")]
    TooLong {
        /// For whom.
        address: SocketAddr,
        /// UDP payload, bytes.
        size: usize,
    },
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
    /// No agent to steer by.
    #[error(transparent)]
    Agent(#[from] LinkError),
}
