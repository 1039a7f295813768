//! The kernel's time stamps by the clock of a host.
//!
//! The kernel stamps packets by `CLOCK_REALTIME` ("software"), and a network interface by its own
//! clock ("hardware"). Everything else here counts from the host's start by `CLOCK_MONOTONIC`. The
//! real-time clock and the monotonic one differ by a constant until somebody sets the real time:
//! the same discipline steers both. The constant is measured with every batch, between two readings
//! of the monotonic clock, and the tightest measurement is kept. Its error is at most half the time
//! between those readings. It is the same for all stamps, so no difference of two stamps contains
//! it. A measurement that differs by more than both errors means that the clock was set. Stamps
//! from before that are read only now would be wrong by as much, so for [`SETTLE`] no stamp is
//! believed.
//!
//! The clock of an interface has no constant: it drifts, by some 10 to 100 ppm. Its stamps are put
//! where the first of them was, and put anew when they are [`APART`] from it: differences of
//! hardware stamps are then free of the kernel's delays, at the price of a drift that whoever takes
//! one-way delays has to bear with anyway.

use ccplane_link::Clock;
use ccplane_units::{Duration, Time};
use nix::time::{ClockId, clock_gettime};

/// No packet waits this long to be sent or read: an earlier stamp is from before a step of the
/// clock, or nonsense. Longer would do without stamps for longer after somebody set the clock.
/// Shorter would drop those of a process that was stopped.
const SETTLE: Duration = Duration::from_secs(1);

/// How far an interface's clock may drift from the system's, ns, before its stamps are put anew.
/// Smaller makes more steps, which [`OneWay`](ccplane_datapath::OneWay) takes for a clock that was
/// set; larger mistakes the age of stamps by as much.
const APART: u64 = 1_000_000;

/// Looks at the clocks for one measurement. One is enough unless the thread was interrupted in
/// between.
const LOOKS: usize = 2;

/// What the kernel said of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelStamp {
    /// When its driver had the packet, ns of `CLOCK_REALTIME`.
    pub software: Option<u64>,
    /// When the interface had it, ns of the interface's clock.
    pub hardware: Option<u64>,
}

/// Converts the kernel's time stamps, and a network interface's, to times of a host's clock.
#[derive(Debug)]
pub struct Stamper {
    clock: Clock,
    /// Real time less our clock's, ns, and the error of that.
    offset: i64,
    error: u64,
    /// Until when no stamp is believed.
    settles: Time,
    /// The interface's time less our clock's, once it is known.
    interface: Option<i64>,
}

impl Stamper {
    /// For a host whose times are of this clock.
    pub fn new(clock: Clock) -> Stamper {
        let mut stamper = Stamper {
            clock,
            offset: 0,
            error: u64::MAX,
            settles: Time::ZERO,
            interface: None,
        };
        stamper.look();
        stamper
    }

    /// Looks at the clocks, as is to be done before any stamp of a batch is
    /// [converted](Stamper::convert); the present.
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's stamps are of this clock, and a driver converts them"
    )]
    pub fn look(&mut self) -> Time {
        let mut best = (u64::MAX, 0);
        let mut now = Time::ZERO;
        for _ in 0..LOOKS {
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
        self.measured(best.1, best.0, now);
        now
    }

    /// Real time was `offset` ahead of our clock, give or take `error`.
    fn measured(&mut self, offset: i64, error: u64, now: Time) {
        let first = self.error == u64::MAX;
        let stepped = offset.abs_diff(self.offset) > error.saturating_add(self.error);
        if stepped && !first {
            self.settles = now + SETTLE;
        }
        if stepped || first || error < self.error {
            (self.offset, self.error) = (offset, error);
        }
    }

    /// When the packet was stamped, by our clock; `now` is the present. `None` where the stamp
    /// cannot be believed, or where stamps of the interface are wanted and this packet has none.
    pub fn convert(&mut self, stamp: KernelStamp, now: Time) -> Option<Time> {
        let software = stamp
            .software
            .and_then(|ns| self.plausible((ns as i64).wrapping_sub(self.offset), now));
        let Some(hardware) = stamp.hardware else {
            return software.filter(|_| self.interface.is_none());
        };
        if let Some(software) = software {
            let apart = (hardware as i64).wrapping_sub(software.as_nanos() as i64);
            if self
                .interface
                .is_none_or(|known| known.abs_diff(apart) > APART)
            {
                self.interface = Some(apart);
            }
        }
        let offset = self.interface?;
        // The two clocks may be apart by now, so a stamp may seem to come from the near future.
        self.plausible(
            (hardware as i64).wrapping_sub(offset),
            now + Duration::from_nanos(APART),
        )
    }

    fn plausible(&self, ns: i64, now: Time) -> Option<Time> {
        let slack = Duration::from_nanos(self.error.saturating_mul(2));
        let at = Time::from_nanos(u64::try_from(ns).ok()?);
        let settled = now >= self.settles;
        (settled && at <= now + slack && at + SETTLE >= now).then_some(at)
    }

    /// Returns real time less the host's clock, ns.
    #[cfg(test)]
    pub fn real_offset(&self) -> i64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn stamper() -> Stamper {
        let mut stamper = Stamper::new(Clock::new());
        (stamper.offset, stamper.error) = (5 * S as i64, 40);
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
        let mut stamper = Stamper::new(Clock::new());
        let first = stamper.offset;
        for _ in 0..1_000 {
            stamper.look();
        }
        assert!(stamper.error < 1_000, "{} ns", stamper.error);
        assert!(stamper.offset.abs_diff(first) < 10_000);
        assert_eq!(stamper.settles, Time::ZERO, "nobody set the clock");
    }

    #[test]
    fn a_stamp_is_of_our_clock_and_a_clock_that_is_set_is_not_believed_for_a_while() {
        let mut stamper = stamper();
        let now = at(10 * S);
        assert_eq!(
            stamper.convert(software(15 * S - 300), now),
            Some(at(10 * S - 300))
        );
        assert_eq!(
            stamper.convert(software(15 * S + 1_000), now),
            None,
            "from the future"
        );
        assert_eq!(
            stamper.convert(software(13 * S), now),
            None,
            "two seconds old"
        );
        assert_eq!(stamper.convert(KernelStamp::default(), now), None);
        // Noise of the measurement is no step; the tighter one is kept.
        stamper.measured(5 * S as i64 + 90, 60, now);
        assert_eq!(
            (stamper.offset, stamper.settles),
            (5 * S as i64, Time::ZERO)
        );
        stamper.measured(5 * S as i64 - 20, 20, now);
        assert_eq!(
            (stamper.offset, stamper.settles),
            (5 * S as i64 - 20, Time::ZERO)
        );
        // Somebody sets it back by 30 ms.
        stamper.measured(5 * S as i64 - 30_000_000, 50, now);
        assert_eq!(stamper.settles, now + SETTLE);
        assert_eq!(stamper.convert(software(15 * S - 31_000_000), now), None);
        let later = now + SETTLE;
        let stamp = software(16 * S - 30_000_000 - 700);
        assert_eq!(stamper.convert(stamp, later), Some(at(11 * S - 700)));
    }

    #[test]
    fn stamps_of_an_interface_keep_their_differences_and_are_not_mixed_with_others() {
        let mut stamper = stamper();
        let both = |software: u64, hardware: u64| KernelStamp {
            software: Some(software),
            hardware: Some(hardware),
        };
        // The kernel is 4 µs, then 9 µs late; the interface's clock began at 7 ns.
        let first = stamper.convert(both(15 * S, 7), at(10 * S)).unwrap();
        let second = stamper
            .convert(both(15 * S + 105_000, 100_007), at(10 * S + 200_000))
            .unwrap();
        assert_eq!(second.since(first), Duration::from_micros(100));
        assert_eq!(stamper.convert(software(15 * S), at(10 * S)), None);
        let alone = KernelStamp {
            software: None,
            hardware: Some(200_007),
        };
        let third = stamper.convert(alone, at(10 * S + 300_000)).unwrap();
        assert_eq!(third.since(second), Duration::from_micros(100));
        // It drifts by more than a millisecond: put anew, and the age is right again.
        let late = stamper
            .convert(both(16 * S, S + 2_000_000), at(11 * S))
            .unwrap();
        assert_eq!(late, at(11 * S));
    }
}
