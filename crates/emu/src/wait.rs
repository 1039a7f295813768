//! How long to sleep before the next packet is due, and when to spin instead.

use ccplane_units::{Duration, Time};

use crate::Timing;

/// `Timing::Balanced` does not wake up twice within this for packets that are due: a wake-up costs
/// as much as ten packets. Shorter, and 96 Mbit/s with acknowledgements costs half a processor on a
/// virtual machine; longer, and packets are later than the wake-up itself makes them.
const QUANTUM: Duration = Duration::from_micros(100);

/// `Timing::Precise` spins while packets are inside: a processor of a virtual machine that has been
/// idle wakes up to 0.3 ms late, for a packet that is due as for one that arrives. But the kernel
/// would stop a thread that never sleeps for 50 ms of every second to let others run
/// (`sched_rt_runtime_us` and, since Linux 6.12, the fair server). So it owes the processor one
/// part of rest for this many parts of work: 6 %. More parts, and the kernel's longer stops come;
/// fewer, and more packets meet a late wake-up.
const WORK_FOR_REST: i64 = 15;

/// How long before a packet is due such a rest ends, for a processor that has slept for
/// microseconds only: shorter, and late wake-ups show; longer, and at 96 Mbit/s (a packet every 125
/// µs, and its acknowledgement) there is no gap to rest in.
const SPIN: Duration = Duration::from_micros(75);

/// No rest is shorter, falling asleep and waking up takes some microseconds, and none longer: a
/// packet that arrives meanwhile waits for its end.
const SHORTEST_REST: Duration = Duration::from_micros(10);
const LONGEST_REST: Duration = Duration::from_micros(100);

/// Who owes that much has found no gap for a while, and rests although packets will be late: by as
/// much as the rest, rather than by the kernel's 50 ms.
const OVERDUE_NS: i64 = 500_000;
const FORCED_REST: Duration = Duration::from_micros(50);

/// A long sleep, as of a link that was empty, is no leave to work without rest for long.
const MOST_IN_ADVANCE_NS: i64 = -100_000;

/// CPU share that `Timing::Precise` reserves. It must be more than the emulator takes with its
/// rests, so that the kernel never stops it: the kernel checks rarely, and would stop it for some
/// 0.2 ms. It must be less than all, so that others always get something. The period is the
/// shortest in which both hold to 10 µs.
const RESERVED: Duration = Duration::from_micros(990);
const PERIOD: Duration = Duration::from_millis(1);

/// What a thread that drives a link owes, and how it waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    timing: Timing,
    /// The rest that is owed, ns; below zero for what was taken in advance.
    owed: i64,
    /// Up to when work and rest are accounted for.
    since: Time,
    /// When the thread came back from its last sleep.
    woken: Time,
}

impl Waiter {
    pub(crate) fn new(timing: Timing) -> Waiter {
        Waiter {
            timing,
            owed: 0,
            since: Time::ZERO,
            woken: Time::ZERO,
        }
    }

    /// Puts the calling thread before others, in the way that suits how it waits. Without the
    /// privilege it still works, only later; the audit tells.
    pub(crate) fn claim(&self) -> Result<(), ccplane_host::Error> {
        let spins = self.timing == Timing::Precise;
        let reserved = spins && ccplane_host::reserve(RESERVED.to_std(), PERIOD.to_std()).is_ok();
        if reserved {
            Ok(())
        } else {
            ccplane_host::raise_priority()
        }
    }

    /// How long to sleep at `now` when the next packet is due then.
    pub(crate) fn sleep(&mut self, now: Time, due: Time) -> Duration {
        self.owed += self.passed(now) / WORK_FOR_REST;
        let until_due = due.since(now);
        match self.timing {
            Timing::Balanced if until_due > Duration::ZERO => {
                until_due.max((self.woken + QUANTUM).since(now))
            }
            Timing::Balanced => Duration::ZERO,
            Timing::Precise => {
                let gap = until_due.saturating_sub(SPIN).min(LONGEST_REST);
                if self.owed > OVERDUE_NS {
                    gap.max(FORCED_REST)
                } else if self.owed > 0 && gap > SHORTEST_REST {
                    gap
                } else {
                    Duration::ZERO
                }
            }
        }
    }

    /// The thread is back from a sleep.
    pub(crate) fn woke(&mut self, now: Time) {
        self.owed = (self.owed - self.passed(now)).max(MOST_IN_ADVANCE_NS);
        self.woken = now;
    }

    /// Nanoseconds since the last call.
    fn passed(&mut self, now: Time) -> i64 {
        let passed = now.since(self.since).as_nanos();
        self.since = now;
        i64::try_from(passed).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn balanced_sleeps_to_the_packet_and_wakes_up_every_100_us_at_most() {
        let mut waiter = Waiter::new(Timing::Balanced);
        let now = Time::from_micros(1_000);
        assert_eq!(waiter.sleep(now, now + US(700)), US(700));
        waiter.woke(now + US(700));
        assert_eq!(waiter.sleep(now + US(710), now + US(720)), US(90));
        // What is due already is not kept waiting.
        assert_eq!(waiter.sleep(now + US(710), now + US(705)), Duration::ZERO);
    }

    #[test]
    fn precise_spins_before_a_packet_and_rests_often_enough_not_to_be_stopped() {
        let mut waiter = Waiter::new(Timing::Precise);
        let mut now = Time::from_micros(1_000);
        waiter.woke(now);
        assert_eq!(
            waiter.sleep(now, now + US(10_000)),
            Duration::ZERO,
            "nothing owed"
        );
        now += US(2_000);
        assert_eq!(
            waiter.sleep(now, now + US(8_000)),
            US(100),
            "short, for a packet that may arrive"
        );
        now += US(100);
        waiter.woke(now);
        // A packet every 10 ms, 125 µs or 12 µs, for a second: 5 % is what the kernel would take.
        for (gap, late_at_most) in [(10_000, 0), (125, 0), (12, 50)] {
            let (begin, mut due, mut slept, mut latest) = (now, now, 0, 0);
            while now.since(begin) < Duration::from_secs(1) {
                due = due.max(now) + US(gap);
                while now < due {
                    let sleep = waiter.sleep(now, due);
                    if sleep > Duration::ZERO {
                        slept += sleep.as_micros();
                        now += sleep;
                        waiter.woke(now);
                        latest = latest.max(now.since(due).as_micros());
                    } else {
                        now += US(1);
                    }
                }
            }
            assert!(
                (55_000..70_000).contains(&slept),
                "{gap}: {slept} us of rest"
            );
            assert!(latest <= late_at_most, "{gap}: {latest} us late");
        }
    }
}
