//! `Micros`, the clock of a program: µs since the program was set, or since the program or its
//! agent set the clock.

use ccplane_units::{Duration, Time};

/// Settable clock that runs at the speed of the transport's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgramClock {
    /// Time at which it showed 0, in ns modulo 2^64. It may precede the epoch of the transport's
    /// clock.
    origin_ns: u64,
}

impl ProgramClock {
    /// Creates a clock that shows 0 at `now`.
    pub fn starting_at(now: Time) -> ProgramClock {
        ProgramClock {
            origin_ns: now.as_nanos(),
        }
    }

    /// Sets the clock to `micros` at `now`, at most 146 years.
    pub fn set(&mut self, now: Time, micros: u64) {
        let ns = Duration::from_micros(micros).as_nanos().min(1 << 62);
        self.origin_ns = now.as_nanos().wrapping_sub(ns);
    }

    /// Value of the clock, µs.
    #[inline(always)]
    pub fn micros(self, now: Time) -> u64 {
        self.elapsed(now).as_micros()
    }

    /// Time at which the clock first exceeds `micros`; `Time::MAX` if never.
    #[inline(always)]
    pub fn time_exceeding(self, micros: u64, now: Time) -> Time {
        let due = Duration::from_micros(micros.saturating_add(1));
        if due == Duration::MAX {
            return Time::MAX;
        }
        now + due.saturating_sub(self.elapsed(now))
    }

    /// Time since the clock showed 0; zero if the transport's clock went back beyond that.
    #[inline(always)]
    fn elapsed(self, now: Time) -> Duration {
        let ns = now.as_nanos().wrapping_sub(self.origin_ns);
        Duration::from_nanos(if ns > i64::MAX as u64 { 0 } else { ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micros_continue_from_the_value_set() {
        let mut clock = ProgramClock::starting_at(Time::from_micros(50));
        assert_eq!(clock.micros(Time::from_micros(57)), 7);
        // Set to more than the transport's clock shows.
        clock.set(Time::from_micros(60), 1_000_000);
        assert_eq!(clock.micros(Time::from_micros(60)), 1_000_000);
        assert_eq!(clock.micros(Time::from_micros(61)), 1_000_001);
    }

    #[test]
    fn micros_exceed_a_threshold_one_microsecond_later() {
        let clock = ProgramClock::starting_at(Time::from_nanos(300));
        let at = clock.time_exceeding(10, Time::from_nanos(300));
        assert_eq!(at, Time::from_nanos(300 + 11_000));
        assert_eq!(
            (clock.micros(at), clock.micros(at - Duration::from_nanos(1))),
            (11, 10)
        );
        assert_eq!(clock.time_exceeding(u64::MAX, Time::ZERO), Time::MAX);
    }

    #[test]
    fn micros_stop_when_the_clock_goes_back() {
        let clock = ProgramClock::starting_at(Time::from_micros(50));
        assert_eq!(clock.micros(Time::from_micros(20)), 0);
    }
}
