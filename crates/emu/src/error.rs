//! Errors of the emulator.

use std::io;
use std::path::PathBuf;

use ccplane_qdisc::QueueSpecError;
use ccplane_units::Duration;

use crate::PathDirection;

/// An emulation could not start, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A namespace or a device could not be created.
    #[error(transparent)]
    Host(#[from] ccplane_host::Error),
    /// The queue is invalid.
    #[error("{way} link: {source}")]
    Queue {
        /// Direction of the link.
        way: PathDirection,
        /// Reason of the rejection.
        source: QueueSpecError,
    },
    /// The rate is zero.
    #[error(
        "{way} link: a rate of 0 delivers nothing; set a rate above 0, or loss 100% to cut the link"
    )]
    ZeroRate {
        /// Direction of the link.
        way: PathDirection,
    },
    /// The jitter exceeds the delay, so a packet would arrive before it was sent.
    #[error(
        "{way} link: the jitter of {jitter} exceeds the delay of {delay}, so packets would arrive \
        before they are sent; use a delay of {jitter} or more, or less jitter"
    )]
    Jitter {
        /// Direction of the link.
        way: PathDirection,
        /// Configured jitter.
        jitter: Duration,
        /// Configured delay.
        delay: Duration,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The command could not be started.
    #[error("cannot run `{program}`: {source}")]
    Command {
        /// Name of the command.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Both ends of the link are the same interface.
    #[error("both ends of the link are {name}; give two different interfaces")]
    OneInterface {
        /// Name of the interface.
        name: String,
    },
    /// The packet log could not be opened.
    #[error("cannot open the packet log {path}: {source}")]
    Log {
        /// Path of the log.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file is not a packet log of an emulator.
    #[error("{path}: {reason}")]
    NoLog {
        /// Path of the file.
        path: PathBuf,
        /// Reason, and how to create a packet log.
        reason: String,
    },
    /// A request to a running emulation failed.
    #[error("emulation {id}: {reason}")]
    Remote {
        /// Name of the emulation.
        id: String,
        /// Its answer, or the reason why it could not be reached.
        reason: String,
    },
    /// The emulator's thread panicked, which is a bug in ccplane.
    #[error("the emulator's thread panicked; please report this with the command that led to it")]
    Panicked,
}
