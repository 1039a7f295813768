//! CoDel (RFC 8289): drops at an increasing rate while the minimum sojourn time of an interval
//! stays above a target.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};

use crate::qdisc::try_mark;
use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// Settings of CoDel; sections 4.2 and 4.3 of RFC 8289 explain them and their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// Acceptable standing queue delay, 5 ms: 5 to 10 % of the interval. A lower target lets the
    /// link idle at times; a higher one adds delay without throughput.
    pub target: Duration,
    /// Time for which the sojourn time may exceed the target before the first drop, 100 ms: about
    /// the largest RTT in use. A shorter interval drops from bursts that would have drained; a
    /// longer one tolerates standing queues. An interval below the target is allowed: with a target
    /// of 100 ms and an interval of 5 ms, CoDel leaves a queue of up to 100 ms alone, like a
    /// drop-tail queue of that size, and starts to drop soon after the queue grows longer.
    pub interval: Duration,
    /// Marks ECN-capable packets instead of dropping them (optional in section 1; Linux does it).
    pub ecn: bool,
}

impl CodelConfig {
    /// Defaults of RFC 8289.
    pub const DEFAULT: CodelConfig = CodelConfig {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        ecn: false,
    };

    /// Returns the time of the next drop: `from` plus the interval over the square root of the drop
    /// count, so that the drop rate grows linearly with time and throughput falls linearly
    /// (sections 3.3 and 5.6). The square root is exact, rounded down to the nanosecond, while
    /// Linux uses a 16-bit Newton approximation.
    fn control_law(&self, from: Time, count: u32) -> Time {
        let interval = u128::from(self.interval.as_nanos());
        let wait = (interval * interval / u128::from(count.max(1))).isqrt();
        from + Duration::from_nanos(wait as u64)
    }
}

/// FIFO queue managed by CoDel.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    config: CodelConfig,
    limit: Limit,
    mtu: u32,
    queue: CodelQueue<P>,
}

impl<P: Packet> Codel<P> {
    /// Creates an empty queue with a hard limit of `limit`. CoDel never drops from a backlog of at
    /// most `mtu` bytes, the size of the largest packet, so that it does not starve a slow link.
    pub fn new(config: CodelConfig, limit: Limit, mtu: u32) -> Codel<P> {
        Codel {
            config,
            limit,
            mtu,
            queue: CodelQueue::default(),
        }
    }
}

impl<P: Packet> Qdisc<P> for Codel<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if !self.limit.admits(self.queue.backlog, packet.bytes()) {
            drops.dropped(packet, DropReason::Full);
            return Verdict::Dropped(DropReason::Full);
        }
        self.queue.push(now, packet);
        Verdict::Queued
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.queue.dequeue(&self.config, self.mtu, now, drops)
    }

    fn next_ready(&self) -> Option<Time> {
        (self.queue.backlog.packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog
    }
}

/// FIFO with the state of CoDel's control law: the queue of CoDel, or of one flow in FQ-CoDel.
#[derive(Clone, Debug)]
pub(crate) struct CodelQueue<P> {
    waiting: VecDeque<(Time, P)>,
    pub(crate) backlog: Backlog,
    /// Time at which the sojourn time will have been above the target for one interval; `None`
    /// while it is below.
    first_above: Option<Time>,
    drop_next: Time,
    /// Drops since the dropping state was entered.
    count: u32,
    /// Value of `count` when the dropping state was last entered.
    last_count: u32,
    dropping: bool,
}

impl<P> Default for CodelQueue<P> {
    fn default() -> CodelQueue<P> {
        CodelQueue {
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }
}

impl<P: Packet> CodelQueue<P> {
    pub(crate) fn push(&mut self, now: Time, packet: P) {
        self.backlog.add(packet.bytes());
        self.waiting.push_back((now, packet));
    }

    /// Removes the oldest packet and its arrival time without consulting the control law.
    pub(crate) fn pop(&mut self) -> Option<(Time, P)> {
        let (arrived, packet) = self.waiting.pop_front()?;
        self.backlog.remove(packet.bytes());
        Some((arrived, packet))
    }

    /// `dequeue` of section 5.5.
    pub(crate) fn dequeue(
        &mut self,
        config: &CodelConfig,
        mtu: u32,
        now: Time,
        drops: &mut impl Drops<P>,
    ) -> Option<P> {
        let (mut packet, mut ok_to_drop) = self.do_dequeue(config, mtu, now);
        if self.dropping {
            self.dropping = ok_to_drop;
            // With a large backlog several drops can be due at once.
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.mark_or_drop(config, &mut packet, drops) {
                    self.drop_next = config.control_law(self.drop_next, self.count);
                    break;
                }
                (packet, ok_to_drop) = self.do_dequeue(config, mtu, now);
                self.dropping = ok_to_drop;
                if ok_to_drop {
                    self.drop_next = config.control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            if !self.mark_or_drop(config, &mut packet, drops) {
                (packet, _) = self.do_dequeue(config, mtu, now);
            }
            self.dropping = true;
            // If the dropping state was left only recently, its drop rate is a good starting point.
            let delta = self.count.saturating_sub(self.last_count);
            let recent = now.since(self.drop_next) < config.interval * 16;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = config.control_law(now, self.count);
            self.last_count = self.count;
        }
        packet
    }

    /// `dodequeue` of section 5.6. Returns the next packet, and whether the sojourn time has
    /// exceeded the target for a whole interval.
    fn do_dequeue(&mut self, config: &CodelConfig, mtu: u32, now: Time) -> (Option<P>, bool) {
        let Some((arrived, packet)) = self.pop() else {
            self.first_above = None;
            return (None, false);
        };
        if now.since(arrived) < config.target || self.backlog.bytes <= u64::from(mtu) {
            self.first_above = None;
            return (Some(packet), false);
        }
        let first_above = *self.first_above.get_or_insert(now + config.interval);
        (Some(packet), now >= first_above)
    }

    /// Marks the packet and returns true, or drops it and returns false.
    fn mark_or_drop(
        &self,
        config: &CodelConfig,
        packet: &mut Option<P>,
        drops: &mut impl Drops<P>,
    ) -> bool {
        if config.ecn && packet.as_mut().is_some_and(try_mark) {
            return true;
        }
        if let Some(packet) = packet.take() {
            drops.dropped(packet, DropReason::Aqm);
        }
        false
    }
}
