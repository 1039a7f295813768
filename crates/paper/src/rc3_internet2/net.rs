//! Networks of RC3's simulations: ten hosts at each router, and core links whose capacities give
//! all of them the same load.

use std::collections::BTreeMap;

use ccplane_qdisc::{DelayModel, LineSpec, LossModel, QueueSpec, RcpConfig, Size};
use ccplane_sim::{LinkSpec, Network, NodeId, Remark, SimError, topology};
use ccplane_units::{Duration, Probability, Rate};

/// Hosts per router.
const FANOUT: u64 = 10;
/// Delays of a link to a host and of one between routers, as in the paper's Internet-2.
const ACCESS: Duration = Duration::from_millis(1);
const CORE: Duration = Duration::from_millis(10);
/// Router that strips the marking: the one with the most traffic.
const STRIPPING_ROUTER: &str = "core3";
/// Buffer of a router's port at 1 Gbit/s and the paper's delays: 1 Gbit/s times 40 ms.
const BUFFER_BYTES: u64 = 5_000_000;

/// Routers and their links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backbone {
    /// The authors' links with their capacities.
    Internet2,
    RedClara,
    Nsfnet,
    Geant,
}

impl Backbone {
    pub const ALL: [Backbone; 4] = [
        Backbone::Internet2,
        Backbone::RedClara,
        Backbone::Nsfnet,
        Backbone::Geant,
    ];

    /// Returns its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Backbone::Internet2 => "internet2",
            Backbone::RedClara => "redclara",
            Backbone::Nsfnet => "nsfnet",
            Backbone::Geant => "geant2001",
        }
    }

    /// Returns the file of its links, which cites their source; `None` for the authors' network.
    fn file(self) -> Option<&'static str> {
        match self {
            Backbone::Internet2 => None,
            Backbone::RedClara => Some(include_str!("../../assets/topologies/redclara.txt")),
            Backbone::Nsfnet => Some(include_str!("../../assets/topologies/nsfnet.txt")),
            Backbone::Geant => Some(include_str!("../../assets/topologies/geant2001.txt")),
        }
    }
}

/// Queues of the routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    /// One FIFO.
    Plain,
    /// RC3's: five bands of strict priority that share the buffer, with push-out.
    Bands,
    /// RCP's, which offer the first flow the whole link, as in the paper's comparison. A host's own
    /// link has one too.
    Rcp,
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub backbone: Backbone,
    /// Rate of a host's link; core links are scaled with it.
    pub access_mbit: u64,
    /// Delays in percent of the paper's.
    pub delay_percent: u64,
    /// Random loss at every link between routers and to hosts, millionths.
    pub loss_ppm: u64,
    /// True if a router of Internet-2 removes the marking of all packets.
    pub strips: bool,
}

impl Net {
    /// The paper's baseline.
    pub const BASE: Net = Net {
        backbone: Backbone::Internet2,
        access_mbit: 1_000,
        delay_percent: 100,
        loss_ppm: 0,
        strips: false,
    };

    /// Returns the rate of a host's link.
    pub fn access(self) -> Rate {
        Rate::from_bits_per_sec(self.access_mbit * 1_000_000)
    }

    /// Builds the network. Returns it with the pairs of hosts that send to each other: those at
    /// different routers.
    pub fn build(self, queues: Queues) -> Result<(Network, Vec<(NodeId, NodeId)>), SimError> {
        let buffer =
            (BUFFER_BYTES * self.access_mbit / 1_000 * self.delay_percent / 100).max(30_000);
        let limit = Size::Bytes(buffer);
        let queue = match queues {
            Queues::Plain => QueueSpec::DropTail(limit),
            Queues::Bands => QueueSpec::Prio {
                bands: 5,
                shared: true,
                limit,
            },
            Queues::Rcp => rcp(limit),
        };
        let mut network = match self.backbone.file() {
            None => topology::internet2(queue),
            Some(file) => scaled(file, queue)?,
        };
        for link in network.links() {
            let from = network.endpoints(link).map(|(from, _)| from);
            let from_host = from.is_some_and(|from| network.is_host(from));
            let strips =
                self.strips && from.is_some_and(|from| network.name(from) == STRIPPING_ROUTER);
            let Some(spec) = network.spec_mut(link) else {
                continue;
            };
            if let LineSpec::Constant(rate) = spec.line {
                spec.line = LineSpec::Constant(Rate::from_bits_per_sec(
                    rate.bits_per_sec() / 1_000 * self.access_mbit,
                ));
            }
            if let DelayModel::Fixed(delay) = spec.delay {
                spec.delay = DelayModel::Fixed(Duration::from_nanos(
                    delay.as_nanos() / 100 * self.delay_percent,
                ));
            }
            if from_host {
                // Packets wait in their connection, not in the host's own queue.
                spec.queue = match queues {
                    Queues::Rcp => rcp(Size::Unlimited),
                    _ => QueueSpec::UNLIMITED,
                };
            } else {
                spec.remark = if strips {
                    Remark::BLEACHING
                } else {
                    Remark::IDENTITY
                };
                spec.loss = LossModel::Bernoulli(Probability::from_parts(
                    (self.loss_ppm << 32) / 1_000_000,
                ));
            }
        }
        let router = |network: &Network, host: NodeId| {
            let name = network.name(host);
            name.rsplit_once('-')
                .map_or(String::new(), |(router, _)| router.to_owned())
        };
        let hosts: Vec<(NodeId, String)> = network
            .hosts()
            .map(|host| (host, router(&network, host)))
            .collect();
        let pairs = hosts.iter().flat_map(|(from, at)| {
            let others = hosts.iter().filter(move |(_, other)| other != at);
            others.map(move |(to, _)| (*from, *to))
        });
        let pairs = pairs.collect();
        Ok((network, pairs))
    }
}

/// Returns RCP's queue with the paper's constants.
fn rcp(limit: Size) -> QueueSpec {
    let config = RcpConfig {
        init: 100,
        ..RcpConfig::DEFAULT
    };
    QueueSpec::Rcp { config, limit }
}

/// Builds a network from the links of a file: ten hosts per router at 1 Gbit/s, and for each
/// direction of a core link the capacity that it needs at full load.
fn scaled(file: &str, queue: QueueSpec) -> Result<Network, SimError> {
    let lines = file
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let cables: Vec<(&str, &str)> = lines
        .filter_map(|line| line.trim().split_once(' '))
        .collect();
    let mut names: Vec<&str> = cables.iter().flat_map(|(a, b)| [*a, *b]).collect();
    names.sort_unstable();
    names.dedup();
    let index = |name: &str| names.binary_search(&name).unwrap_or(0);
    let edges: Vec<(usize, usize)> = cables.iter().map(|(a, b)| (index(a), index(b))).collect();
    let loads = loads(names.len(), &edges);
    // Rate from a router's hosts to those of each other router at full load, Mbit/s.
    let pair = (FANOUT * 1_000) as f64 / (names.len() as f64 - 1.0);
    let spec = |mbit: f64, delay| {
        LinkSpec::new(Rate::from_bits_per_sec((mbit * 1e6) as u64), delay)
            .with_queue(queue, Duration::from_millis(40))
    };
    let mut network = Network::new();
    let routers: Vec<NodeId> = names.iter().map(|name| network.add_switch(*name)).collect();
    let node = |at: usize| {
        routers
            .get(at)
            .copied()
            .ok_or_else(|| SimError::InvalidTopology(format!("no router {at}")))
    };
    for (a, b) in edges {
        let rate = |from, to| pair * loads.get(&(from, to)).copied().unwrap_or(1.0);
        network.add_duplex_link(
            node(a)?,
            node(b)?,
            spec(rate(a, b), CORE),
            spec(rate(b, a), CORE),
        );
    }
    for (at, name) in names.iter().enumerate() {
        for n in 0..FANOUT {
            let host = network.add_host(format!("{name}-{n}"));
            network.add_duplex_link(
                host,
                node(at)?,
                spec(1_000.0, ACCESS),
                spec(1_000.0, ACCESS),
            );
        }
    }
    Ok(network)
}

/// Returns the number of pairs of routers that each direction of a link serves. Every router
/// divides its traffic equally among the next routers on shortest paths.
fn loads(routers: usize, edges: &[(usize, usize)]) -> BTreeMap<(usize, usize), f64> {
    let next = |at: usize| {
        let either = |(a, b): &(usize, usize)| match at {
            at if at == *a => Some(*b),
            at if at == *b => Some(*a),
            _ => None,
        };
        edges.iter().filter_map(either).collect::<Vec<_>>()
    };
    let neighbours: Vec<Vec<usize>> = (0..routers).map(next).collect();
    let mut loads = BTreeMap::new();
    for to in 0..routers {
        // By distance from the destination, nearest first.
        let (mut order, mut distance) = (vec![to], BTreeMap::from([(to, 0)]));
        let mut at = 0;
        while let Some(node) = order.get(at).copied() {
            at += 1;
            let away = distance.get(&node).map_or(1, |d| d + 1);
            for other in neighbours.get(node).into_iter().flatten() {
                if !distance.contains_key(other) {
                    distance.insert(*other, away);
                    order.push(*other);
                }
            }
        }
        let mut through: BTreeMap<usize, f64> = BTreeMap::new();
        for node in order.iter().skip(1).rev() {
            let all = 1.0 + through.get(node).copied().unwrap_or(0.0);
            let nearer = |other: &&usize| distance.get(other) < distance.get(node);
            let ways: Vec<usize> = neighbours
                .get(*node)
                .into_iter()
                .flatten()
                .filter(nearer)
                .copied()
                .collect();
            for way in &ways {
                let share = all / ways.len() as f64;
                *loads.entry((*node, *way)).or_insert(0.0) += share;
                if *way != to {
                    *through.entry(*way).or_insert(0.0) += share;
                }
            }
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccplane_sim::{SimOptions, Simulation};

    /// In a ring of four, neighbours use their link, and opposite routers both directions equally.
    #[test]
    fn loads_are_counted_and_divided() {
        let loads = loads(4, &[(0, 1), (1, 2), (2, 3), (3, 0)]);
        assert_eq!(loads.len(), 8);
        assert!(loads.values().all(|load| *load == 2.0), "{loads:?}");
        let line = super::loads(3, &[(0, 1), (1, 2)]);
        assert_eq!(line[&(0, 1)], 2.0);
        assert_eq!(line[&(1, 2)], 2.0);
    }

    #[test]
    fn networks_have_the_size_of_their_files() {
        for (backbone, routers, cables) in [
            (Backbone::Internet2, 10, 16),
            (Backbone::RedClara, 13, 17),
            (Backbone::Nsfnet, 13, 15),
            (Backbone::Geant, 27, 38),
        ] {
            let net = Net {
                backbone,
                ..Net::BASE
            };
            let (network, pairs) = net.build(Queues::Bands).unwrap();
            let hosts = network.hosts().count();
            assert_eq!(
                (hosts, network.links().len()),
                (routers * 10, 2 * (cables + hosts)),
                "{backbone:?}"
            );
            assert_eq!(pairs.len(), hosts * (hosts - 10), "{backbone:?}");
            Simulation::new(network, SimOptions::seeded(1)).unwrap();
        }
    }

    #[test]
    fn rates_and_delays_are_scaled() {
        let net = Net {
            access_mbit: 100,
            delay_percent: 50,
            loss_ppm: 1_000,
            ..Net::BASE
        };
        let (network, pairs) = net.build(Queues::Plain).unwrap();
        let core = network
            .find_link("core0->core3")
            .and_then(|link| network.spec(link))
            .unwrap();
        assert_eq!(core.line.mean_rate().unwrap().bits_per_sec(), 1_444_500_000);
        assert_eq!(core.queue, QueueSpec::DropTail(Size::Bytes(250_000)));
        let (from, to) = *pairs.first().unwrap();
        assert_eq!(
            (network.name(from), network.name(to)),
            ("host0-0", "host1-0")
        );
        let sim = Simulation::new(network, SimOptions::seeded(1)).unwrap();
        assert_eq!(sim.path(from, to).unwrap().delay, Duration::from_millis(6));
        assert_eq!(
            sim.path(from, to).unwrap().rate,
            Some(Rate::from_bits_per_sec(100_000_000))
        );
    }
}
