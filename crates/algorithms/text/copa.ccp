# Copa's default mode entirely in the datapath. Same as the algorithm `copa` with `mode=default`,
# whose agent keeps RTT_min and the velocity. It has no competitive mode for buffer-filling cross
# traffic.
(algorithm text_copa
    (about "Copa (NSDI 2018), default mode: 1/delta packets in the queue")
    (needs cwnd pacing rtt)
    (param packets 2 1 100))                # 1/delta

(def
    (Report (volatile acked 0) (volatile lost 0) (base +infinity) (standing +infinity) (queued 0) (velocity 1) (cwnd 0))
    (base_recent +infinity) (base_older +infinity) (base_began 0)
    (recent +infinity) (older +infinity) (bucket 0) (age 0)
    (unit 0) (up true) (slow true) (in_loss false)
    (upwards true) (same 0) (last 0)
    (pace 0) (credit 0) (step 0) (window 0))

(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= unit (* packets Flow.mss))
    (fallthrough))

# RTT_min is the minimum of the last 5 to 10 s, RTT_standing the minimum of the last quarter to half
# of a smoothed RTT, each kept in two buckets (section 2.1).
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.bytes_acked Ack.bytes_misordered) 0))
    (if (> (diff Ack.now base_began) 5s)
        (do (:= base_older base_recent)
            (:= base_recent +infinity)
            (:= base_began Ack.now)))
    (:= base_recent (min base_recent Flow.rtt_sample_us))
    (:= Report.base (min base_recent base_older))
    (:= age (diff Ack.now bucket))
    (if (> age (/ Flow.srtt_us 4))
        (do (:= older (if (> age (/ Flow.srtt_us 2)) +infinity recent))
            (:= recent +infinity)
            (:= bucket Ack.now)))
    (:= recent (min recent Flow.rtt_sample_us))
    (:= Report.standing (min recent older))
    # The flow's bytes in the queue. The window grows while they are at most 1/delta packets.
    (:= Report.queued (/ (* Cwnd (diff Report.standing Report.base)) Report.standing))
    (:= up (<= Report.queued unit))
    (fallthrough))
(when Flow.was_timeout
    (:= in_loss true)
    (:= slow true)
    (:= up true)
    (:= credit 0)
    (fallthrough))

# Slow start ends when the queue reaches its target. From then on the window moves by velocity/delta
# packets per RTT. Downwards it moves by half of the excess, which does not oscillate on long and
# fast paths.
(when true
    (:= slow (&& slow up))
    (:= step Ack.bytes_acked)
    (if (! slow)
        (do (:= pace (* unit (if (== up upwards) Report.velocity 1)))
            (if (! up) (:= pace (max unit (/ (diff Report.queued unit) 2))))
            (:= credit (+ credit (* Ack.bytes_acked pace)))
            (:= step (/ credit Cwnd))
            (:= credit (diff credit (* step Cwnd)))))
    (:= window (if up (+ Cwnd (if Flow.cwnd_limited step 0)) (max (diff Cwnd step) (* 2 Flow.mss))))
    (:= in_loss (&& in_loss (|| Flow.in_recovery Flow.was_timeout)))
    # No reduction for a loss: ssthresh, the target of the datapath's reduction, is the window that
    # Copa wants.
    (if (&& Flow.in_recovery (! in_loss)) (:= Ssthresh window) (:= Cwnd window))
    (if (< Report.standing +infinity) (:= Rate (/ (* 2000000 window) Report.standing)))
    (:= Report.cwnd window)
    (fallthrough))

# Once per round trip: the velocity doubles if the window moved in the same direction four times,
# and at most doubles the window.
(when (> Micros (max Flow.srtt_us 1ms))
    (:= Micros 0)
    (report)
    (if (|| slow (!= upwards (> window last)))
        (do (:= Report.velocity 1) (:= same 0))
        (do (:= same (+ same 1))
            (if (>= same 4) (:= Report.velocity (min (* 2 Report.velocity) (max 1 (/ window unit)))))))
    (:= upwards (|| slow (> window last)))
    (:= last window))
