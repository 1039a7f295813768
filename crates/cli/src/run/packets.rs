//! Runs on real packets.

use ccplane_datapath::OperatorLimits;
use ccplane_emu::Timing;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Contender, Error};
use ccplane_link::AgentAddress;
pub use ccplane_quic::Stack;
use ccplane_testbed::{BackendError, RealPackets, TransportKind};

use super::{RunArgs, RunDatapath, implied_by};
use crate::exit::{Failure, FailureKind};
use crate::remote_agent::{find_agents, names, query_algorithms};
use crate::{Registry, doctor};

/// Checks the options for real packets against the datapath.
pub(super) fn check(args: &RunArgs, datapath: RunDatapath) -> Result<(), Failure> {
    if let RunDatapath::Quic(stack) = datapath {
        crate::transfer::quic::is_built_in(stack)?;
    }
    if args.remote_agent.is_set() && datapath == RunDatapath::Sim {
        let what = "--agent applies only to real packets: the simulator's virtual time does not \
            wait for another process";
        return Err(Failure::text(FailureKind::Usage, what)
            .hint("add `--datapath linux`, `--datapath udp` or `--datapath quic`, as root"));
    }
    Ok(())
}

/// Returns the backend of a run on real packets, or a failure that lists what this host lacks.
pub(super) fn backend(
    args: &RunArgs,
    datapath: RunDatapath,
    scenario: &Scenario,
    _registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    let agent = remote_agent(args, scenario)?;
    find_agents(scenario.controls())?;
    doctor::require(needs(datapath, scenario)).map_err(|missing| match implied_by(args) {
        Some(native) => missing.hint(format!(
            "`{native}` is a kernel algorithm, so the run uses kernel TCP; to use the simulator's \
             model of it, which needs no privileges, add `--datapath sim`"
        )),
        None => missing,
    })?;
    Ok(Box::new(RealPackets {
        transport: transport(datapath),
        timing: Timing::default(),
        agent,
        random_starts: args.seeds.is_some_and(|seeds| seeds.count() > 1),
    }))
}

/// Returns the backend of a sweep on real packets, or a failure that lists what this host lacks.
pub fn backend_of_sweep(
    datapath: RunDatapath,
    scenarios: &[Scenario],
    _registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    if let RunDatapath::Quic(stack) = datapath {
        crate::transfer::quic::is_built_in(stack)?;
    }
    find_agents(scenarios.iter().flat_map(Scenario::controls))?;
    for scenario in scenarios {
        doctor::require(needs(datapath, scenario))?;
    }
    Ok(Box::new(RealPackets {
        // Each repeat is a run of its own.
        random_starts: true,
        ..RealPackets::new(transport(datapath))
    }))
}

fn transport(datapath: RunDatapath) -> TransportKind {
    match datapath {
        RunDatapath::Sim | RunDatapath::Linux => TransportKind::Tcp,
        RunDatapath::Udp => TransportKind::Udp,
        RunDatapath::Quic(stack) => TransportKind::Quic(stack),
    }
}

/// Returns the exit code of an error of real packets.
pub(super) fn kind(error: &Error) -> Option<FailureKind> {
    match BackendError::of(error)? {
        BackendError::UnknownNative { .. }
        | BackendError::AgentAddress { .. }
        | BackendError::Emulator(ccplane_emu::Error::Queue { .. }) => Some(FailureKind::Usage),
        BackendError::NoPermission { .. } => Some(FailureKind::Unsupported),
        _ => None,
    }
}

/// Returns the host features that the run needs.
fn needs(datapath: RunDatapath, scenario: &Scenario) -> &'static [doctor::Need] {
    let own = scenario.workload_controls();
    let steers = !scenario
        .contenders
        .iter()
        .chain(own)
        .all(Contender::is_native);
    match datapath {
        RunDatapath::Sim => &[],
        RunDatapath::Linux if steers => &[doctor::Need::Emulator, doctor::Need::KernelTcp],
        RunDatapath::Linux | RunDatapath::Udp | RunDatapath::Quic(_) => &[doctor::Need::Emulator],
    }
}

/// Returns the agent of the command line, after checking that it offers the contenders.
fn remote_agent(args: &RunArgs, scenario: &Scenario) -> Result<Option<AgentAddress>, Failure> {
    let Some(address) = args.remote_agent.agent() else {
        return Ok(None);
    };
    let own = scenario.workload_controls();
    let ours = scenario
        .contenders
        .iter()
        .chain(own)
        .filter(|contender| !contender.is_native() && contender.agent().is_none());
    let ours: Vec<Contender> = ours.cloned().collect();
    if ours.is_empty() {
        let text = format!(
            "--agent {address}: all contenders are native or name an agent of their own, so this \
             one has nothing to run"
        );
        return Err(Failure::text(FailureKind::Usage, text)
            .hint("give an algorithm of the agent with --alg, or remove --agent"));
    }
    // Asks first: an agent serves flows of an unknown algorithm with its first one.
    let names = names(&ours, &address)?;
    query_algorithms(&address, &names, OperatorLimits::default().agent_timeout)?;
    Ok(Some(address))
}
