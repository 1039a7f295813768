//! Random number streams of workloads: one per workload, reproducible on every platform.

use ccplane_units::Duration;
use ccplane_units::splitmix::mix;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Purpose tag, which separates workloads from other users of the simulation's seed.
const SEED_PURPOSE: u64 = 0x776f_726b_6c6f_6164;

/// Returns the generator of the workload with index `which`. It does not depend on the other
/// workloads.
pub(super) fn workload_rng(seed: u64, which: u32) -> Pcg64 {
    Pcg64::new(u128::from(mix(seed ^ SEED_PURPOSE)), u128::from(which))
}

/// PCG stream of the random start offsets of the first workload.
const START_OFFSET_STREAM: u128 = 0x6d61_6e79;

/// Returns the generator of the start offsets of the workload with index `which`.
pub(super) fn start_offset_rng(seed: u64, which: u32) -> Pcg64 {
    Pcg64::new(u128::from(seed), START_OFFSET_STREAM + u128::from(which))
}

/// PCG stream of the connection choices of the first workload.
const CONNECTION_STREAM: u128 = 0x7365_7276_6572;

/// Returns the generator of the connection choices of the workload with index `which`.
pub(super) fn connection_rng(seed: u64, which: u32) -> Pcg64 {
    Pcg64::new(u128::from(seed), CONNECTION_STREAM + u128::from(which))
}

/// Draws from the exponential distribution with this mean, to the nearest nanosecond.
///
/// By inversion: -mean · ln(u) with u uniform over (0, 1] in steps of 2^-53, so that no draw
/// exceeds 37 times the mean.
pub(super) fn draw_exponential(random: &mut Pcg64, mean_ns: f64) -> Duration {
    let u = ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    Duration::from_nanos((-mean_ns * libm::log(u) + 0.5) as u64)
}

/// Draws an integer below `count`, uniform to within 2^-32; 0 if `count` is 0.
pub(super) fn draw_below(random: &mut Pcg64, count: usize) -> usize {
    ((u128::from(random.next_u64()) * count as u128) >> 64) as usize
}
