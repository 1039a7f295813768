//! The clock that the kernel's TCP and this process share.

use ccplane_units::Time;

/// CLOCK_MONOTONIC, the clock of `tp->tcp_mstamp`.
#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the kernel's driver"
)]
pub fn now() -> Time {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    // It exists on every Linux; its parts are never negative.
    let now = now.expect("CLOCK_MONOTONIC exists");
    Time::from_nanos(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
