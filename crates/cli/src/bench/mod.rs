//! `ccplane bench …`: what ccplane costs, measured here and now, beside the reference.
//!
//! Every command prints a table of its figures with the aim and the reference, or one JSON object on one line.

mod agent;
mod control_loop;
mod datapath;
mod dx;
mod emu;
mod kernel;
mod sim;
mod transport;

use ccplane_lab::provenance::{self, Provenance};
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
    ControlLoop,
    /// The agent: reports and updates a second over the Unix link.
    Agent,
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
}

/// Runs a benchmark.
pub fn run(command: &BenchCommand, registry: &Registry, json: bool) -> Result<(), Failure> {
    // Before the load is our own.
    let provenance = Provenance::now(crate::build(), command_line(), false);
    let figures = match command {
        BenchCommand::Datapath => datapath::run()?,
        BenchCommand::ControlLoop => control_loop::run()?,
        BenchCommand::Agent => agent::run()?,
        BenchCommand::Kernel(args) => kernel::run(args, registry)?,
        BenchCommand::Dx(args) => dx::run(args, registry)?,
        BenchCommand::Transport => transport::run()?,
        BenchCommand::Sim(args) => match sim::run(args)? {
            Some(figures) => figures,
            None => return Ok(()),
        },
        BenchCommand::Emu => emu::run()?,
    };
    if json {
        println!("{}", figures.to_json(&provenance));
    } else {
        print!("{}", figures.to_table());
        println!("{}", provenance.line());
    }
    Ok(())
}

/// Whether a figure should be small or large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

/// What a benchmark found.
#[derive(Default)]
pub struct Figures {
    rows: Vec<Row>,
    notes: Vec<String>,
}

struct Row {
    key: String,
    value: f64,
    unit: &'static str,
    aim: Option<Aim>,
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
            reference,
        });
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
                let (aim, met) = match r.aim {
                    Some(Aim::AtMost(a)) => (format!("<= {}", number(a)), if r.value <= a { "met" } else { "MISSED" }),
                    Some(Aim::AtLeast(a)) => (format!(">= {}", number(a)), if r.value >= a { "met" } else { "MISSED" }),
                    None => (String::new(), ""),
                };
                vec![
                    r.key.clone(),
                    number(r.value),
                    r.unit.to_owned(),
                    aim,
                    met.to_owned(),
                    r.reference.to_owned(),
                ]
            })
            .collect();
        let mut text = ccplane_lab::table::render(&["figure", "measured", "unit", "aim", "", "reference"], &rows);
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
