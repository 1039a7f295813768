use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    attach: AttachArgs,
}

const CONFIG_TEXT: &str = r#"
algorithms = ["cubic", "reno:report=acks"]
metrics = "127.0.0.1:9464"

[limits]
min_cwnd = "2920b"
max_rate = "1gbit"

[[rule]]
algorithm = "reno"
to = "10.0.0.0/8"
port = "443"
percent = 5

[[rule]]
algorithm = "cubic"
system = true
"#;

fn config(text: &str) -> Result<AttachConfig, Problem> {
    AttachConfig::parse("test.toml", text, &|_| Ok(()))
}

fn settings(text: &str, line: &[&str]) -> Settings {
    let line =
        Line::try_parse_from(std::iter::once(&"attach").chain(line)).expect("a command line");
    let config = config(text).unwrap_or_else(|problem| panic!("{problem}"));
    Settings::resolve(&line.attach, Some(&config)).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns the line, message and fix of the error in `text`.
fn wrong(text: &str) -> (usize, String, String) {
    let problem = config(text).expect_err("an invalid configuration");
    let fix = problem.fix().unwrap_or_default().to_owned();
    (problem.line(), problem.message().to_owned(), fix)
}

#[test]
fn shown_settings_parse_to_the_same_settings() {
    let shown = settings(CONFIG_TEXT, &[]).to_string();
    assert!(
        shown.contains("min_cwnd = \"2.92KB\" # line 6") || shown.contains("# line 6"),
        "{shown}"
    );
    assert!(
        shown.contains("fallback_after = \"500ms\" # default"),
        "{shown}"
    );
    let again = settings(&shown, &[]);
    assert_eq!(again.limits(), settings(CONFIG_TEXT, &[]).limits());
    let rules = |settings: &Settings| {
        settings
            .rules
            .iter()
            .map(|rule| rule.value.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(rules(&again), rules(&settings(CONFIG_TEXT, &[])));
    assert_eq!(
        again.algorithms.value,
        settings(CONFIG_TEXT, &[]).algorithms.value
    );
}

#[test]
fn the_command_line_overrides_the_file() {
    let settings = settings(
        CONFIG_TEXT,
        &[
            "--limits",
            "min_cwnd=3000b",
            "--keep",
            "--metrics",
            "127.0.0.1:1",
        ],
    );
    assert_eq!(settings.min_cwnd.value, Bytes::new(3000));
    assert_eq!(settings.max_rate.value, "1gbit".parse().expect("a rate"));
    assert!(settings.keep.value);
    assert_eq!(settings.metrics.value, "127.0.0.1:1".parse().ok());
    assert_eq!(settings.rules.len(), 2);
}

#[test]
fn algorithms_and_connections_of_the_command_line_replace_the_files() {
    let other = settings(CONFIG_TEXT, &["--alg", "copa"]);
    assert_eq!(other.algorithms.value, [Contender::ccplane("copa")]);
    assert!(other.rules.is_empty());
    let other = settings(CONFIG_TEXT, &["--to", "192.0.2.0/24", "--percent", "3"]);
    assert_eq!(other.algorithms.value.len(), 2);
    assert_eq!(other.rules.len(), 1);
    assert_eq!(other.rules[0].value.selection.percent, 3);
}

#[test]
fn limits_from_two_sources_are_checked_together() {
    let line =
        Line::try_parse_from(["attach", "--limits", "max_cwnd=2000b"]).expect("a command line");
    let config = config(CONFIG_TEXT).expect("a valid configuration");
    let failure =
        Settings::resolve(&line.attach, Some(&config)).expect_err("no window satisfies both");
    assert!(failure.to_string().contains("above"), "{failure}");
}

#[test]
fn limits_of_an_option_are_checked() {
    let error = |limits: &str| {
        let line = Line::try_parse_from(["attach", "--limits", limits]);
        line.err().expect("invalid limits").to_string()
    };
    assert!(error("max_rat=1mbit").contains("did you mean `max_rate`?"));
    assert!(error("max_rate=1mbit,max_flows=0").contains("at character 16: `max_flows`"));
    assert!(error("max_cwnd=1GB,max_cwnd=1GB").contains("already set at character 1"));
}

#[test]
fn an_invalid_file_is_reported_with_line_and_fix() {
    let rule =
        |text: &str| format!("algorithms = [\"cubic\"]\n[[rule]]\nalgorithm = \"cubic\"\n{text}\n");
    // Text, line, part of the message, part of the fix.
    let cases = [
        (
            "algorithm = [\"cubic\"]".to_owned(),
            1,
            "`algorithm`",
            "algorithms",
        ),
        ("algorithms = []".to_owned(), 1, "no algorithm", "add one"),
        (
            "algorithms = [\"cubic\", \"cubic:report=10ms\"]".to_owned(),
            1,
            "duplicate algorithm `cubic`",
            "remove one",
        ),
        (
            "[limits]\nmin_cwnd = \"3000b\"\nmax_cwnd = \"2000b\"".to_owned(),
            2,
            "min_cwnd, 3kB, is above max_cwnd, 2kB",
            "lower min_cwnd",
        ),
        ("[limits]\nmax_rate = 1000".to_owned(), 2, "", "mbit"),
        ("[limits]\nmax_rate = \"fast\"".to_owned(), 2, "fast", ""),
        (
            "[limits]\nfallback_after = \"1ms\"".to_owned(),
            2,
            "fallback_after, 1ms, is too short",
            "10ms",
        ),
        (
            "[limits]\nmax_flows = 0".to_owned(),
            2,
            "the number of flows is 0",
            "give 1 to",
        ),
        ("metrics = \"9464\"".to_owned(), 1, "9464", "127.0.0.1:9464"),
        (
            rule(""),
            2,
            "the rule selects no connections",
            "system = true",
        ),
        (
            rule("system = true\nport = 443"),
            2,
            "`system` cannot be combined",
            "remove `system`",
        ),
        (rule("to = \"10.1.0.0/8\""), 4, "10.1.0.0/8", ""),
        (rule("port = 0"), 4, "0", "443"),
        (
            rule("port = 443\npercent = 0"),
            5,
            "the percentage is 0",
            "1 to 100",
        ),
        (rule("port = 443\ncgruop = \"/web\""), 5, "cgruop", "cgroup"),
        (
            rule("system = true").replace("algorithm = \"cubic\"", "algorithm = \"cubik\""),
            3,
            "`cubik` is not an algorithm of this file",
            "cubic",
        ),
        (
            rule("system = true\n[[rule]]\nalgorithm = \"cubic\"\nsystem = true"),
            5,
            "no connection reaches this rule",
            "narrower rule first",
        ),
    ];
    for (text, line, says, fix) in cases {
        let (at, message, found) = wrong(&text);
        assert_eq!(at, line, "{text}\n{message}; {found}");
        assert!(message.contains(says), "{text}\n{message}; {found}");
        assert!(found.contains(fix), "{text}\n{message}; {found}");
    }
}

#[test]
fn unchangeable_settings_are_reported_with_their_line() {
    let before = settings(CONFIG_TEXT, &[]);
    let changed = |text: &str| {
        before.check_reload(
            &settings(text, &[]),
            &config(text).expect("a valid configuration"),
        )
    };
    assert!(changed(&CONFIG_TEXT.replace("percent = 5", "percent = 50")).is_none());
    assert!(changed(&CONFIG_TEXT.replace("1gbit", "2gbit")).is_none());
    let problem = changed(&CONFIG_TEXT.replace("\"cubic\", ", "\"cubic:report=acks\", "))
        .expect("an unchangeable setting");
    assert_eq!(problem.line(), 2);
    let problem = changed(&format!("keep = true\n{CONFIG_TEXT}")).expect("an unchangeable setting");
    assert_eq!(problem.line(), 1);
    assert!(problem.message().contains("keep"));
}
