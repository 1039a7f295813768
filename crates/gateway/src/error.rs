//! What can go wrong with a gateway, with the cause and the way out.

use std::io;
use std::net::SocketAddr;

use ccplane_link::LinkError;
use ccplane_qdisc::QueueSpecError;

/// Why a gateway does not start, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The device could not be made.
    #[error(transparent)]
    Host(#[from] ccplane_host::Error),
    /// The socket could not be made.
    #[error(
        "no UDP socket at {address}: {why}; if another program has the port, choose another in `listen`"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// The status socket could not be made.
    #[error(
        "no status socket at {path}: {why}; a gateway that runs already has it, and another needs a --socket of its own"
    )]
    Status {
        /// Where.
        path: String,
        /// Why.
        why: io::Error,
    },
    /// A queue cannot be built.
    #[error("the queue of `{peer}`: {why}")]
    Queue {
        /// Whose.
        peer: String,
        /// Why.
        why: QueueSpecError,
    },
    /// An algorithm cannot be started.
    #[error("the algorithm `{algorithm}`: {why}")]
    Algorithm {
        /// Which.
        algorithm: String,
        /// Why.
        why: String,
    },
    /// No way between threads.
    #[error(transparent)]
    Agent(#[from] LinkError),
    /// Any other refusal by the system.
    #[error("cannot {what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why.
        why: io::Error,
    },
}

impl GatewayError {
    /// The error for `what` that the system refused.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> GatewayError {
        move |why| GatewayError::System { what, why }
    }
}
