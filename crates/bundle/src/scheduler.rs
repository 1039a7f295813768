//! The sendbox's queues, one per class, and the rate limit behind them.

use ccplane_qdisc::{
    Backlog, Classes, DropReason, Drops, LineSpec, Packet, Qdisc, ShapedLink, Verdict,
};
use ccplane_units::{Duration, Rate, Time};

/// Longest time that a late caller can make up for. A driver thread that was delayed by the OS
/// scheduler catches up. One that was suspended, or held back by a slower uplink, does not send in
/// one burst what the limit would have spread over all that time.
pub const CATCH_UP_TIME_MAX: Duration = Duration::from_millis(20);

/// Queues followed by a rate limiter.
///
/// A rate change applies to the unsent part of the packet on the line and grants no extra credit.
/// Linux's token bucket filter refills on every change: at 100 changes per second it passed 22 to
/// 63 % more than the configured rate.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler<P> {
    queue: ShapedLink<P, Classes<P>>,
    rate: Option<Rate>,
    /// Pending rate change and its time. Applied by the next call with a drop handler, because
    /// serving the queue can drop packets.
    pending_rate: Option<(Option<Rate>, Time)>,
    /// Counters per class.
    totals: Box<[ClassTotals]>,
}

/// Counters of a class.
#[derive(Clone, Copy, Debug, Default)]
struct ClassTotals {
    packets: u64,
    bytes: u64,
    dropped: u64,
}

/// Snapshot of a traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStatus {
    /// Packets and bytes queued.
    pub backlog: Backlog,
    /// Packets sent since the classes were configured.
    pub packets: u64,
    /// Bytes sent since the classes were configured.
    pub bytes: u64,
    /// Packets dropped since the classes were configured.
    pub dropped: u64,
}

impl<P: Packet> Scheduler<P> {
    /// Creates a scheduler without a limit.
    pub fn new(queue: Classes<P>, now: Time) -> Scheduler<P> {
        Scheduler {
            totals: vec![ClassTotals::default(); queue.count()].into(),
            queue: ShapedLink::new(queue, &LineSpec::Unlimited, now),
            rate: None,
            pending_rate: None,
        }
    }

    /// Sets the rate limit; `None` removes it.
    pub fn set_rate(&mut self, now: Time, rate: Option<Rate>) {
        let changes = rate != self.rate;
        self.pending_rate = changes.then_some((rate, now));
    }

    /// Returns the rate limit.
    pub fn rate(&self) -> Option<Rate> {
        self.pending_rate.map_or(self.rate, |(rate, _)| rate)
    }

    /// Enqueues a packet.
    pub fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        self.apply_pending_rate(now, drops);
        self.queue
            .enqueue(now, packet, &mut counted(&mut self.totals, drops))
    }

    /// Returns the next packet that may be sent at `now`.
    pub fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.apply_pending_rate(now, drops);
        self.queue.skip_missed_departures(now - CATCH_UP_TIME_MAX);
        let packet = self
            .queue
            .dequeue(now, &mut counted(&mut self.totals, drops))?;
        let gone = of(&mut self.totals, &packet);
        gone.packets += 1;
        gone.bytes += u64::from(packet.bytes());
        Some(packet)
    }

    /// Returns the time at which the next packet may be sent or a rate change applies.
    pub fn next_ready(&self) -> Option<Time> {
        let ready = self.queue.next_ready();
        match self.pending_rate {
            // Without queued packets the change can wait for the next one.
            Some((_, since)) => ready.map(|ready| ready.min(since)),
            None => ready,
        }
    }

    /// Returns the packets and bytes queued.
    pub fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    /// Returns the number of packets dropped.
    pub fn dropped(&self) -> u64 {
        self.totals.iter().map(|gone| gone.dropped).sum()
    }

    /// Iterates over the classes in their order.
    pub fn classes(&self) -> impl Iterator<Item = ClassStatus> + '_ {
        let queue = self.queue.queue();
        let sending = self
            .queue
            .in_transmission()
            .map(|packet| (queue.class_of(packet), packet.bytes()));
        self.totals.iter().enumerate().map(move |(class, gone)| {
            let mut backlog = queue.class_backlog(class);
            if let Some((_, bytes)) = sending.filter(|(of, _)| *of == class) {
                backlog.add(bytes);
            }
            ClassStatus {
                backlog,
                packets: gone.packets,
                bytes: gone.bytes,
                dropped: gone.dropped,
            }
        })
    }

    #[inline]
    fn apply_pending_rate(&mut self, now: Time, drops: &mut impl Drops<P>) {
        if let Some((rate, _)) = self.pending_rate.take() {
            self.change_rate(now, rate, drops);
        }
    }

    #[cold]
    fn change_rate(&mut self, now: Time, rate: Option<Rate>, drops: &mut impl Drops<P>) {
        let line = rate.map_or(LineSpec::Unlimited, LineSpec::Constant);
        self.queue
            .set_line(now, &line, &mut counted(&mut self.totals, drops));
        self.rate = rate;
    }
}

/// Returns the counters of a packet's class. Out-of-range classes count as the last one.
fn of<'a>(gone: &'a mut [ClassTotals], packet: &impl Packet) -> &'a mut ClassTotals {
    let last = gone.len() - 1;
    &mut gone[usize::from(packet.class()).min(last)]
}

/// Wraps a drop handler so that drops are counted.
fn counted<'a, P: Packet>(
    gone: &'a mut [ClassTotals],
    drops: &'a mut impl Drops<P>,
) -> impl Drops<P> + 'a {
    move |packet: P, why: DropReason| {
        of(gone, &packet).dropped += 1;
        drops.dropped(packet, why);
    }
}

#[cfg(test)]
mod tests {
    use ccplane_qdisc::{ClassesSpec, QueueSpec};

    use super::*;

    #[derive(Clone, Copy, Debug)]
    struct FullPacket;

    impl Packet for FullPacket {
        fn bytes(&self) -> u32 {
            1_500
        }
    }

    fn unlimited(now: Time) -> Scheduler<FullPacket> {
        let queue = ClassesSpec::from(QueueSpec::UNLIMITED).build(None, Duration::ZERO, 1_500, 0);
        Scheduler::new(queue.expect("the queue has a packet"), now)
    }

    #[test]
    fn frequent_rate_changes_give_no_extra_bytes() {
        let start = Time::ZERO;
        let mut scheduler = unlimited(start);
        let mut drops = |_: FullPacket, _| {};
        // Alternates between 48 + 6 and 48 - 6 Mbit/s for 10 s.
        let mut sent = 0_u64;
        for step in 0..1_000_u64 {
            let begins = start + Duration::from_millis(10 * step);
            let rate = if step % 2 == 0 { 6_750_000 } else { 5_250_000 };
            scheduler.set_rate(begins, Some(Rate::from_bytes_per_sec(rate)));
            for _ in 0..60 {
                scheduler.enqueue(begins, FullPacket, &mut drops);
            }
            let ends = begins + Duration::from_millis(10);
            while let Some(at) = scheduler.next_ready().filter(|at| *at < ends) {
                let packet = scheduler.dequeue(at.max(begins), &mut drops);
                sent += packet.map_or(0, |packet| u64::from(packet.bytes()));
            }
        }
        let expected = 60_000_000;
        assert!(sent.abs_diff(expected) <= 2 * 1_500, "{sent}");
    }

    #[test]
    fn without_a_limit_everything_is_sent_at_once() {
        let mut scheduler = unlimited(Time::ZERO);
        let mut drops = |_: FullPacket, _| {};
        let slow = Rate::from_bytes_per_sec(1_500);
        scheduler.set_rate(Time::ZERO, Some(slow));
        for _ in 0..100 {
            scheduler.enqueue(Time::ZERO, FullPacket, &mut drops);
        }
        assert!(scheduler.dequeue(Time::ZERO, &mut drops).is_none());
        assert_eq!(scheduler.rate(), Some(slow));
        let now = Time::ZERO + Duration::from_millis(1);
        scheduler.set_rate(now, None);
        assert!(scheduler.next_ready().is_some_and(|ready| ready <= now));
        let out = std::iter::from_fn(|| scheduler.dequeue(now, &mut drops)).count();
        assert_eq!(out, 100);
    }

    #[test]
    fn late_polls_get_at_most_a_few_milliseconds_of_credit() {
        let mut scheduler = unlimited(Time::ZERO);
        let mut drops = |_: FullPacket, _| {};
        // One packet per millisecond.
        scheduler.set_rate(Time::ZERO, Some(Rate::from_bytes_per_sec(1_500_000)));
        for _ in 0..1_000 {
            let _ = scheduler.enqueue(Time::ZERO, FullPacket, &mut drops);
        }
        let mut now = Time::ZERO;
        for (after, expected) in [(5, 5), (10, 10), (500, 21), (20, 20)] {
            now += Duration::from_millis(after);
            let out = std::iter::from_fn(|| scheduler.dequeue(now, &mut drops)).count();
            assert_eq!(out, expected, "after {after} ms");
        }
    }
}
