//! Rendered diagnostics as the user sees them, without colours.

use ccplane_lang::{ProgramLimits, compile};

use crate::render::rendered;

fn shown(source: &str) -> String {
    let why = compile(source, &ProgramLimits::default()).expect_err("an error");
    rendered(why)
}

macro_rules! diagnostics {
    ($($name:ident: $source:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), shown($source));
        }
    )*};
}

diagnostics! {
    unknown_name: "(def (Report (volatile acked 0)))\
        \n(when true\
        \n    (:= Report.acked (+ Report.acked Ack.bytes_akced)))";
    missing_parenthesis: "(def (x 0))\
        \n(when true\
        \n    (:= x (+ x 1))\
        \n(when (> x 5)\
        \n    (report))";
    surplus_parenthesis: "(def (x 0))\n(when true (report)))";
    number_as_condition: "(def (ready 0))\n(when ready (report))";
    truth_in_arithmetic: "(def (timeouts 0))\
        \n(when true (:= timeouts (+ timeouts Flow.was_timeout)))";
    decimal_as_value: "(def (x 0))\n(when true (:= x 1.5))";
    if_without_variable: "(def (x 0))\n(when true (:= x (+ 1 (if (> x 2) 3))))";
    misspelt_target: "(def (pulseState 0))\n(when (== pulseState 0)\n    (:= puleState 1))";
    two_report_blocks: "(def\n    (Report (a 0))\n    (Report (b 0)))\n(when true (report))";
    unknown_operator: "(def (x 0))\n(when true (:= x (% x 8)))";
    signal_as_target: "(def)\n(when true (:= Flow.rtt_sample_us 0))";
    no_definitions: "(when true (report))";
    bad_unit: "(def (wait 10sec))\n(when (> Micros wait) (report))";
    several_at_once: "(def (x 0) (y -1))\n(when (> x)\n    (:= z (+ xx 1))\n    (report 1))";
}

#[test]
fn too_many_instructions() {
    let body = "    (:= x (+ x 1))\n".repeat(200);
    insta::assert_snapshot!(shown(&format!(
        "(def (x 0))\n(when true\n{body})\n(when (> x 1)\n{body})"
    )));
}

#[test]
fn one_line_for_a_log() {
    let why = compile(
        "(def (x 0))\n(when true (:= x é))\n(when y (report))",
        &ProgramLimits::default(),
    )
    .expect_err("errors");
    let lines = why.to_string();
    assert_eq!(lines.lines().count(), why.problems().len());
    insta::assert_snapshot!(format!("{why}\n{why:#}"));
}

#[test]
fn columns_count_characters_and_lines_start_at_one() {
    let why = compile(
        "(def (x 0)) # é é\n(when true # é\n  # é\n (:= x y))",
        &ProgramLimits::default(),
    )
    .expect_err("an error");
    let problem = &why.problems()[0];
    assert_eq!((problem.line(), problem.column()), (4, 8));
    assert_eq!(problem.span().end - problem.span().start, 1);
}
