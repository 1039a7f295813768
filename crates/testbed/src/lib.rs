//! Runs scenarios on real packets: kernel TCP, ccplane's transport over UDP, and QUIC, each through
//! an emulated bottleneck.
//!
//! [`RealPackets`] is a [`Backend`](ccplane_lab::Backend) for [`ccplane_lab::run()`]. The
//! benchmarks and the experiments of papers use the modules directly: namespaces and hosts
//! ([`ends`], [`wire`]), traffic ([`traffic`], [`loopback`]), algorithms attached to the kernel
//! ([`steer`]), and the load of the machine ([`cpu`], [`machine`]).
#![forbid(unsafe_code)]

mod audit;
mod backend;
mod burner;
pub mod control_loop;
pub mod cpu;
mod diag;
pub mod ends;
mod error;
mod event_listener;
mod link_report;
pub mod loopback;
pub mod machine;
mod real;
pub mod stamping;
pub mod steer;
mod tap;
pub mod traffic;
mod transport_kind;
pub mod wire;

pub use audit::longest_stall;
pub use backend::RealPackets;
pub use diag::Diag;
pub use error::BackendError;
pub use transport_kind::TransportKind;
