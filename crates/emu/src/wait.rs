//! Sleeping and spinning until the next packet is due.

use ccplane_units::{Duration, Time};

use crate::Timing;

/// Minimum time between two wake-ups of `Timing::Balanced` for due packets, since a wake-up costs
/// as much as ten packets. With a shorter one, 96 Mbit/s with ACKs takes half a CPU on a virtual
/// machine; with a longer one, packets are later than the wake-up latency.
const WAKEUP_INTERVAL_MIN: Duration = Duration::from_micros(100);

/// Work per unit of rest of `Timing::Precise`, which rests 6 % of the time. It spins while packets
/// are inside, since an idle CPU of a virtual machine wakes up to 0.3 ms late, for due packets and
/// arriving ones alike. But the kernel would throttle a thread that never sleeps for 50 ms of every
/// second (`sched_rt_runtime_us` and, since Linux 6.12, the fair server). With a higher value the
/// kernel throttles; with a lower one, more packets meet a late wake-up.
const WORK_PER_REST: i64 = 15;

/// Time between the end of a rest and the next due packet, for a CPU that has slept for
/// microseconds only. With a shorter one late wake-ups show; with a longer one 96 Mbit/s (a packet
/// every 125 µs, plus its ACK) leaves no gap to rest in.
const SPIN_TIME: Duration = Duration::from_micros(75);

/// Bounds of a rest: sleeping and waking take some microseconds, and a packet that arrives during a
/// rest waits for its end.
const REST_MIN: Duration = Duration::from_micros(10);
const REST_MAX: Duration = Duration::from_micros(100);

/// Owed rest above which a thread rests even without a gap. Packets are then late by the length of
/// this rest rather than by the kernel's 50 ms.
const OWED_REST_NS_MAX: i64 = 500_000;
const FORCED_REST: Duration = Duration::from_micros(50);

/// Largest credit: a long sleep, as on an empty link, does not permit long work without rest.
const OWED_REST_NS_MIN: i64 = -100_000;

/// CPU reservation of `Timing::Precise`. It must exceed the emulator's use, including its rests, so
/// that the kernel never throttles it: the kernel checks rarely, and would stop it for about 0.2
/// ms. It must be less than the period, so that others always get something. The period is the
/// shortest that satisfies both within 10 µs.
const RESERVED_RUNTIME: Duration = Duration::from_micros(990);
const RESERVATION_PERIOD: Duration = Duration::from_millis(1);

/// Accounting of work and rest of a thread that drives a link.
#[derive(Debug)]
pub(crate) struct Waiter {
    timing: Timing,
    /// Owed rest, ns; negative for rest taken in advance.
    owed_rest: i64,
    /// Time up to which work and rest are accounted for.
    accounted_until: Time,
    /// End of the thread's last sleep.
    last_wakeup: Time,
}

impl Waiter {
    pub(crate) fn new(timing: Timing) -> Waiter {
        Waiter {
            timing,
            owed_rest: 0,
            accounted_until: Time::ZERO,
            last_wakeup: Time::ZERO,
        }
    }

    /// Raises the priority of the calling thread, as its method of waiting requires. Without the
    /// privilege it still works, but is later; the audit shows it.
    pub(crate) fn raise_priority(&self) -> Result<(), ccplane_host::Error> {
        let spins = self.timing == Timing::Precise;
        let reserved = spins
            && ccplane_host::reserve_cpu(RESERVED_RUNTIME.to_std(), RESERVATION_PERIOD.to_std())
                .is_ok();
        if reserved {
            Ok(())
        } else {
            ccplane_host::raise_priority()
        }
    }

    /// Returns the time to sleep at `now` if the next packet is due at `due`.
    pub(crate) fn sleep(&mut self, now: Time, due: Time) -> Duration {
        self.owed_rest += self.elapsed(now) / WORK_PER_REST;
        let until_due = due.since(now);
        match self.timing {
            Timing::Balanced if until_due > Duration::ZERO => {
                until_due.max((self.last_wakeup + WAKEUP_INTERVAL_MIN).since(now))
            }
            Timing::Balanced => Duration::ZERO,
            Timing::Precise => {
                let gap = until_due.saturating_sub(SPIN_TIME).min(REST_MAX);
                if self.owed_rest > OWED_REST_NS_MAX {
                    gap.max(FORCED_REST)
                } else if self.owed_rest > 0 && gap > REST_MIN {
                    gap
                } else {
                    Duration::ZERO
                }
            }
        }
    }

    /// Records the end of a sleep.
    pub(crate) fn on_wakeup(&mut self, now: Time) {
        self.owed_rest = (self.owed_rest - self.elapsed(now)).max(OWED_REST_NS_MIN);
        self.last_wakeup = now;
    }

    /// Returns the nanoseconds since the last call.
    fn elapsed(&mut self, now: Time) -> i64 {
        let passed = now.since(self.accounted_until).as_nanos();
        self.accounted_until = now;
        i64::try_from(passed).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn balanced_sleeps_to_the_packet_and_wakes_up_every_100_us_at_most() {
        let mut waiter = Waiter::new(Timing::Balanced);
        let now = Time::from_micros(1_000);
        assert_eq!(waiter.sleep(now, now + MICROS(700)), MICROS(700));
        waiter.on_wakeup(now + MICROS(700));
        assert_eq!(
            waiter.sleep(now + MICROS(710), now + MICROS(720)),
            MICROS(90)
        );
        // A packet that is already due is not delayed.
        assert_eq!(
            waiter.sleep(now + MICROS(710), now + MICROS(705)),
            Duration::ZERO
        );
    }

    #[test]
    fn precise_spins_before_a_packet_and_rests_often_enough_not_to_be_stopped() {
        let mut waiter = Waiter::new(Timing::Precise);
        let mut now = Time::from_micros(1_000);
        waiter.on_wakeup(now);
        assert_eq!(
            waiter.sleep(now, now + MICROS(10_000)),
            Duration::ZERO,
            "nothing owed"
        );
        now += MICROS(2_000);
        assert_eq!(
            waiter.sleep(now, now + MICROS(8_000)),
            MICROS(100),
            "short, because a packet may arrive"
        );
        now += MICROS(100);
        waiter.on_wakeup(now);
        // A packet every 10 ms, 125 µs or 12 µs, for a second; the kernel would take 5 %.
        for (gap, late_at_most) in [(10_000, 0), (125, 0), (12, 50)] {
            let (begin, mut due, mut slept, mut latest) = (now, now, 0, 0);
            while now.since(begin) < Duration::from_secs(1) {
                due = due.max(now) + MICROS(gap);
                while now < due {
                    let sleep = waiter.sleep(now, due);
                    if sleep > Duration::ZERO {
                        slept += sleep.as_micros();
                        now += sleep;
                        waiter.on_wakeup(now);
                        latest = latest.max(now.since(due).as_micros());
                    } else {
                        now += MICROS(1);
                    }
                }
            }
            assert!((55_000..70_000).contains(&slept), "{gap}: slept {slept} us");
            assert!(latest <= late_at_most, "{gap}: {latest} us late");
        }
    }
}
