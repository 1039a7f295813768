//! The program and the agent together, ACK by ACK.

use ccplane_datapath::Capabilities;
use ccplane_units::Duration;
use ccplane_units::stats::mean;

use super::PULSE_SIZE;
use crate::script::{MSS, Script, everything};

/// Delivers `count` ACKs, one per millisecond, of a flow with these send and receive rates. Returns
/// the pacing rate after each.
fn acks(script: &mut Script, count: u32, sent: u64, received: u64, rtt_us: u64) -> Vec<f64> {
    let mut rates = Vec::new();
    for _ in 0..count {
        let _ = script.ack(Duration::from_millis(1), |s| {
            (s.rate_outgoing, s.rate_incoming) = (sent, received);
            s.bytes_acked = received / 1000;
            (s.rtt_sample_us, s.srtt_us) = (rtt_us, rtt_us);
        });
        rates.push(script.transport.rate as f64);
    }
    rates
}

/// Consecutive late packets that end slow start.
const SLOW_START_EXIT_SAMPLES: u32 = 4;

/// Slow start paces at twice the window per RTT.
fn in_slow_start(script: &Script, rtt_us: u64) -> bool {
    script.transport.rate == 2 * script.transport.cwnd * 1_000_000 / rtt_us
}

#[test]
fn slow_start_doubles_at_twice_its_rate_until_the_queue_grows() {
    let mut script = Script::new("nimbus", "");
    for doubled in [20, 40, 80] {
        script.round(Duration::from_millis(20));
        assert_eq!(script.window(), doubled);
        assert_eq!(script.transport.rate, 2 * doubled * MSS * 50);
    }
    // 25.5 ms is the limit: a quarter above 20 ms, plus 0.5 ms of slack.
    acks(
        &mut script,
        SLOW_START_EXIT_SAMPLES,
        9_000_000,
        9_000_000,
        25_500,
    );
    assert!(in_slow_start(&script, 25_500));
    // Fewer late packets than `SLOW_START_EXIT_SAMPLES` in a row are not a queue.
    acks(
        &mut script,
        SLOW_START_EXIT_SAMPLES - 1,
        9_000_000,
        5_000_000,
        25_501,
    );
    acks(&mut script, 1, 9_000_000, 5_000_000, 25_500);
    assert!(in_slow_start(&script, 25_500));
    acks(
        &mut script,
        2 * SLOW_START_EXIT_SAMPLES - 1,
        9_000_000,
        5_000_000,
        25_501,
    );
    // The receive rate, or already the agent's rate: 0.05 to 2 times its capacity estimate.
    assert!(
        (250_000..=10_000_000).contains(&script.transport.rate),
        "{}",
        script.transport.rate
    );
}

/// An ACK after a gap triggers the report. Its RTT and receive rate belong to a late packet and
/// count as one sample of the interval.
#[test]
fn a_late_ack_that_triggers_the_report_counts_as_one_sample() {
    let mut script = Script::new("nimbus", "");
    acks(&mut script, 100, 10_000_000, 10_000_000, 26_000);
    let mut rates = Vec::new();
    for _ in 0..200 {
        // Five ACKs 1 ms apart, then one 6 ms later. The minimum RTT is 20 ms, the target 25 ms,
        // and the mean of each interval 22 ms.
        acks(&mut script, 5, 10_000_000, 10_000_000, 20_000);
        let _ = script.ack(Duration::from_millis(6), |s| {
            (s.rate_outgoing, s.rate_incoming) = (10_000_000, 8_000_000);
            s.bytes_acked = 50_000;
            (s.rtt_sample_us, s.srtt_us) = (32_000, 22_000);
        });
        rates.push(script.transport.rate as f64);
    }
    let mean = mean(rates).expect("rates");
    assert!(mean > 10e6, "below its target the rate rises: {mean}");
}

/// A queue delays every packet of an interval; jitter delays only some.
#[test]
fn jitter_is_not_a_queue() {
    let mut script = Script::new("nimbus", "");
    acks(&mut script, 100, 10_000_000, 10_000_000, 26_000);
    let mut rates = Vec::new();
    for _ in 0..500 {
        // The minimum RTT is 20 ms, the target 25 ms, and the mean of each interval 26 ms.
        rates.extend(acks(&mut script, 1, 10_000_000, 10_000_000, 20_000));
        rates.extend(acks(&mut script, 1, 10_000_000, 10_000_000, 32_000));
    }
    let mean = mean(rates).expect("rates");
    assert!(mean > 10.5e6, "below its target the rate rises: {mean}");
}

/// Ten packets are fewer than the receiver waits for, so its timer acknowledges them 45 ms late.
#[test]
fn the_timer_of_a_receiver_that_stretches_acks_does_not_end_slow_start() {
    let mut script = Script::new("nimbus", "");
    for window in [10, 20, 40] {
        let _ = script.ack(Duration::from_millis(65), |s| {
            (s.rate_outgoing, s.rate_incoming) = (150_000, 150_000);
            (s.bytes_acked, s.packets_acked) = (window * MSS, window);
            (s.rtt_sample_us, s.srtt_us) = (65_000, 65_000);
        });
        assert_eq!(script.window(), 2 * window);
        assert_eq!(script.transport.rate, 2 * window * MSS * 2_000_000 / 65_000);
    }
}

#[test]
fn at_its_target_the_rate_is_what_is_sent_and_the_pulse_on_it() {
    let mut script = Script::new("nimbus", "");
    acks(&mut script, 100, 10_000_000, 10_000_000, 26_000);
    acks(&mut script, 50, 10_000_000, 10_000_000, 25_000);
    // Six periods at 6 Hz. 25 ms is 1.25 times 20 ms.
    let rates = acks(&mut script, 1000, 10_000_000, 10_000_000, 25_000);
    let mean = mean(rates.iter().copied()).expect("rates");
    let most = rates.iter().copied().fold(0.0, f64::max);
    let least = rates.iter().copied().fold(f64::MAX, f64::min);
    assert!((mean / 10e6 - 1.0).abs() < 0.02, "{mean}");
    assert!(
        (most / (10e6 * (1.0 + PULSE_SIZE)) - 1.0).abs() < 0.01,
        "{most}"
    );
    assert!(
        (least / (10e6 * (1.0 - PULSE_SIZE / 3.0)) - 1.0).abs() < 0.01,
        "{least}"
    );
    assert!(
        script.orders.is_empty() || script.reports > 90,
        "a report each 10 ms: {}",
        script.reports
    );
    assert!((100..=130).contains(&script.reports), "{}", script.reports);
}

#[test]
fn a_recovery_does_not_reduce_the_window() {
    let mut script = Script::new("nimbus", "");
    acks(&mut script, 200, 10_000_000, 10_000_000, 25_600);
    let window = script.transport.cwnd;
    let _ = script.ack(Duration::from_millis(1), |s| {
        (s.in_recovery, s.lost_pkts_sample) = (1, 1)
    });
    assert_eq!(
        (script.transport.ssthresh, script.transport.cwnd),
        (u64::MAX, window)
    );
}

#[test]
fn without_pacing_or_rates_it_is_refused() {
    let all = everything();
    for missing in [
        Capabilities::PACING,
        Capabilities::DELIVERY_RATE,
        Capabilities::RTT,
    ] {
        let rest = Capabilities(all.0 & !missing.0);
        assert!(
            Script::on(rest, "nimbus", "").is_none(),
            "{:?}",
            missing.names().next()
        );
    }
}
