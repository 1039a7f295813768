//! Questions: the runs of each, and the verdict on their results.

use ccplane_report::Table;
use ccplane_report::chart::Chart;
use serde::Serialize;

use super::measured::Measured;
use super::relative::RelativeResult;
use crate::contender::Contender;
use crate::scenario::Scenario;
use crate::sweep::{ListedRun, RunRow, RunTiming, identity};

/// Question about an algorithm.
#[derive(Debug)]
pub struct Question {
    /// Name on the command line.
    pub name: &'static str,
    /// Title in a few words.
    pub title: &'static str,
    /// Method, for a reader of the page.
    pub about: &'static str,
    /// Source of the question.
    pub source: &'static str,
    /// Criteria for pass, caution and fail, with their reason.
    pub criterion: &'static str,
    /// Returns the runs.
    pub(super) plan: fn(&Setting) -> Plan,
    /// Judges their results.
    pub(super) judge: fn(&Setting, &Outcomes) -> Answer,
}

/// Algorithm of an evaluation, and its extent.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The algorithm with its parameters.
    pub algorithm: Contender,
    /// True for shorter and fewer runs, while an algorithm is developed.
    pub quick: bool,
    /// BBR, if the registry has it.
    pub(super) bbr: Option<Contender>,
}

impl Setting {
    /// Returns the first value, or the second with `quick`.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Returns the algorithm as scenarios name it.
    pub(super) fn name(&self) -> String {
        self.algorithm.to_string()
    }
}

/// Runs of a question.
pub(super) enum Plan {
    /// Runs to make.
    Runs(Vec<Run>),
    /// The algorithm to compare with is missing, with the reason.
    Cannot(String),
}

/// Seed of all runs of an evaluation and of the arena.
pub(crate) const SEED: u64 = 1;

/// Run of a question.
pub(crate) struct Run {
    /// Name by which the judge finds it.
    pub(crate) key: String,
    pub(crate) scenario: Scenario,
}

impl Run {
    /// Returns the row of this run in a table whose axes are a group and the run's name. Its
    /// identity is computed here: the outcome may be from the process of an untrusted candidate.
    pub(crate) fn listed(
        &self,
        group: &str,
        datapath: &str,
        outcome: &Result<Measured, String>,
    ) -> ListedRun {
        let id = identity(&self.scenario, datapath, SEED);
        let row = match outcome {
            Ok(measured) => RunRow {
                id,
                ..measured.row.clone()
            },
            Err(why) => RunRow::failed(&id, why, RunTiming::default()),
        };
        let mut algorithms: Vec<String> = Vec::new();
        for control in self.scenario.controls().map(Contender::to_string) {
            if !algorithms.contains(&control) {
                algorithms.push(control);
            }
        }
        ListedRun {
            point: vec![group.to_owned(), self.key.clone()],
            algorithm: algorithms.join(" + "),
            row,
        }
    }
}

/// Results of a question's runs.
pub(super) struct Outcomes(pub(super) Vec<(String, Measured)>);

impl Outcomes {
    /// Returns the results of a run. Judges use the keys of their own plan.
    pub fn of(&self, key: &str) -> &Measured {
        static NOTHING: std::sync::LazyLock<Measured> = std::sync::LazyLock::new(Measured::default);
        let found = self.0.iter().find(|(known, _)| known == key);
        debug_assert!(found.is_some(), "no plan has {key}");
        found.map_or(&NOTHING, |(_, measured)| measured)
    }
}

/// Verdict on an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It meets the criterion.
    Pass,
    /// Worse than the algorithms in use, within bounds. Read the results before deploying it where
    /// this matters.
    Caution,
    /// It would harm other traffic, or not work, where this matters.
    Fail,
    /// The question could not be evaluated; the finding has the reason.
    Unanswered,
}

impl Verdict {
    /// Returns the word of the page and the tables.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Caution => "caution",
            Verdict::Fail => "fail",
            Verdict::Unanswered => "unanswered",
        }
    }

    /// Returns the verdict on a value of which more is better.
    pub(super) fn at_least(value: f64, pass: f64, caution: f64) -> Verdict {
        if value >= pass {
            Verdict::Pass
        } else if value >= caution {
            Verdict::Caution
        } else {
            Verdict::Fail
        }
    }

    /// Returns the verdict on a value of which less is better.
    pub(super) fn at_most(value: f64, pass: f64, caution: f64) -> Verdict {
        Verdict::at_least(-value, -pass, -caution)
    }

    /// Returns a caution in place of a failure.
    pub(super) fn no_worse_than_caution(self) -> Verdict {
        self.min(Verdict::Caution)
    }
}

/// Value with its name, which includes the unit. docs/results-format.md lists all names. A value
/// that is not finite is null in JSON.
pub type Figure = (&'static str, f64);

/// Results at one of a question's places.
#[derive(Clone, Debug)]
pub struct Place {
    /// Name: `0.25bdp`, `96mbit-20ms`.
    pub place: String,
    /// Values.
    pub figures: Vec<Figure>,
}

impl Place {
    pub(super) fn new(place: impl Into<String>, numbers: impl Into<Vec<Figure>>) -> Place {
        Place {
            place: place.into(),
            figures: numbers.into(),
        }
    }
}

/// Answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Verdict.
    pub verdict: Verdict,
    /// Finding in one or two sentences with numbers.
    pub finding: String,
    /// Values of the whole question.
    pub figures: Vec<Figure>,
    /// Values of its places, in the order of the table.
    pub places: Vec<Place>,
    /// Algorithm of the values whose names begin with `reference_`.
    pub reference: Option<&'static str>,
    /// Values as a table.
    pub table: Table,
    /// Charts.
    pub charts: Vec<Chart>,
    /// Goodput and delay relative to the reference at the same places.
    pub relative: Vec<RelativeResult>,
}

impl Answer {
    pub(super) fn unanswered(finding: String) -> Answer {
        Answer {
            verdict: Verdict::Unanswered,
            finding,
            figures: Vec::new(),
            places: Vec::new(),
            reference: None,
            table: Table::default(),
            charts: Vec::new(),
            relative: Vec::new(),
        }
    }
}
