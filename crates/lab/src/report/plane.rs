//! Goodput over queueing delay in one chart, as in Pantheon (Yan et al., USENIX ATC 2018, figure
//! 4).

use ccplane_report::chart::{Axis, BoxPlot, CONTENDER_HUES, Chart, ChartSeries, figure, file_name};
use ccplane_units::stats;

/// Corners of a drawn ellipse; not visible at 760 pixels.
const ELLIPSE_CORNERS: usize = 48;

/// Letters that an axis with names has room for: two rows of 690 pixels.
const AXIS_LETTERS_MAX: usize = 200;

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
    // No dot or ellipse is cut off by the frame.
    let corners = || around.iter().flat_map(|line| &line.points);
    let positions = || spots.iter().map(|spot| spot.position);
    let longest = positions().map(|at| at.0).chain(corners().map(|at| at.0));
    let end = match longest.fold(0.0, f64::max) * 1.06 {
        end if end > 0.0 => end,
        _ => 1.0,
    };
    let heights: Vec<f64> = positions()
        .map(|at| at.1)
        .chain(corners().filter_map(|at| at.1))
        .collect();
    let dots = spots.iter().map(|spot| ChartSeries {
        dots: true,
        end_label: spot.label.clone(),
        secondary: spot.secondary,
        ..ChartSeries::new("", spot.colour, [spot.position])
    });
    Chart {
        title: "goodput, Mbit/s".to_owned(),
        x: Axis::linear("95th percentile of the queueing delay, ms").with_range(0.0, end),
        y: axis_of(&heights),
        lines: around.into_iter().chain(dots).collect(),
        guides: Vec::new(),
    }
}

/// Both values of the chart, as its description names them.
pub(crate) const BOTH_VALUES: &str = "goodput and queueing delay";

/// Returns what the chart shows, as text.
pub(crate) fn description(spots: &[Spot]) -> String {
    let names: Vec<&str> = spots.iter().map(|spot| spot.label.as_str()).collect();
    format!("{BOTH_VALUES} of {}", names.join(", "))
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

/// Returns charts of one value of every contender: a box over its runs, or a dot for a single run.
/// A panel has as many contenders as it has room for their names, and all panels have one axis.
pub(crate) fn variation(spots: &[Spot], title: &str, of: fn(&(f64, f64)) -> f64) -> Vec<Chart> {
    let line = |(spot, at): (&Spot, u32)| {
        let at = f64::from(at);
        let line = ChartSeries {
            secondary: spot.secondary,
            ..ChartSeries::named(&spot.label, spot.colour, [])
        };
        match spot.runs.len() > 1 {
            true => ChartSeries {
                boxes: Vec::from_iter(BoxPlot::from_values(at, spot.runs.iter().map(of))),
                ..line
            },
            false => ChartSeries {
                points: vec![(at, Some(of(&spot.position)))],
                dots: true,
                ..line
            },
        }
    };
    let runs = |spot| {
        let Spot { runs, position, .. }: &Spot = spot;
        match runs.len() > 1 {
            true => runs.iter().map(of).collect(),
            false => vec![of(position)],
        }
    };
    let values: Vec<f64> = spots.iter().flat_map(runs).collect();
    let y = axis_of(&values);
    let letters = spots.iter().map(|spot| spot.label.chars().count());
    let room = (AXIS_LETTERS_MAX / letters.max().unwrap_or(1).max(1)).clamp(2, CONTENDER_HUES);
    let panels = spots.len().div_ceil(room).max(1);
    let panel = |spots: &[Spot]| Chart {
        title: title.to_owned(),
        x: Axis::named(spots.iter().map(|spot| spot.label.clone())),
        y: y.clone(),
        lines: spots.iter().zip(1..).map(line).collect(),
        guides: Vec::new(),
    };
    let panels = spots.chunks(spots.len().div_ceil(panels).max(1)).map(panel);
    panels.collect()
}

/// Returns an axis for these values, which starts at zero unless all of them are far from it.
pub(crate) fn axis_of(values: &[f64]) -> Axis {
    let all = || values.iter().copied();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let margin = ((high - low) * 0.2).max(high * 0.01);
    match high > 0.0 {
        true if low > high / 2.0 => {
            Axis::linear("").with_range((low - margin).max(0.0), high + margin)
        }
        true => Axis::linear("").with_range(0.0, high * 1.05),
        false => Axis::linear("").with_range(0.0, 1.0),
    }
}

/// Caption of the chart.
pub(crate) const PLANE_CAPTION: &str = "Up and to the left is better. For contenders with at \
    least three runs, an ellipse shows one standard deviation of the runs, including the \
    correlation.";

/// Returns the points at one standard deviation from the mean in every direction, in order: the
/// image of the unit circle under the square root of the covariance (its Cholesky factor), cut off
/// at zero. `None` for fewer than three runs, or if all runs are equal.
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
        let at = (x + across * cos, y + slope * cos + upright * sin);
        // Neither a delay nor a goodput is negative.
        (at.0.max(0.0), at.1.max(0.0))
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
        // Delays are not negative, although the deviation is larger than the mean.
        let cut_off = ellipse(&[(0.1, 9.0), (0.1, 9.1), (6.0, 9.2)]).unwrap();
        assert!(cut_off.iter().all(|p| p.0 >= 0.0) && cut_off.iter().any(|p| p.0 == 0.0));
        // One of the two coordinates is constant.
        assert!(
            ellipse(&[(3.0, 1.0), (3.0, 2.0), (3.0, 3.0)])
                .unwrap()
                .iter()
                .all(|p| p.0 == 3.0)
        );
    }

    #[test]
    fn many_contenders_have_several_panels_with_one_axis() {
        let spots = |count: usize, letters: usize| -> Vec<Spot> {
            (0..count)
                .map(|n| Spot {
                    label: format!("{n:0letters$}"),
                    colour: 0,
                    secondary: false,
                    position: (n as f64, 1.0 + n as f64),
                    runs: Vec::new(),
                })
                .collect()
        };
        let sizes = |count, letters| -> Vec<usize> {
            let panels = variation(&spots(count, letters), "goodput, Mbit/s", |run| run.1);
            assert!(
                panels
                    .iter()
                    .all(|panel| panel.y.range == panels[0].y.range)
            );
            panels.iter().map(|panel| panel.lines.len()).collect()
        };
        assert_eq!(sizes(12, 5), [12]);
        assert_eq!(sizes(13, 5), [7, 6]);
        assert_eq!(sizes(6, 50), [3, 3]);
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
        // The axes include all of the ellipse.
        assert!(!text.contains("beyond"), "{text}");
        assert!(!text.contains("NaN"));
    }
}
