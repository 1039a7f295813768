//! The line that serves a queue: start and end of each transmission.

use std::sync::Arc;

use ccplane_units::{Duration, Rate, Time};

use crate::piecewise::{PiecewiseProgress, nanobytes};
use crate::trace::Cursor;
use crate::{Piecewise, Trace};

/// Nanobytes per byte. Work is counted in nanobytes, so that rate (bytes/s) × time (ns) is exact.
pub(crate) const NANOBYTES_PER_BYTE: u64 = 1_000_000_000;

/// Maximum rate, 8 EB/s: the sum of two remainders must fit in 64 bits.
pub(crate) const RATE_MAX: u64 = u64::MAX / 2;

/// Kind of line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineSpec {
    /// Constant rate. Zero counts as one byte per second, to keep times finite.
    Constant(Rate),
    /// Recorded delivery opportunities, starting when the line starts and repeated.
    Trace(Arc<Trace>),
    /// Rates that change at known times, counted from the start of the line.
    Piecewise(Arc<Piecewise>),
    /// No limit: a packet departs when it arrives.
    Unlimited,
}

impl LineSpec {
    /// Returns the mean rate, or `None` without a limit. For a piecewise line that does not repeat,
    /// returns the highest rate.
    pub fn mean_rate(&self) -> Option<Rate> {
        match self {
            LineSpec::Constant(rate) => Some(*rate),
            LineSpec::Trace(trace) => Some(trace.mean_rate()),
            LineSpec::Piecewise(line) => Some(line.mean_rate()),
            LineSpec::Unlimited => None,
        }
    }
}

/// A line and its progress. It transmits one packet at a time, in the order given.
#[derive(Clone, Debug)]
pub struct Line(LineState);

/// The constant rate, by far the most common kind, is stored inline in 64 bytes with the tag; the
/// others are boxed.
#[derive(Clone, Debug)]
enum LineState {
    Constant(Constant),
    Trace(Box<Replay>),
    Piecewise(Box<PiecewiseProgress>),
    Unlimited,
}

impl Line {
    /// Creates a line that is idle at `now`. Traces and piecewise lines start at `now`.
    pub fn new(spec: &LineSpec, now: Time) -> Line {
        Line(match spec {
            LineSpec::Constant(rate) => LineState::Constant(Constant {
                rate: rate.bytes_per_sec().clamp(1, RATE_MAX),
                busy_until: now,
                remainder: 0,
                sizes: [Transmission::default(); 2],
            }),
            LineSpec::Trace(trace) => LineState::Trace(Box::new(Replay {
                trace: trace.clone(),
                cursor: trace.start(now),
            })),
            LineSpec::Piecewise(line) => {
                LineState::Piecewise(Box::new(PiecewiseProgress::new(line.clone(), now)))
            }
            LineSpec::Unlimited => LineState::Unlimited,
        })
    }

    /// Returns the state of a constant-rate line, so that a link can dispatch once per packet.
    #[inline(always)]
    pub(crate) fn as_constant(&mut self) -> Option<&mut Constant> {
        match &mut self.0 {
            LineState::Constant(line) => Some(line),
            _ => None,
        }
    }

    /// Returns the time at which a packet that is waiting at `now` can start. If it equals `now`,
    /// all previous packets have departed.
    #[inline]
    pub fn next_start(&self, now: Time) -> Time {
        match &self.0 {
            LineState::Constant(line) => now.max(line.busy_until),
            LineState::Trace(replay) => replay.trace.seek(replay.cursor, now).time,
            LineState::Piecewise(line) => now.max(line.busy_until()),
            LineState::Unlimited => now,
        }
    }

    /// Transmits a packet that starts at `start`, a result of [`next_start`](Line::next_start).
    /// Returns the departure time of its last bit, rounded down to the nanosecond; the remainder is
    /// carried over to the next packet.
    #[inline]
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        match &mut self.0 {
            LineState::Constant(line) => line.send(start, bytes),
            LineState::Trace(replay) => replay.send(start, u64::from(bytes)),
            LineState::Piecewise(line) => line.transmit(start, nanobytes(bytes)),
            LineState::Unlimited => start,
        }
    }

    /// Transmits the rest of a packet, in nanobytes, on a line that is idle until `start`.
    pub(crate) fn send_remainder(&mut self, start: Time, work: u128) -> Time {
        match &mut self.0 {
            LineState::Constant(line) => line.send_remainder(start, work),
            LineState::Trace(replay) => {
                let bytes = u64::try_from(work.div_ceil(u128::from(NANOBYTES_PER_BYTE)))
                    .unwrap_or(u64::MAX);
                replay.send(start, bytes)
            }
            LineState::Piecewise(line) => line.transmit(start, work),
            LineState::Unlimited => start,
        }
    }

    /// Returns the work that is left after `now`, in nanobytes.
    pub(crate) fn remaining_work(&self, now: Time) -> u128 {
        match &self.0 {
            LineState::Constant(line) if line.busy_until >= now => {
                let ns = u128::from(line.busy_until.since(now).as_nanos());
                ns * u128::from(line.rate) + u128::from(line.remainder)
            }
            LineState::Constant(_) | LineState::Unlimited => 0,
            LineState::Trace(replay) => {
                u128::from(replay.trace.bytes_between(now, replay.cursor))
                    * u128::from(NANOBYTES_PER_BYTE)
            }
            LineState::Piecewise(line) => line.remaining_work(now),
        }
    }
}

/// Constant rate, busy until `until` + `remainder`/`rate` ns.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    rate: u64,
    pub(crate) busy_until: Time,
    remainder: u64,
    /// Cached transmission times of the last small and the last large packet. Most packets of a
    /// link have one of two sizes, ACKs and full segments, and the division dominates the cost.
    sizes: [Transmission; 2],
}

/// Transmission time of a packet: `ns` + `rest`/rate nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Transmission {
    bytes: u32,
    /// Times above 4 s do not fit and are not cached.
    ns: u32,
    rest: u64,
}

/// Largest size of a small packet, bytes. Any value between an ACK and a full segment works.
const SMALL_PACKET_BYTES_MAX: u32 = 256;

impl Constant {
    #[inline(always)]
    pub(crate) fn send(&mut self, start: Time, bytes: u32) -> Time {
        if start > self.busy_until {
            self.busy_until = start;
            self.remainder = 0;
        }
        let kept = &self.sizes[usize::from(bytes > SMALL_PACKET_BYTES_MAX)];
        let (mut ns, rest) = match kept.bytes == bytes {
            true => (u64::from(kept.ns), kept.rest),
            false => self.transmission(bytes),
        };
        self.remainder += rest;
        if self.remainder >= self.rate {
            self.remainder -= self.rate;
            ns += 1;
        }
        self.busy_until += Duration::from_nanos(ns);
        self.busy_until
    }

    /// Computes and caches the transmission time of a size.
    #[cold]
    fn transmission(&mut self, bytes: u32) -> (u64, u64) {
        let work = u64::from(bytes) * NANOBYTES_PER_BYTE;
        let (ns, rest) = (work / self.rate, work % self.rate);
        if let Ok(ns) = u32::try_from(ns) {
            self.sizes[usize::from(bytes > SMALL_PACKET_BYTES_MAX)] =
                Transmission { bytes, ns, rest };
        }
        (ns, rest)
    }

    fn send_remainder(&mut self, start: Time, work: u128) -> Time {
        let rate = u128::from(self.rate);
        self.busy_until =
            start + Duration::from_nanos(u64::try_from(work / rate).unwrap_or(u64::MAX));
        self.remainder = (work % rate) as u64;
        self.busy_until
    }
}

/// A trace and the position in it.
#[derive(Clone, Debug)]
struct Replay {
    trace: Arc<Trace>,
    cursor: Cursor,
}

impl Replay {
    fn send(&mut self, start: Time, bytes: u64) -> Time {
        self.cursor = self
            .trace
            .consume(self.trace.seek(self.cursor, start), bytes);
        self.cursor.time
    }
}
