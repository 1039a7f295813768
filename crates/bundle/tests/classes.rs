//! Traffic classes in a sendbox: no packet is lost or counted twice when classes are reconfigured,
//! and the high-priority level is served first.

use std::collections::BTreeMap;

use ccplane_bundle::{ClassStatus, Sendbox, SendboxConfig};
use ccplane_qdisc::{Backlog, ClassSpec, ClassesSpec, Packet};
use ccplane_units::{Duration, Time};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TaggedPacket {
    id: u32,
    bytes: u32,
    class: u8,
}

impl Packet for TaggedPacket {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow_hash(&self) -> u32 {
        self.id % 7
    }

    fn class(&self) -> u8 {
        self.class
    }
}

fn spec(classes: &[(u8, u32, &str)]) -> ClassesSpec {
    let class = |&(level, weight, queue): &(u8, u32, &str)| ClassSpec {
        level,
        weight,
        queue: queue.parse().expect(queue),
    };
    ClassesSpec {
        classes: classes.iter().map(class).collect(),
    }
}

fn sendbox(classes: &[(u8, u32, &str)]) -> Sendbox<TaggedPacket> {
    let config = SendboxConfig {
        queue: spec(classes),
        ..SendboxConfig::default()
    };
    Sendbox::new(Time::ZERO, &config).expect("possible")
}

/// Queues that drop on overflow, that drop on dequeue, or that hold packets back.
const MIXES: &[&[(u8, u32, &str)]] = &[
    &[(0, 1, "sfq:limit=20p")],
    &[
        (0, 1, "droptail:9kB"),
        (1, 1, "fq_codel:target=1ms:interval=2ms:limit=30p"),
    ],
    &[
        (1, 3, "droptail:30p"),
        (0, 1, "codel:target=1ms:interval=1ms"),
        (1, 1, "droptail:inf"),
    ],
    &[
        (0, 1, "tbf:rate=1mbit:burst=2kB:limit=9p"),
        (1, 1, "droptail:inf"),
    ],
];

#[derive(Clone, Copy, Debug)]
enum Op {
    Arrive {
        bytes: u32,
        class: u8,
    },
    Ask,
    /// Switch to the classes of another mix and shift the class of all packets by `by`.
    Change {
        mix: usize,
        by: u8,
    },
}

fn ops() -> impl Strategy<Value = Vec<(u64, Op)>> {
    let op = prop_oneof![
        8 => (60..=1_500_u32, 0..4_u8).prop_map(|(bytes, class)| Op::Arrive { bytes, class }),
        4 => Just(Op::Ask),
        1 => (0..MIXES.len(), 0..4_u8).prop_map(|(mix, by)| Op::Change { mix, by }),
    ];
    proptest::collection::vec((prop_oneof![2 => Just(0), 1 => 0..4_000_u64], op), 0..300)
}

proptest! {
    #[test]
    fn every_packet_is_sent_dropped_or_queued(ops in ops()) {
        let mut sendbox = sendbox(MIXES[0]);
        let mut inside = BTreeMap::new();
        let (mut now, mut dropped, mut came_since, mut inside_then) = (Time::ZERO, 0, 0, 0);
        for (id, (gap, op)) in (0_u32..).zip(ops) {
            now += Duration::from_micros(gap);
            let mut gone = Vec::new();
            let mut drops = |packet: TaggedPacket, _| gone.push(packet);
            match op {
                Op::Arrive { bytes, class } => {
                    let packet = TaggedPacket { id, bytes, class };
                    inside.insert(id, bytes);
                    came_since += 1;
                    let _ = sendbox.enqueue(now, packet, &mut drops);
                }
                Op::Ask => {
                    if let Some(packet) = sendbox.dequeue(now, &mut drops) {
                        prop_assert_eq!(inside.remove(&packet.id), Some(packet.bytes));
                    }
                }
                Op::Change { mix, by } => {
                    let again = |packet: TaggedPacket| TaggedPacket {
                        class: (packet.class + by) % 4,
                        ..packet
                    };
                    sendbox
                        .requeue(now, &spec(MIXES[mix]), again, &mut drops)
                        .expect("possible");
                    prop_assert_eq!(sendbox.queue(), &spec(MIXES[mix]));
                    (came_since, inside_then) = (0, sendbox.backlog().packets);
                }
            }
            dropped += gone.len() as u64;
            for packet in gone {
                prop_assert_eq!(inside.remove(&packet.id), Some(packet.bytes));
            }
            let expected = Backlog {
                packets: inside.len() as u64,
                bytes: inside.values().map(|bytes| u64::from(*bytes)).sum(),
            };
            prop_assert_eq!(sendbox.backlog(), expected);
            prop_assert_eq!(sendbox.status(now).totals.dropped, dropped);
            let sum = sendbox
                .classes()
                .fold(ClassStatus::default(), |sum, class| ClassStatus {
                    backlog: Backlog {
                        packets: sum.backlog.packets + class.backlog.packets,
                        bytes: sum.backlog.bytes + class.backlog.bytes,
                    },
                    packets: sum.packets + class.packets,
                    dropped: sum.dropped + class.dropped,
                    ..sum
                });
            prop_assert_eq!(sum.backlog, expected);
            // Packets since the classes were configured. Drops during the change itself count for
            // either the old or the new classes.
            prop_assert!(sum.packets + sum.backlog.packets <= inside_then + came_since);
            prop_assert!(
                sum.packets + sum.dropped + sum.backlog.packets >= inside_then + came_since
            );
        }
    }
}

/// Dequeues all packets and returns their classes in order.
fn drained(sendbox: &mut Sendbox<TaggedPacket>, now: Time) -> Vec<u8> {
    std::iter::from_fn(|| sendbox.dequeue(now, &mut |_, _| {}))
        .map(|packet| packet.class)
        .collect()
}

#[test]
fn the_high_level_goes_first_but_for_a_twentieth_after_a_change_too() {
    let two = [(0, 1, "droptail:inf"), (1, 1, "droptail:inf")];
    let mut sendbox = sendbox(&two);
    let fill = |sendbox: &mut Sendbox<TaggedPacket>, class, count| {
        for id in 0..count {
            let packet = TaggedPacket {
                id,
                bytes: 1_000,
                class,
            };
            let _ = sendbox.enqueue(Time::ZERO, packet, &mut |_, _| {});
        }
    };
    fill(&mut sendbox, 1, 100);
    fill(&mut sendbox, 0, 100);
    let order = drained(&mut sendbox, Time::ZERO);
    // One packet was already on the line.
    let last_high = order.iter().rposition(|class| *class == 0).expect("some");
    let low_before = order[..last_high]
        .iter()
        .filter(|class| **class == 1)
        .count();
    assert_eq!(order.len(), 200);
    assert!((4..=7).contains(&low_before), "{low_before}: {order:?}");
    // Swap the priorities; queued packets move to their new class.
    fill(&mut sendbox, 0, 50);
    fill(&mut sendbox, 1, 50);
    let again = |packet: TaggedPacket| TaggedPacket {
        class: 1 - packet.class,
        ..packet
    };
    sendbox
        .requeue(Time::ZERO, &spec(&two), again, &mut |_, _| {
            panic!("there is room")
        })
        .expect("possible");
    let order = drained(&mut sendbox, Time::ZERO);
    assert_eq!(order.len(), 100);
    let high_first = order[..52].iter().filter(|class| **class == 0).count();
    assert!(high_first >= 48, "{order:?}");
    let sent: Vec<u64> = sendbox.classes().map(|class| class.packets).collect();
    assert_eq!(sent, [50, 50]);
}
