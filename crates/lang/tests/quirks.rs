//! Constructs on which CCP's own compiler or datapath crashes, fails or surprises: here each has
//! its proper meaning, or an error that states the fix.

use crate::compiling::{compiled, ops, refused_for, same};
use ccplane_datapath::{INFINITY, Op, VarKind, reg};
use ccplane_lang::DiagnosticCode;

#[test]
fn a_comment_before_the_definitions_is_read() {
    compiled("# what this is\n(def) (when true (report))");
}

#[test]
fn comments_are_allowed_anywhere() {
    compiled(
        "(def # one\n (x 0)) # two\n # three\n\n(when # four\n \
         true # five\n (:= # six\n x # seven\n 1) # eight\n ) # nine",
    );
}

#[test]
fn a_comment_in_a_body_is_read() {
    same(
        "(def (x 0)) (when true (:= x 1) # here\n (report))",
        "(def (x 0)) (when true (:= x 1) (report))",
    );
}

#[test]
fn a_comment_hides_parentheses() {
    compiled("(def) (when true # ((((\n (report))");
}

#[test]
fn no_definitions_at_all() {
    compiled("(def) (when true (report))");
    refused_for(
        "(when true (report))",
        DiagnosticCode::Syntax,
        "a program must start with (def …)",
    );
    refused_for(
        "",
        DiagnosticCode::Syntax,
        "a program must start with (def …)",
    );
}

#[test]
fn old_flat_definitions() {
    let program = compiled("(def (Report.x 0) (Control.y 0)) (when true (:= Report.x Control.y))");
    assert_eq!(program.report_names().collect::<Vec<_>>(), ["x"]);
    assert_eq!(program.control_names().collect::<Vec<_>>(), ["Control.y"]);
    same(
        "(def (Report.x 0) (y 0)) (when true (:= Report.x y))",
        "(def (Report (x 0)) (y 0)) (when true (:= Report.x y))",
    );
}

#[test]
fn report_variables_come_first_in_order_of_declaration() {
    let program = compiled("(def (z 1) (Report (b 2) (a 3)) (y 4)) (when true (:= Report.b z))");
    assert_eq!(program.report_names().collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(
        program
            .code()
            .vars()
            .iter()
            .map(|var| var.init)
            .collect::<Vec<_>>(),
        [2, 3, 1, 4]
    );
}

#[test]
fn volatile_variables_keep_their_initial_values() {
    let program = compiled(
        "(def (Report (volatile a true)) (volatile c +infinity)) (when true (:= Report.a false))",
    );
    let [a, c] = program.code().vars() else {
        panic!()
    };
    assert!(a.volatile && a.init == 1 && a.kind == VarKind::Report);
    assert!(c.volatile && c.init == INFINITY && c.kind == VarKind::Control);
}

#[test]
fn one_report_block() {
    refused_for(
        "(def (Report (a 0)) (Report (b 0))) (when true (report))",
        DiagnosticCode::Syntax,
        "more than one (Report …) block",
    );
}

#[test]
fn a_name_as_initial_value_is_an_error() {
    refused_for(
        "(def (a 0) (b a)) (when true (report))",
        DiagnosticCode::Value,
        "not an initial value",
    );
}

#[test]
fn a_negative_initial_value_is_an_error() {
    refused_for(
        "(def (a -1)) (when true (report))",
        DiagnosticCode::Value,
        "no negative numbers",
    );
}

#[test]
fn infinity_is_the_reference_s_32_bits() {
    let program = compiled("(def (a +infinity)) (when (> a +infinity) (:= a +infinity))");
    assert_eq!(program.code().vars()[0].init, 0xffff_ffff);
    assert_eq!(program.code().instrs()[1].imm, 0xffff_ffff);
    refused_for(
        "(def) (when true (:= Cwnd infinity))",
        DiagnosticCode::UnknownName,
        "+infinity",
    );
}

#[test]
fn a_number_that_the_reference_takes_for_infinity_is_itself() {
    let program = compiled(
        "(def (a 0x3fffffff)) (when true (report))"
            .replace("0x3fffffff", "1073741823")
            .as_str(),
    );
    assert_eq!(program.code().vars()[0].init, 1_073_741_823);
}

#[test]
fn numbers_from_two_to_the_31_on_are_numbers() {
    let program = compiled("(def (a 5000000000)) (when true (:= a 18446744073709551615))");
    assert_eq!(program.code().vars()[0].init, 5_000_000_000);
    assert_eq!(program.code().instrs()[0].imm, u64::MAX);
    refused_for(
        "(def (a 18446744073709551616)) (when true (report))",
        DiagnosticCode::Value,
        "does not fit in 64 bits",
    );
}

#[test]
fn names_that_start_like_a_literal() {
    compiled("(def (trueish 0) (falsehood 1)) (when true (:= trueish falsehood))");
    refused_for(
        "(def (1abc 0)) (when true (report))",
        DiagnosticCode::Name,
        "cannot be a name",
    );
}

#[test]
fn reserved_names() {
    refused_for(
        "(def (__x 0)) (when true (report))",
        DiagnosticCode::Name,
        "`__x` is reserved",
    );
    refused_for(
        "(def) (when true (:= __shouldReport true))",
        DiagnosticCode::Name,
        "write (report)",
    );
    refused_for(
        "(def) (when true (:= __shouldContinue true))",
        DiagnosticCode::Name,
        "write (fallthrough)",
    );
    refused_for(
        "(def (x 0)) (when true (:= x __eventFlag))",
        DiagnosticCode::Name,
        "reserved",
    );
}

#[test]
fn built_in_names_cannot_be_declared() {
    refused_for(
        "(def (Cwnd 0)) (when true (report))",
        DiagnosticCode::Name,
        "built in",
    );
    refused_for(
        "(def (Ack.now 0)) (when true (report))",
        DiagnosticCode::Name,
        "built in",
    );
}

#[test]
fn declared_twice() {
    refused_for(
        "(def (a 0) (a 1)) (when true (report))",
        DiagnosticCode::Name,
        "declared twice",
    );
    refused_for(
        "(def (Report.a 0) (Report (a 1))) (when true (report))",
        DiagnosticCode::Name,
        "declared twice",
    );
    compiled("(def (a 0) (Report (a 1))) (when true (report))");
}

#[test]
fn signs_need_no_space() {
    same(
        "(def (x 0)) (when true (:=x(+x 1)))",
        "(def (x 0)) (when true (:= x (+ x 1)))",
    );
    same(
        "(def (x 0)) (when (>x 1) (:= x (*x(-x 1))))",
        "(def (x 0)) (when (> x 1) (:= x (* x (- x 1))))",
    );
}

#[test]
fn words_for_signs() {
    same(
        "(def (x 0)) (when (and (gt x 1) (or (lt x 9) (eq x 20))) \
         (bind x (add (mul x 2) (sub (div x 2) 1))))",
        "(def (x 0)) (when (&& (> x 1) (|| (< x 9) (== x 20))) (:= x (+ (* x 2) (- (/ x 2) 1))))",
    );
}

#[test]
fn a_report_variable_as_guard() {
    let program = compiled("(def (Report (volatile b false))) (when Report.b (report))");
    assert_eq!(program.code().clauses()[0].flag, reg::VARS);
    same(
        "(def (Report (b false))) (when (&& true Report.b) (report))",
        "(def (Report (b false))) (when Report.b (report))",
    );
}

#[test]
fn a_control_variable_or_a_signal_as_guard() {
    compiled("(def (go false)) (when go (report))");
    compiled("(def) (when Flow.was_timeout (report))");
    refused_for(
        "(def (go 0)) (when go (report))",
        DiagnosticCode::Type,
        "(!= go 0)",
    );
}

#[test]
fn a_guard_of_true_runs_no_instruction_and_false_never_runs() {
    let program = compiled("(def) (when true (report)) (when false (report))");
    let [always, never] = program.code().clauses() else {
        panic!()
    };
    assert_eq!((always.flag, always.body_start), (reg::CONSTANT_ONE, 0));
    assert_eq!(
        program.code().instrs()[usize::from(never.guard_start)].imm,
        0
    );
}

#[test]
fn logical_or_is_a_truth_value_not_a_sum() {
    let program = compiled("(def (a true) (b true)) (when (|| a b) (report))");
    assert_eq!(ops(&program), [Op::Or, Op::Move]);
}

#[test]
fn a_number_takes_a_truth_value_as_in_ccp() {
    compiled(
        "(def (Report (volatile timeout 0))) (when true (:= Report.timeout Flow.was_timeout))",
    );
    compiled("(def (flag false)) (when true (:= flag 1))");
    refused_for(
        "(def (flag false)) (when true (:= flag Cwnd))",
        DiagnosticCode::Type,
        "is a boolean",
    );
}

#[test]
fn an_unknown_name_right_of_a_bind_is_an_error() {
    refused_for(
        "(def (Report.x 0) (Control.number 0)) (when true (:= Report.x Control.numer))",
        DiagnosticCode::UnknownName,
        "did you mean `Control.number`?",
    );
}

#[test]
fn an_unknown_name_left_of_a_bind_is_a_local() {
    let program = compiled("(def (Report (x 0))) (when true (:= sum 5) (:= Report.x sum))");
    let local = program.code().vars()[1];
    assert_eq!(
        (local.kind, local.init, local.volatile),
        (VarKind::Local, 0, false)
    );
}

#[test]
fn locals_start_at_zero() {
    compiled("(def (Report (n 0))) (when true (:= count (+ count 1)) (:= Report.n count))");
}

#[test]
fn if_into_every_kind_of_register() {
    for target in [
        "Report.r", "control", "local", "Cwnd", "Rate", "Ssthresh", "Micros",
    ] {
        for form in ["if", "!if"] {
            let source = format!(
                "(def (Report (r 0)) (control 0)) (when true (:= {target} ({form} (> Cwnd 9) 5)))"
            );
            let op = if form == "if" { Op::If } else { Op::NotIf };
            assert_eq!(ops(&compiled(&source)), [Op::Gt, op], "{source}");
        }
    }
}

#[test]
fn ewma_into_every_kind_of_register() {
    for target in ["Report.r", "control", "local", "Cwnd", "Rate"] {
        let source = format!(
            "(def (Report (r 0)) (control 0)) (when true (:= {target} (ewma 7 Flow.rate_incoming)))"
        );
        let program = compiled(&source);
        assert_eq!(ops(&program), [Op::Ewma], "{source}");
        assert_eq!(program.code().instrs()[0].imm, 7 << 32 | 10);
    }
}

#[test]
fn forms_that_keep_a_variable_need_one() {
    refused_for(
        "(def (x 0)) (when true (:= x (+ 1 (if true 2))))",
        DiagnosticCode::Syntax,
        "whole right side of :=",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (+ 1 (ewma 7 Cwnd))))",
        DiagnosticCode::Syntax,
        "whole right side of :=",
    );
    compiled("(def (x 0)) (when true (:= x (+ 1 (if (> x 2) 2 3))))");
}

#[test]
fn unused_values_are_errors() {
    refused_for(
        "(def) (when true (+ Cwnd 1))",
        DiagnosticCode::Syntax,
        "not used",
    );
}

#[test]
fn binds_are_not_values_and_guards_are_pure() {
    refused_for(
        "(def (x 0)) (when true (:= x (:= y 1)))",
        DiagnosticCode::Syntax,
        "a bind is a statement",
    );
    refused_for(
        "(def (x 0)) (when (:= x 1) (report))",
        DiagnosticCode::Syntax,
        "a bind is a statement",
    );
    refused_for(
        "(def) (when (report) (report))",
        DiagnosticCode::Syntax,
        "is a statement",
    );
}

#[test]
fn weights_above_one_are_errors() {
    refused_for(
        "(def (x 0)) (when true (:= x (ewma 11 Cwnd)))",
        DiagnosticCode::Value,
        "between 0 and 1",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (ewma 1.5 Cwnd)))",
        DiagnosticCode::Value,
        "between 0 and 1",
    );
}

#[test]
fn more_instructions_than_the_reference_survives_are_refused_at_compile_time() {
    let body = "(:= x (+ x 1)) ".repeat(257);
    refused_for(
        &format!("(def (x 0)) (when true {body})"),
        DiagnosticCode::Limit,
        "257 instructions",
    );
    let body = "(:= x (+ x 1)) ".repeat(256);
    compiled(&format!("(def (x 0)) (when true {body})"));
}

#[test]
fn expressions_of_more_than_eight_operators_keep_their_value() {
    let sum = (0..20).fold("x".to_owned(), |sum, _| format!("(+ (* Cwnd Rate) {sum})"));
    compiled(&format!("(def (x 0)) (when true (:= x {sum}))"));
}

#[test]
fn programs_too_long_for_their_message_are_rejected() {
    let body = "(:= x 1) ".repeat(4_090);
    refused_for(
        &format!("(def (x 0)) (when true {body})"),
        DiagnosticCode::Limit,
        "4090 instructions",
    );
}

#[test]
fn later_sequence_numbers() {
    assert_eq!(
        ops(&compiled(
            "(def (x 0)) (when true (:= x (wrapped_max x Ack.now)))"
        )),
        [Op::MaxWrap]
    );
    assert_eq!(
        ops(&compiled(
            "(def (x 0)) (when true (:= x (wrapped_max 5 7)))"
        )),
        [Op::Move, Op::MaxWrap]
    );
}

#[test]
fn unknown_clauses_and_operations_are_errors() {
    refused_for(
        "(def) (when (timeout) (report))",
        DiagnosticCode::Syntax,
        "unknown operator `timeout`",
    );
    refused_for(
        "(def (x 0)) (when true (:= x (blah 10 20)))",
        DiagnosticCode::Syntax,
        "unknown operator `blah`",
    );
    refused_for(
        "(def (x 0)) (when true (:= x +))",
        DiagnosticCode::Syntax,
        "an operator, not a value",
    );
    refused_for(
        "(def (x 0)) (when true (:= x -1))",
        DiagnosticCode::Syntax,
        "no negative numbers",
    );
    refused_for(
        "(def) (when true)",
        DiagnosticCode::Syntax,
        "a condition and a statement",
    );
    refused_for("(def) (report)", DiagnosticCode::Syntax, "not a clause");
    refused_for(
        "(def) (def) (when true (report))",
        DiagnosticCode::Syntax,
        "a second (def …)",
    );
    refused_for(
        "(def) (when true report)",
        DiagnosticCode::Syntax,
        "write (report)",
    );
    refused_for("(def)", DiagnosticCode::Syntax, "has no clause");
    refused_for(
        "(def (x 0)) (when (> x 1) (report)",
        DiagnosticCode::Syntax,
        "1 `)` missing",
    );
}

#[test]
fn names_with_points_and_underscores() {
    compiled(
        "(def (a_b.c 0) (Report (_x 0) (y_ 1))) \
         (when true (:= Report._x a_b.c) (:= Report.y_ Report._x))",
    );
}

#[test]
fn the_references_fallthrough_can_be_chosen() {
    let clauses = "(when true (:= x 1) (fallthrough)) (when true (:= x 2)) (when true (:= x 3))";
    let documented = compiled(&format!("(def (x 0)) {clauses}"));
    let sticky = compiled(&format!("(def (compat libccp) (x 0)) {clauses}"));
    let expected = documented
        .code()
        .with_sticky_fallthrough()
        .expect("the program is short");
    assert_eq!(*sticky.code(), expected);
    assert_ne!(documented.code(), sticky.code());
    assert_eq!(sticky.control_names().collect::<Vec<_>>(), ["x"]);
    assert!(
        sticky.cost().instrs_worst >= sticky.cost().instrs
            && sticky.bytecode().to_string().contains("fallthrough")
    );
    // With a value it is an ordinary variable of that name.
    let variable = compiled("(def (compat 3)) (when true (:= Cwnd compat))");
    assert_eq!(variable.control_names().collect::<Vec<_>>(), ["compat"]);
    refused_for(
        "(def (compat other)) (when true (report))",
        DiagnosticCode::Value,
        "not an initial value",
    );
}
