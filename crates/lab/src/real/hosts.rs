//! Hosts of a scenario as addresses: each has one of its own, at its side of the bottleneck.
//!
//! The hosts of a side share the namespace of that side. A network of private addresses (RFC 1918) belongs to it as a whole, so that
//! thousands of hosts take no more than one does; it goes with the namespace.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use ccplane_emu::{DEVICE, Emulator, Way};
use ccplane_host::Namespace;
use ccplane_workload::NodeId;

use crate::error::Error;

/// The first two bytes of the addresses of either side; the emulator's own are in 10.77.0.0/16.
const NETWORKS: [[u8; 2]; 2] = [[10, 78], [10, 79]];
/// Of its prefix.
const BITS: u8 = 16;

/// Hosts at either side: the addresses of a network, without its first and last.
pub(crate) const MOST_HOSTS: usize = (1 << 16) - 2;

/// An end of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Where the forward direction begins.
    Left,
    /// Where it ends.
    Right,
}

impl Side {
    pub(super) const BOTH: [Side; 2] = [Side::Left, Side::Right];

    pub(super) fn index(self) -> usize {
        self as usize
    }

    /// Opposite.
    pub(super) fn other(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }

    pub(super) fn namespace(self, emulator: &Emulator) -> &Namespace {
        match self {
            Side::Left => emulator.sender_ns(),
            Side::Right => emulator.receiver_ns(),
        }
    }

    /// The direction in which this side sends.
    pub(super) fn sends(self) -> Way {
        match self {
            Side::Left => Way::Forward,
            Side::Right => Way::Reverse,
        }
    }

    /// Its network, as `ip` writes it.
    pub(crate) fn network(self) -> String {
        let [a, b] = NETWORKS[self.index()];
        format!("{a}.{b}.0.0/{BITS}")
    }

    /// The address of the `number`-th host at this side, from 0.
    fn address(self, number: usize) -> Option<Ipv4Addr> {
        let [a, b] = NETWORKS[self.index()];
        let number = u16::try_from(number + 1).ok().filter(|number| *number < u16::MAX)?;
        let [c, d] = number.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    }
}

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub side: Side,
    pub address: IpAddr,
}

/// All hosts of a scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(HashMap<NodeId, Host>);

impl Hosts {
    /// These at the two sides; of more than [`MOST_HOSTS`] at one, the rest has no place.
    pub(crate) fn new(left: impl IntoIterator<Item = NodeId>, right: impl IntoIterator<Item = NodeId>) -> Hosts {
        let mut all = HashMap::new();
        let mut settle = |side: Side, nodes: &mut dyn Iterator<Item = NodeId>| {
            for (number, node) in nodes.enumerate() {
                let Some(address) = side.address(number) else { return };
                let address = IpAddr::V4(address);
                all.insert(node, Host { side, address });
            }
        };
        settle(Side::Left, &mut left.into_iter());
        settle(Side::Right, &mut right.into_iter());
        Hosts(all)
    }

    /// Hosts by the names that a dumbbell gives them, `left1` … and `right1` …; what is called otherwise is none.
    pub(crate) fn named<'n>(nodes: impl Iterator<Item = (NodeId, &'n str)>) -> Hosts {
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
        Hosts::new(left, right)
    }

    /// A host; `None` where it has no place.
    pub(crate) fn get(&self, node: NodeId) -> Option<Host> {
        self.0.get(&node).copied()
    }
}

/// What every connection of a run is to find, whatever this machine's own settings are: variables below `/proc/sys/`.
const SETTINGS: [(&str, &str); 4] = [
    // A flow knows nothing of those before it, as in the simulator; the kernel would begin where the last one to the same host ended.
    ("net/ipv4/tcp_no_metrics_save", "1"),
    // A SYN that was lost offers ECN again.
    ("net/ipv4/tcp_ecn_fallback", "0"),
    // Many short flows between two hosts take many ports, each of which rests for a minute once its flow is over.
    ("net/ipv4/ip_local_port_range", "1024 65535"),
    ("net/ipv4/tcp_tw_reuse", "1"),
];

/// Gives both namespaces of an emulator their hosts: their networks, the way to the other side, settings.
pub(crate) fn settle(emulator: &Emulator) -> Result<(), Error> {
    for side in Side::BOTH {
        let inside = side.namespace(emulator);
        let at = |error| Error::from_host(error, false);
        let address = side.address(0).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let made = inside.run(|| {
            ccplane_host::own_network(address, BITS)?;
            ccplane_host::add_default_route(DEVICE, IpAddr::V4(address))
        });
        made.map_err(at)?.map_err(at)?;
        for (variable, value) in SETTINGS {
            // A kernel that lacks one of them does without.
            let _ = inside.set_sysctl(variable, value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_an_address_of_its_own_at_its_side() {
        let names: Vec<String> = ["left", "right", "left1", "right1", "left2", "right2", "leftmost"]
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        let hosts = Hosts::named((0..).map(NodeId).zip(names.iter().map(String::as_str)));
        let at = |node| {
            hosts
                .get(NodeId(node))
                .map(|host| (host.side, host.address.to_string()))
        };
        assert_eq!(at(0), None);
        assert_eq!(at(2), Some((Side::Left, "10.78.0.1".to_owned())));
        assert_eq!(at(5), Some((Side::Right, "10.79.0.2".to_owned())));
        assert_eq!(at(6), None);
        assert_eq!(Side::Left.network(), "10.78.0.0/16");
    }

    #[test]
    fn a_side_has_room_for_its_network_and_no_more() {
        let hosts = Hosts::new((0..70_000).map(NodeId), []);
        let last = MOST_HOSTS as u32 - 1;
        assert_eq!(hosts.get(NodeId(last)).unwrap().address.to_string(), "10.78.255.254");
        assert_eq!(hosts.get(NodeId(last + 1)), None);
        assert_eq!(hosts.get(NodeId(256)).unwrap().address.to_string(), "10.78.1.1");
    }
}
