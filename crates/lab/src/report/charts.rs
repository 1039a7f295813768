//! The pictures of a run: which lines are in which, on which axes, with as many points as a picture can show.

use ccplane_report::chart::{Axis, Chart, Key, Line, Live, Look, Width, keys, live};

use super::MAX_FLOWS;
use crate::metrics::{Distribution, mbits, smooth};
use crate::result::{ContenderResult, RunResult, Sample, Setup};

/// Bins that the throughput's line averages over on either side; the CDF takes the bins as they are.
pub(super) const SMOOTH_REACH: usize = 2;

/// Points along a line; beyond that a page of 1,200 pixels shows no more, and a long run would make a page of many MB.
const MAX_POINTS: usize = 3_000;

/// Shares at which a distribution is drawn: a pixel is a fifth of a percent.
const ECDF_POINTS: usize = 1_001;

/// The segment size that guides in segments assume: an Ethernet MTU without IPv4 and TCP headers and time stamps.
const SEGMENT: f64 = 1448.0;

/// Dashes of ccplane's lines and of native ones beside them, by their place among those of the same algorithm.
const VARIANTS: [&str; 3] = ["", "2 3", "9 3 2 3"];
const NATIVE_VARIANTS: [&str; 3] = ["7 4", "4 3", "7 3 2 3"];

/// A series of one contender, as it is drawn.
type Points = Vec<(f64, f64)>;

/// The run's pictures, in rows.
pub(super) struct Charts<'a> {
    result: &'a RunResult,
    looks: Vec<Look>,
    /// Algorithms, in order of their first contender.
    families: Vec<&'a str>,
}

/// What a row of pictures has in common.
struct Row {
    /// The vertical axis, with its unit.
    what: &'static str,
    /// Its end.
    top: f64,
    digits: usize,
    guides: Vec<(f64, String)>,
    /// A picture an algorithm, although lines of several could be told apart.
    by_algorithm: bool,
}

impl<'a> Charts<'a> {
    /// One hue an algorithm. ccplane's lines are solid, native ones beside them dashed and in the hue's other shade, so that they
    /// differ in grey print too.
    pub fn new(result: &'a RunResult) -> Charts<'a> {
        let all = &result.contenders;
        let mut families: Vec<&str> = Vec::new();
        for c in all {
            if !families.contains(&c.algorithm.as_str()) {
                families.push(&c.algorithm);
            }
        }
        let mixed = all.iter().any(|c| c.native) && all.iter().any(|c| !c.native);
        let look = |(place, c): (usize, &ContenderResult)| {
            let before = all.iter().take(place);
            let kin = before.filter(|other| other.algorithm == c.algorithm && other.native == c.native);
            let second = mixed && c.native;
            let variants = if second { NATIVE_VARIANTS } else { VARIANTS };
            Look {
                colour: families.iter().position(|family| *family == c.algorithm).unwrap_or(0),
                second,
                dashes: variants.get(kin.count() % variants.len()).copied().unwrap_or_default(),
            }
        };
        Charts {
            looks: all.iter().enumerate().map(look).collect(),
            result,
            families,
        }
    }

    /// What is what, to press.
    pub fn keys(&self) -> String {
        let key = |(c, look): (&'a ContenderResult, &Look)| Key {
            label: &c.label,
            look: *look,
        };
        let all: Vec<Key<'_>> = self.result.contenders.iter().zip(&self.looks).map(key).collect();
        keys(&all)
    }

    /// Each flow's window.
    pub fn windows(&self) -> String {
        let setup = &self.result.setup;
        let grid = (setup.duration_s * 1e3 / setup.sample_ms.max(1.0)).ceil().max(1.0) as usize;
        let step = grid.div_ceil(MAX_POINTS).max(1) as f64 * setup.sample_ms.max(1.0) / 1e3;
        let points = (setup.duration_s / step).ceil() as usize + 1;
        let series = self.each(|c| flows_of(c).map(|flow| on_grid(flow, step, points)).collect());
        let segments = |bytes: u64| bytes as f64 / (SEGMENT + 52.0);
        let full = setup.queue_bytes.map(|queue| segments(setup.bdp_bytes + queue));
        let bdp = segments(setup.bdp_bytes);
        let mut guides = vec![(bdp, "BDP".to_owned())];
        guides.extend(full.map(|full| (full, "BDP + queue".to_owned())));
        let row = Row {
            what: "cwnd, segments",
            top: head(most(&series).max(bdp)),
            digits: 0,
            guides,
            by_algorithm: setup.flows > 1,
        };
        self.over_time(&row, &series)
    }

    /// Each flow's goodput.
    pub fn goodputs(&self) -> String {
        let setup = &self.result.setup;
        let width = flow_bin_s(setup);
        let bins = (setup.duration_s / width) as usize;
        let series = self.each(|c| flows_of(c).map(|flow| goodputs(flow, width, bins)).collect());
        let share = setup.rate_mbit / setup.flows.max(1) as f64;
        let row = Row {
            what: "goodput, Mbit/s",
            top: head(most(&series)),
            digits: 2,
            guides: vec![(share, "fair share".to_owned())],
            by_algorithm: true,
        };
        self.over_time(&row, &series)
    }

    /// What the link delivered.
    pub fn throughputs(&self) -> String {
        let series = self.each(|c| {
            let smoothed = smooth(&c.series.throughput_mbit, SMOOTH_REACH);
            vec![self.in_bins(smoothed.into_iter().map(Some))]
        });
        let rate = self.result.setup.rate_mbit;
        let row = Row {
            what: "throughput, Mbit/s",
            top: head(most(&series).max(rate)),
            digits: 2,
            guides: vec![(rate, "link".to_owned())],
            by_algorithm: false,
        };
        self.over_time(&row, &series)
    }

    /// How long packets waited.
    pub fn delays(&self) -> String {
        let setup = &self.result.setup;
        let series = self.each(|c| vec![self.in_bins(c.series.delay_ms.iter().copied())]);
        let bytes_per_ms = setup.rate_mbit * 125.0;
        let queue = setup.queue_bytes.filter(|_| bytes_per_ms > 0.0);
        let full = queue.map(|queue| queue as f64 / bytes_per_ms);
        let most = most(&series);
        let row = Row {
            what: "queueing delay, ms",
            // A queue that nobody fills would flatten what is there.
            top: head(full.filter(|full| *full < 2.0 * most).unwrap_or(0.0).max(most)),
            digits: 2,
            guides: full.map(|full| (full, "full queue".to_owned())).into_iter().collect(),
            by_algorithm: false,
        };
        self.over_time(&row, &series)
    }

    /// Throughput and delay of the bins, as distributions.
    pub fn distributions(&self) -> String {
        row([
            self.distribution(
                "bins by throughput, %",
                "throughput, Mbit/s",
                "Mbit/s",
                1,
                1.0,
                throughput,
            ),
            self.distribution("bins by queueing delay, %", "queueing delay, ms", "ms", 2, 1.0, delay),
        ])
    }

    /// Completion times and slowdowns, as distributions. The longest flows would press all others against the left edge.
    pub fn completions(&self) -> String {
        let took = |c: &ContenderResult| Distribution::new(c.series.completed.iter().map(|f| f.took_ns as f64 / 1e6));
        let slowdown = |c: &ContenderResult| Distribution::new(c.series.completed.iter().map(|f| f.slowdown()));
        row([
            self.distribution(
                "flows by completion time, %",
                "completion time, ms",
                "ms",
                3,
                0.99,
                took,
            ),
            self.distribution("flows by slowdown, %", "slowdown, times alone", "×", 2, 0.99, slowdown),
        ])
    }

    /// Delays of single packets from time stamps, beside the link's log.
    pub fn stamps(&self) -> String {
        let all = self.result.contenders.iter().zip(&self.looks).enumerate();
        let pictures = all
            .filter(|(_, (c, _))| !c.series.stamped.is_empty())
            .map(|(of, (c, look))| {
                let packets = &c.series.stamped;
                let step = packets.len().div_ceil(MAX_POINTS).max(1);
                let points = |ns: fn(&crate::result::StampedPacket) -> u64| -> Points {
                    let shown = packets.iter().step_by(step);
                    shown.map(|p| (p.at_ns as f64 / 1e9, ns(p) as f64 / 1e6)).collect()
                };
                let (link, stamps) = (points(|p| p.link_ns), points(|p| p.measured_ns));
                let top = head(link.iter().chain(&stamps).map(|(_, ms)| *ms).fold(0.0, f64::max));
                let line = |label: &str, look: Look, points: Points| Line {
                    of: Some(of),
                    thin: true,
                    ..Line::new(label, 0, points).look(look)
                };
                let other = Look {
                    second: !look.second,
                    ..*look
                };
                let lines = vec![line("the link's log", other, link), line("time stamps", *look, stamps)];
                let chart = self.timed(format!("{}: queueing delay, ms", c.label), top, lines, Vec::new());
                live(&chart, &along_time(Width::Whole, 3))
            });
        row(pictures)
    }

    /// Of each contender what `of` gives.
    fn each(&self, of: impl Fn(&ContenderResult) -> Vec<Points>) -> Vec<Vec<Points>> {
        self.result.contenders.iter().map(of).collect()
    }

    /// Values of bins over their time.
    fn in_bins(&self, values: impl ExactSizeIterator<Item = Option<f64>>) -> Points {
        let step = values.len().div_ceil(MAX_POINTS).max(1);
        let middle = |bin: usize| (bin as f64 + 0.5) * self.result.setup.bin_ms / 1e3;
        let thinned = values.enumerate().step_by(step);
        // A line goes on over bins in which nothing left.
        thinned.filter_map(|(bin, value)| Some((middle(bin), value?))).collect()
    }

    /// Pictures over time, side by side by algorithm where an algorithm has more than one contender; else all in one. `series`
    /// has the lines of each contender.
    fn over_time(&self, about: &Row, series: &[Vec<Points>]) -> String {
        let apart = about.by_algorithm || self.result.contenders.len() > self.families.len();
        let facets: Vec<(String, Vec<&str>)> = match apart {
            true => self
                .families
                .iter()
                .map(|name| ((*name).to_owned(), vec![*name]))
                .collect(),
            false => vec![(self.families.join(", "), self.families.clone())],
        };
        let width = if facets.len() > 1 { Width::Half } else { Width::Whole };
        let pictures = facets.into_iter().map(|(title, members)| {
            let mut lines = Vec::new();
            let all = self.result.contenders.iter().zip(&self.looks).zip(series).enumerate();
            for (of, ((c, look), series)) in all.filter(|(_, ((c, _), _))| members.contains(&c.algorithm.as_str())) {
                for (flow, points) in series.iter().enumerate() {
                    let several = series.len() > 1;
                    lines.push(Line {
                        name: if several {
                            format!("{} {}", c.label, flow + 1)
                        } else {
                            c.label.clone()
                        },
                        of: Some(of),
                        thin: several,
                        ..Line::new("", 0, points.iter().copied()).look(*look)
                    });
                }
            }
            let chart = self.timed(
                format!("{title}: {}", about.what),
                about.top,
                lines,
                about.guides.clone(),
            );
            live(&chart, &along_time(width, about.digits))
        });
        row(pictures)
    }

    fn timed(&self, title: String, top: f64, lines: Vec<Line>, guides: Vec<(f64, String)>) -> Chart {
        Chart {
            title,
            x: Axis::linear("time, s").from_to(0.0, self.result.setup.duration_s),
            y: Axis::linear("").from_to(0.0, top),
            lines,
            guides,
        }
    }

    /// All contenders' distribution of something, up to its value at the share `up_to` of whoever has the largest there.
    fn distribution(
        &self,
        title: &str,
        axis: &str,
        unit: &'static str,
        digits: usize,
        up_to: f64,
        of: impl Fn(&ContenderResult) -> Distribution,
    ) -> String {
        let all: Vec<Points> = self.result.contenders.iter().map(|c| ecdf(&of(c))).collect();
        let at = |points: &Points, place: usize| points.get(place).map_or(0.0, |(value, _)| *value);
        let tops = all.iter().map(|points| {
            at(
                points,
                ((points.len() as f64 * up_to).ceil() as usize).saturating_sub(1),
            )
        });
        let top = match tops.fold(0.0, f64::max) * 1.02 {
            top if top > 0.0 => top,
            _ => 1.0,
        };
        let low = all
            .iter()
            .map(|points| at(points, points.len() / 50))
            .fold(f64::INFINITY, f64::min);
        // What is far from zero is not drawn from there.
        let from = if low.is_finite() && low > top / 2.0 {
            low * 0.98
        } else {
            0.0
        };
        let lines = all
            .into_iter()
            .zip(&self.looks)
            .zip(&self.result.contenders)
            .enumerate();
        let lines = lines.map(|(of, ((points, look), c))| {
            let inside = points.iter().copied().filter(|(value, _)| (from..=top).contains(value));
            let before = points.iter().rev().find(|(value, _)| *value < from);
            let share = before.map_or(0.0, |(_, share)| *share);
            // It begins with the share of what lies before the edge, and rises at its first value. It ends at the other edge, with
            // the share of its last value there.
            let rise = inside.clone().next().map(|(value, _)| (value, share));
            let last = inside.clone().next_back().map(|(_, share)| (top, share));
            let begin = rise.map(|_| (from, share));
            let inside: Points = begin.into_iter().chain(rise).chain(inside).chain(last).collect();
            Line {
                name: c.label.clone(),
                of: Some(of),
                ..Line::new("", 0, inside).look(*look)
            }
        });
        let chart = Chart {
            title: title.to_owned(),
            x: Axis::linear(axis).from_to(from, top),
            y: Axis::linear("").from_to(0.0, 100.0),
            lines: lines.collect(),
            guides: Vec::new(),
        };
        let reading = Live {
            width: Width::Half,
            digits: (digits, 1),
            units: (unit, "%"),
            along: "",
        };
        live(&chart, &reading)
    }
}

/// Pictures side by side, two at most.
fn row(pictures: impl IntoIterator<Item = String>) -> String {
    let pictures: Vec<String> = pictures.into_iter().collect();
    let columns = pictures.len().clamp(1, 2);
    format!(
        "<div class=\"row\" style=\"--columns: {columns}\">{}</div>",
        pictures.concat()
    )
}

fn along_time(width: Width, digits: usize) -> Live {
    Live {
        width,
        digits: (2, digits),
        units: ("s", ""),
        along: "time",
    }
}

/// The largest value of all lines.
fn most(series: &[Vec<Points>]) -> f64 {
    let values = series.iter().flatten().flatten().map(|(_, value)| *value);
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// The end of an axis with some room above this.
fn head(most: f64) -> f64 {
    if most > 0.0 { most * 1.08 } else { 1.0 }
}

fn flows_of(c: &ContenderResult) -> impl Iterator<Item = &[Sample]> {
    c.series.flows.iter().take(MAX_FLOWS).map(Vec::as_slice)
}

/// The empirical distribution function: values at up to [`ECDF_POINTS`] evenly spaced shares, in percent, the smallest and the
/// largest value included.
fn ecdf(distribution: &Distribution) -> Points {
    let n = distribution.len().min(ECDF_POINTS);
    let share = |i: usize| if n > 1 { i as f64 / (n - 1) as f64 } else { 1.0 };
    (0..n)
        .filter_map(|i| Some((distribution.quantile(share(i))?, (i + 1) as f64 * 100.0 / n as f64)))
        .collect()
}

/// Width of bins of the flows' goodput, s: wide enough that each flow has some packets in each.
pub(super) fn flow_bin_s(setup: &Setup) -> f64 {
    (setup.bin_ms.max(100.0) / 1e3).max(setup.duration_s / MAX_POINTS as f64)
}

/// A flow's goodput, Mbit/s, in `bins` of `width` seconds.
fn goodputs(flow: &[Sample], width: f64, bins: usize) -> Points {
    let mut at = 0;
    let mut last = (0, 0);
    (1..=bins)
        .map(|bin| {
            let until = (bin as f64 * width * 1e9) as u64;
            while flow.get(at + 1).is_some_and(|s| s.at_ns <= until) {
                at += 1;
            }
            let now = flow.get(at).map_or(last, |s| (s.at_ns, s.received));
            let rate = mbits(now.1.saturating_sub(last.1), now.0.saturating_sub(last.0));
            last = now;
            ((bin as f64 - 0.5) * width, rate)
        })
        .collect()
}

/// The windows on a grid of `step` seconds: the latest sample at or before each point, nothing before the first.
fn on_grid(flow: &[Sample], step: f64, points: usize) -> Points {
    let mut at = 0;
    (0..points)
        .filter_map(|i| {
            let until = ((i as f64 + 0.5) * step * 1e9) as u64;
            while flow.get(at).is_some_and(|s| s.at_ns <= until) {
                at += 1;
            }
            let sample = at.checked_sub(1).and_then(|last| flow.get(last))?;
            Some((i as f64 * step, f64::from(sample.tcp.cwnd)))
        })
        .collect()
}

pub(super) fn throughput(c: &ContenderResult) -> Distribution {
    Distribution::new(c.series.throughputs())
}

pub(super) fn delay(c: &ContenderResult) -> Distribution {
    Distribution::new(c.series.delays())
}
