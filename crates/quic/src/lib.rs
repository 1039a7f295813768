//! QUIC stacks as datapaths: runs ccplane's algorithms, or custom ones, behind a stack's
//! congestion-control hook.
//!
//! A [`QuicPlane`] controls all paths of a process, with an algorithm on a thread of its own or
//! through an agent in another process. Each path of each connection is a flow with the same
//! reports as kernel TCP. If the agent times out, its paths continue with NewReno.
//!
//! ```
//! # #[cfg(feature = "noq")] {
//! use ccplane_quic::{OperatorLimits, Parameters, QuicPlane, Registry, Stack};
//!
//! let copa = Registry::builtin().by_name("copa", &Parameters::default())?;
//! let plane = QuicPlane::in_process(Stack::Noq, copa, OperatorLimits::default())?;
//! let mut transport = noq_proto::TransportConfig::default();
//! transport.congestion_controller_factory(plane.noq()?);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An application needs only this crate and its stack: the crate re-exports what a custom
//! [`Algorithm`] needs, and the [`Registry`] of ccplane's own.
//!
//! [`QuicPath`] is the part that all stacks share. It depends on none of them and has no clock,
//! thread or lock.
#![forbid(unsafe_code)]

mod error;
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "host")]
pub mod host;
#[cfg(feature = "noq")]
mod noq;
mod path;
mod plane;
#[cfg(feature = "quinn")]
mod quinn;
#[cfg(feature = "s2n")]
mod s2n;
mod stack;

pub use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};
pub use ccplane_algorithms::{Parameters, Registry};
pub use ccplane_datapath::OperatorLimits;
pub use ccplane_link::AgentAddress;
pub use ccplane_units as units;
pub use error::PlaneError;
pub use path::QuicPath;
pub use plane::{PlaneStats, QuicPlane, SteeredPath};
pub use stack::Stack;
