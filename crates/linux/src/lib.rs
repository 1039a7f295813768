//! Kernel TCP as a datapath, through BPF and without a kernel module.
//!
//! An algorithm is registered as a congestion control of its own, `ccp_<name>` ([`Kernel::load`]): its programs run in
//! the kernel at every ACK, as code that this crate generates for them; reports come out of a ring buffer, and windows,
//! rates and variables go in through a mapped flow table, without a system call. [`run_agent`] drives an
//! [`Agent`](ccplane_agent::Agent) with both, [`run_agent_unprivileged`] in a thread without capabilities; [`run_relay`] passes
//! both on to and from an agent in another process.
//!
//! `bpf/` has the kernel's side, prebuilt: users need no clang.

mod arms;
pub mod asm;
pub mod bench;
mod clock;
pub mod codegen;
mod counters;
mod drive;
mod emit;
mod error;
mod holder;
mod kernel;
mod layout;
mod load;
mod lock;
mod log;
mod memory;
mod namespace;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_kernel;
#[cfg(test)]
mod oracle_stamps;
mod owner;
pub mod pad;
mod pin;
mod places;
mod privilege;
mod programs;
mod registered;
mod relay;
mod remote;
mod ring;
pub mod select;
mod socket;
pub mod stamp;
mod table;
#[cfg(test)]
mod testing;
mod totals;

pub use arms::{Arm, Arms};
pub use drive::{Observer, run_agent, run_agent_unprivileged};
pub use error::LoadError;
pub use kernel::{CAPABILITIES, Counters, Kernel};
pub use load::{AlgorithmSpec, KernelFeatures, Options, most_flows};
pub use lock::abandon_name;
pub use owner::Owner;
pub use pin::{Observed, Presence, attached, detach, observe, presence};
pub use places::{Places, choose_places};
pub use privilege::{drop_capabilities, keep_capabilities, keep_net_admin, no_new_privileges};
pub use relay::{run_relay, run_relay_unprivileged};
pub use remote::{RemoteError, remote_algorithms};
pub use socket::wake_reader_at;
pub use table::{FlowView, Flows};
pub use totals::{BUCKETS, Histogram, RATES, RTTS, TIMES, Totals};
