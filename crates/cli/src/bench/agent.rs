//! `ccplane bench agent`: reports and updates a second over the Unix link.

use std::time::Duration;

use ccplane_agent::bench::{Load, throughput};

use super::{Aim, Figures};
use crate::exit::{Failure, Kind};

/// Reports that the mock datapath puts into a datagram, as CCP's messages allow.
const BATCH: usize = 16;
const RUNS: usize = 3;

/// Runs the benchmark.
pub fn run() -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for (updates, key, aim, references) in [
        (
            false,
            "reports_per_s",
            1e6,
            ["portus 220000 on such a VM", "portus 199000 on such a VM"],
        ),
        (
            true,
            "updates_per_s",
            4e5,
            ["portus 67000 on such a VM", "portus 58000 on such a VM"],
        ),
    ] {
        for (flows, reference) in [1, 1000].into_iter().zip(references) {
            let batched = measure(flows, updates, BATCH)?;
            figures.add(
                format!("{key}_{flows}"),
                batched,
                "a second",
                Some(Aim::AtLeast(aim)),
                reference,
            );
            let single = measure(flows, updates, 1)?;
            figures.add(format!("{key}_{flows}_single"), single, "a second", None, "");
        }
    }
    figures.note(format!(
        "agent and mock datapath on this machine's cores, {RUNS} runs of 2 s, medians; {BATCH} reports a datagram, `_single`: one, as the reference sends them"
    ));
    super::decision::add(&mut figures)?;
    Ok(figures)
}

fn measure(flows: u32, updates: bool, reports_per_datagram: usize) -> Result<f64, Failure> {
    let load = Load {
        flows,
        updates,
        reports_per_datagram,
        duration: Duration::from_secs(2),
    };
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        let run = throughput(&load).map_err(|e| Failure::new(Kind::Failed, e))?;
        rates.push(if updates { run.updates_per_s } else { run.reports_per_s });
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[RUNS / 2])
}
