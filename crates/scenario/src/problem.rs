//! Errors in files written by a user: file, line, reason and fix. Scenarios, published experiments
//! and the gateway's configuration use them.
//!
//! [`SourceText`] makes a [`Problem`] for bytes of its text. [`ParsedValue`] reads a quantity by
//! its own `FromStr` where TOML has a text or a number, so that its error keeps its place.

#[cfg(feature = "miette")]
mod diagnostic;
mod parsed_value;
mod suggestions;

use std::ops::Range;

pub use parsed_value::ParsedValue;
pub use suggestions::suggestions;

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

impl SourceText<'_> {
    /// Creates a problem with the bytes at `span`: message, label of the span, and fix.
    pub fn problem(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Problem {
        let start = span.start.min(self.text.len());
        let end = span.end.clamp(start, self.text.len());
        let before = self.text.get(..start).unwrap_or_default();
        let help = help.into();
        Problem(Box::new(ProblemText {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            message: message.into(),
            label: label.into(),
            help: (!help.is_empty()).then_some(help),
            text: self.text.to_owned(),
            span: start..end,
        }))
    }

    /// Creates a problem with the bytes at `span` from an error whose text is `message; fix`.
    pub fn problem_from_error(
        &self,
        span: Range<usize>,
        label: &str,
        error: &dyn std::fmt::Display,
    ) -> Problem {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
        self.problem(span, what, label, fix)
    }

    /// Creates a problem for the unknown `name` of a `what`. The fix suggests similar names in
    /// `known`.
    pub fn unknown_name(
        &self,
        span: Range<usize>,
        what: &str,
        name: &str,
        known: &[&str],
    ) -> Problem {
        self.problem(
            span,
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
            let table = self.text.get(span.clone()).unwrap_or_default();
            let end = span.start + table.find('\n').unwrap_or(table.len());
            return self.problem(
                span.start..end,
                format!("`{wanted}` is missing"),
                "here",
                format!("add `{wanted} = …`; see {reference}"),
            );
        }
        let (message, help) = message.split_once("; ").unwrap_or((message, ""));
        self.problem(span, message.trim_end(), "here", help)
    }
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
