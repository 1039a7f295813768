//! Why a run could not be made.

use std::io;
use std::path::PathBuf;

/// What went wrong, with the likely fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody to run.
    #[error(
        "nothing to run: name an algorithm with --alg, or one of the kernel's own with --vs native:cubic"
    )]
    NoContender,
    /// A quantity that makes no sense.
    #[error("{what} is {value}; {fix}")]
    Bad {
        /// Which parameter.
        what: &'static str,
        /// What was given.
        value: String,
        /// What to give instead.
        fix: &'static str,
    },
    /// ccplane's transport has no such congestion control.
    #[error("ccplane's transport has no congestion control `{name}`; it has {}{}", .known.join(", "), hint(.near))]
    UnknownControl {
        /// What was asked for.
        name: String,
        /// What it has.
        known: Vec<String>,
        /// What may have been meant.
        near: Vec<String>,
    },
    /// There is no such question.
    #[error("there is no question `{name}`; there are {}{}", .known.join(", "), hint(.near))]
    UnknownQuestion {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
        /// What may have been meant.
        near: Vec<String>,
    },
    /// The scenario cannot be run as it is written.
    #[error(transparent)]
    Scenario(crate::scenario::Problem),
    /// The scenario's file cannot be read.
    #[error(transparent)]
    ScenarioFile(crate::scenario::ReadError),
    /// The scenario has parts that this datapath cannot run.
    #[error(
        "{file} cannot run on real packets: {}; leave out what cannot, or run it with --datapath sim", .parts.join("; ")
    )]
    NotOnLinux {
        /// The scenario.
        file: String,
        /// What cannot run, one sentence each.
        parts: Vec<String>,
    },
    /// The log of a run's packets cannot be written.
    #[error("the packet log {} cannot be written: {why}; is there room, and may you write there (--out)?", .path.display())]
    PacketLog {
        /// The file.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// A simulation stood still or panicked.
    #[error(
        "{contender}, seed {seed}: {what}; this is a defect, in ccplane or in the algorithm; `{repeat}` repeats it"
    )]
    Broken {
        /// Who ran.
        contender: String,
        /// The seed of the run.
        seed: u64,
        /// What happened.
        what: String,
        /// The command that does it again.
        repeat: String,
    },
    /// A connection or its observation failed.
    #[error("cannot {what}: {source}{}", if .hint.is_empty() { String::new() } else { format!("; {}", .hint) })]
    Traffic {
        /// What was tried.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
        /// The likely fix, or nothing.
        hint: &'static str,
    },
    /// An algorithm's name or parameter is wrong.
    #[error(transparent)]
    Algorithm(#[from] ccplane_algorithms::UnknownAlgorithm),
    /// One of its programs is wrong.
    #[error(transparent)]
    Program(#[from] ccplane_agent::AddError),
    /// The agent in another process did not steer until the end.
    #[error(
        "the agent of {name} was gone or silent at the end, and NewReno steered its flows; see why the agent ended, start it \
         again, and repeat the run"
    )]
    AgentGone {
        /// Its algorithm.
        name: String,
    },
    /// A part of an experiment could not be kept.
    #[error("cannot write {}: {source}; choose another place with --out", .path.display())]
    Part {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The folder for results holds those of something else.
    #[error(
        "{} holds {}; choose another folder with --out, or write over it with --force", .directory.display(),
        if .holds.is_empty() { "something that is no experiment of ours".to_owned() } else { format!("the experiment `{}`", .holds) }
    )]
    Occupied {
        /// The folder.
        directory: PathBuf,
        /// The experiment in it; empty where it is something else.
        holds: String,
    },
    /// The results could not be written.
    #[error(transparent)]
    Write(crate::files::WriteError),
    /// The user asked to stop.
    #[error("stopped before the end")]
    Interrupted,
    /// Real packets could not run: a `ccplane_testbed::BackendError`.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
}

fn hint(near: &[String]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!("; did you mean `{}`?", near.join("` or `"))
    }
}

impl Error {
    /// An error of the traffic itself, for `map_err`: what was tried, and what may help (nothing
    /// where nobody knows).
    pub fn traffic(what: &'static str, hint: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Traffic { what, source, hint }
    }
}
