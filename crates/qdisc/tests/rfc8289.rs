//! CoDel against a literal transcription of the pseudo-code in RFC 8289, sections 5.5 and 5.6.

use std::collections::VecDeque;

use crate::common::{Full, Op, ops};
use ccplane_qdisc::{Codel, CodelConfig, Ecn, Limit, Qdisc};
use ccplane_units::{Duration, Time};
use proptest::prelude::*;

const TARGET: u64 = 1_000_000;
const INTERVAL: u64 = 6_000_000;
const MAXPACKET: u64 = 1_500;

/// `codel_queue_t`. Times are in ns, and 0 means none, as in the RFC.
#[derive(Default)]
struct Literal {
    queue: VecDeque<(u64, Full)>,
    bytes: u64,
    ecn: bool,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    dropped: Vec<u32>,
}

impl Literal {
    fn enqueue(&mut self, now: u64, packet: Full) {
        self.bytes += u64::from(packet.bytes);
        self.queue.push_back((now, packet));
    }

    /// Computes t + INTERVAL / sqrt(count) by bisection: the largest wait with wait² × count ≤
    /// INTERVAL².
    fn control_law(t: u64, count: u32) -> u64 {
        let (mut low, mut high) = (0_u128, u128::from(INTERVAL) + 1);
        while high - low > 1 {
            let wait = (low + high) / 2;
            if wait * wait * u128::from(count) <= u128::from(INTERVAL).pow(2) {
                low = wait;
            } else {
                high = wait;
            }
        }
        t + low as u64
    }

    fn dodequeue(&mut self, now: u64) -> (Option<Full>, bool) {
        let mut ok_to_drop = false;
        let Some((tstamp, packet)) = self.queue.pop_front() else {
            self.first_above_time = 0;
            return (None, false);
        };
        self.bytes -= u64::from(packet.bytes);
        let sojourn_time = now - tstamp;
        if sojourn_time < TARGET || self.bytes <= MAXPACKET {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (Some(packet), ok_to_drop)
    }

    /// Marks the packet and returns true, or returns false if it must be dropped.
    fn marked(&self, packet: &mut Option<Full>) -> bool {
        match packet {
            Some(packet) if self.ecn && packet.ecn != Ecn::NotEct => {
                packet.ecn = Ecn::Ce;
                true
            }
            _ => false,
        }
    }

    fn dequeue(&mut self, now: u64) -> Option<Full> {
        let (mut packet, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                if self.marked(&mut packet) {
                    self.count += 1;
                    self.drop_next = Literal::control_law(self.drop_next, self.count);
                    return packet;
                }
                self.dropped.extend(packet.map(|packet| packet.id));
                self.count += 1;
                (packet, ok_to_drop) = self.dodequeue(now);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = Literal::control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            if !self.marked(&mut packet) {
                self.dropped.extend(packet.map(|packet| packet.id));
                (packet, _) = self.dodequeue(now);
            }
            self.dropping = true;
            let delta = i64::from(self.count) - i64::from(self.lastcount);
            self.count = 1;
            if delta > 1 && now as i64 - (self.drop_next as i64) < 16 * INTERVAL as i64 {
                self.count = delta as u32;
            }
            self.drop_next = Literal::control_law(now, self.count);
            self.lastcount = self.count;
        }
        packet
    }
}

fn codel(ecn: bool) -> Codel<Full> {
    let config = CodelConfig {
        target: Duration::from_nanos(TARGET),
        interval: Duration::from_nanos(INTERVAL),
        ecn,
    };
    Codel::new(config, Limit::Unlimited, MAXPACKET as u32)
}

proptest! {
    #[test]
    fn it_does_what_the_pseudo_code_does(ops in ops(1_200), ecn in any::<bool>()) {
        let (mut codel, mut literal) = (
            codel(ecn),
            Literal {
                ecn,
                ..Literal::default()
            },
        );
        let (mut now, mut dropped) = (1_000_000_000, Vec::new());
        for op in ops {
            match op {
                Op::Arrive(gap, packet) => {
                    now += gap;
                    codel.enqueue(Time::from_nanos(now), packet, &mut |_, _| {});
                    literal.enqueue(now, packet);
                }
                Op::Ask(gap) => {
                    now += gap;
                    let got = codel.dequeue(Time::from_nanos(now), &mut |packet: Full, _| {
                        dropped.push(packet.id)
                    });
                    prop_assert_eq!(got, literal.dequeue(now));
                    prop_assert_eq!(&dropped, &literal.dropped);
                }
            }
        }
    }
}

#[test]
fn drops_come_at_the_interval_over_the_root_of_the_count() {
    // A standing queue, dequeued every 10 µs.
    let mut codel = Codel::new(CodelConfig::DEFAULT, Limit::Unlimited, 1_500);
    for id in 0..200_000 {
        codel.enqueue(Time::ZERO, Full::new(id, 1_500), &mut |_, _| {});
    }
    let mut drops = Vec::new();
    for us in (0..1_000_000).step_by(10) {
        let now = Time::from_micros(us);
        codel.dequeue(now, &mut |_: Full, _| drops.push(us));
    }
    // The sojourn time exceeds the target from 5 ms on; drops start one interval later and continue
    // after 100/√1, 100/√2, 100/√3 … ms.
    let mut expected = 105_000.0;
    for (count, &at) in drops.iter().take(20).enumerate() {
        assert!(
            (at as f64 - expected).abs() <= 20.0,
            "drop {count} at {at} µs, not {expected}"
        );
        expected += 100_000.0 / ((count + 1) as f64).sqrt();
    }
    assert!(drops.len() > 20);
}

/// Bottleneck of Bundler's experiments.
const BUNDLER_CONFIG: CodelConfig = CodelConfig {
    target: Duration::from_millis(100),
    interval: Duration::from_millis(5),
    ecn: false,
};

/// Returns the drop times, in ms, of a queue with a constant sojourn time of `wait`: one arrival
/// and one dequeue every 10 µs.
fn drops_of_a_standing_queue(wait: u64, ms: u64) -> Vec<f64> {
    let mut codel = Codel::new(BUNDLER_CONFIG, Limit::Packets(20_000), 1_500);
    let mut drops = Vec::new();
    for step in 0..ms * 100 {
        let now = Time::from_micros(step * 10);
        codel.enqueue(now, Full::new(step as u32, 1_500), &mut |_, _| {});
        // A drop also takes the next packet's transmission slot, so the sojourn time does not grow.
        while codel.backlog().packets * 10 > wait * 1_000 {
            codel.dequeue(now, &mut |_: Full, _| drops.push(step as f64 / 100.0));
        }
    }
    drops
}

#[test]
fn with_the_interval_below_the_target_a_queue_of_60_ms_stands() {
    assert!(drops_of_a_standing_queue(60, 2_000).is_empty());
}

#[test]
fn with_the_interval_below_the_target_a_long_queue_loses_a_packet_after_5_ms_and_then_more() {
    let drops = drops_of_a_standing_queue(150, 1_000);
    // The first packet with a sojourn time of 150 ms leaves at 150 ms; drops start one interval
    // later and continue after 5/√1, 5/√2, 5/√3 … ms.
    let mut expected = 155.0;
    for (count, &at) in drops.iter().take(100).enumerate() {
        assert!(
            (at - expected).abs() <= 0.03 * (count + 2) as f64,
            "drop {count} at {at} ms, not {expected}"
        );
        expected += 5.0 / ((count + 1) as f64).sqrt();
    }
    assert!(drops.len() > 100);
}
