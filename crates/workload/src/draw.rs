//! Random numbers of workloads: one stream each, the same for the same seed on every machine.

use ccplane_units::Duration;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// The purpose in a workload's seed, so that no other user of the simulation's seed draws the same
/// numbers.
const PURPOSE: u64 = 0x776f_726b_6c6f_6164;

/// The random numbers of the `which`-th workload. Another workload before or after it changes
/// nothing for it as long as its own place stays the same.
pub(super) fn random(seed: u64, which: u32) -> Pcg64 {
    Pcg64::new(u128::from(mix(seed ^ PURPOSE)), u128::from(which))
}

/// The stream of how late flows start, of the first workload.
const LATE: u128 = 0x6d61_6e79;

/// The random numbers of how much later than planned the flows of the `which`-th workload start.
pub(super) fn late(seed: u64, which: u32) -> Pcg64 {
    Pcg64::new(u128::from(seed), LATE + u128::from(which))
}

/// The stream of connections of the first workload.
const SERVERS: u128 = 0x7365_7276_6572;

/// The random numbers by which the `which`-th workload draws connections.
pub(super) fn servers(seed: u64, which: u32) -> Pcg64 {
    Pcg64::new(u128::from(seed), SERVERS + u128::from(which))
}

/// A draw from the exponential distribution of this mean, to the nearest nanosecond.
///
/// By inversion: -mean · ln(u), u uniform over (0, 1] in steps of 2^-53, so that no draw exceeds 37
/// times the mean.
pub(super) fn exponential(random: &mut Pcg64, mean_ns: f64) -> Duration {
    let u = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    Duration::from_nanos((-mean_ns * libm::log(u) + 0.5) as u64)
}

/// A draw from the whole numbers below `count`, all alike to within 2^-32; 0 where there are none.
pub(super) fn below(random: &mut Pcg64, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}

/// Spreads a number over all 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood 2014,
/// figure 16, with David Stafford's constants "Mix13").
const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
