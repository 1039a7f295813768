//! Epoch boundaries: packets whose number is a multiple of N, a power of two (Bundler, section
//! 4.3).
//!
//! The number is the tunnel's packet counter, or a hash of the header if there is no tunnel. In
//! both cases the boundaries for a larger N are a subset of those for a smaller N. If the two boxes
//! use different N for a while, only the number of samples changes.

use ccplane_units::{Duration, Rate};

/// Identification of packets at both boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketNumbering {
    /// By the tunnel's packet counter, which increases by one per packet. Loss and order are known
    /// for every packet.
    #[default]
    Counter,
    /// By a hash of the header, as in the paper. Numbers are not ordered; losses are inferred from
    /// byte counts, and only the order of boundaries is known.
    Hash,
}

/// Epoch size N: one packet in N is a boundary. A power of two from 1 to
/// [`EpochSize::EPOCH_PACKETS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochSize(u32);

/// Inverse of the epoch size as a fraction of the bandwidth-delay product (paper: 0.25). With
/// shorter epochs there would be more feedback than the control loop needs; with longer ones it
/// would lack feedback for much of an RTT.
const EPOCHS_PER_BDP: u64 = 4;
/// Packet size for expressing a bandwidth-delay product in packets, bytes.
const PACKET_BYTES: u64 = 1_500;

impl EpochSize {
    /// Every packet is a boundary.
    pub const SINGLE_PACKET: EpochSize = EpochSize(1);
    /// Largest epoch size (reference: 1,024). With larger epochs there would be fewer than 40
    /// boundaries per second at 500 Mbit/s.
    pub const EPOCH_PACKETS_MAX: EpochSize = EpochSize(1_024);

    /// Returns the epoch size `n`, or `None` if it is not a power of two in the range.
    pub const fn new(n: u32) -> Option<EpochSize> {
        if n.is_power_of_two() && n <= EpochSize::EPOCH_PACKETS_MAX.0 {
            Some(EpochSize(n))
        } else {
            None
        }
    }

    /// Computes the epoch size, a quarter of the bandwidth-delay product rounded down to a power of
    /// two: floor_pow2(rate · min RTT / 1500) / 4.
    pub fn for_path(rate: Rate, min_rtt: Duration) -> EpochSize {
        let packets = rate.bytes_in(min_rtt).get() / PACKET_BYTES;
        let power = packets.checked_ilog2().map_or(0, |log| 1_u64 << log);
        EpochSize(
            (power / EPOCHS_PER_BDP).clamp(1, u64::from(EpochSize::EPOCH_PACKETS_MAX.0)) as u32,
        )
    }

    /// Returns N.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether the packet with this number is a boundary.
    #[inline]
    pub const fn is_boundary(self, number: u64) -> bool {
        number & (self.0 as u64 - 1) == 0
    }
}

/// Hashes the fields of a header for [`PacketNumbering::Hash`]: the low 32 bits of 64-bit FNV-1a,
/// as in the reference.
pub fn hash(fields: impl IntoIterator<Item = u8>) -> u64 {
    const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const FNV_PRIME: u64 = 0x0100_0000_01b3;
    let whole = fields.into_iter().fold(FNV_OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    });
    whole & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_product_in_powers_of_two() {
        let every = |mbit: u64, ms| {
            EpochSize::for_path(
                Rate::from_bytes_per_sec(mbit * 125_000),
                Duration::from_millis(ms),
            )
            .get()
        };
        // 96 Mbit/s and 50 ms: 400 packets, rounded to 256; a quarter is 64.
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
                let is = EpochSize::new(n)
                    .unwrap_or(EpochSize::SINGLE_PACKET)
                    .is_boundary(number);
                assert!(is || !coarser, "{number} {n}");
                coarser = is;
            }
        }
        assert_eq!([0, 3, 2_048].map(EpochSize::new), [None; 3]);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Published test vector for "a": 0xaf63dc4c8601ec8c.
        assert_eq!(hash(*b"a"), 0x8601_ec8c);
    }
}
