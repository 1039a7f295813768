//! The emulator's clock: CLOCK_MONOTONIC, from the start of the emulation.

use ccplane_units::{Duration, Time};
use nix::time::{ClockId, clock_gettime};

/// Counts nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: u64,
}

impl Clock {
    /// A clock that is at zero now.
    pub(crate) fn start() -> Clock {
        Clock { epoch: monotonic_ns() }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.epoch))
    }

    /// CLOCK_MONOTONIC at the start.
    pub(crate) fn epoch(&self) -> Duration {
        Duration::from_nanos(self.epoch)
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of the emulator's driver")]
fn monotonic_ns() -> u64 {
    // CLOCK_MONOTONIC exists on every Linux, and counts up from boot.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64)
}
