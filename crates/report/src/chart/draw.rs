//! Panels with axes, guides and lines.

use std::fmt::Write;

use super::scale::{Scale, px};
use super::{
    AREA_STYLE, CHART_STYLE, Chart, ChartSeries, DARK_PALETTE, LIGHT_PALETTE, PALETTE_COLOURS, live,
};
use crate::html::escape;

/// Margins of a panel, in SVG units: above for title and key, below for the axis.
const MARGIN_TOP: f64 = 24.0;
const MARGIN_BOTTOM: f64 = 38.0;
/// Margins of a panel: left for the labels of the vertical axis, right for half a label of the
/// horizontal one.
pub(super) const MARGIN_LEFT: f64 = 52.0;
pub(super) const MARGIN_RIGHT: f64 = 16.0;
/// Upper bound of the mean glyph width at 12 px, for laying out keys. A smaller value lets them
/// overlap.
const LETTER_WIDTH: f64 = 6.6;

/// Dimensions of a panel in SVG units, which the page scales, and its kind.
pub(super) struct Layout {
    /// Width of the picture.
    pub width: f64,
    /// Height of the plot area.
    pub plot_height: f64,
    /// True if lines and ticks go into elements of their own, which the script moves.
    pub live: bool,
}

/// Layout of static pictures: panels stacked vertically.
const PAPER_LAYOUT: Layout = Layout {
    width: 760.0,
    plot_height: 150.0,
    live: false,
};

/// Renders a picture for a page that includes [`CHART_STYLE`] and defines the custom properties.
pub fn inline(charts: &[Chart], described: &str) -> String {
    let mut out = String::new();
    picture(&mut out, charts, described, "");
    out
}

/// Renders a picture as a self-contained SVG file.
pub fn standalone(charts: &[Chart], described: &str) -> String {
    let style = format!(
        "<style>\nsvg.chart {{ --page: #ffffff; --ink: #1b1f24; --muted: #5b6570; --grid: #e9edf1; \
         --guide: #8a949e; {LIGHT_PALETTE} }}\n\
         @media (prefers-color-scheme: dark) {{ svg.chart {{ --page: #14171b; --ink: #e7eaee; \
         --muted: #9aa5b1; --grid: #252b32; --guide: #75808c; {DARK_PALETTE} }} }}\n\
         {CHART_STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--page)\"/>\n"
    );
    let mut out = String::new();
    picture(&mut out, charts, described, &style);
    out + "\n"
}

fn picture(out: &mut String, charts: &[Chart], described: &str, style: &str) {
    let each = PAPER_LAYOUT.height();
    let (width, height) = (PAPER_LAYOUT.width, each * charts.len() as f64);
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n{style}",
        escape(described)
    );
    for (i, chart) in charts.iter().enumerate() {
        panel(out, chart, each * i as f64, &PAPER_LAYOUT);
    }
    *out += "</svg>";
}

impl Layout {
    /// Returns the height of a panel, margins included.
    pub fn height(&self) -> f64 {
        MARGIN_TOP + self.plot_height + MARGIN_BOTTOM
    }

    /// Returns the top-left corner of the plot area of a panel at 0.
    pub fn corner(&self) -> (f64, f64) {
        (MARGIN_LEFT, MARGIN_TOP)
    }

    /// Returns the horizontal and vertical scale of a panel whose top edge is at `top`.
    pub fn scales(&self, chart: &Chart, top: f64) -> (Scale, Scale) {
        let values = || chart.lines.iter().flat_map(|line| &line.points);
        let guides = chart.guides.iter().map(|(at, _)| *at);
        let errors = chart.lines.iter().flat_map(|line| &line.errors);
        let boxes = || chart.lines.iter().flat_map(|line| &line.boxes);
        let ys = values().filter_map(|(_, y)| *y).chain(guides);
        let ys = ys.chain(errors.flat_map(|(_, from, to)| [*from, *to]));
        let ys = ys.chain(boxes().flat_map(|boxed| boxed.bounds()));
        let xs = values()
            .map(|(x, _)| *x)
            .chain(boxes().map(|boxed| boxed.position));
        let top = top + MARGIN_TOP;
        (
            Scale::new(&chart.x, xs, MARGIN_LEFT, self.width - MARGIN_RIGHT, false),
            Scale::new(&chart.y, ys, top + self.plot_height, top, true),
        )
    }
}

/// Draws a panel whose top edge is at `top`.
pub(super) fn panel(out: &mut String, chart: &Chart, top: f64, layout: &Layout) {
    let (x, y) = layout.scales(chart, top);
    let (top, inside) = (top + MARGIN_TOP, layout.plot_height);
    let (right, bottom) = (layout.width - MARGIN_RIGHT, top + inside);

    key(out, chart, top, right);
    for (at, text) in y.ticks() {
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{MARGIN_LEFT}\" x2=\"{right}\" y1=\"{0}\" y2=\"{0}\"/><text \
             class=\"soft\" x=\"{1}\" y=\"{2}\" text-anchor=\"end\">{text}</text>",
            px(at),
            px(MARGIN_LEFT - 6.0),
            px(at + 4.0)
        );
    }
    if layout.live {
        *out += "<g class=\"along\">";
    }
    // Labels too wide for their slot alternate between two heights.
    let longest = chart.x.names.iter().map(|name| name.chars().count()).max();
    let room = (right - MARGIN_LEFT) / chart.x.names.len().max(1) as f64;
    let in_turns = longest.is_some_and(|letters| letters as f64 * LETTER_WIDTH > room);
    for (n, (at, text)) in x.ticks().into_iter().enumerate() {
        let lower = if in_turns && n % 2 == 1 { 29.0 } else { 14.0 };
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/><text \
             class=\"soft\" x=\"{0}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
            px(at),
            px(top),
            px(bottom),
            px(bottom + lower),
            escape(&text)
        );
    }
    if layout.live {
        *out += "</g>\n";
    }
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        px((MARGIN_LEFT + right) / 2.0),
        px(bottom + 29.0),
        escape(&chart.x.label)
    );
    let guides = || {
        chart
            .guides
            .iter()
            .filter_map(|(value, text)| Some((y.position(*value)?, text)))
    };
    for (at, _) in guides() {
        let _ = writeln!(
            out,
            "<line class=\"guide\" x1=\"{MARGIN_LEFT}\" x2=\"{right}\" y1=\"{0}\" y2=\"{0}\"/>",
            px(at)
        );
    }
    if layout.live {
        live::lines(out, chart, top, layout);
    } else {
        chart.lines.iter().for_each(|line| draw(out, line, &x, &y));
    }
    for (at, text) in guides() {
        let _ = writeln!(
            out,
            "<text class=\"soft halo\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            px(right - 4.0),
            px(at - 4.0),
            escape(text)
        );
    }
    let _ = writeln!(
        out,
        "<rect class=\"frame\" x=\"{MARGIN_LEFT}\" y=\"{}\" width=\"{}\" height=\"{inside}\"/>",
        px(top),
        px(right - MARGIN_LEFT)
    );
}

/// Draws the title and the colour key.
fn key(out: &mut String, chart: &Chart, top: f64, right: f64) {
    let base = px(top - 8.0);
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{MARGIN_LEFT}\" y=\"{base}\">{}</text>",
        escape(&chart.title)
    );
    let mut right = right;
    for line in chart
        .lines
        .iter()
        .rev()
        .filter(|line| !line.label.is_empty())
    {
        right -= line.label.chars().count() as f64 * LETTER_WIDTH;
        let dashed = if line.dashed { " dashed" } else { "" };
        let _ = writeln!(
            out,
            "<line class=\"line {0}{dashed}\" x1=\"{1}\" x2=\"{2}\" y1=\"{3}\" y2=\"{3}\"/><text \
             x=\"{4}\" y=\"{base}\">{5}</text>",
            class(line),
            px(right - 22.0),
            px(right - 5.0),
            px(top - 12.0),
            px(right),
            escape(&line.label)
        );
        right -= 34.0;
    }
}

/// Returns the stroke class: a palette colour or its secondary shade.
pub(super) fn class(line: &ChartSeries) -> String {
    format!(
        "{}{}",
        if line.secondary { 's' } else { 'c' },
        line.colour % PALETTE_COLOURS
    )
}

fn draw(out: &mut String, line: &ChartSeries, x: &Scale, y: &Scale) {
    let colour = line.colour % PALETTE_COLOURS;
    let mut path = String::new();
    let mut dots = String::new();
    let mut joined = false;
    let mut last = None;
    for (at, value) in &line.points {
        let place = x
            .position(*at)
            .zip(value.and_then(|value| y.position(value)));
        if let Some((px_x, px_y)) = place.map(|(a, b)| (px(a), px(b))) {
            let _ = write!(path, "{}{px_x} {px_y}", if joined { "L" } else { "M" });
            if line.dots {
                let _ = write!(
                    dots,
                    "<circle class=\"f{colour}\" cx=\"{px_x}\" cy=\"{px_y}\" r=\"3\"/>"
                );
            }
        }
        joined = place.is_some();
        last = place.or(last);
    }
    if let (true, Some(zero)) = (line.area, y.position(0.0)) {
        for part in path.split('M').skip(1) {
            let across = |at: Option<&str>| {
                at.and_then(|at| at.split(' ').next())
                    .unwrap_or_default()
                    .to_owned()
            };
            let (from, to) = (
                across(part.split('L').next()),
                across(part.rsplit('L').next()),
            );
            let _ = writeln!(
                out,
                "<path class=\"area f{colour}\" style=\"{AREA_STYLE}\" \
                 d=\"M{from} {0}L{part}L{to} {0}z\"/>",
                px(zero)
            );
        }
    }
    for (at, from, to) in &line.errors {
        if let (Some(at), Some(from), Some(to)) =
            (x.position(*at), y.position(*from), y.position(*to))
        {
            let _ = writeln!(
                out,
                "<path class=\"line c{colour}\" d=\"M{0} {2}H{1}M{0} {3}H{1}M{4} {2}V{3}\"/>",
                px(at - 3.0),
                px(at + 3.0),
                px(from),
                px(to),
                px(at)
            );
        }
    }
    for boxed in &line.boxes {
        boxed.draw(out, colour, x, y);
    }
    let dashed = if line.dashed { " dashed" } else { "" };
    if !path.is_empty() {
        let _ = writeln!(
            out,
            "<path class=\"line c{colour}{dashed}\" d=\"{path}\"/>{dots}"
        );
    }
    if let Some((at, height)) = last.filter(|_| !line.end_label.is_empty()) {
        let width = line.end_label.chars().count() as f64 * LETTER_WIDTH;
        // The label goes to the left of the point if there is no room to the right.
        let (at, anchor) = match at + 7.0 + width <= PAPER_LAYOUT.width - MARGIN_RIGHT {
            true => (at + 7.0, "start"),
            false => (at - 7.0, "end"),
        };
        let _ = writeln!(
            out,
            "<text class=\"halo\" x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            px(at),
            px(height + 4.0),
            escape(&line.end_label)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::Axis;
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "delay, ms".into(),
            x: Axis::linear("s"),
            y: Axis::linear(""),
            lines: vec![ChartSeries::new(
                "a<b",
                0,
                [(0.0, 1.0), (5.0, 20.0), (10.0, 10.0)],
            )],
            guides: vec![(20.0, "full".into())],
        }
    }

    #[test]
    fn arbitrary_values_draw_valid_charts() {
        for values in [
            vec![],
            vec![(0.0, 0.0)],
            vec![(f64::NAN, 1.0)],
            vec![(1.0, f64::INFINITY)],
            vec![(1e300, -1e300)],
        ] {
            for log in [false, true] {
                let mut chart = chart();
                (chart.x.log, chart.y.log) = (log, log);
                chart.lines[0].points = values.iter().map(|(x, y)| (*x, Some(*y))).collect();
                let text = inline(&[chart], "");
                assert!(text.starts_with("<svg") && text.ends_with("</svg>"));
                assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            }
        }
    }

    #[test]
    fn names_are_escaped_and_gaps_break_the_line() {
        let mut gap = chart();
        gap.lines[0].points[1].1 = None;
        let text = standalone(&[gap, chart()], "two & two");
        assert!(text.contains("a&lt;b") && text.contains("two &amp; two"));
        assert_eq!(text.matches("<path").count(), 2);
        let broken = text.split("<path").nth(1).unwrap();
        assert_eq!(broken.split("d=\"").nth(1).unwrap().matches('M').count(), 2);
    }
}
