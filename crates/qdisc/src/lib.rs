//! Queues and links as values: what a bottleneck does to packets, with no clock, no socket and no thread of its own.
//!
//! The simulator drives these types in virtual time, the emulator and the gateway in real time. Everything takes
//! `now`, counts in integers and keeps the remainder below the nanosecond, so that the same input gives the same
//! departures everywhere and nothing drifts.
//!
//! * [`Line`]: what serves a queue: a constant rate, a trace of delivery opportunities, or no limit.
//! * [`FifoLink`]: a drop-tail queue and its line in one; the departure is known when the packet comes.
//! * [`Qdisc`], [`DropTail`], [`Shaped`]: the same link built from a queue that decides when it is asked, the form
//!   that schedulers and active queue management need. Both forms give the same departures.
//! * [`QueueSpec`]: `droptail:1bdp` as people write it; [`Trace`]: Mahimahi's trace files; [`Loss`]: seeded loss;
//!   [`Delay`]: propagation.
#![forbid(unsafe_code)]

mod any;
mod bucket;
mod codel;
mod delay;
mod droptail;
mod dualpi2;
mod fifo;
mod fq_codel;
mod line;
mod loss;
mod piecewise;
mod prio;
mod qdisc;
mod rcp;
mod red;
mod setting;
mod sfq;
mod shaped;
mod spec;
mod step;
mod tbf;
mod trace;

pub use any::AnyQdisc;
pub use codel::{Codel, CodelConfig};
pub use delay::{Delay, DelayModel, Shape};
pub use droptail::DropTail;
pub use dualpi2::{DualPi2, DualPi2Config};
pub use fifo::{Admitted, FifoLink};
pub use fq_codel::{FqCodel, FqCodelConfig};
pub use line::{Line, LineSpec};
pub use loss::{Loss, LossModel, LossModelError};
pub use piecewise::{Piecewise, PiecewiseError};
pub use prio::{Buffer, Prio};
pub use qdisc::{Backlog, DropReason, Drops, Ecn, Limit, Packet, Qdisc, Stamp, Verdict};
pub use rcp::{Rcp, RcpConfig};
pub use red::{Red, RedConfig};
pub use sfq::{Sfq, SfqConfig};
pub use shaped::Shaped;
pub use spec::{FifoLimit, QueueSpec, QueueSpecError, RedSpec, Size};
pub use step::EcnStep;
pub use tbf::Tbf;
pub use trace::{Trace, TraceError};
