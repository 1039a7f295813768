//! Figures of a bundle: its mode, its queue, the network's, and the error of its own measurements.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use ccplane_lab::metrics::Distribution;
use ccplane_lab::result::{BundleMetrics, BundleSample};
use ccplane_lab::scenario::{Scenario, Topology};
use ccplane_units::Duration;

use super::each::Of;
use super::seen::Run;
use super::spans::{self, Part, Span};

/// A bundle in a span: `all`, `60s..120s`, `cross`, `all of near`, `all of near -> far`.
#[derive(Clone, Debug)]
pub(super) struct Bundled {
    span: Span,
    /// The sendbox' switch, or both; `None`: the only one there is.
    name: Option<String>,
}

/// A value of a bundle.
#[derive(Clone, Debug)]
pub(super) enum OfBundle {
    /// The share of the span in which it is in this mode.
    Share(u8, Bundled),
    /// Mean time that the box' queue is long while the mode is one of these, ms.
    Queue(&'static [u8], Bundled),
    /// Mean time that the box' queue is long at the link's capacity, as the algorithm knows it,
    /// while it lets traffic pass, ms.
    QueueOfLink(Bundled),
    /// A quantile of the RTT above its least, ms.
    Network(f64, Bundled),
    /// From a workload's start to when it lets traffic pass, s; where it does not, to the
    /// workload's stop.
    Detect(Bundled),
    /// From a workload's stop to when it does not let traffic pass for so long, s; where it always
    /// does, to the run's end.
    Resume(Bundled, Duration),
    /// How often it ceased to let traffic pass while the workload was there.
    FalseExits(Bundled),
    /// 1 where it was opened because of several paths and there is one, or was not and there are
    /// several; else 0.
    Misjudged(Bundled),
    /// The share of packets that came out of order, in the whole run.
    OutOfOrder(Bundled),
}

/// What reads one, by what stands in brackets.
type Reads = fn(&str) -> Option<OfBundle>;

/// All of them, with an example of what stands in brackets.
pub(super) static BUNDLES: [(&str, &str, Reads); 13] = [
    ("open_share", "all", |text| {
        Some(OfBundle::Share(OPEN, Bundled::read(text)))
    }),
    ("delay_share", "all", |text| {
        Some(OfBundle::Share(DELAY, Bundled::read(text)))
    }),
    ("passing_share", "all", |text| {
        Some(OfBundle::Share(PASSING, Bundled::read(text)))
    }),
    ("box_queue_ms", "all", |text| {
        Some(OfBundle::Queue(&[DELAY, PASSING], Bundled::read(text)))
    }),
    ("passing_queue_ms", "all", |text| {
        Some(OfBundle::Queue(&[PASSING], Bundled::read(text)))
    }),
    ("passing_queue_of_link_ms", "all", |text| {
        Some(OfBundle::QueueOfLink(Bundled::read(text)))
    }),
    ("network_queue_p50_ms", "all", |text| {
        Some(OfBundle::Network(0.5, Bundled::read(text)))
    }),
    ("network_queue_p95_ms", "all", |text| {
        Some(OfBundle::Network(0.95, Bundled::read(text)))
    }),
    ("detect_s", "cross", |text| {
        Some(OfBundle::Detect(Bundled::read(text)))
    }),
    ("resume_s", "cross, 5s", |text| {
        let (bundled, hold) = with_hold(text)?;
        Some(OfBundle::Resume(bundled, hold))
    }),
    ("false_exits", "cross", |text| {
        Some(OfBundle::FalseExits(Bundled::read(text)))
    }),
    ("multipath_misjudged", "all", |text| {
        Some(OfBundle::Misjudged(Bundled::read(text)))
    }),
    ("out_of_order_share", "all", |text| {
        Some(OfBundle::OutOfOrder(Bundled::read(text)))
    }),
];

/// Modes as samples have them.
const OPEN: u8 = 0;
const DELAY: u8 = 1;
const PASSING: u8 = 2;

/// `cross, 5s`, `cross, 5s of near`: the time behind the comma, and the rest.
fn with_hold(text: &str) -> Option<(Bundled, Duration)> {
    let (span, hold) = text.split_once(',')?;
    let (hold, name) = hold
        .split_once(" of ")
        .map_or((hold, None), |(hold, name)| (hold, Some(name)));
    let bundled = Bundled {
        span: Span::read(span),
        name: name.map(|name| name.trim().to_owned()),
    };
    Some((bundled, hold.trim().parse().ok()?))
}

impl Bundled {
    pub fn read(text: &str) -> Bundled {
        let (span, name) = text
            .split_once(" of ")
            .map_or((text, None), |(span, name)| (span, Some(name)));
        Bundled {
            span: Span::read(span),
            name: name.map(|name| name.trim().to_owned()),
        }
    }

    /// Whether it is of that sendbox, at a switch of this name, or of both boxes.
    fn is(&self, title: &str) -> bool {
        let sendbox = title.split(" -> ").next().unwrap_or_default();
        self.name
            .as_ref()
            .is_none_or(|name| name == title || name == sendbox)
    }

    /// What is wrong with it for runs of this scenario, and what helps.
    pub fn unfit(&self, scenario: &Scenario) -> Option<(String, String)> {
        let titles: Vec<String> = scenario
            .bundles
            .iter()
            .map(|bundle| bundle.title())
            .collect();
        let count = titles.iter().filter(|title| self.is(title)).count();
        match (count, &self.name) {
            (1, _) => self.span.unfit(scenario),
            (0, None) => Some((
                "the scenario has no bundle".to_owned(),
                "add a `[[bundle]]`, or measure something else".to_owned(),
            )),
            (0, Some(name)) => Some((
                format!("the scenario has no bundle `{name}`"),
                format!(
                    "name one of `{}` by its `from`, as in `all of near`",
                    titles.join("`, `")
                ),
            )),
            _ => Some((
                format!("{count} bundles are meant"),
                format!(
                    "name one of `{}`, as in `all of {}`",
                    titles.join("`, `"),
                    titles[0]
                ),
            )),
        }
    }

    fn figures<'r>(&self, run: &Run<'r>) -> Option<(&'r BundleMetrics, &'r [BundleSample])> {
        let bundles = run.result.metrics.bundles.iter();
        let mut all = bundles.zip(&run.result.series.bundles);
        let (figures, samples) = all.find(|(figures, _)| self.is(&figures.name))?;
        Some((figures, samples.as_slice()))
    }

    /// The looks in the span.
    fn samples<'r>(&self, run: &Run<'r>) -> Option<&'r [BundleSample]> {
        let (_, samples) = self.figures(run)?;
        let span = self.span.bounds(run.scenario)?;
        let at = |ns: u64| samples.partition_point(|sample| sample.at_ns < ns);
        samples.get(at(span.start)..at(span.end))
    }

    /// When it let traffic pass, in ns, to the run's end.
    fn passing(&self, run: &Run<'_>) -> Option<Vec<Range<u64>>> {
        let (figures, _) = self.figures(run)?;
        let mut all: Vec<Range<u64>> = Vec::new();
        let mut since = None;
        for change in &figures.changes {
            let at = (change.at_s * 1e9) as u64;
            match (change.to == "passing", since) {
                (true, None) => since = Some(at),
                (false, Some(from)) => {
                    all.push(from..at);
                    since = None;
                }
                _ => {}
            }
        }
        all.extend(since.map(|from| from..run.scenario.duration.as_nanos()));
        Some(all)
    }

    /// How far what it measured is from what the bottleneck did, at every look in the span from the
    /// run's `warm` on at which both are known.
    pub fn errors(&self, run: &Run<'_>, of: Of) -> Vec<f64> {
        let warm = run.scenario.warm_up.as_nanos();
        let samples = self.samples(run).unwrap_or_default();
        let known = samples.iter().filter(|sample| {
            sample.at_ns >= warm && sample.rtt_ms > 0.0 && sample.actual_rtt_ms > 0.0
        });
        let error = |sample: &BundleSample| match of {
            Of::Rtt => (sample.rtt_ms - sample.actual_rtt_ms).abs(),
            Of::Rate => (sample.received_mbit - sample.actual_received_mbit).abs(),
        };
        known.map(error).collect()
    }
}

impl fmt::Display for Bundled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.span)?;
        self.name
            .as_ref()
            .map_or(Ok(()), |name| write!(f, " of {name}"))
    }
}

impl OfBundle {
    fn bundled(&self) -> &Bundled {
        match self {
            OfBundle::Share(_, bundled)
            | OfBundle::Queue(_, bundled)
            | OfBundle::QueueOfLink(bundled)
            | OfBundle::Network(_, bundled)
            | OfBundle::Detect(bundled)
            | OfBundle::Resume(bundled, _)
            | OfBundle::FalseExits(bundled)
            | OfBundle::Misjudged(bundled)
            | OfBundle::OutOfOrder(bundled) => bundled,
        }
    }

    /// What is wrong with it for runs of this scenario, and what helps.
    pub fn unfit(&self, scenario: &Scenario) -> Option<(String, String)> {
        let bundled = self.bundled();
        let of_a_workload = matches!(
            self,
            OfBundle::Detect(_) | OfBundle::Resume(..) | OfBundle::FalseExits(_)
        );
        if let Some(wrong) = bundled.unfit(scenario) {
            return Some(wrong);
        }
        match (self, &bundled.span) {
            (OfBundle::Resume(..), Span::Of(Part::While, name)) => {
                let stops = spans::workload(name, scenario).and_then(|workload| workload.stop);
                let ends = stops.is_none_or(|stop| stop >= scenario.duration);
                ends.then(|| {
                    (
                        format!("`{name}` does not stop before the run ends"),
                        "give it a `stop`, or the run a longer `duration`".to_owned(),
                    )
                })
            }
            (_, Span::Of(Part::While, _)) => None,
            (_, span) if of_a_workload => Some((
                format!("`{span}` is no workload that comes and goes"),
                "name the workload that is to be found".to_owned(),
            )),
            _ => None,
        }
    }

    /// What it is of this run; none where the run has nothing of the kind.
    pub fn of(&self, run: &Run<'_>) -> Option<f64> {
        let bundled = self.bundled();
        let span = bundled.span.bounds(run.scenario)?;
        match self {
            OfBundle::Share(mode, _) => {
                let samples = bundled.samples(run)?;
                let of_it = samples.iter().filter(|sample| sample.mode == *mode).count();
                Some(of_it as f64 / samples.len().max(1) as f64)
            }
            OfBundle::Queue(modes, _) => {
                let samples = bundled.samples(run)?.iter();
                let queues = samples.filter(|sample| modes.contains(&sample.mode));
                Distribution::new(queues.filter_map(BundleSample::box_queue_ms)).mean()
            }
            OfBundle::QueueOfLink(_) => {
                let samples = bundled.samples(run)?.iter();
                let passing = samples.filter(|sample| sample.mode == PASSING);
                Distribution::new(passing.filter_map(BundleSample::link_queue_ms)).mean()
            }
            OfBundle::Network(share, _) => {
                let queues = bundled
                    .samples(run)?
                    .iter()
                    .filter_map(BundleSample::network_queue_ms);
                Distribution::new(queues).quantile(*share)
            }
            OfBundle::Detect(_) => {
                let passing = bundled.passing(run)?;
                let first = passing
                    .iter()
                    .find(|passing| passing.end > span.start && passing.start < span.end);
                let at = first.map_or(span.end, |passing| passing.start.max(span.start));
                Some((at - span.start) as f64 / 1e9)
            }
            OfBundle::Resume(_, hold) => {
                let end = run.scenario.duration.as_nanos();
                let passing = bundled.passing(run)?;
                let ends = passing.iter().map(|passing| passing.end);
                let mut tries: Vec<u64> = ends
                    .chain([span.end])
                    .filter(|at| *at >= span.end)
                    .collect();
                tries.sort_unstable();
                let holds = |at: &u64| {
                    let until = (at + hold.as_nanos()).min(end);
                    !passing
                        .iter()
                        .any(|passing| passing.start < until && passing.end > *at)
                };
                let at = tries.into_iter().find(holds).unwrap_or(end);
                Some((at - span.end) as f64 / 1e9)
            }
            OfBundle::FalseExits(_) => {
                let passing = bundled.passing(run)?;
                let exits = passing
                    .iter()
                    .filter(|passing| passing.end > span.start && passing.end < span.end);
                Some(exits.count() as f64)
            }
            OfBundle::Misjudged(_) => {
                let (figures, _) = bundled.figures(run)?;
                let judged = opened_by(figures, "multipath", &span);
                Some(f64::from(judged != several_paths(run.scenario)))
            }
            OfBundle::OutOfOrder(_) => bundled
                .figures(run)
                .map(|(figures, _)| figures.out_of_order_share),
        }
    }
}

/// Whether a bundle was opened in a span for this reason.
fn opened_by(figures: &BundleMetrics, reason: &str, span: &Range<u64>) -> bool {
    figures.changes.iter().any(|change| {
        let at = (change.at_s * 1e9) as u64;
        change.to == "open" && change.why == reason && span.contains(&at)
    })
}

/// Whether links lie side by side.
fn several_paths(scenario: &Scenario) -> bool {
    let Topology::Graph { links, .. } = &scenario.topology else {
        return false;
    };
    let ends: BTreeSet<(&str, &str)> = links
        .iter()
        .map(|link| (link.from.text.as_str(), link.to.text.as_str()))
        .collect();
    ends.len() < links.len()
}

/// What to write where the brackets are wrong.
pub(super) fn fix(name: &str, example: &str) -> String {
    let what = match name {
        "detect_s" | "false_exits" => "name the workload that comes and goes in brackets",
        "resume_s" => "name the workload that goes in brackets, and for how long it has to stay so",
        _ => "say over which span in brackets",
    };
    format!("{what}, as `{name}({example})`")
}

#[cfg(test)]
mod tests {
    use ccplane_lab::result::{BundleChange, ContenderMetrics, ContenderResult, Series};
    use ccplane_lab::scenario::Contender;

    use super::super::measure::Measure;
    use super::*;

    /// A run of a minute with a workload from 20 to 40 s, in which bundles passed at these times.
    fn scenario(bundles: &str) -> Scenario {
        let text = format!(
            "contenders = [\"native:reno\"]\nduration = \"60s\"\nbundle = [{bundles}]\n\
             node = [{{ name = \"a\" }}, {{ name = \"b\" }}, {{ name = \"near\", switch = true }}, {{ name = \"far\", switch = true }}]\n\
             link = [{{ from = \"a\", to = \"near\" }}, {{ from = \"near\", to = \"far\", rate = \"1mbit\", paths = 2 }}, \
             {{ from = \"far\", to = \"b\" }}]\n\
             workload = [{{ name = \"web\", from = \"a\", to = \"b\", bulk = {{}} }}, \
             {{ name = \"cross\", from = \"a\", to = \"b\", start = \"20s\", stop = \"40s\", bulk = {{}} }}]\n"
        );
        Scenario::parse("a.toml", &text, std::path::Path::new(".")).unwrap()
    }

    const ONE: &str = "{ from = \"near\", to = \"far\" }";

    fn result(passing: &[(f64, f64)]) -> ContenderResult {
        let change = |at_s: f64, to: &str, why: &str| BundleChange {
            at_s,
            to: to.to_owned(),
            why: why.to_owned(),
        };
        let mut changes = vec![change(0.5, "delay", "queue")];
        for (from, to) in passing {
            changes.push(change(*from, "passing", "elastic"));
            if *to < 60.0 {
                changes.push(change(*to, "delay", "inelastic"));
            }
        }
        let sample = |second: u64| {
            let passes = passing
                .iter()
                .any(|(from, to)| (*from..*to).contains(&(second as f64)));
            BundleSample {
                at_ns: second * 1_000_000_000,
                mode: if passes { PASSING } else { DELAY },
                limit_mbit: 8.0,
                capacity_mbit: 16.0,
                waiting_bytes: if passes { 20_000 } else { 10_000 },
                rtt_ms: 50.0 + second as f64,
                min_rtt_ms: 50.0,
                received_mbit: 7.0,
                actual_rtt_ms: if second == 0 {
                    0.0
                } else {
                    48.0 + second as f64
                },
                actual_received_mbit: 7.5,
                ..BundleSample::default()
            }
        };
        let figures = BundleMetrics {
            name: "near -> far".to_owned(),
            out_of_order_share: 0.25,
            changes,
            ..BundleMetrics::default()
        };
        ContenderResult {
            metrics: ContenderMetrics {
                bundles: vec![figures],
                ..ContenderMetrics::default()
            },
            series: Series {
                bundles: vec![(0..60).map(sample).collect()],
                ..Series::default()
            },
            ..ContenderResult::default()
        }
    }

    fn of(name: &str, passing: &[(f64, f64)]) -> Option<f64> {
        let scenario = scenario(ONE);
        let measure = Measure::read(name).unwrap();
        assert_eq!(measure.unfit(&scenario), None, "{name}");
        let result = result(passing);
        measure.of(&Run {
            scenario: &scenario,
            packet_us: 1.0,
            result: &result,
        })
    }

    #[test]
    fn a_workload_is_found_and_its_end_too() {
        let of = |name: &str, passing: &[(f64, f64)]| of(name, passing).unwrap();
        // Found after 3 s, left falsely for 2, left 1.5 s after it went.
        let once = [(23.0, 30.0), (32.0, 41.5)];
        assert_eq!(of("detect_s(cross)", &once), 3.0);
        assert_eq!(of("false_exits(cross)", &once), 1.0);
        assert_eq!(of("resume_s(cross, 5s)", &once), 1.5);
        // It passed before already; and never; and left before the end, for good.
        assert_eq!(of("detect_s(cross)", &[(10.0, 41.0)]), 0.0);
        assert_eq!(
            (of("detect_s(cross)", &[]), of("resume_s(cross, 5s)", &[])),
            (20.0, 0.0)
        );
        assert_eq!(of("resume_s(cross, 5s)", &[(23.0, 39.0)]), 0.0);
        assert_eq!(of("false_exits(cross)", &[(23.0, 39.0), (43.0, 44.0)]), 1.0);
        // A return that does not hold is none, and one that never comes lasts to the end.
        assert_eq!(
            of("resume_s(cross, 5s)", &[(23.0, 42.0), (45.0, 48.0)]),
            8.0
        );
        assert_eq!(
            of("resume_s(cross, 2s)", &[(23.0, 42.0), (45.0, 48.0)]),
            2.0
        );
        assert_eq!(of("resume_s(cross, 5s)", &[(23.0, 60.0)]), 20.0);
    }

    #[test]
    fn shares_and_queues_are_of_the_span() {
        let of = |name: &str| of(name, &[(20.0, 30.0)]);
        assert_eq!(of("passing_share(cross)"), Some(0.5));
        assert_eq!(
            (of("passing_share(before cross)"), of("delay_share(all)")),
            (Some(0.0), Some(50.0 / 60.0))
        );
        // At 8 Mbit/s a kilobyte is a millisecond.
        assert_eq!(
            (of("passing_queue_ms(all)"), of("box_queue_ms(cross)")),
            (Some(20.0), Some(15.0))
        );
        assert_eq!(
            of("passing_queue_of_link_ms(all)"),
            Some(10.0),
            "the link has twice the rate"
        );
        assert_eq!(of("passing_queue_ms(after cross)"), None);
        assert_eq!(of("network_queue_p50_ms(10s..20s)"), Some(14.0));
        assert_eq!(of("out_of_order_share(all)"), Some(0.25));
        assert_eq!(
            of("multipath_misjudged(all of near)"),
            Some(1.0),
            "there are two paths"
        );
        // The first look has nothing to stand beside.
        assert_eq!(
            (of("rtt_error_max_ms(all)"), of("rate_error_p80_mbit(all)")),
            (Some(2.0), Some(0.5))
        );
        let errors = Bundled::read("all").errors(
            &Run {
                scenario: &scenario(ONE),
                packet_us: 1.0,
                result: &result(&[]),
            },
            Of::Rtt,
        );
        assert_eq!(errors.len(), 59);
    }

    #[test]
    fn a_bundle_is_named_where_there_are_several() {
        let unfit =
            |name: &str, bundles: &str| Measure::read(name).unwrap().unfit(&scenario(bundles));
        let back = "{ from = \"far\", to = \"near\" }";
        let two = format!("{ONE}, {back}");
        assert_eq!(unfit("passing_share(all of near)", &two), None);
        assert_eq!(unfit("passing_share(all of near -> far)", &two), None);
        let (what, fix) = unfit("passing_share(all)", &two).unwrap();
        assert!(
            what.contains("2 bundles") && fix.contains("`near -> far`, `far -> near`"),
            "{what}; {fix}"
        );
        let (what, fix) = unfit("passing_share(all of left)", &two).unwrap();
        assert!(
            what.contains("`left`") && fix.contains("all of near"),
            "{what}; {fix}"
        );
        assert!(
            unfit("passing_share(all)", "")
                .unwrap()
                .0
                .contains("no bundle")
        );
        let (what, _) = unfit("detect_s(10s..20s)", ONE).unwrap();
        assert!(what.contains("no workload that comes"), "{what}");
        let (what, fix) = unfit("resume_s(web, 5s)", ONE).unwrap();
        assert!(
            what.contains("does not stop") && fix.contains("`stop`"),
            "{what}"
        );
        assert_eq!(scenario(ONE).contenders, [Contender::native("reno")]);
    }
}
