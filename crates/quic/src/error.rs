//! Why a plane could not be made.

use std::io;

use ccplane_agent::AddError;
use ccplane_link::LinkError;

/// Why a plane could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaneError {
    /// The algorithm asks for what the stack cannot do.
    #[error(
        "{algorithm} needs {missing}, which {stack}'s congestion-control hook does not have; {instead}"
    )]
    Missing {
        /// Its name.
        algorithm: String,
        /// What it needs and the stack lacks.
        missing: String,
        /// The stack's name.
        stack: &'static str,
        /// What has it: other stacks, or the other datapaths.
        instead: String,
    },
    /// The algorithm is none: its programs do not compile, for example.
    #[error("the algorithm cannot be used: {0}")]
    Algorithm(#[from] AddError),
    /// No agent is there, or there is no way to one.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The system gives no thread.
    #[error("a thread could not be begun: {0}")]
    Thread(#[from] io::Error),
    /// The plane was made for another stack.
    #[error("the plane was made for {of}, and {asked} cannot do the same: make one for {asked}")]
    WrongStack {
        /// What it was made for.
        of: &'static str,
        /// What asked for it.
        asked: &'static str,
    },
}
