//! Validation of acknowledgements and their effect.

use super::*;
use crate::send::rate::DeliveryRate;
use crate::test_harness::{MSS_BYTES, RTT, TestEnd, ack};

/// Returns a flight of `segments` segments, all sent now.
fn flight(segments: u32) -> Flight {
    let mut flight = Flight::new(SequenceNumber(0));
    for _ in 0..segments {
        flight.on_sent_new(MSS_BYTES as u16, Time::ZERO, &mut DeliveryRate::default());
    }
    flight
}

fn read(answer: &crate::test_harness::TestAck, flight: &Flight) -> Option<AckInfo> {
    AckInfo::read(&answer.segment, &answer.side, flight, |_, _| false)
}

/// RFC 9293 section 3.10.7.4, fifth: an ACK of data not yet sent is dropped, and an ACK below
/// SND.UNA is ignored.
#[test]
fn an_ack_of_what_was_not_sent_is_dropped() {
    let mut flight = flight(4);
    flight.acknowledge(SequenceNumber(2), 2 * MSS_BYTES);
    assert!(read(&ack(5), &flight).is_none(), "SEG.ACK > SND.NXT");
    assert!(read(&ack(1), &flight).is_none(), "SEG.ACK < SND.UNA");
    for number in 2..=4 {
        assert!(read(&ack(number), &flight).is_some());
    }
}

/// Segments sent in another class may be acknowledged up to the first gap.
#[test]
fn an_ack_of_what_was_sent_elsewhere_is_taken() {
    let mut flight = flight(2);
    for _ in 0..3 {
        flight.cut_segment(MSS_BYTES as u16, false);
    }
    let elsewhere = |from: SequenceNumber, to: SequenceNumber| from.0 >= 2 && to.0 <= 4;
    let read = |answer: &crate::test_harness::TestAck| {
        AckInfo::read(&answer.segment, &answer.side, &flight, elsewhere)
    };
    assert!(read(&ack(4)).is_some());
    assert!(read(&ack(5)).is_none());
    assert_eq!(read(&ack(0).sack(1..4)).unwrap().ranges().len(), 1);
    assert_eq!(read(&ack(0).sack(1..5)).unwrap().ranges().len(), 0);
}

/// RFC 2018 section 3: a block lies beyond the acknowledgement number; a block that reaches beyond
/// SND.NXT is invalid.
#[test]
fn ranges_are_of_what_is_outstanding() {
    let flight = flight(8);
    let ranges = |answer| read(&answer, &flight).unwrap().ranges().to_vec();
    let range = |start, end| Range {
        start: SequenceNumber(start),
        end: SequenceNumber(end),
    };
    assert_eq!(
        ranges(ack(0).sack(2..3).sack(5..8)),
        [range(2, 3), range(5, 8)]
    );
    assert_eq!(
        ranges(ack(4).sack(2..6)),
        [range(4, 6)],
        "bytes that the ACK covers are not new"
    );
    assert_eq!(ranges(ack(4).sack(1..3)), []);
    assert_eq!(ranges(ack(0).sack(5..9)), []);
    assert_eq!(ranges(ack(0).sack(3..3)), []);
}

/// A range received twice is a DSACK (RFC 2883 section 4), not a SACK range.
#[test]
fn duplicates_form_no_range() {
    let told = read(&ack(3).duplicate_of(1), &flight(4)).unwrap();
    assert_eq!(
        told.duplicate.map(|range| range.start),
        Some(SequenceNumber(1))
    );
    assert_eq!(told.ranges(), []);
}

/// RFC 9293 section 3.10.7.4: SND.UNA moves to SEG.ACK, and SACKed data is not delivered a second
/// time.
#[test]
fn each_segment_is_delivered_once() {
    let mut alone = TestEnd::new(10);
    alone.write(6);
    alone.advance_ms(20);
    let sacked = alone.deliver_ack(ack(1).sack(3..5)).unwrap();
    assert_eq!(
        (sacked.bytes, sacked.packets, sacked.sacked),
        (MSS_BYTES, 1, 2)
    );
    assert_eq!(alone.connection.in_flight(), 3);
    let again = alone.deliver_ack(ack(1).sack(3..5));
    assert!(again.is_none(), "nothing new: {again:?}");
    let rest = alone.deliver_ack(ack(6)).unwrap();
    assert_eq!(
        (rest.bytes, rest.packets, rest.sacked),
        (5 * MSS_BYTES, 3, 0)
    );
    assert_eq!(alone.connection.stats().delivered, 6);
    assert_eq!(alone.connection.in_flight(), 0);
}

/// The fast path and the slow path of an ACK give the same result. Marks force the latter.
#[test]
fn the_fast_path_matches_the_slow_path() {
    let run = |short: bool| {
        let mut alone = TestEnd::new(10);
        alone.write(8);
        alone.advance_ms(21);
        let mut heard = alone
            .deliver_ack(if short { ack(5) } else { ack(5).ce_marked(1) })
            .unwrap();
        (heard.ce_packets, heard.ce_bytes, heard.starts_reduction) = (0, 0, false);
        let connection = &alone.connection;
        let rack = &connection.rack;
        (
            format!("{heard:?}"),
            (
                connection.una(),
                connection.peer_window_end,
                connection.srtt(),
                connection.last_delivery,
            ),
            (rack.xmit_ts, rack.end_seq, rack.fack, rack.rtt),
        )
    };
    assert_eq!(run(true), run(false));
}

/// RFC 6298 section 3 (Karn): a retransmitted segment gives no sample, unless the ACK names the
/// transmission.
#[test]
fn a_retransmission_gives_no_sample_unless_it_is_known() {
    for (transmission, rtt) in [(0, Duration::ZERO), (2, RTT)] {
        let mut alone = TestEnd::new(10);
        alone.write(3);
        alone.wait_for_timer(); // the tail-loss probe
        assert_eq!(alone.send_numbers(), [2]);
        alone.advance_ms(20);
        let heard = alone.deliver_ack(ack(3).echo(2, transmission)).unwrap();
        assert_eq!(heard.rtt, rtt, "transmission {transmission} acknowledged");
    }
}

/// RFC 9293 section 3.10.7.4: an ACK of SND.UNA or more sets the window. Section 3.8.6: a sender
/// must be robust against a shrinking window; this one continues to the right edge advertised
/// before.
#[test]
fn the_edge_of_the_window_never_retreats() {
    let mut alone = TestEnd::new(10);
    alone.connection.peer_window_end = 2 * MSS_BYTES;
    assert_eq!(alone.write(8), [0, 1]);
    alone.deliver_ack(ack(1).receive_window(4 * MSS_BYTES as u32));
    assert_eq!(alone.send_numbers(), [2, 3, 4]);
    alone.deliver_ack(ack(2).receive_window(0));
    assert_eq!(alone.connection.peer_window_end, 5 * MSS_BYTES);
    alone.deliver_ack(ack(5).receive_window(MSS_BYTES as u32));
    assert_eq!(alone.send_numbers(), [5]);
}

/// RFC 3168 section 6.1.2: a mark is treated as a loss, at most once per window of data.
#[test]
fn a_window_of_marks_is_one_reduction() {
    let mut alone = TestEnd::new(10);
    alone.write(20);
    alone.advance_ms(20);
    let first = alone.deliver_ack(ack(2).ce_marked(1)).unwrap();
    assert_eq!(
        (first.ce_packets, first.ce_bytes, first.starts_reduction),
        (1, MSS_BYTES as u32, true)
    );
    assert_eq!(alone.connection.ssthresh(), 5 * MSS_BYTES);
    alone.send_numbers();
    let more = alone.deliver_ack(ack(6).ce_marked(3)).unwrap();
    assert_eq!((more.ce_packets, more.starts_reduction), (2, false));
    // A reordered ACK has a smaller count.
    let old = alone.deliver_ack(ack(8).ce_marked(2)).unwrap();
    assert_eq!(old.ce_packets, 0);
    alone.send_numbers();
    // Everything in flight at the first mark is acknowledged: a new window starts.
    alone.deliver_ack(ack(10).ce_marked(3));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Open);
    let next = alone.deliver_ack(ack(11).ce_marked(4)).unwrap();
    assert!(next.starts_reduction);
}

/// RFC 8985 section 7.4.2: a probe that repaired a single loss requires a reduction; a probe that
/// arrived twice does not.
#[test]
fn a_probe_that_repaired_a_loss_reduces() {
    for (arrived_twice, transmission, reduces) in
        [(false, 2, true), (true, 2, false), (false, 1, false)]
    {
        let mut alone = TestEnd::new(10);
        alone.write(3);
        alone.advance_ms(20);
        alone.deliver_ack(ack(2));
        alone.wait_for_timer();
        assert_eq!(alone.send_numbers(), [2]);
        alone.advance_ms(20);
        let answer = if arrived_twice {
            ack(3).duplicate_of(2)
        } else {
            ack(3)
        };
        let heard = alone.deliver_ack(answer.echo(2, transmission)).unwrap();
        assert_eq!(
            heard.starts_reduction, reduces,
            "{arrived_twice} {transmission}"
        );
    }
}

/// Segments delivered by RC3 are not deliveries of class 0: they give no sample, but the cumulative
/// ACK still moves past them.
#[test]
fn concealed_losses_are_not_delivered() {
    let mut alone = TestEnd::new(10);
    alone.write(4);
    alone.advance_ms(20);
    let answer = ack(2).sack(3..4);
    let told = read(&answer, &alone.connection.flight).unwrap();
    let mut heard = Ack::default();
    let sampled = alone.connection.apply_to_class0(
        alone.now,
        &answer.segment,
        &told,
        &mut heard,
        |_, number, _| number.0 != 1,
    );
    assert!(sampled);
    assert_eq!(
        (heard.bytes, heard.packets, heard.sacked),
        (MSS_BYTES, 1, 0)
    );
    assert_eq!(alone.connection.una(), SequenceNumber(2));
    assert_eq!(alone.connection.flight.sacked(), 1);
    alone.connection.flight.check();
}
