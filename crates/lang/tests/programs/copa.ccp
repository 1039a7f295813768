# Copa: twice in a base RTT.
(def
    (Report
        (volatile acked 0) (volatile sacked 0) (volatile loss 0) (volatile timeout false) (volatile rtt 0)
        (volatile inflight 0) (volatile now 0) (volatile minrtt +infinity))
    (basertt +infinity))
(when true
    (:= Report.inflight Flow.packets_in_flight)
    (:= Report.rtt Flow.rtt_sample_us)
    (:= Report.minrtt (min Report.minrtt Flow.rtt_sample_us))
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.sacked (+ Report.sacked Ack.packets_misordered))
    (:= Report.loss Ack.lost_pkts_sample)
    (:= Report.timeout Flow.was_timeout)
    (:= Report.now Ack.now)
    (fallthrough))
(when (|| Report.timeout (> Report.loss 0))
    (:= Micros 0)
    (report))
(when (> Micros (/ basertt 2))
    (:= Micros 0)
    (report))
