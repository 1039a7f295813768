//! `attach --agent`: the algorithms run in another process, and this one passes reports and commands on.

use std::path::Path;
use std::sync::Arc;

use ccplane_agent::link::{AgentAddress, CcpUplink, Clock, Remote, offers};
use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_linux::{AlgorithmSpec, CAPABILITIES};
use ccplane_units::Duration;
use ccplane_wire::DatapathInfo;

use super::{AttachArgs, By, Steered};
use crate::exit::{Failure, Kind};

/// How long a CCP agent's reports that are not urgent may wait: as those of ccplane's algorithms that say nothing.
const LATENCY: Duration = Duration::from_millis(1);

/// What is to be registered for the agent there, with a connection of its own for each algorithm.
pub(super) fn steered(args: &AttachArgs, address: &AgentAddress) -> Result<Vec<Steered>, Failure> {
    let names = names(args, address)?;
    let specs = match address {
        AgentAddress::Unix(path) => {
            if args.silence.is_some() {
                return Err(Failure::text(
                    Kind::Usage,
                    "--silence is for a CCP agent: ccplane's says by heartbeats that it lives",
                )
                .hint("--fallback-after is the limit for its heartbeats"));
            }
            offered(path, &names, args.fallback_after)?
        }
        AgentAddress::Ccp(path) => {
            if names.is_empty() {
                return Err(
                    Failure::text(Kind::Usage, "a CCP agent does not say which algorithms it runs")
                        .hint("name it: --alg reno has sockets choose it as ccp_reno"),
                );
            }
            // Now rather than when the first flow runs on the fallback.
            let mut probe = CcpUplink::new(path, "", None);
            probe
                .connect(Clock::new().now())
                .map_err(|e| Failure::new(Kind::Failed, e))?;
            names.into_iter().map(|name| (spec(name), Capabilities::CWND)).collect()
        }
    };
    let one = |(spec, wants): (AlgorithmSpec, Capabilities)| Steered {
        by: By::Remote(address.remote(&spec.name, args.silence)),
        specs: vec![spec],
        wants,
    };
    Ok(specs.into_iter().map(one).collect())
}

/// The names of the command line.
fn names<'a>(args: &'a AttachArgs, address: &AgentAddress) -> Result<Vec<&'a str>, Failure> {
    let name = |contender: &'a Contender| match contender {
        Contender::Ccplane { name, parameters } if parameters.is_empty() => Ok(name.as_str()),
        Contender::Ccplane { name, .. } => Err(Failure::text(
            Kind::Usage,
            format!("`{contender}`: the agent at {address} runs it, with its own parameters"),
        )
        .hint(format!("--alg {name} here, the parameters where the agent is started"))),
        native => Err(Failure::text(Kind::Usage, format!("`{native}` is the kernel's own"))
            .hint("--alg takes the names of algorithms that the agent runs")),
    };
    args.alg.iter().map(name).collect()
}

/// What ccplane's agent there offers under these names; all, where there are none.
fn offered(
    path: &Path,
    names: &[&str],
    fallback_after: Duration,
) -> Result<Vec<(AlgorithmSpec, Capabilities)>, Failure> {
    let datapath = DatapathInfo {
        id: std::process::id(),
        kind: "linux".to_owned(),
        capabilities: CAPABILITIES,
        max_programs: 0,
        max_instrs: 0,
        max_vars: 0,
        fallback_after: Some(fallback_after),
    };
    let offered = offers(path, datapath).map_err(|e| Failure::new(Kind::Failed, e))?;
    // The agent may be anybody's: no name outside of ours is registered for it.
    if let Some(foreign) = offered.iter().find(|one| !is_ours(&one.offer.kernel_name)) {
        let text = format!(
            "the agent at {} wants to be called {:?} by the kernel",
            path.display(),
            foreign.offer.kernel_name
        );
        return Err(Failure::text(Kind::Failed, text)
            .hint("kernel names begin with ccp_ and have 15 letters, digits, `_` and `.` at most"));
    }
    let of = |name: &&str| {
        let found = offered.iter().find(|one| *one.offer.name == **name);
        found.ok_or_else(|| {
            let has: Vec<&str> = offered.iter().map(|one| &*one.offer.name).collect();
            Failure::text(Kind::Usage, format!("the agent at {} has no {name}", path.display()))
                .hint(format!("it has {}", has.join(", ")))
        })
    };
    let chosen = match names {
        [] => offered.iter().collect(),
        names => names.iter().map(of).collect::<Result<Vec<_>, _>>()?,
    };
    Ok(chosen.into_iter().map(|one| (one.into(), one.offer.wants)).collect())
}

fn is_ours(kernel_name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    kernel_name.starts_with("ccp_") && kernel_name.len() <= 15 && kernel_name.bytes().all(allowed)
}

/// An algorithm of which only the name is known: its programs come later.
fn spec(name: &str) -> AlgorithmSpec {
    let allowed = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    AlgorithmSpec {
        name: Arc::from(name),
        kernel_name: "ccp_".chars().chain(allowed).take(15).collect(),
        programs: Vec::new(),
        latency: LATENCY,
        needs: Capabilities::CWND,
    }
}
