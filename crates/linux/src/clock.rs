//! The clock shared by the kernel's TCP and this process.

use ccplane_units::Time;

/// Returns the time of CLOCK_MONOTONIC, the clock of `tp->tcp_mstamp`.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the kernel's driver"
)]
pub fn now() -> Time {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    // Present on every Linux, and never negative.
    let now = now.expect("CLOCK_MONOTONIC exists");
    Time::from_nanos(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
