//! Gateway errors, each with its cause and, where there is one, a fix.

use std::io;
use std::net::SocketAddr;

use ccplane_link::LinkError;
use ccplane_qdisc::QueueSpecError;

/// Error that prevents a gateway from starting or continuing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The TUN device could not be created.
    #[error(transparent)]
    Host(#[from] ccplane_host::Error),
    /// The UDP socket could not be bound.
    #[error(
        "cannot bind a UDP socket to {address}: {why}; if another program uses the port, choose \
        another in `listen`"
    )]
    Listen {
        /// Local address.
        address: SocketAddr,
        /// Underlying error.
        why: io::Error,
    },
    /// The status socket could not be bound.
    #[error(
        "cannot bind the status socket {path}: {why}; if another gateway uses it, choose another \
        with CCPLANE_GATEWAY_SOCKET"
    )]
    Status {
        /// Path of the socket.
        path: String,
        /// Underlying error.
        why: io::Error,
    },
    /// A queue cannot be built.
    #[error("queue of `{peer}`: {why}")]
    Queue {
        /// Name of the peer.
        peer: String,
        /// Underlying error.
        why: QueueSpecError,
    },
    /// An algorithm cannot be started.
    #[error("algorithm `{algorithm}`: {why}")]
    Algorithm {
        /// Name of the algorithm.
        algorithm: String,
        /// Underlying error.
        why: String,
    },
    /// The channel to an algorithm's thread failed.
    #[error(transparent)]
    Agent(#[from] LinkError),
    /// Any other failed system call.
    #[error("cannot {what}: {why}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// Underlying error.
        why: io::Error,
    },
}

impl GatewayError {
    /// Returns a constructor of [`System`](GatewayError::System) errors for `what`.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> GatewayError {
        move |why| GatewayError::System { what, why }
    }
}
