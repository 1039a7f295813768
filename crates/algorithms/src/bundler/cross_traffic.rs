//! Signs of cross traffic that make pulses necessary.
//!
//! A pulse needs 8 ms of queue, so a bundle that is alone on its link does not pulse. Without a
//! pulse, its regular measurements reveal other flows in two ways:
//!
//! - The cross traffic ẑ = µ·S/R − S exceeds a tenth of the link, averaged over half a second in
//!   which the link was busy. Less is irrelevant and ignored by the detector as well.
//! - The queue in the network exceeds twice its target for two seconds, so the law cannot shorten
//!   it. Either other flows fill it, or µ is too low, which hides ẑ and which the pulse will
//!   correct.
//!
//! A decrease of the capacity also looks like cross traffic, until the pulse shows the new
//! capacity.
//!
//! Once necessary, pulses continue for at least a full window of the detector.

use ccplane_units::{Duration, Time};

/// Minimum relevant cross traffic as a fraction of µ, as in the reference's detector. With less,
/// noise triggers pulses.
const CROSS_SHARE_MIN: f64 = 0.1;
/// Time constant of the averages of ẑ and the queue, seconds: a few round trips.
const AVERAGING_SECONDS: f64 = 0.5;
/// Minimum queue of a busy link, seconds. Below it, ẑ is only spare capacity.
const BUSY_LINK_QUEUE_SECONDS: f64 = 0.000_5;
/// A queue of this multiple of its target ...
const QUEUE_EXCESS_RATIO: f64 = 2.0;
/// ... for this long is not due to the control law, which needs about a second to settle.
const QUEUE_EXCESS_PERIOD: Duration = Duration::from_secs(2);
/// Duration of pulses after the last sign: the detector's window.
const PULSE_HOLD_TIME: Duration = Duration::from_millis(5_120);

/// Averaged measurements, and the time of the last sign.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CrossTrafficSigns {
    /// Averaged ẑ over µ.
    cross: f64,
    /// Averaged queue over its target.
    queue: f64,
    /// Last time that this average was not excessive, and last time without a queue.
    last_short_queue: Time,
    last_empty_queue: Time,
    /// Time of the last sign.
    last_sign: Option<Time>,
}

impl CrossTrafficSigns {
    /// Starts without measurements, when a limit begins.
    pub fn new(now: Time) -> CrossTrafficSigns {
        CrossTrafficSigns {
            last_short_queue: now,
            last_empty_queue: now,
            ..CrossTrafficSigns::default()
        }
    }

    /// Adds the measurements of `elapsed` seconds: cross traffic as a fraction of µ, measured over
    /// an RTT in seconds, and the queue in the network and its target, seconds. If the queue was
    /// empty at some time in two RTTs, the rates over one RTT include spare capacity.
    pub fn update(
        &mut self,
        now: Time,
        elapsed: f64,
        (cross, rtt): (f64, f64),
        queue: f64,
        target: f64,
    ) {
        let gain = elapsed / (AVERAGING_SECONDS + elapsed);
        if queue <= BUSY_LINK_QUEUE_SECONDS {
            self.last_empty_queue = now;
        }
        let busy = now.since(self.last_empty_queue).as_secs_f64() > 2.0 * rtt;
        let cross = if busy { cross.clamp(-1.0, 1.0) } else { 0.0 };
        self.cross += gain * (cross - self.cross);
        self.queue += gain * (queue / target - self.queue);
        if self.queue <= QUEUE_EXCESS_RATIO {
            self.last_short_queue = now;
        }
        if self.has_cross_traffic() || now.since(self.last_short_queue) >= QUEUE_EXCESS_PERIOD {
            self.last_sign = Some(now);
        }
    }

    /// Returns ẑ as a fraction of µ.
    pub fn cross(&self) -> f64 {
        self.cross
    }

    /// Returns true if other flows share the link.
    pub fn has_cross_traffic(&self) -> bool {
        self.cross > CROSS_SHARE_MIN
    }

    /// Returns true if the queue in the network has been excessive for a full window of the
    /// detector: the pulser should have reacted.
    pub fn has_excessive_queue(&self, now: Time) -> bool {
        now.since(self.last_short_queue) >= PULSE_HOLD_TIME
    }

    /// Returns true if pulses are necessary.
    pub fn needs_pulses(&self, now: Time) -> bool {
        self.last_sign
            .is_some_and(|last| now.since(last) < PULSE_HOLD_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE_TARGET_SECONDS: f64 = 0.01;

    /// Returns when pulses first become necessary, ms, within `millis`.
    fn first(
        need: &mut CrossTrafficSigns,
        from: u64,
        millis: u64,
        cross: f64,
        queue: f64,
    ) -> Option<u64> {
        (from..from + millis).step_by(10).find(|ms| {
            let now = Time::ZERO + Duration::from_millis(*ms);
            need.update(now, 0.01, (cross, 0.05), queue, QUEUE_TARGET_SECONDS);
            need.needs_pulses(now)
        })
    }

    #[test]
    fn no_cross_traffic_is_detected_alone() {
        let mut need = CrossTrafficSigns::new(Time::ZERO);
        assert_eq!(first(&mut need, 0, 60_000, 0.0, 0.012), None);
        // An idle link has spare capacity, which is not cross traffic.
        assert_eq!(first(&mut need, 60_000, 60_000, 0.5, 0.000_1), None);
    }

    #[test]
    fn cross_traffic_is_noticed_within_a_second_and_forgotten_after_a_window() {
        let mut need = CrossTrafficSigns::new(Time::ZERO);
        first(&mut need, 0, 10_000, 0.0, 0.012);
        // Half of the link: a fifth of the average over half a second.
        let when = first(&mut need, 10_000, 5_000, 0.5, 0.012).expect("cross traffic is detected");
        assert!((10_050..10_300).contains(&when), "{when}");
        let gone = (when + 10..30_000).step_by(10).find(|ms| {
            let now = Time::ZERO + Duration::from_millis(*ms);
            need.update(now, 0.01, (0.0, 0.05), 0.012, QUEUE_TARGET_SECONDS);
            !need.needs_pulses(now)
        });
        assert!(
            gone.is_some_and(|ms| (5_100..5_300).contains(&(ms - when))),
            "{gone:?}"
        );
    }

    #[test]
    fn a_persistent_queue_suggests_cross_traffic() {
        let mut need = CrossTrafficSigns::new(Time::ZERO);
        let when = first(&mut need, 0, 10_000, 0.0, 0.05).expect("cross traffic is detected");
        assert!((2_000..2_500).contains(&when), "{when}");
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        assert!(
            !need.has_excessive_queue(at(when))
                && need.has_excessive_queue(at(6_000))
                && !need.has_cross_traffic()
        );
    }
}
