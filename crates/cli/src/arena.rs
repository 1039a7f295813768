//! `ccplane arena FILE…`: a score for each candidate in seconds, with what it is made of.

use ccplane_lab::arena::{self, Options, Parts, Standing, Suite};
use ccplane_lab::{Contender, Progress};
use ccplane_report::Table;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;

use crate::attach::is_python;
use crate::confine::confine;
use crate::exit::Failure;
use crate::run::{failure, percent_bar, show};
use crate::{Registry, interrupt};

/// Who is scored, and how.
#[derive(Args)]
pub struct ArenaArgs {
    /// The candidates: files of algorithms (`./mine.ccp`, `./mine.py`) or names, with parameters as elsewhere (`./mine.ccp:back=0.7`).
    #[arg(value_name = "CANDIDATE", required = true)]
    candidates: Vec<Contender>,
    /// How thoroughly.
    #[arg(long, value_enum, default_value = "quick")]
    suite: SuiteArg,
    /// The baselines, separated by commas: each figure is set beside the best of theirs on the same link.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cubic,bbr3,copa")]
    against: Vec<Contender>,
    /// Draw the links from this seed instead of the published one: links that a candidate's author has not seen.
    #[arg(long, value_name = "SEED")]
    held_out: Option<u64>,
    /// Also show every link, and the file of a run on the worst.
    #[arg(long)]
    explain: bool,
    /// Threads; without it as many as there are CPUs. The result does not depend on it.
    #[arg(long)]
    threads: Option<usize>,
    /// Let candidates that are Python files do what this user may. Without it they cannot write files, run programs or use the network.
    #[arg(long)]
    trusted: bool,
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

/// Runs the command. Exit code 1 where a candidate fails the gate.
pub fn run(args: &ArenaArgs, registry: &Registry, json: bool) -> Result<u8, Failure> {
    if args.candidates.iter().chain(&args.against).any(is_python) && !args.trusted {
        confine()?;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        candidates: args.candidates.clone(),
        against: args.against.clone(),
        suite: match args.suite {
            SuiteArg::Gate => Suite::Gate,
            SuiteArg::Quick => Suite::Quick,
            SuiteArg::Full => Suite::Full,
        },
        held_out: args.held_out,
        threads: args.threads.unwrap_or(threads).max(1),
    };
    let shown = Shown {
        bar: percent_bar(),
        stop: interrupt::flag()?,
    };
    let standings = arena::run(&options, registry, &shown);
    shown.bar.finish_and_clear();
    let standings = standings.map_err(failure)?;
    if json {
        let against: Vec<String> = args.against.iter().map(Contender::to_string).collect();
        let suite = format!("{:?}", args.suite).to_lowercase();
        println!(
            "{}",
            serde_json::json!({
                "schema": 1, "suite": suite, "against": against, "held_out": args.held_out, "weights": arena::WEIGHTS,
                "candidates": standings,
            })
        );
    } else {
        println!("{}", table(&standings, args.suite).text());
        for standing in &standings {
            for why in &standing.reasons {
                println!("{}: {why}", standing.candidate);
            }
            if args.explain {
                explain(standing);
            }
        }
    }
    let all_passed = standings.iter().all(|standing| standing.gate_passed);
    Ok(if all_passed { 0 } else { 1 })
}

fn cells(parts: &Parts) -> Vec<String> {
    parts.each().map(|part| format!("{part:.2}")).to_vec()
}

fn table(standings: &[Standing], suite: SuiteArg) -> Table {
    let nothing = || Table::NOTHING.to_owned();
    let row = |standing: &Standing| {
        let mut row = vec![standing.candidate.clone()];
        if suite != SuiteArg::Gate {
            row.push(standing.score.map_or_else(nothing, |score| format!("{score:.3}")));
            row.extend(match &standing.parts {
                Some(score) => cells(&score.parts),
                None => Parts::NAMES.map(|_| nothing()).to_vec(),
            });
        }
        row.push(if standing.gate_passed { "passed" } else { "FAILED" }.to_owned());
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
        let value = check
            .value
            .map_or_else(|| "broke".to_owned(), |value| format!("{:.1} %", value * 100.0));
        let word = if check.passed { "passed" } else { "FAILED" };
        vec![
            check.name.to_owned(),
            value,
            format!("{:.0} %", check.least * 100.0),
            word.to_owned(),
        ]
    };
    let checks = standing.gate.iter().map(check).collect();
    println!("{}", Table::new(["check", "has", "at least", ""], checks).text());
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

struct Shown {
    bar: ProgressBar,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Progress for Shown {
    fn advanced(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }

    fn cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}
