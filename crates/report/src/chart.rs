//! Line charts as SVG text: panels one below the other, for pages without a script and for pictures in the book.
//!
//! These pictures are the same bytes wherever they are made, and show in any viewer. Colours come from custom properties with
//! the page's names, so that a picture inside a page follows the page, and one in a file ([`standalone`]) the reader's
//! preference for light or dark.

use std::fmt::Write;

use crate::html::escape;

/// One panel.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Above it, at the left; often what the vertical axis is.
    pub title: String,
    /// Below it.
    pub x: Axis,
    /// At its left; the title says what it is, `label` is not drawn.
    pub y: Axis,
    /// What is drawn.
    pub lines: Vec<Line>,
    /// Horizontal guides: where, and their text.
    pub guides: Vec<(f64, String)>,
}

/// An axis.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it is, with its unit.
    pub label: String,
    /// Logarithmic; values that are not above zero are left out.
    pub log: bool,
    /// Its ends; those of what is drawn where it is absent, with zero included unless it is logarithmic.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear one.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            ..Axis::default()
        }
    }

    /// A logarithmic one.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            log: true,
            range: None,
        }
    }

    /// The same between these.
    #[must_use]
    pub fn from_to(self, from: f64, to: f64) -> Axis {
        Axis {
            range: Some((from, to)),
            ..self
        }
    }
}

/// A series.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Its name in the key above the panel.
    pub label: String,
    /// Its points from left to right; the line is broken where there is no value.
    pub points: Vec<(f64, Option<f64>)>,
    /// Which of the palette's colours; they repeat after [`COLOURS`].
    pub colour: usize,
    /// For references, beside what is looked at.
    pub dashed: bool,
    /// A dot at every point, for a few measured values that the line only connects.
    pub dots: bool,
    /// Upright bars: where, from, to.
    pub errors: Vec<(f64, f64, f64)>,
}

impl Line {
    /// A continuous line.
    pub fn new(label: impl Into<String>, colour: usize, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
        Line {
            label: label.into(),
            points: points.into_iter().map(|(x, y)| (x, Some(y))).collect(),
            colour,
            ..Line::default()
        }
    }

    /// The same, dashed.
    #[must_use]
    pub fn dashed(self) -> Line {
        Line { dashed: true, ..self }
    }

    /// The same with dots.
    #[must_use]
    pub fn dots(self) -> Line {
        Line { dots: true, ..self }
    }

    /// The same with an error bar at each of these places: where, from, to.
    #[must_use]
    pub fn errors(self, errors: Vec<(f64, f64, f64)>) -> Line {
        Line { errors, ..self }
    }
}

/// Colours of the palette: Okabe and Ito's, which the colour-blind can tell apart.
pub const COLOURS: usize = 6;

/// What a page has to say once for the pictures inside it; the custom properties are the page's.
pub const STYLE: &str = "\
svg.chart { display: block; width: 100%; height: auto; font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif; }
svg.chart text { fill: var(--ink); } svg.chart .soft { fill: var(--muted); } svg.chart .title { font-weight: 600; }
svg.chart .grid { stroke: var(--grid); } svg.chart .frame { stroke: var(--guide); fill: none; }
svg.chart .guide { stroke: var(--guide); stroke-dasharray: 2 3; }
svg.chart .halo { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
svg.chart .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; } svg.chart .dashed { stroke-dasharray: 6 4; }
svg.chart .c0 { stroke: var(--c0); } svg.chart .c1 { stroke: var(--c1); } svg.chart .c2 { stroke: var(--c2); }
svg.chart .c3 { stroke: var(--c3); } svg.chart .c4 { stroke: var(--c4); } svg.chart .c5 { stroke: var(--c5); }
svg.chart .f0 { fill: var(--c0); } svg.chart .f1 { fill: var(--c1); } svg.chart .f2 { fill: var(--c2); }
svg.chart .f3 { fill: var(--c3); } svg.chart .f4 { fill: var(--c4); } svg.chart .f5 { fill: var(--c5); }
";

/// The palette on a light page, and on a dark one, as custom properties.
pub const LIGHT: &str = "--c0: #0072b2; --c1: #c04a00; --c2: #00805c; --c3: #a3427a; --c4: #6b5b00; --c5: #444b52;";
/// See [`LIGHT`].
pub const DARK: &str = "--c0: #4db2f0; --c1: #ff8f4a; --c2: #2fcf9f; --c3: #ee8fc6; --c4: #dcc437; --c5: #c2cad2;";

/// Width of a picture in its own units; a page scales it.
const WIDTH: f64 = 760.0;
/// Of each panel: above, for title and key; the drawing itself; below, for the axis.
const ABOVE: f64 = 24.0;
const INSIDE: f64 = 150.0;
const BELOW: f64 = 38.0;
/// Left, for the values of the vertical axis, and right, for half a number.
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
/// What a letter takes at most on average at 12 px; keys are set by it. Too small and they overlap.
const LETTER: f64 = 6.6;

/// The picture for use inside a page that says [`STYLE`] and has the custom properties.
pub fn inline(charts: &[Chart], described: &str) -> String {
    let mut out = String::new();
    picture(&mut out, charts, described, "");
    out
}

/// The picture as a file of its own.
pub fn standalone(charts: &[Chart], described: &str) -> String {
    let style = format!(
        "<style>\nsvg.chart {{ --page: #ffffff; --ink: #1b1f24; --muted: #5b6570; --grid: #e9edf1; --guide: #8a949e; {LIGHT} }}\n\
         @media (prefers-color-scheme: dark) {{ svg.chart {{ --page: #14171b; --ink: #e7eaee; --muted: #9aa5b1; --grid: #252b32; \
         --guide: #75808c; {DARK} }} }}\n{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--page)\"/>\n"
    );
    let mut out = String::new();
    picture(&mut out, charts, described, &style);
    out + "\n"
}

fn picture(out: &mut String, charts: &[Chart], described: &str, style: &str) {
    let height = (ABOVE + INSIDE + BELOW) * charts.len() as f64;
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{}</title>\n{style}",
        escape(described)
    );
    for (i, chart) in charts.iter().enumerate() {
        panel(out, chart, (ABOVE + INSIDE + BELOW) * i as f64 + ABOVE);
    }
    *out += "</svg>";
}

/// Draws one of them, its inside beginning at `top`.
fn panel(out: &mut String, chart: &Chart, top: f64) {
    let values = || chart.lines.iter().flat_map(|line| &line.points);
    let guides = chart.guides.iter().map(|(at, _)| *at);
    let x = Scale::new(&chart.x, values().map(|(x, _)| *x), LEFT, WIDTH - RIGHT, false);
    let errors = chart.lines.iter().flat_map(|line| &line.errors);
    let ys = values().filter_map(|(_, y)| *y).chain(guides);
    let ys = ys.chain(errors.flat_map(|(_, from, to)| [*from, *to]));
    let y = Scale::new(&chart.y, ys, top + INSIDE, top, true);
    let (right, bottom) = (WIDTH - RIGHT, top + INSIDE);

    key(out, chart, top);
    for (at, text) in y.ticks() {
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{0}\" y2=\"{0}\"/><text class=\"soft\" x=\"{1}\" y=\"{2}\" \
             text-anchor=\"end\">{text}</text>",
            px(at),
            px(LEFT - 6.0),
            px(at + 4.0)
        );
    }
    for (at, text) in x.ticks() {
        let _ = writeln!(
            out,
            "<line class=\"grid\" x1=\"{0}\" x2=\"{0}\" y1=\"{1}\" y2=\"{2}\"/><text class=\"soft\" x=\"{0}\" y=\"{3}\" \
             text-anchor=\"middle\">{text}</text>",
            px(at),
            px(top),
            px(bottom),
            px(bottom + 14.0)
        );
    }
    let _ = writeln!(
        out,
        "<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        px((LEFT + right) / 2.0),
        px(bottom + 29.0),
        escape(&chart.x.label)
    );
    let guides = || {
        chart
            .guides
            .iter()
            .filter_map(|(value, text)| Some((y.at(*value)?, text)))
    };
    for (at, _) in guides() {
        let _ = writeln!(
            out,
            "<line class=\"guide\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{0}\" y2=\"{0}\"/>",
            px(at)
        );
    }
    for line in &chart.lines {
        draw(out, line, &x, &y);
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
        "<rect class=\"frame\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{INSIDE}\"/>",
        px(top),
        px(right - LEFT)
    );
}

/// The title, and what each colour is.
fn key(out: &mut String, chart: &Chart, top: f64) {
    let base = px(top - 8.0);
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{LEFT}\" y=\"{base}\">{}</text>",
        escape(&chart.title)
    );
    let mut right = WIDTH - RIGHT;
    for line in chart.lines.iter().rev().filter(|line| !line.label.is_empty()) {
        right -= line.label.chars().count() as f64 * LETTER;
        let dashed = if line.dashed { " dashed" } else { "" };
        let _ = writeln!(
            out,
            "<line class=\"line c{0}{dashed}\" x1=\"{1}\" x2=\"{2}\" y1=\"{3}\" y2=\"{3}\"/><text x=\"{4}\" \
             y=\"{base}\">{5}</text>",
            line.colour % COLOURS,
            px(right - 22.0),
            px(right - 5.0),
            px(top - 12.0),
            px(right),
            escape(&line.label)
        );
        right -= 34.0;
    }
}

fn draw(out: &mut String, line: &Line, x: &Scale, y: &Scale) {
    let colour = line.colour % COLOURS;
    let mut path = String::new();
    let mut dots = String::new();
    let mut joined = false;
    for (at, value) in &line.points {
        let place = x.at(*at).zip(value.and_then(|value| y.at(value)));
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
    }
    for (at, from, to) in &line.errors {
        if let (Some(at), Some(from), Some(to)) = (x.at(*at), y.at(*from), y.at(*to)) {
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
    let dashed = if line.dashed { " dashed" } else { "" };
    if !path.is_empty() {
        let _ = writeln!(out, "<path class=\"line c{colour}{dashed}\" d=\"{path}\"/>{dots}");
    }
}

/// From values to places.
struct Scale {
    log: bool,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Scale {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, start: f64, end: f64, headroom: bool) -> Scale {
        let usable = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
        let seen = usable.fold(None, |ends: Option<(f64, f64)>, v| {
            Some(ends.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        });
        let (low, high) = axis.range.or(seen).unwrap_or((0.0, 1.0));
        let (mut low, mut high) = match (axis.range, axis.log) {
            (Some(_), _) | (None, true) => (low, high),
            (None, false) => (low.min(0.0), if headroom { high * 1.05 } else { high }),
        };
        if axis.log {
            low = low.max(f64::MIN_POSITIVE);
            high = high.max(low * 1.01);
            (low, high) = (libm::log10(low), libm::log10(high));
        }
        if high - low <= 0.0 {
            high = low + 1.0;
        }
        Scale {
            log: axis.log,
            from: low,
            to: high,
            start,
            end,
        }
    }

    /// The place of a value; none outside of the axis.
    fn at(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || self.log && value <= 0.0 {
            return None;
        }
        let value = if self.log { libm::log10(value) } else { value };
        let share = (value - self.from) / (self.to - self.from);
        (-1e-9..=1.0 + 1e-9)
            .contains(&share)
            .then_some(self.start + share * (self.end - self.start))
    }

    /// Places and texts of round values.
    fn ticks(&self) -> Vec<(f64, String)> {
        let span = self.to - self.from;
        let step = if self.log {
            (span / 8.0).ceil().max(1.0)
        } else {
            round_step(span / 5.0)
        };
        let first = (self.from / step - 1e-9).floor();
        // At most a dozen by the choice of the step; the limit is for spans beyond what an f64 divides.
        let count = ((self.to / step + 1e-9).floor() - first).clamp(0.0, 20.0) as i64 + 1;
        // Few powers of ten leave room for those between.
        let between: &[f64] = if self.log && span < 2.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let value = |i: i64| {
            let value = (first + i as f64) * step;
            if self.log { libm::pow(10.0, value) } else { value }
        };
        (0..count)
            .flat_map(|i| between.iter().map(move |times| value(i) * times))
            .filter_map(|value| Some((self.at(value)?, short(value))))
            .collect()
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(step.max(f64::MIN_POSITIVE)).floor());
    let times = step / power;
    let round = [1.0, 2.0, 5.0].into_iter().find(|round| times <= *round + 1e-9);
    round.unwrap_or(10.0) * power
}

/// A round number in few letters: 0.05, 20, 1k, 10M.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 0.999e9 => (value / 1e9, "G"),
        v if v >= 0.999e6 => (value / 1e6, "M"),
        v if v >= 9.99e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

/// A place, to a tenth of a unit.
fn px(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            title: "delay, ms".into(),
            x: Axis::linear("s"),
            y: Axis::linear(""),
            lines: vec![Line::new("a<b", 0, [(0.0, 1.0), (5.0, 20.0), (10.0, 10.0)])],
            guides: vec![(20.0, "full".into())],
        }
    }

    #[test]
    fn values_lie_where_the_axes_say() {
        let axis = Axis::linear("").from_to(0.0, 10.0);
        let scale = Scale::new(&axis, std::iter::empty(), 100.0, 200.0, false);
        assert_eq!(
            (scale.at(0.0), scale.at(5.0), scale.at(10.0)),
            (Some(100.0), Some(150.0), Some(200.0))
        );
        assert_eq!((scale.at(11.0), scale.at(f64::NAN)), (None, None));
        let log = Scale::new(
            &Axis::log("").from_to(1.0, 100.0),
            std::iter::empty(),
            0.0,
            100.0,
            false,
        );
        assert_eq!((log.at(10.0), log.at(0.0)), (Some(50.0), None));
    }

    #[test]
    fn ticks_are_round() {
        let texts = |axis: Axis| -> Vec<String> {
            let scale = Scale::new(&axis, std::iter::empty(), 0.0, 1.0, false);
            scale.ticks().into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(Axis::linear("").from_to(0.0, 15.0)), ["0", "5", "10", "15"]);
        assert_eq!(texts(Axis::linear("").from_to(0.0, 0.13)), ["0", "0.05", "0.1"]);
        assert_eq!(
            texts(Axis::log("").from_to(0.1, 100_000.0)),
            ["0.1", "1", "10", "100", "1000", "10k", "100k"]
        );
        assert_eq!(texts(Axis::log("").from_to(0.5, 5.0)), ["0.5", "1", "2", "5"]);
    }

    #[test]
    fn no_values_can_break_a_picture() {
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
