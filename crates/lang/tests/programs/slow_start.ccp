# Slow start in the datapath: the window grows by what is acknowledged, the agent hears of loss
# only.
(def (Report (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false) (volatile rtt 0) (volatile inflight 0)))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
    (:= Report.loss Ack.lost_pkts_sample)
    (:= Report.timeout Flow.was_timeout)
    (:= Report.rtt Flow.rtt_sample_us)
    (:= Report.inflight Flow.packets_in_flight)
    (:= Cwnd (+ Cwnd Ack.bytes_acked))
    (fallthrough))
(when (|| Report.timeout (> Report.loss 0)) (report))
