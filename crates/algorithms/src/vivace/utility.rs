//! Utility of a monitor interval.

/// Utility function (Vivace, sections 3 and 6.1: one function with two settings of b).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Utility {
    /// Vivace-Latency: RTT increases and losses reduce the utility.
    #[default]
    Latency,
    /// Vivace-Loss: only losses reduce the utility.
    Loss,
}

/// t, the exponent of the rate (section 3.1). Below 1, so that any number of flows has one fair
/// equilibrium.
const RATE_EXPONENT: f64 = 0.9;
/// b, the coefficient of the RTT gradient, with the rate in Mbit/s (section 3.1;
/// `kLatencyCoefficient`). A smaller b leaves longer queues.
const LATENCY_COEFFICIENT: f64 = 900.0;
/// c, the coefficient of the loss rate (section 3.1; `kVivaceLossCoefficient`): a flow yields above
/// 5 % of loss. A larger c mistakes random loss for congestion.
const LOSS_COEFFICIENT: f64 = 11.35;
/// Gradients smaller than this in magnitude are noise (section 5, low-pass filter of the RTT
/// gradient).
const GRADIENT_NOISE_MAX: f64 = 0.01;

impl Utility {
    /// Section 3.1: x^t − b·x·dRTT/dt − c·x·L, for a rate x in Mbit/s, the RTT gradient and the
    /// loss rate L.
    pub fn evaluate(self, rate: f64, slope: f64, lost: f64) -> f64 {
        let latency = match self {
            Utility::Latency if slope.abs() >= GRADIENT_NOISE_MAX => LATENCY_COEFFICIENT * slope,
            _ => 0.0,
        };
        libm::pow(rate, RATE_EXPONENT) - rate * latency - rate * LOSS_COEFFICIENT * lost
    }
}

/// Packets sent and lost in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets sent.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
}

/// Standard deviations by which the loss rates of two intervals must differ to be significant.
const LOSS_DIFFERENCE_SIGMAS: f64 = 2.0;

impl Losses {
    /// L, the loss rate.
    pub fn loss_rate(self) -> f64 {
        (self.lost as f64 / self.sent.max(1) as f64).min(1.0)
    }

    /// L of both intervals of a pair: their common loss rate, unless the difference is significant.
    /// In an interval of a hundred packets, random loss of 1 % is 1 ± 1 packets. Multiplied by c·x,
    /// that is several times the utility of 5 % of the rate, and the ascent would be a random walk.
    /// Not in the paper, which filters only the RTT.
    pub fn loss_rates(one: Losses, other: Losses) -> [f64; 2] {
        let both = Losses {
            sent: one.sent.saturating_add(other.sent),
            lost: one.lost.saturating_add(other.lost),
        }
        .loss_rate();
        let share = |l: Losses| 1.0 / l.sent.max(1) as f64;
        let deviation = (both * (1.0 - both) * (share(one) + share(other))).sqrt();
        if (one.loss_rate() - other.loss_rate()).abs() > LOSS_DIFFERENCE_SIGMAS * deviation {
            [one.loss_rate(), other.loss_rate()]
        } else {
            [both, both]
        }
    }
}

/// Standard errors by which a slope must differ from 0 to be significant. A smaller value follows
/// the path's jitter. A larger one misses a queue that grows by a few percent of the rate.
const SLOPE_STANDARD_ERRORS: f64 = 2.0;
/// Addition to [`SLOPE_STANDARD_ERRORS`] at one degree of freedom, in inverse proportion for more,
/// because the error is itself an estimate. Approximates the 97.5 % quantile of Student's t
/// distribution.
const SMALL_SAMPLE_CORRECTION: f64 = 3.0;
/// Largest correlation of neighbouring samples that the error accounts for. The kinked line of a
/// queue that fills or empties within the interval also has correlated residuals.
const CORRELATION_MAX: f64 = 0.9;

/// Sums of a linear regression of the RTT (µs above the minimum) on the send time (µs).
#[derive(Clone, Copy, Debug, Default)]
pub struct Regression {
    /// Number of samples.
    pub n: u64,
    /// Sum of the send times.
    pub x: u64,
    /// Sum of the RTTs.
    pub y: u64,
    /// Sum of the squared send times.
    pub xx: u64,
    /// Sum of the products.
    pub xy: u64,
    /// Sum of the squared RTTs.
    pub yy: u64,
    /// Sum of the squared differences of successive RTTs.
    pub steps: u64,
}

/// RTT gradient and its tolerance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// dRTT/dt by least squares; 0 unless two samples have different send times.
    pub value: f64,
    /// Smallest absolute slope that is significant for this number of samples and this noise.
    /// Infinite below three samples.
    pub tolerance: f64,
}

impl Regression {
    /// Returns the slope with its tolerance (PCC Proteus, SIGCOMM 2020, section 5, "per-interval
    /// tolerance": a gradient smaller than the regression's error is ignored).
    ///
    /// The tolerance is a multiple of the slope's standard error. Jitter preserves packet order, so
    /// neighbouring samples are correlated and count as fewer: n·(1 − ρ)/(1 + ρ), where ρ is the
    /// correlation of neighbours. ρ follows from the mean squared step, which is 2·(1 − ρ) times
    /// the variance.
    pub fn slope(&self) -> Slope {
        let [n, x, y, xx, xy, yy] =
            [self.n, self.x, self.y, self.xx, self.xy, self.yy].map(|sum| sum as f64);
        let sxx = xx - x * x / n.max(1.0);
        if self.n < 2 || sxx <= 0.0 {
            return Slope {
                value: 0.0,
                tolerance: f64::INFINITY,
            };
        }
        let sxy = xy - x * y / n;
        let value = (sxy / sxx).clamp(-1.0, 10.0);
        if self.n < 3 {
            return Slope {
                value,
                tolerance: f64::INFINITY,
            };
        }
        let freedom = n - 2.0;
        let variance = ((yy - y * y / n - sxy * sxy / sxx) / freedom).max(0.0);
        let step = self.steps as f64 / (n - 1.0);
        let correlation = match variance > 0.0 {
            true => (1.0 - step / (2.0 * variance)).clamp(0.0, CORRELATION_MAX),
            false => 0.0,
        };
        let error = (variance / sxx * (1.0 + correlation) / (1.0 - correlation)).sqrt();
        Slope {
            value,
            tolerance: (SLOPE_STANDARD_ERRORS + SMALL_SAMPLE_CORRECTION / freedom) * error,
        }
    }
}

impl Slope {
    /// Returns the slope, or 0 if it is not significant.
    pub fn significant(self) -> f64 {
        if self.value.abs() > self.tolerance {
            self.value
        } else {
            0.0
        }
    }

    /// Returns true if the slope is significant, but would not be with twice the noise.
    pub fn is_marginal(self) -> bool {
        self.significant() != 0.0 && self.value.abs() < 2.0 * self.tolerance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} {b}");
    }

    #[test]
    fn by_hand() {
        // 100^0.9 = 63.0957; 900 * 100 * 0.02 = 1800; 11.35 * 100 * 0.01 = 11.35.
        close(Utility::Latency.evaluate(100.0, 0.0, 0.0), 63.095_734_448);
        close(
            Utility::Latency.evaluate(100.0, 0.02, 0.01),
            63.095_734_448 - 1800.0 - 11.35,
        );
        close(
            Utility::Latency.evaluate(100.0, 0.009, 0.01),
            63.095_734_448 - 11.35,
        );
        close(
            Utility::Latency.evaluate(100.0, -0.02, 0.0),
            63.095_734_448 + 1800.0,
        );
        close(
            Utility::Loss.evaluate(100.0, 0.02, 0.01),
            63.095_734_448 - 11.35,
        );
    }

    #[test]
    fn more_is_better_up_to_five_percent_of_loss() {
        // d/dx (x^0.9 − 11.35 x L) at a fixed capacity C, with L = 1 − C/x: everything beyond C is
        // lost.
        let beyond = |x: f64| Utility::Loss.evaluate(x, 0.0, 1.0 - 100.0 / x);
        assert!(beyond(101.0) < beyond(100.0));
        // Random loss independent of the rate: at 10 Mbit/s and 5 % a higher rate has a higher
        // utility, at 9 % it does not.
        let random = |x: f64, lost: f64| Utility::Loss.evaluate(x, 0.0, lost);
        assert!(random(10.5, 0.05) > random(9.5, 0.05));
        assert!(random(10.5, 0.09) < random(9.5, 0.09));
    }

    #[test]
    fn noise_is_ignored_but_overflow_is_detected() {
        let losses = |lost| Losses { sent: 160, lost };
        // 1 % of 320 packets: 1.6 ± 1.3 in each interval.
        assert_eq!(Losses::loss_rates(losses(3), losses(0)), [3.0 / 320.0; 2]);
        // 5 % above capacity loses 8 packets.
        assert_eq!(Losses::loss_rates(losses(8), losses(0)), [0.05, 0.0]);
        assert_eq!(
            Losses::loss_rates(Losses::default(), Losses::default()),
            [0.0; 2]
        );
    }

    /// Returns the sums of these (send time, RTT) samples, µs.
    fn sums(samples: impl IntoIterator<Item = (u64, u64)>) -> Regression {
        let mut sums = Regression::default();
        let mut last = None;
        for (x, y) in samples {
            sums = Regression {
                n: sums.n + 1,
                x: sums.x + x,
                y: sums.y + y,
                xx: sums.xx + x * x,
                xy: sums.xy + x * y,
                yy: sums.yy + y * y,
                steps: sums.steps + y.abs_diff(last.unwrap_or(y)).pow(2),
            };
            last = Some(y);
        }
        sums
    }

    #[test]
    fn a_straight_line_has_an_exact_slope() {
        let slope = sums((0..100).map(|i| (i * 125, 1000 + i * 125 / 20))).slope();
        assert!((slope.value - 0.05).abs() < 1e-3, "{slope:?}");
        assert_eq!(slope.significant(), slope.value, "{slope:?}");
    }

    #[test]
    fn too_few_samples_have_no_slope() {
        for samples in [&[][..], &[(1, 3); 3], &[(0, 0), (1000, 900)]] {
            let slope = sums(samples.iter().copied()).slope();
            assert_eq!(slope.significant(), 0.0, "{samples:?}: {slope:?}");
        }
        assert!(sums([(0, 0), (1000, 900)]).slope().value > 0.8);
        let odd = Regression {
            n: u64::MAX,
            x: 1,
            y: u64::MAX,
            ..Regression::default()
        };
        assert!(odd.slope().value.is_finite() && !odd.slope().significant().is_nan());
    }

    /// RTTs of 160 packets in 40 ms with up to 10 ms of jitter, in order.
    fn jittered(seed: u64, growth: f64) -> Slope {
        let (mut arrived, mut state) = (0, seed);
        let samples: Vec<(u64, u64)> = (0..160)
            .map(|i| {
                state = ccplane_agent::rng::finalize(state.wrapping_add(i));
                let sent = i * 250;
                arrived = (sent + (sent as f64 * growth) as u64 + state % 10_000).max(arrived);
                (sent, arrived - sent)
            })
            .collect();
        sums(samples).slope()
    }

    #[test]
    fn jitter_has_no_slope_but_a_growing_queue_has() {
        let counts = |growth: f64| {
            (0..200)
                .filter(|seed| jittered(*seed, growth).significant() != 0.0)
                .count()
        };
        let beyond = |limit: f64| {
            (0..200)
                .filter(|seed| jittered(*seed, 0.0).value.abs() > limit)
                .count()
        };
        assert!(
            beyond(GRADIENT_NOISE_MAX) > 100,
            "a fixed limit of 1 % takes the jitter for a slope"
        );
        assert!(counts(0.0) < 30, "{}", counts(0.0));
        assert!(counts(0.05) > 150, "{}", counts(0.05));
    }
}
