//! The program's text.

use super::{Delay, Dx, Headroom, Samples, Window};
use crate::repair::DELIVERED;

/// The least window, in hundredths of a packet: a packet in 100 RTTs. More fills the queue of an incast of as many flows
/// as the path holds packets; less makes a flow deaf for long. As Swift's here.
const LEAST_PERCENT: u64 = 1;
/// The most, bytes: products with 10^9 stay within 64 bits.
const MOST: u64 = 1 << 32;
/// So many packets in a row behind a queue end slow start. Fewer, and two flows whose packets meet end it; more, and the
/// window has grown by as many.
const LATE: u64 = 4;
/// Differences of neighbouring samples that make a spread.
const PAIRS: u64 = 64;

impl Dx {
    /// What runs at each ACK.
    pub(super) fn program(&self) -> String {
        let form = match self.delay {
            Delay::Rtt => "false",
            Delay::Auto | Delay::Stamps => "Flow.queue_delay_valid",
        };
        let headroom = match self.headroom {
            Headroom::Auto => "(max packet noise)".to_owned(),
            Headroom::Time(time) => format!("{}", time.as_nanos()),
            Headroom::Packets(packets) => format!("(* packet {packets:?})"),
        };
        let packet = match self.rate {
            Some(rate) => format!("(/ (* Flow.mss 1080000000) {})", rate.bytes_per_sec()),
            None => "(if (> (min Flow.rate_incoming Flow.rate_outgoing) 0)
        (min packet (/ (* Flow.mss 1080000000) (min Flow.rate_incoming Flow.rate_outgoing))) packet)"
                .to_owned(),
        };
        let train = match self.rate {
            Some(_) => "packet",
            None => "(min packet (if (> count 0) (/ (* sum 1.08) count) packet))",
        };
        let skip = match self.samples {
            Samples::After | Samples::Freshest => "Flow.bytes_in_flight",
            Samples::Window => "0",
        };
        let due = match self.samples {
            Samples::After | Samples::Window => "(>= gathered Report.window)",
            Samples::Freshest => "true",
        };
        let whole = match self.window {
            Window::Fractional => "",
            Window::Floor => {
                "
    (:= Report.window (max Flow.mss (* Flow.mss (/ Report.window Flow.mss))))"
            }
            Window::Ceil => {
                "
    (:= Report.window (* Flow.mss (/ (+ Report.window (- Flow.mss 1)) Flow.mss)))"
            }
        };
        let begin = |skip: &str| {
            format!(
                "(:= skip {skip})
    (:= gathered 0)
    (:= sum 0)
    (:= count 0)
    (:= late 0)"
            )
        };
        let again = begin("Flow.bytes_in_flight");
        let next = begin(skip);
        format!(
            "(def
    (Report
        (volatile acked 0) (volatile lost 0) (volatile timeouts 0) (volatile reductions 0) (cwnd 0) (ssthresh 0)
        (decisions 0) (queue 0) (headroom 0) (stamped false) (window 0)
        (volatile least +infinity) (volatile spread +infinity))
    (noise 0) (slow true) (packet +infinity)
    (first true) (recovering false) (in_loss false)
    (new 0) (q 0) (base 0) (sampled false)
    (skip 0) (gathered 0) (sum 0) (count 0) (late 0)
    (last 0) (moved 0) (pairs 0) (turn 0))
(when (== Report.window 0)
    (:= Report.window Cwnd)
    (:= skip Flow.bytes_in_flight)
    (:= last +infinity)
    (fallthrough))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= new {DELIVERED})
    (:= sampled (if {form} (< Ack.owd_ns +infinity) (&& (< Flow.rtt_sample_us +infinity) (> new 0))))
    (:= q (if {form} Flow.queue_delay_ns (* 1000 (diff Flow.rtt_sample_us Flow.min_rtt_us))))
    (:= base (max 1 (if {form} Flow.min_rtt_ns (* 1000 Flow.min_rtt_us))))
    (:= packet {packet})
    (fallthrough))
(when (!= Report.stamped {form})
    (:= Report.stamped {form})
    {again}
    (report)
    (fallthrough))
# A loss.
(when (&& (|| Flow.in_recovery Flow.was_timeout) (! recovering))
    (:= Ssthresh (max (/ Report.window 2) (* 2 Flow.mss)))
    (:= Report.window (/ Report.window 2))
    (:= Report.reductions (+ Report.reductions 1))
    (:= slow false)
    (report)
    (fallthrough))
(when Flow.was_timeout
    (:= Report.timeouts (+ Report.timeouts 1))
    (:= in_loss true)
    (report)
    (fallthrough))
(when (&& in_loss Flow.in_recovery (> Ack.bytes_acked 0) (< Cwnd Ssthresh))
    (:= Cwnd (min Ssthresh (+ Cwnd new)))
    (fallthrough))
(when (&& recovering (! (|| Flow.in_recovery Flow.was_timeout)))
    (:= slow (&& in_loss (> Report.window Cwnd)))
    (:= Report.window (if Flow.undone (max Report.window Cwnd) (min Report.window Cwnd)))
    (:= in_loss false)
    (fallthrough))
(when true
    (:= recovering (|| Flow.in_recovery Flow.was_timeout))
    (fallthrough))
(when recovering
    {again}
    (fallthrough))
# Samples.
(when (&& sampled first)
    (:= count (if (> (diff q last) 0) (+ count 1)))
    (:= sum (+ sum (diff q last)))
    (fallthrough))
(when (&& first (<= skip new))
    (:= first false)
    (:= packet {train})
    (:= sum 0)
    (:= count 0)
    (:= moved 0)
    (:= pairs 0)
    (fallthrough))
(when (&& sampled (== skip 0))
    (:= sum (+ sum q))
    (:= count (+ count 1))
    (:= late (if (> q {headroom}) (+ late 1) 0))
    (fallthrough))
(when sampled
    (:= moved (+ moved (max (diff q last) (diff last q))))
    (:= pairs (+ pairs 1))
    (:= last q)
    (fallthrough))
(when (>= pairs {PAIRS})
    (:= Report.spread (min Report.spread (/ moved pairs)))
    (:= moved 0)
    (:= pairs 0)
    (fallthrough))
(when true
    (:= gathered (if (== skip 0) (+ gathered new)))
    (:= skip (diff skip new))
    (fallthrough))
# Slow start.
(when (&& slow (! recovering) Flow.cwnd_limited)
    (:= Report.window (min Ssthresh (+ Report.window new)))
    (:= slow (< Report.window Ssthresh))
    (fallthrough))
(when (&& slow (>= late {LATE}))
    (:= slow false)
    (:= Report.window (* Report.window 9/16))
    {again}
    (fallthrough))
# The decision.
(when (&& (! slow) (> count 0) {due})
    (:= Report.decisions (+ Report.decisions 1))
    (:= Report.queue (/ sum count))
    (:= Report.headroom {headroom})
    (:= Report.least (min Report.least Report.queue))
    (:= q Report.queue)
    (if (<= Report.queue Report.headroom)
        (if (|| Flow.cwnd_limited (< Report.window Flow.mss))
            (:= Report.window (+ Report.window (min Flow.mss Report.window))))
        (:= Report.window (if (< Report.window (* 2 Flow.mss))
            (/ (* Report.window base) (+ base q))
            (- Report.window (/ (* (- Report.window Flow.mss) (min q base)) base))))){whole}
    {next}
    (fallthrough))
(when (! recovering)
    (:= Report.window (min {MOST} (max Report.window (/ (* {LEAST_PERCENT} Flow.mss) 100))))
    (:= turn (+ turn new))
    (:= turn (if (>= turn Report.window) 0))
    (:= Cwnd (* Flow.mss (/ Report.window Flow.mss)))
    (:= Cwnd (max Flow.mss (+ Cwnd (if (< (* turn Flow.mss) (* (diff Report.window Cwnd) Report.window)) Flow.mss 0))))
    (if (! slow) (:= Ssthresh Cwnd))
    (:= Rate (if (&& (< Flow.min_rtt_us +infinity) (|| slow (< Report.window Flow.mss)))
        (max 1 (/ (* Report.window 1000000000) (+ base (if slow 0 q))))
        (if (> Rate 0) 1000gbit 0)))
    (fallthrough))
(when true
    (:= Report.cwnd Cwnd)
    (:= Report.ssthresh Ssthresh)
    (fallthrough))
(when (> Micros (max Flow.srtt_us 1000))
    (:= Micros 0)
    (report))
"
        )
    }
}
