//! The delay meter's page: figures and pictures in one file, without a script.

use ccplane_report::chart::{self, Axis, Chart, Line};
use ccplane_report::html::note;
use ccplane_report::{Page, Provenance};

use super::{Distribution, Findings, Way};

/// Points of a distribution's curve: a pixel is a fifth of a percent.
const SHARES: usize = 500;
/// Ranges of a histogram to a factor of ten.
const FINE: f64 = 10.0;
/// Pieces of time in the picture over it; of each the worst and the median is drawn.
const PIECES: usize = 300;

/// The page.
pub fn page(found: &Findings, provenance: &Provenance) -> String {
    let subtitle = format!(
        "{} probes of {} bytes, {} a second on average, over {:.1} s{}.",
        found.tally.sent,
        found.setup.size,
        found.setup.rate,
        found.seconds,
        if found.interrupted { "; ended early" } else { "" },
    );
    let mut page = Page::new(&format!("One-way delay to {}", found.setup.to), &subtitle);
    let remarks: String = found.remarks().iter().map(|line| note(line)).collect();
    page.section("Figures", &(found.table().html() + &remarks));
    let ways = [("there", &found.there), ("back", &found.back)];
    let pictures = [
        (
            "How the queueing delay is distributed",
            "Queueing delay, distribution",
            curves(&ways),
        ),
        (
            "How often which delay was met",
            "Queueing delay, histogram",
            vec![histogram(&ways)],
        ),
        (
            "Over time",
            "Queueing delay over time",
            ways.iter().map(|(name, way)| over_time(name, way)).collect(),
        ),
    ];
    for (title, described, charts) in pictures {
        let picture = chart::inline(&charts, described);
        page.section(title, &format!("<div class=\"pictures\">{picture}</div>"));
    }
    page.again(
        &found.setup.command,
        "docs/measure.md says what each figure is, and how far it is to be believed.",
    );
    page.provenance(&provenance.place());
    page.finish("")
}

/// What is below a tenth of a microsecond is drawn there: a logarithm has no zero.
fn drawn(us: f64) -> f64 {
    us.max(0.1)
}

fn curves(ways: &[(&str, &Way)]) -> Vec<Chart> {
    let curve = |distribution: &Distribution| -> Vec<(f64, f64)> {
        let shares = (0..=SHARES).map(|n| n as f64 / SHARES as f64);
        shares
            .filter_map(|share| Some((drawn(distribution.quantile(share)?), share * 100.0)))
            .collect()
    };
    let mut lines = Vec::new();
    for (colour, (name, way)) in ways.iter().enumerate() {
        lines.push(Line::new(*name, colour, curve(&way.queue)));
        if way.stamped {
            let label = format!("{name}, by user space's times");
            lines.push(Line::new(label, colour, curve(&way.user)).dashed());
        }
    }
    vec![Chart {
        title: "packets that waited no longer, %".into(),
        x: Axis::log("queueing delay, µs"),
        y: Axis::linear("").from_to(0.0, 100.0),
        lines,
        guides: Vec::new(),
    }]
}

fn histogram(ways: &[(&str, &Way)]) -> Chart {
    let lines = ways.iter().enumerate().map(|(colour, (name, way))| {
        let mut bins: Vec<(i32, u32)> = Vec::new();
        for us in &way.queue.sorted {
            let bin = (libm::log10(drawn(*us)) * FINE).floor() as i32;
            match bins.last_mut() {
                Some((last, count)) if *last == bin => *count += 1,
                _ => bins.push((bin, 1)),
            }
        }
        let total = way.queue.count().max(1) as f64;
        let ten = |exponent: i32| libm::pow(10.0, f64::from(exponent) / FINE);
        // Steps, down to nothing at the ends.
        let mut points = Vec::new();
        let (mut end, mut ended) = (None, 0.0);
        for (bin, count) in bins {
            if end != Some(bin) {
                if let Some(end) = end {
                    points.push((ten(end), 0.0));
                }
                points.push((ten(bin), 0.0));
            }
            ended = f64::from(count) * 100.0 / total;
            points.push((ten(bin), ended));
            points.push((ten(bin + 1), ended));
            end = Some(bin + 1);
        }
        if let Some(end) = end.filter(|_| ended > 0.0) {
            points.push((ten(end), 0.0));
        }
        Line::new(*name, colour, points)
    });
    Chart {
        title: "packets in each tenth of a factor of ten, %".into(),
        x: Axis::log("queueing delay, µs"),
        y: Axis::linear(""),
        lines: lines.collect(),
        guides: Vec::new(),
    }
}

fn over_time(name: &str, way: &Way) -> Chart {
    let piece = way.series.len().div_ceil(PIECES).max(1);
    let mut pieces: Vec<(f64, f64, f64)> = Vec::new();
    for part in way.series.chunks(piece) {
        let mut delays: Vec<f64> = part.iter().map(|(_, us)| *us).collect();
        delays.sort_by(f64::total_cmp);
        if let (Some((at, _)), Some(most)) = (part.first(), delays.last()) {
            pieces.push((*at, delays[delays.len() / 2], *most));
        }
    }
    pieces.sort_by(|a, b| a.0.total_cmp(&b.0));
    Chart {
        title: format!("{name}, µs"),
        x: Axis::linear("time, s"),
        y: Axis::linear(""),
        lines: vec![
            Line::new("worst", 1, pieces.iter().map(|(at, _, most)| (*at, *most))),
            Line::new("median", 0, pieces.iter().map(|(at, median, _)| (*at, *median))),
        ],
        guides: Vec::new(),
    }
}
