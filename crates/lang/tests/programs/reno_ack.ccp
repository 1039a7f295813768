# A report at every ACK.
(def (Report (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false) (volatile rtt 0) (volatile inflight 0)))
(when true
    (:= Report.inflight Flow.packets_in_flight)
    (:= Report.rtt Flow.rtt_sample_us)
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
    (:= Report.loss Ack.lost_pkts_sample)
    (:= Report.timeout Flow.was_timeout)
    (report))
