//! Errors of setting up or operating a link.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
#[cfg(feature = "tls")]
use std::sync::Arc;

use ccplane_units::Duration;
use nix::errno::Errno;

use super::AgentAddress;
#[cfg(feature = "tls")]
use super::tls::{KeyError, RemoteAgentError, TlsAddress};

/// Error that affects a whole link. Faults of single peers are logged and affect only these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket could not be created or bound.
    #[error("cannot listen at {}: {what}: {why}", .path.display())]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// The step that failed.
        what: &'static str,
        /// Underlying error.
        why: Errno,
    },
    /// Another agent serves at this path.
    #[error("another agent listens at {}; stop it or choose another path", .0.display())]
    InUse(PathBuf),
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; remove it or choose another path", .0.display())]
    NoSocket(PathBuf),
    /// No agent listens at this path.
    #[error("no agent answers at {}: {why}; start one with `ccplane agent --unix {}`",
        .path.display(), .path.display())]
    NoAgent {
        /// Path of the agent's socket.
        path: PathBuf,
        /// Underlying error.
        why: Errno,
    },
    /// The last attempt failed or the connection was lost; the next attempt starts after this time.
    #[error("lost the connection to the agent; reconnecting in {0}")]
    Waiting(Duration),
    /// No CCP agent listens at this path.
    #[error("no CCP agent answers at {}: {why}; start one that binds this path (portus binds \
        /tmp/ccp/portus)", .path.display())]
    NoCcpAgent {
        /// Path of the agent's socket.
        path: PathBuf,
        /// Underlying error.
        why: Errno,
    },
    /// The agent accepted the connection but did not list its algorithms.
    #[error(
        "the agent at {0} does not list its algorithms; it hangs or has another version: run the \
        `ccplane agent` of this version"
    )]
    Silent(AgentAddress),
    /// The connection is not established yet.
    #[error("still connecting to the agent")]
    Connecting,
    /// No agent answers on another host.
    #[cfg(feature = "tls")]
    #[error("no agent answers at {address}: {why}")]
    RemoteUnreachable {
        /// Address of the agent.
        address: TlsAddress,
        /// Underlying error.
        why: Arc<RemoteAgentError>,
    },
    /// The key for another host is missing or invalid.
    #[cfg(feature = "tls")]
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The listening socket for other hosts could not be bound.
    #[error("cannot listen at {address}: {why}; use an address of this host and a free port")]
    Listen {
        /// Local address.
        address: SocketAddr,
        /// Underlying error.
        why: io::Error,
    },
    /// `poll` failed.
    #[error("cannot wait for messages: {0}")]
    Wait(Errno),
}
