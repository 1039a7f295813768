//! Runs a scenario: every contender with every seed, in one place, to one result.
//!
//! A [`Place`] is where: the simulator, kernel TCP, our transport over UDP. It makes one run; who runs when, means over several runs and the
//! result are the same everywhere.

use ccplane_algorithms::Registry;
use ccplane_sim::Digest;

use crate::contender::Contender;
use crate::error::Error;
use crate::jobs;
use crate::progress::{Pieces, Progress};
use crate::repeats::{self, Runs};
use crate::result::{ContenderResult, RunResult, Setup};
use crate::scenario::{Scenario, Seeds, Workload};

/// Where a scenario runs.
pub trait Place: Sync {
    /// Gets ready: names are resolved, and what cannot be is said before anything runs.
    fn prepare<'s>(&'s self, scenario: &'s Scenario, registry: &'s Registry) -> Result<Box<dyn Prepared + 's>, Error>;

    /// Whether time is real: runs need the machine for themselves, so that they take turns, and no two of them are alike.
    fn is_real(&self) -> bool;
}

/// A scenario that can run.
pub trait Prepared: Sync {
    /// What the result says of it.
    fn setup(&self) -> Setup;

    /// One run. `contender` is who runs the workloads that name no algorithm; none where every workload names its own.
    fn run(&self, contender: Option<&Contender>, seed: u64, progress: &dyn Progress) -> Result<ContenderResult, Error>;
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// One run per seed. Often the scenario's seeds.
    pub seeds: Seeds,
    /// Threads of the simulator; the machine's cores are what helps. The result does not depend on it.
    pub threads: usize,
    /// The command line that does all of this again, for the report.
    pub command: String,
    /// The same without seeds: `--seeds N` at its end repeats one of the runs.
    pub repeat: String,
}

impl Options {
    /// One run on one thread, for who needs its figures only; `repeat` is the command that does it again.
    pub fn once(seed: u64, repeat: &str) -> Options {
        Options {
            seeds: Seeds::one(seed),
            threads: 1,
            command: repeat.to_owned(),
            repeat: repeat.to_owned(),
        }
    }
}

/// Runs every contender with every seed there. Contenders take turns: the first seed of each, the second of each, and so on, so that
/// whatever disturbs real packets meets all alike.
pub fn run(
    place: &dyn Place,
    scenario: &Scenario,
    registry: &Registry,
    options: &Options,
    progress: &dyn Progress,
) -> Result<RunResult, Error> {
    let open = |workload: &Workload| workload.algorithm.is_none() && !workload.heeds_nothing();
    if scenario.contenders.is_empty() && scenario.workloads.iter().any(open) {
        return Err(Error::NoContender);
    }
    let prepared = place.prepare(scenario, registry)?;
    let mut setup = prepared.setup();
    setup.seed = options.seeds.first();
    let several = options.seeds.count() > 1;
    match place.is_real() {
        true => setup.repeats = several.then(|| options.seeds.count()),
        false => setup.seeds = several.then(|| options.seeds.to_string()),
    }
    progress.began(&setup);
    // One entry a run: the contenders of the first seed, of the second, …
    let contenders: Vec<Option<&Contender>> = match scenario.contenders.as_slice() {
        [] => vec![None],
        all => all.iter().map(Some).collect(),
    };
    let seeds: Vec<u64> = options.seeds.iter().collect();
    let mut table: Vec<Vec<Option<ContenderResult>>> = seeds.iter().map(|_| vec![None; contenders.len()]).collect();
    let order: Vec<usize> = (0..seeds.len() * contenders.len()).collect();
    let pieces = Pieces::new(progress, order.len() as u64 * WEIGHT);
    let of = |at: usize| {
        let (row, column) = (at / contenders.len(), at % contenders.len());
        (
            seeds.get(row).copied().unwrap_or_default(),
            contenders.get(column).copied().flatten(),
        )
    };
    let label = |contender: Option<&Contender>, seed: u64| {
        let who = contender.map_or_else(|| scenario.file.clone(), Contender::to_string);
        if several { format!("{who}, {seed}") } else { who }
    };
    let work = |at: usize| {
        let (seed, contender) = of(at);
        let piece = pieces.piece(WEIGHT, label(contender, seed));
        piece.advanced(0.0, "");
        let result = prepared.run(contender, seed, &piece).map_err(|error| {
            pieces.stop();
            placed(error, contender, scenario, seed, options)
        })?;
        piece.finish();
        Ok(result)
    };
    let threads = if place.is_real() { 1 } else { options.threads };
    jobs::each(&order, threads, work, |at, result| {
        let (row, column) = (at / contenders.len(), at % contenders.len());
        let Some(row) = table.get_mut(row) else { return Ok(()) };
        if let Some(cell) = row.get_mut(column) {
            *cell = Some(result);
        }
        if several && row.iter().all(Option::is_some) {
            let (seed, _) = of(at);
            let setup = Setup {
                seed,
                seeds: None,
                repeats: None,
                ..setup.clone()
            };
            progress.seed_done(
                seed,
                finish(scenario, options, setup, row.iter().flatten().cloned().collect()),
            );
            // The page draws the first seed's course; of the others it needs distributions only.
            if seed != options.seeds.first() {
                row.iter_mut().flatten().for_each(forget);
            }
        }
        Ok(())
    })?;
    let mut columns: Vec<Vec<ContenderResult>> = vec![Vec::new(); contenders.len()];
    for row in table {
        for (column, result) in columns.iter_mut().zip(row) {
            column.extend(result);
        }
    }
    let of_what = if place.is_real() { Runs::Repeats } else { Runs::Seeds };
    let classes = &scenario.report.size_classes;
    let all = columns.into_iter().filter_map(|all| {
        let runs = seeds.iter().copied().zip(all).collect();
        repeats::together(runs, of_what, classes)
    });
    let mut result = finish(scenario, options, setup, all.collect());
    result.note = repeats::note(&result.contenders, of_what, options.seeds.first());
    Ok(result)
}

/// Of a run in the progress of all: a thousandth is the least that a bar shows.
const WEIGHT: u64 = 1_000;

/// An error with who ran, with which seed, and what repeats it.
fn placed(error: Error, contender: Option<&Contender>, scenario: &Scenario, seed: u64, options: &Options) -> Error {
    match error {
        Error::Broken { what, .. } => Error::Broken {
            contender: contender.map_or_else(|| scenario.file.clone(), Contender::to_string),
            seed,
            what,
            repeat: format!("{} --seeds {seed}", options.repeat),
        },
        error => error,
    }
}

/// Keeps of a run's records what distributions need.
fn forget(result: &mut ContenderResult) {
    result.series = std::mem::take(&mut result.series).without_courses();
}

fn finish(scenario: &Scenario, options: &Options, setup: Setup, contenders: Vec<ContenderResult>) -> RunResult {
    let mut digest = None::<Digest>;
    for audit in contenders.iter().filter_map(|c| c.audit.simulation.as_ref()) {
        let run = u64::from_str_radix(&audit.digest, 16).unwrap_or(0);
        digest.get_or_insert_with(Digest::default).add(run);
    }
    RunResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        title: scenario.title.clone(),
        note: String::new(),
        setup,
        digest: digest.map(|digest| format!("{:016x}", digest.value())),
        contenders,
    }
}
