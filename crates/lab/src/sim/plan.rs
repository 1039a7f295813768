//! From a scenario to what the simulator takes: the network, who sends to whom, when what changes.
//!
//! Names that the network does not have, and networks that cannot be, are told as [`Problem`]s of
//! the scenario's file.

use std::sync::Arc;

use ccplane_datapath::Capabilities;
use ccplane_qdisc::{DelayModel, Ecn, LineSpec, QueueSpec, Shape};
use ccplane_sim::{
    Change as SimChange, LinkId, LinkSpec, Network, NetworkError, NodeId, Pairs as SimPairs,
    Remark, SimError, SimOptions, Simulation, Spread, TraceFlow, Workload as SimWorkload,
    WorkloadSpec, topology,
};
use ccplane_transport::{Config, Rc3};
use ccplane_units::{Duration, Time};

use super::instant::Instant;
use crate::scenario::{
    Change, Kind, Link, Name, Node, Pairing, Problem, Scenario, Topology, TransportOptions,
    Workload,
};

/// A scenario with its names resolved; shared by all its runs.
#[derive(Debug)]
pub struct Plan {
    /// Nodes and links.
    pub network: Network,
    /// The link that is drawn.
    pub main: LinkId,
    /// Links with a row each.
    pub links: Vec<LinkId>,
    /// The pairs of each workload that has some, in the order of the scenario's.
    pub pairs: Vec<Pairs>,
    /// Changes of the network, with their times.
    pub events: Vec<(Time, SimChange)>,
    /// Options of every host's transport.
    pub transport: Arc<Config>,
    /// Hosts whose time stamps the scenario has something to say of.
    pub stamped: Vec<NodeId>,
    /// Hosts whose receivers conceal losses.
    pub concealing: Vec<NodeId>,
    /// `fat tree, k = 8`; nothing for a single link.
    pub name: Option<String>,
    /// Round trip of the first pair without a queue.
    pub rtt: Duration,
    /// The line of a dumbbell's bottleneck as the user wrote it.
    pub line_name: Option<String>,
}

/// Who sends to whom.
#[derive(Clone, Debug)]
pub enum Pairs {
    /// These.
    Fixed(SimPairs),
    /// Each of these to another one of them, drawn with the run's seed.
    Permutation(Vec<NodeId>),
    /// Those of a trace's flows, one by one.
    Trace(Vec<TraceFlow>),
}

impl Pairs {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Pairs::Fixed(SimPairs::Each(pairs)) => pairs.len(),
            Pairs::Fixed(SimPairs::Every { from, to }) => {
                let itself = from.iter().filter(|host| to.contains(host)).count();
                from.len().saturating_mul(to.len()) - itself
            }
            Pairs::Permutation(hosts) => hosts.len(),
            Pairs::Trace(flows) => flows.len(),
        }
    }

    /// One of them, or one that may be drawn, whose packets take no time.
    fn instant(&self, instant: &Instant) -> Option<(NodeId, NodeId)> {
        match self {
            Pairs::Fixed(pairs) => instant.among(pairs),
            Pairs::Permutation(hosts) => instant.between(hosts, hosts),
            Pairs::Trace(flows) => instant.among(&ends(flows)),
        }
    }

    /// Returns true if flows between them send to this host; with `back` in both directions.
    fn receives(&self, host: NodeId, back: bool) -> bool {
        match self {
            Pairs::Fixed(SimPairs::Each(pairs)) => pairs
                .iter()
                .any(|(from, to)| *to == host || back && *from == host),
            Pairs::Fixed(SimPairs::Every { from, to }) => {
                to.contains(&host) || back && from.contains(&host)
            }
            Pairs::Permutation(hosts) => hosts.contains(&host),
            Pairs::Trace(flows) => flows.iter().any(|flow| flow.to == host),
        }
    }

    /// One of them.
    fn first(&self) -> Option<(NodeId, NodeId)> {
        match self {
            Pairs::Fixed(SimPairs::Each(pairs)) => pairs.first().copied(),
            Pairs::Fixed(SimPairs::Every { from, to }) => {
                let from = *from.first()?;
                to.iter().find(|to| **to != from).map(|to| (from, *to))
            }
            Pairs::Permutation(hosts) => hosts.first().copied().zip(hosts.last().copied()),
            Pairs::Trace(flows) => flows.first().map(|flow| (flow.from, flow.to)),
        }
    }
}

/// Between whom a trace's flows are.
fn ends(flows: &[TraceFlow]) -> SimPairs {
    SimPairs::Each(flows.iter().map(|flow| (flow.from, flow.to)).collect())
}

/// A transport with what an algorithm wants of it: it offers ECN, carries time stamps, or keeps its
/// window over idle times.
pub fn switched_on(config: Config, wants: Capabilities) -> Config {
    let config = if wants.contains(Capabilities::ONE_WAY_DELAY) {
        config.stamped()
    } else {
        config
    };
    let ecn = if wants.contains(Capabilities::ECN) {
        Ecn::Ect0
    } else {
        config.ecn
    };
    Config {
        ecn,
        restart_after_idle: config.restart_after_idle
            && !wants.contains(Capabilities::KEEPS_WINDOW),
        ..config
    }
}

impl Plan {
    /// How connections are set up whose control wants that much: the scenario has the last word on
    /// ECN.
    pub fn transport(&self, scenario: &Scenario, wants: Capabilities) -> Arc<Config> {
        let decided = match scenario.transport.ecn {
            Some(_) => Capabilities::ECN,
            None => Capabilities::default(),
        };
        let wants = wants.missing_from(decided);
        if wants.is_empty() {
            return self.transport.clone();
        }
        Arc::new(switched_on((*self.transport).clone(), wants))
    }

    /// Plans the scenario's network.
    pub fn new(scenario: &Scenario) -> Result<Plan, Problem> {
        let mut network = build(scenario).map_err(|error| told(scenario, &error.into()))?;
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
                .find(|link| network.ends(*link) == Some((at, next)));
            let Some(over) = over else {
                return Err(scenario.source().problem(
                    route.next.span.clone(),
                    format!(
                        "no link leads from `{}` to `{}`",
                        route.at.text, route.next.text
                    ),
                    "not a neighbour",
                    "name a node that `at` is linked to",
                ));
            };
            network.route(at, to, over);
        }
        let instant = Instant::of(&network);
        let resolve = |workload| {
            let pairs = pairs(scenario, &network, workload)?;
            takes_time(scenario, &network, workload, pairs.instant(&instant))?;
            Ok(pairs)
        };
        let pairs: Vec<Pairs> = scenario
            .workloads
            .iter()
            .map(resolve)
            .collect::<Result<_, _>>()?;
        let links = scenario
            .report
            .links
            .iter()
            .map(|name| link(scenario, &network, name));
        let event = |event: &crate::scenario::Event| {
            let over = link(scenario, &network, &event.link)?;
            let change = match &event.change {
                Change::Rate(rate) => SimChange::Line(over, LineSpec::Constant(*rate)),
                Change::Delay(delay) => SimChange::Delay(over, DelayModel::Fixed(*delay)),
                Change::Loss(loss) => SimChange::Loss(over, *loss),
                Change::Up(true) => SimChange::Up(over),
                Change::Up(false) => SimChange::Down(over),
                Change::Route(host) => {
                    let to = node(scenario, &network, host)?;
                    // A link that was found has ends.
                    let at = network.ends(over).map_or(to, |(at, _)| at);
                    SimChange::Route(at, to, over)
                }
            };
            Ok((Time::ZERO + event.at, change))
        };
        // Whether it can be brought to life, before any thread tries.
        let probe = Simulation::new(network.clone(), SimOptions::default())
            .map_err(|error| told(scenario, &error))?;
        let main = main_link(scenario, &network, &pairs, &probe)?;
        let rtt = match pairs.iter().find_map(Pairs::first) {
            Some((from, to)) => {
                let way = |from, to| probe.path(from, to).map(|path| path.delay);
                let both = way(from, to).and_then(|there| Ok(there + way(to, from)?));
                both.map_err(|error| told(scenario, &error))?
            }
            None => Duration::ZERO,
        };
        let line_name = match &scenario.topology {
            Topology::Dumbbell { bottleneck, .. } if scenario.report.link.is_none() => {
                Some(bottleneck.line_name.clone())
            }
            _ => None,
        };
        Ok(Plan {
            rtt,
            line_name,
            main,
            links: links.collect::<Result<_, _>>()?,
            events: scenario
                .events
                .iter()
                .map(event)
                .collect::<Result<_, _>>()?,
            transport: Arc::new(config(&scenario.transport)),
            stamped: match &scenario.stamps {
                Some(stamps) if stamps.hosts.is_empty() => network.hosts().collect(),
                Some(stamps) => hosts(scenario, &network, &stamps.hosts)?,
                None => Vec::new(),
            },
            concealing: concealing(scenario, &network, &pairs)?,
            name: name(&scenario.topology),
            pairs,
            network,
        })
    }

    /// The scenario's workload of this number in a run with this seed, with its names resolved.
    pub fn spec(&self, index: usize, workload: &Workload, seed: u64) -> WorkloadSpec {
        let (pairs, kind) = match (self.pairs.get(index), &workload.kind) {
            (Some(Pairs::Fixed(pairs)), Kind::Of(kind)) => (pairs.clone(), kind.clone()),
            (Some(Pairs::Permutation(hosts)), Kind::Of(kind)) => {
                (SimPairs::permutation(hosts, seed), kind.clone())
            }
            (Some(Pairs::Trace(flows)), _) => (
                ends(flows),
                SimWorkload::Trace {
                    flows: flows.clone(),
                },
            ),
            // Neither is: every workload was resolved. Who runs it would say that there are no
            // pairs, or no flows.
            (_, Kind::Of(kind)) => (SimPairs::Each(Vec::new()), kind.clone()),
            (_, Kind::Trace { .. }) => (
                SimPairs::Each(Vec::new()),
                SimWorkload::Trace { flows: Vec::new() },
            ),
        };
        WorkloadSpec {
            name: workload.name.clone(),
            pairs,
            kind,
            start: Time::ZERO + workload.start,
            stop: workload.stop.map(|stop| Time::ZERO + stop),
        }
    }
}

/// The simulator's error as a problem of the file.
pub fn told(scenario: &Scenario, error: &SimError) -> Problem {
    let route = match error {
        SimError::Network(NetworkError::RouteLoop { to, .. }) => {
            scenario.routes.iter().find(|route| route.to.text == *to)
        }
        SimError::Network(NetworkError::RouteOverForeignLink { at, to, .. }) => scenario
            .routes
            .iter()
            .find(|route| route.to.text == *to && route.at.text == *at),
        _ => None,
    };
    let text = error.to_string();
    let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
    let span = route.map_or(scenario.topology_span.clone(), |route| {
        route.next.span.clone()
    });
    scenario.source().problem(span, what, "here", fix)
}

fn name(topology: &Topology) -> Option<String> {
    match topology {
        Topology::Dumbbell { pairs: 1, .. } => None,
        Topology::Dumbbell { pairs, .. } => Some(format!("dumbbell, {pairs} pairs of hosts")),
        Topology::ParkingLot { bottlenecks, .. } => {
            Some(format!("parking lot, {bottlenecks} bottlenecks"))
        }
        Topology::Incast { senders, .. } => Some(format!("incast, {senders} senders")),
        Topology::LeafSpine {
            leaves,
            spines,
            hosts_per_leaf,
            ..
        } => Some(format!(
            "{leaves} leaves, {spines} spines, {} hosts",
            leaves * hosts_per_leaf
        )),
        Topology::FatTree { k, .. } => Some(format!("fat tree, k = {k}, {} hosts", k * k * k / 4)),
        Topology::Tree192 { .. } => Some("tree of 192 hosts and 56 switches".to_owned()),
        Topology::Internet2 { .. } => Some("Internet-2, 100 hosts".to_owned()),
        Topology::Graph { nodes, links } => {
            Some(format!("{} nodes, {} links", nodes.len(), links.len()))
        }
    }
}

fn build(scenario: &Scenario) -> Result<Network, NetworkError> {
    let mtu = mtu(scenario);
    match &scenario.topology {
        Topology::Dumbbell {
            pairs,
            bottleneck,
            back,
            access,
        } => {
            let access = match access {
                Some(rate) => LinkSpec::new(*rate, Duration::ZERO),
                None => LinkSpec::wire(Duration::ZERO),
            };
            let rtt = bottleneck.delay + *back;
            let forward = spec(bottleneck, rtt, mtu);
            topology::dumbbell(
                *pairs,
                &access.with_mtu(mtu),
                forward,
                LinkSpec::wire(*back).with_mtu(mtu),
            )
        }
        Topology::ParkingLot { bottlenecks, link } => {
            let rtt = times(link.delay, 2 * u64::from(*bottlenecks));
            let access = LinkSpec::wire(Duration::ZERO).with_mtu(mtu);
            topology::parking_lot(*bottlenecks, &access, &spec(link, rtt, mtu))
        }
        Topology::Incast { senders, link } => {
            let link = spec(link, times(link.delay, 4), mtu);
            let access = LinkSpec {
                queue: QueueSpec::UNLIMITED,
                ..link.clone()
            };
            topology::incast(*senders, &access, link)
        }
        Topology::LeafSpine {
            leaves,
            spines,
            hosts_per_leaf,
            host,
            fabric,
        } => {
            let rtt = times(fabric.delay, 8);
            let (host, fabric) = (spec(host, rtt, mtu), spec(fabric, rtt, mtu));
            topology::leaf_spine(*leaves, *spines, *hosts_per_leaf, &host, &fabric)
        }
        Topology::FatTree { k, link } => {
            let link = spec(link, times(link.delay, 12), mtu);
            topology::fat_tree(*k, &link, &link)
        }
        Topology::Tree192 {
            queue,
            host_delay,
            fabric_delay,
        } => Ok(topology::tree_192_with(
            queue.unwrap_or(topology::TREE_192_QUEUE),
            host_delay.unwrap_or(topology::TREE_192_HOST_DELAY),
            fabric_delay.unwrap_or(topology::TREE_192_FABRIC_DELAY),
        )),
        Topology::Internet2 { queue } => Ok(topology::internet2(
            queue.unwrap_or(topology::INTERNET2_QUEUE),
        )),
        Topology::Graph { nodes, links } => {
            let mut network = Network::new();
            for Node { name, switch } in nodes {
                if *switch {
                    network.switch(&*name.text);
                } else {
                    network.host(&*name.text);
                }
            }
            for link in links {
                // Both are there: the file was checked.
                let (Some(from), Some(to)) =
                    (network.node(&link.from.text), network.node(&link.to.text))
                else {
                    continue;
                };
                let id = network.link(from, to, spec(&link.link, times(link.link.delay, 2), mtu));
                if link.name != network.link_name(id) {
                    network.name_link(id, &*link.name);
                }
            }
            Ok(network)
        }
    }
}

fn times(delay: Duration, n: u64) -> Duration {
    Duration::from_nanos(delay.as_nanos().saturating_mul(n))
}

fn spec(link: &Link, rtt: Duration, mtu: u32) -> LinkSpec {
    LinkSpec {
        line: link.line.clone(),
        delay: if link.jitter == Duration::ZERO {
            DelayModel::Fixed(link.delay)
        } else {
            DelayModel::Jitter {
                delay: link.delay,
                spread: link.jitter,
                shape: Shape::Uniform,
                reorder: link.reorder,
            }
        },
        queue: link.queue,
        loss: link.loss,
        rtt,
        mtu,
        remark: if link.strip_classes {
            Remark::STRIP
        } else {
            Remark::KEEP
        },
    }
}

pub(super) fn mtu(scenario: &Scenario) -> u32 {
    let config = config(&scenario.transport);
    u32::from(config.mss) + u32::from(config.header_bytes)
}

/// The transport's own choices, and the scenario's where it has some.
fn config(options: &TransportOptions) -> Config {
    let own = Config::default();
    Config {
        mss: options.mss.unwrap_or(own.mss),
        header_bytes: options.header_bytes.unwrap_or(own.header_bytes),
        ack_every: options.ack_every.unwrap_or(own.ack_every),
        ack_delay: options.ack_delay.unwrap_or(own.ack_delay),
        quick_acks: options.quick_acks.unwrap_or(own.quick_acks),
        growth_limit: options.growth_limit.unwrap_or(own.growth_limit),
        ecn: options
            .ecn
            .map_or(own.ecn, |ecn| if ecn { Ecn::Ect0 } else { Ecn::NotEct }),
        pacing: options.pacing.unwrap_or(own.pacing),
        pacing_quantum: options.pacing_quantum.unwrap_or(own.pacing_quantum),
        initial_window: options.initial_window.unwrap_or(own.initial_window),
        jump_start: options.jump_start.unwrap_or(own.jump_start),
        restart_after_idle: options.restart_after_idle.unwrap_or(own.restart_after_idle),
        initial_rto: options.initial_rto.unwrap_or(own.initial_rto),
        min_rto: options.min_rto.unwrap_or(own.min_rto),
        rc3: options.rc3.map(second_loop),
        discard: true,
        ..own
    }
}

/// Returns the transport's settings of RC3's second loop.
pub fn second_loop(wanted: ccplane_scenario::Rc3) -> Rc3 {
    const { assert!(ccplane_scenario::Rc3::MAX_LEVELS == Rc3::MOST_LEVELS) };
    let own = Rc3::default();
    Rc3 {
        levels: wanted.levels.unwrap_or(own.levels),
        verify: wanted.verify,
        ..own
    }
}

pub(super) fn node(scenario: &Scenario, network: &Network, name: &Name) -> Result<NodeId, Problem> {
    network.node(&name.text).ok_or_else(|| {
        let known: Vec<&str> = network.nodes().map(|node| network.name(node)).collect();
        scenario
            .source()
            .unknown(name.span.clone(), "node", &name.text, &known)
    })
}

fn link(scenario: &Scenario, network: &Network, name: &Name) -> Result<LinkId, Problem> {
    network.link_named(&name.text).ok_or_else(|| {
        let known: Vec<String> = network
            .links()
            .map(|link| network.link_name(link))
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        scenario
            .source()
            .unknown(name.span.clone(), "link", &name.text, &known)
    })
}

/// Every host that the patterns name, in the network's order.
fn hosts(
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
            return Err(scenario.source().unknown(
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

/// Hosts whose receivers conceal losses. Each pattern names a host that a flow sends to.
fn concealing(
    scenario: &Scenario,
    network: &Network,
    pairs: &[Pairs],
) -> Result<Vec<NodeId>, Problem> {
    let receives = |host: NodeId| {
        let workloads = scenario.workloads.iter().zip(pairs);
        workloads
            .filter(|(workload, _)| !workload.heeds_nothing())
            .any(|(workload, pairs)| pairs.receives(host, workload.sends_back()))
    };
    for pattern in &scenario.conceal_losses {
        let named = hosts(scenario, network, std::slice::from_ref(pattern))?;
        if !named.into_iter().any(receives) {
            return Err(scenario.source().problem(
                pattern.span.clone(),
                format!(
                    "no flow sends to `{}`, so that it acknowledges nothing",
                    pattern.text
                ),
                "here",
                "name hosts that flows send to",
            ));
        }
    }
    hosts(scenario, network, &scenario.conceal_losses)
}

/// Whether `name` fits `pattern`, in which one `*` stands for any letters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

/// Senders and receivers where a workload names none.
fn usual(topology: &Topology) -> (&'static str, &'static str) {
    match topology {
        Topology::Dumbbell { .. } => ("left*", "right*"),
        Topology::ParkingLot { .. } => ("source", "sink"),
        Topology::Incast { .. } => ("sender*", "receiver"),
        _ => ("*", "*"),
    }
}

fn pairs(scenario: &Scenario, network: &Network, workload: &Workload) -> Result<Pairs, Problem> {
    let problem = |what: String, fix: &str| {
        Err(scenario
            .source()
            .problem(workload.span.clone(), what, "here", fix))
    };
    if let Kind::Trace { flows } = &workload.kind {
        let mut named = Vec::with_capacity(flows.len());
        for flow in flows {
            let find = |name: &str| network.node(name).filter(|node| network.is_host(*node));
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
                            "line {} of the trace: from `{}` to itself",
                            flow.line, flow.from
                        ),
                        "name another host",
                    );
                }
                (from, _) => {
                    let name = if from.is_none() { &flow.from } else { &flow.to };
                    let known: Vec<&str> = network.hosts().map(|host| network.name(host)).collect();
                    let what = format!("host (line {} of the trace)", flow.line);
                    return Err(scenario.source().unknown(
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
                "write lines such as `10ms,left1,right1,20kB` into it",
            );
        }
        return Ok(Pairs::Trace(named));
    }
    let (senders, receivers) = usual(&scenario.topology);
    let or = |names: &[Name], usual: &str| {
        if names.is_empty() {
            let usual = Name {
                text: usual.to_owned(),
                span: workload.span.clone(),
            };
            hosts(scenario, network, &[usual])
        } else {
            hosts(scenario, network, names)
        }
    };
    let (from, to) = (or(&workload.from, senders)?, or(&workload.to, receivers)?);
    let pairs: Vec<(NodeId, NodeId)> = match workload.pairing {
        Pairing::Permutation => {
            if workload.to.is_empty() && from.len() > 1 {
                return Ok(Pairs::Permutation(from));
            }
            return problem(
                "a permutation is of at least two hosts, each of which sends and receives"
                    .to_owned(),
                "remove `to`, and name the hosts in `from`",
            );
        }
        Pairing::All if from.iter().any(|a| to.iter().any(|b| a != b)) => {
            return Ok(Pairs::Fixed(SimPairs::Every { from, to }));
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
                    "{} senders and {} receivers make no pairs",
                    from.len(),
                    to.len()
                ),
                "name as many of either, or write `pairs = \"all\"` or `pairs = \"permutation\"`",
            );
        }
    };
    let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b).collect();
    if pairs.is_empty() {
        return problem(
            "nobody sends to anybody else".to_owned(),
            "name `from` and `to`, or write `pairs = \"permutation\"` or `pairs = \"all\"`",
        );
    }
    Ok(Pairs::Fixed(SimPairs::Each(pairs)))
}

/// A workload has no pair between whom packets take no time.
fn takes_time(
    scenario: &Scenario,
    network: &Network,
    workload: &Workload,
    instant: Option<(NodeId, NodeId)>,
) -> Result<(), Problem> {
    let Some((from, to)) = instant else {
        return Ok(());
    };
    let what = format!(
        "packets from `{}` to `{}` would take no time: no link between them has a rate or a delay",
        network.name(from),
        network.name(to)
    );
    let fix = match scenario.topology {
        Topology::Dumbbell { .. } => {
            "name hosts of both sides of the bottleneck, or give each host's own link a rate: `access_rate = \"1gbit\"`"
        }
        _ => "name hosts with a bottleneck between them",
    };
    Err(scenario
        .source()
        .problem(workload.span.clone(), what, "here", fix))
}

/// The link that the scenario names; else the topology's bottleneck, in a graph the slowest on the
/// way to the first receiver, else the last one on that way.
fn main_link(
    scenario: &Scenario,
    network: &Network,
    pairs: &[Pairs],
    probe: &Simulation,
) -> Result<LinkId, Problem> {
    if let Some(name) = &scenario.report.link {
        return link(scenario, network, name);
    }
    let first = pairs.iter().find_map(Pairs::first);
    let slowest = match (&scenario.topology, first) {
        (Topology::Graph { .. }, Some((from, to))) => {
            probe.path(from, to).ok().and_then(|path| path.bottleneck)
        }
        _ => None,
    };
    let receiver = first.map(|(_, to)| to);
    ["bottleneck", "bottleneck1"]
        .iter()
        .find_map(|name| network.link_named(name))
        .or(slowest)
        .or_else(|| {
            network
                .links()
                .find(|link| network.ends(*link).map(|(_, to)| to) == receiver)
        })
        .ok_or_else(|| {
            let span = scenario.topology_span.clone();
            scenario.source().problem(
                span,
                "no link leads to a receiver",
                "here",
                "link the hosts",
            )
        })
}
