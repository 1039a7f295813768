//! PCC Vivace: online learning of the rate (Dong, Meng, Zarchy, Arslan, Gilad, Godfrey, Schapira,
//! "PCC Vivace: Online-Learning Congestion Control", NSDI 2018). Names in `k…` are constants of the
//! authors' code (PCCproject/PCC-Uspace).
//!
//! Time is cut into monitor intervals. Two of them, at 5 % above and below the rate, in random
//! order, tell in which direction [`Utility`] grows; [`Ascent`] follows.
//!
//! The program does both intervals by itself, at the rates that the agent ordered, and goes on at
//! the rate between them until the next order comes: an agent that is late, by an RTT or more,
//! costs time and never a wrong attribution. A sample belongs to the interval in which its packet
//! was sent, which the RTT tells.

mod ascent;
mod utility;

use ccplane_agent::dice::scatter;
use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, boxed};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::Rate;

use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub use ascent::Ascent;
pub use utility::{Losses, Regression, Slope, Utility};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "vivace",
    doc: "PCC Vivace (NSDI 2018): tries rates and follows the gradient of a utility",
    parameters: &[ParameterDoc {
        name: "utility",
        default: "latency",
        values: "latency | loss",
        doc: "what costs: a rising delay and losses, or losses alone",
    }],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(boxed(Vivace {
        utility: parameters.choice(
            "utility",
            Utility::default(),
            &[("latency", Utility::Latency), ("loss", Utility::Loss)],
        )?,
    }))
}

/// ε: how far the two rates of a pair are from the one between them (section 4.1;
/// `kProbingStepSize`). Smaller drowns in noise, larger loses more by probing.
const APART: f64 = 0.05;
/// Least packets of a monitor interval, which is an RTT otherwise (section 4.1): 5 % of fewer is
/// not a packet.
const PACKETS: f64 = 20.0;
/// Least length of one, seconds: below it reports cost more than they tell (ours).
const SHORTEST: f64 = 0.001;
/// Longest, seconds.
const LONGEST: f64 = 10.0;
/// RTTs that an interval lasts at most to tell a slope from the noise. The error falls with the
/// length to the power of 1.5: four times as long is an eighth. Longer learns slowly and lets a
/// queue grow for as long.
const RTTS_MAX: f64 = 4.0;
/// ACKs in an interval at least: with none it would teach nothing.
const ACKS_MIN: f64 = 2.0;
/// RTT samples in an interval at least, within [`RTTS_MAX`]. Of fewer the error of the slope is
/// unknown.
const SAMPLES_MIN: f64 = 8.0;
/// Part of the largest burst of acknowledged packets that an interval keeps.
const BURST_KEPT: f64 = 0.9;
/// Weight of an interval in the average of the length that would suffice.
const LENGTH_GAIN: f64 = 0.25;
/// Window over rate · RTT: the rate is what limits.
const ROOM: f64 = 2.0;
/// Least window, segments: that of a new flow (RFC 6928).
const LEAST_SEGMENTS: f64 = 10.0;
/// An interval in which less than this part of its rate was sent, and some packets less, was held
/// back by something else, a window or the peer's: a rate beyond that would be worth ever more, as
/// nothing comes of it (ours).
const LEAST_HELD: f64 = 0.75;
/// How many packets: pacing and delayed acknowledgements are not more exact.
const SOME_PACKETS: f64 = 4.0;
/// Least rate, segments in an RTT (RFC 5681's least window).
const LEAST_RATE: f64 = 2.0;
/// Most, Mbit/s: beyond every link.
const MOST_RATE: f64 = 1e9;
const BYTES_PER_MBIT: f64 = 125_000.0;

/// The algorithm.
pub struct Vivace {
    utility: Utility,
}

/// State of a flow.
pub struct Flow {
    mss: f64,
    /// Of the pseudo-random order of the pairs.
    id: u64,
    round: u64,
    /// The window that the flow began with, bytes.
    initial: f64,
    /// The rate between the two of a pair, Mbit/s; 0 before the first RTT.
    rate: f64,
    stage: Stage,
    ascent: Ascent,
    /// Average length of an interval whose slope is as exact as the two rates are apart, seconds.
    sufficient: f64,
    /// Most packets that one ACK acknowledged; falls slowly.
    burst: f64,
    /// Average time between ACKs, seconds.
    ack_interval: f64,
}

/// Where a flow stands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Doubling while that pays (section 4.1); the utility of the last interval, and whether a fall
    /// of it is being checked.
    Starting { last: Option<f64>, doubted: bool },
    /// Pairs; what the first of the pair was worth, the faster one first or not.
    Learning { faster_first: bool, first: Worth },
}

/// What an interval taught.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Worth {
    Known(Measured),
    /// Something else than the rate held sending back, at so many Mbit/s.
    Held(f64),
    /// The application sent less, or nothing arrived.
    Unknown,
}

/// An interval at a rate, Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measured {
    rate: f64,
    slope: Slope,
    losses: Losses,
}

/// A monitor interval as the program reports it.
struct Seen {
    losses: Losses,
    samples: Regression,
    limited: bool,
    span_us: u64,
}

impl Seen {
    /// What it teaches, where it was to be sent at this rate, Mbit/s.
    fn worth(&self, rate: f64, mss: f64) -> Worth {
        let seconds = self.span_us.max(1) as f64 / 1e6;
        let (sent, ordered) = (
            self.losses.sent as f64,
            rate * BYTES_PER_MBIT * seconds / mss,
        );
        if self.limited || self.samples.n == 0 {
            Worth::Unknown
        } else if sent < (ordered * LEAST_HELD).min(ordered - SOME_PACKETS) {
            Worth::Held(sent * mss / seconds / BYTES_PER_MBIT)
        } else {
            Worth::Known(Measured {
                rate,
                slope: self.samples.slope(),
                losses: self.losses,
            })
        }
    }

    /// Length at which the tolerance of the slope would be the difference of the two rates,
    /// seconds. The error of a slope falls with the length to the power of 1.5.
    fn sufficient(&self) -> f64 {
        let seconds = self.span_us as f64 / 1e6;
        let Slope { tolerance, .. } = self.samples.slope();
        let exact = if tolerance.is_finite() {
            tolerance / APART
        } else {
            1.0
        };
        let enough = SAMPLES_MIN / self.samples.n.max(1) as f64;
        seconds * libm::pow(exact, 2.0 / 3.0).max(enough)
    }
}

impl Flow {
    /// The rates of the two intervals of this round; none for the second in the beginning.
    fn rates(&self) -> [f64; 2] {
        match self.stage {
            Stage::Starting { .. } => [self.rate, 0.0],
            Stage::Learning { faster_first, .. } => {
                let (up, down) = (self.rate * (1.0 + APART), self.rate * (1.0 - APART));
                if faster_first { [up, down] } else { [down, up] }
            }
        }
    }

    /// What an interval was worth; whether it was the last of its round.
    fn learn(&mut self, which: u64, worth: Worth, utility: Utility) -> bool {
        if let (
            Stage::Starting {
                last,
                doubted: false,
            },
            Worth::Held(_),
        ) = (self.stage, worth)
        {
            // The window of this interval had no room yet for what waits for an ACK.
            self.stage = Stage::Starting {
                last,
                doubted: true,
            };
            return true;
        }
        if let Worth::Held(rate) = worth {
            self.rate = rate;
            self.ascent = Ascent::default();
            self.pair();
            return true;
        }
        match (self.stage, worth) {
            (Stage::Starting { last, doubted }, Worth::Known(seen)) => {
                let worth = utility.of(seen.rate, seen.slope.significant(), seen.losses.part());
                if last.is_none_or(|last| worth > last) {
                    self.rate *= 2.0;
                    self.stage = Stage::Starting {
                        last: Some(worth),
                        doubted: false,
                    };
                } else if seen.slope.is_marginal() && !doubted {
                    self.stage = Stage::Starting {
                        last,
                        doubted: true,
                    };
                } else {
                    self.rate /= 2.0;
                    self.pair();
                }
                true
            }
            (Stage::Learning { faster_first, .. }, _) if which == 1 => {
                self.stage = Stage::Learning {
                    faster_first,
                    first: worth,
                };
                false
            }
            (
                Stage::Learning {
                    faster_first,
                    first,
                },
                second,
            ) => {
                if let (Worth::Known(first), Worth::Known(second)) = (first, second) {
                    let (fast, slow) = if faster_first {
                        (first, second)
                    } else {
                        (second, first)
                    };
                    let [lost_fast, lost_slow] = Losses::parts(fast.losses, slow.losses);
                    let more = utility.of(fast.rate, fast.slope.significant(), lost_fast)
                        - utility.of(slow.rate, slow.slope.significant(), lost_slow);
                    self.rate = self
                        .ascent
                        .follow(self.rate, more / (2.0 * APART * self.rate));
                }
                self.pair();
                true
            }
            (Stage::Starting { .. }, _) => true,
        }
    }

    /// The next round is a pair, in an order that nobody can know beforehand and every run repeats.
    fn pair(&mut self) {
        self.stage = Stage::Learning {
            faster_first: scatter(self.id ^ self.round.rotate_left(32)) & 1 == 1,
            first: Worth::Unknown,
        };
    }

    fn order(&mut self, srtt: f64, control: &mut Control<'_>) {
        let least = LEAST_RATE * self.mss / srtt / BYTES_PER_MBIT;
        self.rate = self.rate.max(least).min(MOST_RATE);
        self.round += 1;
        let bytes = |rate: f64| Rate::from_bytes_per_sec((rate * BYTES_PER_MBIT) as u64);
        let [first, second] = self.rates();
        let packets = PACKETS * self.mss / (self.rate * BYTES_PER_MBIT);
        let sufficient = self.sufficient.min(RTTS_MAX * srtt);
        let acks = ACKS_MIN * self.ack_interval;
        let length = srtt
            .max(packets)
            .max(sufficient)
            .max(acks)
            .clamp(SHORTEST, LONGEST);
        let waiting = if self.burst > SOME_PACKETS {
            ROOM * self.burst * self.mss
        } else {
            0.0
        };
        let window = ROOM * first.max(second) * BYTES_PER_MBIT * srtt + waiting;
        for (name, value) in [
            ("go", self.round),
            ("first", bytes(first).bytes_per_sec()),
            ("second", bytes(second).bytes_per_sec()),
            ("length", (length * 1e6) as u64),
            ("window", window.max(LEAST_SEGMENTS * self.mss) as u64),
        ] {
            control.set(name, value);
        }
    }
}

impl Algorithm for Vivace {
    type Flow = Flow;

    fn name(&self) -> &str {
        "vivace"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("vivace", PROGRAM)
    }

    fn needs(&self) -> Capabilities {
        Capabilities::CWND
            .with(Capabilities::RTT)
            .with(Capabilities::PACING)
    }

    /// It paces at a rate of its own, so that an idle time ends without a burst.
    fn wants(&self) -> Capabilities {
        self.needs().with(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Flow {
        control.program("vivace", &[]);
        let id = control.this().map_or(0, |id| id.flow);
        let mut flow = Flow {
            mss: info.mss.get().max(1) as f64,
            id: scatter(id.wrapping_add(0x9e37_79b9_7f4a_7c15)),
            round: 0,
            initial: info.init_cwnd.get() as f64,
            rate: 0.0,
            stage: Stage::Starting {
                last: None,
                doubted: false,
            },
            ascent: Ascent::default(),
            sufficient: 0.0,
            burst: 0.0,
            ack_interval: 0.0,
        };
        let srtt = info.srtt.as_secs_f64();
        if info.live && srtt > 0.0 {
            // What it sends now is about right: no slow start.
            flow.rate = info.cwnd.get() as f64 / srtt / BYTES_PER_MBIT;
            flow.pair();
            flow.order(srtt, control);
        }
        flow
    }

    fn on_report(&mut self, flow: &mut Flow, report: &Report<'_>, control: &mut Control<'_>) {
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
                // A timeout, for which the authors' code has no word: what was measured is void,
                // and the rate halves.
                flow.rate /= 2.0;
                flow.ascent = Ascent::default();
                flow.pair();
            }
            return flow.order(srtt, control);
        }
        let seen = Seen {
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
        flow.burst = (flow.burst * BURST_KEPT).max(burst as f64);
        flow.ack_interval +=
            LENGTH_GAIN * (span_us as f64 / 1e6 / n.max(1) as f64 - flow.ack_interval);
        flow.sufficient += LENGTH_GAIN * (seen.sufficient() - flow.sufficient);
        let [first, second] = flow.rates();
        let worth = seen.worth(if which == 1 { first } else { second }, flow.mss);
        if flow.learn(which, worth, self.utility) {
            flow.order(srtt, control);
        }
    }
}

/// A new `go` is an order. `phase` is 1 while the first interval is sent, 2 in the second, 3 after
/// them. `a`, `b` and `c` are when the first began, when it ended, and when the second ended.
/// `first_sent` and `second_sent` count the packets that left in each, as the growth of what was
/// delivered, lost or is in flight. `interval` is the one whose ACKs arrive: 1, 2, or 3 for none.
/// Losses count for it once one of its packets has arrived. A report of interval 0 asks for an
/// order, or tells of a timeout. A threshold of infinity asks for no reduction of the window in a
/// recovery, since the rate is what limits.
const PROGRAM: &str = "(def
    (Report
        (round 0) (which 0) (volatile lost 0) (volatile n 0) (volatile x 0) (volatile y 0) (volatile xx 0) (volatile xy 0)
        (volatile yy 0) (volatile steps 0) (volatile limited false) (span 0) (sent 0) (volatile burst 0) (srtt 0))
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
(when (&& (< interval 3) (< Flow.rtt_sample_us +infinity) (> (+ Ack.packets_acked Ack.packets_misordered) 0))
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
