//! ProbeBW (section 5.3.3): the cycle of Down, Cruise, Refill and Up, and the long-term bound that
//! it probes.

use super::congestion::{UndoState, is_inflight_too_high, lost_or_marked};
use super::control::{
    DEFAULT_CWND_GAIN, PROBE_BW_DOWN_PACING_GAIN, PROBE_BW_UP_CWND_GAIN, PROBE_BW_UP_PACING_GAIN,
};
use super::{AckPhase, Bbr3Flow, BbrState};
use crate::bbr::full_pipe::FullPipe;
use crate::bbr::report::{BbrReport, ReportEvents};
use crate::bbr::{ControlSink, MIN_PIPE_CWND_SEGMENTS, UNBOUNDED, UNITY_PACING_GAIN, paced};

/// T_bbr is 2 to 3 s (section 5.3.3.8.2). Longer intervals find free bandwidth late. Shorter ones
/// cause losses too often for Reno and Cubic to reach their share (section 5.3.3.8.3).
const BW_PROBE_WAIT_BASE_US: u64 = 2_000_000;
const BW_PROBE_WAIT_RANDOM_US: u64 = 1_000_000;
/// Maximum of T_reno: T_reno_bound is 62 or 63 rounds (section 5.3.3.8.2). PickProbeWait chooses
/// between them by starting `rounds_since_probe_up` at 0 or 1.
const T_RENO_BOUND_ROUNDS: u64 = 63;

impl Bbr3Flow {
    /// IsInAProbeBWState (section 5.3.3.9).
    fn is_in_a_probe_bw_state(&self) -> bool {
        matches!(
            self.state,
            BbrState::ProbeBwDown
                | BbrState::ProbeBwCruise
                | BbrState::ProbeBwRefill
                | BbrState::ProbeBwUp
        )
    }

    /// IsProbingBW (section 5.3.3.9).
    pub(super) fn is_probing_bw(&self) -> bool {
        matches!(
            self.state,
            BbrState::Startup | BbrState::ProbeBwRefill | BbrState::ProbeBwUp
        )
    }

    /// AdaptLongTermModel (section 5.3.3.9). Returns true if it changed the state.
    pub(super) fn adapt_long_term_model(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) -> bool {
        // BBR.round_start, with StartRound called when the state began.
        let round_start = rounds > 0 && report.rounds > self.state_start_round;
        if self.ack_phase == AckPhase::ProbeStarting && round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_in_a_probe_bw_state() && report.bw > 0 {
                self.advance_max_bw_filter();
            }
            // Precautionary Bandwidth Probing: Acceleration (section 5.3.3.6)
            if self.is_in_a_probe_bw_state()
                && self.prev_probe_precautionary
                && !self.prev_probe_too_high
            {
                self.start_probe_bw_refill(report, sink);
                return true;
            }
        }
        // RS.lost: data lost since the most recently acknowledged packet was sent.
        let lost = lost_or_marked(report).saturating_sub(self.tx_lost);
        if is_inflight_too_high(lost, self.tx_in_flight) {
            return self.is_bw_probe_sample && self.handle_inflight_too_high(report, sink);
        }
        if self.bounds.inflight_longterm < UNBOUNDED && rounds > 0 {
            // inflight_longterm = max(inflight_longterm, RS.tx_in_flight)
            self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(self.tx_in_flight);
            if matches!(self.state, BbrState::ProbeBwUp) {
                self.probe_inflight_longterm_upward(report);
            }
        }
        false
    }

    /// HandleInflightTooHigh (section 5.5.10.2).
    fn handle_inflight_too_high(
        &mut self,
        report: &BbrReport,
        sink: &mut impl ControlSink,
    ) -> bool {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        self.bounds
            .handle_inflight_too_high(self.tx_in_flight, self.target_inflight(report));
        if matches!(self.state, BbrState::ProbeBwUp) {
            self.undo.state = Some(UndoState::ProbeBwUp);
            self.start_probe_bw_down(report, sink);
            return true;
        }
        false
    }

    /// Returns true if C.is_cwnd_limited && C.cwnd >= BBR.inflight_longterm (section 5.3.3.9).
    fn is_limited_by_inflight_longterm(&self, report: &BbrReport) -> bool {
        let is_cwnd_limited = report
            .inflight
            .saturating_add(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
            >= report.cwnd;
        is_cwnd_limited && report.cwnd >= self.installed.cap
    }

    /// ProbeInflightLongtermUpward and RaiseInflightLongtermSlope (section 5.3.3.9): by 1, 2, 4, …
    /// segments per round. The draft spreads them over the round by `bw_probe_up_acked` and
    /// `probe_up_acked_per_inc`. Here the whole increase comes at the start of the round.
    fn probe_inflight_longterm_upward(&mut self, report: &BbrReport) {
        if !self.is_limited_by_inflight_longterm(report) {
            return;
        }
        let growth_this_round = self.mss.saturating_mul(1 << self.bw_probe_up_rounds);
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.bounds.inflight_longterm = self
            .bounds
            .inflight_longterm
            .saturating_add(growth_this_round);
    }

    /// UpdateProbeBWCyclePhase (section 5.3.3.9).
    pub(super) fn update_probe_bw_cycle_phase(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) {
        match self.state {
            BbrState::ProbeBwDown | BbrState::ProbeBwCruise if self.is_time_to_probe_bw(report) => {
                self.start_probe_bw_refill(report, sink)
            }
            BbrState::ProbeBwDown if report.events.has(ReportEvents::QUEUE_DRAINED) => {
                self.start_probe_bw_cruise(sink)
            }
            BbrState::ProbeBwRefill if rounds > 0 && report.rounds > self.state_start_round => {
                self.is_bw_probe_sample = true;
                self.start_probe_bw_up(report, sink);
            }
            BbrState::ProbeBwUp => {
                // IsTimeToGoDown, with the exit conditions of section 5.3.3.7. The program detects
                // that a precautionary probe has reached inflight_longterm.
                if report.events.has(ReportEvents::PROBE_STOPPED) {
                    self.prev_probe_precautionary = true;
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(report, sink);
                } else if self.bounds.inflight_longterm < UNBOUNDED
                    && self.is_limited_by_inflight_longterm(report)
                {
                    // Bandwidth is limited by inflight_longterm.
                    self.full_pipe = FullPipe::with_baseline(report.bw.max(self.last_report.bw));
                } else if self.full_pipe.full_bw_now {
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(report, sink);
                }
            }
            _ => {}
        }
    }

    /// IsTimeToProbeBW (section 5.3.3.8.3): HasElapsedInPhase(bw_probe_wait) ||
    /// IsRenoCoexistenceProbeTime().
    fn is_time_to_probe_bw(&self, report: &BbrReport) -> bool {
        // T_reno = min(reno_bdp, T_reno_bound)
        let reno_rounds = (self.target_inflight(report) / self.mss).min(T_RENO_BOUND_ROUNDS);
        report.now_us > self.cycle_stamp_us.saturating_add(self.bw_probe_wait_us)
            || self.rounds_since_probe_up >= reno_rounds
    }

    /// StartProbeBW_DOWN (section 5.3.3.9).
    pub(super) fn start_probe_bw_down(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.reset_congestion_signals();
        self.pick_probe_wait(report);
        self.ack_phase = AckPhase::ProbeStopping;
        self.state_start_round = report.rounds;
        self.state = BbrState::ProbeBwDown;
        sink.set_variable("gain", paced(PROBE_BW_DOWN_PACING_GAIN));
        sink.set_variable("cwnd_gain", DEFAULT_CWND_GAIN);
        sink.set_variable("draining", self.bounds.inflight_with_headroom(self.mss));
    }

    /// PickProbeWait (section 5.3.3.8.3).
    fn pick_probe_wait(&mut self, report: &BbrReport) {
        self.rounds_since_probe_up = self.rng.below(2);
        self.bw_probe_wait_us = BW_PROBE_WAIT_BASE_US + self.rng.below(BW_PROBE_WAIT_RANDOM_US);
        self.cycle_stamp_us = report.now_us;
    }

    /// StartProbeBW_CRUISE (section 5.3.3.9).
    pub(super) fn start_probe_bw_cruise(&mut self, sink: &mut impl ControlSink) {
        self.state = BbrState::ProbeBwCruise;
        sink.set_variable("gain", UNITY_PACING_GAIN);
        sink.set_variable("draining", 0);
    }

    /// StartProbeBW_REFILL (section 5.3.3.9).
    pub(super) fn start_probe_bw_refill(
        &mut self,
        report: &BbrReport,
        sink: &mut impl ControlSink,
    ) {
        self.bounds.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.state_start_round = report.rounds;
        self.state = BbrState::ProbeBwRefill;
        sink.set_variable("gain", UNITY_PACING_GAIN);
        sink.set_variable("draining", 0);
    }

    /// StartProbeBW_UP (section 5.3.3.9).
    fn start_probe_bw_up(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.full_pipe = FullPipe::with_baseline(report.bw);
        self.state_start_round = report.rounds;
        self.state = BbrState::ProbeBwUp;
        sink.set_variable("gain", paced(PROBE_BW_UP_PACING_GAIN));
        sink.set_variable("cwnd_gain", PROBE_BW_UP_CWND_GAIN);
    }
}
