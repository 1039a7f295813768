//! Scoreboard in isolation, with valid and with unlikely sequences of calls.

use ccplane_units::{Duration, Time};
use proptest::prelude::*;

use super::*;

/// Scoreboard with the sender's clock.
struct TestFlight {
    flight: Flight,
    rate: DeliveryRate,
    now: Time,
}

impl TestFlight {
    fn new() -> TestFlight {
        TestFlight {
            // Numbers wrap early.
            flight: Flight::new(SequenceNumber(u32::MAX - 20)),
            rate: DeliveryRate::default(),
            now: Time::ZERO,
        }
    }

    fn send(&mut self, length: u16) -> SequenceNumber {
        self.now += Duration::from_micros(10);
        self.flight.skip_delivered();
        if self.flight.next() == self.flight.cut() {
            return self.flight.on_sent_new(length, self.now, &mut self.rate);
        }
        let number = self.flight.take_next();
        self.flight.on_sent(number, self.now, false, &mut self.rate);
        number
    }

    fn retransmit(&mut self, number: SequenceNumber) {
        self.flight.mark_retransmitted(number);
        self.flight.on_sent(number, self.now, false, &mut self.rate);
    }

    /// Applies a SACK of one segment.
    fn sack(&mut self, number: SequenceNumber) {
        if number.is_before(self.flight.next()) {
            self.flight.on_delivered(number);
        }
        self.flight.on_sacked(number);
        self.flight.skip_delivered();
    }

    /// Applies a cumulative ACK of `segments` segments, at most of those sent.
    fn acknowledge(&mut self, segments: u32) {
        let next = self.flight.next();
        for _ in 0..segments {
            let number = self.flight.una();
            if self.flight.is_empty()
                || !number.is_before(next) && !self.flight.get(number).has(SentSegment::RC3_FLAG)
            {
                break;
            }
            let sent = self.flight.acknowledge_first();
            if number.is_before(next) && !sent.has(SentSegment::SACKED_FLAG) {
                self.flight.on_delivered(number);
            }
        }
        self.flight.advance_next();
        self.flight.skip_delivered();
    }

    /// Checks that the segments in flight are those sent by class 0 and neither delivered nor lost.
    fn check(&self) {
        self.flight.check();
        let sent = (0..self.flight.outstanding())
            .map(|n| self.flight.get(self.flight.una().wrapping_add(n)));
        let flying = sent
            .filter(|sent| !sent.has(SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG))
            .count();
        assert_eq!(self.flight.in_flight() as usize, flying);
    }
}

/// RFC 6675 section 4, pipe: SACKed and lost segments are not in flight; retransmissions are.
#[test]
fn a_loss_leaves_the_flight_and_its_retransmission_joins_it() {
    let mut alone = TestFlight::new();
    let first = alone.send(100);
    for _ in 0..4 {
        alone.send(100);
    }
    alone.sack(first.wrapping_add(4));
    alone.flight.on_lost(first);
    assert_eq!(
        (
            alone.flight.in_flight(),
            alone.flight.lost(),
            alone.flight.sacked()
        ),
        (3, 1, 1)
    );
    alone.retransmit(first);
    assert_eq!((alone.flight.in_flight(), alone.flight.lost()), (4, 0));
    assert_eq!(alone.flight.lost_total(), 1);
    alone.acknowledge(5);
    assert!(alone.flight.is_empty() && alone.flight.is_in_order());
    assert_eq!(alone.flight.una_offset(), 500);
}

/// Segments that only RC3 sent and delivered were never in flight: `next` and the cumulative ACK
/// skip them.
#[test]
fn class_0_passes_over_what_rc3_has_brought() {
    let mut alone = TestFlight::new();
    let first = alone.send(100);
    for _ in 0..3 {
        alone.flight.cut_segment(100, false);
    }
    for number in [first.wrapping_add(1), first.wrapping_add(2)] {
        alone.flight.on_sent_rc3(number, 0);
        alone.sack(number);
    }
    assert_eq!(alone.flight.next(), first.wrapping_add(3));
    assert_eq!((alone.flight.in_flight(), alone.flight.skipped()), (1, 2));
    alone.acknowledge(1);
    assert!(alone.flight.acknowledge_skipped());
    assert_eq!(
        (alone.flight.una(), alone.flight.skipped()),
        (first.wrapping_add(3), 0)
    );
    alone.check();
}

/// RFC 2018 section 8: a receiver may discard data that it SACKed; the segment is in flight again
/// until it is lost or acknowledged.
#[test]
fn reneged_segments_are_in_flight_again() {
    let mut alone = TestFlight::new();
    let first = alone.send(100);
    alone.send(100);
    alone.flight.cut_segment(100, false);
    alone.flight.on_sent_rc3(first.wrapping_add(2), 0);
    alone.sack(first.wrapping_add(2));
    alone.sack(first.wrapping_add(1));
    assert_eq!(alone.flight.in_flight(), 1);
    let mut told = Vec::new();
    alone
        .flight
        .clear_sacks(|sent, passed| told.push((sent.transmission, passed)));
    assert_eq!(told, [(0, true)]);
    assert_eq!(
        (
            alone.flight.in_flight(),
            alone.flight.sacked(),
            alone.flight.skipped()
        ),
        (3, 0, 0)
    );
    alone.check();
}

proptest! {
    /// In any order of events, each counter equals the number of segments that it counts.
    #[test]
    fn counters_match_the_state(
        events in prop::collection::vec((0_u8..12, 0_u32..64, 1_u16..1_500), 1..300),
    ) {
        let mut alone = TestFlight::new();
        for (what, which, length) in events {
            let held = alone.flight.cut().since(alone.flight.una());
            let number = alone.flight.una().wrapping_add(which % held.max(1));
            let sent = (held > 0).then(|| *alone.flight.get(number));
            let out = sent.filter(|_| number.is_before(alone.flight.next()));
            match (what, sent, out) {
                (0, ..) => alone.flight.cut_segment(length, false),
                (1..=3, ..) => {
                    alone.send(length);
                }
                (4, _, Some(sent))
                    if !sent.has(SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG) =>
                {
                    alone.flight.on_lost(number)
                }
                (5, _, Some(sent)) if sent.has(SentSegment::LOST_FLAG) => alone.retransmit(number),
                (6, Some(sent), out) if !sent.has(SentSegment::SACKED_FLAG) => {
                    if out.is_none() {
                        alone.flight.on_sent_rc3(number, 1);
                    }
                    alone.sack(number);
                }
                (7, ..) => alone.acknowledge(which),
                (8, ..) => {
                    alone.flight.acknowledge_skipped();
                }
                (9, ..) if which == 0 => alone.flight.clear_sacks(|_, _| ()),
                (9, ..) if which == 1 => {
                    let all: Vec<SequenceNumber> = (0..held)
                        .map(|n| alone.flight.una().wrapping_add(n))
                        .collect();
                    alone.flight.undo_losses(all.into_iter());
                }
                (10, _, Some(sent)) if sent.has(SentSegment::SACKED_FLAG) => {
                    alone.retransmit(number)
                }
                (11, _, Some(sent))
                    if !sent.has(SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG) =>
                {
                    alone.flight.on_sent_rc3(number, 0);
                    alone.flight.on_echoed(number);
                    alone.flight.on_sacked(number);
                    alone.flight.skip_delivered();
                }
                (9, ..) if which == 2 => alone.flight.acknowledge_all(alone.flight.cut(), |_| ()),
                _ => {}
            }
            alone.check();
        }
    }
}
