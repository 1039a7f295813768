//! Reader of TOML files written by users: scenarios, published experiments, and the configurations
//! of `attach` and of the gateway.
//!
//! [`SourceText`] parses a file, and makes a [`Problem`] with file, line, reason and fix for bytes
//! of its text. [`SpannedValue`] and [`ValueOrList`] parse quantities with the `FromStr` of their
//! type, so that their errors keep their position. [`toml_string`] and [`toml_list`] print them.

#[cfg(feature = "miette")]
mod diagnostic;
mod parsed_value;
mod suggestions;
mod value_or_list;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use toml::Spanned;

pub use parsed_value::{ParsedValue, SpannedValue};
pub use suggestions::suggestions;
pub use value_or_list::ValueOrList;

/// Error of reading a file written by a user.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("{} cannot be read: {why}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        why: std::io::Error,
    },
    /// The contents are invalid.
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// Error in a file written by a user.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}:{}: {}", .0.file, .0.line, .0.message)]
pub struct Problem(Box<ProblemText>);

#[derive(Clone, Debug)]
struct ProblemText {
    file: String,
    line: usize,
    message: String,
    label: String,
    help: Option<String>,
    text: String,
    span: Range<usize>,
}

impl Problem {
    /// Returns the line number, counted from 1.
    pub fn line(&self) -> usize {
        self.0.line
    }

    /// Returns the text of the file.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the marked bytes of the text.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// Returns the label of the marked bytes.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// Returns the message without its location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the suggested fix.
    pub fn fix(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
}

/// Text of a file and its name, to which the spans of problems refer.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'t> {
    /// Name of the file in problems.
    pub file: &'t str,
    /// Text of the file.
    pub text: &'t str,
}

/// Position in a file: a span, or a value with a span.
pub trait ToSpan {
    /// Returns the bytes of the file.
    fn to_span(&self) -> Range<usize>;
}

impl ToSpan for Range<usize> {
    fn to_span(&self) -> Range<usize> {
        self.clone()
    }
}

impl<T> ToSpan for &Spanned<T> {
    fn to_span(&self) -> Range<usize> {
        self.span()
    }
}

impl SourceText<'_> {
    /// Parses the file. `reference` is the page that documents the settings.
    pub fn parse<T: DeserializeOwned>(&self, reference: &str) -> Result<T, Problem> {
        toml::from_str(self.text).map_err(|error| self.syntax_problem(&error, reference))
    }

    /// Returns the line number of an offset in the text, counted from 1.
    pub fn line(&self, offset: usize) -> usize {
        let before = self.text.get(..offset).unwrap_or_default();
        before.matches('\n').count() + 1
    }

    /// Returns the first line of a table, which marks problems of the whole table.
    pub fn first_line(&self, table: impl ToSpan) -> Range<usize> {
        let span = table.to_span();
        let text = self.text.get(span.clone()).unwrap_or_default();
        span.start..span.start + text.find('\n').unwrap_or(text.len())
    }

    /// Creates a problem at `at`: message, label of the position, and fix.
    pub fn problem(
        &self,
        at: impl ToSpan,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Problem {
        let span = at.to_span();
        let start = span.start.min(self.text.len());
        let end = span.end.clamp(start, self.text.len());
        let help = help.into();
        Problem(Box::new(ProblemText {
            file: self.file.to_owned(),
            line: self.line(start),
            message: message.into(),
            label: label.into(),
            help: (!help.is_empty()).then_some(help),
            text: self.text.to_owned(),
            span: start..end,
        }))
    }

    /// Creates a problem from an error whose text is `message; fix`.
    pub fn problem_from_error(&self, at: impl ToSpan, label: &str, error: &dyn Display) -> Problem {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
        self.problem(at, what, label, fix)
    }

    /// Checks that a number is in `range`. The problem is `{what} is {number}`; `example` is
    /// appended to its fix.
    pub fn number<N, T>(
        &self,
        what: &str,
        at: &Spanned<N>,
        range: RangeInclusive<T>,
        example: &str,
    ) -> Result<T, Problem>
    where
        N: Copy + Display,
        T: TryFrom<N> + PartialOrd + Display,
    {
        let number = *at.get_ref();
        let found = T::try_from(number).ok().filter(|n| range.contains(n));
        found.ok_or_else(|| {
            let fix = format!("give {} to {}{example}", range.start(), range.end());
            self.problem(at, format!("{what} is {number}"), "here", fix)
        })
    }

    /// Checks that names are unique. The problem is at the second use of a name; its message has
    /// the line of the first.
    pub fn check_distinct<K: Ord + Display>(
        &self,
        what: &str,
        names: impl IntoIterator<Item = (K, Range<usize>)>,
        fix: &str,
    ) -> Result<(), Problem> {
        let mut first_uses = BTreeMap::new();
        for (name, span) in names {
            if let Some(first) = first_uses.get(&name) {
                let text = format!(
                    "duplicate {what} `{name}`, first used on line {}",
                    self.line(*first)
                );
                return Err(self.problem(span, text, "second use", fix));
            }
            first_uses.insert(name, span.start);
        }
        Ok(())
    }

    /// Creates a problem for the unknown `name` of a `what`. The fix suggests similar names in
    /// `known`.
    pub fn unknown_name(&self, at: impl ToSpan, what: &str, name: &str, known: &[&str]) -> Problem {
        self.problem(
            at,
            format!("there is no {what} `{name}`"),
            "unknown",
            nearest(name, known),
        )
    }

    /// Converts an error of the TOML parser or of serde. Unknown and missing settings get a message
    /// of our own. `reference` is the page that documents the settings.
    pub fn syntax_problem(&self, error: &toml::de::Error, reference: &str) -> Problem {
        let span = error.span().unwrap_or(0..0);
        let message = error.message();
        let mut names = message.split('`').skip(1).step_by(2);
        let mut name = || names.next().unwrap_or_default();
        if message.starts_with("unknown field") || message.starts_with("unknown variant") {
            let wrong = name();
            let known: Vec<&str> = names.collect();
            return self.unknown_name(span, "setting", wrong, &known);
        }
        if message.starts_with("missing field") {
            let wanted = name();
            // The parser marks the whole table; this keeps its first line.
            return self.problem(
                self.first_line(span),
                format!("`{wanted}` is missing"),
                "here",
                format!("add `{wanted} = …`; see {reference}"),
            );
        }
        if let Some(number) = message
            .strip_prefix("invalid type: integer `")
            .and_then(|rest| rest.strip_suffix("`, expected a string"))
        {
            let text = format!("`{number}` is a number, but this setting is a string");
            return self.problem(span, text, "here", format!("write \"{number}\""));
        }
        let (message, help) = message.split_once("; ").unwrap_or((message, ""));
        self.problem(span, message.trim_end(), "here", help)
    }
}

/// Formats a value as a TOML string.
pub fn toml_string(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

/// Formats values as a TOML list of strings.
pub fn toml_list<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = values.into_iter().map(toml_string).collect();
    format!("[{}]", words.join(", "))
}

/// Maximum number of names in a hint; more would hide the message.
const HINT_NAMES_MAX: usize = 24;

fn nearest(name: &str, known: &[&str]) -> String {
    let near = suggestions(name, known.iter().copied());
    let list = |names: &[&str]| format!("`{}`", names.join("`, `"));
    match (near.first(), known) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "none is defined".to_owned(),
        (None, known) if known.len() > HINT_NAMES_MAX => {
            let first = known.get(..HINT_NAMES_MAX).unwrap_or(known);
            format!(
                "available: {}, and {} more",
                list(first),
                known.len() - first.len()
            )
        }
        (None, known) => format!("available: {}", list(known)),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    const FILE: &str = "\
hosts = [\"a\", \"b\"]
host = \"c\"
count = 7

[[rule]]
name = \"x\"
";

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        hosts: Spanned<ValueOrList<String>>,
        host: Spanned<ValueOrList<String>>,
        count: Spanned<i64>,
        rule: Vec<Spanned<RuleTable>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RuleTable {
        name: Spanned<String>,
    }

    fn source(text: &str) -> SourceText<'_> {
        SourceText {
            file: "test.toml",
            text,
        }
    }

    fn settings() -> Settings {
        source(FILE).parse("docs/test.md").expect("it is valid")
    }

    #[test]
    fn a_list_keeps_the_spans_of_its_values() {
        let settings = settings();
        let list = settings.hosts.get_ref();
        let names: Vec<_> = list.0.iter().map(Spanned::get_ref).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(FILE.get(list.0[1].span()), Some("\"b\""));
        let single = settings.host.get_ref();
        assert_eq!(single.0.len(), 1);
        assert_eq!(single.0[0].get_ref(), "c");
        assert!(single.0[0].span().is_empty());
        assert_eq!(FILE.get(settings.host.span()), Some("\"c\""));
    }

    #[test]
    fn numbers_out_of_range_name_the_range() {
        let settings = settings();
        let number =
            |range| source(FILE).number("the count", &settings.count, range, ", such as 3");
        assert_eq!(number(1_u8..=7).expect("it is in range"), 7);
        let problem = number(1..=6).expect_err("it is too large");
        assert_eq!(problem.to_string(), "test.toml:3: the count is 7");
        assert_eq!(problem.fix(), Some("give 1 to 6, such as 3"));
        let negative = Spanned::new(0..1, -1_i64);
        assert!(
            source(FILE)
                .number("the count", &negative, 0..=u32::MAX, "")
                .is_err()
        );
    }

    #[test]
    fn the_second_use_of_a_name_is_a_problem() {
        let names = |second| [("a", 0..1), (second, 20..22)];
        assert!(
            source(FILE)
                .check_distinct("name", names("b"), "fix")
                .is_ok()
        );
        let problem = source(FILE).check_distinct("name", names("a"), "fix");
        let problem = problem.expect_err("a is used twice");
        assert_eq!(
            problem.to_string(),
            "test.toml:2: duplicate name `a`, first used on line 1"
        );
        assert_eq!(problem.span(), 20..22);
    }

    #[test]
    fn a_table_is_marked_by_its_first_line() {
        let settings = settings();
        let line = source(FILE).first_line(&settings.rule[0]);
        assert_eq!(FILE.get(line), Some("[[rule]]"));
        assert_eq!(
            source(FILE).line(settings.rule[0].get_ref().name.span().start),
            6
        );
    }

    #[test]
    fn unknown_and_missing_settings_name_the_fix() {
        let problem = |text: &str| source(text).parse::<Settings>("docs/test.md").unwrap_err();
        let unknown = problem("cout = 7");
        assert_eq!(
            unknown.to_string(),
            "test.toml:1: there is no setting `cout`"
        );
        assert_eq!(unknown.fix(), Some("did you mean `count`?"));
        let missing = problem("count = 7");
        assert_eq!(missing.to_string(), "test.toml:1: `hosts` is missing");
        assert_eq!(missing.fix(), Some("add `hosts = …`; see docs/test.md"));
    }

    #[test]
    fn a_number_is_not_a_name() {
        for (hosts, host) in [("7", "\"c\""), ("[\"a\", 7]", "\"c\""), ("[\"a\"]", "7")] {
            let text = format!("hosts = {hosts}\nhost = {host}\ncount = 7\nrule = []\n");
            let problem = source(&text).parse::<Settings>("docs/test.md").unwrap_err();
            let message = "`7` is a number, but this setting is a string";
            assert_eq!(problem.message(), message, "{text}");
            assert_eq!(problem.fix(), Some("write \"7\""), "{text}");
            let marked = text.get(problem.span()).unwrap_or_default();
            assert!(
                marked.contains('7') && !marked.contains('c'),
                "{text}: {marked}"
            );
        }
        let text = "hosts = true\nhost = \"c\"\ncount = 7\nrule = []\n";
        let problem = source(text).parse::<Settings>("docs/test.md").unwrap_err();
        assert!(problem.message().contains("expected a string"), "{problem}");
    }

    #[test]
    fn values_print_as_toml() {
        assert_eq!(toml_string("a\"b"), "'a\"b'");
        assert_eq!(toml_list([1, 2]), "[\"1\", \"2\"]");
    }
}
