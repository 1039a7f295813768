//! Limit on lower-class bytes queued in the kernel.
//!
//! A datagram that a socket has accepted cannot be recalled. A class 0 packet waits behind it in
//! every classless queue of this host, and always in the driver's ring. Lower classes are therefore
//! passed to the kernel only while little is queued there: as much as the device sends until the
//! next check. The limit is found as in Linux' byte queue limits (lib/dynamic_queue_limits.c): it
//! grows when the device has run dry, and shrinks while more than half of it is still queued at the
//! next check. Class 0 then waits for less than two check intervals of lower-class traffic at any
//! device rate. Devices that accept everything at once, such as TUN and loopback, are never limited
//! here; classes have to be enforced by the queue behind them.

use ccplane_units::{Duration, Time};

/// Interval between checks while data is held back. A shorter interval wakes the thread more often;
/// a longer one delays class 0 by as much.
const CHECK_INTERVAL: Duration = Duration::from_micros(500);

/// Check interval once the limit has reached half of the socket buffer: Linux' default of 208 KiB
/// then sustains 5 Gbit/s. A larger buffer instead would let class 0 itself build a longer queue in
/// the device than without lower classes.
const CHECK_INTERVAL_MIN: Duration = Duration::from_micros(100);

/// Lower bound of the limit: four Ethernet packets with the kernel's overhead, 5 ms at 10 Mbit/s.
const LIMIT_BYTES_MIN: usize = 4 * 2_304;
/// Initial limit, large enough that a fast device does not wait for it to grow: 0.6 ms at 1 Gbit/s.
const LIMIT_BYTES_INITIAL: usize = 8 * LIMIT_BYTES_MIN;

/// Byte limit for lower classes; see the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLimit {
    limit: usize,
    limit_max: usize,
    /// Time of the next check, while data is held back.
    next_check: Option<Time>,
}

impl QueueLimit {
    /// Creates a limit of at most half of the send buffer; the other half is reserved for class 0.
    pub fn new(send_buffer: usize) -> QueueLimit {
        let most = (send_buffer / 2).max(LIMIT_BYTES_MIN);
        QueueLimit {
            limit: LIMIT_BYTES_INITIAL.min(most),
            limit_max: most,
            next_check: None,
        }
    }

    /// Returns the bytes, including the kernel's overhead, that may be sent now. `waiting` returns
    /// the bytes queued in the kernel.
    pub fn allowance(&mut self, now: Time, waiting: impl FnOnce() -> usize) -> usize {
        if self.next_check.is_some_and(|look| now < look) {
            return 0;
        }
        let waiting = waiting();
        if self.next_check.take().is_some() {
            if waiting == 0 {
                self.limit = (self.limit * 2).min(self.limit_max);
            } else if waiting > self.limit / 2 {
                self.limit = (self.limit - self.limit / 8).max(LIMIT_BYTES_MIN);
            }
        }
        self.limit.saturating_sub(waiting)
    }

    /// Schedules the next check because more was ready than there was room for.
    pub fn schedule_check(&mut self, now: Time) {
        let wait = if self.limit == self.limit_max {
            CHECK_INTERVAL_MIN
        } else {
            CHECK_INTERVAL
        };
        self.next_check.get_or_insert(now + wait);
    }

    /// Cancels the next check: nothing is held back any more.
    pub fn cancel_check(&mut self) {
        self.next_check = None;
    }

    /// Returns the time of the next check.
    pub fn next_check(&self) -> Option<Time> {
        self.next_check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device with a steady rate is hardly ever idle and is not given much more than it sends.
    #[test]
    fn the_limit_is_what_the_device_sends_between_two_looks() {
        for per_look in [10_000, 60_000, 600_000] {
            let mut ahead = QueueLimit::new(4 << 20);
            let (mut waiting, mut idle, mut most) = (0usize, 0, 0);
            for look in 0..400 {
                let now = Time::ZERO + CHECK_INTERVAL * look;
                let settled = look >= 100;
                if settled {
                    idle += per_look - waiting.min(per_look);
                    most = most.max(waiting);
                }
                waiting = waiting.saturating_sub(per_look);
                waiting += ahead.allowance(now, || waiting);
                ahead.schedule_check(now);
                assert_eq!(ahead.allowance(now, || 0), 0, "not before the next poll");
            }
            let sent = 300 * per_look;
            assert!(
                idle <= sent / 10,
                "{per_look}: idle for {idle} bytes of {sent}"
            );
            assert!(
                most <= 2 * per_look.max(LIMIT_BYTES_MIN),
                "{per_look}: {most} bytes queued"
            );
        }
    }

    #[test]
    fn unlimited_devices_are_not_throttled_and_class_0_keeps_half_the_buffer() {
        let mut ahead = QueueLimit::new(200_000);
        let mut now = Time::ZERO;
        for _ in 0..20 {
            ahead.allowance(now, || 0);
            ahead.schedule_check(now);
            now += CHECK_INTERVAL;
        }
        assert_eq!(ahead.allowance(now, || 0), 100_000);
        assert_eq!(ahead.allowance(now, || 150_000), 0);
        assert_eq!(ahead.next_check(), None);
    }
}
