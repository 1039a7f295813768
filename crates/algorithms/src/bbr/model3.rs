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
    pub bw_short: u64,
    /// BBR.inflight_shortterm, bytes.
    pub short: u64,
    /// BBR.inflight_longterm, bytes.
    pub long: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            bw_short: UNBOUNDED,
            short: UNBOUNDED,
            long: UNBOUNDED,
        }
    }
}

impl Bounds {
    /// ResetShortTermModel ("When not Probing for Bandwidth").
    pub fn forget_short(&mut self) {
        (self.bw_short, self.short) = (UNBOUNDED, UNBOUNDED);
    }

    /// AdaptLowerBoundsFromCongestion, once per loss round outside of bandwidth probing ("When not
    /// Probing for Bandwidth"): bw_shortterm = max(bw_latest, Beta·bw_shortterm), and likewise for
    /// inflight_shortterm.
    pub fn shorten(&mut self, max_bw: u64, window: u64, delivered_bw: u64, delivered: u64) {
        if self.bw_short == UNBOUNDED {
            self.bw_short = max_bw;
        }
        if self.short == UNBOUNDED {
            self.short = window;
        }
        self.bw_short = delivered_bw.max(scale(self.bw_short, BETA, GAIN_UNIT));
        self.short = delivered.max(scale(self.short, BETA, GAIN_UNIT));
    }

    /// HandleInflightTooHigh ("Probing for Bandwidth In ProbeBW"): sets the long-term bound after a
    /// probe with `flight` bytes lost too much.
    pub fn too_high(&mut self, flight: u64, target: u64) {
        self.long = flight.max(scale(target, BETA, GAIN_UNIT));
    }

    /// InflightWithHeadroom ("ProbeBW Algorithm Details").
    pub fn with_headroom(&self, mss: u64) -> u64 {
        if self.long == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = scale(self.long, HEADROOM, GAIN_UNIT).max(mss);
        self.long
            .saturating_sub(headroom)
            .max(mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// HandleSpuriousLossDetection: raises each bound to its value before the spurious losses.
    pub fn undo(&mut self, before: &Bounds) {
        self.bw_short = self.bw_short.max(before.bw_short);
        self.short = self.short.max(before.short);
        self.long = self.long.max(before.long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_with_losses_leads_to_what_was_delivered_but_not_below_beta() {
        let mut bounds = Bounds::default();
        bounds.shorten(1_000, 500, 990, 480);
        assert_eq!((bounds.bw_short, bounds.short), (990, 480));
        bounds.shorten(1_000, 500, 100, 100);
        assert_eq!((bounds.bw_short, bounds.short), (693, 336), "0.7 of each");
        bounds.shorten(1_000, 500, 800, 400);
        assert_eq!(
            (bounds.bw_short, bounds.short),
            (800, 400),
            "the latest delivery counts where it is more"
        );
        bounds.forget_short();
        assert_eq!(bounds, Bounds::default());
    }

    #[test]
    fn headroom_is_a_segment_at_least_and_leaves_four() {
        let mut bounds = Bounds::default();
        assert_eq!(bounds.with_headroom(1_000), UNBOUNDED);
        bounds.too_high(100_000, 50_000);
        assert_eq!(bounds.with_headroom(1_000), 85_000);
        bounds.too_high(10_000, 100_000);
        assert_eq!(
            bounds.long, 70_000,
            "not below 0.7 of what the model asks for"
        );
        bounds.long = 6_000;
        assert_eq!(bounds.with_headroom(1_000), 5_000);
        bounds.long = 4_500;
        assert_eq!(bounds.with_headroom(1_000), 4_000);
    }

    #[test]
    fn an_undo_restores_the_previous_bounds() {
        let before = Bounds {
            bw_short: 900,
            short: UNBOUNDED,
            long: 700,
        };
        let mut bounds = Bounds {
            bw_short: 630,
            short: 400,
            long: 800,
        };
        bounds.undo(&before);
        assert_eq!(
            (bounds.bw_short, bounds.short, bounds.long),
            (900, UNBOUNDED, 800)
        );
    }
}
