//! `ccplane bench arena`: what a candidate costs whoever searches. CPU time of the process, so that
//! a busy machine disturbs little; and in real time how soon a text that changes steers kernel TCP.

mod reload;

use ccplane_algorithms::Registry;
use ccplane_lab::arena::{self, Options, Suite};
use ccplane_lab::{Contender, NoProgress, Sim, evaluate};
use ccplane_testbed::cpu::process_ns;

use crate::rounds::medians;
use crate::{Error, Figures};

/// Odd, so that a median is a run.
const RUNS: usize = 5;
/// Candidates beside one, to tell what each costs from what is done once.
const MORE: usize = 8;
/// Cores that a search is taken to have.
const CORES: f64 = 2.0;

/// Runs the benchmark. `lacks`: why this host's kernel TCP cannot be steered, if it cannot.
pub fn run(registry: &Registry, lacks: Option<String>) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let [gate, gates, quick, quicks] = medians(RUNS, || {
        Ok::<_, Error>([
            scored(Suite::Gate, 1, registry)?,
            scored(Suite::Gate, 1 + MORE, registry)?,
            scored(Suite::Quick, 1, registry)?,
            scored(Suite::Quick, 1 + MORE, registry)?,
        ])
    })?;
    figures
        .add("gate_cpu_s", gate, "s, one candidate")
        .at_most(1.0);
    figures
        .add(
            "quick_cpu_s",
            quick,
            "s, one candidate, the gate and three baselines",
        )
        .at_most(3.0);
    let each = |one: f64, more: f64| (more - one) / MORE as f64;
    let hour = CORES * 3_600.0 / (each(gate, gates) + each(quick, quicks) / 5.0);
    figures
        .add(
            "candidates_per_hour",
            hour,
            "the gate for all, a score for a fifth, two cores",
        )
        .at_least(4_000.0);
    let began = process_ns();
    let options = evaluate::Options {
        algorithms: vec![Contender::ccplane("cubic")],
        only: Vec::new(),
        quick: true,
        threads: 1,
        parts: None,
        command: String::new(),
    };
    evaluate::run(&options, &Sim::default(), registry, &NoProgress)?;
    figures
        .add(
            "evaluate_quick_cpu_s",
            seconds_since(began),
            "s, `evaluate --quick` of Cubic",
        )
        .at_most(4.0);
    match lacks {
        None => drop(
            figures
                .add(
                    "text_reload_ms",
                    reload::median_ms()?,
                    "ms, from a write to a live flow, `attach --watch`",
                )
                .at_most(100.0),
        ),
        Some(why) => figures.note(format!("no text_reload_ms: {why}")),
    }
    figures.note(format!(
        "CPU time; those of the arena are medians of {RUNS} runs"
    ));
    Ok(figures)
}

/// What so many candidates cost: Cubic, each with a report a little rarer than the last, so that
/// none is another.
fn scored(suite: Suite, candidates: usize, registry: &Registry) -> Result<f64, Error> {
    let one = |n: usize| Contender::ccplane_with("cubic", "report", &format!("{}us", 10_000 + n));
    let options = Options {
        candidates: (0..candidates).map(one).collect(),
        against: ["cubic", "bbr3", "copa"].map(Contender::ccplane).to_vec(),
        suite,
        held_out: None,
        threads: 1,
    };
    let began = process_ns();
    arena::run(&options, registry, &(), &NoProgress)?;
    Ok(seconds_since(began))
}

fn seconds_since(began: u64) -> f64 {
    process_ns().saturating_sub(began) as f64 / 1e9
}
