//! `ccplane sweep`: runs a grid of scenarios and writes one table with a row per run.

mod estimate;
#[cfg(feature = "host")]
mod parquet;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccplane_lab::scenario::{ReadError, Sweep};
use ccplane_lab::sweep::{
    self, PlannedSweep, RunStore, RunTable, Shard, SweepOptions, SweepPlan, behaviour_version,
};
use ccplane_lab::{Error, Progress, Sim};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use serde_json::json;

use crate::Registry;
use crate::exit::{Failure, FailureKind};
use crate::run::{command_line, failure, percent_bar, show};
use crate::threads::threads;
use crate::{interrupt, results};

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

/// Files of a result folder.
const PLAN_FILE: &str = "sweep.json";
const RUNS_FILE: &str = "runs.csv";
const PAGE_FILE: &str = "sweep.html";
const SERIES_FOLDER: &str = "series";
/// Copies of the sweep file and of its scenario.
const SOURCE_FILES: [&str; 2] = ["sweep.toml", "scenario.toml"];

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
    check_folder(out)?;
    let mut store = RunStore::open(out).map_err(|error| failure(Error::Store(error)))?;
    write_sources(&plan, out)?;
    let shown = SweepProgress {
        bar: percent_bar(),
        stop: interrupt::flag()?,
    };
    let made = sweep::run(&plan, &backend, registry, &options, &mut store, &shown);
    shown.bar.finish_and_clear();
    // Also after an interrupt: the tables contain what is finished.
    let summary = write_tables(&plan.planned, &store, out, options.flows)?;
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
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(SweepOptions {
        threads,
        shard: args.shard,
        limit: args.limit,
        series: series.filter(|_| args.keep.contains(&KeptData::Series)),
        flows: args.keep.contains(&KeptData::Flows),
        cpu_time: thread_cpu_time,
        machine: machine.trim().to_owned(),
    })
}

/// Returns the CPU time of the calling thread, s.
#[expect(
    clippy::disallowed_methods,
    reason = "the cost of a run is not part of its result"
)]
fn thread_cpu_time() -> Option<f64> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).ok()?;
    Some(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Refuses a folder with files of something else.
fn check_folder(out: &Path) -> Result<(), Failure> {
    let is_taken = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if (is_taken && !out.join(sweep::FINISHED_FILE).exists()) || out.is_file() {
        let what = format!("{} exists and contains no sweep", out.display());
        let hint = "choose another folder with --out";
        return Err(Failure::text(FailureKind::Usage, what).hint(hint));
    }
    Ok(())
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    let path = folder.join(name);
    // Complete or not at all, so that a reader never sees half of a table.
    let draft = folder.join(format!(".{name}.draft"));
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&draft, content))
        .and_then(|()| fs::rename(&draft, &path));
    written.map_err(|why| {
        let what = format!("cannot write {}: {why}", path.display());
        Failure::text(FailureKind::Failed, what)
            .hint("free some space, and repeat the command: finished runs are not repeated")
    })
}

fn write_sources(plan: &SweepPlan, out: &Path) -> Result<(), Failure> {
    for (name, text) in SOURCE_FILES.iter().zip(plan.sweep().texts()) {
        write(out, name, text)?;
    }
    let text = serde_json::to_string(&plan.planned).unwrap_or_default();
    write(out, PLAN_FILE, text)
}

/// Result of a sweep for the terminal and for programs.
struct Summary {
    runs: usize,
    finished: usize,
    failed: usize,
    page: PathBuf,
    out: PathBuf,
}

impl Summary {
    fn print(&self, made: Option<usize>, json: bool) {
        let page = fs::canonicalize(&self.page).unwrap_or_else(|_| self.page.clone());
        if json {
            let object = json!({
                "schema": sweep::SWEEP_SCHEMA,
                "behaviour": behaviour_version(),
                "runs": self.runs,
                "finished": self.finished,
                "failed": self.failed,
                "made": made,
                "out": self.out.display().to_string(),
                "report": page.display().to_string(),
            });
            println!("{object}");
            return;
        }
        let made = made.map_or(String::new(), |made| format!(", {made} of them now"));
        println!("{} of {} runs are finished{made}", self.finished, self.runs);
        if self.failed > 0 {
            tracing::warn!(
                "{} runs failed: the column `error` of {} has the reasons",
                self.failed,
                self.out.join(RUNS_FILE).display()
            );
        }
        println!("table: {}", self.out.join(RUNS_FILE).display());
        println!("report: {}", page.display());
    }
}

/// Writes all tables and the page of the finished runs.
fn write_tables(
    planned: &PlannedSweep,
    store: &RunStore,
    out: &Path,
    flows: bool,
) -> Result<Summary, Failure> {
    let runs = RunTable::of_runs(planned, store);
    write(out, RUNS_FILE, runs.to_csv())?;
    #[cfg(feature = "host")]
    {
        write(out, "runs.parquet", parquet::encode(&runs)?)?;
        let timing = RunTable::of_timing(planned, store);
        write(out, "timing.parquet", parquet::encode(&timing)?)?;
        let table = RunTable::of_flows(planned, store);
        if flows || table.rows() > 0 {
            write(out, "flows.parquet", parquet::encode(&table)?)?;
        }
    }
    #[cfg(not(feature = "host"))]
    if flows {
        write(
            out,
            "flows.csv",
            RunTable::of_flows(planned, store).to_csv(),
        )?;
    }
    let provenance = crate::build().to_string();
    let page = sweep::page(planned, &runs, &command_line(), &provenance);
    write(out, PAGE_FILE, page)?;
    let failed = runs.column("error").map_or(0, |errors| {
        (0..runs.rows())
            .filter(|row| !errors.text(*row).is_empty())
            .count()
    });
    Ok(Summary {
        runs: planned.ids.len(),
        finished: runs.rows(),
        failed,
        page: out.join(PAGE_FILE),
        out: out.to_owned(),
    })
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
    if !args.folders.contains(&args.out) {
        check_folder(&args.out)?;
    }
    let mut merged = RunStore::open(&args.out).map_err(|error| failure(Error::Store(error)))?;
    merged
        .append(store)
        .map_err(|error| failure(Error::Store(error)))?;
    for name in SOURCE_FILES {
        let from = args.folders.first().map(|folder| folder.join(name));
        if let Some(text) = from.and_then(|path| fs::read(path).ok()) {
            write(&args.out, name, text)?;
        }
    }
    let text = serde_json::to_string(&planned).unwrap_or_default();
    write(&args.out, PLAN_FILE, text)?;
    let summary = write_tables(&planned, &merged, &args.out, false)?;
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

struct SweepProgress {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress for SweepProgress {
    fn on_progress(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }

    fn is_cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}
