//! The mode beside those who fill the queue: Cubic's law, as a rate.

use ccplane_units::Time;

use crate::cubic::{Cubic, State};
use crate::window::{Law, Round};

/// Cubic's window of one flow, in segments. It is sent as a rate, window over RTT, so that the
/// pulse can stand on it.
#[derive(Clone, Copy, Debug)]
pub struct Competitor {
    window: f64,
    /// The window before the last reduction, in case that was spurious.
    before: f64,
    state: State,
}

/// Least window, segments (RFC 9438, 4.6: a reduction ends at two).
const LEAST: f64 = 2.0;

impl Competitor {
    /// Begins in congestion avoidance, its plateau where it begins.
    pub fn at(window: f64) -> Competitor {
        Competitor {
            window: window.max(LEAST),
            before: 0.0,
            state: State::default(),
        }
    }

    /// The window, segments.
    pub fn window(&self) -> f64 {
        self.window
    }

    /// So many segments were acknowledged.
    pub fn acked(&mut self, law: &Cubic, now: Time, acked: f64, rtt: f64) {
        let round = Round {
            now,
            window: self.window,
            acked,
            counted: acked,
            rtt,
        };
        let growth = law.growth(&mut self.state, &round);
        // Late reports bring several windows at once: no more than Cubic's growth in one.
        self.window += growth * (acked / self.window).min(1.0);
    }

    /// A recovery began, by a timeout or not. What is kept is whole segments, as in Cubic's
    /// program.
    pub fn reduce(&mut self, law: &Cubic, timeout: bool) {
        self.before = self.window;
        law.reduced(&mut self.state, self.window.floor());
        if timeout {
            law.timed_out(&mut self.state);
        }
        self.window = (self.window * Cubic::KEPT).floor().max(LEAST);
    }

    /// The last reduction was spurious.
    pub fn undo(&mut self, law: &Cubic) {
        law.undone(&mut self.state);
        self.window = self.window.max(self.before);
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;

    #[test]
    fn it_is_back_after_k() {
        let law = Cubic::standard();
        let mut competitor = Competitor::at(320.0);
        competitor.reduce(&law, false);
        assert!((competitor.window() - 224.0).abs() < 1e-9);
        // RFC 9438, equation 2: K = cbrt((320 - 224) / 0.4) = 6.2 s; ten reports an RTT of 100 ms.
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
