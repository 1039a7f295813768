//! Runs on real packets in a program of the core, handed over to the installed command.

use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Contender, Error};

use super::{RunArgs, RunDatapath};
use crate::exit::{Failure, FailureKind};
use crate::{Registry, installed};

/// QUIC stacks of the installed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// noq.
    Noq,
    /// quinn.
    Quinn,
    /// s2n-quic.
    S2n,
}

/// Accepts everything: the installed command checks the options.
pub(super) fn check(_args: &RunArgs, _datapath: RunDatapath) -> Result<(), Failure> {
    Ok(())
}

/// Replaces this process with the installed command, and starts an agent for the algorithms of this
/// scenario. Returns only on failure.
pub(super) fn backend(
    _args: &RunArgs,
    datapath: RunDatapath,
    scenario: &Scenario,
    registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    backend_of_sweep(datapath, std::slice::from_ref(scenario), registry)
}

/// Does the same for the scenarios of a sweep.
pub fn backend_of_sweep(
    _datapath: RunDatapath,
    scenarios: &[Scenario],
    registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    let controls = |scenario: &Scenario| -> Vec<Contender> {
        let own = scenario.workload_controls();
        scenario.contenders.iter().chain(own).cloned().collect()
    };
    let contenders: Vec<Contender> = scenarios.iter().flat_map(controls).collect();
    let words: Vec<_> = std::env::args_os().collect();
    Err(installed::hand_over(&words, &contenders, registry))
}

/// Errors of real packets do not occur here.
pub(super) fn kind(_error: &Error) -> Option<FailureKind> {
    None
}
