//! Kernel TCP as a datapath, through BPF and without a kernel module.
//!
//! [`Kernel::load`] registers each algorithm as a congestion control `ccp_<name>`. Its programs run
//! in the kernel on every ACK, as code that this crate generates. Reports arrive through a ring
//! buffer. Windows, rates and variables are written to a mapped flow table, without a system call.
//! [`run_agent`] drives an [`Agent`](ccplane_agent::Agent) with both, and
//! [`run_agent_unprivileged`] does so in a thread without capabilities. [`run_relay`] forwards both
//! to an agent in another process. A program that computes window and rate itself
//! ([`StandaloneSpec`]) needs none of them; [`run_reader`] only observes it.
//!
//! `bpf/` contains the kernel's side, with prebuilt objects: users need no clang.

pub mod bench;
mod clock;
pub mod codegen;
mod cost;
pub mod default_control;
mod drive;
mod error;
mod kernel;
mod map;
mod namespace;
mod operator;
mod privilege;
mod registration;
mod relay;
pub mod sandbox;
pub mod select;
mod socket;
pub mod stamp;
#[cfg(test)]
mod testing;

pub use cost::Cost;
pub use drive::{Observer, run_agent, run_agent_unprivileged, run_reader};
pub use error::LoadError;
pub use kernel::{AlgorithmCounters, CAPABILITIES, Kernel};
pub use map::table::{FlowView, Flows};
pub use map::totals::{
    BUCKET_COUNT, CALLBACK_TIME_BASE, ConnectionTotals, Histogram, RATE_BASE, RTT_BASE,
};
pub use operator::OperatorHandle;
pub use privilege::{drop_capabilities, keep_capabilities, keep_net_admin, no_new_privileges};
pub use registration::load::{
    AlgorithmSpec, KernelFeatures, RegistrationOptions, StandaloneSpec, flows_max,
};
pub use registration::lock::abandon_name;
pub use registration::paths::{RegistrationPaths, set_paths};
pub use registration::pin::{PinnedView, Presence, attached, detach, observe, presence};
pub use registration::remote::{RemoteAlgorithms, RemoteError, is_kernel_name, remote_algorithms};
pub use relay::{run_relay, run_relay_unprivileged};
pub use select::arms::{Arm, Arms};
pub use socket::wake_reader_at;
