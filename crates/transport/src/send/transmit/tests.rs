//! Order of transmission, and the limits on it.

use ccplane_units::Rate;

use super::*;
use crate::config::TransportConfig;
use crate::test_harness::{MSS_BYTES, TestEnd, ack};

/// RFC 5681 section 3.1: the minimum of cwnd and rwnd limits transmission.
#[test]
fn both_windows_limit() {
    let mut alone = TestEnd::new(4);
    assert_eq!(alone.write(9), [0, 1, 2, 3], "cwnd");
    alone.connection.peer_window_end = 5 * MSS_BYTES;
    alone.advance_ms(20);
    alone.deliver_ack(ack(3).receive_window(2 * MSS_BYTES as u32));
    assert_eq!(alone.send_numbers(), [4], "rwnd");
}

/// RFC 6675 section 4: an ACK of new data allows as many segments as it removes from the flight.
#[test]
fn an_ack_releases_the_bytes_it_covers() {
    let mut alone = TestEnd::new(10);
    assert_eq!(alone.write(30).len(), 10);
    alone.advance_ms(20);
    alone.deliver_ack(ack(3));
    assert_eq!(alone.send_numbers(), [10, 11, 12]);
    assert_eq!(alone.connection.in_flight(), 10);
}

/// RFC 6675 section 4, NextSeg (1) and (2): lost segments first, in the order of their numbers,
/// then new data.
#[test]
fn lost_segments_are_sent_before_new_data() {
    let mut alone = TestEnd::new(10);
    alone.write(30);
    alone.advance_ms(20);
    alone.deliver_ack(ack(0).sack(3..10));
    alone.outcome.cwnd = Some(10 * MSS_BYTES);
    alone.outcome.ssthresh = Some(u64::MAX);
    alone.deliver_ack(ack(0).sack(3..10).ce_marked(1));
    assert_eq!(alone.send_numbers(), [0, 1, 2, 10, 11, 12, 13, 14, 15, 16]);
}

/// RFC 9293 section 3.8.6.2.1: no partial segment is sent to fill the peer's window (silly window
/// syndrome), unless nothing is in flight.
#[test]
fn small_windows_are_used_only_when_idle() {
    let mut alone = TestEnd::new(10);
    alone.connection.peer_window_end = 2 * MSS_BYTES + 500;
    assert_eq!(alone.write(5), [0, 1]);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1).receive_window(MSS_BYTES as u32 + 500));
    assert_eq!(alone.send_numbers(), []);
    alone.deliver_ack(ack(2).receive_window(500));
    let left = alone.send_all();
    assert_eq!(
        left.iter()
            .map(|segment| segment.length)
            .collect::<Vec<_>>(),
        [500]
    );
}

/// RFC 9293 section 3.8.6.2.1: the last data is sent even if it does not fill a segment. The end of
/// the stream goes with it (section 3.10.4).
#[test]
fn a_short_last_segment_carries_the_end() {
    let mut alone = TestEnd::new(10);
    alone.connection.write(MSS_BYTES + 300);
    alone.connection.finish();
    let left = alone.send_all();
    let said: Vec<_> = left
        .iter()
        .map(|segment| {
            (
                segment.length,
                segment.offset(),
                segment.has_flag(Segment::FIN_FLAG),
            )
        })
        .collect();
    assert_eq!(said, [(1000, 0, false), (300, MSS_BYTES, true)]);
    alone.advance_ms(20);
    alone.deliver_ack(ack(2));
    assert!(alone.connection.all_acked());
}

/// The end of a stream whose data was already sent takes one segment of its own.
#[test]
fn an_end_that_comes_late_is_a_segment_of_its_own() {
    let mut alone = TestEnd::new(10);
    assert_eq!(alone.write(1), [0]);
    alone.connection.finish();
    let left = alone.send_all();
    assert_eq!(left.len(), 1);
    assert!(left[0].has_flag(Segment::FIN_FLAG) && left[0].length == 0);
    assert_eq!(alone.send_numbers(), []);
}

/// RFC 8985 section 7.3: a probe sends new data if there is some and the peer's window allows it;
/// it may exceed cwnd by one segment.
#[test]
fn a_probe_is_new_data_where_there_is_some() {
    let mut alone = TestEnd::new(4);
    assert_eq!(alone.write(6), [0, 1, 2, 3]);
    alone.wait_for_timer();
    assert_eq!(alone.send_numbers(), [4]);
    assert_eq!(
        (alone.connection.in_flight(), alone.connection.window()),
        (5, 4)
    );
    let stats = alone.connection.stats();
    assert_eq!((stats.retransmitted, stats.lost), (0, 0));
}

/// RFC 5681 section 4.1 and RFC 2861: after an idle time the window halves per RTO, down to the
/// initial window.
#[test]
fn an_idle_connection_starts_with_a_smaller_window() {
    for (idle_rtos, window) in [(0, 64), (2, 32), (3, 16), (30, 10)] {
        let mut alone = TestEnd::new(10);
        alone.connection.set_cwnd(64 * MSS_BYTES);
        alone.write(1);
        alone.advance_ms(20);
        alone.deliver_ack(ack(1));
        let rto = alone.connection.rto();
        alone.now += rto * idle_rtos;
        alone.write(1);
        assert_eq!(
            alone.connection.window(),
            window,
            "idle for {idle_rtos} RTO"
        );
    }
}

/// Returns a steered connection with a window of 64 segments that was idle for a minute.
fn steered_and_idle() -> TestEnd {
    let mut alone = TestEnd::new(10);
    alone.connection.flags.steered = true;
    alone.connection.set_cwnd(64 * MSS_BYTES);
    alone.write(1);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1));
    alone.advance_ms(60_000);
    alone
}

/// RFC 5681 section 4.1 also applies to a connection steered by an agent. If the algorithm sets its
/// stored window at the next ACK, the connection applies as much of it as slow start would give.
#[test]
fn a_steered_connection_restarts_too() {
    let mut alone = steered_and_idle();
    assert_eq!(alone.write(200).len(), 10);
    assert_eq!(
        alone.connection.control_cwnd(),
        10 * MSS_BYTES,
        "the control sees the effective window"
    );
    assert_eq!(alone.connection.ssthresh(), u64::MAX);
    alone.outcome.cwnd = Some(64 * MSS_BYTES);
    let mut windows = Vec::new();
    for number in [2, 6, 20, 40, 56] {
        alone.advance_ms(20);
        alone.deliver_ack(ack(number));
        alone.send_numbers();
        windows.push(alone.connection.window());
        assert_eq!(alone.connection.control_cwnd(), 64 * MSS_BYTES);
    }
    assert_eq!(
        windows,
        [11, 15, 29, 49, 64],
        "one segment for each that was delivered"
    );
    alone.outcome.cwnd = Some(100 * MSS_BYTES);
    alone.deliver_ack(ack(57));
    assert_eq!(alone.connection.window(), 100, "the restart is over");
}

/// A window set by an agent without an ACK is limited by deliveries as well.
#[test]
fn a_window_set_without_an_ack_does_not_end_the_restart() {
    let mut alone = steered_and_idle();
    alone.write(200);
    alone.outcome.cwnd = Some(64 * MSS_BYTES);
    alone.run_control_deadline();
    assert_eq!(alone.connection.window(), 10);
    alone.outcome.cwnd = None;
    alone.advance_ms(20);
    alone.deliver_ack(ack(6));
    assert_eq!(
        alone.connection.window(),
        15,
        "the requested window is kept"
    );
}

/// A loss during the restart: the repair reduces from the window set by the control, and does not
/// end in a burst.
#[test]
fn a_loss_during_the_restart_does_not_lift_its_limit() {
    let mut alone = steered_and_idle();
    alone.write(200);
    alone.outcome.cwnd = Some(64 * MSS_BYTES);
    alone.advance_ms(20);
    alone.deliver_ack(ack(2));
    alone.send_numbers();
    alone.outcome.cwnd = Some(32 * MSS_BYTES);
    alone.deliver_ack(ack(2).sack(3..8));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Recovery);
    alone.outcome.cwnd = None;
    alone.send_numbers();
    alone.advance_ms(20);
    alone.deliver_ack(ack(13).echo(2, 2));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Open);
    assert_eq!(alone.connection.control_cwnd(), 32 * MSS_BYTES);
    assert_eq!(
        alone.connection.window(),
        10 + 1 + 5 + 6,
        "as much as was delivered since"
    );
}

/// Pacing delays a segment by the transmission time of the one before it.
#[test]
fn pacing_spreads_a_window() {
    let mut alone = TestEnd::with_config(TransportConfig {
        // One segment with headers per millisecond.
        max_rate: Some(Rate::from_bytes_per_sec(1_052_000)),
        ..TransportConfig::default()
    });
    let mut times = Vec::new();
    let begin = alone.now;
    alone.connection.write(4 * MSS_BYTES);
    while times.len() < 4 {
        let left = alone.send_numbers().len();
        times.extend(std::iter::repeat_n(
            alone.now.since(begin).as_millis(),
            left,
        ));
        match alone.connection.next_send(alone.now) {
            Some(at) => alone.now = at,
            None => break,
        }
    }
    assert_eq!(times.len(), 4, "{times:?}");
    assert!(times.is_sorted() && times[3] >= 2, "{times:?}");
}

/// The fast path of transmission sends the same segments as the slow path.
#[test]
fn the_fast_check_matches_the_full_one() {
    let run = |quick: bool| {
        let mut alone = TestEnd::new(10);
        let mut left = alone.write(40);
        for round in 1..4 {
            alone.advance_ms(20);
            alone.outcome.cwnd = Some((10 + round) * MSS_BYTES);
            alone.deliver_ack(ack(left.len() as u32 - 3));
            if !quick {
                alone.connection.invalidate();
            }
            left.extend(alone.send_numbers());
        }
        (left, alone.connection.in_flight(), alone.connection.stats())
    };
    assert_eq!(run(true), run(false));
}

/// A probe retransmits the last segment that has not arrived; later ones were SACKed.
#[test]
fn a_probe_passes_over_what_was_sacked() {
    let mut alone = TestEnd::new(10);
    alone.write(5);
    alone.advance_ms(20);
    alone.deliver_ack(ack(0).sack(3..5));
    assert_eq!(alone.connection.last_missing(), SequenceNumber(2));
    assert_eq!(
        alone.connection.probe_deadline(),
        None,
        "RACK has its own timer"
    );
}

/// The quick check may miss that there is nothing to send, but never a segment.
#[test]
fn the_quick_check_misses_no_segment() {
    let mut alone = TestEnd::new(4);
    let quick = |alone: &TestEnd| alone.connection.has_only_acks();
    alone.connection.write(9 * MSS_BYTES);
    assert!(!quick(&alone), "the window is empty");
    alone.send_numbers();
    assert!(quick(&alone), "the window is full");
    let mut data = ack(0);
    (data.segment.kind, data.segment.length) = (SegmentKind::Data, 100);
    alone.deliver_ack(data);
    assert!(!quick(&alone), "an ACK is due");
    alone.send_numbers();
    assert!(quick(&alone), "it was sent");
    alone.connection.probe();
    assert!(!quick(&alone), "a probe is due");
    alone.send_numbers();
    alone.advance_ms(20);
    alone.deliver_ack(ack(1));
    assert!(!quick(&alone), "the window has room");
}
