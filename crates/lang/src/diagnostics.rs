//! Diagnostics: errors and warnings of a program, with locations and fixes.

#[cfg(feature = "miette")]
mod render;

use std::fmt;
use std::sync::Arc;

/// Maximum problems reported for one text; more would only bury the first.
const PROBLEMS_MAX: usize = 16;

/// Byte range `start..end` of the source.
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

/// Kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiagnosticCode {
    /// The text is not a program.
    Syntax,
    /// A name is not declared.
    UnknownName,
    /// A name may not be declared, or is declared twice.
    Name,
    /// A boolean is used as a number, or vice versa.
    Type,
    /// An assignment to a name that cannot be written.
    ReadOnly,
    /// A number, unit or constant expression has no value.
    Value,
    /// The program exceeds a limit of the datapath.
    Limit,
    /// Warning: a clause is unreachable.
    Unreachable,
    /// Warning: no statement reports.
    NeverReports,
    /// Warning: an unguarded average of a time that may be `+infinity`.
    Infinite,
    /// Warning: a sample that a run by timer counts again.
    RepeatedSample,
    /// Warning: values of different units in one operation.
    Unit,
    /// Warning: a variable is named like a signal.
    NamedAsSignal,
}

impl DiagnosticCode {
    /// Returns true for warnings, with which a program still compiles.
    pub fn is_warning(self) -> bool {
        match self {
            DiagnosticCode::Syntax
            | DiagnosticCode::UnknownName
            | DiagnosticCode::Name
            | DiagnosticCode::Type
            | DiagnosticCode::ReadOnly
            | DiagnosticCode::Value
            | DiagnosticCode::Limit => false,
            DiagnosticCode::Unreachable
            | DiagnosticCode::NeverReports
            | DiagnosticCode::Infinite
            | DiagnosticCode::RepeatedSample
            | DiagnosticCode::Unit
            | DiagnosticCode::NamedAsSignal => true,
        }
    }

    /// Name in JSON and after the message: `lang::unit`.
    pub fn as_str(self) -> &'static str {
        match self {
            DiagnosticCode::Syntax => "lang::syntax",
            DiagnosticCode::UnknownName => "lang::unknown_name",
            DiagnosticCode::Name => "lang::name",
            DiagnosticCode::Type => "lang::type",
            DiagnosticCode::ReadOnly => "lang::read_only",
            DiagnosticCode::Value => "lang::value",
            DiagnosticCode::Limit => "lang::limit",
            DiagnosticCode::Unreachable => "lang::unreachable",
            DiagnosticCode::NeverReports => "lang::never_reports",
            DiagnosticCode::Infinite => "lang::infinite",
            DiagnosticCode::RepeatedSample => "lang::repeated_sample",
            DiagnosticCode::Unit => "lang::unit",
            DiagnosticCode::NamedAsSignal => "lang::named_as_signal",
        }
    }
}

/// Error or warning about a program.
#[derive(Clone, Debug)]
pub struct Problem {
    code: DiagnosticCode,
    span: Span,
    message: String,
    label: String,
    help: Option<String>,
    secondary_label: Option<(Span, &'static str)>,
    line: usize,
    column: usize,
}

impl Problem {
    pub(crate) fn new(
        code: DiagnosticCode,
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
            secondary_label: None,
            line: 0,
            column: 0,
        }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn with_secondary_label(mut self, span: Span, label: &'static str) -> Problem {
        self.secondary_label = Some((span, label));
        self
    }

    /// Kind of the problem.
    pub fn code(&self) -> DiagnosticCode {
        self.code
    }

    /// Location in the source.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Description in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Expectation at the location.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Likely fix.
    pub fn fix(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Moves the problem to another text, with locations mapped by `to`.
    pub(crate) fn map_span(mut self, to: impl Fn(Span) -> Span) -> Problem {
        self.span = to(self.span);
        self.secondary_label = self.secondary_label.map(|(span, label)| (to(span), label));
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

/// Proof that a problem was reported, required to abandon a part of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedError(());

/// Collects problems during compilation.
#[derive(Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    #[cold]
    pub fn push(&mut self, problem: Problem) -> ReportedError {
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(problem);
        }
        ReportedError(())
    }

    /// Returns the proof if the maximum is reached and checking further is pointless.
    pub fn limit_reached(&self) -> Option<ReportedError> {
        (self.0.len() >= PROBLEMS_MAX).then_some(ReportedError(()))
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

/// Source text and its name.
#[derive(Debug)]
struct Source {
    name: String,
    text: String,
}

/// All errors, or all warnings, of a program in source order; at least one [`Problem`].
///
/// `Display` prints one line per problem, `name:line:column: what`, and with `{:#}` also the likely
/// fix. With the feature `miette` it is a `miette::Diagnostic`, which shows the source itself.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    source: Arc<Source>,
    problems: Vec<Problem>,
}

impl Diagnostics {
    /// Problems, in source order.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Sets the name of the program or its file, in place of `program`.
    #[must_use]
    pub fn with_name(self, name: &str) -> Diagnostics {
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
