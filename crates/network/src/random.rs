//! Seeds. Each purpose has its own stream, so additional draws for one purpose leave the others
//! unchanged.

pub use ccplane_units::splitmix::mix;

/// Maps a uniform number to one below `count` by multiplication (Lemire 2019).
#[inline(always)]
pub const fn below(uniform: u32, count: u32) -> u32 {
    ((uniform as u64 * count as u64) >> 32) as u32
}

/// Purpose of a random number stream.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Purpose {
    /// Loss at a link.
    Loss = 1,
    /// Random decisions of a queue.
    Queue = 2,
    /// Choice among equal-cost paths.
    Paths = 3,
    /// Jitter of a link.
    Delay = 4,
    /// Errors of a host's time stamps.
    Stamps = 5,
    /// Proofs of receipt.
    Nonces = 6,
}

/// Returns the seed of stream number `which` for this purpose.
pub const fn seed(seed: u64, purpose: Purpose, which: u32) -> u64 {
    mix(mix(seed ^ ((purpose as u64) << 56)).wrapping_add(which as u64))
}
