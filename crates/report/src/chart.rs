//! Line charts and box plots as SVG text: one engine for the pages and for pictures in the book.
//!
//! These pictures are the same bytes wherever they are made, and show in any viewer. Colours come
//! from custom properties with the page's names, so that a picture inside a page follows the page,
//! and one in a file ([`standalone`]) the reader's preference for light or dark. A [`live`] one is
//! the same drawing; the page's [`SCRIPT`] lets a reader zoom and point into it.

mod boxes;
mod draw;
mod live;
mod scale;

pub use boxes::BoxPlot;
pub use draw::{inline, standalone};
pub use live::{Key, Live, SCRIPT, Width, keys, live};

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
    /// Its ends; those of what is drawn where it is absent, with zero included unless it is
    /// logarithmic.
    pub range: Option<(f64, f64)>,
    /// What stands at 1, 2, 3 and so on; without names there are numbers.
    pub names: Vec<String>,
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
            ..Axis::default()
        }
    }

    /// One of names, from 1 on, each with as much room as the others.
    pub fn named<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Axis {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        Axis {
            range: Some((0.5, names.len().max(1) as f64 + 0.5)),
            names,
            ..Axis::default()
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
    /// Filled down to zero, lightly: for what the other lines fill or leave.
    pub area: bool,
    /// For references, beside what is looked at.
    pub dashed: bool,
    /// A dot at every point, for a few measured values that the line only connects.
    pub dots: bool,
    /// What stands beside its last point. Live pictures have none.
    pub beside: String,
    /// Upright bars: where, from, to.
    pub errors: Vec<(f64, f64, f64)>,
    /// Box plots. Live pictures have none.
    pub boxes: Vec<BoxPlot>,
    /// In a live picture: what the reading calls it, where the key above the panel does not name
    /// it.
    pub name: String,
    /// In its colour's other shade. Only live pictures have it.
    pub second: bool,
    /// Lengths of dashes and gaps, as SVG has them, in a live picture; none is a solid line.
    pub dashes: &'static str,
    /// In a live picture: which of the page's [`keys`] hides it.
    pub of: Option<usize>,
    /// In a live picture: one of many on top of each other.
    pub thin: bool,
    /// In a live picture: so much of its colour, percent, and the rest the page's; `None` is all of
    /// it.
    pub shade: Option<u8>,
}

/// What tells lines apart in a live picture: ours from native ones of the same colour, variants
/// from each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Which of the palette's colours.
    pub colour: usize,
    /// In the colour's other shade.
    pub second: bool,
    /// Lengths of dashes and gaps, as SVG has them; none is a solid line.
    pub dashes: &'static str,
}

impl Line {
    /// A continuous line.
    pub fn new(
        label: impl Into<String>,
        colour: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Line {
        Line {
            label: label.into(),
            points: points.into_iter().map(|(x, y)| (x, Some(y))).collect(),
            colour,
            ..Line::default()
        }
    }

    /// A continuous line of a live picture, with a name for its reading and in no key.
    pub fn named(
        name: impl Into<String>,
        colour: usize,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Line {
        Line {
            name: name.into(),
            ..Line::new("", colour, points)
        }
    }

    /// Events: an upright stroke of this height above zero at each of these places, which ascend.
    /// Those nearer to each other than `apart` are one.
    pub fn strokes(
        name: impl Into<String>,
        colour: usize,
        at: &[f64],
        apart: f64,
        height: f64,
    ) -> Line {
        let mut points = Vec::new();
        let mut last = f64::NEG_INFINITY;
        for &at in at {
            if at - last >= apart {
                points.extend([(at, Some(0.0)), (at, Some(height)), (at, None)]);
                last = at;
            }
        }
        Line {
            points,
            ..Line::named(name, colour, [])
        }
    }

    /// The same, filled down to zero.
    #[must_use]
    pub fn area(self) -> Line {
        Line { area: true, ..self }
    }

    /// The same, dashed.
    #[must_use]
    pub fn dashed(self) -> Line {
        Line {
            dashed: true,
            ..self
        }
    }

    /// The same, looking so.
    #[must_use]
    pub fn look(self, look: Look) -> Line {
        Line {
            colour: look.colour,
            second: look.second,
            dashes: look.dashes,
            ..self
        }
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

/// How an area looks beside its colour. It is said at each, since few pictures have one.
const AREA: &str = "stroke: none; opacity: 0.16";

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
pub const LIGHT: &str =
    "--c0: #0072b2; --c1: #c04a00; --c2: #00805c; --c3: #a3427a; --c4: #6b5b00; --c5: #444b52;";
/// See [`LIGHT`].
pub const DARK: &str =
    "--c0: #4db2f0; --c1: #ff8f4a; --c2: #2fcf9f; --c3: #ee8fc6; --c4: #dcc437; --c5: #c2cad2;";
