//! Interactive charts, which a reader can zoom and inspect, and the page keys that hide their
//! lines.
//!
//! The charts are complete without the script, like all others. The script moves what is drawn here
//! and draws only the ticks of the visible range.

use std::fmt::Write;

use super::draw::{Layout, MARGIN_LEFT, Surface, class, clipped, panel};
use super::file::file_name;
use super::scale::px;
use super::{AREA_STYLE, Chart, ChartSeries, PALETTE_COLOURS, SeriesStyle};
use crate::html::escape;

/// Script of a page: drives all live charts, the keys and the choice of theme.
pub const CHART_SCRIPT: &str = include_str!("../../assets/charts.js");

/// Subdivisions of an SVG unit for the coordinates of lines: zooming up to this factor stays
/// smooth.
const UNIT_PARTS: f64 = 100.0;

/// Share of the page's width that a chart takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Width {
    /// Full width.
    #[default]
    Full,
    /// Half the width, next to another chart.
    Half,
}

/// Readout under the pointer.
#[derive(Clone, Copy, Debug, Default)]
pub struct HoverData {
    /// Width of the chart.
    pub width: Width,
    /// Decimals of the horizontal and vertical value.
    pub digits: (usize, usize),
    /// Units of the horizontal and vertical value.
    pub units: (&'static str, &'static str),
    /// Group name. Charts of one group share a horizontal axis and are zoomed and read together; an
    /// empty name is no group.
    pub zoom_group: &'static str,
}

/// Renders a live chart. Both axes must be linear, and the horizontal one must have a range.
pub fn live(chart: &Chart, reading: &HoverData) -> String {
    let size = match reading.width {
        Width::Full => (940.0, 230.0),
        Width::Half => (560.0, 220.0),
    };
    let layout = Layout::new(size, std::slice::from_ref(chart), Surface::Live);
    let (x, y) = layout.scales(chart, 0.0);
    let ((from, to), (low, high)) = (x.range(), y.range());
    let (width, height) = (layout.width, layout.height(chart));
    let names: Vec<&str> = chart.lines.iter().map(ChartSeries::shown_name).collect();
    let mut out = format!(
        "<div class=\"live\" data-file=\"{}\" data-along=\"{}\" data-label=\"{}\" \
         data-x=\"{from} {to}\" data-y=\"{low} {high}\" \
         data-digits=\"{} {}\" data-units=\"{},{}\">\
         <svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<title>{}</title>\n",
        escape(&file_name(chart)),
        reading.zoom_group,
        escape(&chart.x.label),
        reading.digits.0,
        reading.digits.1,
        escape(reading.units.0),
        escape(reading.units.1),
        escape(&format!(
            "{} over {}: {}",
            chart.title,
            chart.x.label,
            names.join(", ")
        ))
    );
    panel(&mut out, chart, 0.0, &layout);
    out + "</svg><div class=\"reading\"></div></div>"
}

/// Draws the lines at a resolution of 1/[`UNIT_PARTS`] unit, in an element whose view box the
/// script narrows.
pub(super) fn lines(out: &mut String, chart: &Chart, top: f64, layout: &Layout) {
    let (width, height) = (layout.plot_width(), layout.plot_height);
    let _ = writeln!(
        out,
        "<svg class=\"plot\" x=\"{MARGIN_LEFT}\" y=\"{}\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\">",
        px(top),
        width * UNIT_PARTS,
        height * UNIT_PARTS
    );
    let (x, y) = layout.scales(chart, 0.0);
    let (left, above) = layout.corner();
    let fine = |at: f64, from: f64| ((at - from) * UNIT_PARTS).round() as i64;
    for line in &chart.lines {
        let key = key_attribute(line);
        let dashes = match line.dashes {
            "" => String::new(),
            dashes => format!("stroke-dasharray: {dashes}"),
        };
        // Browsers without `color-mix` fall back to the class's full colour.
        let shade = line.shade.map_or(String::new(), |percent| {
            format!(
                "stroke: color-mix(in srgb, var(--{}) {percent}%, var(--ink))",
                class(line)
            )
        });
        let style = match (dashes.as_str(), shade.as_str()) {
            ("", "") => String::new(),
            ("", one) | (one, "") => format!(" style=\"{one}\""),
            (dashes, shade) => format!(" style=\"{dashes}; {shade}\""),
        };
        if line.area {
            areas(out, line, &key, |at, value| {
                Some((fine(x.position(at)?, left), fine(y.position(value)?, above)))
            });
        }
        let thin = if line.thin { " thin" } else { "" };
        let events = if line.events { " data-events" } else { "" };
        let places = clipped(line, &x, &y)
            .into_iter()
            .map(|place| place.map(|(x, y)| (fine(x, left), fine(y, above))));
        let _ = writeln!(
            out,
            "<path class=\"line {}{thin}\"{key}{events}{style} data-name=\"{}\" d=\"{}\"/>",
            class(line),
            escape(line.shown_name()),
            path(places)
        );
    }
    *out += "</svg>\n";
}

/// Returns the attribute with the index of the key that hides a line.
pub(super) fn key_attribute(line: &ChartSeries) -> String {
    line.key
        .map_or(String::new(), |key| format!(" data-of=\"{key}\""))
}

/// Draws the area between zero and each unbroken part of a line.
fn areas(
    out: &mut String,
    line: &ChartSeries,
    key: &str,
    place: impl Fn(f64, f64) -> Option<(i64, i64)>,
) {
    for part in line.points.split(|(_, value)| value.is_none()) {
        let (Some((first, _)), Some((last, _))) = (part.first(), part.last()) else {
            continue;
        };
        let along = part.iter().map(|(at, value)| place(*at, (*value)?));
        let around = std::iter::once(place(*first, 0.0))
            .chain(along)
            .chain([place(*last, 0.0)]);
        let around = path(around.filter(Option::is_some));
        let _ = writeln!(
            out,
            "<path class=\"area f{}\" style=\"{AREA_STYLE}\"{key} d=\"{around}z\"/>",
            line.colour % PALETTE_COLOURS
        );
    }
}

/// Encodes a path in relative steps: half the size of absolute coordinates, and exact, since
/// coordinates are integers.
fn path(places: impl Iterator<Item = Option<(i64, i64)>>) -> String {
    let mut out = String::new();
    let mut last = None;
    for place in places {
        if let Some((x, y)) = place {
            let _ = match last {
                None => write!(out, "M{x} {y}"),
                Some((before_x, before_y)) => write!(out, "l{} {}", x - before_x, y - before_y),
            };
        }
        last = place;
    }
    out
}

/// Entry of the page's keys: a line style and its name.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// Text of the key.
    pub label: &'a str,
    /// Style of its lines.
    pub style: SeriesStyle,
}

/// Renders the keys of a page; a line names its key by index ([`key`](ChartSeries::key)). The
/// script makes them hide lines; without it they are a legend.
pub fn keys(keys: &[Key<'_>]) -> String {
    let mut out = String::from("<div class=\"keys\" aria-label=\"Press to hide or show\">");
    for key in keys {
        let SeriesStyle {
            colour,
            secondary: second,
            dashes,
        } = key.style;
        let class = if second { 's' } else { 'c' };
        let _ = write!(
            out,
            "<button type=\"button\" aria-pressed=\"true\"><svg class=\"swatch\" width=\"30\" \
             height=\"10\" aria-hidden=\"true\"><line class=\"line {class}{}\" x1=\"1\" x2=\"29\" \
             y1=\"5\" y2=\"5\" style=\"stroke-dasharray: {}\"/></svg>{}</button>",
            colour % PALETTE_COLOURS,
            if dashes.is_empty() { "none" } else { dashes },
            escape(key.label)
        );
    }
    out + "</div>"
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "window".into(),
            x: Axis::linear("time, s").with_range(0.0, 10.0),
            y: Axis::linear("").with_range(0.0, 100.0),
            lines: vec![ChartSeries {
                name: "a<b".into(),
                key: Some(1),
                ..ChartSeries::new("", 3, [(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)])
            }],
            guides: vec![(50.0, "half".into())],
        }
    }

    #[test]
    fn a_line_is_drawn_in_whole_steps_that_say_its_values() {
        let html = live(&chart(), &HoverData::default());
        // 834 by 230 units, in hundredths: 940 without the left margin and that of "half".
        assert!(html.contains("viewBox=\"0 0 83400 23000\""), "{html}");
        assert!(
            html.contains("d=\"M0 23000l41700 -11500l41700 -11500\""),
            "{html}"
        );
        assert!(
            html.contains("data-x=\"0 10\" data-y=\"0 100\"") && html.contains("data-of=\"1\"")
        );
        assert!(
            html.contains("data-name=\"a&lt;b\"") && html.contains("over time, s: a&lt;b</title>")
        );
    }

    #[test]
    fn an_area_reaches_down_to_zero_and_is_no_line_of_its_own() {
        let mut filled = chart();
        filled.lines[0] = filled.lines[0].clone().area();
        let html = live(&filled, &HoverData::default());
        let area = "<path class=\"area f3\" style=\"stroke: none; opacity: 0.16\" data-of=\"1\" \
                    d=\"M0 23000l0 0l41700 -11500l41700 -11500l0 23000z\"/>";
        assert!(html.contains(area), "{html}");
        assert_eq!(html.matches("class=\"line c3\"").count(), 1, "{html}");
    }

    #[test]
    fn overlapping_strokes_are_merged() {
        let line = ChartSeries::strokes("lost", 3, &[1.0, 1.1, 1.6, 9.0], 0.5, 10.0);
        let at: Vec<f64> = line
            .points
            .iter()
            .filter(|(_, top)| *top == Some(10.0))
            .map(|(at, _)| *at)
            .collect();
        assert_eq!(at, [1.0, 1.6, 9.0]);
        let mut strokes = chart();
        strokes.lines.push(line);
        let html = live(&strokes, &HoverData::default());
        assert!(
            html.contains(" data-events data-name=\"lost\" d=\"M8340 23000l0 -2300M"),
            "{html}"
        );
    }

    #[test]
    fn a_shade_is_mixed_with_ink() {
        let mut shaded = chart();
        shaded.lines[0].shade = Some(60);
        let html = live(&shaded, &HoverData::default());
        assert!(
            html.contains("style=\"stroke: color-mix(in srgb, var(--c3) 60%, var(--ink))\""),
            "{html}"
        );
        shaded.lines[0].dashes = "7 4";
        let html = live(&shaded, &HoverData::default());
        assert!(
            html.contains("style=\"stroke-dasharray: 7 4; stroke: color-mix("),
            "{html}"
        );
    }

    #[test]
    fn gaps_break_a_line_and_points_outside_are_marked() {
        let places = [
            Some((1, 2)),
            Some((3, 3)),
            None,
            Some((5, 5)),
            None,
            None,
            Some((7, 7)),
            Some((8, 8)),
        ];
        assert_eq!(path(places.into_iter()), "M1 2l2 1M5 5M7 7l1 1");
        assert_eq!(path([None, None].into_iter()), "");
        let mut outside = chart();
        outside.lines[0].points.push((11.0, 1.0.into()));
        let html = live(&outside, &HoverData::default());
        let mark = "<path class=\"beyond f3\" data-at=\"1.00000\" data-of=\"1\" \
                    transform=\"translate(886 251.7) rotate(90)\"";
        assert_eq!(html.matches(mark).count(), 1, "{html}");
        // The line itself still ends at the edge.
        assert!(html.contains("l41700 -11500l41700 -11500\""), "{html}");
    }

    #[test]
    fn keys_show_how_lines_look() {
        let look = SeriesStyle {
            colour: 14,
            secondary: true,
            dashes: "7 4",
        };
        let html = keys(&[Key {
            label: "<native>",
            style: look,
        }]);
        assert!(
            html.contains("line s1\"") && html.contains("7 4") && html.contains("&lt;native&gt;"),
            "{html}"
        );
    }
}
