//! Page of a sweep: goodput over delay, lines for each axis, heat maps for each pair of axes, and a
//! table of the points.

use std::collections::BTreeMap;
use std::fmt::Write;

use ccplane_report::chart::{Axis, Chart, ChartSeries, figure, hue};
use ccplane_report::html::{escape, warning};
use ccplane_report::{Page, Table, plus_minus};

use super::columns::Cell;
use super::plan::PlannedSweep;
use super::table::RunTable;
use crate::report::plane::{self, Spot};
use crate::stats::mean_interval;
use ccplane_units::stats;

/// Maximum number of pairs of axes with heat maps. More would hide the rest of the page.
const PAIRS_MAX: usize = 6;
/// Maximum number of contenders with lines and heat maps: the number of distinct colours.
const CONTENDERS_MAX: usize = 12;
/// Maximum number of rows of the table of points.
const ROWS_MAX: usize = 200;
/// Maximum number of failed runs in the warning.
const FAILURES_MAX: usize = 8;
/// Ratio of the largest to the smallest position above which an axis is logarithmic.
const LOG_RATIO: f64 = 10.0;
/// Share of colour in the cell with the largest value of a heat map, percent. Text stays readable.
const HEAT_PERCENT_MAX: f64 = 55.0;

/// Metrics that the page may draw, with the title of their charts. A metric is drawn if a run has
/// it.
const METRICS: [(&str, &str); 4] = [
    ("goodput_mbit", "goodput, Mbit/s"),
    ("utilisation", "utilisation of the bottleneck"),
    ("delay_p95_ms", "95th percentile of the queueing delay, ms"),
    ("slowdown_p50", "median slowdown of flows"),
];

/// Runs of one point.
struct PointRuns<'p> {
    cells: &'p [Cell],
    contender: String,
    /// Rows of the table.
    rows: Vec<usize>,
}

/// Data of the page.
struct SweepPage<'p> {
    planned: &'p PlannedSweep,
    table: &'p RunTable,
    points: Vec<PointRuns<'p>>,
    contenders: Vec<String>,
    /// Indices of axes with at least two values, without the contenders.
    axes: Vec<usize>,
    metrics: Vec<(&'static str, &'static str)>,
}

/// Returns the page of a sweep. `command` reproduces it, and `provenance` names the build.
pub fn page(planned: &PlannedSweep, table: &RunTable, command: &str, provenance: &str) -> String {
    let data = SweepPage::new(planned, table);
    let (runs, all) = (table.rows(), planned.ids.len());
    let missing = match all - runs.min(all) {
        0 => String::new(),
        missing => format!(" · {missing} runs are missing"),
    };
    let subtitle = format!(
        "{all} runs: {} × {} · {}{missing}",
        counted(planned.points.len(), "point"),
        counted(planned.seeds.len(), "seed"),
        planned.datapath
    );
    let mut page = Page::new(&planned.title, &subtitle);
    page.enable_live();
    page.add(&data.failures());
    data.add_plane(&mut page);
    for axis in &data.axes {
        data.add_lines(&mut page, *axis);
    }
    data.add_heat_maps(&mut page);
    data.add_table(&mut page);
    page.add_reproduce_section(
        command,
        "A repeated sweep in the same folder makes only the runs that are missing.",
    );
    page.set_provenance(provenance);
    page.finish("The table of all runs is <code>runs.csv</code> and <code>runs.parquet</code>.")
}

fn counted(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

impl<'p> SweepPage<'p> {
    fn new(planned: &'p PlannedSweep, table: &'p RunTable) -> SweepPage<'p> {
        let point_of: BTreeMap<&str, usize> = planned
            .ids
            .iter()
            .enumerate()
            .map(|(index, id)| (&**id, index / planned.seeds.len().max(1)))
            .collect();
        let contender_axis = planned.axes.iter().position(|axis| axis == "contender");
        let contender = |point: usize| {
            let cell = contender_axis.and_then(|axis| planned.points.get(point)?.get(axis));
            match cell {
                Some(cell) if *cell != Cell::Missing => cell.to_string(),
                _ => planned
                    .algorithms
                    .get(point)
                    .cloned()
                    .flatten()
                    .unwrap_or_else(|| "all workloads".to_owned()),
            }
        };
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); planned.points.len()];
        if let Some(ids) = table.column("run") {
            for row in 0..table.rows() {
                let point = point_of.get(&*ids.text(row)).copied();
                if let Some(rows) = point.and_then(|point| rows.get_mut(point)) {
                    rows.push(row);
                }
            }
        }
        let points = planned.points.iter().zip(rows).enumerate();
        let points: Vec<PointRuns<'p>> = points
            .map(|(index, (cells, rows))| PointRuns {
                cells,
                contender: contender(index),
                rows,
            })
            .collect();
        let mut contenders: Vec<String> = Vec::new();
        for point in &points {
            if !contenders.contains(&point.contender) {
                contenders.push(point.contender.clone());
            }
        }
        let axes = (0..planned.axes.len())
            .filter(|axis| Some(*axis) != contender_axis)
            .filter(|axis| distinct(&points, *axis).len() > 1)
            .collect();
        let varies = |name: &str| {
            // Goodput cannot be compared between links of different rates.
            let rate = planned.axes.iter().any(|axis| axis.starts_with("rate"));
            match name {
                "goodput_mbit" => !rate,
                "utilisation" => rate,
                _ => true,
            }
        };
        let metrics = METRICS
            .into_iter()
            .filter(|(name, _)| varies(name) && table.column(name).is_some())
            .collect();
        SweepPage {
            planned,
            table,
            points,
            contenders,
            axes,
            metrics,
        }
    }

    /// Returns a metric of runs, without missing values.
    fn values(&self, metric: &str, rows: &[usize]) -> Vec<f64> {
        let column = self.table.column(metric);
        let values = rows.iter().filter_map(|row| column?.number(*row));
        values.collect()
    }

    /// Returns a metric of all runs with these cells.
    fn select(&self, metric: &str, contender: &str, cells: &[(usize, &Cell)]) -> Vec<f64> {
        let fits = |point: &&PointRuns<'_>| {
            let has = |(axis, cell): &(usize, &Cell)| point.cells.get(*axis) == Some(*cell);
            point.contender == contender && cells.iter().all(has)
        };
        let points = self.points.iter().filter(fits);
        let rows: Vec<usize> = points.flat_map(|point| &point.rows).copied().collect();
        self.values(metric, &rows)
    }

    fn failures(&self) -> String {
        let (Some(errors), Some(ids)) = (self.table.column("error"), self.table.column("run"))
        else {
            return String::new();
        };
        let failed: Vec<(String, String)> = (0..self.table.rows())
            .map(|row| (ids.text(row), errors.text(row)))
            .filter(|(_, error)| !error.is_empty())
            .collect();
        warning(
            "Failed runs:",
            "Their rows have no metrics; the column error of runs.csv has the reasons.",
            &failed,
            FAILURES_MAX,
            "runs.csv",
        )
    }

    /// Adds goodput over delay: a dot per point, with the contender's name at its first one.
    fn add_plane(&self, page: &mut Page) {
        let metric = self
            .metrics
            .first()
            .map_or("goodput_mbit", |(name, _)| name);
        let mut labelled: Vec<&str> = Vec::new();
        let mut spots = Vec::new();
        for point in &self.points {
            let delay = stats::mean(self.values("delay_p95_ms", &point.rows));
            let goodput = stats::mean(self.values(metric, &point.rows));
            let (Some(delay), Some(goodput)) = (delay, goodput) else {
                continue;
            };
            let index = self.contenders.iter().position(|c| *c == point.contender);
            let first = !labelled.contains(&&*point.contender);
            if first {
                labelled.push(&point.contender);
            }
            spots.push(Spot {
                label: if first {
                    point.contender.clone()
                } else {
                    String::new()
                },
                colour: hue(index.unwrap_or_default()),
                secondary: false,
                position: (delay, goodput),
                runs: Vec::new(),
            });
        }
        if spots.len() < 2 {
            return;
        }
        let mut chart = plane::chart(&spots);
        if metric == "utilisation" {
            chart.title = "utilisation of the bottleneck".to_owned();
            chart.y = Axis::linear("").with_range(0.0, 1.0);
        }
        let picture = figure(
            &[chart],
            "utilisation or goodput over delay",
            "goodput-delay",
        );
        page.add_section(
            "Goodput over delay",
            &format!(
                "{picture}<p class=\"note\">A dot is the mean of a point's seeds. Better is towards \
                 the upper left.</p>"
            ),
        );
    }

    /// Adds a chart per metric with the axis below it and a line per contender.
    fn add_lines(&self, page: &mut Page, axis: usize) {
        let cells = distinct(&self.points, axis);
        let numbers: Option<Vec<f64>> = cells
            .iter()
            .map(|cell| match cell {
                Cell::Number(number) => Some(*number),
                _ => None,
            })
            .collect();
        let name = self.planned.axes.get(axis).map_or("", String::as_str);
        let label = axis_label(name);
        let (x, positions) = match numbers {
            Some(numbers) => {
                let (low, high) = range(&numbers);
                let x = match low > 0.0 && high / low >= LOG_RATIO {
                    true => Axis::log(label.clone()),
                    false => Axis::linear(label.clone()),
                };
                (x.with_range(low, high), numbers)
            }
            None => {
                let mut x = Axis::named(cells.iter().map(|cell| cell.to_string()));
                x.label.clone_from(&label);
                (x, (1..=cells.len()).map(|n| n as f64).collect())
            }
        };
        let is_only = self.axes.len() == 1;
        let mut charts = Vec::new();
        for (metric, title) in &self.metrics {
            let lines = self.contenders.iter().take(CONTENDERS_MAX).enumerate();
            let lines = lines.map(|(index, contender)| {
                let mut points = Vec::new();
                let mut errors = Vec::new();
                for (cell, at) in cells.iter().zip(&positions) {
                    let values = self.select(metric, contender, &[(axis, cell)]);
                    points.push((*at, stats::mean(values.iter().copied())));
                    if let Some((low, high)) = mean_interval(&values).filter(|_| is_only) {
                        errors.push((*at, low, high));
                    }
                }
                let mut line = ChartSeries {
                    label: contender.clone(),
                    colour: hue(index),
                    dots: true,
                    ..ChartSeries::default()
                };
                if points.iter().all(|(_, value)| value.is_none()) {
                    // The contender does not depend on this axis.
                    let all = self.select(metric, contender, &[(axis, &Cell::Missing)]);
                    let mean = stats::mean(all.iter().copied());
                    line.points = positions.iter().map(|at| (*at, mean)).collect();
                    line.dashed = true;
                    line.dots = false;
                    return line;
                }
                line.points = points;
                line.errors(errors)
            });
            charts.push(Chart {
                title: (*title).to_owned(),
                x: x.clone(),
                y: Axis::linear(""),
                lines: lines.collect(),
                guides: Vec::new(),
            });
        }
        let over = match is_only {
            true => "Mean over the seeds with its 95 % confidence interval.",
            false => "Mean over all other axes and the seeds.",
        };
        let described = format!("metrics over {label}");
        let file = format!("over-{}", file_part(name));
        let picture = figure(&charts, &described, &file);
        let note = format!(
            "<p class=\"note\">{over} Dashed: the contender does not depend on this axis.{}</p>",
            self.omitted()
        );
        page.add_section(&format!("Over {label}"), &(picture + &note));
    }

    fn omitted(&self) -> String {
        match self.contenders.len().saturating_sub(CONTENDERS_MAX) {
            0 => String::new(),
            omitted => format!(
                " {} in the table below.",
                counted(omitted, "further contender")
            ),
        }
    }

    /// Adds a heat map per pair of axes, metric and contender.
    fn add_heat_maps(&self, page: &mut Page) {
        let mut pairs = Vec::new();
        for (n, first) in self.axes.iter().enumerate() {
            for second in self.axes.iter().skip(n + 1) {
                pairs.push((*first, *second));
            }
        }
        let name = |axis: usize| self.planned.axes.get(axis).map_or("", String::as_str);
        for (first, second) in pairs.iter().take(PAIRS_MAX) {
            let mut html = String::new();
            for (metric, title) in &self.metrics {
                let _ = write!(html, "<h3>{}</h3><div class=\"maps\">", escape(title));
                for (index, contender) in self.contenders.iter().take(CONTENDERS_MAX).enumerate() {
                    html += &self.heat_map(metric, (index, contender), *first, *second);
                }
                html += "</div>";
            }
            let heading = format!(
                "{} and {}",
                axis_label(name(*first)),
                axis_label(name(*second))
            );
            html += &format!(
                "<p class=\"note\">Rows: {}; columns: {}. Mean over all other axes and the seeds. A \
                 stronger colour is a larger value.{}</p>",
                escape(&axis_label(name(*first))),
                escape(&axis_label(name(*second))),
                self.omitted()
            );
            page.add_section(&heading, &html);
        }
        let omitted = pairs.len().saturating_sub(PAIRS_MAX);
        if omitted > 0 {
            page.add(&format!(
                "<p class=\"note\">{} of axes without a heat map: draw them from \
                 <code>runs.csv</code>.</p>",
                counted(omitted, "further pair")
            ));
        }
    }

    fn heat_map(
        &self,
        metric: &str,
        (index, contender): (usize, &str),
        first: usize,
        second: usize,
    ) -> String {
        let (rows, columns) = (
            distinct(&self.points, first),
            distinct(&self.points, second),
        );
        let mean = |row: &Cell, column: &Cell| {
            let values = self.select(metric, contender, &[(first, row), (second, column)]);
            stats::mean(values)
        };
        let cells: Vec<Vec<Option<f64>>> = rows
            .iter()
            .map(|row| columns.iter().map(|column| mean(row, column)).collect())
            .collect();
        let present: Vec<f64> = cells.iter().flatten().flatten().copied().collect();
        if present.is_empty() {
            return String::new();
        }
        let (low, high) = range(&present);
        let mut html = format!(
            "<table class=\"heat\"><caption>{}</caption><thead><tr><th></th>",
            escape(contender)
        );
        for column in &columns {
            let _ = write!(
                html,
                "<th scope=\"col\">{}</th>",
                escape(&column.to_string())
            );
        }
        html += "</tr></thead><tbody>";
        for (row, values) in rows.iter().zip(cells) {
            let _ = write!(
                html,
                "<tr><th scope=\"row\">{}</th>",
                escape(&row.to_string())
            );
            for value in values {
                match value {
                    Some(value) => {
                        let share = match high > low {
                            true => (value - low) / (high - low),
                            false => 0.0,
                        };
                        let _ = write!(
                            html,
                            "<td style=\"background:color-mix(in srgb, var(--c{}) {:.0}%, \
                             transparent)\">{}</td>",
                            hue(index),
                            share * HEAT_PERCENT_MAX,
                            three_digits(value)
                        );
                    }
                    None => html += "<td></td>",
                }
            }
            html += "</tr>";
        }
        html + "</tbody></table>"
    }

    /// Adds the table of points: their metrics as means with intervals.
    fn add_table(&self, page: &mut Page) {
        let mut headings: Vec<String> = self.planned.axes.clone();
        headings.push("runs".to_owned());
        headings.extend(self.metrics.iter().map(|(name, _)| (*name).to_owned()));
        let rows = self.points.iter().take(ROWS_MAX).map(|point| {
            let mut row: Vec<String> = point.cells.iter().map(Cell::to_string).collect();
            row.push(point.rows.len().to_string());
            for (metric, _) in &self.metrics {
                let values = self.values(metric, &point.rows);
                row.push(
                    match (stats::mean(values.iter().copied()), mean_interval(&values)) {
                        (Some(mean), Some((_, high))) => plus_minus(mean, high - mean, 2),
                        (Some(mean), None) => format!("{mean:.2}"),
                        (None, _) => String::new(),
                    },
                );
            }
            row
        });
        let table = Table::new(headings, rows.collect()).to_html();
        let omitted = match self.points.len().saturating_sub(ROWS_MAX) {
            0 => String::new(),
            omitted => format!(
                "<p class=\"note\">{} in <code>runs.csv</code>.</p>",
                counted(omitted, "further point")
            ),
        };
        page.add_section("Points", &(table + &omitted));
    }
}

/// Returns the values of an axis in the order of the grid; numbers in ascending order.
fn distinct<'c>(points: &[PointRuns<'c>], axis: usize) -> Vec<&'c Cell> {
    let mut cells: Vec<&Cell> = Vec::new();
    for point in points {
        match point.cells.get(axis) {
            Some(Cell::Missing) | None => {}
            Some(cell) if cells.contains(&cell) => {}
            Some(cell) => cells.push(cell),
        }
    }
    let number = |cell: &Cell| match cell {
        Cell::Number(number) => *number,
        _ => 0.0,
    };
    // A stable sort: words keep their order.
    cells.sort_by(|a, b| number(a).total_cmp(&number(b)));
    cells
}

/// Returns the smallest and the largest value.
fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (low, high)
}

/// Returns the label of an axis with its unit: `rate_mbit` becomes `rate, Mbit/s`.
fn axis_label(column: &str) -> String {
    for (suffix, unit) in [("_mbit", "Mbit/s"), ("_ms", "ms"), ("_bytes", "bytes")] {
        if let Some(name) = column.strip_suffix(suffix) {
            return format!("{name}, {unit}");
        }
    }
    column.to_owned()
}

/// Returns the part of a file name for a column.
fn file_part(column: &str) -> String {
    column
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect()
}

/// Formats a number with three significant digits.
fn three_digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
