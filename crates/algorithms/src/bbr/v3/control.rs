//! Control parameters (section 5.6): gains, and the bounds installed in the program, which computes
//! the pacing rate and the window at each ACK.

use super::{Bbr3Flow, BbrState};
use crate::bbr::report::BbrReport;
use crate::bbr::{ControlSink, MIN_PIPE_CWND_SEGMENTS, UNBOUNDED};

// Gains of the states (section 5.6.1), in units of 1/10,000. Cruise, Refill and ProbeRTT pace with
// gain 1.

/// BBR.StartupPacingGain (section 5.3.1.1), 4 ln 2: the smallest gain that doubles the rate each
/// round.
pub(super) const STARTUP_PACING_GAIN: u64 = 27_700;
/// BBR.DrainPacingGain (section 5.3.2), the inverse of Startup's window gain: drains its queue
/// within about a round.
pub(super) const DRAIN_PACING_GAIN: u64 = 5_000;
/// Pacing gains of ProbeBW_DOWN and ProbeBW_UP. Given 1.25, 0.9 is the lowest gain with which flows
/// converge to approximate fairness (section 5.3.3.1).
pub(super) const PROBE_BW_DOWN_PACING_GAIN: u64 = 9_000;
pub(super) const PROBE_BW_UP_PACING_GAIN: u64 = 12_500;
/// BBR.DefaultCwndGain; 2.25 in ProbeBW_UP, so that the window does not limit the probe (section
/// 5.3.3.5).
pub(super) const DEFAULT_CWND_GAIN: u64 = 20_000;
pub(super) const PROBE_BW_UP_CWND_GAIN: u64 = 22_500;
/// BBR.ProbeRTTCwndGain (section 2.16.2): half a BDP drains the queue and keeps the link half busy.
pub(super) const PROBE_RTT_CWND_GAIN: u64 = 5_000;

/// Values installed in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InstalledValues {
    pub cap: u64,
    pub cap_bw: u64,
    pub bonus: u64,
    pub probing: u64,
}

impl Bbr3Flow {
    /// BoundCwndForModel (section 5.6.4.7).
    fn bound_cwnd_for_model(&self) -> u64 {
        let cap = match self.state {
            BbrState::Startup | BbrState::Drain => UNBOUNDED,
            BbrState::ProbeBwDown | BbrState::ProbeBwRefill | BbrState::ProbeBwUp => {
                self.bounds.inflight_longterm
            }
            BbrState::ProbeBwCruise => self.bounds.inflight_with_headroom(self.mss),
            // BoundCwndForProbeRTT (section 5.6.4.5)
            BbrState::ProbeRtt(episode) => episode
                .window
                .min(self.bounds.inflight_with_headroom(self.mss)),
        };
        cap.min(self.bounds.inflight_shortterm)
            .max(self.mss.saturating_mul(MIN_PIPE_CWND_SEGMENTS))
    }

    /// Sends the values that changed.
    pub(super) fn install_values(&mut self, report: &BbrReport, sink: &mut impl ControlSink) {
        // Every ACK with losses matters in Startup and while probing. A precautionary probe
        // (section 5.3.3.6) ends at the data in flight at which the last probe lost too much.
        let probing = match self.state {
            BbrState::ProbeBwUp
                if self.prev_probe_too_high && self.bounds.inflight_longterm < UNBOUNDED =>
            {
                2
            }
            BbrState::Startup => 1,
            _ => u64::from(self.is_bw_probe_sample),
        };
        let values = InstalledValues {
            cap: self.bound_cwnd_for_model(),
            cap_bw: self.bounds.bw_shortterm,
            bonus: self.extra_acked_filter.get().min(report.cwnd),
            probing,
        };
        for (name, new, old) in [
            ("cap", values.cap, self.installed.cap),
            ("cap_bw", values.cap_bw, self.installed.cap_bw),
            ("bonus", values.bonus, self.installed.bonus),
            ("probing", values.probing, self.installed.probing),
        ] {
            if new != old {
                sink.set_variable(name, new);
            }
        }
        self.installed = values;
        if self.max_bw() != self.installed_bw {
            self.installed_bw = self.max_bw();
            sink.set_variable("max_bw", self.installed_bw);
        }
    }
}
