//! Line charts and box plots as SVG text, for HTML pages and for the book.
//!
//! Output is deterministic, byte for byte. On a page, colours are custom properties: an [`inline`]
//! chart and a [`figure`] follow the page's theme, and the page's [`CHART_SCRIPT`] lets a reader
//! zoom, inspect and save. A file from [`export`] or [`standalone`] has colours, fonts and key of
//! its own, and uses only what every SVG renderer supports. A [`live`] chart is the same drawing.
//! Points outside an axis are marked by a triangle at the edge.

mod boxes;
mod draw;
mod file;
mod labels;
mod live;
mod scale;
mod theme;

use std::fmt::Write;

pub use boxes::BoxPlot;
pub use draw::{figure, inline};
pub(crate) use file::distinct_names;
pub use file::{Theme, csv, export, file_name, standalone};
pub use live::{CHART_SCRIPT, HoverData, Key, Width, keys, live};
pub use theme::{CONTENDER_HUES, GREY, PALETTE_COLOURS, hue};

/// One panel of a picture.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// Title above the panel, left-aligned; often the label of the vertical axis.
    pub title: String,
    /// Horizontal axis, below the panel.
    pub x: Axis,
    /// Vertical axis, at the left. Its `label` is not drawn; the title takes its place.
    pub y: Axis,
    /// Lines, drawn in this order.
    pub lines: Vec<ChartSeries>,
    /// Horizontal guides: value and label.
    pub guides: Vec<(f64, String)>,
}

/// Axis of a panel.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// True for a logarithmic axis; values at or below zero are left out.
    pub log: bool,
    /// Range of the axis. Without one the data set it, extended to include zero on a linear axis.
    pub range: Option<(f64, f64)>,
    /// Labels of the positions 1, 2, 3 and so on; empty for a numeric axis.
    pub names: Vec<String>,
}

impl Axis {
    /// Creates a linear axis.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            ..Axis::default()
        }
    }

    /// Creates a logarithmic axis.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            log: true,
            ..Axis::default()
        }
    }

    /// Creates a categorical axis with equally wide slots at 1, 2, 3 and so on.
    pub fn named<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Axis {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Axis {
            range: Some((0.5, names.len().max(1) as f64 + 0.5)),
            names,
            ..Axis::default()
        }
    }

    /// Sets the range.
    #[must_use]
    pub fn with_range(self, from: f64, to: f64) -> Axis {
        Axis {
            range: Some((from, to)),
            ..self
        }
    }
}

/// Data series.
#[derive(Clone, Debug, Default)]
pub struct ChartSeries {
    /// Name in the key above the panel.
    pub label: String,
    /// Points from left to right; a missing value breaks the line.
    pub points: Vec<(f64, Option<f64>)>,
    /// Index into the palette, modulo [`PALETTE_COLOURS`]; see [`hue`].
    pub colour: usize,
    /// Light fill down to zero, for the capacity that the other lines use or leave.
    pub area: bool,
    /// Dashed stroke, for reference lines.
    pub dashed: bool,
    /// Dot at every point, for a few measured values that the line only connects.
    pub dots: bool,
    /// Label next to the last point, moved if it would overlap another one. Not drawn in live
    /// charts.
    pub end_label: String,
    /// Vertical error bars: position, lower end, upper end.
    pub errors: Vec<(f64, f64, f64)>,
    /// Box plots. Not drawn in live charts.
    pub boxes: Vec<BoxPlot>,
    /// Live charts and files: name in the readout and in the key below the panel, used if the key
    /// above the panel has none.
    pub name: String,
    /// Secondary shade of the colour.
    pub secondary: bool,
    /// `stroke-dasharray` of SVG; empty for a solid line.
    pub dashes: &'static str,
    /// Live charts: index of the page's [`keys`] entry that hides the line.
    pub key: Option<usize>,
    /// Live charts: the line is vertical strokes, which mark times and whose heights are no values.
    pub events: bool,
    /// Live charts and files: thin stroke, for many overlapping lines.
    pub thin: bool,
    /// Live charts and files: percentage of the line's colour in a mix with the colour of text;
    /// `None` is the pure colour.
    pub shade: Option<u8>,
}

/// Line style in live charts. It distinguishes our algorithms from native ones of the same colour,
/// and variants from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesStyle {
    /// Index into the palette.
    pub colour: usize,
    /// Secondary shade of the colour.
    pub secondary: bool,
    /// `stroke-dasharray` of SVG; empty for a solid line.
    pub dashes: &'static str,
}

impl ChartSeries {
    /// Creates a continuous line.
    pub fn new(
        label: impl Into<String>,
        colour: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> ChartSeries {
        ChartSeries {
            label: label.into(),
            points: points.into_iter().map(|(x, y)| (x, Some(y))).collect(),
            colour,
            ..ChartSeries::default()
        }
    }

    /// Returns the name in the readout, in keys and in values.
    fn shown_name(&self) -> &str {
        match self.name.is_empty() {
            true => &self.label,
            false => &self.name,
        }
    }

    /// Creates a continuous line of a live chart that is named in the readout but in no key.
    pub fn named(
        name: impl Into<String>,
        colour: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> ChartSeries {
        ChartSeries {
            name: name.into(),
            ..ChartSeries::new("", colour, points)
        }
    }

    /// Creates vertical strokes from zero to `height` at the positions `at`, which ascend. A
    /// position closer than `apart` to the last stroke is skipped.
    pub fn strokes(
        name: impl Into<String>,
        colour: usize,
        at: &[f64],
        apart: f64,
        height: f64,
    ) -> ChartSeries {
        let mut points = Vec::new();
        let mut last = f64::NEG_INFINITY;
        for &at in at {
            if at - last >= apart {
                points.extend([(at, Some(0.0)), (at, Some(height)), (at, None)]);
                last = at;
            }
        }
        ChartSeries {
            points,
            events: true,
            ..ChartSeries::named(name, colour, [])
        }
    }

    /// Fills the area down to zero.
    #[must_use]
    pub fn area(self) -> ChartSeries {
        ChartSeries { area: true, ..self }
    }

    /// Makes the line dashed.
    #[must_use]
    pub fn dashed(self) -> ChartSeries {
        ChartSeries {
            dashed: true,
            ..self
        }
    }

    /// Applies a line style.
    #[must_use]
    pub fn with_style(self, look: SeriesStyle) -> ChartSeries {
        ChartSeries {
            colour: look.colour,
            secondary: look.secondary,
            dashes: look.dashes,
            ..self
        }
    }

    /// Adds a dot at every point.
    #[must_use]
    pub fn dots(self) -> ChartSeries {
        ChartSeries { dots: true, ..self }
    }

    /// Adds error bars: position, lower end, upper end.
    #[must_use]
    pub fn errors(self, errors: Vec<(f64, f64, f64)>) -> ChartSeries {
        ChartSeries { errors, ..self }
    }
}

/// Style of a filled area. Inline rather than in [`chart_style`], since few charts have areas.
const AREA_STYLE: &str = "stroke: none; opacity: 0.16";

/// Returns the CSS that a page includes once for its inline charts; the page defines the custom
/// properties.
pub fn chart_style() -> String {
    let mut out = String::from(CHART_STYLE);
    for n in 0..PALETTE_COLOURS {
        let _ = writeln!(
            out,
            "svg .c{n} {{ stroke: var(--c{n}); }} svg .s{n} {{ stroke: var(--s{n}); }} \
             svg .f{n} {{ fill: var(--c{n}); }} svg .g{n} {{ fill: var(--s{n}); }}"
        );
    }
    out
}

/// Rules of [`chart_style`] besides the palette.
const CHART_STYLE: &str = "\
svg.chart { display: block; width: 100%; height: auto; \
    font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', \
    sans-serif; }
svg.chart text { fill: var(--ink); } svg.chart .soft { fill: var(--muted); } \
svg.chart .title { font-weight: 600; }
svg.chart .grid { stroke: var(--grid); } svg.chart .frame { stroke: var(--guide); fill: none; }
svg.chart .guide { stroke: var(--guide); stroke-dasharray: 2 3; }
svg.chart .leader { stroke: var(--guide); }
svg.chart .halo { paint-order: stroke; stroke: var(--page); stroke-width: 4px; \
    stroke-linejoin: round; }
svg.chart .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; } \
svg.chart .dashed { stroke-dasharray: 6 4; }
";

/// Returns the custom properties of the light theme: `--page`, `--ink`, `--muted`, `--grid`,
/// `--guide`, the palette `--c0`, `--c1` and so on, and its secondary shades `--s0`, `--s1`.
pub fn light_properties() -> String {
    theme::LIGHT_COLOURS.properties()
}

/// Same as [`light_properties`] for the dark theme.
pub fn dark_properties() -> String {
    theme::DARK_COLOURS.properties()
}
