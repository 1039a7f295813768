//! Recorded links in Mahimahi's format: one line per delivery opportunity, the millisecond at which
//! it occurs.
//!
//! Each opportunity carries up to [`OPPORTUNITY_BYTES`]. What the queue cannot use is lost. A
//! packet may span several opportunities, and several small ones may share one. After the last line
//! the trace begins again, with the last time as its period (Netravali et al., Mahimahi, USENIX ATC
//! 2015, section 3.2).

use ccplane_units::{Rate, Time};

/// What one opportunity carries: a full packet of the usual MTU.
const OPPORTUNITY_BYTES: u32 = 1_500;

/// A recorded link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Nanoseconds since the beginning of the period; never decreasing, the last one is the period
    /// and above zero.
    times: Vec<u64>,
}

/// Why a trace could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not a number of milliseconds.
    #[error(
        "line {line}: `{text}` is not a time in milliseconds; a trace has one whole number per line, the time of a \
         delivery opportunity of 1500 bytes"
    )]
    NotATime {
        /// Counted from 1.
        line: usize,
        /// The line, or its beginning.
        text: String,
    },
    /// Time runs backwards.
    #[error(
        "line {line}: {time} ms comes after {before} ms; the times of a trace must not decrease (sort the file)"
    )]
    Decreasing {
        /// Counted from 1.
        line: usize,
        /// The time on that line.
        time: u64,
        /// The time on the line before.
        before: u64,
    },
    /// There is no line with a time.
    #[error(
        "the trace is empty; it needs at least one line with the time of a delivery opportunity in milliseconds"
    )]
    Empty,
    /// Every opportunity is at 0 ms.
    #[error(
        "the trace lasts 0 ms: every opportunity is at time 0; its last time is its period and must be above 0"
    )]
    ZeroLength,
}

impl Trace {
    /// Reads a trace. Empty lines at the end are allowed, anything else that is not a time is an
    /// error.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let mut times = Vec::new();
        let mut before = 0;
        for (index, line) in text.trim_end().lines().enumerate() {
            let line_number = index + 1;
            let text = line.trim();
            let not_a_time = || TraceError::NotATime {
                line: line_number,
                text: excerpt(text),
            };
            if !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(not_a_time());
            }
            let time: u64 = text.parse().map_err(|_| not_a_time())?;
            let ns = time.checked_mul(1_000_000).ok_or_else(not_a_time)?;
            if time < before {
                return Err(TraceError::Decreasing {
                    line: line_number,
                    time,
                    before,
                });
            }
            before = time;
            times.push(ns);
        }
        match times.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::ZeroLength),
            Some(_) => Ok(Trace { times }),
        }
    }

    /// Bytes per second over the whole period, rounded down.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.times.len() as u128 * u128::from(OPPORTUNITY_BYTES);
        let per_sec = bytes * 1_000_000_000 / u128::from(self.period());
        Rate::from_bytes_per_sec(u64::try_from(per_sec).unwrap_or(u64::MAX))
    }

    /// The number of delivery opportunities in a period.
    pub fn opportunities(&self) -> usize {
        self.times.len()
    }

    fn period(&self) -> u64 {
        // `parse` made sure that there is a last time and that it is not zero; 1 keeps division
        // total.
        self.times.last().copied().unwrap_or(1)
    }

    /// The first opportunity of a trace that begins at `now`.
    pub(crate) fn start(&self, now: Time) -> Cursor {
        self.at(now.as_nanos(), 0)
    }

    /// The first opportunity at or after both `cursor` and `now` with something left.
    pub(crate) fn seek(&self, cursor: Cursor, now: Time) -> Cursor {
        let cursor = if cursor.left == 0 {
            self.step(cursor)
        } else {
            cursor
        };
        if cursor.time >= now {
            cursor
        } else {
            self.first_from(cursor.cycle, now.as_nanos())
        }
    }

    /// Takes `bytes` from `cursor` on; the result is the opportunity that carried the last of them.
    pub(crate) fn consume(&self, cursor: Cursor, bytes: u64) -> Cursor {
        let mut at = cursor;
        let mut bytes = bytes;
        while bytes > u64::from(at.left) {
            bytes -= u64::from(at.left);
            at = self.step(at);
        }
        at.left -= bytes as u32;
        at
    }

    /// Bytes of the opportunities after `now` that have been used when `cursor` is reached.
    pub(crate) fn bytes_between(&self, now: Time, cursor: Cursor) -> u64 {
        if cursor.time <= now {
            return 0;
        }
        let origin = cursor.cycle.min(now.as_nanos());
        let back = (cursor.cycle - origin).div_ceil(self.period());
        let first = self.first_from(
            cursor.cycle.saturating_sub(back * self.period()),
            now.as_nanos() + 1,
        );
        let cycles = (cursor.cycle - first.cycle) / self.period();
        let opportunities =
            cycles * self.times.len() as u64 + cursor.index as u64 + 1 - first.index as u64;
        opportunities * u64::from(OPPORTUNITY_BYTES) - u64::from(cursor.left)
    }

    /// The first opportunity at or after `ns`, which is not before the period that begins at
    /// `cycle`.
    fn first_from(&self, cycle: u64, ns: u64) -> Cursor {
        let since = ns.saturating_sub(cycle);
        // The last opportunity of a period is at its very end, so `into` runs from 1 to the period.
        let cycles = since.saturating_sub(1) / self.period();
        let into = since - cycles * self.period();
        let index = self.times.partition_point(|&time| time < into);
        self.at(cycle + cycles * self.period(), index)
    }

    fn step(&self, cursor: Cursor) -> Cursor {
        if cursor.index + 1 < self.times.len() {
            self.at(cursor.cycle, cursor.index + 1)
        } else {
            self.at(cursor.cycle.saturating_add(self.period()), 0)
        }
    }

    fn at(&self, cycle: u64, index: usize) -> Cursor {
        let into = self
            .times
            .get(index)
            .copied()
            .unwrap_or_else(|| self.period());
        Cursor {
            time: Time::from_nanos(cycle.saturating_add(into)),
            cycle,
            index,
            left: OPPORTUNITY_BYTES,
        }
    }
}

/// The beginning of a line, fit for a terminal.
fn excerpt(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

/// A place in a trace that repeats: an opportunity and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// When the opportunity occurs.
    pub(crate) time: Time,
    /// When its period began, ns.
    cycle: u64,
    index: usize,
    /// Bytes that it can still carry.
    left: u32,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{FifoLink, Limit, LineSpec};

    fn trace(text: &str) -> Trace {
        Trace::parse(text).expect("a good trace")
    }

    fn departures(text: &str, arrivals: &[(u64, u32)]) -> Vec<u64> {
        let line = LineSpec::Trace(Arc::new(trace(text)));
        let mut link = FifoLink::new(&line, Limit::Unlimited, Time::ZERO);
        let enqueue = |(ms, bytes): &(u64, u32)| {
            let departs = link
                .enqueue(Time::from_micros(ms * 1_000), *bytes)
                .expect("no limit");
            departs.as_micros() / 1_000
        };
        arrivals.iter().map(enqueue).collect()
    }

    #[test]
    fn an_opportunity_carries_1500_bytes_and_what_is_not_used_is_lost() {
        let text = "2\n5\n5\n9\n";
        assert_eq!(
            departures(text, &[(0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500)]),
            [2, 5, 5, 9]
        );
        // Small packets share one; a large one takes the rest of it and what it needs of the next.
        assert_eq!(
            departures(text, &[(0, 700), (0, 700), (0, 700), (0, 1_500)]),
            [2, 2, 5, 5]
        );
        assert_eq!(departures(text, &[(0, 4_000)]), [5]);
        // At 4 ms the opportunity of 2 ms has passed.
        assert_eq!(
            departures(text, &[(4, 100), (6, 100), (6, 1_450)]),
            [5, 9, 11]
        );
    }

    #[test]
    fn the_trace_begins_again_after_its_last_time() {
        assert_eq!(
            departures(
                "3\n10\n",
                &[(0, 4_500), (11, 10), (25, 10), (10_000_000, 10)]
            ),
            [13, 20, 30, 10_000_000]
        );
        // An opportunity at 0 belongs to every period, the first included.
        assert_eq!(
            departures("0\n10\n", &[(0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500)]),
            [0, 10, 10, 20]
        );
    }

    #[test]
    fn a_trace_has_a_mean_rate() {
        // A packet every millisecond.
        let text: String = (1..=1_000).map(|ms| format!("{ms}\n")).collect();
        assert_eq!(
            trace(&text).mean_rate(),
            Rate::from_bits_per_sec(12_000_000)
        );
        assert_eq!(
            trace("1\r\n1\r\n").mean_rate(),
            Rate::from_bits_per_sec(24_000_000)
        );
    }

    #[test]
    fn what_is_not_a_trace_is_refused_with_the_line() {
        let error = |text| Trace::parse(text).expect_err("not a trace");
        assert_eq!(error(""), TraceError::Empty);
        assert_eq!(error("\n \n"), TraceError::Empty);
        assert_eq!(error("0\n0\n"), TraceError::ZeroLength);
        assert!(matches!(
            error("5\n4\n"),
            TraceError::Decreasing {
                line: 2,
                time: 4,
                before: 5
            }
        ));
        for (text, at) in [
            ("1\n\n2\n", 2),
            ("1\n2.5\n", 2),
            ("-1\n", 1),
            ("+1\n", 1),
            ("1 2\n", 1),
            ("1\n\u{0}\u{ff}garbage\n", 2),
            ("99999999999999999999999\n", 1),
            ("18446744073709551615\n", 1),
        ] {
            assert!(
                matches!(error(text), TraceError::NotATime { line, .. } if line == at),
                "{text:?}"
            );
        }
        assert!(
            error("1\nx\n")
                .to_string()
                .starts_with("line 2: `x` is not a time in milliseconds")
        );
    }
}
