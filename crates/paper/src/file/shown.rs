//! What a paper's runs found, as it is shown: its figures, tables and charts.

use ccplane_lab::metrics::Distribution;
use ccplane_lab::stats::paired_ratio;
use ccplane_report::chart::{self, Axis, ChartSeries};

use super::run::{Kept, Runs};
use super::{Chart, Choice, Figure, Judged, Meant, Measure, Paper, Point, Table, Take, X};
use crate::page::{Findings, cell};
use crate::{Datapath, Options};

/// All of it, in the order of the page.
pub(super) fn findings(paper: &Paper, runs: &Runs, options: &Options) -> Findings {
    let shown = Shown { paper, runs };
    let mut findings = Findings::default();
    for figure in &paper.figures {
        shown.figure(&mut findings, figure);
    }
    for table in &paper.tables {
        shown.table(&mut findings, table);
    }
    // Charts with the same caption are one picture.
    let mut pictures: Vec<(String, Vec<chart::Chart>)> = Vec::new();
    for (caption, charts) in paper.charts.iter().flat_map(|chart| shown.pictures(chart)) {
        match pictures.iter_mut().find(|(known, _)| *known == caption) {
            Some((_, all)) => all.extend(charts),
            None => pictures.push((caption, charts)),
        }
    }
    for (caption, charts) in pictures {
        findings.picture(caption, &charts);
    }
    shown.soundness(&mut findings, options);
    paper
        .remarks
        .iter()
        .for_each(|remark| findings.remark(remark));
    paper
        .deviations
        .iter()
        .for_each(|deviation| findings.deviation(deviation));
    findings
}

struct Shown<'p> {
    paper: &'p Paper,
    runs: &'p Runs,
}

/// A value that is not there is dashed.
impl Shown<'_> {
    /// A measure of every run of a point, by seed.
    fn values(&self, point: &Point, measure: &Measure) -> Vec<(u64, f64)> {
        let runs = self.runs.get(point).into_iter().flatten();
        runs.filter_map(|(seed, kept)| Some((*seed, *kept.values.get(&measure.name)?)))
            .collect()
    }

    /// Its mean; of a measure that is of all seeds together, what it is of them.
    fn value(&self, point: &Point, measure: &Measure) -> Option<f64> {
        let Some((statistic, each)) = measure.pooled() else {
            return Distribution::new(
                self.values(point, measure)
                    .into_iter()
                    .map(|(_, value)| value),
            )
            .mean();
        };
        let runs = self.runs.get(point)?.values();
        statistic.of(runs
            .filter_map(|kept| kept.several.get(&each.key()))
            .flatten()
            .copied())
    }

    /// The same, or its ratio to that at another value of a dimension.
    fn ratio(&self, point: &Point, measure: &Measure, over: Option<(usize, usize)>) -> Option<f64> {
        let value = self.value(point, measure)?;
        match over {
            Some(over) => Some(value / self.value(&with(point, &[over]), measure)?),
            None => Some(value),
        }
    }

    /// The run of the first seed.
    fn first(&self, point: &Point) -> Option<&Kept> {
        self.runs.get(point)?.values().next()
    }

    /// Those of these points that were run.
    fn ran(&self, meant: &Meant) -> Vec<Point> {
        let mut points = self.paper.expand(meant);
        points.retain(|point| self.runs.contains_key(point));
        points
    }

    fn figure(&self, findings: &mut Findings, figure: &Figure) {
        for (point, of) in self.taken(figure) {
            let key = self.paper.filled(&figure.key, &point, |choice| &choice.key);
            let what = figure
                .what
                .as_ref()
                .map(|what| self.paper.filled(what, &point, |choice| &choice.label));
            let ratio = || self.scaled(&of, figure);
            match (figure.judged, what) {
                (Judged::Interval(aim), what) => {
                    let other = figure.over.map(|over| with(&point, &[over]));
                    let pairs =
                        other.map_or(Vec::new(), |other| self.pairs(&point, &other, figure));
                    let what = what.unwrap_or_else(|| key.clone());
                    findings.compare_ratio(&key, &what, paired_ratio(&pairs), &figure.paper, aim);
                }
                (Judged::Less, what) => {
                    let other = figure.over.map(|over| with(&point, &[over]));
                    let other = other.and_then(|other| self.value(&other, &figure.measure));
                    let values = self.value(&point, &figure.measure).zip(other);
                    let less = values.map(|(value, other)| value < other && other >= figure.least);
                    findings.state(&key, what.as_deref(), less, &figure.paper);
                }
                (Judged::Value(aim), Some(what)) => {
                    findings.compare(&key, &what, ratio(), &figure.paper, aim)
                }
                (Judged::Value(_), None) => findings.figure(&key, ratio()),
            }
        }
    }

    /// The points of a figure's keys that were run, and of each those that its value is taken of.
    fn taken(&self, figure: &Figure) -> Vec<(Point, Vec<Point>)> {
        let of = |point: &Point| match figure.take {
            None => vec![point.clone()],
            Some(_) => {
                let named = fixed(point, &figure.meant.each);
                let mut only = figure.meant.only.clone();
                only.extend(named.into_iter().map(|(dim, value)| (dim, vec![value])));
                let each = (0..self.paper.dims.len()).collect();
                self.paper.expand(&Meant { only, each })
            }
        };
        let points = self.paper.expand(&figure.meant).into_iter();
        let ran = points.map(|point| {
            let mut of = of(&point);
            of.retain(|point| self.runs.contains_key(point));
            (point, of)
        });
        ran.filter(|(_, of)| !of.is_empty()).collect()
    }

    /// What a figure makes of these points; none where one of them has none.
    fn scaled(&self, of: &[Point], figure: &Figure) -> Option<f64> {
        if figure.take == Some(Take::Together) {
            let (statistic, each) = figure.measure.pooled()?;
            let runs = of
                .iter()
                .filter_map(|point| self.runs.get(point))
                .flat_map(|runs| runs.values());
            let all = runs
                .filter_map(|kept| kept.several.get(&each.key()))
                .flatten()
                .copied();
            return statistic.of(all).map(|value| figure.scale.of(value));
        }
        let measures = || std::iter::once(&figure.measure).chain(&figure.also);
        let values = of
            .iter()
            .flat_map(|point| measures().map(move |measure| (point, measure)));
        let values = values.map(|(point, measure)| {
            let ratio = self.ratio(point, measure, figure.over)?;
            Some(figure.scale.of(ratio))
        });
        let values = Distribution::new(values.collect::<Option<Vec<f64>>>()?);
        match figure.take {
            Some(Take::Max) => values.quantile(1.0),
            Some(Take::Min) => values.quantile(0.0),
            _ => values.mean(),
        }
    }

    /// Values of the same seed on either side. One below the figure's `least` counts as that much:
    /// two such are equal, and one beside a large one is not. Where a zero stands beside something
    /// there is no ratio, and to leave that pair out would be to leave out the difference: there
    /// are no pairs then.
    fn pairs(&self, point: &Point, other: &Point, figure: &Figure) -> Vec<(f64, f64)> {
        let others = self.values(other, &figure.measure);
        let pair = |(seed, value): (u64, f64)| {
            let (_, other) = others.iter().find(|(of, _)| *of == seed)?;
            let (value, other) = (value.max(figure.least), other.max(figure.least));
            Some(if value == other {
                (1.0, 1.0)
            } else {
                (value, other)
            })
        };
        let own = self.values(point, &figure.measure);
        let pairs: Vec<(f64, f64)> = own.into_iter().filter_map(pair).collect();
        match pairs
            .iter()
            .any(|(value, other)| *value == 0.0 || *other == 0.0)
        {
            true => Vec::new(),
            false => pairs,
        }
    }

    fn table(&self, findings: &mut Findings, table: &Table) {
        let paper = self.paper;
        for title in self.titles(&table.meant) {
            let mut headings: Vec<String> = table
                .rows
                .iter()
                .filter_map(|dim| paper.dims.get(*dim))
                .map(|dim| dim.heading.clone())
                .collect();
            let across: Vec<Option<usize>> = match table.across.and_then(|dim| paper.dims.get(dim))
            {
                Some(dim) => (0..dim.values.len()).map(Some).collect(),
                None => vec![None],
            };
            let columns = || {
                across
                    .iter()
                    .flat_map(|value| table.columns.iter().map(move |column| (*value, column)))
            };
            for (value, column) in columns() {
                let label = value
                    .zip(table.across)
                    .and_then(|(value, dim)| paper.choice(dim, value));
                // If the rows go through an axis, a column has its name.
                let label = label.map(|choice| {
                    let names = table
                        .rows
                        .iter()
                        .filter_map(|dim| Some(&paper.dims.get(*dim)?.name));
                    let text = names.fold(choice.label.clone(), |text, name| {
                        text.replace(&format!("{{{name}}}"), name)
                    });
                    paper.filled(&text, &title, |choice| &choice.label)
                });
                headings.push(match label {
                    Some(label) if table.columns.len() == 1 => label,
                    Some(label) => format!("{label}\n{}", column.heading),
                    None => column.heading.clone(),
                });
            }
            let of_title = fixed(&title, &table.meant.each);
            let each = Meant {
                only: of_title
                    .iter()
                    .map(|(dim, value)| (*dim, vec![*value]))
                    .chain(table.meant.only.clone())
                    .collect(),
                each: table.rows.clone(),
            };
            let row = |point: &Point| -> Option<Vec<String>> {
                let labels = table
                    .rows
                    .iter()
                    .filter_map(|dim| paper.choice(*dim, *point.get(*dim)?));
                let mut row: Vec<String> =
                    labels.map(|choice| paper.label(choice, point)).collect();
                let mut any = false;
                for (value, column) in columns() {
                    let mut at = with(point, &column.fixed);
                    if let (Some(value), Some(dim)) = (value, table.across) {
                        at = with(&at, &[(dim, value)]);
                    }
                    any |= self.runs.contains_key(&at);
                    let value = self.ratio(&at, &column.measure, column.over);
                    row.push(cell(
                        value.filter(|v| v.is_finite()).map(|v| v * column.times),
                        column.digits,
                    ));
                }
                any.then_some(row)
            };
            let rows: Vec<Vec<String>> = paper.expand(&each).iter().filter_map(row).collect();
            let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
            let text = paper.filled(&table.title, &title, |choice| &choice.label);
            if !rows.is_empty() {
                findings.table(text, &headings, rows);
            }
        }
    }

    /// One point for each choice of the dimensions that a title or caption names.
    fn titles(&self, meant: &Meant) -> Vec<Point> {
        self.paper.expand(meant)
    }

    /// The charts of each picture, and its caption.
    fn pictures(&self, chart: &Chart) -> Vec<(String, Vec<chart::Chart>)> {
        let mut pictures = Vec::new();
        for picture in self.titles(&chart.pictures) {
            let fixed = fixed(&picture, &chart.pictures.each);
            let panels = Meant {
                only: fixed
                    .iter()
                    .map(|(dim, value)| (*dim, vec![*value]))
                    .chain(chart.pictures.only.clone())
                    .collect(),
                each: chart.panels.clone(),
            };
            let charts: Vec<chart::Chart> = self
                .paper
                .expand(&panels)
                .iter()
                .map(|panel| self.panel(chart, &panels, panel))
                .collect();
            if charts.iter().any(|chart| !chart.lines.is_empty()) {
                let caption = self
                    .paper
                    .filled(&chart.caption, &picture, |choice| &choice.label);
                pictures.push((caption, charts));
            }
        }
        pictures
    }

    fn panel(&self, chart: &Chart, of: &Meant, panel: &Point) -> chart::Chart {
        let mut only: Vec<(usize, Vec<usize>)> = of.only.clone();
        only.extend(
            fixed(panel, &of.each)
                .iter()
                .map(|(dim, value)| (*dim, vec![*value])),
        );
        let each = |each: &[usize]| Meant {
            only: only.clone(),
            each: each.to_vec(),
        };
        let ran = match chart.x {
            X::Time => self.ran(&each(&[])),
            _ => Vec::new(),
        };
        let drawn = ran.first().and_then(|point| self.first(point));
        let lines: Vec<ChartSeries> = match chart.x {
            X::Time => drawn.map_or(Vec::new(), |kept| courses(kept, chart.times)),
            X::Delay => {
                let points = self.ran(&each(&[chart.lines]));
                let line = |point: &Point| {
                    let (number, label) = self.line(chart, point)?;
                    Some(ChartSeries::new(
                        label,
                        number,
                        distribution(self.first(point)?),
                    ))
                };
                points.iter().filter_map(line).collect()
            }
            X::Dim(x) => {
                let lines = self.paper.expand(&each(&[chart.lines]));
                lines
                    .iter()
                    .filter_map(|point| self.over(chart, x, point, &only))
                    .collect()
            }
        };
        let y = Axis::linear("");
        chart::Chart {
            title: self
                .paper
                .filled(&chart.title, panel, |choice| &choice.label),
            x: match chart.x {
                X::Time => {
                    let unit =
                        drawn.map(|kept| format!("{}, {}", chart.x_label, unit_of_time(kept).0));
                    Axis::linear(unit.unwrap_or_default())
                }
                X::Dim(_) if !chart.log => Axis::linear(&chart.x_label),
                _ => Axis::log(&chart.x_label),
            },
            y: match (chart.range, chart.x) {
                (Some((from, to)), _) => y.with_range(from, to),
                (None, X::Delay) => y.with_range(0.0, 1.0),
                (None, _) => y,
            },
            lines,
            guides: Vec::new(),
        }
    }

    /// A line over a dimension; none where nothing of it was run.
    fn over(
        &self,
        chart: &Chart,
        x: usize,
        point: &Point,
        only: &[(usize, Vec<usize>)],
    ) -> Option<ChartSeries> {
        let measure = chart.measure.as_ref()?;
        let (number, label) = self.line(chart, point)?;
        let allowed = |value: &usize| {
            only.iter()
                .all(|(dim, values)| *dim != x || values.contains(value))
        };
        let dim = self.paper.dims.get(x)?;
        let at = |value: usize| {
            let place = dim.values.get(value)?.x?;
            let shown = self.value(&with(point, &[(x, value)]), measure)?;
            Some((place, shown * chart.times))
        };
        let points: Vec<(f64, f64)> = (0..dim.values.len())
            .filter(allowed)
            .filter_map(at)
            .collect();
        (!points.is_empty()).then(|| ChartSeries::new(label, number, points).dots())
    }

    /// Which line of its panel a point's is, and what it is called.
    fn line(&self, chart: &Chart, point: &Point) -> Option<(usize, String)> {
        let value = *point.get(chart.lines)?;
        let choice: &Choice = self.paper.choice(chart.lines, value)?;
        Some((value, self.paper.label(choice, point)))
    }

    /// What disturbed runs on real packets, and what datapaths complain of.
    fn soundness(&self, findings: &mut Findings, options: &Options) {
        let place = |point: &Point| {
            point
                .last()
                .and_then(|place| self.paper.on.get(*place))
                .copied()
        };
        let real = || {
            self.runs
                .iter()
                .filter(|(point, _)| place(point) == Some(Datapath::Linux))
                .flat_map(|(_, runs)| runs.values())
        };
        if self.paper.on.contains(&Datapath::Linux) && options.on(Datapath::Linux) {
            findings.disturbed(
                real().filter(|kept| !kept.disturbed.is_empty()).count(),
                real().count(),
            );
        }
        for (point, runs) in self.runs {
            let mut complaints: Vec<&String> =
                runs.values().flat_map(|kept| &kept.complaints).collect();
            complaints
                .retain(|complaint| !runs.values().any(|kept| kept.disturbed.contains(complaint)));
            complaints.sort();
            complaints.dedup();
            let labels = point
                .iter()
                .enumerate()
                .filter_map(|(dim, value)| self.paper.choice(dim, *value));
            let labels: Vec<String> = labels
                .map(|choice| self.paper.label(choice, point))
                .collect();
            for complaint in complaints {
                findings.remark(format!("{}: {complaint}.", labels.join(", ")));
            }
        }
    }
}

/// A point with other values of these dimensions.
fn with(point: &Point, values: &[(usize, usize)]) -> Point {
    let mut point = point.clone();
    for (dim, value) in values {
        if let Some(place) = point.get_mut(*dim) {
            *place = *value;
        }
    }
    point
}

/// The values of these dimensions at a point.
fn fixed(point: &Point, dims: &[usize]) -> Vec<(usize, usize)> {
    dims.iter()
        .filter_map(|dim| Some((*dim, *point.get(*dim)?)))
        .collect()
}

/// The share of packets up to a time in the queue.
fn distribution(kept: &Kept) -> Vec<(f64, f64)> {
    let last = kept.delays_us.len().saturating_sub(1).max(1) as f64;
    let delays = kept.delays_us.iter().enumerate().step_by(5);
    delays.map(|(n, us)| (*us, n as f64 / last)).collect()
}

/// The rate of each flow over time, by so much. Flows of several workloads stand in the order of
/// their names, so that one of a name looks alike in every panel.
fn courses(kept: &Kept, times: f64) -> Vec<ChartSeries> {
    let (_, per_ms) = unit_of_time(kept);
    let mut flows: Vec<(String, &Vec<f64>)> = kept
        .rates
        .iter()
        .zip(1..)
        .map(|(rates, n)| (format!("flow {n}"), rates))
        .collect();
    if kept.names.len() == flows.len() {
        flows = kept.names.iter().cloned().zip(&kept.rates).collect();
        flows.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
    let line = |(n, (name, rates)): (usize, (String, &Vec<f64>))| {
        let at = |look: usize| (look as f64 + 0.5) * kept.look_ms * per_ms;
        let points = rates
            .iter()
            .enumerate()
            .map(|(look, mbit)| (at(look), *mbit * times));
        ChartSeries::new(name, n, points)
    };
    flows.into_iter().enumerate().map(line).collect()
}

/// What time is counted in where there are looks so far apart, and a millisecond in it.
fn unit_of_time(kept: &Kept) -> (&'static str, f64) {
    match kept.look_ms >= 100.0 {
        true => ("s", 1e-3),
        false => ("ms", 1.0),
    }
}
