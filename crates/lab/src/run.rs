//! Runs a scenario: every contender with every seed, on one backend.
//!
//! A [`Backend`] is the simulator, kernel TCP, or our transport over UDP, and makes one run at a
//! time. The order of the runs, the means over several runs, and the result are the same on all
//! backends.

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

/// Simulator or datapath that runs scenarios.
///
/// ```
/// use std::path::Path;
///
/// use ccplane_algorithms::Registry;
/// use ccplane_lab::scenario::Scenario;
/// use ccplane_lab::{Backend, NoProgress, Sim};
///
/// let text = "contenders = [\"reno\"]\nduration = \"2s\"\n[topology.dumbbell]\nrate = \"10mbit\"\n\
///             rtt = \"20ms\"\n[[workload]]\nbulk = {}\n";
/// let (scenario, registry) = (Scenario::parse("text", text, Path::new(""))?, Registry::builtin());
/// let backend = Sim::default();
/// let run = backend.prepare(&scenario, &registry)?;
/// let result = run.run(scenario.contenders.first(), 1, &NoProgress)?;
/// assert!(result.metrics.goodput_mbit > 5.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Backend: Sync {
    /// Plans the scenario. Every mistake and every unsupported part is reported here.
    fn prepare<'s>(
        &'s self,
        scenario: &'s Scenario,
        registry: &'s Registry,
    ) -> Result<Box<dyn PreparedRun + 's>, Error>;

    /// Returns true if time is real. Such runs need the machine for themselves, one after the
    /// other, and no two of them are alike.
    fn is_real(&self) -> bool;

    /// Name of the backend in reports.
    fn name(&self) -> &'static str;

    /// Returns true if the backend can run the scenario at its rate, as far as known before the
    /// run.
    fn supports_rate(&self, _scenario: &Scenario) -> bool {
        true
    }
}

/// Scenario that is ready to run.
pub trait PreparedRun: Sync {
    /// Returns the set-up for the result.
    fn setup(&self) -> Setup;

    /// Makes one run. `contender` is the algorithm of workloads that name none; `None` if every
    /// workload names its own.
    fn run(
        &self,
        contender: Option<&Contender>,
        seed: u64,
        progress: &dyn Progress,
    ) -> Result<ContenderResult, Error>;
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Seeds, one run each. Usually the scenario's seeds.
    pub seeds: Seeds,
    /// Threads of the simulator. The result does not depend on it.
    pub threads: usize,
    /// Command line that reproduces everything, for the report.
    pub command: String,
    /// The same command line without seeds; `--seeds N` at its end repeats one of the runs.
    pub repeat_command: String,
}

impl RunOptions {
    /// Creates options for one run on one thread. `repeat` is the command that reproduces it.
    pub fn single(seed: u64, repeat: &str) -> RunOptions {
        RunOptions {
            seeds: Seeds::one(seed),
            threads: 1,
            command: repeat.to_owned(),
            repeat_command: repeat.to_owned(),
        }
    }
}

/// Error of runs that did not complete.
#[derive(Debug)]
pub struct RunError {
    /// Reason: an interrupt, or the first failure in the order of runs.
    pub error: Error,
    /// Result of the runs that completed; `None` if there are none.
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

/// Runs every contender with every seed, like [`run_keeping`], and discards partial results.
pub fn run(
    backend: &dyn Backend,
    scenario: &Scenario,
    registry: &Registry,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<RunResult, Error> {
    run_keeping(backend, scenario, registry, options, progress).map_err(|stopped| stopped.error)
}

/// Runs every contender with every seed. The runs of contenders are interleaved: the first seed of
/// each, the second of each, and so on, so a disturbance of real packets affects all contenders
/// alike. A contender that fails is not run again, and the others continue.
pub fn run_keeping(
    backend: &dyn Backend,
    scenario: &Scenario,
    registry: &Registry,
    options: &RunOptions,
    progress: &dyn Progress,
) -> Result<RunResult, Box<RunError>> {
    let open = |workload: &Workload| workload.algorithm.is_none() && !workload.is_uncontrolled();
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
    progress.on_start(&setup);
    // One entry per run: all contenders with the first seed, then with the second, …
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
    // Failures by contender, and the first failure in the order of runs.
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
        piece.on_progress(0.0, "");
        let outcome = match has_failed(at % contenders.len()) {
            true => Ok(None),
            false => prepared.run(contender, seed, &piece).map(Some),
        };
        let fail = |error: Error| {
            if let Some(failed) = failed.get(at % contenders.len()) {
                failed.store(true, Ordering::Relaxed);
            }
            // No code panics while it holds the lock.
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
                // A mean over several runs must be of one algorithm.
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
            progress.on_seed_done(
                seed,
                finish(
                    scenario,
                    options,
                    setup,
                    row.iter().flatten().cloned().collect(),
                ),
            );
            // The page draws the time series of the first seed; other seeds contribute
            // distributions only.
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

/// Returns the note for a result with missing runs. `done` is the number of finished runs per
/// contender, of `all`.
fn incomplete(error: &Error, done: &[(String, usize)], all: usize) -> String {
    let why = match error {
        Error::Interrupted => "This run was interrupted".to_owned(),
        error @ Error::AgentGone { .. } => error.to_string(),
        error => format!("This run is incomplete: {error}"),
    };
    let lacking = done.iter().filter(|(_, runs)| *runs < all);
    let lacking: Vec<String> = lacking
        .map(|(label, runs)| format!("{label} finished {runs} of {all} runs"))
        .collect();
    match lacking.as_slice() {
        [] => format!("{why}."),
        lacking => format!("{why}. {}.", lacking.join(", ")),
    }
}

/// Progress units per run. A progress bar shows no finer steps.
const PROGRESS_STEPS_PER_RUN: u64 = 1_000;

/// Adds the contender, the seed and the command that reproduces it to an error.
fn placed(
    error: Error,
    contender: Option<&Contender>,
    scenario: &Scenario,
    seed: u64,
    options: &RunOptions,
) -> Error {
    match error {
        Error::Internal { what, .. } => Error::Internal {
            contender: contender.map_or_else(|| scenario.file.clone(), Contender::to_string),
            seed,
            what,
            repeat: format!("{} --seeds {seed}", options.repeat_command),
        },
        error => error,
    }
}

/// Drops a run's time series, and keeps the data of distributions.
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
