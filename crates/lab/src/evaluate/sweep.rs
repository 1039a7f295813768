//! The form of most questions: one flow in several places, and a reference in the same places.

use ccplane_report::Table;
use ccplane_report::chart::{Axis, Chart, ChartSeries};

use super::measured::Measured;
use super::question::{Answer, Outcomes, Place, Run, Setting, Verdict};
use super::relative::RelativeResult;
use super::sketch::Sketch;

/// One place.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// In keys and figures: letters, digits, `.` and `-`.
    pub(super) key: String,
    /// For a person.
    pub(super) label: String,
    /// Where it lies on the picture's axis.
    pub(super) x: f64,
}

impl Case {
    pub(super) fn new(key: impl Into<String>, label: impl Into<String>, x: f64) -> Case {
        Case {
            key: key.into(),
            label: label.into(),
            x,
        }
    }
}

/// With whom it is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    /// As a scenario names it.
    pub(super) algorithm: &'static str,
    /// For a person.
    pub(super) name: &'static str,
}

/// RFC 9438, the transport's own.
pub(super) const CUBIC: Reference = Reference {
    algorithm: "native:cubic",
    name: "Cubic",
};
/// RFC 5681 and 6582, the transport's own.
pub(super) const RENO: Reference = Reference {
    algorithm: "native:reno",
    name: "Reno",
};

/// Both in every place. The sketch is what they share; `kind` is what they send, and from where
/// where that is a question.
pub(super) fn runs(
    setting: &Setting,
    reference: Reference,
    cases: &[Case],
    kind: &str,
    sketch: impl Fn(&Case) -> Sketch,
) -> Vec<Run> {
    let ours = setting.name();
    let both = [("own", ours.as_str()), ("reference", reference.algorithm)];
    let run = |case: &Case, who: &str, algorithm: &str| {
        let sketch = sketch(case).compared(algorithm, kind, "");
        sketch.run(format!("{who}-{}", case.key))
    };
    cases
        .iter()
        .flat_map(|case| both.map(|(who, algorithm)| run(case, who, algorithm)))
        .collect()
}

/// What was measured in one place.
#[derive(Clone, Copy)]
pub(super) struct Pair<'o> {
    /// Ours.
    pub(super) own: &'o Measured,
    /// The reference's.
    pub(super) reference: &'o Measured,
}

/// How the pairs become an answer.
pub(super) struct Sweep<'a> {
    pub(super) reference: Reference,
    pub(super) cases: &'a [Case],
    /// What is compared: its name in figures, its heading, and how it is had.
    pub(super) figure: Compared<'a>,
    /// What is shown beside it, and is a figure too.
    pub(super) beside: &'a [Beside<'a>],
    /// The axis of the picture; without one, the first case's course over time is drawn.
    pub(super) axis: Option<Axis>,
    /// How a place is judged.
    pub(super) judge: &'a dyn Fn(&Case, Pair) -> Verdict,
}

/// What is compared: its name in figures and the reference's, its heading, and how it is had.
pub(super) type Compared<'a> = (
    [&'static str; 2],
    &'static str,
    &'a dyn Fn(&Case, &Measured) -> f64,
);

/// A column: its name in figures, its heading, and how it is had.
pub(super) type Beside<'a> = (&'static str, &'static str, &'a dyn Fn(&Measured) -> f64);

impl Sweep<'_> {
    /// The verdict of the worst place, and all figures. The finding is made of the places by
    /// `finding`, with their figures: ours, the reference's, verdict.
    pub(super) fn answer(
        &self,
        setting: &Setting,
        outcomes: &Outcomes,
        finding: impl Fn(&[(&Case, f64, f64, Verdict)]) -> String,
    ) -> Answer {
        let ([name, referenced], heading, value) = self.figure;
        let pair = |case: &Case| Pair {
            own: outcomes.of(&format!("own-{}", case.key)),
            reference: outcomes.of(&format!("reference-{}", case.key)),
        };
        let place = |case| {
            let pair = pair(case);
            (
                case,
                value(case, pair.own),
                value(case, pair.reference),
                (self.judge)(case, pair),
            )
        };
        let places: Vec<(&Case, f64, f64, Verdict)> = self.cases.iter().map(place).collect();
        let mut measured_at = Vec::new();
        let mut rows = Vec::new();
        for (case, own, reference, verdict) in &places {
            let measured = pair(case).own;
            let mut figures = vec![(name, *own), (referenced, *reference)];
            let mut row = vec![
                case.label.clone(),
                format!("{own:.2}"),
                format!("{reference:.2}"),
            ];
            for (name, _, value) in self.beside {
                figures.push((name, value(measured)));
                row.push(format!("{:.2}", value(measured)));
            }
            row.push(verdict.word().to_owned());
            rows.push(row);
            measured_at.push(Place::new(case.key.clone(), figures));
        }
        let beside = self.beside.iter().map(|(_, heading, _)| *heading);
        let of_reference = if self.reference.name == "Reno" {
            "of Reno"
        } else {
            "of Cubic"
        };
        let headings = ["", heading, of_reference]
            .into_iter()
            .chain(beside)
            .chain(["verdict"]);
        Answer {
            verdict: places
                .iter()
                .map(|place| place.3)
                .max()
                .unwrap_or(Verdict::Unanswered),
            finding: finding(&places),
            figures: Vec::new(),
            places: measured_at,
            reference: Some(self.reference.name),
            table: Table::new(headings, rows),
            charts: self.charts(setting, &places, pair),
            relative: self
                .cases
                .iter()
                .filter_map(|case| {
                    let Pair { own, reference } = pair(case);
                    RelativeResult::new(&case.label, self.reference.name, own, reference)
                })
                .collect(),
        }
    }

    fn charts<'o>(
        &self,
        setting: &Setting,
        places: &[(&Case, f64, f64, Verdict)],
        pair: impl Fn(&Case) -> Pair<'o>,
    ) -> Vec<Chart> {
        let ours = setting.algorithm.algorithm();
        if let Some(axis) = &self.axis {
            let own = places.iter().map(|(case, own, _, _)| (case.x, *own));
            let reference = places
                .iter()
                .map(|(case, _, reference, _)| (case.x, *reference));
            return vec![Chart {
                title: self.figure.1.replace('\n', ", "),
                x: axis.clone(),
                y: Axis::linear(""),
                lines: vec![
                    ChartSeries::new(self.reference.name, 1, reference)
                        .dots()
                        .dashed(),
                    ChartSeries::new(ours, 0, own).dots(),
                ],
                guides: Vec::new(),
            }];
        }
        let Some(worst) = places.iter().rev().max_by_key(|place| place.3) else {
            return Vec::new();
        };
        both(ours, self.reference.name, &worst.0.label, pair(worst.0))
    }
}

/// Throughput and queueing delay of both over time.
pub(super) fn both(ours: &str, reference: &str, place: &str, pair: Pair) -> Vec<Chart> {
    let seconds = || pair.own.time();
    vec![
        Chart {
            title: format!("{place}: throughput, Mbit/s"),
            x: seconds(),
            y: Axis::linear(""),
            lines: vec![
                ChartSeries::new(reference, 1, pair.reference.course()).dashed(),
                ChartSeries::new(ours, 0, pair.own.course()),
            ],
            guides: vec![(pair.own.rate_mbit, "the link".to_owned())],
        },
        Chart {
            title: "queueing delay, ms".to_owned(),
            x: seconds(),
            y: Axis::linear(""),
            lines: vec![
                ChartSeries {
                    points: pair.reference.delay_course(),
                    ..ChartSeries::new(reference, 1, []).dashed()
                },
                ChartSeries {
                    points: pair.own.delay_course(),
                    ..ChartSeries::new(ours, 0, [])
                },
            ],
            guides: Vec::new(),
        },
    ]
}

/// `value` of `reference`, 1 where neither has anything.
pub(super) fn ratio(value: f64, reference: f64) -> f64 {
    if value == reference {
        1.0
    } else {
        value / reference.max(f64::MIN_POSITIVE)
    }
}

/// Where ours has least beside Cubic; `figures` says which place that is and what each has there.
pub(super) fn least(
    places: &[(&Case, f64, f64, Verdict)],
    figures: impl Fn(&str, f64, f64) -> String,
) -> String {
    let worst = places
        .iter()
        .min_by(|a, b| ratio(a.1, a.2).total_cmp(&ratio(b.1, b.2)));
    match worst {
        Some((case, own, cubic, _)) => {
            format!("Least beside Cubic {}.", figures(&case.label, *own, *cubic))
        }
        None => "Nothing was measured.".to_owned(),
    }
}
