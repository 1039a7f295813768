//! Failures of a command: one message with its cause and a likely fix, and a meaningful exit code.

use std::fmt;

use miette::Diagnostic;

/// Kind of a failure, as reported by the exit code. 0 is success; clap also uses 2 (usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The run failed: exit code 1.
    Failed = 1,
    /// The request is invalid: exit code 2.
    Usage = 2,
    /// This host cannot do it (kernel, capability, device): exit code 3.
    Unsupported = 3,
    /// Ctrl-C or another signal ended it: exit code 130, the shells' code for SIGINT.
    Interrupted = 130,
}

/// Error message for a person: the failure, its cause, and a fix.
#[derive(Debug)]
pub struct Failure {
    /// Kind, which is the exit code.
    pub kind: FailureKind,
    message: String,
    hint: Option<String>,
    /// Machine-readable reason, for errors that have several.
    reason: Option<&'static str>,
    cause: Option<Box<dyn Diagnostic + Send + Sync>>,
}

impl Failure {
    /// Creates a failure from `error` and its chain of sources.
    pub fn new(kind: FailureKind, error: impl std::error::Error) -> Failure {
        let mut what = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !what.contains(&cause_text) {
                what = format!("{what}: {cause_text}");
            }
            source = cause.source();
        }
        Failure {
            kind,
            message: what,
            hint: None,
            reason: None,
            cause: None,
        }
    }

    /// Creates a failure from a message.
    pub fn text(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: what.into(),
            hint: None,
            reason: None,
            cause: None,
        }
    }

    /// Creates a failure that renders its own source excerpts.
    pub fn diagnostic(
        kind: FailureKind,
        error: impl Diagnostic + Send + Sync + 'static,
    ) -> Failure {
        Failure {
            kind,
            message: error.to_string(),
            hint: None,
            reason: None,
            cause: Some(Box::new(error)),
        }
    }

    /// Sets the hint: the fix to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the machine-readable reason.
    #[must_use]
    pub fn reason(mut self, name: &'static str) -> Failure {
        self.reason = Some(name);
        self
    }

    /// Appends a sentence to the hint.
    #[must_use]
    pub fn add_hint(self, hint: impl Into<String>) -> Failure {
        let hint = match &self.hint {
            Some(first) => format!("{first}; {}", hint.into()),
            None => hint.into(),
        };
        self.hint(hint)
    }

    /// Returns the message and the hint as one sentence.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// Prints the message to standard error (with `json`, also an object to standard output) and
    /// returns the exit code.
    pub fn report(self, json: bool) -> u8 {
        if json {
            let mut object = serde_json::json!({
                "error": self.message, "hint": self.hint,
                "kind": format!("{:?}", self.kind).to_lowercase(),
            });
            if let Some(reason) = self.reason {
                object["reason"] = reason.into();
            }
            println!("{object}");
        }
        let code = self.kind as u8;
        crate::output::draw(self);
        code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl Diagnostic for Failure {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        match (&self.hint, &self.cause) {
            (Some(hint), _) => Some(Box::new(hint)),
            (None, Some(cause)) => cause.help(),
            (None, None) => None,
        }
    }
    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.cause.as_ref()?.source_code()
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = miette::LabeledSpan> + '_>> {
        self.cause.as_ref()?.labels()
    }
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        self.cause.as_ref()?.related()
    }
}
