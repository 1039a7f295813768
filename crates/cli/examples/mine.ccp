# Slow start, then AIMD that reduces the window by a fifth.
(algorithm mine
    (about "slow start, then one more segment per RTT; a fifth less after a loss")
    (needs cwnd recovery)
    (param back 0.8 0.1 0.95)
    (init Cwnd (* 10 Flow.mss)))

(def (recovering false))
(when (&& Flow.in_recovery (! recovering))
    (:= Ssthresh (* Cwnd back))
    (fallthrough))
(when (&& (! Flow.in_recovery) Flow.cwnd_limited)
    (:= Cwnd (if (< Cwnd Ssthresh)
        (min Ssthresh (+ Cwnd Ack.bytes_acked))
        (+ Cwnd (/ (* Flow.mss Ack.bytes_acked) Cwnd))))
    (fallthrough))
(when true
    (:= recovering Flow.in_recovery))
