//! `attach --agent`: the algorithms run in another process, and this one relays reports and
//! commands.

use ccplane_lab::Contender;
use ccplane_link::AgentAddress;
use ccplane_linux::{RemoteAlgorithms, RemoteError, remote_algorithms};
use ccplane_units::Duration;

use super::{CallbackRunner, ServingThread};
use crate::config::Settings;
use crate::exit::{Failure, FailureKind};

/// Returns the algorithms to register for the remote agent, with one connection each.
pub(super) fn steered(
    settings: &mut Settings,
    address: &AgentAddress,
) -> Result<Vec<ServingThread>, Failure> {
    let names = names(&settings.algorithms.value, address)?;
    let asked = query_algorithms(address, &names, settings.fallback_after.value)?;
    if let Some(round_trip) = asked.round_trip {
        settings.set_round_trip(round_trip);
    }
    let steered = asked.algorithms.into_iter().map(|one| ServingThread {
        runner: CallbackRunner::Remote(address.connection(&one.name)),
        specs: vec![one],
    });
    Ok(steered.collect())
}

/// Returns the names of these algorithms at the agent. A CCP agent accepts no parameters.
pub fn names(contenders: &[Contender], address: &AgentAddress) -> Result<Vec<String>, Failure> {
    let name = |contender: &Contender| match contender {
        Contender::Native { .. } => Err(Failure::text(
            FailureKind::Usage,
            format!("`{contender}` is built into the datapath and cannot run in an agent"),
        )
        .hint("name an algorithm that the agent runs, or remove --agent")),
        Contender::Ccplane { parameters, .. } if !parameters.is_empty() && is_ccp(address) => {
            Err(Failure::text(
                FailureKind::Usage,
                format!("`{contender}`: the CCP agent at {address} does not accept parameters"),
            )
            .hint(format!(
                "write {} here, and set the parameters where the agent is started",
                contender.algorithm()
            )))
        }
        Contender::Ccplane { .. } => Ok(contender.agent_name()),
    };
    contenders.iter().map(name).collect()
}

/// Returns true if one of the agents uses version 1 of the messages, which has no offers.
fn is_ccp(address: &AgentAddress) -> bool {
    match address {
        AgentAddress::Ccp(_) => true,
        AgentAddress::Failover(all) => all.iter().any(is_ccp),
        AgentAddress::Unix(_) | AgentAddress::Tls(_) => false,
    }
}

/// Asks the agent for the algorithms of these names. Fails if it is unreachable or lacks one:
/// otherwise an agent serves flows of an unknown algorithm with its first one.
pub fn query_algorithms(
    address: &AgentAddress,
    names: &[String],
    fallback_after: Duration,
) -> Result<RemoteAlgorithms, Failure> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    remote_algorithms(address, &names, fallback_after).map_err(failed)
}

fn failed(error: RemoteError) -> Failure {
    let kind = match error {
        RemoteError::Unnamed | RemoteError::Lacks { .. } => FailureKind::Usage,
        _ => FailureKind::Failed,
    };
    let hint = match &error {
        RemoteError::Lacks { name, .. } => name.split_once(':').map(|(name, _)| {
            format!("write {name} here, and set the parameters where the agent is started")
        }),
        _ => None,
    };
    let failure = Failure::new(kind, error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
