//! What serves a queue: when a packet can begin to leave, and when its last bit has gone.

use std::sync::Arc;

use ccplane_units::{Duration, Rate, Time};

use crate::Trace;
use crate::trace::Cursor;

/// Nanobytes in a byte: work is counted in bytes × 10⁻⁹, so that rate (bytes/s) × time (ns) is exact.
const NANO: u64 = 1_000_000_000;

/// The fastest line, 8 exabytes per second: so that two remainders fit in 64 bits.
const FASTEST: u64 = u64::MAX / 2;

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
        /// What the size sent last takes: most packets have one of two sizes, and a division is what costs most.
        last: Transmission,
    },
    Trace {
        trace: Arc<Trace>,
        at: Cursor,
    },
    Unlimited,
}

/// How long one packet takes: `ns` + `rest`/rate nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Transmission {
    bytes: u32,
    ns: u64,
    rest: u64,
}

impl Line {
    /// A line that is idle at `now`; a trace begins then.
    pub fn new(spec: &LineSpec, now: Time) -> Line {
        Line(match spec {
            LineSpec::Constant(rate) => State::Constant {
                rate: rate.bytes_per_sec().clamp(1, FASTEST),
                until: now,
                remainder: 0,
                last: Transmission::default(),
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
        match &mut self.0 {
            State::Constant {
                rate,
                until,
                remainder,
                last,
            } => {
                if start > *until {
                    *until = start;
                    *remainder = 0;
                }
                if last.bytes != bytes {
                    let work = u64::from(bytes) * NANO;
                    *last = Transmission {
                        bytes,
                        ns: work / *rate,
                        rest: work % *rate,
                    };
                }
                *until += Duration::from_nanos(last.ns);
                *remainder += last.rest;
                if *remainder >= *rate {
                    *remainder -= *rate;
                    *until += Duration::from_nanos(1);
                }
                *until
            }
            State::Trace { trace, at } => {
                *at = trace.consume(trace.seek(*at, start), u64::from(bytes));
                at.time
            }
            State::Unlimited => start,
        }
    }

    /// [`send`](Line::send) for the rest of a packet, in nanobytes, on a line that is idle until `start`.
    pub(crate) fn send_rest(&mut self, start: Time, work: u128) -> Time {
        match &mut self.0 {
            State::Constant {
                rate, until, remainder, ..
            } => {
                let wide = u128::from(*rate);
                *until = start + Duration::from_nanos(u64::try_from(work / wide).unwrap_or(u64::MAX));
                *remainder = (work % wide) as u64;
                *until
            }
            State::Trace { trace, at } => {
                let bytes = u64::try_from(work.div_ceil(u128::from(NANO))).unwrap_or(u64::MAX);
                *at = trace.consume(trace.seek(*at, start), bytes);
                at.time
            }
            State::Unlimited => start,
        }
    }

    /// Nanobytes that the line will have carried after `now` when it has done all it was given.
    pub(crate) fn work_after(&self, now: Time) -> u128 {
        match &self.0 {
            State::Constant {
                rate, until, remainder, ..
            } if *until >= now => u128::from(until.since(now).as_nanos()) * u128::from(*rate) + u128::from(*remainder),
            State::Constant { .. } | State::Unlimited => 0,
            State::Trace { trace, at } => u128::from(trace.bytes_between(now, *at)) * u128::from(NANO),
        }
    }
}
