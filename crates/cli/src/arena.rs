//! `ccplane arena FILE…`: scores candidates in seconds, and shows the parts of each score.

mod candidate_process;
mod explained;

use std::fs;
use std::path::{Path, PathBuf};

use ccplane_lab::arena::{self, Options, Parts, Standing, Suite};
use ccplane_lab::{Contender, Progress};
use ccplane_report::Table;
use ccplane_units::Duration;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;

use candidate_process::Processes;

use crate::confine::SIMULATION_CGROUP_BYTES_MAX;
use crate::exit::{Failure, FailureKind};
use crate::run::{command_line, failure, percent_bar, show};
use crate::sandbox::{Sandbox, SandboxArgs};
use crate::sweep::write_table;
use crate::threads::threads;
use crate::{Registry, interrupt, results};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ArenaArgs {
    #[command(subcommand)]
    command: Option<ArenaCommand>,
    /// Candidates: algorithm files (`./mine.ccp`, `./mine.py`) or names, with parameters in the
    /// usual form (`./mine.ccp:back=0.7`).
    #[arg(value_name = "CANDIDATE", required = true)]
    candidates: Vec<Contender>,
    /// CPU time limit of a candidate in Python, once for the gate and again for the score; ten
    /// times as much with --suite full.
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    cpu: Duration,
    /// File for a page with the leaderboard and a chart of goodput over delay. Next to it is a table
    /// with one row per run, as CSV and Parquet.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite an existing page.
    #[arg(long, requires = "out")]
    force: bool,
    /// Open the page in a browser: the program of `$BROWSER`, otherwise `xdg-open`.
    #[arg(long, requires = "out")]
    open: bool,
    /// Run as the process of one candidate, which reads its request from standard input.
    #[arg(long, hide = true)]
    confined: bool,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Subcommand)]
enum ArenaCommand {
    /// Explain what limits a candidate's score: its worst run around the decisive moment, the rules
    /// that were active then, and a baseline on the same link.
    Explain(ExplainArgs),
}

#[derive(Args)]
struct ExplainArgs {
    /// Candidate to explain.
    #[arg(value_name = "CANDIDATE")]
    candidate: Contender,
    /// Confine this process, which reads its request from standard input.
    #[arg(long, hide = true)]
    confined: bool,
    #[command(flatten)]
    how: HowArgs,
}

/// Scoring options.
#[derive(Args)]
struct HowArgs {
    /// Set of links to score on.
    #[arg(long, value_enum, default_value = "quick")]
    suite: SuiteArg,
    /// Baselines, separated by commas: each metric is compared with the best baseline on the same
    /// link.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "cubic,bbr3,copa"
    )]
    against: Vec<Contender>,
    /// Seed of the links, in place of the published one: links that the author of a candidate has
    /// not seen.
    #[arg(long, value_name = "SEED")]
    held_out: Option<u64>,
    #[command(flatten)]
    sandbox: SandboxArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SuiteArg {
    /// Gate only: checks that an algorithm works and is fair to others.
    Gate,
    /// Gate, and a score on six links.
    Quick,
    /// Gate, and a score on twenty links, with runs three times as long.
    Full,
}

impl HowArgs {
    fn options(&self, candidates: &[Contender]) -> Result<Options, Failure> {
        Ok(Options {
            candidates: candidates.to_vec(),
            against: self.against.clone(),
            suite: match self.suite {
                SuiteArg::Gate => Suite::Gate,
                SuiteArg::Quick => Suite::Quick,
                SuiteArg::Full => Suite::Full,
            },
            held_out: self.held_out,
            threads: threads()?,
        })
    }

    /// Returns the processes for candidates in Python, each with this CPU time limit.
    fn processes(&self, cpu: Duration, registry: &Registry) -> Result<Processes, Failure> {
        let seconds = cpu.as_nanos().div_ceil(1_000_000_000).max(1);
        let user = self.sandbox.user()?;
        let python = registry.python().filter(|_| !self.sandbox.is_off());
        Ok(Processes {
            sandbox: python.map(|python| Sandbox::new(python, user, SIMULATION_CGROUP_BYTES_MAX)),
            seconds: if self.suite == SuiteArg::Full {
                seconds.saturating_mul(10)
            } else {
                seconds
            },
        })
    }
}

/// Runs the command. Returns exit code 1 if a candidate fails the gate.
pub fn run(args: &ArenaArgs, registry: &Registry, json: bool) -> Result<u8, Failure> {
    let ArenaArgs {
        command,
        candidates,
        cpu,
        out,
        force,
        open,
        how,
        ..
    } = args;
    if let Some(ArenaCommand::Explain(args)) = command {
        return explained::run(args, registry, json);
    }
    if let (true, [candidate]) = (args.confined, candidates.as_slice()) {
        return candidate_process::serve(candidate, registry).map(|()| 0);
    }
    if let Some(page) = out {
        // Fails before the runs, not after them.
        check_free(page, *force)?;
    }
    let apart = how.processes(*cpu, registry)?;
    let options = how.options(candidates)?;
    let shown = ArenaProgress {
        bar: percent_bar(),
        stop: interrupt::flag()?,
    };
    let result = arena::run(&options, registry, &apart, &shown);
    shown.bar.finish_and_clear();
    let result = result.map_err(failure)?;
    if let Some(page) = out {
        let html = arena::page(&result, &options, &command_line(), &crate::build());
        write_page(page, &html)?;
        write_table(page, &result.runs).map_err(|why| {
            let what = format!("cannot write the table next to {}: {why}", page.display());
            Failure::text(FailureKind::Failed, what).hint("choose another path with --out")
        })?;
        if *open {
            results::open_page(page);
        }
    }
    let standings = result.candidates;
    if json {
        let against: Vec<String> = how.against.iter().map(Contender::to_string).collect();
        let suite = format!("{:?}", how.suite).to_lowercase();
        let mut object = serde_json::json!({
            "schema": 1, "suite": suite, "against": against, "held_out": how.held_out,
            "weights": arena::WEIGHTS,
            "confinement": confinement(&apart), "candidates": standings,
        });
        if let Some(page) = out {
            object["page"] = page.display().to_string().into();
        }
        println!("{object}");
    } else {
        println!("{}", table(&standings, how.suite).to_text());
        for standing in &standings {
            for why in &standing.reasons {
                println!("{}: {why}", standing.candidate);
            }
        }
    }
    if let Some(warning) = apart
        .sandbox
        .as_ref()
        .and_then(Sandbox::warning)
        .filter(|_| !json)
    {
        println!("{warning}");
    }
    if let Some(page) = out.as_ref().filter(|_| !json) {
        println!("page: {}", page.display());
    }
    let all_passed = standings.iter().all(|standing| standing.gate_passed);
    Ok(if all_passed { 0 } else { 1 })
}

/// Refuses a page with the name of a table next to it, and a page that would replace a file, or
/// whose table would.
fn check_free(page: &Path, force: bool) -> Result<(), Failure> {
    let tables = ["csv", "parquet"].map(|extension| page.with_extension(extension));
    if tables.iter().any(|table| table == page) {
        let what = format!(
            "{} is the name of the table next to the page",
            page.display()
        );
        return Err(Failure::text(FailureKind::Usage, what)
            .hint("choose another name with --out, such as arena.html"));
    }
    results::page(Some(page), None, force)?;
    for table in &tables {
        results::page(Some(table), None, force)?;
    }
    Ok(())
}

/// Writes the page, and the folder that contains it.
fn write_page(page: &Path, html: &str) -> Result<(), Failure> {
    let folder = page.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(page, html)).map_err(|why| {
        let what = format!("{} cannot be written: {why}", page.display());
        Failure::text(FailureKind::Failed, what).hint("choose another path with --out")
    })
}

/// Returns how Python files were confined; null if there were none.
fn confinement(apart: &Processes) -> serde_json::Value {
    let ran = apart
        .sandbox
        .as_ref()
        .and_then(|sandbox| Some((sandbox.user(), sandbox.missing()?)));
    ran.map_or(
        serde_json::Value::Null,
        |(user, missing)| serde_json::json!({ "user": user, "missing": missing }),
    )
}

fn cells(parts: &Parts) -> Vec<String> {
    parts.each().map(|part| format!("{part:.2}")).to_vec()
}

fn table(standings: &[Standing], suite: SuiteArg) -> Table {
    let nothing = || Table::EMPTY_CELL.to_owned();
    let row = |standing: &Standing| {
        let mut row = vec![standing.candidate.clone()];
        if suite != SuiteArg::Gate {
            row.push(
                standing
                    .score
                    .map_or_else(nothing, |score| format!("{score:.3}")),
            );
            row.extend(match &standing.parts {
                Some(score) => cells(&score.parts),
                None => Parts::NAMES.map(|_| nothing()).to_vec(),
            });
        }
        row.push(
            if standing.gate_passed {
                "passed"
            } else {
                "FAILED"
            }
            .to_owned(),
        );
        row
    };
    let mut headings = vec!["candidate"];
    if suite != SuiteArg::Gate {
        headings.push("score");
        headings.extend(Parts::NAMES);
    }
    headings.push("gate");
    Table::new(headings, standings.iter().map(row).collect())
}

/// Prints every check and every link.
fn print_details(standing: &Standing) {
    let check = |check: &arena::Check| {
        let value = check.value.map_or_else(
            || "broke".to_owned(),
            |value| format!("{:.1} %", value * 100.0),
        );
        let word = if check.passed { "passed" } else { "FAILED" };
        vec![
            check.name.to_owned(),
            value,
            format!("{:.0} %", check.least * 100.0),
            word.to_owned(),
        ]
    };
    let checks = standing.gate.iter().map(check).collect();
    println!(
        "{}",
        Table::new(["check", "value", "minimum", ""], checks).to_text()
    );
    if let Some(score) = &standing.parts {
        let mut headings = vec!["link", "score"];
        headings.extend(Parts::NAMES);
        let link = |link: &arena::LinkScore| {
            let mut row = vec![link.link.clone(), format!("{:.3}", link.score)];
            row.extend(cells(&link.parts));
            row
        };
        println!(
            "{}",
            Table::new(headings, score.links.iter().map(link).collect()).to_text()
        );
    }
}

struct ArenaProgress {
    bar: ProgressBar,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Progress for ArenaProgress {
    fn on_progress(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }

    fn is_cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}
