//! Runs on real packets in a program of the core: the installed command does them.

use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Contender, Error};

use super::{RunArgs, RunDatapath};
use crate::exit::{Failure, FailureKind};
use crate::{Registry, installed};

/// A QUIC stack of the installed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stack {
    Noq,
    Quinn,
    S2n,
}

/// Checks nothing: the installed command does.
pub(super) fn check(_args: &RunArgs, _datapath: RunDatapath) -> Result<(), Failure> {
    Ok(())
}

/// Becomes the installed command, with an agent that runs the algorithms of this scenario; returns
/// only when that cannot be.
pub(super) fn backend(
    _args: &RunArgs,
    _datapath: RunDatapath,
    scenario: &Scenario,
    registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    let own = scenario
        .workloads
        .iter()
        .filter_map(|workload| workload.algorithm.as_ref());
    let contenders: Vec<Contender> = scenario.contenders.iter().chain(own).cloned().collect();
    let words: Vec<_> = std::env::args_os().collect();
    Err(installed::hand_over(&words, &contenders, registry))
}

/// No error is one of real packets.
pub(super) fn kind(_error: &Error) -> Option<FailureKind> {
    None
}
