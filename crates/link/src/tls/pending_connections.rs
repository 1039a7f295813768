//! Slots for connections that are not authenticated.
//!
//! Newcomers are never refused, because silent connections could then occupy all slots. Instead a
//! newcomer replaces a random connection of the network that has the most, as in random early drop
//! (OpenSSH's `MaxStartups`). A handshake takes only a few RTTs, so a datapath is rarely hit even
//! during a flood.

use std::net::IpAddr;

use ccplane_agent::rng::SplitMix64;

/// Number of slots. With fewer, a flood from many networks would hit more handshakes; more would
/// waste memory on unauthenticated peers.
const HANDSHAKE_SLOTS: usize = 128;
/// Slots per network. With fewer, hosts behind one address that reconnect together would have to
/// wait.
const NETWORK_SLOTS: usize = 16;

/// Unit of address ownership: an IPv4 address, or the IPv6 /64 of a single host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    V4([u8; 4]),
    V6([u16; 4]),
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Network {
        match address.to_canonical() {
            IpAddr::V4(address) => Network::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Network::V6([a, b, c, d])
            }
        }
    }
}

/// Unauthenticated connections, in the order in which they are served.
pub(super) struct PendingConnections<T> {
    slots: Vec<(Network, T)>,
    rng: SplitMix64,
}

impl<T> PendingConnections<T> {
    pub fn new(dice: SplitMix64) -> PendingConnections<T> {
        PendingConnections {
            slots: Vec::new(),
            rng: dice,
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|(_, stranger)| stranger)
    }

    fn count(&self, network: Network) -> usize {
        self.slots
            .iter()
            .filter(|(other, _)| *other == network)
            .count()
    }

    /// Adds a connection and returns the one it replaces, if any.
    pub fn admit(&mut self, network: Network, connection: T) -> Option<T> {
        let all = 0..self.slots.len();
        let candidates: Vec<usize> = if self.count(network) >= NETWORK_SLOTS {
            all.filter(|index| self.slots[*index].0 == network)
                .collect()
        } else if self.slots.len() >= HANDSHAKE_SLOTS {
            let counts: Vec<usize> = self
                .slots
                .iter()
                .map(|(other, _)| self.count(*other))
                .collect();
            let count_max = counts.iter().copied().max();
            all.filter(|index| Some(counts[*index]) == count_max)
                .collect()
        } else {
            Vec::new()
        };
        let drawn = candidates.get(self.rng.below(candidates.len() as u64) as usize);
        let leaves = drawn.map(|index| self.slots.remove(*index).1);
        self.slots.push((network, connection));
        leaves
    }

    /// Calls `step` for each connection until `steps` of them made progress. Connections that did
    /// move to the end, or are removed. `step` returns the connection if it stays, and whether it
    /// made progress.
    pub fn serve(&mut self, steps: usize, mut step: impl FnMut(T) -> (Option<T>, bool)) {
        let mut served = Vec::new();
        let mut waiting = std::mem::take(&mut self.slots).into_iter();
        while served.len() < steps {
            let Some((network, stranger)) = waiting.next() else {
                break;
            };
            match step(stranger) {
                (Some(stranger), false) => self.slots.push((network, stranger)),
                (stranger, _) => served.push((network, stranger)),
            }
        }
        self.slots.extend(waiting);
        let stay = served
            .into_iter()
            .filter_map(|(network, stranger)| Some((network, stranger?)));
        self.slots.extend(stay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Floods the slots with silent connections from these addresses. Returns how many of a
    /// datapath's 1,000 handshakes succeed, each of which lasts for ten newcomers.
    fn succeed(attackers: &[&str], datapath: &str) -> usize {
        let mut strangers = PendingConnections::new(SplitMix64(1));
        let attackers: Vec<Network> = attackers
            .iter()
            .map(|one| Network::from(address(one)))
            .collect();
        let mut flood = attackers.iter().copied().cycle();
        for network in flood.by_ref().take(10 * HANDSHAKE_SLOTS) {
            strangers.admit(network, 0);
        }
        (1..=1_000)
            .filter(|number| {
                strangers.admit(address(datapath).into(), *number);
                for network in flood.by_ref().take(10) {
                    strangers.admit(network, 0);
                }
                assert!(strangers.len() <= HANDSHAKE_SLOTS);
                let there = strangers.iter().any(|one| one == number);
                strangers.serve(usize::MAX, |one| ((one == 0).then_some(one), false));
                there
            })
            .count()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn silent_connections_keep_no_datapath_out() {
        let four = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
        assert_eq!(succeed(&four, "198.51.100.1"), 1_000);
        // A datapath that shares the address of an attacker.
        let same = succeed(&four, "192.0.2.1");
        assert!(same > 800, "{same}");
        // A host with a /64 counts as one network.
        let hosts: Vec<String> = (0..256).map(|host| format!("2001:db8::{host:x}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        assert_eq!(succeed(&hosts, "2001:db8:0:1::1"), 1_000);
        // A flood from more networks than there are slots hits some handshakes.
        let many: Vec<String> = (0..1_000)
            .map(|net| format!("10.{}.{}.1", net / 256, net % 256))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let left = succeed(&many, "192.0.2.1");
        assert!(left > 850, "{left}");
    }

    #[test]
    fn a_mapped_address_is_its_ipv4_address() {
        assert_eq!(
            Network::from(address("::ffff:192.0.2.1")),
            address("192.0.2.1").into()
        );
        assert_ne!(
            Network::from(address("192.0.2.1")),
            address("192.0.2.2").into()
        );
        assert_eq!(
            Network::from(address("2001:db8::1")),
            address("2001:db8::ff:2").into()
        );
        assert_ne!(
            Network::from(address("2001:db8::1")),
            address("2001:db8:0:1::1").into()
        );
    }

    #[test]
    fn connections_are_served_round_robin() {
        let mut strangers = PendingConnections::new(SplitMix64(1));
        for number in 0..10u8 {
            strangers.admit(Network::V4([10, 0, 0, number]), number);
        }
        let mut turn = |steps| {
            let mut seen = Vec::new();
            strangers.serve(steps, |one| {
                // Even numbers are silent.
                if one % 2 == 1 {
                    seen.push(one);
                }
                (Some(one), one % 2 == 1)
            });
            seen
        };
        assert_eq!(turn(3), [1, 3, 5]);
        assert_eq!(turn(3), [7, 9, 1]);
        assert_eq!(strangers.len(), 10);
    }
}
