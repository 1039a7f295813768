//! Panels with axes, guides and lines.

use std::fmt::Write;

use super::labels::{self, LETTER_WIDTH, Rect, TEXT_HEIGHT};
use super::scale::{Scale, px};
use super::theme::Colours;
use super::{AREA_STYLE, Chart, ChartSeries, PALETTE_COLOURS, csv, live};
use crate::html::escape;

/// Margins of a panel, in SVG units: above for title and key, below for the axis.
const MARGIN_TOP: f64 = 24.0;
const MARGIN_BOTTOM: f64 = 38.0;
/// Left margin of a panel, for the labels of the vertical axis.
pub(super) const MARGIN_LEFT: f64 = 52.0;
/// Smallest right margin, for half a label of the horizontal axis. Labels of guides make it wider.
const MARGIN_RIGHT: f64 = 16.0;
/// Height of a row of the key below a panel.
const KEY_ROW: f64 = 18.0;
/// Width of a key's stroke with the room around it.
const KEY_STROKE: f64 = 34.0;
/// Triangles closer to each other than this, in SVG units, become one.
const MARKS_APART: f64 = 8.0;

/// Kind of a drawing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Surface {
    /// Still picture on a page.
    Page,
    /// Picture on a page whose lines and ticks go into elements of their own, which the script
    /// moves.
    Live,
    /// File in these colours, or in classes that the file's style sheet colours. Names of all
    /// lines are in a key below the panel.
    File(Option<&'static Colours>),
}

/// Dimensions of a panel in SVG units, which the page scales, and its kind.
pub(super) struct Layout {
    /// Width of the picture.
    pub width: f64,
    /// Height of the plot area.
    pub plot_height: f64,
    /// Right margin.
    pub margin_right: f64,
    pub surface: Surface,
}

/// Size of still pictures: panels stacked vertically.
const STILL_SIZE: (f64, f64) = (760.0, 150.0);
/// Plot height of panels with labels next to points, which need room: with up to 12 labels, for
/// each further label, and at most.
const LABELLED_HEIGHT: f64 = 260.0;
const LABEL_HEIGHT: f64 = 10.0;
const LABELLED_HEIGHT_MAX: f64 = 520.0;

/// Returns the width of a still picture and the height of its plots.
pub(super) fn still_size(charts: &[Chart]) -> (f64, f64) {
    let lines = charts.iter().flat_map(|chart| &chart.lines);
    let labelled = lines.filter(|line| !line.end_label.is_empty()).count();
    let further = labelled.saturating_sub(12) as f64;
    let height = (LABELLED_HEIGHT + further * LABEL_HEIGHT).min(LABELLED_HEIGHT_MAX);
    match labelled > 1 {
        true => (STILL_SIZE.0, height),
        false => STILL_SIZE,
    }
}

/// Renders a picture for a page that includes [`chart_style`](super::chart_style) and defines the
/// custom properties.
pub fn inline(charts: &[Chart], described: &str) -> String {
    let mut out = String::new();
    let layout = Layout::new(still_size(charts), charts, Surface::Page);
    picture(&mut out, charts, described, &layout, "class=\"chart\"", "");
    out
}

/// Renders a picture for a page with its values as text. The page's script saves it under the name
/// `file`.
pub fn figure(charts: &[Chart], described: &str, file: &str) -> String {
    format!(
        "<figure class=\"still\" data-file=\"{}\">{}<details class=\"values\"><summary>Values\
         </summary><pre tabindex=\"0\">{}</pre></details></figure>",
        escape(file),
        inline(charts, described),
        escape(&csv(charts))
    )
}

/// Draws all panels in an `<svg>` element with these attributes; `begin` is its first content.
pub(super) fn picture(
    out: &mut String,
    charts: &[Chart],
    described: &str,
    layout: &Layout,
    attributes: &str,
    begin: &str,
) {
    let height: f64 = charts.iter().map(|chart| layout.height(chart)).sum();
    let width = layout.width;
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes} \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>{}</title>\n{begin}",
        escape(described)
    );
    let mut top = 0.0;
    for chart in charts {
        panel(out, chart, top, layout);
        top += layout.height(chart);
    }
    *out += "</svg>";
}

impl Layout {
    /// Lays out panels of this width and plot height, whose plot areas are aligned.
    pub fn new((width, plot_height): (f64, f64), charts: &[Chart], surface: Surface) -> Layout {
        let guides = charts.iter().flat_map(|chart| &chart.guides);
        let widest = guides
            .map(|(_, text)| labels::width(text))
            .fold(0.0, f64::max);
        Layout {
            width,
            plot_height,
            // An arrow may follow the label.
            margin_right: match widest > 0.0 {
                true => (widest + 2.0 * LETTER_WIDTH + 14.0).ceil(),
                false => MARGIN_RIGHT,
            },
            surface,
        }
    }

    /// Returns the height of a panel with its margins and the key below it.
    pub fn height(&self, chart: &Chart) -> f64 {
        let rows = self.key_below(chart).len();
        MARGIN_TOP + self.plot_height + MARGIN_BOTTOM + rows as f64 * KEY_ROW
    }

    /// Returns the top-left corner of the plot area of a panel at 0.
    pub fn corner(&self) -> (f64, f64) {
        (MARGIN_LEFT, MARGIN_TOP)
    }

    /// Returns the width of the plot area.
    pub fn plot_width(&self) -> f64 {
        self.width - MARGIN_LEFT - self.margin_right
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
        let right = MARGIN_LEFT + self.plot_width();
        (
            Scale::new(&chart.x, xs, MARGIN_LEFT, right, false),
            Scale::new(&chart.y, ys, top + self.plot_height, top, true),
        )
    }

    /// Returns true if the key fits next to the title.
    fn key_fits(&self, chart: &Chart) -> bool {
        let labels = chart.lines.iter().map(|line| line.label.as_str());
        let labels = labels.filter(|label| !label.is_empty());
        let wide: f64 = labels.map(|label| labels::width(label) + KEY_STROKE).sum();
        wide + labels::width(&chart.title) * 1.1 <= self.plot_width()
    }

    /// Returns the rows of the key below the panel: lines that have no room or no label in the key
    /// above it.
    fn key_below<'c>(&self, chart: &'c Chart) -> Vec<Vec<&'c ChartSeries>> {
        let fits = self.key_fits(chart);
        let named = matches!(self.surface, Surface::File(_));
        let mut rows: Vec<Vec<&ChartSeries>> = Vec::new();
        let (mut free, mut known) = (0.0, Vec::new());
        for line in &chart.lines {
            let name = line.shown_name();
            let above = fits && !line.label.is_empty();
            let below = !line.label.is_empty() || named && !line.name.is_empty();
            // A slot of the axis already has the name.
            let in_axis = chart.x.names.iter().any(|known| known == name);
            if above || !below || in_axis || known.contains(&name) {
                continue;
            }
            known.push(name);
            let wide = labels::width(name) + KEY_STROKE;
            if wide > free || rows.is_empty() {
                rows.push(Vec::new());
                free = self.width - MARGIN_LEFT;
            }
            free -= wide;
            if let Some(row) = rows.last_mut() {
                row.push(line);
            }
        }
        rows
    }
}

/// Draws a panel whose top edge is at `top`.
pub(super) fn panel(out: &mut String, chart: &Chart, top: f64, layout: &Layout) {
    let (x, y) = layout.scales(chart, top);
    let is_live = matches!(layout.surface, Surface::Live);
    let (top, inside) = (top + MARGIN_TOP, layout.plot_height);
    let (right, bottom) = (MARGIN_LEFT + layout.plot_width(), top + inside);

    key(out, chart, top, layout);
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
    if is_live {
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
    if is_live {
        *out += "</g>\n";
    }
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        px(f64::midpoint(MARGIN_LEFT, right)),
        px(bottom + 29.0),
        escape(&chart.x.label)
    );
    for (value, _) in &chart.guides {
        if let Some(at) = y.position(*value) {
            let _ = writeln!(
                out,
                "<line class=\"guide\" x1=\"{MARGIN_LEFT}\" x2=\"{right}\" y1=\"{0}\" y2=\"{0}\"/>",
                px(at)
            );
        }
    }
    if is_live {
        live::lines(out, chart, top, layout);
    } else {
        for line in &chart.lines {
            draw(out, line, &x, &y, layout);
        }
    }
    for line in &chart.lines {
        marks(out, line, &x, &y, layout);
    }
    guide_labels(out, chart, &y, right);
    let _ = writeln!(
        out,
        "<rect class=\"frame\" x=\"{MARGIN_LEFT}\" y=\"{}\" width=\"{}\" height=\"{inside}\"/>",
        px(top),
        px(right - MARGIN_LEFT)
    );
    if !is_live {
        end_labels(out, chart, (&x, &y), layout);
    }
}

/// Draws the labels of guides in the right margin, where they cover no line. The label of a guide
/// outside the axis is at the edge, with an arrow.
fn guide_labels(out: &mut String, chart: &Chart, y: &Scale, right: f64) {
    let (top, bottom) = y.bounds();
    let all: Vec<(f64, String)> = chart
        .guides
        .iter()
        .filter_map(|(value, text)| {
            let at = y.unbounded(*value)?;
            Some(match y.position(*value) {
                Some(at) => (at + 4.0, text.clone()),
                None if at < top => (top + 4.0, format!("{text} ↑")),
                None => (bottom, format!("{text} ↓")),
            })
        })
        .collect();
    let baselines: Vec<f64> = all.iter().map(|(at, _)| *at).collect();
    let spread = labels::spread(&baselines, top + 4.0, bottom + 4.0);
    for ((_, text), at) in all.iter().zip(spread) {
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{}\" y=\"{}\">{}</text>",
            px(right + 6.0),
            px(at),
            escape(text)
        );
    }
}

/// Draws the title and the keys above and below the panel.
fn key(out: &mut String, chart: &Chart, top: f64, layout: &Layout) {
    let base = px(top - 8.0);
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{MARGIN_LEFT}\" y=\"{base}\">{}</text>",
        escape(&chart.title)
    );
    let mut entry = |line: &ChartSeries, at: f64, baseline: f64| {
        let _ = writeln!(
            out,
            "<line class=\"line {0}\"{1} x1=\"{2}\" x2=\"{3}\" y1=\"{4}\" y2=\"{4}\"/><text \
             x=\"{5}\" y=\"{6}\">{7}</text>",
            classes(line),
            style(line, layout),
            px(at - 22.0),
            px(at - 5.0),
            px(baseline - 4.0),
            px(at),
            px(baseline),
            escape(line.shown_name())
        );
    };
    if layout.key_fits(chart) {
        let mut at = MARGIN_LEFT + layout.plot_width();
        let labelled = chart.lines.iter().rev();
        for line in labelled.filter(|line| !line.label.is_empty()) {
            at -= labels::width(&line.label);
            entry(line, at, top - 8.0);
            at -= KEY_STROKE;
        }
    }
    let mut baseline = top + layout.plot_height + MARGIN_BOTTOM + 8.0;
    for row in layout.key_below(chart) {
        let mut at = MARGIN_LEFT + 22.0;
        for line in row {
            entry(line, at, baseline);
            at += labels::width(line.shown_name()) + KEY_STROKE;
        }
        baseline += KEY_ROW;
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

/// Returns the fill class: a palette colour or its secondary shade.
pub(super) fn fill_class(line: &ChartSeries) -> String {
    format!(
        "{}{}",
        if line.secondary { 'g' } else { 'f' },
        line.colour % PALETTE_COLOURS
    )
}

/// Returns the classes of a stroke besides `line`.
fn classes(line: &ChartSeries) -> String {
    let mut out = class(line);
    if line.thin {
        out += " thin";
    }
    if line.dashed {
        out += " dashed";
    }
    out
}

/// Returns the `style` attribute of a stroke: dashes, and in a file of one theme the shade.
fn style(line: &ChartSeries, layout: &Layout) -> String {
    let mut rules = Vec::new();
    if !line.dashes.is_empty() {
        rules.push(format!("stroke-dasharray: {}", line.dashes));
    }
    if let (Surface::File(Some(colours)), Some(percent)) = (layout.surface, line.shade) {
        let pure = colours.line(line.colour, line.secondary);
        rules.push(format!("stroke: {}", colours.shade(pure, percent)));
    }
    match rules.is_empty() {
        true => String::new(),
        false => format!(" style=\"{}\"", rules.join("; ")),
    }
}

/// Returns a line in coordinates, cut off at the axes; `None` is a gap.
pub(super) fn clipped(line: &ChartSeries, x: &Scale, y: &Scale) -> Vec<Option<(f64, f64)>> {
    let (left, right) = x.bounds();
    let (top, bottom) = y.bounds();
    let area = (left, top, right, bottom);
    let inside = |(x, y): (f64, f64)| {
        (left - 1e-6..=right + 1e-6).contains(&x) && (top - 1e-6..=bottom + 1e-6).contains(&y)
    };
    let (mut out, mut last) = (Vec::new(), None);
    for (at, value) in &line.points {
        let place = x
            .unbounded(*at)
            .zip(value.and_then(|value| y.unbounded(value)));
        match (last, place) {
            (_, None) => out.push(None),
            (None, Some(place)) => out.push(inside(place).then_some(place)),
            (Some(before), Some(place)) => match (inside(before), inside(place)) {
                (true, true) => out.push(Some(place)),
                (was_inside, is_inside) => {
                    match cut(before, place, area) {
                        Some((_, to)) if was_inside => out.push(Some(to)),
                        Some((from, to)) => out.extend([None, Some(from), Some(to)]),
                        // Only the end is visible, on an edge.
                        None if is_inside => out.extend([None, Some(place)]),
                        None => {}
                    }
                    if !is_inside {
                        out.push(None);
                    }
                }
            },
        }
        last = place;
    }
    out
}

/// Returns the part of a segment inside a rectangle (Liang and Barsky, 1984).
fn cut(from: (f64, f64), to: (f64, f64), area: Rect) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut begin, mut end) = (0.0_f64, 1.0_f64);
    for (step, room) in [
        (-dx, from.0 - area.0),
        (dx, area.2 - from.0),
        (-dy, from.1 - area.1),
        (dy, area.3 - from.1),
    ] {
        if step == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if step < 0.0 {
            begin = begin.max(room / step);
        } else {
            end = end.min(room / step);
        }
    }
    let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
    (begin < end).then(|| (at(begin), at(end)))
}

/// Draws a triangle at the edge for values that the axes do not show.
fn marks(out: &mut String, line: &ChartSeries, x: &Scale, y: &Scale, layout: &Layout) {
    let points = line
        .points
        .iter()
        .filter_map(|(at, value)| Some((*at, (*value)?)));
    let errors = line.errors.iter();
    let errors = errors.flat_map(|(at, from, to)| [(*at, *from), (*at, *to)]);
    let boxes = line.boxes.iter();
    let boxes = boxes.flat_map(|boxed| boxed.bounds().map(|value| (boxed.position, value)));
    let (left, right) = x.bounds();
    let (top, bottom) = y.bounds();
    let mut drawn: Vec<(f64, f64)> = Vec::new();
    for (at, value) in points.chain(errors).chain(boxes) {
        let Some((across, down)) = x.unbounded(at).zip(y.unbounded(value)) else {
            continue;
        };
        let (beyond_x, beyond_y) = (x.position(at).is_none(), y.position(value).is_none());
        let turn = match (beyond_x, beyond_y) {
            (_, true) if down < top => 0,
            (_, true) => 180,
            (true, false) if across > right => 90,
            (true, false) => 270,
            (false, false) => continue,
        };
        let (across, down) = (across.clamp(left, right), down.clamp(top, bottom));
        let near = |(x, y): &(f64, f64)| libm::hypot(x - across, y - down) < MARKS_APART;
        // Points ascend, so a neighbour is among the last ones.
        if drawn.iter().rev().take(4).any(near) {
            continue;
        }
        drawn.push((across, down));
        let live = match layout.surface {
            Surface::Live => format!(
                " data-at=\"{:.5}\"{}",
                (across - left) / (right - left),
                live::key_attribute(line)
            ),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "<path class=\"beyond {}\"{live} transform=\"translate({} {}) rotate({turn})\" \
             d=\"M-4.5 8h9l-4.5 -8z\"/>",
            fill_class(line),
            px(across),
            px(down)
        );
    }
}

fn draw(out: &mut String, line: &ChartSeries, x: &Scale, y: &Scale, layout: &Layout) {
    let (stroke, fill) = (class(line), fill_class(line));
    let mut path = String::new();
    let mut joined = false;
    for place in clipped(line, x, y) {
        if let Some((at, height)) = place {
            let (at, height) = (px(at), px(height));
            let _ = write!(path, "{}{at} {height}", if joined { "L" } else { "M" });
        }
        joined = place.is_some();
    }
    let mut dots = String::new();
    if line.dots {
        for (at, height) in points_inside(line, x, y) {
            let _ = write!(
                dots,
                "<circle class=\"{fill}\" cx=\"{}\" cy=\"{}\" r=\"3\"/>",
                px(at),
                px(height)
            );
        }
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
                "<path class=\"area {fill}\" style=\"{AREA_STYLE}\" \
                 d=\"M{from} {0}L{part}L{to} {0}z\"/>",
                px(zero)
            );
        }
    }
    let (top, bottom) = y.bounds();
    for (at, from, to) in &line.errors {
        let ends = y.unbounded(*from).zip(y.unbounded(*to));
        if let Some((at, (from, to))) = x.position(*at).zip(ends) {
            let _ = writeln!(
                out,
                "<path class=\"line {stroke}\" d=\"M{0} {2}H{1}M{0} {3}H{1}M{4} {2}V{3}\"/>",
                px(at - 3.0),
                px(at + 3.0),
                px(from.clamp(top, bottom)),
                px(to.clamp(top, bottom)),
                px(at)
            );
        }
    }
    for boxed in &line.boxes {
        boxed.draw(out, &stroke, &fill, x, y);
    }
    if !path.is_empty() {
        let _ = writeln!(
            out,
            "<path class=\"line {}\"{} d=\"{path}\"/>{dots}",
            classes(line),
            style(line, layout)
        );
    }
}

/// Returns the coordinates of the points inside the axes.
fn points_inside(line: &ChartSeries, x: &Scale, y: &Scale) -> impl Iterator<Item = (f64, f64)> {
    line.points.iter().filter_map(|(at, value)| {
        x.position(*at)
            .zip(value.and_then(|value| y.position(value)))
    })
}

/// Draws the labels next to the last points of lines.
fn end_labels(out: &mut String, chart: &Chart, (x, y): (&Scale, &Scale), layout: &Layout) {
    let last = |line: &ChartSeries| points_inside(line, x, y).last();
    let labelled: Vec<((f64, f64), &str)> = chart
        .lines
        .iter()
        .filter(|line| !line.end_label.is_empty())
        .filter_map(|line| Some((last(line)?, line.end_label.as_str())))
        .collect();
    let dotted = chart.lines.iter().filter(|line| line.dots);
    let dots: Vec<(f64, f64)> = dotted.flat_map(|line| points_inside(line, x, y)).collect();
    let (left, right) = x.bounds();
    let (top, bottom) = y.bounds();
    let placed = labels::place(&labelled, &dots, (left, top, right, bottom));
    for (((at, height), text), place) in labelled.iter().zip(&placed) {
        if place.far {
            // To the nearest point of the label's box.
            let end = (*at).clamp(place.x, place.x + labels::width(text));
            let near = place.baseline - TEXT_HEIGHT / 2.0 + 2.0;
            let edge = (*height).clamp(near - TEXT_HEIGHT / 2.0, near + TEXT_HEIGHT / 2.0);
            let _ = writeln!(
                out,
                "<line class=\"leader\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
                px(*at),
                px(*height),
                px(end),
                px(edge)
            );
        }
    }
    for ((_, text), place) in labelled.iter().zip(&placed) {
        let position = format!("x=\"{}\" y=\"{}\"", px(place.x), px(place.baseline));
        let text = escape(text);
        // Not every renderer of files paints strokes first.
        let _ = match layout.surface {
            Surface::File(_) => writeln!(
                out,
                "<text class=\"halo\" {position}>{text}</text><text {position}>{text}</text>"
            ),
            _ => writeln!(out, "<text class=\"halo\" {position}>{text}</text>"),
        };
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
        let text = inline(&[gap, chart()], "two & two");
        assert!(text.contains("a&lt;b") && text.contains("two &amp; two"));
        assert_eq!(text.matches("<path").count(), 2);
        let broken = text.split("<path").nth(1).unwrap();
        assert_eq!(broken.split("d=\"").nth(1).unwrap().matches('M').count(), 2);
    }

    fn limited() -> Chart {
        Chart {
            x: Axis::linear("s").with_range(0.0, 10.0),
            y: Axis::linear("").with_range(0.0, 15.0),
            ..chart()
        }
    }

    #[test]
    fn lines_end_at_the_axes_and_hidden_points_are_marked() {
        let text = inline(&[limited()], "");
        // 15 of 20: the line leaves at the top edge, at 24, and comes back.
        let line = text.split("class=\"line c0\" d=\"").nth(1).unwrap();
        let path = line.split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2, "{path}");
        let heights = path.split(['M', 'L']).skip(1);
        let heights: Vec<f64> = heights
            .map(|at| at.split(' ').nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(
            heights.iter().all(|y| (24.0..=174.0).contains(y)) && heights[1] == 24.0,
            "{path}"
        );
        assert_eq!(text.matches("class=\"beyond f0\"").count(), 1, "{text}");
        assert!(text.contains(" 24) rotate(0)"), "{text}");
        // The guide at 20 is outside as well.
        assert!(text.contains(">full ↑</text>") && !text.contains("class=\"guide\""));
        assert!(!inline(&[chart()], "").contains("beyond"));
    }

    #[test]
    fn many_hidden_points_share_their_marks() {
        let mut many = limited();
        many.lines[0].points = (0..1_000)
            .map(|n| (f64::from(n) / 100.0, Some(30.0)))
            .collect();
        let count = inline(&[many], "").matches("beyond").count();
        assert!((50..100).contains(&count), "{count}");
    }

    #[test]
    fn labels_of_guides_are_outside_the_plot_and_apart() {
        let mut guided = chart();
        guided.guides = vec![(20.0, "full".into()), (19.9, "almost".into())];
        let text = inline(&[guided], "");
        let place = |label: &str, name: &str| -> f64 {
            let before = text.split(&format!(">{label}</text>")).next().unwrap();
            let value = before.rsplit(&format!(" {name}=\"")).next().unwrap();
            value.split('"').next().unwrap().parse().unwrap()
        };
        let frame = text.split("class=\"frame\"").nth(1).unwrap();
        let width: f64 = frame
            .split("width=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(place("full", "x") > MARGIN_LEFT + width && width < 700.0);
        assert!(place("almost", "y") - place("full", "y") > TEXT_HEIGHT - 0.2);
    }

    #[test]
    fn a_key_without_room_above_is_below() {
        let mut wide = chart();
        wide.lines = (0..9)
            .map(|n| ChartSeries::new(format!("contender number {n}"), n, [(0.0, 1.0)]))
            .collect();
        let layout = Layout::new(STILL_SIZE, &[wide.clone()], Surface::Page);
        assert_eq!(layout.key_below(&wide).len(), 3);
        let text = inline(&[wide.clone()], "");
        assert_eq!(text.matches(">contender number").count(), 9);
        assert!(layout.height(&wide) > layout.height(&chart()));
    }

    #[test]
    fn a_figure_has_its_values_as_text() {
        let text = figure(&[chart()], "delay", "delay-a&b");
        assert!(text.contains("data-file=\"delay-a&amp;b\""), "{text}");
        assert!(text.contains("a&lt;b,5,20\n"), "{text}");
    }
}
