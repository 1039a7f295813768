# Runs in the datapath on every ACK. Reports once per round trip, and at the first loss of
# an episode.
(def (Report (volatile lost false)) (repairing false))
(when (|| Flow.was_timeout (&& Flow.in_recovery (! repairing)))   # once per loss episode
    (:= Report.lost true)
    (:= repairing true)
    (:= Micros 0)
    (report))
(when (> Micros Flow.srtt_us)                                     # a round trip has passed
    (:= repairing Flow.in_recovery)
    (:= Micros 0)
    (report))
