//! Properties of [`Classes`](ccplane_qdisc::Classes): no packet is lost or duplicated, the
//! scheduler is work conserving, classes share by weight, and levels are strict up to the guard.

use std::collections::BTreeMap;

use crate::common::{Full, Op, check_flow_order, ops};
use ccplane_qdisc::{
    Backlog, ClassSpec, Classes, ClassesSpec, DropReason, Qdisc, QueueSpecError, Verdict,
};
use ccplane_units::{Duration, Rate, Time};
use proptest::prelude::*;

fn try_build(classes: &[(u8, u32, &str)]) -> Result<Classes<Full>, QueueSpecError> {
    let class = |&(level, weight, queue): &(u8, u32, &str)| ClassSpec {
        level,
        weight,
        queue: queue.parse().expect(queue),
    };
    let spec = ClassesSpec {
        classes: classes.iter().map(class).collect(),
    };
    let rate = Rate::from_bits_per_sec(10_000_000);
    spec.build(Some(rate), Duration::from_millis(20), 1_500, 7)
}

fn build(classes: &[(u8, u32, &str)]) -> Classes<Full> {
    try_build(classes).expect("possible")
}

fn of_class(id: u32, class: u8, bytes: u32) -> Full {
    Full {
        class,
        ..Full::new(id, bytes)
    }
}

/// Levels in any order, with queues that drop on enqueue, drop on dequeue or delay packets.
const CLASS_CONFIGURATIONS: &[&[(u8, u32, &str)]] = &[
    &[(0, 1, "droptail:10p")],
    &[
        (0, 1, "droptail:10p"),
        (0, 3, "droptail:9kB"),
        (0, 1_000_000, "sfq:limit=9p"),
    ],
    &[
        (2, 1, "droptail:4p"),
        (0, 1, "droptail:4p"),
        (1, 1, "droptail:4p"),
    ],
    &[
        (0, 2, "codel:target=1ms:interval=2ms"),
        (0, 1, "codel:target=1us:interval=1us"),
        (9, 1, "droptail:inf"),
    ],
    &[
        (0, 2, "dualpi2:target=1us:tupdate=1ms:alpha=1000:beta=1000"),
        (1, 1, "dualpi2:target=1ms:tupdate=1ms:alpha=60:beta=900"),
    ],
    &[
        (0, 1, "fq_codel:target=1ms:interval=5ms:flows=4:limit=12p"),
        (1, 5, "tbf:rate=3mbit:burst=3kB:limit=9p"),
        (1, 1, "prio:3:shared:6p"),
        (3, 1, "codel:target=1ms:interval=1ms:limit=20p"),
    ],
    &[
        (0, 1, "tbf:rate=1mbit:burst=2kB:limit=9p"),
        (1, 1, "tbf:rate=1mbit:burst=2kB:limit=9p"),
    ],
];

/// Returns the sum of the class backlogs, which must equal the total backlog.
fn by_class(queue: &Classes<Full>, classes: usize) -> Backlog {
    (0..classes).fold(Backlog::default(), |sum, class| {
        let Backlog { packets, bytes } = queue.class_backlog(class);
        Backlog {
            packets: sum.packets + packets,
            bytes: sum.bytes + bytes,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn nothing_is_lost_or_doubled_and_no_time_is_wasted(ops in ops(300)) {
        for mix in CLASS_CONFIGURATIONS {
            let mut queue = build(mix);
            let mut inside: BTreeMap<u32, Full> = BTreeMap::new();
            let mut now = Time::from_micros(1_000_000);
            for op in &ops {
                let (Op::Arrive(gap, _) | Op::Ask(gap)) = *op;
                now += Duration::from_nanos(gap);
                let mut dropped = Vec::new();
                let mut drops = |packet: Full, reason| dropped.push((packet, reason));
                if let Op::Arrive(_, packet) = *op {
                    inside.insert(packet.id, packet);
                    let verdict = queue.enqueue(now, packet, &mut drops);
                    let own = dropped.iter().find(|(dropped, _)| dropped.id == packet.id);
                    prop_assert_eq!(
                        verdict,
                        own.map_or(Verdict::Queued, |&(_, reason)| Verdict::Dropped(reason))
                    );
                } else {
                    let ready = queue.next_ready().is_some_and(|ready| ready <= now);
                    let left = queue.dequeue(now, &mut drops);
                    prop_assert!(ready || left.is_none(), "a packet left before it was ready");
                    // The line may idle only if the queue dropped its whole backlog or waits for
                    // tokens.
                    let idle_is_right = queue.next_ready().is_none_or(|ready| ready > now);
                    prop_assert!(
                        left.is_some() || idle_is_right,
                        "idle although a packet is ready"
                    );
                    prop_assert!(dropped.iter().all(|(_, reason)| *reason == DropReason::Aqm));
                    if let Some(packet) = left {
                        prop_assert!(inside.remove(&packet.id).is_some());
                    }
                }
                for (packet, _) in dropped {
                    prop_assert!(inside.remove(&packet.id).is_some());
                }
                let bytes = inside.values().map(|packet| u64::from(packet.bytes)).sum();
                let expected = Backlog {
                    packets: inside.len() as u64,
                    bytes,
                };
                prop_assert_eq!(queue.backlog(), expected);
                prop_assert_eq!(by_class(&queue, mix.len()), expected);
                prop_assert_eq!(queue.next_ready().is_some(), !inside.is_empty());
            }
            for _ in 0..inside.len() {
                let Some(ready) = queue.next_ready() else {
                    break;
                };
                now = now.max(ready);
                let mut gone = Vec::new();
                let left = queue.dequeue(now, &mut |packet: Full, _| gone.push(packet));
                for packet in gone.into_iter().chain(left) {
                    prop_assert!(inside.remove(&packet.id).is_some());
                }
            }
            prop_assert!(inside.is_empty(), "repeated dequeues return every packet");
        }
    }

    #[test]
    fn packets_of_a_flow_keep_their_order(ops in ops(200)) {
        for mix in CLASS_CONFIGURATIONS {
            check_flow_order(&mut build(mix), &ops, 4);
        }
    }

    /// Over any interval, two backlogged classes of one level get bytes in proportion to their
    /// weights, up to one turn and one packet of each.
    #[test]
    fn shares_are_those_of_the_weights_within_a_turn(
        weights in proptest::collection::vec(1_u32..40, 2..5),
        sizes in proptest::collection::vec(40_u32..1_501, 50..400),
        begin in 0.0..0.5_f64,
    ) {
        let classes: Vec<_> = weights.iter().map(|&weight| (4, weight, "droptail:inf")).collect();
        let mut queue = build(&classes);
        let heaviest = f64::from(*weights.iter().max().expect("at least two weights"));
        let mut id = 0;
        let mut sent = vec![0_u64; weights.len()];
        let mut before = sent.clone();
        let begin = (sizes.len() as f64 * begin) as usize;
        for (step, &bytes) in sizes.iter().enumerate() {
            // Every class always has ten packets waiting.
            for class in 0..weights.len() {
                while queue.class_backlog(class).packets < 10 {
                    let size = sizes[(step + id as usize) % sizes.len()].max(bytes / 2);
                    queue.enqueue(Time::ZERO, of_class(id, class as u8, size), &mut |_, _| {});
                    id += 1;
                }
            }
            if step == begin {
                before = sent.clone();
            }
            let packet = queue.dequeue(Time::ZERO, &mut |_, _| {}).expect("ten packets wait");
            sent[usize::from(packet.class)] += u64::from(packet.bytes);
        }
        // In units of turns: a class may send an MTU times its relative weight per turn.
        let turn = |class: usize| 1_500.0 * f64::from(weights[class]) / heaviest;
        let turns = |class: usize| (sent[class] - before[class]) as f64 / turn(class);
        for one in 0..weights.len() {
            for other in 0..weights.len() {
                let turns_max = 1.0 + 1_500.0 / turn(one) + 1_500.0 / turn(other);
                let apart = (turns(one) - turns(other)).abs();
                prop_assert!(apart <= turns_max + 1e-6, "{} apart, at most {}", apart, turns_max);
            }
        }
    }

    /// Over any interval in which both levels are backlogged, the lower level gets 5 % of the
    /// bytes, give or take one packet.
    #[test]
    fn the_upper_level_gets_all_but_the_guard_s_part(
        sizes in proptest::collection::vec(40_u32..1_501, 200..600),
    ) {
        let mut queue = build(&[(3, 1, "droptail:inf"), (7, 1, "droptail:inf")]);
        let (mut all, mut low, mut apart) = (0_i64, 0_i64, (0_i64, 0_i64));
        let mut sizes_of = sizes.iter().cycle();
        for id in 0..sizes.len() as u32 {
            for class in 0..2 {
                let &bytes = sizes_of.next().expect("the iterator never ends");
                queue.enqueue(Time::ZERO, of_class(id, class, bytes), &mut |_, _| {});
            }
            let packet = queue
                .dequeue(Time::ZERO, &mut |_, _| {})
                .expect("many packets wait");
            all += i64::from(packet.bytes);
            low += i64::from(packet.bytes) * i64::from(packet.class);
            // Hundredths of bytes.
            let more = 100 * low - 5 * all;
            apart = (apart.0.min(more), apart.1.max(more));
        }
        prop_assert!(
            apart.0 >= -5 * 1_500 && apart.1 <= 95 * 1_500,
            "{:?}",
            apart
        );
    }
}

/// Returns the bytes sent per class after `packets` packets while all classes are backlogged.
fn saturated(queue: &mut Classes<Full>, classes: u8, packets: u32) -> Vec<u64> {
    let mut sent = vec![0; usize::from(classes)];
    for id in 0..packets {
        for class in 0..classes {
            while queue.class_backlog(class.into()).packets < 3 {
                queue.enqueue(Time::ZERO, of_class(id, class, 1_000), &mut |_, _| {});
            }
        }
        let packet = queue
            .dequeue(Time::ZERO, &mut |_, _| {})
            .expect("three packets per class wait");
        sent[usize::from(packet.class)] += 1_000;
    }
    sent
}

#[test]
fn a_level_alone_is_strict_and_the_order_of_classes_is_not_that_of_levels() {
    let mut queue = build(&[(5, 1, "droptail:inf"), (1, 1, "droptail:inf")]);
    for id in 0..8 {
        queue.enqueue(
            Time::ZERO,
            of_class(id, (id % 2) as u8, 1_000),
            &mut |_, _| {},
        );
    }
    let order: Vec<u8> = std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut |_, _| {}))
        .map(|packet| packet.class)
        .collect();
    // The first packet creates a debt of 5 % of its size, which the second packet pays.
    assert_eq!(order, [1, 0, 1, 1, 1, 0, 0, 0]);
}

#[test]
fn the_lowest_of_three_levels_gets_the_guard_s_part_of_its_part() {
    let mut queue = build(&[
        (0, 1, "droptail:inf"),
        (1, 1, "droptail:inf"),
        (2, 1, "droptail:inf"),
    ]);
    let sent = saturated(&mut queue, 3, 40_000);
    assert_eq!(sent, [38_000_000, 1_900_000, 100_000]);
}

#[test]
fn time_alone_on_the_line_is_neither_owed_nor_saved_up() {
    let mut queue = build(&[(0, 1, "droptail:inf"), (1, 1, "droptail:inf")]);
    let fill = |queue: &mut Classes<Full>, class: u8| {
        for id in 0..1_000 {
            queue.enqueue(Time::ZERO, of_class(id, class, 1_000), &mut |_, _| {});
            queue.dequeue(Time::ZERO, &mut |_, _| {});
        }
    };
    for alone in [1, 0] {
        fill(&mut queue, alone);
        let sent = saturated(&mut queue, 2, 1_000);
        assert!(
            (49_000..=51_000).contains(&sent[1]),
            "after {alone} alone: {sent:?}"
        );
        while queue.dequeue(Time::ZERO, &mut |_, _| {}).is_some() {}
    }
}

#[test]
fn weights_are_shares_whatever_they_are() {
    let mut queue = build(&[
        (0, 1_000_000, "droptail:inf"),
        (0, 1, "droptail:inf"),
        (0, 250_000, "droptail:inf"),
    ]);
    let sent = saturated(&mut queue, 3, 100_000);
    // With a weight of one millionth it sends only its first packet.
    assert_eq!(sent[1], 1_000);
    let share = sent[0] as f64 / sent[2] as f64;
    assert!((share - 4.0).abs() < 0.01, "{sent:?}");
}

#[test]
fn what_is_left_of_a_turn_goes_with_the_last_packet() {
    let mut queue = build(&[(0, 1, "droptail:inf"), (0, 1, "droptail:inf")]);
    queue.enqueue(Time::ZERO, of_class(0, 0, 500), &mut |_, _| {});
    assert!(queue.dequeue(Time::ZERO, &mut |_, _| {}).is_some());
    for id in 0..12 {
        queue.enqueue(
            Time::ZERO,
            of_class(id, (id % 2) as u8, 500),
            &mut |_, _| {},
        );
    }
    let order: Vec<u8> = std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut |_, _| {}))
        .map(|packet| packet.class)
        .collect();
    // Each turn has three packets, even for a class that used a third of its previous turn.
    assert_eq!(order, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn what_was_overdrawn_is_paid_by_a_class_that_is_empty_in_between() {
    let mut queue = build(&[(0, 3, "droptail:inf"), (0, 1, "droptail:inf")]);
    let mut sent = [0; 2];
    for id in 0..4_000 {
        // The second class never has more than one packet waiting, of three times its quantum.
        for (class, packets_min) in [(0, 3), (1, 1)] {
            while queue.class_backlog(class.into()).packets < packets_min {
                queue.enqueue(Time::ZERO, of_class(id, class, 1_500), &mut |_, _| {});
            }
        }
        let packet = queue
            .dequeue(Time::ZERO, &mut |_, _| {})
            .expect("both classes have packets");
        sent[usize::from(packet.class)] += 1;
    }
    assert!((990..=1_010).contains(&sent[1]), "{sent:?}");
}

#[test]
fn a_class_that_drops_all_it_has_leaves_its_turn_to_the_next() {
    let overloaded = "dualpi2:target=1us:tupdate=1ms:alpha=1000:beta=1000";
    let mut queue = build(&[
        (0, 1, overloaded),
        (0, 1, overloaded),
        (1, 1, "droptail:inf"),
    ]);
    for id in 0..30 {
        queue.enqueue(
            Time::ZERO,
            of_class(id, (id % 3) as u8, 1_000),
            &mut |_, _| {},
        );
    }
    // After a second CoDel drops every packet of those two classes except the first of each, which
    // only starts its interval.
    let now = Time::from_micros(1_000_000);
    let (mut dropped, mut left) = (0, [0; 3]);
    while queue.backlog().packets > 0 {
        let packet = queue.dequeue(now, &mut |_: Full, _| dropped += 1);
        let packet = packet.expect("one dequeue continues until a class has a packet");
        left[usize::from(packet.class)] += 1;
    }
    assert_eq!((left, dropped), ([1, 1, 10], 18));
}

#[test]
fn a_level_that_waits_for_tokens_leaves_the_line_to_those_below() {
    let mut queue = build(&[
        (0, 1, "tbf:rate=8mbit:burst=1500B:limit=10p"),
        (1, 1, "droptail:inf"),
    ]);
    for id in 0..3 {
        queue.enqueue(Time::ZERO, of_class(id, 0, 1_500), &mut |_, _| {});
        queue.enqueue(Time::ZERO, of_class(id, 1, 1_500), &mut |_, _| {});
    }
    let mut ask = |us| {
        queue
            .dequeue(Time::from_micros(us), &mut |_, _| {})
            .map(|packet| packet.class)
    };
    // A packet of the upper level takes 1.5 ms.
    assert_eq!(
        [0, 0, 10, 1_500].map(&mut ask),
        [Some(0), Some(1), Some(1), Some(0)]
    );
    assert_eq!([1_510, 1_520].map(&mut ask), [Some(1), None]);
    assert_eq!(queue.next_ready(), Some(Time::from_micros(3_000)));
    let last = queue.dequeue(Time::from_micros(3_000), &mut |_, _| {});
    assert_eq!(last.map(|packet| packet.class), Some(0));
    assert_eq!(queue.next_ready(), None);
}

#[test]
fn classes_beyond_the_last_are_in_the_last() {
    let mut queue = build(&[(0, 1, "droptail:inf"), (0, 1, "droptail:1p")]);
    assert_eq!(
        queue.enqueue(Time::ZERO, of_class(0, 200, 100), &mut |_, _| {}),
        Verdict::Queued
    );
    let full = queue.enqueue(Time::ZERO, of_class(1, 2, 100), &mut |_, _| {});
    assert_eq!(full, Verdict::Dropped(DropReason::Full));
    let waiting = [0, 1, 2].map(|class| queue.class_backlog(class).packets);
    assert_eq!(waiting, [0, 1, 0]);
}

#[test]
fn classes_that_cannot_be_are_refused() {
    let error =
        |classes: &[(u8, u32, &str)]| try_build(classes).expect_err("impossible").to_string();
    assert!(error(&[]).contains("at least one"));
    assert!(error(&[(0, 1, "droptail:1p"); 257]).contains("257 classes"));
    assert!(
        error(&[(0, 1, "droptail:1p"), (0, 0, "droptail:1p")]).contains("class 1 has the weight 0")
    );
    assert!(error(&[(0, 1_000_001, "droptail:1p")]).contains("from 1 to 1000000"));
    assert!(error(&[(0, 1, "droptail:100B")]).contains("less than one packet"));
    assert!(try_build(&[(0, 1, "droptail:1p"); 256]).is_ok());
}
