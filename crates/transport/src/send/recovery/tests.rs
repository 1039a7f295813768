//! Start, target, end and undo of a reduction.

use ccplane_units::Duration;

use super::*;
use crate::test_harness::{MSS_BYTES, TestEnd, ack};

/// Ten segments are in flight. 20 ms later SACKs of three others reveal the loss of the first.
fn one_lost() -> TestEnd {
    let mut alone = TestEnd::new(10);
    alone.write(30);
    alone.advance_ms(20);
    assert!(
        alone
            .deliver_ack(ack(0).sack(1..2))
            .is_some_and(|heard| heard.lost == 0)
    );
    alone.deliver_ack(ack(0).sack(1..3));
    let heard = alone.deliver_ack(ack(0).sack(1..4)).unwrap();
    assert_eq!((heard.lost, heard.starts_reduction), (1, true));
    alone
}

/// RFC 5681 section 3.1, (4): the threshold is half the window, at least two segments.
#[test]
fn the_threshold_is_half_and_at_least_two_segments() {
    let alone = one_lost();
    assert_eq!(alone.connection.ssthresh(), 5 * MSS_BYTES);
    let mut small = TestEnd::new(3);
    small.connection.begin_reduction(RecoveryPhase::Recovery);
    assert_eq!(small.connection.ssthresh(), 2 * MSS_BYTES);
}

/// RFC 6675 section 5, (4.1) and (A): the repair lasts until everything sent before it is
/// acknowledged (RecoveryPoint).
#[test]
fn a_repair_ends_at_the_recovery_point() {
    let mut alone = one_lost();
    assert_eq!(
        alone.send_numbers(),
        [0],
        "the repair, RFC 6675, section 4, NextSeg (1)"
    );
    alone.advance_ms(20);
    alone.deliver_ack(ack(9).echo(0, 2));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Recovery);
    alone.deliver_ack(ack(10));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Open);
    // RFC 9937 section 6: at the end the window is the threshold.
    assert_eq!(alone.connection.cwnd(), 5 * MSS_BYTES);
}

/// RFC 6675 section 5: a further loss in the same window is repaired without a further reduction.
#[test]
fn a_second_loss_of_the_window_is_no_second_reduction() {
    let mut alone = one_lost();
    alone.send_numbers();
    alone.advance_ms(10);
    let heard = alone.deliver_ack(ack(0).sack(5..9).sack(1..4)).unwrap();
    assert_eq!(
        (heard.lost, heard.starts_reduction),
        (1, false),
        "segment 4"
    );
    assert_eq!(alone.connection.ssthresh(), 5 * MSS_BYTES);
}

/// RFC 9937 section 6: while more than the threshold is in flight, fewer segments are sent than
/// delivered; the first retransmission is sent in any case.
#[test]
fn a_repair_sends_in_proportion() {
    let mut alone = one_lost();
    let mut left = alone.send_numbers().len();
    assert_eq!(left, 1);
    for end in 5..=10 {
        alone.deliver_ack(ack(0).sack(1..end));
        left += alone.send_numbers().len();
    }
    // Six more of the eight segments then in flight have arrived: half as many are sent.
    assert!((4..=5).contains(&left), "{left}");
    assert!(alone.connection.in_flight() <= 5);
}

/// A mark followed by a loss in the same window turns the reduction into a loss recovery with a new
/// recovery point.
#[test]
fn a_loss_makes_a_reduction_a_repair() {
    let mut alone = TestEnd::new(10);
    alone.write(30);
    alone.advance_ms(20);
    alone.deliver_ack(ack(1).ce_marked(1));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Reduction);
    let heard = alone.deliver_ack(ack(1).sack(2..6).ce_marked(1)).unwrap();
    assert_eq!((heard.lost, heard.starts_reduction), (1, false));
    assert_eq!(alone.connection.phase(), RecoveryPhase::Recovery);
}

/// RFC 3522 section 3.2 and RFC 4015 section 3: the echo shows that the original arrived. Window
/// and threshold are restored.
#[test]
fn acks_of_the_original_undo_the_reduction() {
    let mut alone = one_lost();
    assert_eq!(alone.send_numbers(), [0]);
    let heard = alone.deliver_ack(ack(4).echo(0, 1)).unwrap();
    assert!(heard.undone);
    assert_eq!(alone.connection.phase(), RecoveryPhase::Open);
    assert_eq!(
        (alone.connection.cwnd(), alone.connection.ssthresh()),
        (10 * MSS_BYTES, u64::MAX)
    );
}

#[test]
fn acks_of_the_retransmission_undo_nothing() {
    let mut alone = one_lost();
    alone.send_numbers();
    alone.advance_ms(20);
    let heard = alone.deliver_ack(ack(4).echo(0, 2)).unwrap();
    assert!(!heard.undone);
    assert_eq!(alone.connection.phase(), RecoveryPhase::Recovery);
}

/// RFC 3708 section 3: if every retransmission is reported as a duplicate, none was needed. The
/// report may arrive after the repair.
#[test]
fn duplicates_of_every_retransmission_undo_the_reduction() {
    for late in [false, true] {
        let mut alone = one_lost();
        assert_eq!(alone.send_numbers(), [0]);
        let first = alone
            .deliver_ack(ack(if late { 10 } else { 4 }).echo(0, 0))
            .unwrap();
        assert!(!first.undone);
        let heard = alone
            .deliver_ack(ack(if late { 10 } else { 4 }).duplicate_of(0))
            .unwrap();
        assert!(heard.undone, "late: {late}");
        assert_eq!(
            (alone.connection.cwnd(), alone.connection.ssthresh()),
            (10 * MSS_BYTES, u64::MAX)
        );
    }
}

/// RFC 5682 section 2: if the first progress after a timeout is due to a segment sent before it,
/// the timeout was spurious.
#[test]
fn progress_from_before_a_timeout_undoes_it() {
    let mut alone = TestEnd::new(10);
    alone.write(30);
    while alone.wait_for_timer().is_none_or(|heard| !heard.timeout) {
        alone.send_numbers();
    }
    assert_eq!(alone.send_numbers(), [0]);
    let heard = alone.deliver_ack(ack(1).echo(0, 1)).unwrap();
    assert!(heard.undone);
    assert_eq!(
        (alone.connection.cwnd(), alone.connection.ssthresh()),
        (10 * MSS_BYTES, u64::MAX)
    );
    assert_eq!(
        (alone.connection.phase(), alone.connection.flight.lost()),
        (RecoveryPhase::Open, 0)
    );
}

/// RFC 9937 section 6 does not apply to a control without threshold (BBR): its window applies at
/// once.
#[test]
fn a_control_without_threshold_is_not_led() {
    let mut alone = one_lost();
    alone.outcome = Outcome {
        ssthresh: Some(u64::MAX),
        cwnd: Some(9 * MSS_BYTES),
        ..Outcome::default()
    };
    alone.deliver_ack(ack(0).sack(1..5));
    assert_eq!(alone.connection.cwnd(), 9 * MSS_BYTES);
}

/// During a repair a control sees the window after the repair. It may lower that window, but not
/// raise it.
#[test]
fn controls_may_lower_the_window_after_recovery() {
    for (says, ends) in [(3, 3), (40, 5)] {
        let mut alone = one_lost();
        assert_eq!(alone.connection.control_cwnd(), 5 * MSS_BYTES);
        alone.send_numbers();
        alone.advance_ms(20);
        alone.outcome.cwnd = Some(says * MSS_BYTES);
        alone.deliver_ack(ack(4).echo(0, 2));
        assert_eq!(alone.connection.control_cwnd(), ends * MSS_BYTES);
        alone.deliver_ack(ack(10));
        // The outcome of the last ACK applies to an open connection, which is not tested here.
        assert_eq!(alone.connection.phase(), RecoveryPhase::Open);
    }
}

/// RFC 5681 section 3.1: after a timeout the window opens by slow start up to the threshold. The
/// connection does this itself until a steering agent sets a window.
#[test]
fn after_a_timeout_slow_start_leads_to_the_threshold() {
    let mut alone = TestEnd::new(10);
    alone.connection.flags.steered = true;
    alone.write(30);
    while alone.wait_for_timer().is_none_or(|heard| !heard.timeout) {
        alone.send_numbers();
    }
    assert_eq!(
        (alone.connection.window(), alone.connection.ssthresh()),
        (1, 5 * MSS_BYTES)
    );
    let mut windows = Vec::new();
    for number in 1..=6 {
        alone.send_numbers();
        alone.advance_ms(20);
        alone.deliver_ack(ack(number).echo(number - 1, 2));
        windows.push(alone.connection.window());
    }
    assert_eq!(windows, [2, 3, 4, 5, 5, 5]);
}

/// RFC 8985 section 6.2, step 4: the reordering window decays with each end of a recovery.
#[test]
fn the_end_of_a_repair_is_told_to_rack() {
    let mut alone = one_lost();
    let (una, next) = (alone.connection.una(), alone.connection.next());
    let reordering = &mut alone.connection.repair_mut().reordering;
    reordering.on_duplicate(una, next);
    let before = format!("{reordering:?}");
    alone.send_numbers();
    alone.now += Duration::from_millis(20);
    alone.deliver_ack(ack(10).echo(0, 2));
    let after = format!("{:?}", alone.connection.repair_mut().reordering);
    assert_ne!(before, after);
}
