//! All of RC3's evaluation at once, quickly, on one page: to see that it works, not to quote.

use ccplane_algorithms::Registry;

use super::{Datapath, Experiment, Options, Outcome, together};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rc3",
    title: "RC3's evaluation, all its experiments in their quick form",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014",
    takes: "3 minutes on two cores",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(all),
};

/// In the paper's order.
const PARTS: [&str; 5] = [
    "rc3-model",
    "rc3-internet2",
    "rc3-fct",
    "rc3-priority",
    "rc3-fairness",
];

fn all(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    // What runs on real packets as well takes its time, and privileges: `paper rc3-fct` and `paper
    // rc3-priority` do.
    let simulated = Options {
        datapath: Some(Datapath::Sim),
        ..options.clone()
    };
    together::run(
        &EXPERIMENT,
        &PARTS,
        together::own,
        &simulated,
        registry,
        progress,
    )
}
