//! Runs on real packets in a program of the core, handed over to the installed command.

use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Contender, Error};

use super::{RunArgs, RunDatapath};
use crate::exit::{Failure, FailureKind};
use crate::{Registry, installed};

/// QUIC stacks of the installed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Noq,
    Quinn,
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
    _datapath: RunDatapath,
    scenario: &Scenario,
    registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    let own = scenario.workload_controls();
    let contenders: Vec<Contender> = scenario.contenders.iter().chain(own).cloned().collect();
    let words: Vec<_> = std::env::args_os().collect();
    Err(installed::hand_over(&words, &contenders, registry))
}

/// Errors of real packets do not occur here.
pub(super) fn kind(_error: &Error) -> Option<FailureKind> {
    None
}
