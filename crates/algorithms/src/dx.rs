//! DX: C. Lee, C. Park, K. Jang, S. Moon, D. Han, "Accurate Latency-based Congestion Feedback for
//! Datacenters", USENIX ATC 2015 (slides of the talk: papers/dx-slides).
//!
//! The window depends only on the queueing delay of packets: it grows by a packet while there is
//! none, and otherwise shrinks by the amount that drains the queue and leaves the link full (slides
//! 21 and 22). All of this runs in the program, because at an RTT of 20 µs an action of the agent
//! is two windows late. The agent only estimates the noise of the measurements.
//!
//! `rules=paper` has these rules alone. The default adds a headroom, decisions by packets sent
//! after the last one, windows below one packet, and a paced slow start.

mod noise;
mod program;

use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Rate};

use crate::rules::Rules;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};
use noise::{Noise, NoiseReport};
use program::TRAIN_PACKETS;

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "dx",
    doc: "DX (ATC 2015): adds a packet while no packet queues on the path, otherwise shrinks by \
        enough to empty the queue",
    parameters: &[
        ParameterDoc {
            name: "delay",
            default: "auto",
            values: "auto | stamps | rtt",
            doc: "source of the queueing delay: both ends' time stamps if available, otherwise \
                the RTT; only time stamps; only the RTT",
        },
        ParameterDoc {
            name: "headroom",
            default: "auto",
            values: "auto | a duration such as 12us | a number of packets such as 1.5p",
            doc: "delay that counts as no queue; auto: noise plus the maximum of a packet, the \
                hosts' delay and a sixteenth of the path (at most 10 packets)",
        },
        ParameterDoc {
            name: "rate",
            default: "auto",
            values: "auto | a rate such as 10gbit",
            doc: "rate of the slowest link, which converts packets to time; auto: measured",
        },
        ParameterDoc {
            name: "rules",
            default: "extended",
            values: "extended | paper",
            doc: "control law; paper: the slides' rules alone, one packet per RTT without a queue, \
                and defaults of headroom=0us,samples=freshest; extended: with our additions",
        },
        ParameterDoc {
            name: "samples",
            default: "after",
            values: "after | window | freshest",
            doc: "packets averaged per decision: a window of packets sent after the last \
                decision; all since then; the first one sent after it",
        },
        ParameterDoc {
            name: "window",
            default: "fractional",
            values: "fractional | floor | ceil",
            doc: "handling of fractional packets: kept, and paced below one packet; rounded down; \
                rounded up",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let rules = parameters.choice("rules", Rules::Extended, &Rules::WORDS)?;
    let (headroom, samples) = match rules {
        Rules::Extended => (Headroom::Auto, Samples::After),
        Rules::Paper => (Headroom::Time(Duration::ZERO), Samples::Freshest),
    };
    Ok(box_algorithm(Dx {
        rules,
        delay: parameters.choice("delay", Delay::Auto, &Delay::WORDS)?,
        headroom: parameters.read("headroom", headroom)?,
        rate: parameters.rate_or("rate", "auto")?,
        samples: parameters.choice("samples", samples, &Samples::WORDS)?,
        window: parameters.choice("window", WindowRounding::Fractional, &WindowRounding::WORDS)?,
    }))
}

/// Source of the queueing delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    /// Time stamps if available, else the RTT.
    Auto,
    /// Time stamps; a datapath without them is rejected.
    Stamps,
    /// RTT; time stamps are not requested.
    Rtt,
}

impl Delay {
    const WORDS: [(&str, Delay); 3] = [
        ("auto", Delay::Auto),
        ("stamps", Delay::Stamps),
        ("rtt", Delay::Rtt),
    ];
}

/// Queueing delay that is treated as none.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Headroom {
    /// Noise plus a fraction of the path: `BURSTS` in `program.rs`.
    Auto,
    Time(Duration),
    Packets(f64),
}

impl FromStr for Headroom {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Headroom, &'static str> {
        let packets = text.strip_suffix('p').map(str::parse::<f64>);
        match (text, packets, text.parse::<Duration>()) {
            ("auto", ..) => Ok(Headroom::Auto),
            (_, Some(Ok(packets)), _) if (0.0..=1000.0).contains(&packets) => {
                Ok(Headroom::Packets(packets))
            }
            (_, None, Ok(time)) if time <= Duration::from_secs(1) => Ok(Headroom::Time(time)),
            _ => Err(
                "expected `auto`, a duration of at most 1s, or packets such as `1.5p`, at most \
                 1000p",
            ),
        }
    }
}

/// Samples that a decision averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Samples {
    /// One window of packets sent after the last decision.
    After,
    /// Every packet since the last decision, including packets in flight at that time.
    Window,
    /// The first packet sent after the last decision.
    Freshest,
}

impl Samples {
    const WORDS: [(&str, Samples); 3] = [
        ("after", Samples::After),
        ("window", Samples::Window),
        ("freshest", Samples::Freshest),
    ];
}

/// Treatment of fractions of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowRounding {
    /// Kept.
    Fractional,
    /// Rounded down by each decision.
    Floor,
    /// Rounded up by each decision.
    Ceil,
}

impl WindowRounding {
    const WORDS: [(&str, WindowRounding); 3] = [
        ("fractional", WindowRounding::Fractional),
        ("floor", WindowRounding::Floor),
        ("ceil", WindowRounding::Ceil),
    ];
}

#[derive(Debug)]
struct Dx {
    /// Control law. The paper's are the rules of slides 18 to 24. What the slides do not state is
    /// TCP's: slow start, and the reaction to losses.
    rules: Rules,
    delay: Delay,
    headroom: Headroom,
    rate: Option<Rate>,
    samples: Samples,
    window: WindowRounding,
}

/// State of a flow.
struct DxFlow {
    mss: f64,
    noise: Noise,
    /// Noise installed in the program, ns.
    installed_noise: u64,
    /// The last report's delay was from time stamps; `None` before the first report.
    stamped: Option<bool>,
}

impl Algorithm for Dx {
    type Flow = DxFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("dx", self.program())
    }

    fn required_capabilities(&self) -> Capabilities {
        let needs = Capabilities::CWND
            .union(Capabilities::PACING)
            .union(Capabilities::RTT)
            .union(Capabilities::RECOVERY);
        match self.delay {
            Delay::Stamps => needs.union(Capabilities::ONE_WAY_DELAY),
            Delay::Auto | Delay::Rtt => needs,
        }
    }

    fn requested_capabilities(&self) -> Capabilities {
        match self.delay {
            Delay::Auto | Delay::Stamps => self
                .required_capabilities()
                .union(Capabilities::ONE_WAY_DELAY),
            Delay::Rtt => self.required_capabilities(),
        }
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> DxFlow {
        // A flow that is taken over skips slow start.
        let mut start = vec![("slow", u64::from(!info.live))];
        if self.measures_packet_time() {
            // The first ACK ends a train of unknown length and starts the next.
            start.push(("train", info.mss.get().saturating_mul(TRAIN_PACKETS)));
        }
        control.set_program("dx", &start);
        DxFlow {
            mss: info.mss.get().max(1) as f64,
            noise: Noise::default(),
            installed_noise: 0,
            stamped: None,
        }
    }

    fn on_report(&mut self, flow: &mut DxFlow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[
            _,
            _,
            decisions,
            _,
            _,
            packet,
            stamped,
            window,
            base,
            spread,
            back,
            back_least,
        ] = report.fields()
        else {
            return;
        };
        let stamped = stamped != 0;
        if flow.stamped != Some(stamped) {
            // The first report may precede the first time stamp.
            let lost = flow.stamped.is_some() || decisions > 0;
            if lost && !stamped && self.delay != Delay::Rtt {
                tracing::info!(
                    "dx: no time stamps from the peer, or no longer; measuring queueing delay by \
                     the RTT"
                );
            }
            if lost || stamped {
                flow.noise = Noise::default();
                flow.stamped = Some(stamped);
            }
        }
        if self.headroom != Headroom::Auto {
            return;
        }
        let samples = match self.samples {
            Samples::Freshest => 1.0,
            Samples::After | Samples::Window => window as f64 / flow.mss,
        };
        let seen = NoiseReport {
            spread,
            reverse_mean: back,
            reverse_min: back_least,
        };
        let noise = flow.noise.update(control.now(), seen, stamped, samples);
        let noise = noise + scatter(window as f64 / flow.mss, base, packet);
        if noise != flow.installed_noise {
            flow.installed_noise = noise;
            control.set_variable("noise", noise);
        }
    }
}

/// Returns the queueing delay of many paced flows whose rates fit the link, ns. Below one packet
/// the window is a pacing rate, and the flows' phases are random. The queue of N periodic flows at
/// full load is the maximum of a Brownian bridge over √N packets, on average √(π/8)·√N packets. As
/// elsewhere in DX, all flows are assumed to have the same window: N·W = R/D. Without this term, a
/// link shared by more flows than it holds packets is used to four fifths.
fn scatter(window: f64, base: u64, packet: u64) -> u64 {
    if window >= 1.0 || packet >= INFINITY {
        return 0;
    }
    let flows = base as f64 / (packet.max(1) as f64 * window.max(0.001));
    libm::rint(0.627 * libm::sqrt(flows) * packet as f64) as u64
}

#[cfg(test)]
mod tests;
