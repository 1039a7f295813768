//! Full-pipe detection: more data in flight yields no more bandwidth.

use super::scale;

/// `bbr_check_full_bw_reached`; the draft's CheckFullBWReached ("Exiting Acceleration Based on
/// Bandwidth Plateau").
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    /// BBR.full_bw: baseline of the growth, bytes/s.
    from: u64,
    rounds: u64,
    /// BBR.full_bw_now.
    pub now: bool,
}

impl FullPipe {
    /// `bbr_full_bw_cnt`, `bbr_full_bw_thresh`: three rounds in which the bandwidth grows by less
    /// than a quarter. With fewer, a growing receive window looks like a full pipe.
    const FULL_BW_ROUNDS: u64 = 3;
    const FULL_BW_GROWTH_RATIO: (u64, u64) = (5, 4);

    /// ResetFullBW, with `bw` as the baseline.
    pub fn from(bw: u64) -> FullPipe {
        FullPipe {
            from: bw,
            ..FullPipe::default()
        }
    }

    /// Adds the bandwidth of this many rounds that were not application-limited. All rounds of one
    /// report without growth count.
    pub fn update(&mut self, bw: u64, rounds: u64) {
        if self.now {
            return;
        }
        if bw
            >= scale(
                self.from,
                FullPipe::FULL_BW_GROWTH_RATIO.0,
                FullPipe::FULL_BW_GROWTH_RATIO.1,
            )
        {
            *self = FullPipe::from(bw);
            return;
        }
        self.rounds = self.rounds.saturating_add(rounds);
        self.now = self.rounds >= FullPipe::FULL_BW_ROUNDS;
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
            assert!(!pipe.now);
        }
        pipe.update(499, 1);
        assert!(pipe.now);
        let mut pipe = FullPipe::from(400);
        pipe.update(500, 1);
        pipe.update(500, 2);
        assert!(!pipe.now);
    }
}
