//! Guards that wait for `Micros` fire on time, with or without ACKs.

use crate::support::programs::{Code, bbr_probe_bw, reno_fold, temp};
use crate::support::{Rig, ack_of, no_limits};
use ccplane_datapath::{CommandTarget, Compat, INFINITY, Op, Signals, Update, VarKind, reg};
use ccplane_units::{Duration, Time};

/// Starts program 1 at the first ACK, at 1.000 s.
fn started(code: &Code) -> Rig {
    let mut rig = Rig::new(code);
    let _ = rig.ack(ack_of(1448));
    rig
}

fn report_times_ms(rig: &Rig) -> Vec<u64> {
    rig.reports
        .iter()
        .map(|(time, _)| time.as_micros() / 1000 - 1000)
        .collect()
}

#[test]
fn an_ack_path_cut_for_200_ms_still_yields_its_10_ms_reports() {
    let mut rig = started(&reno_fold(10_000));
    let calls = rig.advance_without_acks_us(200_000);
    // `(> Micros 10000)` is true 10001 µs after the last report.
    let times: Vec<_> = rig
        .reports
        .iter()
        .map(|(time, _)| time.as_micros() - 1_000_000)
        .collect();
    assert_eq!(times, (1..=19).map(|n| n * 10_001).collect::<Vec<_>>());
    assert_eq!(calls, 19, "no call was unnecessary");
    // Measurements from before the cut are in the first report; the following ones have no events
    // and the last known state.
    assert_eq!(rig.reports[0].1[0], 1448);
    assert_eq!(rig.reports[1].1[..], [0, 0, 0, 0, 20_000, 0]);
}

#[test]
fn the_ack_clock_of_libccp_does_nothing_without_acks() {
    let mut rig = Rig::with(&reno_fold(10_000), no_limits(), Compat::Libccp);
    let _ = rig.ack(ack_of(1448));
    assert_eq!(rig.flow.next_deadline(), None);
    rig.advance_us(200_000);
    let _ = rig.deadline();
    assert!(rig.reports.is_empty());
    let _ = rig.ack(ack_of(1448));
    assert_eq!(rig.last_report()[0], 2 * 1448);
}

#[test]
fn the_gain_machine_of_bbr_advances_without_acks() {
    let mut rig = started(&bbr_probe_bw());
    let controls = [(5, 20_000), (6, 100), (7, 75), (8, 125)];
    let updates = controls.map(|(index, value)| Update {
        target: CommandTarget::Var(index),
        value,
    });
    rig.update(&updates).expect("control variables");
    let mut rates = Vec::new();
    let end = rig.transport.now + Duration::from_millis(400);
    while let Some(next) = rig.flow.next_deadline().filter(|&next| next <= end) {
        rig.transport.now = rig.transport.now.max(next);
        if let Some(rate) = rig.deadline().rate {
            rates.push((rig.transport.now.as_micros() / 1000 - 1000, rate));
            // Its agent answers each report, while the minimum RTT is still infinity after the
            // report's reset.
            rig.update(&updates).expect("control variables");
        }
    }
    // A minimum RTT of 20 ms: gain 3/4 after one, 1 after two, 5/4 after eight, and so on.
    let expected = [
        (20, 75),
        (40, 100),
        (160, 125),
        (180, 75),
        (200, 100),
        (320, 125),
        (340, 75),
        (360, 100),
    ];
    assert_eq!(rates, expected);
    assert_eq!(rig.transport.cwnd, 20_000);
}

#[test]
fn a_guard_that_stays_true_fires_once_and_keeps_no_timer_busy() {
    // As in BBR's first program, `Micros` is never reset.
    let mut code = Code::default();
    let count = code.var(VarKind::Report, false, 0);
    code.when(
        |code| code.imm(Op::After, temp(0), reg::CONSTANT_ONE, 5_000),
        |code| {
            code.imm(Op::Add, count, count, 1);
            code.report();
        },
    );
    let mut rig = started(&code);
    assert_eq!(rig.advance_without_acks_us(1_000_000), 1);
    assert_eq!(report_times_ms(&rig), [5]);
    // On the ACK clock it fires at every ACK, as in the reference.
    for _ in 0..3 {
        let _ = rig.ack(ack_of(1448));
    }
    assert_eq!(rig.last_report(), [4]);
}

#[test]
fn a_guard_that_the_last_run_did_not_reach_keeps_its_time() {
    let mut code = Code::default();
    let which = code.volatile(0);
    // The first clause ends every run by an ACK that acknowledges data.
    code.when(
        |code| code.imm(Op::Gt, temp(0), 0, 0),
        |code| code.set(which, 1),
    );
    code.when(
        |code| code.imm(Op::After, temp(0), reg::CONSTANT_ONE, 10_000),
        |code| {
            code.set(which, 2);
            code.report();
            code.set(reg::MICROS, 0);
        },
    );
    let mut rig = started(&code);
    assert_eq!(rig.flow.next_deadline(), Some(Time::from_micros(1_010_001)));
    rig.advance_us(4_000);
    let _ = rig.ack(ack_of(1448));
    assert_eq!(rig.flow.next_deadline(), Some(Time::from_micros(1_010_001)));
    rig.advance_without_acks_us(10_000);
    assert_eq!(
        (report_times_ms(&rig), rig.last_report()),
        (vec![10], &[2][..])
    );
}

#[test]
fn a_body_that_moves_the_threshold_moves_the_time() {
    let mut code = Code::default();
    let wait = code.var(VarKind::Report, false, 1_000);
    code.when(
        |code| code.op(Op::After, temp(0), reg::CONSTANT_ONE, wait),
        |code| {
            code.imm(Op::Mul, wait, wait, 2);
            code.set(reg::MICROS, 0);
            code.report();
        },
    );
    let mut rig = started(&code);
    rig.advance_without_acks_us(16_000);
    assert_eq!(report_times_ms(&rig), [1, 3, 7, 15]);
}

#[test]
fn a_volatile_threshold_counts_from_its_initial_value_after_the_report() {
    let mut code = Code::default();
    let wait = code.volatile(2_000);
    code.when(
        |code| code.imm(Op::Gt, temp(0), 0, 0),
        |code| code.set(wait, 8_000),
    );
    code.when(
        |code| code.op(Op::After, temp(0), reg::CONSTANT_ONE, wait),
        |code| {
            code.set(reg::MICROS, 0);
            code.report();
        },
    );
    let mut rig = started(&code);
    rig.advance_without_acks_us(13_000);
    assert_eq!(report_times_ms(&rig), [8, 10, 12]);
}

#[test]
fn an_agent_that_shortens_the_wait_is_heard_without_an_ack() {
    let mut rig = started(&reno_fold(1_000_000));
    rig.advance_without_acks_us(50_000);
    assert!(rig.reports.is_empty());
    // 10 ms have passed: the report is due at once.
    rig.update(&[Update {
        target: CommandTarget::Var(6),
        value: 10_000,
    }])
    .expect("a control variable");
    assert_eq!(rig.flow.next_deadline(), Some(rig.transport.now));
    rig.advance_without_acks_us(15_000);
    assert_eq!(report_times_ms(&rig), [50, 60]);
}

#[test]
fn agent_settings_apply_without_an_ack() {
    let mut rig = started(&reno_fold(10_000));
    rig.update(&[Update {
        target: CommandTarget::Cwnd,
        value: 30_000,
    }])
    .expect("built-in state");
    let outcome = rig.deadline();
    assert_eq!(outcome.cwnd, Some(30_000));
    assert!(rig.reports.is_empty(), "and the program did not run for it");
    assert_eq!(rig.flow.next_deadline(), Some(Time::from_micros(1_010_001)));
}

#[test]
fn setting_a_program_restarts_its_clock() {
    let mut rig = started(&reno_fold(10_000));
    rig.advance_us(5_000);
    rig.set_program(1, &[]).expect("installed");
    rig.advance_without_acks_us(16_000);
    assert_eq!(report_times_ms(&rig), [15]);
}

#[test]
fn a_threshold_that_runs_ahead_of_micros_cannot_flood() {
    let mut code = Code::default();
    code.volatile(0);
    code.when(
        |code| code.op(Op::After, temp(0), reg::CONSTANT_ONE, reg::MICROS),
        |_| {},
    );
    code.when(
        |code| code.imm(Op::After, temp(0), reg::CONSTANT_ONE, 0),
        |code| {
            code.set(reg::MICROS, 0);
            code.report();
        },
    );
    let mut rig = started(&code);
    assert!(
        rig.advance_without_acks_us(100_000) <= 1_001,
        "at most one call in 100 µs"
    );
}

#[test]
fn early_late_and_repeated_deadlines_are_harmless() {
    let mut rig = started(&reno_fold(10_000));
    rig.advance_us(3_000);
    let _ = rig.deadline();
    assert!(rig.reports.is_empty());
    rig.advance_us(30_000);
    let _ = rig.deadline();
    let _ = rig.deadline();
    assert_eq!(report_times_ms(&rig), [33]);
    assert_eq!(rig.flow.next_deadline(), Some(Time::from_micros(1_043_001)));
}

#[test]
fn a_clock_that_goes_back_stops_micros_and_nothing_else() {
    let mut rig = started(&reno_fold(10_000));
    rig.transport.now = Time::from_micros(500_000);
    let _ = rig.ack(ack_of(1448));
    rig.transport.now = Time::from_micros(1_010_001);
    let _ = rig.ack(ack_of(1448));
    assert_eq!(rig.last_report()[0], 3 * 1448);
}

#[test]
fn a_report_that_could_not_be_queued_loses_nothing() {
    let mut rig = started(&reno_fold(10_000));
    rig.queue = false;
    rig.advance_without_acks_us(25_000);
    for _ in 0..3 {
        let outcome = rig.ack(ack_of(1448));
        assert!(
            outcome.report.is_some(),
            "requested again until it is queued"
        );
    }
    rig.queue = true;
    let _ = rig.ack(Signals {
        packets_misordered: 2,
        ..ack_of(1448)
    });
    assert_eq!(rig.reports.len(), 1);
    assert_eq!(rig.last_report()[..2], [5 * 1448, 2]);
    assert!(rig.ack(ack_of(1448)).report.is_none());
}

/// What was set first must not wait for what was set later.
#[test]
fn updates_are_due_by_their_first_occurrence() {
    let mut rig = Rig::new(&Code::default());
    let _ = rig.ack(ack_of(1448));
    let cwnd = |value| Update {
        target: CommandTarget::Cwnd,
        value,
    };
    let first = rig.transport.now;
    rig.update(&[cwnd(50_000)]).expect("a window");
    rig.advance_us(100);
    rig.update(&[cwnd(60_000)]).expect("a window");
    assert_eq!(rig.flow.next_deadline(), Some(first));
    assert_eq!(rig.deadline().cwnd, Some(60_000));
    let _ = rig.ack(ack_of(1448));
    rig.update(&[cwnd(70_000)]).expect("a window");
    assert_eq!(rig.flow.next_deadline(), Some(rig.transport.now));
}

/// A run of a program that reads no stamps leaves the delays unknown for the next one that does.
#[test]
fn delays_stay_unknown_for_a_program_that_is_set_before_the_first_stamps() {
    let reads = |signal| {
        let mut code = Code::default();
        let value = code.var(VarKind::Report, false, 0);
        code.when(
            |code| code.imm(Op::After, temp(0), reg::CONSTANT_ONE, 5_000),
            |code| {
                code.mov(value, signal);
                code.report();
            },
        );
        code
    };
    let mut rig = started(&reads(0));
    assert_eq!(rig.advance_without_acks_us(10_000), 1);
    for (uid, signal) in [(2, 24), (3, 25)] {
        rig.table
            .install(reads(signal).program(uid))
            .expect("there is room");
        rig.set_program(uid, &[]).expect("it is installed");
        let _ = rig.deadline();
        rig.advance_without_acks_us(10_000);
        assert_eq!(rig.last_report(), [INFINITY], "signal {signal}");
    }
}

#[test]
fn a_flow_has_the_time_at_which_it_began() {
    let rig = started(&reno_fold(10_000));
    assert_eq!(rig.flow.opened(), Time::from_micros(1_000_000));
}

/// An update is applied at its deadline; a program that waits for nothing still runs only on ACKs.
#[test]
fn an_update_runs_no_program_without_timers() {
    let mut code = Code::default();
    let count = code.var(VarKind::Report, false, 0);
    code.when(
        |_| reg::CONSTANT_ONE,
        |code| {
            code.imm(Op::Add, count, count, 1);
            code.report();
        },
    );
    let mut rig = started(&code);
    rig.update(&[Update {
        target: CommandTarget::Cwnd,
        value: 50_000,
    }])
    .expect("a window");
    rig.advance_us(10);
    assert_eq!(rig.deadline().cwnd, Some(50_000));
    assert_eq!(rig.reports.len(), 1);
    let _ = rig.ack(ack_of(1448));
    assert_eq!(rig.last_report(), [2]);
}
