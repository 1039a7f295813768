//! Policer: drops traffic above a contracted rate instead of delaying it.

use ccplane_units::{Bytes, Rate, Time};

use crate::tokens::Tokens;
use crate::{Backlog, DropReason, DropTail, Drops, Limit, Packet, Qdisc, Verdict};

/// Token bucket that drops packets without tokens, followed by a drop-tail queue for the link
/// behind it (RFC 2475, section 2.3.3.3; Linux `tc … action police`). If the link is faster than
/// the policed rate there is loss without delay: senders get no queueing signal before they lose
/// packets.
#[derive(Clone, Debug)]
pub struct Policer<P> {
    tokens: Tokens,
    waiting: DropTail<P>,
}

impl<P: Packet> Policer<P> {
    /// Creates a policer with a full bucket of `burst` and a queue of `limit`.
    pub fn new(rate: Rate, burst: Bytes, limit: Limit) -> Policer<P> {
        Policer {
            tokens: Tokens::new(rate, burst),
            waiting: DropTail::new(limit),
        }
    }
}

impl<P: Packet> Qdisc<P> for Policer<P> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if !self.tokens.try_take(now, packet.bytes()) {
            drops.dropped(packet, DropReason::Policed);
            return Verdict::Dropped(DropReason::Policed);
        }
        self.waiting.enqueue(now, packet, drops)
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.waiting.dequeue(now, drops)
    }

    fn next_ready(&self) -> Option<Time> {
        self.waiting.next_ready()
    }

    fn backlog(&self) -> Backlog {
        self.waiting.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Full;

    impl Packet for Full {
        fn bytes(&self) -> u32 {
            1_000
        }
    }

    #[test]
    fn what_is_over_the_rate_is_dropped_and_what_is_not_goes_at_once() {
        // 1 MB/s is one packet per millisecond; the burst is three packets.
        let mut policer = Policer::new(
            Rate::from_bytes_per_sec(1_000_000),
            Bytes::new(3_000),
            Limit::Unlimited,
        );
        let mut passed = Vec::new();
        // Two packets per millisecond for 10 ms.
        for half_ms in 0..20 {
            let now = Time::from_micros(500 * half_ms);
            let verdict = policer.enqueue(now, Full, &mut |_, why| {
                assert_eq!(why, DropReason::Policed)
            });
            if verdict == Verdict::Queued {
                passed.push(half_ms);
                assert!(
                    policer.dequeue(now, &mut |_: Full, _| {}).is_some(),
                    "the packet does not wait"
                );
            }
        }
        // The burst and the tokens of 9.5 ms: 3 + 9.5 packets.
        assert_eq!(passed.len(), 12, "{passed:?}");
        assert_eq!(passed[..5], [0, 1, 2, 3, 4], "the burst first");
    }

    #[test]
    fn the_queue_behind_has_a_limit_of_its_own() {
        let mut policer = Policer::new(
            Rate::from_bytes_per_sec(1_000_000),
            Bytes::new(9_000),
            Limit::Packets(1),
        );
        let mut verdicts = [Verdict::Queued; 2];
        for verdict in &mut verdicts {
            *verdict = policer.enqueue(Time::ZERO, Full, &mut |_, _| {});
        }
        assert_eq!(
            verdicts,
            [Verdict::Queued, Verdict::Dropped(DropReason::Full)]
        );
        assert_eq!(policer.backlog().packets, 1);
    }
}
