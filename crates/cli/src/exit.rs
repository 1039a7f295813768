//! How the command ends: one message with its cause and the likely fix, and an exit code that means
//! something.

use std::fmt;

use miette::Diagnostic;

/// What went wrong, as the exit code tells it: 0 is success, 2 (usage) is clap's own as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The run failed: exit code 1.
    Failed = 1,
    /// The request makes no sense: exit code 2.
    Usage = 2,
    /// This host cannot do it (kernel, capability, device): exit code 3.
    Unsupported = 3,
    /// Ctrl-C or another signal ended it: exit code 130, as shells have it for SIGINT.
    Interrupted = 130,
}

/// An error for a person: what failed, why, and what to do about it.
#[derive(Debug)]
pub struct Failure {
    /// Decides the exit code.
    pub kind: FailureKind,
    what: String,
    hint: Option<String>,
    /// Name of the reason for machines, where the error has several.
    reason: Option<&'static str>,
    cause: Option<Box<dyn Diagnostic + Send + Sync>>,
}

impl Failure {
    /// `what` failed, with the causes of `error` behind it.
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
            what,
            hint: None,
            reason: None,
            cause: None,
        }
    }

    /// `what` failed.
    pub fn text(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure {
            kind,
            what: what.into(),
            hint: None,
            reason: None,
            cause: None,
        }
    }

    /// A failure that draws its own source excerpts.
    pub fn diagnostic(
        kind: FailureKind,
        error: impl Diagnostic + Send + Sync + 'static,
    ) -> Failure {
        Failure {
            kind,
            what: error.to_string(),
            hint: None,
            reason: None,
            cause: Some(Box::new(error)),
        }
    }

    /// Adds what the reader can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the name of the reason for machines.
    #[must_use]
    pub fn reason(mut self, name: &'static str) -> Failure {
        self.reason = Some(name);
        self
    }

    /// Adds a sentence to what the reader can do.
    #[must_use]
    pub fn also(self, hint: impl Into<String>) -> Failure {
        let hint = match &self.hint {
            Some(first) => format!("{first}; {}", hint.into()),
            None => hint.into(),
        };
        self.hint(hint)
    }

    /// Returns the message with what the reader can do.
    pub fn sentence(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.what),
            None => self.what.clone(),
        }
    }

    /// Prints the message to stderr (as JSON to stdout where `json`) and gives the exit code.
    pub fn report(self, json: bool) -> u8 {
        if json {
            let mut object = serde_json::json!({
                "error": self.what, "hint": self.hint, "kind": format!("{:?}", self.kind).to_lowercase(),
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
        f.write_str(&self.what)
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
