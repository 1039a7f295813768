//! What can go wrong.

use std::io;
use std::path::PathBuf;

use ccplane_qdisc::QueueSpecError;
use ccplane_units::Duration;

use crate::Way;

/// Why an emulation could not start or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A namespace or a device could not be made.
    #[error(transparent)]
    Host(#[from] ccplane_host::Error),
    /// A queue that cannot be.
    #[error("{way} link: {source}")]
    Queue {
        /// Which direction.
        way: Way,
        /// What is wrong with it.
        source: QueueSpecError,
    },
    /// A rate of zero.
    #[error(
        "{way} link: a rate of 0 never delivers anything; give a rate above 0 (to cut the link, use loss 100%)"
    )]
    ZeroRate {
        /// Which direction.
        way: Way,
    },
    /// A packet would arrive before it was sent.
    #[error(
        "{way} link: a jitter of {jitter} is more than the delay of {delay}; a packet cannot arrive before it was sent: \
         use a delay of {jitter} or more, or less jitter"
    )]
    Jitter {
        /// Which direction.
        way: Way,
        /// How far a packet's delay may be from the delay.
        jitter: Duration,
        /// The delay.
        delay: Duration,
    },
    /// The system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The command could not be started.
    #[error("cannot run `{program}`: {source}")]
    Command {
        /// The command's name.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A link between an interface and itself.
    #[error("a link joins two interfaces, and both are {name}")]
    OneInterface {
        /// The interface.
        name: String,
    },
    /// The packet log could not be opened.
    #[error("the packet log {path}: {source}")]
    Log {
        /// Its file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that is no packet log of an emulator.
    #[error("{path}: {reason}")]
    NoLog {
        /// The file.
        path: PathBuf,
        /// Why it is none, and what is one.
        reason: String,
    },
    /// A running emulation could not be asked, or refused.
    #[error("emulation {id}: {reason}")]
    Remote {
        /// Its name.
        id: String,
        /// What it said, or why it could not be asked.
        reason: String,
    },
    /// The emulator's thread ended by a panic, which is a bug in ccplane.
    #[error("the emulator's thread panicked; please report this with the command that led to it")]
    Panicked,
}
