//! `ccplane bench agent`: reports and updates a second over the Unix link.

use std::time::Duration;

use ccplane_agent::bench::{Load, client, throughput};

use super::against::{AgainstArgs, ROUNDS, Who};
use ccplane_report::Aim;

use super::Figures;
use crate::exit::{Failure, Kind};

/// Reports that the mock datapath puts into a datagram, as CCP's messages allow.
const BATCH: usize = 16;
const RUNS: usize = 3;
const RUN: Duration = Duration::from_secs(2);
/// Of what a peer can take, or answer, that does nothing else.
const OF_BOUND: Aim = Aim::AtLeast(0.9);

/// Runs the benchmark.
pub fn run(args: &AgainstArgs) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for (updates, key) in [(false, "ccp_client_reports_per_s"), (true, "ccp_client_updates_per_s")] {
        let rate = |rates: client::Rates| if updates { rates.updates } else { rates.reports };
        let rounds = args.rounds(updates, |path| Ok(vec![rate(client::rates(path, RUN)?)]))?;
        for all in rounds {
            all.add(&mut figures, key, "a second");
            all.add_ratio(&mut figures, key, Who::Bound, OF_BOUND);
            all.add_ratio(&mut figures, key, Who::Portus, Aim::AtLeast(1.0));
        }
    }
    figures.note(format!(
        "ccp_client: a plain CCP datapath, one report a datagram, and the agent in a process of its own; `_bound`: a peer that does nothing but answer; {ROUNDS} rounds in turns of {} s, medians; of ratios the least and the most",
        RUN.as_secs()
    ));
    for (updates, key, aim) in [(false, "reports_per_s", 1e6), (true, "updates_per_s", 4e5)] {
        for flows in [1, 1000] {
            let batched = measure(flows, updates, BATCH)?;
            figures.add(
                format!("{key}_{flows}"),
                batched,
                "a second",
                Some(Aim::AtLeast(aim)),
                "",
            );
            let single = measure(flows, updates, 1)?;
            figures.add(format!("{key}_{flows}_single"), single, "a second", None, "");
        }
    }
    figures.note(format!(
        "the others: agent and datapath are threads of one process, {RUNS} runs of 2 s, medians; {BATCH} reports a datagram, `_single`: one"
    ));
    super::decision::add(&mut figures)?;
    Ok(figures)
}

fn measure(flows: u32, updates: bool, reports_per_datagram: usize) -> Result<f64, Failure> {
    let load = Load {
        flows,
        updates,
        reports_per_datagram,
        duration: RUN,
    };
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        let run = throughput(&load).map_err(|e| Failure::new(Kind::Failed, e))?;
        rates.push(if updates { run.updates_per_s } else { run.reports_per_s });
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[RUNS / 2])
}
