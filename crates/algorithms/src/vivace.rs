//! PCC Vivace: Dong, Meng, Zarchy, Arslan, Gilad, Godfrey, Schapira, "PCC Vivace: Online-Learning
//! Congestion Control", NSDI 2018. Constants named `k…` are from the authors' code
//! (PCCproject/PCC-Uspace).
//!
//! Time is divided into monitor intervals. A pair of intervals, at 5 % above and below the rate in
//! random order, yields the gradient of [`Utility`], which [`Ascent`] follows.
//!
//! The program runs both intervals at the rates that the agent set, then continues at the mean rate
//! until the next action arrives. An agent that is late by an RTT or more costs time but never
//! causes a wrong attribution. Each sample is attributed to the interval in which its packet was
//! sent, derived from its RTT.

mod ascent;
mod utility;

use ccplane_agent::rng::{finalize, mix};
use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::Rate;

use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub use ascent::Ascent;
pub use utility::{Losses, Regression, Slope, Utility};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "vivace",
    doc: "PCC Vivace (NSDI 2018): tries rates and follows the gradient of a utility function",
    parameters: &[ParameterDoc {
        name: "utility",
        default: "latency",
        values: "latency | loss",
        doc: "costs in the utility: rising delay and losses, or losses only",
    }],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Vivace {
        utility: parameters.choice(
            "utility",
            Utility::default(),
            &[("latency", Utility::Latency), ("loss", Utility::Loss)],
        )?,
    }))
}

/// ε: distance of a pair's rates from the base rate (section 4.1; `kProbingStepSize`). A smaller ε
/// is lost in noise. A larger one costs more during probing.
const PROBE_STEP: f64 = 0.05;
/// Minimum packets in a monitor interval, which otherwise lasts an RTT (section 4.1): 5 % of fewer
/// is less than one packet.
const INTERVAL_PACKETS_MIN: f64 = 20.0;
/// Minimum length of an interval, seconds. Below it, reports cost more than they contribute. Not in
/// the paper.
const INTERVAL_SECONDS_MIN: f64 = 0.001;
/// Maximum length of an interval, seconds.
const INTERVAL_SECONDS_MAX: f64 = 10.0;
/// Maximum length of an interval, RTTs, when extended to separate the slope from noise. The error
/// decreases with the length to the power of 1.5: four times the length gives an eighth. Longer
/// intervals learn slowly and let a queue grow for longer.
const INTERVAL_RTTS_MAX: f64 = 4.0;
/// Minimum ACKs in an interval: without ACKs it yields no measurement.
const INTERVAL_ACKS_MIN: f64 = 2.0;
/// Minimum RTT samples in an interval, within [`INTERVAL_RTTS_MAX`]. With fewer, the error of the
/// slope is unknown.
const INTERVAL_SAMPLES_MIN: f64 = 8.0;
/// Decay per interval of the largest burst of acknowledged packets.
const BURST_DECAY: f64 = 0.9;
/// Gain of the moving average of the sufficient length.
const INTERVAL_LENGTH_GAIN: f64 = 0.25;
/// Window relative to rate · RTT, so that the rate is the limit.
const WINDOW_BDPS: f64 = 2.0;
/// Minimum window, segments: the initial window of RFC 6928.
const WINDOW_SEGMENTS_MIN: f64 = 10.0;
/// An interval that sent less than this fraction of its rate, and at least
/// [`SENT_TOLERANCE_PACKETS`] less, was limited by something else, such as the peer's window.
/// Higher rates would then appear to have ever higher utility because they have no effect. Not in
/// the paper.
const SENT_RATE_RATIO_MIN: f64 = 0.75;
/// Tolerance in packets: the precision of pacing and delayed ACKs.
const SENT_TOLERANCE_PACKETS: f64 = 4.0;
/// Minimum rate, segments per RTT (minimum window of RFC 5681).
const RATE_SEGMENTS_PER_RTT_MIN: f64 = 2.0;
/// Maximum rate, Mbit/s: beyond every link.
const RATE_MBITS_MAX: f64 = 1e9;
const BYTES_PER_MBIT: f64 = 125_000.0;

/// PCC Vivace.
pub struct Vivace {
    utility: Utility,
}

/// State of a flow.
pub struct VivaceFlow {
    mss: f64,
    /// Seed of the pseudo-random order of pairs.
    id: u64,
    round: u64,
    /// Initial window, bytes.
    initial: f64,
    /// Base rate of the pair, Mbit/s; 0 before the first RTT.
    rate: f64,
    phase: VivacePhase,
    ascent: Ascent,
    /// Moving average of the interval length at which the slope is as precise as the distance of
    /// the two rates, seconds.
    sufficient_interval: f64,
    /// Maximum packets acknowledged by one ACK, with slow decay.
    burst: f64,
    /// Average time between ACKs, seconds.
    ack_interval: f64,
}

/// Phase of the rate control.
#[derive(Clone, Copy, Debug, PartialEq)]
enum VivacePhase {
    /// Slow start: doubles while the utility increases (section 4.1). Holds the utility of the last
    /// interval, and whether a decrease is being checked by a second interval.
    Starting { last: Option<f64>, doubted: bool },
    /// Probing with pairs. Holds the order of the rates and the outcome of the first interval.
    Learning {
        faster_first: bool,
        first: UtilityOutcome,
    },
}

/// Outcome of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
enum UtilityOutcome {
    Known(MonitorInterval),
    /// Sending was limited by something other than the rate, at this throughput in Mbit/s.
    LimitedElsewhere(f64),
    /// The application was the limit, or no samples arrived.
    Unknown,
}

/// Measurement of an interval sent at `rate`, Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MonitorInterval {
    rate: f64,
    slope: Slope,
    losses: Losses,
}

/// Monitor interval as reported by the program.
struct MonitorReport {
    losses: Losses,
    samples: Regression,
    limited: bool,
    span_us: u64,
}

impl MonitorReport {
    /// Evaluates the interval, whose target rate was `rate`, Mbit/s.
    fn evaluate(&self, rate: f64, mss: f64) -> UtilityOutcome {
        let seconds = self.span_us.max(1) as f64 / 1e6;
        let (sent, ordered) = (
            self.losses.sent as f64,
            rate * BYTES_PER_MBIT * seconds / mss,
        );
        if self.limited || self.samples.n == 0 {
            UtilityOutcome::Unknown
        } else if sent < (ordered * SENT_RATE_RATIO_MIN).min(ordered - SENT_TOLERANCE_PACKETS) {
            UtilityOutcome::LimitedElsewhere(sent * mss / seconds / BYTES_PER_MBIT)
        } else {
            UtilityOutcome::Known(MonitorInterval {
                rate,
                slope: self.samples.slope(),
                losses: self.losses,
            })
        }
    }

    /// Returns the length at which the tolerance of the slope would equal the distance of the two
    /// rates, seconds. The error of a slope decreases with the length to the power of 1.5.
    fn sufficient_interval(&self) -> f64 {
        let seconds = self.span_us as f64 / 1e6;
        let Slope { tolerance, .. } = self.samples.slope();
        let exact = if tolerance.is_finite() {
            tolerance / PROBE_STEP
        } else {
            1.0
        };
        let enough = INTERVAL_SAMPLES_MIN / self.samples.n.max(1) as f64;
        seconds * libm::pow(exact, 2.0 / 3.0).max(enough)
    }
}

impl VivaceFlow {
    /// Returns the rates of the two intervals of this round; the second is 0 in slow start.
    fn rates(&self) -> [f64; 2] {
        match self.phase {
            VivacePhase::Starting { .. } => [self.rate, 0.0],
            VivacePhase::Learning { faster_first, .. } => {
                let (up, down) = (
                    self.rate * (1.0 + PROBE_STEP),
                    self.rate * (1.0 - PROBE_STEP),
                );
                if faster_first { [up, down] } else { [down, up] }
            }
        }
    }

    /// Processes the outcome of an interval. Returns true if it was the last of its round.
    fn on_outcome(&mut self, which: u64, outcome: UtilityOutcome, utility: Utility) -> bool {
        if let (
            VivacePhase::Starting {
                last,
                doubted: false,
            },
            UtilityOutcome::LimitedElsewhere(_),
        ) = (self.phase, outcome)
        {
            // This interval's window did not yet include room for the packets that await an ACK.
            self.phase = VivacePhase::Starting {
                last,
                doubted: true,
            };
            return true;
        }
        if let UtilityOutcome::LimitedElsewhere(rate) = outcome {
            self.rate = rate;
            self.ascent = Ascent::default();
            self.pair();
            return true;
        }
        match (self.phase, outcome) {
            (VivacePhase::Starting { last, doubted }, UtilityOutcome::Known(seen)) => {
                let worth =
                    utility.evaluate(seen.rate, seen.slope.significant(), seen.losses.loss_rate());
                if last.is_none_or(|last| worth > last) {
                    self.rate *= 2.0;
                    self.phase = VivacePhase::Starting {
                        last: Some(worth),
                        doubted: false,
                    };
                } else if seen.slope.is_marginal() && !doubted {
                    self.phase = VivacePhase::Starting {
                        last,
                        doubted: true,
                    };
                } else {
                    self.rate /= 2.0;
                    self.pair();
                }
                true
            }
            (VivacePhase::Learning { faster_first, .. }, _) if which == 1 => {
                self.phase = VivacePhase::Learning {
                    faster_first,
                    first: outcome,
                };
                false
            }
            (
                VivacePhase::Learning {
                    faster_first,
                    first,
                },
                second,
            ) => {
                if let (UtilityOutcome::Known(first), UtilityOutcome::Known(second)) =
                    (first, second)
                {
                    let (fast, slow) = if faster_first {
                        (first, second)
                    } else {
                        (second, first)
                    };
                    let [lost_fast, lost_slow] = Losses::loss_rates(fast.losses, slow.losses);
                    let more = utility.evaluate(fast.rate, fast.slope.significant(), lost_fast)
                        - utility.evaluate(slow.rate, slow.slope.significant(), lost_slow);
                    self.rate = self
                        .ascent
                        .step(self.rate, more / (2.0 * PROBE_STEP * self.rate));
                }
                self.pair();
                true
            }
            (VivacePhase::Starting { .. }, _) => true,
        }
    }

    /// Starts a pair in pseudo-random order, which other flows cannot predict and every run
    /// repeats.
    fn pair(&mut self) {
        self.phase = VivacePhase::Learning {
            faster_first: finalize(self.id ^ self.round.rotate_left(32)) & 1 == 1,
            first: UtilityOutcome::Unknown,
        };
    }

    fn send_rates(&mut self, srtt: f64, control: &mut Control<'_>) {
        let least = RATE_SEGMENTS_PER_RTT_MIN * self.mss / srtt / BYTES_PER_MBIT;
        self.rate = self.rate.max(least).min(RATE_MBITS_MAX);
        self.round += 1;
        let bytes = |rate: f64| Rate::from_bytes_per_sec((rate * BYTES_PER_MBIT) as u64);
        let [first, second] = self.rates();
        let packets = INTERVAL_PACKETS_MIN * self.mss / (self.rate * BYTES_PER_MBIT);
        let sufficient = self.sufficient_interval.min(INTERVAL_RTTS_MAX * srtt);
        let acks = INTERVAL_ACKS_MIN * self.ack_interval;
        let length = srtt
            .max(packets)
            .max(sufficient)
            .max(acks)
            .clamp(INTERVAL_SECONDS_MIN, INTERVAL_SECONDS_MAX);
        let waiting = if self.burst > SENT_TOLERANCE_PACKETS {
            WINDOW_BDPS * self.burst * self.mss
        } else {
            0.0
        };
        let window = WINDOW_BDPS * first.max(second) * BYTES_PER_MBIT * srtt + waiting;
        for (name, value) in [
            ("go", self.round),
            ("first", bytes(first).bytes_per_sec()),
            ("second", bytes(second).bytes_per_sec()),
            ("length", (length * 1e6) as u64),
            ("window", window.max(WINDOW_SEGMENTS_MIN * self.mss) as u64),
        ] {
            control.set_variable(name, value);
        }
    }
}

impl Algorithm for Vivace {
    type Flow = VivaceFlow;

    fn name(&self) -> &str {
        "vivace"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("vivace", PROGRAM)
    }

    fn required_capabilities(&self) -> Capabilities {
        Capabilities::CWND
            .union(Capabilities::RTT)
            .union(Capabilities::PACING)
    }

    /// Vivace paces at its own rate, so an idle period is not followed by a burst.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
            .union(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> VivaceFlow {
        control.set_program("vivace", &[]);
        let id = control.flow_id().map_or(0, |id| id.flow);
        let mut flow = VivaceFlow {
            mss: info.mss.get().max(1) as f64,
            id: mix(id),
            round: 0,
            initial: info.init_cwnd.get() as f64,
            rate: 0.0,
            phase: VivacePhase::Starting {
                last: None,
                doubted: false,
            },
            ascent: Ascent::default(),
            sufficient_interval: 0.0,
            burst: 0.0,
            ack_interval: 0.0,
        };
        let srtt = info.srtt.as_secs_f64();
        if info.live && srtt > 0.0 {
            // The current rate of a flow that is taken over is about right, so slow start is
            // skipped.
            flow.rate = info.cwnd.get() as f64 / srtt / BYTES_PER_MBIT;
            flow.pair();
            flow.send_rates(srtt, control);
        }
        flow
    }

    fn on_report(&mut self, flow: &mut VivaceFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            round,
            which,
            lost,
            n,
            x,
            y,
            xx,
            xy,
            yy,
            steps,
            limited,
            span_us,
            sent,
            burst,
            srtt,
        ] = report.fields()
        else {
            return;
        };
        if srtt == 0 || srtt >= INFINITY || round != flow.round {
            return;
        }
        let srtt = srtt as f64 / 1e6;
        if which == 0 {
            if flow.rate == 0.0 {
                flow.rate = flow.initial / srtt / BYTES_PER_MBIT;
            } else {
                // Timeout, which the authors' code does not handle: measurements are discarded and
                // the rate is halved.
                flow.rate /= 2.0;
                flow.ascent = Ascent::default();
                flow.pair();
            }
            return flow.send_rates(srtt, control);
        }
        let seen = MonitorReport {
            losses: Losses { sent, lost },
            samples: Regression {
                n,
                x,
                y,
                xx,
                xy,
                yy,
                steps,
            },
            limited: limited != 0,
            span_us,
        };
        flow.burst = (flow.burst * BURST_DECAY).max(burst as f64);
        flow.ack_interval +=
            INTERVAL_LENGTH_GAIN * (span_us as f64 / 1e6 / n.max(1) as f64 - flow.ack_interval);
        flow.sufficient_interval +=
            INTERVAL_LENGTH_GAIN * (seen.sufficient_interval() - flow.sufficient_interval);
        let [first, second] = flow.rates();
        let worth = seen.evaluate(if which == 1 { first } else { second }, flow.mss);
        if flow.on_outcome(which, worth, self.utility) {
            flow.send_rates(srtt, control);
        }
    }
}

/// The program. A new `go` starts a round. `phase` is 1 while the first interval is sent, 2 in the
/// second, and 3 afterwards. `a`, `b` and `c` are the start of the first interval, its end, and the
/// end of the second. `first_sent` and `second_sent` count the packets sent in each, as the growth
/// of delivered + lost + in flight. `interval` is the one whose ACKs arrive: 1, 2, or 3 for none.
/// Losses count for it once one of its packets has been acknowledged. A report of interval 0
/// requests an action or signals a timeout. An infinite ssthresh keeps the datapath from reducing
/// the window in recovery because the rate is the limit.
const PROGRAM: &str = "(def
    (Report
        (round 0) (which 0) (volatile lost 0) (volatile n 0) (volatile x 0) (volatile y 0) \
        (volatile xx 0) (volatile xy 0)
        (volatile yy 0) (volatile steps 0) (volatile limited false) (span 0) (sent 0) \
        (volatile burst 0) (srtt 0))
    (go 0) (first 0) (second 0) (length 0) (window 0)
    (phase 0) (interval 3) (a 0) (b 0) (c 0) (left 0) (rtt 0) (last 0)
    (gone 0) (mark 0) (first_sent 0) (second_sent 0))
(when true
    (:= Report.srtt Flow.srtt_us)
    (:= gone (+ gone Ack.packets_acked Ack.packets_misordered Ack.lost_pkts_sample))
    (if (! Flow.in_recovery) (:= Report.burst (max Report.burst Ack.packets_acked)))
    (if (> Report.n 0)
        (do (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
            (:= Report.limited (|| Report.limited Flow.app_limited))))
    (fallthrough))
(when (|| Flow.was_timeout (&& (== go 0) (< Flow.srtt_us +infinity)))
    (:= Report.which 0)
    (:= interval 3)
    (report)
    (fallthrough))
(when (!= go Report.round)
    (:= Report.round go)
    (:= phase 1)
    (:= interval 1)
    (:= a Ack.now)
    (:= b 0)
    (:= c 0)
    (:= mark (+ gone Flow.packets_in_flight))
    (:= Rate first)
    (:= Micros 0)
    (reset)
    (fallthrough))
(when (&& (== phase 1) (> Micros length))
    (:= b Ack.now)
    (:= phase (if (> second 0) 2 3))
    (:= first_sent (diff (+ gone Flow.packets_in_flight) mark))
    (:= mark (+ gone Flow.packets_in_flight))
    (:= Rate (if (> second 0) second first))
    (fallthrough))
(when (&& (== phase 2) (> Micros (* 2 length)))
    (:= c Ack.now)
    (:= phase 3)
    (:= second_sent (diff (+ gone Flow.packets_in_flight) mark))
    (:= Rate (/ (+ first second) 2))
    (fallthrough))
(when (&& (< interval 3) (< Flow.rtt_sample_us +infinity) \
    (> (+ Ack.packets_acked Ack.packets_misordered) 0))
    (:= left (diff Ack.now Flow.rtt_sample_us))
    (if (&& (> (if (== interval 1) b c) 0) (>= left (if (== interval 1) b c)))
        (do (:= Report.which interval)
            (:= Report.span (if (== interval 1) (diff b a) (diff c b)))
            (:= Report.sent (if (== interval 1) first_sent second_sent))
            (:= interval (if (&& (== interval 1) (> second 0)) 2 3))
            (report))
        (if (>= left (if (== interval 1) a b))
            (do (:= left (- left (if (== interval 1) a b)))
                (:= rtt (diff Flow.rtt_sample_us Flow.min_rtt_us))
                (:= last (if (> Report.n 0) (diff (max rtt last) (min rtt last)) 0))
                (:= Report.steps (+ Report.steps (* last last)))
                (:= last rtt)
                (:= Report.n (+ Report.n 1))
                (:= Report.x (+ Report.x left))
                (:= Report.y (+ Report.y rtt))
                (:= Report.xx (+ Report.xx (* left left)))
                (:= Report.xy (+ Report.xy (* left rtt)))
                (:= Report.yy (+ Report.yy (* rtt rtt))))))
    (fallthrough))
(when (> window 0)
    (if Flow.in_recovery (:= Ssthresh 18446744073709551615))
    (:= Cwnd window)
    (fallthrough))
";

#[cfg(test)]
mod tests;
