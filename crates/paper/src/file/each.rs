//! What a run has several of: a time of every flow that ended, a time of every change of who sends.

use std::ops::RangeInclusive;

use ccplane_lab::metrics;
use ccplane_lab::result::Completion;
use ccplane_lab::scenario::{self, Scenario};
use ccplane_sim::Workload as Sends;
use ccplane_units::Duration;

use super::bundles::Bundled;
use super::rates::rates;
use super::seen::Run;
use super::spans::Span;

/// A kind of them; a measure's name is `name`, a statistic, `unit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub name: &'static str,
    pub unit: &'static str,
    /// What stands in brackets.
    example: &'static str,
    read: fn(&str) -> Option<Each>,
}

/// Several values of a run.
#[derive(Clone, Debug)]
pub(super) enum Each {
    /// How long flows of a size class took that ended, ms; of all compared workloads, or `<= 10kB
    /// of web`.
    Completion(String),
    /// How many times longer than alone.
    Slowdown(String),
    /// How much longer than alone, ms.
    Excess(String),
    /// After each change of who sends, how long it took until those that send shared evenly, ms.
    Convergence {
        /// Jain's index of their rates that is even.
        least: f64,
        /// For how long.
        lasting: Duration,
    },
    /// At each look, how far what a bundle measured is from what the bottleneck did.
    Error(Of, Bundled),
}

/// Of which of its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// The RTT, ms.
    Rtt,
    /// The rate at which its packets arrive, Mbit/s.
    Rate,
}

/// Completion times.
pub(super) const COMPLETIONS: Kind = Kind {
    name: "completion",
    unit: "_ms",
    example: "all",
    read: |class| Some(Each::Completion(class.to_owned())),
};

/// All kinds.
pub(super) static KINDS: [Kind; 6] = [
    COMPLETIONS,
    Kind {
        name: "slowdown",
        unit: "",
        example: "all",
        read: |class| Some(Each::Slowdown(class.to_owned())),
    },
    Kind {
        name: "excess",
        unit: "_ms",
        example: "all",
        read: |class| Some(Each::Excess(class.to_owned())),
    },
    Kind {
        name: "convergence",
        unit: "_ms",
        example: "0.95, 5ms",
        read: convergence_of,
    },
    Kind {
        name: "rtt_error",
        unit: "_ms",
        example: "all",
        read: |bundled| Some(Each::Error(Of::Rtt, Bundled::read(bundled))),
    },
    Kind {
        name: "rate_error",
        unit: "_mbit",
        example: "all",
        read: |bundled| Some(Each::Error(Of::Rate, Bundled::read(bundled))),
    },
];

/// `0.95, 5ms`.
fn convergence_of(text: &str) -> Option<Each> {
    let (least, lasting) = text.split_once(',')?;
    let least: f64 = least
        .trim()
        .parse()
        .ok()
        .filter(|least| *least > 0.0 && *least <= 1.0)?;
    let lasting: Duration = lasting
        .trim()
        .parse()
        .ok()
        .filter(|lasting| *lasting > Duration::ZERO)?;
    Some(Each::Convergence { least, lasting })
}

impl Kind {
    /// By what stands in brackets.
    pub fn read(self, inside: &str) -> Option<Each> {
        (self.read)(inside)
    }

    /// What to write where the brackets are wrong.
    pub fn fix(self, name: &str) -> String {
        let what = match self.name {
            "convergence" => "say which of Jain's indices is even, and for how long",
            "rtt_error" | "rate_error" => "say over which span in brackets",
            _ => "name one of the scenario's size classes in brackets",
        };
        format!("{what}, as `{name}({})`", self.example)
    }
}

impl Each {
    /// By which its values are kept.
    pub fn key(&self) -> String {
        match self {
            Each::Completion(class) => format!("completion({class})"),
            Each::Slowdown(class) => format!("slowdown({class})"),
            Each::Excess(class) => format!("excess({class})"),
            Each::Convergence { least, lasting } => format!("convergence({least}, {lasting})"),
            Each::Error(of, bundled) => format!("{of:?} error({bundled})"),
        }
    }

    /// The length of the spans that it looks at.
    pub fn span(&self) -> Option<Duration> {
        match self {
            Each::Convergence { lasting, .. } => Some(*lasting),
            _ => None,
        }
    }

    /// What is wrong with it for runs of this scenario, and what helps.
    pub fn unfit(&self, scenario: &Scenario) -> Option<(String, String)> {
        match self {
            Each::Completion(class) | Each::Slowdown(class) | Each::Excess(class) => {
                no_class(class, scenario)
            }
            Each::Error(_, bundled) => bundled.unfit(scenario),
            Each::Convergence { .. } => {
                // Flows are told apart by the order in which they start.
                let shuffled = |workload: &scenario::Workload| match &workload.kind {
                    scenario::WorkloadKind::Generated(Sends::Bulk {
                        stagger, spread, ..
                    }) => *stagger > Duration::ZERO && spread > stagger,
                    _ => false,
                };
                if scenario.workloads.iter().any(shuffled) {
                    return Some((
                        "flows may start in another order than planned".to_owned(),
                        "give a `spread` no longer than `stagger`".to_owned(),
                    ));
                }
                let mut compared = scenario
                    .workloads
                    .iter()
                    .filter(|w| w.is_compared(&scenario.contenders));
                let lasting = compared.any(|workload| workload.planned_times(0).is_some());
                (!lasting).then(|| {
                    (
                        "flows that end by their bytes do not converge".to_owned(),
                        "compare flows without `bytes`, as `bulk = { stagger = \"100ms\", lasts = \"500ms\" }`"
                            .to_owned(),
                    )
                })
            }
        }
    }

    /// All of a run's.
    pub fn values(&self, run: &Run<'_>) -> Vec<f64> {
        match self {
            Each::Completion(class) => members(run, class)
                .map(|flow| flow.took_ns as f64 / 1e6)
                .collect(),
            Each::Slowdown(class) => members(run, class).map(Completion::slowdown).collect(),
            Each::Excess(class) => {
                let excess = |flow: &Completion| (flow.took_ns as f64 - flow.alone_ns as f64) / 1e6;
                members(run, class).map(excess).collect()
            }
            Each::Convergence { least, lasting } => convergence(run, *least, *lasting),
            Each::Error(of, bundled) => bundled.errors(run, *of),
        }
    }
}

/// `<= 10kB of web in 60s..120s`, `all before cross`: the size class, the workload where one is
/// named, and the span in which they began.
fn parts(text: &str) -> (&str, Option<&str>, Span) {
    let (text, span) = Span::split(text);
    let (class, workload) = text
        .split_once(" of ")
        .map_or((text, None), |(class, workload)| {
            (class, Some(workload.trim()))
        });
    (class.trim(), workload, span)
}

/// The scenario's size classes, as results call them.
fn classes(scenario: &Scenario) -> Vec<(String, RangeInclusive<u64>)> {
    scenario::size_classes(&scenario.report.size_classes)
}

/// Where the scenario has no such workload, or nothing but it.
pub(super) fn no_workload(name: &str, scenario: &Scenario) -> Option<(String, String)> {
    let names: Vec<&str> = scenario
        .workloads
        .iter()
        .map(|workload| workload.name.as_str())
        .collect();
    match names.as_slice() {
        [only] if *only == name => Some((
            format!("`{name}` is the only workload"),
            "write the measure without it".to_owned(),
        )),
        names if names.contains(&name) => None,
        names => Some((
            format!("the scenario has no workload `{name}`"),
            format!("name one of `{}`", names.join("`, `")),
        )),
    }
}

/// Where the scenario has no such class, or no such workload.
pub(super) fn no_class(text: &str, scenario: &Scenario) -> Option<(String, String)> {
    let (class, workload, span) = parts(text);
    let wrong = workload.and_then(|workload| no_workload(workload, scenario));
    if let Some(wrong) = wrong.or_else(|| span.unfit(scenario)) {
        return Some(wrong);
    }
    let names: Vec<String> = classes(scenario)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    (!names.iter().any(|name| name == class)).then(|| {
        (
            format!("the scenario has no size class `{class}`"),
            format!(
                "name one of `{}`, or set `report.size_classes`",
                names.join("`, `")
            ),
        )
    })
}

/// Flows of a class that ended.
pub(super) fn members<'r>(
    run: &'r Run<'_>,
    text: &str,
) -> impl Iterator<Item = &'r Completion> + use<'r> {
    let (class, workload, span) = parts(text);
    let sizes = classes(run.scenario)
        .into_iter()
        .find(|(name, _)| name == class);
    let began = span.bounds(run.scenario);
    let series = &run.result.series;
    let all: &[Completion] = match workload {
        None => &series.completed,
        Some(name) => {
            let at = run
                .scenario
                .workloads
                .iter()
                .position(|workload| workload.name == name);
            let own = at.and_then(|at| series.workloads.get(at));
            own.map_or(&[], |own| &own.completed)
        }
    };
    all.iter()
        .filter(move |flow| {
            sizes
                .as_ref()
                .is_some_and(|(_, sizes)| sizes.contains(&flow.bytes))
        })
        .filter(move |flow| {
            began
                .as_ref()
                .is_some_and(|span| span.contains(&flow.started_ns))
        })
}

/// When each flow that was looked at is there, as it was planned, ns.
fn planned(run: &Run<'_>) -> Vec<(u64, u64)> {
    let (scenario, series) = (run.scenario, &run.result.series);
    // One of which nothing is planned is never there.
    let mut all = vec![(u64::MAX, 0); series.flows.len()];
    for (at, workload) in scenario.workloads.iter().enumerate() {
        if !workload.is_compared(&scenario.contenders) {
            continue;
        }
        // Where there are several workloads, each knows the places of its flows; else all are its
        // own.
        let own = match series.workloads.get(at) {
            Some(own) => own.flows.clone(),
            None => (0..series.flows.len()).collect(),
        };
        for (place, number) in own.into_iter().zip(0..) {
            let there = workload.planned_times(number).map(|(starts, leaves)| {
                let leaves = leaves.map_or(u64::MAX, |leaves| leaves.as_nanos());
                (starts.as_nanos(), leaves)
            });
            if let (Some(flow), Some(there)) = (all.get_mut(place), there) {
                *flow = there;
            }
        }
    }
    all
}

/// After each change of who sends, from `warm` on: ms until Jain's index of the rates of those that
/// send is at least so much at every look for so long, and where it never is, until the next
/// change. One flow alone shares with nobody.
fn convergence(run: &Run<'_>, least: f64, lasting: Duration) -> Vec<f64> {
    let look = run.scenario.sample_every.as_nanos().max(1);
    let (warm, end) = (
        run.scenario.warm_up.as_nanos(),
        run.scenario.duration.as_nanos(),
    );
    let (flows, rates) = (planned(run), rates(run));
    let mut changes: Vec<u64> = flows
        .iter()
        .flat_map(|(starts, leaves)| [*starts, *leaves])
        .collect();
    changes.retain(|at| (warm..end).contains(at));
    changes.push(end);
    changes.sort_unstable();
    changes.dedup();
    let looks = lasting.as_nanos().div_ceil(look);
    let phase = |begin: u64, end: u64| {
        let there = flows
            .iter()
            .zip(&rates)
            .filter(|((starts, leaves), _)| *starts <= begin && begin < *leaves);
        let there: Vec<&Vec<f64>> = there.map(|(_, rates)| rates).collect();
        let even = |look: u64| {
            let shares: Vec<f64> = there
                .iter()
                .filter_map(|rates| rates.get(look as usize).copied())
                .collect();
            metrics::jain(&shares).is_some_and(|index| index >= least)
        };
        let mut tries = begin.div_ceil(look)..end.div_ceil(look);
        let converged = tries.find(|first| (*first..*first + looks).all(even));
        let took = converged.map_or(end - begin, |first| first * look - begin);
        (there.len() > 1).then_some(took as f64 / 1e6)
    };
    let pairs = changes.windows(2).filter_map(|pair| match pair {
        [begin, end] => phase(*begin, *end),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use ccplane_lab::result::{
        ContenderResult, Sample, Series, WorkloadMetrics, WorkloadSeries, WorkloadTotals,
    };
    use ccplane_lab::scenario::{Contender, Workload, WorkloadKind};
    use ccplane_qdisc::QueueSpec;
    use ccplane_sim::Workload as Sends;
    use ccplane_units::{Bytes, Rate};

    use super::super::measure::Measure;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Flows that join every 100 ms and stay for 200, looked at every 10.
    fn scenario() -> Scenario {
        let rate = Rate::from_bits_per_sec(10_000_000);
        let contenders = vec![Contender::native("reno")];
        let mut scenario =
            Scenario::dumbbell(contenders, rate, ms(1), QueueSpec::UNLIMITED, ms(400))
                .with_sample_interval(ms(10));
        let join = |workload: &mut Workload| {
            workload.kind = WorkloadKind::Generated(Sends::Bulk {
                flows: 1,
                bytes: None,
                stagger: ms(100),
                spread: Duration::ZERO,
                lifetime: Some(ms(200)),
            });
        };
        scenario.workloads.iter_mut().for_each(join);
        scenario
    }

    /// A flow that receives so much in each of these looks.
    fn flow(received: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |look: u64| Sample {
            at_ns: ms(10 * look).as_nanos(),
            received: (0..look).map(&received).sum(),
            ..Sample::default()
        };
        (0..=40).map(sample).collect()
    }

    fn of(name: &str, scenario: &Scenario, result: &ContenderResult) -> Option<f64> {
        let run = Run {
            scenario,
            packet_us: 1.0,
            result,
        };
        Measure::read(name).unwrap().of(&run)
    }

    /// Three flows: two share after 30 ms; the other two never do.
    #[test]
    fn flows_have_converged_when_they_share_for_long_enough() {
        let flows = vec![
            flow(|look| if look < 20 { 100 } else { 0 }),
            flow(|look| match look {
                10..13 => 10,
                13..30 => 100,
                _ => 0,
            }),
            flow(|look| if look < 20 { 0 } else { 10 }),
        ];
        let result = ContenderResult {
            series: Series {
                flows,
                ..Series::default()
            },
            ..ContenderResult::default()
        };
        let scenario = scenario();
        let of = |name: &str| of(name, &scenario, &result);
        let run = Run {
            scenario: &scenario,
            packet_us: 1.0,
            result: &result,
        };
        assert_eq!(convergence(&run, 0.95, ms(20)), [30.0, 100.0]);
        assert_eq!(of("convergence_max_ms(0.95, 20ms)"), Some(100.0));
        assert_eq!(of("convergence_mean_ms(0.95, 20ms)"), Some(65.0));
        // 10 and 100 are as even as 110² of 2 × 10,100.
        assert_eq!(of("convergence_max_ms(0.59, 20ms)"), Some(0.0));
        // For longer than they are there together.
        assert_eq!(of("convergence_p50_ms(0.95, 100ms)"), Some(100.0));
    }

    #[test]
    fn a_class_is_the_scenarios() {
        let mut scenario = scenario();
        scenario.report.size_classes = vec![Bytes::new(10_000), Bytes::new(1_000_000)];
        let ended = |bytes, took_ms| Completion {
            bytes,
            took_ns: ms(took_ms).as_nanos(),
            alone_ns: ms(1).as_nanos(),
            ..Completion::default()
        };
        let result = ContenderResult {
            series: Series {
                completed: vec![
                    ended(10_000, 1),
                    ended(10_001, 3),
                    ended(1_000_000, 5),
                    ended(1_000_001, 7),
                ],
                ..Series::default()
            },
            ..ContenderResult::default()
        };
        let of = |name: &str| of(name, &scenario, &result);
        assert_eq!(of("completed(<= 1MB)"), Some(2.0));
        assert_eq!(of("completion_mean_ms(<= 1MB)"), Some(4.0));
        assert_eq!(
            (of("completion_p50_ms(<= 10kB)"), of("slowdown_max(> 1MB)")),
            (Some(1.0), Some(7.0))
        );
        assert_eq!(of("completion_mean_ms(all)"), Some(4.0));
        assert_eq!(of("excess_max_ms(<= 1MB)"), Some(4.0));
        assert!(no_class("all", &scenario).is_none());
        let (what, _) = no_class("all of bulk", &scenario).unwrap();
        assert!(what.contains("the only workload"), "{what}");
        let (what, fix) = no_class("<= 2MB", &scenario).unwrap();
        assert!(
            what.contains("<= 2MB") && fix.contains("`<= 10kB`, `<= 1MB`, `> 1MB`, `all`"),
            "{fix}"
        );
    }

    /// Compared or not, a workload has figures of its own.
    #[test]
    fn a_workload_has_its_own() {
        let mut scenario = scenario();
        let web = Workload {
            name: "web".to_owned(),
            algorithm: Some(Contender::native("cubic")),
            ..scenario.workloads[0].clone()
        };
        scenario.workloads.push(web);
        let ended = |took_ms| Completion {
            bytes: 1_000,
            took_ns: ms(took_ms).as_nanos(),
            ..Completion::default()
        };
        let received = |bytes: [u64; 5]| (0..).map(|n| ms(100 * n).as_nanos()).zip(bytes).collect();
        let got = |name: &str, goodput_mbit, share| WorkloadMetrics {
            name: name.to_owned(),
            totals: WorkloadTotals {
                goodput_mbit,
                share,
                ..WorkloadTotals::default()
            },
            ..WorkloadMetrics::default()
        };
        let own = |took_ms| WorkloadSeries {
            completed: vec![ended(took_ms)],
            ..WorkloadSeries::default()
        };
        let result = ContenderResult {
            workloads: vec![got("bulk", 6.0, 0.75), got("web", 2.0, 0.25)],
            series: Series {
                completed: vec![ended(3)],
                workloads: vec![
                    own(3),
                    WorkloadSeries {
                        course: received([0, 0, 25_000, 75_000, 100_000]),
                        ..own(5)
                    },
                ],
                ..Series::default()
            },
            ..ContenderResult::default()
        };
        let of = |name: &str| of(name, &scenario, &result);
        assert_eq!(
            (of("goodput_mbit(web)"), of("share(bulk)")),
            (Some(2.0), Some(0.75))
        );
        assert_eq!(of("retransmissions(web)"), None);
        assert_eq!(of("goodput_mbit(web in 100ms..75%)"), Some(3.0));
        assert_eq!(of("goodput_mbit(web in 0ms..100ms)"), Some(0.0));
        let unfit = |name: &str| Measure::read(name).unwrap().unfit(&scenario).unwrap();
        assert!(
            unfit("goodput_mbit(web in 15ms..)")
                .0
                .contains("between two looks")
        );
        assert!(
            unfit("goodput_mbit(wed in 10ms..)")
                .0
                .contains("no workload `wed`")
        );
        assert_eq!(of("completion_p50_ms(all)"), Some(3.0));
        assert_eq!(of("completion_p50_ms(all of web)"), Some(5.0));
        assert_eq!(of("completed(> 1MB of web)"), Some(0.0));
        assert!(no_class("all of web", &scenario).is_none());
        let (what, fix) = no_workload("wed", &scenario).unwrap();
        assert!(
            what.contains("`wed`") && fix.contains("`bulk`, `web`"),
            "{what}; {fix}"
        );
    }
}
