//! All experiments of a system, or of all systems, on one page. With `--quick` this is a check that
//! they work, not results to quote.

use super::{Datapath, Experiment, Run, together};

const BOTH: &[Datapath] = &[Datapath::Sim, Datapath::Linux];

/// Every experiment in the simulator.
pub(super) const ALL: Experiment = Experiment {
    name: "all",
    title: "All experiments in the simulator",
    source: "CCP, DX, RC3 and Bundler",
    takes: "4 hours on two cores; 10 minutes with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: Run::Together(
        &[&CCP_PARTS, &DX_PARTS, &RC3_PARTS, &BUNDLER_PARTS],
        together::of_part_in_full,
    ),
};

pub(super) const CCP: Experiment = Experiment {
    name: "ccp",
    title: "CCP's evaluation, all eight experiments",
    source: "Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018",
    takes: "a day; 5 minutes with --quick, 2 with --datapath sim",
    on: BOTH,
    repeats: None,
    run: Run::Together(&[&CCP_PARTS], together::own),
};

/// In the paper's order.
const CCP_PARTS: [&str; 8] = [
    "ccp-cwnd-evolution",
    "ccp-fidelity",
    "ccp-fct",
    "ccp-ipc",
    "ccp-interval",
    "ccp-scalability",
    "ccp-incast",
    "ccp-slow-algorithm",
];

pub(super) const DX: Experiment = Experiment {
    name: "dx",
    title: "DX's evaluation, all its experiments",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015",
    takes: "an hour on two cores; 3 minutes with --quick; --datapath sim needs no privileges",
    on: BOTH,
    repeats: None,
    run: Run::Together(&[&DX_PARTS], together::own),
};

/// In the paper's order.
const DX_PARTS: [&str; 8] = [
    "dx-accuracy",
    "dx-testbed",
    "dx-fattree",
    "dx-senders",
    "dx-convergence",
    "dx-noise",
    "dx-stack-noise",
    "dx-fairness",
];

pub(super) const RC3: Experiment = Experiment {
    name: "rc3",
    title: "RC3's evaluation, all its experiments",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014",
    takes: "70 minutes on two cores; 6 with --quick, 3 with --datapath sim",
    on: BOTH,
    repeats: None,
    run: Run::Together(&[&RC3_PARTS], together::own),
};

/// In the paper's order.
const RC3_PARTS: [&str; 5] = [
    "rc3-model",
    "rc3-internet2",
    "rc3-fct",
    "rc3-priority",
    "rc3-fairness",
];

pub(super) const BUNDLER: Experiment = Experiment {
    name: "bundler",
    title: "Bundler's evaluation, all its experiments",
    source: "Cangialosi et al., Site-to-Site Internet Traffic Control, EuroSys 2021",
    takes: "75 minutes on two cores; 1 minute with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: Run::Together(&[&BUNDLER_PARTS], together::of_part),
};

/// In the paper's order.
const BUNDLER_PARTS: [&str; 13] = [
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_exists() {
        for parts in [&CCP_PARTS[..], &DX_PARTS, &RC3_PARTS, &BUNDLER_PARTS] {
            for part in parts {
                assert!(crate::by_name(part).is_some(), "{part}");
            }
        }
    }
}
