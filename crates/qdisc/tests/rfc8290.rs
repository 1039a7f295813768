//! FQ-CoDel against a literal transcription of RFC 8290, section 4, and fairness properties of
//! FQ-CoDel and SFQ.

use std::collections::VecDeque;

use crate::common::{Full, Op, ops};
use ccplane_qdisc::{
    AnyQdisc, Codel, CodelConfig, DropReason, FqCodel, FqCodelConfig, Limit, Qdisc, QueueSpec,
    Verdict,
};
use ccplane_units::{Duration, Rate, Time};
use proptest::prelude::*;

const QUANTUM: i64 = 700;

fn codel() -> CodelConfig {
    CodelConfig {
        target: Duration::from_millis(1),
        interval: Duration::from_millis(6),
        ecn: true,
    }
}

/// One queue per flow, without hash collisions.
struct Literal {
    queues: Vec<(Codel<Full>, i64)>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
}

impl Literal {
    fn enqueue(&mut self, now: Time, packet: Full) {
        let queue = packet.flow as usize;
        self.queues[queue].0.enqueue(now, packet, &mut |_, _| {});
        if !self.new.contains(&queue) && !self.old.contains(&queue) {
            self.new.push_back(queue);
            self.queues[queue].1 = QUANTUM;
        }
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<u32>) -> Option<Full> {
        loop {
            let from_new = !self.new.is_empty();
            let head = if from_new {
                self.new[0]
            } else {
                *self.old.front()?
            };
            let (queue, credits) = &mut self.queues[head];
            // "If that queue has a negative number of credits (i.e., it has already dequeued at
            // least a quantum of bytes), it is given an additional quantum of credits, the queue is
            // put onto the end of the list of old queues, and the routine selects the next queue
            // and starts again." A flow that dequeued exactly a quantum has no credits left either,
            // hence `<= 0`.
            if *credits <= 0 {
                *credits += QUANTUM;
                if from_new {
                    self.new.pop_front();
                } else {
                    self.old.pop_front();
                }
                self.old.push_back(head);
                continue;
            }
            match queue.dequeue(now, &mut |packet: Full, _| dropped.push(packet.id)) {
                Some(packet) => {
                    *credits -= i64::from(packet.bytes);
                    return Some(packet);
                }
                // "If the queue selected for dequeue came from the list of new queues, it is moved
                // to the end of the list of old queues. If instead it came from the list of old
                // queues, that queue is removed from the list."
                None if from_new => {
                    self.new.pop_front();
                    self.old.push_back(head);
                }
                None => {
                    self.old.pop_front();
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn it_does_what_the_rfc_says(ops in ops(1_200)) {
        let config = FqCodelConfig {
            codel: codel(),
            flows: 1_024,
            quantum: QUANTUM as u32,
        };
        let mut fq = FqCodel::new(config, Limit::Unlimited, 1_500, 3);
        let queue = || (Codel::new(codel(), Limit::Unlimited, 1_500), 0);
        let mut literal = Literal {
            queues: (0..6).map(|_| queue()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
        };
        let (mut now, mut dropped, mut expected) =
            (Time::from_micros(1_000_000), Vec::new(), Vec::new());
        for op in ops {
            match op {
                Op::Arrive(gap, packet) => {
                    now += Duration::from_nanos(gap);
                    fq.enqueue(now, packet, &mut |_, _| {});
                    literal.enqueue(now, packet);
                }
                Op::Ask(gap) => {
                    now += Duration::from_nanos(gap);
                    let got = fq.dequeue(now, &mut |packet: Full, _| dropped.push(packet.id));
                    prop_assert_eq!(got, literal.dequeue(now, &mut expected));
                    prop_assert_eq!(&dropped, &expected);
                }
            }
        }
    }
}

fn of_flow(id: u32, flow: u32, bytes: u32) -> Full {
    Full {
        flow,
        ..Full::new(id, bytes)
    }
}

fn build(text: &str) -> AnyQdisc<Full> {
    let spec: QueueSpec = text.parse().expect(text);
    let rate = Rate::from_bits_per_sec(10_000_000);
    spec.build(Some(rate), Duration::from_millis(20), 1_500, 1)
        .expect(text)
}

#[test]
fn two_flows_get_the_same_bytes_whatever_their_packets() {
    for text in ["sfq", "fq_codel:target=900ms:interval=1s"] {
        let mut queue = build(text);
        let mut sent = [0_u64; 2];
        for step in 0..20_000_u64 {
            let now = Time::from_micros(step * 100);
            // Both flows send more than their share, one of them three times as many bytes as the
            // other.
            for id in 0..3 {
                queue.enqueue(now, of_flow(id, 0, 1_500), &mut |_, _| {});
            }
            for id in 0..5 {
                queue.enqueue(now, of_flow(id, 1, 300), &mut |_, _| {});
            }
            if let Some(packet) = queue.dequeue(now, &mut |_, _| {}) {
                sent[packet.flow as usize] += u64::from(packet.bytes);
            }
        }
        let share = sent[0] as f64 / (sent[0] + sent[1]) as f64;
        assert!((share - 0.5).abs() < 0.01, "{text}: {share}");
    }
}

#[test]
fn a_sparse_flow_goes_first() {
    let mut queue = build("fq_codel");
    for id in 0..100 {
        queue.enqueue(Time::ZERO, of_flow(id, 0, 1_500), &mut |_, _| {});
    }
    let ask = |queue: &mut AnyQdisc<Full>| {
        queue
            .dequeue(Time::ZERO, &mut |_, _| {})
            .map(|packet| packet.flow)
    };
    // The bulk flow uses up its first quantum and moves to the old list.
    assert_eq!(ask(&mut queue), Some(0));
    assert_eq!(ask(&mut queue), Some(0));
    queue.enqueue(Time::ZERO, of_flow(100, 1, 100), &mut |_, _| {});
    assert_eq!(ask(&mut queue), Some(1), "ahead of 98 packets");
    assert_eq!(ask(&mut queue), Some(0));
}

#[test]
fn a_flow_cannot_become_new_again_and_again_to_starve_the_others() {
    let mut queue = build("fq_codel");
    for id in 0..1_000 {
        queue.enqueue(Time::ZERO, of_flow(id, 0, 1_500), &mut |_, _| {});
    }
    let mut served = [0; 2];
    for id in 0..500 {
        // The flow always has exactly one packet when the line dequeues.
        queue.enqueue(Time::ZERO, of_flow(id, 1, 1_500), &mut |_, _| {});
        let packet = queue
            .dequeue(Time::ZERO, &mut |_, _| {})
            .expect("many packets wait");
        served[packet.flow as usize] += 1;
    }
    assert!(served[0] >= 240, "{served:?}");
}

#[test]
fn the_fattest_flow_loses_half_of_what_it_has_or_64_packets() {
    let mut queue = build("fq_codel:limit=200p");
    for id in 0..50 {
        queue.enqueue(Time::ZERO, of_flow(id, 1, 1_500), &mut |_, _| {});
    }
    for id in 0..150 {
        queue.enqueue(Time::ZERO, of_flow(id, 0, 1_000), &mut |_, _| {});
    }
    let mut dropped = Vec::new();
    let mut drops =
        |packet: Full, reason: DropReason| dropped.push((packet.flow, packet.id, reason));
    // A packet of a thin flow exceeds the limit by one.
    assert_eq!(
        queue.enqueue(Time::ZERO, of_flow(0, 2, 100), &mut drops),
        Verdict::Queued
    );
    let expected: Vec<_> = (0..64).map(|id| (0, id, DropReason::PushedOut)).collect();
    assert_eq!(dropped, expected, "from the head of the longest queue");
}

#[test]
fn sfq_drops_from_the_longest_queue() {
    let mut queue = build("sfq:limit=10p");
    for id in 0..9 {
        queue.enqueue(Time::ZERO, of_flow(id, 0, 100), &mut |_, _| {});
    }
    let mut dropped = Vec::new();
    for id in 20..23 {
        let mut drops =
            |packet: Full, reason: DropReason| dropped.push((packet.flow, packet.id, reason));
        assert_eq!(
            queue.enqueue(Time::ZERO, of_flow(id, 1, 1_500), &mut drops),
            Verdict::Queued
        );
    }
    assert_eq!(
        dropped,
        [(0, 8, DropReason::PushedOut), (0, 7, DropReason::PushedOut)]
    );
    let own = queue.enqueue(Time::ZERO, of_flow(9, 0, 100), &mut |_: Full, _| {});
    assert_eq!(
        own,
        Verdict::Dropped(DropReason::Full),
        "the longest queue is its own"
    );
}

/// One flow with few large packets and one with many small ones: the longest queue depends on the
/// unit.
#[test]
fn with_a_limit_in_bytes_the_longest_queue_has_the_most_bytes() {
    let fill = |limit: &str| {
        let mut queue = build(&format!("sfq:limit={limit}"));
        for id in 0..6 {
            queue.enqueue(Time::ZERO, of_flow(id, 0, 1_500), &mut |_, _| {});
        }
        for id in 10..20 {
            queue.enqueue(Time::ZERO, of_flow(id, 1, 100), &mut |_, _| {});
        }
        let mut dropped = Vec::new();
        let mut drops = |packet: Full, reason: DropReason| dropped.push((packet.id, reason));
        let verdict = queue.enqueue(Time::ZERO, of_flow(30, 2, 1_000), &mut drops);
        assert_eq!(verdict, Verdict::Queued);
        (dropped, queue.backlog())
    };
    let (dropped, left) = fill("16p");
    assert_eq!(dropped, [(19, DropReason::PushedOut)]);
    assert_eq!((left.packets, left.bytes), (16, 10_900));
    // The backlog is 10,000 bytes.
    let (dropped, left) = fill("10kB");
    assert_eq!(dropped, [(5, DropReason::PushedOut)]);
    assert_eq!((left.packets, left.bytes), (16, 9_500));
}

#[test]
fn one_large_packet_may_cost_several_small_ones_and_is_lost_itself_where_its_flow_has_most() {
    let mut queue = build("sfq:limit=3kB");
    for id in 0..30 {
        queue.enqueue(Time::ZERO, of_flow(id, id % 2, 100), &mut |_, _| {});
    }
    let mut dropped = Vec::new();
    let mut drops = |packet: Full, reason: DropReason| dropped.push((packet.id, reason));
    assert_eq!(
        queue.enqueue(Time::ZERO, of_flow(40, 2, 500), &mut drops),
        Verdict::Queued
    );
    let expected: Vec<_> = [28, 29, 26, 27, 24]
        .map(|id| (id, DropReason::PushedOut))
        .into();
    assert_eq!(dropped, expected, "alternately from the two longest queues");
    // With 2000 bytes its own queue would be the longest; the others have 1200 and 1300.
    let own = queue.enqueue(Time::ZERO, of_flow(41, 2, 1_500), &mut |_: Full, _| {});
    assert_eq!(own, Verdict::Dropped(DropReason::Full));
    assert_eq!(queue.backlog().bytes, 3_000);
}
