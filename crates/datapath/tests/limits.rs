//! The operator's limits apply to program and agent; anything that does not fit is refused.

use crate::support::programs::{Code, reno_fold};
use crate::support::{MSS_BYTES, Rig, ack_of, no_limits};
use ccplane_datapath::{
    Command, CommandError, CommandTarget, Compat, Flow, Op, OperatorLimits, Signals, Update,
    Urgency, VarKind, reg,
};
use ccplane_units::{Duration, Time};

const LIMITS: OperatorLimits = OperatorLimits {
    min_cwnd: 3_000,
    max_cwnd: 100_000,
    max_rate: 1_000_000,
    agent_timeout: Duration::MAX,
};

/// A program that sets window, rate and threshold to these values.
fn sets(cwnd: u64, rate: u64, ssthresh: u64) -> Code {
    let mut code = Code::default();
    code.always(|code| {
        code.set(reg::CWND, cwnd);
        code.set(reg::RATE, rate);
        code.set(reg::SSTHRESH, ssthresh);
    });
    code
}

#[test]
fn a_program_stays_within_the_limits() {
    for (wanted, cwnd, rate) in [
        (1, 3_000, 1),
        (50_000, 50_000, 50_000),
        (u64::MAX, 100_000, 1_000_000),
    ] {
        let mut rig = Rig::with(&sets(wanted, wanted, wanted), LIMITS, Compat::Documented);
        let _ = rig.ack(ack_of(0));
        assert_eq!((rig.transport.cwnd, rig.transport.rate), (cwnd, rate));
        assert_eq!(rig.transport.ssthresh, wanted.max(3_000));
    }
}

#[test]
fn an_agent_stays_within_the_limits() {
    let mut rig = Rig::with(&Code::default(), LIMITS, Compat::Documented);
    let all = |value| {
        [
            CommandTarget::Cwnd,
            CommandTarget::Rate,
            CommandTarget::Ssthresh,
        ]
        .map(|target| Update { target, value })
    };
    rig.update(&all(1)).expect("built-in state");
    let _ = rig.deadline();
    assert_eq!(
        (
            rig.transport.cwnd,
            rig.transport.rate,
            rig.transport.ssthresh
        ),
        (3_000, 1, 3_000)
    );
    rig.update(&all(u64::MAX)).expect("built-in state");
    let _ = rig.ack(ack_of(0));
    assert_eq!(
        (rig.transport.cwnd, rig.transport.rate),
        (100_000, 1_000_000)
    );
}

#[test]
fn the_fallback_stays_within_the_limits() {
    let limits = OperatorLimits {
        agent_timeout: Duration::ZERO,
        ..LIMITS
    };
    let mut rig = Rig::with(&Code::default(), limits, Compat::Documented);
    for _ in 0..200 {
        let _ = rig.ack(ack_of(2 * MSS_BYTES));
    }
    assert_eq!(
        (rig.transport.cwnd, rig.transport.rate),
        (100_000, 1_000_000)
    );
    let _ = rig.ack(Signals {
        was_timeout: 1,
        ..ack_of(0)
    });
    assert_eq!(rig.transport.cwnd, 3_000);
}

#[test]
fn a_flow_under_a_rate_limit_is_paced_from_the_start() {
    let mut rig = Rig::with(&Code::default(), LIMITS, Compat::Documented);
    assert_eq!(rig.ack(ack_of(0)).rate, Some(1_000_000));
    let mut free = Rig::new(&Code::default());
    assert_eq!(free.ack(ack_of(0)).rate, None);
}

#[test]
fn zero_is_no_order() {
    let mut rig = Rig::new(&sets(0, 0, 0));
    rig.transport.rate = 5_000;
    let before = rig.transport;
    let outcome = rig.ack(ack_of(0));
    assert_eq!(
        (outcome.cwnd, outcome.rate, outcome.ssthresh),
        (None, None, None)
    );
    assert_eq!(rig.transport, before);
    // An agent's value remains in force if the program then sets none.
    rig.update(&[Update {
        target: CommandTarget::Cwnd,
        value: 9_000,
    }])
    .expect("built-in state");
    assert_eq!(rig.ack(ack_of(0)).cwnd, Some(9_000));
}

#[test]
fn losses_timeouts_and_undos_are_urgent() {
    let mut code = Code::default();
    code.always(Code::report);
    let mut rig = Rig::new(&code);
    assert_eq!(rig.ack(ack_of(0)).report, Some(Urgency::Normal));
    let events = [
        Signals {
            lost_pkts_sample: 1,
            ..Signals::default()
        },
        Signals {
            was_timeout: 1,
            ..Signals::default()
        },
        Signals {
            undone: 1,
            ..Signals::default()
        },
    ];
    for event in events {
        assert_eq!(rig.ack(event).report, Some(Urgency::Urgent));
    }
    // A pending report keeps its urgency.
    rig.queue = false;
    let _ = rig.ack(events[0]);
    assert_eq!(rig.ack(ack_of(0)).report, Some(Urgency::Urgent));
}

#[test]
fn a_program_with_too_many_variables_is_refused() {
    let mut code = Code::default();
    for _ in 0..17 {
        code.var(VarKind::Report, false, 0);
    }
    let mut rig = Rig::new(&Code::default());
    rig.table
        .install(code.program(2))
        .expect("room in the table");
    assert_eq!(
        rig.set_program(2, &[]),
        Err(CommandError::TooManyVars { has: 17, room: 16 })
    );
    let mut roomy: Flow<64> = Flow::new(Time::ZERO, 14_480);
    assert!(
        roomy
            .apply(
                Time::ZERO,
                &Command::SetProgram {
                    uid: 2,
                    updates: &[]
                },
                &rig.table
            )
            .is_ok()
    );
}

#[test]
fn flows_of_every_size_run_the_same_program_alike() {
    fn run<const V: usize>() -> (Vec<u64>, Option<Time>) {
        let rig = Rig::new(&reno_fold(10_000));
        let mut flow: Flow<V> = Flow::new(rig.transport.now, 10 * MSS_BYTES);
        flow.apply(
            rig.transport.now,
            &Command::SetProgram {
                uid: 1,
                updates: &[],
            },
            &rig.table,
        )
        .expect("it fits");
        let signals = Signals {
            packets_misordered: 3,
            packets_in_flight: 9,
            ..ack_of(MSS_BYTES)
        };
        for _ in 0..4 {
            let _ = flow.on_ack(&rig.transport, &signals, &rig.table);
        }
        (flow.report(&rig.table).to_vec(), flow.next_deadline())
    }
    let expected = run::<16>();
    assert_eq!(expected.0, [4 * MSS_BYTES, 12, 0, 0, 20_000, 9]);
    assert_eq!(run::<7>(), expected);
    assert_eq!(run::<34>(), expected);
    assert_eq!(run::<35>(), expected);
    assert_eq!(run::<64>(), expected);
}

#[test]
fn a_variable_cannot_be_set_without_a_program() {
    let rig = Rig::new(&Code::default());
    let mut flow: Flow<16> = Flow::new(Time::ZERO, 14_480);
    let refused = flow.apply(
        Time::ZERO,
        &Command::Update(&[Update {
            target: CommandTarget::Var(0),
            value: 1,
        }]),
        &rig.table,
    );
    assert_eq!(refused, Err(CommandError::NoProgram));
    assert!(
        refused
            .expect_err("refused")
            .to_string()
            .contains("set a program before its variables")
    );
}

#[test]
fn a_window_set_before_a_program_is_not_lost() {
    let mut code = Code::default();
    code.control(0);
    for (compat, expected) in [(Compat::Documented, Some(9_000)), (Compat::Libccp, None)] {
        let mut rig = Rig::with(&code, no_limits(), compat);
        rig.update(&[Update {
            target: CommandTarget::Cwnd,
            value: 9_000,
        }])
        .expect("built-in state");
        rig.set_program(1, &[]).expect("installed");
        assert_eq!(
            rig.ack(ack_of(0)).cwnd,
            expected,
            "{compat:?}: the reference drops pending values"
        );
    }
}

#[test]
fn faults_add_up_over_calls() {
    let mut code = Code::default();
    let var = code.volatile(0);
    code.always(|code| _ = code.imm(Op::Sub, var, var, 1));
    let mut rig = Rig::new(&code);
    for call in 1..=5 {
        let _ = rig.ack(ack_of(0));
        assert_eq!(rig.flow.faults(), call);
    }
}
