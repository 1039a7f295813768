//! Gradient ascent on the utility, with a confidence amplifier and a dynamic change boundary
//! (Vivace, section 4).

/// θ0: conversion factor from gradient to rate change, (Mbit/s)² per unit of utility (section 4.2;
/// 1 in the authors' code).
const CONVERSION_FACTOR: f64 = 1.0;
/// ω0: initial boundary of one change, as a fraction of the rate (section 4.3;
/// `kInitialMaxStepSize`).
const BOUNDARY_INITIAL: f64 = 0.05;
/// δ: increment of the boundary per consecutive change that reached it (section 4.3; 0.05 in the
/// authors' later code).
const BOUNDARY_STEP: f64 = 0.1;

/// Upper bound of the boundary, as a fraction of the rate: limits any change to a factor between
/// 0.5 and 1.5. Not in the paper.
const BOUNDARY_MAX: f64 = 0.5;

/// State of the ascent of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ascent {
    /// Consecutive changes in one direction, and the direction.
    streak: u32,
    is_increasing: bool,
    /// k: number of times the boundary was widened.
    boundary_steps: u32,
}

impl Ascent {
    /// Returns the rate after `rate` (Mbit/s) for the gradient dU/dx there.
    pub fn step(&mut self, rate: f64, gradient: f64) -> f64 {
        if gradient == 0.0 || gradient.is_nan() {
            *self = Ascent::default();
            return rate;
        }
        let up = gradient > 0.0;
        if up != self.is_increasing || self.streak == 0 {
            *self = Ascent {
                is_increasing: up,
                ..Ascent::default()
            };
        }
        self.streak = self.streak.saturating_add(1);
        let change = (amplifier(self.streak) * CONVERSION_FACTOR * gradient.abs()).min(f64::MAX);
        let bound = |wider: u32| {
            (BOUNDARY_INITIAL + BOUNDARY_STEP * f64::from(wider)).min(BOUNDARY_MAX) * rate
        };
        let change = if change > bound(self.boundary_steps) {
            let change = bound(self.boundary_steps);
            self.boundary_steps = (self.boundary_steps + 1).min(10);
            change
        } else {
            // The narrowest boundary that allows the change.
            self.boundary_steps = (0..=self.boundary_steps)
                .find(|wider| change <= bound(*wider))
                .unwrap_or(self.boundary_steps);
            change
        };
        if up { rate + change } else { rate - change }
    }
}

/// m(τ): 1, 2, 3, 5, 7, … (section 4.2). Slow in a new direction, faster once it has persisted.
fn amplifier(row: u32) -> f64 {
    let row = f64::from(row);
    if row <= 3.0 { row } else { 2.0 * row - 3.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_grow_in_one_direction() {
        let mut ascent = Ascent::default();
        let mut rate = 1000.0;
        let mut changes = Vec::new();
        for _ in 0..6 {
            let next = ascent.step(rate, 1.0);
            changes.push((next - rate).round());
            rate = next;
        }
        assert_eq!(changes, [1.0, 2.0, 3.0, 5.0, 7.0, 9.0]);
        assert_eq!((ascent.step(rate, -1.0) - rate).round(), -1.0);
    }

    #[test]
    fn the_boundary_widens_while_it_is_reached() {
        let mut ascent = Ascent::default();
        let mut parts = Vec::new();
        for _ in 0..7 {
            parts.push(((100.0 - ascent.step(100.0, -1e6)) * 10.0).round() / 10.0);
        }
        assert_eq!(parts, [5.0, 15.0, 25.0, 35.0, 45.0, 50.0, 50.0]);
        // A small change narrows the boundary to the change's size. A change of direction resets
        // it.
        assert!((ascent.step(100.0, -0.5) - (100.0 - 0.5 * 13.0)).abs() < 1e-9);
        assert_eq!(ascent.boundary_steps, 1);
        assert_eq!(ascent.step(100.0, 1e6), 105.0);
    }

    #[test]
    fn arbitrary_gradients_do_no_harm() {
        let mut ascent = Ascent::default();
        for gradient in [
            0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN_POSITIVE,
        ] {
            for rate in [1e-6, 1.0, 1e7] {
                let next = ascent.step(rate, gradient);
                assert!(
                    (rate * 0.5..=rate * 1.5 + 1.0).contains(&next),
                    "{rate} {gradient} {next}"
                );
            }
        }
    }
}
