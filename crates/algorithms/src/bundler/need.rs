//! Whether a bundle has a reason to pulse: signs of cross traffic.
//!
//! A pulse costs 8 ms of queue, so a bundle that is alone on its link does not pulse. Without a
//! pulse it learns from its ordinary measurements that others have come. Either the cross traffic ẑ
//! = µ·S/R − S is above a tenth of the link, on average over half a second in which the link was
//! busy. Less cannot matter, and the detector ignores it, too. Or the queue in the network stays
//! above twice its aim for two seconds. Then the law cannot move it: it is somebody else's, or µ is
//! too small, which hides ẑ, and the pulse will show µ. A capacity that fell looks like cross
//! traffic, too, and the pulse shows that at once.
//!
//! Once needed, pulses last for at least a whole window of the detector.

use ccplane_units::{Duration, Time};

/// Cross traffic that matters, as a part of µ (the same as the reference's detector has). Less, and
/// noise makes pulses.
const SOMEBODY: f64 = 0.1;
/// Time over which ẑ and the queue are averaged, seconds: a few round trips.
const OVER: f64 = 0.5;
/// A queue of less than this is none, seconds, and ẑ is then only what the link has to spare.
const BUSY: f64 = 0.000_5;
/// A queue of so many times its aim ...
const TOO_LONG: f64 = 2.0;
/// ... for so long is not the law's. A law that begins needs about a second.
const FOR_LONG: Duration = Duration::from_secs(2);
/// How long after the last reason: the detector's window.
const LASTS: Duration = Duration::from_millis(5_120);

/// What was measured, and when it last gave a reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    /// ẑ over µ, averaged.
    cross: f64,
    /// Queue over its aim, averaged.
    queue: f64,
    /// When that was last short, and when there was none at all.
    short: Time,
    empty: Time,
    /// The last reason.
    reason: Option<Time>,
}

impl Need {
    /// Nothing is known, as when a limit begins.
    pub fn since(now: Time) -> Need {
        Need {
            short: now,
            empty: now,
            ..Need::default()
        }
    }

    /// What `elapsed` seconds showed: cross traffic as a part of µ, over an RTT of so many seconds,
    /// and the queue in the network and its aim, seconds. Where the queue was empty at some time in
    /// two RTTs, the rates over one have spare capacity in them.
    pub fn seen(
        &mut self,
        now: Time,
        elapsed: f64,
        (cross, rtt): (f64, f64),
        queue: f64,
        aim: f64,
    ) {
        let gain = elapsed / (OVER + elapsed);
        if queue <= BUSY {
            self.empty = now;
        }
        let busy = now.since(self.empty).as_secs_f64() > 2.0 * rtt;
        let cross = if busy { cross.clamp(-1.0, 1.0) } else { 0.0 };
        self.cross += gain * (cross - self.cross);
        self.queue += gain * (queue / aim - self.queue);
        if self.queue <= TOO_LONG {
            self.short = now;
        }
        if self.somebody() || now.since(self.short) >= FOR_LONG {
            self.reason = Some(now);
        }
    }

    /// ẑ as a part of µ.
    pub fn cross(&self) -> f64 {
        self.cross
    }

    /// Others share the link.
    pub fn somebody(&self) -> bool {
        self.cross > SOMEBODY
    }

    /// The queue in the network has been too long for so long that somebody should have done
    /// something.
    pub fn suffers(&self, now: Time) -> bool {
        now.since(self.short) >= LASTS
    }

    /// Pulses are needed.
    pub fn pulses(&self, now: Time) -> bool {
        self.reason.is_some_and(|last| now.since(last) < LASTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIM: f64 = 0.01;

    /// When pulses were first needed, ms, of so many.
    fn first(need: &mut Need, from: u64, millis: u64, cross: f64, queue: f64) -> Option<u64> {
        (from..from + millis).step_by(10).find(|ms| {
            let now = Time::ZERO + Duration::from_millis(*ms);
            need.seen(now, 0.01, (cross, 0.05), queue, AIM);
            need.pulses(now)
        })
    }

    #[test]
    fn alone_there_is_none() {
        let mut need = Need::since(Time::ZERO);
        assert_eq!(first(&mut need, 0, 60_000, 0.0, 0.012), None);
        // An empty link has capacity to spare, which is nobody's.
        assert_eq!(first(&mut need, 60_000, 60_000, 0.5, 0.000_1), None);
    }

    #[test]
    fn cross_traffic_is_noticed_within_a_second_and_forgotten_after_a_window() {
        let mut need = Need::since(Time::ZERO);
        first(&mut need, 0, 10_000, 0.0, 0.012);
        // Half of the link: a fifth of a half-second's average.
        let when = first(&mut need, 10_000, 5_000, 0.5, 0.012).expect("it is noticed");
        assert!((10_050..10_300).contains(&when), "{when}");
        let gone = (when + 10..30_000).step_by(10).find(|ms| {
            let now = Time::ZERO + Duration::from_millis(*ms);
            need.seen(now, 0.01, (0.0, 0.05), 0.012, AIM);
            !need.pulses(now)
        });
        assert!(
            gone.is_some_and(|ms| (5_100..5_300).contains(&(ms - when))),
            "{gone:?}"
        );
    }

    #[test]
    fn a_queue_that_does_not_go_is_a_reason() {
        let mut need = Need::since(Time::ZERO);
        let when = first(&mut need, 0, 10_000, 0.0, 0.05).expect("it is noticed");
        assert!((2_000..2_500).contains(&when), "{when}");
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        assert!(!need.suffers(at(when)) && need.suffers(at(6_000)) && !need.somebody());
    }
}
