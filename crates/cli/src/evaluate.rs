//! `ccplane evaluate`: evaluates an algorithm against the criteria of RFC 9743.

use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::evaluate::{self, Options, QUESTIONS};
use ccplane_lab::{Backend, Sim};
use ccplane_lab::{Contender, Error};
use ccplane_report::Provenance;
#[cfg(feature = "host")]
use ccplane_testbed::{RealPackets, TransportKind};
use clap::{Args, ValueEnum};

use crate::Registry;
#[cfg(feature = "host")]
use crate::doctor;
use crate::exit::{Failure, FailureKind};
use crate::results;
use crate::run::{BarProgress, command_line, failure};
use crate::threads::threads;

#[derive(Args)]
pub struct EvaluateArgs {
    /// Algorithm, with parameters (`cubic`, `cubic:hystart=off`), or one built into the datapath
    /// (`native:reno`). Without it, the questions are listed.
    #[arg(long, value_name = "NAME")]
    alg: Option<Contender>,
    /// Questions to evaluate, separated by commas; without it, all.
    #[arg(
        long,
        value_name = "QUESTIONS",
        value_delimiter = ',',
        requires = "alg"
    )]
    only: Vec<String>,
    /// Make fewer and shorter runs: a first impression during development, not results to quote.
    #[arg(long, requires = "alg")]
    quick: bool,
    /// Datapath: all questions in the simulator, or some of them on kernel TCP behind an emulated
    /// link, as root and in real time.
    #[arg(long, value_enum, default_value = "sim", requires = "alg")]
    datapath: EvaluateDatapath,
    /// Folder for evaluation.html and evaluation.json; without it `ccplane-evaluation/` followed by
    /// the algorithm.
    #[arg(long, value_name = "DIR", requires = "alg")]
    out: Option<PathBuf>,
    /// Overwrite an existing evaluation.
    #[arg(long, requires = "alg")]
    force: bool,
    /// Resume an interrupted evaluation. Finished runs are not repeated.
    #[arg(long, conflicts_with = "force", requires = "alg")]
    resume: bool,
    /// Open the page in a browser: the program of `$BROWSER`, otherwise `xdg-open`.
    #[arg(long, requires = "alg")]
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EvaluateDatapath {
    Sim,
    #[cfg(feature = "host")]
    Linux,
}

/// Contents of the folder; `parts` exists only until the evaluation is complete.
const PAGE_FILE: &str = "evaluation.html";
const METRICS_FILE: &str = "evaluation.json";
const PARTS_FOLDER: &str = "parts";

pub fn run(args: &EvaluateArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let Some(algorithm) = args.alg.clone() else {
        list(json);
        return Ok(());
    };
    let backend: Box<dyn Backend> = match args.datapath {
        EvaluateDatapath::Sim => Box::new(Sim::default()),
        #[cfg(feature = "host")]
        EvaluateDatapath::Linux => {
            doctor::require(&[doctor::Need::Emulator, doctor::Need::KernelTcp])?;
            Box::new(RealPackets::new(TransportKind::Tcp))
        }
    };
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| Path::new("ccplane-evaluation").join(folder(&algorithm)));
    // Recorded first: later the load of the host is our own.
    let provenance = Provenance::now(crate::build(), command_line(), args.quick);
    let options = Options {
        algorithm,
        only: args.only.clone(),
        quick: args.quick,
        threads: threads()?,
        parts: Some(out.join(PARTS_FOLDER)),
        command: again(&command_line()),
    };
    evaluate::check(&options, &*backend, registry).map_err(failure)?;
    prepare(&out, args)?;
    let shown = BarProgress::start()?;
    let evaluation = evaluate::run(&options, &*backend, registry, &shown);
    shown.bar.finish_and_clear();
    let evaluation = evaluation.map_err(|error| match error {
        Error::Interrupted => Failure::text(
            FailureKind::Interrupted,
            "interrupted before the evaluation was complete",
        )
        .hint(format!(
            "finished runs are kept in {}; continue with --resume",
            out.display()
        )),
        error => failure(error),
    })?;
    let page = out.join(PAGE_FILE);
    let figures = serde_json::to_string_pretty(&evaluation.json()).unwrap_or_default() + "\n";
    let written = fs::create_dir_all(&out)
        .and_then(|()| fs::write(&page, evaluate::page(&evaluation, &provenance)))
        .and_then(|()| fs::write(out.join(METRICS_FILE), figures));
    if let Err(why) = written {
        // Prints the verdicts even if the page cannot be written. With --json, the failure is the
        // only object.
        if !json {
            println!("{}", evaluation.text());
        }
        return Err(unwritable(&out, &why).hint(
            "free some space or change the folder's owner; --resume then writes the page without \
             new runs",
        ));
    }
    // The folder does not exist if no question needed a run.
    let _ = fs::remove_dir_all(out.join(PARTS_FOLDER));
    for (question, run, what) in &evaluation.complaints {
        tracing::warn!("{question}, {run}: {what}");
    }
    let page = fs::canonicalize(&page).unwrap_or(page);
    if args.open {
        results::open_page(&page);
    }
    if json {
        let mut object = evaluation.json();
        object["report"] = page.display().to_string().into();
        println!("{object}");
    } else {
        println!("{}", evaluation.text());
        println!("report: {}", page.display());
    }
    Ok(())
}

fn list(json: bool) {
    if json {
        let all: Vec<_> = QUESTIONS
            .iter()
            .map(|q| {
                serde_json::json!({
                    "name": q.name, "title": q.title, "about": q.about, "criterion": q.criterion,
                    "source": q.source,
                })
            })
            .collect();
        println!("{}", serde_json::json!({ "questions": all }));
        return;
    }
    for q in QUESTIONS {
        println!("{:<15} {}\n{:15} {}", q.name, q.title, "", q.source);
    }
}

/// Returns the folder name for an algorithm with its parameters. A file contributes only its stem,
/// since `./mine.ccp` would give a hidden folder.
fn folder(algorithm: &Contender) -> String {
    let path = Path::new(algorithm.algorithm());
    let parameters = algorithm.to_string().split_off(algorithm.algorithm().len());
    let name = match (algorithm, path.extension(), path.file_stem()) {
        (Contender::Ccplane { .. }, Some(end), Some(stem)) if end == "ccp" || end == "py" => {
            format!("{}{parameters}", stem.to_string_lossy())
        }
        _ => algorithm.to_string(),
    };
    let name = name.replace([':', '/', ' '], "-");
    name.trim_start_matches(['.', '-']).to_owned()
}

/// Prepares the folder. Existing results are replaced only with --force.
fn prepare(out: &Path, args: &EvaluateArgs) -> Result<(), Failure> {
    let (parts, finished) = (
        out.join(PARTS_FOLDER),
        out.join(PAGE_FILE).exists() || out.join(METRICS_FILE).exists(),
    );
    let taken =
        fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) || out.is_file();
    if args.resume {
        // A new evaluation that was interrupted has parts next to the old page.
        if finished && !parts.is_dir() {
            return Err(Failure::text(
                FailureKind::Usage,
                format!("the evaluation in {} is finished", out.display()),
            )
            .hint(
                "use --force in place of --resume to repeat it, or choose another folder with \
                 --out",
            ));
        }
        return Ok(());
    }
    if taken && !args.force {
        let hint = if parts.is_dir() {
            "it contains an interrupted evaluation: continue it with --resume, restart it with \
             --force, or choose another folder with --out"
        } else {
            "replace an existing evaluation with --force, or choose another folder with --out"
        };
        return Err(Failure::text(
            FailureKind::Usage,
            format!("{} exists and is not empty", out.display()),
        )
        .hint(hint));
    }
    if parts.is_dir() {
        fs::remove_dir_all(&parts).map_err(|e| unwritable(&parts, &e))?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::text(
        FailureKind::Failed,
        format!("cannot write to {}: {error}", path.display()),
    )
    .hint("choose another folder with --out")
}

/// Returns the command without options that affect only this invocation, so that a resumed
/// evaluation writes the same page.
fn again(command: &str) -> String {
    let mut words = command.split(' ');
    let mut kept: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--out" => drop(words.next()),
            "--resume" | "--force" | "--json" | "-j" => {}
            word if word.starts_with("--out=") => {}
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_folders_are_not_hidden() {
        for (algorithm, expected) in [
            ("./mine.ccp", "mine"),
            ("../algorithms/my own.py:back=0.7", "my-own-back=0.7"),
            (".hidden.ccp", "hidden"),
            ("copa:delta=1", "copa-delta=1"),
            ("native:cubic", "native-cubic"),
        ] {
            assert_eq!(folder(&algorithm.parse().expect("a contender")), expected);
        }
    }

    #[test]
    fn the_repeated_command_omits_one_time_options() {
        assert_eq!(
            again("ccplane evaluate --alg cubic --out x --quick --resume --json"),
            "ccplane evaluate --alg cubic --quick"
        );
    }
}
