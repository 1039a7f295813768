//! Propagation: every packet takes the same time, and none overtakes another.

use ccplane_units::{Duration, Time};

/// A fixed delay that may be changed while packets are under way.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    delay: Duration,
    /// When the packet before arrives.
    last: Time,
}

impl Delay {
    /// A delay that no packet has passed yet.
    pub fn new(delay: Duration) -> Delay {
        Delay {
            delay,
            last: Time::ZERO,
        }
    }

    /// When the next packet arrives that departs then: after the delay, but not before the packet before it, which
    /// may have set out under a longer one.
    pub fn arrives(&mut self, departs: Time) -> Time {
        self.last = self.last.max(departs + self.delay);
        self.last
    }

    /// Changes the delay for the packets to come.
    pub fn set(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Plans anew from the packet on that follows one which arrives at `last`.
    pub fn replan_after(&mut self, last: Time) {
        self.last = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_delay_lets_nothing_overtake() {
        let mut delay = Delay::new(Duration::from_millis(10));
        assert_eq!(delay.arrives(Time::from_micros(1_000)), Time::from_micros(11_000));
        delay.set(Duration::from_millis(2));
        assert_eq!(delay.arrives(Time::from_micros(3_000)), Time::from_micros(11_000));
        assert_eq!(delay.arrives(Time::from_micros(12_000)), Time::from_micros(14_000));
        delay.replan_after(Time::from_micros(5_000));
        assert_eq!(delay.arrives(Time::from_micros(4_000)), Time::from_micros(6_000));
    }
}
