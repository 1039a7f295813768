//! Goodput over queueing delay compared with the reference, in one chart for all places where both
//! ran with the same traffic.

use ccplane_report::chart::{Axis, Chart, ChartSeries, GREY, figure};
use ccplane_report::html::{escape, note};

use super::measured::Measured;

/// Maximum number of labels; more do not fit.
const LABELS_MAX: usize = 8;
/// Dots have a label if their goodput is less by this share, or their delay longer.
const LABELLED_SHARE: f64 = 0.1;
/// Room on each side of an axis, as a factor.
const MARGIN: f64 = 1.25;

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
    /// Compares two runs; `None` if one of them delivered nothing, or had no delay.
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
        let known = [goodput, delay].map(|ratio| ratio.is_finite() && ratio > 0.0);
        (known == [true, true]).then(|| RelativeResult {
            place: place.into(),
            reference,
            goodput,
            delay,
        })
    }

    /// Returns true if the result is clearly worse than the reference in one of both values.
    fn is_worse(&self) -> bool {
        self.goodput < 1.0 - LABELLED_SHARE || self.delay > 1.0 + LABELLED_SHARE
    }

    /// Returns how many times worse than the reference this is in the worse of both values.
    fn times_worse(&self) -> f64 {
        self.delay.max(1.0 / self.goodput)
    }
}

/// Returns the section of the page. `all` has the question of each result. The section is empty if
/// the algorithm ran nowhere next to a reference.
pub(super) fn section(algorithm: &str, all: &[(&str, &RelativeResult)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut references: Vec<&str> = Vec::new();
    for (_, result) in all {
        if !references.contains(&result.reference) {
            references.push(result.reference);
        }
    }
    let reference = references.join(" or ");
    let chart = chart(all, &reference);
    let described = format!("goodput and queueing delay of {algorithm} compared with {reference}");
    let about = format!(
        "Each dot is a place where {algorithm} and {reference} ran with the same traffic, each on its own, \
         and delivered something. Up and to the left is better. Labels name the places with over \
         {share:.0}\u{a0}% less goodput or more delay, at most the {LABELS_MAX} worst; all places \
         are under Values.",
        share = LABELLED_SHARE * 100.0
    );
    format!(
        "<section><h2>Goodput and delay compared with {}</h2><p><b>{}</b></p>{}{}</section>",
        escape(&reference),
        escape(&finding(algorithm, &reference, all)),
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
        1 => "one place".to_owned(),
        n => format!("{n} places, medians"),
    };
    format!(
        "{algorithm} in {places}: {} the goodput of {reference}, and {} the queueing delay.",
        share(median(|result| result.goodput)),
        share(median(|result| result.delay))
    )
}

fn chart(all: &[(&str, &RelativeResult)], reference: &str) -> Chart {
    let range = |of: fn(&RelativeResult) -> f64| {
        let values = || all.iter().map(|(_, result)| of(result)).chain([1.0]);
        let (least, most) = (
            values().fold(f64::INFINITY, f64::min),
            values().fold(0.0, f64::max),
        );
        (least / MARGIN * 100.0, most * MARGIN * 100.0)
    };
    let (left, right) = range(|result| result.delay);
    let (bottom, top) = range(|result| result.goodput);
    let times_worse = |at: usize| all.get(at).map_or(0.0, |(_, result)| result.times_worse());
    let mut worst: Vec<usize> = (0..all.len()).collect();
    worst.retain(|at| all.get(*at).is_some_and(|(_, result)| result.is_worse()));
    worst.sort_by(|a, b| times_worse(*b).total_cmp(&times_worse(*a)));
    worst.truncate(LABELS_MAX);
    let dot = |(at, (question, result)): (usize, &(&str, &RelativeResult))| {
        let name = format!("{question}: {}", result.place);
        let label = worst.contains(&at).then(|| name.clone());
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
    let cross = [
        [(100.0, bottom), (100.0, top)],
        [(left, 100.0), (right, 100.0)],
    ];
    let cross = cross.map(|ends| ChartSeries::new("", GREY, ends).dashed());
    Chart {
        title: format!("goodput, % of {reference}"),
        x: Axis::log(format!(
            "95th percentile of the queueing delay, % of {reference}"
        ))
        .with_range(left, right),
        y: Axis::log("").with_range(bottom, top),
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
        assert_eq!(of(&measured(0.0, 2.0), &measured(90.0, 1.0)), None);
    }

    #[test]
    fn labels_are_at_the_worst_dots() {
        let results: Vec<RelativeResult> = (-9..=20)
            .map(|n| result(1.0, 1.0 + 0.1 * f64::from(n)))
            .collect();
        let all: Vec<(&str, &RelativeResult)> = results.iter().map(|one| ("aqm", one)).collect();
        let chart = chart(&all, "Cubic");
        let labels = |line: &&ChartSeries| !line.end_label.is_empty();
        assert_eq!(chart.lines.iter().filter(labels).count(), LABELS_MAX + 1);
        let worst = chart
            .lines
            .iter()
            .rfind(|line| line.name.starts_with("aqm"));
        assert_eq!(worst.expect("a dot").end_label, "aqm: 3");
        // No dot that is better has a label.
        let better = result(1.2, 0.01);
        let chart = super::chart(&[("aqm", &better)], "Cubic");
        assert_eq!(chart.lines.iter().filter(labels).count(), 1);
        assert_eq!(
            finding("copa", "Cubic", &all),
            "copa in 30 places, medians: 100\u{a0}% of the goodput of Cubic, and 155\u{a0}% of the \
             queueing delay."
        );
    }
}
