//! `ccplane bench agent`: reports and updates a second over the Unix link, and over TLS.

mod decision;
mod throughput;

use std::time::Duration;

use ccplane_report::TargetRange;

use crate::peers::{Against, ROUNDS, Who, client};
use crate::rounds::medians;
use crate::{Error, Figures, over_tls};

pub use throughput::{Load, Throughput, throughput};

/// Reports that the mock datapath puts into a datagram, as CCP's messages allow.
const BATCH: usize = 16;
const RUNS: usize = 3;
const RUN: Duration = Duration::from_secs(2);
/// Of what a peer can take, or answer, that does nothing else.
const OF_BOUND: TargetRange = TargetRange::AtLeast(0.9);

/// Runs the benchmark.
pub fn run(against: &Against) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    for (updates, key) in [
        (false, "ccp_client_reports_per_s"),
        (true, "ccp_client_updates_per_s"),
    ] {
        let rounds = against.rounds(updates, |path| {
            let rates = client::rates(path, RUN)?;
            Ok([if updates {
                rates.updates
            } else {
                rates.reports
            }])
        })?;
        rounds.add(&mut figures, 0, key, "a second");
        rounds.add_ratio(&mut figures, 0, key, Who::Bound, OF_BOUND);
        rounds.add_ratio(&mut figures, 0, key, Who::Portus, TargetRange::AtLeast(1.0));
    }
    figures.note(format!(
        "ccp_client: a plain CCP datapath, one report a datagram, and the agent in a process of its own; `_bound`: a peer that does nothing but answer; {ROUNDS} rounds in turns of {} s, medians; of ratios the least and the most",
        RUN.as_secs()
    ));
    for (updates, key, aim) in [(false, "reports_per_s", 1e6), (true, "updates_per_s", 4e5)] {
        for flows in [1, 1000] {
            let batched = measure(flows, updates, BATCH)?;
            figures
                .add(format!("{key}_{flows}"), batched, "a second")
                .at_least(aim);
            let single = measure(flows, updates, 1)?;
            figures.add(format!("{key}_{flows}_single"), single, "a second");
        }
    }
    figures.note(format!(
        "the others: agent and datapath are threads of one process, {RUNS} runs of 2 s, medians; {BATCH} reports a datagram, `_single`: one"
    ));
    let [tls] = medians(RUNS, || Ok::<_, Error>([over_tls::reports_per_s(RUN)?]))?;
    figures
        .add("tls_reports_per_s", tls, "a second")
        .at_least(1e6);
    figures
        .note("tls: version-2 messages over TLS 1.3 on loopback, 100 flows, as many reports a packet as wait together");
    decision::add(&mut figures)?;
    Ok(figures)
}

fn measure(flows: u32, updates: bool, reports_per_datagram: usize) -> Result<f64, Error> {
    let load = Load {
        flows,
        updates,
        reports_per_datagram,
        duration: RUN,
    };
    let [rate] = medians(RUNS, || {
        let run = throughput(&load)?;
        Ok::<_, Error>([if updates {
            run.updates_per_s
        } else {
            run.reports_per_s
        }])
    })?;
    Ok(rate)
}
