//! Bandwidth probing: the states of ProbeBW, their transitions, and the long-term bound.

use super::{
    AckPhase, Bbr3Flow, BbrState, DEFAULT_CWND_GAIN, PROBE_DOWN_PACING_GAIN, PROBE_UP_CWND_GAIN,
    PROBE_UP_PACING_GAIN, is_inflight_too_high, lost_or_marked,
};
use crate::bbr::full_pipe::FullPipe;
use crate::bbr::report::{BbrReport, ReportEvents};
use crate::bbr::{ControlSink, MIN_PIPE_CWND_SEGMENTS, UNBOUNDED, UNITY_PACING_GAIN, paced};

/// T_bbr is 2 to 3 s, and T_reno at most 62 or 63 rounds ("Design Considerations for Choosing
/// Constant Parameters"). Longer intervals find free bandwidth late. Shorter ones cause losses too
/// often for Reno and Cubic to reach their share.
const PROBE_WAIT_BASE_US: u64 = 2_000_000;
const PROBE_WAIT_RANDOM_US: u64 = 1_000_000;
const RENO_ROUNDS_MAX: u64 = 63;

impl Bbr3Flow {
    /// `AdaptLongTermModel` ("ProbeBW Algorithm Details"). Returns true if it changed the state.
    pub(super) fn adapt_long_term_model(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) -> bool {
        let probes = matches!(
            self.state,
            BbrState::ProbeBwDown
                | BbrState::ProbeBwCruise
                | BbrState::ProbeBwRefill
                | BbrState::ProbeBwUp
        );
        let round_passed = rounds > 0 && report.rounds > self.state_start_round;
        if self.ack_phase == AckPhase::Starting && round_passed {
            self.ack_phase = AckPhase::Feedback;
        }
        if self.ack_phase == AckPhase::Stopping && round_passed {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Ordinary;
            if probes && report.bw > 0 {
                // `AdvanceMaxBwFilter`
                self.max_bw_filter = [self.max_bw_filter[1], 0];
            }
            if probes && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_probe_bw_refill(report, sink);
                return true;
            }
        }
        let lost = lost_or_marked(report).saturating_sub(self.round_lost);
        if is_inflight_too_high(lost, self.round_inflight) {
            return self.is_bw_probe_sample && self.handle_inflight_too_high(report, sink);
        }
        if self.bounds.inflight_longterm < UNBOUNDED && rounds > 0 {
            self.bounds.inflight_longterm = self.bounds.inflight_longterm.max(self.round_inflight);
            if matches!(self.state, BbrState::ProbeBwUp) && self.is_limited_by_long_term(report) {
                self.raise_inflight_longterm();
            }
        }
        false
    }

    /// `HandleInflightTooHigh` ("Probing for Bandwidth In ProbeBW"). The data in flight when the
    /// lost packets were sent is that at the start of the round.
    fn handle_inflight_too_high(
        &mut self,
        report: &BbrReport,
        sink: &mut impl ControlSink,
    ) -> bool {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        let target = self.bdp().min(report.cwnd);
        self.bounds
            .handle_inflight_too_high(self.round_inflight, target);
        if matches!(self.state, BbrState::ProbeBwUp) {
            self.undo.from_probe_bw_up = true;
            self.start_probe_bw_down(report, sink);
            return true;
        }
        false
    }

    /// Returns true if the flow fills its window and the long-term bound limits that window.
    fn is_limited_by_long_term(&self, report: &BbrReport) -> bool {
        let used = report
            .inflight
            .saturating_add(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
            >= report.cwnd;
        used && report.cwnd >= self.installed.cap
    }

    /// `RaiseInflightLongtermSlope` and `ProbeInflightLongtermUpward`: by 1, 2, 4, … segments per
    /// round. The draft spreads them over the round; here the increase comes at its start.
    fn raise_inflight_longterm(&mut self) {
        let growth = self.mss.saturating_mul(1 << self.bw_probe_up_rounds);
        self.bounds.inflight_longterm = self.bounds.inflight_longterm.saturating_add(growth);
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
    }

    /// `UpdateProbeBWCyclePhase` ("ProbeBW Algorithm Details").
    pub(super) fn update_probe_bw_cycle_phase(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) {
        match self.state {
            BbrState::ProbeBwDown | BbrState::ProbeBwCruise if self.is_time_to_probe(report) => {
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
                if report.events.has(ReportEvents::PROBE_STOPPED) {
                    self.prev_probe_precautionary = true;
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(report, sink);
                } else if self.bounds.inflight_longterm < UNBOUNDED
                    && self.is_limited_by_long_term(report)
                {
                    self.full_pipe = FullPipe::with_baseline(report.bw.max(self.last_report.bw));
                } else if self.full_pipe.full_bw_now {
                    self.prev_probe_too_high = false;
                    self.start_probe_bw_down(report, sink);
                }
            }
            _ => {}
        }
    }

    /// `IsTimeToProbeBW` ("Design Considerations for Choosing Constant Parameters"). `reno_rounds`
    /// is `IsRenoCoexistenceProbeTime`'s.
    fn is_time_to_probe(&self, report: &BbrReport) -> bool {
        let reno_rounds = (self.bdp().min(report.cwnd) / self.mss).min(RENO_ROUNDS_MAX);
        report.now_us > self.cycle_stamp_us.saturating_add(self.bw_probe_wait_us)
            || self.rounds_since_probe_up >= reno_rounds
    }

    pub(super) fn start_probe_bw_down(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.in_loss_round = false;
        self.latest = (0, 0);
        self.pick_probe_wait(report);
        self.ack_phase = AckPhase::Stopping;
        self.state_start_round = report.rounds;
        self.state = BbrState::ProbeBwDown;
        sink.set_variable("gain", paced(PROBE_DOWN_PACING_GAIN));
        sink.set_variable("cwnd_gain", DEFAULT_CWND_GAIN);
        sink.set_variable("draining", self.bounds.inflight_with_headroom(self.mss));
    }

    /// `PickProbeWait`.
    fn pick_probe_wait(&mut self, report: &BbrReport) {
        self.rounds_since_probe_up = self.rng.below(2);
        self.bw_probe_wait_us = PROBE_WAIT_BASE_US + self.rng.below(PROBE_WAIT_RANDOM_US);
        self.cycle_stamp_us = report.now_us;
    }

    pub(super) fn start_probe_bw_cruise(&mut self, sink: &mut impl ControlSink) {
        self.state = BbrState::ProbeBwCruise;
        sink.set_variable("gain", UNITY_PACING_GAIN);
        sink.set_variable("draining", 0);
    }

    pub(super) fn start_probe_bw_refill(
        &mut self,
        report: &BbrReport,
        sink: &mut impl ControlSink,
    ) {
        self.bounds.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Ordinary;
        self.state_start_round = report.rounds;
        self.state = BbrState::ProbeBwRefill;
        sink.set_variable("gain", UNITY_PACING_GAIN);
        sink.set_variable("draining", 0);
    }

    fn start_probe_bw_up(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.ack_phase = AckPhase::Starting;
        self.full_pipe = FullPipe::with_baseline(report.bw);
        self.state_start_round = report.rounds;
        self.state = BbrState::ProbeBwUp;
        sink.set_variable("gain", paced(PROBE_UP_PACING_GAIN));
        sink.set_variable("cwnd_gain", PROBE_UP_CWND_GAIN);
    }
}
