//! The law of the delay mode: one of Nimbus', within a bundle's bounds.

use crate::nimbus::{Aim, Basic, Copa, DelayMode, Now};

/// The longest queue that a law aims at, seconds (ours: a fifth of 200 ms would be 40 ms of
/// everybody's time). A pulse of a quarter of the link takes 6.6 ms at 6 Hz. With 6 ms a bundle
/// ceased to pass beside a Cubic flow in one of ten runs (seeds 1 to 10). With 10 ms everybody
/// waits longer for nothing.
const LONGEST: f64 = 0.008;
/// On long paths it is such a part of the shortest RTT (ours). Less leaves the link empty at times.
/// With more, everybody waits longer on paths below 160 ms, which do not need it ...
const LONG: f64 = 0.05;
/// ... up to so much, seconds.
const LONGEST_EVER: f64 = 0.010;
/// While nobody is there no pulse needs a queue, and the law aims at such a part of the shortest
/// RTT (ours). More is time that every exchange waits: at 50 ms an aim of 4 ms adds 0.8 ms to that
/// of 3 ms (seeds 1 to 5).
const ALONE: f64 = 0.06;
/// It aims at so much at least, seconds. Less gains nothing that is seen: 3 and 2 ms are as good at
/// half load (seeds 1 to 5).
const ALONE_LEAST: f64 = 0.003;
/// The shortest, packets at the capacity: below it one packet looks like a queue that is too long.
const PACKETS: f64 = 4.0;
/// The part of its window by which Copa's moves at most for each second of the shortest RTT, in an
/// RTT (ours): an eighth at 50 ms, where it is what the velocity of 32 makes of 96 Mbit/s. An
/// answer takes an RTT and two ticks; without a bound the queue swings from empty to six times its
/// aim at 20 ms. Less is slower to take what others leave.
const STEP: f64 = 2.5;
/// Parts of the shortest RTT that the laws aim at (the reference's 1.2 and 1.25).
const COPA: f64 = 0.20;
const BASIC: f64 = 0.25;
/// Least rate as a part of the capacity (reference).
const LEAST: f64 = 0.05;
/// Least rate, bytes/s: 1 Mbit/s, the floor of Bundler's sendbox.
pub(super) const FLOOR: f64 = 125_000.0;
/// Most rate as a part of the capacity: an estimate that is too low by half still grows to the
/// right one.
const MOST: f64 = 2.0;

/// The law and its state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Law {
    Copa(Copa),
    Basic(Basic),
}

impl Law {
    /// From a rate, bytes/s, at this RTT and that of the empty path, seconds.
    pub fn at(which: DelayMode, rate: f64, rtt: f64, base: f64) -> Law {
        match which {
            DelayMode::Copa => Law::Copa(Copa::at(rate * rtt)),
            DelayMode::Basic => Law::Basic(Basic::at(rtt / base)),
        }
    }

    /// The bounds of its aim where the capacity is so many bytes/s, on a path of so many seconds.
    /// `alone`: nobody is there whom a pulse would have to find.
    pub fn bounds(capacity: f64, mss: f64, base: f64, alone: bool) -> Aim {
        let longest = (LONG * base).clamp(LONGEST, LONGEST_EVER);
        let most = match alone {
            true => (ALONE * base).max(ALONE_LEAST).min(longest),
            false => longest,
        };
        Aim {
            least: PACKETS * mss / capacity,
            most,
            step: STEP * base,
        }
    }

    /// The queue that it aims at, seconds.
    pub fn aim(&self, base: f64, bounds: Aim) -> f64 {
        let part = match self {
            Law::Copa(_) => COPA,
            Law::Basic(_) => BASIC,
        };
        (part * base).min(bounds.most).max(bounds.least)
    }

    /// The rate after `elapsed` seconds in which so many bytes were lost. Where the site sends less
    /// than it may (`limited`), the rate of now is not what was tried: Copa's window then only
    /// falls. A burst stands in the site's own queue, not in the network.
    pub fn rate(&mut self, now: &Now, elapsed: f64, lost: f64, limited: bool, rate: f64) -> f64 {
        let next = match self {
            Law::Copa(copa) => {
                let mut tried = *copa;
                let next = tried.rate(now, elapsed);
                if limited && next >= rate {
                    rate
                } else {
                    *copa = tried;
                    next
                }
            }
            Law::Basic(basic) => {
                basic.interval(now, lost);
                basic.rate(now)
            }
        };
        next.clamp(floor(now.capacity), most(now.capacity))
    }

    /// The rate is held at so many bytes/s, at this RTT, seconds.
    pub fn hold(&mut self, rate: f64, rtt: f64) {
        if let Law::Copa(copa) = self {
            copa.hold(rate * rtt);
        }
    }
}

/// The least rate, bytes/s.
pub(super) fn floor(capacity: f64) -> f64 {
    (LEAST * capacity).max(FLOOR)
}

/// The most, bytes/s.
pub(super) fn most(capacity: f64) -> f64 {
    (MOST * capacity).max(FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(rtt: f64) -> Now {
        Now {
            sent: 10e6,
            cross: 0.0,
            capacity: 12e6,
            rtt,
            base: 0.1,
            acked: 100_000.0,
            mss: 1_500.0,
            aim: Law::bounds(12e6, 1_500.0, 0.1, false),
        }
    }

    #[test]
    fn the_aim_is_a_part_of_the_path_within_bounds() {
        for (which, base, capacity, alone, expected) in [
            (DelayMode::Copa, 0.2, 12e6, false, 0.010),
            (DelayMode::Copa, 0.1, 12e6, false, 0.008),
            (DelayMode::Copa, 0.02, 12e6, false, 0.004),
            (DelayMode::Basic, 0.02, 12e6, false, 0.005),
            (DelayMode::Copa, 0.2, 12e6, true, 0.010),
            (DelayMode::Copa, 0.1, 12e6, true, 0.006),
            (DelayMode::Copa, 0.05, 12e6, true, 0.003),
            (DelayMode::Copa, 0.01, 12e6, true, 0.002),
            // Four packets at 1 Mbit/s.
            (DelayMode::Copa, 0.02, 125_000.0, true, 0.048),
        ] {
            let aim = Law::at(which, 1e6, base, base)
                .aim(base, Law::bounds(capacity, 1_500.0, base, alone));
            assert!(
                (aim - expected).abs() < 1e-9,
                "{which:?} {base} {capacity}: {aim}"
            );
        }
    }

    #[test]
    fn a_site_that_sends_less_than_it_may_gets_no_more_and_less_where_there_is_a_queue() {
        let mut law = Law::at(DelayMode::Copa, 10e6, 0.1, 0.1);
        assert_eq!(law.rate(&now(0.1), 0.01, 0.0, true, 10e6), 10e6);
        assert!(law.rate(&now(0.1), 0.01, 0.0, false, 10e6) > 10e6);
        assert!(law.rate(&now(0.15), 0.01, 0.0, true, 10e6) < 10e6);
    }

    #[test]
    fn the_rate_stays_within_its_bounds() {
        let mut law = Law::at(DelayMode::Basic, 10e6, 0.1, 0.1);
        let full = Now {
            sent: 1e6,
            cross: 11e6,
            ..now(5.0)
        };
        assert_eq!(law.rate(&full, 0.01, 0.0, false, 10e6), 600_000.0);
        let wide = Now {
            sent: 100e6,
            ..now(0.1)
        };
        assert_eq!(law.rate(&wide, 0.01, 0.0, false, 10e6), 24e6);
        let slow = Now {
            capacity: 50_000.0,
            ..now(5.0)
        };
        assert_eq!(law.rate(&slow, 0.01, 0.0, false, 10e6), 125_000.0);
    }
}
