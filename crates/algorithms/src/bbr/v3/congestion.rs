//! Model updates upon packet loss (section 5.5.10) and upon a spurious loss recovery (section
//! 5.5.11). CE marks are congestion (section 3.7) and count as losses.

use super::bounds::{Bounds, LOSS_THRESH};
use super::{Bbr3Flow, BbrState};
use crate::bbr::ControlSink;
use crate::bbr::full_pipe::FullPipe;
use crate::bbr::report::BbrReport;
use crate::bbr::scale;

/// BBR.undo_state: state that a reaction to losses ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UndoState {
    Startup,
    ProbeBwUp,
}

/// State before a reaction to losses, restored if they were spurious (section 2.15).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    pub state: Option<UndoState>,
    /// `undo_bw_shortterm`, `undo_inflight_shortterm` and `undo_inflight_longterm`.
    pub bounds: Bounds,
}

impl Bbr3Flow {
    /// UpdateLatestDeliverySignals (section 5.5.10.3): maxima of a round. A round without losses or
    /// marks restarts the measurement. Otherwise it continues to the end of the loss round.
    pub(super) fn update_latest_delivery_signals(&mut self, report: &BbrReport, rounds: u64) {
        if rounds > 0 && !self.is_loss_in_round {
            (self.bw_latest, self.inflight_latest) = (0, 0);
        }
        self.bw_latest = self.bw_latest.max(report.losses.bw_latest);
        self.inflight_latest = self.inflight_latest.max(report.losses.inflight_latest);
    }

    /// ResetCongestionSignals (section 5.5.10.3).
    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (0, 0);
    }

    /// NoteLoss (section 5.5.10.2) and, at the end of a loss round, UpdateCongestionSignals
    /// (section 5.5.10.3).
    pub(super) fn update_congestion_signals(&mut self, report: &BbrReport) {
        let new = lost_or_marked(report) > lost_or_marked(&self.last_report);
        if new && !self.is_loss_in_round {
            self.is_loss_in_round = true;
            self.loss_events_in_round = 0;
            self.loss_round_start_lost = lost_or_marked(&self.last_report);
            self.save_state_upon_loss();
        }
        self.loss_events_in_round = self.loss_events_in_round.saturating_add(u64::from(new));
        if self.is_loss_in_round && report.losses.rounds > self.last_report.losses.rounds {
            if !self.is_probing_bw() {
                self.bounds.adapt_lower_bounds_from_congestion(
                    self.max_bw(),
                    report.cwnd,
                    self.bw_latest,
                    self.inflight_latest,
                );
            } else if matches!(self.state, BbrState::Startup) {
                self.check_startup_high_loss(report);
            }
            self.reset_congestion_signals();
        }
    }

    /// SaveStateUponLoss (section 5.5.11.1).
    fn save_state_upon_loss(&mut self) {
        self.undo = Undo {
            state: None,
            bounds: self.bounds,
        };
    }

    /// HandleSpuriousLossDetection (section 5.5.11.2).
    pub(super) fn handle_spurious_loss_detection(
        &mut self,
        report: &BbrReport,
        sink: &mut impl ControlSink,
    ) {
        let Undo { state, bounds } = self.undo;
        self.is_loss_in_round = false;
        self.full_pipe = FullPipe::default();
        self.bounds.undo(&bounds);
        let in_probe_rtt = matches!(self.state, BbrState::ProbeRtt(_));
        match state {
            Some(UndoState::Startup) => {
                self.full_bw_reached = false;
                sink.set_variable("full", 0);
                if !in_probe_rtt {
                    self.enter_startup(sink);
                }
            }
            Some(UndoState::ProbeBwUp)
                if !in_probe_rtt && !matches!(self.state, BbrState::ProbeBwUp) =>
            {
                self.start_probe_bw_refill(report, sink);
            }
            _ => {}
        }
        self.undo.state = None;
    }
}

/// Returns the total lost or marked, bytes.
pub(super) fn lost_or_marked(report: &BbrReport) -> u64 {
    report.lost.saturating_add(report.losses.ce_marked)
}

/// IsInflightTooHigh (section 5.5.10.2): RS.lost > RS.tx_in_flight * BBR.LossThresh.
pub(super) fn is_inflight_too_high(lost: u64, tx_in_flight: u64) -> bool {
    lost > scale(tx_in_flight, LOSS_THRESH.0, LOSS_THRESH.1)
}
