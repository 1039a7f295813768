//! Goodput over queueing delay compared with the reference, in one chart for all places where both
//! ran with the same traffic.

use ccplane_report::chart::{Axis, Chart, ChartSeries, GREY, figure};
use ccplane_report::html::{escape, note};

use super::Evaluation;
use super::measured::Measured;
use crate::report::plane::axis_of;

/// Maximum number of labels; more do not fit.
const LABELS_MAX: usize = 12;
/// Dots closer to the reference than this, in powers of two, have no label.
const LABELLED_DISTANCE_MIN: f64 = 0.05;
/// Room on each side of a logarithmic axis, as a factor.
const MARGIN: f64 = 1.3;

/// Goodput and delay of the algorithm in one place, divided by those of the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct RelativeResult {
    /// The place, for a person.
    place: String,
    /// Name of the reference.
    reference: &'static str,
    goodput: f64,
    /// 95th percentile of the queueing delay.
    delay: f64,
}

impl RelativeResult {
    /// Compares two runs; `None` if the reference delivered nothing or had no delay.
    pub(super) fn new(
        place: impl Into<String>,
        reference: &'static str,
        own: &Measured,
        other: &Measured,
    ) -> Option<RelativeResult> {
        let (own, other) = (&own.figures, &other.figures);
        let (goodput, delay) = (
            own.goodput_mbit / other.goodput_mbit,
            own.delay_p95_ms / other.delay_p95_ms,
        );
        (goodput.is_finite() && delay.is_finite() && delay > 0.0).then(|| RelativeResult {
            place: place.into(),
            reference,
            goodput,
            delay,
        })
    }

    /// Distance from the reference, in powers of two.
    fn distance(&self) -> f64 {
        libm::hypot(libm::log2(self.delay), libm::log2(self.goodput.max(1e-3)))
    }
}

/// Returns the section of the page; empty if the algorithm ran nowhere next to a reference.
pub(super) fn section(evaluation: &Evaluation) -> String {
    let all: Vec<(&str, &RelativeResult)> = evaluation
        .answers
        .iter()
        .flat_map(|(question, answer)| {
            let results = answer.relative.iter();
            results.map(|result| (question.name, result))
        })
        .collect();
    if all.is_empty() {
        return String::new();
    }
    let mut references: Vec<&str> = Vec::new();
    for (_, result) in &all {
        if !references.contains(&result.reference) {
            references.push(result.reference);
        }
    }
    let reference = references.join(" or ");
    let chart = chart(&all, &reference);
    let described = format!(
        "goodput and queueing delay of {} compared with {reference}",
        evaluation.algorithm
    );
    let about = format!(
        "Each dot is a place where {} and {reference} ran with the same traffic, each on its own. \
         Up and to the left is better. Labels name the question and the place of the dots farthest \
         from {reference}, at most {LABELS_MAX}; all of them are under Values.",
        evaluation.algorithm
    );
    format!(
        "<section><h2>Goodput and delay compared with {}</h2><p><b>{}</b></p>{}{}</section>",
        escape(&reference),
        escape(&finding(&evaluation.algorithm, &reference, &all)),
        note(&about),
        figure(&[chart], &described, "goodput-delay")
    )
}

/// Returns the medians in a sentence.
fn finding(algorithm: &str, reference: &str, all: &[(&str, &RelativeResult)]) -> String {
    let median = |of: fn(&RelativeResult) -> f64| {
        let mut values: Vec<f64> = all.iter().map(|(_, result)| of(result)).collect();
        values.sort_by(f64::total_cmp);
        ccplane_units::stats::interpolated_quantile(&values, 0.5).unwrap_or(0.0)
    };
    let share = |ratio: f64| match ratio < 2.0 {
        true => format!("{:.0}\u{a0}% of", ratio * 100.0),
        false => format!("{ratio:.1} times"),
    };
    let places = match all.len() {
        1 => "In one place".to_owned(),
        n => format!("In the median of {n} places"),
    };
    format!(
        "{places}, {algorithm} has {} {reference}'s goodput and {} its queueing delay.",
        share(median(|result| result.goodput)),
        share(median(|result| result.delay))
    )
}

fn chart(all: &[(&str, &RelativeResult)], reference: &str) -> Chart {
    let delays = || all.iter().map(|(_, result)| result.delay).chain([1.0]);
    let (shortest, longest) = (
        delays().fold(f64::INFINITY, f64::min) / MARGIN,
        delays().fold(0.0, f64::max) * MARGIN,
    );
    let goodputs = all.iter().map(|(_, result)| result.goodput * 100.0);
    let y = axis_of(&goodputs.chain([100.0]).collect::<Vec<_>>());
    let mut by_distance: Vec<usize> = (0..all.len()).collect();
    by_distance.sort_by(|a, b| all[*b].1.distance().total_cmp(&all[*a].1.distance()));
    by_distance.retain(|at| all[*at].1.distance() >= LABELLED_DISTANCE_MIN);
    by_distance.truncate(LABELS_MAX);
    let dot = |(at, (question, result)): (usize, &(&str, &RelativeResult))| {
        let name = format!("{question}: {}", result.place);
        let label = by_distance.contains(&at).then(|| name.clone());
        ChartSeries {
            dots: true,
            end_label: label.unwrap_or_default(),
            ..ChartSeries::named(name, 0, [(result.delay * 100.0, result.goodput * 100.0)])
        }
    };
    let origin = ChartSeries {
        dots: true,
        end_label: reference.to_owned(),
        ..ChartSeries::named(reference, GREY, [(100.0, 100.0)])
    };
    // Lines through the reference: the quadrant at the top left is better in both values.
    let (bottom, top) = y.range.unwrap_or((0.0, 200.0));
    let cross = [
        [(100.0, bottom), (100.0, top)],
        [(shortest * 100.0, 100.0), (longest * 100.0, 100.0)],
    ];
    let cross = cross.map(|ends| ChartSeries::new("", GREY, ends).dashed());
    Chart {
        title: format!("goodput, % of {reference}"),
        x: Axis::log(format!(
            "95th percentile of the queueing delay, % of {reference}"
        ))
        .with_range(shortest * 100.0, longest * 100.0),
        y,
        lines: cross
            .into_iter()
            .chain(all.iter().enumerate().map(dot))
            .chain([origin])
            .collect(),
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::ContenderMetrics;

    fn measured(goodput_mbit: f64, delay_p95_ms: f64) -> Measured {
        Measured {
            figures: ContenderMetrics {
                goodput_mbit,
                delay_p95_ms,
                ..ContenderMetrics::default()
            },
            ..Measured::default()
        }
    }

    fn result(goodput: f64, delay: f64) -> RelativeResult {
        let (own, other) = (measured(goodput, delay), measured(1.0, 1.0));
        RelativeResult::new(format!("{delay}"), "Cubic", &own, &other).expect("a result")
    }

    #[test]
    fn places_without_a_reference_are_left_out() {
        let of = |own: &Measured, other: &Measured| RelativeResult::new("x", "Cubic", own, other);
        let found = of(&measured(90.0, 2.0), &measured(45.0, 8.0)).expect("a result");
        assert_eq!((found.goodput, found.delay), (2.0, 0.25));
        assert_eq!(of(&measured(90.0, 2.0), &measured(0.0, 8.0)), None);
        assert_eq!(of(&measured(90.0, 2.0), &measured(90.0, 0.0)), None);
    }

    #[test]
    fn labels_are_at_the_dots_farthest_from_the_reference() {
        let results: Vec<RelativeResult> = (1..=30)
            .map(|n| result(1.0, 1.0 + 0.1 * f64::from(n)))
            .collect();
        let all: Vec<(&str, &RelativeResult)> = results.iter().map(|one| ("aqm", one)).collect();
        let chart = chart(&all, "Cubic");
        let labels = |line: &&ChartSeries| !line.end_label.is_empty();
        assert_eq!(chart.lines.iter().filter(labels).count(), LABELS_MAX + 1);
        let farthest = chart
            .lines
            .iter()
            .rfind(|line| line.name.starts_with("aqm"));
        assert_eq!(farthest.expect("a dot").end_label, "aqm: 4");
        assert_eq!(
            finding("copa", "Cubic", &all),
            "In the median of 30 places, copa has 100\u{a0}% of Cubic's goodput and 2.5 times \
             its queueing delay."
        );
    }
}
