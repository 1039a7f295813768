//! The program of a member: it keeps to its part of the group, and gives way at a loss without
//! asking.

use crate::repair::{DELIVERED, MAY_GROW};
use crate::window::due;
use crate::{Cubic, Exit, Reporting};

/// The program's text.
///
/// The agent says `wish`, the member's part in bytes; +infinity stands for slow start, in which the
/// window doubles until HyStart or a loss ends it. It says with it how many `cuts` of this member
/// it has `seen`: a wish that crossed a cut on its way is of before it, and is not taken. `stamp`
/// is how many reductions the group has made. When the member hears of a new one, what it has in
/// flight was sent before (`hold`): losses of that are of the same round trip, and are no reason to
/// give way once more.
///
/// Growth towards a higher part doubles the window in a round trip at most, as slow start does, so
/// that a member who gets another's part sends no burst. A lower part holds at once.
///
/// `lost` and `late` are losses that may be of a new round trip, and those that are not; `busy` is
/// what was delivered while the application had more than it was let send.
pub(super) fn text(report: Reporting, paced: bool) -> String {
    let exit = Exit::Linux;
    let (declarations, hystart) = (exit.declarations(), exit.clauses());
    // Where the pace limits, the window does not, and says nothing of what the application has.
    let (pace, busy) = match paced {
        true => (
            "\n    (if (> pace 0) (:= Rate pace))",
            "(! Flow.app_limited)",
        ),
        false => ("", "(|| Flow.cwnd_limited Flow.in_recovery)"),
    };
    let (due, kept) = (due(report, "Flow.srtt_us"), Cubic::KEPT);
    format!(
        "(def
    (Report
        (volatile acked 0) (volatile counted 0) (volatile busy 0) (volatile lost 0) (volatile late 0)
        (volatile flight 0) (volatile timeouts 0) (volatile undos 0) (srtt 0) (cwnd 0) (cuts 0) (epoch 0) (slow true))
    (wish +infinity) (stamp 0) (seen 0) (pace 0) (target +infinity) (hold 0) (recovering false) (in_loss false){declarations})
(when (> stamp Report.epoch)
    (:= Report.epoch stamp)
    (:= hold (+ Flow.bytes_in_flight (* 3 Flow.mss)))
    (fallthrough))
(when true
    (:= Report.acked (+ Report.acked {DELIVERED}))
    (:= Report.busy (if {busy} (+ Report.busy {DELIVERED})))
    (:= Report.flight (max Report.flight (+ Flow.bytes_in_flight {DELIVERED})))
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
(when {MAY_GROW}
    (:= Report.counted (+ Report.counted {DELIVERED}))
    (:= Cwnd (max Cwnd (min target (+ Cwnd {DELIVERED}))))
    (fallthrough))
(when (&& (> Cwnd target) (|| in_loss (! Flow.in_recovery)))
    (:= Cwnd (max target (* 2 Flow.mss)))
    (fallthrough))
(when true
    (:= hold (diff hold (+ {DELIVERED} (* Flow.mss Ack.lost_pkts_sample))))
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
