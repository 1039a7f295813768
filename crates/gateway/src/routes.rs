//! Cryptokey routing as in WireGuard. A packet is sent to the peer with the longest prefix that
//! matches its destination, and accepted from a peer only if a reply to its source address would be
//! routed to that peer.

use std::net::IpAddr;

use ccplane_units::Prefix;

/// Index of a peer in the gateway's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Longest-prefix match over disjoint address ranges: one binary search per lookup, whatever the
/// nesting of prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    v4: Ranges,
    v6: Ranges,
}

/// Start addresses, ascending, and owners of the ranges. A range ends where the next one starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges {
    starts: Vec<u128>,
    owners: Vec<Option<PeerId>>,
}

impl Routes {
    /// Builds the routes. If a prefix occurs twice, the later entry wins; a checked configuration
    /// contains no duplicates.
    pub fn new(prefixes: impl IntoIterator<Item = (Prefix, PeerId)>) -> Routes {
        let (v4, v6): (Vec<_>, Vec<_>) = prefixes
            .into_iter()
            .partition(|(prefix, _)| prefix.network().is_ipv4());
        Routes {
            v4: Ranges::new(v4, 32),
            v6: Ranges::new(v6, 128),
        }
    }

    /// Returns the peer that owns an inner address.
    #[inline]
    pub fn lookup(&self, address: IpAddr) -> Option<PeerId> {
        match address {
            IpAddr::V4(v4) => self.v4.lookup(v4.to_bits().into()),
            IpAddr::V6(v6) => self.v6.lookup(v6.to_bits()),
        }
    }

    /// Returns whether the peer may send packets from this inner address.
    #[inline]
    pub fn allows_source(&self, peer: PeerId, source: IpAddr) -> bool {
        self.lookup(source) == Some(peer)
    }
}

impl Ranges {
    /// Sweeps over the prefixes in ascending order. The open prefixes at an address are nested; the
    /// last one opened is the longest and owns the address.
    fn new(mut prefixes: Vec<(Prefix, PeerId)>, width: u32) -> Ranges {
        // Sorts a prefix behind the prefixes that contain it. The sort is stable, so the later of
        // two equal prefixes counts as nested in the earlier one.
        prefixes.sort_by_key(|(prefix, _)| (prefix.network(), prefix.bits()));
        let mut ranges = Ranges::default();
        let mut open: Vec<(u128, PeerId)> = Vec::new();
        for (prefix, peer) in prefixes {
            let (first, last) = bounds(&prefix, width);
            ranges.close(&mut open, |end| end < first, width);
            ranges.begin(first, Some(peer));
            open.push((last, peer));
        }
        ranges.close(&mut open, |_| true, width);
        ranges
    }

    /// Closes the open prefixes whose last address is `past`. The addresses behind each belong to
    /// its parent.
    fn close(&mut self, open: &mut Vec<(u128, PeerId)>, past: impl Fn(u128) -> bool, width: u32) {
        while let Some(&(last, _)) = open.last()
            && past(last)
        {
            open.pop();
            if last < highest(width) {
                self.begin(last + 1, open.last().map(|(_, peer)| *peer));
            }
        }
    }

    /// Assigns the addresses from `start` on to `owner`. A later range with the same start replaces
    /// the earlier one.
    fn begin(&mut self, start: u128, owner: Option<PeerId>) {
        if self.starts.last() == Some(&start) {
            self.owners.pop();
        } else {
            self.starts.push(start);
        }
        self.owners.push(owner);
    }

    #[inline]
    fn lookup(&self, address: u128) -> Option<PeerId> {
        let after = self.starts.partition_point(|start| *start <= address);
        *self.owners.get(after.checked_sub(1)?)?
    }
}

fn highest(width: u32) -> u128 {
    u128::MAX >> (128 - width)
}

/// Returns the first and the last address of a prefix.
fn bounds(prefix: &Prefix, width: u32) -> (u128, u128) {
    let first = match prefix.network() {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let rest = highest(width)
        .checked_shr(prefix.bits().into())
        .unwrap_or(0);
    (first, first | rest)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn routes(text: &[&str]) -> Routes {
        let prefix = |(n, text): (usize, &&str)| (text.parse().expect(text), PeerId(n as u32));
        Routes::new(text.iter().enumerate().map(prefix))
    }

    fn owner(routes: &Routes, address: &str) -> Option<u32> {
        routes
            .lookup(address.parse().expect(address))
            .map(|peer| peer.0)
    }

    #[test]
    fn the_longest_prefix_wins() {
        let routes = routes(&[
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3/32",
            "fd00::/8",
            "fd00:1::/32",
        ]);
        for (address, peer) in [
            ("9.255.255.255", 0),
            ("10.0.0.0", 1),
            ("10.1.0.0", 2),
            ("10.1.2.2", 2),
            ("10.1.2.3", 3),
            ("10.1.2.4", 2),
            ("10.2.0.0", 1),
            ("11.0.0.0", 0),
            ("255.255.255.255", 0),
            ("fd00::1", 4),
            ("fd00:1::1", 5),
            ("fdff::", 4),
        ] {
            assert_eq!(owner(&routes, address), Some(peer), "{address}");
        }
        assert_eq!(owner(&routes, "fe00::"), None);
        assert_eq!(owner(&Routes::default(), "10.0.0.1"), None);
    }

    #[test]
    fn source_addresses_must_route_to_their_peer() {
        let routes = routes(&["10.8.0.0/16", "10.8.9.0/24"]);
        let from = |peer, source: &str| routes.allows_source(PeerId(peer), source.parse().unwrap());
        assert!(from(0, "10.8.1.1"));
        assert!(!from(0, "10.8.9.1"), "a longer prefix of another peer");
        assert!(from(1, "10.8.9.1"));
        assert!(!from(1, "10.9.0.1"), "nobody's");
    }

    proptest! {
        /// Compares with the definition: the longest of all prefixes that contain the address.
        #[test]
        fn range_lookup_equals_prefix_lookup(
            v6: bool,
            nets in proptest::collection::vec((0..64_u128, 0..=7_u8), 0..12),
            probes in proptest::collection::vec(0..256_u128, 1..40),
        ) {
            // Addresses differ in the highest byte only, so that prefixes overlap and the ends of
            // the address space are covered.
            let address = |byte: u128| match v6 {
                true => IpAddr::V6(Ipv6Addr::from_bits(byte << 120 | byte)),
                false => IpAddr::V4(Ipv4Addr::from_bits((byte << 24 | byte) as u32)),
            };
            let mut prefixes: Vec<Prefix> = nets
                .iter()
                .filter_map(|(byte, bits)| Prefix::containing(address(byte * 4), *bits))
                .collect();
            prefixes.sort();
            prefixes.dedup();
            let numbered = prefixes
                .iter()
                .enumerate()
                .map(|(n, prefix)| (*prefix, PeerId(n as u32)));
            let routes = Routes::new(numbered.clone());
            for probe in probes {
                let expected = numbered
                    .clone()
                    .filter(|(prefix, _)| prefix.contains(address(probe)))
                    .max_by_key(|(prefix, _)| prefix.bits())
                    .map(|(_, peer)| peer);
                prop_assert_eq!(routes.lookup(address(probe)), expected);
            }
        }
    }
}
