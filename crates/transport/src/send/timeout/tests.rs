//! Timers of RFC 6298 section 5 and of related RFCs.

use ccplane_units::Duration;

use super::*;
use crate::config::TransportConfig;
use crate::number::SequenceNumber;
use crate::segment::Segment;
use crate::test_harness::{MSS_BYTES, RTT, TestEnd, ack};

/// SRTT plus the minimum of RTO - SRTT.
const RTO: Duration = Duration::from_millis(220);

/// Waits for a retransmission timeout. The tail-loss probe before it is sent and lost.
fn time_out(alone: &mut TestEnd) -> Ack {
    loop {
        if let Some(heard) = alone.wait_for_timer()
            && heard.timeout
        {
            return heard;
        }
        alone.send_numbers();
    }
}

/// RFC 5681 section 3.1: after a timeout the window is one segment, whatever the control sets,
/// until the first delivery.
#[test]
fn no_control_opens_the_window_between_a_timeout_and_the_next_delivery() {
    let mut alone = TestEnd::new(10);
    alone.write(30);
    alone.outcome.cwnd = Some(40 * MSS_BYTES);
    time_out(&mut alone);
    assert_eq!(alone.send_numbers(), [0]);
    alone.run_control_deadline();
    assert_eq!(
        alone.send_numbers(),
        [],
        "the agent's window is not applied yet"
    );
    assert_eq!(
        alone.connection.control_cwnd(),
        40 * MSS_BYTES,
        "and the agent sees it"
    );
    for _ in 0..4 {
        time_out(&mut alone);
        assert_eq!(alone.send_numbers(), [0], "one segment for each timeout");
    }
    let before = alone.connection.stats().retransmitted;
    alone.outcome.cwnd = None;
    alone.advance_ms(20);
    alone.deliver_ack(ack(1).echo(0, 6));
    assert_eq!(
        alone.connection.window(),
        40,
        "the path delivers, so the agent's window applies"
    );
    alone.send_numbers();
    assert!(alone.connection.stats().retransmitted > before + 5);
}

/// If the control sets no window, slow start begins at one segment.
#[test]
fn without_a_window_of_the_control_slow_start_begins_at_one_segment() {
    let mut alone = TestEnd::new(10);
    alone.connection.flags.steered = true;
    alone.write(30);
    time_out(&mut alone);
    assert_eq!(alone.send_numbers(), [0]);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1).echo(0, 3));
    assert_eq!(alone.connection.window(), 2);
}

/// (5.1) and (5.3): the timer starts with the transmission and restarts with each ACK of new data.
#[test]
fn the_timer_starts_with_data_and_again_with_progress() {
    let mut alone = TestEnd::new(10);
    let sent = alone.now;
    alone.write(2);
    assert_eq!(alone.connection.rto_deadline(), sent + RTO);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1));
    let progress = alone.now;
    assert_eq!(
        alone.connection.rto_deadline(),
        progress + alone.connection.rto()
    );
    // An ACK without new data does not restart it.
    alone.advance_ms(5);
    alone.deliver_ack(ack(1));
    assert_eq!(
        alone.connection.rto_deadline(),
        progress + alone.connection.rto()
    );
}

/// (5.2): when everything is acknowledged, only the idle timer runs.
#[test]
fn nothing_outstanding_means_no_timer() {
    let mut alone = TestEnd::new(10);
    alone.write(2);
    alone.advance_ms(20);
    alone.deliver_ack(ack(2));
    assert!(alone.wait_for_timer().is_none());
    assert_eq!(alone.connection.next_timer(), Time::MAX);
    assert_eq!(alone.connection.stats().timeouts, 0);
}

/// (5.4): only the first unacknowledged segment is retransmitted, as the window is one segment (RFC
/// 5681 section 3.1).
#[test]
fn a_timeout_sends_the_first_segment_again() {
    let mut alone = TestEnd::new(10);
    alone.write(8);
    alone.advance_ms(20);
    alone.deliver_ack(ack(3));
    let heard = time_out(&mut alone);
    assert!(heard.starts_reduction);
    assert_eq!(alone.connection.cwnd(), MSS_BYTES);
    assert_eq!(alone.send_numbers(), [3]);
}

/// (5.5), (5.6) and (2.5): each consecutive timeout doubles the RTO, up to a maximum; (5.7):
/// progress resets it.
#[test]
fn timeouts_in_a_row_back_off() {
    let mut alone = TestEnd::with_config(TransportConfig {
        max_rto: Duration::from_secs(1),
        ..TransportConfig::default()
    });
    alone.write(5);
    let mut waits = Vec::new();
    let mut before = alone.now;
    for _ in 0..5 {
        time_out(&mut alone);
        waits.push(alone.now.since(before).as_millis());
        before = alone.now;
        assert_eq!(alone.send_numbers(), [0]);
    }
    assert_eq!(waits, [220, 440, 880, 1000, 1000]);
    assert_eq!(alone.connection.consecutive_timeouts(), 5);
    alone.deliver_ack(ack(1).echo(0, 0));
    assert_eq!(alone.connection.consecutive_timeouts(), 0);
}

/// RFC 5681 section 3.1: a second timeout of the same segment leaves the threshold unchanged.
#[test]
fn a_second_timeout_leaves_the_threshold() {
    let mut alone = TestEnd::new(16);
    alone.write(16);
    time_out(&mut alone);
    assert_eq!(alone.connection.ssthresh(), 8 * MSS_BYTES);
    alone.send_numbers();
    let second = time_out(&mut alone);
    assert!(!second.starts_reduction);
    assert_eq!(alone.connection.ssthresh(), 8 * MSS_BYTES);
}

/// RFC 8985 section 6.3: everything that is not SACKed is marked lost, once.
#[test]
fn a_timeout_loses_what_is_not_sacked() {
    let mut alone = TestEnd::new(10);
    alone.write(6);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1).sack(3..4));
    let heard = time_out(&mut alone);
    assert_eq!(heard.lost, 4);
    assert_eq!(
        (
            alone.connection.flight.sacked(),
            alone.connection.in_flight()
        ),
        (1, 0)
    );
    assert_eq!(alone.send_numbers(), [1]);
    assert_eq!(
        time_out(&mut alone).lost,
        1,
        "only segments retransmitted since"
    );
}

/// RFC 2018 section 5: a timeout may mean that the receiver discarded data it had SACKed. That is
/// assumed here if the first unacknowledged segment was SACKed.
#[test]
fn a_timeout_ends_the_belief_in_sacks_of_the_first_segment() {
    let mut alone = TestEnd::new(10);
    alone.write(6);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1).sack(1..3));
    let heard = time_out(&mut alone);
    assert_eq!(heard.lost, 5);
    assert_eq!(alone.connection.flight.sacked(), 0);
    assert_eq!(alone.send_numbers(), [1]);
}

/// RFC 9293 section 3.8.3 (R2): after the maximum of consecutive timeouts the connection fails, and
/// the peer is notified.
#[test]
fn a_peer_that_never_answers_is_given_up() {
    let mut alone = TestEnd::with_config(TransportConfig {
        max_retries: 3,
        ..TransportConfig::default()
    });
    alone.write(1);
    for _ in 0..3 {
        time_out(&mut alone);
        alone.send_numbers();
    }
    assert!(alone.wait_for_timer().is_none());
    assert_eq!(
        alone.connection.failure(),
        Some(ConnectionError::TimedOut(3))
    );
    let told: Vec<_> = alone
        .send_all()
        .iter()
        .map(|segment| segment.kind)
        .collect();
    assert_eq!(told, [crate::SegmentKind::Abort]);
}

/// RFC 8985 section 7.2: the probe is sent 2 SRTT after the last transmission, or later if the peer
/// may delay the ACK of a single segment.
#[test]
fn the_probe_comes_after_two_round_trips() {
    for (segments, wait) in [
        (3, RTT * 2),
        (1, RTT * 2 + TransportConfig::default().ack_delay),
    ] {
        let mut alone = TestEnd::new(10);
        let sent = alone.now;
        alone.write(segments);
        assert!(alone.wait_for_timer().is_none());
        assert_eq!(alone.now.since(sent), wait, "{segments} out");
        // Section 7.3: without new data the segment with the highest number is retransmitted.
        assert_eq!(alone.send_numbers(), [segments as u32 - 1]);
        // Section 7.2: one probe at a time.
        assert_eq!(alone.connection.probe_deadline(), None);
    }
}

/// RFC 8985 section 6.2, step 5: a timer is set for a segment that is not overdue yet.
#[test]
fn a_segment_is_lost_when_the_reordering_window_has_passed() {
    let mut alone = TestEnd::new(10);
    let sent = alone.now;
    alone.write(3);
    alone.advance_ms(20);
    assert!(
        alone
            .deliver_ack(ack(0).sack(1..2))
            .is_some_and(|heard| heard.lost == 0)
    );
    let heard = alone.wait_for_timer().unwrap();
    assert_eq!((heard.lost, heard.timeout), (1, false));
    // The RTT plus a quarter of the minimum RTT.
    assert_eq!(alone.now.since(sent), RTT + RTT / 4);
}

/// A window of two segments that the peer closed.
fn closed() -> TestEnd {
    let mut alone = TestEnd::new(10);
    alone.connection.peer_window_end = 2 * MSS_BYTES;
    assert_eq!(alone.write(5), [0, 1]);
    alone.advance_ms(20);
    alone.deliver_ack(ack(2).receive_window(0));
    assert!(alone.connection.is_blocked());
    alone
}

fn probes(alone: &mut TestEnd) -> usize {
    let left = alone.send_all();
    assert!(
        left.iter()
            .all(|segment| segment.has_flag(Segment::PROBE_FLAG) && segment.length == 0)
    );
    left.len()
}

/// RFC 9293 section 3.8.6.1: a zero window is probed after an RTO, then with exponential backoff.
#[test]
fn a_closed_window_is_probed_with_backoff() {
    let mut alone = closed();
    let rto = alone.connection.rto();
    let mut before = alone.now;
    for n in 0..4 {
        assert!(alone.wait_for_timer().is_none());
        assert_eq!(alone.now.since(before), rto * (1 << n));
        before = alone.now;
        assert_eq!(probes(&mut alone), 1);
    }
}

/// RFC 9293 section 3.8.6.1 (MUST-37): the connection stays open while the peer answers probes. An
/// opened window ends them.
#[test]
fn a_peer_that_answers_probes_may_keep_its_window_closed() {
    let mut alone = closed();
    for _ in 0..40 {
        alone.wait_for_timer();
        assert_eq!(probes(&mut alone), 1);
        alone.deliver_ack(ack(2).receive_window(0));
    }
    assert_eq!(alone.connection.state(), ConnectionState::Open);
    alone.deliver_ack(ack(2).receive_window(3 * MSS_BYTES as u32));
    assert_eq!(alone.send_numbers(), [2, 3, 4]);
    // A peer that does not answer makes the connection fail.
    let mut silent = closed();
    for _ in 0..40 {
        silent.wait_for_timer();
        silent.send_all();
    }
    assert_eq!(
        silent.connection.failure(),
        Some(ConnectionError::TimedOut(16))
    );
}

/// The deadline may precede the next timer: an early or repeated check changes nothing.
#[test]
fn early_polls_do_nothing() {
    let mut alone = TestEnd::new(10);
    alone.write(3);
    let before = format!("{:?}", alone.connection);
    for _ in 0..3 {
        alone.advance_ms(5);
        alone
            .connection
            .on_timeout(alone.now, &mut crate::Native::new_reno());
    }
    assert_eq!(format!("{:?}", alone.connection), before);
    assert_eq!(alone.connection.una(), SequenceNumber(0));
}
