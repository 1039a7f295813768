//! All of Bundler's evaluation at once, quickly, on one page: to see that it works, not to quote.

use ccplane_algorithms::Registry;

use super::{Datapath, Experiment, Options, Outcome, together};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "bundler",
    title: "Bundler's evaluation, all its experiments in their quick form",
    source: "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021",
    takes: "1 minute on two cores",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(all),
};

/// The paper's, in its order, and one on links whose rate varies.
const PARTS: [&str; 13] = [
    "bundler-overview",
    "bundler-connections",
    "bundler-timeline",
    "bundler-inelastic",
    "bundler-elastic",
    "bundler-two",
    "bundler-sendbox-cc",
    "bundler-endhost-cc",
    "bundler-load",
    "bundler-classes",
    "bundler-multipath",
    "bundler-accuracy",
    "bundler-variable",
];

fn all(options: &Options, registry: &Registry, progress: &dyn Progress) -> Result<Outcome, Error> {
    // Some have a half on kernel TCP, which takes its time.
    let simulated = Options {
        datapath: Some(Datapath::Sim),
        ..options.clone()
    };
    together::run(
        &EXPERIMENT,
        &PARTS,
        together::of_part,
        &simulated,
        registry,
        progress,
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_part_is_there() {
        for part in super::PARTS {
            assert!(crate::by_name(part).is_some(), "{part}");
        }
    }
}
