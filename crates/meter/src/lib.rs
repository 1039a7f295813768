//! A meter of one-way delay: probes that a responder answers, with the kernel's time stamps at both ends.
//!
//! Each [`Exchange`] has four of them: when the probe left (t1) and came (t2), when its reply left (t3) and came (t4). t3 is known
//! only once the reply is gone, so the next one tells it; t1 and t4 stay with the client. What they mean is for
//! `ccplane_lab::measure` to say.
#![forbid(unsafe_code)]

mod client;
mod drive;
mod key;
pub mod packet;
mod responder;

pub use client::{Client, Exchange, Heard, Tally};
pub use drive::{MeasureError, Measured, Plan, Service, measure, serve};
pub use key::{Key, KeyError};
pub use responder::{Answer, Came, Counters, Responder};
