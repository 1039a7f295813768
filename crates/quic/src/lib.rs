//! QUIC stacks as datapaths: any of ccplane's algorithms, or one's own, behind a stack's
//! congestion-control hook.
//!
//! A [`Plane`] steers all paths of a process: by an algorithm in a thread of its own, or by an
//! agent in another process. Each path of each connection is a flow, with the same reports as on
//! kernel TCP. Where the agent is silent, its paths run NewReno and go on.
//!
//! ```
//! # #[cfg(feature = "noq")] {
//! use ccplane_algorithms::{Parameters, Registry};
//! use ccplane_quic::{Limits, Plane, Stack};
//!
//! let copa = Registry::builtin().by_name("copa", &Parameters::default())?;
//! let plane = Plane::in_process(Stack::Noq, copa, Limits::default())?;
//! let mut transport = noq_proto::TransportConfig::default();
//! transport.congestion_controller_factory(plane.noq()?);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Path`] is what all stacks have in common, without any of them: it has no clock, no thread and
//! no lock.
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

pub use ccplane_datapath::Limits;
pub use ccplane_link::AgentAddress;
pub use error::PlaneError;
pub use path::Path;
pub use plane::{Plane, PlaneStats, Steered};
pub use stack::Stack;
