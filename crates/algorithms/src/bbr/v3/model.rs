//! Network path model (section 5.5): maximum bandwidth, BDP and ACK aggregation. The minimum RTT is
//! in [`super::probe_rtt`], the bounds from losses in [`super::congestion`].

use ccplane_datapath::INFINITY;

use super::Bbr3Flow;
use crate::bbr::report::BbrReport;
use crate::bbr::volume;

/// BBR.ExtraAckedFilterLen (section 2.12), rounds.
const EXTRA_ACKED_FILTER_ROUNDS: u64 = 10;

impl Bbr3Flow {
    /// Maximum of the delivery rates of the previous and the current ProbeBW cycle, bytes/s
    /// (section 5.5.5).
    pub(super) fn max_bw(&self) -> u64 {
        self.max_bw_filter[0].max(self.max_bw_filter[1])
    }

    /// BBR.bw = min(max_bw, bw_shortterm) (section 2.9.1), bytes/s.
    fn bw(&self) -> u64 {
        self.max_bw().min(self.bounds.bw_shortterm)
    }

    /// BBR.bdp = BBR.bw * BBR.min_rtt (section 5.6.4.2, BDPMultiple), bytes. Before the first RTT
    /// sample, C.InitialCwnd of ten segments.
    pub(super) fn bdp(&self) -> u64 {
        if self.min_rtt.us == INFINITY {
            return self.mss.saturating_mul(10);
        }
        volume(self.bw(), self.min_rtt.us)
    }

    /// TargetInflight (section 5.3.3.8.3): min(bdp, C.cwnd).
    pub(super) fn target_inflight(&self, report: &BbrReport) -> u64 {
        self.bdp().min(report.cwnd)
    }

    /// Updates the model with a report.
    pub(super) fn update_model(&mut self, report: &BbrReport, rounds: u64) {
        // UpdateRound (section 5.5.1)
        self.rounds_since_probe_up = self.rounds_since_probe_up.saturating_add(rounds);
        self.update_max_bw(report);
        self.update_ack_aggregation(report);
        self.update_latest_delivery_signals(report, rounds);
    }

    /// UpdateMaxBw (section 5.5.5).
    fn update_max_bw(&mut self, report: &BbrReport) {
        self.max_bw_filter[1] = self.max_bw_filter[1].max(report.bw);
        self.installed_bw = self.installed_bw.max(report.bw);
    }

    /// AdvanceMaxBwFilter (section 5.5.6): the filter covers two cycles.
    pub(super) fn advance_max_bw_filter(&mut self) {
        self.max_bw_filter = [self.max_bw_filter[1], 0];
    }

    /// UpdateACKAggregation (section 5.5.9): one round in Startup, ten afterwards. The program
    /// measures the excess.
    fn update_ack_aggregation(&mut self, report: &BbrReport) {
        let filter_len = if self.full_bw_reached {
            EXTRA_ACKED_FILTER_ROUNDS
        } else {
            1
        };
        self.extra_acked_filter.set_window(filter_len);
        self.extra_acked_filter
            .update(report.rounds, report.extra_acked);
    }
}
