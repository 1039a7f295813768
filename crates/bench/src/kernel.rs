//! What steering from outside costs the kernel's datapath: TCP over loopback, as fast as the machine goes, under
//! `ccp_reno` and under the kernel's own Reno.
//!
//! The conditions alternate run by run, so that a disturbance of the machine meets all of them; each ratio is the median
//! over rounds of a run's figure over that of the native run beside it. The traffic is memory to memory through a
//! namespace of our own: what is compared is the CPU's work for a packet, not a network's.

use std::fmt::Write;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_report::{Table, wrap};
use ccplane_units::{Duration, Rate};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cpu::Reading;
use crate::diag::Diag;
use crate::ends::Ends;
use crate::error::Error;
use crate::experiment::Contender;
use crate::machine::Watch;
use crate::metrics;
use crate::stats::{Ratio, median_ratio};
use crate::steer::Steered;
use crate::traffic::Plan;
use crate::{burner::Burner, traffic, wire};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Numbers of flows.
    pub flows: Vec<usize>,
    /// Length of each run. Below a second, slow start and the start of threads weigh in.
    pub run: Duration,
    /// Runs of each condition at each number of flows. The median of one run is that run; five ride out a disturbance.
    pub rounds: usize,
}

impl Default for Options {
    /// What the paper's figure 13 has on its axis; 2 s and 5 rounds take four minutes.
    fn default() -> Options {
        Options {
            flows: vec![1, 2, 4, 8, 16, 32, 64],
            run: Duration::from_secs(2),
            rounds: 5,
        }
    }
}

/// Who decides the window, and how often it hears from the datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Native,
    PerAck,
    Every10Ms,
}

impl Condition {
    const ALL: [Condition; 3] = [Condition::Native, Condition::PerAck, Condition::Every10Ms];

    fn contender(self) -> Contender {
        match self {
            Condition::Native => Contender::native("reno"),
            Condition::PerAck => Contender::ccplane_with("reno", "report", "ack"),
            Condition::Every10Ms => Contender::ccplane_with("reno", "report", "10ms"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Condition::Native => "native",
            Condition::PerAck => "per_ack",
            Condition::Every10Ms => "10ms",
        }
    }
}

/// Each flow takes two threads.
const MOST_FLOWS: usize = 1024;

/// The rate of the runs below saturation. Far lower, and what the machine does anyway is most of its CPU; far higher, and slower
/// machines cannot hold it.
const FIXED: Rate = Rate::from_bits_per_sec(2_000_000_000);
/// Flows that share it.
const FIXED_FLOWS: usize = 4;

/// What came out: figures by name, and a table.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `goodput_ratio_per_ack_N`, `goodput_ratio_10ms_N`, `cpu_ratio_10ms_N` for each N, and what they are made of.
    pub figures: Map<String, Value>,
    /// Every run, with what the machine did during it.
    pub attempts: Vec<Value>,
    /// For a person.
    pub text: String,
}

/// Measures. `step` hears the share that is done and what comes next, and says whether to go on.
pub fn run(options: &Options, registry: &Registry, mut step: impl FnMut(f64, &str) -> bool) -> Result<Outcome, Error> {
    check(options)?;
    let ends = Ends::loopback()?;
    let below = wire::make(Some(FIXED))?;
    let total = (options.flows.len() + 1) * options.rounds * Condition::ALL.len();
    let mut done = 0;
    let mut figures = Map::new();
    let mut rows = Vec::new();
    let mut attempts = Vec::new();
    let fixed = std::iter::once((FIXED_FLOWS, true));
    for (flows, fixed) in options.flows.iter().map(|flows| (*flows, false)).chain(fixed) {
        let ends = if fixed { &below } else { &ends };
        let mut runs: [Vec<Run>; 3] = Default::default();
        for round in 0..options.rounds {
            for (condition, runs) in Condition::ALL.iter().zip(&mut runs) {
                let next = format!(
                    "{flows} flows, round {} of {}, {}",
                    round + 1,
                    options.rounds,
                    condition.name()
                );
                if !step(done as f64 / total as f64, &next) {
                    return Err(Error::Interrupted);
                }
                let load = Load::plain(flows, options.run, options.run);
                let run = one(ends, &condition.contender(), load, registry)?;
                let place = if fixed { "fixed".to_owned() } else { flows.to_string() };
                attempts.push(json!({
                    "flows": place, "round": round + 1, "who": condition.name(), "goodput_gbit": run.goodput_gbit,
                    "fallbacks": run.fallbacks, "disturbed": run.disturbed,
                }));
                runs.push(run);
                done += 1;
            }
        }
        if fixed {
            below_saturation(&runs, &mut figures);
        } else {
            rows.push(summarise(flows, &runs, &mut figures));
        }
    }
    Ok(Outcome {
        attempts,
        text: text(&rows, options, &figures),
        figures,
    })
}

fn check(options: &Options) -> Result<(), Error> {
    let bad = |what, value: String, fix| Err(Error::Bad { what, value, fix });
    if options.flows.is_empty() || options.flows.iter().any(|n| *n == 0 || *n > MOST_FLOWS) {
        return bad(
            "the number of flows",
            format!("{:?}", options.flows),
            "give numbers from 1 to 1024",
        );
    }
    if options.rounds == 0 {
        return bad("the number of rounds", "0".into(), "give at least 1, better 5");
    }
    if options.run < Duration::from_millis(100) {
        return bad(
            "the length of a run",
            options.run.to_string(),
            "give at least 100ms, better 2s",
        );
    }
    Ok(())
}

/// The median over rounds of a run's value over that of the native run beside it.
fn beside(runs: &[Run], native: &[Run], value: fn(&Run) -> f64) -> Option<Ratio> {
    let pairs = runs.iter().zip(native).map(|(run, native)| (value(run), value(native)));
    median_ratio(&pairs.collect::<Vec<_>>())
}

/// Where there are rounds enough for one.
fn put_interval(figures: &mut Map<String, Value>, key: &str, ratio: Option<Ratio>) {
    if let Some((low, high)) = ratio.and_then(|ratio| ratio.interval) {
        figures.insert(format!("{key}_low"), json!((low * 1e4).round() / 1e4));
        figures.insert(format!("{key}_high"), json!((high * 1e4).round() / 1e4));
    }
}

/// CPU for each byte at a rate that everybody holds: it scatters less than at saturation, where rates differ, too.
fn below_saturation(runs: &[Vec<Run>; 3], figures: &mut Map<String, Value>) {
    let [native, per_ack, every_10ms] = runs;
    let cpu = |run: &Run| run.cpu_s_per_gb;
    let median = |value: fn(&Run) -> f64| metrics::median(&native.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0);
    let mut put = |key: &str, value: f64| figures.insert(key.into(), json!((value * 1e4).round() / 1e4));
    put("fixed_native_gbit", median(|run| run.goodput_gbit));
    put("fixed_native_cpu_s_per_gb", median(cpu));
    for (key, runs) in [
        ("fixed_cpu_ratio_per_ack", per_ack),
        ("fixed_cpu_ratio_10ms", every_10ms),
    ] {
        if let Some(ratio) = beside(runs, native, cpu) {
            figures.insert(key.into(), json!((ratio.value * 1e4).round() / 1e4));
            put_interval(figures, key, Some(ratio));
        }
    }
}

/// Puts the figures for `flows` in their place and gives the table's row.
fn summarise(flows: usize, runs: &[Vec<Run>; 3], figures: &mut Map<String, Value>) -> Vec<String> {
    let [native, per_ack, every_10ms] = runs;
    let median = |runs: &[Run], value: fn(&Run) -> f64| {
        metrics::median(&runs.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let beside = |runs: &[Run], value: fn(&Run) -> f64| beside(runs, native, value);
    let ratio = |runs: &[Run], value: fn(&Run) -> f64| beside(runs, value).map_or(0.0, |ratio| ratio.value);
    let goodput = |r: &Run| r.goodput_gbit;
    let (cpu, machine) = (|r: &Run| r.cpu_s_per_gb, |r: &Run| r.machine_cpu_s_per_gb);
    let reports = |r: &Run| r.reports_per_s;
    let named = [
        ("goodput_ratio_per_ack", ratio(per_ack, goodput)),
        ("goodput_ratio_10ms", ratio(every_10ms, goodput)),
        ("cpu_ratio_per_ack", ratio(per_ack, cpu)),
        ("cpu_ratio_10ms", ratio(every_10ms, cpu)),
        ("machine_cpu_ratio_10ms", ratio(every_10ms, machine)),
        ("goodput_native_gbit", median(native, goodput)),
        ("cpu_native_s_per_gb", median(native, cpu)),
        ("reports_per_s_per_ack", median(per_ack, reports)),
        ("reports_per_s_10ms", median(every_10ms, reports)),
    ];
    for (name, value) in named {
        figures.insert(format!("{name}_{flows}"), json!((value * 1e4).round() / 1e4));
    }
    let intervals = [
        ("goodput_ratio_per_ack", beside(per_ack, goodput)),
        ("goodput_ratio_10ms", beside(every_10ms, goodput)),
        ("cpu_ratio_per_ack", beside(per_ack, cpu)),
        ("cpu_ratio_10ms", beside(every_10ms, cpu)),
    ];
    for (name, ratio) in intervals {
        put_interval(figures, &format!("{name}_{flows}"), ratio);
    }
    let all: Vec<Run> = runs.iter().flatten().cloned().collect();
    let unsound = all.iter().filter(|run| !run.sound()).count();
    figures.insert(format!("disturbed_runs_{flows}"), json!(unsound));
    figures.insert(
        format!("others_cpu_percent_{flows}"),
        json!(median(&all, |r| r.others_cpu_percent).round()),
    );
    let sum = |value: fn(&Run) -> u64| all.iter().map(value).sum::<u64>();
    figures.insert(format!("ring_lost_{flows}"), json!(sum(|r| r.ring_lost)));
    figures.insert(format!("fallbacks_{flows}"), json!(sum(|r| r.fallbacks)));
    let mut row = vec![flows.to_string()];
    let shown = |digits: usize, value: f64| format!("{value:.digits$}");
    row.extend([
        shown(1, median(native, goodput)),
        shown(3, ratio(per_ack, goodput)),
        shown(3, ratio(every_10ms, goodput)),
        shown(3, median(native, cpu)),
        shown(3, ratio(per_ack, cpu)),
        shown(3, ratio(every_10ms, cpu)),
        shown(0, median(per_ack, reports)),
        shown(0, median(every_10ms, reports)),
    ]);
    row
}

fn text(rows: &[Vec<String>], options: &Options, figures: &Map<String, Value>) -> String {
    let headings = [
        "flows",
        "native\nGbit/s",
        "per ACK\n÷ native",
        "10 ms\n÷ native",
        "native\nCPU s/GB",
        "per ACK\n÷ native",
        "10 ms\n÷ native",
        "per ACK\nreports/s",
        "10 ms\nreports/s",
    ];
    let text = Table::new(headings, rows.to_vec()).text();
    let mut words = format!(
        "Reno, steered with a report for every ACK and every 10 ms, as a multiple of the native run beside it. Medians \
         of {} rounds with runs of {}; CPU of the whole process (senders, receivers, agent) for each GB received. Aims: goodput 0.95 per ACK \
         and 0.99 at 10 ms, CPU 1.05 at 10 ms. The paper (its host, Linux 4.14, 43 Gbit/s native): 29 per ACK in its \
         table (68 % in its text), 41 every 10 ms.\n",
        options.rounds, options.run
    );
    let figure = |name: &str| -> Vec<f64> {
        let of_name = figures.iter().filter(|(key, _)| key.starts_with(name));
        of_name.filter_map(|(_, value)| value.as_f64()).collect()
    };
    let disturbed: f64 = figure("disturbed_runs_").iter().sum();
    if disturbed > 0.0 {
        let _ = writeln!(
            words,
            "The machine disturbed {disturbed} runs, which count all the same (`attempts` says how); run it on an idle machine."
        );
    }
    let fallbacks: f64 = figure("fallbacks_").iter().sum();
    if fallbacks > 0.0 {
        let _ = writeln!(
            words,
            "{fallbacks} times a flow fell back to the datapath's own NewReno: a result of ccplane's own, which counts."
        );
    }
    text + "\n" + &wrap(&words, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_over_rounds() {
        let run = |goodput_gbit, cpu_s_per_gb| Run {
            goodput_gbit,
            cpu_s_per_gb,
            ..Run::default()
        };
        let runs = [
            vec![run(40.0, 0.5), run(10.0, 9.0), run(40.0, 0.5)],
            vec![run(38.0, 0.6), run(38.0, 0.6), run(1.0, 7.0)],
            vec![run(39.6, 0.51), run(39.6, 0.51), run(39.6, 0.51)],
        ];
        let mut figures = Map::new();
        summarise(4, &runs, &mut figures);
        assert_eq!(figures["goodput_ratio_per_ack_4"], 0.95);
        assert_eq!(figures["goodput_ratio_10ms_4"], 0.99);
        assert_eq!(figures["cpu_ratio_10ms_4"], 1.02);
        assert!(figures["goodput_ratio_10ms_4_low"].as_f64().unwrap() <= 0.99);
        below_saturation(&runs, &mut figures);
        assert_eq!(figures["fixed_cpu_ratio_10ms"], 1.02);
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_made() {
        let base = Options::default();
        for options in [
            Options {
                flows: vec![],
                ..base.clone()
            },
            Options {
                flows: vec![0],
                ..base.clone()
            },
            Options {
                rounds: 0,
                ..base.clone()
            },
            Options {
                run: Duration::ZERO,
                ..base
            },
        ] {
            assert!(matches!(
                run(&options, &Registry::builtin(), |_, _| true),
                Err(Error::Bad { .. })
            ));
        }
    }
}
