//! The program of a member: it keeps to its part of the group and reduces it at a loss without
//! waiting for the agent.

use crate::loss_reduction::{DELIVERED_BYTES, GROWTH_CONDITION};
use crate::window::report_condition;
use crate::{Cubic, Reporting, SlowStartExit};

/// Returns the program.
///
/// The agent sets `wish`, the member's part in bytes. +infinity means slow start, which doubles the
/// window until HyStart or a loss ends it. `seen` is the number of this member's `cuts` that the
/// agent knew of: a wish that crossed a cut in flight is outdated and ignored. `stamp` is the
/// number of reductions of the group. When the member receives a new one, its data in flight was
/// sent before that (`hold`). Losses of this data belong to the same congestion event and cause no
/// further reduction.
///
/// Growth towards a larger part at most doubles the window per round trip, as in slow start, so
/// that a member that takes over another's part sends no burst. A smaller part applies at once.
///
/// `lost` and `late` count losses that may belong to a new round trip, and those that do not.
/// `busy` is the data delivered while the application had more than it could send.
pub(super) fn program_source(report: Reporting, paced: bool) -> String {
    let exit = SlowStartExit::Linux;
    let (declarations, hystart) = (exit.declarations(), exit.clauses());
    // With pacing the window is not the limit, so cwnd_limited does not show whether the
    // application has data.
    let (pace, busy) = match paced {
        true => (
            "\n    (if (> pace 0) (:= Rate pace))",
            "(! Flow.app_limited)",
        ),
        false => ("", "(|| Flow.cwnd_limited Flow.in_recovery)"),
    };
    let (due, kept) = (
        report_condition(report, "Flow.srtt_us"),
        Cubic::LOSS_WINDOW_FACTOR,
    );
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile busy 0) (volatile lost 0) \
        (volatile late 0)
        (volatile flight 0) (volatile timeouts 0) (volatile undos 0) (srtt 0) (cwnd 0) (cuts 0) \
        (epoch 0) (slow true))
    (wish +infinity) (stamp 0) (seen 0) (pace 0) (target +infinity) (hold 0) (recovering false) \
    (in_loss false){declarations})
(when (> stamp Report.epoch)
    (:= Report.epoch stamp)
    (:= hold (+ Flow.bytes_in_flight (* 3 Flow.mss)))
    (fallthrough))
(when true
    (:= Report.acked (+ Report.acked {DELIVERED_BYTES}))
    (:= Report.busy (if {busy} (+ Report.busy {DELIVERED_BYTES})))
    (:= Report.flight (max Report.flight (+ Flow.bytes_in_flight {DELIVERED_BYTES})))
    (:= Report.srtt Flow.srtt_us)
    (if (== hold 0)
        (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
        (:= Report.late (+ Report.late Ack.lost_pkts_sample))){pace}
    (fallthrough))
(when (&& (== seen Report.cuts) (|| Report.slow (< wish +infinity)))
    (:= target wish)
    (fallthrough))
(when (! (|| recovering Flow.was_timeout))
    (:= Report.cwnd Cwnd)
    (fallthrough))
(when (&& (== hold 0) (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= target (* Flow.mss (max 2 (/ (* (min target Report.cwnd) {kept}) Flow.mss))))
    (:= Report.cuts (+ Report.cuts 1))
    (report)
    (fallthrough))
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= in_loss true)
    (report)
    (fallthrough))
(when (|| Flow.in_recovery Flow.was_timeout)
    (:= Ssthresh (max (* 2 Flow.mss) (min target Report.cwnd)))
    (fallthrough))
(when Flow.undone
    (:= Report.undos (+ Report.undos 1))
    (:= target Report.cwnd)
    (report)
    (fallthrough)){hystart}
(when (&& (>= target +infinity) (>= Cwnd Ssthresh))
    (:= target Cwnd)
    (report)
    (fallthrough))
(when {GROWTH_CONDITION}
    (:= Report.counted (+ Report.counted {DELIVERED_BYTES}))
    (:= Cwnd (max Cwnd (min target (+ Cwnd {DELIVERED_BYTES}))))
    (fallthrough))
(when (&& (> Cwnd target) (|| in_loss (! Flow.in_recovery)))
    (:= Cwnd (max target (* 2 Flow.mss)))
    (fallthrough))
(when true
    (:= hold (diff hold (+ {DELIVERED_BYTES} (* Flow.mss Ack.lost_pkts_sample))))
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (:= in_loss (&& in_loss recovering))
    (:= Report.slow (>= target +infinity))
    (fallthrough))
(when {due}
    (:= Micros 0)
    (report))
"
    )
}
