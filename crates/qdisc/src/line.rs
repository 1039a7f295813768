//! What serves a queue: when a packet can begin to leave, and when its last bit has gone.

use std::sync::Arc;

use ccplane_units::{Duration, Rate, Time};

use crate::Trace;
use crate::trace::Cursor;

/// Nanobytes in a byte: work is counted in bytes × 10⁻⁹, so that rate (bytes/s) × time (ns) is exact.
const NANO: u64 = 1_000_000_000;

/// What kind of line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineSpec {
    /// So many bytes per second, always. Zero counts as one byte per second, so that time stays finite.
    Constant(Rate),
    /// Delivery opportunities at recorded times, from the moment the line starts, over and over.
    Trace(Arc<Trace>),
    /// A packet has gone the moment it came.
    Unlimited,
}

impl LineSpec {
    /// Mean rate; `None` when there is no limit.
    pub fn mean_rate(&self) -> Option<Rate> {
        match self {
            LineSpec::Constant(rate) => Some(*rate),
            LineSpec::Trace(trace) => Some(trace.mean_rate()),
            LineSpec::Unlimited => None,
        }
    }
}

/// A line and where it is in its work. It carries one packet at a time, in the order it is given them.
#[derive(Clone, Debug)]
pub struct Line(State);

#[derive(Clone, Debug)]
enum State {
    /// Busy until `until` + `remainder`/`rate` ns.
    Constant {
        rate: u64,
        until: Time,
        remainder: u64,
    },
    Trace {
        trace: Arc<Trace>,
        at: Cursor,
    },
    Unlimited,
}

impl Line {
    /// A line that is idle at `now`; a trace begins then.
    pub fn new(spec: &LineSpec, now: Time) -> Line {
        Line(match spec {
            LineSpec::Constant(rate) => State::Constant {
                rate: rate.bytes_per_sec().max(1),
                until: now,
                remainder: 0,
            },
            LineSpec::Trace(trace) => State::Trace {
                trace: trace.clone(),
                at: trace.start(now),
            },
            LineSpec::Unlimited => State::Unlimited,
        })
    }

    /// When a packet that waits at `now` can begin to leave.
    pub fn next_start(&self, now: Time) -> Time {
        match &self.0 {
            State::Constant { until, .. } => now.max(*until),
            State::Trace { trace, at } => trace.seek(*at, now).time,
            State::Unlimited => now,
        }
    }

    /// Carries a packet that begins at `start`, which [`next_start`](Line::next_start) gave, and says when its last
    /// bit has gone, in whole nanoseconds, rounded down. The remainder counts for the next packet.
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        self.send_work(start, u128::from(bytes) * u128::from(NANO))
    }

    /// [`send`](Line::send) for an amount in nanobytes.
    pub(crate) fn send_work(&mut self, start: Time, work: u128) -> Time {
        match &mut self.0 {
            State::Constant { rate, until, remainder } => {
                if start > *until {
                    *until = start;
                    *remainder = 0;
                }
                let (ns, rest) = divide(work + u128::from(*remainder), *rate);
                *until += Duration::from_nanos(ns);
                *remainder = rest;
                *until
            }
            State::Trace { trace, at } => {
                let bytes = work.div_ceil(u128::from(NANO)).min(u128::from(u64::MAX)) as u64;
                *at = trace.consume(trace.seek(*at, start), bytes);
                at.time
            }
            State::Unlimited => start,
        }
    }

    /// Nanobytes that the line will have carried after `now` when it has done all it was given.
    pub(crate) fn work_after(&self, now: Time) -> u128 {
        match &self.0 {
            State::Constant { rate, until, remainder } if *until >= now => {
                u128::from(until.since(now).as_nanos()) * u128::from(*rate) + u128::from(*remainder)
            }
            State::Constant { .. } | State::Unlimited => 0,
            State::Trace { trace, at } => u128::from(trace.bytes_between(now, *at)) * u128::from(NANO),
        }
    }
}

/// Time and remainder for `work` nanobytes at `rate` bytes per second, which is not zero.
fn divide(work: u128, rate: u64) -> (u64, u64) {
    // One machine division for every packet that occurs; the wide one is ten times slower.
    match u64::try_from(work) {
        Ok(work) => (work / rate, work % rate),
        Err(_) => {
            let wide = u128::from(rate);
            (u64::try_from(work / wide).unwrap_or(u64::MAX), (work % wide) as u64)
        }
    }
}
