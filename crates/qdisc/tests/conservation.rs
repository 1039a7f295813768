//! Invariants of every queue under arbitrary arrivals and dequeues: no packet is lost, invented or
//! delivered twice.

use std::collections::BTreeMap;

use crate::common::{Full, Op, check_flow_order, ops};
use ccplane_qdisc::{AnyQdisc, DropReason, Ecn, Qdisc, QueueSpec, Verdict};
use ccplane_units::{Duration, Rate, Time};
use proptest::prelude::*;

fn build(text: &str) -> AnyQdisc<Full> {
    let spec: QueueSpec = text.parse().expect(text);
    let rate = Rate::from_bits_per_sec(10_000_000);
    spec.build(Some(rate), Duration::from_millis(20), 1_500, 7)
        .expect(text)
}

/// Packets inside by id, checked against every result of the queue.
#[derive(Default)]
struct Ledger {
    inside: BTreeMap<u32, Full>,
    delivered: usize,
    dropped: usize,
}

impl Ledger {
    /// Removes a packet that was delivered or dropped and compares it with the original, except for
    /// its ECN mark and RCP header.
    fn remove(&mut self, packet: &Full) {
        let came = self
            .inside
            .remove(&packet.id)
            .expect("arrived, and left only once");
        let allowed = Full {
            ecn: came.ecn,
            stamp: came.stamp,
            ..*packet
        };
        assert_eq!(allowed, came);
        assert!(packet.ecn == came.ecn || (packet.ecn == Ecn::Ce && came.ecn != Ecn::NotEct));
        assert!(packet.stamp.rate <= came.stamp.rate && packet.stamp.rtt == came.stamp.rtt);
    }

    fn check(&self, queue: &AnyQdisc<Full>, text: &str) {
        let bytes: u64 = self
            .inside
            .values()
            .map(|packet| u64::from(packet.bytes))
            .sum();
        let backlog = queue.backlog();
        assert_eq!(
            (backlog.packets, backlog.bytes),
            (self.inside.len() as u64, bytes),
            "{text}"
        );
        assert_eq!(
            queue.next_ready().is_some(),
            !self.inside.is_empty(),
            "{text}"
        );
    }
}

fn run(text: &str, ops: &[Op]) -> Ledger {
    let mut queue = build(text);
    let mut ledger = Ledger::default();
    let mut now = Time::from_micros(1_000_000);
    let mut arrived = 0;
    for op in ops {
        let mut dropped = Vec::new();
        let mut drops = |packet: Full, reason| dropped.push((packet, reason));
        match *op {
            Op::Arrive(gap, packet) => {
                now += Duration::from_nanos(gap);
                arrived += 1;
                ledger.inside.insert(packet.id, packet);
                let verdict = queue.enqueue(now, packet, &mut drops);
                let own = dropped.iter().find(|(dropped, _)| dropped.id == packet.id);
                let expected = own.map_or(Verdict::Queued, |&(_, reason)| Verdict::Dropped(reason));
                assert_eq!(verdict, expected, "{text}");
                assert!(
                    dropped
                        .iter()
                        .all(|(dropped, reason)| dropped.id == packet.id
                            || *reason == DropReason::PushedOut)
                );
            }
            Op::Ask(gap) => {
                now += Duration::from_nanos(gap);
                let ready = queue.next_ready().is_some_and(|ready| ready <= now);
                if let Some(packet) = queue.dequeue(now, &mut drops) {
                    assert!(ready, "{text}: a packet left before it was ready");
                    ledger.remove(&packet);
                    ledger.delivered += 1;
                }
                assert!(dropped.iter().all(|(_, reason)| *reason == DropReason::Aqm));
            }
        }
        for (packet, _) in &dropped {
            ledger.remove(packet);
            ledger.dropped += 1;
        }
        ledger.check(&queue, text);
        assert_eq!(
            arrived,
            ledger.delivered + ledger.dropped + ledger.inside.len(),
            "{text}"
        );
    }
    // Repeated dequeues drain the queue.
    for _ in 0..ledger.inside.len() {
        let Some(ready) = queue.next_ready() else {
            break;
        };
        now = now.max(ready);
        let mut dropped = Vec::new();
        if let Some(packet) = queue.dequeue(now, &mut |packet: Full, _| dropped.push(packet)) {
            ledger.remove(&packet);
            ledger.delivered += 1;
        }
        dropped.iter().for_each(|packet| ledger.remove(packet));
        ledger.dropped += dropped.len();
        ledger.check(&queue, text);
    }
    assert!(
        ledger.inside.is_empty(),
        "{text}: {:?} never leave",
        ledger.inside.keys()
    );
    ledger
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn arrived_is_delivered_and_dropped_and_queued(ops in ops(300)) {
        for text in QueueSpec::examples() {
            run(text, &ops);
        }
    }

    #[test]
    fn packets_of_a_flow_keep_their_order(ops in ops(200)) {
        for text in QueueSpec::examples() {
            check_flow_order(&mut build(text), &ops, 3);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same(ops in ops(200)) {
        for text in QueueSpec::examples() {
            let (one, other) = (run(text, &ops), run(text, &ops));
            prop_assert_eq!((one.delivered, one.dropped), (other.delivered, other.dropped));
        }
    }
}

proptest! {
    // Long idle times cause thousands of catch-up updates per call, so there are few cases.
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn no_time_or_size_makes_a_queue_panic_or_hang(
        times in proptest::collection::vec(
            prop_oneof![any::<u64>(), Just(u64::MAX), 0_u64..10],
            1..40,
        ),
        bytes in prop_oneof![Just(0_u32), Just(u32::MAX), any::<u32>()],
    ) {
        let mut times = times;
        times.sort_unstable();
        for text in QueueSpec::examples() {
            let mut queue = build(text);
            for (id, &time) in times.iter().enumerate() {
                let now = Time::from_nanos(time);
                let packet = Full {
                    ecn: Ecn::from_bits(id as u8),
                    flow: bytes,
                    ..Full::new(id as u32, bytes)
                };
                queue.enqueue(now, packet, &mut |_, _| {});
                if id % 3 == 0 {
                    queue.dequeue(now, &mut |_, _| {});
                }
            }
        }
    }
}
