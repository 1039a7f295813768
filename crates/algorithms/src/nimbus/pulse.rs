//! The pulse on the rate.

use std::f64::consts::PI;

/// An asymmetric pulse of mean 0: half a sine up in the first quarter of the period, half a sine of
/// a third of the height down in the rest (arXiv 1802.08730, 3.4). So the queue that it needs is
/// small, and a flow of a twelfth of the link and more can pulse.
#[derive(Clone, Copy, Debug)]
pub struct Pulse;

/// Height of the pulse as a part of the capacity (reference: `pulse_size`). It fills the queue by
/// height · T / 2π, 8 ms of the link at 5 Hz. Lower and the answer drowns in noise, higher and the
/// pulse itself is what delays.
pub const HEIGHT: f64 = 0.25;
/// While delay is controlled, Hz (reference). The two differ so that flows could tell each other's
/// mode.
pub const DELAY_HZ: f64 = 6.0;
/// While competing, Hz. A period has to be longer than the RTT over which rates are measured, or
/// the mean over it is 0.
pub const COMPETITIVE_HZ: f64 = 5.0;
/// The part of a period that goes up.
const UP: f64 = 0.25;

impl Pulse {
    /// The pulse at a time in periods, from -1/3 to 1.
    pub fn at(periods: f64) -> f64 {
        let phase = periods - periods.floor();
        if phase < UP {
            libm::sin(PI * phase / UP)
        } else {
            -UP / (1.0 - UP) * libm::sin(PI * (phase - UP) / (1.0 - UP))
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
