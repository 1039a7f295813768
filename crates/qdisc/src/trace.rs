//! Recorded links in Mahimahi's format: each line of the file is the time of a delivery opportunity
//! in milliseconds.
//!
//! Each opportunity carries up to [`OPPORTUNITY_BYTES`]; capacity that the queue cannot use is
//! lost. A packet may span several opportunities, and several small packets may share one. The
//! trace repeats, with its last time as the period (Netravali et al., Mahimahi, USENIX ATC 2015,
//! section 3.2).

use ccplane_units::{Rate, Time};

/// Capacity of a delivery opportunity: one packet of the usual MTU.
const OPPORTUNITY_BYTES: u32 = 1_500;

/// Recorded link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Nanoseconds since the start of the period, in non-decreasing order. The last is the period
    /// and is positive.
    times: Vec<u64>,
}

/// Error from parsing a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A line is not a number of milliseconds.
    #[error(
        "line {line}: `{text}` is not a time in milliseconds; a trace has one whole number per \
         line, the time of a delivery opportunity of 1500 bytes"
    )]
    NotATime {
        /// Line number, counted from 1.
        line: usize,
        /// Excerpt of the line.
        text: String,
    },
    /// Times decrease.
    #[error(
        "line {line}: {time} ms comes after {before} ms; the times of a trace must not decrease \
         (sort the file)"
    )]
    Decreasing {
        /// Line number, counted from 1.
        line: usize,
        /// Time on this line, ms.
        time: u64,
        /// Time on the previous line, ms.
        before: u64,
    },
    /// The file has no times.
    #[error(
        "the trace is empty; it needs at least one line with the time of a delivery opportunity in \
         milliseconds"
    )]
    Empty,
    /// All opportunities are at 0 ms.
    #[error(
        "the trace lasts 0 ms: every opportunity is at time 0; its last time is its period and \
         must be above 0"
    )]
    ZeroLength,
}

impl Trace {
    /// Parses a trace. Only trailing blank lines are allowed.
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

    /// Returns the mean rate over a period, rounded down.
    pub fn mean_rate(&self) -> Rate {
        let bytes = self.times.len() as u128 * u128::from(OPPORTUNITY_BYTES);
        let per_sec = bytes * 1_000_000_000 / u128::from(self.period());
        Rate::from_bytes_per_sec(u64::try_from(per_sec).unwrap_or(u64::MAX))
    }

    /// Returns the number of delivery opportunities per period.
    pub fn opportunities(&self) -> usize {
        self.times.len()
    }

    fn period(&self) -> u64 {
        // `parse` rejects empty traces and a last time of zero; 1 only avoids a division by zero.
        self.times.last().copied().unwrap_or(1)
    }

    /// Returns the first opportunity of a trace that starts at `now`.
    pub(crate) fn start(&self, now: Time) -> Cursor {
        self.cursor_at(now.as_nanos(), 0)
    }

    /// Returns the first opportunity with capacity left that is not before `cursor` or `now`.
    pub(crate) fn seek(&self, cursor: Cursor, now: Time) -> Cursor {
        let cursor = if cursor.remaining == 0 {
            self.next_opportunity(cursor)
        } else {
            cursor
        };
        if cursor.time >= now {
            cursor
        } else {
            self.first_at_or_after(cursor.period_start, now.as_nanos())
        }
    }

    /// Consumes `bytes` starting at `cursor`. Returns the opportunity that carries the last of
    /// them.
    pub(crate) fn consume(&self, cursor: Cursor, bytes: u64) -> Cursor {
        let mut at = cursor;
        let mut bytes = bytes;
        while bytes > u64::from(at.remaining) {
            bytes -= u64::from(at.remaining);
            at = self.next_opportunity(at);
        }
        at.remaining -= bytes as u32;
        at
    }

    /// Returns the capacity, in bytes, used between `now` and `cursor`.
    pub(crate) fn bytes_between(&self, now: Time, cursor: Cursor) -> u64 {
        if cursor.time <= now {
            return 0;
        }
        let origin = cursor.period_start.min(now.as_nanos());
        let back = (cursor.period_start - origin).div_ceil(self.period());
        let first = self.first_at_or_after(
            cursor.period_start.saturating_sub(back * self.period()),
            now.as_nanos() + 1,
        );
        let cycles = (cursor.period_start - first.period_start) / self.period();
        let opportunities =
            cycles * self.times.len() as u64 + cursor.index as u64 + 1 - first.index as u64;
        opportunities * u64::from(OPPORTUNITY_BYTES) - u64::from(cursor.remaining)
    }

    /// Returns the first opportunity at or after `ns`, which is not before `cycle`, the start of a
    /// period.
    fn first_at_or_after(&self, cycle: u64, ns: u64) -> Cursor {
        let since = ns.saturating_sub(cycle);
        // The last opportunity is at the very end of its period, so `into` is between 1 and the
        // period.
        let cycles = since.saturating_sub(1) / self.period();
        let into = since - cycles * self.period();
        let index = self.times.partition_point(|&time| time < into);
        self.cursor_at(cycle + cycles * self.period(), index)
    }

    fn next_opportunity(&self, cursor: Cursor) -> Cursor {
        if cursor.index + 1 < self.times.len() {
            self.cursor_at(cursor.period_start, cursor.index + 1)
        } else {
            self.cursor_at(cursor.period_start.saturating_add(self.period()), 0)
        }
    }

    fn cursor_at(&self, cycle: u64, index: usize) -> Cursor {
        let into = self
            .times
            .get(index)
            .copied()
            .unwrap_or_else(|| self.period());
        Cursor {
            time: Time::from_nanos(cycle.saturating_add(into)),
            period_start: cycle,
            index,
            remaining: OPPORTUNITY_BYTES,
        }
    }
}

/// Returns the first 40 characters, escaped for a terminal.
fn excerpt(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

/// Position in a repeating trace: an opportunity and its remaining capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// Time of the opportunity.
    pub(crate) time: Time,
    /// Start of its period, ns.
    period_start: u64,
    index: usize,
    /// Remaining capacity, bytes.
    remaining: u32,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{FifoLink, Limit, LineSpec};

    fn trace(text: &str) -> Trace {
        Trace::parse(text).expect("a valid trace")
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
        // Small packets share an opportunity. A large one uses the rest of it and part of the next.
        assert_eq!(
            departures(text, &[(0, 700), (0, 700), (0, 700), (0, 1_500)]),
            [2, 2, 5, 5]
        );
        assert_eq!(departures(text, &[(0, 4_000)]), [5]);
        // At 4 ms the opportunity at 2 ms has passed.
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
        // An opportunity at 0 belongs to every period, including the first.
        assert_eq!(
            departures("0\n10\n", &[(0, 1_500), (0, 1_500), (0, 1_500), (0, 1_500)]),
            [0, 10, 10, 20]
        );
    }

    #[test]
    fn a_trace_has_a_mean_rate() {
        // One packet per millisecond.
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
