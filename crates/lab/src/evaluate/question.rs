//! What a question is: the runs that it needs, and how it judges them.

use ccplane_report::Table;
use ccplane_report::chart::Chart;
use serde::Serialize;

use super::measured::Measured;
use super::relative::RelativeResult;
use crate::contender::Contender;
use crate::scenario::Scenario;
use crate::sweep::{ListedRun, RunRow, RunTiming, identity};

/// What is asked.
#[derive(Debug)]
pub struct Question {
    /// What the command line calls it.
    pub name: &'static str,
    /// What is asked, in a few words.
    pub title: &'static str,
    /// What is done to find out, for a reader of the page.
    pub about: &'static str,
    /// Where the question comes from.
    pub source: &'static str,
    /// The criteria for pass, caution and fail, and their reason.
    pub criterion: &'static str,
    /// The runs that it needs.
    pub(super) plan: fn(&Setting) -> Plan,
    /// What came of them.
    pub(super) judge: fn(&Setting, &Outcomes) -> Answer,
}

/// Who is asked, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The algorithm with its parameters.
    pub algorithm: Contender,
    /// Shorter and fewer runs, to see where an algorithm stands while it is written.
    pub quick: bool,
    /// BBR, where the registry has it.
    pub(super) bbr: Option<Contender>,
}

impl Setting {
    /// The first where there is time, the second with `quick`.
    pub(super) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// The algorithm as a scenario names it.
    pub(super) fn name(&self) -> String {
        self.algorithm.to_string()
    }
}

/// The runs of a question.
pub(super) enum Plan {
    /// These.
    Runs(Vec<Run>),
    /// There is nobody to ask it against.
    Cannot(String),
}

/// Seed of all runs of an evaluation and of the arena.
pub(crate) const SEED: u64 = 1;

/// One run.
pub(crate) struct Run {
    /// How its judge finds it; also the name of its file of a run that was interrupted.
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

/// What became of a question's runs.
pub(super) struct Outcomes(pub(super) Vec<(String, Measured)>);

impl Outcomes {
    /// The run of that key. The judge asks for what its own plan named.
    pub fn of(&self, key: &str) -> &Measured {
        static NOTHING: std::sync::LazyLock<Measured> = std::sync::LazyLock::new(Measured::default);
        let found = self.0.iter().find(|(known, _)| known == key);
        debug_assert!(found.is_some(), "no plan has {key}");
        found.map_or(&NOTHING, |(_, measured)| measured)
    }
}

/// How an algorithm did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It meets the criterion.
    Pass,
    /// Within bounds, but worse than what is in use. Read the figures before deploying it where
    /// this matters.
    Caution,
    /// It would hurt others, or not work, where this matters.
    Fail,
    /// The question could not be asked, and the finding says why.
    Unanswered,
}

impl Verdict {
    /// As the page and the table have it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Caution => "caution",
            Verdict::Fail => "fail",
            Verdict::Unanswered => "unanswered",
        }
    }

    /// By a figure of which more is better.
    pub(super) fn at_least(value: f64, pass: f64, caution: f64) -> Verdict {
        if value >= pass {
            Verdict::Pass
        } else if value >= caution {
            Verdict::Caution
        } else {
            Verdict::Fail
        }
    }

    /// By a figure of which less is better.
    pub(super) fn at_most(value: f64, pass: f64, caution: f64) -> Verdict {
        Verdict::at_least(-value, -pass, -caution)
    }

    /// At worst a caution.
    pub(super) fn no_worse_than_caution(self) -> Verdict {
        self.min(Verdict::Caution)
    }
}

/// A figure with its name, which has its unit and no value in it. docs/results-format.md lists all
/// of them. One that is not finite is null in JSON.
pub type Figure = (&'static str, f64);

/// What was measured in one of a question's places.
#[derive(Clone, Debug)]
pub struct Place {
    /// Which: `0.25bdp`, `96mbit-20ms`.
    pub place: String,
    /// Its figures.
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

/// The answer to a question.
#[derive(Clone, Debug)]
pub struct Answer {
    /// How it did.
    pub verdict: Verdict,
    /// What was found, in a sentence or two with its figures.
    pub finding: String,
    /// The figures of the question as a whole that a script reads.
    pub figures: Vec<Figure>,
    /// And those of its places, in the order of the table.
    pub places: Vec<Place>,
    /// Whose figures begin with `reference_`.
    pub reference: Option<&'static str>,
    /// The figures in a table.
    pub table: Table,
    /// The picture.
    pub charts: Vec<Chart>,
    /// Goodput and delay of runs that the reference made in the same places.
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
