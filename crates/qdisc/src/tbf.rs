//! Token bucket in front of any queue: limits the mean rate and the burst size.

use ccplane_units::{Bytes, Rate, Time};

use crate::tokens::Tokens;
use crate::{Backlog, DropReason, Drops, Packet, Qdisc, Verdict};

/// Token bucket filter, as Linux' `tbf`: a packet leaves when there are tokens for all its bytes.
///
/// The head packet waits for its tokens outside the inner queue, so an inner scheduler decides one
/// packet ahead and its limit does not count that packet. `enqueue` dequeues the head packet from
/// the inner queue, so drops of an inner AQM have [`DropReason::Aqm`] there too. Unlike a
/// [`Line`](crate::Line) of the same rate, a bucket accumulates tokens while idle and then lets a
/// burst pass at once.
#[derive(Clone, Debug)]
pub struct Tbf<P, Q> {
    inner: Q,
    /// Next packet, already dequeued from `inner`.
    head: Option<P>,
    tokens: Tokens,
}

impl<P: Packet, Q: Qdisc<P>> Tbf<P, Q> {
    /// Creates a full bucket in front of `inner`. Packets larger than the burst are dropped. The
    /// burst must cover the tokens of a driver's polling interval, or the rate is not reached.
    pub fn new(inner: Q, rate: Rate, burst: Bytes) -> Tbf<P, Q> {
        Tbf {
            inner,
            head: None,
            tokens: Tokens::new(rate, burst),
        }
    }

    /// Changes the rate from `now` on and keeps the tokens, so that a change neither grants nor
    /// removes a burst.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.tokens.set_rate(now, rate);
    }

    /// Returns the inner queue.
    pub fn inner(&self) -> &Q {
        &self.inner
    }

    /// Dequeues the next packet from the inner queue if there is no head packet.
    fn fetch_head(&mut self, now: Time, drops: &mut impl Drops<P>) {
        if self.head.is_none() && self.inner.next_ready().is_some_and(|ready| ready <= now) {
            self.head = self.inner.dequeue(now, drops);
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Tbf<P, Q> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if !self.tokens.can_hold(packet.bytes()) {
            drops.dropped(packet, DropReason::TooLarge);
            return Verdict::Dropped(DropReason::TooLarge);
        }
        let verdict = self.inner.enqueue(now, packet, drops);
        self.fetch_head(now, drops);
        verdict
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.fetch_head(now, drops);
        let tokens = &mut self.tokens;
        let packet = self
            .head
            .take_if(|head| tokens.try_take(now, head.bytes()))?;
        self.fetch_head(now, drops);
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        let Some(head) = &self.head else {
            return self.inner.next_ready();
        };
        Some(self.tokens.ready_at(head.bytes()))
    }

    fn backlog(&self) -> Backlog {
        let mut backlog = self.inner.backlog();
        if let Some(head) = &self.head {
            backlog.add(head.bytes());
        }
        backlog
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DropTail, Limit};

    struct SizedPacket(u32);

    impl Packet for SizedPacket {
        fn bytes(&self) -> u32 {
            self.0
        }
    }

    fn bucket(rate: u64, burst: u64) -> Tbf<SizedPacket, DropTail<SizedPacket>> {
        let inner = DropTail::new(Limit::Unlimited);
        Tbf::new(inner, Rate::from_bytes_per_sec(rate), Bytes::new(burst))
    }

    /// Returns the departure time of each waiting packet, as (ns, bytes).
    fn drain(bucket: &mut Tbf<SizedPacket, DropTail<SizedPacket>>) -> Vec<(u64, u32)> {
        let mut left = Vec::new();
        while let Some(ready) = bucket.next_ready() {
            let packet = bucket.dequeue(ready, &mut |_, _| {}).expect("a packet");
            left.push((ready.as_nanos(), packet.0));
        }
        left
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let mut bucket = bucket(1_000_000, 3_000);
        for _ in 0..5 {
            bucket.enqueue(Time::from_micros(10), SizedPacket(1_000), &mut |_, _| {});
        }
        let at: Vec<_> = drain(&mut bucket)
            .iter()
            .map(|(at, _)| at / 1_000)
            .collect();
        // The burst of three leaves at once, then one packet per millisecond.
        assert!(at[..3].iter().all(|&us| us <= 10));
        assert_eq!(
            at[3..],
            [1_000, 2_000],
            "the bucket was full at 0, and stays full"
        );
    }

    #[test]
    fn a_change_of_rate_grants_no_burst() {
        let mut bucket = bucket(1_000_000, 2_000);
        for _ in 0..4 {
            bucket.enqueue(Time::ZERO, SizedPacket(1_000), &mut |_, _| {});
        }
        assert!(bucket.dequeue(Time::ZERO, &mut |_, _| {}).is_some());
        assert!(bucket.dequeue(Time::ZERO, &mut |_, _| {}).is_some());
        // Half of the next packet's tokens are there; the other half takes ten times as long.
        bucket.set_rate(Time::from_micros(500), Rate::from_bytes_per_sec(100_000));
        assert_eq!(bucket.next_ready(), Some(Time::from_micros(500 + 5_000)));
    }

    #[test]
    fn what_never_fits_is_dropped() {
        let mut bucket = bucket(1_000, 1_500);
        let verdict = bucket.enqueue(Time::ZERO, SizedPacket(1_501), &mut |_, _| {});
        assert_eq!(verdict, Verdict::Dropped(DropReason::TooLarge));
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_carries_more_than_rate_and_burst(
            packets in proptest::collection::vec((0_u64..3_000_000, 40_u32..1_501), 1..80),
            rate in 100_000_u64..10_000_000,
            burst in 1_500_u64..10_000,
        ) {
            let mut bucket = bucket(rate, burst);
            let (mut now, mut left) = (0, Vec::new());
            for (gap, bytes) in &packets {
                now += gap;
                while let Some(ready) = bucket.next_ready()
                    && ready <= Time::from_nanos(now)
                {
                    let before = left.last().map_or(0, |last: &(u64, u32)| last.0);
                    let packet = bucket.dequeue(ready, &mut |_, _| {}).expect("a packet");
                    left.push((before.max(ready.as_nanos()), packet.0));
                }
                bucket.enqueue(Time::from_nanos(now), SizedPacket(*bytes), &mut |_, _| {});
            }
            left.extend(drain(&mut bucket));
            prop_assert_eq!(left.len(), packets.len());
            for first in 0..left.len() {
                let mut bytes = 0;
                for (at, size) in &left[first..] {
                    bytes += u128::from(*size);
                    let bytes_ns_max = u128::from(at.saturating_sub(left[first].0))
                        * u128::from(rate)
                        + u128::from(burst) * 1_000_000_000;
                    prop_assert!(bytes * 1_000_000_000 <= bytes_ns_max);
                }
            }
        }
    }
}
