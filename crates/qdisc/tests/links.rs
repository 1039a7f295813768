//! Invariants of every link under arbitrary arrivals and line changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccplane_qdisc::{
    Drops, Ecn, EcnStep, FifoLink, Limit, LineSpec, LossModel, Packet, Piecewise, Qdisc, QueueSpec,
    ShapedLink, Trace, Verdict,
};
use ccplane_units::{Duration, Rate, Time};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Arrival of a packet: ns since the last step, bytes.
    Packet(u64, u32),
    /// Change of the line, after this many ns.
    Change(u64, LineSpec),
}

/// Fate of the packets, by order of arrival.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    departures: BTreeMap<usize, Time>,
    dropped: Vec<usize>,
    marked: Vec<usize>,
}

#[derive(Clone, Copy)]
struct NumberedPacket {
    number: usize,
    bytes: u32,
    ecn: Ecn,
}

impl Packet for NumberedPacket {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }
}

fn line() -> impl Strategy<Value = LineSpec> {
    let trace = proptest::collection::vec(0_u64..4, 1..12).prop_map(|gaps| {
        let mut time = 1;
        let mut lines = String::new();
        for gap in gaps {
            time += gap;
            lines += &format!("{time}\n");
        }
        LineSpec::Trace(Arc::new(
            Trace::parse(&lines).expect("times above zero that do not decrease"),
        ))
    });
    prop_oneof![
        3 => (1_u64..2_000_000_000)
            .prop_map(|rate| LineSpec::Constant(Rate::from_bytes_per_sec(rate))),
        3 => (100_000_u64..20_000_000)
            .prop_map(|rate| LineSpec::Constant(Rate::from_bytes_per_sec(rate))),
        2 => trace,
        2 => piecewise(),
        1 => Just(LineSpec::Unlimited),
    ]
}

fn piecewise() -> impl Strategy<Value = LineSpec> {
    let piece = (
        1_u64..3_000_000,
        prop_oneof![1 => Just(0), 4 => 100_000_u64..20_000_000],
    );
    (proptest::collection::vec(piece, 1..6), any::<bool>()).prop_map(|(pieces, repeat)| {
        let (mut at, mut steps) = (0, Vec::new());
        for (length, rate) in pieces {
            steps.push((Duration::from_nanos(at), Rate::from_bytes_per_sec(rate)));
            at += length;
        }
        steps.push((
            Duration::from_nanos(at),
            Rate::from_bytes_per_sec(1_000_000),
        ));
        let period = repeat.then_some(Duration::from_nanos(at + 1_000_000));
        LineSpec::Piecewise(Arc::new(
            Piecewise::new(&steps, period).expect("sorted, and the last one above zero"),
        ))
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![3 => Just(0), 3 => 0_u64..500_000, 1 => 0_u64..30_000_000];
    let packet = (gap.clone(), 40_u32..1_501).prop_map(|(gap, bytes)| Step::Packet(gap, bytes));
    let change = (gap, line()).prop_map(|(gap, line)| Step::Change(gap, line));
    proptest::collection::vec(prop_oneof![12 => packet, 1 => change], 1..300)
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (1_u64..20).prop_map(Limit::Packets),
        (1_500_u64..40_000).prop_map(Limit::Bytes),
        Just(Limit::Unlimited),
    ]
}

/// Runs the link that computes departures on arrival.
fn run_fifo(line: &LineSpec, limit: Limit, mark_above: Limit, steps: &[Step]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut link = FifoLink::with_marking(line, limit, mark_above, Time::ZERO);
    let (mut now, mut arrived) = (Time::ZERO, 0);
    for step in steps {
        match step {
            Step::Packet(gap, bytes) => {
                now += Duration::from_nanos(*gap);
                match link.admit(now, *bytes, arrived as u32) {
                    Ok(admitted) => {
                        assert!(
                            outcome
                                .departures
                                .insert(arrived, admitted.departure)
                                .is_none()
                        );
                        if admitted.mark {
                            outcome.marked.push(arrived);
                        }
                    }
                    Err(_) => outcome.dropped.push(arrived),
                }
                arrived += 1;
            }
            Step::Change(gap, line) => {
                now += Duration::from_nanos(*gap);
                link.set_line(now, line);
                let planned = link.departures();
                let past = outcome.departures.len() - planned.len();
                for (departure, plan) in outcome.departures.values_mut().skip(past).zip(planned) {
                    *departure = plan;
                }
            }
        }
        let inside = outcome
            .departures
            .values()
            .filter(|&&departs| departs > now)
            .count();
        link.advance(now);
        assert_eq!(link.backlog().packets as usize, inside);
    }
    outcome
}

/// Runs the link that dequeues whenever the line is free.
fn run_shaped(line: &LineSpec, limit: Limit, mark_above: Limit, steps: &[Step]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut link = ShapedLink::new(EcnStep::new(mark_above, limit), line, Time::ZERO);
    let (mut now, mut arrived) = (Time::ZERO, 0);
    let mut dropped = Vec::new();
    let mut drops = |packet: NumberedPacket, _| dropped.push(packet.number);
    for step in steps {
        let gap = match step {
            Step::Packet(gap, _) | Step::Change(gap, _) => *gap,
        };
        now += Duration::from_nanos(gap);
        take_ready(&mut link, now, &mut drops, &mut outcome);
        match step {
            Step::Packet(_, bytes) => {
                let before = link.backlog();
                let packet = NumberedPacket {
                    number: arrived,
                    bytes: *bytes,
                    ecn: Ecn::Ect0,
                };
                let verdict = link.enqueue(now, packet, &mut drops);
                let grew = link.backlog().bytes - before.bytes;
                assert_eq!(
                    grew,
                    if verdict == Verdict::Queued {
                        u64::from(*bytes)
                    } else {
                        0
                    }
                );
                arrived += 1;
            }
            Step::Change(_, line) => link.set_line(now, line, &mut drops),
        }
    }
    take_ready(&mut link, Time::MAX, &mut drops, &mut outcome);
    assert_eq!((link.backlog().packets, link.backlog().bytes), (0, 0));
    outcome.dropped = dropped;
    assert_eq!(
        outcome.departures.len() + outcome.dropped.len(),
        arrived,
        "arrived = delivered + dropped"
    );
    outcome
}

fn take_ready(
    link: &mut ShapedLink<NumberedPacket, EcnStep<NumberedPacket>>,
    now: Time,
    drops: &mut impl Drops<NumberedPacket>,
    outcome: &mut Outcome,
) {
    while let Some(ready) = link.next_ready()
        && ready <= now
    {
        // Dequeues at `now` instead of `ready`: a late caller must not change the schedule.
        match link.dequeue(now, drops) {
            Some(packet) => {
                assert!(outcome.departures.insert(packet.number, ready).is_none());
                if packet.ecn == Ecn::Ce {
                    outcome.marked.push(packet.number);
                }
            }
            None => assert!(link.next_ready() > Some(ready), "no progress"),
        }
    }
}

proptest! {
    #[test]
    fn both_forms_of_a_fifo_link_agree(
        line in line(),
        limit in limit(),
        mark_above in limit(),
        steps in steps(),
    ) {
        let fifo = run_fifo(&line, limit, mark_above, &steps);
        prop_assert_eq!(&fifo, &run_shaped(&line, limit, mark_above, &steps));
        let departures: Vec<_> = fifo.departures.values().collect();
        prop_assert!(departures.is_sorted(), "first in, first out");
    }

    #[test]
    fn whoever_lets_the_link_keep_the_numbers_gets_the_same(
        line in line(),
        limit in limit(),
        steps in steps(),
        delay in prop_oneof![Just(0), 0_u64..50_000_000],
    ) {
        let mut forgetting = FifoLink::new(&line, limit, Time::ZERO);
        let mut keeping = FifoLink::new(&line, limit, Time::ZERO);
        let delay = Duration::from_nanos(delay);
        let (mut now, mut admitted, mut taken) = (Time::ZERO, Vec::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            let gap = match step {
                Step::Packet(gap, _) | Step::Change(gap, _) => *gap,
            };
            now += Duration::from_nanos(gap);
            while let Some((departs, number)) = keeping.head() && departs + delay <= now {
                prop_assert_eq!(keeping.take(), Some((departs, number)));
                taken.push(number);
            }
            match step {
                Step::Packet(_, bytes) => {
                    let one = forgetting.enqueue(now, *bytes);
                    let other = keeping.admit(now, *bytes, number as u32);
                    prop_assert_eq!(one, other.map(|admitted| admitted.departure));
                    if one.is_ok() {
                        admitted.push(number as u32);
                    }
                }
                Step::Change(_, line) => {
                    forgetting.set_line(now, line);
                    keeping.set_line(now, line);
                }
            }
            forgetting.advance(now);
            prop_assert_eq!(keeping.backlog_at(now), forgetting.backlog());
            prop_assert_eq!(keeping.len(), admitted.len() - taken.len());
        }
        taken.extend(std::iter::from_fn(|| keeping.take()).map(|(_, number)| number));
        prop_assert_eq!(taken, admitted);
        prop_assert_eq!((keeping.is_empty(), keeping.backlog().bytes), (true, 0));
    }

    #[test]
    fn the_rate_is_never_exceeded(
        rate in 1_000_u64..1_000_000_000,
        limit in limit(),
        steps in steps(),
    ) {
        let steps: Vec<_> = steps
            .into_iter()
            .filter(|step| matches!(step, Step::Packet(..)))
            .collect();
        let line = LineSpec::Constant(Rate::from_bytes_per_sec(rate));
        let outcome = run_fifo(&line, limit, Limit::Unlimited, &steps);
        let size = |step: &Step| match step {
            Step::Packet(_, bytes) => u64::from(*bytes),
            Step::Change(..) => 0,
        };
        let sizes: Vec<_> = steps.iter().map(size).collect();
        let sent: Vec<_> = outcome
            .departures
            .iter()
            .map(|(id, at)| (at.as_nanos(), sizes[*id]))
            .collect();
        for first in 0..sent.len() {
            let mut bytes = 0;
            for (at, size) in sent.iter().skip(first + 1) {
                bytes += size;
                // Times are rounded down to whole nanoseconds, each by less than one.
                let ns = at - sent[first].0 + 1;
                prop_assert!(
                    u128::from(bytes) * 1_000_000_000 <= u128::from(ns) * u128::from(rate)
                );
            }
        }
    }

    #[test]
    fn changes_of_rate_lose_and_invent_no_work(
        sizes in proptest::collection::vec(40_u32..1_501, 1..50),
        first in 1_000_u64..1_000_000_000,
        changes in proptest::collection::vec((0_u64..2_000_000, 1_000_u64..1_000_000_000), 0..20),
    ) {
        let constant = |rate| LineSpec::Constant(Rate::from_bytes_per_sec(rate));
        let mut link = FifoLink::new(&constant(first), Limit::Unlimited, Time::ZERO);
        for bytes in &sizes {
            link.enqueue(Time::ZERO, *bytes).expect("no limit");
        }
        let mut last = link.departures().last().expect("all of them wait");
        // Work that the line can have carried, nanobytes.
        let (mut now, mut rate, mut carried) = (Time::ZERO, first, 0);
        for (gap, next) in changes {
            let then = now + Duration::from_nanos(gap);
            if then >= last {
                break;
            }
            carried += u128::from(gap) * u128::from(rate);
            (now, rate) = (then, next);
            link.set_line(now, &constant(rate));
            last = link.departures().last().expect("the last one has not left");
        }
        let total: u128 = sizes
            .iter()
            .map(|&bytes| u128::from(bytes) * 1_000_000_000)
            .sum();
        carried += u128::from(last.since(now).as_nanos()) * u128::from(rate);
        // The last departure is rounded down by less than a nanosecond.
        prop_assert!(
            carried <= total && total < carried + u128::from(rate),
            "{} of {}",
            carried,
            total
        );
    }

    #[test]
    fn a_trace_serves_as_one_that_walks_through_every_opportunity(
        times in proptest::collection::vec(0_u64..20, 1..10),
        packets in proptest::collection::vec((0_u64..40_000_000, 40_u32..4_000), 1..100),
    ) {
        let mut times = times;
        times.sort_unstable();
        prop_assume!(times.last() > Some(&0));
        let text: String = times.iter().map(|ms| format!("{ms}\n")).collect();
        let line = LineSpec::Trace(Arc::new(
            Trace::parse(&text).expect("sorted and not all zero"),
        ));
        let mut link = FifoLink::new(&line, Limit::Unlimited, Time::ZERO);
        let period = times[times.len() - 1];
        let mut opportunities = (0..).flat_map(|cycle| {
            times
                .iter()
                .map(move |ms| (cycle * period + ms) * 1_000_000)
        });
        let (mut at, mut left) = (opportunities.next().expect("endless"), 1_500);
        let mut now = 0;
        for (gap, bytes) in packets {
            now += gap;
            let departs = link
                .enqueue(Time::from_nanos(now), bytes)
                .expect("no limit");
            let mut need = bytes;
            while need > 0 {
                if at < now || left == 0 {
                    (at, left) = (opportunities.next().expect("endless"), 1_500);
                } else {
                    let taken = need.min(left);
                    (need, left) = (need - taken, left - taken);
                }
            }
            prop_assert_eq!(departs.as_nanos(), at);
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in any::<String>(), numbers in "[0-9\n :.a-z]{0,60}") {
        for text in [text, numbers] {
            let _ = Trace::parse(&text);
            let _ = text.parse::<QueueSpec>();
            let _ = format!("droptail:{text}").parse::<QueueSpec>();
            let _ = format!("gilbert:{text}").parse::<LossModel>();
        }
    }
}
