use super::*;
use crate::Registry;
use crate::script::{MSS, Script, everything};

const RTT: Duration = Duration::from_millis(20);

fn at(seconds: u64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

#[test]
fn the_velocity_doubles_after_four_round_trips_of_one_direction() {
    let mut velocity = Velocity::new(100);
    let mut values = Vec::new();
    for window in [110, 120, 130, 140, 150, 145, 140, 130, 120, 125] {
        velocity.update(window, 1e9);
        values.push(velocity.v);
    }
    assert_eq!(values, [1.0, 1.0, 1.0, 2.0, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    assert!(velocity.upwards);
    (126..160).for_each(|window| velocity.update(window, 12.5));
    assert_eq!(velocity.v, 12.5, "at most a window an RTT");
    velocity.update(161, 0.3);
    assert_eq!(velocity.v, 1.0, "at least one");
}

#[test]
fn a_queue_that_never_empties_shows_in_five_round_trips() {
    let mut rounds = Rounds::default();
    for _ in 0..4 {
        rounds.push(40_000, 60_000);
        assert!(rounds.was_nearly_empty(20_000, 100.0), "too few to tell");
    }
    rounds.push(40_000, 60_000);
    assert!(
        !rounds.was_nearly_empty(20_000, 100.0),
        "20 ms of 40 is not empty"
    );
    rounds.push(23_900, 60_000);
    assert!(
        rounds.was_nearly_empty(20_000, 100.0),
        "3.9 ms of 40 is: a tenth is 4"
    );
    (0..4).for_each(|_| rounds.push(40_000, 60_000));
    assert!(rounds.was_nearly_empty(20_000, 100.0), "it was the fifth");
    rounds.push(40_000, 60_000);
    assert!(!rounds.was_nearly_empty(20_000, 100.0));
    // RTT_max covers four rounds, so a fifth, noisier one expires.
    rounds.push(40_000, 300_000);
    assert!(rounds.was_nearly_empty(20_000, 100.0), "20 of 280");
    (0..4).for_each(|_| rounds.push(40_000, 60_000));
    assert!(!rounds.was_nearly_empty(20_000, 100.0));
    // 0.4 ms of 20.4 ms is two packets of a window of 100, and one of a window of 49.
    (0..5).for_each(|_| rounds.push(20_400, 22_000));
    assert!(!rounds.was_nearly_empty(20_000, 100.0));
    assert!(rounds.was_nearly_empty(20_000, 49.0));
    (0..5).for_each(|_| rounds.push(20_000, 20_000));
    assert!(rounds.was_nearly_empty(20_000, 100.0), "no queue at all");
}

fn rounds(values: [(u64, u64); 5]) -> Jitter {
    let mut jitter = Jitter::default();
    for (least, mean) in values {
        let (most, cwnd, slow) = (2 * mean - least, 100 * MSS, false);
        jitter.push(&RoundSample {
            min_rtt: least,
            max_rtt: most,
            mean_rtt: mean,
            cwnd,
            in_slow_start: slow,
        });
    }
    jitter
}

#[test]
fn jitter_shows_in_round_trips_that_differ_and_spread() {
    let in_order = [
        (41_000, 43_400),
        (40_200, 42_600),
        (41_200, 43_100),
        (40_600, 43_000),
        (40_900, 43_200),
    ];
    // 3 times 1.9 ms, and 8 times (0.8 + 1 + 0.6 + 0.3) / 4 ms.
    assert_eq!(rounds(in_order).bias(), 5_400.0);
    // With reordering, the minimum RTTs hardly differ.
    let overtaking = [40_000, 40_100, 40_000, 40_100, 40_000].map(|least| (least, least + 5_000));
    assert_eq!(rounds(overtaking).bias(), 800.0);
    // Neither a standing queue nor one that grows in four of five round trips is jitter.
    assert_eq!(rounds([(60_000, 60_000); 5]).bias(), 0.0);
    let grows = [40_000, 40_000, 45_000, 50_000, 55_000]
        .map(|least| (least, if least > 40_000 { least + 2_500 } else { least }));
    assert_eq!(rounds(grows).bias(), 0.0);
    let mut fresh = rounds(in_order);
    fresh.push(&RoundSample {
        min_rtt: 40_000,
        max_rtt: 45_000,
        mean_rtt: 42_000,
        cwnd: 100 * MSS,
        in_slow_start: true,
    });
    assert_eq!(fresh.bias(), 0.0, "slow start measures nothing");
}

#[test]
fn receivers_that_stretch_acks_do_not_stop_the_flow() {
    let mut script = steady("mode=default");
    let stretched = |script: &mut Script| {
        script.ack(RTT / 4, |s| {
            (s.bytes_acked, s.packets_acked) = (24 * MSS, 24);
            (s.rtt_sample_us, s.srtt_us) = (20_000, 20_000);
        });
    };
    (0..8).for_each(|_| stretched(&mut script));
    // The window plus one stretch ACK, paced at the window's rate.
    let window = script.transport.cwnd - 24 * MSS;
    assert_eq!(script.transport.rate, 1_000_000 * window / 20_000);
    // Growth is two packets per RTT, independent of the packets per ACK.
    (0..4).for_each(|_| stretched(&mut script));
    let grown = script.transport.cwnd - 24 * MSS - window;
    assert!((1..=8 * MSS).contains(&grown), "{grown}");
}

fn flow(patience: f64) -> (Copa, CopaFlow) {
    let copa = Copa {
        mode: CopaMode::Auto,
        inverse_delta: 2.0,
        descent: Descent::Excess,
    };
    let flow = CopaFlow {
        mss: MSS as f64,
        rtt_min: WindowedMin::new(RTT_MIN_WINDOW),
        velocity: Velocity::new(100 * MSS),
        rounds: Rounds::default(),
        jitter: Jitter::default(),
        inverse_delta: patience,
        acked: 0.0,
        lost: 0.0,
        last_halving: Time::ZERO,
        last_retreat: Time::ZERO,
        installed: InstalledCopa::default(),
    };
    (copa, flow)
}

#[test]
fn the_competitive_mode_grows_by_one_and_halves_once_per_rtt() {
    let (copa, mut flow) = flow(2.0);
    let full = RoundSample {
        min_rtt: 40_000,
        max_rtt: 60_000,
        mean_rtt: 40_000,
        cwnd: 100 * MSS,
        in_slow_start: false,
    };
    flow.rtt_min.update(at(1), 20_000);
    let mut values = Vec::new();
    for _ in 0..8 {
        flow.round(&copa, at(2), &full);
        values.push(flow.inverse_delta);
    }
    assert_eq!(values, [2.0, 2.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(flow.installed.unit, 6 * MSS);
    flow.halve(&copa, at(3), RTT);
    assert_eq!((flow.inverse_delta, flow.installed.unit), (3.0, 3 * MSS));
    flow.halve(&copa, at(3) + RTT / 2, RTT);
    assert_eq!(flow.inverse_delta, 3.0, "once an RTT");
    flow.halve(&copa, at(4), RTT);
    assert_eq!(
        flow.inverse_delta, 2.0,
        "not below that of the default mode"
    );
    flow.inverse_delta = 9.0;
    flow.round(
        &copa,
        at(5),
        &RoundSample {
            min_rtt: 21_000,
            ..full
        },
    );
    assert_eq!(flow.inverse_delta, 2.0, "empty: the default mode");
}

#[test]
fn a_tenth_of_the_packets_lost_shrinks_the_window() {
    let (_, mut flow) = flow(2.0);
    let mut at = |s, acked, lost, cwnd| flow.retreat(at(s), RTT, acked, lost, cwnd).map(Bytes::get);
    assert_eq!(at(1, 10.0, 5.0, 100_000), None, "too few to tell");
    assert_eq!(at(1, 5.0, 0.0, 100_000), Some(70_000), "5 of 20");
    assert_eq!(
        at(2, 18.0, 2.0, 100_000),
        None,
        "2 of 20 is a tenth and no more"
    );
    assert_eq!(
        at(2, 0.0, 30.0, 1_000),
        Some(2_000),
        "two segments at least"
    );
}

#[test]
fn losses_of_one_round_trip_shrink_the_window_once() {
    let (_, mut flow) = flow(2.0);
    let start = at(1);
    assert!(flow.retreat(start, RTT, 10.0, 20.0, 100_000).is_some());
    assert_eq!(flow.retreat(start + RTT / 2, RTT, 10.0, 20.0, 70_000), None);
    assert_eq!(flow.retreat(start + RTT, RTT, 10.0, 20.0, 70_000), None);
    assert!(
        flow.retreat(start + RTT * 2, RTT, 10.0, 20.0, 70_000)
            .is_some()
    );
}

/// Returns a flow with a window of 100 segments after slow start, on a base of 20 ms.
fn steady(parameters: &str) -> Script {
    let mut script = Script::new("copa", parameters);
    script.round(RTT);
    script.ack(RTT, |s| (s.rtt_sample_us, s.srtt_us) = (60_000, 60_000));
    script.ack(RTT * 2, |s| (s.rtt_sample_us, s.srtt_us) = (60_000, 60_000));
    script.transport.cwnd = 100 * MSS;
    script
}

#[test]
fn slow_start_doubles_until_two_packets_wait() {
    let mut script = Script::new("copa", "");
    (0..3).for_each(|_| script.round(RTT));
    assert_eq!(script.window(), 80);
    // The pacing rate is twice the window per RTT_standing.
    assert_eq!(
        script.transport.rate,
        2_000_000 * script.transport.cwnd / 20_000
    );
    // 1/δ = 2 packets: with 80 segments over 20 ms, a queued packet adds 0.25 ms. cwnd·d_q ≤
    // RTT_standing·2·mss holds up to 0.51 ms.
    script.round(Duration::from_micros(20_400));
    assert!(script.window() > 100, "{}", script.window());
    let before = script.window();
    script.round(Duration::from_micros(22_000));
    script.round(Duration::from_micros(22_000));
    assert!(
        script.window() < before + 20,
        "{} after {before}",
        script.window()
    );
    assert!(script.reports > 3 && script.faults() == 0);
}

/// Returns the change in packets of a window of 100 after a window of ACKs with this RTT (µs),
/// within one smoothed RTT, so that no report changes the velocity.
fn moved_in_a_window(parameters: &str, rtt: u64) -> f64 {
    let mut script = steady(parameters);
    for _ in 0..100 {
        script.ack(Duration::from_micros(100), |s| {
            (s.rtt_sample_us, s.srtt_us) = (rtt, 1_000_000);
        });
    }
    (script.transport.cwnd as f64 - 100.0 * MSS as f64) / MSS as f64
}

#[test]
fn the_window_grows_by_one_over_delta_packets_a_window() {
    for (parameters, packets) in [("mode=default", 2.0), ("mode=default,delta=0.125", 8.0)] {
        let moved = moved_in_a_window(parameters, 20_000);
        assert!(
            (moved - packets).abs() < 0.25 * packets,
            "{parameters}: {moved}"
        );
    }
}

#[test]
fn by_the_velocity_the_window_shrinks_as_it_grows() {
    for (parameters, packets) in [("mode=default", 2.0), ("mode=default,delta=0.125", 8.0)] {
        let moved = moved_in_a_window(&format!("{parameters},descent=velocity"), 60_000);
        assert!(
            (moved + packets).abs() < 0.25 * packets,
            "{parameters}: {moved}"
        );
    }
}

/// 60 ms of RTT over a base of 20 ms: two thirds of the window are queued. The RTT stays constant
/// while the window shrinks.
#[test]
fn the_window_shrinks_by_half_of_the_excess_a_window() {
    let moved = moved_in_a_window("mode=default", 60_000);
    // dw = −(2w/3 − 2)/2 · dn/w over 100 ACKs of one packet each: a little more than a third,
    // because the window shrinks meanwhile.
    assert!((-36.0..-28.0).contains(&moved), "{moved}");
    // Two and a half packets are queued, and the target is two: it shrinks as with the velocity,
    // not by a quarter of a packet.
    let moved = moved_in_a_window("mode=default", 20_510);
    assert!((-2.5..-1.0).contains(&moved), "{moved}");
}

#[test]
fn a_loss_leaves_the_window_where_copa_wants_it() {
    let mut script = steady("");
    script.transport.ssthresh = 50 * MSS;
    let outcome = script.ack(RTT / 100, |s| {
        (s.in_recovery, s.lost_pkts_sample, s.bytes_acked) = (1, 1, 0);
    });
    assert_eq!((outcome.cwnd, outcome.ssthresh), (None, Some(100 * MSS)));
    assert_eq!(outcome.report, Some(ccplane_datapath::Urgency::Urgent));
}

/// The cumulative ACK that ends a recovery covers segments that were SACKed earlier and moved the
/// window then.
#[test]
fn what_was_sacked_before_does_not_move_the_window_again() {
    let mut script = steady("");
    let before = script.window();
    script.ack(RTT / 100, |s| {
        (s.bytes_acked, s.packets_acked) = (900 * MSS, 1)
    });
    assert!(
        script.window() <= before + 1,
        "{before} -> {}",
        script.window()
    );
}

#[test]
fn a_timeout_begins_anew() {
    let mut script = steady("");
    script.transport.cwnd = MSS;
    script.ack(RTT * 10, |s| {
        (s.in_recovery, s.was_timeout, s.bytes_acked) = (1, 1, 0)
    });
    (0..20).for_each(|_| {
        script.ack(RTT, |s| s.in_recovery = 1);
    });
    assert_eq!(script.window(), 21, "slow start, in spite of the repair");
}

#[test]
fn the_window_stays_while_the_application_limits_sending() {
    let mut script = steady("");
    script.usual.cwnd_limited = 0;
    let before = script.transport.cwnd;
    (0..10).for_each(|_| {
        script.ack(RTT, |_| {});
    });
    assert_eq!(script.transport.cwnd, before);
}

#[test]
fn it_needs_pacing_and_rtts() {
    let all = everything();
    for missing in [Capabilities::CWND, Capabilities::PACING, Capabilities::RTT] {
        assert!(Script::on(Capabilities(all.0 & !missing.0), "copa", "").is_none());
    }
    assert!(Script::on(Capabilities(all.0 & !Capabilities::TIMERS.0), "copa", "").is_some());
}

#[test]
fn without_recovery_a_loss_changes_neither_window_nor_threshold() {
    let without = Capabilities(everything().0 & !Capabilities::RECOVERY.0);
    let mut script = Script::on(without, "copa", "mode=default").expect("a bundle suffices");
    let mut with = Script::new("copa", "mode=default");
    for round in 0..60 {
        // A loss rate of 1 % is below the limit of sustained loss.
        let lost = u64::from(round % 10 == 9);
        for script in [&mut script, &mut with] {
            script.ack(RTT, |s| (s.lost_pkts_sample, s.packets_acked) = (lost, 10));
        }
        assert_eq!(script.window(), with.window(), "round {round}");
        assert_eq!(script.transport.ssthresh, u64::MAX);
    }
    assert!(script.window() > 10);
}

/// Behind a policer slow start ends at sustained loss because no queue builds up.
#[test]
fn sustained_loss_ends_slow_start() {
    let mut script = Script::new("copa", "");
    script.round(RTT);
    script.round(RTT);
    assert!(script.window() >= 30, "slow start: {}", script.window());
    for _ in 0..10 {
        script.ack(RTT / 10, |s| {
            (s.lost_pkts_sample, s.bytes_acked, s.packets_acked) = (2, 4 * MSS, 4)
        });
    }
    let before = script.window();
    script.round(RTT);
    assert!(
        script.window() <= before + 4,
        "{before} -> {}",
        script.window()
    );
}

#[test]
fn values_without_sense_are_told() {
    for parameters in ["delta=0", "delta=nan", "delta=-1", "delta=3", "mode=tcp"] {
        let parameters = parameters.parse().expect("well-formed");
        assert!(
            Registry::builtin().by_name("copa", &parameters).is_err(),
            "{parameters:?}"
        );
    }
}
