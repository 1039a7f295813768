//! Errors of the check, and their messages.

use crate::support::programs::{Code, bbr_probe_bw, reno_fold, temp};
use ccplane_datapath::{
    CLAUSES_MAX, Capabilities, CheckError, CheckErrorReason, Clause, CodeLocation, INSTRS_MAX,
    Instr, Op, Program, VARS_MAX, Var, VarKind, reg,
};

fn check(code: &Code) -> Result<Program, CheckError> {
    Program::check(7, &code.instrs, &code.clauses, &code.vars)
}

/// Returns the error of a program with one variable whose only clause has this guard and body.
fn error(guard: impl FnOnce(&mut Code) -> u8, body: impl FnOnce(&mut Code)) -> CheckError {
    let mut code = Code::default();
    code.volatile(0);
    code.when(guard, body);
    check(&code).expect_err("a wrong program")
}

fn body_error(body: impl FnOnce(&mut Code)) -> CheckError {
    error(|_| reg::CONSTANT_ONE, body)
}

const FIRST_VAR: u8 = reg::VARS;

#[test]
fn published_programs_pass_and_their_facts_are_known() {
    let reno = check(&reno_fold(10_000)).expect("a correct program");
    assert_eq!(
        (reno.uid(), reno.report_vars(), reno.vars().len()),
        (7, 6, 7)
    );
    assert!(reno.uses_timers());
    assert_eq!(reno.required_capabilities(), Capabilities::RTT);
    assert!(reno.reads(14) && !reno.reads(11));
    // 14 instructions, of which the one that waits is evaluated twice more.
    assert_eq!(reno.worst_case(), 14 + 2);

    let bbr = check(&bbr_probe_bw()).expect("a correct program");
    let needs = [
        Capabilities::CWND,
        Capabilities::PACING,
        Capabilities::RTT,
        Capabilities::DELIVERY_RATE,
    ];
    assert_eq!(
        bbr.required_capabilities(),
        needs
            .into_iter()
            .fold(Capabilities::default(), Capabilities::union)
    );
    assert_eq!(bbr.with_uid(9).uid(), 9);
    assert_eq!(bbr.with_uid(7), bbr);
}

#[test]
fn the_empty_program_is_valid() {
    let empty = check(&Code::default()).expect("the empty program is valid");
    assert_eq!(empty.worst_case(), 0);
    assert!(!empty.uses_timers());
}

#[test]
fn registers_have_their_classes() {
    let write = |register| body_error(|code| code.set(register, 1)).reason;
    for register in [0, 13, reg::SIGNALS_END - 1, reg::CONSTANT_ONE] {
        assert_eq!(write(register), CheckErrorReason::ReadOnly(register));
    }
    for register in [
        reg::SIGNALS_END,
        reg::MICROS - 1,
        FIRST_VAR + 1,
        127,
        128,
        255,
    ] {
        assert_eq!(write(register), CheckErrorReason::NoSuchRegister(register));
        let read = body_error(|code| code.mov(FIRST_VAR, register)).reason;
        assert_eq!(read, CheckErrorReason::NoSuchRegister(register));
    }
    for register in [reg::SHOULD_REPORT, reg::SHOULD_CONTINUE, reg::SHOULD_RESET] {
        assert_eq!(
            body_error(|code| code.mov(FIRST_VAR, register)).reason,
            CheckErrorReason::WriteOnly(register)
        );
        assert_eq!(
            error(|_| register, |_| {}).reason,
            CheckErrorReason::WriteOnly(register)
        );
    }
}

#[test]
fn temporaries_are_written_before_they_are_read() {
    let unwritten = CheckErrorReason::Unwritten(temp(0));
    assert_eq!(
        body_error(|code| code.mov(FIRST_VAR, temp(0))).reason,
        unwritten
    );
    assert_eq!(error(|_| temp(0), |_| {}).reason, unwritten);
    // A guard's temporary does not exist in the body.
    let in_guard = |code: &mut Code| code.imm(Op::Gt, temp(0), FIRST_VAR, 1);
    assert_eq!(
        error(in_guard, |code| code.mov(FIRST_VAR, temp(0))).reason,
        unwritten
    );
    // Written on one path only.
    let skipped = body_error(|code| {
        code.imm(Op::SkipIfZero, FIRST_VAR, FIRST_VAR, 1);
        code.set(temp(0), 1);
        code.mov(FIRST_VAR, temp(0));
    });
    assert_eq!(
        (skipped.location, skipped.reason),
        (CodeLocation::Instr(2), unwritten)
    );
    // An operation that may keep the old value reads it.
    for op in [Op::If, Op::NotIf, Op::EwmaVar] {
        let kept = body_error(|code| {
            code.imm(op, temp(0), FIRST_VAR, 1);
        });
        assert_eq!(kept.reason, unwritten);
    }
}

#[test]
fn a_temporary_written_on_both_paths_may_be_read() {
    let mut code = Code::default();
    let var = code.volatile(0);
    code.always(|code| {
        code.set(temp(0), 1);
        code.imm(Op::SkipIfZero, var, var, 1);
        code.set(temp(0), 2);
        code.mov(var, temp(0));
    });
    assert!(check(&code).is_ok());
}

#[test]
fn guards_change_nothing() {
    let impure = |register| {
        error(
            |code| code.imm(Op::Move, register, reg::CONSTANT_ONE, 1),
            |_| {},
        )
        .reason
    };
    for register in [FIRST_VAR, reg::CWND, reg::MICROS, reg::SHOULD_REPORT] {
        assert_eq!(impure(register), CheckErrorReason::ImpureGuard(register));
    }
    let waits = body_error(|code| {
        code.imm(Op::After, temp(0), reg::CONSTANT_ONE, 10);
    });
    assert_eq!(waits.reason, CheckErrorReason::AfterInBody);
}

#[test]
fn skips_stay_in_their_range() {
    for (distance, fine) in [(0, true), (1, true), (2, false), (u64::MAX, false)] {
        let mut code = Code::default();
        let var = code.volatile(0);
        code.always(|code| {
            code.imm(Op::SkipIfZero, var, var, distance);
            code.set(var, 1);
        });
        code.always(|code| code.set(var, 2));
        let reason = check(&code).map(|_| ()).map_err(|error| error.reason);
        assert_eq!(
            reason,
            if fine {
                Ok(())
            } else {
                Err(CheckErrorReason::SkipTooFar)
            }
        );
    }
}

#[test]
fn ratios_make_sense() {
    let reason = |op, num: u64, den| {
        body_error(|code| _ = code.imm(op, FIRST_VAR, FIRST_VAR, num << 32 | den)).reason
    };
    assert_eq!(
        reason(Op::MulRatio, 1, 0),
        CheckErrorReason::ZeroDenominator
    );
    assert_eq!(reason(Op::Ewma, 0, 0), CheckErrorReason::ZeroDenominator);
}

#[test]
fn a_weight_is_at_most_one() {
    let mut code = Code::default();
    let var = code.volatile(0);
    code.always(|code| {
        code.imm(Op::Ewma, var, var, 9 << 32 | 8);
        code.instrs[0].b = var;
    });
    assert_eq!(
        check(&code).expect_err("a weight of 9/8").reason,
        CheckErrorReason::WeightAboveOne
    );
}

#[test]
fn clauses_cover_the_program_without_gaps() {
    let instr = Instr {
        op: Op::Move,
        has_imm: true,
        dst: FIRST_VAR,
        a: 0,
        b: 0,
        imm: 1,
    };
    let vars = [Var::default()];
    let reason = |clauses: &[[u16; 3]]| {
        let clauses: Vec<Clause> = clauses
            .iter()
            .map(|&[guard_start, body_start, body_end]| Clause {
                flag: reg::CONSTANT_ONE,
                guard_start,
                body_start,
                body_end,
            })
            .collect();
        Program::check(1, &[instr; 4], &clauses, &vars)
            .map(|_| ())
            .map_err(|error| (error.location, error.reason))
    };
    assert_eq!(reason(&[[0, 0, 4]]), Ok(()));
    assert_eq!(reason(&[[0, 0, 2], [2, 2, 4]]), Ok(()));
    let range = |clause| Err((CodeLocation::Clause(clause), CheckErrorReason::ClauseRange));
    assert_eq!(reason(&[[1, 1, 4]]), range(0));
    assert_eq!(reason(&[[0, 0, 2], [3, 3, 4]]), range(1));
    assert_eq!(reason(&[[0, 0, 2], [1, 1, 4]]), range(1));
    assert_eq!(reason(&[[0, 0, 5]]), range(0));
    assert_eq!(reason(&[[0, 0, 2], [2, 1, 4]]), range(1));
    assert_eq!(
        reason(&[[0, 0, 3]]),
        Err((CodeLocation::Instr(3), CheckErrorReason::Unreachable))
    );
}

#[test]
fn sizes_are_limited() {
    let instr = Instr {
        op: Op::Move,
        has_imm: true,
        dst: reg::CWND,
        a: 0,
        b: 0,
        imm: 1,
    };
    let whole = |len| {
        [Clause {
            flag: reg::CONSTANT_ONE,
            guard_start: 0,
            body_start: 0,
            body_end: len,
        }]
    };
    let reason =
        |result: Result<Program, CheckError>| result.map(|_| ()).map_err(|error| error.reason);
    assert_eq!(
        reason(Program::check(1, &[instr; INSTRS_MAX], &whole(256), &[])),
        Ok(())
    );
    assert_eq!(
        reason(Program::check(
            1,
            &[instr; INSTRS_MAX + 1],
            &whole(257),
            &[]
        )),
        Err(CheckErrorReason::TooManyInstrs)
    );
    let empty = Clause {
        flag: reg::CONSTANT_ONE,
        ..Clause::default()
    };
    assert_eq!(
        reason(Program::check(1, &[], &[empty; CLAUSES_MAX], &[])),
        Ok(())
    );
    assert_eq!(
        reason(Program::check(1, &[], &[empty; CLAUSES_MAX + 1], &[])),
        Err(CheckErrorReason::TooManyClauses)
    );
    assert_eq!(
        reason(Program::check(1, &[], &[], &[Var::default(); VARS_MAX])),
        Ok(())
    );
    assert_eq!(
        reason(Program::check(1, &[], &[], &[Var::default(); VARS_MAX + 1])),
        Err(CheckErrorReason::TooManyVars)
    );
}

#[test]
fn variables_are_in_order() {
    let vars = [VarKind::Report, VarKind::Local, VarKind::Control].map(|kind| Var {
        kind,
        ..Var::default()
    });
    let error = Program::check(1, &[], &[], &vars).expect_err("control after local");
    assert_eq!(
        (error.location, error.reason),
        (CodeLocation::Var(2), CheckErrorReason::VarOrder)
    );
}

#[test]
fn messages_name_the_place_and_the_reason() {
    let error = error(
        |code| code.imm(Op::Move, reg::CWND, reg::CONSTANT_ONE, 1),
        |_| {},
    );
    assert_eq!(
        error.to_string(),
        "instruction 0 writes register 33 in a guard; guards may only write temporaries"
    );
}
