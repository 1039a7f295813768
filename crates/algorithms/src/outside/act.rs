//! From actions to windows and rates.

use std::str::FromStr;

use ccplane_units::{Bytes, Rate};

use super::{Decision, Interval};

/// What an action changes. Each of its numbers is from −1 to 1 and multiplies by 2 to that power: a
/// step at most halves or doubles. A larger base would make fine steps a matter of the third
/// decimal; a smaller one would need many steps where capacity changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The window; the flow is not paced.
    CwndFactor,
    /// The pacing rate; the window is twice what it carries in a smoothed RTT, so that the rate
    /// limits.
    RateFactor,
    /// The window, and the pacing rate.
    CwndRate,
}

impl FromStr for Act {
    type Err = String;

    fn from_str(text: &str) -> Result<Act, String> {
        match text {
            "cwnd_factor" => Ok(Act::CwndFactor),
            "rate_factor" => Ok(Act::RateFactor),
            "cwnd_rate" => Ok(Act::CwndRate),
            _ => Err(format!(
                "`{text}` is no kind of action; there are cwnd_factor, rate_factor, cwnd_rate"
            )),
        }
    }
}

impl Act {
    /// How many numbers an action has.
    pub fn numbers(self) -> usize {
        match self {
            Act::CwndFactor | Act::RateFactor => 1,
            Act::CwndRate => 2,
        }
    }
}

/// Windows are at least two segments, as RFC 5681 (section 3.1) has ssthresh: with one, a delayed
/// ACK costs 40 ms each round trip.
const LEAST_SEGMENTS: f64 = 2.0;
/// And at most so many BDPs, of the highest goodput and the least RTT so far. A policy that does
/// not know better doubles for ever, and its packets are dropped by the hundred thousand: a
/// simulation of such a one took minutes. Doubling each round trip needs two BDPs; four would cut
/// what a policy can show of a long queue.
const MOST_BDPS: f64 = 8.0;
/// Whatever was measured, so many segments may be on the way: enough to begin with on 100 Mbit/s
/// and 10 ms.
const FIRST_SEGMENTS: f64 = 128.0;
/// Rates are at least this, bytes/s: 12 kbit/s, a packet a second.
const LEAST_RATE: f64 = 1_500.0;
/// A rate without an RTT is that of the initial window in this, s.
const FIRST_RTT: f64 = 0.1;

/// A flow's window and rate, and how actions change them.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    act: Act,
    mss: f64,
    cwnd: f64,
    rate: Option<f64>,
}

impl Actor {
    /// Of a flow with this segment size and initial window, bytes.
    pub fn new(act: Act, mss: u64, init_cwnd: u64) -> Actor {
        Actor {
            act,
            mss: mss.max(1) as f64,
            cwnd: init_cwnd as f64,
            rate: None,
        }
    }

    /// What an action means, after this interval. What is no number changes nothing; numbers beyond
    /// −1 and 1 count as these.
    pub fn decide(&mut self, action: &[f32], interval: &Interval) -> Decision {
        let factor = |n: usize| {
            let given = action
                .get(n)
                .copied()
                .filter(|a| !a.is_nan())
                .unwrap_or(0.0);
            libm::exp2(f64::from(given.clamp(-1.0, 1.0)))
        };
        let rtt = if interval.rtt > 0.0 {
            interval.rtt
        } else {
            FIRST_RTT
        };
        let begin = self.cwnd / rtt;
        let least = LEAST_SEGMENTS * self.mss;
        let most = (MOST_BDPS * interval.best * interval.base).max(FIRST_SEGMENTS * self.mss);
        match self.act {
            Act::CwndFactor => self.cwnd *= factor(0),
            Act::RateFactor => {
                let rate = self.rate.unwrap_or(begin) * factor(0);
                self.rate = Some(rate);
                self.cwnd = 2.0 * rate * rtt;
            }
            Act::CwndRate => {
                self.cwnd *= factor(0);
                self.rate = Some(self.rate.unwrap_or(begin) * factor(1));
            }
        }
        self.cwnd = self.cwnd.clamp(least, most);
        self.rate = self
            .rate
            .map(|rate| rate.clamp(LEAST_RATE, (most / rtt).max(LEAST_RATE)));
        Decision {
            cwnd: Some(Bytes::new(self.cwnd as u64)),
            rate: self.rate.map(|rate| Rate::from_bytes_per_sec(rate as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1448;

    fn after(rtt: f64) -> Interval {
        Interval {
            rtt,
            ..Interval::default()
        }
    }

    #[test]
    fn a_window_doubles_halves_and_stays() {
        let mut actor = Actor::new(Act::CwndFactor, MSS, 10 * MSS);
        let mut window = |a: f32| actor.decide(&[a], &after(0.02)).cwnd.map(Bytes::get);
        assert_eq!(window(1.0), Some(20 * MSS));
        assert_eq!(window(0.0), Some(20 * MSS));
        assert_eq!(window(-7.0), Some(10 * MSS), "a step at most halves");
        assert_eq!(window(f32::NAN), Some(10 * MSS));
        for _ in 0..20 {
            window(-1.0);
        }
        assert_eq!(window(-1.0), Some(2 * MSS), "two segments at least");
    }

    #[test]
    fn a_policy_that_only_grows_stops_at_what_a_path_may_hold() {
        let mut actor = Actor::new(Act::CwndFactor, MSS, 10 * MSS);
        let known = |best| Interval {
            best,
            base: 0.02,
            ..after(0.03)
        };
        let mut grown = |best| {
            (0..20)
                .map(|_| actor.decide(&[1.0], &known(best)).cwnd)
                .last()
                .flatten()
        };
        assert_eq!(grown(0.0), Some(Bytes::new(128 * MSS)));
        // 12 MB/s and 20 ms: eight times 240 kB.
        assert_eq!(grown(12e6), Some(Bytes::new(1_920_000)));
    }

    #[test]
    fn a_rate_has_a_window_that_does_not_bind() {
        let mut actor = Actor::new(Act::RateFactor, MSS, 10 * MSS);
        let decision = actor.decide(&[1.0], &after(0.02));
        // 14,480 bytes in 20 ms are 724,000 bytes/s.
        assert_eq!(decision.rate, Some(Rate::from_bytes_per_sec(1_448_000)));
        assert_eq!(decision.cwnd, Some(Bytes::new(57_920)));
    }

    #[test]
    fn both_at_once_are_two_numbers() {
        let mut actor = Actor::new(Act::CwndRate, MSS, 10 * MSS);
        assert_eq!(Act::CwndRate.numbers(), 2);
        let decision = actor.decide(&[1.0, -1.0], &after(0.02));
        assert_eq!(decision.cwnd, Some(Bytes::new(20 * MSS)));
        assert_eq!(decision.rate, Some(Rate::from_bytes_per_sec(362_000)));
    }
}
