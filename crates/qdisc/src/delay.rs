//! Propagation delay behind the line: fixed, or with random jitter.

use ccplane_units::{Duration, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// PCG stream of the jitter.
const JITTER_STREAM: u64 = 0x006a_6974;

/// Truncation of the normal distribution, in standard deviations; one packet in 16,000 lies beyond.
/// Truncation gives a minimum delay, which the simulator needs as its lookahead.
const NORMAL_CUTOFF_SIGMAS: u64 = 4;

/// Distribution of the one-way delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayModel {
    /// The same delay for every packet.
    Fixed(Duration),
    /// An independent delay for every packet.
    Jitter {
        /// Mean delay.
        delay: Duration,
        /// Half width or standard deviation, depending on `shape`. Delays are never negative.
        spread: Duration,
        /// Shape of the distribution.
        shape: DelayDistribution,
        /// Allows packets to overtake each other. Otherwise a packet waits for its predecessors,
        /// which raises the mean delay if the jitter is large compared with the packet spacing.
        reorder: bool,
    },
}

/// Shape of the jitter distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayDistribution {
    /// Uniform within ±`spread` around the mean.
    Uniform,
    /// Normal with the standard deviation `spread`, truncated at four standard deviations.
    Normal,
}

/// Delay line whose delay can change while packets are in flight. The delay of the n-th packet
/// depends only on the seed and on n.
#[derive(Clone, Debug)]
pub struct Delay {
    model: DelayModel,
    /// Latest arrival time so far.
    last_arrival: Time,
    rng: Pcg32,
}

impl Delay {
    /// Creates a delay line with a fixed delay.
    pub fn new(delay: Duration) -> Delay {
        Delay::with_model(DelayModel::Fixed(delay), 0)
    }

    /// Creates a delay line with any model.
    pub fn with_model(model: DelayModel, seed: u64) -> Delay {
        Delay {
            model,
            last_arrival: Time::ZERO,
            rng: Pcg32::new(seed, JITTER_STREAM),
        }
    }

    /// Returns the arrival time of the next packet, which departs at `departs`. Without reordering
    /// it is not earlier than the arrival of the previous packet, even if the delay was reduced in
    /// between.
    pub fn schedule_arrival(&mut self, departs: Time) -> Time {
        let arrives = departs + self.draw_delay();
        self.last_arrival = self.last_arrival.max(arrives);
        if self.reorders() {
            arrives
        } else {
            self.last_arrival
        }
    }

    /// Returns true if packets may overtake each other.
    pub fn reorders(&self) -> bool {
        matches!(self.model, DelayModel::Jitter { reorder: true, .. })
    }

    /// Returns the minimum delay of future packets.
    pub fn min_delay(&self) -> Duration {
        match self.model {
            DelayModel::Fixed(delay) => delay,
            DelayModel::Jitter {
                delay,
                spread,
                shape,
                ..
            } => match shape {
                DelayDistribution::Uniform => delay.saturating_sub(spread),
                DelayDistribution::Normal => delay.saturating_sub(spread * NORMAL_CUTOFF_SIGMAS),
            },
        }
    }

    /// Changes the delay, or the mean delay, of future packets.
    pub fn set_delay(&mut self, to: Duration) {
        match &mut self.model {
            DelayModel::Fixed(delay) | DelayModel::Jitter { delay, .. } => *delay = to,
        }
    }

    /// Changes the delay model of future packets.
    pub fn set_model(&mut self, model: DelayModel) {
        self.model = model;
    }

    /// Resets the latest arrival to `last`, so that the packets after it can be planned again.
    pub fn set_last_arrival(&mut self, last: Time) {
        self.last_arrival = last;
    }

    /// Draws the delay of the next packet.
    fn draw_delay(&mut self) -> Duration {
        let (delay, spread, shape) = match self.model {
            DelayModel::Fixed(delay) => return delay,
            DelayModel::Jitter {
                delay,
                spread,
                shape,
                ..
            } => (delay, spread, shape),
        };
        match shape {
            DelayDistribution::Uniform => {
                let width = u128::from(spread.as_nanos()) * 2 + 1;
                let into = ((width * u128::from(self.rng.next_u32())) >> 32) as u64;
                // Adds before it subtracts, to stay in the unsigned range.
                (delay + Duration::from_nanos(into)).saturating_sub(spread)
            }
            DelayDistribution::Normal => {
                let far = (self.draw_normal() * spread.as_nanos() as f64).round();
                let by = Duration::from_nanos(far.abs() as u64);
                if far < 0.0 {
                    delay.saturating_sub(by)
                } else {
                    delay + by
                }
            }
        }
    }

    /// Draws a truncated standard normal variate (Box and Muller, Annals of Mathematical Statistics
    /// 29(2), 1958). `libm` gives the same result on every platform.
    fn draw_normal(&mut self) -> f64 {
        let mut uniform = || (f64::from(self.rng.next_u32()) + 0.5) / 4_294_967_296.0;
        let radius = (-2.0 * libm::log(uniform())).sqrt();
        let number = radius * libm::cos(core::f64::consts::TAU * uniform());
        number.clamp(-(NORMAL_CUTOFF_SIGMAS as f64), NORMAL_CUTOFF_SIGMAS as f64)
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::stats::mean_and_variance;

    use super::*;

    #[test]
    fn a_shorter_delay_lets_nothing_overtake() {
        let mut delay = Delay::new(Duration::from_millis(10));
        assert_eq!(
            delay.schedule_arrival(Time::from_micros(1_000)),
            Time::from_micros(11_000)
        );
        delay.set_delay(Duration::from_millis(2));
        assert_eq!(
            delay.schedule_arrival(Time::from_micros(3_000)),
            Time::from_micros(11_000)
        );
        assert_eq!(
            delay.schedule_arrival(Time::from_micros(12_000)),
            Time::from_micros(14_000)
        );
        delay.set_last_arrival(Time::from_micros(5_000));
        assert_eq!(
            delay.schedule_arrival(Time::from_micros(4_000)),
            Time::from_micros(6_000)
        );
    }

    /// Returns arrival times of packets sent 10 µs apart, and the delay of each in ms.
    fn run(shape: DelayDistribution, reorder: bool, seed: u64) -> (Vec<Time>, Vec<f64>) {
        let model = DelayModel::Jitter {
            delay: Duration::from_millis(10),
            spread: Duration::from_millis(2),
            shape,
            reorder,
        };
        let mut delay = Delay::with_model(model, seed);
        let least = delay.min_delay();
        let departs = (0..50_000).map(|n| Time::from_micros(n * 10));
        departs
            .map(|departs| {
                let arrives = delay.schedule_arrival(departs);
                assert!(arrives.since(departs) >= least);
                (arrives, arrives.since(departs).as_secs_f64() * 1e3)
            })
            .unzip()
    }

    fn mean_and_deviation(of: &[f64]) -> (f64, f64) {
        let (mean, variance) = mean_and_variance(of).expect("values");
        (mean, variance.sqrt())
    }

    #[test]
    fn jitter_has_the_mean_and_the_deviation_that_it_should() {
        // The standard deviation of a uniform distribution of half width 2 is 2/√3.
        for (shape, expected, delay_max_ms) in [
            (DelayDistribution::Uniform, 2.0 / 3_f64.sqrt(), 12.0),
            (DelayDistribution::Normal, 2.0, 18.0),
        ] {
            let (_, took) = run(shape, true, 1);
            let (mean, deviation) = mean_and_deviation(&took);
            assert!((mean - 10.0).abs() < 0.03, "{shape:?}: {mean}");
            assert!(
                (deviation - expected).abs() < 0.02,
                "{shape:?}: {deviation}"
            );
            assert!(took.iter().all(|&ms| ms <= delay_max_ms));
        }
    }

    #[test]
    fn packets_overtake_only_if_they_may() {
        assert!(!run(DelayDistribution::Uniform, true, 1).0.is_sorted());
        assert!(run(DelayDistribution::Uniform, false, 1).0.is_sorted());
        assert!(run(DelayDistribution::Normal, false, 1).0.is_sorted());
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(
            run(DelayDistribution::Normal, true, 3),
            run(DelayDistribution::Normal, true, 3)
        );
        assert_ne!(
            run(DelayDistribution::Normal, true, 3),
            run(DelayDistribution::Normal, true, 4)
        );
    }

    #[test]
    fn nothing_takes_less_than_no_time() {
        let model = DelayModel::Jitter {
            delay: Duration::from_millis(1),
            spread: Duration::MAX,
            shape: DelayDistribution::Uniform,
            reorder: true,
        };
        let mut delay = Delay::with_model(model, 1);
        assert_eq!(delay.min_delay(), Duration::ZERO);
        assert!(
            (0..100).all(|_| delay.schedule_arrival(Time::from_micros(5)) >= Time::from_micros(5))
        );
    }
}
