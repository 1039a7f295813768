//! CoDel: drops, ever faster, while the shortest wait of an interval stays above a target (RFC
//! 8289).

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};

use crate::qdisc::try_mark;
use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// Settings of CoDel (RFC 8289 sections 4.2 and 4.3 for what they do and their defaults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// The standing wait that is acceptable, 5 ms: 5 to 10 % of the interval. Below it links idle
    /// at times, above it only delay grows.
    pub target: Duration,
    /// How long the wait may stay above the target before anything is dropped, 100 ms: about the
    /// largest round-trip time in use. Shorter drops what would have drained by itself; longer lets
    /// a queue stand. It may be below the target: 100 ms and 5 ms leave a queue of up to 100 ms
    /// alone, as a drop-tail queue of that size, and thin out a longer one at once.
    pub interval: Duration,
    /// Whether packets that understand marks are marked instead of dropped (section 1 allows it; as
    /// Linux does it).
    pub ecn: bool,
}

impl CodelConfig {
    /// The defaults.
    pub const DEFAULT: CodelConfig = CodelConfig {
        target: Duration::from_millis(5),
        interval: Duration::from_millis(100),
        ecn: false,
    };

    /// When to drop next, `count` drops after the first: the interval over the square root of the
    /// count, so that the rate of drops grows linearly with time and throughput falls linearly with
    /// it (sections 3.3 and 5.6). Exact, rounded down to the nanosecond, where Linux takes 16 bits
    /// of Newton's approximation.
    fn control_law(&self, from: Time, count: u32) -> Time {
        let interval = u128::from(self.interval.as_nanos());
        let wait = (interval * interval / u128::from(count.max(1))).isqrt();
        from + Duration::from_nanos(wait as u64)
    }
}

/// One queue under CoDel.
#[derive(Clone, Debug)]
pub struct Codel<P> {
    config: CodelConfig,
    limit: Limit,
    mtu: u32,
    queue: Controlled<P>,
}

impl<P: Packet> Codel<P> {
    /// An empty queue that also drops what finds it at `limit`. A backlog of at most `mtu` bytes,
    /// the largest packet, is left alone, so that a slow line is never starved.
    pub fn new(config: CodelConfig, limit: Limit, mtu: u32) -> Codel<P> {
        Codel {
            config,
            limit,
            mtu,
            queue: Controlled::default(),
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

/// Packets in order with the state of the control law: all of CoDel, or one flow's of FQ-CoDel.
#[derive(Clone, Debug)]
pub(crate) struct Controlled<P> {
    waiting: VecDeque<(Time, P)>,
    pub(crate) backlog: Backlog,
    /// When the wait will have been above the target for an interval, if it is above now.
    first_above: Option<Time>,
    drop_next: Time,
    /// Drops since dropping began.
    count: u32,
    /// What `count` began with when dropping began last.
    last_count: u32,
    dropping: bool,
}

impl<P> Default for Controlled<P> {
    fn default() -> Controlled<P> {
        Controlled {
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

impl<P: Packet> Controlled<P> {
    pub(crate) fn push(&mut self, now: Time, packet: P) {
        self.backlog.add(packet.bytes());
        self.waiting.push_back((now, packet));
    }

    /// The oldest packet and when it came, past the control law.
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
        let (mut packet, mut ok_to_drop) = self.next(config, mtu, now);
        if self.dropping {
            self.dropping = ok_to_drop;
            // A large backlog may want several drops at once.
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.mark_or_drop(config, &mut packet, drops) {
                    self.drop_next = config.control_law(self.drop_next, self.count);
                    break;
                }
                (packet, ok_to_drop) = self.next(config, mtu, now);
                self.dropping = ok_to_drop;
                if ok_to_drop {
                    self.drop_next = config.control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            if !self.mark_or_drop(config, &mut packet, drops) {
                (packet, _) = self.next(config, mtu, now);
            }
            self.dropping = true;
            // If the wait went above the target soon after it fell below, the rate of drops that
            // held it the last time is a good one to begin with.
            let delta = self.count.saturating_sub(self.last_count);
            let recent = now.since(self.drop_next) < config.interval * 16;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = config.control_law(now, self.count);
            self.last_count = self.count;
        }
        packet
    }

    /// `dodequeue` of section 5.6: the next packet, and whether the wait has been above the target
    /// for an interval.
    fn next(&mut self, config: &CodelConfig, mtu: u32, now: Time) -> (Option<P>, bool) {
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

    /// Marks the packet and leaves it, or drops it.
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
