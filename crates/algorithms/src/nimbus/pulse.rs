//! Pulse added to the rate.

use std::f64::consts::PI;

/// Asymmetric pulse of mean 0: half a sine up in the first quarter of the period, and half a sine
/// of a third of the height down in the rest (arXiv 1802.08730, 3.4). It needs only a small queue,
/// and a flow with a twelfth of the link can pulse.
#[derive(Clone, Copy, Debug)]
pub struct Pulse;

/// Height of the pulse as a fraction of the capacity (reference: `pulse_size`). It adds height · T
/// / 2π to the queue, 8 ms of the link at 5 Hz. A lower pulse is lost in noise. A higher one is
/// itself the main delay.
pub const PULSE_SIZE: f64 = 0.25;
/// Pulse frequency in delay control, Hz (reference). The frequencies differ so that flows can
/// recognize each other's mode.
pub const DELAY_PULSE_HZ: f64 = 6.0;
/// Pulse frequency in competitive mode, Hz. The period must exceed the RTT over which rates are
/// measured, because the pulse averages to 0 over a period.
pub const COMPETITIVE_PULSE_HZ: f64 = 5.0;
/// Fraction of the period with a positive pulse.
const POSITIVE_PHASE_SHARE: f64 = 0.25;

impl Pulse {
    /// Returns the pulse at a time in periods, from −1/3 to 1.
    pub fn at(periods: f64) -> f64 {
        let phase = periods - periods.floor();
        if phase < POSITIVE_PHASE_SHARE {
            libm::sin(PI * phase / POSITIVE_PHASE_SHARE)
        } else {
            -POSITIVE_PHASE_SHARE / (1.0 - POSITIVE_PHASE_SHARE)
                * libm::sin(PI * (phase - POSITIVE_PHASE_SHARE) / (1.0 - POSITIVE_PHASE_SHARE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_steeply_falls_gently_and_adds_nothing() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        close(Pulse::at(0.125), 1.0);
        close(Pulse::at(7.125), 1.0);
        close(Pulse::at(0.625), -1.0 / 3.0);
        close(Pulse::at(0.25), 0.0);
        let sum: f64 = (0..10_000)
            .map(|i| Pulse::at((f64::from(i) + 0.5) / 10_000.0))
            .sum();
        assert!((sum / 10_000.0).abs() < 1e-6, "{sum}");
    }
}
