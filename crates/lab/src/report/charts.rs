//! Charts of a run: their lines, axes and resolution.

use ccplane_report::chart::{
    Axis, CONTENDER_HUES, Chart, ChartSeries, GREY, HoverData, Key, SeriesStyle, Width, figure,
    file_name, keys, live,
};

use super::DRAWN_FLOWS_MAX;
use super::plane::{self, Spot};
use super::points::{
    LINE_POINTS_MAX, Points, delay, ecdf, flow_bin_s, on_grid, rates, rises, throughput,
};
use super::styles::{SeriesStyles, shade};
use crate::metrics::{Distribution, smooth};
use crate::result::{
    Completion, ContenderResult, RunResult, Sample, WorkloadMetrics, WorkloadSeries,
};

/// Number of bins on either side over which the throughput line is averaged; the CDF uses single
/// bins.
pub(super) const SMOOTHING_BINS_PER_SIDE: usize = 2;

/// Segment size of guides in segments, bytes: an Ethernet MTU minus IPv4 and TCP headers with time
/// stamps.
const SEGMENT_BYTES: f64 = 1448.0;

/// Line of a contender, before it is placed in a chart.
struct Strand {
    name: String,
    /// Key that hides it.
    key: usize,
    style: SeriesStyle,
    /// True for one of many lines.
    thin: bool,
    shade: Option<u8>,
    points: Points,
    /// Events, drawn as strokes below the line.
    events: Vec<EventMarks>,
}

/// Events of one kind: name, colour of the strokes, and times in s.
type EventMarks = (&'static str, usize, Vec<f64>);

/// Palette indices of event colours: red-brown for losses, green for marks, so that no line above
/// hides a stroke.
const LOSS_COLOUR: usize = 3;
const MARK_COLOUR: usize = 2;
/// Height of a stroke as a share of the vertical axis. `STROKES_MAX`: maximum number of strokes per
/// chart; more cannot be distinguished.
const STROKE_HEIGHT_SHARE: f64 = 0.05;
const STROKES_MAX: f64 = 1_500.0;
/// Colour of the link's capacity, behind everything else.
const LINK_CAPACITY_COLOUR: usize = GREY;

/// Charts of a run, in rows.
pub(super) struct Charts<'a> {
    result: &'a RunResult,
    styles: SeriesStyles,
    /// Algorithms, in the order of their first contender.
    families: Vec<&'a str>,
}

/// Settings shared by a row of charts.
struct Row {
    /// Title of the vertical axis, with its unit.
    axis_label: &'static str,
    /// End of the vertical axis.
    axis_max: f64,
    digits: usize,
    guides: Vec<(f64, String)>,
    /// Background behind the lines, filled down to zero.
    background: Option<(&'static str, Points)>,
    /// True for a chart per algorithm, even if one chart could show the lines of several.
    by_algorithm: bool,
    /// True for a chart per contender, if there are several workloads.
    by_contender: bool,
}

impl<'a> Charts<'a> {
    pub fn new(result: &'a RunResult) -> Charts<'a> {
        let mut families: Vec<&str> = Vec::new();
        for c in &result.contenders {
            if !families.contains(&c.algorithm.as_str()) {
                families.push(&c.algorithm);
            }
        }
        Charts {
            styles: SeriesStyles::new(result),
            result,
            families,
        }
    }

    /// Returns the legend, whose keys toggle lines.
    pub fn keys(&self) -> String {
        let all: Vec<Key<'_>> = self.styles.keys().collect();
        keys(&all)
    }

    /// Returns the line of a contender.
    fn contender_strand(&self, at: usize, c: &ContenderResult, points: Points) -> Strand {
        Strand {
            name: c.label.clone(),
            key: self.styles.key(at),
            style: self.styles.contender(at),
            thin: false,
            shade: None,
            points,
            events: Vec::new(),
        }
    }

    /// Returns the lines of the first flows of every contender, each with the points of `points`
    /// and the events of `events`.
    fn flows(
        &self,
        points: impl Fn(&[Sample]) -> Points,
        events: impl Fn(&[Sample]) -> Vec<EventMarks>,
    ) -> Vec<Vec<Strand>> {
        let of = |at: usize, c: &ContenderResult| -> Vec<Strand> {
            if !c.workloads.is_empty() {
                return self.workload_flows(at, c, &points, &events);
            }
            let flows = c.series.flows.iter().take(DRAWN_FLOWS_MAX);
            let shown = flows.len();
            let several = shown > 1;
            let strand = |(flow, samples): (usize, &Vec<Sample>)| Strand {
                name: if several {
                    format!("{} {}", c.label, flow + 1)
                } else {
                    c.label.clone()
                },
                thin: several,
                shade: shade(flow, shown),
                events: events(samples),
                ..self.contender_strand(at, c, points(samples))
            };
            flows.enumerate().map(strand).collect()
        };
        self.per_contender(of)
    }

    /// Returns the lines of flows in shades of their workloads' colours.
    fn workload_flows(
        &self,
        at: usize,
        c: &ContenderResult,
        points: &impl Fn(&[Sample]) -> Points,
        events: &impl Fn(&[Sample]) -> Vec<EventMarks>,
    ) -> Vec<Strand> {
        let mut strands = Vec::new();
        for (w, (metrics, series)) in c.workloads.iter().zip(&c.series.workloads).enumerate() {
            let shown = series.flows.len().min(DRAWN_FLOWS_MAX);
            for (n, place) in series.flows.iter().take(shown).enumerate() {
                let title = metrics.title();
                strands.push(Strand {
                    name: if shown > 1 {
                        format!("{title} {}", n + 1)
                    } else {
                        title
                    },
                    key: self.styles.key(at) + 1 + w,
                    style: self.styles.workload(at, w),
                    thin: shown > 1,
                    shade: shade(n, shown),
                    points: points(c.series.flow(*place)),
                    events: events(c.series.flow(*place)),
                });
            }
        }
        strands
    }

    /// Congestion window of each flow.
    pub fn windows(&self) -> String {
        let setup = &self.result.setup;
        let (step, points) = self.grid();
        let series = self.flows(
            |flow| on_grid(flow, step, points, |sample| f64::from(sample.tcp.cwnd)),
            |_| Vec::new(),
        );
        let segments = |bytes: u64| bytes as f64 / (SEGMENT_BYTES + 52.0);
        let full = setup
            .queue_bytes
            .map(|queue| segments(setup.bdp_bytes + queue));
        // The BDP of a link whose rate varies is not one number.
        let bdp = (!self.result.has_varying_rate()).then(|| segments(setup.bdp_bytes));
        let full = full.filter(|_| bdp.is_some());
        let guides = [
            bdp.map(|bdp| (bdp, "BDP".to_owned())),
            full.map(|full| (full, "BDP + queue".to_owned())),
        ];
        let row = Row {
            axis_label: "cwnd, segments",
            axis_max: head(most(&series).max(bdp.unwrap_or(0.0))),
            digits: 0,
            guides: guides.into_iter().flatten().collect(),
            background: None,
            by_algorithm: setup.flows > 1,
            by_contender: self.result.several_workloads(),
        };
        self.over_time(&row, &series)
    }

    /// Returns the time step in s and the number of points for values read from samples.
    fn grid(&self) -> (f64, usize) {
        let setup = &self.result.setup;
        let grid = (setup.duration_s * 1e3 / setup.sample_ms.max(1.0))
            .ceil()
            .max(1.0) as usize;
        let step = grid.div_ceil(LINE_POINTS_MAX).max(1) as f64 * setup.sample_ms.max(1.0) / 1e3;
        (step, (setup.duration_s / step).ceil() as usize + 1)
    }

    /// Smoothed RTT of each flow, with its losses and marks.
    pub fn round_trips(&self) -> String {
        let (step, points) = self.grid();
        let series = self.flows(
            |flow| {
                let ms = on_grid(flow, step, points, |sample| {
                    f64::from(sample.tcp.srtt_us) / 1e3
                });
                // A smoothed RTT of zero is not known yet.
                ms.into_iter().filter(|(_, ms)| *ms > 0.0).collect()
            },
            |flow| {
                let losses = rises(flow, |sample| sample.tcp.retrans);
                let marks = rises(flow, |sample| sample.tcp.delivered_ce);
                vec![
                    ("lost", LOSS_COLOUR, losses),
                    ("marked", MARK_COLOUR, marks),
                ]
            },
        );
        let setup = &self.result.setup;
        let row = Row {
            axis_label: "round-trip time, ms",
            axis_max: head(most(&series).max(setup.rtt_ms)),
            digits: 2,
            guides: vec![(setup.rtt_ms, "without a queue".to_owned())],
            background: None,
            by_algorithm: setup.flows > 1,
            by_contender: self.result.several_workloads(),
        };
        self.over_time(&row, &series)
    }

    /// Goodput of each flow.
    pub fn goodputs(&self) -> String {
        let setup = &self.result.setup;
        let width = flow_bin_s(setup);
        let bins = (setup.duration_s / width) as usize;
        let rate = |flow: &[Sample]| rates(flow.iter().map(|s| (s.at_ns, s.received)), width, bins);
        let series = self.flows(rate, |_| Vec::new());
        let share = setup.rate_mbit / setup.flows.max(1) as f64;
        let row = Row {
            axis_label: "goodput, Mbit/s",
            axis_max: head(most(&series)),
            digits: 2,
            guides: match self.result.has_varying_rate() {
                true => Vec::new(),
                false => vec![(share, "fair share".to_owned())],
            },
            background: None,
            by_algorithm: true,
            by_contender: false,
        };
        self.over_time(&row, &series)
    }

    /// Goodput of each workload, and of each of its flows if there are several.
    pub fn workloads(&self) -> String {
        let setup = &self.result.setup;
        let width = flow_bin_s(setup);
        let bins = (setup.duration_s / width) as usize;
        let rate = |flow: &[Sample]| rates(flow.iter().map(|s| (s.at_ns, s.received)), width, bins);
        let series = self.per_contender(|at, c| {
            // A single flow has the line of its workload.
            let flows = self
                .workload_flows(at, c, &rate, &|_| Vec::new())
                .into_iter()
                .filter(|strand| strand.thin);
            let all = c.workloads.iter().zip(&c.series.workloads).enumerate();
            let workloads = all.map(|(w, (metrics, series))| Strand {
                name: metrics.title(),
                key: self.styles.key(at) + 1 + w,
                style: self.styles.workload(at, w),
                thin: false,
                shade: None,
                points: rates(series.course.iter().copied(), width, bins),
                events: Vec::new(),
            });
            workloads.chain(flows).collect()
        });
        let row = Row {
            axis_label: "goodput, Mbit/s",
            axis_max: head(most(&series)),
            digits: 2,
            guides: Vec::new(),
            background: None,
            by_algorithm: true,
            by_contender: true,
        };
        self.over_time(&row, &series)
    }

    /// Goodput and delay of all seeds or repeats, as box plots.
    pub fn boxes(&self) -> String {
        let all = self.result.contenders.iter().zip(self.spots());
        let by_mean_delay: Vec<Spot> = all
            .map(|(c, spot)| Spot {
                position: (c.metrics.delay_mean_ms, c.metrics.goodput_mbit),
                runs: c
                    .series
                    .each
                    .iter()
                    .map(|run| (run.metrics.delay_mean_ms, run.metrics.goodput_mbit))
                    .collect(),
                ..spot
            })
            .collect();
        let picture = |title: &str, of: fn(&(f64, f64)) -> f64| {
            let panels = plane::variation(&by_mean_delay, title, of);
            let described = plane::description(&by_mean_delay).replace(plane::BOTH_VALUES, title);
            let file = panels.first().map_or(String::new(), file_name);
            figure(&panels, &described, &format!("variation-{file}"))
        };
        row([
            picture("goodput, Mbit/s", |run| run.1),
            picture("mean queueing delay, ms", |run| run.0),
        ])
    }

    /// Goodput over delay of every contender, with all its seeds or repeats.
    pub fn spots(&self) -> Vec<Spot> {
        let all = self.result.contenders.iter().enumerate();
        let spot = |(at, c): (usize, &ContenderResult)| Spot {
            label: c.label.clone(),
            colour: self.styles.contender(at).colour,
            secondary: self.styles.contender(at).secondary,
            position: (c.metrics.delay_p95_ms, c.metrics.goodput_mbit),
            runs: c
                .series
                .each
                .iter()
                .map(|run| (run.metrics.delay_p95_ms, run.metrics.goodput_mbit))
                .collect(),
        };
        all.map(spot).collect()
    }

    /// Throughput of the link.
    pub fn throughputs(&self) -> String {
        let series = self.per_contender(|at, c| {
            let smoothed = smooth(&c.series.throughput_mbit, SMOOTHING_BINS_PER_SIDE);
            vec![self.contender_strand(at, c, self.bin_points(smoothed.into_iter().map(Some)))]
        });
        let rate = self.result.setup.rate_mbit;
        let course = self
            .result
            .contenders
            .first()
            .map_or(&[][..], |c| &c.series.capacity_mbit);
        let behind = (!course.is_empty()).then(|| {
            let smoothed = smooth(course, SMOOTHING_BINS_PER_SIDE);
            ("link", self.bin_points(smoothed.into_iter().map(Some)))
        });
        let most_of_link = behind
            .iter()
            .flat_map(|(_, points)| points)
            .map(|(_, mbit)| *mbit)
            .fold(rate, f64::max);
        let row = Row {
            axis_label: "throughput, Mbit/s",
            axis_max: head(most(&series).max(most_of_link)),
            digits: 2,
            guides: match behind {
                Some(_) => Vec::new(),
                None if self.result.has_varying_rate() => {
                    vec![(rate, "mean of the link".to_owned())]
                }
                None => vec![(rate, "link".to_owned())],
            },
            background: behind,
            by_algorithm: false,
            by_contender: false,
        };
        self.over_time(&row, &series)
    }

    /// Queueing delay of packets.
    pub fn delays(&self) -> String {
        let setup = &self.result.setup;
        let series = self.per_contender(|at, c| {
            vec![self.contender_strand(at, c, self.bin_points(c.series.delay_ms.iter().copied()))]
        });
        let bytes_per_ms = setup.rate_mbit * 125.0;
        // How long a full queue takes to drain depends on the rate, which may vary.
        let constant = bytes_per_ms > 0.0 && !self.result.has_varying_rate();
        let queue = setup.queue_bytes.filter(|_| constant);
        let full = queue.map(|queue| queue as f64 / bytes_per_ms);
        let most = most(&series);
        let row = Row {
            axis_label: "queueing delay, ms",
            // The axis includes the full queue only if the delay comes near it.
            axis_max: head(
                full.filter(|full| *full < 2.0 * most)
                    .unwrap_or(0.0)
                    .max(most),
            ),
            digits: 2,
            guides: full
                .map(|full| (full, "full queue".to_owned()))
                .into_iter()
                .collect(),
            background: None,
            by_algorithm: false,
            by_contender: false,
        };
        self.over_time(&row, &series)
    }

    /// Distributions of the bins' throughput and delay.
    pub fn distributions(&self) -> String {
        self.distribution_rows([
            (
                DistributionAxis {
                    title: "share of bins by throughput, %",
                    label: "throughput, Mbit/s",
                    unit: "Mbit/s",
                    digits: 1,
                    shown_share: 1.0,
                },
                self.ecdfs(throughput),
            ),
            (
                DistributionAxis {
                    title: "share of bins by queueing delay, %",
                    label: "queueing delay, ms",
                    unit: "ms",
                    digits: 2,
                    shown_share: 1.0,
                },
                self.ecdfs(delay),
            ),
        ])
    }

    /// Distributions of completion times and slowdowns. The axis cuts off the longest flows, which
    /// would compress the rest.
    pub fn completions(&self) -> String {
        let took = |flow: &Completion| flow.took_ns as f64 / 1e6;
        self.distribution_rows([
            (
                DistributionAxis {
                    title: "share of flows by completion time, %",
                    label: "completion time, ms",
                    unit: "ms",
                    digits: 3,
                    shown_share: 0.99,
                },
                self.completed(took),
            ),
            (
                DistributionAxis {
                    title: "share of flows by slowdown, %",
                    label: "slowdown relative to alone",
                    unit: "×",
                    digits: 2,
                    shown_share: 0.99,
                },
                self.completed(Completion::slowdown),
            ),
        ])
    }

    /// Returns the distributions of `of` for all contenders.
    fn ecdfs(&self, of: impl Fn(&ContenderResult) -> Distribution) -> Vec<Vec<Strand>> {
        self.per_contender(|at, c| vec![self.contender_strand(at, c, ecdf(&of(c)))])
    }

    /// Returns the distributions over completed flows; with several workloads, per workload.
    fn completed(&self, of: impl Fn(&Completion) -> f64) -> Vec<Vec<Strand>> {
        let points = |all: &[Completion]| ecdf(&Distribution::new(all.iter().map(&of)));
        self.per_contender(|at, c| {
            if c.workloads.is_empty() {
                return vec![self.contender_strand(at, c, points(&c.series.completed))];
            }
            let all = c.workloads.iter().zip(&c.series.workloads).enumerate();
            let ended = all.filter(|(_, (metrics, _))| metrics.completions.is_some());
            let strand =
                |(w, (metrics, series)): (usize, (&WorkloadMetrics, &WorkloadSeries))| Strand {
                    name: format!("{}, {}", c.label, metrics.title()),
                    key: self.styles.key(at) + 1 + w,
                    style: self.styles.workload(at, w),
                    thin: false,
                    shade: None,
                    points: points(&series.completed),
                    events: Vec::new(),
                };
            ended.map(strand).collect()
        })
    }

    /// Returns charts of two distributions side by side. Contenders that do not fit one chart have
    /// rows of their own, on the same axes.
    fn distribution_rows(&self, both: [(DistributionAxis, Vec<Vec<Strand>>); 2]) -> String {
        let all: Vec<usize> = (0..self.result.contenders.len()).collect();
        let mut facets = match self.facets(false).as_slice() {
            [_] => vec![(String::new(), all)],
            // One chart would have two lines of the same style.
            _ => self.facets(true),
        };
        // No empty charts, of contenders without completed flows.
        facets.retain(|(_, members)| {
            let mut series = both.iter().map(|(_, series)| series);
            series.any(|series| {
                let mut strands = members.iter().filter_map(|at| series.get(*at)).flatten();
                strands.any(|strand| !strand.points.is_empty())
            })
        });
        let pictures = facets.iter().flat_map(|(title, members)| {
            both.iter()
                .map(|(axis, series)| axis.chart(title, members, series))
        });
        row(pictures)
    }

    /// Delays of single packets from time stamps, and from the link's log.
    pub fn stamps(&self) -> String {
        let all = self.result.contenders.iter().enumerate();
        let pictures = all
            .filter(|(_, c)| !c.series.stamped.is_empty())
            .map(|(at, c)| {
                let (key, look) = (self.styles.key(at), self.styles.contender(at));
                let packets = &c.series.stamped;
                let step = packets.len().div_ceil(LINE_POINTS_MAX).max(1);
                let points = |ns: fn(&crate::result::StampedPacket) -> u64| -> Points {
                    let shown = packets.iter().step_by(step);
                    shown
                        .map(|p| (p.at_ns as f64 / 1e9, ns(p) as f64 / 1e6))
                        .collect()
                };
                let (link, stamps) = (points(|p| p.link_ns), points(|p| p.measured_ns));
                let top = head(
                    link.iter()
                        .chain(&stamps)
                        .map(|(_, ms)| *ms)
                        .fold(0.0, f64::max),
                );
                let line = |label: &str, look: SeriesStyle, points: Points| ChartSeries {
                    key: Some(key),
                    thin: true,
                    ..ChartSeries::new(label, 0, points).with_style(look)
                };
                let other = SeriesStyle {
                    secondary: !look.secondary,
                    ..look
                };
                let lines = vec![
                    line("the link's log", other, link),
                    line("time stamps", look, stamps),
                ];
                let chart = self.timed(
                    format!("{}: queueing delay, ms", c.label),
                    top,
                    lines,
                    Vec::new(),
                );
                live(&chart, &along_time(Width::Full, 3, "ms"))
            });
        row(pictures)
    }

    /// Returns the lines that `of` creates for each contender.
    fn per_contender(
        &self,
        of: impl Fn(usize, &ContenderResult) -> Vec<Strand>,
    ) -> Vec<Vec<Strand>> {
        let all = self.result.contenders.iter().enumerate();
        all.map(|(at, c)| of(at, c)).collect()
    }

    /// Returns the points of values per bin.
    fn bin_points(&self, values: impl ExactSizeIterator<Item = Option<f64>>) -> Points {
        let step = values.len().div_ceil(LINE_POINTS_MAX).max(1);
        let middle = |bin: usize| (bin as f64 + 0.5) * self.result.setup.bin_ms / 1e3;
        let thinned = values.enumerate().step_by(step);
        // The line connects across bins without packets.
        thinned
            .filter_map(|(bin, value)| Some((middle(bin), value?)))
            .collect()
    }

    /// Returns charts over time. There is one for all contenders, or one per contender, or one per
    /// algorithm if an algorithm has several contenders. `series` has the lines of each contender.
    fn over_time(&self, about: &Row, series: &[Vec<Strand>]) -> String {
        let contenders = &self.result.contenders;
        let facets = if about.by_contender {
            let all = contenders.iter().enumerate();
            all.map(|(at, c)| (c.label.clone(), vec![at])).collect()
        } else {
            self.facets(about.by_algorithm || contenders.len() > self.families.len())
        };
        let width = if facets.len() > 1 {
            Width::Half
        } else {
            Width::Full
        };
        let pictures = facets.into_iter().map(|(title, members)| {
            let strands = || members.iter().filter_map(|at| series.get(*at)).flatten();
            let behind = about.background.iter();
            let behind = behind.map(|(name, points)| {
                ChartSeries::named(*name, LINK_CAPACITY_COLOUR, points.iter().copied()).area()
            });
            let apart = self.result.setup.duration_s / STROKES_MAX;
            let events = strands().flat_map(|strand| {
                let of = |(what, colour, at): &EventMarks| ChartSeries {
                    key: Some(strand.key),
                    thin: true,
                    ..ChartSeries::strokes(
                        format!("{} {what}", strand.name),
                        *colour,
                        at,
                        apart,
                        about.axis_max * STROKE_HEIGHT_SHARE,
                    )
                };
                strand
                    .events
                    .iter()
                    .filter(|(.., at)| !at.is_empty())
                    .map(of)
            });
            let lines = strands().map(|strand| ChartSeries {
                name: strand.name.clone(),
                key: Some(strand.key),
                thin: strand.thin,
                shade: strand.shade,
                ..ChartSeries::new("", 0, strand.points.iter().copied()).with_style(strand.style)
            });
            let chart = self.timed(
                format!("{title}: {}", about.axis_label),
                about.axis_max,
                behind.chain(lines).chain(events).collect(),
                about.guides.clone(),
            );
            let unit = about.axis_label.rsplit(", ").next().unwrap_or_default();
            live(&chart, &along_time(width, about.digits, unit))
        });
        row(pictures)
    }

    /// Returns the title and the contenders of each chart of a row: one chart for all contenders,
    /// or one per algorithm if there are more contenders than colours. No chart has two contenders
    /// of the same style.
    fn facets(&self, by_algorithm: bool) -> Vec<(String, Vec<usize>)> {
        let contenders = &self.result.contenders;
        let of = |name: &str| -> Vec<usize> {
            let all = contenders.iter().enumerate();
            let members = all.filter(|(_, c)| c.algorithm == name);
            members.map(|(at, _)| at).collect()
        };
        let facets: Vec<(String, Vec<usize>)> =
            match by_algorithm || contenders.len() > CONTENDER_HUES {
                true => self
                    .families
                    .iter()
                    .map(|name| ((*name).to_owned(), of(name)))
                    .collect(),
                false => vec![(self.families.join(", "), (0..contenders.len()).collect())],
            };
        let mut out = Vec::new();
        for (title, members) in facets {
            let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
            for at in members {
                let style = self.styles.contender(at);
                let same = |other: &usize| self.styles.contender(*other) == style;
                if parts.last().is_some_and(|part| part.iter().any(same)) {
                    parts.push(Vec::new());
                }
                parts.last_mut().into_iter().for_each(|part| part.push(at));
            }
            let count = parts.len();
            out.extend(parts.into_iter().zip(1..).map(|(part, n)| match count {
                1 => (title.clone(), part),
                _ => (format!("{title} ({n} of {count})"), part),
            }));
        }
        out
    }

    fn timed(
        &self,
        title: String,
        top: f64,
        lines: Vec<ChartSeries>,
        guides: Vec<(f64, String)>,
    ) -> Chart {
        Chart {
            title,
            x: Axis::linear("time, s").with_range(0.0, self.result.setup.duration_s),
            y: Axis::linear("").with_range(0.0, top),
            lines,
            guides,
        }
    }
}

/// Axes and names of a distribution.
struct DistributionAxis {
    /// Label of the vertical axis.
    title: &'static str,
    /// Label of the horizontal axis, and its unit in the readout.
    label: &'static str,
    unit: &'static str,
    /// Decimals of the readout.
    digits: usize,
    /// The axis ends at the largest of the lines' quantiles at this share.
    shown_share: f64,
}

impl DistributionAxis {
    /// Returns the range of the horizontal axis for all lines.
    fn range(&self, series: &[Vec<Strand>]) -> (f64, f64) {
        let strands = || series.iter().flatten();
        let at = |points: &Points, place: usize| points.get(place).map_or(0.0, |(value, _)| *value);
        let tops = strands().map(|Strand { points, .. }| {
            let place = (points.len() as f64 * self.shown_share).ceil() as usize;
            at(points, place.saturating_sub(1))
        });
        let top = match tops.fold(0.0, f64::max) * 1.02 {
            top if top > 0.0 => top,
            _ => 1.0,
        };
        let low = strands()
            .map(|Strand { points, .. }| at(points, points.len() / 50))
            .fold(f64::INFINITY, f64::min);
        // The axis does not start at zero if all values are far from it.
        match low.is_finite() && low > top / 2.0 {
            true => (low * 0.98, top),
            false => (0.0, top),
        }
    }

    /// Returns the chart of these members. `title` names them if there are charts of others.
    fn chart(&self, title: &str, members: &[usize], series: &[Vec<Strand>]) -> String {
        let (from, top) = self.range(series);
        let strands = members.iter().filter_map(|at| series.get(*at)).flatten();
        let lines = strands.map(|strand| {
            let points = &strand.points;
            let inside = points
                .iter()
                .copied()
                .filter(|(value, _)| (from..=top).contains(value));
            let before = points.iter().rev().find(|(value, _)| *value < from);
            let share = before.map_or(0.0, |(_, share)| *share);
            // The line starts at the left edge with the share of smaller values and rises at its
            // first value. It ends at the right edge with the share of its last value.
            let rise = inside.clone().next().map(|(value, _)| (value, share));
            let last = inside.clone().next_back().map(|(_, share)| (top, share));
            let begin = rise.map(|_| (from, share));
            // Values beyond the edges, which the chart marks there.
            let hidden = |value: Option<&(f64, f64)>| value.map(|(value, _)| *value);
            let smallest = hidden(points.first()).filter(|value| *value < from);
            let largest = hidden(points.last()).filter(|value| *value > top);
            let inside: Points = smallest
                .zip(begin)
                .map(|(value, (_, share))| (value, share))
                .into_iter()
                .chain(begin)
                .chain(rise)
                .chain(inside)
                .chain(last)
                .chain(largest.zip(last).map(|(value, (_, share))| (value, share)))
                .collect();
            ChartSeries {
                name: strand.name.clone(),
                key: Some(strand.key),
                ..ChartSeries::new("", 0, inside).with_style(strand.style)
            }
        });
        let chart = Chart {
            title: match title {
                "" => self.title.to_owned(),
                title => format!("{title}: {}", self.title),
            },
            x: Axis::linear(self.label).with_range(from, top),
            y: Axis::linear("").with_range(0.0, 100.0),
            lines: lines.collect(),
            guides: Vec::new(),
        };
        let reading = HoverData {
            width: Width::Half,
            digits: (self.digits, 1),
            units: (self.unit, "%"),
            zoom_group: "",
        };
        live(&chart, &reading)
    }
}

/// Joins charts side by side, at most two.
fn row(pictures: impl IntoIterator<Item = String>) -> String {
    let pictures: Vec<String> = pictures.into_iter().collect();
    let columns = pictures.len().clamp(1, 2);
    format!(
        "<div class=\"row\" style=\"--columns: {columns}\">{}</div>",
        pictures.concat()
    )
}

fn along_time(width: Width, digits: usize, unit: &'static str) -> HoverData {
    HoverData {
        width,
        digits: (2, digits),
        units: ("s", unit),
        zoom_group: "time",
    }
}

/// Returns the largest value of all lines.
fn most(series: &[Vec<Strand>]) -> f64 {
    let points = series.iter().flatten().flat_map(|strand| &strand.points);
    let values = points.map(|(_, value)| *value);
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// Returns the end of an axis, with some room above this value.
fn head(most: f64) -> f64 {
    if most > 0.0 { most * 1.08 } else { 1.0 }
}
