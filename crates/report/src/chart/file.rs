//! Pictures and values as files.
//!
//! A picture uses only what every SVG renderer supports, among them rsvg and cairosvg: presentation
//! attributes, absolute paths in user units that end at the axes, no custom properties, no
//! `vector-effect` and no `paint-order`.

use std::fmt::Write;

use super::draw::{Layout, Surface, picture, still_size};
use super::theme::{Colours, DARK_COLOURS, LIGHT_COLOURS};
use super::{Chart, ChartSeries, PALETTE_COLOURS};
use crate::table::csv_cell;

/// Longest name of a file, without its extension.
const FILE_NAME_MAX: usize = 80;
/// Maximum number of lines in the name of a file.
const NAMED_LINES: usize = 4;
/// Significant digits of values.
const DIGITS: i32 = 6;
/// Font of files: the sans-serif font of the renderer, since no other is everywhere.
const FONT: &str = "font-family=\"sans-serif\" font-size=\"12\"";

/// Theme of a picture in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// On white.
    #[default]
    Light,
    /// On dark grey.
    Dark,
}

/// Renders a picture as a self-contained SVG file in one theme, with a key of all lines.
pub fn export(charts: &[Chart], described: &str, theme: Theme) -> String {
    let colours = match theme {
        Theme::Light => &LIGHT_COLOURS,
        Theme::Dark => &DARK_COLOURS,
    };
    let layout = Layout::new(still_size(charts), charts, Surface::File(Some(colours)));
    let height: f64 = charts.iter().map(|chart| layout.height(chart)).sum();
    let attributes = format!(
        "width=\"{}\" height=\"{height}\" {FONT} fill=\"{}\"",
        layout.width, colours.ink
    );
    let paper = format!(
        "<rect width=\"{}\" height=\"{height}\" fill=\"{}\"/>\n",
        layout.width, colours.page
    );
    let mut drawn = String::new();
    picture(&mut drawn, charts, described, &layout, &attributes, &paper);
    with_attributes(&drawn, colours) + "\n"
}

/// Renders a picture as a self-contained SVG file that follows the reader's preference for light
/// or dark, where the viewer knows it. Other viewers show the light theme.
pub fn standalone(charts: &[Chart], described: &str) -> String {
    let layout = Layout::new(still_size(charts), charts, Surface::File(None));
    let style = format!(
        "<style>\n{}@media (prefers-color-scheme: dark) {{\n{}}}\n</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        rules(&LIGHT_COLOURS, charts),
        rules(&DARK_COLOURS, charts)
    );
    let mut drawn = String::new();
    let attributes = format!("class=\"chart\" {FONT}");
    picture(&mut drawn, charts, described, &layout, &attributes, &style);
    drawn + "\n"
}

/// Returns the rules of the classes that the charts use.
fn rules(colours: &Colours, charts: &[Chart]) -> String {
    let mut out = format!(
        ".paper {{ fill: {}; }} text {{ fill: {}; }}\n",
        colours.page, colours.ink
    );
    let used = |colour: usize| {
        let lines = charts.iter().flat_map(|chart| &chart.lines);
        lines
            .into_iter()
            .any(|line| line.colour % PALETTE_COLOURS == colour)
    };
    let palette = (0..PALETTE_COLOURS).filter(|colour| used(*colour));
    let palette = palette.flat_map(|n| ["c", "s", "f", "g"].map(|kind| format!("{kind}{n}")));
    let fixed = [
        "soft", "title", "grid", "frame", "guide", "leader", "halo", "line", "dashed", "thin",
    ];
    for class in fixed.map(str::to_owned).into_iter().chain(palette) {
        let attributes = presentation(&class, colours);
        let rules = attributes
            .iter()
            .map(|(name, value)| format!("{name}: {value};"));
        let rules: Vec<String> = rules.collect();
        let _ = writeln!(out, ".{class} {{ {} }}", rules.join(" "));
    }
    out
}

/// Returns how elements of a class look.
fn presentation(class: &str, colours: &Colours) -> Vec<(&'static str, String)> {
    let fixed = match class {
        "soft" => vec![("fill", colours.muted)],
        "title" => vec![("font-weight", "600")],
        "grid" => vec![("stroke", colours.grid)],
        "frame" => vec![("stroke", colours.guide), ("fill", "none")],
        "guide" => vec![("stroke", colours.guide), ("stroke-dasharray", "2 3")],
        "leader" => vec![("stroke", colours.guide)],
        "halo" => vec![
            ("stroke", colours.page),
            ("stroke-width", "4"),
            ("stroke-linejoin", "round"),
        ],
        "line" => vec![
            ("fill", "none"),
            ("stroke-width", "1.6"),
            ("stroke-linejoin", "round"),
        ],
        "dashed" => vec![("stroke-dasharray", "6 4")],
        "thin" => vec![("stroke-width", "1")],
        _ => {
            let (kind, colour) = class.split_at(class.len().min(1));
            let Ok(colour) = colour.parse::<usize>() else {
                return Vec::new();
            };
            let value = colours.line(colour, matches!(kind, "s" | "g")).to_owned();
            return match kind {
                "c" | "s" => vec![("stroke", value)],
                "f" | "g" => vec![("fill", value)],
                _ => Vec::new(),
            };
        }
    };
    let owned = fixed
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()));
    owned.collect()
}

/// Replaces the classes of a drawing by presentation attributes.
fn with_attributes(drawn: &str, colours: &Colours) -> String {
    let mut parts = drawn.split(" class=\"");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (classes, rest) = part.split_once('"').unwrap_or(("", part));
        // A later class of an element overrides an earlier one.
        let mut attributes: Vec<(&str, String)> = Vec::new();
        for (name, value) in classes
            .split(' ')
            .flat_map(|class| presentation(class, colours))
        {
            attributes.retain(|(known, _)| *known != name);
            attributes.push((name, value));
        }
        for (name, value) in attributes {
            let _ = write!(out, " {name}=\"{value}\"");
        }
        out += rest;
    }
    out
}

/// Returns the values of charts as CSV with a row per value: the line's name, the horizontal and
/// the vertical value. Several charts have another column for the chart's title, and box plots and
/// error bars one for the kind of the value.
pub fn csv(charts: &[Chart]) -> String {
    let mut labels = charts.iter().map(|chart| chart.x.label.as_str());
    let first = labels.next().unwrap_or_default();
    let x = match labels.all(|label| label == first) && !first.is_empty() {
        true => first,
        false => "x",
    };
    let y = match charts {
        [only] => only.title.as_str(),
        _ => "value",
    };
    let lines = || charts.iter().flat_map(|chart| &chart.lines);
    let kinds = lines().any(|line| !line.boxes.is_empty() || !line.errors.is_empty());
    let mut out = String::new();
    let mut row = |chart: &str, line: &str, x: &str, y: &str, kind: &str| {
        let cells = [
            (charts.len() > 1).then_some(chart),
            Some(line),
            Some(x),
            Some(y),
            kinds.then_some(kind),
        ];
        let cells: Vec<String> = cells.into_iter().flatten().map(csv_cell).collect();
        let _ = writeln!(out, "{}", cells.join(","));
    };
    row("chart", "line", x, y, "kind");
    for chart in charts {
        let at = |value: f64| match chart.x.names.get((value.round() as usize).wrapping_sub(1)) {
            Some(name) => name.clone(),
            None => significant(value),
        };
        for line in &chart.lines {
            let name = match (line.shown_name(), line.end_label.as_str()) {
                ("", label) => label,
                (name, _) => name,
            };
            // A line without any name is an outline, such as an ellipse around values.
            let values = line
                .points
                .iter()
                .filter(|_| !name.is_empty() || line.dots || chart.lines.len() == 1);
            for (x, y) in values {
                if let Some(y) = y {
                    row(&chart.title, name, &at(*x), &significant(*y), "point");
                }
            }
            for (x, kind, y) in summaries(line) {
                row(&chart.title, name, &at(x), &significant(y), kind);
            }
        }
    }
    out
}

/// Returns the values of error bars and box plots.
fn summaries(line: &ChartSeries) -> Vec<(f64, &'static str, f64)> {
    let mut out = Vec::new();
    for (at, from, to) in &line.errors {
        out.extend([(*at, "lower end", *from), (*at, "upper end", *to)]);
    }
    for boxed in &line.boxes {
        let values = [
            ("lower whisker", boxed.whiskers.0),
            ("first quartile", boxed.quartiles.0),
            ("median", boxed.median),
            ("third quartile", boxed.quartiles.1),
            ("upper whisker", boxed.whiskers.1),
        ];
        out.extend(values.map(|(kind, value)| (boxed.position, kind, value)));
        let outliers = boxed.outliers.iter();
        out.extend(outliers.map(|value| (boxed.position, "outlier", *value)));
    }
    out
}

/// Formats a value with [`DIGITS`] significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let power = libm::log10(value.abs()).floor() as i32;
    let decimals = (DIGITS - 1 - power).clamp(0, 17) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Returns the name of a chart's files without extension: what it shows, and the algorithms. The
/// title is either `cwnd, segments` or `reno, cubic: cwnd, segments`; without algorithms in the
/// title, the lines follow.
pub fn file_name(chart: &Chart) -> String {
    let (who, what) = match chart.title.rsplit_once(": ") {
        Some((who, what)) => (who.to_owned(), what),
        None => {
            let mut names: Vec<&str> = Vec::new();
            for line in &chart.lines {
                let name = match line.end_label.as_str() {
                    "" => line.shown_name(),
                    label => label,
                };
                if !name.is_empty() && !names.contains(&name) && names.len() < NAMED_LINES {
                    names.push(name);
                }
            }
            (names.join(" "), chart.title.as_str())
        }
    };
    // The unit is no part of the name.
    let what = what.rsplit_once(", ").map_or(what, |(what, _)| what);
    let mut out = String::new();
    for c in format!("{what} {who}").chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '.' => out.push(c.to_ascii_lowercase()),
            _ if out.ends_with('-') || out.is_empty() => {}
            _ => out.push('-'),
        }
    }
    out.truncate(FILE_NAME_MAX);
    out.trim_matches(['-', '.']).to_owned()
}

/// Numbers the names of files on a page that occur again: `cwnd`, `cwnd-2`.
pub(crate) fn distinct_names(html: &str) -> String {
    let mark = " data-file=\"";
    let mut known: Vec<String> = Vec::new();
    let mut parts = html.split(mark);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('"').unwrap_or((part, ""));
        let mut distinct = name.to_owned();
        let mut n = 2;
        while known.contains(&distinct) {
            distinct = format!("{name}-{n}");
            n += 1;
        }
        let _ = write!(out, "{mark}{distinct}\"{rest}");
        known.push(distinct);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, BoxPlot};
    use super::*;
    use crate::html::escape;

    fn chart() -> Chart {
        let mut first = ChartSeries::named("reno 1", 0, [(0.0, 1.0), (5.0, 30.0), (10.0, 2.5)]);
        first.shade = Some(55);
        first.thin = true;
        let second = ChartSeries {
            secondary: true,
            dashes: "7 4",
            end_label: "native:reno".into(),
            dots: true,
            ..ChartSeries::new("native", 0, [(1.0, 1.0)])
        };
        Chart {
            title: "reno, cubic: cwnd, segments".into(),
            x: Axis::linear("time, s").with_range(0.0, 10.0),
            y: Axis::linear("").with_range(0.0, 20.0),
            lines: vec![first, second],
            guides: vec![(10.0, "BDP".into())],
        }
    }

    #[test]
    fn files_use_only_what_every_renderer_supports() {
        for theme in [Theme::Light, Theme::Dark] {
            let text = export(&[chart()], "a < b", theme);
            for unsupported in [
                "var(",
                "class=",
                "vector-effect",
                "paint-order",
                "color-mix",
                "<style",
            ] {
                assert!(!text.contains(unsupported), "{unsupported}: {text}");
            }
            assert_eq!(text.matches("<svg").count(), 1);
            for part in [
                "<title>a &lt; b</title>",
                ">time, s<",
                ">reno 1<",
                ">native<",
                ">BDP<",
            ] {
                assert!(text.contains(part), "no {part} in {text}");
            }
            assert!(text.contains("width=\"760\" height=\""), "{text}");
        }
        let light = export(&[chart()], "", Theme::Light);
        // 55 % of #0072b2 in #1b1f24, and a thin stroke.
        assert!(
            light.contains("stroke: #0c4d72") && light.contains("stroke-width=\"1\""),
            "{light}"
        );
        assert!(light.contains("stroke=\"#2b8fd0\"") && light.contains("stroke-dasharray: 7 4"));
    }

    #[test]
    fn a_file_of_both_themes_has_no_custom_properties() {
        let text = standalone(&[chart()], "both");
        assert!(
            text.contains("@media (prefers-color-scheme: dark)"),
            "{text}"
        );
        assert!(
            text.contains(".c0 { stroke: #0072b2; }") && text.contains(".c0 { stroke: #4db2f0; }")
        );
        assert!(!text.contains("var(") && !text.contains(".c1 "));
    }

    #[test]
    fn values_are_saved_with_names_and_without_false_digits() {
        let text = csv(&[chart()]);
        assert_eq!(
            text,
            "line,\"time, s\",\"reno, cubic: cwnd, segments\"\nreno 1,0,1\nreno 1,5,30\n\
             reno 1,10,2.5\nnative,1,1\n"
        );
        assert_eq!(
            [0.1 + 0.2, 91.900_000_1, 1_234_567.8, 0.0, -0.000_123_456_78].map(significant),
            ["0.3", "91.9", "1234568", "0", "-0.000123457"]
        );
        let boxed = Chart {
            title: "goodput".into(),
            x: Axis::named(["reno"]),
            lines: vec![ChartSeries {
                boxes: BoxPlot::from_values(1.0, [1.0, 2.0, 3.0])
                    .into_iter()
                    .collect(),
                ..ChartSeries::default()
            }],
            ..Chart::default()
        };
        let text = csv(&[boxed, chart()]);
        assert!(text.starts_with("chart,line,x,value,kind\n"), "{text}");
        assert!(text.contains("goodput,,reno,2,median\n"), "{text}");
        assert!(
            text.contains("\"reno, cubic: cwnd, segments\",reno 1,0,1,point\n"),
            "{text}"
        );
    }

    #[test]
    fn names_of_files_say_what_and_who() {
        assert_eq!(file_name(&chart()), "cwnd-reno-cubic");
        let shares = Chart {
            title: "share of bins by throughput, %".into(),
            ..chart()
        };
        assert_eq!(
            file_name(&shares),
            "share-of-bins-by-throughput-reno-1-native-reno"
        );
        let attribute = |name: &str| format!("<i data-file=\"{}\"></i>", escape(name));
        let page = ["cwnd", "cwnd", "cwnd-2", "a\"b"].map(attribute).concat();
        let names = ["cwnd", "cwnd-2", "cwnd-2-2", "a\"b"]
            .map(attribute)
            .concat();
        assert_eq!(distinct_names(&page), names);
    }
}
