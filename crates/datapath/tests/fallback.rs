//! Fallback of a flow whose agent is silent, and the return of control.

use crate::support::programs::{BYTES_ACKED, Code, reno_fold};
use crate::support::{MSS_BYTES, Rig, ack_of, no_limits};
use ccplane_datapath::{
    Capabilities, Command, CommandTarget, Compat, Flow, Op, OperatorLimits, ProgramTable, Signals,
    Transport, Update, reg,
};
use ccplane_units::{Duration, Time};

const AGENT_TIMEOUT: Duration = Duration::from_millis(100);

fn limits() -> OperatorLimits {
    OperatorLimits {
        agent_timeout: AGENT_TIMEOUT,
        ..no_limits()
    }
}

/// A flow whose agent sent its last heartbeat when the flow was set to its program.
fn silent(code: &Code) -> Rig {
    let mut rig = Rig::with(code, limits(), Compat::Documented);
    rig.table.record_heartbeat(rig.transport.now);
    let _ = rig.ack(Signals::default());
    rig.advance_us(100_000);
    rig
}

/// A program that folds, reports every 10 ms and sets a fixed window.
fn fold_that_pins_the_window() -> Code {
    let mut code = reno_fold(10_000);
    code.instrs.clear();
    code.clauses.clear();
    code.always(|code| {
        code.op(Op::Add, reg::VARS, reg::VARS, BYTES_ACKED);
        code.set(reg::CWND, 5_000);
        code.report();
    });
    code
}

#[test]
fn a_silent_agents_flow_grows_by_itself_and_still_reports() {
    let mut rig = Rig::with(&fold_that_pins_the_window(), limits(), Compat::Documented);
    rig.table.record_heartbeat(rig.transport.now);
    assert_eq!(rig.ack(ack_of(MSS_BYTES)).cwnd, Some(5_000));
    rig.advance_us(100_000);
    rig.transport.ssthresh = 1_000_000;
    let outcome = rig.ack(ack_of(2 * MSS_BYTES));
    assert!(outcome.fallback && rig.flow.in_fallback());
    assert_eq!(
        outcome.cwnd,
        Some(5_000 + 2 * MSS_BYTES),
        "NewReno's window, not the program's"
    );
    assert_eq!(rig.last_report()[0], 2 * MSS_BYTES, "the fold goes on");
}

#[test]
fn control_comes_back_from_the_current_window() {
    let mut rig = silent(&fold_that_pins_the_window());
    for _ in 0..10 {
        assert!(rig.ack(ack_of(MSS_BYTES)).fallback);
    }
    let window = rig.transport.cwnd;
    rig.table.record_heartbeat(rig.transport.now);
    // A program that sets no window continues with the window of the fallback.
    rig.table
        .install(reno_fold(10_000).program(2))
        .expect("room");
    rig.set_program(2, &[]).expect("installed");
    let outcome = rig.ack(ack_of(MSS_BYTES));
    assert_eq!(
        (outcome.fallback, outcome.cwnd, rig.transport.cwnd),
        (false, None, window)
    );
    // An agent's update applies again.
    rig.update(&[Update {
        target: CommandTarget::Cwnd,
        value: 50_000,
    }])
    .expect("built-in state");
    assert_eq!(rig.ack(ack_of(MSS_BYTES)).cwnd, Some(50_000));
}

#[test]
fn commands_without_a_heartbeat_are_ignored() {
    let mut rig = silent(&reno_fold(10_000));
    let _ = rig.ack(ack_of(0));
    rig.update(&[Update {
        target: CommandTarget::Cwnd,
        value: 900_000,
    }])
    .expect("built-in state");
    assert_eq!(rig.ack(ack_of(0)).cwnd, None);
}

#[test]
fn the_deadline_includes_the_fallback() {
    let mut rig = Rig::with(&Code::default(), limits(), Compat::Documented);
    let opened = rig.transport.now;
    rig.table.record_heartbeat(opened);
    let _ = rig.ack(ack_of(MSS_BYTES));
    assert_eq!(rig.flow.next_deadline(), Some(opened + AGENT_TIMEOUT));
    // A heartbeat postpones it; a deadline armed before finds nothing to do.
    rig.advance_us(60_000);
    rig.table.record_heartbeat(rig.transport.now);
    rig.advance_us(40_000);
    assert!(!rig.deadline().fallback);
    assert_eq!(
        rig.flow.next_deadline(),
        Some(opened + Duration::from_millis(160))
    );
    rig.advance_us(60_000);
    assert!(rig.deadline().fallback);
    assert_eq!(rig.flow.next_deadline(), None);
}

#[test]
fn a_flow_that_opens_under_a_dead_agent_starts_on_the_fallback() {
    let mut table: ProgramTable = ProgramTable::new(limits(), Capabilities(u64::MAX));
    table.record_heartbeat(Time::ZERO);
    let now = Time::from_micros(60_000_000);
    let mut flow: Flow<16> = Flow::new(now, 10 * MSS_BYTES);
    let transport = Transport {
        cwnd: 10 * MSS_BYTES,
        rate: 0,
        ssthresh: u64::MAX,
        now,
    };
    let outcome = flow.on_ack(&transport, &ack_of(2 * MSS_BYTES), &table);
    assert!(outcome.fallback);
    assert_eq!(
        outcome.cwnd,
        Some(12 * MSS_BYTES),
        "slow start from the initial window"
    );
}

#[test]
fn a_flow_that_comes_to_a_silent_agent_falls_back_at_once() {
    let code = fold_that_pins_the_window();
    let mut rig = Rig::with(&code, limits(), Compat::Documented);
    rig.table.record_heartbeat(rig.transport.now);
    assert!(!rig.ack(ack_of(MSS_BYTES)).fallback);
    // The flow is set to a program of another agent, whose last heartbeat was much earlier.
    rig.advance_us(50_000);
    let mut other = ProgramTable::new(limits(), Capabilities(u64::MAX));
    other.record_heartbeat(Time::ZERO);
    other.install(code.program(2)).expect("room");
    rig.table = other;
    rig.set_program(2, &[]).expect("installed");
    assert!(rig.deadline().fallback);
}

#[test]
fn the_timeout_of_a_silent_agent_starts_when_the_flow_opens() {
    let mut rig = Rig::with(&Code::default(), limits(), Compat::Documented);
    rig.advance_us(99_999);
    assert!(!rig.ack(ack_of(0)).fallback);
    rig.advance_us(1);
    assert!(rig.ack(ack_of(0)).fallback);
}

#[test]
fn slow_start_counts_bytes_up_to_two_segments_an_ack() {
    let mut rig = silent(&Code::default());
    rig.transport.ssthresh = 100 * MSS_BYTES;
    let growth = [MSS_BYTES / 2, MSS_BYTES, 2 * MSS_BYTES, 10 * MSS_BYTES].map(|bytes| {
        let before = rig.transport.cwnd;
        let _ = rig.ack(ack_of(bytes));
        rig.transport.cwnd - before
    });
    assert_eq!(
        growth,
        [MSS_BYTES / 2, MSS_BYTES, 2 * MSS_BYTES, 2 * MSS_BYTES]
    );
}

#[test]
fn congestion_avoidance_adds_a_segment_for_each_window_acknowledged() {
    let mut rig = silent(&Code::default());
    rig.transport.ssthresh = 10 * MSS_BYTES;
    let windows: Vec<u64> = (0..22)
        .map(|_| {
            let _ = rig.ack(ack_of(MSS_BYTES));
            rig.transport.cwnd / MSS_BYTES
        })
        .collect();
    // 10 ACKs at a window of 10, then 11 at 11.
    assert_eq!(windows, [vec![10; 9], vec![11; 11], vec![12; 2]].concat());
}

#[test]
fn a_window_that_the_application_does_not_fill_does_not_grow() {
    let mut rig = silent(&Code::default());
    let limited = Signals {
        app_limited: 1,
        ..ack_of(MSS_BYTES)
    };
    assert_eq!(rig.ack(limited).cwnd, None);
    assert!(
        rig.ack(Signals {
            cwnd_limited: 1,
            ..limited
        })
        .cwnd
        .is_some()
    );
}

#[test]
fn one_loss_episode_halves_once() {
    let mut rig = silent(&Code::default());
    rig.transport.cwnd = 40 * MSS_BYTES;
    rig.transport.ssthresh = 30 * MSS_BYTES;
    let loss = Signals {
        lost_pkts_sample: 3,
        in_recovery: 1,
        ..ack_of(MSS_BYTES)
    };
    let _ = rig.ack(ack_of(0));
    let outcome = rig.ack(loss);
    assert_eq!(
        (outcome.cwnd, outcome.ssthresh),
        (Some(20 * MSS_BYTES), Some(20 * MSS_BYTES))
    );
    for _ in 0..30 {
        rig.advance_us(1_000);
        assert_eq!(rig.ack(loss).cwnd, None, "the same episode");
    }
    // Recovery has ended; the next loss starts another episode.
    let _ = rig.ack(ack_of(MSS_BYTES));
    assert_eq!(rig.ack(loss).cwnd, Some(10 * MSS_BYTES));
}

#[test]
fn a_datapath_that_knows_no_recovery_halves_once_a_round_trip() {
    let mut rig = silent(&Code::default());
    rig.transport.cwnd = 40 * MSS_BYTES;
    rig.transport.ssthresh = 30 * MSS_BYTES;
    let loss = Signals {
        lost_pkts_sample: 1,
        ..ack_of(0)
    };
    let halvings: Vec<bool> = (0..50)
        .map(|_| {
            let halved = rig.ack(loss).cwnd.is_some();
            rig.advance_us(1_000);
            halved
        })
        .collect();
    let at: Vec<usize> = (0..50).filter(|&ms| halvings[ms]).collect();
    assert_eq!(at, [0, 20, 40]);
}

#[test]
fn marks_halve_like_losses() {
    let mut rig = silent(&Code::default());
    rig.transport.cwnd = 40 * MSS_BYTES;
    rig.transport.ssthresh = 30 * MSS_BYTES;
    let marked = Signals {
        ecn_packets: 1,
        ecn_bytes: MSS_BYTES,
        ..ack_of(MSS_BYTES)
    };
    assert_eq!(rig.ack(marked).cwnd, Some(20 * MSS_BYTES));
    assert_eq!(rig.ack(marked).cwnd, None);
}

#[test]
fn a_timeout_starts_over_and_a_second_one_keeps_the_threshold() {
    let mut rig = silent(&Code::default());
    rig.transport.cwnd = 40 * MSS_BYTES;
    rig.transport.ssthresh = 30 * MSS_BYTES;
    let _ = rig.ack(ack_of(0));
    let timeout = Signals {
        was_timeout: 1,
        lost_pkts_sample: 40,
        in_recovery: 1,
        mss: MSS_BYTES,
        ..Signals::default()
    };
    let outcome = rig.ack(timeout);
    assert_eq!(
        (outcome.cwnd, outcome.ssthresh),
        (Some(MSS_BYTES), Some(20 * MSS_BYTES))
    );
    let outcome = rig.ack(timeout);
    assert_eq!(
        (outcome.cwnd, outcome.ssthresh),
        (None, None),
        "twice with nothing acknowledged in between"
    );
    // Slow start by one segment per ACK while losses are repaired, then by two.
    let repairing = Signals {
        in_recovery: 1,
        ..ack_of(2 * MSS_BYTES)
    };
    assert_eq!(rig.ack(repairing).cwnd, Some(2 * MSS_BYTES));
    assert_eq!(rig.ack(repairing).cwnd, Some(3 * MSS_BYTES));
    assert_eq!(rig.ack(ack_of(2 * MSS_BYTES)).cwnd, Some(5 * MSS_BYTES));
}

#[test]
fn a_spurious_reduction_is_undone() {
    let mut rig = silent(&Code::default());
    rig.transport.cwnd = 40 * MSS_BYTES;
    rig.transport.ssthresh = 30 * MSS_BYTES;
    let _ = rig.ack(ack_of(0));
    let loss = Signals {
        lost_pkts_sample: 1,
        in_recovery: 1,
        ..ack_of(0)
    };
    assert_eq!(rig.ack(loss).cwnd, Some(20 * MSS_BYTES));
    let undone = Signals {
        undone: 1,
        ..ack_of(0)
    };
    let outcome = rig.ack(undone);
    assert_eq!(
        (outcome.cwnd, outcome.ssthresh),
        (Some(40 * MSS_BYTES), Some(30 * MSS_BYTES))
    );
    assert_eq!(rig.ack(undone).cwnd, None, "once");
}

#[test]
fn a_flow_that_had_outgrown_its_initial_window_probes_from_there() {
    let mut rig = silent(&Code::default());
    rig.transport.cwnd = 80 * MSS_BYTES;
    let outcome = rig.ack(ack_of(2 * MSS_BYTES));
    assert_eq!(
        (outcome.cwnd, outcome.ssthresh),
        (None, Some(80 * MSS_BYTES)),
        "its agent kept no threshold"
    );
}

#[test]
fn the_silent_agents_pacing_rate_follows_the_window() {
    let mut rig = silent(&Code::default());
    rig.transport.rate = 1;
    rig.transport.ssthresh = 5 * MSS_BYTES;
    let outcome = rig.ack(ack_of(0));
    // 10 segments in 20 ms, plus a fifth.
    assert_eq!(outcome.rate, Some(10 * MSS_BYTES * 50 * 12 / 10));
    let mut unpaced = silent(&Code::default());
    assert_eq!(unpaced.ack(ack_of(0)).rate, None);
}

#[test]
fn the_pacing_rate_survives_a_fallback() {
    let mut rig = silent(&reno_fold(10_000));
    rig.transport.rate = 1_000_000;
    assert_ne!(
        rig.ack(ack_of(MSS_BYTES)).rate,
        None,
        "NewReno sets its own rate"
    );
    rig.table.record_heartbeat(rig.transport.now);
    assert_eq!(
        rig.ack(ack_of(MSS_BYTES)).rate,
        Some(1_000_000),
        "no program sets a rate"
    );

    let mut code = Code::default();
    code.always(|code| code.set(reg::RATE, 5_000));
    let mut rig = silent(&code);
    rig.transport.rate = 1_000_000;
    let _ = rig.ack(ack_of(MSS_BYTES));
    rig.table.record_heartbeat(rig.transport.now);
    assert_eq!(
        rig.ack(ack_of(MSS_BYTES)).rate,
        Some(5_000),
        "the program's rate has precedence"
    );
}

/// A path that holds 40 segments: what a round sends beyond that is lost, and reported a round
/// later.
fn rounds(rig: &mut Rig, count: usize) -> Vec<u64> {
    let capacity = 40;
    let mut lost = 0;
    (0..count)
        .map(|_| {
            let sent = rig.transport.cwnd / MSS_BYTES;
            let repairing = lost > 0;
            for n in 0..sent.min(capacity) {
                let first = n == 0;
                let _ = rig.ack(Signals {
                    lost_pkts_sample: if first { lost } else { 0 },
                    in_recovery: u64::from(repairing),
                    ..ack_of(MSS_BYTES)
                });
            }
            lost = sent.saturating_sub(capacity);
            rig.advance_us(20_000);
            rig.transport.cwnd / MSS_BYTES
        })
        .collect()
}

#[test]
fn windows_round_by_round_on_a_path_of_40_segments() {
    let mut rig = silent(&Code::default());
    // Slow start from 10. The round at 80 loses half, which is detected in the next one after
    // growth to 120. The losses of that round beyond what 60 fit are new, so the window halves
    // again; then it grows by one segment per round up to 41, repeatedly.
    let rise = |from: u64, to: u64| from..=to;
    let expected: Vec<u64> = [20, 40, 80, 120, 60, 60, 30]
        .into_iter()
        .chain(rise(30, 41))
        .chain([41, 20, 20])
        .chain(rise(21, 41))
        .chain([41, 20, 20])
        .chain(rise(21, 34))
        .collect();
    assert_eq!(rounds(&mut rig, 60), expected);
}

#[test]
fn absurd_signals_are_survived() {
    let mut rig = silent(&Code::default());
    let absurd = Signals {
        bytes_acked: u64::MAX,
        lost_pkts_sample: u64::MAX,
        ecn_packets: u64::MAX,
        srtt_us: u64::MAX,
        mss: u64::MAX,
        in_recovery: u64::MAX,
        ..Signals::default()
    };
    for signals in [
        absurd,
        Signals {
            lost_pkts_sample: 0,
            ecn_packets: 0,
            in_recovery: 0,
            ..absurd
        },
    ] {
        for cwnd in [0, 1, u64::MAX] {
            for rate in [0, 1, u64::MAX] {
                rig.transport = Transport {
                    cwnd,
                    rate,
                    ssthresh: 0,
                    ..rig.transport
                };
                let _ = rig.ack(signals);
                let _ = rig.ack(Signals {
                    was_timeout: 1,
                    srtt_us: 1,
                    ..signals
                });
                let _ = rig.ack(Signals {
                    undone: 1,
                    ..signals
                });
            }
        }
    }
    assert!(rig.flow.in_fallback());
}

#[test]
fn a_released_flow_runs_newreno_until_it_gets_a_program() {
    let mut rig = Rig::with(&fold_that_pins_the_window(), limits(), Compat::Documented);
    rig.table.record_heartbeat(rig.transport.now);
    assert_eq!(rig.ack(ack_of(MSS_BYTES)).cwnd, Some(5_000));
    let order = [Update {
        target: CommandTarget::Cwnd,
        value: 900_000,
    }];
    rig.update(&order).expect("built-in state");
    rig.transport.ssthresh = 1_000_000;
    let reports = rig.reports.len();
    rig.flow
        .apply(rig.transport.now, &Command::Release, &rig.table)
        .expect("always");
    assert_eq!(
        rig.flow.next_deadline(),
        Some(rig.transport.now),
        "it does not wait for an ACK"
    );
    assert!(rig.deadline().fallback);
    let outcome = rig.ack(ack_of(2 * MSS_BYTES));
    assert_eq!(
        (outcome.fallback, outcome.cwnd),
        (true, Some(5_000 + 2 * MSS_BYTES))
    );
    // Neither a heartbeat nor an update ends the release, and no report is made.
    rig.table.record_heartbeat(rig.transport.now);
    rig.update(&order).expect("built-in state");
    assert_eq!(rig.ack(ack_of(MSS_BYTES)).cwnd, Some(5_000 + 3 * MSS_BYTES));
    assert_eq!((rig.reports.len(), rig.flow.program_uid()), (reports, None));
    rig.set_program(1, &[]).expect("installed");
    let outcome = rig.ack(ack_of(MSS_BYTES));
    assert_eq!((outcome.fallback, outcome.cwnd), (false, Some(5_000)));
    // A flow without a program can be released too.
    let mut flow: Flow<16> = Flow::new(rig.transport.now, 10 * MSS_BYTES);
    flow.apply(rig.transport.now, &Command::Release, &rig.table)
        .expect("always");
    assert!(
        flow.on_ack(&rig.transport, &ack_of(MSS_BYTES), &rig.table)
            .fallback
    );
}
