//! The programs. Both versions measure and steer alike; between the two each has clauses of its
//! own.
//!
//! Two things that Linux knows for each packet are counted here instead:
//!
//! - A round ends with the first ACK of a packet that was sent after it began. `round_end` is what
//!   will have left the flight, delivered or lost, when everything then in flight has: the first
//!   packet beyond is that packet. This stays exact when packets are lost.
//! - What ACKs run ahead of the bandwidth is a bucket that fills with what is delivered and leaks
//!   at the bandwidth (Linux' epochs, begun anew where it is empty, without their limit of 2^20
//!   packets).
//!
//! Losses as such reduce nothing: while the datapath repairs them the program sets no threshold, so
//! that its window stays in force. After it (and before a first loss) the threshold is the window,
//! so that a datapath that falls back for want of an agent goes on from there and not with slow
//! start.

use super::seen::Events;
use super::{LEAST_SEGMENTS, UNITY};

/// What differs.
pub(super) struct Version<'a> {
    /// Pacing and window gains of the start, in parts of [`GAIN`](super::GAIN).
    pub gains: (u64, u64),
    /// More report variables, and more control variables.
    pub report: &'static str,
    pub control: &'static str,
    /// More statements of the measuring clause, where `bw` is the sample of this ACK.
    pub sample: String,
    /// More clauses between measuring and steering.
    pub clauses: String,
    /// How much in flight is a drained queue (`bdp` and `budget`: what offloading needs), and the
    /// window.
    pub drained: &'a str,
    pub target: &'a str,
    /// Window that remains after the losses of an ACK, before the ACK's deliveries are added.
    pub kept: &'static str,
    /// More statements of the beginning of a repair, and after the window is found.
    pub repair: &'static str,
    pub conserve: &'static str,
}

/// A program's text.
pub(super) fn text(version: &Version<'_>) -> String {
    let Version {
        gains: (gain, cwnd_gain),
        report,
        control,
        sample,
        clauses,
        drained,
        target,
        kept,
        repair,
        conserve,
    } = version;
    let (timeout, undo, done, idle) =
        (Events::TIMEOUT, Events::UNDO, Events::DRAINED, Events::IDLE);
    let limited = Events::LIMITED;
    format!(
        "(def
    (const NONE 18446744073709551615)
    (Report
        (volatile bw 0) (volatile rtt +infinity) (rounds 0) (delivered 0) (lost 0) (volatile extra 0)
        (volatile events 0) (now 0) (flight 0) (window 0){report})
    (max_bw 0) (cap_bw NONE) (min_rtt +infinity) (gain {gain}) (cwnd_gain {cwnd_gain}) (full false) (bonus 0)
    (cap NONE) (draining 0){control})
# Measures. A sample that the application limited counts only where it is the best.
(when true
    (:= newly (* (+ Ack.packets_acked Ack.packets_misordered) Flow.mss))
    (:= Report.delivered (+ Report.delivered newly))
    (:= Report.lost (+ Report.lost (* Ack.lost_pkts_sample Flow.mss)))
    (:= Report.flight (+ Flow.bytes_in_flight newly (* Ack.lost_pkts_sample Flow.mss)))
    # The first estimate includes the handshake (`bbr_init`): behind a full queue, data alone would show a longer path.
    (:= Report.rtt (min Report.rtt Flow.rtt_sample_us (if (== Report.now 0) Flow.min_rtt_us +infinity)))
    (:= min_rtt (min min_rtt Report.rtt))
    (:= bw (if (> Flow.rate_outgoing 0) (min Flow.rate_incoming Flow.rate_outgoing) Flow.rate_incoming)){sample}
    (if (|| (! Flow.app_limited) (>= bw max_bw)) (:= Report.bw (max Report.bw bw)))
    (if (&& Flow.app_limited (< Report.events {limited})) (:= Report.events (+ Report.events {limited})))
    (:= max_bw (max max_bw Report.bw))
    (:= bw (min max_bw cap_bw))
    (:= level (+ newly (diff level (/ (* bw (diff Ack.now Report.now)) 1000000))))
    (:= Report.extra (max Report.extra (min level Cwnd)))
    (:= Report.now Ack.now)
    (:= bdp (if (< min_rtt +infinity) (/ (* bw min_rtt) 1000000) (* 10 Flow.mss)))
    (:= budget (* 3 (max (min (/ Rate 1024) 64000) (* (if (< Rate 150000) 1 2) Flow.mss))))
    (fallthrough))
# A round began. Until the pipe is full each is reported, then not more than one a millisecond.
(when (> (+ Report.delivered Report.lost) round_end)
    (:= round_end (+ Report.delivered Report.lost Flow.bytes_in_flight))
    (:= Report.rounds (+ Report.rounds 1))
    (if (|| (! full) (> Micros 1000)) (do (report) (:= Micros 0)))
    (fallthrough))
# The queue is drained.
(when (&& (> draining 0) (<= Flow.bytes_in_flight (min draining {drained})))
    (:= draining 0)
    (:= gain {UNITY})
    (:= Report.events (+ Report.events {done}))
    (report)
    (fallthrough)){clauses}
# Paces, after an idle time without gain. Until the pipe is full the rate only rises.
(when true
    (:= bw (/ (* bw (if (== Flow.bytes_pending 0) {UNITY} gain)) 10000))
    (if (|| full (> bw Rate)) (:= Rate bw))
    (if (== Flow.bytes_pending 0) (:= Report.events (+ Report.events {idle})))
    (fallthrough))
(when Flow.undone
    (:= Report.events (+ Report.events {undo}))
    (report)
    (fallthrough))
# A repair of losses begins: the window before it returns with its end.
(when (&& (|| Flow.in_recovery Flow.was_timeout) (== prior 0))
    (:= prior (max Report.window Cwnd)){repair}
    (fallthrough))
(when Flow.was_timeout
    (:= Report.window Flow.mss)
    (:= Cwnd Flow.mss)
    (:= Report.events (+ Report.events {timeout}))
    (report))
(when (&& (> prior 0) (! Flow.in_recovery))
    (:= Cwnd (max Cwnd prior))
    (:= prior 0)
    (fallthrough))
# The window: towards the model's by what is delivered, and not beyond it once the pipe was full.
(when true
    (:= Cwnd {kept})
    (if full
        (:= Report.window (min (+ Cwnd newly) {target}))
        (:= Report.window (if (|| (< Cwnd {target}) (< Report.delivered (* 10 Flow.mss))) (+ Cwnd newly) Cwnd)))
    (:= Report.window (min cap (max Report.window (* {LEAST_SEGMENTS} Flow.mss)))){conserve}
    (:= Ssthresh (if Flow.in_recovery NONE Report.window))
    (:= Cwnd Report.window))
"
    )
}
