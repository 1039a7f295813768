//! What serves a queue: when a packet can begin to leave, and when its last bit has gone.

use std::sync::Arc;

use ccplane_units::{Duration, Rate, Time};

use crate::piecewise::{Progress, nanobytes};
use crate::trace::Cursor;
use crate::{Piecewise, Trace};

/// Nanobytes in a byte: work is counted in bytes × 10⁻⁹, so that rate (bytes/s) × time (ns) is
/// exact.
pub(crate) const NANO: u64 = 1_000_000_000;

/// The fastest line, 8 exabytes per second: so that two remainders fit in 64 bits.
pub(crate) const FASTEST: u64 = u64::MAX / 2;

/// What kind of line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineSpec {
    /// So many bytes per second, always. Zero counts as one byte per second, so that time stays
    /// finite.
    Constant(Rate),
    /// Delivery opportunities at recorded times, from the moment the line starts, over and over.
    Trace(Arc<Trace>),
    /// Rates that change at known times, from the moment the line starts.
    Piecewise(Arc<Piecewise>),
    /// A packet has gone the moment it came.
    Unlimited,
}

impl LineSpec {
    /// Mean rate; `None` when there is no limit. Of a piecewise line that is not repeated, the
    /// highest.
    pub fn mean_rate(&self) -> Option<Rate> {
        match self {
            LineSpec::Constant(rate) => Some(*rate),
            LineSpec::Trace(trace) => Some(trace.mean_rate()),
            LineSpec::Piecewise(line) => Some(line.mean_rate()),
            LineSpec::Unlimited => None,
        }
    }
}

/// A line and where it is in its work. It carries one packet at a time, in the order it is given
/// them.
#[derive(Clone, Debug)]
pub struct Line(State);

/// The usual kind is inline, in 64 bytes with its tag; the others are behind a pointer.
#[derive(Clone, Debug)]
enum State {
    Constant(Constant),
    Trace(Box<Replay>),
    Piecewise(Box<Progress>),
    Unlimited,
}

impl Line {
    /// A line that is idle at `now`; a trace and a piecewise line begin then.
    pub fn new(spec: &LineSpec, now: Time) -> Line {
        Line(match spec {
            LineSpec::Constant(rate) => State::Constant(Constant {
                rate: rate.bytes_per_sec().clamp(1, FASTEST),
                until: now,
                remainder: 0,
                sizes: [Transmission::default(); 2],
            }),
            LineSpec::Trace(trace) => State::Trace(Box::new(Replay {
                trace: trace.clone(),
                at: trace.start(now),
            })),
            LineSpec::Piecewise(line) => {
                State::Piecewise(Box::new(Progress::new(line.clone(), now)))
            }
            LineSpec::Unlimited => State::Unlimited,
        })
    }

    /// The line, if it is of the usual kind, so that a link need not ask at every step.
    #[inline(always)]
    pub(crate) fn as_constant(&mut self) -> Option<&mut Constant> {
        match &mut self.0 {
            State::Constant(line) => Some(line),
            _ => None,
        }
    }

    /// When a packet that waits at `now` can begin to leave. When that is at once, all before it
    /// have left.
    #[inline]
    pub fn next_start(&self, now: Time) -> Time {
        match &self.0 {
            State::Constant(line) => now.max(line.until),
            State::Trace(replay) => replay.trace.seek(replay.at, now).time,
            State::Piecewise(line) => now.max(line.until()),
            State::Unlimited => now,
        }
    }

    /// Carries a packet that begins at `start`, which [`next_start`](Line::next_start) returned.
    /// Returns when its last bit has gone, in whole nanoseconds, rounded down. The remainder counts
    /// for the next packet.
    #[inline]
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        match &mut self.0 {
            State::Constant(line) => line.send(start, bytes),
            State::Trace(replay) => replay.send(start, u64::from(bytes)),
            State::Piecewise(line) => line.carry(start, nanobytes(bytes)),
            State::Unlimited => start,
        }
    }

    /// [`send`](Line::send) for the rest of a packet, in nanobytes, on a line that is idle until
    /// `start`.
    pub(crate) fn send_rest(&mut self, start: Time, work: u128) -> Time {
        match &mut self.0 {
            State::Constant(line) => line.send_rest(start, work),
            State::Trace(replay) => {
                let bytes = u64::try_from(work.div_ceil(u128::from(NANO))).unwrap_or(u64::MAX);
                replay.send(start, bytes)
            }
            State::Piecewise(line) => line.carry(start, work),
            State::Unlimited => start,
        }
    }

    /// Nanobytes that the line will have carried after `now` when it has done all it was given.
    pub(crate) fn work_after(&self, now: Time) -> u128 {
        match &self.0 {
            State::Constant(line) if line.until >= now => {
                let ns = u128::from(line.until.since(now).as_nanos());
                ns * u128::from(line.rate) + u128::from(line.remainder)
            }
            State::Constant(_) | State::Unlimited => 0,
            State::Trace(replay) => {
                u128::from(replay.trace.bytes_between(now, replay.at)) * u128::from(NANO)
            }
            State::Piecewise(line) => line.work_after(now),
        }
    }
}

/// A constant rate: busy until `until` + `remainder`/`rate` ns.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    rate: u64,
    pub(crate) until: Time,
    remainder: u64,
    /// What the last small and the last large packet took: most packets of a link have one of two
    /// sizes, those of acknowledgements and of full segments, and a division is what costs most.
    sizes: [Transmission; 2],
}

/// How long a packet takes: `ns` + `rest`/rate nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Transmission {
    bytes: u32,
    /// Slow transmissions, of more than 4 s, are not kept.
    ns: u32,
    rest: u64,
}

/// Above this many bytes a packet is large. Anything between an acknowledgement and a full segment
/// does.
const SMALL: u32 = 256;

impl Constant {
    #[inline(always)]
    pub(crate) fn send(&mut self, start: Time, bytes: u32) -> Time {
        if start > self.until {
            self.until = start;
            self.remainder = 0;
        }
        let kept = &self.sizes[usize::from(bytes > SMALL)];
        let (mut ns, rest) = match kept.bytes == bytes {
            true => (u64::from(kept.ns), kept.rest),
            false => self.transmission(bytes),
        };
        self.remainder += rest;
        if self.remainder >= self.rate {
            self.remainder -= self.rate;
            ns += 1;
        }
        self.until += Duration::from_nanos(ns);
        self.until
    }

    /// What a size takes that is not kept: it is from now on.
    #[cold]
    fn transmission(&mut self, bytes: u32) -> (u64, u64) {
        let work = u64::from(bytes) * NANO;
        let (ns, rest) = (work / self.rate, work % self.rate);
        if let Ok(ns) = u32::try_from(ns) {
            self.sizes[usize::from(bytes > SMALL)] = Transmission { bytes, ns, rest };
        }
        (ns, rest)
    }

    fn send_rest(&mut self, start: Time, work: u128) -> Time {
        let rate = u128::from(self.rate);
        self.until = start + Duration::from_nanos(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.remainder = (work % rate) as u64;
        self.until
    }
}

/// A trace and how far it has been used.
#[derive(Clone, Debug)]
struct Replay {
    trace: Arc<Trace>,
    at: Cursor,
}

impl Replay {
    fn send(&mut self, start: Time, bytes: u64) -> Time {
        self.at = self.trace.consume(self.trace.seek(self.at, start), bytes);
        self.at.time
    }
}
