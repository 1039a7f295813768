//! Version 3's bounds of rate and data in flight from losses, on two time scales ("Network Path
//! Model Parameters").
//!
//! The short-term bounds apply from a loss until the flow refills the pipe, and follow the data
//! delivered. The long-term bound is the data in flight at which a probe lost too much.

use super::{GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, UNBOUNDED, scale};

/// BBR.LossThresh: a probe that loses more than 2 % of the data in flight has too much in flight. A
/// lower threshold yields to random loss. A higher one keeps shallow buffers full.
pub(super) const LOSS_THRESH: (u64, u64) = (2, 100);
/// BBR.Beta: a reduction keeps at least 0.7, as Cubic does.
const BETA: u64 = 7_000;
/// BBR.Headroom: 15 % of the long-term bound is left free for other flows while cruising.
const HEADROOM: u64 = 1_500;

/// Bounds; [`UNBOUNDED`] if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// BBR.bw_shortterm, bytes/s.
    pub bw_shortterm: u64,
    /// BBR.inflight_shortterm, bytes.
    pub inflight_shortterm: u64,
    /// BBR.inflight_longterm, bytes.
    pub inflight_longterm: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            bw_shortterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            inflight_longterm: UNBOUNDED,
        }
    }
}

impl Bounds {
    /// ResetShortTermModel ("When not Probing for Bandwidth").
    pub fn reset_short_term_model(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (UNBOUNDED, UNBOUNDED);
    }

    /// AdaptLowerBoundsFromCongestion, once per loss round outside of bandwidth probing ("When not
    /// Probing for Bandwidth"): bw_shortterm = max(bw_latest, Beta·bw_shortterm), and likewise for
    /// inflight_shortterm.
    pub fn adapt_lower_bounds(
        &mut self,
        max_bw: u64,
        window: u64,
        delivered_bw: u64,
        delivered: u64,
    ) {
        if self.bw_shortterm == UNBOUNDED {
            self.bw_shortterm = max_bw;
        }
        if self.inflight_shortterm == UNBOUNDED {
            self.inflight_shortterm = window;
        }
        self.bw_shortterm = delivered_bw.max(scale(self.bw_shortterm, BETA, GAIN_UNIT));
        self.inflight_shortterm = delivered.max(scale(self.inflight_shortterm, BETA, GAIN_UNIT));
    }

    /// HandleInflightTooHigh ("Probing for Bandwidth In ProbeBW"): sets the long-term bound after a
    /// probe with `flight` bytes lost too much.
    pub fn handle_inflight_too_high(&mut self, inflight: u64, target: u64) {
        self.inflight_longterm = inflight.max(scale(target, BETA, GAIN_UNIT));
    }

    /// InflightWithHeadroom ("ProbeBW Algorithm Details").
    pub fn inflight_with_headroom(&self, mss: u64) -> u64 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = scale(self.inflight_longterm, HEADROOM, GAIN_UNIT).max(mss);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// HandleSpuriousLossDetection: raises each bound to its value before the spurious losses.
    pub fn undo(&mut self, before: &Bounds) {
        self.bw_shortterm = self.bw_shortterm.max(before.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(before.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(before.inflight_longterm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_with_losses_leads_to_what_was_delivered_but_not_below_beta() {
        let mut bounds = Bounds::default();
        bounds.adapt_lower_bounds(1_000, 500, 990, 480);
        assert_eq!((bounds.bw_shortterm, bounds.inflight_shortterm), (990, 480));
        bounds.adapt_lower_bounds(1_000, 500, 100, 100);
        assert_eq!(
            (bounds.bw_shortterm, bounds.inflight_shortterm),
            (693, 336),
            "0.7 of each"
        );
        bounds.adapt_lower_bounds(1_000, 500, 800, 400);
        assert_eq!(
            (bounds.bw_shortterm, bounds.inflight_shortterm),
            (800, 400),
            "the latest delivery counts where it is more"
        );
        bounds.reset_short_term_model();
        assert_eq!(bounds, Bounds::default());
    }

    #[test]
    fn headroom_is_a_segment_at_least_and_leaves_four() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.inflight_with_headroom(1_000), UNBOUNDED);
        bounds.handle_inflight_too_high(100_000, 50_000);
        assert_eq!(bounds.inflight_with_headroom(1_000), 85_000);
        bounds.handle_inflight_too_high(10_000, 100_000);
        assert_eq!(
            bounds.inflight_longterm, 70_000,
            "not below 0.7 of what the model asks for"
        );
        bounds.inflight_longterm = 6_000;
        assert_eq!(bounds.inflight_with_headroom(1_000), 5_000);
        bounds.inflight_longterm = 4_500;
        assert_eq!(bounds.inflight_with_headroom(1_000), 4_000);
    }

    #[test]
    fn an_undo_restores_the_previous_bounds() {
        let before = Bounds {
            bw_shortterm: 900,
            inflight_shortterm: UNBOUNDED,
            inflight_longterm: 700,
        };
        let mut bounds = Bounds {
            bw_shortterm: 630,
            inflight_shortterm: 400,
            inflight_longterm: 800,
        };
        bounds.undo(&before);
        assert_eq!(
            (
                bounds.bw_shortterm,
                bounds.inflight_shortterm,
                bounds.inflight_longterm
            ),
            (900, UNBOUNDED, 800)
        );
    }
}
