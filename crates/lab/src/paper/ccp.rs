//! All of CCP's evaluation at once, quickly, on one page: to see that it works, not to quote.

use std::time::Duration as Wall;

use ccplane_algorithms::Registry;
use serde_json::Map;

use super::{Datapath, Experiment, Options, Outcome, page};
use super::{
    ccp_cwnd_evolution, ccp_fct, ccp_fidelity, ccp_incast, ccp_interval, ccp_ipc, ccp_scalability, ccp_slow_algorithm,
};
use crate::error::Error;
use crate::run::Progress;
use crate::traffic::monotonic_ns;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp",
    title: "CCP's evaluation, all eight experiments in their quick form",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018",
    takes: "5 minutes; 2 with --datapath sim",
    on: &[Datapath::Sim, Datapath::Linux],
    run: all,
};

/// In the paper's order.
const PARTS: [&Experiment; 8] = [
    &ccp_cwnd_evolution::EXPERIMENT,
    &ccp_fidelity::EXPERIMENT,
    &ccp_fct::EXPERIMENT,
    &ccp_ipc::EXPERIMENT,
    &ccp_interval::EXPERIMENT,
    &ccp_scalability::EXPERIMENT,
    &ccp_incast::EXPERIMENT,
    &ccp_slow_algorithm::EXPERIMENT,
];

fn all(options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Outcome, Error> {
    let (mut figures, mut text, mut body) = (Map::new(), String::new(), String::new());
    let mut unsound = 0;
    let begun = monotonic_ns();
    // An experiment that runs nowhere else is left out where only the simulator is asked for.
    for part in PARTS.iter().filter(|part| part.on.iter().any(|on| options.on(*on))) {
        let own = Options {
            quick: true,
            directory: options.directory.join(part.name),
            ..options.clone()
        };
        let outcome = part.run(&own, registry, progress)?;
        unsound += outcome
            .figures
            .get("unsound_runs")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0);
        figures.extend(outcome.figures);
        text += &format!("# {}: {}\n\n{}\n", part.name, part.title, outcome.text);
        body += &outcome.body;
    }
    let took = Wall::from_nanos(monotonic_ns() - begun);
    figures.insert("unsound_runs".into(), unsound.into());
    text += &format!("{} s in all; {unsound} runs were not sound.\n", took.as_secs());
    let page = page::write(options, EXPERIMENT.title, &body, &figures)?;
    Ok(Outcome {
        figures,
        text,
        page,
        body,
    })
}
