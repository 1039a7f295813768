//! `ccplane bench kernel`: loopback TCP in a namespace of its own, ccp_reno against the kernel's Reno, in turns.

use ccplane_lab::bench_kernel::{self, Options};
use ccplane_report::Aim;
use ccplane_units::Duration;
use clap::Args;

use super::Figures;
use crate::Registry;
use crate::exit::{Failure, Kind};
use crate::run::{failure, percent_bar};
use crate::{doctor, interrupt};

/// How much to measure.
#[derive(Args)]
pub struct KernelArgs {
    /// Numbers of flows, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    flows: Vec<usize>,
    /// Length of each run.
    #[arg(long, default_value = "3s")]
    duration: Duration,
    /// Runs of each condition at each number of flows; the figures are medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Runs the benchmark.
pub fn run(args: &KernelArgs, registry: &Registry) -> Result<Figures, Failure> {
    let options = Options {
        flows: args.flows.clone(),
        run: args.duration,
        rounds: args.rounds,
    };
    doctor::require(&[doctor::Need::Emulator, doctor::Need::KernelTcp])?;
    let stop = interrupt::flag()?;
    let bar = percent_bar();
    let outcome = bench_kernel::run(&options, registry, |share, next| {
        bar.set_message(next.to_owned());
        bar.set_position((share * 100.0) as u64);
        !interrupt::raised(&stop)
    });
    bar.finish_and_clear();
    let outcome = outcome.map_err(failure)?;
    let mut figures = Figures::default();
    let at = |key: String| outcome.figures.get(&key).and_then(serde_json::Value::as_f64);
    for (key, value) in &outcome.figures {
        if key.ends_with("_low") || key.ends_with("_high") {
            continue;
        }
        let Some(value) = value.as_f64() else {
            return Err(Failure::text(
                Kind::Failed,
                format!("the figure {key} was not measured"),
            ));
        };
        let (unit, aim, reference) = match key {
            k if k.starts_with("goodput_ratio_per_ack") => (
                "x native",
                Some(Aim::AtLeast(0.95)),
                if k.ends_with("_1") {
                    "CCP's paper: 29 of 43 Gbit/s = 0.67"
                } else {
                    ""
                },
            ),
            k if k.starts_with("goodput_ratio_10ms") => (
                "x native",
                Some(Aim::AtLeast(0.99)),
                if k.ends_with("_1") {
                    "CCP's paper: 41 of 43 Gbit/s = 0.95"
                } else {
                    ""
                },
            ),
            k if k.starts_with("cpu_ratio_10ms") || k == "fixed_cpu_ratio_10ms" => {
                ("x native", Some(Aim::AtMost(1.05)), "")
            }
            _ => ("", None, ""),
        };
        match aim {
            // A ratio of kernel runs is judged by its whole interval.
            Some(aim) => {
                let interval = at(format!("{key}_low")).zip(at(format!("{key}_high")));
                figures.add_ratio(key.as_str(), value, "x native", interval, aim, reference);
            }
            None => figures.add(key.as_str(), value, unit, None, reference),
        }
    }
    figures.fact("attempts", outcome.attempts);
    figures.note(outcome.text);
    Ok(figures)
}
