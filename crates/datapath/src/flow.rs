//! One flow: its variables, its timers, its commands, run at every ACK.

/// What a call asks of the transport. `None` leaves a value as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Outcome {
    /// The congestion window to use from now on, bytes.
    pub cwnd: Option<u64>,
    /// The pacing rate to use from now on, bytes/s.
    pub rate: Option<u64>,
    /// The slow-start threshold to use from now on, bytes.
    pub ssthresh: Option<u64>,
    /// A report is to be sent.
    pub report: Option<Urgency>,
    /// The flow runs its own NewReno, because its agent is silent.
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
