//! `attach --agent`: the algorithms run in another process, and this one relays reports and
//! commands.

use ccplane_lab::Contender;
use ccplane_link::AgentAddress;
use ccplane_linux::{RemoteAlgorithms, RemoteError, remote_algorithms};
use ccplane_units::Duration;

use super::{AttachArgs, CallbackRunner, ServingThread};
use crate::config::Settings;
use crate::exit::{Failure, FailureKind};

/// Returns the algorithms to register for the remote agent, with one connection each.
pub(super) fn steered(
    args: &AttachArgs,
    settings: &mut Settings,
    address: &AgentAddress,
) -> Result<Vec<ServingThread>, Failure> {
    let silence = args.remote_agent.silence;
    check_silence_option(address, silence)?;
    let names = names(&settings.algorithms.value, address)?;
    let asked = query_algorithms(address, &names, settings.fallback_after.value)?;
    if let Some(round_trip) = asked.round_trip {
        settings.set_round_trip(round_trip);
    }
    let steered = asked.algorithms.into_iter().map(|one| ServingThread {
        runner: CallbackRunner::Remote(address.connection(&one.name, silence)),
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

/// Checks that `--silence` is given only for agents without heartbeats; one such agent among
/// several is enough.
pub fn check_silence_option(
    address: &AgentAddress,
    silence: Option<Duration>,
) -> Result<(), Failure> {
    match (address, silence) {
        (AgentAddress::Failover(all), _)
            if all
                .iter()
                .any(|one| check_silence_option(one, silence).is_ok()) =>
        {
            Ok(())
        }
        (AgentAddress::Unix(_) | AgentAddress::Tls(_) | AgentAddress::Failover(_), Some(_)) => {
            Err(Failure::text(
                FailureKind::Usage,
                "--silence applies only to CCP agents; ccplane's agents send heartbeats",
            )
            .hint("remove it; `attach --fallback-after` sets the timeout for heartbeats"))
        }
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_applies_only_to_agents_without_heartbeats() {
        let may_be = |addresses: &[&str]| {
            let all: Vec<AgentAddress> = addresses
                .iter()
                .map(|text| text.parse().expect("an address"))
                .collect();
            let address = AgentAddress::failover(all).expect("one address");
            check_silence_option(&address, Some(Duration::from_secs(1))).is_ok()
        };
        assert!(may_be(&["ccp:/a"]) && may_be(&["unix:/a", "ccp:/b"]));
        assert!(!may_be(&["unix:/a"]) && !may_be(&["unix:/a", "tls://b:1"]));
    }
}
