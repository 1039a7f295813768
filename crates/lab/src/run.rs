//! Runs a scenario: every contender with every seed, on one backend, to one result.
//!
//! A [`Backend`] is the simulator, kernel TCP, or our transport over UDP. It makes one run. The
//! order of the runs, means over several runs and the result are the same on all backends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ccplane_algorithms::Registry;
use ccplane_sim::Digest;

use crate::contender::Contender;
use crate::error::Error;
use crate::jobs;
use crate::progress::{Pieces, Progress};
use crate::repeats::{self, Runs};
use crate::result::{ContenderResult, RunResult, Setup};
use crate::scenario::{Scenario, Seeds, Workload};

/// A simulator or a datapath that runs scenarios.
pub trait Backend: Sync {
    /// Plans the scenario. Every mistake and every unsupported part is an error here.
    fn prepare<'s>(
        &'s self,
        scenario: &'s Scenario,
        registry: &'s Registry,
    ) -> Result<Box<dyn PreparedRun + 's>, Error>;

    /// Returns true if time is real. Such runs need the machine for themselves, one after the
    /// other, and no two of them are alike.
    fn is_real(&self) -> bool;

    /// Name for pages.
    fn name(&self) -> &'static str;

    /// Returns true if the backend can run the scenario at its rate, as far as known before the
    /// run.
    fn keeps_up(&self, _scenario: &Scenario) -> bool {
        true
    }
}

/// A scenario that can run.
pub trait PreparedRun: Sync {
    /// Returns the set-up for the result.
    fn setup(&self) -> Setup;

    /// Makes one run. `contender` controls the workloads that name no algorithm; `None` if every
    /// workload names its own.
    fn run(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error>;
}

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// One run per seed. Often the scenario's seeds.
    pub seeds: Seeds,
    /// Threads of the simulator; the machine's cores are what helps. The result does not depend on
    /// it.
    pub threads: usize,
    /// The command line that does all of this again, for the report.
    pub command: String,
    /// The same without seeds: `--seeds N` at its end repeats one of the runs.
    pub repeat: String,
}

impl RunOptions {
    /// One run on one thread, for who needs its figures only; `repeat` is the command that does it
    /// again.
    pub fn once(seed: u64, repeat: &str) -> RunOptions {
        RunOptions {
            seeds: Seeds::one(seed),
            threads: 1,
            command: repeat.to_owned(),
            repeat: repeat.to_owned(),
        }
    }
}

/// A run that did not complete.
#[derive(Debug)]
pub struct RunError {
    /// The reason: an interrupt, or the first failure in the order of runs.
    pub error: Error,
    /// Result of the runs that completed. `None` if there are none.
    pub finished: Option<RunResult>,
}

impl From<Error> for Box<RunError> {
    fn from(error: Error) -> Box<RunError> {
        Box::new(RunError {
            error,
            finished: None,
        })
    }
}

/// Runs every contender with every seed, as [`run_keeping`] does, and discards what finished if not
/// everything did.
pub fn run(
    backend: &dyn Backend,
    scenario: &Scenario,
    registry: &Registry,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<RunResult, Error> {
    run_keeping(backend, scenario, registry, options, progress).map_err(|stopped| stopped.error)
}

/// Runs every contender with every seed there. Contenders take turns: the first seed of each, the
/// second of each, and so on, so that a disturbance of real packets meets all alike. A contender
/// that fails does not run again, and the others go on.
pub fn run_keeping(
    backend: &dyn Backend,
    scenario: &Scenario,
    registry: &Registry,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<RunResult, Box<RunError>> {
    let open = |workload: &Workload| workload.algorithm.is_none() && !workload.heeds_nothing();
    if scenario.contenders.is_empty() && scenario.workloads.iter().any(open) {
        return Err(Error::NoContender.into());
    }
    let prepared = backend.prepare(scenario, registry)?;
    let mut setup = prepared.setup();
    setup.seed = options.seeds.first();
    let several = options.seeds.count() > 1;
    match backend.is_real() {
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
    let mut table: Vec<Vec<Option<ContenderResult>>> =
        seeds.iter().map(|_| vec![None; contenders.len()]).collect();
    let order: Vec<usize> = (0..seeds.len() * contenders.len()).collect();
    let pieces = Pieces::new(progress, order.len() as u64 * PROGRESS_STEPS_PER_RUN);
    let of = |at: usize| {
        let (row, column) = (at / contenders.len(), at % contenders.len());
        (
            seeds.get(row).copied().unwrap_or_default(),
            contenders.get(column).copied().flatten(),
        )
    };
    let name = |contender: Option<&Contender>| {
        contender.map_or_else(|| scenario.file.clone(), Contender::to_string)
    };
    let label = |contender: Option<&Contender>, seed: u64| {
        let who = name(contender);
        if several {
            format!("{who}, {seed}")
        } else {
            who
        }
    };
    // By contender; and the first failure in the order of runs.
    let failed: Vec<AtomicBool> = contenders.iter().map(|_| AtomicBool::new(false)).collect();
    let failure: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let has_failed = |column: usize| {
        failed
            .get(column)
            .is_some_and(|failed| failed.load(Ordering::Relaxed))
    };
    let work = |at: usize| {
        let (seed, contender) = of(at);
        let piece = pieces.piece(PROGRESS_STEPS_PER_RUN, label(contender, seed));
        piece.advanced(0.0, "");
        let outcome = match has_failed(at % contenders.len()) {
            true => Ok(None),
            false => prepared.run(contender, seed, &piece).map(Some),
        };
        let fail = |error: Error| {
            if let Some(failed) = failed.get(at % contenders.len()) {
                failed.store(true, Ordering::Relaxed);
            }
            // Nothing panics while it holds the lock.
            let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
            if first.as_ref().is_none_or(|(earlier, _)| at < *earlier) {
                *first = Some((at, placed(error, contender, scenario, seed, options)));
            }
        };
        let result = match outcome {
            Ok(Some(result)) => {
                if let Some(name) = result.agent_gone.clone() {
                    fail(Error::AgentGone { name });
                }
                // A mean over several runs is of one algorithm.
                (result.agent_gone.is_none() || !several).then_some(result)
            }
            Ok(None) => None,
            Err(Error::Interrupted) => {
                pieces.stop();
                return Err(Error::Interrupted);
            }
            Err(error) => {
                fail(error);
                None
            }
        };
        piece.finish();
        Ok(result)
    };
    let threads = if backend.is_real() {
        1
    } else {
        options.threads
    };
    let ended = jobs::each(&order, threads, work, |at, result| {
        let (row, column) = (at / contenders.len(), at % contenders.len());
        let Some(row) = table.get_mut(row) else {
            return Ok(());
        };
        if let Some(cell) = row.get_mut(column) {
            *cell = result;
        }
        let complete = row
            .iter()
            .enumerate()
            .all(|(column, cell)| cell.is_some() || has_failed(column));
        if several && complete && row.iter().any(Option::is_some) {
            let (seed, _) = of(at);
            let setup = Setup {
                seed,
                seeds: None,
                repeats: None,
                ..setup.clone()
            };
            progress.seed_done(
                seed,
                finish(
                    scenario,
                    options,
                    setup,
                    row.iter().flatten().cloned().collect(),
                ),
            );
            // The page draws the first seed's course; of the others it needs distributions only.
            if seed != options.seeds.first() {
                row.iter_mut().flatten().for_each(forget);
            }
        }
        Ok(())
    });
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    let stopped = ended.err().or(failure.map(|(_, error)| error));
    let mut columns: Vec<Vec<(u64, ContenderResult)>> = vec![Vec::new(); contenders.len()];
    for (seed, row) in seeds.iter().zip(table) {
        for (column, result) in columns.iter_mut().zip(row) {
            column.extend(result.map(|result| (*seed, result)));
        }
    }
    let runs_done: Vec<(String, usize)> = contenders
        .iter()
        .zip(&columns)
        .map(|(contender, runs)| (name(*contender), runs.len()))
        .collect();
    let of_what = if backend.is_real() {
        Runs::Repeats
    } else {
        Runs::Seeds
    };
    let classes = &scenario.report.size_classes;
    let all = columns
        .into_iter()
        .filter_map(|runs| repeats::together(runs, of_what, classes));
    let mut result = finish(scenario, options, setup, all.collect());
    result.note = repeats::note(&result.contenders, of_what, options.seeds.first());
    let Some(error) = stopped else {
        return Ok(result);
    };
    result.stopped = Some(error.to_string());
    result.note = [incomplete(&error, &runs_done, seeds.len()), result.note].join(" ");
    let finished = (!result.contenders.is_empty()).then_some(result);
    Err(Box::new(RunError { error, finished }))
}

/// Sentences for the reader of a result that lacks runs. `done`: the number of finished runs by
/// contender; each was to have `all`.
fn incomplete(error: &Error, done: &[(String, usize)], all: usize) -> String {
    let why = match error {
        Error::Interrupted => "This run was interrupted".to_owned(),
        error @ Error::AgentGone { .. } => error.to_string(),
        error => format!("This run is incomplete: {error}"),
    };
    let lacking = done.iter().filter(|(_, runs)| *runs < all);
    let lacking: Vec<String> = lacking
        .map(|(label, runs)| format!("{label} has {runs} of {all} runs"))
        .collect();
    match lacking.as_slice() {
        [] => format!("{why}."),
        lacking => format!("{why}. {}.", lacking.join(", ")),
    }
}

/// Of a run in the progress of all: a thousandth is the least that a bar shows.
const PROGRESS_STEPS_PER_RUN: u64 = 1_000;

/// An error with who ran, with which seed, and what repeats it.
fn placed(
    error: Error,
    contender: Option<&Contender>,
    scenario: &Scenario,
    seed: u64,
    options: &RunOptions,
) -> Error {
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

fn finish(
    scenario: &Scenario,
    options: &RunOptions,
    setup: Setup,
    contenders: Vec<ContenderResult>,
) -> RunResult {
    let mut digest = None::<Digest>;
    for audit in contenders
        .iter()
        .filter_map(|c| c.audit.simulation.as_ref())
    {
        let run = u64::from_str_radix(&audit.digest, 16).unwrap_or(0);
        digest.get_or_insert_with(Digest::default).add(run);
    }
    RunResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: options.command.clone(),
        title: scenario.title.clone(),
        note: String::new(),
        stopped: None,
        setup,
        digest: digest.map(|digest| format!("{:016x}", digest.value())),
        contenders,
    }
}
