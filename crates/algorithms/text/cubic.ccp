# Cubic entirely in the datapath. Same as the algorithm `cubic` with `hystart=off`. Integer
# arithmetic: times in ms, windows in bytes. The cube root is computed by Newton's method, one step
# per ACK: starting from the last stage's value, it converges long before it matters.
(algorithm text_cubic
    (about "Cubic (RFC 9438), without HyStart")
    (needs cwnd rtt recovery)
    (param back 0.7 0.5 0.95))

(def
    (Report (volatile acked 0) (volatile lost 0) (cwnd 0) (ssthresh 0) (k_ms 0) (w_max 0))
    (recovering false) (in_loss false) (before 0) (w_before 0)
    (began 0) (running false) (k 1000) (cube 0) (t 0) (apart 0) (cubic 0) (ahead 0) (friendly 0) (target 0)
    (left 0) (slow 0) (credit 0) (every 0) (steps 0))

(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (fallthrough))

# One reduction per recovery. A window below the last plateau indicates new flows, to which it
# yields more (fast convergence, RFC 9438, 4.7).
(when (! (|| recovering Flow.was_timeout))
    (:= before Cwnd)
    (fallthrough))
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= w_before Report.w_max)
    (:= Report.w_max (if (< before Report.w_max) (/ (* before 17) 20) before))
    (:= running false)
    (:= Ssthresh (* Flow.mss (max 2 (/ (* before back) Flow.mss))))
    (:= credit 0)
    (report)
    (fallthrough))
# Restores the plateau after a spurious reduction (section 4.9), which the transport has undone.
(when Flow.undone
    (:= Report.w_max w_before)
    (:= running false)
    (fallthrough))
# After a timeout the next stage starts at its plateau (section 4.8).
(when Flow.was_timeout
    (:= in_loss true)
    (:= Report.w_max 0)
    (:= running false)
    (fallthrough))

(when (&& (> Ack.bytes_acked 0) Flow.cwnd_limited (|| in_loss (! (|| Flow.in_recovery recovering))))
    (:= left (* Flow.mss (+ Ack.packets_acked Ack.packets_misordered)))
    (:= slow (min left (diff Ssthresh Cwnd)))
    (:= Cwnd (+ Cwnd slow))
    (:= left (- left slow))
    # The stage begins with the first byte that counts. K^3 = (W_max - cwnd) / C segments, C = 0.4
    # segments/s^3 (equation 2).
    (if (&& (> left 0) (! running))
        (do (:= running true)
            (:= began Ack.now)
            (:= friendly Cwnd)
            (:= Report.w_max (max Report.w_max Cwnd))
            (:= cube (/ (* (diff Report.w_max Cwnd) 2500000000) Flow.mss))))
    (:= k (max 1 (/ (+ (* 2 k) (/ cube (* k k))) 3)))
    (:= Report.k_ms k)
    # W_cubic(t) = W_max + C (t - K)^3 (equation 1), now and one RTT ahead.
    (:= t (/ (diff Ack.now began) 1000))
    (:= apart (max (diff t k) (diff k t)))
    (:= cubic (/ (* Flow.mss apart apart apart) 2500000000))
    (:= cubic (if (< t k) (diff Report.w_max cubic) (+ Report.w_max cubic)))
    (:= t (+ t (if (< Flow.srtt_us +infinity) (/ Flow.srtt_us 1000) 0)))
    (:= apart (max (diff t k) (diff k t)))
    (:= ahead (/ (* Flow.mss apart apart apart) 2500000000))
    (:= ahead (if (< t k) (diff Report.w_max ahead) (+ Report.w_max ahead)))
    # W_est, the Reno-friendly window: 3 (1 - 0.7) / (1 + 0.7) segments per RTT (section 4.3,
    # equation 4).
    (:= friendly (+ friendly (/ (* 9 Flow.mss left) (* 17 Cwnd))))
    (:= target (if (< cubic friendly) (+ friendly (/ (* 9 Flow.mss) 17)) ahead))
    # At most half a window more per RTT (section 4.2). No growth if the window is above the target.
    (:= target (min target (/ (* 3 Cwnd) 2)))
    (:= every (max Flow.mss (/ (* Cwnd Flow.mss) (max 1 (diff target Cwnd)))))
    (:= credit (+ (min credit every) left))
    (:= steps (/ credit every))
    (:= credit (diff credit (* steps every)))
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
