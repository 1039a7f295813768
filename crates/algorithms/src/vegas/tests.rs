use ccplane_units::Duration;

use super::*;
use crate::Registry;
use crate::script::{MSS, Script, everything};

const RTT: Duration = Duration::from_millis(20);

fn linux() -> Vegas {
    Vegas {
        alpha: ALPHA,
        beta: BETA,
        gamma: GAMMA,
    }
}

#[test]
fn two_to_four_segments_wait() {
    // 100 segments over 20 ms: one queued segment adds 0.2 ms.
    let step = |rtt| linux().step(100, 3, rtt, 20_000);
    assert_eq!(step(20_000), WindowStep::Up);
    assert_eq!(step(20_399), WindowStep::Up, "1.99");
    assert_eq!(step(20_400), WindowStep::Hold, "2");
    assert_eq!(
        step(20_999),
        WindowStep::Hold,
        "4.99 counts as 4, as in Linux"
    );
    assert_eq!(step(21_000), WindowStep::Down, "5");
    assert_eq!(
        linux().step(100, 2, 40_000, 20_000),
        WindowStep::Up,
        "Reno's on two samples"
    );
    assert_eq!(linux().step(u64::MAX, 3, u64::MAX, 1), WindowStep::Down);
    assert_eq!(linux().step(100, 3, 1, 0), WindowStep::Up, "no base");
}

#[test]
fn slow_start_ends_when_two_segments_wait() {
    let mut script = Script::new("vegas", "");
    (0..3).for_each(|_| script.round(RTT));
    // The window starts at 10 segments. The RTT exceeds the base by the queueing delay.
    assert_eq!(script.window(), 80, "doubles");
    assert_eq!(script.transport.ssthresh, u64::MAX);
    script.round(Duration::from_micros(20_400));
    script.round(Duration::from_micros(20_400));
    // 1.6 to 3.2 segments are queued: the window becomes its rate times 20 ms, plus one segment.
    assert!(
        script.transport.ssthresh <= 163 * MSS,
        "{}",
        script.transport.ssthresh
    );
    assert!((80..=160).contains(&script.window()), "{}", script.window());
    assert_eq!(script.transport.ssthresh, script.transport.cwnd);
}

/// Returns a flow in congestion avoidance with this window.
fn avoiding(segments: u64) -> Script {
    let mut script = Script::new("vegas", "");
    script.round(RTT);
    script.round(RTT);
    (script.transport.cwnd, script.transport.ssthresh) = (segments * MSS, segments * MSS);
    // Finishes the round that began with the old window.
    script.round(RTT);
    script
}

#[test]
fn one_segment_more_or_less_a_round() {
    let mut script = avoiding(100);
    for (rtt, change) in [(20_000, 1), (20_600, 0), (22_000, -1)] {
        script.round(Duration::from_micros(rtt));
        let before = script.window() as i64;
        (0..10).for_each(|_| script.round(Duration::from_micros(rtt)));
        let moved = script.window() as i64 - before;
        // Script rounds and the program's rounds are not aligned, so one of ten may be missing.
        assert!((moved - 10 * change).abs() <= 1, "{rtt}: {moved}");
    }
    assert_eq!(script.faults(), 0);
}

#[test]
fn nothing_grows_while_the_application_limits_sending() {
    let mut script = avoiding(50);
    script.usual.cwnd_limited = 0;
    let before = script.window();
    (0..5).for_each(|_| script.round(RTT));
    assert_eq!(script.window(), before);
}

#[test]
fn a_loss_halves_once_and_measures_nothing() {
    let mut script = avoiding(100);
    let before = script.window();
    let reports = script.reports;
    let outcome = script.ack(RTT, |s| (s.in_recovery, s.lost_pkts_sample) = (1, 1));
    assert_eq!(outcome.ssthresh, Some(before / 2 * MSS), "whole segments");
    assert_eq!(outcome.cwnd, None, "the window is the transport's");
    assert_eq!(script.reports, reports + 1);
    for _ in 0..20 {
        let outcome = script.ack(RTT / 10, |s| (s.in_recovery, s.rtt_sample_us) = (1, 90_000));
        assert_eq!(
            (outcome.ssthresh, outcome.cwnd, outcome.report),
            (None, None, None)
        );
    }
}

#[test]
fn after_a_timeout_it_is_reno_s_slow_start() {
    let mut script = avoiding(100);
    let before = script.window();
    script.transport.cwnd = MSS;
    let outcome = script.ack(RTT * 10, |s| {
        (s.in_recovery, s.was_timeout, s.bytes_acked) = (1, 1, 0)
    });
    assert_eq!(outcome.ssthresh, Some(before / 2 * MSS), "whole segments");
    for _ in 0..200 {
        script.ack(RTT / 10, |s| s.in_recovery = 1);
    }
    assert_eq!(
        script.transport.cwnd, script.transport.ssthresh,
        "up to the threshold and no further"
    );
}

#[test]
fn it_needs_rtts_and_a_datapath_that_repairs() {
    let all = everything();
    for missing in [Capabilities::RTT, Capabilities::RECOVERY] {
        assert!(Script::on(Capabilities(all.0 & !missing.0), "vegas", "").is_none());
    }
    assert!(Script::on(Capabilities(all.0 & !Capabilities::TIMERS.0), "vegas", "").is_some());
}

#[test]
fn beta_below_alpha_is_refused() {
    let parameters = "alpha=5".parse().expect("well-formed");
    match Registry::builtin().by_name("vegas", &parameters) {
        Ok(_) => panic!("alpha 5, beta 4"),
        Err(why) => assert_eq!(
            why.to_string(),
            "invalid value `4` for `beta`: must be at least alpha, 5"
        ),
    }
}
