//! Extensions of CCP's language: more operators, `if` in every position, ratios, units, constants,
//! timers, hints.

use crate::compiling::{compiled, ops, refused_for, same};
use ccplane_datapath::{Op, Program as Bytecode, reg};
use ccplane_lang::{DiagnosticCode, ProgramLimits, compile};

#[test]
fn names_unknown_to_ccp_can_be_declared() {
    let program = compiled("(def (Ssthresh 7)) (when true (:= Ssthresh 8))");
    assert_eq!(program.code().instrs()[0].dst, reg::VARS);
}

#[test]
fn locals_can_be_read_before_they_are_set() {
    compiled("(def (Report (x 0))) (when true (:= Report.x last) (:= last Cwnd))");
    refused_for(
        "(def (Report (x 0))) (when true (:= Report.x last))",
        DiagnosticCode::UnknownName,
        "declare it",
    );
}

#[test]
fn a_misspelt_target_is_an_error_not_a_new_variable() {
    refused_for(
        "(def (pulseState 0)) (when (== pulseState 0) (:= puleState 1))",
        DiagnosticCode::UnknownName,
        "did you mean `pulseState`?",
    );
    refused_for(
        "(def) (when true (:= cwnd 10))",
        DiagnosticCode::UnknownName,
        "did you mean `Cwnd`?",
    );
    refused_for(
        "(def (Report (acked 0))) (when true (:= Report.akced 1))",
        DiagnosticCode::UnknownName,
        "did you mean `Report.acked`?",
    );
}

#[test]
fn if_as_a_statement() {
    let program = compiled("(def (x 0)) (when true (if (> Cwnd 9) (:= x (+ x 1))))");
    assert_eq!(ops(&program), [Op::Gt, Op::SkipIfZero, Op::Add]);
    let program = compiled("(def (x 0)) (when true (if (> Cwnd 9) (:= x 5) (:= x (+ x 1))))");
    assert_eq!(
        ops(&program),
        [
            Op::Gt,
            Op::SkipIfZero,
            Op::Move,
            Op::Not,
            Op::SkipIfZero,
            Op::Add
        ]
    );
    let program = compiled("(def) (when true (if (> Cwnd 9) (report)))");
    assert_eq!(ops(&program), [Op::Gt, Op::If]);
}

#[test]
fn several_statements_under_one_if() {
    let program = compiled(
        "(def (x 0)) (when true (if (> Cwnd 9) (do (:= x 5) (report)) (do (:= x 6) (reset))))",
    );
    assert_eq!(program.cost().instrs, 8);
    assert_eq!(program.cost().instrs_worst, 6);
}

#[test]
fn if_with_an_else_as_a_value() {
    let program = |value: &str| {
        ops(&compiled(&format!(
            "(def (x 0)) (when true (:= x {value}))"
        )))
    };
    assert_eq!(program("(if (> Cwnd 9) 1 2)"), [Op::Move, Op::Gt, Op::If]);
    assert_eq!(program("(if (> Cwnd 9) 1 x)"), [Op::Gt, Op::If]);
    assert_eq!(program("(if (> Cwnd 9) x 1)"), [Op::Gt, Op::NotIf]);
    assert_eq!(program("(if (> x 9) 1 2)").len(), 4);
    assert_eq!(program("(if true 1 2)"), [Op::Move]);
}

#[test]
fn weights_of_every_kind() {
    let weight = |text: &str| {
        let program = compiled(&format!(
            "(def (const W 0.875) (const ONE 1.0) (x 0)) (when true (:= x (ewma {text} Cwnd)))"
        ));
        let imm = program.code().instrs()[0].imm;
        (imm >> 32, imm & 0xffff_ffff)
    };
    assert_eq!(weight("0.875"), (7, 8));
    assert_eq!(weight("7/8"), (7, 8));
    assert_eq!(weight("W"), (7, 8));
    assert_eq!(weight("5"), (1, 2));
    assert_eq!(weight("1"), (1, 10));
    assert_eq!(weight("1.0"), (1, 1));
    assert_eq!(weight("ONE"), (1, 1));
    assert_eq!(weight("0"), (0, 1));
    assert_eq!(
        ops(&compiled(
            "(def (w 7) (x 0)) (when true (:= x (ewma w Cwnd)))"
        )),
        [Op::EwmaVar]
    );
    assert_eq!(
        ops(&compiled("(def (x 0)) (when true (:= x (ewma 7 100)))")),
        [Op::Move, Op::Ewma]
    );
}

#[test]
fn signals_cannot_be_set() {
    refused_for(
        "(def) (when true (:= Ack.now 1))",
        DiagnosticCode::ReadOnly,
        "cannot be set",
    );
    refused_for(
        "(def (const C 5)) (when true (:= C 1))",
        DiagnosticCode::ReadOnly,
        "cannot be set",
    );
}

#[test]
fn operators_documented_but_missing_in_ccp() {
    assert_eq!(
        ops(&compiled("(def (x 0)) (when (>= x 1) (reset))")),
        [Op::Ge, Op::Move]
    );
    assert_eq!(
        ops(&compiled("(def (x 0)) (when (<= x 1) (reset))")),
        [Op::Le, Op::Move]
    );
    assert_eq!(
        ops(&compiled("(def (x 0)) (when (!= x 1) (reset))")),
        [Op::Ne, Op::Move]
    );
    assert_eq!(
        ops(&compiled("(def (x false)) (when (! x) (reset))")),
        [Op::Not, Op::Move]
    );
    assert_eq!(
        ops(&compiled(
            "(def (x false) (y true)) (when (== x y) (reset))"
        )),
        [Op::Eq, Op::Move]
    );
}

#[test]
fn more_than_two_operands() {
    same(
        "(def (x 0)) (when true (:= x (+ Cwnd Rate x)))",
        "(def (x 0)) (when true (:= x (+ (+ Cwnd Rate) x)))",
    );
    same(
        "(def (x 0)) (when true (:= x (min Cwnd Rate x 7)))",
        "(def (x 0)) (when true (:= x (min (min (min Cwnd Rate) x) 7)))",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (- Cwnd Rate x)))",
        DiagnosticCode::Syntax,
        "2 operands, not 3",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (+ Cwnd)))",
        DiagnosticCode::Syntax,
        "at least two",
    );
}

#[test]
fn a_guard_on_micros_waits() {
    for guard in ["(> Micros t)", "(< t Micros)"] {
        assert_eq!(
            ops(&compiled(&format!("(def (t 9)) (when {guard} (report))"))),
            [Op::After, Op::Move]
        );
    }
    for guard in ["(>= Micros 10)", "(<= 10 Micros)"] {
        let program = compiled(&format!("(def) (when {guard} (report))"));
        assert_eq!(
            (
                program.code().instrs()[0].op,
                program.code().instrs()[0].imm
            ),
            (Op::After, 9)
        );
    }
    for guard in ["(>= Micros t)", "(<= t Micros)"] {
        let program = compiled(&format!("(def (t 9)) (when {guard} (report))"));
        assert_eq!(ops(&program), [Op::Diff, Op::After, Op::NotIf, Op::Move]);
    }
    assert_eq!(
        ops(&compiled("(def) (when (>= Micros 0) (report))")),
        [Op::Ge, Op::Move]
    );
    assert_eq!(
        ops(&compiled(
            "(def (t 9)) (when true (if (> Micros t) (report)))"
        )),
        [Op::Gt, Op::If]
    );
}

#[test]
fn decimals_are_ratios() {
    let program = compiled("(def) (when true (:= Cwnd (* Cwnd 1.25)))");
    let instr = program.code().instrs()[0];
    assert_eq!(
        (instr.op, instr.dst, instr.a, instr.imm),
        (Op::MulRatio, reg::CWND, reg::CWND, 5 << 32 | 4)
    );
    same(
        "(def) (when true (:= Cwnd (/ Cwnd 1.25)))",
        "(def) (when true (:= Cwnd (* Cwnd 0.8)))",
    );
    same(
        "(def) (when true (:= Cwnd (* 0.5 Cwnd 3)))",
        "(def) (when true (:= Cwnd (* Cwnd 3/2)))",
    );
    same(
        "(def) (when true (:= Cwnd (* Cwnd 0.5 2)))",
        "(def) (when true (:= Cwnd Cwnd))",
    );
    same(
        "(def) (when true (:= Cwnd (* Cwnd 2.0)))",
        "(def) (when true (:= Cwnd (* Cwnd 2)))",
    );
    same(
        "(def) (when true (:= Rate (* Cwnd 5/4 4/5)))",
        "(def) (when true (:= Rate Cwnd))",
    );
    same(
        "(def) (when true (:= Rate (* 5/4 4/5)))",
        "(def) (when true (:= Rate 1))",
    );
    refused_for(
        "(def) (when true (:= Cwnd 1.5))",
        DiagnosticCode::Value,
        "not a whole number",
    );
    refused_for(
        "(def) (when true (:= Cwnd (+ Cwnd 1.5)))",
        DiagnosticCode::Value,
        "not a whole number",
    );
    refused_for(
        "(def (x 1.5)) (when true (report))",
        DiagnosticCode::Value,
        "not a whole number",
    );
    refused_for(
        "(def) (when true (:= Cwnd (* Cwnd 0.12345678901)))",
        DiagnosticCode::Value,
        "too many digits",
    );
}

#[test]
fn units_make_numbers_whole() {
    let value = |text: &str| {
        compiled(&format!("(def (x {text})) (when true (report))"))
            .code()
            .vars()[0]
            .init
    };
    assert_eq!(value("10ms"), 10_000);
    assert_eq!(value("1.5ms"), 1_500);
    assert_eq!(value("2s"), 2_000_000);
    assert_eq!(value("96mbit"), 12_000_000);
    assert_eq!(value("64KiB"), 65_536);
    assert_eq!(value("150kB"), 150_000);
    refused_for(
        "(def (x 100ns)) (when true (report))",
        DiagnosticCode::Value,
        "whole microseconds",
    );
    refused_for(
        "(def (x 12mbps)) (when true (report))",
        DiagnosticCode::Value,
        "usually bits per second",
    );
    refused_for(
        "(def (x 2m)) (when true (report))",
        DiagnosticCode::Value,
        "ambiguous",
    );
    refused_for(
        "(def (x 2parsec)) (when true (report))",
        DiagnosticCode::Value,
        "unit",
    );
}

#[test]
fn constants_are_computed_and_named() {
    same(
        "(def (const HZ 5) (const WAIT 20ms)) (when (> Micros (* WAIT HZ)) (report))",
        "(def) (when (> Micros 100000) (report))",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (- 1 2)))",
        DiagnosticCode::Value,
        "this value is negative",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (/ x 0)))",
        DiagnosticCode::Value,
        "division by zero",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (+ 18446744073709551615 1)))",
        DiagnosticCode::Value,
        "64 bits",
    );
    same(
        "(def (x 0)) (when true (:= x (diff 1 2)))",
        "(def (x 0)) (when true (:= x 0))",
    );
}

#[test]
fn limits_of_the_datapath_are_named() {
    let limits = ProgramLimits {
        max_vars: 2,
        max_clauses: 1,
        ..ProgramLimits::default()
    };
    let fails = |source: &str| compile(source, &limits).expect_err("too large").to_string();
    assert!(fails("(def (a 0) (b 0) (c 0)) (when true (report))").contains("2 variables"));
    assert!(fails("(def (a 0) (b 0)) (when true (:= c a) (:= b c))").contains("2 variables"));
    assert!(
        fails("(def) (when true (report)) (when true (report))")
            .contains("2 clauses, but the datapath's limit is 1")
    );
}

#[test]
fn compiled_programs_pass_the_datapaths_check() {
    let program = compiled(
        "(def (x 0)) (when (>= Micros x) (if (> x 1) (report) (:= x (if (> Cwnd x) 1 2))))",
    );
    let code = program.code();
    assert_eq!(
        Bytecode::check(0, code.instrs(), code.clauses(), code.vars()).as_ref(),
        Ok(code)
    );
}
