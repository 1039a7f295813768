//! Propagation: how long packets are under way behind the line, always the same or spread at
//! random.

use ccplane_units::{Duration, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// The stream of random numbers that jitter is drawn from.
const STREAM: u64 = 0x006a_6974;

/// Where a normal distribution is cut off, in standard deviations: one packet in 16 000 is beyond.
/// Without an end there would be no least delay, which a simulation looks ahead by.
const CUT: u64 = 4;

/// How long packets take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayModel {
    /// Every packet the same.
    Fixed(Duration),
    /// Every packet its own.
    Jitter {
        /// The mean.
        delay: Duration,
        /// How far packets are from it; nothing takes less than no time.
        spread: Duration,
        /// How they are distributed.
        shape: Shape,
        /// Whether a packet may overtake those before it. Otherwise it waits for them, so that
        /// delays that differ much between packets close together come out longer than drawn.
        reorder: bool,
    },
}

/// How delays are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Evenly within the spread around the mean.
    Uniform,
    /// Normally, the spread being the standard deviation; cut off at four of them.
    Normal,
}

/// A delay that may be changed while packets are under way. The delay of the n-th packet depends on
/// the seed and on n only.
#[derive(Clone, Debug)]
pub struct Delay {
    model: DelayModel,
    /// When the packet before arrives.
    last: Time,
    draws: Pcg32,
}

impl Delay {
    /// A fixed delay that no packet has passed yet.
    pub fn new(delay: Duration) -> Delay {
        Delay::with_model(DelayModel::Fixed(delay), 0)
    }

    /// Any delay that no packet has passed yet.
    pub fn with_model(model: DelayModel, seed: u64) -> Delay {
        Delay {
            model,
            last: Time::ZERO,
            draws: Pcg32::new(seed, STREAM),
        }
    }

    /// When the next packet arrives that departs then: after the delay, but, unless packets may
    /// overtake, not before the packet before it, which may have set out under a longer one.
    pub fn arrives(&mut self, departs: Time) -> Time {
        let arrives = departs + self.next();
        self.last = self.last.max(arrives);
        if self.reorders() { arrives } else { self.last }
    }

    /// Whether packets may overtake.
    pub fn reorders(&self) -> bool {
        matches!(self.model, DelayModel::Jitter { reorder: true, .. })
    }

    /// What the packets to come take at least.
    pub fn least(&self) -> Duration {
        match self.model {
            DelayModel::Fixed(delay) => delay,
            DelayModel::Jitter {
                delay,
                spread,
                shape,
                ..
            } => match shape {
                Shape::Uniform => delay.saturating_sub(spread),
                Shape::Normal => delay.saturating_sub(spread * CUT),
            },
        }
    }

    /// Changes the delay, or the mean delay, for the packets to come.
    pub fn set(&mut self, to: Duration) {
        match &mut self.model {
            DelayModel::Fixed(delay) | DelayModel::Jitter { delay, .. } => *delay = to,
        }
    }

    /// Changes how long the packets to come take.
    pub fn set_model(&mut self, model: DelayModel) {
        self.model = model;
    }

    /// Plans anew from the packet on that follows one which arrives at `last`.
    pub fn replan_after(&mut self, last: Time) {
        self.last = last;
    }

    /// What the next packet takes.
    fn next(&mut self) -> Duration {
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
            Shape::Uniform => {
                let width = u128::from(spread.as_nanos()) * 2 + 1;
                let into = ((width * u128::from(self.draws.next_u32())) >> 32) as u64;
                // Below the mean first, so that nothing overflows.
                (delay + Duration::from_nanos(into)).saturating_sub(spread)
            }
            Shape::Normal => {
                let far = (self.normal() * spread.as_nanos() as f64).round();
                let by = Duration::from_nanos(far.abs() as u64);
                if far < 0.0 {
                    delay.saturating_sub(by)
                } else {
                    delay + by
                }
            }
        }
    }

    /// A number of the standard normal distribution, cut off (Box and Muller, Annals of
    /// Mathematical Statistics 29(2), 1958). `libm` computes the same everywhere.
    fn normal(&mut self) -> f64 {
        let mut uniform = || (f64::from(self.draws.next_u32()) + 0.5) / 4_294_967_296.0;
        let radius = (-2.0 * libm::log(uniform())).sqrt();
        let number = radius * libm::cos(core::f64::consts::TAU * uniform());
        number.clamp(-(CUT as f64), CUT as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_delay_lets_nothing_overtake() {
        let mut delay = Delay::new(Duration::from_millis(10));
        assert_eq!(
            delay.arrives(Time::from_micros(1_000)),
            Time::from_micros(11_000)
        );
        delay.set(Duration::from_millis(2));
        assert_eq!(
            delay.arrives(Time::from_micros(3_000)),
            Time::from_micros(11_000)
        );
        assert_eq!(
            delay.arrives(Time::from_micros(12_000)),
            Time::from_micros(14_000)
        );
        delay.replan_after(Time::from_micros(5_000));
        assert_eq!(
            delay.arrives(Time::from_micros(4_000)),
            Time::from_micros(6_000)
        );
    }

    /// Arrivals of packets that depart 10 µs after each other, and what each of them took, in ms.
    fn run(shape: Shape, reorder: bool, seed: u64) -> (Vec<Time>, Vec<f64>) {
        let model = DelayModel::Jitter {
            delay: Duration::from_millis(10),
            spread: Duration::from_millis(2),
            shape,
            reorder,
        };
        let mut delay = Delay::with_model(model, seed);
        let least = delay.least();
        let departs = (0..50_000).map(|n| Time::from_micros(n * 10));
        departs
            .map(|departs| {
                let arrives = delay.arrives(departs);
                assert!(arrives.since(departs) >= least);
                (arrives, arrives.since(departs).as_secs_f64() * 1e3)
            })
            .unzip()
    }

    fn mean_and_deviation(of: &[f64]) -> (f64, f64) {
        let mean = of.iter().sum::<f64>() / of.len() as f64;
        let variance = of.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / of.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn jitter_has_the_mean_and_the_deviation_that_it_should() {
        // A uniform distribution of half width 2 has deviation 2/√3.
        for (shape, expected, most) in [
            (Shape::Uniform, 2.0 / 3_f64.sqrt(), 12.0),
            (Shape::Normal, 2.0, 18.0),
        ] {
            let (_, took) = run(shape, true, 1);
            let (mean, deviation) = mean_and_deviation(&took);
            assert!((mean - 10.0).abs() < 0.03, "{shape:?}: {mean}");
            assert!(
                (deviation - expected).abs() < 0.02,
                "{shape:?}: {deviation}"
            );
            assert!(took.iter().all(|&ms| ms <= most));
        }
    }

    #[test]
    fn packets_overtake_only_if_they_may() {
        assert!(!run(Shape::Uniform, true, 1).0.is_sorted());
        assert!(run(Shape::Uniform, false, 1).0.is_sorted());
        assert!(run(Shape::Normal, false, 1).0.is_sorted());
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(run(Shape::Normal, true, 3), run(Shape::Normal, true, 3));
        assert_ne!(run(Shape::Normal, true, 3), run(Shape::Normal, true, 4));
    }

    #[test]
    fn nothing_takes_less_than_no_time() {
        let model = DelayModel::Jitter {
            delay: Duration::from_millis(1),
            spread: Duration::MAX,
            shape: Shape::Uniform,
            reorder: true,
        };
        let mut delay = Delay::with_model(model, 1);
        assert_eq!(delay.least(), Duration::ZERO);
        assert!((0..100).all(|_| delay.arrives(Time::from_micros(5)) >= Time::from_micros(5)));
    }
}
