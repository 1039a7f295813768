//! Program clauses that react to losses.
//!
//! They require a datapath that performs loss recovery itself
//! ([`RECOVERY`](ccplane_datapath::Capabilities::RECOVERY)). The program sets ssthresh, and the
//! datapath reduces the window to it. After a timeout the program grows the window again from one
//! segment.

/// Report variables that the clauses use. They belong in the `Report` block.
pub(crate) const REPORT_VARIABLES: &str =
    "(volatile timeouts 0) (volatile reductions 0) (cwnd 0) (ssthresh 0)";
/// Other variables that the clauses use. `recovering`: the previous run was in recovery. `in_loss`:
/// that recovery began with a timeout. `before`: the window before the reduction. A timeout has
/// already changed the window when the program runs, so the value of the previous run is kept.
pub(crate) const STATE_VARIABLES: &str = "(recovering false) (in_loss false) (before 0)";

/// Returns the clauses that halve the window once, at the start of a recovery. RFC 5681, equation
/// 4, with the window in place of FlightSize.
pub(crate) fn halving_clauses() -> String {
    reduction_clauses("before", "(/ before 2)", "")
}

/// Returns the clauses that reduce the window to `kept` once, at the start of a recovery. `before`
/// names the variable that holds the window before the reduction. A timeout has already changed the
/// window when the program runs, so the value of the previous run is kept. `also` is appended to
/// the reduction.
///
/// ssthresh is rounded down to whole segments, as in a transport that counts packets. A fraction
/// would survive in the window until the next loss. Of two losses at the same number of packets,
/// one would then look like a loss at a smaller window than the other.
pub(crate) fn reduction_clauses(before: &str, kept: &str, also: &str) -> String {
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

/// Clause that follows every clause that reads `recovering` or changes the window or ssthresh.
pub(crate) const STATE_CLAUSE: &str = "(when true
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (:= in_loss (&& in_loss recovering))
    (:= Report.cwnd Cwnd)
    (:= Report.ssthresh Ssthresh)
    (fallthrough))";

/// Condition for growth: the ACK acknowledges new data (RFC 5681, 3.1), the flow is cwnd-limited,
/// and it is not in fast recovery. Slow start after a timeout is allowed.
pub(crate) const GROWTH_CONDITION: &str = "(&& (> Ack.bytes_acked 0) Flow.cwnd_limited \
                                           (|| in_loss (! (|| Flow.in_recovery recovering))))";

/// Amount of growth in slow start: packets newly delivered, as in Linux (`acked_sacked`). After a
/// timeout, the ACK that fills the hole also covers data that was SACKed earlier. Counted in bytes,
/// it would open the window at once.
pub(crate) const DELIVERED_BYTES: &str =
    "(* Flow.mss (+ Ack.packets_acked Ack.packets_misordered))";

#[cfg(test)]
mod tests {
    use ccplane_datapath::Capabilities;
    use ccplane_units::Duration;

    use crate::script::Script;

    /// Returns ssthresh after a loss with a window of 322.97 segments.
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
    fn a_reduction_leaves_whole_segments_without_recovery_signals() {
        let few = Capabilities::CWND.union(Capabilities::RTT);
        let mut script = Script::on(few, "cubic", "").expect("the capabilities suffice");
        script.transport.cwnd = 322_970;
        let _ = script.ack(Duration::from_millis(1), |s| {
            (s.lost_pkts_sample, s.bytes_in_flight) = (1, 100_000)
        });
        // Program and agent both use a segment size of 1,000 bytes.
        assert_eq!(
            script.transport.cwnd % 1_000,
            0,
            "{}",
            script.transport.cwnd
        );
    }
}
