//! The datapath programs. Both versions share measurement and control, and each adds its own
//! clauses between the two.
//!
//! Two quantities that Linux tracks per packet are derived from counters here:
//!
//! - A round ends with the first ACK of a packet sent after the round began. `round_end` is the
//!   total of delivered and lost data once everything in flight at the start of the round has been
//!   delivered or lost. The first packet beyond it ends the round. This is exact even with losses.
//! - ACK aggregation is a leaky bucket that fills with delivered data and leaks at the bandwidth.
//!   It corresponds to Linux' epochs, restarted when empty, without their limit of 2^20 packets.
//!
//! Losses by themselves do not reduce the window. In recovery ssthresh is infinite, so the window
//! remains in effect. Outside of recovery, ssthresh equals the window, so that a datapath whose
//! agent times out continues from there instead of entering slow start.

use super::report::ReportEvents;
use super::{MIN_PIPE_CWND_SEGMENTS, UNITY_PACING_GAIN};

/// Parts of the program that differ between the versions.
pub(super) struct Version<'a> {
    /// Initial pacing and window gains, in units of 1/[`GAIN_UNIT`](super::GAIN_UNIT).
    pub gains: (u64, u64),
    /// Additional report variables and control variables.
    pub report: &'static str,
    pub control: &'static str,
    /// Additional statements of the measuring clause, where `bw` is this ACK's sample.
    pub sample: String,
    /// Additional clauses between measurement and control.
    pub clauses: String,
    /// Data in flight of a drained queue, and the target window, as expressions of `bdp` and
    /// `budget`, the allowance for offloading.
    pub drained: &'a str,
    pub target: &'a str,
    /// Window after this ACK's losses, before its deliveries are added.
    pub cwnd_after_loss: &'static str,
    /// Additional statements at the start of a recovery and after the window is computed.
    pub repair: &'static str,
    pub conserve: &'static str,
}

/// Returns the program.
pub(super) fn program_source(version: &Version<'_>) -> String {
    let Version {
        gains: (gain, cwnd_gain),
        report,
        control,
        sample,
        clauses,
        drained,
        target,
        cwnd_after_loss: kept,
        repair,
        conserve,
    } = version;
    let (timeout, undo, done, idle) = (
        ReportEvents::TIMEOUT,
        ReportEvents::UNDO,
        ReportEvents::QUEUE_DRAINED,
        ReportEvents::IDLE,
    );
    let limited = ReportEvents::APP_LIMITED;
    format!(
        "(def
    (const NONE 18446744073709551615)
    (Report
        (volatile bw 0) (volatile rtt +infinity) (rounds 0) (delivered 0) (lost 0) \
        (volatile extra 0)
        (volatile events 0) (now 0) (flight 0) (window 0){report})
    (max_bw 0) (cap_bw NONE) (min_rtt +infinity) (gain {gain}) (cwnd_gain {cwnd_gain}) \
    (full false) (bonus 0)
    (cap NONE) (draining 0){control})
# Measurement. An application-limited sample counts only if it is the maximum.
(when true
    (:= newly (* (+ Ack.packets_acked Ack.packets_misordered) Flow.mss))
    (:= Report.delivered (+ Report.delivered newly))
    (:= Report.lost (+ Report.lost (* Ack.lost_pkts_sample Flow.mss)))
    (:= Report.flight (+ Flow.bytes_in_flight newly (* Ack.lost_pkts_sample Flow.mss)))
    # The first estimate includes the handshake (`bbr_init`): behind a full queue, data alone would
    # show a longer path.
    (:= Report.rtt (min Report.rtt Flow.rtt_sample_us \
        (if (== Report.now 0) Flow.min_rtt_us +infinity)))
    (:= min_rtt (min min_rtt Report.rtt))
    (:= bw (if (> Flow.rate_outgoing 0) (min Flow.rate_incoming Flow.rate_outgoing) \
        Flow.rate_incoming)){sample}
    (if (|| (! Flow.app_limited) (>= bw max_bw)) (:= Report.bw (max Report.bw bw)))
    (if (&& Flow.app_limited (< Report.events {limited})) \
        (:= Report.events (+ Report.events {limited})))
    (:= max_bw (max max_bw Report.bw))
    (:= bw (min max_bw cap_bw))
    (:= level (+ newly (diff level (/ (* bw (diff Ack.now Report.now)) 1000000))))
    (:= Report.extra (max Report.extra (min level Cwnd)))
    (:= Report.now Ack.now)
    (:= bdp (if (< min_rtt +infinity) (/ (* bw min_rtt) 1000000) (* 10 Flow.mss)))
    (:= budget (* 3 (max (min (/ Rate 1024) 64000) (* (if (< Rate 150000) 1 2) Flow.mss))))
    (fallthrough))
# Start of a round. Every round is reported until the pipe is full, later at most one per
# millisecond.
(when (> (+ Report.delivered Report.lost) round_end)
    (:= round_end (+ Report.delivered Report.lost Flow.bytes_in_flight))
    (:= Report.rounds (+ Report.rounds 1))
    (if (|| (! full) (> Micros 1000)) (do (report) (:= Micros 0)))
    (fallthrough))
# The queue is drained.
(when (&& (> draining 0) (<= Flow.bytes_in_flight (min draining {drained})))
    (:= draining 0)
    (:= gain {UNITY_PACING_GAIN})
    (:= Report.events (+ Report.events {done}))
    (report)
    (fallthrough)){clauses}
# Pacing, without gain after an idle period. Until the pipe is full the rate only increases.
(when true
    (:= bw (/ (* bw (if (== Flow.bytes_pending 0) {UNITY_PACING_GAIN} gain)) 10000))
    (if (|| full (> bw Rate)) (:= Rate bw))
    (if (== Flow.bytes_pending 0) (:= Report.events (+ Report.events {idle})))
    (fallthrough))
(when Flow.undone
    (:= Report.events (+ Report.events {undo}))
    (report)
    (fallthrough))
# A recovery begins. The window before it is restored at its end.
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
# The window grows by the data delivered towards the model's window, and not beyond it once the
# pipe is full.
(when true
    (:= Cwnd {kept})
    (if full
        (:= Report.window (min (+ Cwnd newly) {target}))
        (:= Report.window (if (|| (< Cwnd {target}) (< Report.delivered (* 10 Flow.mss))) \
            (+ Cwnd newly) Cwnd)))
    (:= Report.window (min cap (max Report.window (* {MIN_PIPE_CWND_SEGMENTS} Flow.mss)))){conserve}
    (:= Ssthresh (if Flow.in_recovery NONE Report.window))
    (:= Cwnd Report.window))
"
    )
}
