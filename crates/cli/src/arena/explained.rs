//! `ccplane arena explain FILE`: a candidate's worst run, for people and programs.

use ccplane_lab::arena::{self, Explained, InForce, Look, Worst};
use ccplane_report::Table;

use super::{ExplainArgs, Shown};
use crate::Registry;
use crate::exit::Failure;
use crate::interrupt;
use crate::run::{failure, percent_bar};

/// Runs the command. Exit code 1 where the candidate fails the gate.
pub(super) fn run(args: &ExplainArgs, registry: &Registry, json: bool) -> Result<u8, Failure> {
    args.how.confine(std::slice::from_ref(&args.candidate))?;
    let options = args.how.options(&[]);
    let shown = Shown {
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
                "schema": 1, "candidate": standing.candidate, "score": standing.score, "gate_passed": standing.gate_passed,
                "reasons": standing.reasons, "worst": worst,
            })
        );
    } else {
        print(&explained);
    }
    Ok(if explained.standing.gate_passed { 0 } else { 1 })
}

fn print(Explained { standing, worst }: &Explained) {
    let gate = if standing.gate_passed { "passed" } else { "FAILED" };
    let score = standing
        .score
        .map_or(String::new(), |score| format!("score {score:.3}, "));
    println!("{}: {score}gate {gate}", standing.candidate);
    standing.reasons.iter().for_each(|why| println!("{why}"));
    let Some(worst) = worst else { return };
    println!("\nIts worst run: {}\n{}", worst.place, worst.figure);
    let [from, to] = worst.event_s;
    println!("From {from:.2} to {to:.2} s {}\n", worst.event);
    println!("{}", trace(worst).text());
    if !worst.in_force.is_empty() {
        println!("In force from {from:.2} to {to:.2} s:");
        println!("{}", in_force(&worst.in_force).text());
    }
    println!("# the run, as a file for `ccplane run FILE`\n{}", worst.scenario);
}

fn trace(worst: &Worst) -> Table {
    let cells = |look: &Look| {
        [
            format!("{:.1}", look.window_bytes as f64 / 1e3),
            format!("{:.2}", look.goodput_mbit),
            look.delay_ms
                .map_or_else(|| Table::NOTHING.to_owned(), |ms| format!("{ms:.1}")),
            look.sent_again.to_string(),
        ]
    };
    let [from, to] = worst.event_s;
    let row = |row: &arena::Row| {
        let inside = row.time_s > from && row.time_s <= to;
        let mut all = vec![format!("{:.2}{}", row.time_s, if inside { " <" } else { "" })];
        all.extend(cells(&row.candidate));
        all.extend(cells(&row.baseline));
        all
    };
    let mut headings = vec!["until s".to_owned()];
    for who in ["", "its "] {
        headings.extend(["window kB", "Mbit/s", "delay ms", "sent again"].map(|what| format!("{who}{what}")));
    }
    headings[5] = format!("{}: window kB", worst.baseline);
    Table::new(headings, worst.trace.iter().map(row).collect())
}

fn in_force(all: &[InForce]) -> Table {
    let row = |one: &InForce| {
        let line = one
            .line
            .map_or_else(|| Table::NOTHING.to_owned(), |line| line.to_string());
        vec![one.times.to_string(), line, one.what.clone()]
    };
    Table::new(["times", "line", "clause or callback"], all.iter().map(row).collect())
}
