//! The questions that RFC 9743 (Specifying New Congestion Control Algorithms, BCP 133) asks of an
//! algorithm, each as a set of runs with a verdict and charts.
//!
//! [`QUESTIONS`] is the list. A [`Question`] returns its runs as scenarios, judges their results,
//! and names the source of its criterion. Most criteria compare with Reno or Cubic at the same
//! place, as the RFC does. [`run`](run()) makes all runs of all questions on all cores. A verdict
//! depends only on the algorithm and the question, not on threads, order or interruptions.

mod aqm;
mod buffers;
mod compete;
mod flows;
mod leaderboard;
mod loss;
mod measured;
mod own;
mod page;
mod path;
mod question;
mod ranges;
mod relative;
mod run;
mod sketch;
mod sweep;

use ccplane_report::wrap;
use serde_json::{Value, json};

use crate::sweep::RunTable;

pub use leaderboard::PAGE_FILE;
pub use measured::Measured;
pub use page::page;
pub use question::{Answer, Figure, Place, Question, Setting, Verdict};
pub(crate) use question::{Run, SEED};
pub use relative::RelativeResult;
pub use run::{Options, check, run};
pub(crate) use sketch::Sketch;

/// Version of the names in the file of an evaluation (docs/results-format.md).
pub const SCHEMA: u32 = 2;

/// All questions, in the order of the page.
pub const QUESTIONS: &[Question] = &[
    flows::START_UP,
    buffers::BUFFERBLOAT,
    buffers::SHALLOW,
    own::FAIRNESS,
    own::RTT_FAIRNESS,
    own::OVERLOAD,
    compete::CUBIC,
    compete::RENO,
    compete::BBR,
    flows::SHORT_FLOWS,
    flows::APPLICATION,
    loss::RANDOM,
    loss::BURSTS,
    aqm::AQM,
    path::REORDERING,
    path::POLICER,
    path::CELLULAR,
    path::ACKS,
    path::CHANGES,
    ranges::DELAYS,
    ranges::RATES,
];

/// Returns the question of this name.
pub fn by_name(name: &str) -> Option<&'static Question> {
    QUESTIONS.iter().find(|question| question.name == name)
}

/// Answers about several algorithms, and the table of all runs.
#[derive(Clone, Debug)]
pub struct Evaluations {
    /// One per algorithm, in their order.
    pub each: Vec<Evaluation>,
    /// One row per run. Algorithms that are compared with the same reference share its runs.
    pub runs: RunTable,
}

/// All answers about one algorithm.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The algorithm with its parameters.
    pub algorithm: String,
    /// Description by its author.
    pub about: String,
    /// Command line that repeats the evaluation.
    pub command: String,
    /// Name of the backend.
    pub datapath: &'static str,
    /// True for shorter and fewer runs.
    pub quick: bool,
    /// Answers in the order of [`QUESTIONS`].
    pub answers: Vec<(&'static Question, Answer)>,
    /// Questions that this datapath does not support.
    pub left_out: Vec<&'static str>,
    /// Complaints of the datapath: name of the question, run, complaint.
    pub complaints: Vec<(&'static str, String, String)>,
    /// Simulated or real time of all runs together, s.
    pub duration_s: f64,
}

impl Evaluation {
    /// Returns the number of answers with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.answers
            .iter()
            .filter(|(_, answer)| answer.verdict == verdict)
            .count()
    }

    /// Returns true if the simulator ran the evaluation.
    fn is_simulated(&self) -> bool {
        self.datapath == "simulator"
    }

    /// Returns the numbers of verdicts in words.
    fn counts(&self) -> String {
        let counts = [
            Verdict::Pass,
            Verdict::Caution,
            Verdict::Fail,
            Verdict::Unanswered,
        ]
        .map(|verdict| (self.count(verdict), verdict.word()))
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}"));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Returns verdicts and values of all questions for scripts.
    pub fn json(&self) -> Value {
        // More decimals of a simulated minute have no meaning.
        let figure = |(name, value): &Figure| ((*name).to_owned(), round(*value, 4));
        let place = |place: &Place| {
            let named = [("place".to_owned(), json!(place.place))].into_iter();
            Value::Object(named.chain(place.figures.iter().map(figure)).collect())
        };
        let question = |(question, answer): &(&'static Question, Answer)| {
            json!({
                "name": question.name,
                "verdict": answer.verdict,
                "finding": answer.finding,
                "reference": answer.reference,
                "figures": Value::Object(answer.figures.iter().map(figure).collect()),
                "places": answer.places.iter().map(place).collect::<Vec<_>>(),
            })
        };
        let complaints = (self.complaints.iter())
            .map(|(question, run, what)| format!("{question}, {run}: {what}"))
            .collect::<Vec<_>>();
        json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "algorithm": self.algorithm,
            "datapath": self.datapath,
            "quick": self.quick,
            "pass": self.count(Verdict::Pass),
            "caution": self.count(Verdict::Caution),
            "fail": self.count(Verdict::Fail),
            "unanswered": self.count(Verdict::Unanswered),
            "left_out": self.left_out,
            "complaints": complaints,
            "questions": self.answers.iter().map(question).collect::<Vec<_>>(),
        })
    }

    /// Returns verdicts and findings for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (question, answer) in &self.answers {
            out += &format!(
                "{:<11} {:<15} {}\n",
                answer.verdict.word(),
                question.name,
                question.title
            );
            for line in wrap(&answer.finding, 92).lines() {
                out += &format!("{:27} {line}\n", "");
            }
        }
        if !self.left_out.is_empty() {
            out += &format!(
                "\nnot asked on {}: {}\n",
                self.datapath,
                self.left_out.join(", ")
            );
        }
        out + &format!("\n{}: {}\n", self.algorithm, self.counts())
    }
}

/// Returns a rounded value for JSON; null if it is not finite.
fn round(value: f64, digits: u32) -> Value {
    let scale = f64::from(10u32.pow(digits));
    json!((value * scale).round() / scale)
}

#[cfg(test)]
mod tests {
    use super::question::{Outcomes, Plan};
    use super::*;

    #[test]
    fn questions_have_names_of_their_own_and_say_where_they_come_from() {
        for (i, question) in QUESTIONS.iter().enumerate() {
            assert_eq!(
                QUESTIONS
                    .iter()
                    .position(|other| other.name == question.name),
                Some(i)
            );
            assert_eq!(
                by_name(question.name).map(|q| q.title),
                Some(question.title)
            );
            assert!(
                question.source.contains("RFC") && question.criterion.contains("Pass"),
                "{}",
                question.name
            );
        }
    }

    #[test]
    fn every_plan_is_of_sound_scenarios_with_keys_of_their_own() {
        for quick in [false, true] {
            let setting = Setting {
                algorithm: "cubic".parse().unwrap(),
                quick,
                bbr: Some("bbr".parse().unwrap()),
            };
            for question in QUESTIONS {
                // A scenario that could not be read would have panicked while the plan was made.
                let Plan::Runs(runs) = (question.plan)(&setting) else {
                    panic!("{} has no runs", question.name)
                };
                for (i, run) in runs.iter().enumerate() {
                    assert_eq!(
                        runs.iter().position(|other| other.key == run.key),
                        Some(i),
                        "{}",
                        run.key
                    );
                    assert!(
                        run.key
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)),
                        "{}",
                        run.key
                    );
                }
                // The judge asks for no run that is not planned, and where nothing was measured
                // there is a judgement.
                let nothing = runs
                    .into_iter()
                    .map(|run| (run.key, Measured::default()))
                    .collect();
                let nothing = (question.judge)(&setting, &Outcomes(nothing));
                assert!(!nothing.finding.is_empty());
            }
        }
    }

    #[test]
    fn every_figure_has_a_name_of_the_page_and_no_value_in_it() {
        let page = include_str!("../../../docs/results-format.md");
        let section = page
            .split("## `evaluation.json`")
            .nth(1)
            .and_then(|rest| rest.split("\n## ").next());
        let told: Vec<&str> = section
            .expect("the section")
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        for quick in [false, true] {
            let setting = Setting {
                algorithm: "cubic".parse().unwrap(),
                quick,
                bbr: Some("bbr".parse().unwrap()),
            };
            for question in QUESTIONS {
                let Plan::Runs(runs) = (question.plan)(&setting) else {
                    panic!("{} has no runs", question.name)
                };
                let nothing = runs
                    .into_iter()
                    .map(|run| (run.key, Measured::default()))
                    .collect();
                let answer = (question.judge)(&setting, &Outcomes(nothing));
                let places = answer.places.iter().flat_map(|place| &place.figures);
                let mut names: Vec<&str> = answer
                    .figures
                    .iter()
                    .chain(places)
                    .map(|(name, _)| *name)
                    .collect();
                assert!(!names.is_empty(), "{}", question.name);
                names.dedup();
                for name in names {
                    let own = name.strip_prefix("reference_").unwrap_or(name);
                    assert!(
                        told.contains(&own),
                        "{}: `{name}` is not in docs/results-format.md",
                        question.name
                    );
                    let known = own == name || answer.reference.is_some();
                    assert!(known, "{}: whose is {name}?", question.name);
                }
                for (i, place) in answer.places.iter().enumerate() {
                    let same = answer
                        .places
                        .iter()
                        .position(|other| other.place == place.place);
                    assert_eq!(same, Some(i), "{}: {} twice", question.name, place.place);
                }
            }
        }
    }

    #[test]
    fn without_bbr_the_question_says_so() {
        let setting = Setting {
            algorithm: "cubic".parse().unwrap(),
            quick: true,
            bbr: None,
        };
        let Plan::Cannot(why) = (by_name("bbr").unwrap().plan)(&setting) else {
            panic!("there is no BBR")
        };
        assert!(why.contains("BBR"), "{why}");
    }

    #[test]
    fn a_verdict_follows_its_bounds() {
        let verdicts = [0.9, 0.5, 0.1].map(|value| Verdict::at_least(value, 0.8, 0.4));
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Caution, Verdict::Fail]);
        assert_eq!(Verdict::at_most(2.0, 2.0, 3.0), Verdict::Pass);
        assert_eq!(Verdict::Fail.no_worse_than_caution(), Verdict::Caution);
        assert_eq!(
            [Verdict::Caution, Verdict::Pass].into_iter().max(),
            Some(Verdict::Caution)
        );
    }
}
