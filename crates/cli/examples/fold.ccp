# Runs in the datapath at every ACK, and reports once a round trip, or at once when losses begin.
(def (Report (volatile lost false)) (repairing false))
(when (|| Flow.was_timeout (&& Flow.in_recovery (! repairing)))   # losses: once an episode
    (:= Report.lost true)
    (:= repairing true)
    (:= Micros 0)
    (report))
(when (> Micros Flow.srtt_us)                                     # a timer: a round trip has passed
    (:= repairing Flow.in_recovery)
    (:= Micros 0)
    (report))
