//! Errors of runs.

use std::io;
use std::path::PathBuf;

use ccplane_scenario::Contender;

/// Error of a run, with the likely fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no contender.
    #[error("nothing to run; give an algorithm with --alg, or a native one with --vs native:cubic")]
    NoContender,
    /// A parameter has an invalid value.
    #[error("{what} is {value}; {fix}")]
    InvalidParameter {
        /// Name of the parameter.
        what: &'static str,
        /// Given value.
        value: String,
        /// Valid values.
        fix: &'static str,
    },
    /// ccplane's transport has no congestion control of this name.
    #[error(
        "ccplane's transport has no congestion control `{name}`; available: {}{}",
        .known.join(", "), hint(.near)
    )]
    UnknownControl {
        /// Requested name.
        name: String,
        /// Available congestion controls.
        known: Vec<String>,
        /// Similar names.
        near: Vec<String>,
    },
    /// The simulator cannot use an agent in another process.
    #[error(
        "`{contender}` runs in another process, for which the simulator's virtual time does not \
         wait; use `--datapath linux`, `udp` or `quic`, as root, or write `{algorithm}` for an \
         algorithm of this process"
    )]
    RemoteInSimulator {
        /// Contender with the address of its agent.
        contender: String,
        /// Algorithm without the address.
        algorithm: String,
    },
    /// There is no question of this name.
    #[error("there is no question `{name}`; available: {}{}", .known.join(", "), hint(.near))]
    UnknownQuestion {
        /// Requested name.
        name: String,
        /// Available questions.
        known: Vec<String>,
        /// Similar names.
        near: Vec<String>,
    },
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(crate::scenario::Problem),
    /// The scenario's file cannot be read.
    #[error(transparent)]
    ScenarioFile(crate::scenario::ReadError),
    /// The datapath does not support parts of the scenario.
    #[error(
        "{file} cannot run on real packets: {}; remove the unsupported parts, or use --datapath \
         sim",
        .parts.join("; ")
    )]
    NotOnLinux {
        /// Name of the scenario.
        file: String,
        /// Unsupported parts, one sentence each.
        parts: Vec<String>,
    },
    /// The packet log of a run cannot be written.
    #[error(
        "the packet log {} cannot be written: {why}; check the free space and the permissions, or \
         choose another folder with --out",
        .path.display()
    )]
    PacketLog {
        /// File of the log.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// A simulation stalled or panicked.
    #[error(
        "{contender}, seed {seed}: {what}; this is a bug in ccplane or in the algorithm; \
         reproduce it with `{repeat}`"
    )]
    Internal {
        /// Contender of the run.
        contender: String,
        /// Seed of the run.
        seed: u64,
        /// Description of the failure.
        what: String,
        /// Command that reproduces the failure.
        repeat: String,
    },
    /// A connection or its measurement failed.
    #[error("cannot {what}: {source}{}{hint}", if .hint.is_empty() { "" } else { "; " })]
    Traffic {
        /// Failed operation.
        what: &'static str,
        /// Error of the operating system.
        source: io::Error,
        /// Likely fix; may be empty.
        hint: &'static str,
    },
    /// The finished runs of a sweep cannot be read or written.
    #[error(transparent)]
    Store(#[from] crate::sweep::StoreError),
    /// The result files of a run cannot be written.
    #[error(transparent)]
    Results(crate::files::WriteError),
    /// The name or a parameter of an algorithm is invalid.
    #[error(transparent)]
    Algorithm(#[from] ccplane_algorithms::UnknownAlgorithm),
    /// A program of an algorithm is invalid.
    #[error(transparent)]
    Program(#[from] ccplane_agent::AddError),
    /// The agent in another process did not control its flows until the end of the run.
    #[error(
        "the agent of {name} was gone or silent at the end, so NewReno controlled its flows; find \
         out why the agent ended, restart it, and repeat the run"
    )]
    AgentGone {
        /// Name of the algorithm.
        name: String,
    },
    /// A part of an experiment cannot be stored.
    #[error("cannot write {}: {source}; choose another folder with --out", .path.display())]
    Part {
        /// File of the part.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The result directory contains results of another experiment.
    #[error(
        "{} contains {}; choose another folder with --out, or overwrite it with --force",
        .directory.display(),
        if .holds.is_empty() {
            "files that are not an experiment of ccplane".to_owned()
        } else {
            format!("the experiment `{}`", .holds)
        }
    )]
    DirectoryInUse {
        /// The directory.
        directory: PathBuf,
        /// Experiment in the directory; empty if the content is not an experiment of ccplane.
        holds: String,
    },
    /// The results cannot be written.
    #[error(transparent)]
    Write(crate::files::WriteError),
    /// The user interrupted the run.
    #[error("stopped before the end")]
    Interrupted,
    /// A run on real packets failed; contains a `ccplane_testbed::BackendError`.
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
    /// Creates the error for a contender of another process in the simulator.
    pub(crate) fn remote_in_simulator(contender: &Contender) -> Error {
        Error::RemoteInSimulator {
            contender: contender.to_string(),
            algorithm: contender.agent_name(),
        }
    }

    /// Returns a closure for `map_err` that creates an error of the traffic. `what` is the failed
    /// operation; `hint` is a likely fix and may be empty.
    pub fn traffic(what: &'static str, hint: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Traffic { what, source, hint }
    }
}
