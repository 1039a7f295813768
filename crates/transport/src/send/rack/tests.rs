//! RACK in isolation, by the steps of RFC 8985.

use super::*;
use crate::test_harness::{TestEnd, ack};

const RTT: Duration = Duration::from_millis(20);

fn sent_at(ms: u64, transmission: u8) -> SentSegment {
    let mut sent = SentSegment::default();
    (sent.sent_at, sent.transmission) = (Time::from_micros(1_000 * ms), transmission);
    sent
}

fn rack() -> Rack {
    Rack::new(SequenceNumber(0))
}

/// RFC 8985 section 6.2, step 2: RACK.segment is the delivered segment that was sent last; among
/// those sent at the same time, the one with the highest number.
#[test]
fn the_latest_sent_of_the_delivered_counts() {
    let mut rack = rack();
    let now = Time::from_micros(100_000);
    rack.on_delivered(SequenceNumber(5), &sent_at(60, 1), now, RTT, true);
    rack.on_delivered(SequenceNumber(3), &sent_at(50, 1), now, RTT, true);
    assert_eq!(
        (rack.xmit_ts, rack.end_seq),
        (Time::from_micros(60_000), SequenceNumber(6))
    );
    rack.on_delivered(SequenceNumber(7), &sent_at(60, 1), now, RTT, true);
    assert_eq!(
        (rack.end_seq, rack.rtt),
        (SequenceNumber(8), Duration::from_millis(40))
    );
}

/// Step 2: a retransmission acknowledged within less than the minimum RTT is not the transmission
/// that was delivered.
#[test]
fn acks_faster_than_the_minimum_rtt_are_for_earlier_transmissions() {
    let now = Time::from_micros(100_000);
    let mut uncertain = rack();
    uncertain.on_delivered(SequenceNumber(5), &sent_at(95, 2), now, RTT, false);
    assert_eq!(uncertain.xmit_ts, Time::ZERO);
    let mut certain = rack();
    certain.on_delivered(SequenceNumber(5), &sent_at(95, 2), now, RTT, true);
    assert_eq!(certain.xmit_ts, Time::from_micros(95_000));
}

/// Step 3: an original delivered after a higher number was reordered; a retransmission shows
/// nothing.
#[test]
fn an_original_that_arrives_late_shows_reordering() {
    let mut rack = rack();
    let now = Time::from_micros(100_000);
    assert!(!rack.on_delivered(SequenceNumber(5), &sent_at(60, 1), now, RTT, true));
    assert!(!rack.on_delivered(SequenceNumber(3), &sent_at(80, 2), now, RTT, true));
    assert!(rack.on_delivered(SequenceNumber(4), &sent_at(60, 1), now, RTT, true));
}

/// Step 4: a DSACK widens the window once per round; sixteen recoveries without a DSACK reset it.
#[test]
fn a_duplicate_widens_the_window_once_a_round_for_sixteen_repairs() {
    let mut reordering = Reordering::default();
    reordering.on_duplicate(SequenceNumber(0), SequenceNumber(10));
    reordering.on_duplicate(SequenceNumber(5), SequenceNumber(15));
    assert_eq!(reordering.reo_wnd_extra, 1, "the same round");
    reordering.on_duplicate(SequenceNumber(10), SequenceNumber(20));
    assert_eq!(reordering.reo_wnd_extra, 2);
    for _ in 0..REO_WND_PERSIST_RECOVERIES - 1 {
        reordering.on_recovery_end();
    }
    assert_eq!(reordering.reo_wnd_extra, 2);
    reordering.on_recovery_end();
    assert_eq!(reordering.reo_wnd_extra, 0);
}

/// Step 4: while no reordering was seen, three SACKed segments (DupThresh) or a repair in progress
/// set the window to 0.
#[test]
fn three_sacked_segments_close_the_window() {
    let mut alone = TestEnd::new(10);
    alone.write(10);
    alone.advance_ms(20);
    alone.deliver_ack(ack(0).sack(1..3));
    assert_eq!(alone.connection.reordering_window(), RTT / 4);
    alone.deliver_ack(ack(0).sack(1..4));
    assert_eq!(alone.connection.reordering_window(), Duration::ZERO);
}

/// Step 4: after reordering was seen, the window is a quarter of the minimum RTT times the
/// multiplier, at most the SRTT.
#[test]
fn the_window_stays_open_where_reordering_was_seen() {
    let mut alone = TestEnd::new(10);
    alone.connection.repair_mut().reordering.reordering_seen = true;
    alone.write(10);
    alone.advance_ms(20);
    alone.deliver_ack(ack(0).sack(1..6));
    assert_eq!(alone.connection.reordering_window(), RTT / 4);
    alone.connection.repair_mut().reordering.reo_wnd_extra = 1;
    assert_eq!(alone.connection.reordering_window(), RTT / 2);
    alone.connection.repair_mut().reordering.reo_wnd_extra = 200;
    assert_eq!(
        alone.connection.reordering_window(),
        alone.connection.srtt()
    );
}

/// Step 5: a segment sent after RACK.segment is not lost, however late it is.
#[test]
fn only_what_was_sent_before_the_delivered_is_lost() {
    let mut alone = TestEnd::new(4);
    alone.write(8);
    alone.advance_ms(10);
    alone.connection.set_cwnd(8_000);
    alone.connection.invalidate();
    assert_eq!(alone.send_numbers(), [4, 5, 6, 7]);
    alone.advance_ms(20);
    let heard = alone.deliver_ack(ack(0).sack(1..4)).unwrap();
    assert_eq!(heard.lost, 1);
    assert_eq!(alone.connection.flight.lost(), 1);
}

/// Step 5: a retransmission is marked lost like any segment, by the delivery of a later one.
#[test]
fn a_retransmission_may_be_lost_again() {
    let mut alone = TestEnd::new(10);
    alone.write(30);
    alone.advance_ms(20);
    alone.deliver_ack(ack(0).sack(1..4));
    assert_eq!(alone.send_numbers(), [0, 10]);
    alone.advance_ms(1);
    alone.deliver_ack(ack(0).sack(1..8));
    assert_eq!(alone.send_numbers()[0], 11);
    alone.advance_ms(21);
    let heard = alone.deliver_ack(ack(0).sack(11..12).sack(1..8)).unwrap();
    assert_eq!(
        heard.lost, 4,
        "segment 0 again, 8 and 9, and 10, which was sent with it"
    );
}

/// A retransmission that was lost again is the segment that in-order delivery waits for: it is sent
/// before the rest.
#[test]
fn a_lost_retransmission_is_repaired_first() {
    let mut alone = TestEnd::new(40);
    alone.write(60);
    alone.advance_ms(20);
    let heard = alone.deliver_ack(ack(0).sack(30..39)).unwrap();
    assert_eq!(heard.lost, 30);
    let first = alone.send_numbers();
    alone.advance_ms(1);
    alone.deliver_ack(ack(0).sack(39..40).sack(30..39));
    let later = alone.send_numbers();
    let waiting = later[later.len() - 1] + 1;
    assert!(
        (first[0], later[0]) == (0, first.len() as u32) && waiting < 29,
        "{first:?}, {later:?}"
    );
    alone.advance_ms(21);
    // One of the later retransmissions arrives, none of the first.
    let (arrived, end) = (later[0], later[0] + 1);
    let heard = alone
        .deliver_ack(ack(0).sack(arrived..end).sack(30..40).echo(arrived, 2))
        .unwrap();
    assert_eq!(heard.lost as usize, first.len());
    assert_eq!(alone.send_numbers()[0], 0, "instead of {waiting}");
}
