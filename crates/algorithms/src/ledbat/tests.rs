use super::*;
use crate::Registry;
use crate::script::{MSS, Script, everything};

const RTT: Duration = Duration::from_millis(20);

fn at(seconds: u64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

#[test]
fn the_gain_falls_with_the_base_delay() {
    let divisor = |base| divisor(60_000, base);
    assert_eq!(divisor(20_000), 6, "120 / 20");
    assert_eq!(divisor(19_000), 7, "120 / 19 = 6.3");
    assert_eq!(divisor(120_000), 1);
    assert_eq!(divisor(300_000), 1, "never faster than Reno");
    assert_eq!(divisor(200), 16);
    assert_eq!(divisor(0), 16);
}

#[test]
fn slowdowns_take_a_tenth_of_the_time() {
    let mut phase = LedbatPhase::Starting;
    phase = phase.next(at(1), false, 0, 20_000);
    assert_eq!(phase, LedbatPhase::Starting);
    phase = phase.next(at(2), true, 0, 20_000);
    assert_eq!(
        phase,
        LedbatPhase::Steady {
            next: at(2) + RTT * 2
        }
    );
    phase = phase.next(at(3), true, 0, 20_000);
    assert_eq!(
        phase,
        LedbatPhase::Slowing {
            since: at(3),
            slowdowns: 0
        }
    );
    phase = phase.next(at(4), true, 0, 20_000);
    assert!(
        matches!(phase, LedbatPhase::Slowing { .. }),
        "ordered, not begun"
    );
    phase = phase.next(at(4), false, 1, 20_000);
    assert!(
        matches!(phase, LedbatPhase::Slowing { .. }),
        "below the threshold"
    );
    phase = phase.next(at(5), true, 1, 20_000);
    assert_eq!(
        phase,
        LedbatPhase::Steady {
            next: at(5 + 2 * 9)
        }
    );
    assert_eq!(phase.next(at(20), true, 1, 20_000), phase);
}

/// Returns a flow in congestion avoidance with this window, on a base of 20 ms and with the gain
/// derived from it.
fn avoiding(segments: u64) -> Script {
    let mut script = Script::new("ledbat++", "");
    script.round(RTT);
    script.round(RTT);
    (script.transport.cwnd, script.transport.ssthresh) = (segments * MSS, segments * MSS);
    script
}

/// Delivers the ACKs of one window with this RTT within microseconds, so that no report or slowdown
/// occurs. Returns the change in segments.
fn window_of_acks(script: &mut Script, rtt_us: u64) -> f64 {
    let before = script.transport.cwnd;
    for _ in 0..before / MSS {
        script.ack(Duration::from_micros(1), |s| {
            (s.rtt_sample_us, s.srtt_us) = (rtt_us, 200_000);
        });
    }
    (script.transport.cwnd as f64 - before as f64) / MSS as f64
}

#[test]
fn a_sixth_of_a_segment_an_rtt_below_the_target() {
    let mut script = avoiding(60);
    let moved: f64 = (0..12).map(|_| window_of_acks(&mut script, 79_000)).sum();
    assert!((1.0..=3.0).contains(&moved), "12 windows at 1/6: {moved}");
}

#[test]
fn above_the_target_it_shrinks_by_the_excess_and_at_most_by_half() {
    let mut script = avoiding(100);
    // The filter takes the minimum of four samples.
    (0..3).for_each(|_| {
        script.ack(Duration::ZERO, |s| {
            (s.rtt_sample_us, s.bytes_acked) = (86_000, 1)
        });
    });
    // 66 ms exceeds the target of 60 ms by a tenth.
    let moved = window_of_acks(&mut script, 86_000);
    assert!((-10.0..=-9.0).contains(&moved), "{moved}");
    let mut script = avoiding(100);
    (0..4).for_each(|_| {
        script.ack(Duration::ZERO, |s| {
            (s.rtt_sample_us, s.bytes_acked) = (500_000, 1)
        });
    });
    let moved = window_of_acks(&mut script, 500_000);
    assert!((-50.5..=-49.0).contains(&moved), "{moved}");
    (0..20).for_each(|_| {
        window_of_acks(&mut script, 500_000);
    });
    assert_eq!(script.transport.cwnd, 2 * MSS, "two segments at least");
    assert_eq!(script.faults(), 0);
}

#[test]
fn slow_start_is_slower_and_ends_at_three_quarters_of_the_target() {
    let mut script = Script::new("ledbat++", "");
    (0..3).for_each(|_| script.round(RTT));
    let before = script.window();
    script.round(RTT);
    let grown = script.window() - before;
    assert!((1..=3).contains(&grown), "a sixth of {before}: {grown}");
    for _ in 0..4 {
        script.ack(RTT, |s| s.rtt_sample_us = 64_900);
    }
    assert_eq!(script.transport.ssthresh, u64::MAX, "44.9 ms");
    for _ in 0..4 {
        script.ack(RTT, |s| s.rtt_sample_us = 65_100);
    }
    assert!(
        script.transport.ssthresh <= script.transport.cwnd,
        "45.1 ms"
    );
}

#[test]
fn a_slowdown_drains_the_queue_and_comes_back() {
    let mut script = avoiding(100);
    script.round(RTT);
    script.round(RTT);
    let mut windows = Vec::new();
    for _ in 0..400 {
        script.round(RTT);
        windows.push(script.window());
    }
    let held = windows.iter().filter(|window| **window == 2).count();
    assert!(held >= 2, "{windows:?}");
    let first = windows.iter().position(|window| *window == 2).unwrap();
    let back = windows[first..]
        .iter()
        .position(|window| *window >= 100)
        .unwrap();
    assert!(
        (20..=40).contains(&back),
        "from 2 to 100 at 7/6 a round trip: {back}"
    );
    // The next slowdown follows after nine times that duration.
    let next = windows[first + back..]
        .iter()
        .position(|window| *window == 2);
    let next = next.expect("a second slowdown within 400 rounds");
    assert!(
        (8 * back..=11 * back).contains(&next),
        "{next} after {back}"
    );
}

#[test]
fn a_loss_halves() {
    let mut script = avoiding(100);
    script.ack(RTT, |s| s.bytes_acked = 0);
    let outcome = script.ack(RTT / 10, |s| (s.in_recovery, s.lost_pkts_sample) = (1, 1));
    assert_eq!((outcome.ssthresh, outcome.cwnd), (Some(50 * MSS), None));
}

#[test]
fn names_and_needs() {
    let algorithm = Registry::builtin()
        .by_name("ledbat++", &Parameters::new())
        .unwrap();
    assert_eq!(algorithm.kernel_name(), "ccp_ledbatpp");
    let all = everything();
    for missing in [Capabilities::RTT, Capabilities::RECOVERY] {
        assert!(Script::on(Capabilities(all.0 & !missing.0), "ledbat++", "").is_none());
    }
    assert!(
        Script::on(
            Capabilities(all.0 & !Capabilities::TIMERS.0),
            "ledbat++",
            ""
        )
        .is_some()
    );
    let zero = "target=0ms".parse().unwrap();
    assert!(Registry::builtin().by_name("ledbat++", &zero).is_err());
}
