//! `ccplane paper`: published experiments, run again, their figures beside the paper's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccplane_lab::Progress;
use ccplane_paper::{self as paper, Datapath, Experiment, Options, Paper, ReadError, Recorded};
use ccplane_report::Provenance;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use crate::Registry;
use crate::exit::{Failure, Kind};
use crate::run::{command_line, failure, percent_bar, show};
use crate::{doctor, emu, interrupt};

/// Which experiment.
#[derive(Args)]
pub struct PaperArgs {
    /// Its name, or a file of your own (`mine.toml`; docs/papers.md), or `list`.
    name: String,
    /// In less than two minutes, with fewer and shorter runs: to see that it works, not to quote.
    #[arg(long)]
    quick: bool,
    /// Only there; without it, wherever the experiment runs.
    #[arg(long, value_enum)]
    datapath: Option<Where>,
    /// A recorded cellular link (Mahimahi's format), for experiments that have one; without it one
    /// is generated.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Threads of the simulator; without it as many as there are CPUs. The result does not depend
    /// on it.
    #[arg(long)]
    threads: Option<usize>,
    /// Every run on kernel TCP so often, and not as often as the experiment has it (see `list`): a
    /// first answer in less time. The same command with more goes on from there.
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,
    /// Use parts again that another build of ccplane made, too: for a long experiment that outlasts
    /// changes which cannot have moved its figures. The page says how many there are.
    #[arg(long)]
    any_build: bool,
    /// Folder for parts and results; without it `ccplane-results/NAME`, and `NAME-quick` with
    /// --quick. Parts that are there already are used again, so that the same command goes on where
    /// it was interrupted; once there is a page, it repeats those that were disturbed.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use that folder although it holds something else.
    #[arg(long)]
    force: bool,
}

/// Where packets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    /// The simulator, in virtual time.
    Sim,
    /// This host's kernel TCP, in real time, as root, on a machine that is otherwise idle.
    Linux,
}

impl From<Where> for Datapath {
    fn from(place: Where) -> Datapath {
        match place {
            Where::Sim => Datapath::Sim,
            Where::Linux => Datapath::Linux,
        }
    }
}

/// Runs the command.
pub fn run(args: &PaperArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if args.name == "list" {
        list(json);
        return Ok(());
    }
    if args.name.ends_with(".toml") {
        let paper = Paper::read(Path::new(&args.name)).map_err(|error| match error {
            ReadError::Problem(problem) => Failure::diagnostic(Kind::Usage, problem),
            error => Failure::new(Kind::Usage, error),
        })?;
        return of(&paper.experiment(), args, registry, json);
    }
    let Some(experiment) = paper::by_name(&args.name) else {
        let known: Vec<&str> = paper::all().map(|e| e.name).collect();
        return Err(Failure::text(
            Kind::Usage,
            format!("there is no experiment `{}`", args.name),
        )
        .hint(format!(
            "there are: {}; a file of your own ends in .toml",
            known.join(", ")
        )));
    };
    of(&experiment, args, registry, json)
}

/// Runs an experiment.
fn of(
    experiment: &Experiment<'_>,
    args: &PaperArgs,
    registry: &Registry,
    json: bool,
) -> Result<(), Failure> {
    let datapath = args.datapath.map(Datapath::from);
    if let Some(datapath) = datapath.filter(|datapath| !experiment.on.contains(datapath)) {
        let name = experiment.name;
        return Err(Failure::text(
            Kind::Usage,
            format!("`{name}` does not run there ({datapath})"),
        )
        .hint(format!(
            "leave out --datapath: it runs on {}",
            places(experiment)
        )));
    }
    if experiment.on.contains(&Datapath::Linux) && datapath != Some(Datapath::Sim) {
        let able = doctor::require(&[doctor::Need::Emulator, doctor::Need::KernelTcp]);
        able.map_err(|failure| match experiment.on.contains(&Datapath::Sim) {
            true => failure
                .hint("add `--datapath sim` for its simulated part, which needs no privileges"),
            false => failure,
        })?;
    }
    let trace = args.trace.as_deref().map(recorded).transpose()?;
    let directory = args.out.clone().unwrap_or_else(|| {
        let quick = if args.quick { "-quick" } else { "" };
        PathBuf::from("ccplane-results").join(format!("{}{quick}", experiment.name))
    });
    let options = Options {
        quick: args.quick,
        datapath,
        threads: args
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get())),
        repeats: args.repeats,
        any_build: args.any_build,
        trace,
        directory,
        force: args.force,
        command: command_line(),
        provenance: Provenance::now(crate::build(), command_line(), args.quick),
    };
    let shown = Shown {
        bar: percent_bar(),
        stop: interrupt::flag()?,
    };
    let outcome = experiment.run(&options, registry, &shown);
    shown.bar.finish_and_clear();
    let outcome = outcome.map_err(failure)?;
    if json {
        println!("{}", serde_json::Value::Object(outcome.figures));
    } else {
        println!("{}", outcome.text);
        println!("report: {}", outcome.page.display());
    }
    Ok(())
}

/// A recorded link. Parts know it by its file without the folder, so that they go on elsewhere,
/// too, and what is in it.
fn recorded(trace: &Path) -> Result<Recorded, Failure> {
    let unread = |error| Failure::new(Kind::Usage, error);
    let line = emu::recorded(trace)?;
    let text = std::fs::read(trace).map_err(unread)?;
    let name = trace.file_name().unwrap_or_default().display();
    let hash = blake3::hash(&text).to_hex();
    Ok(Recorded {
        name: format!("{name} {}", hash.get(..12).unwrap_or_default()),
        file: trace.canonicalize().map_err(unread)?,
        line,
    })
}

/// Echoes datagrams until the other end kills this process.
pub fn echo() -> Result<(), Failure> {
    paper::echo().map_err(|error| Failure::new(Kind::Failed, error))
}

/// `sim, linux`.
fn places(experiment: &Experiment<'_>) -> String {
    let all: Vec<String> = experiment.on.iter().map(Datapath::to_string).collect();
    all.join(", ")
}

fn list(json: bool) {
    if json {
        let all: Vec<_> = paper::all()
            .map(|e| serde_json::json!({ "name": e.name, "title": e.title, "source": e.source, "takes": e.takes, "on": places(&e), "repeats": e.repeats }))
            .collect();
        println!("{}", serde_json::json!({ "experiments": all }));
        return;
    }
    for e in paper::all() {
        println!(
            "{}\n    {}\n    {}\n    on {}; takes {}{}",
            e.name,
            e.title,
            e.source,
            places(&e),
            e.takes,
            e.repeats.map_or(String::new(), |n| format!(
                "; repeats runs on kernel TCP {n} times"
            )),
        );
    }
}

/// Progress on a terminal, nothing in a pipe.
struct Shown {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress for Shown {
    fn advanced(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }
    fn cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}
