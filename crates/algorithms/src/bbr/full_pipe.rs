//! Full-pipe detection: more data in flight yields no more bandwidth.

use super::scale;

/// `bbr_check_full_bw_reached`; the draft's CheckFullBWReached (draft-ietf-ccwg-bbr-06, section
/// 5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    /// BBR.full_bw: baseline of the growth, bytes/s.
    full_bw: u64,
    full_bw_count: u64,
    /// BBR.full_bw_now.
    pub full_bw_now: bool,
}

impl FullPipe {
    /// `bbr_full_bw_cnt`, `bbr_full_bw_thresh`: three rounds in which the bandwidth grows by less
    /// than a quarter. With fewer, a growing receive window looks like a full pipe.
    const FULL_BW_ROUNDS: u64 = 3;
    const FULL_BW_GROWTH_RATIO: (u64, u64) = (5, 4);

    /// ResetFullBW, with `bw` as the baseline.
    pub fn with_baseline(bw: u64) -> FullPipe {
        FullPipe {
            full_bw: bw,
            ..FullPipe::default()
        }
    }

    /// Adds the bandwidth of this many rounds that were not application-limited. All rounds of one
    /// report without growth count.
    pub fn update(&mut self, bw: u64, rounds: u64) {
        if self.full_bw_now {
            return;
        }
        if bw
            >= scale(
                self.full_bw,
                FullPipe::FULL_BW_GROWTH_RATIO.0,
                FullPipe::FULL_BW_GROWTH_RATIO.1,
            )
        {
            *self = FullPipe::with_baseline(bw);
            return;
        }
        self.full_bw_count = self.full_bw_count.saturating_add(rounds);
        self.full_bw_now = self.full_bw_count >= FullPipe::FULL_BW_ROUNDS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plateau_of_three_rounds_is_a_full_pipe() {
        let mut pipe = FullPipe::default();
        for bw in [100, 200, 400, 499, 499] {
            pipe.update(bw, 1);
            assert!(!pipe.full_bw_now);
        }
        pipe.update(499, 1);
        assert!(pipe.full_bw_now);
        let mut pipe = FullPipe::with_baseline(400);
        pipe.update(500, 1);
        pipe.update(500, 2);
        assert!(!pipe.full_bw_now);
    }
}
