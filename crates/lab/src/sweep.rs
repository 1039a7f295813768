//! Sweeps: every point of a grid runs with every seed, and each run becomes one row of a table.
//!
//! A [`SweepPlan`] checks all scenarios of a [`Sweep`] and gives each run its identity. [`run`]
//! makes the runs whose rows a [`RunStore`] does not contain, on all threads of this machine.
//! [`SweepPlan::run_one`] makes a single one, for executors on other machines. [`RunTable`]
//! collects the rows in the order of the grid, so its bytes depend on neither threads, machines nor
//! interruptions.

mod columns;
mod page;
mod plan;
mod row;
mod series;
mod store;
mod table;

use ccplane_algorithms::Registry;

use crate::error::Error;
use crate::jobs;
use crate::progress::Progress;
use crate::result::{ContenderResult, RunResult, Setup};
use crate::run::Backend;
use crate::scenario::{Problem, Scenario, Sweep};

pub use columns::Cell;
pub use page::page;
pub(crate) use plan::identity;
pub use plan::{PlannedRun, PlannedSweep, SWEEP_SCHEMA, SweepPlan, behaviour_version};
pub use row::{RunRow, RunTiming};
pub use series::RunSeries;
pub use store::{FINISHED_FILE, RunStore, StoreError};
pub(crate) use table::ListedRun;
pub use table::{ColumnValues, RunTable, TableColumn};

/// Share of a sweep for one of several machines: every `count`-th run from `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the share, counted from 1.
    pub index: usize,
    /// Number of shares.
    pub count: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    /// Parses `3/16`.
    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/');
        let parse = |text: &str| text.trim().parse::<usize>().ok();
        match numbers.and_then(|(index, count)| Some((parse(index)?, parse(count)?))) {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index, count }),
            _ => Err(format!(
                "`{}` is not a share; write `3/16` for the third of 16 machines",
                text.escape_debug()
            )),
        }
    }
}

/// Function that stores the time series of a run, given its identity, its scenario and its result.
pub type KeepSeries = dyn Fn(&str, &Scenario, &RunResult) -> Result<(), Error> + Send + Sync;

/// Options of [`run`].
pub struct SweepOptions {
    /// Threads of the simulator. The table does not depend on it.
    pub threads: usize,
    /// Share of the runs; `None`: all.
    pub shard: Option<Shard>,
    /// Maximum number of runs to make; `None`: all that are missing.
    pub limit: Option<usize>,
    /// Called with every successful run, to store its time series; `None` stores none.
    pub keep: Option<Box<KeepSeries>>,
    /// True to store a row per flow.
    pub flows: bool,
    /// Returns the CPU time of the calling thread in seconds, if the platform has it.
    pub cpu_time: fn() -> Option<f64>,
    /// Name of this machine, for the timing of runs.
    pub machine: String,
}

/// Makes the missing runs of a plan and stores a row for each. If none is missing on real packets,
/// repeats those that the machine disturbed. A run that fails is a row with the reason in its
/// column
/// `error`, and the others continue. Returns the number of runs made.
pub fn run(
    plan: &SweepPlan,
    backend: &dyn Backend,
    registry: &Registry,
    options: &SweepOptions,
    store: &mut RunStore,
    progress: &dyn Progress,
) -> Result<usize, Error> {
    let runs = plan.planned.runs();
    let shard = options.shard.unwrap_or(Shard { index: 1, count: 1 });
    let is_ours = |index: &usize| index % shard.count == shard.index - 1;
    let is_complete = runs.iter().all(|run| store.contains(&run.id));
    let is_missing = |index: &usize| {
        let id = runs.get(*index).map(|run| &*run.id);
        id.is_some_and(|id| !store.contains(id) || (is_complete && store.is_disturbed(id)))
    };
    let mut order: Vec<usize> = (0..runs.len()).filter(is_ours).filter(is_missing).collect();
    // All points with the first seed, then with the second: an interrupted sweep covers the grid,
    // and on real packets a disturbance of the machine affects all contenders alike.
    order.sort_by_key(|index| runs.get(*index).map(|run| (run.seed_index, run.point)));
    order.truncate(options.limit.unwrap_or(usize::MAX));
    let threads = if backend.is_real() {
        1
    } else {
        options.threads
    };
    let work = |index: usize| {
        if progress.is_cancelled() {
            return Err(Error::Interrupted);
        }
        plan.run_one(index, backend, registry, options, progress)
    };
    let (total, mut done) = (order.len(), 0);
    jobs::each(&order, threads, work, |index, row| {
        store.add(row)?;
        done += 1;
        let label = plan.label(index);
        progress.on_progress(done as f64 / total.max(1) as f64, &label);
        Ok(())
    })?;
    Ok(done)
}

impl SweepPlan {
    /// Makes one run, unless `progress` cancels it. An error is one of this machine or an
    /// interrupt; a failure of the run itself is a row.
    pub fn run_one(
        &self,
        index: usize,
        backend: &dyn Backend,
        registry: &Registry,
        options: &SweepOptions,
        progress: &dyn Progress,
    ) -> Result<RunRow, Error> {
        let Some(run) = self.planned.run(index) else {
            return Err(crate::sim::broken(format!("the sweep has no run {index}")));
        };
        let cpu_before = (options.cpu_time)();
        let scenario = self.scenario(run.point)?;
        let outcome = simulate(
            &scenario,
            run.seed,
            backend,
            registry,
            &CancelOnly(progress),
        );
        let cpu_s = (options.cpu_time)()
            .zip(cpu_before)
            .map(|(now, then)| now - then);
        let (result, setup) = match outcome {
            Ok(outcome) => outcome,
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                let timing = RunTiming::new(None, cpu_s, &options.machine);
                return Ok(RunRow::failed(&run.id, &error.to_string(), timing));
            }
        };
        if let Some(keep) = &options.keep {
            let result = RunResult {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                setup,
                contenders: vec![result.clone()],
                ..RunResult::default()
            };
            keep(&run.id, &scenario, &result)?;
        }
        let timing = RunTiming::new(result.host.wall_s, cpu_s, &options.machine);
        Ok(RunRow::new(&run.id, &result, options.flows, timing))
    }
}

fn simulate(
    scenario: &Scenario,
    seed: u64,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<(ContenderResult, Setup), Error> {
    let prepared = backend.prepare(scenario, registry)?;
    let mut setup = prepared.setup();
    setup.seed = seed;
    let result = prepared.run(scenario.contenders.first(), seed, progress)?;
    Ok((result, setup))
}

/// Passes cancellation to a run, and not the progress within it.
struct CancelOnly<'a>(&'a dyn Progress);

impl Progress for CancelOnly<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Moves a problem of a point's network to the line of the sweep file.
fn located(sweep: &Sweep, point: &crate::scenario::SweepPoint, error: Error) -> Error {
    let locate = |problem: Problem| Error::Scenario(sweep.locate(point, &problem));
    match error {
        Error::Scenario(problem) => locate(problem),
        error => error,
    }
}

#[cfg(test)]
mod tests;
