//! All of DX's evaluation at once, quickly, on one page: to see that it works, not to quote.

use ccplane_algorithms::Registry;

use super::{Datapath, Experiment, Options, Outcome, together};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx",
    title: "DX's evaluation, all its experiments in their quick form",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015",
    takes: "3 minutes on two cores; --datapath sim needs no privileges",
    on: &[Datapath::Sim, Datapath::Linux],
    repeats: None,
    run: super::Run::Code(all),
};

/// In the slides' order.
const PARTS: [&str; 7] = [
    "dx-accuracy",
    "dx-testbed",
    "dx-fattree",
    "dx-senders",
    "dx-convergence",
    "dx-noise",
    "dx-fairness",
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
