//! `ccplane evaluate`: evaluates an algorithm against the criteria of RFC 9743.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use ccplane_lab::evaluate::{self, Evaluation, Evaluations, Options, QUESTIONS, Verdict};
use ccplane_lab::{Backend, Contender, Error, Sim};
use ccplane_report::{Provenance, Table};
#[cfg(feature = "host")]
use ccplane_testbed::{RealPackets, TransportKind};
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::Registry;
#[cfg(feature = "host")]
use crate::doctor;
use crate::exit::{Failure, FailureKind};
use crate::results;
use crate::run::{BarProgress, command_line, failure};
use crate::sweep::write_table;
use crate::threads::threads;

#[derive(Args)]
pub struct EvaluateArgs {
    /// Algorithms, separated by commas, with parameters (`cubic`, `cubic:hystart=off`), or built
    /// into the datapath (`native:reno`). Several get a leaderboard. Without it, the questions are
    /// listed.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alg: Vec<Contender>,
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
    /// Folder for evaluation.html, evaluation.json and the table of runs; without it
    /// `ccplane-evaluation/` followed by the algorithm. Several algorithms have a folder each in it,
    /// next to leaderboard.html.
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
const LEADERBOARD_FILE: &str = "leaderboard.html";
const METRICS_FILE: &str = "evaluation.json";
const RUNS_TABLE: &str = "runs";
const PARTS_FOLDER: &str = "parts";
/// Folder of several algorithms in the folder of all evaluations.
const LEADERBOARD_FOLDER: &str = "leaderboard";

pub fn run(args: &EvaluateArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if args.alg.is_empty() {
        list(json);
        return Ok(());
    }
    let backend: Box<dyn Backend> = match args.datapath {
        EvaluateDatapath::Sim => Box::new(Sim::default()),
        #[cfg(feature = "host")]
        EvaluateDatapath::Linux => {
            crate::remote_agent::find_agents(&args.alg)?;
            doctor::require(&[doctor::Need::Emulator, doctor::Need::KernelTcp])?;
            Box::new(RealPackets::new(TransportKind::Tcp))
        }
    };
    let mut algorithms: Vec<Contender> = Vec::new();
    for algorithm in &args.alg {
        if !algorithms.contains(algorithm) {
            algorithms.push(algorithm.clone());
        }
    }
    let out = args.out.clone().unwrap_or_else(|| {
        let name = match &*algorithms {
            [only] => folder(&only.to_string()),
            _ => LEADERBOARD_FOLDER.to_owned(),
        };
        Path::new("ccplane-evaluation").join(name)
    });
    // Recorded first: later the load of the host is our own.
    let provenance = Provenance::now(crate::build(), command_line(), args.quick);
    let options = Options {
        algorithms,
        only: args.only.clone(),
        quick: args.quick,
        threads: threads()?,
        parts: Some(out.join(PARTS_FOLDER)),
        command: again(&command_line()),
    };
    evaluate::check(&options, &*backend, registry).map_err(failure)?;
    prepare(&out, args)?;
    let shown = BarProgress::start()?;
    let all = evaluate::run(&options, &*backend, registry, &shown);
    shown.bar.finish_and_clear();
    let all = all.map_err(|error| match error {
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
    let page = match write(&all, &out, &options.command, &provenance) {
        Ok(page) => page,
        Err(why) => {
            // Prints the verdicts even if the page cannot be written. With --json, the failure is
            // the only object.
            if !json {
                print(&all);
            }
            return Err(unwritable(&out, &why).hint(
                "free some space or change the folder's owner; --resume then writes the page \
                 without new runs",
            ));
        }
    };
    // The folder does not exist if no question needed a run.
    let _ = fs::remove_dir_all(out.join(PARTS_FOLDER));
    for evaluation in &all.each {
        for (question, run, what) in &evaluation.complaints {
            tracing::warn!("{}, {question}, {run}: {what}", evaluation.algorithm);
        }
    }
    let page = fs::canonicalize(&page).unwrap_or(page);
    if args.open {
        results::open_page(&page);
    }
    if json {
        let mut object = metrics(&all);
        object["report"] = page.display().to_string().into();
        println!("{object}");
    } else {
        print(&all);
        println!("report: {}", page.display());
    }
    Ok(())
}

/// Writes all pages and tables. Returns the page to show.
fn write(
    all: &Evaluations,
    out: &Path,
    command: &str,
    provenance: &Provenance,
) -> io::Result<PathBuf> {
    let write = |folder: &Path, evaluation: &Evaluation| {
        let metrics = serde_json::to_string_pretty(&evaluation.json()).unwrap_or_default() + "\n";
        fs::create_dir_all(folder)?;
        fs::write(
            folder.join(evaluate::PAGE_FILE),
            evaluate::page(evaluation, provenance),
        )?;
        fs::write(folder.join(METRICS_FILE), metrics)
    };
    fs::create_dir_all(out)?;
    write_table(&out.join(RUNS_TABLE), &all.runs)?;
    if let [only] = &*all.each {
        write(out, only)?;
        return Ok(out.join(evaluate::PAGE_FILE));
    }
    let folders = folders(all.each.iter().map(|evaluation| &*evaluation.algorithm));
    let folder = |evaluation: &Evaluation| {
        let found = folders.get(&*evaluation.algorithm);
        found.cloned().unwrap_or_default()
    };
    for evaluation in &all.each {
        write(&out.join(folder(evaluation)), evaluation)?;
    }
    let text = serde_json::to_string_pretty(&metrics(all)).unwrap_or_default() + "\n";
    fs::write(out.join(METRICS_FILE), text)?;
    let page = out.join(LEADERBOARD_FILE);
    let html = all.leaderboard(folder, command, provenance);
    fs::write(&page, html)?;
    Ok(page)
}

/// Returns the object of one evaluation, or one that lists several, the best first.
fn metrics(all: &Evaluations) -> Value {
    match &*all.each {
        [only] => only.json(),
        _ => serde_json::json!({
            "schema": evaluate::SCHEMA,
            "evaluations": all.ranked().into_iter().map(Evaluation::json).collect::<Vec<_>>(),
        }),
    }
}

/// Prints the findings about one algorithm, or the number of verdicts of several.
fn print(all: &Evaluations) {
    if let [only] = &*all.each {
        println!("{}", only.text());
        return;
    }
    let verdicts = [
        Verdict::Pass,
        Verdict::Caution,
        Verdict::Fail,
        Verdict::Unanswered,
    ];
    let rows = all.ranked().into_iter().map(|evaluation| {
        let counts = verdicts.map(|verdict| evaluation.count(verdict).to_string());
        let answers = evaluation.answers.iter();
        let failed = answers.filter(|(_, answer)| answer.verdict == Verdict::Fail);
        let failed: Vec<&str> = failed.map(|(question, _)| question.name).collect();
        let name = [evaluation.algorithm.clone()].into_iter();
        name.chain(counts).chain([failed.join(", ")]).collect()
    });
    let words = verdicts.map(Verdict::word);
    let headings = ["algorithm"].into_iter().chain(words).chain(["fails"]);
    println!("{}", Table::new(headings, rows.collect()).to_text());
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
fn folder(algorithm: &str) -> String {
    let (file, parameters) = match algorithm.find(':') {
        Some(colon) => algorithm.split_at(colon),
        None => (algorithm, ""),
    };
    let path = Path::new(file);
    let name = match (path.extension(), path.file_stem()) {
        (Some(end), Some(stem)) if end == "ccp" || end == "py" => {
            format!("{}{parameters}", stem.to_string_lossy())
        }
        _ => algorithm.to_owned(),
    };
    let name = name.replace([':', '/', ' '], "-");
    name.trim_start_matches(['.', '-']).to_owned()
}

/// Returns a folder for each algorithm. Files of the same name in different folders have different
/// ones, and none is the folder of parts, which is removed.
fn folders<'a>(algorithms: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let mut taken = BTreeSet::from([PARTS_FOLDER.to_owned()]);
    let mut folders = BTreeMap::new();
    for algorithm in algorithms {
        let name = folder(algorithm);
        let numbered = (2u32..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        if let Some(free) = names.find(|name| taken.insert(name.clone())) {
            folders.insert(algorithm, free);
        }
    }
    folders
}

/// Prepares the folder. Existing results are replaced only with --force.
fn prepare(out: &Path, args: &EvaluateArgs) -> Result<(), Failure> {
    let (parts, finished) = (
        out.join(PARTS_FOLDER),
        out.join(evaluate::PAGE_FILE).exists() || out.join(METRICS_FILE).exists(),
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
            assert_eq!(folder(algorithm), expected);
        }
    }

    #[test]
    fn algorithms_of_the_same_name_have_different_folders() {
        let algorithms = ["a/mine.ccp", "b/mine.ccp", "./parts.py", "cubic"];
        let folders = folders(algorithms.into_iter());
        let names = algorithms.map(|algorithm| &*folders[algorithm]);
        assert_eq!(names, ["mine", "mine-2", "parts-2", "cubic"]);
    }

    #[test]
    fn the_repeated_command_omits_one_time_options() {
        assert_eq!(
            again("ccplane evaluate --alg cubic --out x --quick --resume --json"),
            "ccplane evaluate --alg cubic --quick"
        );
    }
}
