//! The emulator's clock: CLOCK_MONOTONIC since the start of the emulation.

use ccplane_units::{Duration, Time};
use nix::time::{ClockId, clock_gettime};

/// A clock that starts at zero when it is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmuClock {
    epoch: u64,
}

impl EmuClock {
    /// Starts a clock at zero.
    pub(crate) fn start() -> EmuClock {
        EmuClock {
            epoch: monotonic_ns(),
        }
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.epoch))
    }

    /// Returns the wall-clock time of the start, since 1970.
    pub(crate) fn wall_clock_start(&self) -> Duration {
        let since = monotonic_ns().saturating_sub(self.epoch);
        Duration::from_nanos(read_clock(ClockId::CLOCK_REALTIME).saturating_sub(since))
    }

    /// Returns CLOCK_MONOTONIC at the start.
    pub(crate) fn epoch(&self) -> Duration {
        Duration::from_nanos(self.epoch)
    }
}

/// Returns the CPU time of the calling thread.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(read_clock(ClockId::CLOCK_THREAD_CPUTIME_ID))
}

fn monotonic_ns() -> u64 {
    read_clock(ClockId::CLOCK_MONOTONIC)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the emulator's driver"
)]
fn read_clock(clock: ClockId) -> u64 {
    // Present on every Linux, and never negative.
    clock_gettime(clock).map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}
