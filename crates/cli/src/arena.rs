//! `ccplane arena FILE…`: a score for each candidate in seconds, with what it is made of.

mod apart;
mod explained;

use std::path::PathBuf;

use ccplane_lab::arena::{self, Options, Parts, Standing, Suite};
use ccplane_lab::{Contender, Progress};
use ccplane_report::Table;
use ccplane_units::Duration;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;

use apart::Processes;

use crate::confine::SIMULATION_CGROUP_BYTES_MAX;
use crate::exit::Failure;
use crate::run::{failure, percent_bar, show};
use crate::sandbox::{RunAs, Sandbox};
use crate::{Registry, interrupt};

/// Who is scored, and how.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ArenaArgs {
    #[command(subcommand)]
    command: Option<ArenaCommand>,
    /// The candidates: files of algorithms (`./mine.ccp`, `./mine.py`) or names, with parameters as
    /// elsewhere (`./mine.ccp:back=0.7`).
    #[arg(value_name = "CANDIDATE", required = true)]
    candidates: Vec<Contender>,
    /// Also show every link, and the file of a run on the worst.
    #[arg(long)]
    explain: bool,
    /// Processor time of a candidate that is a Python file, for the gate and again for the score;
    /// with --suite full ten times as much.
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    cpu: Duration,
    /// Be the process of a candidate, with so much processor time, s.
    #[arg(long, hide = true, value_name = "SECONDS")]
    apart: Option<u64>,
    /// Folder that the paths of --apart are relative to.
    #[arg(long, hide = true, value_name = "DIR", requires = "apart")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    how: HowArgs,
}

#[derive(Subcommand)]
enum ArenaCommand {
    /// Why a candidate has no better score: its worst run around the moment that matters, what was
    /// in force then, and a baseline there.
    Explain(ExplainArgs),
}

/// Whom to explain.
#[derive(Args)]
struct ExplainArgs {
    /// The candidate.
    #[arg(value_name = "CANDIDATE")]
    candidate: Contender,
    /// Confine this process, which gets its files on standard input.
    #[arg(long, hide = true)]
    confined: bool,
    /// Folder that the paths of --confined are relative to.
    #[arg(long, hide = true, value_name = "DIR", requires = "confined")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    how: HowArgs,
}

/// How candidates are scored.
#[derive(Args)]
struct HowArgs {
    /// How thoroughly.
    #[arg(long, value_enum, default_value = "quick")]
    suite: SuiteArg,
    /// The baselines, separated by commas: each figure is set beside the best of theirs on the same
    /// link.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "cubic,bbr3,copa"
    )]
    against: Vec<Contender>,
    /// Draw the links from this seed instead of the published one: links that a candidate's author
    /// has not seen.
    #[arg(long, value_name = "SEED")]
    held_out: Option<u64>,
    /// Threads; without it as many as there are CPUs. The result does not depend on it.
    #[arg(long)]
    threads: Option<usize>,
    /// Let candidates that are Python files do what this user may, in this process. Without it each
    /// has one of its own, which cannot write files, run programs or use the network, and has 512
    /// MB.
    #[arg(long)]
    trusted: bool,
    /// Run candidates that are Python files as this user, a name or a number [default: nobody, if
    /// root calls].
    #[arg(long = "as", value_name = "USER", conflicts_with = "trusted")]
    run_as: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SuiteArg {
    /// Only the gate: does it work, and does it leave others alone?
    Gate,
    /// The gate, and a score on six links.
    Quick,
    /// The same on twenty links, three times as long.
    Full,
}

impl HowArgs {
    fn options(&self, candidates: &[Contender]) -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            candidates: candidates.to_vec(),
            against: self.against.clone(),
            suite: match self.suite {
                SuiteArg::Gate => Suite::Gate,
                SuiteArg::Quick => Suite::Quick,
                SuiteArg::Full => Suite::Full,
            },
            held_out: self.held_out,
            threads: self.threads.unwrap_or(threads).max(1),
        }
    }

    /// Returns the processes for Python files, which have this much processor time each.
    fn apart(&self, cpu: Duration, registry: &Registry) -> Result<Processes, Failure> {
        let seconds = cpu.as_nanos().div_ceil(1_000_000_000).max(1);
        let user = RunAs::of(self.run_as.as_deref())?;
        let python = registry.python().filter(|_| !self.trusted);
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

/// Runs the command. Exit code 1 where a candidate fails the gate.
pub fn run(args: &ArenaArgs, registry: &Registry, json: bool) -> Result<u8, Failure> {
    let ArenaArgs {
        command,
        candidates,
        cpu,
        how,
        ..
    } = args;
    if let Some(ArenaCommand::Explain(args)) = command {
        return explained::run(args, registry, json);
    }
    if let (Some(seconds), [candidate]) = (args.apart, candidates.as_slice()) {
        return apart::serve(candidate, args.folder.as_deref(), seconds, registry).map(|()| 0);
    }
    let apart = how.apart(*cpu, registry)?;
    let options = how.options(candidates);
    let shown = ArenaProgress {
        bar: percent_bar(),
        stop: interrupt::flag()?,
    };
    let standings = arena::run(&options, registry, &apart, &shown);
    shown.bar.finish_and_clear();
    let standings = standings.map_err(failure)?;
    if json {
        let against: Vec<String> = how.against.iter().map(Contender::to_string).collect();
        let suite = format!("{:?}", how.suite).to_lowercase();
        println!(
            "{}",
            serde_json::json!({
                "schema": 1, "suite": suite, "against": against, "held_out": how.held_out, "weights": arena::WEIGHTS,
                "confinement": confinement(&apart), "candidates": standings,
            })
        );
    } else {
        println!("{}", table(&standings, how.suite).text());
        for standing in &standings {
            for why in &standing.reasons {
                println!("{}: {why}", standing.candidate);
            }
            if args.explain {
                explain(standing);
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
    let all_passed = standings.iter().all(|standing| standing.gate_passed);
    Ok(if all_passed { 0 } else { 1 })
}

/// Returns how Python files were confined; null if none was.
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

/// Every check, every link, and the worst one's file.
fn explain(standing: &Standing) {
    println!("\n{}, the gate:", standing.candidate);
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
        Table::new(["check", "has", "at least", ""], checks).text()
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
            Table::new(headings, score.links.iter().map(link).collect()).text()
        );
        println!(
            "# the worst of them, as a file for `ccplane run FILE`\n{}",
            score.worst().scenario
        );
    }
}

struct ArenaProgress {
    bar: ProgressBar,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Progress for ArenaProgress {
    fn advanced(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }

    fn cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}
