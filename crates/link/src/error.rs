//! Why a link could not be set up.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ccplane_units::Duration;
use nix::errno::Errno;

use super::AgentAddress;
use super::tls::{FarError, KeyError, TlsAddress};

/// Why a link could not be set up or went down as a whole. What single peers do wrong is logged,
/// and costs only them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The socket could not be made or bound.
    #[error("cannot serve at {}: {what}: {why}", .path.display())]
    Bind {
        /// Where.
        path: PathBuf,
        /// Which step.
        what: &'static str,
        /// Why.
        why: Errno,
    },
    /// Somebody serves there.
    #[error("another agent serves at {}: stop it, or choose another path", .0.display())]
    InUse(PathBuf),
    /// There is something at the path that is no socket.
    #[error("{} exists and is no socket: remove it, or choose another path", .0.display())]
    NoSocket(PathBuf),
    /// No agent is there.
    #[error("no agent answers at {}: {why}; start one with `ccplane agent --unix {}`", .path.display(), .path.display())]
    NoAgent {
        /// Where.
        path: PathBuf,
        /// Why.
        why: Errno,
    },
    /// The last attempt failed or the connection was lost; the next attempt begins after this time.
    #[error("the agent was lost; the next attempt begins in {0}")]
    Waiting(Duration),
    /// No CCP agent is there.
    #[error("no CCP agent answers at {}: {why}; start one that binds this path, as portus binds /tmp/ccp/portus", .path.display())]
    NoCcpAgent {
        /// Where.
        path: PathBuf,
        /// Why.
        why: Errno,
    },
    /// An agent is there, and does not say what it runs.
    #[error(
        "the agent at {0} does not say which algorithms it runs: it hangs, or is of another version; `ccplane agent` of this one says it"
    )]
    Silent(AgentAddress),
    /// It is not known yet whether an agent is there.
    #[error("an agent is being connected to")]
    Connecting,
    /// No agent is there, on another host.
    #[error("no agent answers at {address}: {why}")]
    Far {
        /// Where.
        address: TlsAddress,
        /// Why.
        why: Arc<FarError>,
    },
    /// There is no key for another host.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Datapaths of other hosts cannot be served.
    #[error(
        "cannot serve at {address}: {why}; name an address of this host and a port that is free"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: io::Error,
    },
    /// Waiting failed.
    #[error("cannot wait for messages: {0}")]
    Wait(Errno),
}
