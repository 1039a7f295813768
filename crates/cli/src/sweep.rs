//! `ccplane sweep`: runs a grid of scenarios and writes one table with a row per run.

mod estimate;
mod folder;
#[cfg(feature = "host")]
mod parquet;

use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::scenario::Sweep;
use ccplane_lab::sweep::{self, PlannedSweep, RunStore, Shard, SweepOptions, SweepPlan};
use ccplane_lab::{Error, Sim};
use clap::{Args, Subcommand, ValueEnum};

use crate::Registry;
use crate::exit::{Failure, FailureKind};
use crate::run::{BarProgress, command_line, failure};
use crate::threads::threads;
pub use folder::SweepFolder;
use folder::{PLAN_FILE, SOURCE_FILES};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    /// Sweep file: a scenario, and a grid of values for its settings (docs/sweeps.md).
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Folder for runs.csv, runs.parquet, timing.parquet and sweep.html. Runs that are finished in it
    /// are not repeated.
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Simulations at the same time; without it, one per CPU. The table does not depend on it.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Make one of several shares of the runs, such as `3/16` for the third of 16 machines; `sweep
    /// merge` combines their folders.
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Make at most N runs, for a first look. The same command without it makes the rest.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Also keep the time series of every run in the folder `series`, or a row per flow in
    /// flows.parquet.
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    keep: Vec<KeptData>,
    /// Check every scenario, and print how many runs the sweep makes, how long they take and how
    /// much they write.
    #[arg(long)]
    dry_run: bool,
    #[command(subcommand)]
    command: Option<SweepCommand>,
}

#[derive(Subcommand)]
enum SweepCommand {
    /// Combine the folders of several machines to the tables of the whole sweep.
    Merge(MergeArgs),
}

#[derive(Args)]
struct MergeArgs {
    /// Folders of the shares.
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Folder for the combined tables.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Data of a run besides its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeptData {
    /// The files of `ccplane run`: time series of windows, rates and delays.
    Series,
    /// One row per flow.
    Flows,
}

/// Folder of the runs' time series.
const SERIES_FOLDER: &str = "series";

pub fn run(args: &SweepArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if let Some(SweepCommand::Merge(args)) = &args.command {
        return merge(args, json);
    }
    let Some(file) = &args.file else {
        return Err(Failure::text(FailureKind::Usage, "there is no sweep file"));
    };
    let sweep = Sweep::read(file).map_err(|error| failure(Error::ScenarioFile(error)))?;
    let backend = Sim::default();
    let plan = SweepPlan::new(sweep, &backend, registry).map_err(failure)?;
    let options = options(args)?;
    if args.dry_run {
        let store = match &args.out {
            Some(out) if out.join(sweep::FINISHED_FILE).exists() => {
                let mut store = RunStore::in_memory();
                store.read(out).map_err(|e| failure(Error::Store(e)))?;
                store
            }
            _ => RunStore::in_memory(),
        };
        let estimate = estimate::estimate(&plan, &backend, registry, &options, &store)?;
        estimate.print(json);
        return Ok(());
    }
    let Some(out) = &args.out else {
        return Err(Failure::text(FailureKind::Usage, "--out is missing"));
    };
    let (folder, mut store) = SweepFolder::open(out)?;
    folder.write_plan(&plan.planned, plan.sweep().texts())?;
    let shown = BarProgress::start()?;
    let made = sweep::run(&plan, &backend, registry, &options, &mut store, &shown);
    shown.bar.finish_and_clear();
    // Also after an interrupt: the tables contain what is finished.
    let summary = folder.write_tables(&plan.planned, &store, options.flows, &command_line())?;
    let made = made.map_err(|error| match error {
        Error::Interrupted => {
            let what = format!(
                "interrupted with {} of {} runs",
                summary.finished, summary.runs
            );
            Failure::text(FailureKind::Interrupted, what).hint(format!(
                "the finished runs are in {}; the same command makes the rest",
                out.display()
            ))
        }
        error => failure(error),
    })?;
    summary.print(Some(made), json);
    Ok(())
}

fn options(args: &SweepArgs) -> Result<SweepOptions, Failure> {
    let threads = match args.threads {
        Some(0) => {
            let what = "--threads 0: at least one thread is needed";
            return Err(Failure::text(FailureKind::Usage, what).hint("give 1 or more"));
        }
        Some(threads) => threads,
        None => threads()?,
    };
    let series = args.out.as_ref().map(|out| out.join(SERIES_FOLDER));
    Ok(SweepOptions {
        threads,
        shard: args.shard,
        limit: args.limit,
        series: series.filter(|_| args.keep.contains(&KeptData::Series)),
        flows: args.keep.contains(&KeptData::Flows),
        cpu_time: thread_cpu_time,
        machine: machine_name(),
    })
}

/// Returns the name of this machine.
pub fn machine_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Returns the CPU time of the calling thread, s.
#[expect(
    clippy::disallowed_methods,
    reason = "the cost of a run is not part of its result"
)]
pub fn thread_cpu_time() -> Option<f64> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Combines the folders of several machines.
fn merge(args: &MergeArgs, json: bool) -> Result<(), Failure> {
    let mut plan: Option<(PlannedSweep, &Path)> = None;
    let mut store = RunStore::in_memory();
    for folder in &args.folders {
        let own = read_plan(folder)?;
        match &plan {
            Some((first, first_folder)) if *first != own => {
                return Err(different(first, first_folder, &own, folder));
            }
            Some(_) => {}
            None => plan = Some((own, folder)),
        }
        store
            .read(folder)
            .map_err(|error| failure(Error::Store(error)))?;
    }
    let Some((planned, _)) = plan else {
        return Err(Failure::text(
            FailureKind::Usage,
            "there is no folder to merge",
        ));
    };
    let (folder, mut merged) = SweepFolder::open(&args.out)?;
    let failed = |error| failure(Error::Store(error));
    merged.append(store).map_err(failed)?;
    let first = args.folders.first().map_or(Path::new(""), PathBuf::as_path);
    let texts = SOURCE_FILES.map(|name| fs::read_to_string(first.join(name)).unwrap_or_default());
    folder.write_plan(&planned, texts.iter().map(String::as_str))?;
    let summary = folder.write_tables(&planned, &merged, false, &command_line())?;
    summary.print(None, json);
    Ok(())
}

fn read_plan(folder: &Path) -> Result<PlannedSweep, Failure> {
    let path = folder.join(PLAN_FILE);
    let unreadable = |why: String| {
        let what = format!("{}: {why}", path.display());
        Failure::text(FailureKind::Usage, what)
            .hint("give folders that `ccplane sweep --shard` wrote")
    };
    let text = fs::read(&path).map_err(|why| unreadable(why.to_string()))?;
    serde_json::from_slice(&text).map_err(|why| unreadable(why.to_string()))
}

fn different(first: &PlannedSweep, at: &Path, second: &PlannedSweep, there: &Path) -> Failure {
    let what = format!(
        "{} and {} are not shares of the same sweep",
        at.display(),
        there.display()
    );
    let hint = match first.behaviour == second.behaviour {
        false => {
            "they were written by versions of ccplane with different behaviour: use one version \
             on all machines"
        }
        true => "run the same sweep file, with the same files next to it, on all machines",
    };
    Failure::text(FailureKind::Usage, what).hint(hint)
}
