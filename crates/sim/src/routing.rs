//! Routing: shortest paths by hop count, in flat tables.
//!
//! Hosts with the same access switch share one destination entry at all other nodes, so that the
//! tables of a fat tree fit into the processor's cache. Among equal-cost links the packet's hash
//! decides.

use std::collections::{BTreeMap, VecDeque};

use crate::network::{LinkId, Network, NodeId, Spread};
use crate::{SimError, random};

const NONE: u32 = u32::MAX;

/// Routing tables of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    /// Row of each node in the table; none for hosts with one link.
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
    down: u32,
    /// The outgoing link, if there is exactly one.
    up: u32,
}

/// Equal-cost links of a row towards a group: `count` entries from `first`, at `left` hops from the
/// destination.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    first: u32,
    count: u16,
    left: u16,
}

impl Routing {
    /// Returns the estimated size of a network's tables, bytes.
    pub fn estimate(network: &Network) -> u64 {
        let (rows, groups) = Shape::of(network).size(network);
        (rows * groups) as u64 * size_of::<Choice>() as u64 + network.nodes.len() as u64 * 24
    }

    /// Computes the shortest paths over the links that are `up`.
    pub fn new(network: &Network, up: impl Fn(u32) -> bool) -> Result<Routing, SimError> {
        let shape = Shape::of(network);
        let mut routing = shape.routing(network);
        let mut lists: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        let mut distance = vec![NONE; network.nodes.len()];
        let mut queue = VecDeque::new();
        let mut links = Vec::new();
        for (group, &target) in shape.targets.iter().enumerate() {
            distance.fill(NONE);
            distance[target as usize] = 0;
            queue.push_back(target);
            while let Some(node) = queue.pop_front() {
                for &link in &shape.into[node as usize] {
                    let from = network.links[link as usize].from as usize;
                    if up(link) && distance[from] == NONE {
                        distance[from] = distance[node as usize] + 1;
                        if !network.nodes[from].host {
                            queue.push_back(from as u32);
                        }
                    }
                }
            }
            for (node, &row) in routing.rows.iter().enumerate() {
                if row == NONE || distance[node] == NONE || node == target as usize {
                    continue;
                }
                links.clear();
                links.extend(shape.out[node].iter().copied().filter(|&link| {
                    let to = network.links[link as usize].to;
                    let forwards = to == target || !network.nodes[to as usize].host;
                    up(link) && forwards && distance[to as usize] == distance[node] - 1
                }));
                let first = *lists.entry(links.clone()).or_insert_with(|| {
                    routing.next.extend(&links);
                    (routing.next.len() - links.len()) as u32
                });
                routing.table[row as usize * routing.groups + group] = Choice {
                    first,
                    count: links.len().min(usize::from(u16::MAX)) as u16,
                    left: distance[node].min(u32::from(u16::MAX)) as u16,
                };
            }
        }
        routing.explicit(network)?;
        Ok(routing)
    }

    /// Returns the link that a packet at `node` takes towards the host `to`.
    #[inline(always)]
    pub fn next(&self, node: u32, to: u32, hash: u32) -> Option<u32> {
        let destination = &self.destinations[to as usize];
        if destination.switch == node {
            return Some(destination.down);
        }
        self.choose(node, destination, hash)
    }

    /// Returns the next link at a node that is not the destination's access switch.
    fn choose(&self, node: u32, destination: &Destination, hash: u32) -> Option<u32> {
        let row = self.rows[node as usize];
        if row == NONE {
            let up = self.destinations[node as usize].up;
            return (up != NONE).then_some(up);
        }
        let choice = self.table[row as usize * self.groups + destination.group as usize];
        let pick = match choice.count {
            0 => return None,
            1 => 0,
            count => {
                // Salted per hop; otherwise flows that shared one link would share all later ones.
                let salt = if self.symmetric {
                    u32::from(choice.left)
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
    ) -> Result<Vec<u32>, SimError> {
        let mut path = Vec::new();
        let mut node = from;
        while node != to {
            let next = self
                .next(node, to, hash)
                .filter(|_| path.len() < network.nodes.len());
            let Some(link) = next else {
                return Err(SimError::NoRoute {
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
    fn explicit(&mut self, network: &Network) -> Result<(), SimError> {
        let mut hosts = Vec::new();
        for route in &network.routes {
            let row = self.rows[route.at as usize];
            let group = self.destinations[route.to as usize].group as usize;
            if row != NONE {
                let choice = &mut self.table[row as usize * self.groups + group];
                *choice = Choice {
                    first: self.next.len() as u32,
                    count: 1,
                    left: choice.left,
                };
                self.next.push(route.link);
            }
            hosts.push(route.to);
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
            .into_iter()
            .try_for_each(|to| self.circle(network, to))
    }

    /// Returns an error if the routes to `to` contain a loop.
    fn circle(&self, network: &Network, to: u32) -> Result<(), SimError> {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            No,
            OnPath,
            Done,
        }
        let links = |node: u32| -> &[u32] {
            match self.rows[node as usize] {
                NONE => &[],
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
        let mut seen = vec![Seen::No; network.nodes.len()];
        for start in 0..network.nodes.len() as u32 {
            // Path so far, as (node, index of its next link).
            let mut path = vec![(start, 0)];
            while let Some((node, index)) = path.last_mut() {
                let node = *node;
                if *index == 0 {
                    if seen[node as usize] == Seen::Done || node == to {
                        path.pop();
                        continue;
                    }
                    seen[node as usize] = Seen::OnPath;
                }
                let Some(link) = links(node).get(*index) else {
                    seen[node as usize] = Seen::Done;
                    path.pop();
                    continue;
                };
                *index += 1;
                let next = network.links[*link as usize].to;
                if seen[next as usize] == Seen::OnPath {
                    let circle: Vec<&str> = path
                        .iter()
                        .map(|(node, _)| *node)
                        .skip_while(|node| *node != next)
                        .chain([next])
                        .map(|node| network.name(NodeId(node)))
                        .collect();
                    return Err(SimError::RouteLoop {
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
struct Shape {
    out: Vec<Vec<u32>>,
    into: Vec<Vec<u32>>,
    destinations: Vec<Destination>,
    /// Representative node of each group: the access switch of its hosts, or a host.
    targets: Vec<u32>,
}

impl Shape {
    fn of(network: &Network) -> Shape {
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
            let only = |links: &[u32]| if let [link] = links { *link } else { NONE };
            let (up, down) = (only(&out[node]), only(&into[node]));
            let switch = match down {
                NONE => NONE,
                link => network.links[link as usize].from,
            };
            let hangs = switch != NONE
                && !network.nodes[switch as usize].host
                && !routed.contains(&(node as u32));
            let (target, switch, down) = match hangs && described.host {
                true => (switch, switch, down),
                false => (node as u32, NONE, NONE),
            };
            let group = match described.host {
                false => 0,
                true => *groups.entry(target).or_insert_with(|| {
                    targets.push(target);
                    targets.len() as u32 - 1
                }),
            };
            destinations.push(Destination {
                group,
                switch,
                down,
                up,
            });
        }
        Shape {
            out,
            into,
            destinations,
            targets,
        }
    }

    /// Returns true if the node needs a row because it may have to choose between links.
    fn has_row(&self, network: &Network, node: usize) -> bool {
        !network.nodes[node].host || self.out[node].len() > 1
    }

    fn size(&self, network: &Network) -> (usize, usize) {
        let rows = (0..network.nodes.len())
            .filter(|&node| self.has_row(network, node))
            .count();
        (rows, self.targets.len())
    }

    fn routing(&self, network: &Network) -> Routing {
        let (count, groups) = self.size(network);
        let mut row = 0..count as u32;
        let rows = (0..network.nodes.len())
            .map(|node| {
                if self.has_row(network, node) {
                    row.next().unwrap_or(NONE)
                } else {
                    NONE
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

/// Checks the explicit routes as far as possible without tables.
pub(crate) fn check(network: &Network) -> Result<(), SimError> {
    for route in &network.routes {
        let unknown = |what, number, count| {
            Err(SimError::Unknown {
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
            return Err(SimError::NotAHost(network.name(NodeId(route.to)).into()));
        }
        if link.from != route.at {
            return Err(SimError::RouteOverForeignLink {
                at: network.name(NodeId(route.at)).into(),
                to: network.name(NodeId(route.to)).into(),
                link: network.link_name(LinkId(route.link)),
            });
        }
    }
    Ok(())
}
