# NewReno entirely in the datapath. Same as the algorithm `reno`, whose growth an agent sets once
# per round trip.
(algorithm text_reno
    (about "NewReno (RFC 5681, RFC 6582): adds one segment per RTT, halves the window on loss")
    (needs cwnd rtt recovery)
    (param back 0.5 0.1 0.95))

(def
    (Report (volatile acked 0) (volatile lost 0) (cwnd 0) (ssthresh 0))
    (recovering false) (in_loss false) (before 0)
    (left 0) (slow 0) (credit 0) (steps 0))

(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (fallthrough))

# One reduction per recovery (RFC 6582), from the window before it, because a timeout has already
# changed the window. ssthresh is rounded down to whole segments, as in a transport that counts
# packets.
(when (! (|| recovering Flow.was_timeout))
    (:= before Cwnd)
    (fallthrough))
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= Ssthresh (* Flow.mss (max 2 (/ (* before back) Flow.mss))))
    (:= credit 0)
    (report)
    (fallthrough))
(when Flow.was_timeout
    (:= in_loss true)
    (fallthrough))

# Slow start up to ssthresh; the rest of the ACK counts towards one segment per window acknowledged
# (RFC 5681, 3.1).
(when (&& (> Ack.bytes_acked 0) Flow.cwnd_limited (|| in_loss (! (|| Flow.in_recovery recovering))))
    (:= left (* Flow.mss (+ Ack.packets_acked Ack.packets_misordered)))
    (:= slow (min left (diff Ssthresh Cwnd)))
    (:= Cwnd (+ Cwnd slow))
    (:= credit (+ (min credit Cwnd) (- left slow)))
    (:= steps (/ credit Cwnd))
    (:= credit (diff credit (* steps Cwnd)))
    (:= Cwnd (+ Cwnd (* steps Flow.mss)))
    (fallthrough))
(when true
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (:= in_loss (&& in_loss recovering))
    (:= Report.cwnd Cwnd)
    (:= Report.ssthresh Ssthresh)
    (fallthrough))
(when (> Micros 100ms)
    (report)
    (:= Micros 0))
