# Nimbus: both rates every 5 ms, or at once on loss.
(def
    (Report (volatile rtt 0) (volatile rin 0) (volatile rout 0) (volatile loss 0) (volatile timeout false) (volatile acked 0))
    (every 5000))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.rtt Flow.rtt_sample_us)
    (:= Report.rin Flow.rate_outgoing)
    (:= Report.rout Flow.rate_incoming)
    (:= Report.loss (+ Report.loss Ack.lost_pkts_sample))
    (:= Report.timeout Flow.was_timeout)
    (fallthrough))
(when (|| Report.timeout (> Report.loss 0)) (report) (:= Micros 0))
(when (> Micros every) (report) (:= Micros 0))
