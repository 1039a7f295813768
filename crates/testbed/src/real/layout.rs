//! Placement of a scenario's hosts on real packets: at the two sides of one bottleneck, or in sites
//! behind gateways.
//!
//! A dumbbell has its bottleneck. In an explicit graph, one pair of opposite links between two
//! nodes is the bottleneck and all other links are wires without a rate limit or delay. Each
//! `[[bundle]]` connects two sites, one on each side. A site is the switch that the bundle names
//! and all hosts that reach the bottleneck only through it.

use std::collections::{BTreeMap, BTreeSet};

use ccplane_emu::LinkConfig;
use ccplane_lab::capacity::MTU;
use ccplane_lab::scenario::plan::Plan;
use ccplane_lab::scenario::{GraphLink, LinkSettings, NodeSettings, Scenario, Topology};
use ccplane_network::Network;
use ccplane_qdisc::{Limit, LineSpec, LinkSeeds, LossModel, QueueSpec};
use ccplane_units::Duration;
use ccplane_workload::NodeId;

use super::hosts::{Hosts, PathSide};
use crate::wire::{TokenBucket, queue_bytes};

/// Names of a dumbbell's links.
const BOTTLENECK_LINK: &str = "bottleneck";
const REVERSE_LINK: &str = "reverse";

/// Limit of site pairs. Each has two gateways with three threads each.
const SITE_PAIRS_MAX: usize = 64;

/// Placement of the hosts of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// By [`PathSide`]: name and settings of the link that begins there.
    pub links: [(String, LinkSettings); 2],
    pub pairs: Vec<SitePair>,
    /// Hosts by space. `None` for a dumbbell, whose host names give the side.
    spaces: Option<Vec<(PathSide, Vec<String>)>>,
}

/// Two sites with a tunnel between them. Its arrays are indexed by [`PathSide`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SitePair {
    /// Names of the switches.
    pub names: [String; 2],
    /// Index of the bundle that begins in the site, if there is one.
    pub bundles: [Option<usize>; 2],
}

impl SitePair {
    /// Returns the spaces of the `number`-th pair of sites. The first two spaces are the two sides.
    pub fn spaces(number: usize) -> [usize; 2] {
        [2 + 2 * number, 3 + 2 * number]
    }
}

impl Layout {
    /// Returns the layout of a scenario, or the reasons why it has none, a sentence each.
    pub fn new(scenario: &Scenario) -> Result<Layout, Vec<String>> {
        let one_bottleneck =
            "the network: only [topology.dumbbell], or nodes and links around one bottleneck, are \
             supported"
                .to_owned();
        match &scenario.topology {
            Topology::Dumbbell {
                bottleneck,
                reverse,
                ..
            } => {
                if !scenario.bundles.is_empty() {
                    return Err(vec![
                        "[[bundle]] in [topology.dumbbell]: use nodes and links instead, as in \
                         scenarios/22-bundle.toml"
                            .to_owned(),
                    ]);
                }
                Ok(Layout {
                    links: [
                        (BOTTLENECK_LINK.to_owned(), bottleneck.clone()),
                        (REVERSE_LINK.to_owned(), reverse.clone()),
                    ],
                    pairs: Vec::new(),
                    spaces: None,
                })
            }
            Topology::Graph { nodes, links } => {
                graph(scenario, nodes, links).map_err(|part| vec![part])
            }
            _ => Err(vec![one_bottleneck]),
        }
    }

    /// Returns the round-trip time without queueing.
    pub fn rtt(&self) -> Duration {
        let [there, back] = &self.links;
        there.1.delay + back.1.delay
    }

    /// Returns the bottleneck's forward direction.
    pub fn forward(&self) -> &LinkSettings {
        &self.links[0].1
    }

    /// Returns the token bucket of the kernel that is the bottleneck, if the scenario has one.
    pub fn token_bucket(&self) -> Option<TokenBucket> {
        let link = self.forward();
        let (burst, rate) = (link.tbf_burst?, link.line.mean_rate()?);
        let limit = link.queue.limit(Some(rate), self.rtt(), MTU).ok()?;
        Some(TokenBucket {
            rate,
            burst: burst.get(),
            queue: match limit {
                Limit::Packets(packets) => queue_bytes(packets),
                Limit::Bytes(bytes) => bytes,
                Limit::Unlimited => return None,
            },
        })
    }

    /// Returns the side where the named link begins.
    pub fn side_of(&self, link: &str) -> Option<PathSide> {
        PathSide::SIDES
            .into_iter()
            .find(|side| self.links[side.index()].0 == link)
    }

    /// Returns the hosts of the scenario's network.
    pub fn hosts(&self, network: &Network) -> Hosts {
        let nodes = network.hosts().map(|node| (node, network.name(node)));
        let Some(spaces) = &self.spaces else {
            return Hosts::from_dumbbell_names(nodes);
        };
        let by_name: BTreeMap<&str, NodeId> = nodes.map(|(node, name)| (name, node)).collect();
        let known = |names: &[String]| {
            names
                .iter()
                .filter_map(|name| by_name.get(name.as_str()).copied())
                .collect()
        };
        Hosts::new(spaces.iter().map(|(side, names)| (*side, known(names))))
    }
}

/// Returns the emulated link with these settings.
pub(crate) fn emulated_link(link: &LinkSettings, seeds: LinkSeeds) -> LinkConfig {
    LinkConfig {
        line: link.line.clone(),
        delay: link.delay,
        queue: emulated_queue(link.queue),
        loss: link.loss,
        jitter: link.jitter,
        reorder: link.reorder,
        seeds,
    }
}

/// Returns the queue of an emulated link for a scenario's queue. The emulator has a band above the
/// one of unmarked packets, for DSCPs that no workload uses: without one band more, the two lowest
/// bands of a `prio` queue would be one.
fn emulated_queue(queue: QueueSpec) -> QueueSpec {
    match queue {
        QueueSpec::Prio {
            bands,
            shared,
            limit,
        } => QueueSpec::Prio {
            bands: bands.saturating_add(1),
            shared,
            limit,
        },
        other => other,
    }
}

fn is_wire(link: &LinkSettings) -> bool {
    matches!(link.line, LineSpec::Unlimited)
        && link.delay == Duration::ZERO
        && link.jitter == Duration::ZERO
        && link.loss == LossModel::NONE
        && !link.strip_classes
}

fn graph(
    scenario: &Scenario,
    nodes: &[NodeSettings],
    links: &[GraphLink],
) -> Result<Layout, String> {
    let [there, back] = bottleneck(scenario, links)?;
    let ends = [there.from.text.as_str(), there.to.text.as_str()];
    let others = links
        .iter()
        .filter(|link| ![&there.name, &back.name].contains(&&link.name));
    let wires = Wires::new(others);
    let sides = ends.map(|end| wires.reachable(end, None));
    if sides[0].contains(ends[1]) {
        return Err(format!(
            "a path from `{}` to `{}` that bypasses the bottleneck",
            ends[0], ends[1]
        ));
    }
    let pairs = pairs(scenario, &sides)?;
    let hosts: BTreeSet<&str> = nodes
        .iter()
        .filter(|node| !node.switch)
        .map(|node| &*node.name.text)
        .collect();
    let mut spaces: Vec<(PathSide, Vec<String>)> =
        PathSide::SIDES.map(|side| (side, Vec::new())).to_vec();
    let sites = || {
        pairs
            .iter()
            .flat_map(|pair| PathSide::SIDES.map(|side| (side, &*pair.names[side.index()])))
    };
    spaces.extend(sites().map(|(side, _)| (side, Vec::new())));
    for side in PathSide::SIDES {
        let end = ends[side.index()];
        let around: Vec<(usize, BTreeSet<&str>)> = sites()
            .enumerate()
            .filter(|(_, (at, _))| *at == side)
            .map(|(number, (_, site))| (2 + number, wires.reachable(end, Some(site))))
            .collect();
        for host in sides[side.index()]
            .iter()
            .filter(|node| hosts.contains(*node))
        {
            let mut behind = around.iter().filter(|(_, without)| !without.contains(host));
            let space = behind.next().map_or(side.index(), |(space, _)| *space);
            if behind.next().is_some() {
                return Err(format!(
                    "`{host}` behind the boxes of several bundles: a host can be in only one site"
                ));
            }
            spaces[space].1.push((*host).to_owned());
        }
    }
    Ok(Layout {
        links: [there, back].map(|link| (link.name.clone(), link.link.clone())),
        pairs,
        spaces: Some(spaces),
    })
}

/// Returns the only two links that are not wires, the forward one first: the link that the report
/// shows, or else the first.
fn bottleneck<'s>(
    scenario: &Scenario,
    links: &'s [GraphLink],
) -> Result<[&'s GraphLink; 2], String> {
    let mut special = links.iter().filter(|link| !is_wire(&link.link));
    let Some(first) = special.next() else {
        return Err("a network without a bottleneck: set the rate of a link".to_owned());
    };
    let between =
        |link: &&GraphLink, from: &str, to: &str| link.from.text == from && link.to.text == to;
    let (a, b) = (first.from.text.as_str(), first.to.text.as_str());
    if let Some(other) = special.find(|link| !between(link, b, a)) {
        return Err(format!(
            "`{}` and `{}`, both with a rate, a delay or loss: only one bottleneck, with one link \
             in each direction, is supported",
            first.name, other.name
        ));
    }
    let all: Vec<&GraphLink> = links
        .iter()
        .filter(|link| between(link, a, b) || between(link, b, a))
        .collect();
    let [one, two] = all[..] else {
        return Err(format!(
            "{} links between `{a}` and `{b}`: only one in each direction is supported",
            all.len()
        ));
    };
    let drawn = Plan::new(scenario)
        .ok()
        .map(|plan| plan.network.link_name(plan.main_link));
    let forward = match drawn {
        Some(drawn) if [&one.name, &two.name].contains(&&drawn) => drawn,
        _ => first.name.clone(),
    };
    Ok(if forward == two.name {
        [two, one]
    } else {
        [one, two]
    })
}

/// Returns the pairs of sites that bundles connect.
fn pairs(scenario: &Scenario, sides: &[BTreeSet<&str>; 2]) -> Result<Vec<SitePair>, String> {
    let mut pairs: Vec<SitePair> = Vec::new();
    for (number, bundle) in scenario.bundles.iter().enumerate() {
        let side = |name: &str| {
            PathSide::SIDES
                .into_iter()
                .find(|side| sides[side.index()].contains(name))
        };
        let (from, to) = (&*bundle.from.text, &*bundle.to.text);
        let Some(begins) = side(from).filter(|begins| side(to) == Some(begins.opposite())) else {
            return Err(format!(
                "the bundle {}: its ends must be on different sides of the bottleneck",
                bundle.title()
            ));
        };
        let names = match begins {
            PathSide::Left => [from, to],
            PathSide::Right => [to, from],
        };
        let known = pairs.iter_mut().find(|pair| {
            names
                .iter()
                .any(|name| pair.names.iter().any(|known| known == name))
        });
        match known {
            Some(pair) if pair.names == names && pair.bundles[begins.index()].is_none() => {
                pair.bundles[begins.index()] = Some(number);
            }
            Some(_) => {
                return Err(format!(
                    "a second bundle at a switch of {}: a site can have only one bundle",
                    bundle.title()
                ));
            }
            None => {
                let mut bundles = [None; 2];
                bundles[begins.index()] = Some(number);
                pairs.push(SitePair {
                    names: names.map(str::to_owned),
                    bundles,
                });
            }
        }
    }
    if pairs.len() > SITE_PAIRS_MAX {
        return Err(format!(
            "{} pairs of sites: the maximum is {SITE_PAIRS_MAX}",
            pairs.len()
        ));
    }
    Ok(pairs)
}

/// Neighbours of each node.
struct Wires<'s>(BTreeMap<&'s str, Vec<&'s str>>);

impl<'s> Wires<'s> {
    fn new(links: impl Iterator<Item = &'s GraphLink>) -> Wires<'s> {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for link in links {
            for (from, to) in [(&link.from, &link.to), (&link.to, &link.from)] {
                all.entry(&from.text).or_default().push(&to.text);
            }
        }
        Wires(all)
    }

    /// Returns all nodes connected with `from`, including itself, on paths that avoid `without`.
    fn reachable(&self, from: &'s str, without: Option<&str>) -> BTreeSet<&'s str> {
        let mut found = BTreeSet::new();
        let mut next = vec![from];
        while let Some(node) = next.pop() {
            if Some(node) != without && found.insert(node) {
                next.extend(self.0.get(node).into_iter().flatten());
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Two sites with one host each, and two hosts outside of them. `more` is appended.
    fn two_sites(more: &str) -> String {
        let nodes = ["near", "far", "left", "right"]
            .map(|name| format!("[[node]]\nname = \"{name}\"\nswitch = true\n"));
        let hosts = ["server", "client", "stranger", "guest"]
            .map(|name| format!("[[node]]\nname = \"{name}\"\n"));
        let wires = [
            ("server", "near"),
            ("near", "left"),
            ("right", "far"),
            ("far", "client"),
            ("stranger", "left"),
            ("right", "guest"),
        ];
        let wires = wires.map(|(from, to)| format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\n"));
        format!(
            "contenders = [\"bundler\"]\nduration = \"1s\"\n{}{}{}[[link]]\nfrom = \"left\"\n\
             to = \"right\"\nrate = \"10mbit\"\ndelay = \"10ms\"\n\
             [[bundle]]\nfrom = \"near\"\nto = \"far\"\n[[workload]]\nfrom = \"server\"\n\
             to = \"client\"\nbulk = {{}}\n{more}",
            nodes.concat(),
            hosts.concat(),
            wires.concat()
        )
    }

    fn layout(text: &str) -> Result<Layout, Vec<String>> {
        Layout::new(&Scenario::parse("test.toml", text, Path::new(".")).unwrap())
    }

    fn names(layout: &Layout) -> Vec<Vec<&str>> {
        let spaces = layout.spaces.iter().flatten();
        spaces
            .map(|(_, hosts)| hosts.iter().map(String::as_str).collect())
            .collect()
    }

    #[test]
    fn hosts_behind_a_box_are_in_its_site_and_the_others_at_their_side() {
        let all = layout(&two_sites("")).unwrap();
        assert_eq!(
            names(&all),
            [["stranger"], ["guest"], ["server"], ["client"]]
        );
        assert_eq!(all.pairs[0].names, ["near", "far"]);
        assert_eq!(all.pairs[0].bundles, [Some(0), None]);
        assert_eq!(all.rtt(), Duration::from_millis(20));
        assert_eq!(all.side_of("right->left"), Some(PathSide::Right));
        assert_eq!(all.side_of("near->left"), None);
        // The reverse direction, if the report shows that one. A gateway at the bottleneck's own
        // end serves all hosts behind it.
        let turned = layout(&two_sites("[report]\nlink = \"right->left\"\n").replace(
            "from = \"near\"\nto = \"far\"",
            "from = \"near\"\nto = \"right\"",
        ))
        .unwrap();
        assert_eq!(
            names(&turned),
            [
                vec![],
                vec!["stranger"],
                vec!["client", "guest"],
                vec!["server"]
            ]
        );
        assert_eq!(turned.pairs[0].bundles, [None, Some(0)]);
    }

    #[test]
    fn the_reverse_direction_of_a_dumbbell_is_that_of_the_scenario() {
        let text = "contenders = [\"native:cubic\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
             rate = \"10mbit\"\nrtt = \"20ms\"\n\
             reverse = { rate = \"1mbit\", queue = \"droptail:100p\" }\n[[workload]]\nbulk = {}\n";
        let layout = layout(text).unwrap();
        let (name, reverse) = &layout.links[1];
        assert_eq!(
            (name.as_str(), reverse.delay),
            ("reverse", Duration::from_millis(10))
        );
        let mbit = ccplane_units::Rate::from_bits_per_sec(1_000_000);
        assert_eq!(reverse.line, LineSpec::Constant(mbit));
        assert_eq!(reverse.queue.to_string(), "droptail:100p");
    }

    #[test]
    fn bundles_both_ways_have_one_pair_of_sites() {
        let all = layout(&two_sites("[[bundle]]\nfrom = \"far\"\nto = \"near\"\n")).unwrap();
        assert_eq!(all.pairs.len(), 1);
        assert_eq!(all.pairs[0].bundles, [Some(0), Some(1)]);
    }

    #[test]
    fn networks_without_a_single_bottleneck_are_rejected() {
        let slow = "[[link]]\nfrom = \"right\"\nto = \"near\"\nrate = \"1mbit\"\n";
        let around = "[[link]]\nfrom = \"guest\"\nto = \"stranger\"\n";
        let again = "[[bundle]]\nfrom = \"near\"\nto = \"right\"\n";
        for (text, reason) in [
            (
                two_sites(slow),
                "`left->right` and `right->near`, both with a rate",
            ),
            (two_sites(around), "bypasses the bottleneck"),
            (two_sites(again), "a site can have only one bundle"),
            (
                two_sites("").replace("rate = \"10mbit\"\ndelay = \"10ms\"\n", ""),
                "without a bottleneck",
            ),
            (
                two_sites("").replace("to = \"far\"\n[[workload]]", "to = \"left\"\n[[workload]]"),
                "on different sides",
            ),
        ] {
            let parts = layout(&text).unwrap_err();
            assert!(parts[0].contains(reason), "{parts:?}");
        }
    }
}
