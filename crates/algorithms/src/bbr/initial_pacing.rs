//! Initial pacing rate, before the bandwidth is known.

use ccplane_agent::FlowInfo;
use ccplane_datapath::INFINITY;

use super::report::BbrReport;
use super::{ControlSink, GAIN_UNIT, scale};

/// Window per round trip, or per 1 ms if the RTT is unknown, times the startup gain
/// (`bbr_init_pacing_rate_from_rtt`; the draft's InitPacingRate).
#[derive(Clone, Copy, Debug)]
pub(super) struct InitialPacing {
    gain: u64,
    /// The rate has been set from an RTT.
    has_rtt: bool,
}

impl InitialPacing {
    pub fn new(gain: u64) -> InitialPacing {
        InitialPacing {
            gain,
            has_rtt: false,
        }
    }

    /// Sets the rate when the flow opens or is taken over.
    pub fn on_open(&mut self, info: &FlowInfo, sink: &mut impl ControlSink) {
        let window = if info.live { info.cwnd } else { info.init_cwnd };
        self.set_rate(window.get(), info.srtt.as_micros(), sink);
    }

    /// Sets the rate again with the first RTT sample.
    pub fn on_report(&mut self, report: &BbrReport, mss: u64, sink: &mut impl ControlSink) {
        if !self.has_rtt && report.rtt < INFINITY {
            self.set_rate(report.cwnd.max(mss.saturating_mul(10)), report.rtt, sink);
        }
    }

    fn set_rate(&mut self, window: u64, rtt_us: u64, sink: &mut impl ControlSink) {
        self.has_rtt = rtt_us > 0;
        let rtt_us = if self.has_rtt { rtt_us } else { 1_000 };
        let rate = scale(scale(window, 1_000_000, rtt_us), self.gain, GAIN_UNIT);
        sink.set_pacing_rate(rate.max(1));
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Bytes;

    use super::*;
    use crate::bbr::tests::Recorder;

    #[test]
    fn it_is_the_window_in_a_round_trip_times_the_gain() {
        let mut orders = Recorder::default();
        let mut start = InitialPacing::new(28_850);
        let info = FlowInfo {
            init_cwnd: Bytes::new(14_480),
            ..FlowInfo::default()
        };
        start.on_open(&info, &mut orders);
        assert_eq!(
            orders.get("pace"),
            Some(14_480_000 * 2885 / 1000),
            "in 1 ms"
        );
        let seen = BbrReport {
            rtt: 20_000,
            ..BbrReport::default()
        };
        start.on_report(&seen, 1448, &mut orders);
        // 10 · 1448 bytes per 20 ms are 724,000 bytes/s.
        assert_eq!(orders.get("pace"), Some(724_000 * 2885 / 1000));
        orders.clear();
        start.on_report(&seen, 1448, &mut orders);
        assert_eq!(orders.get("pace"), None, "once");
    }
}
