//! Plan of a scenario: its network with all names resolved, the pairs of hosts, and the times of
//! changes. All backends make their runs from this value.
//!
//! Unknown names and networks that cannot be built are reported as a [`Problem`] of the scenario's
//! file.

mod hosts;
#[cfg(test)]
mod tests;
mod topology;
mod zero_rtt;

use ccplane_network::{
    LinkId, MEMORY_LIMIT_DEFAULT_BYTES, Network, NetworkChange, NetworkError, NodeId, Routing,
    Spread,
};
use ccplane_qdisc::{DelayModel, LineSpec};
use ccplane_units::{Duration, Time};
use ccplane_workload::{Workload as Sends, WorkloadSpec};

use crate::{
    Contender, EventChange, FlowEnd, Problem, Scenario, ScenarioEvent, StopTime, Topology, Workload,
};
pub use hosts::Pairs;
use hosts::{link, node};
use zero_rtt::ZeroRttGroups;

/// Scenario with its names resolved, shared by all of its runs.
#[derive(Debug)]
pub struct Plan {
    /// Nodes, links and routes.
    pub network: Network,
    /// Link whose throughput and delay are drawn.
    pub main_link: LinkId,
    /// Links with a row in the results.
    pub links: Vec<LinkId>,
    /// Workloads in the scenario's order, which determines their random numbers.
    pub workloads: Vec<PlannedWorkload>,
    /// Sendbox and receivebox switch of each bundle, in the scenario's order.
    pub bundles: Vec<(NodeId, NodeId)>,
    /// Changes of the network, with their times.
    pub events: Vec<(Time, NetworkChange)>,
    /// Hosts whose time stamps follow [`Scenario::stamps`].
    pub stamped_hosts: Vec<NodeId>,
    /// Hosts whose receivers conceal losses (acknowledge data that they did not receive).
    pub concealing_hosts: Vec<NodeId>,
    /// Name and size of the network, such as `fat tree, k = 8`; `None` for a single link.
    pub name: Option<String>,
    /// RTT of the first pair without queueing.
    pub rtt: Duration,
    /// Line of a dumbbell's bottleneck as written in the file.
    pub line_name: Option<String>,
}

/// Workload with its pairs of hosts.
#[derive(Clone, Debug)]
pub struct PlannedWorkload {
    /// Name in the results.
    pub name: String,
    /// Pairs of sender and receiver.
    pub pairs: Pairs,
    /// Traffic.
    pub traffic: Sends,
    /// Earliest start of a flow.
    pub start: Time,
    /// Time after which no new data is sent.
    pub stop: Option<Time>,
    /// Priority band of its packets; 0 is the highest.
    pub band: u8,
    /// Congestion control; `None`: the contender of the run.
    pub algorithm: Option<Contender>,
    /// True if its packets are subject to no congestion control.
    pub uncontrolled: bool,
    /// True if it counts towards the contender's results.
    pub compared: bool,
    /// True if a run with [`StopTime::FlowsDone`] waits for its flows to end.
    pub awaited: bool,
}

impl PlannedWorkload {
    fn new(
        scenario: &Scenario,
        network: &Network,
        instant: &ZeroRttGroups,
        workload: &Workload,
    ) -> Result<PlannedWorkload, Problem> {
        let (pairs, sends) = hosts::pairs(scenario, network, workload)?;
        hosts::check_delay(scenario, network, workload, pairs.find_zero_rtt(instant))?;
        let compared = workload.is_compared(&scenario.contenders);
        Ok(PlannedWorkload {
            name: workload.name.clone(),
            pairs,
            traffic: sends,
            start: Time::ZERO + workload.start,
            stop: workload.stop.map(|stop| Time::ZERO + stop),
            band: workload.band,
            algorithm: workload
                .algorithm
                .as_ref()
                .or(scenario.bundle_host_algorithm())
                .cloned(),
            uncontrolled: workload.is_uncontrolled(),
            compared,
            awaited: compared
                && scenario.stop_time == StopTime::FlowsDone
                && workload.flow_end() == FlowEnd::All,
        })
    }

    /// Returns the workload for a run with this seed.
    pub fn spec(&self, seed: u64) -> WorkloadSpec {
        WorkloadSpec {
            name: self.name.clone(),
            pairs: self.pairs.for_seed(seed),
            kind: self.traffic.clone(),
            start: self.start,
            stop: self.stop,
        }
    }

    /// Returns the congestion control in a run of this contender; `None` for datagrams.
    pub fn control<'c>(&'c self, contender: Option<&'c Contender>) -> Option<&'c Contender> {
        let control = self.algorithm.as_ref().or(contender);
        control.filter(|_| !self.uncontrolled)
    }
}

impl Plan {
    /// Plans the scenario's network.
    pub fn new(scenario: &Scenario) -> Result<Plan, Problem> {
        let problem = |error: NetworkError| scenario.network_problem(&error);
        let mut network = topology::build(scenario).map_err(problem)?;
        network.spread = if scenario.per_packet {
            Spread::PerPacket
        } else {
            network.spread
        };
        for route in &scenario.routes {
            let [at, to, next] =
                [&route.at, &route.to, &route.next].map(|name| node(scenario, &network, name));
            let (at, to, next) = (at?, to?, next?);
            let over = network
                .links()
                .find(|link| network.endpoints(*link) == Some((at, next)));
            let Some(over) = over else {
                return Err(scenario.source().problem(
                    route.next.span.clone(),
                    format!(
                        "no link leads from `{}` to `{}`",
                        route.at.text, route.next.text
                    ),
                    "not a neighbour",
                    "choose a node that `at` is linked to",
                ));
            };
            network.add_route(at, to, over);
        }
        let instant = ZeroRttGroups::new(&network);
        let workloads = scenario
            .workloads
            .iter()
            .map(|workload| PlannedWorkload::new(scenario, &network, &instant, workload))
            .collect::<Result<Vec<_>, _>>()?;
        let links = scenario
            .report
            .links
            .iter()
            .map(|name| link(scenario, &network, name));
        let event = |event: &ScenarioEvent| {
            let over = link(scenario, &network, &event.link)?;
            let change = match &event.change {
                EventChange::Rate(rate) => NetworkChange::Line(over, LineSpec::Constant(*rate)),
                EventChange::Delay(delay) => NetworkChange::Delay(over, DelayModel::Fixed(*delay)),
                EventChange::Loss(loss) => NetworkChange::Loss(over, *loss),
                EventChange::Up(true) => NetworkChange::Up(over),
                EventChange::Up(false) => NetworkChange::Down(over),
                EventChange::Route(host) => {
                    let to = node(scenario, &network, host)?;
                    // `link` found it, so it has ends.
                    let at = network.endpoints(over).map_or(to, |(at, _)| at);
                    NetworkChange::Route(at, to, over)
                }
            };
            Ok((Time::ZERO + event.at, change))
        };
        let routing = network
            .routing(MEMORY_LIMIT_DEFAULT_BYTES)
            .map_err(problem)?;
        network.check_queues().map_err(problem)?;
        let first = workloads.iter().find_map(|workload| workload.pairs.first());
        let main = main_link(scenario, &network, &routing, first)?;
        let delay = |from, to| network.path(&routing, from, to).map(|path| path.delay);
        let rtt = match first {
            Some((from, to)) => delay(from, to).and_then(|there| Ok(there + delay(to, from)?)),
            None => Ok(Duration::ZERO),
        };
        let ends = |bundle: &crate::BundleSettings| {
            let end = |name| node(scenario, &network, name);
            Ok((end(&bundle.from)?, end(&bundle.to)?))
        };
        let line_name = match &scenario.topology {
            Topology::Dumbbell { bottleneck, .. } if scenario.report.link.is_none() => {
                Some(bottleneck.line_name.clone())
            }
            _ => None,
        };
        Ok(Plan {
            rtt: rtt.map_err(problem)?,
            line_name,
            main_link: main,
            links: links.collect::<Result<_, _>>()?,
            events: scenario
                .events
                .iter()
                .map(event)
                .collect::<Result<_, _>>()?,
            bundles: scenario
                .bundles
                .iter()
                .map(ends)
                .collect::<Result<_, _>>()?,
            stamped_hosts: match &scenario.stamps {
                Some(stamps) if stamps.hosts.is_empty() => network.hosts().collect(),
                Some(stamps) => hosts::matching(scenario, &network, &stamps.hosts)?,
                None => Vec::new(),
            },
            concealing_hosts: hosts::concealing(scenario, &network, &workloads)?,
            name: topology::name(&scenario.topology),
            workloads,
            network,
        })
    }
}

impl Scenario {
    /// Converts an error of the network to a problem of the scenario's file.
    pub fn network_problem(&self, error: &NetworkError) -> Problem {
        let route = match error {
            NetworkError::RouteLoop { to, .. } => {
                self.routes.iter().find(|route| route.to.text == *to)
            }
            NetworkError::RouteOverForeignLink { at, to, .. } => self
                .routes
                .iter()
                .find(|route| route.to.text == *to && route.at.text == *at),
            _ => None,
        };
        let span = route.map_or(&self.topology_span, |route| &route.next.span);
        self.source()
            .problem_from_error(span.clone(), "here", error)
    }
}

/// Returns the link that the scenario names, or the topology's bottleneck. In a graph this is the
/// slowest link on the path to the first receiver, or a link into that receiver if no link of the
/// path has a rate.
fn main_link(
    scenario: &Scenario,
    network: &Network,
    routing: &Routing,
    first: Option<(NodeId, NodeId)>,
) -> Result<LinkId, Problem> {
    if let Some(name) = &scenario.report.link {
        return link(scenario, network, name);
    }
    let slowest = match (&scenario.topology, first) {
        (Topology::Graph { .. }, Some((from, to))) => {
            let path = network.path(routing, from, to).ok();
            path.and_then(|path| path.bottleneck)
        }
        _ => None,
    };
    let receiver = first.map(|(_, to)| to);
    ["bottleneck", "bottleneck1"]
        .iter()
        .find_map(|name| network.find_link(name))
        .or(slowest)
        .or_else(|| {
            network
                .links()
                .find(|link| network.endpoints(*link).map(|(_, to)| to) == receiver)
        })
        .ok_or_else(|| {
            let span = scenario.topology_span.clone();
            scenario.source().problem(
                span,
                "no link leads to a receiver",
                "here",
                "add a link to a receiving host",
            )
        })
}
