//! What a figure, a column or a line shows: a value that every run has.

use ccplane_lab::metrics::{self, Distribution};
use ccplane_lab::result::{ContenderResult, Figures, SizeClass};
use ccplane_units::Duration;

/// A run, as measures look at it.
pub(super) struct Run<'r> {
    /// From when on it counts, and how long it lasts.
    pub warm: Duration,
    pub duration: Duration,
    /// Between two looks at its flows.
    pub sample_every: Duration,
    /// What a full packet takes to be sent at the bottleneck, µs.
    pub packet_us: f64,
    pub result: &'r ContenderResult,
}

/// A value of a run.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    /// As it is written.
    pub name: String,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A figure.
    Figure(fn(&Figures) -> f64),
    /// A time in the queue, ms, without the packet's own transmission, in µs.
    Wait(fn(&Figures) -> f64),
    /// Their mean.
    WaitMean,
    /// The same in packets.
    QueuePackets,
    Jain,
    /// Jain's index, the mean over spans of this length.
    JainOver(Duration),
    /// A flow's standard deviation over its mean, of its rate over such spans; the mean over flows.
    VariationOver(Duration),
    /// Of the flows of a size class that ended.
    Class(OfClass, String),
    Unfinished,
}

/// A value of a size class.
type OfClass = fn(&SizeClass) -> f64;

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

/// Those without anything in brackets.
static FIGURES: [(&str, What); 17] = [
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
    ("retransmissions", What::Figure(|f| f.retransmissions as f64)),
    ("queue_drops", What::Figure(|f| f.queue_drops as f64)),
    ("random_losses", What::Figure(|f| f.random_losses as f64)),
    ("drops", What::Figure(|f| (f.queue_drops + f.random_losses) as f64)),
    ("jain", What::Jain),
    ("unfinished", What::Unfinished),
];

/// Those of a size class.
static CLASSES: [(&str, OfClass); 7] = [
    ("completed", |class| class.flows as f64),
    ("completion_mean_ms", |class| class.mean_ms),
    ("completion_p50_ms", |class| class.p50_ms),
    ("completion_p99_ms", |class| class.p99_ms),
    ("slowdown_mean", |class| class.slowdown_mean),
    ("slowdown_p50", |class| class.slowdown_p50),
    ("slowdown_p99", |class| class.slowdown_p99),
];

/// Those of a span.
static SPANS: [(&str, OverSpan); 2] = [("jain", What::JainOver), ("variation", What::VariationOver)];

impl Measure {
    /// Every name.
    pub fn names() -> Vec<&'static str> {
        let all = FIGURES
            .iter()
            .map(|(name, _)| *name)
            .chain(CLASSES.iter().map(|(name, _)| *name));
        all.chain(["variation"]).collect()
    }

    /// `delay_p50_ms`, `jain(10ms)`, `completion_p99_ms(<= 10kB)`.
    pub fn read(text: &str) -> Result<Measure, Unread> {
        let of = |what| Measure {
            name: text.to_owned(),
            what,
        };
        let split = text.trim().strip_suffix(')').and_then(|rest| rest.split_once('('));
        let (name, inside) = split.map_or((text.trim(), None), |(name, inside)| (name.trim(), Some(inside.trim())));
        let Some(inside) = inside else {
            if let Some((_, what)) = FIGURES.iter().find(|(known, _)| *known == name) {
                return Ok(of(what.clone()));
            }
            return Err(match (CLASSES.iter().any(|c| c.0 == name), name == "variation") {
                (true, _) => Unread::Argument(format!(
                    "name a size class in brackets, as `{name}(all)` or `{name}(<= 10kB)`"
                )),
                (_, true) => Unread::Argument("say over how long, as `variation(10ms)`".to_owned()),
                _ => Unread::Unknown(name.to_owned()),
            });
        };
        if let Some((_, what)) = CLASSES.iter().find(|(known, _)| *known == name) {
            return Ok(of(What::Class(*what, inside.to_owned())));
        }
        if let Some((_, what)) = SPANS.iter().find(|(known, _)| *known == name) {
            return match inside.parse::<Duration>() {
                Ok(span) if span > Duration::ZERO => Ok(of(what(span))),
                _ => Err(Unread::Argument(format!(
                    "give a time in the brackets, as `{name}(10ms)`"
                ))),
            };
        }
        Err(match FIGURES.iter().any(|(known, _)| *known == name) {
            true => Unread::Argument(format!("`{name}` takes nothing in brackets")),
            false => Unread::Unknown(name.to_owned()),
        })
    }

    /// The length of the spans that it looks at, where it looks at flows over time.
    pub fn span(&self) -> Option<Duration> {
        match self.what {
            What::JainOver(span) | What::VariationOver(span) => Some(span),
            _ => None,
        }
    }

    /// What it is of this run; none where the run has nothing of the kind.
    pub fn of(&self, run: &Run<'_>) -> Option<f64> {
        let figures = &run.result.figures;
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
            What::JainOver(span) => {
                let flows = rates_over(run, *span);
                let spans = flows.first().map_or(0, Vec::len);
                let shares =
                    |at: usize| -> Vec<f64> { flows.iter().filter_map(|rates| rates.get(at).copied()).collect() };
                Distribution::new((0..spans).filter_map(|at| metrics::jain(&shares(at)))).mean()
            }
            What::VariationOver(span) => {
                let flows = rates_over(run, *span);
                Distribution::new(flows.iter().filter_map(|rates| variation(rates))).mean()
            }
            What::Class(value, label) => {
                let classes = &figures.completions.as_ref()?.classes;
                classes.iter().find(|class| class.label == *label).map(value)
            }
            What::Unfinished => figures.completions.as_ref().map(|all| all.unfinished as f64),
        }
    }
}

/// The standard deviation of a flow's rates over their mean.
fn variation(rates: &[f64]) -> Option<f64> {
    let mean = Distribution::new(rates.iter().copied())
        .mean()
        .filter(|mean| *mean > 0.0)?;
    let square = Distribution::new(rates.iter().map(|rate| (rate - mean) * (rate - mean))).mean()?;
    Some(square.sqrt() / mean)
}

/// Of each flow that was looked at, what it received between two looks, Mbit/s, from the run's beginning.
pub(super) fn rates(run: &Run<'_>) -> Vec<Vec<f64>> {
    let look = run.sample_every.as_nanos().max(1);
    let looks = (run.duration.as_nanos() / look) as usize;
    let flow = |samples: &Vec<ccplane_lab::result::Sample>| {
        let mut rates = vec![0.0; looks];
        let mut before = 0;
        for sample in samples.iter().filter(|sample| sample.at_ns > 0) {
            let at = (sample.at_ns / look) as usize;
            if let Some(rate) = at.checked_sub(1).and_then(|at| rates.get_mut(at)) {
                *rate = metrics::mbits(sample.received.saturating_sub(before), look);
            }
            before = sample.received;
        }
        rates
    };
    run.result.series.flows.iter().map(flow).collect()
}

/// The same over spans of this length, once the run is warm.
fn rates_over(run: &Run<'_>, span: Duration) -> Vec<Vec<f64>> {
    let look = run.sample_every.as_nanos().max(1);
    let (warm, looks) = (
        (run.warm.as_nanos() / look) as usize,
        (span.as_nanos() / look).max(1) as usize,
    );
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len().max(1) as f64;
    let flow = |rates: &Vec<f64>| {
        let counted = rates.get(warm..).unwrap_or_default();
        counted.chunks_exact(looks).map(mean).collect()
    };
    rates(run).iter().map(flow).collect()
}

#[cfg(test)]
mod tests {
    use ccplane_lab::result::{Sample, Series};

    use super::*;

    #[test]
    fn measures_are_read_by_name() {
        for name in [
            "goodput_mbit",
            "jain",
            "jain(10ms)",
            "variation(1s)",
            "completion_p99_ms(<= 10kB)",
        ] {
            assert_eq!(Measure::read(name).unwrap().name, name);
        }
        for name in Measure::names() {
            assert!(!matches!(Measure::read(name), Err(Unread::Unknown(_))), "{name}");
        }
        for wrong in ["goodput", "goodputs(1ms)"] {
            assert!(matches!(Measure::read(wrong), Err(Unread::Unknown(_))), "{wrong}");
        }
        for wrong in ["slowdown_p50", "variation", "jain(never)", "drops(all)"] {
            assert!(matches!(Measure::read(wrong), Err(Unread::Argument(_))), "{wrong}");
        }
    }

    /// Two flows that take turns.
    #[test]
    fn what_is_unfair_for_a_moment_may_be_fair_for_longer() {
        let ms = Duration::from_millis;
        let turns = |flow: u64| {
            let sample = |look: u64| Sample {
                at_ns: ms(look).as_nanos(),
                received: (look + flow) / 2 * 1_000,
                ..Sample::default()
            };
            (0..=300).map(sample).collect()
        };
        let result = ContenderResult {
            series: Series {
                flows: vec![turns(0), turns(1)],
                ..Series::default()
            },
            ..ContenderResult::default()
        };
        let run = Run {
            warm: ms(100),
            duration: ms(300),
            sample_every: ms(1),
            packet_us: 1.2,
            result: &result,
        };
        let of = |name: &str| Measure::read(name).unwrap().of(&run);
        assert_eq!((of("jain(1ms)"), of("jain(10ms)")), (Some(0.5), Some(1.0)));
        assert_eq!((of("variation(1ms)"), of("variation(10ms)")), (Some(1.0), Some(0.0)));
        assert_eq!(rates(&run)[1][..4], [8.0, 0.0, 8.0, 0.0]);
    }
}
