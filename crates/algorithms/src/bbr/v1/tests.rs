//! Decisions of version 1, round by round.

use super::*;
use crate::bbr::tests::Recorder;

pub(super) const MSS: u64 = 1448;

fn bbr() -> (Bbr, BbrFlow) {
    (
        Bbr::standard(),
        BbrFlow::new(MSS, SplitMix64(1), 10_000_000),
    )
}

/// Report of round `n`.
fn round(n: u64, bw: u64) -> BbrReport {
    BbrReport {
        bw,
        rtt: 20_000,
        rounds: n,
        delivered: n * 200_000,
        now_us: n * 20_000,
        inflight: 200_000,
        cwnd: 400_000,
        ..BbrReport::default()
    }
}

#[test]
fn the_pipe_is_full_after_three_rounds_without_25_percent_growth() {
    let (bbr, mut flow) = bbr();
    let mut orders = Recorder::default();
    for (n, bw) in [(1, 1000), (2, 2000), (3, 4000), (4, 4999), (5, 4999)] {
        bbr.decide(&mut flow, &round(n, bw), &mut orders);
        assert!(!flow.full_bw_reached, "round {n}");
    }
    // 4999 is less than 1.25 · 4000, three times.
    bbr.decide(&mut flow, &round(6, 4999), &mut orders);
    assert!(flow.full_bw_reached && matches!(flow.mode, BbrMode::Drain));
    assert_eq!(orders.get("full"), Some(1));
    assert_eq!(orders.get("gain"), Some(3431), "0.3466 * 0.99");
    assert_eq!(orders.get("draining"), Some(UNBOUNDED));

    let mut drained = round(7, 4999);
    drained.events = ReportEvents(ReportEvents::QUEUE_DRAINED);
    bbr.decide(&mut flow, &drained, &mut orders);
    assert!(matches!(flow.mode, BbrMode::ProbeBw));
    assert_eq!(orders.get("cwnd_gain"), Some(20_000));
    let phase = orders.get("phase").unwrap();
    assert!(
        phase < 8 && phase != 1,
        "never begins with the phase that drains"
    );
}

#[test]
fn application_limited_rounds_do_not_detect_a_full_pipe() {
    let (bbr, mut flow) = bbr();
    let mut orders = Recorder::default();
    bbr.decide(&mut flow, &round(1, 1000), &mut orders);
    (2..20).for_each(|n| bbr.decide(&mut flow, &round(n, 0), &mut orders));
    assert!(!flow.full_bw_reached);
    assert_eq!(flow.bandwidth.get(), 1000);
}

#[test]
fn several_rounds_in_one_report_count() {
    let (bbr, mut flow) = bbr();
    let mut orders = Recorder::default();
    bbr.decide(&mut flow, &round(10, 1000), &mut orders);
    bbr.decide(&mut flow, &round(20, 1000), &mut orders);
    assert!(flow.full_bw_reached);
}

#[test]
fn the_bandwidth_covers_ten_rounds_and_its_decrease_is_sent() {
    let (bbr, mut flow) = bbr();
    let mut orders = Recorder::default();
    bbr.decide(&mut flow, &round(1, 2000), &mut orders);
    for n in 2..=11 {
        bbr.decide(&mut flow, &round(n, 1000), &mut orders);
        assert_eq!(
            orders.get("max_bw"),
            None,
            "round {n}: the program knows the greater one itself"
        );
    }
    bbr.decide(&mut flow, &round(12, 1000), &mut orders);
    assert_eq!(orders.get("max_bw"), Some(1000));
}

fn cruising() -> (Bbr, BbrFlow) {
    let (bbr, mut flow) = bbr();
    let mut orders = Recorder::default();
    (1..6).for_each(|n| bbr.decide(&mut flow, &round(n, 10_000_000), &mut orders));
    let mut drained = round(6, 10_000_000);
    drained.events = ReportEvents(ReportEvents::QUEUE_DRAINED);
    bbr.decide(&mut flow, &drained, &mut orders);
    (bbr, flow)
}

#[test]
fn the_rtt_is_probed_after_ten_seconds_for_200_ms() {
    let (bbr, mut flow) = cruising();
    let mut orders = Recorder::default();
    bbr.decide(&mut flow, &round(501, 10_000_000), &mut orders);
    assert_eq!(
        orders.get("cap"),
        None,
        "10 s after the first sample are not over"
    );
    bbr.decide(&mut flow, &round(502, 10_000_000), &mut orders);
    assert!(matches!(flow.mode, BbrMode::ProbeRtt(_)));
    assert_eq!(
        (orders.get("cap"), orders.get("gain")),
        (Some(4 * MSS), Some(9900))
    );

    // The queue drains, then 200 ms and a round with four segments. Their delivery rate is not a
    // bandwidth sample.
    orders.clear();
    for n in 503..=514 {
        let mut dip = round(n, 300_000);
        (dip.inflight, dip.cwnd) = (4 * MSS, 4 * MSS);
        bbr.decide(&mut flow, &dip, &mut orders);
        assert_eq!(
            matches!(flow.mode, BbrMode::ProbeRtt(_)),
            n < 514,
            "round {n}"
        );
    }
    assert_eq!(orders.get("cap"), Some(UNBOUNDED));
    assert_eq!(orders.get("window"), Some(400_000), "what it was");
    assert_eq!(flow.bandwidth.get(), 10_000_000);
    assert_eq!(orders.get("max_bw"), None);
}

#[test]
fn no_probe_rtt_after_an_idle_period() {
    let (bbr, mut flow) = cruising();
    let mut idle = round(7, 0);
    idle.events = ReportEvents(ReportEvents::IDLE);
    let mut orders = Recorder::default();
    bbr.decide(&mut flow, &idle, &mut orders);
    let mut later = round(1000, 0);
    later.rtt = 25_000;
    bbr.decide(&mut flow, &later, &mut orders);
    assert!(matches!(flow.mode, BbrMode::ProbeBw));
    assert_eq!(
        orders.get("min_rtt"),
        Some(25_000),
        "but the estimate is renewed"
    );
}

#[test]
fn a_policer_s_rate_is_used_without_gain() {
    let (bbr, mut flow) = cruising();
    let mut orders = Recorder::default();
    for n in 7..=15 {
        let mut lossy = round(n, 10_000_000);
        lossy.lost = (n - 6) * 100_000;
        bbr.decide(&mut flow, &lossy, &mut orders);
    }
    // 200,000 bytes per 20 ms.
    assert_eq!(orders.get("cap_bw"), Some(10_000_000));
    assert_eq!(
        (orders.get("phase"), orders.get("gain")),
        (Some(8), Some(9900))
    );
}
