//! Seeds. Each purpose has its own stream, so additional draws for one purpose leave the others
//! unchanged.

/// Mixes the bits of a seed: the finaliser of SplitMix64 (Steele, Lea and Flood 2014, figure 16,
/// with David Stafford's constants "Mix13").
#[inline(always)]
pub const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

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
