//! Conversion of kernel timestamps to the host's clock.
//!
//! The kernel timestamps packets with `CLOCK_REALTIME` ("software"), and a network interface with
//! its own clock ("hardware"). All other times here are `CLOCK_MONOTONIC` since the host's start.
//! NTP disciplines both system clocks alike, so they differ by a constant until the real-time clock
//! is set. The constant is measured with every batch, between two readings of the monotonic clock,
//! and the most precise measurement is kept; its error is at most half the time between the two
//! readings. All timestamps share the error, so it cancels in differences. If a measurement differs
//! by more than both errors, the clock was set. Timestamps taken before the step and read after it
//! would be wrong by as much, so all timestamps are rejected for [`TIMESTAMP_AGE_MAX`].
//!
//! An interface's clock has no constant offset: it drifts by about 10 to 100 ppm. Its timestamps
//! are aligned with the system clock at the first one, and realigned when they differ by
//! [`REALIGN_THRESHOLD_NS`]. Differences of hardware timestamps are then free of kernel delays, but
//! contain a drift, which one-way delay measurements have to tolerate anyway.

use ccplane_link::ThreadClock;
use ccplane_units::{Duration, Time};
use nix::time::{ClockId, clock_gettime};

/// Maximum age of a timestamp. No packet waits this long to be sent or read; an older timestamp
/// predates a clock step or is invalid. A larger value rejects timestamps for longer after a clock
/// step; a smaller one rejects timestamps after the process was stopped.
const TIMESTAMP_AGE_MAX: Duration = Duration::from_secs(1);

/// Drift of the interface's clock against the system's after which timestamps are realigned, ns. A
/// smaller value causes more steps, which [`OneWay`](ccplane_datapath::OneWay) mistakes for a clock
/// that was set; a larger one distorts the age of timestamps by as much.
const REALIGN_THRESHOLD_NS: u64 = 1_000_000;

/// Clock readings per measurement. The second is needed only if the thread was interrupted during
/// the first.
const READINGS_MAX: usize = 2;

/// Kernel timestamps of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStamp {
    /// Time at which the driver had the packet, ns of `CLOCK_REALTIME`.
    pub software: Option<u64>,
    /// Time at which the interface had the packet, ns of the interface's clock.
    pub hardware: Option<u64>,
}

/// Converter from kernel and interface timestamps to the host's clock.
#[derive(Debug)]
pub struct ClockConverter {
    clock: ThreadClock,
    /// Real-time clock minus the host's clock, and the error of the difference, ns.
    offset: i64,
    error: u64,
    /// Time until which all timestamps are rejected.
    stable_at: Time,
    /// Interface clock minus the host's clock, once known, ns.
    interface_offset: Option<i64>,
}

impl ClockConverter {
    /// Creates a converter to times of this clock.
    pub fn new(clock: ThreadClock) -> ClockConverter {
        let mut stamper = ClockConverter {
            clock,
            offset: 0,
            error: u64::MAX,
            stable_at: Time::ZERO,
            interface_offset: None,
        };
        stamper.synchronize();
        stamper
    }

    /// Measures the clock offset; must be called before the timestamps of a batch are
    /// [converted](ClockConverter::convert). Returns the current time.
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's timestamps use this clock, and a driver converts them"
    )]
    pub fn synchronize(&mut self) -> Time {
        let mut best = (u64::MAX, 0);
        let mut now = Time::ZERO;
        for _ in 0..READINGS_MAX {
            let before = self.clock.now();
            let real = clock_gettime(ClockId::CLOCK_REALTIME);
            now = self.clock.now();
            let error = now.since(before).as_nanos().div_ceil(2);
            if let Ok(real) = real
                && error < best.0
            {
                let real = real
                    .tv_sec()
                    .wrapping_mul(1_000_000_000)
                    .wrapping_add(real.tv_nsec());
                best = (error, real.wrapping_sub((before.as_nanos() + error) as i64));
            }
            if best.0 < 1_000 {
                break;
            }
        }
        self.on_measurement(best.1, best.0, now);
        now
    }

    /// Records a measured offset between real time and the host's clock, with its error.
    fn on_measurement(&mut self, offset: i64, error: u64, now: Time) {
        let first = self.error == u64::MAX;
        let stepped = offset.abs_diff(self.offset) > error.saturating_add(self.error);
        if stepped && !first {
            self.stable_at = now + TIMESTAMP_AGE_MAX;
        }
        if stepped || first || error < self.error {
            (self.offset, self.error) = (offset, error);
        }
    }

    /// Returns the packet's timestamp on the host's clock. `None` if it is implausible, or if
    /// interface timestamps are in use and this packet has none.
    pub fn convert(&mut self, stamp: KernelStamp, now: Time) -> Option<Time> {
        let software = stamp
            .software
            .and_then(|ns| self.check_plausible((ns as i64).wrapping_sub(self.offset), now));
        let Some(hardware) = stamp.hardware else {
            return software.filter(|_| self.interface_offset.is_none());
        };
        if let Some(software) = software {
            let apart = (hardware as i64).wrapping_sub(software.as_nanos() as i64);
            if self
                .interface_offset
                .is_none_or(|known| known.abs_diff(apart) > REALIGN_THRESHOLD_NS)
            {
                self.interface_offset = Some(apart);
            }
        }
        let offset = self.interface_offset?;
        // The clocks may have drifted apart, so a timestamp may appear to be slightly in the
        // future.
        self.check_plausible(
            (hardware as i64).wrapping_sub(offset),
            now + Duration::from_nanos(REALIGN_THRESHOLD_NS),
        )
    }

    fn check_plausible(&self, ns: i64, now: Time) -> Option<Time> {
        let slack = Duration::from_nanos(self.error.saturating_mul(2));
        let at = Time::from_nanos(u64::try_from(ns).ok()?);
        let settled = now >= self.stable_at;
        (settled && at <= now + slack && at + TIMESTAMP_AGE_MAX >= now).then_some(at)
    }

    /// Returns real time minus the host's clock, ns.
    #[cfg(test)]
    pub fn real_offset(&self) -> i64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn stamper() -> ClockConverter {
        let mut stamper = ClockConverter::new(ThreadClock::new());
        (stamper.offset, stamper.error) = (5 * SECOND_NS as i64, 40);
        stamper
    }

    fn software(ns: u64) -> KernelStamp {
        KernelStamp {
            software: Some(ns),
            hardware: None,
        }
    }

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    #[test]
    fn the_real_clock_is_found_to_within_a_microsecond_and_stays() {
        let mut stamper = ClockConverter::new(ThreadClock::new());
        let first = stamper.offset;
        for _ in 0..1_000 {
            stamper.synchronize();
        }
        assert!(stamper.error < 1_000, "{} ns", stamper.error);
        assert!(stamper.offset.abs_diff(first) < 10_000);
        assert_eq!(stamper.stable_at, Time::ZERO, "the clock was not set");
    }

    #[test]
    fn timestamps_are_converted_and_a_clock_step_disables_them_briefly() {
        let mut stamper = stamper();
        let now = at(10 * SECOND_NS);
        assert_eq!(
            stamper.convert(software(15 * SECOND_NS - 300), now),
            Some(at(10 * SECOND_NS - 300))
        );
        assert_eq!(
            stamper.convert(software(15 * SECOND_NS + 1_000), now),
            None,
            "a future timestamp"
        );
        assert_eq!(
            stamper.convert(software(13 * SECOND_NS), now),
            None,
            "a timestamp two seconds old"
        );
        assert_eq!(stamper.convert(KernelStamp::default(), now), None);
        // Measurement noise is not a step; the more precise measurement is kept.
        stamper.on_measurement(5 * SECOND_NS as i64 + 90, 60, now);
        assert_eq!(
            (stamper.offset, stamper.stable_at),
            (5 * SECOND_NS as i64, Time::ZERO)
        );
        stamper.on_measurement(5 * SECOND_NS as i64 - 20, 20, now);
        assert_eq!(
            (stamper.offset, stamper.stable_at),
            (5 * SECOND_NS as i64 - 20, Time::ZERO)
        );
        // The clock is set back by 30 ms.
        stamper.on_measurement(5 * SECOND_NS as i64 - 30_000_000, 50, now);
        assert_eq!(stamper.stable_at, now + TIMESTAMP_AGE_MAX);
        assert_eq!(
            stamper.convert(software(15 * SECOND_NS - 31_000_000), now),
            None
        );
        let later = now + TIMESTAMP_AGE_MAX;
        let stamp = software(16 * SECOND_NS - 30_000_000 - 700);
        assert_eq!(
            stamper.convert(stamp, later),
            Some(at(11 * SECOND_NS - 700))
        );
    }

    #[test]
    fn stamps_of_an_interface_keep_their_differences_and_are_not_mixed_with_others() {
        let mut stamper = stamper();
        let both = |software: u64, hardware: u64| KernelStamp {
            software: Some(software),
            hardware: Some(hardware),
        };
        // The kernel is 4 µs, then 9 µs late; the interface's clock started at 7 ns.
        let first = stamper
            .convert(both(15 * SECOND_NS, 7), at(10 * SECOND_NS))
            .unwrap();
        let second = stamper
            .convert(
                both(15 * SECOND_NS + 105_000, 100_007),
                at(10 * SECOND_NS + 200_000),
            )
            .unwrap();
        assert_eq!(second.since(first), Duration::from_micros(100));
        assert_eq!(
            stamper.convert(software(15 * SECOND_NS), at(10 * SECOND_NS)),
            None
        );
        let alone = KernelStamp {
            software: None,
            hardware: Some(200_007),
        };
        let third = stamper
            .convert(alone, at(10 * SECOND_NS + 300_000))
            .unwrap();
        assert_eq!(third.since(second), Duration::from_micros(100));
        // After a drift of more than 1 ms the timestamps are realigned and their age is correct
        // again.
        let late = stamper
            .convert(
                both(16 * SECOND_NS, SECOND_NS + 2_000_000),
                at(11 * SECOND_NS),
            )
            .unwrap();
        assert_eq!(late, at(11 * SECOND_NS));
    }
}
