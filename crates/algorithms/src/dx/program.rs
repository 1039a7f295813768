//! The datapath program: it samples the delay, decides, and paces windows below a packet.
//!
//! Terms of the paper, per decision: Q, the mean one-way queueing delay of the packets, is
//! `Report.queue`; W, the window, is `Report.window`; R, the base round-trip time, is
//! `Report.base`. V = R·W/(W − 1) is the divisor of the decrease and has no variable. Delays are in
//! ns, windows in bytes.

use super::{Delay, Dx, Headroom, Samples, WindowRounding};
use crate::loss_reduction::DELIVERED_BYTES;
use crate::rules::Rules;

/// Minimum window: one packet per 100 RTTs, as in this crate's Swift. A larger minimum fills the
/// queue in an incast of as many flows as the path holds packets. A smaller one leaves a flow
/// without feedback for too long.
const WINDOW_MIN: &str = "(/ Flow.mss 100)";

/// Maximum window, bytes: products with 10⁹ and with 2³² ns fit in 64 bits.
const WINDOW_MAX_BYTES: u64 = 1 << 32;

/// Packets whose mean delay must exceed the headroom to end slow start. With fewer, a collision of
/// two flows' packets ends it. With more, the window grows by that many packets before it ends.
const SLOW_START_EXIT_SAMPLES: u64 = 4;

/// Packets per train, whose mean interarrival time is an upper bound of the packet time. A token
/// bucket passes a burst at once: with 32 packets, a burst of 2½ causes an error of a twelfth. A
/// shorter train has a larger error. With a longer one, a window of one packet takes as many round
/// trips to measure its path.
pub(super) const TRAIN_PACKETS: u64 = 32;

/// Factor applied to the window at the end of slow start. The packet that saw the queue was sent a
/// round trip ago. Since then, paced at W/R, the window has grown by a factor of 1.76: growth
/// follows W one RTT earlier, so e^x = 1/x at x = 0.567, and e^0.567 = 1.76. A smaller factor
/// leaves the link idle until additive increase has filled it. A larger one leaves a queue.
const SLOW_START_EXIT_FACTOR: &str = "9/16";

/// Samples per block, from which the agent gets a mean and a spread. With fewer, the error exceeds
/// half the spread. With more, a flow of few packets takes too long.
const BLOCK_SAMPLES: u64 = 64;

/// Half of the steps in a block: increases and decreases balance, and only increases are summed.
const BLOCK_INCREASES: u64 = (BLOCK_SAMPLES - 1) / 2;

/// Fraction of a packet by which a window may fall short of the next integer and still be rounded
/// up, as the datapath takes whole packets. Always rounding up gives each of many small flows a
/// packet too much. Rounding down leaves the link idle by a fraction of a packet (`window=floor` is
/// the extreme case).
const WINDOW_ROUNDING: &str = "(* Flow.mss 3/4)";

/// Increase below four packets: a quarter of the window, because a whole packet would exceed the
/// total share on a small path. At least a sixteenth of a packet, so that the smaller of two shares
/// grows faster. Not in DX, whose minimum is one packet.
const SMALL_WINDOW_INCREASE: &str = "(min Flow.mss (max (/ Flow.mss 16) (/ Report.window 4)))";

/// Minimum headroom: a fraction of the base RTT, up to 10 packets. Bursts of other flows, ten
/// packets at their start (RFC 6928), are not a queue that a decrease would drain. With less, long
/// flows lose throughput to them (`ccplane paper dx-fattree`: with one packet they take up to twice
/// as long as DCTCP's). With more, the queue is longer; on a path of 100 ms it would be 6 ms. Not
/// in DX.
const BURST_HEADROOM: &str = "(min (/ Report.base 16) (* 10 Report.packet))";

/// Delay of this packet and its ACK inside both hosts, ns: TCP's RTT minus the RTT from time
/// stamps. A queue of this length is treated as none. A busy host processes several ACKs at once
/// and sends a burst, whose packets queue behind each other. Without this headroom, two flows use a
/// tenth of 1 Gbit/s (`ccplane bench dx`, table in docs/performance.md). It is zero for hosts that
/// respond immediately. Not in DX.
const HOST_DELAY: &str = "(diff (* 1000 Flow.rtt_sample_us) Ack.rtt_ns)";

/// Decrease below two packets, where V diverges: half of the amount that drains the queue,
/// W·Q/(R+Q), which is `V = R + Q`. Half, because the next packet was scheduled before this
/// decision. Not in DX.
const SMALL_WINDOW_DECREASE: &str =
    "(/ (* Report.window Report.queue) (* 2 (+ Report.base Report.queue)))";

/// Decrease: W·Q/V = (W − 1)·Q/R with V = R·W/(W − 1) (facts/dx.md 1.3, which reproduces the
/// example of slide 24). Q is limited to R, so Q/V stays below 1.
///
/// The whole of Q counts, not only the part above the headroom, which would keep the link from ever
/// being idle and cost long flows less. A new flow must find the queue empty at times. Otherwise it
/// takes the standing queue for propagation delay, and each of many flows that start one after the
/// other leaves its own headroom standing (30 flows at 10 Gbit/s: 118 µs, and some starve).
const WINDOW_DECREASE: &str =
    "(/ (* (diff Report.window Flow.mss) (min Report.queue Report.base)) Report.base)";

/// R: the base RTT, which the window has to fill.
const EXTENDED_BASE: &str =
    "# Stamps exclude the delay inside the hosts, which the window has to cover as well.
    (:= Report.base (* 1000 Flow.min_rtt_us))
    (if Report.stamped (:= Report.base (max Report.base Flow.min_rtt_ns)))
    # The path holds at least one packet: a token bucket passes a single packet faster than its
    # transmission time.
    (if (< Report.packet +infinity) (:= Report.base (max Report.base Report.packet)))";

/// R of slide 18: the minimum of (t4 − t1) − (t3 − t2), without the hosts' delay.
const PAPER_BASE: &str = "(:= Report.base (if Report.stamped Flow.min_rtt_ns \
                          (* 1000 Flow.min_rtt_us)))";

/// Pacing of slow start and of windows below two packets (`r`).
const EXTENDED_PACING: &str = "# 1000gbit disables pacing.
    (:= Rate (if (&& (< Flow.min_rtt_us +infinity) (|| slow (< Report.window r)))
        (/ (* Report.window 1000000000) Report.base)
        (if (> Rate 0) 1000gbit 0)))";

/// Window-limited sending. A rate that another algorithm set is replaced by 1000gbit.
const UNPACED: &str = "(:= Rate (if (> Rate 0) 1000gbit 0))";

/// Text of the program that the rules determine.
struct RuleClauses {
    /// Sets R, `Report.base`.
    base: &'static str,
    /// Minimum samples of a decision.
    fewest_samples: String,
    /// Changes the window if there is a queue.
    decrease: String,
    /// Condition of an increase if there is no queue. A window of fewer than two packets (`r`) is
    /// limited by pacing, if at all.
    growth: &'static str,
    /// Increase, bytes.
    increase: &'static str,
    /// Minimum window, bytes.
    window_min: &'static str,
    /// Bytes added to the window before it is rounded down to whole packets.
    rounding: &'static str,
    /// Pacing rate, if pacing is possible.
    paced: &'static str,
}

impl RuleClauses {
    fn new(rules: Rules) -> RuleClauses {
        match rules {
            Rules::Extended => RuleClauses {
                base: EXTENDED_BASE,
                fewest_samples: format!("(if slow {SLOW_START_EXIT_SAMPLES} 1)"),
                decrease: format!(
                    "(:= Report.window (if slow (* Report.window {SLOW_START_EXIT_FACTOR})
                (- Report.window (if (< Report.window r) {SMALL_WINDOW_DECREASE} \
                    {WINDOW_DECREASE}))))"
                ),
                growth: "(|| Flow.cwnd_limited (< Report.window r))",
                increase: SMALL_WINDOW_INCREASE,
                window_min: WINDOW_MIN,
                rounding: WINDOW_ROUNDING,
                paced: EXTENDED_PACING,
            },
            Rules::Paper => RuleClauses {
                base: PAPER_BASE,
                fewest_samples: "1".to_owned(),
                decrease: format!("(:= Report.window (- Report.window {WINDOW_DECREASE}))"),
                growth: "Flow.cwnd_limited",
                increase: "Flow.mss",
                window_min: "Flow.mss",
                rounding: "0",
                paced: UNPACED,
            },
        }
    }
}

impl Dx {
    /// Returns whether the program measures the packet time at the slowest link. The paper's rules
    /// need it only for a headroom that depends on it.
    pub(super) fn measures_packet_time(&self) -> bool {
        let used = self.rules == Rules::Extended || !matches!(self.headroom, Headroom::Time(_));
        self.rate.is_none() && used
    }

    /// Returns the program. `left` counts delivered bytes down: first those in flight at the last
    /// decision, then the sampled window. `sum` is the sum of delays from time stamps, or the
    /// minimum of those from the RTT.
    ///
    /// The packet time at the slowest link (`packet`) is measured in two ways. Each measurement
    /// moves it by a step, which tracks the 20 % quantile: 1/16 down or 1/64 up. The first one is
    /// taken as is. A minimum would not be robust: a single late time stamp makes the next train
    /// too short by any amount.
    ///
    /// A train yields its packets' mean interarrival time at the receiver. The arrival is the ACK's
    /// arrival minus TCP's RTT without the queue, so neither the reverse path nor delays inside the
    /// hosts affect it. It is too long if other flows share the link.
    ///
    /// A pair of packets is sent for each step of the window's growth (`pair`). If the link is busy
    /// between them, it sends the second one packet time after the first. The packet time is the
    /// difference of their queueing delays plus the time between their departures, since the sender
    /// needs some of it to send the second. Arrivals are in whole microseconds, so one is
    /// subtracted, and the difference of the delays alone is the lower bound. The first must have
    /// been queued for half of the packet time: behind a token bucket with tokens left, the second
    /// follows sooner. A time within the noise is discarded.
    pub(super) fn program(&self) -> String {
        let valid = match self.delay {
            Delay::Rtt => "false",
            Delay::Auto | Delay::Stamps => "Flow.queue_delay_valid",
        };
        let headroom = match self.headroom {
            Headroom::Auto => {
                format!("(+ noise (max Report.packet {HOST_DELAY} {BURST_HEADROOM}))")
            }
            Headroom::Time(time) => time.as_nanos().to_string(),
            Headroom::Packets(packets) => format!("(* Report.packet {packets:?})"),
        };
        let told = match self.rate {
            // Headers are at most a thirteenth of an Ethernet frame's time on the link.
            Some(rate) => format!(
                "
    (:= Report.packet (/ (* Flow.mss 1080000000) {}))",
                rate.bytes_per_sec()
            ),
            None => String::new(),
        };
        let measured = match self.measures_packet_time() {
            false => String::new(),
            true => format!(
                "
            (:= r (diff (diff (* 1000 Ack.now) (if Report.stamped \
                (diff (* 1000 Flow.rtt_sample_us) q) 0)) arrived))
            (:= arrived (+ arrived r))
            (:= train (+ train new))
            (:= r (max (diff q last) (diff r 1000)))
            (if (|| (> new Flow.mss) (<= r noise) (> r (* 2 last)) (== pair 0) (> pair new)) \
                (:= r 0))
            (if (>= train (* {TRAIN_PACKETS} Flow.mss))
                (do (if (> since 0) (:= r (/ (* (diff arrived since) Flow.mss) train)))
                    (:= since arrived)
                    (:= train 0)))
            (if (> r 0)
                (:= Report.packet (if (== Report.packet +infinity) r (if (> r Report.packet)
                    (+ Report.packet (/ Report.packet 64))
                    (- Report.packet (/ Report.packet 16))))))
            (:= last q)"
            ),
        };
        let train = match self.measures_packet_time() {
            false => "",
            true => " (train 0) (since 0) (arrived 0)",
        };
        let (next, span) = match self.samples {
            Samples::After => ("(+ Flow.bytes_in_flight Report.window)", "Report.window"),
            Samples::Window => ("Report.window", "Report.window"),
            Samples::Freshest => ("(+ Flow.bytes_in_flight 1)", "1"),
        };
        // In slow start the extended rules decide at every ACK, the paper's once per RTT.
        let (restart, next, span) = match self.rules {
            Rules::Extended => (
                "(+ Flow.bytes_in_flight (if slow 0 Report.window))".to_owned(),
                format!("(if slow 0 {next})"),
                format!("(if slow 0 {span})"),
            ),
            Rules::Paper => (next.to_owned(), next.to_owned(), span.to_owned()),
        };
        let RuleClauses {
            base,
            fewest_samples,
            decrease,
            growth,
            increase,
            window_min,
            rounding,
            paced,
        } = RuleClauses::new(self.rules);
        let whole = match self.window {
            WindowRounding::Fractional => "",
            WindowRounding::Floor => {
                "
    (:= Report.window (max Flow.mss (* Flow.mss (/ Report.window Flow.mss))))"
            }
            WindowRounding::Ceil => {
                "
    (:= Report.window (* Flow.mss (/ (+ Report.window (- Flow.mss 1)) Flow.mss)))"
            }
        };
        // Without time stamps ACKs may be delayed, and a single packet in flight would wait for a
        // second one.
        let fewest = "(if Report.stamped Flow.mss (* 2 Flow.mss))";
        format!(
            "(def
    (Report
        (volatile lost 0) (volatile reductions 0)
        (decisions 0) (queue +infinity) (headroom 0) (packet +infinity) (stamped false) (window 0) \
        (base 0)
        (volatile spread +infinity) (volatile back +infinity) (volatile back_least +infinity))
    (noise 0) (slow true) (recovering 0) (again false)
    (new 0) (q 0) (last 0) (floor +infinity)
    (left 0) (sum 0) (count 0) (pair 0)
    (r 0) (last_r 0) (sum_r 0) (moved 0) (block 0){train})
(when true
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= new {DELIVERED_BYTES})
    (:= again (== Report.window 0))
    (if again (:= Report.window Cwnd))
    (:= again (|| again Flow.in_recovery Flow.was_timeout))
    # A timer run does not update `stamped`: a paced flow sends less often than stamps expire.
    (if (&& (> new 0) (!= Report.stamped {valid}))
        (do (:= again true) (:= Report.stamped {valid}) (report)))
    # The RTT of data exceeds the handshake's by the transmission time at each link.
    (:= q (* 1000 (diff Flow.rtt_sample_us Flow.min_rtt_us)))
    (:= floor (min floor q))
    (:= q (if Report.stamped Flow.queue_delay_ns (- q floor)))
    (if (|| again (== new 0) (== Flow.rtt_sample_us +infinity) \
        (&& Report.stamped (== Ack.owd_ns +infinity))) (:= q +infinity))
    {base}
    # A loss halves the window, once per recovery. After a timeout (2) the program raises it again.
    (if (|| Flow.in_recovery Flow.was_timeout)
        (do (if (== recovering 0)
                (do (:= Report.window (/ Report.window 2))
                    (:= Ssthresh (max Report.window (* 2 Flow.mss)))
                    (:= Report.reductions (+ Report.reductions 1))
                    (:= slow false)
                    (:= recovering 1)
                    (report)))
            (if Flow.was_timeout
                (do (:= recovering 2) (report)))
            (if (&& (== recovering 2) Flow.in_recovery (< Cwnd Ssthresh))
                (:= Cwnd (min Ssthresh (+ Cwnd new)))))
        (if (> recovering 0)
            (do (:= slow (&& (== recovering 2) (> Report.window Cwnd)))
                (:= Report.window (min Report.window Cwnd))
                (:= recovering 0))))
    # An undo restores the window, the threshold and slow start.
    (if Flow.undone
        (do (:= Report.window (max Report.window Cwnd)) (:= slow (< Report.window Ssthresh)) \
            (report)))
    (if (&& (< q +infinity) (<= left {span}))
        (do (:= sum (if (== count 0) q (if Report.stamped (+ sum q) (min sum q)))) \
            (:= count (+ count 1))))
    # Delay of the return path above its minimum (RTT minus one-way delay): noise, not queueing.
    (:= r (if Report.stamped (diff (+ Ack.rtt_ns Flow.min_owd_ns) Ack.owd_ns) q))
    (if (< q +infinity)
        (do (:= moved (+ moved (diff r last_r)))
            (:= sum_r (+ sum_r r))
            # First sample of a block.
            (if (== block 0) (do (:= moved 0) (:= sum_r r)))
            (:= block (+ block 1))
            (:= Report.back_least (min Report.back_least r))
            (:= last_r r){measured}
            (:= Report.headroom {headroom}))){told}
    (if (>= block {BLOCK_SAMPLES})
        (do (:= Report.spread (min Report.spread (/ moved {BLOCK_INCREASES})))
            (:= Report.back (min Report.back (/ sum_r {BLOCK_SAMPLES})))
            (:= block 0)))
    (:= left (diff left new))
    (if again
        (do (:= left {restart})
            (:= count 0) (:= block 0)))
    (:= pair (diff pair new))
    (if (&& slow Flow.cwnd_limited)
        (do (:= Report.window (min Ssthresh (+ Report.window new)))
            (:= slow (< Report.window Ssthresh))))
    (fallthrough))
# A decision.
(when (&& (! again) (== left 0) (>= count {fewest_samples}))
    (:= Report.decisions (+ Report.decisions 1))
    (:= Report.queue (if Report.stamped (/ sum count) sum))
    (:= count 0)
    (:= r (* 2 Flow.mss))
    (if (> Report.queue Report.headroom)
        (do {decrease}
            (:= slow false))
        (if (&& (! slow) {growth})
            (:= Report.window (+ Report.window {increase})))){whole}
    (:= left {next})
    (fallthrough))
(when (== recovering 0)
    (:= Report.window (min {WINDOW_MAX_BYTES} (max Report.window {window_min})))
    (:= r {fewest})
    (:= q (max r (* Flow.mss (/ (+ Report.window {rounding}) Flow.mss))))
    (if (&& (== pair 0) (> q Cwnd)) (:= pair (+ Flow.bytes_in_flight (* 2 Flow.mss))))
    (:= Cwnd q)
    (if (! slow) (:= Ssthresh Cwnd))
    {paced}
    (fallthrough))
(when (> Micros (max Flow.srtt_us 1000))
    (:= Micros 0)
    (report))
"
        )
    }
}
