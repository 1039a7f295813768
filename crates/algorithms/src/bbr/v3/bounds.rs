//! Bounds of rate and data in flight from losses, on two time scales (section 2.9).
//!
//! The short-term bounds apply from a loss until the flow refills the pipe, and follow the data
//! delivered. The long-term bound is the data in flight at which a probe lost too much.

use crate::bbr::{GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, UNBOUNDED, scale};

/// BBR.LossThresh (section 2.8): a probe that loses more than 2 % of the data in flight has too
/// much in flight. A lower threshold yields to random loss. A higher one keeps shallow buffers
/// full.
pub(super) const LOSS_THRESH: (u64, u64) = (2, 100);
/// BBR.Beta (section 2.8): a reduction keeps at least 0.7, as Cubic does.
const BETA: u64 = 7_000;
/// BBR.Headroom (section 2.8): 15 % of the long-term bound is left free for other flows while
/// cruising.
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
    /// ResetShortTermModel (section 5.5.10.3).
    pub fn reset_short_term_model(&mut self) {
        (self.bw_shortterm, self.inflight_shortterm) = (UNBOUNDED, UNBOUNDED);
    }

    /// AdaptLowerBoundsFromCongestion (section 5.5.10.3), once per loss round outside of bandwidth
    /// probing.
    pub fn adapt_lower_bounds_from_congestion(
        &mut self,
        max_bw: u64,
        cwnd: u64,
        bw_latest: u64,
        inflight_latest: u64,
    ) {
        // InitLowerBounds
        if self.bw_shortterm == UNBOUNDED {
            self.bw_shortterm = max_bw;
        }
        if self.inflight_shortterm == UNBOUNDED {
            self.inflight_shortterm = cwnd;
        }
        // LossLowerBounds: bw_shortterm = max(bw_latest, Beta * bw_shortterm), and likewise
        // inflight_shortterm.
        self.bw_shortterm = bw_latest.max(scale(self.bw_shortterm, BETA, GAIN_UNIT));
        self.inflight_shortterm =
            inflight_latest.max(scale(self.inflight_shortterm, BETA, GAIN_UNIT));
    }

    /// HandleInflightTooHigh (section 5.5.10.2), after a probe lost too much:
    /// inflight_longterm = max(RS.tx_in_flight, TargetInflight() * BBR.Beta).
    pub fn handle_inflight_too_high(&mut self, tx_in_flight: u64, target_inflight: u64) {
        self.inflight_longterm = tx_in_flight.max(scale(target_inflight, BETA, GAIN_UNIT));
    }

    /// InflightWithHeadroom (section 5.3.3.9): max(inflight_longterm - headroom, MinPipeCwnd).
    pub fn inflight_with_headroom(&self, mss: u64) -> u64 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = scale(self.inflight_longterm, HEADROOM, GAIN_UNIT).max(mss);
        self.inflight_longterm
            .saturating_sub(headroom)
            .max(mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// HandleSpuriousLossDetection (section 5.5.11.2): raises each bound to its value before the
    /// spurious losses.
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
        bounds.adapt_lower_bounds_from_congestion(1_000, 500, 990, 480);
        assert_eq!((bounds.bw_shortterm, bounds.inflight_shortterm), (990, 480));
        bounds.adapt_lower_bounds_from_congestion(1_000, 500, 100, 100);
        assert_eq!(
            (bounds.bw_shortterm, bounds.inflight_shortterm),
            (693, 336),
            "0.7 of each"
        );
        bounds.adapt_lower_bounds_from_congestion(1_000, 500, 800, 400);
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
