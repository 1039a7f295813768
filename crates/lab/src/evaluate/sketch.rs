//! Scenarios of the questions, written as their files would be: a page's reader can run each of
//! them again.

use std::fmt::{Display, Write};
use std::path::Path;

use super::measured::SAMPLES;
use super::question::Run;
use crate::scenario::Scenario;

/// The standard link: CCP's.
pub(super) const RATE: &str = "96mbit";
/// Its round-trip time.
pub(super) const RTT: &str = "20ms";

/// A scenario under construction. Unless it says otherwise: a dumbbell of the standard link, 30 s.
#[derive(Clone, Debug)]
pub(crate) struct Sketch {
    seconds: f64,
    contender: Option<String>,
    network: String,
    rest: String,
    transport: &'static str,
}

impl Sketch {
    /// A dumbbell with a pair of hosts for each flow that may need one.
    pub(crate) fn dumbbell(rate: impl Display, rtt: impl Display, queue: impl Display) -> Sketch {
        Sketch::network(format!(
            "[topology.dumbbell]\npairs = 2\nrate = \"{rate}\"\nrtt = \"{rtt}\"\n\
             queue = \"{queue}\"\n"
        ))
    }

    /// A dumbbell with one pair of hosts, which kernel TCP can be run over as well.
    pub(super) fn link(rate: impl Display, rtt: impl Display, queue: impl Display) -> Sketch {
        Sketch::network(format!(
            "[topology.dumbbell]\nrate = \"{rate}\"\nrtt = \"{rtt}\"\nqueue = \"{queue}\"\n"
        ))
    }

    /// The same over a generated cellular trace of this mean rate.
    pub(super) fn cellular(mean: impl Display, rtt: impl Display, queue: impl Display) -> Sketch {
        Sketch::network(format!(
            "[topology.dumbbell]\ncellular = {{ mean = \"{mean}\" }}\nrtt = \"{rtt}\"\n\
             queue = \"{queue}\"\n"
        ))
    }

    /// Any network: a `[topology]`, or nodes and links.
    pub(super) fn network(network: String) -> Sketch {
        Sketch {
            seconds: 30.0,
            contender: None,
            network,
            rest: String::new(),
            transport: "",
        }
    }

    /// A setting of the dumbbell: `loss = "1%"`.
    pub(crate) fn with(mut self, setting: impl Display) -> Sketch {
        let _ = writeln!(self.network, "{setting}");
        self
    }

    /// How long it runs.
    pub(crate) fn seconds(self, seconds: f64) -> Sketch {
        Sketch { seconds, ..self }
    }

    /// The workload `kind` (`bulk = {}`) under this algorithm. `places` says where: `from =
    /// "left1"`, `start = "5s"`.
    pub(crate) fn flow(mut self, algorithm: impl Display, kind: &str, places: &str) -> Sketch {
        let _ = writeln!(
            self.rest,
            "[[workload]]\nalgorithm = \"{algorithm}\"\n{places}\n{kind}"
        );
        self
    }

    /// The workload whose figures are wanted, under this algorithm; all others are cross traffic.
    pub(super) fn compared(mut self, algorithm: impl Display, kind: &str, places: &str) -> Sketch {
        self.contender = Some(algorithm.to_string());
        let _ = writeln!(self.rest, "[[workload]]\n{places}\n{kind}");
        self
    }

    /// A change: `at`, the link, and what (`rate = "24mbit"`).
    pub(crate) fn event(mut self, at: f64, link: &str, what: &str) -> Sketch {
        let _ = writeln!(
            self.rest,
            "[[event]]\nat = \"{at:.3}s\"\nlink = \"{link}\"\n{what}"
        );
        self
    }

    /// The link that is looked at, where it is not the dumbbell's.
    pub(super) fn look_at(mut self, link: &str) -> Sketch {
        let _ = writeln!(self.rest, "[report]\nlink = \"{link}\"");
        self
    }

    /// ECN for every flow; without this, for those whose algorithm needs it.
    pub(super) fn ecn(self) -> Sketch {
        Sketch {
            transport: "[transport]\necn = true\n",
            ..self
        }
    }

    /// The run.
    pub(crate) fn run(self, key: impl Into<String>) -> Run {
        let contenders = self
            .contender
            .map_or(String::new(), |c| format!("contenders = [\"{c}\"]\n"));
        let nanos = (self.seconds * 1e9).round() as u64;
        let text = format!(
            "{contenders}duration = \"{nanos}ns\"\nsample = \"{}ns\"\n\n{}\n{}\n{}",
            (nanos / SAMPLES).max(1),
            self.network,
            self.rest,
            self.transport,
        );
        let key = key.into();
        // A question's own text: the test of all plans reads every one of them.
        let scenario = Scenario::parse(&key, &text, Path::new("."))
            .unwrap_or_else(|problem| panic!("{key}: {}\n{text}", problem.message()));
        Run { key, scenario }
    }
}

/// The part of a key that tells runs apart by a figure: `0.1%` is `0.1`.
pub(super) fn word(text: impl Display) -> String {
    let text = text.to_string();
    text.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect::<String>()
        .trim_matches('-')
        .to_owned()
}
