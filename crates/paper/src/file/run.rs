//! Runs a paper: every point of its grid with every seed, and what is kept of each.

use std::collections::BTreeMap;

use ccplane_algorithms::Registry;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::result::RunResult;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Error, NoProgress, Progress, ProgressStep, RunOptions, Sim};
use ccplane_testbed::{RealPackets, TransportKind};
use ccplane_units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

use super::measure::Measure;
use super::{Paper, Point, X, rates, seen, shown};
use crate::simulations::{self, Job};
use crate::{Coded, Datapath, Experiment, Options, Outcome};

/// What is kept of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    /// Its measures by name; those that it does not have are missing.
    pub values: BTreeMap<String, f64>,
    /// Of measures that are of all seeds together, what this one adds.
    #[serde(default)]
    pub several: BTreeMap<String, Vec<f64>>,
    /// Where a chart draws it: of each thousandth of the packets the time in the queue, µs.
    #[serde(default)]
    pub delays_us: Vec<f64>,
    /// Where a chart draws it: of each flow what it received between two looks, Mbit/s, and ms
    /// between them.
    #[serde(default)]
    pub rates: Vec<Vec<f64>>,
    #[serde(default)]
    pub look_ms: f64,
    /// Where there are several workloads: what each of these flows is called.
    #[serde(default)]
    pub names: Vec<String>,
    /// What the machine did.
    #[serde(default)]
    pub disturbed: Vec<String>,
    /// What the datapath complains of.
    #[serde(default)]
    pub complaints: Vec<String>,
}

/// All runs: those of a point, by their seeds.
pub(super) type Runs = BTreeMap<Point, BTreeMap<u64, Kept>>;

/// One run.
struct One<'p> {
    paper: &'p Paper,
    point: Point,
    on: Datapath,
    scenario: Scenario,
    /// The recorded link that takes the place of generated ones.
    trace: Option<&'p str>,
    seed: u64,
    registry: &'p Registry,
}

/// Runs a paper's file, and after it what of the experiment is code.
pub(crate) fn run(
    paper: &Paper,
    coded: Option<&Coded>,
    experiment: &Experiment<'_>,
    options: &Options,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let repeats = options.repeats(paper.repeats.0, paper.repeats.1) as u64;
    let (mut simulated, mut real) = (Vec::new(), Vec::new());
    for point in paper.points(options.quick, |on| options.on(on)) {
        let trace = options.trace.as_ref();
        let scenario = paper.scenario(
            &point,
            options.quick,
            trace.map(|trace| trace.file.as_path()),
        );
        let scenario = scenario.map_err(Error::Scenario)?;
        let on = point
            .last()
            .and_then(|place| paper.on.get(*place))
            .copied()
            .unwrap_or(Datapath::Sim);
        // What cannot be is said before anything runs.
        backend(on).prepare(&scenario, registry)?;
        let one = |seed| One {
            paper,
            point: point.clone(),
            on,
            scenario: scenario.clone(),
            trace: trace.map(|trace| trace.name.as_str()),
            seed,
            registry,
        };
        match on {
            Datapath::Sim => simulated.extend(scenario.seeds.iter().map(one)),
            Datapath::Linux => real.extend((0..repeats).map(|n| one(scenario.seeds.first() + n))),
        }
    }
    // A round of everybody, then the next: a disturbance of the machine meets all alike.
    real.sort_by_key(|one| one.seed);
    let mut runs = Runs::new();
    let mut keep = |one: &One, kept| {
        drop(
            runs.entry(one.point.clone())
                .or_default()
                .insert(one.seed, kept),
        )
    };
    let kept = simulations::run(&simulated, options.threads, &options.parts(), progress)?;
    simulated
        .iter()
        .zip(kept)
        .for_each(|(one, kept)| keep(one, kept));
    let kept = on_real_packets(&real, options, progress)?;
    real.iter()
        .zip(kept)
        .for_each(|(one, kept)| keep(one, kept));
    let mut findings = shown::findings(paper, &runs, options);
    if coded.is_some_and(|coded| coded.on == Datapath::Linux) {
        // Whoever has runs on real packets says how many are not sound, where none is made as well.
        findings.disturbed(0, 0);
    }
    if let Some(coded) = coded.filter(|coded| options.on(coded.on)) {
        (coded.run)(&mut findings, options, registry, progress)?;
    }
    findings.finish(experiment, options)
}

/// Runs them one after the other, and keeps each. What was disturbed is run again in its time
/// ([`Options::parts_of`]).
fn on_real_packets(
    runs: &[One<'_>],
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<Kept>, Error> {
    let file = |one: &One<'_>| (format!("{}.json", one.name()), one.key());
    let parts = options.parts_of::<Kept>(runs.iter().map(file));
    let mut all = Vec::with_capacity(runs.len());
    for (index, one) in runs.iter().enumerate() {
        let (name, key) = file(one);
        let step = ProgressStep::begin(progress, index, runs.len(), &one.name());
        let judge = |kept: &Kept| Disturbed::from(&kept.disturbed);
        all.push(parts.part(&name, &key, judge, || one.kept(&step))?);
    }
    Ok(all)
}

/// Runs a scenario's contender once with this seed.
pub(super) fn run_scenario(
    scenario: &Scenario,
    on: Datapath,
    seed: u64,
    paper: &str,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<RunResult, Error> {
    let once = RunOptions::single(seed, &format!("ccplane paper {paper} --datapath {on}"));
    ccplane_lab::run(&*backend(on), scenario, registry, &once, progress)
}

fn backend(on: Datapath) -> Box<dyn Backend> {
    match on {
        Datapath::Sim => Box::new(Sim::default()),
        Datapath::Linux => Box::new(RealPackets {
            // Each repeat is a run of its own.
            random_starts: true,
            ..RealPackets::new(TransportKind::Tcp)
        }),
    }
}

impl One<'_> {
    fn kept(&self, progress: &dyn Progress) -> Result<Kept, Error> {
        let (scenario, paper) = (&self.scenario, self.paper);
        let result = run_scenario(
            scenario,
            self.on,
            self.seed,
            &paper.name,
            self.registry,
            progress,
        )?;
        let contender = result.contenders.first().ok_or(Error::NoContender)?;
        let rate = Rate::from_bits_per_sec((result.setup.rate_mbit * 1e6).round() as u64);
        // A packet of the transport's usual size, unless the scenario has another.
        let packet = u64::from(scenario.transport.mss.map_or(1_500, |mss| mss + 52));
        let run = seen::Run {
            scenario,
            packet_us: rate.transmission_time(Bytes::new(packet)).as_nanos() as f64 / 1e3,
            result: contender,
        };
        let (mut values, mut several) = (BTreeMap::new(), BTreeMap::new());
        for measure in paper.measures() {
            if let Some((_, each)) = measure.pooled() {
                several
                    .entry(each.key())
                    .or_insert_with(|| each.values(&run));
            } else if let Some(value) = measure.of(&run).filter(|value| value.is_finite()) {
                values.insert(measure.name.clone(), value);
            }
        }
        let drawn = |what| paper.charts.iter().any(|chart| chart.x == what);
        let thousandths = contender
            .series
            .delay_thousandths_ms
            .iter()
            .filter(|_| drawn(X::Delay));
        Ok(Kept {
            values,
            several,
            delays_us: thousandths.map(|ms| ms * 1e3).collect(),
            rates: if drawn(X::Time) {
                rates::rates(&run)
            } else {
                Vec::new()
            },
            look_ms: scenario.sample_every.as_nanos() as f64 / 1e6,
            names: if drawn(X::Time) {
                rates::names(&run)
            } else {
                Vec::new()
            },
            disturbed: contender.audit.disturbed.clone(),
            complaints: contender.audit.complaints.clone(),
        })
    }
}

impl Job for One<'_> {
    type Result = Kept;

    fn name(&self) -> String {
        let keys = self
            .point
            .iter()
            .enumerate()
            .filter_map(|(dim, value)| self.paper.choice(dim, *value));
        let keys: Vec<&str> = keys.map(|choice| choice.key.as_str()).collect();
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-_+.".contains(c) {
                c
            } else {
                '-'
            }
        };
        format!(
            "{}-{}",
            keys.join("-").chars().map(plain).collect::<String>(),
            self.seed
        )
    }

    /// The whole scenario, and what is kept.
    fn key(&self) -> String {
        let measures: Vec<&str> = self
            .paper
            .measures()
            .map(|measure| measure.name.as_str())
            .collect();
        let charts: Vec<String> = self
            .paper
            .charts
            .iter()
            .map(|chart| format!("{:?}", chart.x))
            .collect();
        format!(
            "{} {} seed {} {} {}",
            self.scenario.text,
            self.trace.unwrap_or_default(),
            self.seed,
            measures.join(" "),
            charts.join(" ")
        )
    }

    fn run(&self) -> Result<Kept, Error> {
        self.kept(&NoProgress)
    }
}

impl Paper {
    /// Everything that is shown of a run.
    fn measures(&self) -> impl Iterator<Item = &Measure> {
        let columns = self
            .tables
            .iter()
            .flat_map(|table| table.columns.iter().map(|column| &column.measure));
        let figures = self
            .figures
            .iter()
            .flat_map(|figure| std::iter::once(&figure.measure).chain(&figure.also));
        figures.chain(columns).chain(
            self.charts
                .iter()
                .filter_map(|chart| chart.measure.as_ref()),
        )
    }
}
