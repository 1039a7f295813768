//! Why a run could not be made.

use std::io;
use std::path::PathBuf;

/// What went wrong, with the likely fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody to run.
    #[error("nothing to run: name an algorithm with --alg, or one of the kernel's own with --vs native:cubic")]
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
    /// The kernel has no such congestion control.
    #[error("the kernel has no congestion control `{name}`; it has {}{}{}", .known.join(", "), hint(.near), module(.name))]
    UnknownNative {
        /// What was asked for.
        name: String,
        /// What it has.
        known: Vec<String>,
        /// What may have been meant.
        near: Vec<String>,
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
    /// A QUIC stack has no such congestion control of its own.
    #[error("native:{0}")]
    UnknownOfQuic(#[from] ccplane_quic::host::UnknownNative),
    /// An algorithm that a QUIC stack cannot run, or an agent that is not there.
    #[error(transparent)]
    Quic(#[from] ccplane_quic::PlaneError),
    /// A QUIC stack that is not built in, for example.
    #[error(transparent)]
    QuicHost(#[from] ccplane_quic::host::HostError),
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
    /// The process may not make namespaces.
    #[error(
        "running real traffic needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN for namespaces and TUN devices{}): {cause}; \
         try again with sudo. Without root, `ccplane check` and `ccplane doctor` run, and `ccplane bench datapath`, \
         `bench control-loop` and `bench agent`",
        if *.bpf { ", CAP_BPF and CAP_PERFMON for ccplane's algorithms" } else { "" }
    )]
    NoPermission {
        /// What the system said.
        cause: String,
        /// Whether an algorithm of ccplane's is among the contenders.
        bpf: bool,
    },
    /// The emulated path failed.
    #[error(transparent)]
    Emulator(ccplane_emu::Error),
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
    /// The agent in another process cannot run it.
    #[error(transparent)]
    Remote(#[from] ccplane_linux::RemoteError),
    /// The kernel does not take it.
    #[error(transparent)]
    Kernel(ccplane_linux::LoadError),
    /// The program that stamps could not be attached to sockets.
    #[error("time stamps on kernel TCP: {0}")]
    Sockets(ccplane_linux::select::SelectError),
    /// The algorithm's thread ended without a word, which is a bug in ccplane.
    #[error("the algorithm's thread ended early; please report this with the command that led to it")]
    AgentEnded,
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
}

fn hint(near: &[String]) -> String {
    if near.is_empty() {
        String::new()
    } else {
        format!("; did you mean `{}`?", near.join("` or `"))
    }
}

fn module(name: &str) -> String {
    let known_module = [
        "bbr",
        "bic",
        "cdg",
        "dctcp",
        "highspeed",
        "htcp",
        "hybla",
        "illinois",
        "lp",
        "nv",
        "scalable",
        "vegas",
        "veno",
        "westwood",
        "yeah",
    ];
    let loadable = known_module.contains(&name);
    if loadable {
        format!("; if this kernel was built with it, `modprobe tcp_{name}` loads it")
    } else {
        String::new()
    }
}

impl Error {
    /// Tells the lack of privileges, which has a way out of its own, from everything else; `bpf`: whether BPF is wanted as well.
    pub fn from_emulator(error: ccplane_emu::Error, bpf: bool) -> Error {
        match error {
            ccplane_emu::Error::Host(error) => Error::from_host(error, bpf),
            error => Error::Emulator(error),
        }
    }

    /// The same for what failed on the host's network; `bpf`: whether BPF is wanted as well.
    pub fn from_host(error: ccplane_host::Error, bpf: bool) -> Error {
        match error {
            ccplane_host::Error::Permission { .. } => Error::NoPermission {
                cause: error.to_string(),
                bpf,
            },
            error => Error::Emulator(ccplane_emu::Error::Host(error)),
        }
    }

    /// An error of the traffic itself, for `map_err`: what was tried, and what may help (nothing where nobody knows).
    pub fn traffic(what: &'static str, hint: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Traffic { what, source, hint }
    }
}
