//! Conversion of a program's totals to normalized features for learning.

use std::str::FromStr;

use ccplane_agent::Fields;
use ccplane_units::Time;

/// Report of the program, in its order of variables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Fields)]
pub struct ProgramTotals {
    /// Bytes delivered since the last decision, in or out of order, each counted once.
    pub arrived: u64,
    /// Packets marked lost.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Number of RTT samples.
    pub samples: u64,
    /// Sum of the RTT samples, µs.
    pub rtt_sum: u64,
    /// Send rate of the data acknowledged last, bytes/s; 0 if unknown.
    pub sent: u64,
    /// Delivery rate of the data acknowledged last, bytes/s; 0 if unknown.
    pub delivered: u64,
    /// Window, bytes.
    pub cwnd: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Windowed minimum RTT, µs; `UNKNOWN_TIME_US` before the first sample.
    pub base: u64,
    /// Payload of a full segment, bytes.
    pub mss: u64,
}

/// Value of an unknown time (`+infinity` in the language).
const UNKNOWN_TIME_US: u64 = 4_294_967_295;

/// Lower bound of a feature. On a path that a flow just fills, features are around 1 or below. Much
/// tighter bounds would hide the difference between a bad state and a very bad one. With much wider
/// bounds, single steps would dominate the gradient.
pub const FEATURE_MIN: f32 = -10.0;
/// Upper bound of a feature, see [`FEATURE_MIN`].
pub const FEATURE_MAX: f32 = 10.0;

/// One number of an observation; 0 if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// RTT / minimum RTT − 1: the queueing delay in minimum RTTs.
    RttRatio,
    /// Rate of change of the RTT, s/s ("latency gradient" of Jay et al., "A Deep Reinforcement
    /// Learning Perspective on Internet Congestion Control", ICML 2019).
    RttGradient,
    /// Loss rate: lost / (lost + delivered).
    Loss,
    /// Send rate / delivery rate − 1 (Jay et al.: "sending ratio", which starts from 1).
    SendRatio,
    /// Goodput / highest goodput of the flow so far.
    Delivery,
    /// cwnd / (highest goodput × minimum RTT).
    Window,
    /// Bytes in flight / cwnd.
    InFlight,
    /// 1 after a retransmission timeout, else 0.
    Timeout,
    /// log10 of the goodput in Mbit/s.
    LogRate,
    /// log10 of the minimum RTT in ms.
    LogRtt,
}

impl Feature {
    /// Names of all features.
    pub const ALL: [(Feature, &'static str); 10] = [
        (Feature::RttRatio, "rtt_ratio"),
        (Feature::RttGradient, "rtt_gradient"),
        (Feature::Loss, "loss"),
        (Feature::SendRatio, "send_ratio"),
        (Feature::Delivery, "delivery"),
        (Feature::Window, "window"),
        (Feature::InFlight, "in_flight"),
        (Feature::Timeout, "timeout"),
        (Feature::LogRate, "log_rate"),
        (Feature::LogRtt, "log_rtt"),
    ];
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Feature, String> {
        let found = Feature::ALL.iter().find(|(_, name)| *name == text);
        let names = Feature::ALL.map(|(_, name)| name).join(", ");
        found
            .map(|(feature, _)| *feature)
            .ok_or_else(|| format!("there is no feature `{text}`; available: {names}"))
    }
}

/// Measurements between two decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepInterval {
    /// Length of the interval, s.
    pub elapsed: f64,
    /// Goodput, bytes/s.
    pub goodput: f64,
    /// Highest goodput so far, bytes/s.
    pub best_goodput: f64,
    /// Mean RTT, s. Without a sample, the RTT of the previous interval; 0 before the first sample.
    pub rtt: f64,
    /// Minimum RTT so far, s; 0 before the first sample.
    pub min_rtt: f64,
    /// Loss rate: lost / (lost + delivered).
    pub loss: f64,
    /// Send rate / delivery rate of the data acknowledged last; 1 if unknown.
    pub send_ratio: f64,
    /// Window, bytes.
    pub cwnd: f64,
    /// Bytes in flight.
    pub in_flight: f64,
    /// Retransmission timeouts.
    pub timeouts: f64,
}

/// Converts a flow's reports to observations: the features of the last decisions, oldest first.
#[derive(Clone, Debug)]
pub struct Observer {
    features: Vec<Feature>,
    /// Observation: features of the last decisions, oldest first.
    history: Vec<f32>,
    last: Option<Time>,
    interval: StepInterval,
}

impl Observer {
    /// Creates the observer of a new flow with a history of this many decisions, at least one. The
    /// length of the first interval is unknown.
    pub fn new(features: &[Feature], history: usize) -> Observer {
        Observer {
            features: features.to_vec(),
            history: vec![0.0; features.len() * history.max(1)],
            last: None,
            interval: StepInterval::default(),
        }
    }

    /// Adds a report.
    pub fn observe(&mut self, now: Time, totals: &ProgramTotals) {
        let before = self.interval;
        // Rounded to µs, the resolution that an agent in another process sees.
        let now = Time::from_nanos(now.as_nanos() / 1000 * 1000);
        let elapsed = self
            .last
            .replace(now)
            .map_or(0.0, |last| now.since(last).as_secs_f64());
        let seconds = |us: u64| {
            if us >= UNKNOWN_TIME_US {
                0.0
            } else {
                us as f64 / 1e6
            }
        };
        let rtt = match totals.samples {
            0 => before.rtt,
            samples => totals.rtt_sum as f64 / samples as f64 / 1e6,
        };
        let base = match (before.min_rtt, seconds(totals.base)) {
            (known, unknown) if unknown <= 0.0 => known,
            (known, now) if known <= 0.0 => now,
            (known, now) => known.min(now),
        };
        let (arrived, lost) = (
            totals.arrived as f64,
            totals.lost as f64 * totals.mss as f64,
        );
        self.interval = StepInterval {
            elapsed,
            goodput: ratio_or_zero(arrived, elapsed),
            best_goodput: before.best_goodput.max(ratio_or_zero(arrived, elapsed)),
            rtt,
            min_rtt: base,
            loss: ratio_or_zero(lost, lost + arrived),
            send_ratio: match (totals.sent, totals.delivered) {
                (0, _) | (_, 0) => 1.0,
                (sent, delivered) => sent as f64 / delivered as f64,
            },
            cwnd: totals.cwnd as f64,
            in_flight: totals.in_flight as f64,
            timeouts: totals.timeouts as f64,
        };
        let gradient = if before.rtt > 0.0 {
            ratio_or_zero(rtt - before.rtt, elapsed)
        } else {
            0.0
        };
        let count = self.features.len();
        self.history.rotate_left(count);
        let newest = self.history.len() - count;
        for n in 0..count {
            self.history[newest + n] = self.value(self.features[n], gradient);
        }
    }

    fn value(&self, feature: Feature, gradient: f64) -> f32 {
        let now = &self.interval;
        let log = |value: f64| if value > 0.0 { libm::log10(value) } else { 0.0 };
        let value = match feature {
            Feature::RttRatio if now.min_rtt > 0.0 => now.rtt / now.min_rtt - 1.0,
            Feature::RttRatio => 0.0,
            Feature::RttGradient => gradient,
            Feature::Loss => now.loss,
            Feature::SendRatio => now.send_ratio - 1.0,
            Feature::Delivery => ratio_or_zero(now.goodput, now.best_goodput),
            Feature::Window => ratio_or_zero(now.cwnd, now.best_goodput * now.min_rtt),
            Feature::InFlight => ratio_or_zero(now.in_flight, now.cwnd),
            Feature::Timeout => now.timeouts.min(1.0),
            Feature::LogRate => log(now.goodput * 8.0 / 1e6),
            Feature::LogRtt => log(now.min_rtt * 1e3),
        };
        (value as f32).clamp(FEATURE_MIN, FEATURE_MAX)
    }

    /// Returns the observation.
    pub fn values(&self) -> &[f32] {
        &self.history
    }

    /// Returns the measurements of the last interval.
    pub fn interval(&self) -> &StepInterval {
        &self.interval
    }
}

/// Returns the quotient, or 0 if the divisor is not positive.
fn ratio_or_zero(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals() -> ProgramTotals {
        ProgramTotals {
            arrived: 250_000,
            lost: 20,
            mss: 1_250,
            samples: 10,
            rtt_sum: 300_000,
            sent: 15_000_000,
            delivered: 12_000_000,
            cwnd: 500_000,
            in_flight: 250_000,
            base: 20_000,
            ..ProgramTotals::default()
        }
    }

    #[test]
    fn features_match_their_names() {
        let all = Feature::ALL.map(|(feature, _)| feature);
        let mut observer = Observer::new(&all, 2);
        observer.observe(Time::ZERO, &ProgramTotals::default());
        observer.observe(Time::from_nanos(20_000_000), &totals());
        let half = ProgramTotals {
            arrived: 125_000,
            lost: 10,
            rtt_sum: 320_000,
            timeouts: 2,
            ..totals()
        };
        observer.observe(Time::from_nanos(40_000_000), &half);
        let (before, now) = observer.values().split_at(all.len());
        let near = |values: &[f32], wanted: [f32; 10]| {
            for ((value, wanted), (_, name)) in values.iter().zip(wanted).zip(Feature::ALL) {
                assert!(
                    (value - wanted).abs() < 1e-5,
                    "{name}: {value}, not {wanted}"
                );
            }
        };
        // 100 Mbit/s, 30 ms over 20 ms; a window of two BDPs, half of it in flight.
        near(
            before,
            [
                0.5,
                0.0,
                1.0 / 11.0,
                0.25,
                1.0,
                2.0,
                0.5,
                0.0,
                2.0,
                1.301_03,
            ],
        );
        near(
            now,
            [
                0.6,
                0.1,
                1.0 / 11.0,
                0.25,
                0.5,
                2.0,
                0.5,
                1.0,
                1.698_97,
                1.301_03,
            ],
        );
    }

    #[test]
    fn features_are_neutral_before_the_first_sample() {
        let mut observer = Observer::new(&Feature::ALL.map(|(feature, _)| feature), 1);
        let nothing = ProgramTotals {
            cwnd: 14_480,
            in_flight: 14_480,
            base: UNKNOWN_TIME_US,
            ..ProgramTotals::default()
        };
        observer.observe(Time::from_nanos(20_000_000), &nothing);
        assert_eq!(
            observer.values(),
            [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
        );
    }

    proptest! {
        #[test]
        fn whatever_is_reported_stays_within_bounds(
            reports in prop::collection::vec(
                (prop::array::uniform11(any::<u64>()), any::<u64>()),
                1..8,
            ),
        ) {
            let mut observer = Observer::new(&Feature::ALL.map(|(feature, _)| feature), 3);
            for (values, now) in reports {
                let totals = ProgramTotals::read(&values).expect("one value per variable");
                observer.observe(Time::from_nanos(now), &totals);
                prop_assert!(
                    observer
                        .values()
                        .iter()
                        .all(|v| (FEATURE_MIN..=FEATURE_MAX).contains(v)),
                    "{:?}",
                    observer.values()
                );
            }
        }
    }
}
