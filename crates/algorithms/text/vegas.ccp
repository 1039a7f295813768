# Vegas entirely in the datapath. Same as the algorithm `vegas`, whose agent decides after each
# round trip whether to add or remove a segment.
(algorithm text_vegas
    (about "Vegas (Brakmo and Peterson 1995, as in Linux): keeps 2 to 4 segments in the queue")
    (needs cwnd rtt recovery)
    (param alpha 2 1 1000)
    (param beta 4 1 1000)
    (param gamma 1 1 1000))

(def
    (Report (volatile acked 0) (volatile lost 0) (volatile rounds 0) (rtt +infinity) (base +infinity) (waiting 0) (cwnd 0))
    (recovering false) (in_loss false) (before 0)
    (round_size 0) (round_acked 0) (round_began 0) (round_samples 0) (round_rtt +infinity) (fresh false))

(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (if (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0))
        (do (:= Report.base (min Report.base Flow.rtt_sample_us))
            (:= round_rtt (min round_rtt Flow.rtt_sample_us))
            (:= round_samples (+ round_samples 1))))
    (:= round_acked (+ round_acked Ack.bytes_acked))
    # A round ends when more is acknowledged than was in flight at its start. Rounds below a
    # millisecond measure too little.
    (:= fresh (|| Flow.in_recovery (&& (> round_acked round_size) (> (diff Ack.now round_began) 1ms))))
    (fallthrough))

# Half the window, once per recovery.
(when (! (|| recovering Flow.was_timeout))
    (:= before Cwnd)
    (fallthrough))
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= Ssthresh (* Flow.mss (max 2 (/ (/ before 2) Flow.mss))))
    (fallthrough))
(when Flow.was_timeout
    (:= in_loss true)
    (fallthrough))

# End of a round with more than two samples: fewer may all be from delayed ACKs. The queue holds
# window * (rtt - base) / base segments.
(when (&& fresh (! (|| Flow.in_recovery recovering)))
    (:= Report.rounds (+ Report.rounds 1))
    (:= Report.rtt round_rtt)
    (:= Report.waiting (/ (* (/ Cwnd Flow.mss) (diff round_rtt Report.base)) Report.base))
    (report)
    (if (< Cwnd Ssthresh)
        # Slow start ends with a queue, at the round's rate times the base RTT plus one segment.
        (if (&& (> round_samples 2) (> Report.waiting gamma))
            (do (:= Cwnd (min Cwnd (+ (/ (* Cwnd Report.base) round_rtt) Flow.mss)))
                (:= Ssthresh (min Ssthresh Cwnd))))
        (if (|| (<= round_samples 2) (< Report.waiting alpha))
            (if Flow.cwnd_limited (:= Cwnd (+ Cwnd Flow.mss)))
            (if (> Report.waiting beta)
                (do (:= Cwnd (max (diff Cwnd Flow.mss) (* 2 Flow.mss)))
                    (:= Ssthresh (min Ssthresh Cwnd))))))
    (fallthrough))
(when fresh
    (:= round_acked 0)
    (:= round_size Flow.bytes_in_flight)
    (:= round_began Ack.now)
    (:= round_samples 0)
    (:= round_rtt +infinity)
    (fallthrough))

(when (&& (> Ack.bytes_acked 0) Flow.cwnd_limited (|| in_loss (! (|| Flow.in_recovery recovering))))
    (:= Cwnd (+ Cwnd (min (* Flow.mss (+ Ack.packets_acked Ack.packets_misordered)) (diff Ssthresh Cwnd))))
    (fallthrough))
(when true
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (:= in_loss (&& in_loss recovering))
    (:= Report.cwnd Cwnd))
