//! `ccplane arena explain FILE`: a candidate's worst run, for people and programs.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ccplane_lab::arena::{self, Explained, InForce, Look, Worst};
use ccplane_report::Table;
use clap::ValueEnum;

use super::{ArenaProgress, ExplainArgs, print_details};
use crate::Registry;
use crate::confine::{SIMULATION_CGROUP_BYTES_MAX, confine};
use crate::contender::is_python;
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::python::enter;
use crate::run::{failure, percent_bar};
use crate::sandbox::{Output, Sandbox, SandboxRequest};
use crate::threads::{THREADS_VARIABLE, threads};
use crate::{interrupt, log};

/// Interval at which the interrupt flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Limit of the output, bytes. The JSON of a run has some hundred kB.
const RESULT_BYTES_MAX: u64 = 64 << 20;

/// Runs the command. Returns exit code 1 if the candidate fails the gate.
pub(super) fn run(args: &ExplainArgs, registry: &Registry, json: bool) -> Result<u8, Failure> {
    let mut contenders = std::iter::once(&args.candidate).chain(&args.how.against);
    if args.confined {
        let given = SandboxRequest::receive()?;
        confine()?;
        enter(given.folder.as_deref())?;
    } else if let Some(python) = registry.python().filter(|_| !args.how.sandbox.is_off())
        && contenders.any(is_python)
    {
        return run_sandboxed(args, python, json);
    }
    let options = args.how.options(&[])?;
    let shown = ArenaProgress {
        bar: percent_bar(),
        stop: interrupt::flag()?,
    };
    let explained = arena::explain(&args.candidate, &options, registry, &shown);
    shown.bar.finish_and_clear();
    let explained = explained.map_err(failure)?;
    if json {
        let Explained { standing, worst } = &explained;
        println!(
            "{}",
            serde_json::json!({
                "schema": 1, "candidate": standing.candidate, "score": standing.score,
                "gate_passed": standing.gate_passed,
                "reasons": standing.reasons, "worst": worst,
            })
        );
    } else {
        print(&explained);
    }
    Ok(if explained.standing.gate_passed { 0 } else { 1 })
}

/// Runs the command in a confined process and prints its output.
fn run_sandboxed(args: &ExplainArgs, python: &Path, json: bool) -> Result<u8, Failure> {
    let ExplainArgs { candidate, how, .. } = args;
    let failed = |what: String| Failure::text(FailureKind::Failed, format!("{candidate}: {what}"));
    let given = SandboxRequest {
        folder: std::env::current_dir().ok(),
        ..SandboxRequest::collect(std::iter::once(candidate).chain(&how.against)).map_err(failed)?
    };
    let sandbox = Sandbox::new(python, how.sandbox.user()?, SIMULATION_CGROUP_BYTES_MAX);
    let threads = threads()?.to_string();
    let stop = interrupt::flag()?;

    let against: Vec<String> = how.against.iter().map(ToString::to_string).collect();
    let suite = how.suite.to_possible_value();
    let mut words: Vec<OsString> = ["arena", "explain", "--confined", "--against"]
        .map(OsString::from)
        .into();
    words.push(against.join(",").into());
    words.extend(
        suite
            .iter()
            .flat_map(|suite| ["--suite".into(), suite.get_name().into()]),
    );
    let seed = how.held_out.map(|seed| seed.to_string());
    words.extend(
        seed.into_iter()
            .flat_map(|seed| ["--held-out".into(), seed.into()]),
    );
    words.extend(json.then(|| "--json".into()));
    words.push(candidate.to_string().into());

    let (process, to) = sandbox
        .start(words, &[(THREADS_VARIABLE, &threads)])
        .map_err(failed)?;
    let output = process.output();
    let ended = thread::scope(|scope| {
        scope.spawn(|| drop(given.send(to)));
        scope.spawn(|| output.map(pass_on));
        let ended = loop {
            match process.wait(POLL_INTERVAL) {
                Ok(None) if interrupt::raised(&stop) => break Ok(None),
                Ok(None) => {}
                ended => break ended,
            }
        };
        process.kill();
        ended
    });
    if let Some(warning) = sandbox.warning().filter(|_| !json) {
        log::write(warning);
    }
    match ended.map_err(failed)? {
        Some(status) => match (status.code(), process.refused(status)) {
            (Some(code), _) => Ok(u8::try_from(code).unwrap_or(1)),
            (None, Some(why)) => Err(failed(why)),
            (None, None) => Err(failed(format!("its process failed: {status}"))),
        },
        None => Err(Failure::text(FailureKind::Interrupted, "interrupted")),
    }
}

/// Prints the output of the process, escaped: a candidate may have written any of it.
fn pass_on(from: Output) {
    let mut lines = BufReader::new(from.take(RESULT_BYTES_MAX));
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        println!(
            "{}",
            printable(String::from_utf8_lossy(&line).trim_end_matches('\n'))
        );
        line.clear();
    }
}

fn print(Explained { standing, worst }: &Explained) {
    let gate = if standing.gate_passed {
        "passed"
    } else {
        "FAILED"
    };
    let score = standing
        .score
        .map_or(String::new(), |score| format!("score {score:.3}, "));
    println!("{}: {score}gate {gate}", standing.candidate);
    standing.reasons.iter().for_each(|why| println!("{why}"));
    print_details(standing);
    let Some(worst) = worst else { return };
    println!("\nWorst run: {}\n{}", worst.place, worst.figure);
    let [from, to] = worst.event_s;
    println!("From {from:.2} to {to:.2} s {}\n", worst.event);
    println!("{}", trace(worst).to_text());
    if !worst.in_force.is_empty() {
        println!("Active from {from:.2} to {to:.2} s:");
        println!("{}", in_force(&worst.in_force).to_text());
    }
    println!(
        "# This run as a scenario file for `ccplane run FILE`\n{}",
        worst.scenario
    );
}

fn trace(worst: &Worst) -> Table {
    let cells = |look: &Look| {
        [
            format!("{:.1}", look.window_bytes as f64 / 1e3),
            format!("{:.2}", look.goodput_mbit),
            look.delay_ms
                .map_or_else(|| Table::EMPTY_CELL.to_owned(), |ms| format!("{ms:.1}")),
            look.sent_again.to_string(),
        ]
    };
    let [from, to] = worst.event_s;
    let row = |row: &arena::Row| {
        let inside = row.time_s > from && row.time_s <= to;
        let mut all = vec![format!(
            "{:.2}{}",
            row.time_s,
            if inside { " <" } else { "" }
        )];
        all.extend(cells(&row.candidate));
        all.extend(cells(&row.baseline));
        all
    };
    let mut headings = vec!["until s".to_owned()];
    for who in ["", "its "] {
        headings.extend(
            ["window kB", "Mbit/s", "delay ms", "retransmitted"].map(|what| format!("{who}{what}")),
        );
    }
    headings[5] = format!("{}: window kB", worst.baseline);
    Table::new(headings, worst.trace.iter().map(row).collect())
}

fn in_force(all: &[InForce]) -> Table {
    let row = |one: &InForce| {
        let line = one
            .line
            .map_or_else(|| Table::EMPTY_CELL.to_owned(), |line| line.to_string());
        vec![one.times.to_string(), line, one.what.clone()]
    };
    Table::new(
        ["times", "line", "clause or callback"],
        all.iter().map(row).collect(),
    )
}
