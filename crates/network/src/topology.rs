//! Common topologies.

use ccplane_qdisc::{QueueSpec, Size};
use ccplane_units::{Duration, Rate};

use crate::NetworkError;
use crate::network::{LinkSpec, Network, NodeId, Spread};

/// Maximum memory of a topology's description, bytes.
const DESCRIPTION_BYTES_MAX: u64 = 8_000_000_000;

/// Dumbbell: hosts `left1..` and `right1..` at the routers `left` and `right`. The link
/// `bottleneck` leads to the right, the link `reverse` to the left.
pub fn dumbbell(
    pairs: u32,
    access: &LinkSpec,
    bottleneck: LinkSpec,
    reverse: LinkSpec,
) -> Result<Network, NetworkError> {
    room(
        "the dumbbell",
        2 * u64::from(pairs),
        2,
        4 * u64::from(pairs) + 2,
        2,
    )?;
    let mut network = Network::new();
    let (left, right) = (network.add_switch("left"), network.add_switch("right"));
    let (forward, back) = network.add_duplex_link(left, right, bottleneck, reverse);
    network.name_link(forward, "bottleneck");
    network.name_link(back, "reverse");
    for n in 1..=pairs {
        let (a, b) = (
            network.add_host(format!("left{n}")),
            network.add_host(format!("right{n}")),
        );
        network.add_duplex_link(a, left, access.clone(), access.clone());
        network.add_duplex_link(right, b, access.clone(), access.clone());
    }
    Ok(network)
}

/// Parking lot: a row of routers `router1..`, one more than there are `bottlenecks`. The host
/// `source` is at the first router, `sink` at the last. Bottleneck n is the link `bottleneck<n>`,
/// with the hosts `in<n>` and `out<n>` at its ends.
pub fn parking_lot(
    bottlenecks: u32,
    access: &LinkSpec,
    bottleneck: &LinkSpec,
) -> Result<Network, NetworkError> {
    if bottlenecks == 0 {
        return Err(NetworkError::InvalidTopology(
            "a parking lot needs at least one bottleneck".into(),
        ));
    }
    let n = u64::from(bottlenecks);
    room("the parking lot", 2 * n + 2, n + 1, 6 * n + 4, n + 1)?;
    let mut network = Network::new();
    let routers: Vec<NodeId> = (0..=bottlenecks)
        .map(|n| network.add_switch(format!("router{}", n + 1)))
        .collect();
    let host = |network: &mut Network, name: String, router: NodeId| {
        let host = network.add_host(name);
        network.add_duplex_link(host, router, access.clone(), access.clone());
    };
    host(&mut network, "source".into(), routers[0]);
    for (n, ends) in (1..).zip(routers.windows(2)) {
        let (link, _) =
            network.add_duplex_link(ends[0], ends[1], bottleneck.clone(), bottleneck.clone());
        network.name_link(link, format!("bottleneck{n}"));
        host(&mut network, format!("in{n}"), ends[0]);
        host(&mut network, format!("out{n}"), ends[1]);
    }
    host(&mut network, "sink".into(), routers[bottlenecks as usize]);
    Ok(network)
}

/// Incast: hosts `sender1..` at one switch, `switch`, and the host `receiver` behind the link
/// `bottleneck`. The reverse link has the same line and delay, and an unlimited queue.
pub fn incast(
    senders: u32,
    access: &LinkSpec,
    bottleneck: LinkSpec,
) -> Result<Network, NetworkError> {
    let n = u64::from(senders);
    room("the incast", n + 1, 1, 2 * n + 2, 1)?;
    let mut network = Network::new();
    let switch = network.add_switch("switch");
    let receiver = network.add_host("receiver");
    let back = bottleneck
        .clone()
        .with_queue(QueueSpec::UNLIMITED, Duration::ZERO);
    let (link, _) = network.add_duplex_link(switch, receiver, bottleneck, back);
    network.name_link(link, "bottleneck");
    for n in 1..=senders {
        let sender = network.add_host(format!("sender{n}"));
        network.add_duplex_link(sender, switch, access.clone(), access.clone());
    }
    Ok(network)
}

/// Leaf-spine fabric: `leaves` switches with `hosts` hosts each, all linked to all `spines`. Names:
/// `leaf<i>`, `spine<j>`, `host<i>-<n>`.
pub fn leaf_spine(
    leaves: u32,
    spines: u32,
    hosts: u32,
    access: &LinkSpec,
    fabric: &LinkSpec,
) -> Result<Network, NetworkError> {
    let (l, s, h) = (u64::from(leaves), u64::from(spines), u64::from(hosts));
    room("the leaf-spine fabric", l * h, l + s, 2 * l * (h + s), l)?;
    let mut network = Network::new();
    let spines: Vec<NodeId> = (1..=spines)
        .map(|n| network.add_switch(format!("spine{n}")))
        .collect();
    for i in 1..=leaves {
        let leaf = network.add_switch(format!("leaf{i}"));
        hang(
            &mut network,
            leaf,
            (1..=hosts).map(|n| format!("host{i}-{n}")),
            access,
        );
        for spine in &spines {
            network.add_duplex_link(leaf, *spine, fabric.clone(), fabric.clone());
        }
    }
    Ok(network)
}

/// Fat tree of `k`-port switches (Al-Fares et al., SIGCOMM 2008, section 3): k pods of k/2 edge and
/// k/2 aggregation switches, k²/4 cores, k³/4 hosts. Names: `edge<pod>-<n>`,
/// `aggregation<pod>-<n>`, `core<n>`, `host<pod>-<edge>-<n>`.
pub fn fat_tree(k: u32, access: &LinkSpec, fabric: &LinkSpec) -> Result<Network, NetworkError> {
    if k < 2 || !k.is_multiple_of(2) {
        return Err(NetworkError::InvalidTopology(format!(
            "a fat tree needs an even number of ports, not {k}"
        )));
    }
    let wide = u64::from(k);
    let cube = wide.saturating_mul(wide).saturating_mul(wide);
    room(
        &format!("the fat tree of {k}-port switches"),
        cube / 4,
        wide * wide / 4 * 5,
        (cube / 2).saturating_mul(3),
        wide * wide / 2,
    )?;
    let ports_up = k / 2;
    let mut network = Network::new();
    let cores: Vec<NodeId> = (0..ports_up * ports_up)
        .map(|n| network.add_switch(format!("core{n}")))
        .collect();
    for pod in 0..k {
        let above: Vec<NodeId> = (0..ports_up)
            .map(|n| network.add_switch(format!("aggregation{pod}-{n}")))
            .collect();
        for (aggregation, cores) in above.iter().zip(cores.chunks(ports_up as usize)) {
            for core in cores {
                network.add_duplex_link(*aggregation, *core, fabric.clone(), fabric.clone());
            }
        }
        for e in 0..ports_up {
            let edge = network.add_switch(format!("edge{pod}-{e}"));
            for aggregation in &above {
                network.add_duplex_link(edge, *aggregation, fabric.clone(), fabric.clone());
            }
            hang(
                &mut network,
                edge,
                (0..ports_up).map(|n| format!("host{pod}-{e}-{n}")),
                access,
            );
        }
    }
    Ok(network)
}

/// Three-tier tree of 192 hosts and 56 switches, modelled on the topology of DX (slide 30): 8
/// cores, 16 aggregation switches, and 32 top-of-rack switches with 6 hosts each. All links have a
/// rate of 10 Gbit/s. A pod consists of 4 racks and 2 aggregation switches, the first connected to
/// the even cores, the second to the odd ones. Delays (4 µs per link, plus 1 µs at a host) and
/// buffers (250 packets of 1538 bytes per port) follow ExpressPass (2017) by the same group. Paths
/// are chosen per flow and are symmetric.
pub fn tree_192(queue: QueueSpec) -> Network {
    tree_192_with(queue, TREE_192_HOST_DELAY, TREE_192_FABRIC_DELAY)
}

/// [`tree_192`] with other delays for access links and for links between switches.
pub fn tree_192_with(queue: QueueSpec, access: Duration, fabric: Duration) -> Network {
    // RTT of the longest path: two access links and four fabric links each way.
    let rtt = (access * 2 + fabric * 4) * 2;
    let link = |delay| {
        LinkSpec::new(Rate::from_bits_per_sec(10_000_000_000), delay)
            .with_mtu(1_538)
            .with_queue(queue, rtt)
    };
    let (access, fabric) = (link(access), link(fabric));
    let mut network = Network::new();
    network.spread = Spread::Symmetric;
    let cores: Vec<NodeId> = (0..8)
        .map(|n| network.add_switch(format!("core{n}")))
        .collect();
    for pod in 0..8 {
        let above: Vec<NodeId> = (0..2)
            .map(|n| network.add_switch(format!("aggregation{pod}-{n}")))
            .collect();
        for (parity, aggregation) in above.iter().enumerate() {
            for core in cores.iter().skip(parity).step_by(2) {
                network.add_duplex_link(*aggregation, *core, fabric.clone(), fabric.clone());
            }
        }
        for n in 0..4 {
            let rack = pod * 4 + n;
            let switch = network.add_switch(format!("rack{rack}"));
            for aggregation in &above {
                network.add_duplex_link(switch, *aggregation, fabric.clone(), fabric.clone());
            }
            hang(
                &mut network,
                switch,
                (0..6).map(|n| format!("host{rack}-{n}")),
                &access,
            );
        }
    }
    network
}

/// Delay of an access link in [`tree_192`], including 1 µs in the host.
pub const TREE_192_HOST_DELAY: Duration = Duration::from_micros(5);
/// Delay of a link between switches in [`tree_192`].
pub const TREE_192_FABRIC_DELAY: Duration = Duration::from_micros(4);

/// Port buffer of [`tree_192`]: 250 packets of 1538 bytes.
pub const TREE_192_QUEUE: QueueSpec = QueueSpec::DropTail(Size::Bytes(250 * 1_538));

/// Internet-2 network of RC3's simulations: routers `core0..core9` and 16 links of 10 ms. The link
/// rates (Mbit/s) are taken from the authors' `wan-internet2` scripts and equalise the load of all
/// links. Each router has ten hosts `host<core>-<n>` at 1 Gbit/s and 1 ms. `queue` is the queue of
/// each router; the paper used 5 MB.
///
/// The rates are multiples of 1111 Mbit/s, the traffic from the ten hosts of a router to one of the
/// nine other routers at full load. A link's rate therefore gives the number of router pairs that
/// it serves, and exactly one choice of shortest paths matches these numbers. Explicit routes
/// select it where two routers have several shortest paths.
pub fn internet2(queue: QueueSpec) -> Network {
    const LINKS: [(usize, usize, u64); 16] = [
        (0, 1, 5_556),
        (0, 2, 7_778),
        (0, 3, 14_445),
        (1, 2, 3_334),
        (2, 4, 3_334),
        (1, 5, 5_556),
        (4, 5, 1_112),
        (3, 5, 3_334),
        (3, 4, 5_556),
        (5, 6, 4_445),
        (3, 6, 10_000),
        (3, 7, 14_445),
        (7, 8, 1_112),
        (6, 8, 8_889),
        (8, 9, 2_223),
        (7, 9, 7_778),
    ];
    /// (Router, destination, next router), wherever several shortest paths exist.
    const ROUTES: [(usize, usize, usize); 32] = [
        (0, 4, 2),
        (0, 5, 1),
        (1, 3, 0),
        (1, 4, 2),
        (1, 7, 0),
        (1, 9, 0),
        (2, 3, 0),
        (2, 5, 1),
        (2, 6, 0),
        (2, 7, 0),
        (2, 8, 0),
        (2, 9, 0),
        (3, 1, 0),
        (3, 2, 0),
        (3, 8, 6),
        (4, 0, 2),
        (4, 1, 2),
        (4, 6, 3),
        (4, 8, 3),
        (5, 0, 1),
        (5, 2, 1),
        (5, 9, 3),
        (6, 2, 3),
        (6, 4, 3),
        (6, 7, 3),
        (7, 6, 3),
        (8, 0, 6),
        (8, 2, 6),
        (8, 3, 6),
        (8, 4, 6),
        (9, 1, 7),
        (9, 5, 7),
    ];
    let link = |mbit: u64, ms| {
        LinkSpec::new(
            Rate::from_bits_per_sec(mbit * 1_000_000),
            Duration::from_millis(ms),
        )
        .with_queue(queue, Duration::from_millis(40))
    };
    let mut network = Network::new();
    let cores: Vec<NodeId> = (0..10)
        .map(|n| network.add_switch(format!("core{n}")))
        .collect();
    for (a, b, mbit) in LINKS {
        network.add_duplex_link(cores[a], cores[b], link(mbit, 10), link(mbit, 10));
    }
    for (index, core) in cores.iter().enumerate() {
        hang(
            &mut network,
            *core,
            (0..10).map(|n| format!("host{index}-{n}")),
            &link(1_000, 1),
        );
    }
    for (at, to, next) in ROUTES {
        let Some(link) = network.find_link(&format!("core{at}->core{next}")) else {
            continue;
        };
        for n in 0..10 {
            if let Some(host) = network.find_node(&format!("host{to}-{n}")) {
                network.add_route(cores[at], host, link);
            }
        }
    }
    network
}

/// Router buffer in RC3's simulations.
pub const INTERNET2_QUEUE: QueueSpec = QueueSpec::DropTail(Size::Bytes(5_000_000));

/// Connects hosts to a switch.
fn hang(
    network: &mut Network,
    switch: NodeId,
    names: impl Iterator<Item = String>,
    access: &LinkSpec,
) {
    for name in names {
        let host = network.add_host(name);
        network.add_duplex_link(host, switch, access.clone(), access.clone());
    }
}

/// Rejects a topology that exceeds the memory limit, by the approximate bytes per node, link and
/// routing entry.
fn room(
    what: &str,
    hosts: u64,
    switches: u64,
    links: u64,
    groups: u64,
) -> Result<(), NetworkError> {
    let needed = [
        (hosts + switches, 200),
        (links, 400),
        (switches.saturating_mul(groups), 8),
    ]
    .into_iter()
    .fold(0_u64, |sum, (count, bytes)| {
        sum.saturating_add(count.saturating_mul(bytes))
    });
    if needed > DESCRIPTION_BYTES_MAX {
        return Err(NetworkError::TooLarge {
            what: what.into(),
            needed: needed / 1_000_000,
            limit: DESCRIPTION_BYTES_MAX / 1_000_000,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Routing;

    /// A link's rate is 1111 Mbit/s per router pair that uses it.
    #[test]
    fn internet2_rates_load_all_routes_equally() {
        let network = internet2(INTERNET2_QUEUE);
        let routing = Routing::new(&network, |_| true).expect("valid");
        let mut pairs = vec![0; network.links.len()];
        for a in 0..10 {
            for b in (0..10).filter(|b| *b != a) {
                let host = |core| {
                    network
                        .find_node(&format!("host{core}-3"))
                        .expect("the host exists")
                        .0
                };
                for hash in [0, 1 << 20, u32::MAX] {
                    let path = routing
                        .path(&network, host(a), host(b), hash)
                        .expect("connected");
                    path.into_iter().for_each(|link| pairs[link as usize] += 1);
                }
            }
        }
        let cores =
            (network.links.iter().zip(&network.specs).zip(&pairs)).filter(|((wire, _), _)| {
                !network.nodes[wire.from as usize].is_host
                    && !network.nodes[wire.to as usize].is_host
            });
        let mut count = 0;
        for ((_, spec), pairs) in cores {
            let rate = spec
                .line
                .mean_rate()
                .expect("the line has a rate")
                .bits_per_sec() as f64
                / 1e6;
            let expected = 10_000.0 / 9.0 * f64::from(*pairs) / 3.0;
            assert!(
                (rate - expected).abs() < 1.2,
                "{rate} and {expected} Mbit/s"
            );
            count += 1;
        }
        assert_eq!(count, 32);
    }
}
