//! The datapath program: measurements of each tick, the rate, and the queue controller of
//! traffic-passing mode.

use crate::rules::Rules;

/// Returns the program. With the paper's rules only the queue controller's α differs.
pub(super) fn program(rules: Rules) -> String {
    let scale = match rules {
        Rules::Extended => "50000",
        Rules::Paper => "100000",
    };
    TEMPLATE.replace("SCALE", scale)
}

/// The program, in which `SCALE` stands for 10⁶ over α. Its queue controller is a PI controller
/// (Bundler paper, section 5.1): dr/dt = α(q − q_T) + β dq/dt with α = 20 s⁻² (10 in the paper) and
/// β = 10 s⁻¹, q and r in bytes. Its characteristic roots are −2.8 and −7.2 s⁻¹: it settles within
/// a second and attenuates a 5 Hz pulse by 3 %. A larger β attenuates the pulse more. A smaller α
/// finds the rate more slowly: the paper's has a root of −1.1 s⁻¹, and the gateway's initial queue
/// takes that long to drain. The controller runs in the datapath because it needs the current
/// queue.
///
/// The rate is the controller's only state: it stays at a bound without windup.
///
/// `calm` is set for a watcher that follows another bundle's pulse. The controller's rate is then
/// low-passed twice at 4 Hz, by a fifth per tick. End hosts are ACK-clocked, so their rate follows
/// the other bundle's pulse. The controller passes 0.31 of that oscillation at 5 Hz, and 0.14 with
/// `calm`. With more, the pulser mistakes it for elastic traffic and enters traffic-passing mode.
/// The controller's roots are then −2.5, −38 and −5 ± 10i s⁻¹.
///
/// `Rate` is 0 without a limit. All values from the agent are cleared then, so that none applies
/// when a limit begins. A gateway decides that by itself. On a transport the program performs slow
/// start, and the limit begins as in a gateway, when the RTT exceeds the minimum by a quarter and
/// 0.5 ms, or at a loss: at the receive rate.
///
/// `Micros` is not part of a clause's condition and therefore sets no timer: a timer run would see
/// the queue of the last tick. An interval is a tenth shorter than the 10 ms tick, so that an early
/// tick counts.
const TEMPLATE: &str = "(def
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
                (do (:= more (+ (/ (* (diff Flow.bytes_pending goal) Micros) SCALE) \
                    (* 10 (diff Flow.bytes_pending queue))))
                    (:= less (+ (/ (* (diff goal Flow.bytes_pending) Micros) SCALE) \
                        (* 10 (diff queue Flow.bytes_pending))))
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
