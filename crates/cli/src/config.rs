//! Configuration of `attach`: a TOML file, read and checked as a whole. docs/attach.md is the
//! reference.
//!
//! [`AttachConfig::parse`] returns a consistent configuration, or the first [`Problem`] with file,
//! line, reason and fix. [`Settings`] are the effective values: the command line overrides the
//! environment, which overrides the file.

mod check;
mod command;
mod file;
mod settings;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use ccplane_algorithms::GATEWAY_ALGORITHMS;
use ccplane_lab::Contender;
use ccplane_linux::select::Selection;
use ccplane_scenario::{FileError, Problem, SourceText};
use ccplane_units::{Bytes, Duration, Rate};
use toml::Spanned;

use crate::exit::{Failure, FailureKind};
use crate::{Parameters, Registry};

pub use check::FLOW_TABLE_BOUNDS;
pub use command::{ConfigCommand, path, read, require_algorithms, run};
pub use settings::{Setting, Settings};

/// Default path of the configuration.
pub const CONFIG_PATH_DEFAULT: &str = "/etc/ccplane/ccplane.toml";
const REFERENCE_PAGE: &str = "docs/attach.md";

/// Configuration as written in the file. `None`: not set there.
#[derive(Debug)]
pub struct AttachConfig {
    file: String,
    text: String,
    algorithms: Option<Spanned<Vec<Contender>>>,
    metrics: Option<Spanned<SocketAddr>>,
    keep: Option<Spanned<bool>>,
    any_user: Option<Spanned<bool>>,
    min_cwnd: Option<Spanned<Bytes>>,
    max_cwnd: Option<Spanned<Bytes>>,
    max_rate: Option<Spanned<Rate>>,
    fallback_after: Option<Spanned<Duration>>,
    max_flows: Option<Spanned<u32>>,
    rules: Vec<Spanned<Rule>>,
}

/// Selection of connections, and their algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name of the algorithm; `None` is the first one attached.
    pub algorithm: Option<String>,
    pub selection: Selection,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithm = self.algorithm.as_deref().unwrap_or("the first algorithm");
        write!(f, "{algorithm} for {}", self.selection)
    }
}

/// Checks that an algorithm exists; the error has the form `reason; fix`.
type Knows<'a> = &'a dyn Fn(&Contender) -> Result<(), String>;

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        match error {
            FileError::Problem(problem) => Failure::diagnostic(FailureKind::Usage, problem),
            FileError::Read { .. } => {
                Failure::new(FailureKind::Usage, error).hint("check the path and its permissions")
            }
        }
    }
}

impl AttachConfig {
    /// Parses a text. `file` is its name in problems.
    fn parse(file: &str, text: &str, knows: Knows<'_>) -> Result<AttachConfig, Problem> {
        let source = SourceText { file, text };
        check::config(source, &source.parse(REFERENCE_PAGE)?, knows)
    }

    /// Reads a file.
    fn read(path: &Path, knows: Knows<'_>) -> Result<AttachConfig, FileError> {
        let text = std::fs::read_to_string(path).map_err(|why| FileError::Read {
            path: path.to_owned(),
            why,
        })?;
        Ok(AttachConfig::parse(
            &path.display().to_string(),
            &text,
            knows,
        )?)
    }

    /// Returns a problem located in this file.
    pub fn problem(
        &self,
        span: std::ops::Range<usize>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        self.source().problem(span, message, "here", fix)
    }

    fn source(&self) -> SourceText<'_> {
        SourceText {
            file: &self.file,
            text: &self.text,
        }
    }
}

/// Checks that this program has the algorithm.
fn known(contender: &Contender, registry: &Registry) -> Result<(), String> {
    if crate::contender::is_python(contender) {
        return Err(format!(
            "`{contender}` is a Python file, which a configuration cannot contain; attach it with \
             `--alg`, which runs it as user nobody"
        ));
    }
    if let Some(agent) = contender.agent() {
        return Err(format!(
            "`{contender}` runs in another process; write `{}`, and give `--agent {agent}` to \
             `attach`",
            contender.agent_name()
        ));
    }
    let Contender::Ccplane { name, parameters } = contender else {
        return Err(format!(
            "`{contender}` is a kernel algorithm; use one of ccplane's, such as cubic (see \
             `ccplane algorithms`)"
        ));
    };
    let parameters = parameters
        .iter()
        .fold(Parameters::new(), |p, (k, v)| p.with(k, v));
    let made = registry
        .by_name(name, &parameters)
        .map(drop)
        .map_err(|why| why.to_string());
    made.and_then(|()| suits_host_tcp(contender))
}

/// Refuses algorithms for gateways: they control a bundle of connections, not a single one.
pub fn suits_host_tcp(contender: &Contender) -> Result<(), String> {
    match contender {
        Contender::Ccplane { name, .. } if GATEWAY_ALGORITHMS.contains(&name.as_str()) => {
            Err(format!(
                "`{name}` controls the traffic between gateways, not single TCP connections; \
                 {GATEWAY_HINT}"
            ))
        }
        _ => Ok(()),
    }
}

/// Hint that names the command for gateway algorithms.
const GATEWAY_HINT: &str = "use it in a site file of `ccplane gateway run` (docs/gateway.md), or \
    attach cubic, bbr3 or copa";
