//! What programs do about losses: the clauses that reduce the window, as text.
//!
//! For datapaths that repair losses themselves ([`RECOVERY`](ccplane_datapath::Capabilities::RECOVERY)): a program tells
//! them the threshold, they bring the window there; after a timeout the program raises it again from one segment.

/// Declarations that the clauses need. The first line belongs into the `Report` block.
pub(crate) const REPORTED: &str = "(volatile timeouts 0) (volatile reductions 0) (cwnd 0) (ssthresh 0)";
/// See [`REPORTED`]. `recovering`: the last call was in a repair; `in_loss`: that began with a timeout; `before`: the
/// window before a reduction. At a timeout the transport has changed it already, so the last one counts.
pub(crate) const DECLARED: &str = "(recovering false) (in_loss false) (before 0)";

/// At the start of a repair, half the window (RFC 5681, equation 4, with the window for the data in flight), once.
pub(crate) fn halve() -> String {
    reduce("before", "(/ before 2)", "")
}

/// At the start of a repair what is `kept` of the window, once. `before` is the variable for the window before: at a timeout
/// the transport has changed it already, so the last one counts. `also` is done with it.
pub(crate) fn reduce(before: &str, kept: &str, also: &str) -> String {
    format!(
        "(when (! (|| recovering Flow.was_timeout))
    (:= {before} Cwnd)
    (fallthrough))
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= Ssthresh (max {kept} (* 2 Flow.mss)))
    (:= Report.reductions (+ Report.reductions 1)){also}
    (report)
    (fallthrough))
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= in_loss true)
    (report)
    (fallthrough))"
    )
}

/// After everything that looks at `recovering` or changes window or threshold.
pub(crate) const REMEMBER: &str = "(when true
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (:= in_loss (&& in_loss recovering))
    (:= Report.cwnd Cwnd)
    (:= Report.ssthresh Ssthresh)
    (fallthrough))";

/// Whether the window may grow: something is acknowledged in order, the window limits sending, and no fast recovery is
/// under way.
pub(crate) const MAY_GROW: &str =
    "(&& (> Ack.bytes_acked 0) Flow.cwnd_limited (|| in_loss (! (|| Flow.in_recovery recovering))))";

/// By what it grows: packets newly delivered, as Linux counts (`acked_sacked`). After a timeout, one ACK for all that was
/// SACKed before it says nothing new of the path; counted in bytes it would open the window at once.
pub(crate) const DELIVERED: &str = "(* Flow.mss (+ Ack.packets_acked Ack.packets_misordered))";
