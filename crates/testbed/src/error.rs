//! Errors of runs on real packets.

use ccplane_lab::Error;

/// Error of a run on real packets, with the likely fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The kernel does not have the congestion control.
    #[error(
        "the kernel has no congestion control `{name}`; available: {}{}{}",
        .known.join(", "), hint(.near), module(.name)
    )]
    UnknownNative {
        /// Requested name.
        name: String,
        /// Names that the kernel has.
        known: Vec<String>,
        /// Known names that are similar.
        near: Vec<String>,
    },
    /// The QUIC stack does not have the congestion control.
    #[error("native:{0}")]
    UnknownOfQuic(#[from] ccplane_quic::host::UnknownNative),
    /// The QUIC stack cannot run the algorithm, or its agent cannot be reached.
    #[error(transparent)]
    Quic(#[from] ccplane_quic::PlaneError),
    /// The QUIC stack cannot be used, for example because it is not built in.
    #[error(transparent)]
    QuicHost(#[from] ccplane_quic::host::HostError),
    /// The process may not create namespaces.
    #[error(
        "real traffic needs root (CAP_NET_ADMIN and CAP_SYS_ADMIN for namespaces and TUN \
         devices{}): {cause}; try again with sudo. These commands work without root: `ccplane \
         check`, `ccplane doctor`, `ccplane bench datapath`, `bench control-loop` and `bench \
         agent`",
        if *.bpf { ", CAP_BPF and CAP_PERFMON for ccplane's algorithms" } else { "" }
    )]
    NoPermission {
        /// Error of the operating system.
        cause: String,
        /// True if a contender runs an algorithm of ccplane.
        bpf: bool,
    },
    /// The emulated path failed.
    #[error(transparent)]
    Emulator(ccplane_emu::Error),
    /// The agent in another process cannot run the algorithm.
    #[error(transparent)]
    Remote(#[from] ccplane_linux::RemoteError),
    /// The address in a contender is not valid.
    #[error("`{contender}`: {why}")]
    AgentAddress {
        /// Contender with the address of its agent.
        contender: String,
        /// Reason, with the valid forms.
        why: ccplane_link::BadAddress,
    },
    /// The kernel does not accept the datapath or the algorithm.
    #[error(transparent)]
    Kernel(ccplane_linux::LoadError),
    /// The BPF program that adds timestamps could not be attached to sockets.
    #[error("cannot add time stamps to kernel TCP: {0}")]
    Sockets(ccplane_linux::select::SelectError),
    /// The algorithm's thread ended without an error, which is a bug in ccplane.
    #[error(
        "the algorithm's thread ended early, which is a bug in ccplane; please report it with the \
         command"
    )]
    AgentEnded,
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Error {
        Error::Backend(Box::new(error))
    }
}

impl BackendError {
    /// Returns the `BackendError` inside an error of a run, if there is one.
    pub fn of(error: &Error) -> Option<&BackendError> {
        match error {
            Error::Backend(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Converts an error of the emulator. Missing privileges become [`BackendError::NoPermission`];
    /// with `bpf` its message names BPF's capabilities too.
    pub fn from_emulator(error: ccplane_emu::Error, bpf: bool) -> Error {
        match error {
            ccplane_emu::Error::Host(error) => BackendError::from_host(error, bpf),
            error => BackendError::Emulator(error).into(),
        }
    }

    /// Converts an error of the host's network, like [`from_emulator`](Self::from_emulator).
    pub fn from_host(error: ccplane_host::Error, bpf: bool) -> Error {
        match error {
            ccplane_host::Error::Permission { .. } => BackendError::NoPermission {
                cause: error.to_string(),
                bpf,
            }
            .into(),
            error => BackendError::Emulator(ccplane_emu::Error::Host(error)).into(),
        }
    }
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
        format!("; try `modprobe tcp_{name}`, which loads it if this kernel has the module")
    } else {
        String::new()
    }
}
