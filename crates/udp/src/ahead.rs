//! How much of the lower classes the kernel is given ahead of time.
//!
//! What a socket has handed over cannot be called back: a packet of class 0 waits behind it in
//! every queue of this host that does not know of classes, and in the driver's ring in any case. So
//! lower classes are handed over only as long as little waits there, as much as the device sends
//! until the next look. That is found as Linux' byte queue limits find it
//! (lib/dynamic_queue_limits.c): the limit grows when the device has run dry, and shrinks while
//! more than half of it is left at the next look. Class 0 then waits for less than two looks' worth
//! of lower classes, whatever the device's rate. Devices that take everything at once, TUN and
//! loopback among them, never hold anything back here: behind them, whoever queues has to know
//! classes.

use ccplane_units::{Duration, Time};

/// Between two looks while something is held back. Shorter wakes the thread more often; longer
/// keeps class 0 waiting for as long.
const LOOK: Duration = Duration::from_micros(500);

/// The same where the socket's buffer is the limit: Linux' 208 KiB serve 5 Gbit/s then. A larger
/// buffer would let class 0 fill the device's queue as it could not without lower classes.
const SOON: Duration = Duration::from_micros(100);

/// The limit is never below this: four Ethernet packets with the kernel's overhead, 5 ms at 10
/// Mbit/s.
const LEAST: usize = 4 * 2_304;
/// Initial size, large enough that a fast device does not wait for it to grow: 0.6 ms at 1 Gbit/s.
const FIRST: usize = 8 * LEAST;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    limit: usize,
    most: usize,
    /// Something is held back: the next look.
    look: Option<Time>,
}

impl Ahead {
    /// Never more than half of what the socket's buffer takes: the other half is class 0's.
    pub fn new(send_buffer: usize) -> Ahead {
        let most = (send_buffer / 2).max(LEAST);
        Ahead {
            limit: FIRST.min(most),
            most,
            look: None,
        }
    }

    /// Bytes, with the kernel's overhead, that may be handed over now, where so many wait.
    pub fn room(&mut self, now: Time, waiting: impl FnOnce() -> usize) -> usize {
        if self.look.is_some_and(|look| now < look) {
            return 0;
        }
        let waiting = waiting();
        if self.look.take().is_some() {
            if waiting == 0 {
                self.limit = (self.limit * 2).min(self.most);
            } else if waiting > self.limit / 2 {
                self.limit = (self.limit - self.limit / 8).max(LEAST);
            }
        }
        self.limit.saturating_sub(waiting)
    }

    /// There was more to hand over than room.
    pub fn hold(&mut self, now: Time) {
        let wait = if self.limit == self.most { SOON } else { LOOK };
        self.look.get_or_insert(now + wait);
    }

    /// Nothing is held back any more: nobody need look.
    pub fn forget(&mut self) {
        self.look = None;
    }

    /// When to look again.
    pub fn look(&self) -> Option<Time> {
        self.look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that sends so many bytes between two looks is hardly idle, and not given much more
    /// than it sends.
    #[test]
    fn the_limit_is_what_the_device_sends_between_two_looks() {
        for per_look in [10_000, 60_000, 600_000] {
            let mut ahead = Ahead::new(4 << 20);
            let (mut waiting, mut idle, mut most) = (0usize, 0, 0);
            for look in 0..400 {
                let now = Time::ZERO + LOOK * look;
                let settled = look >= 100;
                if settled {
                    idle += per_look - waiting.min(per_look);
                    most = most.max(waiting);
                }
                waiting = waiting.saturating_sub(per_look);
                waiting += ahead.room(now, || waiting);
                ahead.hold(now);
                assert_eq!(ahead.room(now, || 0), 0, "not before the next look");
            }
            let sent = 300 * per_look;
            assert!(
                idle <= sent / 10,
                "{per_look}: idle for {idle} bytes of {sent}"
            );
            assert!(
                most <= 2 * per_look.max(LEAST),
                "{per_look}: {most} bytes wait"
            );
        }
    }

    #[test]
    fn a_device_that_takes_everything_holds_nothing_back_for_long_and_class_0_keeps_half_the_buffer()
     {
        let mut ahead = Ahead::new(200_000);
        let mut now = Time::ZERO;
        for _ in 0..20 {
            ahead.room(now, || 0);
            ahead.hold(now);
            now += LOOK;
        }
        assert_eq!(ahead.room(now, || 0), 100_000);
        assert_eq!(ahead.room(now, || 150_000), 0);
        assert_eq!(ahead.look(), None);
    }
}
