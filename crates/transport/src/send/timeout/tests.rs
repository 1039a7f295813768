//! Timers, by RFC 6298, section 5, and by what other documents add to it.

use ccplane_units::Duration;

use super::*;
use crate::alone::{Alone, MSS, RTT, ack};
use crate::config::Config;
use crate::number::Number;
use crate::segment::Segment;

/// SRTT and what is added to it at least.
const RTO: Duration = Duration::from_millis(220);

/// Waits for a retransmission timeout. The probe before it leaves and is lost.
fn time_out(alone: &mut Alone) -> Ack {
    loop {
        if let Some(heard) = alone.wait()
            && heard.timeout
        {
            return heard;
        }
        alone.leaving();
    }
}

/// RFC 5681, 3.1: after a timeout the window is one segment, whatever the control sets, until
/// something is delivered.
#[test]
fn no_control_opens_the_window_between_a_timeout_and_the_next_delivery() {
    let mut alone = Alone::new(10);
    alone.write(30);
    alone.says.cwnd = Some(40 * MSS);
    time_out(&mut alone);
    assert_eq!(alone.leaving(), [0]);
    alone.command();
    assert_eq!(alone.leaving(), [], "the agent's window waits");
    assert_eq!(
        alone.connection.steered_cwnd(),
        40 * MSS,
        "and is the one that the agent sees"
    );
    for _ in 0..4 {
        time_out(&mut alone);
        assert_eq!(alone.leaving(), [0], "one segment for each timeout");
    }
    let before = alone.connection.stats().retransmitted;
    alone.says.cwnd = None;
    alone.pass(20);
    alone.hear(ack(1).echo(0, 6));
    assert_eq!(
        alone.connection.window(),
        40,
        "the path delivers, and the agent's window is in force"
    );
    alone.leaving();
    assert!(alone.connection.stats().retransmitted > before + 5);
}

/// A control that sets no window gets slow start from one segment.
#[test]
fn without_a_window_of_the_control_slow_start_begins_at_one_segment() {
    let mut alone = Alone::new(10);
    alone.connection.flags.steered = true;
    alone.write(30);
    time_out(&mut alone);
    assert_eq!(alone.leaving(), [0]);
    alone.pass(20);
    alone.hear(ack(1).echo(0, 3));
    assert_eq!(alone.connection.window(), 2);
}

/// (5.1) and (5.3): the timer runs from the sending, and from each ACK of new data on anew.
#[test]
fn the_timer_starts_with_data_and_again_with_progress() {
    let mut alone = Alone::new(10);
    let sent = alone.now;
    alone.write(2);
    assert_eq!(alone.connection.rto_at(), sent + RTO);
    alone.pass(20);
    alone.hear(ack(1));
    let progress = alone.now;
    assert_eq!(alone.connection.rto_at(), progress + alone.connection.rto());
    // An ACK of nothing new does not count.
    alone.pass(5);
    alone.hear(ack(1));
    assert_eq!(alone.connection.rto_at(), progress + alone.connection.rto());
}

/// (5.2): when everything is acknowledged, no timer runs but that of the peer's silence.
#[test]
fn nothing_outstanding_means_no_timer() {
    let mut alone = Alone::new(10);
    alone.write(2);
    alone.pass(20);
    alone.hear(ack(2));
    assert!(alone.wait().is_none());
    assert_eq!(alone.connection.due(), Time::MAX);
    assert_eq!(alone.connection.stats().timeouts, 0);
}

/// (5.4): the earliest segment that is not acknowledged is sent again, and no other, as RFC 5681,
/// 3.1 makes the window one segment.
#[test]
fn a_timeout_sends_the_first_segment_again() {
    let mut alone = Alone::new(10);
    alone.write(8);
    alone.pass(20);
    alone.hear(ack(3));
    let heard = time_out(&mut alone);
    assert!(heard.reduces);
    assert_eq!(alone.connection.cwnd(), MSS);
    assert_eq!(alone.leaving(), [3]);
}

/// (5.5), (5.6) and (2.5): each timeout in a row waits twice as long as the one before, up to a
/// maximum; (5.7): progress ends that.
#[test]
fn timeouts_in_a_row_back_off() {
    let mut alone = Alone::with(Config {
        max_rto: Duration::from_secs(1),
        ..Config::default()
    });
    alone.write(5);
    let mut waits = Vec::new();
    let mut before = alone.now;
    for _ in 0..5 {
        time_out(&mut alone);
        waits.push(alone.now.since(before).as_millis());
        before = alone.now;
        assert_eq!(alone.leaving(), [0]);
    }
    assert_eq!(waits, [220, 440, 880, 1000, 1000]);
    assert_eq!(alone.connection.timeouts_in_row(), 5);
    alone.hear(ack(1).echo(0, 0));
    assert_eq!(alone.connection.timeouts_in_row(), 0);
}

/// RFC 5681, 3.1: when the segment was sent again by the timer already, the threshold stays what it
/// was.
#[test]
fn a_second_timeout_leaves_the_threshold() {
    let mut alone = Alone::new(16);
    alone.write(16);
    time_out(&mut alone);
    assert_eq!(alone.connection.ssthresh(), 8 * MSS);
    alone.leaving();
    let second = time_out(&mut alone);
    assert!(!second.reduces);
    assert_eq!(alone.connection.ssthresh(), 8 * MSS);
}

/// RFC 8985, 6.3: what is not SACKed is lost, once.
#[test]
fn a_timeout_loses_what_is_not_sacked() {
    let mut alone = Alone::new(10);
    alone.write(6);
    alone.pass(20);
    alone.hear(ack(1).sack(3..4));
    let heard = time_out(&mut alone);
    assert_eq!(heard.lost, 4);
    assert_eq!(
        (
            alone.connection.flight.sacked(),
            alone.connection.in_flight()
        ),
        (1, 0)
    );
    assert_eq!(alone.leaving(), [1]);
    assert_eq!(
        time_out(&mut alone).lost,
        1,
        "only what was sent again since"
    );
}

/// RFC 2018, section 5: a timeout may mean that the receiver has thrown away what it had SACKed.
/// Here it does where the first segment that is not acknowledged is one of those.
#[test]
fn a_timeout_ends_the_belief_in_sacks_of_the_first_segment() {
    let mut alone = Alone::new(10);
    alone.write(6);
    alone.pass(20);
    alone.hear(ack(1).sack(1..3));
    let heard = time_out(&mut alone);
    assert_eq!(heard.lost, 5);
    assert_eq!(alone.connection.flight.sacked(), 0);
    assert_eq!(alone.leaving(), [1]);
}

/// RFC 9293, 3.8.3 (R2): after so many timeouts in a row the connection is given up, and the peer
/// is told.
#[test]
fn a_peer_that_never_answers_is_given_up() {
    let mut alone = Alone::with(Config {
        max_retries: 3,
        ..Config::default()
    });
    alone.write(1);
    for _ in 0..3 {
        time_out(&mut alone);
        alone.leaving();
    }
    assert!(alone.wait().is_none());
    assert_eq!(alone.connection.failure(), Some(Failure::TimedOut(3)));
    let told: Vec<_> = alone
        .segments()
        .iter()
        .map(|segment| segment.kind)
        .collect();
    assert_eq!(told, [crate::Kind::Abort]);
}

/// RFC 8985, 7.2: the probe comes 2 SRTT after the last sending, and later where the peer may hold
/// back the ACK of a single segment.
#[test]
fn the_probe_comes_after_two_round_trips() {
    for (segments, wait) in [(3, RTT * 2), (1, RTT * 2 + Config::default().ack_delay)] {
        let mut alone = Alone::new(10);
        let sent = alone.now;
        alone.write(segments);
        assert!(alone.wait().is_none());
        assert_eq!(alone.now.since(sent), wait, "{segments} out");
        // 7.3: the highest-numbered segment is sent again where there is no new data.
        assert_eq!(alone.leaving(), [segments as u32 - 1]);
        // 7.2: one probe at a time.
        assert_eq!(alone.connection.probe_at(), None);
    }
}

/// RFC 8985, 6.2, step 5: where a segment is not overdue yet, a timer says when it will be.
#[test]
fn a_segment_is_lost_when_the_reordering_window_has_passed() {
    let mut alone = Alone::new(10);
    let sent = alone.now;
    alone.write(3);
    alone.pass(20);
    assert!(
        alone
            .hear(ack(0).sack(1..2))
            .is_some_and(|heard| heard.lost == 0)
    );
    let heard = alone.wait().unwrap();
    assert_eq!((heard.lost, heard.timeout), (1, false));
    // The RTT, and a quarter of the least one.
    assert_eq!(alone.now.since(sent), RTT + RTT / 4);
}

/// A window of two segments, closed.
fn closed() -> Alone {
    let mut alone = Alone::new(10);
    alone.connection.limit = 2 * MSS;
    assert_eq!(alone.write(5), [0, 1]);
    alone.pass(20);
    alone.hear(ack(2).window(0));
    assert!(alone.connection.is_blocked());
    alone
}

fn probes(alone: &mut Alone) -> usize {
    let left = alone.segments();
    assert!(
        left.iter()
            .all(|segment| segment.has(Segment::PROBE) && segment.length == 0)
    );
    left.len()
}

/// RFC 9293, 3.8.6.1: a closed window is probed after a timeout's time, then at intervals that grow
/// exponentially.
#[test]
fn a_closed_window_is_probed_with_backoff() {
    let mut alone = closed();
    let rto = alone.connection.rto();
    let mut before = alone.now;
    for n in 0..4 {
        assert!(alone.wait().is_none());
        assert_eq!(alone.now.since(before), rto * (1 << n));
        before = alone.now;
        assert_eq!(probes(&mut alone), 1);
    }
}

/// The same (MUST-37): the connection stays open for as long as the peer answers, and the window's
/// opening ends it.
#[test]
fn a_peer_that_answers_probes_may_keep_its_window_closed() {
    let mut alone = closed();
    for _ in 0..40 {
        alone.wait();
        assert_eq!(probes(&mut alone), 1);
        alone.hear(ack(2).window(0));
    }
    assert_eq!(alone.connection.state(), State::Open);
    alone.hear(ack(2).window(3 * MSS as u32));
    assert_eq!(alone.leaving(), [2, 3, 4]);
    // A peer that does not answer is given up.
    let mut silent = closed();
    for _ in 0..40 {
        silent.wait();
        silent.segments();
    }
    assert_eq!(silent.connection.failure(), Some(Failure::TimedOut(16)));
}

/// A deadline may lie before the time that counts: looked at early, twice or late, it does the
/// same.
#[test]
fn an_early_look_does_nothing() {
    let mut alone = Alone::new(10);
    alone.write(3);
    let before = format!("{:?}", alone.connection);
    for _ in 0..3 {
        alone.pass(5);
        alone
            .connection
            .on_timeout(alone.now, &mut crate::Native::new_reno());
    }
    assert_eq!(format!("{:?}", alone.connection), before);
    assert_eq!(alone.connection.una(), Number(0));
}
