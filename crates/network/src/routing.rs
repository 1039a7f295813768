//! Routing: shortest paths by hop count, in flat tables.
//!
//! Hosts with the same access switch share one destination entry at all other nodes, so the tables
//! of a fat tree fit into the processor's cache. The packet's hash selects among equal-cost links.

use std::collections::{BTreeMap, VecDeque};

use ccplane_qdisc::Delay;
use ccplane_units::{Duration, Rate};

use crate::network::{LinkId, Network, NodeId, Spread};
use crate::{NetworkError, random};

const ABSENT_INDEX: u32 = u32::MAX;

/// Default memory limit of a network: 4 GB.
pub const MEMORY_LIMIT_DEFAULT_BYTES: u64 = 4_000_000_000;

/// Memory per link in a simulation, bytes.
const LINK_BYTES: u64 = 500;

/// Maximum number of nodes and of links: the simulator's events store them in 28 bits.
pub const NODES_MAX: usize = 1 << 28;

/// Routing tables of all nodes.
#[derive(Debug, Default)]
pub struct Routing {
    /// Row of each node in the table; `ABSENT_INDEX` for hosts with one link.
    rows: Vec<u32>,
    destinations: Vec<Destination>,
    groups: usize,
    table: Vec<Choice>,
    /// Concatenated lists of links.
    next: Vec<u32>,
    symmetric: bool,
}

/// Destination entry of a node.
#[derive(Clone, Copy, Debug)]
struct Destination {
    group: u32,
    /// Access switch, if there is exactly one, and the link from it to the host.
    switch: u32,
    downlink: u32,
    /// The outgoing link, if there is exactly one.
    uplink: u32,
}

/// Equal-cost links of a row towards a group: `count` entries starting at `first`, `left` hops from
/// the destination.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    first: u32,
    count: u16,
    remaining_hops: u16,
}

impl Routing {
    /// Returns the estimated size of a network's tables, bytes.
    fn estimate(network: &Network) -> u64 {
        let (rows, groups) = Adjacency::new(network).table_size(network);
        (rows * groups) as u64 * size_of::<Choice>() as u64 + network.nodes.len() as u64 * 24
    }

    /// Computes the shortest paths over the links that are `up`.
    pub fn new(network: &Network, up: impl Fn(u32) -> bool) -> Result<Routing, NetworkError> {
        let shape = Adjacency::new(network);
        let mut routing = shape.routing(network);
        let mut lists: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        let mut distance = vec![ABSENT_INDEX; network.nodes.len()];
        let mut queue = VecDeque::new();
        let mut links = Vec::new();
        for (group, &target) in shape.targets.iter().enumerate() {
            distance.fill(ABSENT_INDEX);
            distance[target as usize] = 0;
            queue.push_back(target);
            while let Some(node) = queue.pop_front() {
                for &link in &shape.incoming[node as usize] {
                    let from = network.links[link as usize].from as usize;
                    if up(link) && distance[from] == ABSENT_INDEX {
                        distance[from] = distance[node as usize] + 1;
                        if !network.nodes[from].is_host {
                            queue.push_back(from as u32);
                        }
                    }
                }
            }
            for (node, &row) in routing.rows.iter().enumerate() {
                if row == ABSENT_INDEX || distance[node] == ABSENT_INDEX || node == target as usize
                {
                    continue;
                }
                links.clear();
                links.extend(shape.outgoing[node].iter().copied().filter(|&link| {
                    let to = network.links[link as usize].to;
                    let forwards = to == target || !network.nodes[to as usize].is_host;
                    up(link) && forwards && distance[to as usize] == distance[node] - 1
                }));
                let first = *lists.entry(links.clone()).or_insert_with(|| {
                    routing.next.extend(&links);
                    (routing.next.len() - links.len()) as u32
                });
                routing.table[row as usize * routing.groups + group] = Choice {
                    first,
                    count: links.len().min(usize::from(u16::MAX)) as u16,
                    remaining_hops: distance[node].min(u32::from(u16::MAX)) as u16,
                };
            }
        }
        routing.apply_explicit_routes(network)?;
        Ok(routing)
    }

    /// Returns the link that a packet at `node` takes towards the host `to`.
    #[inline(always)]
    pub fn next_link(&self, node: u32, to: u32, hash: u32) -> Option<u32> {
        let destination = &self.destinations[to as usize];
        if destination.switch == node {
            return Some(destination.downlink);
        }
        self.choose(node, destination, hash)
    }

    /// Returns the next link at a node that is not the destination's access switch.
    #[inline]
    fn choose(&self, node: u32, destination: &Destination, hash: u32) -> Option<u32> {
        let row = self.rows[node as usize];
        if row == ABSENT_INDEX {
            let up = self.destinations[node as usize].uplink;
            return (up != ABSENT_INDEX).then_some(up);
        }
        let choice = self.table[row as usize * self.groups + destination.group as usize];
        let pick = match choice.count {
            0 => return None,
            1 => 0,
            count => {
                // Salted per hop; otherwise flows that shared one link would share all later ones.
                let salt = if self.symmetric {
                    u32::from(choice.remaining_hops)
                } else {
                    node
                };
                random::below(
                    random::mix(u64::from(hash) << 32 | u64::from(salt)) as u32,
                    u32::from(count),
                )
            }
        };
        self.next.get((choice.first + pick) as usize).copied()
    }

    /// Returns the path between two hosts for a flow with this hash.
    pub fn path(
        &self,
        network: &Network,
        from: u32,
        to: u32,
        hash: u32,
    ) -> Result<Vec<u32>, NetworkError> {
        let mut path = Vec::new();
        let mut node = from;
        while node != to {
            let next = self
                .next_link(node, to, hash)
                .filter(|_| path.len() < network.nodes.len());
            let Some(link) = next else {
                return Err(NetworkError::NoRoute {
                    from: network.name(NodeId(from)).into(),
                    to: network.name(NodeId(to)).into(),
                });
            };
            path.push(link);
            node = network.links[link as usize].to;
        }
        Ok(path)
    }

    /// Returns the memory used, bytes.
    pub fn memory(&self) -> usize {
        self.rows.capacity() * 4
            + self.destinations.capacity() * size_of::<Destination>()
            + self.table.capacity() * size_of::<Choice>()
            + self.next.capacity() * 4
    }

    /// Applies the explicit routes and checks that they form no loop.
    fn apply_explicit_routes(&mut self, network: &Network) -> Result<(), NetworkError> {
        let mut hosts = Vec::new();
        for route in &network.routes {
            let row = self.rows[route.at as usize];
            let group = self.destinations[route.to as usize].group as usize;
            if row != ABSENT_INDEX {
                let choice = &mut self.table[row as usize * self.groups + group];
                *choice = Choice {
                    first: self.next.len() as u32,
                    count: 1,
                    remaining_hops: choice.remaining_hops,
                };
                self.next.push(route.link);
            }
            hosts.push(route.to);
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
            .into_iter()
            .try_for_each(|to| self.check_loops(network, to))
    }

    /// Returns an error if the routes to `to` contain a loop.
    fn check_loops(&self, network: &Network, to: u32) -> Result<(), NetworkError> {
        #[derive(Clone, Copy, PartialEq)]
        enum VisitState {
            Unvisited,
            OnPath,
            Visited,
        }
        let links = |node: u32| -> &[u32] {
            match self.rows[node as usize] {
                ABSENT_INDEX => &[],
                row => {
                    let group = self.destinations[to as usize].group as usize;
                    let choice = self.table[row as usize * self.groups + group];
                    let first = choice.first as usize;
                    self.next
                        .get(first..first + usize::from(choice.count))
                        .unwrap_or_default()
                }
            }
        };
        let mut seen = vec![VisitState::Unvisited; network.nodes.len()];
        for start in 0..network.nodes.len() as u32 {
            // Path so far, as (node, index of its next link).
            let mut path = vec![(start, 0)];
            while let Some((node, index)) = path.last_mut() {
                let node = *node;
                if *index == 0 {
                    if seen[node as usize] == VisitState::Visited || node == to {
                        path.pop();
                        continue;
                    }
                    seen[node as usize] = VisitState::OnPath;
                }
                let Some(link) = links(node).get(*index) else {
                    seen[node as usize] = VisitState::Visited;
                    path.pop();
                    continue;
                };
                *index += 1;
                let next = network.links[*link as usize].to;
                if seen[next as usize] == VisitState::OnPath {
                    let circle: Vec<&str> = path
                        .iter()
                        .map(|(node, _)| *node)
                        .skip_while(|node| *node != next)
                        .chain([next])
                        .map(|node| network.name(NodeId(node)))
                        .collect();
                    return Err(NetworkError::RouteLoop {
                        to: network.name(NodeId(to)).into(),
                        through: circle.join(" -> "),
                    });
                }
                path.push((next, 0));
            }
        }
        Ok(())
    }
}

/// Adjacency lists and destination groups of a network.
struct Adjacency {
    outgoing: Vec<Vec<u32>>,
    incoming: Vec<Vec<u32>>,
    destinations: Vec<Destination>,
    /// Representative node of each group: the access switch of its hosts, or a host.
    targets: Vec<u32>,
}

impl Adjacency {
    fn new(network: &Network) -> Adjacency {
        let count = network.nodes.len();
        let (mut out, mut into) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (index, link) in network.links.iter().enumerate() {
            out[link.from as usize].push(index as u32);
            into[link.to as usize].push(index as u32);
        }
        let routed: std::collections::BTreeSet<u32> =
            network.routes.iter().map(|route| route.to).collect();
        let mut groups: BTreeMap<u32, u32> = BTreeMap::new();
        let mut targets = Vec::new();
        let mut destinations = Vec::with_capacity(count);
        for (node, described) in network.nodes.iter().enumerate() {
            let only = |links: &[u32]| {
                if let [link] = links {
                    *link
                } else {
                    ABSENT_INDEX
                }
            };
            let (up, down) = (only(&out[node]), only(&into[node]));
            let switch = match down {
                ABSENT_INDEX => ABSENT_INDEX,
                link => network.links[link as usize].from,
            };
            let hangs = switch != ABSENT_INDEX
                && !network.nodes[switch as usize].is_host
                && !routed.contains(&(node as u32));
            let (target, switch, down) = match hangs && described.is_host {
                true => (switch, switch, down),
                false => (node as u32, ABSENT_INDEX, ABSENT_INDEX),
            };
            let group = match described.is_host {
                false => 0,
                true => *groups.entry(target).or_insert_with(|| {
                    targets.push(target);
                    targets.len() as u32 - 1
                }),
            };
            destinations.push(Destination {
                group,
                switch,
                downlink: down,
                uplink: up,
            });
        }
        Adjacency {
            outgoing: out,
            incoming: into,
            destinations,
            targets,
        }
    }

    /// Returns true if the node needs a row because it may have to choose between links.
    fn has_row(&self, network: &Network, node: usize) -> bool {
        !network.nodes[node].is_host || self.outgoing[node].len() > 1
    }

    fn table_size(&self, network: &Network) -> (usize, usize) {
        let rows = (0..network.nodes.len())
            .filter(|&node| self.has_row(network, node))
            .count();
        (rows, self.targets.len())
    }

    fn routing(&self, network: &Network) -> Routing {
        let (count, groups) = self.table_size(network);
        let mut row = 0..count as u32;
        let rows = (0..network.nodes.len())
            .map(|node| {
                if self.has_row(network, node) {
                    row.next().unwrap_or(ABSENT_INDEX)
                } else {
                    ABSENT_INDEX
                }
            })
            .collect();
        Routing {
            rows,
            destinations: self.destinations.clone(),
            groups,
            table: vec![Choice::default(); count * groups],
            next: Vec::new(),
            symmetric: network.spread == Spread::Symmetric,
        }
    }
}

/// Path through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkPath {
    /// Number of links.
    pub links: usize,
    /// Sum of the propagation delays.
    pub delay: Duration,
    /// Lowest rate; `None` if no link has one.
    pub rate: Option<Rate>,
    /// Link with the lowest rate, the last one if there are several.
    pub bottleneck: Option<LinkId>,
}

impl NetworkPath {
    /// Returns the path over these links, with the given delay and rate per link.
    pub fn from_links(
        links: &[u32],
        delay: impl Fn(u32) -> Duration,
        rate: impl Fn(u32) -> Option<Rate>,
    ) -> NetworkPath {
        let rated = links.iter().rev();
        let rated = rated.filter_map(|link| Some((rate(*link)?, *link)));
        let slowest = rated.min_by_key(|(rate, _)| *rate);
        NetworkPath {
            links: links.len(),
            delay: links
                .iter()
                .fold(Duration::ZERO, |sum, link| sum + delay(*link)),
            rate: slowest.map(|(rate, _)| rate),
            bottleneck: slowest.map(|(_, link)| LinkId(link)),
        }
    }
}

impl Network {
    /// Checks the network and returns its routing tables. Returns an error if tables and links
    /// together take more than `memory_limit` bytes.
    pub fn routing(&self, memory_limit: u64) -> Result<Routing, NetworkError> {
        self.validate()?;
        self.check_routes()?;
        let (nodes, links) = (self.nodes.len(), self.links.len());
        let needed = Routing::estimate(self) + links as u64 * LINK_BYTES;
        if needed > memory_limit || links.max(nodes) >= NODES_MAX {
            return Err(NetworkError::TooLarge {
                what: format!("a network of {nodes} nodes and {links} links"),
                needed: needed / 1_000_000,
                limit: memory_limit / 1_000_000,
            });
        }
        Routing::new(self, |_| true)
    }

    /// Returns an error if changing the route at `at` to the host `to` creates a loop.
    pub fn check_route(&self, at: NodeId, to: NodeId, link: LinkId) -> Result<(), NetworkError> {
        let mut network = self.clone();
        network.add_route(at, to, link);
        network.check_routes()?;
        Routing::new(&network, |_| true).map(drop)
    }

    /// Returns the path between two hosts, without queueing.
    pub fn path(
        &self,
        routing: &Routing,
        from: NodeId,
        to: NodeId,
    ) -> Result<NetworkPath, NetworkError> {
        let links = routing.path(self, from.0, to.0, 0)?;
        let spec = |link: u32| &self.specs[link as usize];
        Ok(NetworkPath::from_links(
            &links,
            |link| Delay::with_model(spec(link).delay, 0).min_delay(),
            |link| spec(link).line.mean_rate(),
        ))
    }

    /// Checks those properties of the explicit routes that need no routing table.
    fn check_routes(&self) -> Result<(), NetworkError> {
        let network = self;
        for route in &network.routes {
            let unknown = |what, number, count| {
                Err(NetworkError::Unknown {
                    what,
                    number,
                    count,
                })
            };
            let (nodes, links) = (network.nodes.len(), network.links.len());
            if let Some(node) = [route.at, route.to]
                .into_iter()
                .find(|node| *node as usize >= nodes)
            {
                return unknown("node", node, nodes);
            }
            let Some(link) = network.links.get(route.link as usize) else {
                return unknown("link", route.link, links);
            };
            if !network.is_host(NodeId(route.to)) {
                return Err(NetworkError::NotAHost(
                    network.name(NodeId(route.to)).into(),
                ));
            }
            if link.from != route.at {
                return Err(NetworkError::RouteOverForeignLink {
                    at: network.name(NodeId(route.at)).into(),
                    to: network.name(NodeId(route.to)).into(),
                    link: network.link_name(LinkId(route.link)),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkSpec;

    /// Two hosts, with a slow and a fast link between their switches.
    fn two_links() -> (Network, [NodeId; 2], [LinkId; 2]) {
        let link = |mbit: u64, ms| {
            let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
            LinkSpec::new(rate, Duration::from_millis(ms))
        };
        let mut network = Network::new();
        let hosts = [network.add_host("a"), network.add_host("b")];
        let switch = network.add_switch("s");
        let (first, _) = network.add_duplex_link(hosts[0], switch, link(10, 1), link(10, 1));
        let (second, _) = network.add_duplex_link(switch, hosts[1], link(100, 4), link(100, 4));
        (network, hosts, [first, second])
    }

    #[test]
    fn a_path_has_the_sum_of_delays_and_the_lowest_rate() {
        let (network, [a, b], [slow, _]) = two_links();
        let routing = network.routing(MEMORY_LIMIT_DEFAULT_BYTES).unwrap();
        let path = network.path(&routing, a, b).unwrap();
        assert_eq!((path.links, path.delay), (2, Duration::from_millis(5)));
        assert_eq!(path.bottleneck, Some(slow));
        assert_eq!(path.rate, Some(Rate::from_bits_per_sec(10_000_000)));
    }

    #[test]
    fn networks_beyond_the_memory_limit_or_with_foreign_routes_are_rejected() {
        let (mut network, [a, b], [_, second]) = two_links();
        let refused = network.routing(100).unwrap_err();
        assert!(
            matches!(refused, NetworkError::TooLarge { .. }),
            "{refused}"
        );
        network.add_route(a, b, second);
        let refused = network.routing(MEMORY_LIMIT_DEFAULT_BYTES).unwrap_err();
        let foreign = matches!(refused, NetworkError::RouteOverForeignLink { .. });
        assert!(foreign, "{refused}");
    }

    #[test]
    fn errors_of_queues_name_the_link() {
        let (mut network, _, [slow, _]) = two_links();
        assert_eq!(network.check_queues(), Ok(()));
        if let Some(spec) = network.spec_mut(slow) {
            spec.queue = "red:min=9p:max=3p".parse().unwrap();
        }
        let refused = network.check_queues().unwrap_err().to_string();
        assert!(
            refused.starts_with("the queue of the link `a->s`"),
            "{refused}"
        );
    }
}
