//! The program and the agent together: tick by tick, and over a bottleneck.

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_units::stats::mean;
use proptest::prelude::*;

use super::model::{CubicWindow, Elastic, ModelBundle, ModelLink, SiteLoad};
use crate::script::tests::any_signals;
use crate::script::{MSS, Script, everything};

/// Returns a site that fills its link, over a bottleneck of 96 Mbit/s and 50 ms.
fn full(parameters: &str) -> ModelBundle {
    ModelBundle::new(parameters, SiteLoad::Elastic(CubicWindow::new(), 0.0))
}

/// Returns three Cubic-like flows with different RTTs. A single one would resonate at its own RTT.
fn others() -> Vec<Elastic> {
    [0.0, 0.012, 0.027].map(Elastic::new).into()
}

fn one(course: bool) -> f64 {
    f64::from(u8::from(course))
}

/// Returns the gateway's mean queue over the last `ticks`, restricted to ticks at which it had been
/// passing for eight seconds, so that the earlier queue has drained.
fn settled(bundle: &ModelBundle, ticks: usize) -> f64 {
    let from = bundle.passed.len() - ticks;
    let long = (from..bundle.passed.len())
        .filter(|now| bundle.passed[now - 800..=*now].iter().all(|passed| *passed));
    mean(long.map(|now| bundle.own[now])).expect("ticks in pass-through mode")
}

/// Runs for `seconds` and returns the bundle's share of the link.
fn share(link: &mut ModelLink, bundle: usize, seconds: f64) -> f64 {
    let before = link.bundles[bundle].delivered;
    link.run(seconds);
    (link.bundles[bundle].delivered - before) / (link.rate * seconds)
}

/// Runs until the first bundle passes, or stops passing, and returns the time in seconds.
fn until(link: &mut ModelLink, passes: bool, most: f64) -> f64 {
    let mut seconds = 0.0;
    while seconds < most && link.bundles[0].passed.last() != Some(&passes) {
        link.run(0.01);
        seconds += 0.01;
    }
    seconds
}

#[test]
fn alone_the_queue_moves_and_the_link_stays_full() {
    for (law, pulse, least, most) in [
        ("copa", "auto", 0.002, 0.004),
        ("copa", "always", 0.005, 0.011),
        ("basic", "auto", 0.005, 0.012),
        ("basic", "always", 0.005, 0.012),
    ] {
        let mut link = ModelLink::new(vec![full(&format!("law={law},pulse={pulse}"))]);
        link.run(40.0);
        let share = share(&mut link, 0, 60.0);
        let queue = ModelLink::lately(&link.queue, 60.0, |queue| queue);
        let bundle = &link.bundles[0];
        let passed = ModelLink::lately(&bundle.passed, 60.0, one);
        let pulsed = ModelLink::lately(&bundle.pulsed, 60.0, one);
        println!(
            "{law} {pulse}: {share:.3} of the link, {:.1} ms, pulsed {pulsed:.2}",
            1e3 * queue
        );
        assert!(share >= 0.97, "{law} {pulse}: {share}");
        assert!((least..most).contains(&queue), "{law} {pulse}: {queue}");
        assert_eq!(passed, 0.0, "{law} {pulse}");
        assert!(
            pulsed == if pulse == "auto" { 0.0 } else { 1.0 },
            "{law} {pulse}: {pulsed}"
        );
        assert_eq!(bundle.script.faults(), 0);
    }
}

#[test]
fn jitter_does_not_strangle_a_site() {
    let mut strangled = Vec::new();
    for (mbit, jitter) in [
        (20.0, 5.0),
        (48.0, 5.0),
        (48.0, 10.0),
        (48.0, 20.0),
        (100.0, 10.0),
    ] {
        // A call, then a download.
        let mut link = ModelLink::new(vec![ModelBundle::new("", SiteLoad::Constant(125_000.0))]);
        link.rate = mbit * 125_000.0;
        link.jitter = jitter / 1e3;
        link.run(10.0);
        link.bundles[0].site = SiteLoad::Elastic(CubicWindow::new(), 0.0);
        link.run(10.0);
        let share = share(&mut link, 0, 30.0);
        let queue = ModelLink::lately(&link.queue, 30.0, |queue| queue);
        let passed = ModelLink::lately(&link.bundles[0].passed, 40.0, one);
        println!(
            "{mbit} Mbit/s ± {jitter} ms: {share:.2} of the link, {:.1} ms, passed {passed:.2}",
            1e3 * queue
        );
        if share < 0.9 || queue > 0.04 || passed > 0.0 {
            strangled.push((mbit, jitter));
        }
    }
    assert!(strangled.is_empty(), "{strangled:?}");
}

#[test]
fn a_standing_queue_is_not_taken_for_the_path() {
    // Three minutes are eighteen windows of the minimum RTT, each of which could absorb the queue.
    let mut link = ModelLink::new(vec![full("")]);
    link.run(150.0);
    let share = share(&mut link, 0, 30.0);
    let queue = ModelLink::lately(&link.queue, 30.0, |queue| queue);
    assert!(share >= 0.97 && queue < 0.013, "{share} {queue}");
}

#[test]
fn elastic_traffic_causes_pass_through_until_it_ends() {
    for parameters in ["", "pulse=always", "law=basic"] {
        let mut link = ModelLink::new(vec![full(parameters)]);
        link.run(30.0);
        link.elastic = others();
        let found = until(&mut link, true, 30.0);
        assert!(found < 8.0, "{parameters}: found after {found} s");
        link.run(10.0);
        let share = share(&mut link, 0, 30.0);
        let own = settled(&link.bundles[0], 3_000);
        let passed = ModelLink::lately(&link.bundles[0].passed, 30.0, one);
        link.elastic.clear();
        let back = until(&mut link, false, 30.0);
        println!(
            "{parameters}: found {found:.1} s, share {share:.2}, own queue {:.1} ms, \
             passed {passed:.2}, back {back:.1} s",
            1e3 * own
        );
        assert!(passed > 0.9, "{parameters}: {passed}");
        assert!(share > 0.3, "{parameters}: {share}");
        assert!((0.008..0.012).contains(&own), "{parameters}: {own}");
        assert!(back < 12.0, "{parameters}: back after {back} s");
        link.run(5.0);
        let queue = ModelLink::lately(&link.queue, 3.0, |queue| queue);
        let passed = ModelLink::lately(&link.bundles[0].passed, 3.0, one);
        assert!(
            queue < 0.02 && passed == 0.0,
            "{parameters}: {queue} {passed}"
        );
    }
}

#[test]
fn a_gateway_that_opens_again_forgets_the_mode_and_the_next_limit_begins_anew() {
    let mut link = ModelLink::new(vec![full("")]);
    link.run(30.0);
    link.elastic = others();
    assert!(until(&mut link, true, 30.0) < 8.0);
    link.run(5.0);
    // Both queues drain, and the gateway opens before it detects that the cross traffic has ended.
    link.elastic.clear();
    link.bundles[0].site = SiteLoad::Constant(3e6);
    link.run(2.0);
    let bundle = &mut link.bundles[0];
    assert_eq!(
        (bundle.passed.last(), bundle.pulsed.last()),
        (Some(&true), Some(&true))
    );
    bundle.limits = false;
    link.run(0.02);
    let bundle = &link.bundles[0];
    assert_eq!(
        (bundle.passed.last(), bundle.pulsed.last()),
        (Some(&false), Some(&false))
    );
    // Estimates of the link now expire as before the first limit.
    link.run(40.0);
    assert!(!link.bundles[0].limits);
    let capacity = link.bundles[0].script.gauge("capacity").unwrap_or_default();
    assert!((capacity / 3e6 - 1.0).abs() < 0.1, "{capacity}");
    link.bundles[0].site = SiteLoad::Elastic(CubicWindow::new(), 0.0);
    link.run(30.0);
    let share = share(&mut link, 0, 30.0);
    let queue = ModelLink::lately(&link.queue, 30.0, |queue| queue);
    let passed = ModelLink::lately(&link.bundles[0].passed, 100.0, one);
    println!(
        "{share:.3} of the link, {:.1} ms, passed {passed:.2}",
        1e3 * queue
    );
    assert!(
        link.bundles[0].limits && share >= 0.97 && queue < 0.013,
        "{share} {queue}"
    );
    assert_eq!(passed, 0.0);
}

#[test]
fn a_constant_rate_does_not_cause_pass_through() {
    for parameters in ["", "pulse=always"] {
        let mut link = ModelLink::new(vec![full(parameters)]);
        link.run(30.0);
        link.constant = 6e6;
        link.run(20.0);
        let share = share(&mut link, 0, 40.0);
        let queue = ModelLink::lately(&link.queue, 40.0, |queue| queue);
        let passed = ModelLink::lately(&link.bundles[0].passed, 60.0, one);
        println!(
            "{parameters}: {share:.2} of the link, {:.1} ms, passed {passed:.2}",
            1e3 * queue
        );
        assert!(
            share > 0.47 && queue < 0.016,
            "{parameters}: {share} {queue}"
        );
        assert_eq!(passed, 0.0, "{parameters}");
    }
}

#[test]
fn a_slower_link_is_not_taken_for_cross_traffic() {
    let mut link = ModelLink::new(vec![full("")]);
    link.run(30.0);
    link.rate = 6e6;
    link.run(15.0);
    let share = share(&mut link, 0, 30.0);
    let queue = ModelLink::lately(&link.queue, 30.0, |queue| queue);
    let passed = ModelLink::lately(&link.bundles[0].passed, 45.0, one);
    println!(
        "{share:.3} of the link, {:.1} ms, passed {passed:.2}",
        1e3 * queue
    );
    assert!(share > 0.97 && queue < 0.014, "{share} {queue}");
    assert!(passed < 0.2, "{passed}");
}

#[test]
fn without_a_pulse_a_link_that_became_slower_is_known_when_what_was_has_aged() {
    for parameters in [
        "pulse=off",
        "pulse=off,law=basic",
        "switching=off,law=basic",
    ] {
        let mut link = ModelLink::new(vec![full(parameters)]);
        link.run(30.0);
        link.rate = 6e6;
        link.run(45.0);
        let share = share(&mut link, 0, 30.0);
        let queue = ModelLink::lately(&link.queue, 30.0, |queue| queue);
        let capacity = link.bundles[0].script.gauge("capacity").unwrap_or_default();
        println!(
            "{parameters}: {share:.3} of the link, {:.1} ms, µ {capacity:.0}",
            1e3 * queue
        );
        assert!(
            (capacity / 6e6 - 1.0).abs() < 0.1,
            "{parameters}: {capacity}"
        );
        assert!(
            share > 0.97 && queue < 0.014,
            "{parameters}: {share} {queue}"
        );
    }
}

#[test]
fn of_two_bundles_one_pulses_and_neither_passes() {
    for (first, second) in [("", ""), ("", "seed=1"), ("", "seed=2")] {
        let mut link = ModelLink::new(vec![full(first)]);
        link.run(20.0);
        link.bundles.push(full(second));
        link.run(20.0);
        let both = |link: &ModelLink, seconds: f64| {
            let pairs = (1..=(seconds * 100.0) as usize).map(|ago| {
                let pulsed = |bundle: &ModelBundle| bundle.pulsed[bundle.pulsed.len() - ago];
                (pulsed(&link.bundles[0]), pulsed(&link.bundles[1]))
            });
            let [none, one, two] = pairs.fold([0.0, 0.0, 0.0], |mut n, (a, b)| {
                n[usize::from(a) + usize::from(b)] += 1.0 / (seconds * 100.0);
                n
            });
            (none, one, two)
        };
        let before: f64 = link.bundles.iter().map(|bundle| bundle.delivered).sum();
        link.run(90.0);
        let after: f64 = link.bundles.iter().map(|bundle| bundle.delivered).sum();
        let sum = (after - before) / (link.rate * 90.0);
        let (none, exactly, two) = both(&link, 90.0);
        let queue = ModelLink::lately(&link.queue, 90.0, |queue| queue);
        let passed = link
            .bundles
            .iter()
            .map(|b| ModelLink::lately(&b.passed, 110.0, one))
            .fold(0.0, f64::max);
        println!(
            "{first}/{second}: {sum:.3} of the link, pulsers 0: {none:.2}, 1: {exactly:.2}, \
             2: {two:.2}; {:.1} ms, passed {passed:.3}",
            1e3 * queue
        );
        assert!(
            exactly > 0.9 && two < 0.1,
            "{first}/{second}: {none} {exactly} {two}"
        );
        assert!(
            passed <= 0.02 && queue < 0.025,
            "{first}/{second}: {passed} {queue}"
        );
        assert!(sum > 0.95, "{first}/{second}: {sum}");
    }
}

#[test]
fn beside_elastic_traffic_a_watcher_follows_the_pulser_into_passing() {
    for seed in 0..4 {
        let mut link = ModelLink::new(vec![full("")]);
        link.run(20.0);
        link.bundles.push(full(&format!("seed={seed}")));
        link.run(20.0);
        link.elastic = others();
        link.run(60.0);
        let passed: Vec<f64> = link
            .bundles
            .iter()
            .map(|b| ModelLink::lately(&b.passed, 40.0, one))
            .collect();
        println!("{seed}: passed {passed:?}");
        assert!(passed.iter().all(|part| *part > 0.6), "{seed}: {passed:?}");
    }
}

#[test]
fn short_and_long_paths_are_kept_full_with_a_short_queue() {
    for (rtt, most) in [(0.01, 0.006), (0.02, 0.010), (0.1, 0.013), (0.2, 0.013)] {
        for law in ["copa", "basic"] {
            let mut link = ModelLink::new(vec![full(&format!("law={law}"))]);
            link.rtt = rtt;
            link.run(40.0);
            let share = share(&mut link, 0, 30.0);
            let queue = ModelLink::lately(&link.queue, 30.0, |queue| queue);
            println!(
                "{law} at {rtt} s: {share:.3} of the link, {:.1} ms",
                1e3 * queue
            );
            assert!(
                share > 0.91 && queue < most,
                "{law} at {rtt} s: {share} {queue}"
            );
        }
    }
}

#[test]
fn a_site_that_sends_less_than_the_link_is_left_alone() {
    let mut link = ModelLink::new(vec![full("")]);
    link.run(20.0);
    link.bundles[0].site = SiteLoad::Constant(10e6);
    link.run(20.0);
    let share = share(&mut link, 0, 30.0);
    let own = ModelLink::lately(&link.bundles[0].own, 30.0, |queue| queue);
    assert!(
        (share - 10.0 / 12.0).abs() < 0.01 && own < 0.001,
        "{share} {own}"
    );
}

#[test]
fn switching_off_holds_the_mode_that_it_starts_in() {
    for (start, expected) in [("delay", 0.0), ("passing", 1.0)] {
        let mut link = ModelLink::new(vec![full(&format!("switching=off,start={start}"))]);
        link.run(10.0);
        link.elastic = others();
        link.run(30.0);
        assert_eq!(
            ModelLink::lately(&link.bundles[0].passed, 30.0, one),
            expected,
            "{start}"
        );
    }
}

/// Runs a tick of a limited bundle with `pending` bytes in the gateway's queue.
fn tick(script: &mut Script, rtt_us: u64, pending: u64) {
    let _ = script.ack(Duration::from_millis(10), |s| {
        (s.rate_outgoing, s.rate_incoming, s.bytes_acked) = (6_000_000, 6_000_000, 60_000);
        (s.rtt_sample_us, s.srtt_us, s.min_rtt_us) = (rtt_us, rtt_us, 50_000);
        s.bytes_pending = pending;
    });
}

fn gateway(parameters: &str) -> Script {
    let mut script = Script::on(
        Capabilities(everything().0 & !Capabilities::RECOVERY.0),
        "bundler",
        parameters,
    )
    .expect("a gateway suffices");
    for _ in 0..100 {
        script.transport.rate = 0;
        tick(&mut script, 50_000, 0);
    }
    script
}

#[test]
fn the_queue_controller_has_the_gain_of_its_rules_and_the_configured_capacity() {
    // α (q − q_T µ) per tick of 10 ms: 20 s⁻² and 8.5 ms, and 10 s⁻² and 10 ms.
    for (rules, expected) in [("extended", 179_600.0), ("paper", 88_000.0)] {
        let mut script = gateway(&format!(
            "rules={rules},capacity=96mbit,start=passing,election=off,pulse=off"
        ));
        script.transport.rate = 6_000_000;
        for _ in 0..3 {
            tick(&mut script, 60_000, 1_000_000);
        }
        let before = script.transport.rate as f64;
        tick(&mut script, 60_000, 1_000_000);
        let change = script.transport.rate as f64 - before;
        assert!((change / expected - 1.0).abs() < 0.01, "{rules}: {change}");
        assert_eq!(script.gauge("capacity"), Some(12e6), "{rules}");
    }
}

#[test]
fn with_the_papers_rules_eta_decides_the_mode() {
    let mut link = ModelLink::new(vec![full("rules=paper,capacity=96mbit")]);
    link.run(30.0);
    assert_eq!(ModelLink::lately(&link.bundles[0].passed, 30.0, one), 0.0);
    assert!(ModelLink::lately(&link.bundles[0].pulsed, 20.0, one) > 0.99);
    link.elastic = others();
    let found = until(&mut link, true, 30.0);
    let eta = link.bundles[0].script.gauge("eta").unwrap_or_default();
    link.elastic.clear();
    let back = until(&mut link, false, 30.0);
    println!("found {found:.1} s, η {eta:.2}, back {back:.1} s");
    assert!(
        found < 10.0 && eta > 2.0 && back < 20.0,
        "{found} {eta} {back}"
    );
}

#[test]
fn while_the_gateway_is_open_nothing_is_in_force_and_a_limit_begins_where_it_says() {
    let mut script = gateway("pulse=off");
    let window = script.transport.cwnd;
    script.transport.rate = 6_000_000;
    tick(&mut script, 60_000, 1_000_000);
    assert_eq!(script.transport.rate, 6_000_000, "no order of before");
    tick(&mut script, 60_000, 1_000_000);
    let rate = script.transport.rate as f64;
    assert!((rate / 6e6 - 1.0).abs() < 0.05, "{rate}");
    assert_eq!(
        script.transport.cwnd, window,
        "the rate is all that a gateway is told"
    );
    // Nor does a previous limit have an effect once the gateway has opened again.
    script.transport.rate = 0;
    for _ in 0..100 {
        tick(&mut script, 50_000, 0);
        assert_eq!(script.transport.rate, 0);
    }
    script.transport.rate = 3_000_000;
    tick(&mut script, 60_000, 1_000_000);
    assert_eq!(script.transport.rate, 3_000_000);
}

#[test]
fn the_program_moves_the_rate_by_the_queue_and_its_change() {
    let mut script = gateway("start=passing,pulse=off,target=10ms,election=off");
    script.transport.rate = 6_000_000;
    // 10 ms at 6 MB/s are 60,000 bytes: with this queue, the rate is the receive rate.
    tick(&mut script, 60_000, 60_000);
    tick(&mut script, 60_000, 60_000);
    assert_eq!(script.transport.rate, 6_000_000);
    tick(&mut script, 60_000, 60_000);
    assert_eq!(script.transport.rate, 6_000_000);
    // 6,000 bytes more: 10 per byte of the change, and a fifth of a byte per byte and tick.
    tick(&mut script, 60_000, 66_000);
    assert_eq!(script.transport.rate, 6_061_200);
    tick(&mut script, 60_000, 66_000);
    assert_eq!(script.transport.rate, 6_062_400);
    tick(&mut script, 60_000, 60_000);
    assert_eq!(script.transport.rate, 6_002_400);
    tick(&mut script, 60_000, 54_000);
    assert_eq!(script.transport.rate, 5_941_200);
    // The rate stays at a bound and leaves it at once.
    for (pending, rate) in [
        (10_000_000, 12_000_000),
        (10_000_000, 12_000_000),
        // The queue shrinks by less than its excess.
        (9_990_000, 12_000_000),
        // Here it shrinks by more: 1,938,000 up for the excess and 2,400,000 down for the change,
        // immediately from the bound.
        (9_750_000, 11_538_000),
        (0, 125_000),
        (0, 125_000),
        (60_000, 725_000),
    ] {
        tick(&mut script, 60_000, pending);
        assert_eq!(script.transport.rate, rate, "at {pending}");
    }
    assert_eq!(script.faults(), 0);
}

#[test]
fn a_watcher_that_passes_has_the_rate_low_passed() {
    // A watcher starts by listening, and assumes a pulser meanwhile.
    let mut script = gateway("start=passing,pulse=off,target=10ms");
    script.transport.rate = 6_000_000;
    for _ in 0..3 {
        tick(&mut script, 60_000, 60_000);
    }
    // The controller's 6,061,200 and 6,062,400, each low-passed twice by a fifth.
    tick(&mut script, 60_000, 66_000);
    assert_eq!(script.transport.rate, 6_002_448);
    tick(&mut script, 60_000, 66_000);
    assert_eq!(script.transport.rate, 6_006_412);
    assert_eq!(script.faults(), 0);
}

#[test]
fn the_rtt_of_before_a_silence_is_not_the_path() {
    let mut script = gateway("pulse=off,law=basic");
    script.transport.rate = 6_000_000;
    let mut run = |seconds: u64, rtt_us: u64, acked: u64| {
        for _ in 0..seconds * 100 {
            let _ = script.ack(Duration::from_millis(10), |s| {
                (s.rate_outgoing, s.rate_incoming, s.bytes_acked) = (6_000_000, 6_000_000, acked);
                (s.rtt_sample_us, s.srtt_us, s.min_rtt_us) = (rtt_us, rtt_us, 20_000);
            });
        }
        script.gauge("target").unwrap_or_default()
    };
    // A quarter of the base RTT.
    assert!((run(1, 20_000, 60_000) - 0.005).abs() < 1e-6);
    assert!((run(1, 30_000, 60_000) - 0.005).abs() < 1e-6);
    assert!((run(30, 30_000, 0) - 0.005).abs() < 1e-6);
}

#[test]
fn a_tick_makes_one_report() {
    let mut script = gateway("");
    let before = script.reports;
    script.transport.rate = 6_000_000;
    (0..100).for_each(|_| tick(&mut script, 60_000, 60_000));
    assert_eq!(script.reports - before, 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Arbitrary signals in between: the limit persists, and gauges are finite.
    #[test]
    fn no_signals_do_harm_to_a_gateway(
        odd in prop::collection::vec((0..1_200u32, any_signals()), 1..12),
    ) {
        for parameters in ["", "start=passing,pulse=always", "law=basic,pulse=off"] {
            let mut script = gateway(parameters);
            script.transport.rate = 6_000_000;
            for n in 0..1_200 {
                match odd.iter().find(|(at, _)| *at == n) {
                    Some((_, signals)) => drop(script.call(Duration::from_millis(10), signals)),
                    None => tick(&mut script, 60_000, 60_000),
                }
                prop_assert!(script.transport.rate > 0, "{parameters}");
                prop_assert!(
                    (1220..=1 << 40).contains(&script.transport.cwnd),
                    "{parameters}"
                );
                for name in ["mode", "pulser", "eta", "cross", "capacity", "target"] {
                    prop_assert!(
                        script.gauge(name).is_none_or(f64::is_finite),
                        "{parameters}: {name}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_transport_starts_by_doubling_and_never_passes() {
    let mut script = Script::new("bundler", "start=passing,pulse=always");
    for doubled in [20, 40, 80] {
        script.round(Duration::from_millis(20));
        assert_eq!(script.window(), doubled);
    }
    for ms in 0..30_000 {
        let _ = script.ack(Duration::from_millis(1), |s| {
            (s.rate_outgoing, s.rate_incoming, s.bytes_acked) = (5_000_000, 5_000_000, 5_000);
            (s.rtt_sample_us, s.srtt_us) = (30_000, 30_000);
            s.bytes_pending = 1 << 40;
        });
        assert_ne!(script.gauge("pulser"), Some(1.0));
        assert_ne!(script.gauge("mode"), Some(1.0));
        // Later the drain finds no shorter RTT, so there is no queue, and the maximum is twice the
        // receive rate.
        let (rate, most) = (
            script.transport.rate,
            if ms < 3_000 { 5_000_000 } else { 10_000_000 },
        );
        assert!((250_000..=most).contains(&rate), "{rate} at {ms}");
    }
    assert_eq!(
        (script.gauge("mode"), script.gauge("pulser")),
        (Some(0.0), Some(0.0))
    );
    assert!(script.transport.cwnd >= 10 * MSS);
}

#[test]
fn without_pacing_or_rates_it_is_refused() {
    for missing in [
        Capabilities::PACING,
        Capabilities::DELIVERY_RATE,
        Capabilities::RTT,
    ] {
        let rest = Capabilities(everything().0 & !missing.0);
        assert!(
            Script::on(rest, "bundler", "").is_none(),
            "{:?}",
            missing.names().next()
        );
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    for wrong in [
        "target=0ms",
        "target=2s",
        "law=vegas",
        "seed=x",
        "pulse=maybe",
    ] {
        let parameters = wrong.parse().expect("well-formed");
        assert!(
            crate::Registry::builtin()
                .by_name("bundler", &parameters)
                .is_err(),
            "{wrong}"
        );
    }
}
