//! Agents in other processes: the option that selects one, shared by `attach`, `run` and `send`,
//! and the query for its algorithms.

use ccplane_datapath::OperatorLimits;
use ccplane_lab::Contender;
use ccplane_link::AgentAddress;
use ccplane_linux::{RemoteAlgorithms, RemoteError, remote_algorithms};
use ccplane_testbed::steer::agent_of;
use ccplane_units::Duration;
use clap::Args;

use crate::exit::{Failure, FailureKind};

/// Options of the agent.
#[derive(Args)]
pub struct RemoteAgentArgs {
    /// Agent in another process that runs the algorithms. `unix:PATH`, or just PATH: a `ccplane
    /// agent --unix PATH` of any user. `tls://HOST:PORT`: a `ccplane agent --tls` on another host;
    /// `?keys=DIR` names the folder of this host's key [default: /etc/ccplane/keys]. `ccp:PATH`: a
    /// CCP agent such as portus; `?timeout=2s` sets the time after its last message at which flows
    /// fall back. Given twice, the second address is the standby of the first.
    #[arg(long, value_name = "ADDRESS")]
    agent: Vec<AgentAddress>,
}

impl RemoteAgentArgs {
    /// Returns the requested agent, if any.
    pub fn agent(&self) -> Option<AgentAddress> {
        AgentAddress::failover(self.agent.clone())
    }

    /// Returns true if an agent is requested.
    pub fn is_set(&self) -> bool {
        !self.agent.is_empty()
    }
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
        Contender::Remote { .. } => Err(Failure::text(
            FailureKind::Usage,
            format!("`{contender}` names an agent, and --agent names another: {address}"),
        )
        .hint(format!(
            "write {} here, or remove --agent",
            contender.agent_name()
        ))),
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

/// Returns the agent that a contender names, if any.
pub fn own_agent(contender: &Contender) -> Result<Option<AgentAddress>, Failure> {
    agent_of(contender, None).map_err(|why| Failure::new(FailureKind::Usage, why))
}

/// Asks the agents that these contenders name for their algorithms, so that a missing one is an
/// error before the first run.
pub fn find_agents<'c>(contenders: impl IntoIterator<Item = &'c Contender>) -> Result<(), Failure> {
    let mut asked: Vec<&Contender> = Vec::new();
    for contender in contenders {
        let Some(address) = own_agent(contender)?.filter(|_| !asked.contains(&contender)) else {
            continue;
        };
        let timeout = OperatorLimits::default().agent_timeout;
        query_algorithms(&address, &[contender.agent_name()], timeout)?;
        asked.push(contender);
    }
    Ok(())
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
