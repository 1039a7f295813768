//! The datapath program: it samples, decides, and paces what is less than a packet.

use super::{Delay, Dx, Headroom, Samples, Window};
use crate::repair::DELIVERED;

/// The least window: a packet in 100 RTTs. More fills the queue of an incast of as many flows
/// as the path holds packets; less makes a flow deaf for long. As Swift's here.
const LEAST: &str = "(/ Flow.mss 100)";

/// The most, bytes: its products with 10⁹ and with 2³² ns stay within 64 bits.
const MOST: u64 = 1 << 32;

/// So many packets whose mean is above the headroom end slow start. Of fewer, two flows whose
/// packets meet end it; with more, the window has grown by as many before it does.
const FEW: u64 = 4;

/// Packets of a train, whose mean says what one takes at most. A token bucket lets a burst through
/// at once: of 32, 2½ packets make an error of a twelfth, of fewer a larger one. More, and a window
/// of a packet needs as many round trips to know its path.
pub(super) const TRAIN: u64 = 32;

/// What slow start leaves of the window. The packet that found a queue left a round trip ago, and
/// the window has grown since, to 1.76 times as much: paced at W/R, it grows as fast as W did an
/// RTT before, and e^x = 1/x at x = 0.567, e^0.567 = 1.76. Less leaves the link idle until additive
/// increase has filled it, more a queue.
const LEFT: &str = "9/16";

/// Samples that make a mean and a spread for the agent. Fewer are further from the truth than half
/// their spread; more take a flow of few packets too long.
const BLOCK: u64 = 64;

/// Half of the steps between them: samples rise as much as they fall, and only the rises are added.
const STEPS: u64 = (BLOCK - 1) / 2;

/// What of a packet a window may lack of its next whole one: the datapath takes whole packets.
/// Rounded up always, many small flows hold a packet too much each; rounded down, the link is idle
/// by a part of one (`window=floor` is that at its worst).
const ROUND: &str = "(* Flow.mss 3/4)";

/// Below four packets the window grows by a quarter of itself and not by a packet, which would be
/// more than all of a small path's share; by a sixteenth of a packet at least, so that the smaller
/// of two shares grows faster. Ours: DX ends at one packet.
const GROW: &str = "(min Flow.mss (max (/ Flow.mss 16) (/ Report.window 4)))";

/// The least headroom: a part of the empty path's RTT, and at most so many packets. The bursts of
/// others, ten packets when a flow begins (RFC 6928), are no queue that a decrease would empty.
/// Less, and large flows lose to them (`ccplane paper dx-fattree`: at a packet they take up to
/// twice as long as DCTCP's); more is that much longer a queue, which on a path of 100 ms would be
/// one of 6 ms. Ours.
const BURSTS: &str = "(min (/ Report.base 16) (* 10 Report.packet))";

/// Delay of this packet and its ACK inside both hosts, ns: TCP's RTT less the stamps'. A queue of
/// this length counts as none. A busy host handles several ACKs at once and sends a burst, whose
/// packets wait for each other: without this headroom two flows use a tenth of 1 Gbit/s (`ccplane
/// bench dx`, table in docs/performance.md). Hosts that answer at once add nothing. Ours.
const HOSTS: &str = "(diff (* 1000 Flow.rtt_sample_us) Ack.rtt_ns)";

/// A decrease below two packets, where V is infinite: by half of what drains the queue, W·Q/(R+Q)
/// ([`super`], `V = R + Q`), as the next packet was given its time before this decision. Ours.
const CUT_SMALL: &str = "(/ (* Report.window Report.queue) (* 2 (+ Report.base Report.queue)))";

/// A decrease: W·Q/V = (W - 1)·Q/R, where V = R·W/(W - 1). Q/V stays below 1 as Q counts up to R.
///
/// All of Q counts, and not only what is above the headroom, although the link would then never be
/// idle and large flows lost less: a flow that begins has to find the queue empty at times, or it
/// takes what stands for its path, and each of many that begin one after the other leaves its own
/// headroom standing (30 at 10 Gbit/s: 118 µs, and some get nothing).
const CUT: &str =
    "(/ (* (diff Report.window Flow.mss) (min Report.queue Report.base)) Report.base)";

impl Dx {
    /// The text. `left` counts delivered bytes down: first those that were under way at the last
    /// decision, then the window that is sampled. `sum` is of delays by stamps, and the least of
    /// those by RTT.
    ///
    /// The time of a packet at the slowest link (`packet`) is measured in two ways. Each
    /// measurement moves it by a step, as a quantile of a fifth: 1/16 down against 1/64 up. The
    /// first is taken as it is. Not the least: a single stamp that is too late makes the next train
    /// too short by any amount.
    ///
    /// A train: its packets' mean time between arrivals at the receiver. The arrival is the ACK's
    /// less TCP's RTT without the queue, so neither the way back nor either host's own delays have
    /// a part in it. It is too long where others share the link.
    ///
    /// Two packets, once for each step by which the window grows (`pair`). While the link is busy
    /// between them, it sends the second that time after the first. The time is the difference of
    /// what they waited and what lies between their departures, as a sender takes some of it to
    /// send the second. Arrivals count whole microseconds, so that one is taken off, and what they
    /// waited alone is the least. The first must have waited for half of it: behind a token bucket
    /// with tokens left, the second follows sooner. A time that noise could be is none.
    pub(super) fn program(&self) -> String {
        let valid = match self.delay {
            Delay::Rtt => "false",
            Delay::Auto | Delay::Stamps => "Flow.queue_delay_valid",
        };
        let headroom = match self.headroom {
            Headroom::Auto => format!("(+ noise (max Report.packet {HOSTS} {BURSTS}))"),
            Headroom::Time(time) => time.as_nanos().to_string(),
            Headroom::Packets(packets) => format!("(* Report.packet {packets:?})"),
        };
        let told = match self.rate {
            // Headers are a thirteenth of what an Ethernet frame takes of the link at most.
            Some(rate) => format!(
                "
    (:= Report.packet (/ (* Flow.mss 1080000000) {}))",
                rate.bytes_per_sec()
            ),
            None => String::new(),
        };
        let measured = match self.rate {
            Some(_) => String::new(),
            None => format!(
                "
            (:= r (diff (diff (* 1000 Ack.now) (if Report.stamped (diff (* 1000 Flow.rtt_sample_us) q) 0)) arrived))
            (:= arrived (+ arrived r))
            (:= train (+ train new))
            (:= r (max (diff q last) (diff r 1000)))
            (if (|| (> new Flow.mss) (<= r noise) (> r (* 2 last)) (== pair 0) (> pair new)) (:= r 0))
            (if (>= train (* {TRAIN} Flow.mss))
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
        let train = match self.rate {
            Some(_) => "",
            None => " (train 0) (since 0) (arrived 0)",
        };
        let (next, span) = match self.samples {
            Samples::After => ("(+ Flow.bytes_in_flight Report.window)", "Report.window"),
            Samples::Window => ("Report.window", "Report.window"),
            Samples::Freshest => ("(+ Flow.bytes_in_flight 1)", "1"),
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
        // With delayed acknowledgements one packet in flight would wait for its second.
        let fewest = "(if Report.stamped Flow.mss (* 2 Flow.mss))";
        format!(
            "(def
    (Report
        (volatile lost 0) (volatile reductions 0)
        (decisions 0) (queue +infinity) (headroom 0) (packet +infinity) (stamped false) (window 0) (base 0)
        (volatile spread +infinity) (volatile back +infinity) (volatile back_least +infinity))
    (noise 0) (slow true) (recovering 0) (again false)
    (new 0) (q 0) (last 0) (floor +infinity)
    (left 0) (sum 0) (count 0) (pair 0)
    (r 0) (last_r 0) (sum_r 0) (moved 0) (block 0){train})
(when true
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= new {DELIVERED})
    (:= again (== Report.window 0))
    (if again (:= Report.window Cwnd))
    (:= again (|| again Flow.in_recovery Flow.was_timeout))
    # A run by timer says nothing of the stamps: a flow that is paced sends less often than they are thought to be new.
    (if (&& (> new 0) (!= Report.stamped {valid}))
        (do (:= again true) (:= Report.stamped {valid}) (report)))
    # The RTT of data is longer than the handshake's by what the data takes at each link.
    (:= q (* 1000 (diff Flow.rtt_sample_us Flow.min_rtt_us)))
    (:= floor (min floor q))
    (:= q (if Report.stamped Flow.queue_delay_ns (- q floor)))
    (if (|| again (== new 0) (== Flow.rtt_sample_us +infinity) (&& Report.stamped (== Ack.owd_ns +infinity))) (:= q +infinity))
    # Stamps leave out what the hosts take themselves, which the window has to cover as well.
    (:= Report.base (* 1000 Flow.min_rtt_us))
    (if Report.stamped (:= Report.base (max Report.base Flow.min_rtt_ns)))
    # And the path holds a packet: a token bucket lets one that comes alone through in less time than it takes.
    (if (< Report.packet +infinity) (:= Report.base (max Report.base Report.packet)))
    # A loss halves the window, once in a repair. After a timeout (2) the program raises it again.
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
    # An undo restores window and threshold, and with them slow start.
    (if Flow.undone
        (do (:= Report.window (max Report.window Cwnd)) (:= slow (< Report.window Ssthresh)) (report)))
    (if (&& (< q +infinity) (<= left (if slow 0 {span})))
        (do (:= sum (if (== count 0) q (if Report.stamped (+ sum q) (min sum q)))) (:= count (+ count 1))))
    # The way back has no part in the queue, but noise: what of the RTT is not the way there, above its least.
    (:= r (if Report.stamped (diff (+ Ack.rtt_ns Flow.min_owd_ns) Ack.owd_ns) q))
    (if (< q +infinity)
        (do (:= moved (+ moved (diff r last_r)))
            (:= sum_r (+ sum_r r))
            # The first of a block begins it.
            (if (== block 0) (do (:= moved 0) (:= sum_r r)))
            (:= block (+ block 1))
            (:= Report.back_least (min Report.back_least r))
            (:= last_r r){measured}
            (:= Report.headroom {headroom}))){told}
    (if (>= block {BLOCK})
        (do (:= Report.spread (min Report.spread (/ moved {STEPS})))
            (:= Report.back (min Report.back (/ sum_r {BLOCK})))
            (:= block 0)))
    (:= left (diff left new))
    (if again
        (do (:= left (+ Flow.bytes_in_flight (if slow 0 Report.window)))
            (:= count 0) (:= block 0)))
    (:= pair (diff pair new))
    (if (&& slow Flow.cwnd_limited)
        (do (:= Report.window (min Ssthresh (+ Report.window new)))
            (:= slow (< Report.window Ssthresh))))
    (fallthrough))
# A decision.
(when (&& (! again) (== left 0) (>= count (if slow {FEW} 1)))
    (:= Report.decisions (+ Report.decisions 1))
    (:= Report.queue (if Report.stamped (/ sum count) sum))
    (:= count 0)
    (:= r (* 2 Flow.mss))
    (if (> Report.queue Report.headroom)
        (do (:= Report.window (if slow (* Report.window {LEFT})
                (- Report.window (if (< Report.window r) {CUT_SMALL} {CUT}))))
            (:= slow false))
        (if (&& (! slow) (|| Flow.cwnd_limited (< Report.window r)))
            (:= Report.window (+ Report.window {GROW})))){whole}
    (:= left (if slow 0 {next}))
    (fallthrough))
(when (== recovering 0)
    (:= Report.window (min {MOST} (max Report.window {LEAST})))
    (:= r {fewest})
    (:= q (max r (* Flow.mss (/ (+ Report.window {ROUND}) Flow.mss))))
    (if (&& (== pair 0) (> q Cwnd)) (:= pair (+ Flow.bytes_in_flight (* 2 Flow.mss))))
    (:= Cwnd q)
    (if (! slow) (:= Ssthresh Cwnd))
    # 1000gbit ends the pacing.
    (:= Rate (if (&& (< Flow.min_rtt_us +infinity) (|| slow (< Report.window r)))
        (/ (* Report.window 1000000000) Report.base)
        (if (> Rate 0) 1000gbit 0)))
    (fallthrough))
(when (> Micros (max Flow.srtt_us 1000))
    (:= Micros 0)
    (report))
"
        )
    }
}
