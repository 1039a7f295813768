use proptest::prelude::*;

use super::*;

const AIMD_TEXT: &str = "# AIMD with a fifth back
(algorithm mine
    (about \"AIMD: a fifth back, (sic) # and no more\")
    (needs cwnd recovery)
    (param back 0.8 0.1 0.95)
    (param wait 10ms 1ms 1s)
    (init Cwnd (* 10 Flow.mss)))
(def (Report (volatile acked 0)))
(when (> Ack.lost_pkts_sample 0)
    (:= Ssthresh (* Cwnd back)))
(when (> Micros wait)
    (:= Cwnd (+ Cwnd Flow.mss))
    (:= Micros 0))
";

fn refused(text: &str) -> String {
    let problems = ProgramFile::read(text).expect_err("it is wrong");
    format!("{:#}", problems.with_name("mine.ccp"))
}

#[test]
fn headers_are_parsed() {
    let mine = ProgramFile::read(AIMD_TEXT).expect("well formed");
    assert_eq!(
        (mine.name(), mine.description()),
        ("mine", "AIMD: a fifth back, (sic) # and no more")
    );
    assert_eq!(
        mine.needs(),
        Capabilities::CWND.union(Capabilities::RECOVERY)
    );
    let names: Vec<&str> = mine
        .parameters()
        .iter()
        .map(|parameter| parameter.name.as_str())
        .collect();
    assert_eq!(names, ["back", "wait"]);
    let program = mine
        .program(&[("wait", "20ms"), ("back", "1/2")])
        .expect("both values are valid");
    assert!(
        program.contains("(const back 1/2) (const wait 20ms) (ccplane.begun false)"),
        "{program}"
    );
    assert!(
        compile(&program, &ProgramLimits::default()).is_ok(),
        "{program}"
    );
    assert_eq!(
        program.lines().count(),
        AIMD_TEXT.lines().count() + 1,
        "lines stay where they were"
    );
}

#[test]
fn warnings_point_into_the_original_text() {
    let mine = ProgramFile::read(AIMD_TEXT).expect("well formed");
    assert!(mine.warnings().is_none(), "there is no agent to report to");
    let odd = AIMD_TEXT.replace(
        "(def (Report (volatile acked 0)))",
        "(def (Report (volatile acked 0)))  (when (> Flow.srtt_us 96mbit) (:= Cwnd 1))",
    );
    let warned = ProgramFile::read(&odd)
        .expect("well formed")
        .warnings()
        .expect("a time and a rate");
    let only = &warned.problems()[0];
    let (start, end) = (only.span().start as usize, only.span().end as usize);
    assert!(
        only.code() == DiagnosticCode::Unit && "(> Flow.srtt_us 96mbit)".contains(&odd[start..end]),
        "{warned}"
    );
}

#[test]
fn out_of_range_values_are_reported_with_the_range() {
    let mine = ProgramFile::read(AIMD_TEXT).expect("well formed");
    for (name, value) in [
        ("back", "0.96"),
        ("back", "10ms"),
        ("wait", "0"),
        ("wait", "2s"),
        ("back", "much"),
        ("wait", "10mbit"),
    ] {
        let why = mine
            .program(&[(name, value)])
            .expect_err("out of range")
            .to_string();
        assert!(
            why.contains(&format!("invalid value `{value}` for `{name}`"))
                && why.contains("between"),
            "{why}"
        );
    }
}

#[test]
fn errors_refer_to_the_original_text() {
    for (before, after, expected) in [
        (
            "(algorithm mine",
            "(algorithm",
            "mine.ccp:3:5: the algorithm has no valid name",
        ),
        (
            "(algorithm mine",
            "(algorithm Mine",
            "at most 11 characters of a-z",
        ),
        (
            "cwnd recovery",
            "cwnd luck",
            "mine.ccp:4:17: unknown capability `luck`",
        ),
        (
            "0.8 0.1 0.95",
            "0.8 0.9 0.95",
            "mine.ccp:5:17: the default of `back` is out of range; must be between 0.9 and 0.95",
        ),
        ("(* 10 Flow.mss)", "(* 10 Flow.mms)", "mine.ccp:7:16: "),
        ("(* Cwnd back)", "(* Cwnd bakc)", "mine.ccp:10:26: "),
        ("(param wait", "(param acked", "mine.ccp:11:17: "),
        (
            "(needs cwnd recovery)",
            "(need cwnd)",
            "unknown part of the header",
        ),
        ("no more\"", "no more", "unterminated string"),
        (
            "(def (Report (volatile acked 0)))",
            "",
            "the header must be followed by the program",
        ),
    ] {
        assert!(AIMD_TEXT.contains(before));
        let why = refused(&AIMD_TEXT.replacen(before, after, 1));
        assert!(why.contains(expected), "{expected}: {why}");
    }
    assert!(
        ProgramFile::has_header(AIMD_TEXT)
            && !ProgramFile::has_header("# (algorithm\n(def)")
            && !ProgramFile::has_header("")
    );
    assert!(refused("(def) (when true (report))").contains("must start with a header"));
    assert!(refused("").contains("must start with a header"));
    let idle = "(algorithm idle (needs cwnd)) (def (Report (n 0))) \
        (when true (:= Report.n (+ Report.n 1)) (report))";
    assert!(refused(idle).contains("never sets a window or a rate"));
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in "[ ()a-z\"#\\n0-9.é:=+]{0,80}") {
        let _ = ProgramFile::read(&text);
        let _ = ProgramFile::read(&format!(
            "(algorithm a {text}) (def {text}) (when true (:= Cwnd 1) {text})"
        ));
    }

    #[test]
    fn positions_map_back_to_the_original_text(at in 0..AIMD_TEXT.len()) {
        let mine = ProgramFile::read(AIMD_TEXT).expect("well formed");
        let woven = mine.splice(&["0.8", "10ms"]);
        // Every byte after the header is found again at its new position.
        if at > mine.header.end as usize {
            let moved = (0..woven.text.len())
                .find(|to| woven.to_original(Span::new(*to, to + 1)) == Span::new(at, at + 1));
            let moved = moved.expect("the byte is in the program");
            prop_assert_eq!(&woven.text[moved..moved + 1], &AIMD_TEXT[at..at + 1]);
        }
    }
}
