//! Hash buckets of the fair queues.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// PCG stream of the perturbation.
const PERTURBATION_STREAM: u64 = 0x6275636b;

/// 2³² divided by the golden ratio, made odd, for Knuth's multiplicative hashing: consecutive
/// hashes land far apart (The Art of Computer Programming 3, section 6.4).
const GOLDEN_RATIO_MULTIPLIER: u32 = 0x9e37_79b1;

/// Mapping from flow hashes to buckets. It is perturbed by a seed, so that two flows that collide
/// in one run do not collide in all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buckets {
    count: u32,
    perturbation: u32,
}

impl Buckets {
    pub(crate) fn new(count: u32, seed: u64) -> Buckets {
        Buckets {
            count,
            perturbation: Pcg32::new(seed, PERTURBATION_STREAM).next_u32(),
        }
    }

    pub(crate) fn index_of(self, flow_hash: u32) -> usize {
        let mixed = (flow_hash ^ self.perturbation).wrapping_mul(GOLDEN_RATIO_MULTIPLIER);
        ((u64::from(mixed) * u64::from(self.count)) >> 32) as usize
    }
}
