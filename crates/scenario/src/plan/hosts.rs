//! Resolution of node and link names, and the pairs of hosts of a workload.

use std::slice;

use ccplane_network::{LinkId, Network, NodeId};
use ccplane_workload::{Pairs as FixedPairs, TraceFlow, Workload as Sends};

use super::PlannedWorkload;
use super::zero_rtt::ZeroRttGroups;
use crate::{Name, Pairing, Problem, Scenario, Topology, Workload, WorkloadKind};

/// Pairs of sender and receiver of a workload.
#[derive(Clone, Debug)]
pub enum Pairs {
    /// Same pairs in every run.
    Fixed(FixedPairs),
    /// Random permutation of these hosts, drawn with the run's seed: each sends to another one.
    Permutation(Vec<NodeId>),
}

impl Pairs {
    /// Returns the pairs for a run with this seed.
    pub fn for_seed(&self, seed: u64) -> FixedPairs {
        match self {
            Pairs::Fixed(pairs) => pairs.clone(),
            Pairs::Permutation(hosts) => FixedPairs::permutation(hosts, seed),
        }
    }

    /// Returns the number of pairs.
    pub fn count(&self) -> usize {
        match self {
            Pairs::Fixed(FixedPairs::List(pairs)) => pairs.len(),
            Pairs::Fixed(FixedPairs::AllToAll { from, to }) => {
                let itself = from.iter().filter(|host| to.contains(host)).count();
                from.len().saturating_mul(to.len()) - itself
            }
            Pairs::Permutation(hosts) => hosts.len(),
        }
    }

    /// Returns a pair, or one that may be drawn, with an RTT of zero.
    pub(super) fn find_zero_rtt(&self, instant: &ZeroRttGroups) -> Option<(NodeId, NodeId)> {
        match self {
            Pairs::Fixed(pairs) => instant.find_in_pairs(pairs),
            Pairs::Permutation(hosts) => instant.find_between(hosts, hosts),
        }
    }

    /// Returns true if flows between these pairs send to this host; with `back`, in either
    /// direction.
    fn receives(&self, host: NodeId, back: bool) -> bool {
        match self {
            Pairs::Fixed(FixedPairs::List(pairs)) => pairs
                .iter()
                .any(|(from, to)| *to == host || back && *from == host),
            Pairs::Fixed(FixedPairs::AllToAll { from, to }) => {
                to.contains(&host) || back && from.contains(&host)
            }
            Pairs::Permutation(hosts) => hosts.contains(&host),
        }
    }

    /// Returns the first pair.
    pub(super) fn first(&self) -> Option<(NodeId, NodeId)> {
        match self {
            Pairs::Fixed(FixedPairs::List(pairs)) => pairs.first().copied(),
            Pairs::Fixed(FixedPairs::AllToAll { from, to }) => {
                let from = *from.first()?;
                to.iter().find(|to| **to != from).map(|to| (from, *to))
            }
            Pairs::Permutation(hosts) => hosts.first().copied().zip(hosts.last().copied()),
        }
    }
}

/// Returns the node of this name.
pub(super) fn node(scenario: &Scenario, network: &Network, name: &Name) -> Result<NodeId, Problem> {
    network.find_node(&name.text).ok_or_else(|| {
        let known: Vec<&str> = network.nodes().map(|node| network.name(node)).collect();
        scenario
            .source()
            .unknown_name(name.span.clone(), "node", &name.text, &known)
    })
}

/// Returns the link of this name.
pub(super) fn link(scenario: &Scenario, network: &Network, name: &Name) -> Result<LinkId, Problem> {
    network.find_link(&name.text).ok_or_else(|| {
        let known: Vec<String> = network
            .links()
            .map(|link| network.link_name(link))
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        scenario
            .source()
            .unknown_name(name.span.clone(), "link", &name.text, &known)
    })
}

/// Returns the hosts that match the patterns, in the network's order.
pub(super) fn matching(
    scenario: &Scenario,
    network: &Network,
    patterns: &[Name],
) -> Result<Vec<NodeId>, Problem> {
    let mut all: Vec<NodeId> = Vec::new();
    for pattern in patterns {
        let found: Vec<NodeId> = network
            .hosts()
            .filter(|host| matches(&pattern.text, network.name(*host)))
            .collect();
        if found.is_empty() {
            let known: Vec<&str> = network.hosts().map(|host| network.name(host)).collect();
            return Err(scenario.source().unknown_name(
                pattern.span.clone(),
                "host",
                &pattern.text,
                &known,
            ));
        }
        all.extend(
            found
                .into_iter()
                .filter(|host| !all.contains(host))
                .collect::<Vec<_>>(),
        );
    }
    Ok(all)
}

/// Returns the hosts whose receivers conceal losses. Each pattern must match a host that a flow
/// sends to.
pub(super) fn concealing(
    scenario: &Scenario,
    network: &Network,
    planned: &[PlannedWorkload],
) -> Result<Vec<NodeId>, Problem> {
    let receives = |host: NodeId| {
        let mut workloads = scenario.workloads.iter().zip(planned);
        workloads.any(|(workload, planned)| {
            !planned.uncontrolled && planned.pairs.receives(host, workload.is_bidirectional())
        })
    };
    for pattern in &scenario.conceal_losses {
        let named = matching(scenario, network, slice::from_ref(pattern))?;
        if !named.into_iter().any(receives) {
            return Err(scenario.source().problem(
                pattern.span.clone(),
                format!(
                    "no flow sends to `{}`, so it never acknowledges anything",
                    pattern.text
                ),
                "here",
                "name hosts that flows send to",
            ));
        }
    }
    matching(scenario, network, &scenario.conceal_losses)
}

/// Returns true if `name` matches `pattern`, in which one `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

/// Returns the patterns of a topology's default senders and receivers.
fn usual(topology: &Topology) -> (&'static str, &'static str) {
    match topology {
        Topology::Dumbbell { .. } => ("left*", "right*"),
        Topology::ParkingLot { .. } => ("source", "sink"),
        Topology::Incast { .. } => ("sender*", "receiver"),
        _ => ("*", "*"),
    }
}

/// Returns the pairs of hosts and the traffic of a workload.
pub(super) fn pairs(
    scenario: &Scenario,
    network: &Network,
    workload: &Workload,
) -> Result<(Pairs, Sends), Problem> {
    let problem = |what: String, fix: &str| {
        Err(scenario
            .source()
            .problem(workload.span.clone(), what, "here", fix))
    };
    let sends = match &workload.kind {
        WorkloadKind::Generated(sends) => sends.clone(),
        WorkloadKind::Trace { flows } => {
            let mut named = Vec::with_capacity(flows.len());
            for flow in flows {
                let find = |name: &str| {
                    network
                        .find_node(name)
                        .filter(|node| network.is_host(*node))
                };
                match (find(&flow.from), find(&flow.to)) {
                    (Some(from), Some(to)) if from != to => named.push(TraceFlow {
                        at: flow.at,
                        from,
                        to,
                        bytes: flow.bytes,
                    }),
                    (Some(_), Some(_)) => {
                        return problem(
                            format!(
                                "line {} of the trace: `{}` sends to itself",
                                flow.line, flow.from
                            ),
                            "change the source or the destination",
                        );
                    }
                    (from, _) => {
                        let name = if from.is_none() { &flow.from } else { &flow.to };
                        let known: Vec<&str> =
                            network.hosts().map(|host| network.name(host)).collect();
                        let what = format!("host (line {} of the trace)", flow.line);
                        return Err(scenario.source().unknown_name(
                            workload.span.clone(),
                            &what,
                            name,
                            &known,
                        ));
                    }
                }
            }
            if named.is_empty() {
                return problem(
                    "the trace has no flows".to_owned(),
                    "add lines such as `10ms,left1,right1,20kB`",
                );
            }
            let pairs = named.iter().map(|flow| (flow.from, flow.to)).collect();
            let sends = Sends::Trace { flows: named };
            return Ok((Pairs::Fixed(FixedPairs::List(pairs)), sends));
        }
    };
    let (senders, receivers) = usual(&scenario.topology);
    let or = |names: &[Name], usual: &str| {
        if names.is_empty() {
            let usual = Name {
                text: usual.to_owned(),
                span: workload.span.clone(),
            };
            matching(scenario, network, &[usual])
        } else {
            matching(scenario, network, names)
        }
    };
    let (from, to) = (or(&workload.from, senders)?, or(&workload.to, receivers)?);
    let pairs: Vec<(NodeId, NodeId)> = match workload.pairing {
        Pairing::Permutation => {
            if workload.to.is_empty() && from.len() > 1 {
                return Ok((Pairs::Permutation(from), sends));
            }
            return problem(
                "a permutation needs one list of at least two hosts, each of which sends and \
                 receives"
                    .to_owned(),
                "remove `to` and list the hosts in `from`",
            );
        }
        Pairing::All if from.iter().any(|a| to.iter().any(|b| a != b)) => {
            return Ok((Pairs::Fixed(FixedPairs::AllToAll { from, to }), sends));
        }
        Pairing::All => Vec::new(),
        Pairing::Each if from.len() == 1 => to.iter().map(|b| (from[0], *b)).collect(),
        Pairing::Each if to.len() == 1 => from.iter().map(|a| (*a, to[0])).collect(),
        Pairing::Each if from.len() == to.len() => {
            from.iter().copied().zip(to.iter().copied()).collect()
        }
        Pairing::Each => {
            return problem(
                format!(
                    "cannot pair {} senders with {} receivers",
                    from.len(),
                    to.len()
                ),
                "list as many senders as receivers, or set `pairs = \"all\"` or `pairs = \
                 \"permutation\"`",
            );
        }
    };
    let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b).collect();
    if pairs.is_empty() {
        return problem(
            "every host would send only to itself".to_owned(),
            "set `from` and `to`, or `pairs = \"permutation\"` or `pairs = \"all\"`",
        );
    }
    Ok((Pairs::Fixed(FixedPairs::List(pairs)), sends))
}

/// Returns an error if two hosts of the workload have an RTT of zero.
pub(super) fn check_delay(
    scenario: &Scenario,
    network: &Network,
    workload: &Workload,
    instant: Option<(NodeId, NodeId)>,
) -> Result<(), Problem> {
    let Some((from, to)) = instant else {
        return Ok(());
    };
    let what = format!(
        "packets from `{}` to `{}` would arrive instantly: no link between them has a rate or a \
         delay",
        network.name(from),
        network.name(to)
    );
    let fix = match scenario.topology {
        Topology::Dumbbell { .. } => {
            "choose hosts on both sides of the bottleneck, or set a rate for the access links: \
             `access_rate = \"1gbit\"`"
        }
        _ => "choose hosts with a bottleneck between them",
    };
    Err(scenario
        .source()
        .problem(workload.span.clone(), what, "here", fix))
}
