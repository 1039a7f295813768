//! A reliable byte-stream transport as a state machine.
//!
//! A [`Connection`] takes typed [`Segment`]s and time, and gives segments and its next deadline. It has no payload, socket or
//! clock: a codec and a driver put bytes and sockets around it, the simulator carries the segments as they are.
#![forbid(unsafe_code)]

mod config;
mod error;
mod number;
mod segment;

pub use ccplane_qdisc::Ecn;
pub use config::Config;
pub use error::Failure;
pub use number::Number;
pub use segment::{Kind, MAX_RANGES, Range, Segment, Side, Stamps};
