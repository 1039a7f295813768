//! What a call asks of the transport.

use crate::signals::Transport;
use crate::table::Limits;

/// What a call asks of the transport. `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The congestion window to use from now on, bytes.
    pub cwnd: Option<u64>,
    /// `cwnd` is an owner's limit, and nobody asked for another window: it answers no timeout.
    pub limited: bool,
    /// The pacing rate to use from now on, bytes/s.
    pub rate: Option<u64>,
    /// The slow-start threshold to use from now on, bytes.
    pub ssthresh: Option<u64>,
    /// A report is to be sent: [`crate::Flow::report`] has its fields. Asked for again at every
    /// call until [`crate::Flow::report_queued`].
    pub report: Option<Urgency>,
    /// The flow runs its own NewReno, because its agent is silent or gave it up.
    pub fallback: bool,
}

/// How soon a report has to reach its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Within the latency that the algorithm chose.
    Normal,
    /// At once: the call had a loss, a timeout or an undo.
    Urgent,
}

/// Window (bytes), rate (bytes/s) and slow-start threshold (bytes), as someone wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controls {
    pub cwnd: u64,
    pub rate: u64,
    pub ssthresh: u64,
}

impl Controls {
    #[inline(always)]
    pub fn of(transport: &Transport) -> Controls {
        Controls {
            cwnd: transport.cwnd,
            rate: transport.rate,
            ssthresh: transport.ssthresh,
        }
    }

    /// Takes over what is not 0: a window, a rate or a threshold of 0 is not an order but the
    /// absence of one, as in CCP.
    #[inline(always)]
    pub fn set(&mut self, cwnd: u64, rate: u64, ssthresh: u64) {
        let or = |new: u64, old: u64| if new == 0 { old } else { new };
        self.cwnd = or(cwnd, self.cwnd);
        self.rate = or(rate, self.rate);
        self.ssthresh = or(ssthresh, self.ssthresh);
    }

    /// What the transport has to change to be as wanted, within the owner's limits.
    #[inline(always)]
    pub fn outcome(&self, transport: &Transport, limits: &Limits) -> Outcome {
        let changed = |new: u64, old: u64| (new != old).then_some(new);
        let cwnd = changed(limits.cwnd(self.cwnd), transport.cwnd);
        Outcome {
            cwnd,
            limited: cwnd.is_some() && self.cwnd == transport.cwnd,
            rate: changed(limits.rate(self.rate), transport.rate),
            ssthresh: changed(self.ssthresh.max(limits.min_cwnd), transport.ssthresh),
            report: None,
            fallback: false,
        }
    }
}
