//! Why a benchmark could not be made.

/// What went wrong; the messages have the likely fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run on real packets, or what was asked for.
    #[error(transparent)]
    Lab(#[from] ccplane_lab::Error),
    /// The exchange of messages between agent and datapath.
    #[error(transparent)]
    Loop(#[from] ccplane_testbed::control_loop::LoopError),
    /// The simulator.
    #[error(transparent)]
    Simulator(#[from] ccplane_sim::SimError),
    /// The emulator.
    #[error(transparent)]
    Emulator(#[from] ccplane_emu::Error),
    /// The kernel does not take a program.
    #[error(transparent)]
    Kernel(#[from] ccplane_linux::LoadError),
    /// The transport's sockets.
    #[error(transparent)]
    Udp(#[from] ccplane_udp::UdpError),
    /// Namespaces and devices.
    #[error(transparent)]
    Host(#[from] ccplane_host::Error),
    /// A gateway.
    #[error(transparent)]
    Gateway(#[from] ccplane_gateway::GatewayError),
    /// A benchmark's program does not compile.
    #[error(transparent)]
    Program(#[from] ccplane_lang::Diagnostics),
    /// A program that a benchmark starts is not there.
    #[error(transparent)]
    Missing(Box<ccplane::program::Failure>),
    /// Something else.
    #[error("{what}")]
    Failed {
        /// What, and why.
        what: String,
        /// The likely fix, where there is one.
        hint: Option<&'static str>,
    },
}

impl From<ccplane::program::Failure> for Error {
    fn from(failure: ccplane::program::Failure) -> Error {
        Error::Missing(Box::new(failure))
    }
}

impl Error {
    /// Something without a type of its own.
    pub(crate) fn failed(what: impl Into<String>) -> Error {
        Error::Failed {
            what: what.into(),
            hint: None,
        }
    }

    /// For `map_err`: what failed, the system's reason behind it.
    pub(crate) fn because(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Error {
        move |why| Error::failed(format!("{what}: {why}"))
    }
}
