//! One contender on one bottleneck, simulated or on kernel TCP, and what of it is kept.

use ccplane_algorithms::Registry;
use ccplane_emu::Timing;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::result::ContenderResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, NoProgress, Progress, ProgressStep, RunOptions, Sim, run};
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
use ccplane_testbed::{RealPackets, TransportKind};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};

use super::simulations::Job;
use super::{Datapath, Options};

/// The bottleneck.
#[derive(Clone, Debug)]
pub(super) struct Link {
    /// In names of parts and figures.
    pub name: &'static str,
    pub line: LineSpec,
    pub line_name: String,
    pub rtt: Duration,
    pub queue: QueueSpec,
    pub loss: LossModel,
}

/// One run.
#[derive(Clone)]
pub(super) struct OneRun<'a> {
    pub link: &'a Link,
    pub contender: Contender,
    pub duration: Duration,
    /// Its number among those that are alike.
    pub number: usize,
    /// Of the losses: with one seed the n-th packet to come to the link has the same fate under
    /// everybody.
    pub seed: u64,
    /// Whether the window's course is kept.
    pub course: bool,
    pub on: Datapath,
    pub registry: &'a Registry,
}

/// The seed of runs on kernel TCP: they all meet the same losses, as the paper's.
pub(super) const SEED: u64 = 1;

/// Between two looks at the window.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What is kept of a run: two distributions and a few figures, not every sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    /// Mbit/s in each round-trip time. Which came when is not kept.
    #[serde(with = "tally")]
    pub throughput: Vec<f64>,
    /// Mean queueing delay in each round-trip time, ms. Which came when is not kept.
    #[serde(with = "tally")]
    pub delay: Vec<f64>,
    /// The window at each look, segments, where it is wanted.
    pub window: Vec<u32>,
    pub goodput_mbit: f64,
    pub utilisation: f64,
    pub delay_mean_ms: f64,
    pub delay_p95_ms: f64,
    pub retransmissions: u64,
    /// Packets that the queue dropped or the link lost.
    pub dropped: u64,
    pub sound: bool,
    /// What the machine did.
    #[serde(default)]
    pub disturbed: Vec<String>,
}

impl Summary {
    fn of(result: &ContenderResult, course: bool) -> Summary {
        let flow = result.series.flows.first().filter(|_| course);
        Summary {
            throughput: tally::rounded(result.series.throughputs()),
            delay: tally::rounded(result.series.delays()),
            window: flow.map_or(Vec::new(), |samples| {
                samples.iter().map(|s| s.tcp.cwnd).collect()
            }),
            goodput_mbit: result.metrics.goodput_mbit,
            utilisation: result.metrics.utilisation,
            delay_mean_ms: result.metrics.delay_mean_ms,
            delay_p95_ms: result.metrics.delay_p95_ms,
            retransmissions: result.metrics.retransmissions,
            dropped: result.metrics.queue_drops + result.metrics.random_losses,
            sound: result.audit.sound,
            disturbed: result.audit.disturbed.clone(),
        }
    }
}

/// Values in hundredths and how often each came: a minute of round-trip times is some kilobytes.
mod tally {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Of a unit: 10 kbit/s, 10 µs. A packet at 96 Mbit/s in 20 ms is 60 of the one and takes 12 of
    /// the other.
    const PARTS: f64 = 100.0;

    /// As they are once they have been kept.
    pub fn rounded(values: Vec<f64>) -> Vec<f64> {
        expand(&count(&values))
    }

    pub fn serialize<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
        count(values).serialize(to)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<f64>, D::Error> {
        BTreeMap::deserialize(from).map(|counts| expand(&counts))
    }

    fn count(values: &[f64]) -> BTreeMap<i64, usize> {
        let mut counts = BTreeMap::new();
        for value in values {
            *counts.entry((value * PARTS).round() as i64).or_default() += 1;
        }
        counts
    }

    fn expand(counts: &BTreeMap<i64, usize>) -> Vec<f64> {
        let values = counts.iter();
        values
            .flat_map(|(value, count)| std::iter::repeat_n(*value as f64 / PARTS, *count))
            .collect()
    }
}

impl Job for OneRun<'_> {
    type Result = Summary;

    fn name(&self) -> String {
        let who = self.contender.to_string().replace([':', '='], "-");
        format!("{}-{}-{who}-{}", self.on, self.link.name, self.number)
    }

    fn key(&self) -> String {
        let Link {
            line_name,
            rtt,
            queue,
            loss,
            ..
        } = self.link;
        format!(
            "{line_name} {rtt} {queue} {loss} {} {} {}{}",
            self.contender,
            self.duration,
            self.number,
            if self.seed == SEED {
                String::new()
            } else {
                format!(" seed {}", self.seed)
            }
        )
    }

    fn run(&self) -> Result<Summary, Error> {
        self.run_on(&Sim::default(), &NoProgress)
    }
}

impl OneRun<'_> {
    /// There, where it is to run.
    fn run_on(&self, backend: &dyn Backend, progress: &dyn Progress) -> Result<Summary, Error> {
        let Link { rtt, queue, .. } = *self.link;
        let contenders = vec![self.contender.clone()];
        let scenario = Scenario::dumbbell(
            contenders,
            Rate::from_bytes_per_sec(0),
            rtt,
            queue,
            self.duration,
        )
        .with_sample_interval(LOOK)
        .with_bottleneck(|bottleneck| {
            bottleneck.line = self.link.line.clone();
            bottleneck.line_name.clone_from(&self.link.line_name);
            bottleneck.loss = self.link.loss;
        });
        let once = RunOptions::single(self.seed, "ccplane paper --datapath sim");
        let result = run(backend, &scenario, self.registry, &once, progress)?;
        let contender = result.contenders.first().ok_or(Error::NoContender)?;
        Ok(Summary::of(contender, self.course))
    }
}

/// Runs all of them on kernel TCP, one after the other, and keeps each. What was disturbed is run
/// again in its time ([`Options::parts_of`]).
pub(super) fn on_kernel(
    runs: &[OneRun<'_>],
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Summary>, Error> {
    let file = |one: &OneRun<'_>| (format!("{}.json", one.name()), one.key());
    let parts = options.parts_of::<Summary>(runs.iter().map(file));
    let mut summaries = Vec::with_capacity(runs.len());
    for (index, one) in runs.iter().enumerate() {
        let (name, key) = file(one);
        let step = ProgressStep::begin(progress, index, runs.len(), &one.contender.to_string());
        let backend = RealPackets {
            timing: Timing::Precise,
            ..RealPackets::new(TransportKind::Tcp)
        };
        let run = || one.run_on(&backend, &step);
        summaries.push(parts.part(
            &name,
            &key,
            |summary: &Summary| Disturbed::from(&summary.disturbed),
            run,
        )?);
    }
    Ok(summaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_same_once_it_was_kept() {
        let measured = vec![91.584, 0.004, 92.16, 91.578, -0.004];
        let summary = Summary {
            throughput: tally::rounded(measured),
            ..Summary::default()
        };
        assert_eq!(summary.throughput, [0.0, 0.0, 91.58, 91.58, 92.16]);
        let text = serde_json::to_string(&summary).unwrap();
        assert!(
            text.contains(r#""throughput":{"0":2,"9158":2,"9216":1}"#),
            "{text}"
        );
        let again: Summary = serde_json::from_str(&text).unwrap();
        assert_eq!(again.throughput, summary.throughput);
    }
}
