//! The examples of `docs/language.md` compile, and the erroneous ones give the documented error.

use ccplane_lang::{ProgramLimits, compile};

const BOOK: &str = include_str!("../../../docs/language.md");

/// Returns the fenced blocks of one kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("```{kind}\n");
    BOOK.split(&fence)
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

#[test]
fn examples_compile() {
    let examples = blocks("ccp");
    assert!(examples.len() >= 6);
    for source in examples {
        compile(source, &ProgramLimits::default())
            .unwrap_or_else(|why| panic!("{why:#}\n{source}"));
    }
}

#[test]
fn book_errors_match_the_compiler() {
    let [source] = blocks("ccp-error")[..] else {
        panic!("one example of an error")
    };
    let why = compile(source, &ProgramLimits::default())
        .expect_err("an error")
        .with_name("alg.ccp");
    let mut shown = String::new();
    let handler =
        miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor());
    handler
        .render_report(&mut shown, &why)
        .expect("a report can be shown");
    assert_eq!(shown.trim(), blocks("text")[0].trim());
}

#[test]
fn every_signal_is_listed_with_its_number() {
    for (number, name) in BOOK.lines().filter_map(row) {
        let program = compile(
            &format!("(def (x 0)) (when true (:= x {name}))"),
            &ProgramLimits::default(),
        );
        let program = program.unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(program.code().instrs()[0].b, number, "{name}");
    }
    let listed = BOOK.lines().filter_map(row).count();
    assert_eq!(listed, usize::from(ccplane_datapath::reg::SIGNALS_END));
}

/// Parses a table row: `| 4 | `Ack.lost_pkts_sample` | …`
fn row(line: &str) -> Option<(u8, &str)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    let number = cells.next()?.parse().ok()?;
    Some((number, cells.next()?.trim_matches('`')))
}
