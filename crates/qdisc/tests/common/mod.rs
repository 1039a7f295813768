//! Test packet that implements every method of `Packet`.
#![allow(dead_code, reason = "each test file uses only a part of the module")]

use std::collections::BTreeMap;
use std::fmt::Debug;

use ccplane_qdisc::{Ecn, Packet, Qdisc, Stamp};
use ccplane_units::{Duration, Rate, Time};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub id: u32,
    pub bytes: u32,
    pub flow: u32,
    pub class: u8,
    pub ecn: Ecn,
    pub stamp: Stamp,
}

impl Full {
    pub fn new(id: u32, bytes: u32) -> Full {
        Full {
            id,
            bytes,
            flow: 0,
            class: 0,
            ecn: Ecn::NotEct,
            stamp: Stamp {
                rate: Rate::from_bytes_per_sec(u64::MAX),
                rtt: Duration::ZERO,
            },
        }
    }
}

impl Packet for Full {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow_hash(&self) -> u32 {
        self.flow
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        assert_ne!(
            self.ecn,
            Ecn::NotEct,
            "a packet without ECN is never marked"
        );
        self.ecn = Ecn::Ce;
    }

    fn rate_stamp(&mut self) -> Option<&mut Stamp> {
        Some(&mut self.stamp)
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Arrival of a packet after this many ns.
    Arrive(u64, Full),
    /// Dequeue after this many ns.
    Ask(u64),
}

/// Generates arrivals and dequeues, with more arrivals at first so that queues build up. Packet ids
/// increase.
pub fn ops(count_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let gap = prop_oneof![3 => Just(0), 3 => 0_u64..2_000_000, 1 => 0_u64..60_000_000];
    let packet = (
        40_u32..1_501,
        0_u32..6,
        any::<u8>(),
        0_u8..4,
        0_u64..300_000,
    )
        .prop_map(|(bytes, flow, class, ecn, rtt)| Full {
            flow,
            class: class % 5,
            ecn: Ecn::from_bits(ecn),
            stamp: Stamp {
                rate: Rate::from_bytes_per_sec(u64::MAX),
                rtt: Duration::from_micros(rtt),
            },
            ..Full::new(0, bytes)
        });
    let op = |arrivals: u32| {
        prop_oneof![
            arrivals => (gap.clone(), packet.clone())
                .prop_map(|(gap, packet)| Op::Arrive(gap, packet)),
            2 => gap.clone().prop_map(Op::Ask),
        ]
    };
    let many = proptest::collection::vec(op(5), 0..count_max / 2);
    let few = proptest::collection::vec(op(1), 0..count_max / 2);
    (many, few).prop_map(|(many, few)| {
        let mut ops: Vec<Op> = many.into_iter().chain(few).collect();
        for (index, op) in ops.iter_mut().enumerate() {
            if let Op::Arrive(_, packet) = op {
                packet.id = index as u32;
            }
        }
        ops
    })
}

/// Checks that packets of a flow leave in the order in which they arrived. Classes and ECN fields
/// can reorder packets of one flow, so each flow has a fixed one, of `classes` in all.
pub fn check_flow_order(queue: &mut (impl Qdisc<Full> + Debug), ops: &[Op], classes: u32) {
    let (mut now, mut last) = (Time::ZERO, BTreeMap::new());
    for op in ops {
        match *op {
            Op::Arrive(gap, packet) => {
                now += Duration::from_nanos(gap);
                let packet = Full {
                    class: (packet.flow % classes) as u8,
                    ecn: Ecn::from_bits(packet.flow as u8),
                    ..packet
                };
                queue.enqueue(now, packet, &mut |_, _| {});
            }
            Op::Ask(gap) => {
                now += Duration::from_nanos(gap);
                if let Some(packet) = queue.dequeue(now, &mut |_, _| {}) {
                    let before = last.insert(packet.flow, packet.id);
                    assert!(before < Some(packet.id), "{queue:?}");
                }
            }
        }
    }
}
