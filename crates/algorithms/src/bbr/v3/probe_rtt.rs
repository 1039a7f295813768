//! ProbeRTT (section 5.3.4): measures the minimum RTT with half a BDP in flight.
//!
//! One filter serves as BBR.min_rtt and BBR.probe_rtt_min_delay (section 5.3.4.3), as in version 1.
//! Its window is the parameter `probe_rtt_interval`, by default BBR.MinRTTFilterLen (section
//! 2.16.1), and replaces BBR.ProbeRTTInterval too.

use super::control::PROBE_RTT_CWND_GAIN;
use super::{AckPhase, Bbr3Flow, BbrState};
use crate::bbr::min_rtt::ProbeRttEpisode;
use crate::bbr::report::{BbrReport, ReportEvents};
use crate::bbr::{ControlSink, GAIN_UNIT, MIN_PIPE_CWND_SEGMENTS, UNITY_PACING_GAIN, scale};

impl Bbr3Flow {
    /// UpdateMinRTT and CheckProbeRTT (section 5.3.4.3).
    pub(super) fn check_probe_rtt(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        let min_rtt_us = self.min_rtt.us;
        // Uses the RTT before it expires. With a standing queue, a new RTT would make ProbeRTT's
        // window too large to drain it.
        let probe_rtt_cwnd = self.probe_rtt_cwnd();
        let probe_rtt_expired = self.min_rtt.update(report.rtt, report.now_us);
        if self.min_rtt.us > min_rtt_us {
            sink.set_variable("min_rtt", self.min_rtt.us);
        }
        let idle_restart = report.events.has(ReportEvents::IDLE)
            || self.last_report.events.has(ReportEvents::IDLE);
        if let BbrState::ProbeRtt(episode) = &mut self.state {
            // HandleProbeRTT and CheckProbeRTTDone (section 5.3.4.3)
            if episode.is_done(report.inflight, report.rounds, report.now_us) {
                let prior_cwnd = episode.prior_cwnd;
                self.exit_probe_rtt(prior_cwnd, report, sink);
            }
        } else if probe_rtt_expired && !idle_restart {
            // EnterProbeRTT and SaveCwnd (sections 5.3.4.3 and 5.6.4.4)
            self.state = BbrState::ProbeRtt(ProbeRttEpisode::new(
                probe_rtt_cwnd,
                report.cwnd,
                report.rounds,
            ));
            self.ack_phase = AckPhase::ProbeStopping;
            self.state_start_round = report.rounds;
            sink.set_variable("gain", UNITY_PACING_GAIN);
            sink.set_variable("draining", 0);
        }
    }

    /// ProbeRTTCwnd (section 5.6.4.5): max(BDPMultiple(ProbeRTTCwndGain), MinPipeCwnd).
    fn probe_rtt_cwnd(&self) -> u64 {
        scale(self.bdp(), PROBE_RTT_CWND_GAIN, GAIN_UNIT)
            .max(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// RestoreCwnd (section 5.6.4.4) and ExitProbeRTT (section 5.3.4.4).
    fn exit_probe_rtt(&mut self, prior_cwnd: u64, report: &BbrReport, sink: &mut impl ControlSink) {
        self.min_rtt.renew(report.now_us);
        self.bounds.reset_short_term_model();
        // C.cwnd = max(C.cwnd, prior_cwnd)
        sink.set_window(prior_cwnd.max(report.cwnd));
        if self.full_bw_reached {
            self.start_probe_bw_down(report, sink);
            self.start_probe_bw_cruise(sink);
        } else {
            self.enter_startup(sink);
        }
    }
}
