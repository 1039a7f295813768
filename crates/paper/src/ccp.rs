//! All of CCP's evaluation at once, quickly, on one page: to see that it works, not to quote.

use ccplane_algorithms::Registry;

use super::{Datapath, Experiment, Options, Outcome, together};
use super::{
    ccp_cwnd_evolution, ccp_fct, ccp_fidelity, ccp_incast, ccp_interval, ccp_ipc, ccp_scalability, ccp_slow_algorithm,
};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp",
    title: "CCP's evaluation, all eight experiments in their quick form",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018",
    takes: "5 minutes; 2 with --datapath sim",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
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
    together::run(&EXPERIMENT, &PARTS, options, registry, progress)
}
