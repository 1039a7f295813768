//! `ccplane bench …`: what ccplane costs, measured here and now, beside the reference.
//!
//! Every command prints a table of its figures with the aim and the reference, or one JSON object on one line.

mod against;
mod agent;
mod control_loop;
mod datapath;
mod decision;
mod dx;
mod emu;
mod kernel;
mod sim;
mod transport;

use ccplane_report::{Aim, Provenance, Table, Verdict, provenance};
use clap::Subcommand;
use serde_json::{Map, Value};

use crate::Registry;
use crate::exit::Failure;
use crate::run::command_line;

/// The benchmarks.
#[derive(Subcommand)]
pub enum BenchCommand {
    /// The engine: ns an ACK, bytes a flow, µs a compilation.
    Datapath,
    /// The control loop: report to algorithm to update and back, in µs.
    ControlLoop(against::AgainstArgs),
    /// The agent: reports and updates a second over the Unix link.
    Agent(against::AgainstArgs),
    /// Kernel TCP on loopback: ccp_reno against the kernel's own Reno.
    Kernel(kernel::KernelArgs),
    /// DX on kernel TCP: what a time stamp costs, the queue that it leaves beside Cubic's, and the ACK path flooded.
    Dx(dx::DxArgs),
    /// The transport: ns a packet, bytes a flow, and its UDP driver beside kernel TCP on loopback.
    Transport,
    /// The simulator: ns a packet over a link, bytes a flow, packet and host.
    Sim(sim::SimArgs),
    /// The emulator: ceiling, rate, delay and lateness, with both timings.
    Emu,
    /// The other end of `control-loop` and `agent`.
    #[command(hide = true)]
    Peer(against::PeerArgs),
}

/// Runs a benchmark.
pub fn run(command: &BenchCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    // Before the load is our own.
    let provenance = Provenance::now(crate::build(), command_line(), false);
    let figures = match command {
        BenchCommand::Datapath => datapath::run()?,
        BenchCommand::ControlLoop(args) => control_loop::run(args)?,
        BenchCommand::Agent(args) => agent::run(args)?,
        BenchCommand::Kernel(args) => kernel::run(args, registry)?,
        BenchCommand::Dx(args) => dx::run(args, registry)?,
        BenchCommand::Transport => transport::run()?,
        BenchCommand::Sim(args) => match sim::run(args)? {
            Some(figures) => figures,
            None => return Ok(()),
        },
        BenchCommand::Emu => emu::run()?,
        BenchCommand::Peer(args) => return against::peer(args),
    };
    if json {
        println!("{}", figures.to_json(&provenance));
    } else {
        print!("{}", figures.to_table());
        println!("{}", provenance.line());
    }
    Ok(())
}

/// What a benchmark found.
#[derive(Default)]
pub struct Figures {
    rows: Vec<Row>,
    notes: Vec<String>,
    facts: Map<String, Value>,
}

struct Row {
    key: String,
    value: f64,
    unit: &'static str,
    aim: Option<Aim>,
    /// Of a ratio of runs on real packets, where there are enough of them: its 95 % interval.
    interval: Option<(f64, f64)>,
    verdict: Option<Verdict>,
    reference: &'static str,
}

impl Figures {
    /// Adds a figure: its key in the JSON object, its value, what was aimed at, and the reference that it stands
    /// beside, in words.
    pub fn add(
        &mut self,
        key: impl Into<String>,
        value: f64,
        unit: &'static str,
        aim: Option<Aim>,
        reference: &'static str,
    ) {
        self.rows.push(Row {
            key: key.into(),
            value,
            unit,
            aim,
            interval: None,
            verdict: aim.map(|aim| aim.judge(value)),
            reference,
        });
    }

    /// Adds a ratio to what ran in turns with it, `x native` for example, judged by its interval; its ends are figures, too.
    pub fn add_ratio(
        &mut self,
        key: impl Into<String>,
        value: f64,
        unit: &'static str,
        interval: Option<(f64, f64)>,
        aim: Aim,
        reference: &'static str,
    ) {
        self.rows.push(Row {
            key: key.into(),
            value,
            unit,
            aim: Some(aim),
            interval,
            verdict: Some(aim.judge_interval(interval)),
            reference,
        });
    }

    /// Adds anything else, for scripts.
    pub fn fact(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.facts.insert(key.into(), value.into());
    }

    /// Adds a sentence on how the figures came about.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    fn to_json(&self, provenance: &Provenance) -> Value {
        let round = |v: f64| (v * 1e4).round() / 1e4;
        let mut object: Map<String, Value> = self
            .rows
            .iter()
            .map(|r| (r.key.clone(), round(r.value).into()))
            .collect();
        let references: Map<String, Value> = self
            .rows
            .iter()
            .filter(|r| !r.reference.is_empty())
            .map(|r| (r.key.clone(), r.reference.into()))
            .collect();
        for row in self.rows.iter() {
            if let Some((low, high)) = row.interval {
                object.insert(format!("{}_low", row.key), round(low).into());
                object.insert(format!("{}_high", row.key), round(high).into());
            }
            // Of one that has no interval the value says it.
            if let Some(verdict) = row.verdict.filter(|_| row.unit.starts_with("x ")) {
                object.insert(format!("{}_verdict", row.key), verdict.to_string().into());
            }
        }
        object.extend(self.facts.clone());
        object.insert("references".into(), references.into());
        object.insert("notes".into(), self.notes.clone().into());
        object.insert(provenance::MEMBER.into(), provenance.json());
        Value::Object(object)
    }

    fn to_table(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|r| {
                let between = |(low, high)| format!(" ({} to {})", number(low), number(high));
                vec![
                    r.key.clone(),
                    number(r.value) + &r.interval.map_or(String::new(), between),
                    r.unit.to_owned(),
                    r.aim.map_or(String::new(), |aim| aim.to_string()),
                    match r.verdict {
                        Some(Verdict::Missed) => "MISSED".to_owned(),
                        verdict => verdict.map_or(String::new(), |verdict| verdict.to_string()),
                    },
                    r.reference.to_owned(),
                ]
            })
            .collect();
        let mut text = Table::new(["figure", "measured", "unit", "aim", "", "reference"], rows).text();
        for note in &self.notes {
            text.push_str(note);
            text.push('\n');
        }
        text
    }
}

/// Four significant digits, without an exponent.
fn number(v: f64) -> String {
    match v.abs() {
        x if x >= 1000.0 => format!("{v:.0}"),
        x if x >= 100.0 => format!("{v:.1}"),
        x if x >= 10.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_say_where_they_come_from_and_whether_enough_is_known() {
        let mut figures = Figures::default();
        figures.add("ns", 12.0, "ns", Some(Aim::AtMost(10.0)), "");
        figures.add_ratio("wide", 1.0, "x native", Some((0.9, 1.1)), Aim::AtLeast(0.95), "");
        figures.add_ratio("single", 1.0, "x native", None, Aim::AtLeast(0.95), "");
        figures.add_ratio("close", 1.0, "x native", Some((0.98, 1.1)), Aim::AtLeast(0.95), "");
        let provenance = Provenance::now(crate::build(), "ccplane bench x".to_owned(), false);
        let json = figures.to_json(&provenance);
        assert_eq!((&json["ns"], &json["wide_low"]), (&12.0.into(), &0.9.into()));
        let verdicts = ["wide", "single", "close"].map(|key| json[format!("{key}_verdict")].clone());
        assert_eq!(verdicts, ["undecided", "undecided", "met"]);
        for member in [
            "commit", "kernel", "cpu", "cores", "command", "day", "quick", "attempts", "load",
        ] {
            assert!(!json["provenance"][member].is_null(), "{member}");
        }
        assert!(json["provenance"].get("dirty").is_some());
        assert!(figures.to_table().contains("MISSED"));
    }
}
