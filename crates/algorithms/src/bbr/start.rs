//! Initial pacing rate, before the bandwidth is known.

use ccplane_agent::FlowInfo;
use ccplane_datapath::INFINITY;

use super::seen::BbrReport;
use super::{ControlSink, GAIN_UNIT, scale};

/// Window per round trip, or per 1 ms if the RTT is unknown, times the startup gain
/// (`bbr_init_pacing_rate_from_rtt`; the draft's InitPacingRate).
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    gain: u64,
    /// The rate has been set from an RTT.
    done: bool,
}

impl Start {
    pub fn with(gain: u64) -> Start {
        Start { gain, done: false }
    }

    /// Sets the rate when the flow opens or is taken over.
    pub fn open(&mut self, info: &FlowInfo, orders: &mut impl ControlSink) {
        let window = if info.live { info.cwnd } else { info.init_cwnd };
        self.pace(window.get(), info.srtt.as_micros(), orders);
    }

    /// Sets the rate again with the first RTT sample.
    pub fn see(&mut self, seen: &BbrReport, mss: u64, orders: &mut impl ControlSink) {
        if !self.done && seen.rtt < INFINITY {
            self.pace(seen.window.max(mss.saturating_mul(10)), seen.rtt, orders);
        }
    }

    fn pace(&mut self, window: u64, rtt_us: u64, orders: &mut impl ControlSink) {
        self.done = rtt_us > 0;
        let rtt_us = if self.done { rtt_us } else { 1_000 };
        let rate = scale(scale(window, 1_000_000, rtt_us), self.gain, GAIN_UNIT);
        orders.pace(rate.max(1));
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
        let mut start = Start::with(28_850);
        let info = FlowInfo {
            init_cwnd: Bytes::new(14_480),
            ..FlowInfo::default()
        };
        start.open(&info, &mut orders);
        assert_eq!(
            orders.get("pace"),
            Some(14_480_000 * 2885 / 1000),
            "in 1 ms"
        );
        let seen = BbrReport {
            rtt: 20_000,
            ..BbrReport::default()
        };
        start.see(&seen, 1448, &mut orders);
        // 10 · 1448 bytes per 20 ms are 724,000 bytes/s.
        assert_eq!(orders.get("pace"), Some(724_000 * 2885 / 1000));
        orders.clear();
        start.see(&seen, 1448, &mut orders);
        assert_eq!(orders.get("pace"), None, "once");
    }
}
