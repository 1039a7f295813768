//! What a figure, a column or a line shows: a value that every run has, or one of the runs of all
//! seeds taken together.

use ccplane_lab::metrics::{self, Distribution};
use ccplane_lab::result::{ContenderMetrics, Series, WorkloadTotals};
use ccplane_lab::scenario::Scenario;
use ccplane_units::Duration;

use super::bundles::{self, BUNDLES, OfBundle};
use super::each::{self, Each};
use super::rates::{rates_over, variation};
use super::seen::Run;
use super::spans::Span;

/// A value of a run.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    /// As it is written.
    pub name: String,
    what: What,
    /// Whether it is of what all seeds have, taken together, and not a mean over seeds.
    pooled: bool,
}

#[derive(Clone, Debug)]
enum What {
    /// A figure.
    Figure(fn(&ContenderMetrics) -> f64),
    /// A time in the queue, ms, without the packet's own transmission, in µs.
    Wait(fn(&ContenderMetrics) -> f64),
    /// Their mean.
    WaitMean,
    /// The same in packets.
    QueuePackets,
    Jain,
    /// The longest stall of in-order delivery of any compared flow, ms.
    StallMax,
    /// Jain's index, the mean over spans of this length.
    JainOver(Duration),
    /// A flow's standard deviation over its mean, of its rate over such spans; the mean over flows.
    VariationOver(Duration),
    /// How many flows of a size class ended.
    Completed(String),
    /// Of what a run has several of.
    Of(Statistic, Each),
    Unfinished,
    /// What a simulation counts beside its figures.
    Counted(fn(&Series) -> Option<u64>),
    /// What one of several workloads got.
    Workload(OfTotals, String),
    /// What one of them read in a span, Mbit/s.
    GoodputIn(String, Span),
    /// What is seen of a bundle.
    Bundle(OfBundle),
}

/// A value of what a workload got.
type OfTotals = fn(&WorkloadTotals) -> Option<f64>;

/// What is told of several values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statistic {
    Mean,
    /// The least value that so large a share of them does not exceed.
    Quantile(f64),
}

/// What looks at flows over spans.
type OverSpan = fn(Duration) -> What;

/// Why a text names no measure.
#[derive(Debug)]
pub(super) enum Unread {
    /// There is none of this name.
    Unknown(String),
    /// It takes something in brackets, or does not; this is what.
    Argument(String),
}

/// Before a measure of several values: those of all seeds are taken together.
const POOLED: &str = "pooled ";

/// Those without anything in brackets.
static FIGURES: [(&str, What); 20] = [
    ("goodput_mbit", What::Figure(|f| f.goodput_mbit)),
    ("utilisation", What::Figure(|f| f.utilisation)),
    ("delay_mean_ms", What::Figure(|f| f.delay_mean_ms)),
    ("delay_p50_ms", What::Figure(|f| f.delay_p50_ms)),
    ("delay_p95_ms", What::Figure(|f| f.delay_p95_ms)),
    ("delay_p99_ms", What::Figure(|f| f.delay_p99_ms)),
    ("wait_mean_us", What::WaitMean),
    ("wait_p50_us", What::Wait(|f| f.delay_p50_ms)),
    ("wait_p95_us", What::Wait(|f| f.delay_p95_ms)),
    ("wait_p99_us", What::Wait(|f| f.delay_p99_ms)),
    ("queue_packets", What::QueuePackets),
    (
        "retransmissions",
        What::Figure(|f| f.retransmissions as f64),
    ),
    ("queue_drops", What::Figure(|f| f.queue_drops as f64)),
    ("random_losses", What::Figure(|f| f.random_losses as f64)),
    (
        "drops",
        What::Figure(|f| (f.queue_drops + f.random_losses) as f64),
    ),
    (
        "drops_anywhere",
        What::Counted(|series| series.dropped_anywhere),
    ),
    ("timeouts", What::Counted(|series| series.timeouts)),
    ("jain", What::Jain),
    ("stall_max_ms", What::StallMax),
    ("unfinished", What::Unfinished),
];

/// How many flows of a size class ended.
const COMPLETED: &str = "completed";

/// What is told of several values, and how its names end: before the unit where there is one.
static STATISTICS: [(&str, Statistic); 7] = [
    ("mean", Statistic::Mean),
    ("p50", Statistic::Quantile(0.5)),
    ("p75", Statistic::Quantile(0.75)),
    ("p80", Statistic::Quantile(0.8)),
    ("p95", Statistic::Quantile(0.95)),
    ("p99", Statistic::Quantile(0.99)),
    ("max", Statistic::Quantile(1.0)),
];

/// Those of a workload.
static WORKLOADS: [(&str, OfTotals); 3] = [
    ("goodput_mbit", |totals| Some(totals.goodput_mbit)),
    ("share", |totals| Some(totals.share)),
    ("retransmissions", |totals| {
        totals.retransmissions.map(|n| n as f64)
    }),
];

/// Those of a span.
static SPANS: [(&str, OverSpan); 2] =
    [("jain", What::JainOver), ("variation", What::VariationOver)];

impl Statistic {
    /// Of these; none where there are none.
    pub fn of(self, values: impl IntoIterator<Item = f64>) -> Option<f64> {
        let values = Distribution::new(values);
        match self {
            Statistic::Mean => values.mean(),
            Statistic::Quantile(share) => values.quantile(share),
        }
    }
}

/// The statistic and the kind of `completion_p99_ms`.
fn of_several(name: &str) -> Option<(Statistic, each::Kind)> {
    each::KINDS.iter().find_map(|kind| {
        let statistic = name
            .strip_prefix(kind.name)?
            .strip_suffix(kind.unit)?
            .strip_prefix('_')?;
        let (_, statistic) = STATISTICS.iter().find(|(known, _)| *known == statistic)?;
        Some((*statistic, *kind))
    })
}

impl Measure {
    /// Every name.
    pub fn names() -> Vec<String> {
        let several = each::KINDS.iter().flat_map(|kind| {
            let name =
                |(statistic, _): &(&str, _)| format!("{}_{statistic}{}", kind.name, kind.unit);
            STATISTICS.iter().map(name).collect::<Vec<_>>()
        });
        let plain = FIGURES
            .iter()
            .map(|(name, _)| *name)
            .chain([COMPLETED, "variation", "share"])
            .chain(BUNDLES.iter().map(|(name, ..)| *name));
        plain.map(str::to_owned).chain(several).collect()
    }

    /// `delay_p50_ms`, `jain(10ms)`, `completion_p99_ms(<= 10kB)`, `pooled completion_p99_ms(all)`.
    pub fn read(text: &str) -> Result<Measure, Unread> {
        let (rest, pooled) = match text.trim().strip_prefix(POOLED) {
            Some(rest) => (rest.trim(), true),
            None => (text.trim(), false),
        };
        let split = rest.strip_suffix(')').and_then(|rest| rest.split_once('('));
        let (name, inside) = split.map_or((rest, None), |(name, inside)| {
            (name.trim(), Some(inside.trim()))
        });
        let what = What::read(name, inside)?;
        if pooled && !matches!(what, What::Of(..)) {
            return Err(Unread::Argument(format!(
                "a run has one `{name}`: write it without `pooled`, which is for completions, slowdowns and convergence, as \
                 `pooled completion_p99_ms(all)`"
            )));
        }
        Ok(Measure {
            name: text.to_owned(),
            what,
            pooled,
        })
    }

    /// Where it is of all seeds together: what is told, and of what.
    pub fn pooled(&self) -> Option<(Statistic, &Each)> {
        match &self.what {
            What::Of(statistic, each) if self.pooled => Some((*statistic, each)),
            _ => None,
        }
    }

    /// What is wrong with it for runs of this scenario, and what helps.
    pub fn unfit(&self, scenario: &Scenario) -> Option<(String, String)> {
        let look = scenario.sample_every;
        let whole = |span: Duration| span.as_nanos().is_multiple_of(look.as_nanos().max(1));
        let span = match &self.what {
            What::JainOver(span) | What::VariationOver(span) => Some(*span),
            What::Of(_, each) => each.span(),
            _ => None,
        };
        if let Some(span) = span.filter(|span| !whole(*span) || !whole(scenario.warm_up)) {
            return Some((
                format!(
                    "flows are looked at every {look}, and {span} or `warm` is no multiple of it"
                ),
                "give the scenario a `sample` that both are multiples of".to_owned(),
            ));
        }
        match &self.what {
            What::Completed(class) => each::no_class(class, scenario),
            What::Of(_, each) => each.unfit(scenario),
            What::Workload(_, workload) => each::no_workload(workload, scenario),
            What::GoodputIn(workload, span) => each::no_workload(workload, scenario)
                .or_else(|| span.unfit(scenario))
                .or_else(|| {
                    let bounds = span.bounds(scenario)?;
                    let between = [bounds.start, bounds.end]
                        .iter()
                        .any(|at| !at.is_multiple_of(look.as_nanos()));
                    between.then(|| {
                        (
                            format!(
                                "`{workload}` is looked at every {look}, and `{span}` begins or ends between two looks"
                            ),
                            "give a span of whole looks, or the scenario another `sample`".to_owned(),
                        )
                    })
                }),
            What::Bundle(of) => of.unfit(scenario),
            _ => None,
        }
    }

    /// What it is of this run; none where the run has nothing of the kind.
    pub fn of(&self, run: &Run<'_>) -> Option<f64> {
        let figures = &run.result.metrics;
        let wait = |ms: f64| (ms * 1e3 - run.packet_us).max(0.0);
        // Packet by packet where that is known: not all are full ones.
        let mean = || {
            run.result
                .series
                .waited_mean_us
                .unwrap_or_else(|| wait(figures.delay_mean_ms))
        };
        match &self.what {
            What::Figure(value) => Some(value(figures)),
            What::Wait(value) => Some(wait(value(figures))),
            What::WaitMean => Some(mean()),
            What::QueuePackets => Some(mean() / run.packet_us),
            What::Jain => figures.jain,
            What::StallMax => {
                let flows = run.result.series.flows.iter().take(figures.flows.len());
                let stalls = flows.map(|samples| {
                    metrics::longest_stall(samples.iter().map(|s| (s.at_ns, s.received)))
                });
                stalls.max().map(|ns| ns as f64 / 1e6)
            }
            What::JainOver(span) => {
                let flows = rates_over(run, *span);
                let spans = flows.first().map_or(0, Vec::len);
                let shares = |at: usize| -> Vec<f64> {
                    flows
                        .iter()
                        .filter_map(|rates| rates.get(at).copied())
                        .collect()
                };
                Distribution::new((0..spans).filter_map(|at| metrics::jain(&shares(at)))).mean()
            }
            What::VariationOver(span) => {
                let flows = rates_over(run, *span);
                Distribution::new(flows.iter().filter_map(|rates| variation(rates))).mean()
            }
            What::Completed(class) => Some(each::members(run, class).count() as f64),
            What::Of(statistic, each) => statistic.of(each.values(run)),
            What::Unfinished => figures
                .completions
                .as_ref()
                .map(|all| all.unfinished as f64),
            What::Counted(count) => count(&run.result.series).map(|count| count as f64),
            What::GoodputIn(name, span) => {
                let at = run
                    .scenario
                    .workloads
                    .iter()
                    .position(|workload| workload.name == *name)?;
                let course = &run.result.series.workloads.get(at)?.course;
                let received = |ns: u64| {
                    let looks = course.partition_point(|(at, _)| *at <= ns);
                    looks
                        .checked_sub(1)
                        .and_then(|last| course.get(last))
                        .map_or(0, |(_, bytes)| *bytes)
                };
                let span = span.bounds(run.scenario)?;
                let bytes = received(span.end).saturating_sub(received(span.start));
                Some(metrics::mbits(bytes, span.end - span.start))
            }
            What::Workload(value, name) => {
                let own = run
                    .result
                    .workloads
                    .iter()
                    .find(|workload| workload.name == *name)?;
                value(&own.totals)
            }
            What::Bundle(of) => of.of(run),
        }
    }
}

impl What {
    /// By its name and what stands in brackets.
    fn read(name: &str, inside: Option<&str>) -> Result<What, Unread> {
        let several = of_several(name);
        if let Some((_, example, read)) = BUNDLES.iter().find(|(known, ..)| *known == name) {
            let of = inside.and_then(read);
            return of
                .map(What::Bundle)
                .ok_or_else(|| Unread::Argument(bundles::fix(name, example)));
        }
        let Some(inside) = inside else {
            if let Some((_, what)) = FIGURES.iter().find(|(known, _)| *known == name) {
                return Ok(what.clone());
            }
            return Err(match (name, several) {
                (_, Some((_, kind))) => Unread::Argument(kind.fix(name)),
                (COMPLETED, None) => Unread::Argument(each::COMPLETIONS.fix(name)),
                ("share", None) => Unread::Argument(
                    "name one of the scenario's workloads in brackets, as `share(web)`".to_owned(),
                ),
                ("variation", None) => {
                    Unread::Argument("say over how long, as `variation(10ms)`".to_owned())
                }
                _ => Unread::Unknown(name.to_owned()),
            });
        };
        if let Some((statistic, kind)) = several {
            let each = kind
                .read(inside)
                .ok_or_else(|| Unread::Argument(kind.fix(name)))?;
            return Ok(What::Of(statistic, each));
        }
        if name == COMPLETED {
            return Ok(What::Completed(inside.to_owned()));
        }
        if let Some((_, what)) = SPANS.iter().find(|(known, _)| *known == name) {
            return match inside.parse::<Duration>() {
                Ok(span) if span > Duration::ZERO => Ok(what(span)),
                _ => Err(Unread::Argument(format!(
                    "give a time in the brackets, as `{name}(10ms)`"
                ))),
            };
        }
        if let ("goodput_mbit", (workload, span)) = (name, Span::split(inside))
            && span != Span::All
        {
            return Ok(What::GoodputIn(workload.to_owned(), span));
        }
        if let Some((_, value)) = WORKLOADS.iter().find(|(known, _)| *known == name) {
            return Ok(What::Workload(*value, inside.to_owned()));
        }
        Err(match FIGURES.iter().any(|(known, _)| *known == name) {
            true => Unread::Argument(format!("`{name}` takes nothing in brackets")),
            false => Unread::Unknown(name.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_are_read_by_name() {
        for name in [
            "goodput_mbit",
            "jain",
            "jain(10ms)",
            "variation(1s)",
            "completed(all)",
            "completion_p99_ms(<= 10kB)",
            "slowdown_max(all)",
            "convergence_p50_ms(0.95, 5ms)",
            "pooled completion_mean_ms(all)",
            "goodput_mbit(web)",
            "goodput_mbit(web in 1s..50%)",
            "share(web)",
            "slowdown_p99(<= 10kB of web)",
        ] {
            assert_eq!(Measure::read(name).unwrap().name, name);
        }
        for name in Measure::names() {
            assert!(
                !matches!(Measure::read(&name), Err(Unread::Unknown(_))),
                "{name}"
            );
        }
        for wrong in [
            "goodput",
            "goodputs(1ms)",
            "completion_p98_ms(all)",
            "pooled goodput",
        ] {
            assert!(
                matches!(Measure::read(wrong), Err(Unread::Unknown(_))),
                "{wrong}"
            );
        }
        for wrong in [
            "slowdown_p50",
            "completed",
            "share",
            "variation",
            "jain(never)",
            "drops(all)",
            "convergence_p50_ms(5ms)",
            "convergence_p50_ms(1.5, 5ms)",
            "convergence_p50_ms",
            "pooled utilisation",
            "pooled completed(all)",
        ] {
            let said = Measure::read(wrong);
            assert!(
                matches!(said, Err(Unread::Argument(_))),
                "{wrong}: {said:?}"
            );
        }
    }

    #[test]
    fn only_what_a_run_has_several_of_is_pooled() {
        let pooled = |name: &str| Measure::read(name).unwrap().pooled().is_some();
        assert!(pooled("pooled slowdown_p95(all)") && !pooled("slowdown_p95(all)"));
        let of = |statistic: Statistic| statistic.of([3.0, 1.0, 2.0]);
        assert_eq!(
            (of(Statistic::Mean), of(Statistic::Quantile(0.99))),
            (Some(2.0), Some(3.0))
        );
        assert_eq!(Statistic::Quantile(0.5).of([]), None);
    }
}
