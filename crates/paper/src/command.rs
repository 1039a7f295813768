//! The program `ccplane-paper`: published experiments, run again and compared with the paper.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccplane::program::{
    self, Failure, FailureKind, Need, PaperArgs, PaperBackend, percent_bar, print_line, require,
};
use ccplane_algorithms::Registry;
use ccplane_lab::Progress;
use ccplane_report::Provenance;
use indicatif::ProgressBar;

use crate::{Datapath, ECHO_COMMAND, Experiment, Options, Script};

/// Runs the command line of this process, that of `ccplane paper`, with these algorithms.
pub fn main_with(registry: Registry) -> ExitCode {
    program::main("paper", registry, run)
}

/// Runs the command.
fn run(args: &PaperArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if args.name == "list" {
        list(json);
        return Ok(());
    }
    if args.name == ECHO_COMMAND {
        return crate::echo().map_err(|error| Failure::new(FailureKind::Failed, error));
    }
    if args.name.ends_with(".py") {
        let script = Script::read(Path::new(&args.name))?;
        return of(&script.experiment(), args, registry, json);
    }
    let Some(experiment) = crate::by_name(&args.name) else {
        let known: Vec<&str> = crate::all().map(|e| e.name).collect();
        return Err(Failure::text(
            FailureKind::Usage,
            format!("there is no experiment `{}`", args.name),
        )
        .hint(format!(
            "there are: {}; the script of your own experiment ends in .py",
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
    let datapath = args.datapath.map(|place| match place {
        PaperBackend::Sim => Datapath::Sim,
        PaperBackend::Linux => Datapath::Linux,
    });
    if let Some(datapath) = datapath.filter(|datapath| !experiment.on.contains(datapath)) {
        let name = experiment.name;
        return Err(Failure::text(
            FailureKind::Usage,
            format!("`{name}` does not run there ({datapath})"),
        )
        .hint(format!(
            "leave out --datapath: it runs on {}",
            places(experiment)
        )));
    }
    if experiment.on.contains(&Datapath::Linux) && datapath != Some(Datapath::Sim) {
        let able = require(&[Need::Emulator, Need::KernelTcp]);
        able.map_err(|failure| match experiment.on.contains(&Datapath::Sim) {
            true => failure
                .hint("add `--datapath sim` for its simulated part, which needs no privileges"),
            false => failure,
        })?;
    }
    let directory = args.out.clone().unwrap_or_else(|| {
        let quick = if args.quick { "-quick" } else { "" };
        PathBuf::from("ccplane-results").join(format!("{}{quick}", experiment.name))
    });
    let command = program::command_line("paper");
    let options = Options {
        quick: args.quick,
        datapath,
        threads: program::threads()?,
        repeats: args.repeats,
        agents: args.agents.clone(),
        any_build: args.any_build,
        directory,
        force: args.force,
        provenance: Provenance::now(ccplane::build(), command.clone(), args.quick),
        command,
    };
    let shown = Shown {
        bar: percent_bar(),
        stop: program::flag()?,
    };
    let outcome = experiment.run(&options, registry, &shown);
    shown.bar.finish_and_clear();
    let outcome = outcome?;
    if json {
        print_line(serde_json::Value::Object(outcome.figures));
    } else {
        print_line(outcome.text);
        print_line(format_args!("report: {}", outcome.page.display()));
    }
    Ok(())
}

/// `sim, linux`.
fn places(experiment: &Experiment<'_>) -> String {
    let all: Vec<String> = experiment.on.iter().map(Datapath::to_string).collect();
    all.join(", ")
}

fn list(json: bool) {
    if json {
        let all: Vec<_> = crate::all()
            .map(|e| serde_json::json!({ "name": e.name, "title": e.title, "source": e.source, "takes": e.takes, "on": places(&e), "repeats": e.repeats }))
            .collect();
        print_line(serde_json::json!({ "experiments": all }));
        return;
    }
    for e in crate::all() {
        print_line(format_args!(
            "{}\n    {}\n    {}\n    on {}; takes {}{}",
            e.name,
            e.title,
            e.source,
            places(&e),
            e.takes,
            e.repeats.map_or(String::new(), |n| format!(
                "; repeats runs on kernel TCP {n} times"
            )),
        ));
    }
}

/// Progress on a terminal, nothing in a pipe.
struct Shown {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Progress for Shown {
    fn on_progress(&self, share: f64, what: &str) {
        program::show(&self.bar, share, what);
    }
    fn is_cancelled(&self) -> bool {
        program::raised(&self.stop)
    }
}
