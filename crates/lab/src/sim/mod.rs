//! Experiments in virtual time: every contender and every seed of a [`Scenario`], on all cores, to one [`RunResult`].
//!
//! A run is a function of scenario, contender and seed alone. Runs share nothing, so that their number of threads
//! changes when a result is there, and not what it is.

mod instant;
mod one;
mod plan;
mod seeds;
mod stamps;

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_qdisc::Limit;
use ccplane_sim::{Carrier, Digest, Workload};
use ccplane_units::{Duration, Rate};

use crate::error::Error;
use crate::experiment::Contender;
use crate::result::{ContenderResult, RunResult, Series, Setup};
use crate::scenario::{Kind, Scenario, Seeds};
use one::Job;
pub(crate) use one::native;
use plan::Plan;
pub(crate) use plan::switched_on;
pub use stamps::put_stamps;

/// What a caller may show and decide while runs go on; called from every thread.
pub trait Watch: Sync {
    /// So much virtual time has passed in one of the runs.
    fn advanced(&self, _by: Duration) {}
    /// All contenders of this seed are done; their result is what a run with this seed alone gives.
    fn seed_done(&self, _seed: u64, _result: RunResult) {}
    /// Whether to stop now.
    fn cancelled(&self) -> bool {
        false
    }
}

impl Watch for crate::run::Quiet {}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seeds, often the scenario's.
    pub seeds: Seeds,
    /// Threads; the machine's cores are what helps.
    pub threads: usize,
    /// The command line that does all of this again, for the report.
    pub command: String,
    /// The same without seeds: `--seeds N` at its end repeats one of the runs.
    pub repeat: String,
    /// A folder for the packets of the drawn link, a pcapng file a run; `None` keeps none, and costs nothing.
    pub packet_logs: Option<PathBuf>,
}

/// Virtual time in all runs together, as [`Watch::advanced`] will tell it.
pub fn virtual_time(scenario: &Scenario, seeds: Seeds) -> Duration {
    let runs = seeds.count().saturating_mul(scenario.contenders.len().max(1) as u64);
    Duration::from_nanos(scenario.duration.as_nanos().saturating_mul(runs))
}

/// Runs every contender with every seed.
pub fn run(scenario: &Scenario, registry: &Registry, options: &Options, watch: &dyn Watch) -> Result<RunResult, Error> {
    check(scenario, registry)?;
    let plan = Plan::new(scenario).map_err(Error::Scenario)?;
    let setup = setup(scenario, &plan, options.seeds);
    let job = Job {
        scenario,
        plan: &plan,
        registry,
        bin: Duration::from_nanos((setup.bin_ms * 1e6) as u64),
        watch,
        packet_logs: options.packet_logs.as_deref(),
    };
    let several = options.seeds.count() > 1;
    // One entry a run: the contenders of the first seed, of the second, …
    let contenders: Vec<Option<&Contender>> = match scenario.contenders.as_slice() {
        [] => vec![None],
        all => all.iter().map(Some).collect(),
    };
    let seeds: Vec<u64> = options.seeds.iter().collect();
    let table: Vec<Mutex<Vec<Option<ContenderResult>>>> =
        seeds.iter().map(|_| Mutex::new(vec![None; contenders.len()])).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None::<(usize, Error)>));
    let worker = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (row, column) = (at / contenders.len(), at % contenders.len());
            let Some((seed, cell)) = seeds.get(row).zip(table.get(row)) else {
                return;
            };
            if failed.lock().is_ok_and(|failed| failed.is_some()) {
                return;
            }
            let contender = contenders.get(column).copied().flatten();
            match guarded(&job, contender, *seed, options) {
                Ok(result) => {
                    let Ok(mut row) = cell.lock() else { return };
                    if let Some(place) = row.get_mut(column) {
                        *place = Some(result);
                    }
                    if several && row.iter().all(Option::is_some) {
                        let mut setup = setup.clone();
                        (setup.seed, setup.seeds) = (*seed, None);
                        let results = row.iter().flatten().cloned().collect();
                        watch.seed_done(*seed, finish(scenario, options, setup, results));
                        // The page draws the first seed's course; of the others it needs distributions only.
                        if *seed != options.seeds.first() {
                            row.iter_mut().flatten().for_each(forget);
                        }
                    }
                }
                Err(error) => {
                    if let Ok(mut failed) = failed.lock() {
                        // The first in order, whichever thread was faster: the same error each time.
                        if failed.as_ref().is_none_or(|(place, _)| at < *place) {
                            *failed = Some((at, error));
                        }
                    }
                    return;
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..options.threads.min(seeds.len() * contenders.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    if let Some((_, error)) = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        return Err(error);
    }
    let mut columns: Vec<Vec<ContenderResult>> = vec![Vec::new(); contenders.len()];
    for row in table {
        let row = row.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (column, result) in columns.iter_mut().zip(row) {
            column.extend(result);
        }
    }
    let classes = &scenario.report.size_classes;
    let together = columns.into_iter().filter_map(|all| seeds::together(all, classes));
    let mut result = finish(scenario, options, setup, together.collect());
    if several {
        result.note = format!(
            "Means over {} seeds with their 95 % confidence intervals. The distributions are of all seeds; what is drawn \
             over time, and the flows and links, are of seed {}.",
            seeds.len(),
            options.seeds.first()
        );
    }
    Ok(result)
}

/// Runs one of them; a panic is an error that says how to see it again.
fn guarded(job: &Job, contender: Option<&Contender>, seed: u64, options: &Options) -> Result<ContenderResult, Error> {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| job.run(contender, seed)));
    let outcome = outcome.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Err(one::broken(format!("it panicked: {}", text.unwrap_or_default())))
    });
    outcome.map_err(|error| match error {
        Error::Broken { what, .. } => Error::Broken {
            contender: contender.map_or_else(|| job.scenario.file.clone(), Contender::to_string),
            seed,
            what,
            repeat: format!("{} --seeds {seed}", options.repeat),
        },
        error => error,
    })
}

/// Keeps of a run's records what distributions need.
fn forget(result: &mut ContenderResult) {
    let series = std::mem::take(&mut result.series);
    result.series = Series {
        pooled: Some((series.throughputs(), series.delays())),
        completed: series.completed,
        ..Series::default()
    };
}

fn finish(scenario: &Scenario, options: &Options, setup: Setup, contenders: Vec<ContenderResult>) -> RunResult {
    let mut digest = Digest::default();
    let digests = contenders.iter().filter_map(|c| c.audit.simulation.as_ref());
    digests.for_each(|audit| digest.add(u64::from_str_radix(&audit.digest, 16).unwrap_or(0)));
    RunResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        title: scenario.title.clone(),
        note: String::new(),
        setup,
        digest: Some(format!("{:016x}", digest.value())),
        contenders,
    }
}

/// Whether the simulator's transport has a control of this name.
pub(crate) fn known_control(name: &str) -> Result<(), Error> {
    one::native(name).map(drop)
}

/// Every algorithm that the scenario names, before anything runs.
fn check(scenario: &Scenario, registry: &Registry) -> Result<(), Error> {
    let own = scenario
        .workloads
        .iter()
        .filter_map(|workload| workload.algorithm.as_ref());
    for contender in scenario.contenders.iter().chain(own) {
        match contender {
            Contender::Native { name } => drop(one::native(name)?),
            Contender::Ccplane { name, parameters } => {
                let parameters = parameters
                    .iter()
                    .fold(Parameters::new(), |all, (name, value)| all.with(name, value));
                registry.by_name(name, &parameters)?;
            }
        }
    }
    Ok(())
}

/// Bins are one round trip wide, as on real packets, but not narrower than there are looks.
fn setup(scenario: &Scenario, plan: &Plan, seeds: Seeds) -> Setup {
    let main = plan.network.spec(plan.main);
    let line = main.map(|spec| spec.line.clone());
    let rate = line
        .and_then(|line| line.mean_rate())
        .unwrap_or(Rate::from_bytes_per_sec(0));
    let rtt = plan.rtt;
    let limit = main.and_then(|spec| spec.queue.limit(Some(rate), spec.rtt, spec.mtu).ok());
    let lasting = |w: &crate::scenario::Workload| match w.kind {
        Kind::Of(Workload::Bulk { flows, bytes: None, .. }) => Some(flows as usize),
        Kind::Of(Workload::Paced {
            carrier: Carrier::Stream { .. },
            ..
        }) => Some(1),
        _ => None,
    };
    let ours = |w: &crate::scenario::Workload| w.algorithm.is_none() || scenario.contenders.is_empty();
    let bin = rtt.max(scenario.sample_every);
    Setup {
        datapath: "simulator".to_owned(),
        network: plan.name.clone(),
        link: plan.name.as_ref().map(|_| plan.network.link_name(plan.main)),
        rate: plan.line_name.clone().unwrap_or_else(|| rate.to_string()),
        rate_mbit: rate.bytes_per_sec() as f64 * 8.0 / 1e6,
        rtt_ms: rtt.as_secs_f64() * 1e3,
        queue: main.map_or(String::new(), |spec| spec.queue.to_string()),
        queue_bytes: limit.and_then(|limit| match limit {
            Limit::Bytes(bytes) => Some(bytes),
            Limit::Packets(packets) => Some(packets.saturating_mul(u64::from(main.map_or(1500, |spec| spec.mtu)))),
            Limit::Unlimited => None,
        }),
        bdp_bytes: rate.bytes_in(rtt).get(),
        loss: main.map_or(String::new(), |spec| spec.loss.to_string()),
        flows: scenario
            .workloads
            .iter()
            .enumerate()
            .filter(|(_, w)| ours(w))
            .filter_map(|(index, w)| Some(lasting(w)? * plan.pairs.get(index)?.count()))
            .sum(),
        duration_s: scenario.duration.as_secs_f64(),
        seed: seeds.first(),
        seeds: (seeds.count() > 1).then(|| seeds.to_string()),
        bin_ms: bin.as_nanos() as f64 / 1e6,
        sample_ms: scenario.sample_every.as_nanos() as f64 / 1e6,
        socket_buffer_bytes: None,
    }
}
