//! Known defects of the reference: each is a case that works here.

use crate::support;
use crate::support::programs::{BYTES_ACKED, Code, LOST_PKTS_SAMPLE, RTT_SAMPLE, temp};
use crate::support::{Rig, ack_of, no_limits};
use ccplane_datapath::{
    Capabilities, CheckErrorReason, Clause, Command, CommandError, CommandTarget, Compat, Flow,
    INSTRS_MAX, Instr, Op, Program, ProgramTable, Signals, Update, reg,
};
use ccplane_units::{Duration, Time};

/// Three clauses, all true; only the first falls through. The report shows which ones ran.
fn three_clauses() -> Code {
    let mut code = Code::default();
    let ran = code.volatile(0);
    for (bit, falls_through) in [(1, true), (2, false), (4, false)] {
        code.always(|code| {
            code.imm(Op::Add, ran, ran, bit);
            code.report();
            if falls_through {
                code.fallthrough();
            }
        });
    }
    code
}

/// 1: one `(fallthrough)` made every later true clause fall through as well.
#[test]
fn defect_1_fallthrough_holds_for_its_own_clause() {
    let mut rig = Rig::new(&three_clauses());
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [1 + 2]);
}

#[test]
fn defect_1_is_there_for_differential_tests() {
    let mut rig = Rig::with(&three_clauses(), no_limits(), Compat::Libccp);
    for _ in 0..2 {
        let _ = rig.ack(ack_of(0));
        assert_eq!(rig.last_report(), [1 + 2 + 4]);
    }
}

/// 2: a program of 256 instructions hung the kernel; longer ones overwrote adjacent memory.
#[test]
fn defect_2_the_longest_program_runs_to_its_end_and_a_longer_one_is_refused() {
    let mut code = Code::default();
    let count = code.volatile(0);
    code.always(|code| {
        for _ in 0..INSTRS_MAX - 1 {
            code.imm(Op::Add, count, count, 1);
        }
        code.report();
    });
    assert_eq!(code.instrs.len(), INSTRS_MAX);
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [INSTRS_MAX as u64 - 1]);

    let longer = vec![code.instrs[0]; 1502];
    let clause = Clause {
        flag: reg::CONSTANT_ONE,
        guard_start: 0,
        body_start: 0,
        body_end: 1502,
    };
    let refused = Program::check(2, &longer, &[clause], &code.vars).expect_err("too long");
    assert_eq!(refused.reason, CheckErrorReason::TooManyInstrs);
}

/// 3: from the ninth temporary on, writes were dropped and reads went out of bounds.
#[test]
fn defect_3_every_temporary_holds_its_value_and_one_beyond_is_refused() {
    let mut code = Code::default();
    let sum = code.volatile(0);
    code.always(|code| {
        for n in 0..reg::TEMPS_END - reg::TEMPS {
            code.set(temp(n), 1 << n);
        }
        for n in 0..reg::TEMPS_END - reg::TEMPS {
            code.op(Op::Add, sum, sum, temp(n));
        }
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [(1 << 24) - 1]);

    // Register 64 is the first variable; a program without variables has no such register.
    let beyond = Instr {
        op: Op::Move,
        has_imm: true,
        dst: reg::TEMPS_END,
        a: 0,
        b: 0,
        imm: 1,
    };
    let clause = Clause {
        flag: reg::CONSTANT_ONE,
        guard_start: 0,
        body_start: 0,
        body_end: 1,
    };
    assert_eq!(
        Program::check(1, &[beyond], &[clause], &[])
            .expect_err("unknown register")
            .reason,
        CheckErrorReason::NoSuchRegister(reg::TEMPS_END)
    );
}

/// 4: an update of register 5000 wrote out of bounds; clause indices were not checked (see the
/// tests of the check).
#[test]
fn defect_4_updates_outside_the_program_are_refused_whole() {
    let mut code = Code::default();
    let seen = code.volatile(3);
    let control = code.control(5);
    code.always(|code| {
        code.mov(seen, control);
        code.report();
    });
    let mut rig = Rig::new(&code);
    for index in [0, 2, 63, 64, 255] {
        let good = Update {
            target: CommandTarget::Var(1),
            value: 9,
        };
        let bad = Update {
            target: CommandTarget::Var(index),
            value: 9,
        };
        let refused = rig
            .update(&[good, bad])
            .expect_err("not a control variable");
        assert_eq!(
            refused,
            CommandError::BadTarget {
                target: CommandTarget::Var(index),
                vars: 2
            }
        );
        assert!(rig.set_program(1, &[bad]).is_err());
    }
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [5], "a refused command has no effect");
}

/// 5: a table held one program less than documented, a failed install leaked its slot, and a
/// program installed again under its number was stored twice, of which the old one ran.
#[test]
fn defect_5_tables_hold_their_capacity_and_the_last_install_wins() {
    let program = |uid, value| {
        let mut code = Code::default();
        let seen = code.volatile(0);
        code.always(|code| {
            code.set(seen, value);
            code.report();
        });
        code.program(uid)
    };
    let mut table: ProgramTable<3> = ProgramTable::new(no_limits(), Capabilities::default());
    for uid in 0..3 {
        table.install(program(uid, 1)).expect("room for three");
    }
    assert_eq!(
        table.install(program(3, 1)),
        Err(CommandError::TableFull { places: 3 })
    );

    let mut flow: Flow<16> = Flow::new(Time::ZERO, 14_480);
    flow.apply(
        Time::ZERO,
        &Command::SetProgram {
            uid: 2,
            updates: &[],
        },
        &table,
    )
    .expect("installed");
    let transport = support::Rig::new(&three_clauses()).transport;
    let _ = flow.on_ack(&transport, &ack_of(0), &table);
    assert_eq!(flow.report(&table), [1]);
    table
        .install(program(2, 7))
        .expect("the same number needs no new slot");
    let _ = flow.on_ack(&transport, &ack_of(0), &table);
    assert_eq!(flow.report(&table), [7], "the flow runs the new program");
    assert_eq!(table.programs().count(), 3);

    assert!(table.remove(0) && !table.remove(0));
    table.install(program(3, 1)).expect("a slot became free");
}

/// 6: when a restarted agent's programs reused the slots of the old ones, flows got stuck, or
/// continued in another program with the old one's variables.
#[test]
fn defect_6_a_flow_notices_that_its_program_is_gone_and_never_runs_another_in_its_place() {
    let mut other = Code::default();
    let count = other.volatile(100);
    other.always(|code| {
        code.imm(Op::Add, count, count, 1);
        code.report();
    });
    let mut rig = Rig::new(&three_clauses());
    let _ = rig.ack(ack_of(0));
    let reports = rig.reports.len();

    assert!(rig.table.remove(1));
    rig.table
        .install(other.program(2))
        .expect("the slot of program 1");
    let outcome = rig.ack(ack_of(1448));
    assert!(outcome.fallback, "no other program is in control");
    assert_eq!(
        rig.reports.len(),
        reports,
        "the program in its slot did not run"
    );

    rig.set_program(2, &[]).expect("installed");
    let outcome = rig.ack(ack_of(0));
    assert!(!outcome.fallback);
    assert_eq!(
        rig.last_report(),
        [101],
        "it starts from its initial values"
    );
}

/// 7: `(:= Micros 5000)` read back 105 after 100 µs if the clock counted ns.
#[test]
fn defect_7_micros_counts_on_from_what_it_was_set_to() {
    let mut code = Code::default();
    let seen = code.volatile(0);
    code.always(|code| {
        code.mov(seen, reg::MICROS);
        code.report();
        code.fallthrough();
    });
    code.when(
        |code| code.imm(Op::Gt, temp(0), BYTES_ACKED, 0),
        |code| code.set(reg::MICROS, 5000),
    );
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(1));
    rig.advance_us(100);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [5100]);
    // An agent may set it too, even beyond the time of the transport's clock.
    rig.update(&[Update {
        target: CommandTarget::Micros,
        value: 60_000_000,
    }])
    .expect("built-in state");
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [60_000_000]);
    rig.advance_us(7);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [60_000_007]);
}

/// 8: an unknown program was accepted, and a wrong number logged.
#[test]
fn defect_8_an_unknown_program_is_refused_by_its_number() {
    let mut rig = Rig::new(&three_clauses());
    assert_eq!(
        rig.set_program(77, &[]),
        Err(CommandError::UnknownProgram { uid: 77 })
    );
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [3], "the old program runs on");
}

/// 9: weights were in tenths only, and one above 10 wrapped below zero.
#[test]
fn defect_9_averages_take_any_weight_and_one_above_ten_tenths_is_ten() {
    let mut code = Code::default();
    let average = code.volatile(100);
    let weight = code.control(11);
    code.always(|code| {
        code.imm(Op::EwmaVar, average, weight, 200);
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!((rig.last_report(), rig.flow.faults()), (&[100][..], 1));
}

/// 10: an unknown RTT read as infinity and corrupted sums and averages. It still reads as infinity,
/// as programs expect; but sums saturate, and a program that needs a signal the datapath lacks is
/// refused.
#[test]
fn defect_10_an_unknown_rtt_is_infinity() {
    let mut code = Code::default();
    let sum = code.volatile(u64::MAX - 5);
    code.always(|code| {
        code.op(Op::Add, sum, sum, RTT_SAMPLE);
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(Signals::default());
    assert_eq!((rig.last_report(), rig.flow.faults()), (&[u64::MAX][..], 1));

    let mut blind: ProgramTable = ProgramTable::new(no_limits(), Capabilities::CWND);
    let refused = blind.install(code.program(1)).expect_err("no RTT there");
    assert_eq!(
        refused,
        CommandError::MissingCapabilities(Capabilities::RTT)
    );
    assert!(refused.to_string().contains("RTT samples"));
}

/// 11: after an arithmetic error there was neither a window nor a report.
#[test]
fn defect_11_arithmetic_errors_keep_window_and_report() {
    let mut code = Code::default();
    let quotient = code.volatile(0);
    code.always(|code| {
        code.op(Op::Div, quotient, BYTES_ACKED, LOST_PKTS_SAMPLE);
        code.imm(Op::Add, reg::CWND, reg::CWND, 1000);
        code.imm(Op::Mul, temp(0), reg::CWND, 0x6000_0000_0000_0000);
        code.report();
    });
    let mut rig = Rig::new(&code);
    for call in 1..=3 {
        let outcome = rig.ack(ack_of(1448));
        assert_eq!(outcome.cwnd, Some(14_480 + 1000 * call));
        assert_eq!(rig.last_report(), [0]);
        assert_eq!(u64::from(rig.flow.faults()), 2 * call);
    }
}

/// The reference's overflow test misses 7 * 0x6000000000000000, whose low 64 bits exceed 7.
#[test]
fn defect_11_a_product_that_does_not_fit_saturates_always() {
    let mut code = Code::default();
    let product = code.volatile(7);
    code.always(|code| {
        code.imm(Op::Mul, product, product, 0x6000_0000_0000_0000);
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!((rig.last_report(), rig.flow.faults()), (&[u64::MAX][..], 1));
}

/// 12: window and rate were set at every ACK, changed or not.
#[test]
fn defect_12_unchanged_values_are_not_set() {
    let mut code = Code::default();
    code.when(
        |code| code.imm(Op::Gt, temp(0), BYTES_ACKED, 0),
        |code| {
            code.set(reg::CWND, 20_000);
            code.set(reg::RATE, 1_000_000);
        },
    );
    let mut rig = Rig::new(&code);
    let changes: Vec<_> = [0, 1, 1, 0, 1]
        .map(|bytes| rig.ack(ack_of(bytes)))
        .map(|o| (o.cwnd, o.rate))
        .to_vec();
    let nothing = (None, None);
    assert_eq!(
        changes,
        [
            nothing,
            (Some(20_000), Some(1_000_000)),
            nothing,
            nothing,
            nothing
        ]
    );
}

/// 13: a freed connection left its state dangling. Here a flow is a value without references.
#[test]
fn defect_13_a_flow_is_a_value_of_bounded_size() {
    fn is_plain<T: Send + Sync + Clone + 'static>() {}
    is_plain::<Flow<16>>();
    is_plain::<ProgramTable>();
    assert!(
        size_of::<Flow<16>>() <= 512,
        "{} bytes",
        size_of::<Flow<16>>()
    );
}

/// The reference's fallback never detected a hung agent (see the notes on its timer); here missing
/// heartbeats count.
#[test]
fn a_silent_agent_is_noticed_by_its_missing_heartbeat() {
    let limits = ccplane_datapath::OperatorLimits {
        agent_timeout: Duration::from_millis(500),
        ..no_limits()
    };
    let mut rig = Rig::with(&three_clauses(), limits, Compat::Documented);
    rig.table.record_heartbeat(rig.transport.now);
    rig.advance_us(499_999);
    assert!(!rig.ack(ack_of(0)).fallback);
    rig.advance_us(1);
    assert!(rig.ack(ack_of(0)).fallback);
}

/// A pending report whose program was removed has no fields, and a report without fields would
/// close the flow.
#[test]
fn removed_programs_request_no_report() {
    let mut rig = Rig::new(&three_clauses());
    rig.queue = false;
    assert!(rig.ack(ack_of(0)).report.is_some());
    assert!(rig.table.remove(1));
    assert_eq!(rig.ack(ack_of(0)).report, None);
}

#[test]
fn a_program_that_is_gone_leaves_no_deadline_behind() {
    let mut rig = Rig::new(&support::programs::reno_fold(10_000));
    let _ = rig.ack(ack_of(0));
    assert!(rig.table.remove(1));
    assert!(rig.advance_without_acks_us(50_000) <= 1);
    assert_eq!(rig.flow.next_deadline(), None);
}
