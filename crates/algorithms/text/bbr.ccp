# BBR version 1 entirely in the datapath. Same as the algorithm `bbr` with `policer=false`, whose
# agent decides what takes rounds, except for the window allowance for ACK aggregation, which does
# not fit. Gains are in units of 1/10,000, pacing gains 1 % lower. Quoted names are from Linux
# (tcp_bbr.c).
(algorithm text_bbr
    (about "BBR version 1, as in Linux 6.x, without policers and without a surplus for ACKs in lumps")
    (needs cwnd pacing rtt delivery_rate)
    (param probe_rtt_interval 10s 1s 1000s))

(def
    (const NONE 18446744073709551615)
    (Report (bw 0) (min_rtt +infinity) (gain 28561) (window 0))
    (full false) (draining 0) (cwnd_gain 28850) (phase 8) (stamp 0) (rtt_since 0) (dip_until 0)
    (passed 0) (round_end 0) (sample 0) (bw_now 0) (bw_before 0) (bw_rounds 0) (counts_from 0) (grown_from 0) (same 0)
    (prior 0) (conserving 0))

# Measurement. An application-limited sample counts only if it is the maximum.
(when true
    (:= newly (* (+ Ack.packets_acked Ack.packets_misordered) Flow.mss))
    (:= left (+ newly (* Ack.lost_pkts_sample Flow.mss)))
    (:= passed (+ passed left))
    (:= bw (if (> Flow.rate_outgoing 0) (min Flow.rate_incoming Flow.rate_outgoing) Flow.rate_incoming))
    (if (|| (! Flow.app_limited) (>= bw Report.bw)) (:= sample (max sample bw)))
    (:= bw (max Report.bw sample))
    # Until the bandwidth is known: the window per round trip, times 2/ln 2.
    (if (&& (== Report.min_rtt +infinity) (< Flow.rtt_sample_us +infinity))
        (:= Rate (/ (* 2885000 (max Cwnd (* 10 Flow.mss))) Flow.rtt_sample_us)))
    (if (|| Flow.was_timeout Flow.undone) (:= grown_from 0))
    # An expired minimum RTT is replaced by any sample (`bbr_update_min_rtt`).
    (:= due (&& (< Flow.rtt_sample_us +infinity) (> (diff Ack.now rtt_since) probe_rtt_interval) (< Report.min_rtt +infinity)))
    (if (|| due (< Flow.rtt_sample_us Report.min_rtt))
        (do (:= Report.min_rtt Flow.rtt_sample_us)
            (:= rtt_since Ack.now)))
    (fallthrough))
# Then PROBE_RTT: four segments in flight for 200 ms, after the round trips that empty the pipe.
(when (&& due (== dip_until 0) (! Flow.app_limited))
    (:= prior (max Report.window prior))
    (:= dip_until (+ Ack.now 200000 (* 2 Flow.srtt_us)))
    (fallthrough))
(when (&& (> dip_until 0) (> Ack.now dip_until))
    (:= dip_until 0)
    (:= rtt_since Ack.now)
    (:= counts_from (+ passed prior))
    (if full (:= phase 9))
    (fallthrough))

# A round ends with the first ACK of data sent after it began. The bandwidth is the maximum of six
# to twelve rounds (`bbr_bw_rtts`: ten), excluding PROBE_RTT.
(when (> passed round_end)
    (:= round_end (+ passed Flow.bytes_in_flight))
    (if (&& (> sample 0) (|| (>= sample Report.bw) (&& (== dip_until 0) (> passed counts_from))))
        (do (:= bw_rounds (+ bw_rounds 1))
            (if (> bw_rounds 6) (do (:= bw_rounds 1) (:= bw_before bw_now) (:= bw_now 0)))
            (:= bw_now (max bw_now sample))))
    (:= Report.bw (max bw_now bw_before))
    (:= bw Report.bw)
    # The pipe is full after three rounds with less than a quarter more bandwidth
    # (`bbr_check_full_bw_reached`). Then the queue drains.
    (if (&& (> sample 0) (! full) (== dip_until 0))
        (if (>= bw (* grown_from 1.25))
            (do (:= grown_from bw) (:= same 0))
            (do (:= same (+ same 1))
                (if (>= same 3) (do (:= full true) (:= Report.gain 3431) (:= draining NONE))))))
    (:= sample 0)
    (report)
    (fallthrough))

(when true
    (:= bdp (if (< Report.min_rtt +infinity) (/ (* bw Report.min_rtt) 1000000) (* 10 Flow.mss)))
    (:= budget (* 3 (max (min (/ Rate 1024) 64000) (* (if (< Rate 150000) 1 2) Flow.mss))))
    (fallthrough))
# The queue is drained. The gain cycle starts in any phase but the draining one
# (`bbr_reset_probe_bw_mode`), chosen by the clock.
(when (&& (> draining 0) (<= Flow.bytes_in_flight (min draining (+ bdp budget))))
    (:= draining 0)
    (:= phase 9)
    (fallthrough))
(when (== phase 9)
    (:= cwnd_gain 20000)
    (:= stamp Ack.now)
    (:= phase (- 8 (- Ack.now (* 7 (/ Ack.now 7)))))
    (if (== phase 8) (:= phase 0))
    (:= Report.gain (if (== phase 0) 12375 9900))
    (fallthrough))
# A phase lasts the minimum RTT. The first one also lasts until there is a loss or 1.25 BDP in
# flight. The second ends early once at most a BDP is in flight (`bbr_is_next_cycle_phase`).
(when (< phase 8)
    (:= due (> (diff Ack.now stamp) Report.min_rtt))
    (if (== phase 0)
        (:= due (&& due (|| (> Ack.lost_pkts_sample 0)
            (>= (+ Flow.bytes_in_flight left) (+ (* bdp 1.25) budget (* 2 Flow.mss)))))))
    (if (== phase 1) (:= due (|| due (<= (+ Flow.bytes_in_flight left) (+ bdp budget)))))
    (if due
        (do (:= phase (if (== phase 7) 0 (+ phase 1)))
            (:= stamp Ack.now)
            (:= Report.gain (if (== phase 0) 12375 (if (== phase 1) 7425 9900)))))
    (fallthrough))

# Pacing, without gain in PROBE_RTT and after an idle period. Until the pipe is full the rate only
# increases.
(when true
    (:= bw (/ (* bw (if (|| (== Flow.bytes_pending 0) (> dip_until 0)) 9900 Report.gain)) 10000))
    (if (|| full (> bw Rate)) (:= Rate bw))
    (fallthrough))
# A recovery begins: packet conservation for one round. The window before it is restored at its end.
(when (&& (|| Flow.in_recovery Flow.was_timeout) (== prior 0))
    (:= prior (max Report.window Cwnd))
    (:= round_end (+ passed Flow.bytes_in_flight))
    (:= conserving (if Flow.was_timeout 0 round_end))
    (:= Cwnd (+ Flow.bytes_in_flight newly))
    (fallthrough))
(when Flow.was_timeout
    (:= Report.window Flow.mss)
    (:= Cwnd Flow.mss)
    (report))
(when (&& (> prior 0) (! Flow.in_recovery) (== dip_until 0))
    (:= Cwnd (max Cwnd prior))
    (:= prior 0)
    (fallthrough))
# The window grows by the data delivered towards the model's, and not beyond it once the pipe is
# full. ssthresh is infinite in recovery.
(when true
    (:= target (+ (/ (* bdp cwnd_gain) 10000) budget (if (== phase 0) (* 2 Flow.mss) 0)))
    (if full
        (:= Report.window (min (+ Cwnd newly) target))
        (:= Report.window (if (|| (< Cwnd target) (< passed (* 10 Flow.mss))) (+ Cwnd newly) Cwnd)))
    (:= Report.window (max Report.window (* 4 Flow.mss)))
    (if (&& Flow.in_recovery (< passed conserving))
        (:= Report.window (max (diff Cwnd (* Ack.lost_pkts_sample Flow.mss)) (+ Flow.bytes_in_flight newly))))
    (if (> dip_until 0) (:= Report.window (min Report.window (* 4 Flow.mss))))
    (:= Ssthresh (if Flow.in_recovery NONE Report.window))
    (:= Cwnd Report.window))
