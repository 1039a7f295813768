//! Box plots: median, quartiles, whiskers and outliers of a sample.

use std::fmt::Write;

use ccplane_units::stats;

use super::scale::{Scale, px};

/// Reach of a whisker, in heights of the box (Tukey 1977).
const WHISKER_BOX_HEIGHTS: f64 = 1.5;
/// Maximum half-width of a box, in SVG units, and its share of the slot.
const HALF_WIDTH_MAX: f64 = 16.0;
const HALF_WIDTH_SHARE: f64 = 0.3;

/// Box plot at a position of the horizontal axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoxPlot {
    /// Horizontal position of the centre.
    pub position: f64,
    /// Second quartile.
    pub median: f64,
    /// First and third quartile.
    pub quartiles: (f64, f64),
    /// Extreme values within 1.5 box heights of the quartiles.
    pub whiskers: (f64, f64),
    /// Outliers: the values beyond the whiskers.
    pub outliers: Vec<f64>,
}

impl BoxPlot {
    /// Summarises a sample; non-finite values are dropped. Returns `None` for an empty sample.
    /// Quartiles are interpolated linearly (definition 7 of Hyndman and Fan 1996, the default of
    /// R).
    pub fn from_values(at: f64, values: impl IntoIterator<Item = f64>) -> Option<BoxPlot> {
        let mut sorted: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let quantile = |p| stats::interpolated_quantile(&sorted, p).unwrap_or(last);
        let quartiles = (quantile(0.25), quantile(0.75));
        let reach = (quartiles.1 - quartiles.0) * WHISKER_BOX_HEIGHTS;
        let inside = |value: &&f64| (quartiles.0 - reach..=quartiles.1 + reach).contains(*value);
        Some(BoxPlot {
            position: at,
            median: quantile(0.5),
            quartiles,
            // A whisker is never shorter than its box: an interpolated quartile may lie between
            // outliers.
            whiskers: (
                sorted
                    .iter()
                    .find(inside)
                    .copied()
                    .unwrap_or(first)
                    .min(quartiles.0),
                sorted
                    .iter()
                    .rev()
                    .find(inside)
                    .copied()
                    .unwrap_or(last)
                    .max(quartiles.1),
            ),
            outliers: sorted
                .iter()
                .filter(|value| !inside(value))
                .copied()
                .collect(),
        })
    }

    /// Iterates over the whisker ends and the outliers, for the range of the axis.
    pub(super) fn bounds(&self) -> impl Iterator<Item = f64> {
        let outside = self.outliers.iter().copied();
        [self.whiskers.0, self.whiskers.1]
            .into_iter()
            .chain(outside)
    }

    /// Draws the box with these classes; it ends at the axes.
    pub(super) fn draw(&self, out: &mut String, stroke: &str, fill: &str, x: &Scale, y: &Scale) {
        let Some(middle) = x.position(self.position) else {
            return;
        };
        let room = x
            .position(self.position - 0.5)
            .zip(x.position(self.position + 0.5));
        let half = room
            .map_or(HALF_WIDTH_MAX, |(from, to)| (to - from) * HALF_WIDTH_SHARE)
            .min(HALF_WIDTH_MAX);
        let (left, right) = (px(middle - half), px(middle + half));
        let (top, bottom) = y.bounds();
        let levels = [
            self.whiskers.0,
            self.quartiles.0,
            self.median,
            self.quartiles.1,
            self.whiskers.1,
        ];
        if let [
            Some(low),
            Some(first),
            Some(median),
            Some(third),
            Some(high),
        ] = levels.map(|value| Some(y.unbounded(value)?.clamp(top, bottom)))
        {
            let (inner_left, inner_right) = (px(middle - half / 2.0), px(middle + half / 2.0));
            let [low, first, median, third, high] = [low, first, median, third, high].map(px);
            let middle = px(middle);
            let _ = writeln!(
                out,
                "<path class=\"line {stroke}\" d=\"M{left} \
                 {first}H{right}V{third}H{left}ZM{middle} {first}V{low}M{middle} \
                 {third}V{high}M{inner_left} {low}H{inner_right}M{inner_left} \
                 {high}H{inner_right}\"/>\
                 <path class=\"line {stroke}\" style=\"stroke-width: 3\" \
                 d=\"M{left} {median}H{right}\"/>"
            );
        }
        for value in self.outliers.iter().filter_map(|value| y.position(*value)) {
            let _ = writeln!(
                out,
                "<circle class=\"{fill}\" cx=\"{}\" cy=\"{}\" r=\"2.5\"/>",
                px(middle),
                px(value)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Chart, ChartSeries, inline};
    use super::*;

    #[test]
    fn a_box_has_known_answers() {
        // R: quantile(c(1:9, 30)) is 3.25, 5.5, 7.75. The upper fence is 14.5, so 30 is an outlier.
        let values = [30.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, f64::NAN];
        let found = BoxPlot::from_values(1.0, values).unwrap();
        assert_eq!(
            found,
            BoxPlot {
                position: 1.0,
                median: 5.5,
                quartiles: (3.25, 7.75),
                whiskers: (1.0, 9.0),
                outliers: vec![30.0],
            }
        );
        let one = BoxPlot::from_values(2.0, [4.0]).unwrap();
        assert_eq!(
            (one.median, one.quartiles, one.whiskers),
            (4.0, (4.0, 4.0), (4.0, 4.0))
        );
        assert!(one.outliers.is_empty() && BoxPlot::from_values(1.0, []).is_none());
        // Both quartiles are 5: the box has no height, and every other value is an outlier.
        let flat = BoxPlot::from_values(1.0, [1.0, 5.0, 5.0, 5.0, 5.0, 9.0]).unwrap();
        assert_eq!((flat.whiskers, flat.outliers), ((5.0, 5.0), vec![1.0, 9.0]));
    }

    fn chart() -> Chart {
        let names = ["reno", "native:cubic & more"];
        let boxed = |at: usize, values: [f64; 5]| ChartSeries {
            boxes: BoxPlot::from_values(at as f64, values)
                .into_iter()
                .collect(),
            ..ChartSeries::new("", at, [])
        };
        Chart {
            title: "goodput, Mbit/s".into(),
            x: Axis::named(names),
            y: Axis::linear("").with_range(80.0, 100.0),
            lines: vec![
                boxed(1, [90.0, 91.0, 92.0, 93.0, 94.0]),
                boxed(2, [85.0, 85.0, 85.0, 85.0, 99.0]),
            ],
            guides: Vec::new(),
        }
    }

    #[test]
    fn boxes_stand_over_their_names() {
        let text = inline(&[chart()], "two");
        // The plot is 692 units wide: two slots are centred at a quarter and three quarters. 150
        // units of height cover 80 to 100.
        assert!(
            text.contains(">reno</text>") && text.contains("native:cubic &amp; more</text>"),
            "{text}"
        );
        let first = text.split("<path class=\"line c1\" d=\"").nth(1).unwrap();
        assert!(
            first.starts_with(
                "M209 91.5H241V76.5H209ZM225 91.5V99M225 76.5V69M217 99H233M217 69H233\""
            ),
            "{first}"
        );
        assert!(
            text.contains("style=\"stroke-width: 3\" d=\"M209 84H241\""),
            "{text}"
        );
        assert!(
            text.contains("<circle class=\"f2\" cx=\"571\" cy=\"31.5\""),
            "{text}"
        );
    }

    #[test]
    fn axes_without_a_range_hold_every_box() {
        let mut chart = chart();
        chart.y = Axis::linear("");
        let text = inline(&[chart], "two");
        assert!(
            text.contains("<circle class=\"f2\"") && text.matches("stroke-width: 3").count() == 2,
            "{text}"
        );
    }

    #[test]
    fn long_names_use_two_rows() {
        let names: Vec<String> = (0..8).map(|n| format!("native:algorithm-{n}")).collect();
        let chart = Chart {
            x: Axis::named(names),
            ..chart()
        };
        let text = inline(&[chart], "eight");
        let height = |n: usize| {
            let before = text
                .split(&format!(">native:algorithm-{n}<"))
                .next()
                .unwrap();
            before
                .rsplit(" y=\"")
                .next()
                .unwrap()
                .split('"')
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            (height(0), height(1), height(2)),
            ("188".into(), "203".into(), "188".into())
        );
    }
}
