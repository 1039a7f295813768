//! Line charts and box plots as SVG text, for HTML pages and for the book.
//!
//! Output is deterministic, byte for byte, and works in any SVG viewer. Colours are custom
//! properties with the page's names: an inline chart follows the theme of its page, a
//! [`standalone`] file the reader's preference for light or dark. A [`live`] chart is the same
//! drawing, which the page's [`CHART_SCRIPT`] lets a reader zoom and inspect.

mod boxes;
mod draw;
mod live;
mod scale;

pub use boxes::BoxPlot;
pub use draw::{inline, standalone};
pub use live::{CHART_SCRIPT, HoverData, Key, Width, keys, live};

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
    /// Index into the palette, modulo [`PALETTE_COLOURS`].
    pub colour: usize,
    /// Light fill down to zero, for the capacity that the other lines use or leave.
    pub area: bool,
    /// Dashed stroke, for reference lines.
    pub dashed: bool,
    /// Dot at every point, for a few measured values that the line only connects.
    pub dots: bool,
    /// Label next to the last point. Not drawn in live charts.
    pub end_label: String,
    /// Vertical error bars: position, lower end, upper end.
    pub errors: Vec<(f64, f64, f64)>,
    /// Box plots. Not drawn in live charts.
    pub boxes: Vec<BoxPlot>,
    /// Live charts: name in the readout, used if the key above the panel has none.
    pub name: String,
    /// Live charts: secondary shade of the colour.
    pub secondary: bool,
    /// Live charts: `stroke-dasharray` of SVG; empty for a solid line.
    pub dashes: &'static str,
    /// Live charts: index of the page's [`keys`] entry that hides the line.
    pub key: Option<usize>,
    /// Live charts: thin stroke, for many overlapping lines.
    pub thin: bool,
    /// Live charts: percentage of the line's colour in a mix with the page's; `None` is the pure
    /// colour.
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

/// Style of a filled area. Inline rather than in [`CHART_STYLE`], since few charts have areas.
const AREA_STYLE: &str = "stroke: none; opacity: 0.16";

/// Number of colours in the palette, which is based on Okabe and Ito's for colour-blind readers.
pub const PALETTE_COLOURS: usize = 6;

/// CSS that a page includes once for its inline charts; the page defines the custom properties.
pub const CHART_STYLE: &str = "\
svg.chart { display: block; width: 100%; height: auto; \
    font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', \
    sans-serif; }
svg.chart text { fill: var(--ink); } svg.chart .soft { fill: var(--muted); } \
svg.chart .title { font-weight: 600; }
svg.chart .grid { stroke: var(--grid); } svg.chart .frame { stroke: var(--guide); fill: none; }
svg.chart .guide { stroke: var(--guide); stroke-dasharray: 2 3; }
svg.chart .halo { paint-order: stroke; stroke: var(--page); stroke-width: 4px; \
    stroke-linejoin: round; }
svg.chart .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; } \
svg.chart .dashed { stroke-dasharray: 6 4; }
svg.chart .c0 { stroke: var(--c0); } svg.chart .c1 { stroke: var(--c1); } \
svg.chart .c2 { stroke: var(--c2); }
svg.chart .c3 { stroke: var(--c3); } svg.chart .c4 { stroke: var(--c4); } \
svg.chart .c5 { stroke: var(--c5); }
svg.chart .f0 { fill: var(--c0); } svg.chart .f1 { fill: var(--c1); } \
svg.chart .f2 { fill: var(--c2); }
svg.chart .f3 { fill: var(--c3); } svg.chart .f4 { fill: var(--c4); } \
svg.chart .f5 { fill: var(--c5); }
";

/// Palette of the light theme, as custom properties.
pub const LIGHT_PALETTE: &str =
    "--c0: #0072b2; --c1: #c04a00; --c2: #00805c; --c3: #a3427a; --c4: #6b5b00; --c5: #444b52;";
/// Palette of the dark theme.
pub const DARK_PALETTE: &str =
    "--c0: #4db2f0; --c1: #ff8f4a; --c2: #2fcf9f; --c3: #ee8fc6; --c4: #dcc437; --c5: #c2cad2;";
