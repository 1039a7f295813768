//! Registrations for an agent in another process.

use std::sync::Arc;

use ccplane_datapath::Capabilities;
use ccplane_link::LinkError;
use ccplane_link::{
    AgentAddress, AgentConnection, CcpUplink, OfferedAlgorithm, ThreadClock, query_offers,
};
use ccplane_units::Duration;
use ccplane_wire::DatapathInfo;

use crate::kernel::CAPABILITIES;
use crate::registration::load::AlgorithmSpec;

/// Longest delay of a CCP agent's non-urgent reports, the same as the default of ccplane's
/// algorithms.
const CCP_REPORT_LATENCY: Duration = Duration::from_millis(1);

/// Nothing can be registered for the agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The agent is absent or does not answer.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A CCP agent, without a name of an algorithm.
    #[error(
        "a CCP agent does not list its algorithms; name one, as --alg reno, which sockets select \
        as ccp_reno"
    )]
    Unnamed,
    /// The agent has no algorithm of this name.
    #[error("the agent at {agent} has no {name}; use one of {has}")]
    Lacks {
        /// Address of the agent.
        agent: AgentAddress,
        /// Requested algorithm.
        name: String,
        /// Algorithms that the agent has.
        has: String,
    },
    /// The agent's algorithm requests a kernel name outside ccplane's.
    #[error(
        "the agent at {agent} requests the kernel name {name:?}, which is not valid; such names \
        start with ccp_ and have at most 15 letters, digits, `_` and `.`"
    )]
    BadName {
        /// Address of the agent.
        agent: AgentAddress,
        /// Requested kernel name.
        name: String,
    },
}

/// The agent's answer: the algorithms to register.
#[derive(Debug)]
pub struct RemoteAlgorithms {
    /// Algorithms to register.
    pub algorithms: Vec<AlgorithmSpec>,
    /// Round-trip time to the agent, if it is on another host.
    pub round_trip: Option<Duration>,
}

/// Asks the agent for the algorithms in `names`, or for all that it has if `names` is empty.
///
/// # Errors
/// No agent is reachable now, or it does not offer what was requested.
pub fn remote_algorithms(
    address: &AgentAddress,
    names: &[&str],
    fallback_after: Duration,
) -> Result<RemoteAlgorithms, RemoteError> {
    let algorithms = match address {
        AgentAddress::Unix(_) | AgentAddress::Tls(_) => {
            return request_offers(address, names, fallback_after);
        }
        // All have the same algorithms: the first answer counts.
        AgentAddress::Failover(all) => {
            let mut first = None;
            for one in all {
                match remote_algorithms(one, names, fallback_after) {
                    Err(RemoteError::Link(why)) => drop(first.get_or_insert(why)),
                    known => return known,
                }
            }
            return Err(first.map_or(RemoteError::Unnamed, RemoteError::Link));
        }
        AgentAddress::Ccp(_) if names.is_empty() => return Err(RemoteError::Unnamed),
        AgentAddress::Ccp(ccp) => {
            CcpUplink::new(ccp, "").connect(ThreadClock::new().now())?;
            names.iter().map(|name| spec_by_name(name)).collect()
        }
    };
    Ok(RemoteAlgorithms {
        algorithms,
        round_trip: None,
    })
}

fn request_offers(
    agent: &AgentAddress,
    names: &[&str],
    fallback_after: Duration,
) -> Result<RemoteAlgorithms, RemoteError> {
    let datapath = DatapathInfo {
        id: std::process::id(),
        kind: "linux".to_owned(),
        capabilities: CAPABILITIES,
        max_programs: 0,
        max_instrs: 0,
        max_vars: 0,
        agent_timeout: Some(fallback_after),
    };
    let offers = query_offers(agent, datapath)?;
    let offered = &offers.algorithms;
    // The agent is untrusted: only names of ccplane are registered for it.
    if let Some(foreign) = offered
        .iter()
        .find(|one| !is_kernel_name(&one.offer.kernel_name))
    {
        return Err(RemoteError::BadName {
            agent: agent.clone(),
            name: foreign.offer.kernel_name.clone(),
        });
    }
    let of = |name: &&str| {
        let found = offered.iter().find(|one| *one.offer.name == **name);
        found.ok_or_else(|| RemoteError::Lacks {
            agent: agent.clone(),
            name: (*name).to_owned(),
            has: offered
                .iter()
                .map(|one| &*one.offer.name)
                .collect::<Vec<_>>()
                .join(", "),
        })
    };
    let chosen = match names {
        [] => offered.iter().collect(),
        names => names.iter().map(of).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(RemoteAlgorithms {
        algorithms: chosen.into_iter().map(spec).collect(),
        round_trip: offers.round_trip,
    })
}

/// Returns true if an algorithm of ccplane may have this kernel name: `ccp_` followed by letters,
/// digits, `_` and `.`, at most 15 bytes.
pub fn is_kernel_name(kernel_name: &str) -> bool {
    kernel_name.starts_with("ccp_") && crate::registration::load::valid_name(kernel_name)
}

fn spec(offered: &OfferedAlgorithm) -> AlgorithmSpec {
    AlgorithmSpec {
        name: offered.offer.name.clone(),
        kernel_name: offered.offer.kernel_name.clone(),
        programs: offered.programs.clone(),
        latency: offered.offer.latency,
        needs: offered.offer.required,
        wants: offered.offer.requested,
        standalone: None,
    }
}

/// An algorithm of which only the name is known; its programs are installed later.
fn spec_by_name(name: &str) -> AlgorithmSpec {
    let allowed = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    AlgorithmSpec {
        name: Arc::from(name),
        kernel_name: "ccp_".chars().chain(allowed).take(15).collect(),
        programs: Vec::new(),
        latency: CCP_REPORT_LATENCY,
        needs: Capabilities::CWND,
        // As in CCP's own datapath, programs run only on ACKs.
        wants: Capabilities::CWND,
        standalone: None,
    }
}
