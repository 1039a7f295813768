//! A token bucket in front of any queue: so many bytes per second on average, and at most a burst at once.

use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::line::{FASTEST, NANO};
use crate::{Backlog, DropReason, Drops, Packet, Qdisc, Verdict};

/// A queue whose packets leave when there are tokens for all their bytes, as in Linux' `tbf`.
///
/// The packet whose turn it is waits for its tokens outside the queue, so that a scheduler inside decides one packet
/// ahead, and its limit does not count that packet. A [`Line`](crate::Line) of the same rate differs in that it never
/// saves up: a bucket lets a burst pass at once after a pause.
#[derive(Clone, Debug)]
pub struct Tbf<P, Q> {
    inner: Q,
    /// Whose turn it is.
    head: Option<P>,
    /// Bytes per second.
    rate: u64,
    /// Nanobytes.
    burst: u128,
    /// Nanobytes, at `filled`.
    tokens: u128,
    filled: Time,
}

impl<P: Packet, Q: Qdisc<P>> Tbf<P, Q> {
    /// A full bucket before an inner queue. A packet larger than the burst is dropped; a burst much smaller than what
    /// the rate carries between two visits of a driver cannot keep up the rate.
    pub fn new(inner: Q, rate: Rate, burst: Bytes) -> Tbf<P, Q> {
        let burst = u128::from(burst.get()) * u128::from(NANO);
        Tbf {
            inner,
            head: None,
            rate: rate.bytes_per_sec().clamp(1, FASTEST),
            burst,
            tokens: burst,
            filled: Time::ZERO,
        }
    }

    /// Changes the rate from `now` on. Tokens stay: a change neither grants nor takes a burst.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.fill(now);
        self.rate = rate.bytes_per_sec().clamp(1, FASTEST);
    }

    /// The queue inside.
    pub fn inner(&self) -> &Q {
        &self.inner
    }

    fn fill(&mut self, now: Time) {
        let more = u128::from(now.since(self.filled).as_nanos()) * u128::from(self.rate);
        self.tokens = self.burst.min(self.tokens + more);
        self.filled = self.filled.max(now);
    }

    /// Takes the next packet out of the inner queue, if none has its turn.
    fn draw(&mut self, now: Time, drops: &mut impl Drops<P>) {
        if self.head.is_none() && self.inner.next_ready().is_some_and(|ready| ready <= now) {
            self.head = self.inner.dequeue(now, drops);
        }
    }
}

fn cost(packet: &impl Packet) -> u128 {
    u128::from(packet.bytes()) * u128::from(NANO)
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Tbf<P, Q> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if cost(&packet) > self.burst {
            drops.dropped(packet, DropReason::TooLarge);
            return Verdict::Dropped(DropReason::TooLarge);
        }
        let verdict = self.inner.enqueue(now, packet, drops);
        self.draw(now, drops);
        verdict
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.fill(now);
        self.draw(now, drops);
        let packet = self.head.take_if(|head| cost(head) <= self.tokens)?;
        self.tokens -= cost(&packet);
        self.draw(now, drops);
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        let Some(head) = &self.head else {
            return self.inner.next_ready();
        };
        let missing = cost(head).saturating_sub(self.tokens).div_ceil(u128::from(self.rate));
        Some(self.filled + Duration::from_nanos(u64::try_from(missing).unwrap_or(u64::MAX)))
    }

    fn backlog(&self) -> Backlog {
        let mut backlog = self.inner.backlog();
        if let Some(head) = &self.head {
            backlog.add(head.bytes());
        }
        backlog
    }
}
