//! Random numbers that are not secret.

use std::hash::{BuildHasher, Hasher, RandomState};

use ccplane_agent::rng::SplitMix64;

/// Returns a generator with a seed that differs between processes.
pub(super) fn seeded_rng() -> SplitMix64 {
    SplitMix64(random())
}

/// Returns a random number from the system.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
