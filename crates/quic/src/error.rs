//! Errors of [`Plane`](crate::QuicPlane).

use std::io;

use ccplane_agent::AddError;
use ccplane_link::LinkError;

/// Error while creating a plane.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The algorithm needs capabilities that the stack lacks.
    #[error(
        "{algorithm} needs {missing}, which {stack}'s congestion-control hook does not provide; \
        {instead}"
    )]
    Missing {
        /// Name of the algorithm.
        algorithm: String,
        /// Missing capabilities.
        missing: String,
        /// Name of the stack.
        stack: &'static str,
        /// Alternatives that have them: other stacks or other datapaths.
        instead: String,
    },
    /// The algorithm is invalid, for example because its programs do not compile.
    #[error("cannot use the algorithm: {0}")]
    Algorithm(#[from] AddError),
    /// There is no agent, or it cannot be reached.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The operating system cannot create a thread.
    #[error("cannot create a thread: {0}")]
    Thread(#[from] io::Error),
    /// The plane was created for another stack.
    #[error(
        "the plane was created for {of}, but {asked} has other capabilities; create one for \
        {asked}"
    )]
    WrongStack {
        /// Stack of the plane.
        of: &'static str,
        /// Stack that requested it.
        asked: &'static str,
    },
}
