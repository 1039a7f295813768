//! Minimum RTT filter over 10 s, and PROBE_RTT, which measures it anew with a nearly empty pipe.

use ccplane_datapath::INFINITY;

/// Duration of PROBE_RTT (`bbr_probe_rtt_mode_ms`; the draft's BBR.ProbeRTTDuration), µs: long
/// enough for the PROBE_RTT of different flows to overlap, and 2 % of 10 s.
const PROBE_RTT_DURATION_US: u64 = 200_000;

/// Rounds after which all data in flight was sent in PROBE_RTT: the first ends with data sent
/// before it. A gateway learns late about deliveries and therefore counts more than PROBE_RTT's
/// window in flight throughout.
const PROBE_RTT_ROUNDS: u64 = 2;

/// Minimum RTT of the last `window_us`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinRtt {
    /// µs; [`INFINITY`] before the first sample.
    pub us: u64,
    stamp_us: u64,
    window_us: u64,
}

impl MinRtt {
    pub fn new(window_us: u64) -> MinRtt {
        MinRtt {
            us: INFINITY,
            stamp_us: 0,
            window_us,
        }
    }

    /// Adds a sample (infinity: none). Returns true if the estimate had expired before it. An
    /// expired estimate is replaced by any sample, a valid one only by a smaller one.
    pub fn update(&mut self, sample_us: u64, now_us: u64) -> bool {
        let expired = self.us < INFINITY && now_us.saturating_sub(self.stamp_us) > self.window_us;
        if sample_us < INFINITY && (sample_us < self.us || expired) {
            self.us = sample_us.max(1);
            self.stamp_us = now_us;
        }
        expired
    }

    /// Restarts the window: the estimate has just been probed.
    pub fn renew(&mut self, now_us: u64) {
        self.stamp_us = now_us;
    }
}

/// Reduced window that lets the queue drain (PROBE_RTT).
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeRttEpisode {
    /// Window during PROBE_RTT, bytes.
    pub window: u64,
    /// Window to restore at the end, bytes.
    pub prior_cwnd: u64,
    /// Round in which PROBE_RTT began.
    start_round: u64,
    /// Earliest end, µs, and the round that must have ended.
    done_stamp: Option<(u64, u64)>,
}

impl ProbeRttEpisode {
    pub fn new(window: u64, before: u64, began: u64) -> ProbeRttEpisode {
        ProbeRttEpisode {
            window,
            prior_cwnd: before,
            start_round: began,
            done_stamp: None,
        }
    }

    /// Returns true if PROBE_RTT is complete: at least 200 ms and a round after the data in flight
    /// fell to its window.
    pub fn is_done(&mut self, inflight: u64, rounds: u64, now_us: u64) -> bool {
        match self.done_stamp {
            None if inflight <= self.window || rounds > self.start_round + PROBE_RTT_ROUNDS => {
                self.done_stamp = Some((now_us.saturating_add(PROBE_RTT_DURATION_US), rounds));
                false
            }
            None => false,
            Some((until_us, round)) => now_us > until_us && rounds > round,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_at_once_and_rises_after_its_window() {
        let mut rtt = MinRtt::new(10_000_000);
        assert!(!rtt.update(20_000, 1_000));
        assert!(!rtt.update(25_000, 10_000_000));
        assert_eq!(rtt.us, 20_000);
        assert!(
            !rtt.update(20_000, 10_001_000),
            "an equal one does not renew it, as in Linux"
        );
        assert!(
            rtt.update(INFINITY, 10_001_001),
            "expired, and nothing to put in its place"
        );
        assert_eq!(rtt.us, 20_000);
        assert!(rtt.update(30_000, 10_001_002));
        assert_eq!(rtt.us, 30_000);
        assert!(!rtt.update(29_000, 10_001_003));
        rtt.renew(15_000_000);
        assert!(!rtt.update(40_000, 25_000_000));
    }

    #[test]
    fn a_dip_takes_200_ms_and_a_round_from_when_the_pipe_is_empty() {
        let mut dip = ProbeRttEpisode::new(4, 100, 6);
        assert!(!dip.is_done(100, 7, 1_000));
        assert!(!dip.is_done(4, 8, 2_000));
        assert!(!dip.is_done(4, 9, 202_000), "200 ms are not over");
        assert!(dip.is_done(4, 9, 202_001));
        let mut slow = ProbeRttEpisode::new(4, 100, 6);
        assert!(!slow.is_done(3, 8, 0));
        assert!(!slow.is_done(3, 8, 900_000), "the round is not over");
    }

    #[test]
    fn probe_rtt_ends_despite_delayed_reports() {
        let mut dip = ProbeRttEpisode::new(4, 100, 6);
        assert!((6..=8).all(|round| !dip.is_done(5, round, round * 50_000)));
        assert!(!dip.is_done(5, 9, 450_000), "from here on it is 200 ms");
        assert!(!dip.is_done(5, 13, 650_000));
        assert!(dip.is_done(5, 13, 650_001));
    }
}
