//! The group's figures, and what the agent's distance does to them.

use ccplane_lab::metrics::{Distribution, jain};
use ccplane_lab::stats::{Ratio, mean_interval, paired_ratio};
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};

use super::super::page::{Findings, cell};
use super::{
    Course, DELAYS_US, IDLES, JITTER, KILLED, LIMIT_BITS, LOOK, MEMBERS, Point, RTT, Seen, Who,
};

/// Simulations and what came of them.
pub(super) struct Results(pub Vec<(Point, Seen)>);

/// Round trips within which parts are to be right again.
const SOON: u64 = 10;

impl Results {
    fn of(&self, who: Who) -> impl Iterator<Item = Run<'_>> {
        let meant = self.0.iter().filter(move |(point, _)| point.who == who);
        meant.map(move |(point, seen)| Run {
            seen,
            course: point.course,
            beside: who.has_beside(),
        })
    }

    fn all<'a>(&'a self, who: Who, figure: impl Fn(&Run<'a>) -> Option<f64>) -> Vec<f64> {
        self.of(who).filter_map(|run| figure(&run)).collect()
    }

    fn mean<'a>(&'a self, who: Who, figure: impl Fn(&Run<'a>) -> Option<f64>) -> Option<f64> {
        Distribution::new(self.all(who, figure)).mean()
    }

    /// The mean over seeds with its interval.
    fn mean_within<'a>(
        &'a self,
        who: Who,
        figure: impl Fn(&Run<'a>) -> Option<f64>,
    ) -> Option<Ratio> {
        let all = self.all(who, figure);
        let interval = mean_interval(&all);
        let value = Distribution::new(all).mean()?;
        Some(Ratio { value, interval })
    }
}

/// A simulation, by what is asked of it.
struct Run<'a> {
    seen: &'a Seen,
    course: Course,
    /// The last flow is not of the group.
    beside: bool,
}

impl Run<'_> {
    fn members(&self) -> usize {
        self.seen.arrived.len() - usize::from(self.beside)
    }

    /// Bytes that arrived of a flow between two times, seconds.
    fn between(&self, flow: usize, from: f64, to: f64) -> Option<f64> {
        let arrived = self.seen.arrived.get(flow)?;
        let at = |seconds: f64| {
            arrived
                .get(((seconds / LOOK.as_secs_f64()).round() as usize).checked_sub(1)?)
                .copied()
        };
        Some(at(to)?.saturating_sub(at(from)?) as f64)
    }

    /// Of all members together.
    fn together(&self, from: f64, to: f64) -> Option<f64> {
        (0..self.members())
            .map(|flow| self.between(flow, from, to))
            .sum()
    }

    fn span(&self) -> (f64, f64) {
        (self.course.steady as f64, self.course.end as f64)
    }

    /// Bytes of the group, and of the flow beside it, in a span or in all of it.
    fn pair(&self, span: Option<(f64, f64)>) -> Option<(f64, f64)> {
        let (from, to) = span.unwrap_or(self.span());
        Some((
            self.together(from, to)?,
            self.between(self.members(), from, to)?,
        ))
    }

    /// Mbit/s of the group, and of the flow beside it.
    fn mbit(&self) -> Option<(f64, f64)> {
        let (from, to) = self.span();
        let scale = |bytes: f64| bytes * 8.0 / 1e6 / (to - from);
        let other = if self.beside {
            self.between(self.members(), from, to)?
        } else {
            0.0
        };
        Some((scale(self.together(from, to)?), scale(other)))
    }

    fn shares(&self, from: f64, to: f64, [idles, killed]: [bool; 2]) -> Option<Vec<f64>> {
        let sends = |flow: &usize| {
            (idles || *flow != IDLES as usize) && (killed || *flow != KILLED as usize)
        };
        (0..self.members())
            .filter(sends)
            .map(|flow| self.between(flow, from, to))
            .collect()
    }

    /// Jain's index of the members that send, of the worst of the phases.
    fn fairness(&self) -> Option<f64> {
        let indices = phases(self.course).map(|(from, to, who)| jain(&self.shares(from, to, who)?));
        indices
            .into_iter()
            .try_fold(f64::INFINITY, |least, index| Some(least.min(index?)))
    }

    /// The same in ten round trips, from ten round trips after the return and after the kill on.
    fn soon(&self) -> Option<f64> {
        let soon = RTT.as_secs_f64() * SOON as f64;
        let [.., returned, killed] = phases(self.course);
        let index =
            |(from, _, who): (f64, f64, [bool; 2])| jain(&self.shares(from, from + soon, who)?);
        Some((index(returned)? + index(killed)?) / 2.0)
    }

    /// How far the sum is from the limit, of the worst of the phases, per cent.
    fn limit_error(&self) -> Option<f64> {
        let errors = phases(self.course).map(|(from, to, _)| {
            let rate = self.together(from, to)? * 8.0 / (to - from);
            Some((rate / LIMIT_BITS as f64 - 1.0).abs() * 100.0)
        });
        errors
            .into_iter()
            .try_fold(0.0f64, |most, error| Some(most.max(error?)))
    }
}

/// The times between two events, from ten round trips after the first on. With each: whether the
/// idle and the killed member send.
fn phases(course: Course) -> [(f64, f64, [bool; 2]); 4] {
    let Course {
        steady,
        idle,
        returns,
        killed,
        end,
    } = course;
    let soon = RTT.as_secs_f64() * SOON as f64;
    // What the idle one has left to send is gone a second after.
    [
        (steady as f64, idle as f64, [true, true]),
        (idle as f64 + 1.0, returns as f64, [false, true]),
        (returns as f64 + soon, killed as f64, [true, true]),
        (killed as f64 + soon, end as f64, [true, false]),
    ]
}

/// How a delay is called in keys and on the page.
fn named(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        _ => format!("{}ms", us / 1_000),
    }
}

/// What the group loses with an agent that far, per cent.
fn cost(results: &Results, us: u64, of: impl Fn((f64, f64)) -> f64) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> = results
        .of(Who::Share(us))
        .zip(results.of(Who::Share(DELAYS_US[0])))
        .filter_map(|(far, near)| Some((of(far.mbit()?), of(near.mbit()?))))
        .collect();
    let lost = |ratio: f64| (1.0 - ratio) * 100.0;
    paired_ratio(&pairs).map(|ratio| Ratio {
        value: lost(ratio.value),
        interval: ratio.interval.map(|(low, high)| (lost(high), lost(low))),
    })
}

/// Where the runs were.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Simulator,
    Kernel,
}

impl Place {
    fn key(self, name: &str) -> String {
        match self {
            Place::Simulator => name.to_owned(),
            Place::Kernel => format!("kernel_{name}"),
        }
    }

    fn what(self, what: &str) -> String {
        match self {
            Place::Simulator => what.to_owned(),
            Place::Kernel => format!("kernel TCP: {what}"),
        }
    }
}

pub(super) fn simulated(findings: &mut Findings, results: &Results, course: Course) {
    compare(findings, results, course, Place::Simulator);
    findings.remark(format!(
        "{} All hosts pace, as under Linux' fq, and a packet takes up to {JITTER} in its host at random; the row of bare hosts is without \
         both. Constants and that time in a host were chosen on other seeds.",
        set_up(course)
    ));
    findings.deviation("There is no published experiment of this kind: CCP's paper names the use and measures none.");
}

pub(super) fn on_kernel_tcp(findings: &mut Findings, results: &Results, course: Course) {
    compare(findings, results, course, Place::Kernel);
    findings.remark(format!(
        "On kernel TCP: {} Hosts are namespaces of one kernel, each with a registration of its own and a connection over TLS to the agent, \
         whose distance an emulated path makes. Every socket is paced by TCP (SO_MAX_PACING_RATE), and none of the row of bare hosts.",
        set_up(course)
    ));
}

fn set_up(course: Course) -> String {
    format!(
        "{MEMBERS} members on two hosts, one agent, 96 Mbit/s, 20 ms, a drop-tail queue of one BDP. Everybody starts within the first second; \
         it counts from {} s to {} s. A member is idle from {} s to {} s, and one is killed at {} s. An agent's distance is the time that a \
         report takes to it, and a command back.",
        course.steady, course.end, course.idle, course.returns, course.killed
    )
}

fn compare(findings: &mut Findings, results: &Results, course: Course, place: Place) {
    let near = Who::Share(DELAYS_US[0]);
    let ratio = |who: Who| {
        let pairs: Vec<(f64, f64)> = results.of(who).filter_map(|run| run.pair(None)).collect();
        paired_ratio(&pairs)
    };
    findings.compare_ratio(
        &place.key("group_share_ratio"),
        &place.what("goodput of the group ÷ that of the flow beside it"),
        ratio(near),
        "",
        TargetRange::Within(0.9, 1.1),
    );
    findings.compare_ratio(
        &place.key("group_jain"),
        &place.what("Jain's index of the members that send, the worst phase"),
        results.mean_within(near, Run::fairness),
        "",
        TargetRange::AtLeast(0.95),
    );
    let limited = Who::Limit(DELAYS_US[0]);
    findings.compare_ratio(
        &place.key("group_limit_error_pct"),
        &place.what("the sum beside its limit, the worst phase, %"),
        results.mean_within(limited, Run::limit_error),
        "",
        TargetRange::AtMost(2.0),
    );
    findings.compare_ratio(
        &place.key("group_delay_cost_pct_10ms"),
        &place.what("goodput that the group loses with an agent 10 ms away, %"),
        cost(results, 10_000, |(group, _)| group),
        "",
        TargetRange::AtMost(5.0),
    );
    findings.compare_ratio(
        &place.key("group_soon_jain"),
        &place.what("Jain's index over ten round trips, ten after a return or a kill"),
        results.mean_within(near, Run::soon),
        "",
        TargetRange::AtLeast(0.95),
    );
    let [_, (from, to, _), ..] = phases(course);
    let pairs: Vec<(f64, f64)> = results
        .of(near)
        .filter_map(|run| run.pair(Some((from, to))))
        .collect();
    findings.compare_ratio(
        &place.key("group_idle_share_ratio"),
        &place.what("the group ÷ the flow beside it while a member is idle"),
        paired_ratio(&pairs),
        "",
        None,
    );
    findings.compare_ratio(
        &place.key("group_flows_ratio"),
        &place.what("two flows of Cubic, one ÷ the other"),
        ratio(Who::Flows),
        "",
        None,
    );
    findings.compare_ratio(
        &place.key("group_apart_ratio"),
        &place.what("the eight as flows of their own ÷ the flow beside them"),
        ratio(Who::Apart),
        "",
        None,
    );
    findings.compare_ratio(
        &place.key("group_bare_ratio"),
        &place.what("the group ÷ the flow beside it, hosts that neither pace nor take time"),
        ratio(Who::Bare),
        "",
        None,
    );
    findings.figure(
        place.key("group_jain_least"),
        results
            .all(near, Run::fairness)
            .into_iter()
            .reduce(f64::min),
    );
    findings.figure(
        place.key("group_limit_jain"),
        results.mean(limited, Run::fairness),
    );
    findings.figure(
        place.key("group_limit_beside_error_pct"),
        results.mean(Who::LimitBeside, Run::limit_error),
    );
    by_distance(findings, results, place);
    findings.picture(
        place.what("What the distance of the agent does"),
        &distances(results),
    );
    if let Some(run) = results.of(near).next() {
        findings.picture(
            place.what("Goodput, a run with its first seed"),
            &[course_of(&run, course)],
        );
    }
    table(findings, results, place);
}

/// For scripts, each distance.
fn by_distance(findings: &mut Findings, results: &Results, place: Place) {
    for us in DELAYS_US {
        let (far, name) = (Who::Share(us), named(us));
        let pairs: Vec<(f64, f64)> = results.of(far).filter_map(|run| run.pair(None)).collect();
        figure_within(
            findings,
            &place.key(&format!("group_share_ratio_{name}")),
            paired_ratio(&pairs),
        );
        findings.figure(
            place.key(&format!("group_jain_{name}")),
            results.mean(far, Run::fairness),
        );
        findings.figure(
            place.key(&format!("group_soon_jain_{name}")),
            results.mean(far, Run::soon),
        );
        findings.figure(
            place.key(&format!("group_drops_{name}")),
            results.mean(far, |run| Some(run.seen.drops as f64)),
        );
        findings.figure(
            place.key(&format!("group_queue_ms_{name}")),
            results.mean(far, |run| Some(run.seen.delay_ms)),
        );
        findings.figure(
            place.key(&format!("group_limit_error_pct_{name}")),
            results.mean(Who::Limit(us), Run::limit_error),
        );
        if us > DELAYS_US[0] {
            for (key, cost) in [
                (
                    "group_delay_cost_pct",
                    cost(results, us, |(group, _)| group),
                ),
                (
                    "group_delay_other_cost_pct",
                    cost(results, us, |(_, other)| other),
                ),
                (
                    "group_delay_link_cost_pct",
                    cost(results, us, |(group, other)| group + other),
                ),
            ] {
                figure_within(findings, &place.key(&format!("{key}_{name}")), cost);
            }
        }
    }
}

/// A figure for scripts with its interval.
fn figure_within(findings: &mut Findings, key: &str, figure: Option<Ratio>) {
    findings.figure(key, figure.map(|figure| figure.value));
    if let Some((low, high)) = figure.and_then(|figure| figure.interval) {
        findings.figure(format!("{key}_low"), Some(low));
        findings.figure(format!("{key}_high"), Some(high));
    }
}

fn distances(results: &Results) -> Vec<Chart> {
    let at = |us: u64| us as f64 / 1e3;
    let line = |label: &str, n: usize, figure: &dyn Fn(u64) -> Option<f64>| {
        let points: Vec<(f64, f64)> = DELAYS_US
            .iter()
            .filter_map(|us| Some((at(*us), figure(*us)?)))
            .collect();
        ChartSeries::new(label, n, points).dots()
    };
    let axis = || Axis::log("the agent's distance, ms");
    let mbit = |us: u64, of: &dyn Fn((f64, f64)) -> f64| {
        results.mean(Who::Share(us), |run| run.mbit().map(of))
    };
    vec![
        Chart {
            title: "Goodput, Mbit/s".into(),
            x: axis(),
            y: Axis::linear("").with_range(0.0, 100.0),
            lines: vec![
                line("group", 0, &|us| mbit(us, &|(group, _)| group)),
                line("the flow beside it", 1, &|us| mbit(us, &|(_, other)| other)),
                line("together", 2, &|us| {
                    mbit(us, &|(group, other)| group + other)
                })
                .dashed(),
            ],
            guides: Vec::new(),
        },
        Chart {
            title: "Jain's index".into(),
            x: axis(),
            y: Axis::linear("").with_range(0.5, 1.0),
            lines: vec![
                line("the worst phase", 0, &|us| {
                    results.mean(Who::Share(us), Run::fairness)
                }),
                line("ten round trips after a change", 1, &|us| {
                    results.mean(Who::Share(us), Run::soon)
                })
                .dashed(),
            ],
            guides: vec![(0.95, "aim".into())],
        },
        Chart {
            title: "Off the limit, %".into(),
            x: axis(),
            y: Axis::linear("").with_range(0.0, 5.0),
            lines: vec![line("the worst phase", 0, &|us| {
                results.mean(Who::Limit(us), Run::limit_error)
            })],
            guides: vec![(2.0, "aim".into())],
        },
    ]
}

/// Goodput of everybody over a run, in steps of half a second.
fn course_of(run: &Run<'_>, course: Course) -> Chart {
    const STEP: f64 = 0.5;
    let steps = (course.end as f64 / STEP) as usize;
    let series = |bytes: &dyn Fn(f64, f64) -> Option<f64>| -> Vec<(f64, f64)> {
        let point = |n: usize| {
            let (from, to) = (n as f64 * STEP, (n + 1) as f64 * STEP);
            Some((
                to,
                bytes(from.max(LOOK.as_secs_f64()), to)? * 8.0 / 1e6 / STEP,
            ))
        };
        (0..steps).filter_map(point).collect()
    };
    let members = run.members();
    let mut lines = vec![
        ChartSeries::new("group", 0, series(&|from, to| run.together(from, to))),
        ChartSeries::new(
            "the flow beside it",
            1,
            series(&|from, to| run.between(members, from, to)),
        ),
    ];
    for (label, flow) in [
        ("a member", 0),
        ("the idle one", IDLES as usize),
        ("the killed one", KILLED as usize),
    ] {
        lines.push(ChartSeries::new(
            label,
            2 + flow,
            series(&|from, to| run.between(flow, from, to)),
        ));
    }
    Chart {
        title: "Mbit/s".into(),
        x: Axis::linear("s"),
        y: Axis::linear("").with_range(0.0, 96.0),
        lines,
        guides: Vec::new(),
    }
}

fn table(findings: &mut Findings, results: &Results, place: Place) {
    let whos = DELAYS_US
        .map(Who::Share)
        .into_iter()
        .chain([Who::Bare, Who::Flows, Who::Apart])
        .chain(DELAYS_US.map(Who::Limit))
        .chain([Who::LimitBeside])
        .filter(|who| results.of(*who).next().is_some());
    let rows = whos.map(|who| {
        let mbit = |of: &dyn Fn((f64, f64)) -> f64| results.mean(who, |run| run.mbit().map(of));
        let fairness = if who == Who::Flows {
            None
        } else {
            results.mean(who, Run::fairness)
        };
        vec![
            match who {
                Who::Share(us) => format!("a group as one flow, agent {} away", named(us)),
                Who::Flows => "two flows of Cubic".to_owned(),
                Who::Apart => "eight flows and one".to_owned(),
                Who::Limit(us) => format!("a group of 40 Mbit/s, agent {} away", named(us)),
                Who::LimitBeside => "the same beside a flow".to_owned(),
                Who::Bare => "a group as one flow, bare hosts".to_owned(),
            },
            cell(mbit(&|(group, _)| group), 1),
            cell(mbit(&|(_, other)| other), 1),
            cell(fairness, 3),
            cell(results.mean(who, |run| Some(run.seen.delay_ms)), 1),
            cell(results.mean(who, |run| Some(run.seen.drops as f64)), 0),
        ]
    });
    let headings = [
        "who",
        "group\nMbit/s",
        "the other\nMbit/s",
        "Jain's index\nworst phase",
        "queue\nms",
        "drops",
    ];
    findings.table(place.what("Means over seeds"), &headings, rows.collect());
}

#[cfg(test)]
mod tests {
    use super::super::QUICK;
    use super::*;

    /// Eight members of so many bytes a look each, and a flow beside them.
    fn seen(members: [u64; 8], other: Option<u64>) -> Seen {
        let looks = QUICK.end * 10;
        let steady = |bytes: u64| (1..=looks).map(|look| look * bytes).collect();
        Seen {
            arrived: members.into_iter().chain(other).map(steady).collect(),
            ..Seen::default()
        }
    }

    fn results(all: Vec<(Who, Seen)>) -> Results {
        let points = all.into_iter().enumerate().map(|(n, (who, seen))| {
            let point = Point {
                who,
                seed: n as u64,
                course: QUICK,
            };
            (point, seen)
        });
        Results(points.collect())
    }

    #[test]
    fn shares_ratios_and_costs_are_of_what_arrived() {
        let near = Who::Share(DELAYS_US[0]);
        let results = results(vec![
            (near, seen([100_000; 8], Some(800_000))),
            (near, seen([100_000; 8], Some(800_000))),
            (Who::Share(10_000), seen([90_000; 8], Some(880_000))),
            (Who::Share(10_000), seen([90_000; 8], Some(880_000))),
            (Who::Limit(DELAYS_US[0]), seen([61_250; 8], None)),
        ]);
        let mut findings = Findings::default();
        simulated(&mut findings, &results, QUICK);
        let figures = findings.figures();
        assert_eq!(figures["group_share_ratio"], 1.0);
        assert_eq!(figures["group_share_ratio_10ms"], 0.8182);
        assert_eq!(figures["group_jain"], 1.0);
        assert_eq!(figures["group_delay_cost_pct_10ms"], 10.0);
        assert_eq!(figures["group_delay_other_cost_pct_10ms"], -10.0);
        // 61,250 bytes of eight in a tenth of a second are 39.2 Mbit/s.
        assert_eq!(figures["group_limit_error_pct"], 2.0);
        assert!(figures["group_flows_ratio"].is_null());
    }

    #[test]
    fn the_worst_phase_counts_and_only_of_those_who_send() {
        let near = Who::Share(DELAYS_US[0]);
        let mut uneven = seen([100_000; 8], Some(800_000));
        // It stands still while it is idle, and that is no unfairness; where it sends, it is.
        let (idle, returns) = ((QUICK.idle * 10) as usize, (QUICK.returns * 10) as usize);
        for look in idle..returns {
            uneven.arrived[IDLES as usize][look] = uneven.arrived[IDLES as usize][idle - 1];
        }
        let of = |seen: &Seen| {
            results(vec![(near, seen.clone())])
                .mean(near, Run::fairness)
                .expect("a figure")
        };
        assert!((of(&uneven) - 1.0).abs() < 1e-9);
        let last = uneven.arrived[0].len() - 1;
        uneven.arrived[0][last] += 100_000_000;
        assert!(of(&uneven) < 0.6, "{}", of(&uneven));
    }
}
