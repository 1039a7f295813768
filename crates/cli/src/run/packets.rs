//! Runs on real packets.

use ccplane_datapath::Limits;
use ccplane_emu::Timing;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Backend, Contender, Error};
pub(super) use ccplane_quic::Stack;
use ccplane_testbed::{BackendError, Over, Packets, RemoteAgent};

use super::{Datapath, RunArgs, TimingArg, implied_by};
use crate::attach::remote::{ask, may_be_silent, names};
use crate::exit::{Failure, Kind};
use crate::{Registry, doctor};

/// Checks the options of real packets against the datapath.
pub(super) fn check(args: &RunArgs, datapath: Datapath) -> Result<(), Failure> {
    if let Datapath::Quic(stack) = datapath {
        crate::quic::is_built_in(stack)?;
    }
    if args.elsewhere.is_asked() && datapath == Datapath::Sim {
        let what = "--agent is for real packets: virtual time does not wait for another process";
        return Err(Failure::text(Kind::Usage, what)
            .hint("add `--datapath linux`, `--datapath udp` or `--datapath quic`, as root"));
    }
    Ok(())
}

/// Returns the backend of a run on real packets, or what this host lacks for it.
pub(super) fn backend(
    args: &RunArgs,
    datapath: Datapath,
    scenario: &Scenario,
    _registry: &Registry,
) -> Result<Box<dyn Backend>, Failure> {
    let over = match datapath {
        Datapath::Sim | Datapath::Linux => Over::Tcp,
        Datapath::Udp => Over::Udp,
        Datapath::Quic(stack) => Over::Quic(stack),
    };
    let agent = remote_agent(args, scenario)?;
    doctor::require(needs(datapath, scenario)).map_err(|missing| match implied_by(args) {
        Some(native) => missing.hint(format!(
            "`{native}` is this kernel's own, so the run is on kernel TCP; for the simulator, \
             which has a model of it and needs no privileges, use `ccplane run --datapath sim`"
        )),
        None => missing,
    })?;
    Ok(Box::new(Packets {
        over,
        timing: args.timing.into(),
        agent,
        drawn_starts: args.repeats.is_some(),
    }))
}

/// Returns the exit code of an error of real packets.
pub(super) fn kind(error: &Error) -> Option<Kind> {
    match BackendError::of(error)? {
        BackendError::UnknownNative { .. }
        | BackendError::Emulator(ccplane_emu::Error::Queue { .. }) => Some(Kind::Usage),
        BackendError::NoPermission { .. } => Some(Kind::Unsupported),
        _ => None,
    }
}

impl From<TimingArg> for Timing {
    fn from(timing: TimingArg) -> Timing {
        match timing {
            TimingArg::Balanced => Timing::Balanced,
            TimingArg::Precise => Timing::Precise,
        }
    }
}

/// What the host has to have for it.
fn needs(datapath: Datapath, scenario: &Scenario) -> &'static [doctor::Need] {
    let own = scenario
        .workloads
        .iter()
        .filter_map(|workload| workload.algorithm.as_ref());
    let steers = !scenario
        .contenders
        .iter()
        .chain(own)
        .all(Contender::is_native);
    match datapath {
        Datapath::Sim => &[],
        Datapath::Linux if steers => &[doctor::Need::Emulator, doctor::Need::KernelTcp],
        Datapath::Linux | Datapath::Udp | Datapath::Quic(_) => &[doctor::Need::Emulator],
    }
}

/// The agent of the command line, with contenders that it may run.
fn remote_agent(args: &RunArgs, scenario: &Scenario) -> Result<Option<RemoteAgent>, Failure> {
    let Some(address) = args.elsewhere.agent() else {
        return Ok(None);
    };
    may_be_silent(&address, args.elsewhere.silence)?;
    let own = scenario
        .workloads
        .iter()
        .filter_map(|workload| workload.algorithm.as_ref());
    let ours = scenario
        .contenders
        .iter()
        .chain(own)
        .filter(|contender| !contender.is_native());
    let ours: Vec<Contender> = ours.cloned().collect();
    if ours.is_empty() {
        let text =
            format!("--agent {address}: every contender is native, and the agent would run none");
        return Err(Failure::text(Kind::Usage, text)
            .hint("name an algorithm of the agent with --alg, or leave out --agent"));
    }
    // An agent serves a flow whose algorithm it lacks by the first that it has.
    let names = names(&ours, &address)?;
    ask(&address, &names, Limits::default().fallback_after)?;
    let silence = args.elsewhere.silence;
    Ok(Some(RemoteAgent { address, silence }))
}
