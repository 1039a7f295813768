//! Competitive mode: Cubic, sent as a rate.

use ccplane_units::Time;

use crate::cubic::{Cubic, CubicState};
use crate::window::{AckedRound, WindowLaw};

/// Cubic window of one flow, segments. It is sent as the rate window/RTT, to which the pulse is
/// added.
#[derive(Clone, Copy, Debug)]
pub struct Competitor {
    window: f64,
    /// Window before the last reduction, restored if the reduction was spurious.
    prior_window: f64,
    state: CubicState,
}

/// Minimum window, segments (RFC 9438, 4.6: a reduction stops at two).
const WINDOW_SEGMENTS_MIN: f64 = 2.0;

impl Competitor {
    /// Starts congestion avoidance at this window, which is also the plateau.
    pub fn with_window(window: f64) -> Competitor {
        Competitor {
            window: window.max(WINDOW_SEGMENTS_MIN),
            prior_window: 0.0,
            state: CubicState::default(),
        }
    }

    /// Returns the window, segments.
    pub fn window(&self) -> f64 {
        self.window
    }

    /// Grows the window by the segments acknowledged.
    pub fn acked(&mut self, law: &Cubic, now: Time, acked: f64, rtt: f64) {
        let round = AckedRound {
            now,
            window: self.window,
            acked,
            counted: acked,
            rtt,
        };
        let growth = law.growth(&mut self.state, &round);
        // A late report may cover several windows. Growth is limited to one window's.
        self.window += growth * (acked / self.window).min(1.0);
    }

    /// Reduces the window at the start of a recovery, to whole segments as in Cubic's program.
    pub fn reduce(&mut self, law: &Cubic, timeout: bool) {
        self.prior_window = self.window;
        law.on_reduction(&mut self.state, self.window.floor());
        if timeout {
            law.on_timeout(&mut self.state);
        }
        self.window = (self.window * Cubic::LOSS_WINDOW_FACTOR)
            .floor()
            .max(WINDOW_SEGMENTS_MIN);
    }

    /// Undoes the last reduction, which was spurious.
    pub fn undo(&mut self, law: &Cubic) {
        law.on_undo(&mut self.state);
        self.window = self.window.max(self.prior_window);
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;

    #[test]
    fn cubic_returns_after_k() {
        let law = Cubic::standard();
        let mut competitor = Competitor::with_window(320.0);
        competitor.reduce(&law, false);
        assert!((competitor.window() - 224.0).abs() < 1e-9);
        // RFC 9438, equation 2: K = cbrt((320 − 224) / 0.4) = 6.2 s, with ten reports per RTT of
        // 100 ms.
        let mut now = Time::ZERO;
        for _ in 0..620 {
            now += Duration::from_millis(10);
            let acked = competitor.window() / 10.0;
            competitor.acked(&law, now, acked, 0.1);
        }
        assert!(
            (competitor.window() - 320.0).abs() < 2.0,
            "{}",
            competitor.window()
        );
        let before = competitor.window();
        competitor.reduce(&law, false);
        competitor.undo(&law);
        assert!((competitor.window() - before).abs() < 1e-9);
    }
}
