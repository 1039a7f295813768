//! The window of class 0 per acknowledgement is the same with and without RC3's acknowledgements,
//! for any fate of the packets of class 0, as long as it is the same in both runs.
//!
//! Schedules are random, and each runs twice: unchanged, and with every acknowledgement of a class
//! above 0 lost. The fate of any other packet depends on its fields, not on the packets sent before
//! it. `CCPLANE_SCHEDULES=1000000` and `CCPLANE_SCHEDULE=n` are as in `tests/property.rs`.
//!
//! The runs are compared until class 0 skips a segment that is reported as received: from there on
//! it sends other segments than in the second run, and so loses others. Tests without losses cover
//! the window where both loops meet (`meeting.rs`, 15). `Rc3::verify` is off, as RC3 may stop in
//! only one of the runs.

use std::collections::BTreeMap;

use ccplane_transport::{Ecn, Native, Rc3, Segment, SegmentKind, SequenceNumber, TransportConfig};
use ccplane_units::{Duration, Time};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::{MSS_BYTES, plain};
use crate::wire::{Pair, Path, secs};

/// Fate of packets, determined by their fields.
#[derive(Clone)]
struct Fate {
    seed: u64,
    /// Acknowledgements of classes above 0 arrive.
    told: bool,
    /// Per thousand: loss of class 0, of its acknowledgements, of the tail and of its
    /// acknowledgements; and marks in class 0.
    loss: [u32; 4],
    mark: u32,
    /// The first two transmissions of these segments of class 0 are lost, and these segments of the
    /// tail.
    outage: [SequenceNumber; 2],
    untailed: [SequenceNumber; 2],
    /// Delays in ns: of class 0, of other classes, and maximum jitter of either, which reorders
    /// packets.
    delay: u64,
    low: u64,
    jitter: u64,
    /// Arrival of each segment of the tail, and sending and arrival times of its acknowledgements.
    arrived: BTreeMap<u32, Time>,
    answers: Vec<(Time, Time)>,
}

impl Fate {
    /// Returns a pseudo-random number that depends only on the packet.
    fn draw(&self, what: u64, from: usize, segment: &Segment) -> u64 {
        let (number, transmission) = match segment.kind {
            SegmentKind::Data => (segment.number.0, segment.transmission),
            _ => (
                segment.ack.0 ^ segment.echo.0 << 16,
                segment.echo_transmission,
            ),
        };
        let class = u64::from(segment.class != 0);
        let low =
            u64::from(transmission) << 8 | (segment.kind as u64) << 4 | class << 1 | from as u64;
        let packet = u64::from(number) << 16 | low;
        let mut random = Pcg32::new(self.seed ^ packet.wrapping_mul(0x9e37_79b9_7f4a_7c15), what);
        u64::from(random.next_u32()) << 32 | u64::from(random.next_u32())
    }
}

impl Path for Fate {
    fn pass(&mut self, now: Time, from: usize, segment: &mut Segment, arrivals: &mut Vec<Time>) {
        let low = segment.class != 0;
        let place = usize::from(low) * 2 + usize::from(segment.kind == SegmentKind::Ack);
        let handshake = segment.kind > SegmentKind::Data;
        let within =
            |[first, end]: [SequenceNumber; 2]| from == 0 && segment.number.is_within(first, end);
        let away = !low && within(self.outage) && segment.transmission <= 2;
        let untailed = low && within(self.untailed);
        let unlucky =
            !handshake && self.draw(1, from, segment) % 1000 < u64::from(self.loss[place]);
        if away || untailed || unlucky || (low && from == 1 && !self.told) {
            return;
        }
        if segment.ecn != Ecn::NotEct && self.draw(2, from, segment) % 1000 < u64::from(self.mark) {
            segment.ecn = Ecn::Ce;
        }
        let jitter = self.draw(3, from, segment) % self.jitter;
        let at = now + Duration::from_nanos(if low { self.low } else { self.delay } + jitter);
        if low && from == 0 {
            self.arrived.insert(segment.number.0, at);
        } else if low {
            self.answers.push((now, at));
        }
        arrivals.push(at);
    }
}

/// A state of class 0 and its start: window, threshold, reduction in progress; acknowledged, next
/// number, transmissions.
type StateStart = (
    Time,
    (u64, u64, bool),
    (SequenceNumber, SequenceNumber, u64),
);

struct Run {
    states: Vec<StateStart>,
    ended: Time,
    fate: Fate,
}

fn run(config: &TransportConfig, control: &Native, fate: Fate, bytes: u64) -> Run {
    let mut pair = Pair::new(config, [control.clone(), control.clone()], fate, [bytes, 0]);
    let (mut states, mut sent): (Vec<StateStart>, u64) = (Vec::new(), 0);
    while !pair.connection(0).all_acked() && pair.connection(0).failure().is_none() {
        pair.log = Some(Vec::new());
        assert!(
            pair.step(secs(10_000)),
            "the transfer does not end: {:?}",
            pair.connection(0)
        );
        pair.drain(0);
        sent += super::count(&pair, 0);
        let sender = pair.connection(0);
        let window = (sender.cwnd(), sender.stats().ssthresh, sender.in_recovery());
        let place = (sender.una(), sender.next(), sent);
        if states
            .last()
            .is_none_or(|last| (last.1, last.2) != (window, place))
        {
            states.push((pair.now, window, place));
        }
    }
    Run {
        states,
        ended: pair.now,
        fate: pair.path,
    }
}

fn pick<T: Copy>(random: &mut Pcg32, choices: &[T]) -> T {
    choices[random.next_u32() as usize % choices.len()]
}

/// Runs one schedule. Returns the number of compared states, and of those in a reduction.
fn schedule(number: u64) -> (usize, usize) {
    let mut random = Pcg32::new(number, 0x0ddba11);
    let r = &mut random;
    let config = TransportConfig {
        ack_every: pick(r, &[1, 2]),
        quick_acks: pick(r, &[0, 16]),
        initial_window: pick(r, &[2, 4, 10]),
        min_rto: pick(r, &[Duration::from_millis(1), Duration::from_millis(200)]),
        pacing: pick(r, &[true, false, false]),
        pacing_quantum: pick(r, &[Duration::ZERO, Duration::from_micros(500)]),
        ecn: pick(r, &[Ecn::NotEct, Ecn::Ect0]),
        stamps: pick(r, &[true, false, false]),
        first_number: pick(r, &[0, u32::MAX - 50]),
        rc3: Some(Rc3 {
            distance_max: pick(r, &[30, 200, 1 << 17]),
            verify: false,
            ..Rc3::default()
        }),
        ..plain()
    };
    let control = match r.next_u32() % 4 {
        0 | 1 => Native::new_reno(),
        2 => Native::cubic(),
        _ => Native::dctcp(),
    };
    let segments = 20 + r.next_u32() % 800;
    let bytes = MSS_BYTES * u64::from(segments) + pick(r, &[0, 1, 700]);
    let first = SequenceNumber(config.first_number);
    let outage = first.wrapping_add(r.next_u32() % 100);
    let fate = Fate {
        seed: number,
        told: true,
        loss: [
            pick(r, &[0, 5, 20, 100]),
            pick(r, &[0, 0, 50, 300]),
            pick(r, &[0, 100, 500]),
            pick(r, &[0, 100]),
        ],
        mark: pick(r, &[0, 10, 200]),
        outage: [outage, outage.wrapping_add(pick(r, &[0, 0, 1, 8, 40]))],
        untailed: [
            first,
            first.wrapping_add(pick(r, &[0, segments / 2, segments * 9 / 10])),
        ],
        delay: 10_000_000,
        low: pick(
            r,
            &[4_000_000, 10_000_000, 13_000_000, 45_000_000, 200_000_000],
        ),
        jitter: pick(r, &[1, 100_000, 15_000_000]),
        arrived: BTreeMap::new(),
        answers: Vec::new(),
    };
    let untold = Fate {
        told: false,
        ..fate.clone()
    };
    let [with, without] = [fate, untold].map(|fate| run(&config, &control, fate, bytes));
    let states = with.states.iter().zip(&without.states);
    let same = states.take_while(|(one, other)| one == other).count();
    let before = &with.states[..same];
    let from = before.last().map_or(with.states[0].2.0, |last| last.2.1);
    match with.states.get(same) {
        // This run gets the report of the end before the other.
        Some((at, ..)) if *at == with.ended => {}
        Some((at, _, (_, next, _))) if has_reported_tail(&with.fate, from, *next, *at) => {}
        None => {}
        Some(other) => panic!(
            "{other:?} with, {:?} without, after {before:?}",
            without.states.get(same)
        ),
    }
    let reductions = before.iter().filter(|state| state.1.2).count();
    (same, reductions)
}

/// Returns true if the tail's copy of one of these segments has arrived, and an acknowledgement of
/// the tail sent afterwards has arrived by now.
fn has_reported_tail(fate: &Fate, from: SequenceNumber, to: SequenceNumber, now: Time) -> bool {
    let told = |arrived: &Time| {
        fate.answers
            .iter()
            .any(|(left, came)| left >= arrived && *came <= now)
    };
    let mut number = from;
    while number != to {
        if fate.arrived.get(&number.0).is_some_and(told) {
            return true;
        }
        number = number.wrapping_add(1);
    }
    false
}

#[test]
fn the_window_does_not_depend_on_acknowledgements_of_the_tail() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let schedules = match number("CCPLANE_SCHEDULE") {
        Some(one) => one..one + 1,
        None => 0..number("CCPLANE_SCHEDULES").unwrap_or(2_000),
    };
    let total = (schedules.end - schedules.start) as usize;
    let (mut states, mut reductions) = (0, 0);
    for number in schedules {
        match std::panic::catch_unwind(|| schedule(number)) {
            Ok((more, reduced)) => (states, reductions) = (states + more, reductions + reduced),
            Err(_) => panic!("schedule {number} failed; repeat it with CCPLANE_SCHEDULE={number}"),
        }
    }
    println!("{states} states of the first loop in {total} schedules, {reductions} in a reduction");
    assert!(total < 1000 || (states > total * 100 && reductions > total * 20));
}
