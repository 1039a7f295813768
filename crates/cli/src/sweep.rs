//! `ccplane sweep`: runs a grid of scenarios and writes one table with a row per run.

mod estimate;
mod folder;
mod kept;
#[cfg(feature = "host")]
mod parquet;

use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::scenario::Sweep;
use ccplane_lab::sweep::{self, PlannedSweep, RunStore, Shard, SweepOptions, SweepPlan};
use ccplane_lab::{Backend, Error, Progress, Sim};
use clap::{Args, Subcommand, ValueEnum};

use crate::Registry;
use crate::exit::{Failure, FailureKind};
use crate::run::{BarProgress, RunDatapath, backend_of_sweep, command_line, failure};
use crate::threads::threads;
#[cfg(feature = "host")]
pub use folder::write_parquet;
use folder::{PLAN_FILE, SOURCE_FILES};
pub use folder::{SweepFolder, SweepSummary, write_table};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepArgs {
    /// Sweep file: a scenario, and a grid of values for its settings (docs/sweeps.md).
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Folder for runs.csv, runs.parquet, timing.parquet and sweep.html. Runs that are finished in
    /// it are not repeated.
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
    /// Also keep a row per flow in flows.parquet, or time series of every run: samples of flows and
    /// of bundles, the distribution of delays, the bottleneck over time, or all files of `ccplane
    /// run`.
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    keep: Vec<KeptData>,
    /// Datapath of all runs. On real packets they run one after the other, as often as the file
    /// says in `repeats`, and need root.
    #[arg(long, value_name = "DATAPATH")]
    datapath: Option<RunDatapath>,
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
pub enum KeptData {
    /// One row per flow.
    Flows,
    /// Samples of flows: bytes received, congestion window and RTT over time.
    Samples,
    /// Samples and changes of mode of bundles.
    Bundles,
    /// Distribution of the delay in the bottleneck's queue.
    Delays,
    /// Throughput and mean delay of the bottleneck over time.
    Bins,
    /// The files of `ccplane run`: time series of windows, rates and delays.
    Series,
}

impl KeptData {
    /// Parses a name as `--keep` takes it.
    pub fn parse(name: &str) -> Result<KeptData, Failure> {
        <KeptData as ValueEnum>::from_str(name, false)
            .map_err(|_| Failure::text(FailureKind::Usage, format!("no data is called `{name}`")))
    }
}

pub fn run(args: &SweepArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if let Some(SweepCommand::Merge(args)) = &args.command {
        return merge(args, json);
    }
    let Some(file) = &args.file else {
        return Err(Failure::text(FailureKind::Usage, "there is no sweep file"));
    };
    let sweep = Sweep::read(file).map_err(|error| failure(Error::ScenarioFile(error)))?;
    let threads = match args.threads {
        Some(0) => {
            let what = "--threads 0: at least one thread is needed";
            return Err(Failure::text(FailureKind::Usage, what).hint("give 1 or more"));
        }
        threads => threads,
    };
    let request = SweepRequest {
        sweep,
        datapath: args.datapath.unwrap_or(RunDatapath::Sim),
        threads,
        shard: args.shard,
        limit: args.limit,
        kept: args.keep.clone(),
    };
    if args.dry_run {
        return request.estimate(args.out.as_deref(), registry, json);
    }
    let Some(out) = &args.out else {
        return Err(Failure::text(FailureKind::Usage, "--out is missing"));
    };
    let shown = BarProgress::start()?;
    let outcome = request.run(out, registry, &command_line(), &shown);
    shown.bar.finish_and_clear();
    let (summary, made) = outcome?;
    summary.print(Some(made), json);
    Ok(())
}

/// Sweep with everything that its runs depend on.
pub struct SweepRequest {
    /// The sweep.
    pub sweep: Sweep,
    /// Datapath of all runs.
    pub datapath: RunDatapath,
    /// Simulations at the same time; `None`: one per CPU.
    pub threads: Option<usize>,
    /// Share of the runs to make; `None`: all.
    pub shard: Option<Shard>,
    /// Maximum number of runs to make; `None`: all.
    pub limit: Option<usize>,
    /// Data to keep besides the table of runs.
    pub kept: Vec<KeptData>,
}

impl SweepRequest {
    /// Makes the missing runs and writes the tables to `out`. `command` reproduces them. Returns
    /// the number of runs made.
    pub fn run(
        self,
        out: &Path,
        registry: &Registry,
        command: &str,
        progress: &dyn Progress,
    ) -> Result<(SweepSummary, usize), Failure> {
        let options = self.options(Some(out))?;
        let flows = options.flows;
        let (plan, backend) = self.plan(registry)?;
        let (folder, mut store) = SweepFolder::open(out)?;
        folder.write_plan(&plan.planned, plan.sweep().texts())?;
        let made = sweep::run(&plan, &*backend, registry, &options, &mut store, progress);
        // Also after an interrupt: the tables contain what is finished.
        let summary = folder.write_tables(&plan.planned, &store, flows, command)?;
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
        Ok((summary, made))
    }

    /// Prints the cost of the missing runs. Writes nothing.
    fn estimate(self, out: Option<&Path>, registry: &Registry, json: bool) -> Result<(), Failure> {
        let options = self.options(out)?;
        let (plan, backend) = self.plan(registry)?;
        let mut store = RunStore::in_memory();
        if let Some(out) = out.filter(|out| out.join(sweep::FINISHED_FILE).exists()) {
            store.read(out).map_err(|e| failure(Error::Store(e)))?;
        }
        let estimate = estimate::estimate(&plan, &*backend, registry, &options, &store)?;
        estimate.print(json);
        Ok(())
    }

    /// Checks every scenario of the sweep, and this host for runs on real packets.
    fn plan(self, registry: &Registry) -> Result<(SweepPlan, Box<dyn Backend>), Failure> {
        let backend = self.backend(registry)?;
        let plan = SweepPlan::new(self.sweep, &*backend, registry).map_err(failure)?;
        Ok((plan, backend))
    }

    fn backend(&self, registry: &Registry) -> Result<Box<dyn Backend>, Failure> {
        if self.datapath == RunDatapath::Sim {
            return Ok(Box::new(Sim::default()));
        }
        let points = self.sweep.points();
        let scenarios = points.and_then(|points| {
            let scenarios = points.iter().map(|point| self.sweep.scenario(point));
            scenarios.collect::<Result<Vec<_>, _>>()
        });
        let scenarios = scenarios.map_err(|problem| failure(Error::Scenario(problem)))?;
        backend_of_sweep(self.datapath, &scenarios, registry)
    }

    fn options(&self, out: Option<&Path>) -> Result<SweepOptions, Failure> {
        let threads = match self.threads {
            Some(threads) => threads,
            None => threads()?,
        };
        Ok(SweepOptions {
            threads,
            shard: self.shard,
            limit: self.limit,
            keep: out.and_then(|out| kept::keep(out, &self.kept)),
            flows: self.kept.contains(&KeptData::Flows),
            cpu_time: thread_cpu_time,
            machine: machine_name(),
        })
    }
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
