//! No text makes the compiler panic, hang or exhaust its stack, and every accepted text is accepted
//! again after printing.
#![expect(
    clippy::disallowed_methods,
    reason = "it measures how long the compiler takes"
)]

use std::time::{Duration, Instant};

use crate::generate;
use crate::generate::Random;
use ccplane_lang::{DiagnosticCode, ProgramLimits, compile};
use ccplane_units::splitmix::SplitMix64;
use proptest::prelude::*;

const PUBLISHED_PROGRAMS: [&str; 4] = [
    include_str!("programs/reno_interval.ccp"),
    include_str!("programs/bbr_probe_bw.ccp"),
    include_str!("programs/bbr_probe_rtt.ccp"),
    include_str!("programs/copa.ccp"),
];

/// Compiles any text: a program must survive printing, and an error must have a location inside the
/// text.
fn try_out(text: &str) {
    match compile(text, &ProgramLimits::default()) {
        Ok(program) => {
            let printed = program.tree().to_string();
            let again = compile(&printed, &ProgramLimits::default())
                .unwrap_or_else(|why| panic!("{why}\n{printed}\n{text}"));
            assert_eq!(again.code(), program.code(), "{printed}\n{text}");
            let warned = program.warnings();
            for problem in warned.iter().flat_map(|warned| warned.problems()) {
                let (start, end) = (problem.span().start as usize, problem.span().end as usize);
                assert!(
                    problem.code().is_warning() && text.get(start..end).is_some(),
                    "{problem}\n{text}"
                );
            }
        }
        Err(why) => {
            assert!(
                !why.problems().is_empty(),
                "refused without a reason: {text}"
            );
            for problem in why.problems() {
                let (start, end) = (problem.span().start as usize, problem.span().end as usize);
                assert!(
                    text.get(start..end).is_some(),
                    "{start}..{end} is no part of the text: {problem}\n{text}"
                );
                assert!(problem.line() >= 1 && problem.column() >= 1);
            }
            let mut shown = String::new();
            let plain = miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::none());
            plain
                .render_report(&mut shown, &why)
                .expect("a report can be shown");
        }
    }
}

#[test]
fn deep_nesting_is_refused() {
    for text in [
        "(".repeat(100_000),
        format!("(def) (when true {}", "(+ 1 ".repeat(100_000)),
        "(def ".repeat(100_000),
    ] {
        let why = compile(&text, &ProgramLimits::default()).expect_err("too deep");
        assert_eq!(why.problems()[0].code(), DiagnosticCode::Limit);
        assert!(why.to_string().contains("nested more than"), "{why}");
    }
    assert!(compile(&")".repeat(100_000), &ProgramLimits::default()).is_err());
}

#[test]
fn nesting_as_deep_as_is_allowed_fits_a_small_stack() {
    let forms = [
        ("(:= x ", "(+ x ", "1", ")"),
        ("(:= x ", "(if (> x 1) x ", "1", ")"),
        ("(:= x ", "(if (! (> ", "x 1)) 2 3", ")"),
        ("", "(if true (do ", "(report)", "))"),
        ("", "(if (> x 1) (report) (if (> x 2) ", "(report)", "))"),
    ];
    let child = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || {
            for (start, open, middle, close) in forms {
                for depth in [100, 200, 253, 400] {
                    let end = if start.is_empty() { "" } else { ")" };
                    let text = format!(
                        "(def (x 0)) (when true {start}{}{middle}{}{end})",
                        open.repeat(depth / open.matches('(').count().max(1)),
                        close.repeat(depth / open.matches('(').count().max(1)),
                    );
                    try_out(&text);
                }
            }
        });
    child
        .expect("a thread")
        .join()
        .expect("no overflow and no panic");
}

#[test]
fn hostile_texts_take_no_longer_than_their_length() {
    let many = |what: &str, count: usize| {
        (0..count)
            .map(|n| what.replace('%', &n.to_string()))
            .collect::<String>()
    };
    let texts = [
        format!("(def {}) (when true (report))", many("(v% 0)", 80_000)),
        format!(
            "(def {}) (when true (report))",
            many("(const C% 1)", 60_000)
        ),
        format!("(def) (when true {})", many("(:= v% v%)", 60_000)),
        format!(
            "(def (x 0)) (when true {})",
            many("(:= x unknown%)", 60_000)
        ),
        format!(
            "(def (x 0)) (when true {})",
            "(:= x (+ x 1))".repeat(70_000)
        ),
        format!(
            "(def (x 0)) (when true (:= x (+ {})))",
            "x ".repeat(500_000)
        ),
        format!("(def (x 0)) {}", "(when true (report))".repeat(50_000)),
        "(def (x 0)) ".repeat(80_000),
        "#".repeat(1_000_000),
        "x".repeat(1_000_000),
        " ".repeat(2_000_000),
        "\u{fffd}".repeat(300_000),
    ];
    for text in texts {
        let start = Instant::now();
        assert!(compile(&text, &ProgramLimits::default()).is_err());
        // Less than 0.1 s each on an idle machine; a failure takes minutes.
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{} took {:?}",
            &text[..40],
            start.elapsed()
        );
    }
}

/// Changes a text slightly, as a typo or a careless edit would.
fn mutate(text: &str, random: &mut Random) -> String {
    const PIECES: [&str; 34] = [
        "(",
        ")",
        "(",
        ")",
        " ",
        "#",
        "\n",
        "(when",
        "(def",
        "(Report",
        ":=",
        "if",
        "!if",
        "ewma",
        "do",
        "(report)",
        "(reset)",
        "0",
        "1.5",
        "7/8",
        "10ms",
        "+infinity",
        "true",
        "Micros",
        "Cwnd",
        "Report.",
        "__x",
        "-",
        "+",
        "é",
        "18446744073709551616",
        "const",
        "volatile",
        "\0",
    ];
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + random.below(4) {
        let at = random.below(chars.len() + 1);
        let until = (at + 1 + random.below(12)).min(chars.len());
        match random.below(4) {
            0 => drop(chars.drain(at..until)),
            1 => {
                let copied: Vec<char> = chars[at..until].to_vec();
                let to = random.below(chars.len() + 1);
                chars.splice(to..to, copied);
            }
            2 => drop(chars.splice(at..at, random.pick(&PIECES).chars())),
            _ => drop(chars.splice(at..until, random.pick(&PIECES).chars())),
        }
    }
    chars.into_iter().collect()
}

#[test]
fn damaged_programs() {
    let mut random = Random(SplitMix64(2026));
    for round in 0..4_000 {
        let text = match PUBLISHED_PROGRAMS.get(round % 5) {
            Some(text) => (*text).to_owned(),
            None => generate::program(&mut random, 40),
        };
        try_out(&mutate(&text, &mut random));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC*") {
        try_out(&text);
    }

    #[test]
    fn any_bytes(bytes: Vec<u8>) {
        try_out(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_tokens(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "(", "(", "(", ")", ")", ")", "def", "when", "Report", ":=", "if", "+", "*", "ewma",
                "x", "true", "1", "0.5", "Cwnd", "report", "volatile",
            ]),
            0..60,
        ),
    ) {
        try_out(&tokens.join(" "));
        try_out(&format!("(def (x 0)) (when true {}", tokens.join(" ")));
    }
}
