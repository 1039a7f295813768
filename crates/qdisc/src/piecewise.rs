//! Lines whose rate changes at known times. Between the changes it is constant; a rate of zero is
//! an outage.

use std::sync::Arc;

use ccplane_units::{Duration, Rate, Time};

use crate::line::{NANOBYTES_PER_BYTE, RATE_MAX};

/// List of rates with the time at which each begins, counted from the start of the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piecewise {
    /// Never empty and strictly increasing in time; the first piece begins at zero.
    pieces: Vec<Piece>,
    /// Time after which the pieces repeat; later than the start of the last piece. Without it the
    /// last piece lasts for ever.
    period: Option<u64>,
    /// Work per period, nanobytes.
    period_work: u128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Nanoseconds.
    start: u64,
    /// Bytes per second.
    rate: u64,
}

/// Invalid list of rates. Steps are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PiecewiseError {
    /// The list is empty.
    #[error("the list has no steps; give at least one, as in `0s 10mbit`")]
    Empty,
    /// The rate at the start is not given.
    #[error("step 1 begins at {begins}; the first step must begin at 0s")]
    FirstNotAtZero {
        /// Time of the first step.
        begins: Duration,
    },
    /// A step does not begin later than the previous one.
    #[error("step {step} begins at {begins}, but step {} begins at {before}; sort the steps and \
             give each a different time", .step - 1)]
    NotLater {
        /// Number of the step.
        step: usize,
        /// Time of the step.
        begins: Duration,
        /// Time of the previous step.
        before: Duration,
    },
    /// The steps do not fit into the period.
    #[error(
        "step {step} begins at {begins}, but the period is only {period}; make the period longer"
    )]
    PeriodTooShort {
        /// Number of the last step.
        step: usize,
        /// Time of the last step.
        begins: Duration,
        /// Given period.
        period: Duration,
    },
    /// The line ends in an outage, and packets would wait for ever.
    #[error(
        "the last step, step {step}, has rate 0 and never ends; end with a rate above 0, or repeat \
         the steps"
    )]
    NeverAgain {
        /// Number of the last step.
        step: usize,
    },
}

impl Piecewise {
    /// Creates a line from rates and their start times. The last rate lasts for ever or, with a
    /// `period`, until the steps repeat. At a rate of zero the packet in transmission pauses and
    /// continues afterwards.
    pub fn new(
        steps: &[(Duration, Rate)],
        period: Option<Duration>,
    ) -> Result<Piecewise, PiecewiseError> {
        let piece = |&(begins, rate): &(Duration, Rate)| Piece {
            start: begins.as_nanos(),
            rate: rate.bytes_per_sec().min(RATE_MAX),
        };
        let pieces: Vec<Piece> = steps.iter().map(piece).collect();
        let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
            return Err(PiecewiseError::Empty);
        };
        if first.0 != Duration::ZERO {
            return Err(PiecewiseError::FirstNotAtZero { begins: first.0 });
        }
        if let Some(at) = steps.windows(2).position(|pair| pair[1].0 <= pair[0].0) {
            return Err(PiecewiseError::NotLater {
                step: at + 2,
                begins: steps[at + 1].0,
                before: steps[at].0,
            });
        }
        let step = steps.len();
        if let Some(period) = period
            && period <= last.0
        {
            let begins = last.0;
            return Err(PiecewiseError::PeriodTooShort {
                step,
                begins,
                period,
            });
        }
        let ends = pieces.iter().skip(1).map(|piece| piece.start);
        let ends = ends.chain(period.map(Duration::as_nanos));
        let work =
            |(piece, end): (&Piece, u64)| u128::from(end - piece.start) * u128::from(piece.rate);
        let period_work = pieces.iter().zip(ends).map(work).sum();
        let ever_again = match period {
            Some(_) => period_work > 0,
            None => last.1 > Rate::default(),
        };
        if !ever_again {
            return Err(PiecewiseError::NeverAgain { step });
        }
        Ok(Piecewise {
            pieces,
            period: period.map(Duration::as_nanos),
            period_work,
        })
    }

    /// Returns the mean rate over a period. Without a period there is no long-term mean, so this is
    /// the highest rate, for which a queue has to be sized.
    pub fn mean_rate(&self) -> Rate {
        let rate = match self.period {
            Some(period) => {
                u64::try_from(self.period_work / u128::from(period)).unwrap_or(u64::MAX)
            }
            None => self
                .pieces
                .iter()
                .map(|piece| piece.rate)
                .max()
                .unwrap_or(0),
        };
        Rate::from_bytes_per_sec(rate)
    }
}

/// Progress on a piecewise line, which is busy until `until` + `remainder`/rate ns.
#[derive(Clone, Debug)]
pub(crate) struct PiecewiseProgress {
    line: Arc<Piecewise>,
    /// Start of the line.
    origin: Time,
    busy_until: Time,
    remainder: u64,
}

/// Interval of constant rate.
struct RateInterval {
    rate: u128,
    /// `None` if the interval does not end.
    end: Option<Time>,
}

impl PiecewiseProgress {
    pub(crate) fn new(line: Arc<Piecewise>, now: Time) -> PiecewiseProgress {
        PiecewiseProgress {
            line,
            origin: now,
            busy_until: now,
            remainder: 0,
        }
    }

    /// Returns the time at which the line becomes free.
    pub(crate) fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// Transmits `work` nanobytes from `start`, at which the line must be free. Returns the time at
    /// which the last of them departs.
    pub(crate) fn transmit(&mut self, start: Time, work: u128) -> Time {
        if start > self.busy_until {
            self.busy_until = start;
            self.remainder = 0;
        }
        let mut left = work + u128::from(self.remainder);
        while left > 0 && self.busy_until < Time::MAX {
            left -= self.skip_whole_periods(left);
            let stretch = self.interval_at(self.busy_until);
            let room = stretch
                .end
                .map(|ends| stretch.rate * u128::from(ends.since(self.busy_until).as_nanos()));
            match (room, stretch.end) {
                (Some(room), Some(ends)) if left > room || stretch.rate == 0 => {
                    left -= room;
                    self.busy_until = ends;
                    self.remainder = 0;
                }
                _ => {
                    let ns = u64::try_from(left / stretch.rate).unwrap_or(u64::MAX);
                    self.busy_until += Duration::from_nanos(ns);
                    self.remainder = (left % stretch.rate) as u64;
                    left = 0;
                }
            }
        }
        self.busy_until
    }

    /// Returns the work that is left after `now`, in nanobytes.
    pub(crate) fn remaining_work(&self, now: Time) -> u128 {
        if self.busy_until < now {
            return 0;
        }
        let mut work = u128::from(self.remainder);
        let mut at = now;
        if let Some(period) = self.line.period {
            // Every interval of one period carries the same work.
            let periods = self.busy_until.since(now).as_nanos() / period;
            work += u128::from(periods) * self.line.period_work;
            at += Duration::from_nanos(periods * period);
        }
        while at < self.busy_until {
            let stretch = self.interval_at(at);
            let ends = stretch
                .end
                .map_or(self.busy_until, |ends| ends.min(self.busy_until));
            work += stretch.rate * u128::from(ends.since(at).as_nanos());
            at = ends;
        }
        work
    }

    /// Advances by as many whole periods as fit into `left` with some work remaining. Returns the
    /// work that they carry.
    fn skip_whole_periods(&mut self, left: u128) -> u128 {
        let Some(period) = self.line.period else {
            return 0;
        };
        let periods = (left - 1) / self.line.period_work;
        if periods == 0 {
            return 0;
        }
        let ns = u64::try_from(periods)
            .unwrap_or(u64::MAX)
            .saturating_mul(period);
        self.busy_until += Duration::from_nanos(ns);
        periods * self.line.period_work
    }

    /// Returns the interval of constant rate that contains `at` and ends after it.
    fn interval_at(&self, at: Time) -> RateInterval {
        let since = at.since(self.origin).as_nanos();
        let into = self.line.period.map_or(since, |period| since % period);
        // The first piece begins at 0, so `next` is at least 1.
        let next = self
            .line
            .pieces
            .partition_point(|piece| piece.start <= into);
        let ends = self
            .line
            .pieces
            .get(next)
            .map(|piece| piece.start)
            .or(self.line.period);
        RateInterval {
            rate: u128::from(self.line.pieces[next - 1].rate),
            end: ends.map(|ends| at + Duration::from_nanos(ends - into)),
        }
    }
}

pub(crate) fn nanobytes(bytes: u32) -> u128 {
    u128::from(bytes) * u128::from(NANOBYTES_PER_BYTE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{FifoLink, Limit, LineSpec};

    fn steps(list: &[(u64, u64)]) -> Vec<(Duration, Rate)> {
        let step =
            |&(ns, rate): &(u64, u64)| (Duration::from_nanos(ns), Rate::from_bytes_per_sec(rate));
        list.iter().map(step).collect()
    }

    #[test]
    fn a_packet_goes_on_after_an_outage() {
        // 1 byte/µs for 1 ms, an outage of 1 ms, repeated.
        let list = steps(&[(0, 1_000_000), (1_000_000, 0)]);
        let line = Piecewise::new(&list, Some(Duration::from_millis(2))).expect("a valid line");
        assert_eq!(line.mean_rate(), Rate::from_bytes_per_sec(500_000));
        let mut link = FifoLink::new(
            &LineSpec::Piecewise(Arc::new(line)),
            Limit::Unlimited,
            Time::ZERO,
        );
        let mut send = |us, bytes| {
            link.enqueue(Time::from_micros(us), bytes)
                .map(Time::as_micros)
        };
        assert_eq!(send(0, 600), Ok(600));
        assert_eq!(
            send(0, 400),
            Ok(1_000),
            "the last byte leaves when the outage begins"
        );
        assert_eq!(send(0, 1_500), Ok(2_000 + 2_000 + 500));
        assert_eq!(
            send(5_100, 10),
            Ok(6_010),
            "a packet that arrives during an outage waits for its end"
        );
        assert_eq!(send(7_000, 4_000), Ok(8_000 + 3 * 2_000 + 1_000));
    }

    #[test]
    fn what_is_not_a_line_is_refused_with_the_step() {
        let error = |list: &[(u64, u64)], period: Option<u64>| {
            Piecewise::new(&steps(list), period.map(Duration::from_nanos))
                .expect_err("not a line")
                .to_string()
        };
        assert!(error(&[], None).contains("no steps"));
        assert!(error(&[(1, 5)], None).contains("step 1 begins at 1ns"));
        assert!(
            error(&[(0, 5), (7, 5), (7, 6)], None).contains("step 3 begins at 7ns, but step 2")
        );
        assert!(error(&[(0, 5), (7, 5)], Some(7)).contains("the period is only 7ns"));
        assert!(error(&[(0, 5), (7, 0)], None).contains("the last step, step 2"));
        assert!(error(&[(0, 0)], Some(7)).contains("rate 0"));
    }

    proptest! {
        #[test]
        fn it_is_a_constant_line_that_is_changed_at_each_step(
            pieces in proptest::collection::vec(
                (1_u64..2_000_000, prop_oneof![1_000_u64..20_000_000]),
                1..8,
            ),
            repeat in any::<bool>(),
            packets in proptest::collection::vec((0_u64..1_500_000, 40_u32..9_000), 1..60),
        ) {
            let mut at = 0;
            let mut list = Vec::new();
            for (length, rate) in &pieces {
                list.push((at, *rate));
                at += length;
            }
            let line = Piecewise::new(&steps(&list), repeat.then_some(Duration::from_nanos(at)))
                .expect("sorted");
            let mut piecewise = FifoLink::new(
                &LineSpec::Piecewise(Arc::new(line)),
                Limit::Unlimited,
                Time::ZERO,
            );
            let constant = |rate| LineSpec::Constant(Rate::from_bytes_per_sec(rate));
            let mut changed = FifoLink::new(&constant(pieces[0].1), Limit::Unlimited, Time::ZERO);
            // Changes of the second link as (time, rate), endless if repeated.
            let mut changes = (0_u64..)
                .flat_map(|round| {
                    list.iter()
                        .map(move |&(begins, rate)| (round * at + begins, rate))
                })
                .take(if repeat { usize::MAX } else { list.len() })
                .skip(1)
                .peekable();
            let (mut now, mut expected, mut got) = (0, Vec::new(), Vec::new());
            let plan = |link: &FifoLink, expected: &mut Vec<Time>| {
                let gone = expected.len() - link.departures().len();
                expected.truncate(gone);
                expected.extend(link.departures());
            };
            for (gap, bytes) in packets {
                now += gap;
                while let Some((when, rate)) = changes.next_if(|change| change.0 <= now) {
                    changed.set_line(Time::from_nanos(when), &constant(rate));
                    plan(&changed, &mut expected);
                }
                let now = Time::from_nanos(now);
                expected.push(changed.enqueue(now, bytes).expect("no limit"));
                got.push(piecewise.enqueue(now, bytes).expect("no limit"));
            }
            while let Some((when, rate)) =
                changes.next_if(|change| Time::from_nanos(change.0) <= got[got.len() - 1])
            {
                changed.set_line(Time::from_nanos(when), &constant(rate));
                plan(&changed, &mut expected);
            }
            prop_assert_eq!(got, expected);
        }
    }
}
