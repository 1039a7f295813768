//! Hosts of a scenario as IP addresses, one per host.
//!
//! A space is a namespace of hosts: a side of the bottleneck, or a site behind a gateway. It owns a
//! whole network of private addresses (RFC 1918) as local, so that thousands of hosts cost no more
//! than one. The network is removed with the namespace.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use ccplane_emu::{DEVICE_NAME, Emulator, PathDirection};
use ccplane_host::Namespace;
use ccplane_lab::Error;
use ccplane_workload::NodeId;

use crate::error::BackendError;

/// First byte of all host addresses, and second byte in the first space; each further space has the
/// next. The emulator's own addresses are in 10.77.0.0/16.
const NETWORK_PREFIX: [u8; 2] = [10, 78];
/// Prefix length of a space.
const NETWORK_PREFIX_BITS: u8 = 16;

/// Hosts in a space: all addresses of the network except the first and the last.
pub(crate) const HOSTS_PER_NETWORK_MAX: usize = (1 << 16) - 2;

/// A side of the bottleneck. The spaces of the two sides are the first two, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathSide {
    /// Side where the forward direction begins.
    Left,
    /// Side where the forward direction ends.
    Right,
}

impl PathSide {
    pub(super) const SIDES: [PathSide; 2] = [PathSide::Left, PathSide::Right];

    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Returns the opposite side.
    pub(super) fn opposite(self) -> PathSide {
        match self {
            PathSide::Left => PathSide::Right,
            PathSide::Right => PathSide::Left,
        }
    }

    pub(super) fn namespace(self, emulator: &Emulator) -> &Namespace {
        match self {
            PathSide::Left => emulator.sender_ns(),
            PathSide::Right => emulator.receiver_ns(),
        }
    }

    /// Returns the direction in which this side sends.
    pub(super) fn direction(self) -> PathDirection {
        match self {
            PathSide::Left => PathDirection::Forward,
            PathSide::Right => PathDirection::Reverse,
        }
    }
}

/// Returns the network of a space, in the notation of `ip`.
pub(super) fn network(space: usize) -> String {
    let [a, b] = bytes(space);
    format!("{a}.{b}.0.0/{NETWORK_PREFIX_BITS}")
}

/// Returns the first two bytes of a space's addresses. The layout limits the number of spaces so
/// that they fit.
fn bytes(space: usize) -> [u8; 2] {
    [
        NETWORK_PREFIX[0],
        NETWORK_PREFIX[1].saturating_add(u8::try_from(space).unwrap_or(u8::MAX)),
    ]
}

/// Returns the address of the `number`-th host of a space, from 0.
fn address(space: usize, number: usize) -> Option<Ipv4Addr> {
    let [a, b] = bytes(space);
    let number = u16::try_from(number + 1)
        .ok()
        .filter(|number| *number < u16::MAX)?;
    let [c, d] = number.to_be_bytes();
    Some(Ipv4Addr::new(a, b, c, d))
}

/// Location of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceHost {
    pub side: PathSide,
    /// Index of its space.
    pub space: usize,
    pub address: IpAddr,
}

impl NamespaceHost {
    /// Returns true if packets between the two cross the bottleneck: both are outside of sites, or
    /// in the two sites of a pair.
    pub fn can_reach(self, other: NamespaceHost) -> bool {
        self.space != other.space && self.space / 2 == other.space / 2
    }
}

/// All hosts of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(HashMap<NodeId, NamespaceHost>);

impl Hosts {
    /// Assigns addresses space by space: the two sides first, then the sites. Hosts beyond
    /// [`HOSTS_PER_NETWORK_MAX`] in a space get none.
    pub(crate) fn new(spaces: impl IntoIterator<Item = (PathSide, Vec<NodeId>)>) -> Hosts {
        let mut all = HashMap::new();
        for (space, (side, nodes)) in spaces.into_iter().enumerate() {
            for (number, node) in nodes.into_iter().enumerate() {
                let Some(address) = address(space, number) else {
                    break;
                };
                let address = IpAddr::V4(address);
                all.insert(
                    node,
                    NamespaceHost {
                        side,
                        space,
                        address,
                    },
                );
            }
        }
        Hosts(all)
    }

    /// Returns the hosts that have a dumbbell's names, `left1` … and `right1` …; other names are
    /// ignored.
    pub(crate) fn from_dumbbell_names<'n>(nodes: impl Iterator<Item = (NodeId, &'n str)>) -> Hosts {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (node, name) in nodes {
            let numbered = |side: &str| {
                let number = name.strip_prefix(side);
                number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            };
            if numbered("left") {
                left.push(node);
            } else if numbered("right") {
                right.push(node);
            }
        }
        Hosts::new([(PathSide::Left, left), (PathSide::Right, right)])
    }

    /// Returns a host's location, or `None` if it has no address.
    pub(crate) fn get(&self, node: NodeId) -> Option<NamespaceHost> {
        self.0.get(&node).copied()
    }
}

/// Settings below `/proc/sys/` that every connection of a run uses, independent of the machine's
/// own.
const SYSCTL_SETTINGS: [(&str, &str); 4] = [
    // As in the simulator, a flow must not depend on earlier ones. The kernel would start with the
    // metrics that the last flow to the same host left.
    ("net/ipv4/tcp_no_metrics_save", "1"),
    // A retransmitted SYN still offers ECN.
    ("net/ipv4/tcp_ecn_fallback", "0"),
    // Many short flows between two hosts use many ports, each of which stays in TIME-WAIT for a
    // minute after its flow.
    ("net/ipv4/ip_local_port_range", "1024 65535"),
    ("net/ipv4/tcp_tw_reuse", "1"),
];

/// Configures the namespaces of the path's ends and of the sites: networks, default routes and
/// settings. Returns the namespaces by space index.
pub(crate) fn settle(
    ends: [&Namespace; 2],
    sites: impl IntoIterator<Item = Namespace>,
) -> Result<Vec<Namespace>, Error> {
    let mut spaces: Vec<Namespace> = ends.map(Clone::clone).to_vec();
    // A site's route is set up by its gateway.
    let ways_out = spaces.len();
    spaces.extend(sites);
    for (number, inside) in spaces.iter().enumerate() {
        let at = |error| BackendError::from_host(error, false);
        let address = address(number, 0).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let made = inside.run(|| {
            ccplane_host::add_local_network(address, NETWORK_PREFIX_BITS)?;
            match number < ways_out {
                true => ccplane_host::add_default_route(DEVICE_NAME, IpAddr::V4(address)),
                false => Ok(()),
            }
        });
        made.map_err(at)?.map_err(at)?;
        for (variable, value) in SYSCTL_SETTINGS {
            // The setting is skipped if the kernel does not have it.
            let _ = inside.set_sysctl(variable, value);
        }
    }
    Ok(spaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_an_address_of_its_own_at_its_side() {
        let names: Vec<String> = [
            "left", "right", "left1", "right1", "left2", "right2", "leftmost",
        ]
        .iter()
        .map(|name| (*name).to_owned())
        .collect();
        let hosts =
            Hosts::from_dumbbell_names((0..).map(NodeId).zip(names.iter().map(String::as_str)));
        let at = |node| {
            hosts
                .get(NodeId(node))
                .map(|host| (host.side, host.address.to_string()))
        };
        assert_eq!(at(0), None);
        assert_eq!(at(2), Some((PathSide::Left, "10.78.0.1".to_owned())));
        assert_eq!(at(5), Some((PathSide::Right, "10.79.0.2".to_owned())));
        assert_eq!(at(6), None);
        assert_eq!(network(0), "10.78.0.0/16");
    }

    #[test]
    fn a_space_has_room_for_its_network_and_no_more() {
        let all = (0..70_000).map(NodeId).collect();
        let hosts = Hosts::new([
            (PathSide::Left, all),
            (PathSide::Right, vec![]),
            (PathSide::Right, vec![NodeId(70_000)]),
        ]);
        let last = HOSTS_PER_NETWORK_MAX as u32 - 1;
        assert_eq!(
            hosts.get(NodeId(last)).unwrap().address.to_string(),
            "10.78.255.254"
        );
        assert_eq!(hosts.get(NodeId(last + 1)), None);
        assert_eq!(
            hosts.get(NodeId(256)).unwrap().address.to_string(),
            "10.78.1.1"
        );
        let behind = hosts.get(NodeId(70_000)).unwrap();
        assert_eq!(
            (behind.side, behind.space, behind.address.to_string()),
            (PathSide::Right, 2, "10.80.0.1".to_owned())
        );
    }
}
