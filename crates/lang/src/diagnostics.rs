//! What is wrong with a program, where, and what to write instead.

#[cfg(feature = "miette")]
mod drawn;

use std::fmt;
use std::sync::Arc;

/// Most problems reported for one text; after that, more would only bury the first.
const MAX_PROBLEMS: usize = 16;

/// Bytes `start..end` of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset one past the last byte.
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span {
            start: start as u32,
            end: end as u32,
        }
    }
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code {
    /// The text is not a program.
    Syntax,
    /// A name that is declared nowhere.
    UnknownName,
    /// A name that may not be declared, or is declared twice.
    Name,
    /// A truth value where a number is needed, or the other way round.
    Type,
    /// Something that cannot be written to.
    ReadOnly,
    /// A number, unit or constant expression without a value.
    Value,
    /// More than the datapath takes.
    Limit,
    /// A warning: a clause that no run can reach.
    Unreachable,
    /// A warning: no statement reports.
    NeverReports,
    /// A warning: an unguarded average of a time that may be `+infinity`.
    Infinite,
    /// A warning: a sample that a run by timer counts again.
    RepeatedSample,
    /// A warning: values of different units meet.
    Unit,
    /// A warning: a variable that is called as signals are.
    NamedAsSignal,
}

impl Code {
    /// Whether a program with it is a program all the same.
    pub fn is_warning(self) -> bool {
        match self {
            Code::Syntax
            | Code::UnknownName
            | Code::Name
            | Code::Type
            | Code::ReadOnly
            | Code::Value
            | Code::Limit => false,
            Code::Unreachable
            | Code::NeverReports
            | Code::Infinite
            | Code::RepeatedSample
            | Code::Unit
            | Code::NamedAsSignal => true,
        }
    }

    /// Its name in JSON and behind the text: `lang::unit`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Syntax => "lang::syntax",
            Code::UnknownName => "lang::unknown_name",
            Code::Name => "lang::name",
            Code::Type => "lang::type",
            Code::ReadOnly => "lang::read_only",
            Code::Value => "lang::value",
            Code::Limit => "lang::limit",
            Code::Unreachable => "lang::unreachable",
            Code::NeverReports => "lang::never_reports",
            Code::Infinite => "lang::infinite",
            Code::RepeatedSample => "lang::repeated_sample",
            Code::Unit => "lang::unit",
            Code::NamedAsSignal => "lang::named_as_signal",
        }
    }
}

/// One thing wrong with a program.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    span: Span,
    message: String,
    label: String,
    help: Option<String>,
    also: Option<(Span, &'static str)>,
    line: usize,
    column: usize,
}

impl Problem {
    pub(crate) fn new(
        code: Code,
        span: Span,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> Problem {
        Problem {
            code,
            span,
            message: message.into(),
            label: label.into(),
            help: None,
            also: None,
            line: 0,
            column: 0,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn also(mut self, span: Span, label: &'static str) -> Problem {
        self.also = Some((span, label));
        self
    }

    /// What kind of problem it is.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What was expected at the place itself.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The likely fix.
    pub fn fix(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The same about another text, in which each place is where `to` says.
    pub(crate) fn moved(mut self, to: impl Fn(Span) -> Span) -> Problem {
        self.span = to(self.span);
        self.also = self.also.map(|(span, label)| (to(span), label));
        self
    }

    fn locate(&mut self, source: &str) {
        let before = &source[..(self.span.start as usize).min(source.len())];
        self.line = before.matches('\n').count() + 1;
        self.column = before
            .rsplit('\n')
            .next()
            .map_or(0, |line| line.chars().count())
            + 1;
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// Proof that a problem was noted: what gives up on a part of the program has to have one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted(());

/// Gathers problems while a program is compiled.
#[derive(Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    #[cold]
    pub fn push(&mut self, problem: Problem) -> Noted {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(problem);
        }
        Noted(())
    }

    /// Given when there is no use in looking for more.
    pub fn full(&self) -> Option<Noted> {
        (self.0.len() >= MAX_PROBLEMS).then_some(Noted(()))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cold]
    pub fn into_diagnostics(mut self, source: &str) -> Diagnostics {
        self.0.sort_by_key(|problem| problem.span.start);
        for problem in &mut self.0 {
            problem.locate(source);
        }
        Diagnostics {
            source: Arc::new(Source {
                name: "program".to_owned(),
                text: source.to_owned(),
            }),
            problems: self.0,
        }
    }
}

/// A text and its name.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
}

/// Everything that is wrong with a program, or all that it is to be warned of, in the order of its
/// text; at least one [`Problem`].
///
/// `Display` gives one line a problem, `name:line:column: what`, with `{:#}` also the likely fix.
/// With the feature `miette` it is a `miette::Diagnostic`, which shows the text itself.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    source: Arc<Source>,
    problems: Vec<Problem>,
}

impl Diagnostics {
    /// The problems, in the order of the text.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The text that they are in.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// The same, with the name of the program or its file in place of `program`.
    #[must_use]
    pub fn named(self, name: &str) -> Diagnostics {
        let source = Arc::new(Source {
            name: name.to_owned(),
            text: self.source.text.clone(),
        });
        Diagnostics { source, ..self }
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(
                f,
                "{separator}{}:{}:{}: {}",
                self.source.name, problem.line, problem.column, problem.message
            )?;
            if let (Some(fix), true) = (&problem.help, f.alternate()) {
                write!(f, "; {fix}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
