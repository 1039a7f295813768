//! Startup (section 5.3.1): doubles the rate each round until the pipe is full.

use super::congestion::{UndoState, is_inflight_too_high, lost_or_marked};
use super::control::{DEFAULT_CWND_GAIN, STARTUP_PACING_GAIN};
use super::{Bbr3Flow, BbrState};
use crate::bbr::full_pipe::FullPipe;
use crate::bbr::report::BbrReport;
use crate::bbr::{ControlSink, paced};

/// BBRStartupFullLossCnt (section 5.3.1.3): lost ranges in a round that end Startup. Counted here
/// as ACKs that detect losses, as in Linux' version 3.
const STARTUP_FULL_LOSS_COUNT: u64 = 6;

impl Bbr3Flow {
    /// EnterStartup (section 5.3.1.1), for a flow that was in another state.
    pub(super) fn enter_startup(&mut self, sink: &mut impl ControlSink) {
        self.state = BbrState::Startup;
        self.full_pipe = FullPipe::default();
        sink.set_variable("gain", paced(STARTUP_PACING_GAIN));
        sink.set_variable("cwnd_gain", DEFAULT_CWND_GAIN);
        sink.set_variable("draining", 0);
    }

    /// CheckFullBWReached (section 5.3.1.2), in the states that accelerate: Startup and ProbeBW_UP.
    pub(super) fn check_full_bw_reached(
        &mut self,
        report: &BbrReport,
        rounds: u64,
        sink: &mut impl ControlSink,
    ) {
        let accelerates = matches!(self.state, BbrState::Startup | BbrState::ProbeBwUp);
        // A report whose samples are all application-limited has no bandwidth.
        if rounds > 0 && report.bw > 0 && accelerates {
            self.full_pipe.update(report.bw, rounds);
            self.full_bw_reached |= self.full_pipe.full_bw_now;
        }
        if self.full_bw_reached && matches!(self.state, BbrState::Startup) {
            sink.set_variable("full", 1);
        }
    }

    /// CheckStartupHighLoss (section 5.3.1.3): a loss round ended with a loss rate above
    /// BBR.LossThresh, detected by at least [`STARTUP_FULL_LOSS_COUNT`] ACKs.
    pub(super) fn check_startup_high_loss(&mut self, report: &BbrReport) {
        let lost = lost_or_marked(report).saturating_sub(self.loss_round_start_lost);
        if self.loss_events_in_round >= STARTUP_FULL_LOSS_COUNT
            && is_inflight_too_high(lost, self.tx_in_flight)
        {
            self.undo.state = Some(UndoState::Startup);
            self.full_bw_reached = true;
            // inflight_longterm = max(bdp, inflight_latest)
            self.bounds.inflight_longterm = self.bdp().max(self.inflight_latest);
        }
    }

    /// CheckStartupDone (section 5.3.1.1).
    pub(super) fn check_startup_done(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        if matches!(self.state, BbrState::Startup) && self.full_bw_reached {
            self.enter_drain(report, sink);
        }
    }
}
