//! Goodput over queueing delay in one chart, as in Pantheon (Yan et al., USENIX ATC 2018, figure
//! 4).

use ccplane_report::chart::{Axis, Chart, ChartSeries, figure, file_name};
use ccplane_units::stats;

/// Corners of a drawn ellipse; not visible at 760 pixels.
const ELLIPSE_CORNERS: usize = 48;

/// Point of one contender.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spot {
    /// Label next to the point.
    pub label: String,
    /// Palette index of its colour.
    pub colour: usize,
    /// Secondary shade of the colour.
    pub secondary: bool,
    /// 95th percentile of the queueing delay in ms, and goodput in Mbit/s; means if there are
    /// several runs.
    pub position: (f64, f64),
    /// The same values of every run, if there are several.
    pub runs: Vec<(f64, f64)>,
}

/// Returns the chart. With at least three runs, an ellipse shows one standard deviation.
pub(crate) fn chart(spots: &[Spot]) -> Chart {
    let around: Vec<ChartSeries> = spots
        .iter()
        .filter_map(|spot| {
            Some(ChartSeries {
                points: ellipse(&spot.runs)?
                    .into_iter()
                    .map(|(x, y)| (x, Some(y)))
                    .collect(),
                colour: spot.colour,
                secondary: spot.secondary,
                ..ChartSeries::default()
            })
        })
        .collect();
    // Room at the right, so that no dot or ellipse is cut off by the frame.
    let corners = around.iter().flat_map(|line| &line.points).map(|at| at.0);
    let longest = spots.iter().map(|spot| spot.position.0).chain(corners);
    let end = match longest.fold(0.0, f64::max) * 1.06 {
        end if end > 0.0 => end,
        _ => 1.0,
    };
    let dots = spots.iter().map(|spot| ChartSeries {
        dots: true,
        end_label: spot.label.clone(),
        secondary: spot.secondary,
        ..ChartSeries::new("", spot.colour, [spot.position])
    });
    Chart {
        title: "goodput, Mbit/s".to_owned(),
        x: Axis::linear("95th percentile of the queueing delay, ms").with_range(0.0, end),
        y: heights(spots),
        lines: around.into_iter().chain(dots).collect(),
        guides: Vec::new(),
    }
}

/// Returns what the chart shows, as text.
pub(crate) fn description(spots: &[Spot]) -> String {
    let names: Vec<&str> = spots.iter().map(|spot| spot.label.as_str()).collect();
    format!("goodput and queueing delay of {}", names.join(", "))
}

/// Returns the name of the chart's files.
pub(crate) fn name(chart: &Chart) -> String {
    file_name(chart).replacen("goodput", "goodput-delay", 1)
}

/// Renders the chart for a page.
pub(crate) fn picture(spots: &[Spot]) -> String {
    let chart = chart(spots);
    let name = name(&chart);
    figure(&[chart], &description(spots), &name)
}

/// Returns the axis of goodput.
fn heights(spots: &[Spot]) -> Axis {
    let all = spots
        .iter()
        .flat_map(|spot| spot.runs.iter().chain([&spot.position]));
    let values: Vec<f64> = all.map(|run| run.1).collect();
    axis_of(&values)
}

/// Returns an axis for these values, which starts at zero unless all of them are far from it.
pub(crate) fn axis_of(values: &[f64]) -> Axis {
    let all = || values.iter().copied();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let margin = ((high - low) * 0.2).max(high * 0.01);
    match low > high / 2.0 {
        true => Axis::linear("").with_range((low - margin).max(0.0), high + margin),
        false => Axis::linear(""),
    }
}

/// Caption of the chart.
pub(crate) const PLANE_CAPTION: &str = "Up and to the left is better. For contenders with at \
    least three runs, an ellipse shows one standard deviation of the runs, including the \
    correlation.";

/// Returns the points at one standard deviation from the mean in every direction, in order: the
/// image of the unit circle under the square root of the covariance (its Cholesky factor). `None`
/// for fewer than three runs, or if all runs are equal.
fn ellipse(runs: &[(f64, f64)]) -> Option<Vec<(f64, f64)>> {
    let count = runs.len();
    if count < 3 {
        return None;
    }
    let x = stats::mean(runs.iter().map(|run| run.0))?;
    let y = stats::mean(runs.iter().map(|run| run.1))?;
    let moment = |of: &dyn Fn(f64, f64) -> f64| {
        runs.iter().map(|run| of(run.0 - x, run.1 - y)).sum::<f64>() / (count - 1) as f64
    };
    let (xx, xy, yy) = (
        moment(&|a, _| a * a),
        moment(&|a, b| a * b),
        moment(&|_, b| b * b),
    );
    if xx + yy <= 0.0 || !(xx + yy).is_finite() {
        return None;
    }
    let across = xx.sqrt();
    let slope = if across > 0.0 { xy / across } else { 0.0 };
    let upright = (yy - slope * slope).max(0.0).sqrt();
    let corner = |n: usize| {
        let (sin, cos) = libm::sincos(n as f64 / ELLIPSE_CORNERS as f64 * std::f64::consts::TAU);
        (x + across * cos, y + slope * cos + upright * sin)
    };
    Some((0..=ELLIPSE_CORNERS).map(corner).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ellipse_is_a_deviation_wide_and_high_and_leans_with_the_correlation() {
        assert_eq!(ellipse(&[(1.0, 1.0), (2.0, 2.0)]), None, "two are too few");
        assert_eq!(
            ellipse(&[(1.0, 1.0); 4]),
            None,
            "there is nothing around a point"
        );
        // Standard deviations 2 and 1 without correlation: (±√3·…) for four corners.
        let runs =
            [(-2.0, -1.0), (2.0, -1.0), (-2.0, 1.0), (2.0, 1.0)].map(|(x, y)| (10.0 + x, 5.0 + y));
        let round = ellipse(&runs).unwrap();
        let deviation = |of: f64| (4.0 * of * of / 3.0_f64).sqrt();
        let most = |of: fn(&(f64, f64)) -> f64| round.iter().map(of).fold(f64::MIN, f64::max);
        assert!((most(|p| p.0) - 10.0 - deviation(2.0)).abs() < 1e-9);
        assert!((most(|p| p.1) - 5.0 - deviation(1.0)).abs() < 1e-9);
        assert!(round[0].0 - round[ELLIPSE_CORNERS].0 < 1e-9, "it is closed");
        // Collinear runs give a line.
        let leans = ellipse(&[(0.0, 0.0), (1.0, 2.0), (2.0, 4.0)]).unwrap();
        assert!(
            leans.iter().all(|(x, y)| (y - 2.0 * x).abs() < 1e-9),
            "{leans:?}"
        );
        // One of the two coordinates is constant.
        assert!(
            ellipse(&[(3.0, 1.0), (3.0, 2.0), (3.0, 3.0)])
                .unwrap()
                .iter()
                .all(|p| p.0 == 3.0)
        );
    }

    #[test]
    fn all_contenders_are_named_next_to_their_dot() {
        let spot = |label: &str, runs: Vec<(f64, f64)>| Spot {
            label: label.to_owned(),
            colour: 0,
            secondary: false,
            position: (5.0, 90.0),
            runs,
        };
        let text = picture(&[
            spot("a<b", Vec::new()),
            spot("reno", vec![(4.0, 89.0), (5.0, 92.0), (6.0, 89.0)]),
        ]);
        assert!(
            text.contains("a&lt;b</text>") && text.contains("reno</text>"),
            "{text}"
        );
        assert_eq!(text.matches("<circle").count(), 2);
        assert!(!text.contains("NaN"));
    }
}
