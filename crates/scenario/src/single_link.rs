//! Scenario of a single bottleneck, described by settings instead of a file, as by the options of
//! `ccplane run`.

use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};

use ccplane_qdisc::LossModel;
use ccplane_units::{Duration, Rate};
use toml::Spanned;

use crate::file::{
    Bulk, Dumbbell, Q, ReportEntry, Routing, ScenarioFile, SteeringEntry, Topology, Transport,
    WorkloadEntry,
};
use crate::{
    Contender, FileLookup, ParsedValue, Problem, Scenario, SourceText, check, toml_list,
    toml_string,
};

/// Longest default sample interval, long enough for sockets on real packets. Runs whose default is
/// shorter use it too.
const SAMPLE_INTERVAL: Duration = check::SAMPLE_INTERVAL_MAX;
/// Duration below which a scenario would be sampled more often than every [`SAMPLE_INTERVAL`] by
/// default.
const FINE_SAMPLING_DURATION_MAX: Duration =
    Duration::from_nanos(SAMPLE_INTERVAL.as_nanos() * check::SAMPLES_PER_RUN);
/// Name of the text in problems.
const FILE_NAME: &str = "options";

/// Settings of a run over one bottleneck. `ccplane run` has an option for each, and names that
/// option in errors (`options_failure`).
#[derive(Clone, Debug)]
pub struct SingleLink {
    /// Algorithms, run one after another.
    pub contenders: Vec<Contender>,
    /// Sending time of each contender.
    pub duration: Duration,
    /// Round-trip time without queueing.
    pub rtt: Duration,
    /// Capacity of the bottleneck.
    pub capacity: Capacity,
    /// Queue of the bottleneck, as in a scenario file: `droptail:1bdp`.
    pub queue: String,
    /// Random loss towards the receiver.
    pub loss: LossModel,
    /// Connections per contender.
    pub flows: u32,
    /// True for RC3's second loop.
    pub rc3: bool,
}

/// Capacity of a bottleneck.
#[derive(Clone, Debug)]
pub enum Capacity {
    /// Constant rate.
    Rate(Rate),
    /// Trace of packet delivery opportunities (Mahimahi's format).
    Trace(PathBuf),
}

impl SingleLink {
    /// Checks the settings and returns their scenario. Its text is the equivalent scenario file, to
    /// which the spans of problems refer.
    pub fn scenario(&self) -> Result<Scenario, Problem> {
        let mut text = ScenarioText::default();
        let contenders = text.list("contenders", &self.contenders);
        let duration = text.quantity("duration", self.duration);
        let sample = (self.duration < FINE_SAMPLING_DURATION_MAX)
            .then(|| text.quantity("sample", SAMPLE_INTERVAL));
        let topology_start = text.heading("[topology.dumbbell]") + "[".len();
        let rtt = text.quantity("rtt", self.rtt);
        let (rate, trace) = match &self.capacity {
            Capacity::Rate(rate) => (Some(text.quantity("rate", *rate)), None),
            Capacity::Trace(file) => {
                let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
                (None, Some(text.word("trace", file.display().to_string())))
            }
        };
        let queue = text.word("queue", self.queue.clone());
        let loss = text.quantity("loss", self.loss);
        let workload_start = text.heading("[[workload]]");
        let flows = format!("{{ flows = {} }}", self.flows);
        let flows = text.setting("bulk", self.flows, &flows);
        let workload_end = text.end();
        if self.rc3 {
            text.heading("[transport]");
            text.setting("rc3", (), &true);
        }
        let bulk_span = flows.span();
        let file = ScenarioFile {
            title: None,
            contenders,
            duration,
            until: None,
            warm: None,
            seeds: None,
            sample,
            topology: Some(Spanned::new(
                topology_start..topology_start + "topology".len(),
                Topology::Dumbbell(Box::new(Dumbbell {
                    pairs: None,
                    rate,
                    trace,
                    piecewise: None,
                    cellular: None,
                    rtt,
                    queue: Some(queue),
                    loss: Some(loss),
                    jitter: None,
                    reorder: false,
                    access_rate: None,
                    tbf_burst: None,
                    reverse: None,
                })),
            )),
            node: Vec::new(),
            link: Vec::new(),
            workload: vec![Spanned::new(
                workload_start..workload_end,
                WorkloadEntry {
                    bulk: Some(Spanned::new(
                        bulk_span,
                        Bulk {
                            flows: Some(flows),
                            ..Bulk::default()
                        },
                    )),
                    ..WorkloadEntry::default()
                },
            )],
            bundle: Vec::new(),
            event: Vec::new(),
            routing: Routing::default(),
            transport: Transport {
                rc3: self.rc3,
                ..Transport::default()
            },
            stamps: None,
            steering: SteeringEntry::default(),
            report: ReportEntry::default(),
        };
        let source = SourceText {
            file: FILE_NAME,
            text: &text.0,
        };
        check::checked(file, source, FileLookup::Folder(Path::new(".")))
    }

    /// Returns the setting that a problem of this scenario concerns: `rtt`, `queue`, `bulk`. A
    /// heading belongs to the first setting of its table.
    pub fn setting_of(problem: &Problem) -> Option<&str> {
        let from_line = problem
            .text()
            .lines()
            .skip(problem.line().saturating_sub(1));
        let mut settings = from_line.filter_map(|line| line.split_once(" = "));
        settings.next().map(|(setting, _)| setting)
    }
}

/// Scenario text under construction. Its methods append a setting and return the value with its
/// span.
#[derive(Default)]
struct ScenarioText(String);

impl ScenarioText {
    fn end(&self) -> usize {
        self.0.len()
    }

    /// Appends an empty line and a heading. Returns the position of the heading.
    fn heading(&mut self, heading: &str) -> usize {
        self.0.push('\n');
        let start = self.0.len();
        self.0.push_str(heading);
        self.0.push('\n');
        start
    }

    fn setting<T>(&mut self, name: &str, value: T, text: &dyn Display) -> Spanned<T> {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{name} = ");
        let start = self.0.len();
        let _ = write!(self.0, "{text}");
        let span = start..self.0.len();
        self.0.push('\n');
        Spanned::new(span, value)
    }

    fn quantity<T: Display + Copy>(&mut self, name: &str, value: T) -> Q<T> {
        self.setting(name, ParsedValue(value), &toml_string(value))
    }

    fn word(&mut self, name: &str, word: String) -> Spanned<String> {
        let text = toml_string(&word);
        self.setting(name, word, &text)
    }

    fn list<T: Display + Clone>(&mut self, name: &str, values: &[T]) -> Vec<Q<T>> {
        let list = self.setting(name, (), &toml_list(values));
        let mut start = list.span().start + "[".len();
        let spanned = |value: &T| {
            let span = start..start + toml_string(value).len();
            start = span.end + ", ".len();
            Spanned::new(span, ParsedValue(value.clone()))
        };
        values.iter().map(spanned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SingleLink {
        SingleLink {
            contenders: vec![
                "cubic:report=10ms".parse().unwrap(),
                "reno".parse().unwrap(),
            ],
            duration: Duration::from_secs(15),
            rtt: Duration::from_millis(20),
            capacity: Capacity::Rate("96mbit".parse().unwrap()),
            queue: "droptail:1bdp".to_owned(),
            loss: LossModel::NONE,
            flows: 2,
            rc3: false,
        }
    }

    /// The text is kept with the results, so it must describe the same run.
    #[test]
    fn the_text_of_a_scenario_parses_to_the_same_scenario() {
        let rc3 = SingleLink {
            rc3: true,
            queue: "prio:6:shared:1bdp".to_owned(),
            loss: "1%".parse().unwrap(),
            ..settings()
        };
        for link in [settings(), rc3] {
            let built = link.scenario().unwrap();
            let read = Scenario::parse(FILE_NAME, &built.text, Path::new(".")).unwrap();
            assert_eq!(
                format!("{built:#?}"),
                format!("{read:#?}"),
                "{}",
                built.text
            );
        }
    }

    #[test]
    fn a_problem_names_its_setting() {
        let problems: [(SingleLink, &str); 4] = [
            (
                SingleLink {
                    duration: Duration::ZERO,
                    ..settings()
                },
                "duration",
            ),
            (
                SingleLink {
                    queue: "droptial:1bdp".to_owned(),
                    ..settings()
                },
                "queue",
            ),
            (
                SingleLink {
                    flows: 0,
                    ..settings()
                },
                "bulk",
            ),
            (
                SingleLink {
                    capacity: Capacity::Trace("missing.trace".into()),
                    ..settings()
                },
                "trace",
            ),
        ];
        for (link, setting) in problems {
            let problem = link.scenario().unwrap_err();
            assert_eq!(SingleLink::setting_of(&problem), Some(setting), "{problem}");
        }
    }
}
