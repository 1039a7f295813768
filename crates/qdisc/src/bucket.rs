//! Which bucket of a fair queue a flow falls into.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// The stream of random numbers that perturbations are drawn from.
const STREAM: u64 = 0x6275636b;

/// 2³² divided by the golden ratio, made odd: numbers that follow each other fall far apart (Knuth,
/// The Art of Computer Programming 3, section 6.4).
const GOLDEN: u32 = 0x9e37_79b1;

/// A mapping from flow hashes to buckets, another for every seed, so that no two flows share a
/// bucket in all runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets {
    count: u32,
    perturbation: u32,
}

impl Buckets {
    pub(crate) fn new(count: u32, seed: u64) -> Buckets {
        Buckets {
            count,
            perturbation: Pcg32::new(seed, STREAM).next_u32(),
        }
    }

    pub(crate) fn of(self, flow_hash: u32) -> usize {
        let mixed = (flow_hash ^ self.perturbation).wrapping_mul(GOLDEN);
        ((u64::from(mixed) * u64::from(self.count)) >> 32) as usize
    }
}
