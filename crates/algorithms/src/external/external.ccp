# Totals since the last decision. DECIDE is replaced by the condition for the next one.
(def
    (Report
        (volatile arrived 0) (volatile lost 0) (volatile timeouts 0)
        (volatile samples 0) (volatile rtt_sum 0)
        (sent 0) (delivered 0) (cwnd 0) (in_flight 0) (base +infinity) (mss 0))
    (held 0) (again 0))
(when true
    # Data acknowledged out of order is acknowledged again, in order, when the hole is filled.
    (:= again (min held Ack.bytes_acked))
    (:= held (diff (+ held Ack.bytes_misordered) again))
    (:= Report.arrived (+ Report.arrived (diff (+ Ack.bytes_acked Ack.bytes_misordered) again)))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.timeouts (+ Report.timeouts (if Flow.was_timeout 1 0)))
    # The window is set externally: recovery must not reduce it.
    (if Flow.in_recovery (:= Ssthresh 18446744073709551615))
    (fallthrough))
(when (&& (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0))
    (:= Report.samples (+ Report.samples 1))
    (:= Report.rtt_sum (+ Report.rtt_sum Flow.rtt_sample_us))
    (fallthrough))
(when DECIDE
    (:= Report.sent Flow.rate_outgoing)
    (:= Report.delivered Flow.rate_incoming)
    (:= Report.cwnd Cwnd)
    (:= Report.in_flight Flow.bytes_in_flight)
    (:= Report.base Flow.min_rtt_us)
    (:= Report.mss Flow.mss)
    (:= Micros 0)
    (report))
