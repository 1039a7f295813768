//! Processing of acknowledgements for RC3, and their effect on class 0.

use super::*;
use crate::config::{Rc3, TransportConfig};
use crate::test_harness::{MSS_BYTES, TestAck, TestEnd, ack};

/// A window of four segments and twenty written ones: class 0 has sent four and RC3 the others.
fn twenty() -> TestEnd {
    let mut alone = TestEnd::with_config(TransportConfig {
        initial_window: 4,
        rc3: Some(Rc3::default()),
        ..TransportConfig::default()
    });
    assert_eq!(alone.write(20), [0, 1, 2, 3]);
    assert_eq!(below(&mut alone), (4..20).rev().collect::<Vec<_>>());
    alone.advance_ms(20);
    alone
}

/// Sends everything in the classes below class 0.
fn below(alone: &mut TestEnd) -> Vec<u32> {
    let mut left = Vec::new();
    while let Some(class) = (1..8).find(|class| alone.connection.has_segment(alone.now, *class)) {
        let segment = alone
            .connection
            .transmit(alone.now, class, &mut SideData::default());
        left.push(segment.expect("`has` returned true").number.0);
        alone.connection.flight.check();
    }
    left
}

/// Acknowledgement in class 1.
fn low(answer: TestAck) -> TestAck {
    let mut answer = answer;
    (answer.segment.class, answer.segment.band) = (1, 1);
    answer
}

fn stats(alone: &TestEnd) -> Rc3Stats {
    *alone.connection.rc3_stats().unwrap()
}

#[test]
fn segments_of_rc3_are_no_delivery_of_class_0() {
    let mut alone = twenty();
    let heard = alone.deliver_ack(ack(1).sack(10..20).echo(0, 1)).unwrap();
    assert_eq!(
        (heard.packets, heard.sacked, heard.bytes),
        (1, 0, MSS_BYTES)
    );
    assert_eq!(alone.connection.in_flight(), 3);
    let stats = stats(&alone);
    assert_eq!(
        (stats.delivered_bytes, stats.in_flight, stats.arrived[0]),
        (10 * MSS_BYTES, 6, 10)
    );
    // A repetition has no effect.
    alone.deliver_ack(ack(1).sack(10..20).echo(0, 1));
    assert_eq!(self::stats(&alone), stats);
}

#[test]
fn an_acknowledgement_of_a_class_below_changes_nothing_in_class_0() {
    let mut alone = twenty();
    let state = |alone: &TestEnd| {
        let connection = &alone.connection;
        let rack = &connection.rack;
        (
            (
                connection.cwnd(),
                connection.in_flight(),
                connection.una(),
                connection.deadline,
            ),
            (
                connection.srtt(),
                connection.last_delivery,
                connection.stats().delivered,
                rack.xmit_ts,
            ),
        )
    };
    let before = state(&alone);
    assert!(alone.deliver_ack(low(ack(2).sack(12..20))).is_none());
    assert_eq!(state(&alone), before);
    assert_eq!(
        (stats(&alone).delivered_bytes, stats(&alone).in_flight),
        (8 * MSS_BYTES, 8)
    );
}

/// RFC 9293 section 3.10.7.4, for two senders: an ACK of data that neither has sent is dropped.
#[test]
fn acks_of_unsent_segments_are_ignored() {
    let mut alone = TestEnd::with_config(TransportConfig {
        initial_window: 4,
        rc3: Some(Rc3 {
            distance_max: 10,
            ..Rc3::default()
        }),
        ..TransportConfig::default()
    });
    assert_eq!(alone.write(30), [0, 1, 2, 3]);
    assert_eq!(below(&mut alone).last(), Some(&4));
    let cut = alone.connection.flight.cut().0;
    assert!(cut < 30, "it segments at most this many ahead");
    assert!(alone.deliver_ack(ack(cut + 1)).is_none());
    alone.deliver_ack(ack(0).sack(8..cut + 1));
    assert_eq!(stats(&alone).delivered_bytes, 0);
    assert!(
        alone.deliver_ack(ack(cut)).is_some(),
        "each segment was sent by one of the two"
    );
    assert_eq!(alone.connection.una().0, cut);
}

/// Class 0 skips segments that have arrived already, and a cumulative ACK of segments that it never
/// sent is not a delivery.
#[test]
fn class_0_goes_on_behind_what_has_arrived() {
    let mut alone = twenty();
    alone.deliver_ack(low(ack(0).sack(6..20)));
    let heard = alone.deliver_ack(ack(4)).unwrap();
    assert_eq!((heard.packets, heard.bytes), (4, 4 * MSS_BYTES));
    assert_eq!(alone.send_numbers(), [4, 5]);
    alone.advance_ms(20);
    let heard = alone.deliver_ack(ack(20).echo(5, 1)).unwrap();
    assert_eq!((heard.packets, heard.bytes), (2, 2 * MSS_BYTES));
    assert_eq!(stats(&alone).skips, 1);
    assert!(alone.connection.flight.is_empty());
}

/// If both have sent a segment and RC3's copy arrives first, the copy of class 0 stays in flight
/// until it is acknowledged.
#[test]
fn an_echo_is_in_flight_until_it_is_answered() {
    let mut alone = twenty();
    alone.deliver_ack(ack(4));
    assert_eq!(alone.send_numbers(), [4, 5, 6, 7]);
    alone.advance_ms(1);
    // The segment that triggered the ACK was sent before 4 to 7, so RC3 delivered those.
    let covered = alone.deliver_ack(ack(8).echo(3, 1));
    assert!(covered.is_none(), "not delivered by class 0: {covered:?}");
    assert_eq!(
        (alone.connection.una().0, alone.connection.in_flight()),
        (8, 4)
    );
    assert_eq!(alone.send_numbers(), [], "the window is full");
    alone.advance_ms(19);
    // To the peer the copy of class 0 is a duplicate (RFC 2883).
    let answered = alone
        .deliver_ack(ack(8).duplicate_of(5).echo(5, 1))
        .unwrap();
    assert_eq!(
        (answered.packets, answered.bytes, answered.rtt),
        (1, MSS_BYTES, crate::test_harness::RTT)
    );
    // 4 was sent before 5: it, or its ACK, was lost.
    assert_eq!(
        (
            alone.connection.in_flight(),
            alone.connection.flight.echoes()
        ),
        (2, 2)
    );
}

/// A duplicate of a segment that both sent does not show a spurious retransmission.
#[test]
fn a_duplicate_of_rc3_is_kept_from_class_0() {
    let mut alone = twenty();
    alone.deliver_ack(ack(4));
    assert_eq!(alone.send_numbers(), [4, 5, 6, 7]);
    alone.advance_ms(20);
    let answer = ack(8).duplicate_of(5);
    let told = alone
        .connection
        .split_ack(&answer.segment, &answer.side)
        .unwrap();
    assert!(told.duplicate.is_none());
    assert_eq!(stats(&alone).duplicates, 1);
}
