//! What runs in the datapath: the figures of each tick, the rate, and in traffic-passing mode the
//! queue's controller.

/// The queue's controller, in proportion to the queue and to its change (the Bundler paper's
/// section 5.1): dr/dt = α(q − q_T) + β dq/dt with α = 20 s⁻² (ours; the paper has 10) and β = 10
/// s⁻¹, q and r in bytes. Its characteristic roots are -2.8 and -7.2 s⁻¹: it settles within a
/// second, and takes 3 % off a pulse of 5 Hz. A larger β takes more of the pulse. A smaller α is
/// slower to find the rate: the paper's has a root of -1.1 s⁻¹, and what stood in the gateway when
/// it began to pass stays for so long. It runs here because it needs the queue of now.
///
/// It is its own state: at a bound it stays there, and nothing adds up behind it.
///
/// `calm` is true for a watcher that follows another's pulse. Then the controller's rate is
/// low-passed at 4 Hz, twice: a fifth of the way each tick. The end hosts have ACK clocks, so that
/// what they send swings with the other's pulse. At 5 Hz the controller lets 0.31 of that swing
/// through, and 0.14 while calm. More, and the other takes it for elastic traffic and passes
/// because of it. The controller's roots are then -2.5, -38 and -5 ± 10i s⁻¹.
///
/// `Rate` is 0 while nothing is limited: then everything that an agent said is void, so that
/// nothing of it is in force when a limit comes. A gateway alone decides that it comes. On a
/// transport the program does slow start, and the limit comes as in a gateway, when the RTT is a
/// quarter and 0.5 ms over the shortest, or with a loss: at the rate that arrives.
///
/// `Micros` stands in no condition of a clause, so that it is no timer: a run by timer sees the
/// queue of the last tick. An interval is a tenth shorter than a tick of 10 ms, so that a tick that
/// is early counts.
pub(super) const PROGRAM: &str = "(def
    (Report
        (volatile acked 0) (volatile lost 0) (sent 0) (received 0) (rtt +infinity) (base +infinity)
        (volatile limited false) (open true))
    (const INTERVAL 9ms)
    (const SLACK 500us)
    (passing false) (from 0) (delay 0) (up 0) (down 0) (goal 0) (least 0) (most 0) (window 0)
    (calm false) (was false) (pace 0) (soft 0) (softer 0) (queue 0) (more 0) (less 0))
(when true
    (:= Report.open (== Rate 0))
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= Report.limited (|| Report.limited Flow.app_limited))
    (:= Report.base Flow.min_rtt_us)
    (fallthrough))
(when (< Flow.rtt_sample_us +infinity)
    (:= Report.rtt Flow.rtt_sample_us)
    (fallthrough))
(when (&& (> Flow.rate_outgoing 0) (> Flow.rate_incoming 0))
    (:= Report.sent Flow.rate_outgoing)
    (:= Report.received Flow.rate_incoming)
    (fallthrough))
(when Report.open
    (:= passing false) (:= was false) (:= delay 0) (:= up 0) (:= down 0) (:= window 0) (:= pace 0)
    (if Flow.cwnd_limited (:= Cwnd (+ Cwnd Ack.bytes_acked)))
    (if (&& (> Report.received 0) (< Flow.min_rtt_us +infinity)
            (|| (> Ack.lost_pkts_sample 0) (> Report.rtt (+ SLACK (* Flow.min_rtt_us 1.25)))))
        (:= Rate Report.received))
    (fallthrough))
(when (! Report.open)
    (if (> Micros INTERVAL)
        (do (if (&& passing (! was))
                (do (:= pace from) (:= soft from) (:= softer from) (:= queue Flow.bytes_pending)))
            (if passing
                (do (:= more (+ (/ (* (diff Flow.bytes_pending goal) Micros) 50000) (* 10 (diff Flow.bytes_pending queue))))
                    (:= less (+ (/ (* (diff goal Flow.bytes_pending) Micros) 50000) (* 10 (diff queue Flow.bytes_pending))))
                    (:= pace (min most (max least (diff (+ pace more) less))))
                    (:= soft (/ (+ (* 4 soft) pace) 5))
                    (:= softer (/ (+ (* 4 softer) soft) 5)))
                (:= pace delay))
            (:= queue Flow.bytes_pending)
            (:= was passing)))
    (if (> pace 0) (:= Rate (max least (diff (+ (if (&& passing calm) softer pace) up) down))))
    (if (&& Flow.in_recovery (> window 0)) (:= Ssthresh 18446744073709551615))
    (if (> window 0) (:= Cwnd window))
    (fallthrough))
(when true
    (if (> Micros INTERVAL)
        (do (:= Micros 0) (report))))
";
