//! Reliable byte-stream transport as a state machine.
//!
//! A [`Connection`] takes typed [`Segment`]s and the time, and returns segments and its next
//! deadline. It has no payload, socket or clock. Over UDP a codec and a driver add bytes and
//! sockets. The simulator carries the segments themselves.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod control;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod handshake;
mod native;
mod number;
mod proof;
mod ranges;
mod rc3;
mod receive;
mod segment;
mod send;
mod stamps;
mod stats;
mod steered;
#[cfg(test)]
mod test_harness;

pub use ccplane_datapath::{ExchangeStamps, OneWay};
pub use ccplane_qdisc::{CLASS_COUNT, Ecn};
pub use config::{Rc3, TransportConfig};
pub use connection::{Connection, ConnectionState, RecoveryPhase};
pub use control::{Ack, CongestionControl, ControlEvent};
pub use error::ConnectionError;
pub use handshake::PEER_MSS_MIN;
pub use native::{Cubic, Dctcp, Native, NewReno, Rcp, UnknownNative};
pub use number::SequenceNumber;
pub use proof::Proof;
pub use rc3::{Rc3Stats, Rc3Stop};
pub use receive::Rc3Arrivals;
pub use segment::{Range, SACK_RANGES_MAX, Segment, SegmentKind, SegmentPart, SideData};
pub use send::prr::Prr;
pub use send::rate::{DeliveryRate, RateSample, Stamp};
pub use send::rtt::Rtt;
pub use stats::ConnectionStats;
pub use steered::CAPABILITIES;
