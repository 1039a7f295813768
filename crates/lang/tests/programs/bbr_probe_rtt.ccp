# BBR's RTT probe: once few packets are in flight, for an RTT and 200 ms at least, then a report.
(def
    (Report (volatile minrtt +infinity))
    (volatile drained 0))
(when true
    (:= Report.minrtt (min Report.minrtt Flow.rtt_sample_us))
    (fallthrough))
(when (&& (== drained 0) (|| (< Flow.packets_in_flight 4) (== Flow.packets_in_flight 4)))
    (:= drained 1)
    (:= Micros 0))
(when (&& (== drained 1) (&& (> Micros Flow.rtt_sample_us) (> Micros 200000)))
    (:= Micros 0)
    (report))
