//! Warnings of programs as rendered for the user, and programs without warnings.

use ccplane_lang::{DiagnosticCode, Problem, ProgramLimits, compile};

use crate::render::rendered;

fn warnings(source: &str) -> Vec<Problem> {
    let program =
        compile(source, &ProgramLimits::default()).unwrap_or_else(|why| panic!("{why}\n{source}"));
    let found = program.warnings();
    found.map_or_else(Vec::new, |found| found.problems().to_vec())
}

fn shown(source: &str) -> String {
    let program = compile(source, &ProgramLimits::default()).unwrap_or_else(|why| panic!("{why}"));
    rendered(program.warnings().expect("a warning"))
}

macro_rules! shown {
    ($($name:ident: $source:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), shown($source));
        }
    )*};
}

shown! {
    unreachable_clause: "(def (Report (volatile acked 0)))\
        \n(when true\
        \n    (:= Report.acked (+ Report.acked Ack.bytes_acked)))\
        \n(when (> Micros 10ms)\
        \n    (report)\
        \n    (:= Micros 0))";
    never_reports: "(def (Report (volatile acked 0)))\
        \n(when true\
        \n    (:= Report.acked (+ Report.acked Ack.bytes_acked)))";
    unguarded_average: "(def (Report (rtt 0)))\
        \n(when true\
        \n    (:= Report.rtt (ewma 7/8 Flow.rtt_sample_us))\
        \n    (report))";
    ns_beside_us: "(def)\n(when (> Flow.queue_delay_ns 5ms)\n    (report))";
    a_time_beside_a_rate: "(def)\n(when (> Flow.srtt_us 96mbit)\n    (report))";
    named_as_a_signal: "(def (Flow.srtt 0))\n(when (> Flow.srtt 10)\n    (report))";
    a_window_of_millionths: "(def)\
        \n(when true\
        \n    (:= Cwnd (* Rate Flow.min_rtt_us))\
        \n    (report))";
    bytes_and_packets: "(def (Report (volatile sum 0)))\
        \n(when true\
        \n    (:= Report.sum (+ Ack.bytes_acked Ack.packets_misordered))\
        \n    (report))";
}

#[test]
fn unit_mismatches_are_located() {
    for (wrong, source) in [
        (
            "wait",
            "(def (wait 10ms)) (when (> Ack.bytes_acked wait) (report))",
        ),
        (
            "64KiB",
            "(def (Report (x 0))) \
             (when true (:= Report.x (max y 64KiB)) (:= y Flow.srtt_us) (report))",
        ),
        (
            "Cwnd",
            "(def (Report (x 0))) (when true (:= Report.x Ack.now) (:= Report.x Cwnd) (report))",
        ),
        (
            "D",
            "(def (const D 5ms)) (when (< (min Flow.queue_delay_ns 1) D) (report))",
        ),
        (
            "(/ Cwnd Flow.srtt_us)",
            "(def) (when true (:= Rate (/ Cwnd Flow.srtt_us)) (report))",
        ),
        (
            "Flow.srtt_us",
            "(def) (when (if (> Cwnd Flow.srtt_us) true false) (report))",
        ),
        (
            "Flow.mss",
            "(def) (when true (if (< Micros Flow.mss) (:= Cwnd 1500b) (:= Cwnd 3kB)) (report))",
        ),
    ] {
        let found = warnings(source);
        let found: Vec<_> = found
            .iter()
            .map(|problem| (problem.code(), problem.span()))
            .collect();
        let [(DiagnosticCode::Unit, span)] = found[..] else {
            panic!("{found:?}\n{source}")
        };
        assert_eq!(
            &source[span.start as usize..span.end as usize],
            wrong,
            "{source}"
        );
    }
}

#[test]
fn unit_conversions_are_not_warned_about() {
    for statement in [
        "(:= Cwnd (/ (* Rate Flow.min_rtt_us) 1000000))",
        "(:= Cwnd (* Rate Flow.min_rtt_us 0.000001))",
        "(:= Rate (/ (* Cwnd 1000000) Flow.srtt_us))",
        "(:= Rate (* (/ Cwnd Flow.srtt_us) 1000000))",
        "(:= Cwnd (* Flow.packets_in_flight Flow.mss))",
        "(:= Cwnd (+ Cwnd (/ (* Flow.mss Ack.bytes_acked) Cwnd)))",
        "(:= Cwnd (max (* Flow.mss 2) 10kB))",
        "(if (> (/ Flow.queue_delay_ns 1000) 5ms) (:= Cwnd (* Cwnd 0.7)))",
        "(if (> (/ Cwnd Flow.mss) Flow.packets_in_flight) (report))",
        "(if (> Flow.packets_in_flight 4) (report))",
        "(if (> Flow.srtt_us (+ Flow.min_rtt_us (/ (* 131072 Flow.srtt_us) Cwnd))) (report))",
        // A local is reused.
        "(do (:= t Cwnd) (:= Ssthresh t) (:= t Flow.srtt_us) (:= Micros t))",
        // The units of the agent's variables are unknown.
        "(do (:= Rate own) (:= Cwnd own))",
        "(if (< Flow.srtt_us +infinity) (:= own (ewma 7/8 Flow.srtt_us)))",
        "(:= own (ewma 7/8 (min Flow.rtt_sample_us 1s)))",
        "(if Flow.queue_delay_valid (:= own (ewma 0.5 Flow.queue_delay_ns)))",
    ] {
        let source = format!(
            "(def (own 0) (other 0))\n(when true {statement} (fallthrough))\n(when true (report))"
        );
        let found = warnings(&source);
        assert!(found.is_empty(), "{statement}: {found:?}");
    }
}

#[test]
fn samples_repeated_by_timers_are_warned_about() {
    let program = |first: &str, guard: &str| {
        format!(
            "(def (Report (n 0) (sum 0)) (own 0)) {first} (when {guard} (report) (:= Micros 0))"
        )
    };
    let known = "(< Flow.rtt_sample_us +infinity)";
    let acked = format!("(&& {known} (> (+ Ack.packets_acked Ack.packets_misordered) 0))");
    let sum = "(:= Report.sum (+ Report.sum Flow.rtt_sample_us))";
    for (condition, statement, timer, warned) in [
        (known, sum, true, true),
        (known, sum, false, false),
        (&acked, sum, true, false),
        (known, "(:= Report.n (+ Report.n 1))", true, true),
        (known, "(:= own (+ own Ack.bytes_acked))", true, false),
        (known, "(:= own (ewma 7/8 Flow.rtt_sample_us))", true, true),
        (
            "true",
            "(:= Report.n (+ Report.n (if (< Flow.rtt_sample_us +infinity) 1 0)))",
            true,
            true,
        ),
        (
            "true",
            "(:= Report.sum (max Report.sum Flow.rate_incoming))",
            true,
            false,
        ),
        (
            "true",
            "(:= Report.sum (+ Report.sum Flow.rate_incoming))",
            true,
            true,
        ),
        // The variable may indicate whether the sample is new.
        ("(&& true (> own 0))", sum, true, false),
        (known, "(:= Report.sum Flow.rtt_sample_us)", true, false),
    ] {
        let clause = format!("(when {condition} {statement} (fallthrough))");
        let source = program(
            &clause,
            if timer {
                "(> Micros 10ms)"
            } else {
                "(> Ack.bytes_acked 0)"
            },
        );
        let found = warnings(&source);
        let repeated = found
            .iter()
            .filter(|problem| problem.code() == DiagnosticCode::RepeatedSample)
            .count();
        assert_eq!(repeated, usize::from(warned), "{found:?}\n{source}");
    }
}

#[test]
fn sticky_fallthrough_makes_later_clauses_reachable() {
    let clauses = "(when (> x 0) (fallthrough)) (when true (:= x 1)) (when true (report))";
    assert_eq!(
        warnings(&format!("(def (compat libccp) (x 0)) {clauses}")).len(),
        0
    );
    let found = warnings(&format!("(def (x 0)) {clauses}"));
    assert_eq!(
        found.iter().map(Problem::code).collect::<Vec<_>>(),
        [DiagnosticCode::Unreachable]
    );
}

#[test]
fn published_programs_are_right() {
    for entry in
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs")).expect("programs")
    {
        let path = entry.expect("a program").path();
        let found = warnings(&std::fs::read_to_string(&path).expect("a readable file"));
        assert!(found.is_empty(), "{}: {found:?}", path.display());
    }
}
