//! Conversion of a scenario's topology to a network.

use ccplane_network::{LinkSpec, Network, NetworkError, Remark, topology};
use ccplane_qdisc::{DelayDistribution, DelayModel, QueueSpec};
use ccplane_units::Duration;

use crate::{LinkSettings, NodeSettings, Scenario, Topology};

/// Returns the name of a topology for the results; `None` for a single link.
pub(super) fn name(topology: &Topology) -> Option<String> {
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

/// Builds the network.
pub(super) fn build(scenario: &Scenario) -> Result<Network, NetworkError> {
    let mtu = scenario.mtu();
    match &scenario.topology {
        Topology::Dumbbell {
            pairs,
            bottleneck,
            reverse,
            access_rate: access,
        } => {
            let access = match access {
                Some(rate) => LinkSpec::new(*rate, Duration::ZERO),
                None => LinkSpec::wire(Duration::ZERO),
            };
            let rtt = bottleneck.delay + reverse.delay;
            topology::dumbbell(
                *pairs,
                &access.with_mtu(mtu),
                spec(bottleneck, rtt, mtu),
                spec(reverse, rtt, mtu),
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
            for NodeSettings { name, switch } in nodes {
                if *switch {
                    network.add_switch(&*name.text);
                } else {
                    network.add_host(&*name.text);
                }
            }
            for link in links {
                // The check of the file guarantees that both exist.
                let (Some(from), Some(to)) = (
                    network.find_node(&link.from.text),
                    network.find_node(&link.to.text),
                ) else {
                    continue;
                };
                let id =
                    network.add_link(from, to, spec(&link.link, times(link.link.delay, 2), mtu));
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

fn spec(link: &LinkSettings, rtt: Duration, mtu: u32) -> LinkSpec {
    LinkSpec {
        line: link.line.clone(),
        delay: if link.jitter == Duration::ZERO {
            DelayModel::Fixed(link.delay)
        } else {
            DelayModel::Jitter {
                delay: link.delay,
                spread: link.jitter,
                shape: DelayDistribution::Uniform,
                reorder: link.reorder,
            }
        },
        queue: link.queue,
        loss: link.loss,
        rtt,
        mtu,
        remark: if link.strip_classes {
            Remark::BLEACHING
        } else {
            Remark::IDENTITY
        },
    }
}
