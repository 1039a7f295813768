//! Policer detection by long-term bandwidth (`bbr_lt_bw_sampling`). A policer passes bursts and
//! drops the traffic above its rate.
//!
//! If two consecutive intervals agree on the delivery rate, the flow sends at that rate without
//! gain for 48 rounds. An interval lasts at least 4 rounds, starts and ends with losses, and has a
//! loss rate of at least a fifth. As in Linux, it starts and ends with the ACK that detects a loss:
//! the program reports losses at once from the round [`Policer::due`] on.

use super::UNBOUNDED;

/// Minimum interval, rounds (`bbr_lt_intvl_min_rtts`). An interval of four times that is abandoned.
const LT_INTERVAL_ROUNDS_MIN: u64 = 4;
/// 50 of 256 lost (`bbr_lt_loss_thresh`). A lower threshold mistakes random loss for a policer. A
/// higher one misses policers.
const LT_LOSS_THRESH: (u64, u64) = (50, 256);
/// Maximum difference of two intervals: an eighth (`bbr_lt_bw_ratio`), or 4 kbit/s
/// (`bbr_lt_bw_diff`), in bytes/s.
const LT_BW_TOLERANCE: (u64, u64) = (8, 500);
/// Rounds at the policer's rate before the flow probes again (`bbr_lt_bw_max_rtts`).
const LT_BW_ROUNDS_MAX: u64 = 48;

/// Search for a policer, or its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Policer {
    /// Rate of the last interval, bytes/s; 0 if there is none.
    rate: u64,
    in_use: bool,
    interval: Option<PolicerInterval>,
    rounds: u64,
    due_round: u64,
}

#[derive(Clone, Copy, Debug)]
struct PolicerInterval {
    delivered: u64,
    lost: u64,
    start_us: u64,
}

/// Progress since the last report, and totals. Volumes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTotals {
    /// Rounds since the last report, and in total.
    pub rounds: u64,
    pub round: u64,
    pub delivered: u64,
    pub lost: u64,
    /// Bytes lost since the last report.
    pub newly_lost: u64,
    pub app_limited: bool,
    pub now_us: u64,
}

impl Policer {
    /// Returns the round from which a loss may start or end an interval.
    pub fn due_round(&self) -> u64 {
        if self.in_use {
            UNBOUNDED
        } else {
            self.due_round
        }
    }

    /// Returns the policer's rate, bytes/s, while it is in use.
    pub fn rate(&self) -> Option<u64> {
        self.in_use.then_some(self.rate)
    }

    /// Discards intervals and rate.
    pub fn reset(&mut self) {
        *self = Policer::default();
    }

    /// Processes a report. `cycling`: the flow is in PROBE_BW, where rounds at the policer's rate
    /// are counted. Returns true when the use of the rate ends.
    pub fn update(&mut self, progress: &RoundTotals, cycling: bool) -> bool {
        if self.in_use {
            self.rounds = self
                .rounds
                .saturating_add(if cycling { progress.rounds } else { 0 });
            let over = self.rounds >= LT_BW_ROUNDS_MAX;
            if over {
                self.reset();
            }
            return over;
        }
        let Some(interval) = self.interval else {
            if progress.newly_lost > 0 {
                self.begin(progress);
            }
            return false;
        };
        if progress.app_limited {
            self.reset();
            return false;
        }
        self.rounds = self.rounds.saturating_add(progress.rounds);
        if self.rounds < LT_INTERVAL_ROUNDS_MIN {
            return false;
        }
        if self.rounds > 4 * LT_INTERVAL_ROUNDS_MIN {
            self.reset();
            return false;
        }
        let lost = progress.lost.saturating_sub(interval.lost);
        let delivered = progress.delivered.saturating_sub(interval.delivered);
        let us = progress.now_us.saturating_sub(interval.start_us);
        let heavy =
            lost.saturating_mul(LT_LOSS_THRESH.1) >= delivered.saturating_mul(LT_LOSS_THRESH.0);
        if progress.newly_lost == 0 || delivered == 0 || !heavy || us < 1_000 {
            // Checked again in the next round: the loss rate changes little within one.
            self.due_round = self
                .due_round
                .max(progress.round + u64::from(progress.newly_lost > 0));
            return false;
        }
        self.end(super::scale(delivered, 1_000_000, us), progress);
        false
    }

    fn begin(&mut self, progress: &RoundTotals) {
        self.rounds = 0;
        self.due_round = progress.round + LT_INTERVAL_ROUNDS_MIN;
        self.interval = Some(PolicerInterval {
            delivered: progress.delivered,
            lost: progress.lost,
            start_us: progress.now_us,
        });
    }

    fn end(&mut self, rate: u64, progress: &RoundTotals) {
        let apart = rate.abs_diff(self.rate);
        if self.rate > 0 && (apart <= self.rate / LT_BW_TOLERANCE.0 || apart <= LT_BW_TOLERANCE.1) {
            self.rate = u64::midpoint(self.rate, rate);
            self.in_use = true;
            self.rounds = 0;
        } else {
            self.rate = rate;
            self.begin(progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `n` rounds of 100 ms on a path that delivers `rate` and drops `lost_percent` of the
    /// packets.
    fn rounds(policer: &mut Policer, n: u64, rate: u64, lost_percent: u64, from: u64) -> bool {
        let delivered = rate / 10;
        let lost = delivered * lost_percent / (100 - lost_percent);
        (from..from + n).fold(false, |over, i| {
            let passed = RoundTotals {
                rounds: 1,
                round: i,
                delivered: i * delivered,
                lost: i * lost,
                newly_lost: lost,
                app_limited: false,
                now_us: i * 100_000,
            };
            over | policer.update(&passed, true)
        })
    }

    #[test]
    fn two_consistent_intervals_detect_a_policer() {
        let mut policer = Policer::default();
        // The first round with a loss starts the first interval, which ends 4 rounds later, and the
        // second ends 4 rounds after that.
        assert!(!rounds(&mut policer, 8, 1_000_000, 25, 1));
        assert_eq!(policer.rate(), None);
        assert!(!rounds(&mut policer, 1, 1_000_000, 25, 9));
        assert_eq!(policer.rate(), Some(1_000_000));
        assert!(!rounds(&mut policer, 47, 1_000_000, 0, 10));
        assert!(
            rounds(&mut policer, 1, 1_000_000, 0, 57),
            "over after 48 rounds"
        );
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn the_losses_to_report_are_the_first_and_those_that_end_an_interval() {
        let mut policer = Policer::default();
        assert_eq!(policer.due_round(), 0, "any loss begins one");
        rounds(&mut policer, 2, 1_000_000, 25, 1);
        assert_eq!(policer.due_round(), 1 + LT_INTERVAL_ROUNDS_MIN);
        rounds(&mut policer, 7, 1_000_000, 25, 3);
        assert_eq!(
            (policer.rate(), policer.due_round()),
            (Some(1_000_000), UNBOUNDED)
        );
    }

    #[test]
    fn ten_percent_loss_is_not_a_policer() {
        let mut policer = Policer::default();
        rounds(&mut policer, 100, 1_000_000, 10, 1);
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn rates_that_differ_by_more_than_an_eighth_do_not_agree() {
        let mut policer = Policer {
            rate: 1_000_000,
            ..Policer::default()
        };
        let passed = RoundTotals {
            rounds: 1,
            round: 0,
            delivered: 0,
            lost: 0,
            newly_lost: 1,
            app_limited: false,
            now_us: 0,
        };
        policer.end(1_125_001, &passed);
        assert_eq!((policer.rate(), policer.rate), (None, 1_125_001));
        policer.end(1_000_001, &passed);
        assert_eq!(
            policer.rate(),
            Some(1_062_501),
            "within an eighth: the mean"
        );
    }

    #[test]
    fn an_application_that_pauses_ends_the_search() {
        let mut policer = Policer::default();
        rounds(&mut policer, 3, 1_000_000, 25, 1);
        let passed = RoundTotals {
            rounds: 1,
            round: 0,
            delivered: 0,
            lost: 0,
            newly_lost: 0,
            app_limited: true,
            now_us: 0,
        };
        policer.update(&passed, true);
        assert!(policer.interval.is_none());
    }
}
