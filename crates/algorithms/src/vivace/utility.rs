//! The utility of a monitor interval.

/// Which utility (Vivace section 3 and 6.1: one function, two settings of b).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Utility {
    /// Vivace-Latency: a rising delay costs.
    #[default]
    Latency,
    /// Vivace-Loss: only losses cost.
    Loss,
}

/// t, the exponent of the rate (section 3.1). Below 1, so that many flows have one fair equilibrium.
const EXPONENT: f64 = 0.9;
/// b: what a rise of the RTT costs, with the rate in Mbit/s (section 3.1; `kLatencyCoefficient`). Smaller leaves longer queues.
const LATENCY: f64 = 900.0;
/// c: what losses cost (section 3.1; `kVivaceLossCoefficient`): a flow gives way above 5 % of loss. Larger takes random loss for
/// congestion.
const LOSS: f64 = 11.35;
/// A slope of less than this, either way, is noise (section 5, low-pass filter of the RTT gradient).
const FLAT: f64 = 0.01;

impl Utility {
    /// x^t - b·x·dRTT/dt - c·x·L for a rate in Mbit/s, the slope of the RTT, and the part that was lost.
    pub fn of(self, rate: f64, slope: f64, lost: f64) -> f64 {
        let latency = match self {
            Utility::Latency if slope.abs() >= FLAT => LATENCY * slope,
            _ => 0.0,
        };
        libm::pow(rate, EXPONENT) - rate * latency - rate * LOSS * lost
    }
}

/// Packets of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Sent.
    pub sent: u64,
    /// Of these lost.
    pub lost: u64,
}

/// Standard deviations by which two intervals' losses have to differ.
const SIGNIFICANT: f64 = 2.0;

impl Losses {
    /// L: the part that was lost.
    pub fn part(self) -> f64 {
        (self.lost as f64 / self.sent.max(1) as f64).min(1.0)
    }

    /// L of both intervals of a pair: that of the two together, unless they differ by more than chance would make them. In
    /// the hundred packets of an interval a random loss of 1 % is 1 ± 1, and c·x times that is several times what 5 % of rate is
    /// worth: the ascent would be a random walk (ours; the paper has a filter for the RTT alone).
    pub fn parts(one: Losses, other: Losses) -> [f64; 2] {
        let both = Losses {
            sent: one.sent.saturating_add(other.sent),
            lost: one.lost.saturating_add(other.lost),
        }
        .part();
        let share = |l: Losses| 1.0 / l.sent.max(1) as f64;
        let deviation = (both * (1.0 - both) * (share(one) + share(other))).sqrt();
        if (one.part() - other.part()).abs() > SIGNIFICANT * deviation {
            [one.part(), other.part()]
        } else {
            [both, both]
        }
    }
}

/// Sums of a linear regression of the RTT (µs above the shortest) over the time of sending (µs).
#[derive(Clone, Copy, Debug, Default)]
pub struct Regression {
    /// Samples.
    pub n: u64,
    /// Of times.
    pub x: u64,
    /// Of RTTs.
    pub y: u64,
    /// Of squares of times.
    pub xx: u64,
    /// Of products.
    pub xy: u64,
}

impl Regression {
    /// dRTT/dt, the least-squares slope; 0 where there are no two times.
    pub fn slope(&self) -> f64 {
        let [n, x, y, xx, xy] = [self.n, self.x, self.y, self.xx, self.xy].map(|sum| sum as f64);
        let spread = n * xx - x * x;
        if self.n < 2 || spread <= 0.0 {
            return 0.0;
        }
        ((n * xy - x * y) / spread).clamp(-1.0, 10.0)
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
        close(Utility::Latency.of(100.0, 0.0, 0.0), 63.095_734_448);
        close(Utility::Latency.of(100.0, 0.02, 0.01), 63.095_734_448 - 1800.0 - 11.35);
        close(Utility::Latency.of(100.0, 0.009, 0.01), 63.095_734_448 - 11.35);
        close(Utility::Latency.of(100.0, -0.02, 0.0), 63.095_734_448 + 1800.0);
        close(Utility::Loss.of(100.0, 0.02, 0.01), 63.095_734_448 - 11.35);
    }

    #[test]
    fn more_is_better_up_to_five_percent_of_loss() {
        // d/dx (x^0.9 - 11.35 x L) at a fixed capacity C, where L = 1 - C/x: all of x beyond C is lost.
        let beyond = |x: f64| Utility::Loss.of(x, 0.0, 1.0 - 100.0 / x);
        assert!(beyond(101.0) < beyond(100.0));
        // Random loss that does not depend on the rate: of 5 % it pays to send more at 10 Mbit/s, of 9 % it does not.
        let random = |x: f64, lost: f64| Utility::Loss.of(x, 0.0, lost);
        assert!(random(10.5, 0.05) > random(9.5, 0.05));
        assert!(random(10.5, 0.09) < random(9.5, 0.09));
    }

    #[test]
    fn chance_does_not_tell_two_intervals_apart_and_an_overflow_does() {
        let losses = |lost| Losses { sent: 160, lost };
        // 1 % of 320 packets: each of the two has 1.6 ± 1.3 of them.
        assert_eq!(Losses::parts(losses(3), losses(0)), [3.0 / 320.0; 2]);
        // 5 % more than fits are 8 packets.
        assert_eq!(Losses::parts(losses(8), losses(0)), [0.05, 0.0]);
        assert_eq!(Losses::parts(Losses::default(), Losses::default()), [0.0; 2]);
    }

    #[test]
    fn the_slope_of_a_line() {
        let mut sums = Regression::default();
        for i in 0..100u64 {
            let (x, y) = (i * 125, 1000 + i * 125 / 20);
            sums = Regression {
                n: sums.n + 1,
                x: sums.x + x,
                y: sums.y + y,
                xx: sums.xx + x * x,
                xy: sums.xy + x * y,
            };
        }
        assert!((sums.slope() - 0.05).abs() < 1e-3, "{}", sums.slope());
        assert_eq!(Regression::default().slope(), 0.0);
        let one = Regression {
            n: 3,
            x: 3,
            y: 9,
            xx: 3,
            xy: 9,
        };
        assert_eq!(one.slope(), 0.0, "all at one time");
        let odd = Regression {
            n: u64::MAX,
            x: 1,
            y: u64::MAX,
            xx: u64::MAX,
            xy: 0,
        };
        assert!(odd.slope().is_finite());
    }
}
