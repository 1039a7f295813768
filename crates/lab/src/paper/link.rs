//! One contender on one bottleneck, simulated or on kernel TCP, and what of it is kept.

use ccplane_algorithms::Registry;
use ccplane_emu::Timing;
use ccplane_qdisc::{LineSpec, LossModel, QueueSpec};
use ccplane_units::Duration;
use serde::{Deserialize, Serialize};

use super::pool::Job;
use super::{Datapath, Options};
use crate::error::Error;
use crate::experiment::Contender;
use crate::parts::part;
use crate::result::ContenderResult;
use crate::run::{Progress, Quiet, run};
use crate::scenario::{Scenario, Seeds, Topology};
use crate::sim;

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
    /// Its number among those that are alike. They all meet the same losses, as the paper's: the n-th packet to come to the
    /// link has the same fate under everybody and in every run.
    pub number: usize,
    pub on: Datapath,
    pub registry: &'a Registry,
}

/// Of the losses.
const SEED: u64 = 1;

/// Between two looks at the window.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What is kept of a run: the distributions' values and a few figures, not every sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    /// Mbit/s in each round-trip time.
    pub throughput: Vec<f64>,
    /// Mean queueing delay in each round-trip time, ms.
    pub delay: Vec<f64>,
    /// The window at each look, segments.
    pub window: Vec<u32>,
    pub goodput_mbit: f64,
    pub utilisation: f64,
    pub delay_mean_ms: f64,
    pub delay_p95_ms: f64,
    pub retransmissions: u64,
    /// Packets that the queue dropped or the link lost.
    pub dropped: u64,
    pub sound: bool,
}

impl From<ContenderResult> for Summary {
    fn from(result: ContenderResult) -> Summary {
        let short = |values: Vec<f64>| values.into_iter().map(|v| (v * 1e4).round() / 1e4).collect();
        let flow = result.series.flows.first();
        Summary {
            throughput: short(result.series.throughputs()),
            delay: short(result.series.delays()),
            window: flow.map_or(Vec::new(), |samples| samples.iter().map(|s| s.tcp.cwnd).collect()),
            goodput_mbit: result.figures.goodput_mbit,
            utilisation: result.figures.utilisation,
            delay_mean_ms: result.figures.delay_mean_ms,
            delay_p95_ms: result.figures.delay_p95_ms,
            retransmissions: result.figures.retransmissions,
            dropped: result.figures.queue_drops + result.figures.random_losses,
            sound: result.audit.sound,
        }
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
            "{line_name} {rtt} {queue} {loss} {} {} {}",
            self.contender, self.duration, self.number
        )
    }

    fn run(&self) -> Result<Summary, Error> {
        self.simulate()
    }
}

impl OneRun<'_> {
    fn simulate(&self) -> Result<Summary, Error> {
        let text = format!(
            "contenders = [\"{}\"]\nduration = \"{}\"\nsample = \"{LOOK}\"\n[topology.dumbbell]\nrate = \"96mbit\"\nrtt = \"{}\"\nqueue = \"{}\"\nloss = \
             \"{}\"\n[[workload]]\nbulk = {{}}\n",
            self.contender, self.duration, self.link.rtt, self.link.queue, self.link.loss
        );
        let folder = std::path::Path::new(".");
        let mut scenario = Scenario::parse("the paper's link", &text, folder).map_err(Error::Scenario)?;
        if let Topology::Dumbbell { bottleneck, .. } = &mut scenario.topology {
            bottleneck.line = self.link.line.clone();
            bottleneck.line_name.clone_from(&self.link.line_name);
        }
        let options = sim::Options {
            seeds: Seeds::one(SEED),
            threads: 1,
            command: String::new(),
            repeat: "ccplane paper --datapath sim".to_owned(),
            packet_logs: None,
        };
        let result = sim::run(&scenario, self.registry, &options, &Quiet)?;
        result
            .contenders
            .into_iter()
            .next()
            .map(Summary::from)
            .ok_or(Error::NoContender)
    }

    fn experiment(&self, options: &Options) -> crate::Experiment {
        crate::Experiment {
            contenders: vec![self.contender.clone()],
            line: self.link.line.clone(),
            line_name: self.link.line_name.clone(),
            rtt: self.link.rtt,
            queue: self.link.queue,
            queue_name: self.link.queue.to_string(),
            loss: self.link.loss,
            jitter: Duration::ZERO,
            reorder: false,
            timing: Timing::Precise,
            seed: SEED,
            flows: 1,
            duration: self.duration,
            sample_every: LOOK,
            command: options.command.clone(),
        }
    }
}

/// Runs all of them on kernel TCP, one after the other, and keeps each. What was disturbed is run again in its
/// time ([`Options::again`]).
pub(super) fn on_kernel(
    runs: &[OneRun<'_>],
    options: &Options,
    progress: &mut dyn Progress,
) -> Result<Vec<Summary>, Error> {
    let file = |one: &OneRun<'_>| (format!("{}.json", one.name()), one.key());
    let again = options.again::<Summary>(runs.iter().map(file));
    let mut summaries = Vec::with_capacity(runs.len());
    for (index, one) in runs.iter().enumerate() {
        let (name, key) = file(one);
        let mut steps = Steps {
            inner: progress,
            index,
            of: runs.len(),
        };
        let run = || {
            let result = run(&one.experiment(options), one.registry, &mut steps)?;
            let contender = result.contenders.into_iter().next();
            contender.map(Summary::from).ok_or(Error::NoContender)
        };
        summaries.push(part(
            &options.parts(),
            &name,
            &key,
            |summary: &Summary| summary.sound || !again,
            run,
        )?);
    }
    Ok(summaries)
}

/// Places each run among all, for a progress bar.
pub(super) struct Steps<'a> {
    pub inner: &'a mut dyn Progress,
    pub index: usize,
    pub of: usize,
}

impl Progress for Steps<'_> {
    fn begin(&mut self, contender: &str, _index: usize, _of: usize) {
        self.inner.begin(contender, self.index, self.of);
    }
    fn step(&mut self, share: f64, goodput_mbit: f64) {
        self.inner.step(share, goodput_mbit);
    }
    fn end(&mut self, result: &ContenderResult) {
        self.inner.end(result);
    }
    fn cancelled(&self) -> bool {
        self.inner.cancelled()
    }
}
