//! Decisions of version 3, round by round.

use super::*;
use crate::bbr::tests::Recorder;

const MSS: u64 = 1_000;
const BW_BYTES_PER_SECOND: u64 = 5_000_000;
const BDP_BYTES: u64 = 100_000;

fn seen(round: u64) -> BbrReport {
    BbrReport {
        bw: BW_BYTES_PER_SECOND,
        rtt: 20_000,
        rounds: round,
        delivered: round * BDP_BYTES,
        now_us: round * 20_000,
        inflight: BDP_BYTES,
        cwnd: 2 * BDP_BYTES,
        losses: crate::bbr::report::LossRounds {
            bw_latest: BW_BYTES_PER_SECOND,
            inflight_latest: BDP_BYTES,
            ..Default::default()
        },
        ..BbrReport::default()
    }
}

fn drained(round: u64) -> BbrReport {
    BbrReport {
        events: ReportEvents(ReportEvents::QUEUE_DRAINED),
        ..seen(round)
    }
}

/// Returns a flow that cruises from round 5 on.
fn cruising() -> Bbr3Flow {
    let mut flow = Bbr3Flow::new(MSS, SplitMix64(3), 10_000_000);
    let mut orders = Recorder::default();
    (1..=4).for_each(|round| flow.update_on_report(&seen(round), &mut orders));
    assert!(matches!(flow.state, BbrState::Drain), "{:?}", flow.state);
    assert_eq!(
        (orders.get("full"), orders.get("gain")),
        (Some(1), Some(4_950))
    );
    assert_eq!(orders.get("draining"), Some(UNBOUNDED));
    // DOWN begins and ends at once because the queue is drained.
    flow.update_on_report(&drained(5), &mut orders);
    assert!(
        matches!(flow.state, BbrState::ProbeBwCruise),
        "{:?}",
        flow.state
    );
    assert_eq!(
        (orders.get("gain"), orders.get("draining")),
        (Some(9_900), Some(0))
    );
    flow
}

/// Returns a flow in UP, after the first probe that cruising allows and a round of REFILL, and the
/// round in which UP began.
fn probing(orders: &mut Recorder) -> (Bbr3Flow, u64) {
    let mut flow = cruising();
    let mut round = 6;
    while !matches!(flow.state, BbrState::ProbeBwUp) {
        flow.update_on_report(&seen(round), orders);
        round += 1;
        assert!(round < 80);
    }
    (flow, round - 1)
}

#[test]
fn probing_starts_within_63_rounds_after_a_refill() {
    let mut orders = Recorder::default();
    let (flow, round) = probing(&mut orders);
    // Counted from DOWN in round 5, starting from 0 or 1, plus a round of REFILL.
    assert!((5 + 63..=5 + 64).contains(&round), "{round}");
    assert_eq!(
        (orders.get("gain"), orders.get("cwnd_gain")),
        (Some(12_375), Some(22_500))
    );
    assert!(flow.is_bw_probe_sample);
}

#[test]
fn a_probe_ends_after_three_rounds_without_growth() {
    let mut orders = Recorder::default();
    let (mut flow, round) = probing(&mut orders);
    for n in 1..=3 {
        assert!(matches!(flow.state, BbrState::ProbeBwUp));
        flow.update_on_report(&seen(round + n), &mut orders);
    }
    assert!(matches!(flow.state, BbrState::ProbeBwDown));
    assert!(!flow.prev_probe_too_high);
}

#[test]
fn a_probe_that_loses_more_than_2_percent_bounds_the_flight() {
    let mut orders = Recorder::default();
    let (mut flow, round) = probing(&mut orders);
    let mut lossy = seen(round + 1);
    (lossy.inflight, lossy.cwnd) = (220_000, 225_000);
    flow.update_on_report(&lossy, &mut orders);
    lossy.lost = 4_400;
    flow.update_on_report(&lossy, &mut orders);
    assert!(
        matches!(flow.state, BbrState::ProbeBwUp),
        "2 % is not more than 2 %"
    );
    lossy.lost = 4_401;
    flow.update_on_report(&lossy, &mut orders);
    assert!(matches!(flow.state, BbrState::ProbeBwDown));
    assert_eq!(orders.get("cap"), Some(220_000), "what was in flight");
    assert_eq!(
        (orders.get("gain"), orders.get("draining")),
        (Some(8_910), Some(187_000)),
        "15 % less"
    );

    // The next probe is precautionary: it ends where the last one lost too much.
    let mut round = round + 2;
    while !matches!(flow.state, BbrState::ProbeBwUp) {
        let mut quiet = if matches!(flow.state, BbrState::ProbeBwDown) {
            drained(round)
        } else {
            seen(round)
        };
        quiet.lost = 4_401;
        flow.update_on_report(&quiet, &mut orders);
        round += 1;
    }
    assert_eq!(orders.get("probing"), Some(2));
    let mut stopped = seen(round);
    (stopped.lost, stopped.events) = (4_401, ReportEvents(ReportEvents::PROBE_STOPPED));
    flow.update_on_report(&stopped, &mut orders);
    assert!(matches!(flow.state, BbrState::ProbeBwDown) && flow.prev_probe_precautionary);
    // After a round without losses, a regular probe follows.
    let mut quiet = seen(round + 1);
    quiet.lost = 4_401;
    flow.update_on_report(&quiet, &mut orders);
    assert!(matches!(flow.state, BbrState::ProbeBwRefill));
}

#[test]
fn the_bound_is_raised_by_1_2_4_segments_while_it_limits() {
    let mut orders = Recorder::default();
    let (mut flow, round) = probing(&mut orders);
    (flow.bounds.inflight_longterm, flow.installed.cap) = (150_000, 150_000);
    let mut bounds = Vec::new();
    for n in 1..=4 {
        let mut full = seen(round + n);
        (full.inflight, full.cwnd) = (flow.bounds.inflight_longterm, flow.bounds.inflight_longterm);
        flow.update_on_report(&full, &mut orders);
        assert!(
            matches!(flow.state, BbrState::ProbeBwUp),
            "bandwidth that the bound limits is no plateau"
        );
        bounds.push(flow.bounds.inflight_longterm);
    }
    assert_eq!(bounds, [151_000, 153_000, 157_000, 165_000]);
}

#[test]
fn a_round_with_losses_while_cruising_leads_to_what_was_delivered() {
    let mut flow = cruising();
    let mut orders = Recorder::default();
    let mut lossy = seen(6);
    lossy.lost = 1_000;
    (lossy.losses.bw_latest, lossy.losses.inflight_latest) = (4_000_000, 80_000);
    flow.update_on_report(&lossy, &mut orders);
    assert_eq!(orders.get("cap_bw"), None, "not before the round is over");
    lossy.losses.rounds = 1;
    flow.update_on_report(&lossy, &mut orders);
    assert_eq!(orders.get("cap_bw"), Some(4_000_000));
    assert_eq!(
        orders.get("cap"),
        Some(140_000),
        "0.7 of the window of 200,000"
    );

    // The reduction proves spurious.
    let mut undo = seen(7);
    (undo.lost, undo.losses.rounds, undo.events) = (1_000, 1, ReportEvents(ReportEvents::UNDO));
    flow.update_on_report(&undo, &mut orders);
    assert_eq!(
        (orders.get("cap_bw"), orders.get("cap")),
        (Some(UNBOUNDED), Some(UNBOUNDED))
    );
}

#[test]
fn a_start_that_loses_much_ends() {
    let mut flow = Bbr3Flow::new(MSS, SplitMix64(3), 10_000_000);
    let mut orders = Recorder::default();
    for n in 1..=6 {
        let mut lossy = seen(1);
        lossy.lost = n * 500;
        flow.update_on_report(&lossy, &mut orders);
    }
    assert!(matches!(flow.state, BbrState::Startup));
    let mut over = seen(2);
    (over.lost, over.losses.rounds) = (3_000, 1);
    flow.update_on_report(&over, &mut orders);
    assert!(
        matches!(flow.state, BbrState::Drain),
        "six ACKs with losses, 3 % of the flight"
    );
    assert_eq!(flow.bounds.inflight_longterm, BDP_BYTES);
}

#[test]
fn marks_count_as_losses() {
    let mut flow = cruising();
    let mut orders = Recorder::default();
    let mut marked = seen(6);
    (marked.losses.ce_marked, marked.losses.rounds) = (1_000, 1);
    (marked.losses.bw_latest, marked.losses.inflight_latest) = (BW_BYTES_PER_SECOND, BDP_BYTES);
    flow.update_on_report(&marked, &mut orders);
    assert!(orders.get("cap_bw").is_some());
}

#[test]
fn the_rtt_is_probed_with_half_a_bdp() {
    let mut flow = cruising();
    let mut orders = Recorder::default();
    let mut late = seen(502);
    late.rtt = 30_000;
    flow.update_on_report(&late, &mut orders);
    // Bandwidth probing may be due as well, but ProbeRTT takes precedence.
    assert!(matches!(flow.state, BbrState::ProbeRtt(_)));
    assert_eq!(orders.get("cap"), Some(BDP_BYTES / 2), "of the RTT before");
    assert_eq!(orders.get("min_rtt"), Some(30_000));
    for round in 503..=513 {
        let mut dip = seen(round);
        dip.inflight = BDP_BYTES / 2;
        flow.update_on_report(&dip, &mut orders);
        assert!(matches!(flow.state, BbrState::ProbeRtt(_)), "{round}");
    }
    let mut over = seen(514);
    over.inflight = BDP_BYTES / 2;
    flow.update_on_report(&over, &mut orders);
    assert!(matches!(flow.state, BbrState::ProbeBwCruise));
    assert_eq!(orders.get("window"), Some(2 * BDP_BYTES));
}
