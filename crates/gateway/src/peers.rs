//! Which peer an inner address belongs to: cryptokey routing, as WireGuard has it. A packet goes to
//! the peer whose prefix matches its destination longest, and is taken from a peer only if its
//! source would go there.

use std::net::IpAddr;

use ccplane_units::Prefix;

/// A peer by its place in the driver's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Longest-prefix match over disjoint ranges: one binary search a packet, however prefixes are
/// nested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    v4: Ranges,
    v6: Ranges,
}

/// Where each range begins, ascending, and whose it is. A range ends where the next begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges {
    starts: Vec<u128>,
    owners: Vec<Option<PeerId>>,
}

impl Routes {
    /// The routes of these prefixes. Of a prefix that occurs twice the later one counts; a
    /// configuration that was checked has none.
    pub fn new(prefixes: impl IntoIterator<Item = (Prefix, PeerId)>) -> Routes {
        let (v4, v6): (Vec<_>, Vec<_>) = prefixes
            .into_iter()
            .partition(|(prefix, _)| prefix.network().is_ipv4());
        Routes {
            v4: Ranges::new(v4, 32),
            v6: Ranges::new(v6, 128),
        }
    }

    /// The peer that an inner address belongs to.
    #[inline]
    pub fn owner(&self, address: IpAddr) -> Option<PeerId> {
        match address {
            IpAddr::V4(v4) => self.v4.owner(v4.to_bits().into()),
            IpAddr::V6(v6) => self.v6.owner(v6.to_bits()),
        }
    }

    /// Whether a packet from this inner address may have come from this peer.
    #[inline]
    pub fn admits(&self, peer: PeerId, source: IpAddr) -> bool {
        self.owner(source) == Some(peer)
    }
}

impl Ranges {
    /// A sweep over the prefixes from the lowest address: those that are open at a place are nested
    /// in each other, the longest is the last, and it owns the place.
    fn new(mut prefixes: Vec<(Prefix, PeerId)>, width: u32) -> Ranges {
        // Sorted so that a prefix comes after those that it lies in. The sort is stable: of two
        // equal ones the later one lies in the earlier.
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

    /// Closes the prefixes whose last address is `past`: what follows each belongs to the one
    /// around it.
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

    /// From `start` on addresses belong to `owner`. Of two ranges that begin at the same place the
    /// later one is what is left.
    fn begin(&mut self, start: u128, owner: Option<PeerId>) {
        if self.starts.last() == Some(&start) {
            self.owners.pop();
        } else {
            self.starts.push(start);
        }
        self.owners.push(owner);
    }

    #[inline]
    fn owner(&self, address: u128) -> Option<PeerId> {
        let after = self.starts.partition_point(|start| *start <= address);
        *self.owners.get(after.checked_sub(1)?)?
    }
}

fn highest(width: u32) -> u128 {
    u128::MAX >> (128 - width)
}

/// The first and the last address of a prefix.
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
            .owner(address.parse().expect(address))
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
    fn a_source_belongs_to_the_peer_that_its_answers_go_to() {
        let routes = routes(&["10.8.0.0/16", "10.8.9.0/24"]);
        let from = |peer, source: &str| routes.admits(PeerId(peer), source.parse().unwrap());
        assert!(from(0, "10.8.1.1"));
        assert!(!from(0, "10.8.9.1"), "a longer prefix of another peer");
        assert!(from(1, "10.8.9.1"));
        assert!(!from(1, "10.9.0.1"), "nobody's");
    }

    proptest! {
        /// Against the definition: among the prefixes that contain an address, the longest.
        #[test]
        fn ranges_say_what_prefixes_say(
            v6: bool,
            nets in proptest::collection::vec((0..64_u128, 0..=7_u8), 0..12),
            probes in proptest::collection::vec(0..256_u128, 1..40),
        ) {
            // All in the highest byte, so that they meet; and the width's ends are among them.
            let address = |byte: u128| match v6 {
                true => IpAddr::V6(Ipv6Addr::from_bits(byte << 120 | byte)),
                false => IpAddr::V4(Ipv4Addr::from_bits((byte << 24 | byte) as u32)),
            };
            let mut prefixes: Vec<Prefix> = nets
                .iter()
                .filter_map(|(byte, bits)| Prefix::of(address(byte * 4), *bits))
                .collect();
            prefixes.sort();
            prefixes.dedup();
            let numbered = prefixes.iter().enumerate().map(|(n, prefix)| (*prefix, PeerId(n as u32)));
            let routes = Routes::new(numbered.clone());
            for probe in probes {
                let expected = numbered
                    .clone()
                    .filter(|(prefix, _)| prefix.contains(address(probe)))
                    .max_by_key(|(prefix, _)| prefix.bits())
                    .map(|(_, peer)| peer);
                prop_assert_eq!(routes.owner(address(probe)), expected);
            }
        }
    }
}
