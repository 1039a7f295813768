//! The number of connections that a listening endpoint accepts: in all, and per address.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::limiter::source_of;

/// Limits of a listening endpoint. Each connection may hold a whole receive window and its list of
/// gaps, so these limits also bound memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Connections of one address at a time.
    pub per_address: usize,
}

impl ListenLimits {
    /// Limits all connections together, and no single address.
    pub fn connections(connections: usize) -> ListenLimits {
        ListenLimits {
            connections,
            per_address: connections,
        }
    }
}

/// Live connections, each with its origin.
#[derive(Debug)]
pub(super) struct ConnectionQuota {
    limits: ListenLimits,
    addresses: BTreeMap<u64, IpAddr>,
}

impl ConnectionQuota {
    pub fn new(limits: ListenLimits) -> ConnectionQuota {
        ConnectionQuota {
            limits,
            addresses: BTreeMap::new(),
        }
    }

    /// Returns true if one more connection from this address is allowed.
    pub fn has_room(&self, address: SocketAddr) -> bool {
        let origin = origin(address);
        let same = self
            .addresses
            .values()
            .filter(|held| **held == origin)
            .count();
        self.addresses.len() < self.limits.connections && same < self.limits.per_address
    }

    /// Returns true if no more connections are allowed, of any address.
    pub fn is_full(&self) -> bool {
        self.addresses.len() >= self.limits.connections
    }

    /// Counts a new connection.
    pub fn insert(&mut self, id: u64, address: SocketAddr) {
        self.addresses.insert(id, origin(address));
    }

    /// Stops counting a connection.
    pub fn release(&mut self, id: u64) {
        self.addresses.remove(&id);
    }
}

/// Returns the host or network behind an address: an IPv6 host has a whole /64.
pub(super) fn origin(address: SocketAddr) -> IpAddr {
    source_of(address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], port))
    }

    #[test]
    fn one_address_leaves_connections_to_others() {
        let mut shares = ConnectionQuota::new(ListenLimits {
            connections: 6,
            per_address: 4,
        });
        for id in 0..4 {
            assert!(shares.has_room(address(7, id as u16)));
            shares.insert(id, address(7, id as u16));
        }
        assert!(!shares.has_room(address(7, 9)));
        shares.insert(4, address(8, 1));
        shares.insert(5, address(9, 1));
        assert!(!shares.has_room(address(10, 1)), "six in all");
        shares.release(3);
        assert!(shares.has_room(address(7, 9)) && shares.has_room(address(10, 1)));
    }

    #[test]
    fn hosts_of_one_ipv6_network_count_as_one() {
        let parse = |text: &str| origin(text.parse().unwrap());
        assert_eq!(parse("[2001:db8::1]:1"), parse("[2001:db8::ffff:2]:2"));
        assert_ne!(parse("[2001:db8::1]:1"), parse("[2001:db8:0:1::1]:1"));
        assert_eq!(parse("[::ffff:192.0.2.1]:1"), parse("192.0.2.1:2"));
    }
}
