//! Drain (section 5.3.2): empties the queue that Startup built.

use super::control::DRAIN_PACING_GAIN;
use super::{Bbr3Flow, BbrState};
use crate::bbr::report::{BbrReport, ReportEvents};
use crate::bbr::{ControlSink, UNBOUNDED, paced};

/// Drain ends after three rounds in case the bandwidth was overestimated (section 5.3.2).
const DRAIN_ROUNDS_MAX: u64 = 3;

impl Bbr3Flow {
    /// EnterDrain.
    pub(super) fn enter_drain(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        self.state = BbrState::Drain;
        // drain_start_round = round_count
        self.state_start_round = report.rounds;
        sink.set_variable("gain", paced(DRAIN_PACING_GAIN));
        sink.set_variable("draining", UNBOUNDED);
    }

    /// CheckDrainDone: enters ProbeBW if C.inflight <= Inflight(1.0), which the program detects, or
    /// if round_count > drain_start_round + 3.
    pub(super) fn check_drain_done(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        if matches!(self.state, BbrState::Drain)
            && (report.events.has(ReportEvents::QUEUE_DRAINED)
                || report.rounds > self.state_start_round + DRAIN_ROUNDS_MAX)
        {
            // EnterProbeBW (section 5.3.3.9)
            self.start_probe_bw_down(report, sink);
        }
    }
}
