//! Why a link could not be set up.

use std::path::PathBuf;

use nix::errno::Errno;

/// Why a link could not be set up or went down as a whole. What single peers do wrong is logged, and costs only them.
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
    /// No CCP agent is there.
    #[error("no CCP agent answers at {}: {why}; start one that binds this path, as portus binds /tmp/ccp/portus", .path.display())]
    NoCcpAgent {
        /// Where.
        path: PathBuf,
        /// Why.
        why: Errno,
    },
    /// An agent is there, and does not say what it runs.
    #[error("the agent at {} does not say which algorithms it runs: it hangs, or is of another version; `ccplane agent --unix` says it", .0.display())]
    Silent(PathBuf),
    /// Waiting failed.
    #[error("cannot wait for messages: {0}")]
    Wait(Errno),
}
