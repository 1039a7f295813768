//! Conversion of actions to windows and rates.

use std::str::FromStr;

use ccplane_units::{Bytes, Rate};

use super::{Decision, StepInterval};

/// Kind of action. Each number is between −1 and 1 and scales its target by 2 to that power, so a
/// step at most halves or doubles. A larger base would require fine steps in the third decimal. A
/// smaller one would need many steps after a change in capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Scales the window; the flow is not paced.
    CwndFactor,
    /// Scales the pacing rate. The window is twice the rate times the smoothed RTT, so that the
    /// rate is the limit.
    RateFactor,
    /// Scales the window and the pacing rate.
    CwndRate,
}

impl FromStr for ActionKind {
    type Err = String;

    fn from_str(text: &str) -> Result<ActionKind, String> {
        match text {
            "cwnd_factor" => Ok(ActionKind::CwndFactor),
            "rate_factor" => Ok(ActionKind::RateFactor),
            "cwnd_rate" => Ok(ActionKind::CwndRate),
            _ => Err(format!(
                "unknown kind of action `{text}`; available: cwnd_factor, rate_factor, cwnd_rate"
            )),
        }
    }
}

/// Minimum window, as for ssthresh in RFC 5681, 3.1. With one segment, a delayed ACK costs 40 ms
/// per round trip.
const WINDOW_SEGMENTS_MIN: f64 = 2.0;
/// Maximum window in BDPs, with the highest goodput and the minimum RTT so far. An untrained policy
/// may double forever, and its packets are then dropped by the hundred thousand: one such
/// simulation took minutes. Doubling each round trip needs two BDPs. Four would limit what a policy
/// can learn about long queues.
const WINDOW_BDPS_MAX: f64 = 8.0;
/// Maximum window before measurements allow a larger one: enough to start with at 100 Mbit/s and 10
/// ms.
const UNMEASURED_WINDOW_SEGMENTS_MAX: f64 = 128.0;
/// Minimum rate, bytes/s: 12 kbit/s, a packet per second.
const RATE_BYTES_PER_SECOND_MIN: f64 = 1_500.0;
/// RTT assumed before the first sample, s.
const INITIAL_RTT_SECONDS: f64 = 0.1;

/// Window and rate of a flow, to which actions apply.
#[derive(Clone, Copy, Debug)]
pub struct ActionMapper {
    kind: ActionKind,
    mss: f64,
    cwnd: f64,
    rate: Option<f64>,
}

impl ActionMapper {
    /// Creates the state of a flow with this segment size and initial window, bytes.
    pub fn new(kind: ActionKind, mss: u64, init_cwnd: u64) -> ActionMapper {
        ActionMapper {
            kind,
            mss: mss.max(1) as f64,
            cwnd: init_cwnd as f64,
            rate: None,
        }
    }

    /// Applies an action after this interval. NaN or a missing number changes nothing; values are
    /// clamped to −1 and 1.
    pub fn decide(&mut self, action: &[f32], interval: &StepInterval) -> Decision {
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
            INITIAL_RTT_SECONDS
        };
        let begin = self.cwnd / rtt;
        let least = WINDOW_SEGMENTS_MIN * self.mss;
        let most = (WINDOW_BDPS_MAX * interval.best_goodput * interval.min_rtt)
            .max(UNMEASURED_WINDOW_SEGMENTS_MAX * self.mss);
        match self.kind {
            ActionKind::CwndFactor => self.cwnd *= factor(0),
            ActionKind::RateFactor => {
                let rate = self.rate.unwrap_or(begin) * factor(0);
                self.rate = Some(rate);
                self.cwnd = 2.0 * rate * rtt;
            }
            ActionKind::CwndRate => {
                self.cwnd *= factor(0);
                self.rate = Some(self.rate.unwrap_or(begin) * factor(1));
            }
        }
        self.cwnd = self.cwnd.clamp(least, most);
        self.rate = self.rate.map(|rate| {
            rate.clamp(
                RATE_BYTES_PER_SECOND_MIN,
                (most / rtt).max(RATE_BYTES_PER_SECOND_MIN),
            )
        });
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

    fn after(rtt: f64) -> StepInterval {
        StepInterval {
            rtt,
            ..StepInterval::default()
        }
    }

    #[test]
    fn a_window_doubles_halves_and_stays() {
        let mut actor = ActionMapper::new(ActionKind::CwndFactor, MSS, 10 * MSS);
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
        let mut actor = ActionMapper::new(ActionKind::CwndFactor, MSS, 10 * MSS);
        let known = |best| StepInterval {
            best_goodput: best,
            min_rtt: 0.02,
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
        let mut actor = ActionMapper::new(ActionKind::RateFactor, MSS, 10 * MSS);
        let decision = actor.decide(&[1.0], &after(0.02));
        // 14,480 bytes per 20 ms are 724,000 bytes/s.
        assert_eq!(decision.rate, Some(Rate::from_bytes_per_sec(1_448_000)));
        assert_eq!(decision.cwnd, Some(Bytes::new(57_920)));
    }

    #[test]
    fn cwnd_and_rate_actions_need_two_numbers() {
        let mut actor = ActionMapper::new(ActionKind::CwndRate, MSS, 10 * MSS);
        let decision = actor.decide(&[1.0, -1.0], &after(0.02));
        assert_eq!(decision.cwnd, Some(Bytes::new(20 * MSS)));
        assert_eq!(decision.rate, Some(Rate::from_bytes_per_sec(362_000)));
    }
}
