//! Queues and links as values: what a bottleneck does to packets, with no clock, no socket and no
//! thread of its own.
//!
//! The simulator drives these types in virtual time, the emulator and the gateway in real time.
//! Everything takes `now`, counts in integers and keeps the remainder below the nanosecond, so that
//! the same input gives the same departures everywhere and nothing drifts.
//!
//! * [`Line`]: what serves a queue: a constant rate, rates that change at known times
//!   ([`Piecewise`]), a trace of delivery opportunities ([`Trace`], Mahimahi's files), or no limit.
//! * [`FifoLink`]: a drop-tail queue and its line in one; the departure is known when the packet
//!   comes.
//! * [`Qdisc`] and [`Shaped`]: the same link built from any queue that decides when it is asked.
//!   Both forms give the same departures where both can be.
//! * [`QueueSpec`]: a queue as people write it, `droptail:1bdp` or `fq_codel:target=5ms`, built to
//!   an [`AnyQdisc`].
//! * [`Loss`] and [`Delay`]: what happens behind the line, drawn from a seed.
//!
//! | queue | what it does | source | decides at |
//! |---|---|---|---|
//! | [`DropTail`] | first in, first out; drops what finds it full | | enqueue |
//! | [`EcnStep`] | marks what finds more than K waiting | Alizadeh et al., DCTCP, SIGCOMM 2010 | enqueue |
//! | [`Prio`] | strict priority; a shared buffer pushes out from the lowest band | RC3's routers (Mittal et al., NSDI 2014); Linux `prio` | enqueue drops, dequeue schedules |
//! | [`Sfq`] | a queue a flow, turns of bytes, drops from the longest | McKenney, INFOCOM 1990; Linux `sfq` | enqueue drops, dequeue schedules |
//! | [`Red`] | drops or marks by the average queue, gently | Floyd and Jacobson, ToN 1993 | enqueue |
//! | [`Codel`] | drops or marks by how long packets waited | RFC 8289 | dequeue |
//! | [`FqCodel`] | CoDel a flow, new flows first, drops from the fattest | RFC 8290 | dequeue; enqueue when full |
//! | [`DualPi2`] | a queue for L4S, one for the rest, coupled | RFC 9332; Linux `dualpi2` | dequeue |
//! | [`Tbf`] | a token bucket before another queue | Linux `tbf` | as the queue inside; holds packets back |
//! | [`Policer`] | a token bucket that drops what finds no tokens | RFC 2475; Linux `police` | enqueue |
//! | [`Classes`] | strict levels, shares by weight within one, any of these in each class | Shreedhar and Varghese, SIGCOMM 1995 | as the queues inside; dequeue schedules |
//! | [`Rcp`] | offers every flow the same rate, stamped on packets | Dukkipati and McKeown, CCR 2006 | dequeue stamps |
#![forbid(unsafe_code)]

mod any;
mod bucket;
mod classes;
mod codel;
mod delay;
mod droptail;
mod dualpi2;
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
mod step;
mod tbf;
mod tokens;
mod trace;

pub use any::AnyQdisc;
pub use classes::{ClassSpec, Classes, ClassesSpec};
pub use codel::{Codel, CodelConfig};
pub use delay::{Delay, DelayModel, Shape};
pub use droptail::DropTail;
pub use dualpi2::{DualPi2, DualPi2Config};
pub use fifo::{Admitted, FifoLink};
pub use fq_codel::{FqCodel, FqCodelConfig};
pub use line::{Line, LineSpec};
pub use loss::{LinkSeeds, Loss, LossModel, LossModelError};
pub use piecewise::{Piecewise, PiecewiseError};
pub use policer::Policer;
pub use prio::{Buffer, Prio};
pub use qdisc::{
    Backlog, DropReason, Drops, Ecn, Limit, MAX_CLASSES, Packet, Qdisc, Stamp, Verdict,
};
pub use rcp::{Rcp, RcpConfig};
pub use red::{Red, RedConfig};
pub use sfq::{Sfq, SfqConfig};
pub use shaped::Shaped;
pub use spec::{FifoLimit, QueueSpec, QueueSpecError, RedSpec, Size};
pub use step::EcnStep;
pub use tbf::Tbf;
pub use trace::{Trace, TraceError};
