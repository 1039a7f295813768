//! The networks of RC3's simulations: ten hosts at each router, and core links whose capacities
//! make their loads alike.

use std::collections::BTreeMap;

use ccplane_qdisc::{DelayModel, LineSpec, LossModel, QueueSpec, RcpConfig, Size};
use ccplane_sim::{LinkSpec, Network, NodeId, Remark, SimError, topology};
use ccplane_units::{Duration, Probability, Rate};

/// Hosts of a router.
pub(super) const FANOUT: u64 = 10;
/// What a link to a host and one between routers take, as in the paper's Internet-2.
const ACCESS: Duration = Duration::from_millis(1);
const CORE: Duration = Duration::from_millis(10);
/// The router that strips.
const STRIPS: &str = "core3";
/// A router's buffer at 1 Gbit/s and the paper's round trips: 1 Gbit/s times 40 ms.
const BUFFER: u64 = 5_000_000;

/// Which routers there are, and how they are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The authors', with their capacities.
    Internet2,
    RedClara,
    Nsfnet,
    Geant,
}

impl Shape {
    /// For a person.
    pub fn label(self) -> &'static str {
        match self {
            Shape::Internet2 => "Internet-2",
            Shape::RedClara => "RedCLARA",
            Shape::Nsfnet => "NSFNET",
            Shape::Geant => "GEANT 2001",
        }
    }

    /// For names of files and figures.
    pub fn key(self) -> &'static str {
        match self {
            Shape::Internet2 => "internet2",
            Shape::RedClara => "redclara",
            Shape::Nsfnet => "nsfnet",
            Shape::Geant => "geant2001",
        }
    }

    /// Its file, which names its source; none for the authors'.
    fn file(self) -> Option<&'static str> {
        match self {
            Shape::Internet2 => None,
            Shape::RedClara => Some(include_str!("../../assets/topologies/redclara.txt")),
            Shape::Nsfnet => Some(include_str!("../../assets/topologies/nsfnet.txt")),
            Shape::Geant => Some(include_str!("../../assets/topologies/geant2001.txt")),
        }
    }
}

/// What a router's queues are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    /// One FIFO.
    Plain,
    /// RC3's: five bands of strict priority that share the buffer, with push-out.
    Bands,
    /// RCP's, which offer the first flow all of the link, as in the paper's comparison; a host's
    /// own link has one too.
    Rcp,
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Net {
    pub shape: Shape,
    /// A host's link, Mbit/s; core links are scaled with it.
    pub access_mbit: u64,
    /// Of the paper's delays, percent.
    pub delays: u64,
    /// Packets lost at random at every link between routers and towards hosts, millionths.
    pub loss: u64,
    /// Internet-2's router 3, the one with the most traffic, removes the marking of all that it
    /// passes on.
    pub strips: bool,
}

impl Net {
    /// The paper's baseline.
    pub const BASE: Net = Net {
        shape: Shape::Internet2,
        access_mbit: 1_000,
        delays: 100,
        loss: 0,
        strips: false,
    };

    /// A host's link.
    pub fn access(self) -> Rate {
        Rate::from_bits_per_sec(self.access_mbit * 1_000_000)
    }

    /// The network with such queues, and the pairs of hosts that may send to each other: those of
    /// different routers.
    pub fn build(self, queues: Queues) -> Result<(Network, Vec<(NodeId, NodeId)>), SimError> {
        let buffer = (BUFFER * self.access_mbit / 1_000 * self.delays / 100).max(30_000);
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
        let mut network = match self.shape.file() {
            None => topology::internet2(queue),
            Some(file) => scaled(file, queue)?,
        };
        for link in network.links() {
            let from = network.endpoints(link).map(|(from, _)| from);
            let from_host = from.is_some_and(|from| network.is_host(from));
            let strips = self.strips && from.is_some_and(|from| network.name(from) == STRIPS);
            let Some(spec) = network.spec_mut(link) else {
                continue;
            };
            if let LineSpec::Constant(rate) = spec.line {
                spec.line = LineSpec::Constant(Rate::from_bits_per_sec(
                    rate.bits_per_sec() / 1_000 * self.access_mbit,
                ));
            }
            if let DelayModel::Fixed(delay) = spec.delay {
                spec.delay =
                    DelayModel::Fixed(Duration::from_nanos(delay.as_nanos() / 100 * self.delays));
            }
            if from_host {
                // The host's own queue: what waits there stays with its connection.
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
                spec.loss =
                    LossModel::Bernoulli(Probability::from_parts((self.loss << 32) / 1_000_000));
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

/// RCP's queue with the paper's constants.
fn rcp(limit: Size) -> QueueSpec {
    let config = RcpConfig {
        init: 100,
        ..RcpConfig::DEFAULT
    };
    QueueSpec::Rcp { config, limit }
}

/// A network of the file's links: ten hosts a router at 1 Gbit/s, and for each direction of a core
/// link the capacity that it would need at full load.
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
    let place = |name: &str| names.binary_search(&name).unwrap_or(0);
    let edges: Vec<(usize, usize)> = cables.iter().map(|(a, b)| (place(a), place(b))).collect();
    let loads = loads(names.len(), &edges);
    // What a router's hosts send to those of each other router at full load, Mbit/s.
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

/// How many pairs of routers each direction of a link serves, where traffic is divided at every
/// router among all next ones that are equally near.
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

    /// A ring of four: each pair of neighbours has its link, and those across from each other use
    /// both ways alike.
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
        for (shape, routers, cables) in [
            (Shape::Internet2, 10, 16),
            (Shape::RedClara, 13, 17),
            (Shape::Nsfnet, 13, 15),
            (Shape::Geant, 27, 38),
        ] {
            let net = Net { shape, ..Net::BASE };
            let (network, pairs) = net.build(Queues::Bands).unwrap();
            let hosts = network.hosts().count();
            assert_eq!(
                (hosts, network.links().len()),
                (routers * 10, 2 * (cables + hosts)),
                "{shape:?}"
            );
            assert_eq!(pairs.len(), hosts * (hosts - 10), "{shape:?}");
            Simulation::new(network, SimOptions::seeded(1)).unwrap();
        }
    }

    #[test]
    fn rates_and_delays_are_scaled() {
        let net = Net {
            access_mbit: 100,
            delays: 50,
            loss: 1_000,
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
