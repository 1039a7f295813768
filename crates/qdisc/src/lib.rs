//! Queues and links as plain values: the behaviour of a bottleneck without a clock, sockets or
//! threads of its own.
//!
//! The simulator drives these types in virtual time, the emulator and the gateway in real time. All
//! methods take `now` and compute in integers with a remainder below the nanosecond, so that the
//! same input gives the same departures on every platform and rounding errors do not accumulate.
//!
//! * [`Line`]: the server of a queue: a constant rate, rates that change at known times
//!   ([`Piecewise`]), a trace of delivery opportunities ([`Trace`], Mahimahi's format), or no
//!   limit.
//! * [`FifoLink`]: drop-tail queue and line in one; the departure time is known on arrival.
//! * [`Qdisc`] and [`ShapedLink`]: a link built from any queue. Where both forms are possible, they
//!   give the same departures.
//! * [`QueueSpec`]: textual form of a queue, such as `droptail:1bdp` or `fq_codel:target=5ms`,
//!   which builds an [`AnyQdisc`].
//! * [`Loss`] and [`Delay`]: random loss and propagation delay behind the line, drawn from a seed.
//!
//! # Queues
//!
//! * [`DropTail`]: FIFO, drops when full.
//! * [`EcnStep`]: FIFO that marks packets that find more than K waiting (Alizadeh et al., DCTCP,
//!   SIGCOMM 2010).
//! * [`Prio`]: strict priority; a shared buffer pushes out from the lowest band (RC3's routers,
//!   Mittal et al., NSDI 2014; Linux `prio`).
//! * [`Sfq`]: one queue per flow, byte-based round robin, drops from the longest (McKenney, INFOCOM
//!   1990; Linux `sfq`).
//! * [`Red`]: drops or marks on enqueue by the average queue size, with the "gentle" slope (Floyd
//!   and Jacobson, ToN 1993).
//! * [`Codel`]: drops or marks on dequeue by sojourn time (RFC 8289).
//! * [`FqCodel`]: CoDel per flow, new flows first, drops from the fattest flow when full (RFC
//!   8290).
//! * [`DualPi2`]: one queue for L4S and one for classic traffic, coupled; marks and drops on
//!   dequeue (RFC 9332; Linux `dualpi2`).
//! * [`Tbf`]: token bucket in front of another queue; delays packets (Linux `tbf`).
//! * [`Policer`]: token bucket that drops packets without tokens on enqueue (RFC 2475; Linux
//!   `police`).
//! * [`Classes`]: strict levels, weighted sharing within a level, any of these queues in each class
//!   (Shreedhar and Varghese, SIGCOMM 1995).
//! * [`Rcp`]: drop-tail queue that stamps the same fair rate on packets of all flows on dequeue
//!   (Dukkipati and McKeown, CCR 2006).
#![forbid(unsafe_code)]

mod any;
mod bucket;
mod classes;
mod codel;
mod delay;
mod droptail;
mod dualpi2;
mod ecn_step;
mod fifo;
mod fq_codel;
mod line;
mod longest;
mod loss;
pub mod marking;
mod piecewise;
mod policer;
mod prio;
mod qdisc;
mod rcp;
mod red;
mod setting;
mod sfq;
mod shaped;
mod spec;
mod tbf;
mod tokens;
mod trace;

pub use any::AnyQdisc;
pub use classes::{ClassSpec, Classes, ClassesSpec};
pub use codel::{Codel, CodelConfig};
pub use delay::{Delay, DelayDistribution, DelayModel};
pub use droptail::DropTail;
pub use dualpi2::{DualPi2, DualPi2Config};
pub use ecn_step::EcnStep;
pub use fifo::{AdmissionResult, FifoLink};
pub use fq_codel::{FqCodel, FqCodelConfig};
pub use line::{Line, LineSpec};
pub use loss::{LinkSeeds, Loss, LossModel, LossModelError};
pub use piecewise::{Piecewise, PiecewiseError};
pub use policer::Policer;
pub use prio::{Buffer, Prio};
pub use qdisc::{
    Backlog, CLASS_COUNT, DropReason, Drops, Ecn, Limit, Packet, Qdisc, Stamp, Verdict,
};
pub use rcp::{Rcp, RcpConfig};
pub use red::{Red, RedConfig};
pub use sfq::{Sfq, SfqConfig};
pub use shaped::ShapedLink;
pub use spec::{FifoLimit, QueueSpec, QueueSpecError, RedSpec, Size};
pub use tbf::Tbf;
pub use trace::{Trace, TraceError};
