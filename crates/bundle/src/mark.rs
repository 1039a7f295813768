//! Which packets are epoch boundaries: those whose number is a multiple of N, a power of two
//! (Bundler, section 4.3).
//!
//! The number is the tunnel's counter, or a hash of the header where there is no tunnel. In both
//! the boundaries of a larger N are among those of a smaller one. So a box that has not heard of a
//! new N yet measures less or more often, and nothing else.

use ccplane_units::{Duration, Rate};

/// How the boxes know a packet again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Marks {
    /// By the tunnel's counter: numbers rise by one a packet. Loss and order are known of every
    /// packet.
    #[default]
    Counter,
    /// By a hash of the header, as the paper has it: numbers say nothing of order. What was lost
    /// follows from bytes, and order is known of boundaries only.
    Hash,
}

/// N: a packet in so many is a boundary. A power of two from 1 to [`Every::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Every(u32);

/// The part of a bandwidth-delay product between two boundaries (paper: 0.25). Less makes more
/// feedback than control needs, more leaves it without news for a good part of a round trip.
const BDP_PART: u64 = 4;
/// Bytes of the packets that a bandwidth-delay product is counted in.
const PACKET: u64 = 1_500;

impl Every {
    /// Every packet is one.
    pub const ONE: Every = Every(1);
    /// The largest N (reference: 1,024). More would bring fewer than 40 boundaries a second at 500
    /// Mbit/s.
    pub const MOST: Every = Every(1_024);

    /// This N; `None` if it is no power of two in the range.
    pub const fn new(n: u32) -> Option<Every> {
        if n.is_power_of_two() && n <= Every::MOST.0 {
            Some(Every(n))
        } else {
            None
        }
    }

    /// A quarter of the bandwidth-delay product, rounded down to powers of two: floor_pow2(rate ·
    /// min RTT / 1500) / 4.
    pub fn of(rate: Rate, min_rtt: Duration) -> Every {
        let packets = rate.bytes_in(min_rtt).get() / PACKET;
        let power = packets.checked_ilog2().map_or(0, |log| 1_u64 << log);
        Every((power / BDP_PART).clamp(1, u64::from(Every::MOST.0)) as u32)
    }

    /// N.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether the packet of this number is a boundary.
    #[inline]
    pub const fn is_boundary(self, number: u64) -> bool {
        number & (self.0 as u64 - 1) == 0
    }
}

/// The hash of a header's fields, for [`Marks::Hash`]: FNV-1a of 64 bits, of which the reference
/// takes the low half.
pub fn hash(fields: impl IntoIterator<Item = u8>) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let whole = fields.into_iter().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    });
    whole & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_product_in_powers_of_two() {
        let every = |mbit: u64, ms| {
            Every::of(
                Rate::from_bytes_per_sec(mbit * 125_000),
                Duration::from_millis(ms),
            )
            .get()
        };
        // 96 Mbit/s, 50 ms: 400 packets, 256, 64 (facts: 1.3).
        assert_eq!(every(96, 50), 64);
        assert_eq!(every(1, 10), 1);
        assert_eq!(every(0, 50), 1);
        assert_eq!(every(100_000, 500), 1_024);
        assert_eq!(every(u64::MAX / 125_000, 500), 1_024);
    }

    #[test]
    fn boundaries_of_a_larger_n_are_among_those_of_a_smaller() {
        for number in 0..5_000_u64 {
            let mut coarser = false;
            for n in (0..=10).rev().map(|log| 1 << log) {
                let is = Every::new(n).unwrap_or(Every::ONE).is_boundary(number);
                assert!(is || !coarser, "{number} {n}");
                coarser = is;
            }
        }
        assert_eq!([0, 3, 2_048].map(Every::new), [None; 3]);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // The published test vector of "a": 0xaf63dc4c8601ec8c.
        assert_eq!(hash(*b"a"), 0x8601_ec8c);
    }
}
