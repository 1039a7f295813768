//! What programs do about losses: the clauses that reduce the window, as text.
//!
//! For datapaths that repair losses themselves
//! ([`RECOVERY`](ccplane_datapath::Capabilities::RECOVERY)): a program tells them the threshold,
//! they bring the window there; after a timeout the program raises it again from one segment.

/// Declarations that the clauses need. The first line belongs into the `Report` block.
pub(crate) const REPORTED: &str =
    "(volatile timeouts 0) (volatile reductions 0) (cwnd 0) (ssthresh 0)";
/// See [`REPORTED`]. `recovering`: the last call was in a repair; `in_loss`: that began with a
/// timeout; `before`: the window before a reduction. At a timeout the transport has changed it
/// already, so the last one counts.
pub(crate) const DECLARED: &str = "(recovering false) (in_loss false) (before 0)";

/// At the start of a repair, half the window (RFC 5681, equation 4, with the window for the data in
/// flight), once.
pub(crate) fn halve() -> String {
    reduce("before", "(/ before 2)", "")
}

/// At the start of a repair what is `kept` of the window, once. `before` is the variable for the
/// window before: at a timeout the transport has changed it already, so the last one counts. `also`
/// is done with it.
///
/// The threshold is whole packets, as a transport that counts packets has it. A fraction would stay
/// in the window until the next loss: of two losses at the same number of packets, the second would
/// then look earlier than the first or later.
pub(crate) fn reduce(before: &str, kept: &str, also: &str) -> String {
    format!(
        "(when (! (|| recovering Flow.was_timeout))
    (:= {before} Cwnd)
    (fallthrough))
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= Ssthresh (* Flow.mss (max 2 (/ {kept} Flow.mss))))
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

/// Whether the window may grow: something is acknowledged in order, the window limits sending, and
/// no fast recovery is under way.
pub(crate) const MAY_GROW: &str = "(&& (> Ack.bytes_acked 0) Flow.cwnd_limited (|| in_loss (! (|| Flow.in_recovery recovering))))";

/// By what it grows: packets newly delivered, as Linux counts (`acked_sacked`). After a timeout,
/// one ACK for all that was SACKed before it says nothing new of the path; counted in bytes it
/// would open the window at once.
pub(crate) const DELIVERED: &str = "(* Flow.mss (+ Ack.packets_acked Ack.packets_misordered))";

#[cfg(test)]
mod tests {
    use ccplane_datapath::Capabilities;
    use ccplane_units::Duration;

    use crate::script::Script;

    /// A window of 322.97 segments, and what is left after a loss.
    fn left(mut script: Script) -> u64 {
        (script.transport.cwnd, script.transport.ssthresh) = (322_970, 100_000);
        let _ = script.ack(Duration::from_millis(1), |s| {
            (s.cwnd_limited, s.bytes_acked, s.packets_acked) = (0, 0, 0)
        });
        let _ = script.ack(Duration::from_millis(1), |s| {
            (s.in_recovery, s.lost_pkts_sample, s.cwnd_limited) = (1, 1, 0);
        });
        assert_eq!(script.faults(), 0);
        script.transport.ssthresh
    }

    #[test]
    fn a_reduction_leaves_whole_segments() {
        for (name, segments) in [
            ("cubic", 226),
            ("reno", 161),
            ("dctcp", 161),
            ("vegas", 161),
            ("ledbat++", 161),
        ] {
            assert_eq!(left(Script::new(name, "")), segments * 1_000, "{name}");
        }
    }

    #[test]
    fn so_does_one_on_a_datapath_that_knows_nothing_of_recoveries() {
        let few = Capabilities::CWND.with(Capabilities::RTT);
        let mut script = Script::on(few, "cubic", "").expect("it suffices");
        script.transport.cwnd = 322_970;
        let _ = script.ack(Duration::from_millis(1), |s| {
            (s.lost_pkts_sample, s.bytes_in_flight) = (1, 100_000)
        });
        // Program and agent know the segment as 1,000 bytes.
        assert_eq!(
            script.transport.cwnd % 1_000,
            0,
            "{}",
            script.transport.cwnd
        );
    }
}
