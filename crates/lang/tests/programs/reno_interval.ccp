# Reno and Cubic: totals over an interval that the agent sets, a report at its end, at once on loss
# or timeout.
(def
    (Report (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false) (volatile rtt 0) (volatile inflight 0))
    (interval 0))
(when true
    (:= Report.inflight Flow.packets_in_flight)
    (:= Report.rtt Flow.rtt_sample_us)
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
    (:= Report.loss Ack.lost_pkts_sample)
    (:= Report.timeout Flow.was_timeout)
    (fallthrough))
(when (|| Report.timeout (> Report.loss 0)) (report) (:= Micros 0))
(when (> Micros interval) (report) (:= Micros 0))
