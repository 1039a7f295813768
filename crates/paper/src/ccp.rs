//! All of CCP's evaluation at once, quickly, on one page: to see that it works, not to quote.

use ccplane_algorithms::Registry;

use super::{Datapath, Experiment, Options, Outcome, together};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp",
    title: "CCP's evaluation, all eight experiments in their quick form",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018",
    takes: "5 minutes; 2 with --datapath sim",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(all),
};

/// In the paper's order.
const PARTS: [&str; 8] = [
    "ccp-cwnd-evolution",
    "ccp-fidelity",
    "ccp-fct",
    "ccp-ipc",
    "ccp-interval",
    "ccp-scalability",
    "ccp-incast",
    "ccp-slow-algorithm",
];

fn all(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    together::run(
        &EXPERIMENT,
        &PARTS,
        together::own,
        options,
        registry,
        progress,
    )
}
