//! What is wrong with a file that a person wrote: the file, the line, the reason and the fix.
//! Scenarios, published experiments and the gateway's configuration speak this way.
//!
//! [`SourceText`] makes a [`Problem`] for bytes of its text. [`ParsedValue`] reads a quantity by
//! its own `FromStr` where TOML has a text or a number, so that its error keeps its place.

#[cfg(feature = "miette")]
mod drawn;
mod suggestions;
mod text;

use std::ops::Range;

pub use suggestions::suggestions;
pub use text::ParsedValue;

/// A file that cannot be used as it is written.
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
    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.0.line
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The bytes of the text that are marked.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// What stands under the mark.
    pub fn label(&self) -> &str {
        &self.0.label
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to write instead.
    pub fn fix(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
}

/// The text of a file and its name, where problems point into.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'t> {
    /// Its name in problems.
    pub file: &'t str,
    /// The text.
    pub text: &'t str,
}

impl SourceText<'_> {
    /// A problem with the bytes at `span`: the sentence, the word under the mark, the fix.
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

    /// A problem with the bytes at `span` from an error whose text is `message; fix`.
    pub fn hinted(
        &self,
        span: Range<usize>,
        label: &str,
        error: &dyn std::fmt::Display,
    ) -> Problem {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
        self.problem(span, what, label, fix)
    }

    /// A name that is not among `known`, of something that is a `what`; the fix names those that
    /// may have been meant.
    pub fn unknown(&self, span: Range<usize>, what: &str, name: &str, known: &[&str]) -> Problem {
        self.problem(
            span,
            format!("there is no {what} `{name}`"),
            "unknown",
            nearest(name, known),
        )
    }

    /// What the TOML reader or serde say of a file whose settings `reference` explains, in our
    /// words where they speak of names.
    pub fn syntax_of(&self, error: &toml::de::Error, reference: &str) -> Problem {
        let span = error.span().unwrap_or(0..0);
        let message = error.message();
        let mut names = message.split('`').skip(1).step_by(2);
        let mut name = || names.next().unwrap_or_default();
        if message.starts_with("unknown field") || message.starts_with("unknown variant") {
            let wrong = name();
            let known: Vec<&str> = names.collect();
            return self.unknown(span, "setting", wrong, &known);
        }
        if message.starts_with("missing field") {
            let wanted = name();
            // The reader marks the whole table; its first line is enough.
            let table = self.text.get(span.clone()).unwrap_or_default();
            let end = span.start + table.find('\n').unwrap_or(table.len());
            return self.problem(
                span.start..end,
                format!("`{wanted}` is missing"),
                "here",
                format!("add `{wanted} = …`; {reference} says what it takes"),
            );
        }
        let (message, help) = message.split_once("; ").unwrap_or((message, ""));
        self.problem(span, message.trim_end(), "here", help)
    }
}

/// How many names a hint lists at most; more would hide the message.
const HINT_NAMES_MAX: usize = 24;

fn nearest(name: &str, known: &[&str]) -> String {
    let near = suggestions(name, known.iter().copied());
    let list = |names: &[&str]| format!("`{}`", names.join("`, `"));
    match (near.first(), known) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => "nothing is named so".to_owned(),
        (None, known) if known.len() > HINT_NAMES_MAX => {
            let first = known.get(..HINT_NAMES_MAX).unwrap_or(known);
            format!(
                "there are {}, and {} more",
                list(first),
                known.len() - first.len()
            )
        }
        (None, known) => format!("there are {}", list(known)),
    }
}
