//! Synthetic cellular links: delivery opportunities in Mahimahi's format, drawn from a seed.
//!
//! Recorded traces belong to the people who recorded them. A synthetic trace serves experiments
//! that need a link with the rate variation of a mobile phone and have no trace. Its rate is a mean
//! times the exponential of two Ornstein-Uhlenbeck processes: one with a time constant of seconds
//! (load of the cell, position of the phone), one with a fraction of a second (fading).
//! Opportunities are a Poisson process of that rate. Occasionally the link is silent for a while
//! (hand-overs). The table compares statistics over 140 s: the default trace with seeds 1 to 5, and
//! the Verizon LTE downlink recorded by Mahimahi's authors (Winstein, Sivaraman, Balakrishnan, NSDI
//! 2013).
//!
//! | | generated | recorded |
//! | --- | --- | --- |
//! | mean | 4.9 to 5.1 Mbit/s | 5.0 Mbit/s |
//! | coefficient of variation over 1 s | 0.4 to 0.9 | 0.63 |
//! | correlation of neighbouring 100 ms | 0.7 to 0.95 | 0.87 |
//! | 20 ms without an opportunity | 3 to 12 % | 7 % |
//!
//! The trace models no particular network; results over it apply to this kind of link.

use std::fmt::Write;
use std::sync::Arc;

use ccplane_qdisc::{LineSpec, Trace, TraceError};
use ccplane_units::{Duration, Rate};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Parameters of a synthetic cellular trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cellular {
    /// Mean rate of the trace.
    pub mean: Rate,
    /// Length of the trace; a longer run repeats it.
    pub length: Duration,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Cellular {
    /// Returns the parameters of the recorded trace: 5 Mbit/s for 140 s.
    fn default() -> Cellular {
        Cellular {
            mean: Rate::from_bits_per_sec(5_000_000),
            length: Duration::from_secs(140),
            seed: 1,
        }
    }
}

/// Step of the rate, ms: shorter than the time constant of fading, longer than the millisecond of
/// Mahimahi's format.
const STEP_MS: u64 = 10;
/// Slow part: standard deviation of the logarithm, and time constant in ms. With a larger deviation
/// the link is nearly idle most of the time; with a longer time constant a minute shows only one
/// state.
const SLOW_RATE_PROCESS: (f64, f64) = (0.55, 4_000.0);
/// Fast part, in the same units. A much shorter time constant would average out over a round trip.
const FAST_RATE_PROCESS: (f64, f64) = (0.5, 300.0);
/// Silences per second, and their mean length in ms. Half of the recorded trace's silent time is in
/// such gaps.
const SILENCE_PROCESS: (f64, f64) = (0.4, 60.0);
/// Bytes per opportunity in Mahimahi's format.
const OPPORTUNITY_BYTES: f64 = 1_500.0;
/// Random number stream of this generator.
const RATE_STREAM: u128 = 0x6365_6c6c;

impl Cellular {
    /// Returns the trace as the text of a Mahimahi file: one opportunity per line, time in
    /// milliseconds.
    pub fn to_mahimahi(&self) -> String {
        let mut random = Pcg64::new(u128::from(self.seed), RATE_STREAM);
        let length = (self.length.as_nanos() / 1_000_000).max(STEP_MS);
        let rates = rates(length, &mut random);
        // Scales this trace to the requested mean; the process meets it only on average over seeds.
        let sum: f64 = rates.iter().sum();
        let wanted = self.mean.bytes_per_sec() as f64 / OPPORTUNITY_BYTES * length as f64 / 1e3;
        let scale = if sum > 0.0 { wanted / sum } else { 0.0 };
        let mut wait = exponential(&mut random);
        let mut text = String::new();
        for (ms, rate) in rates.into_iter().enumerate() {
            wait -= rate * scale;
            while wait <= 0.0 {
                let _ = writeln!(text, "{ms}");
                wait += exponential(&mut random);
            }
        }
        // The last line is the period.
        let _ = writeln!(text, "{length}");
        text
    }

    /// Returns the trace as a line. Fails only if the length is zero.
    pub fn to_line(&self) -> Result<LineSpec, TraceError> {
        Ok(LineSpec::Trace(Arc::new(Trace::parse(
            &self.to_mahimahi(),
        )?)))
    }
}

/// Returns the relative rate in each millisecond.
fn rates(length: u64, random: &mut Pcg64) -> Vec<f64> {
    let (mut slow, mut fast) = (
        SLOW_RATE_PROCESS.0 * normal(random),
        FAST_RATE_PROCESS.0 * normal(random),
    );
    let (mut rates, mut silent_until) = (Vec::new(), 0);
    for ms in 0..length {
        if ms.is_multiple_of(STEP_MS) {
            slow = follow(slow, SLOW_RATE_PROCESS, random);
            fast = follow(fast, FAST_RATE_PROCESS, random);
            if uniform(random) < SILENCE_PROCESS.0 * STEP_MS as f64 / 1e3 {
                silent_until = ms + (SILENCE_PROCESS.1 * exponential(random)) as u64;
            }
        }
        rates.push(if ms < silent_until {
            0.0
        } else {
            libm::exp(slow + fast)
        });
    }
    rates
}

/// Advances an Ornstein-Uhlenbeck process of this deviation and time constant by one step.
fn follow(x: f64, (deviation, time_ms): (f64, f64), random: &mut Pcg64) -> f64 {
    let keep = libm::exp(-(STEP_MS as f64) / time_ms);
    x * keep + deviation * (1.0 - keep * keep).sqrt() * normal(random)
}

/// Draws uniformly from (0, 1].
fn uniform(random: &mut Pcg64) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Draws from the exponential distribution with mean 1.
fn exponential(random: &mut Pcg64) -> f64 {
    -libm::log(uniform(random))
}

/// Draws from the standard normal distribution (Box and Muller, 1958; one of the two deviates is
/// discarded).
fn normal(random: &mut Pcg64) -> f64 {
    (2.0 * exponential(random)).sqrt() * libm::cos(2.0 * std::f64::consts::PI * uniform(random))
}

#[cfg(test)]
mod tests {
    use ccplane_units::stats::mean_and_variance;

    use super::*;

    /// Returns the rate in each window of `window` ms, Mbit/s.
    fn rates(text: &str, window: u64) -> Vec<f64> {
        let times: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let mut bins = vec![0.0; (times.last().unwrap() / window) as usize];
        for time in times {
            if let Some(bin) = bins.get_mut((time / window) as usize) {
                *bin += 12.0 / window as f64;
            }
        }
        bins
    }

    #[test]
    fn generated_links_resemble_recorded_ones() {
        for seed in 1..=5 {
            let text = Cellular {
                seed,
                ..Cellular::default()
            }
            .to_mahimahi();
            let seconds = rates(&text, 1_000);
            let (mean, variance) = mean_and_variance(&seconds).expect("values");
            let variation = variance.sqrt() / mean;
            let tenths = rates(&text, 100);
            let (middle, spread) = mean_and_variance(&tenths).expect("values");
            let together = tenths
                .windows(2)
                .map(|w| (w[0] - middle) * (w[1] - middle))
                .sum::<f64>();
            let correlation = together / tenths.len() as f64 / spread;
            let fine = rates(&text, 20);
            let empty = fine.iter().filter(|r| **r == 0.0).count() as f64 / fine.len() as f64;
            let all = format!("seed {seed}: {mean:.2} {variation:.2} {correlation:.2} {empty:.3}");
            eprintln!("{all}");
            assert!((4.9..5.1).contains(&mean), "{all}");
            assert!((0.4..0.9).contains(&variation), "{all}");
            assert!((0.7..0.95).contains(&correlation), "{all}");
            assert!((0.03..0.12).contains(&empty), "{all}");
        }
    }

    #[test]
    fn a_seed_determines_the_trace() {
        let of = |seed| {
            Cellular {
                seed,
                ..Cellular::default()
            }
            .to_mahimahi()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        assert!(Cellular::default().to_line().is_ok());
    }
}
