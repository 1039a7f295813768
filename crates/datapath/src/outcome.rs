//! Changes that a call requests from the transport.

use crate::signals::Transport;
use crate::table::OperatorLimits;

/// Changes that a call requests from the transport. `None` leaves a value unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// New congestion window, bytes.
    pub cwnd: Option<u64>,
    /// `cwnd` differs only because of the operator's limits: neither program nor agent has set a
    /// window, so it does not count as a reaction to a timeout.
    pub clamped: bool,
    /// New pacing rate, bytes/s.
    pub rate: Option<u64>,
    /// New slow-start threshold, bytes.
    pub ssthresh: Option<u64>,
    /// A report is due: [`crate::Flow::report`] returns its fields. Set at every call until
    /// [`crate::Flow::report_queued`].
    pub report: Option<Urgency>,
    /// The flow runs the built-in NewReno, because its agent is silent or has released it.
    pub fallback: bool,
}

/// Urgency of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Delivered within the latency that the algorithm chose.
    Normal,
    /// Delivered at once: the call had a loss, a timeout or an undo.
    Urgent,
}

/// Desired window (bytes), rate (bytes/s) and slow-start threshold (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestedControls {
    pub cwnd: u64,
    pub rate: u64,
    pub ssthresh: u64,
}

impl RequestedControls {
    #[inline(always)]
    pub fn from_transport(transport: &Transport) -> RequestedControls {
        RequestedControls {
            cwnd: transport.cwnd,
            rate: transport.rate,
            ssthresh: transport.ssthresh,
        }
    }

    /// Takes over non-zero values. A window, rate or threshold of 0 means unset, as in CCP.
    #[inline(always)]
    pub fn set(&mut self, cwnd: u64, rate: u64, ssthresh: u64) {
        let or = |new: u64, old: u64| if new == 0 { old } else { new };
        self.cwnd = or(cwnd, self.cwnd);
        self.rate = or(rate, self.rate);
        self.ssthresh = or(ssthresh, self.ssthresh);
    }

    /// Returns the changes that bring the transport to the desired values, within the operator's
    /// limits.
    #[inline(always)]
    pub fn outcome(&self, transport: &Transport, limits: &OperatorLimits) -> Outcome {
        let changed = |new: u64, old: u64| (new != old).then_some(new);
        let cwnd = changed(limits.clamp_cwnd(self.cwnd), transport.cwnd);
        Outcome {
            cwnd,
            clamped: cwnd.is_some() && self.cwnd == transport.cwnd,
            rate: changed(limits.clamp_rate(self.rate), transport.rate),
            ssthresh: changed(self.ssthresh.max(limits.min_cwnd), transport.ssthresh),
            report: None,
            fallback: false,
        }
    }
}
