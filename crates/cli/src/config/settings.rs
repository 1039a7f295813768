//! Effective settings. The environment and the command line override the file, and the file
//! overrides the defaults.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::Range;

use ccplane_datapath::OperatorLimits;
use ccplane_lab::Contender;
use ccplane_link::remote_agent_timeout;
use ccplane_linux::select::Selection;
use ccplane_scenario::{Problem, toml_list, toml_string as text};
use ccplane_units::{Bytes, Duration, Prefix, PrefixError, Rate};
use toml::Spanned;

use super::check::AGENT_TIMEOUT_MIN;
use super::{AttachConfig, Rule};
use crate::attach::AttachArgs;
use crate::exit::{Failure, FailureKind};

/// Value with its source.
#[derive(Clone, Debug)]
pub struct Setting<T> {
    pub value: T,
    source: SettingSource,
}

/// Source of a setting.
#[derive(Clone, Debug)]
enum SettingSource {
    Default,
    /// A byte range of the file, and its line.
    File(Range<usize>, usize),
    /// Derived from the round trip to an agent on another host.
    Measured(Duration),
    /// The command line or the environment.
    CommandLine,
}

impl<T> Setting<T> {
    /// Returns the position in the file, for a value that is set there.
    pub fn position<'c>(
        &self,
        config: Option<&'c AttachConfig>,
    ) -> Option<(&'c AttachConfig, Range<usize>)> {
        match &self.source {
            SettingSource::File(span, _) => Some((config?, span.clone())),
            SettingSource::Default | SettingSource::Measured(_) | SettingSource::CommandLine => {
                None
            }
        }
    }
}

/// All settings of `attach` that a file can contain.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Algorithms to register; empty: all that the external agent offers.
    pub algorithms: Setting<Vec<Contender>>,
    /// Rules that map connections to algorithms, in order of precedence.
    pub rules: Vec<Setting<Rule>>,
    /// Lower limit of every window.
    pub min_cwnd: Setting<Bytes>,
    /// Upper limit of every window.
    pub max_cwnd: Setting<Bytes>,
    /// Upper limit of every pacing rate.
    pub max_rate: Setting<Rate>,
    /// Agent timeout, after which flows run on the datapath's own NewReno.
    pub fallback_after: Setting<Duration>,
    /// Capacity of each algorithm's flow table.
    pub max_flows: Setting<u32>,
    /// Address of the metrics endpoint.
    pub metrics: Setting<Option<SocketAddr>>,
    /// Set if the registration outlives the process.
    pub keep: Setting<bool>,
    /// Set if processes of every user may choose the algorithm.
    pub any_user: Setting<bool>,
}

impl Settings {
    /// Merges the command line and the file. Fails if they contradict each other.
    pub fn resolve(args: &AttachArgs, config: Option<&AttachConfig>) -> Result<Settings, Failure> {
        let default = OperatorLimits::default();
        let merge = Merge(config);
        // The file's rules refer to the file's algorithms, so `--alg` discards them.
        let alone = !args.alg.is_empty();
        let asked = selection(args)?;
        let rules = match (asked, config) {
            (Some(selection), _) => vec![Setting {
                value: Rule {
                    algorithm: None,
                    selection,
                },
                source: SettingSource::CommandLine,
            }],
            (None, Some(config)) if !alone => config
                .rules
                .iter()
                .map(|rule| merge.written(rule))
                .collect(),
            (None, _) => Vec::new(),
        };
        let settings = Settings {
            algorithms: merge.choose(
                alone.then(|| args.alg.clone()),
                |c| c.algorithms.as_ref(),
                Vec::new(),
            ),
            rules,
            min_cwnd: merge.choose(
                args.min_cwnd,
                |c| c.min_cwnd.as_ref(),
                Bytes::new(default.min_cwnd),
            ),
            max_cwnd: merge.choose(
                args.max_cwnd,
                |c| c.max_cwnd.as_ref(),
                Bytes::new(default.max_cwnd),
            ),
            max_rate: merge.choose(
                args.max_rate,
                |c| c.max_rate.as_ref(),
                Rate::from_bytes_per_sec(default.max_rate),
            ),
            fallback_after: merge.choose(
                args.fallback_after,
                |c| c.fallback_after.as_ref(),
                default.agent_timeout,
            ),
            max_flows: merge.choose(
                args.max_flows,
                |c| c.max_flows.as_ref(),
                ccplane_linux::flows_max(),
            ),
            metrics: match (args.metrics, config.and_then(|c| c.metrics.as_ref())) {
                (None, Some(file)) => {
                    let Setting {
                        value,
                        source: from,
                    } = merge.written(file);
                    Setting {
                        value: Some(value),
                        source: from,
                    }
                }
                (asked, _) => Setting {
                    value: asked,
                    source: if asked.is_some() {
                        SettingSource::CommandLine
                    } else {
                        SettingSource::Default
                    },
                },
            },
            keep: merge.choose(args.keep, |c| c.keep.as_ref(), false),
            any_user: merge.choose(args.any_user, |c| c.any_user.as_ref(), false),
        };
        settings.fit()?;
        Ok(settings)
    }

    /// Derives the agent timeout from the round trip to an agent on another host, unless it was set
    /// explicitly.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        if let SettingSource::Default | SettingSource::Measured(_) = self.fallback_after.source {
            self.fallback_after = Setting {
                value: remote_agent_timeout(round_trip),
                source: SettingSource::Measured(round_trip),
            };
        }
    }

    /// Returns the round trip from which the agent timeout was derived.
    pub fn round_trip(&self) -> Option<Duration> {
        match self.fallback_after.source {
            SettingSource::Measured(round_trip) => Some(round_trip),
            _ => None,
        }
    }

    /// Checks limits from different sources against each other.
    fn fit(&self) -> Result<(), Failure> {
        if self.min_cwnd.value > self.max_cwnd.value {
            let text = format!(
                "--min-cwnd is above --max-cwnd: {}{}, {}{}",
                self.min_cwnd.value,
                self.min_cwnd.source,
                self.max_cwnd.value,
                self.max_cwnd.source
            );
            return Err(Failure::text(FailureKind::Usage, text)
                .hint("lower --min-cwnd or raise --max-cwnd"));
        }
        if self.fallback_after.value < AGENT_TIMEOUT_MIN {
            let text = format!(
                "--fallback-after {} is too short",
                self.fallback_after.value
            );
            return Err(Failure::text(FailureKind::Usage, text).hint(
                "use 100ms or more (minimum 10ms): with less, a scheduling delay looks like a \
                 dead agent",
            ));
        }
        Ok(())
    }

    /// Returns the operator's limits.
    pub fn limits(&self) -> OperatorLimits {
        OperatorLimits {
            min_cwnd: self.min_cwnd.value.get(),
            max_cwnd: self.max_cwnd.value.get(),
            max_rate: self.max_rate.value.bytes_per_sec(),
            agent_timeout: self.fallback_after.value,
        }
    }

    /// Returns a problem, positioned in `config`, if `later` changes a setting that is fixed while
    /// `attach` runs.
    pub fn check_reload(&self, later: &Settings, config: &AttachConfig) -> Option<Problem> {
        let spans = [
            (
                "algorithms",
                self.algorithms.value != later.algorithms.value,
                config.algorithms.as_ref().map(Spanned::span),
            ),
            (
                "fallback_after",
                self.fallback_after.value != later.fallback_after.value,
                config.fallback_after.as_ref().map(Spanned::span),
            ),
            (
                "max_flows",
                self.max_flows.value != later.max_flows.value,
                config.max_flows.as_ref().map(Spanned::span),
            ),
            (
                "metrics",
                self.metrics.value != later.metrics.value,
                config.metrics.as_ref().map(Spanned::span),
            ),
            (
                "keep",
                self.keep.value != later.keep.value,
                config.keep.as_ref().map(Spanned::span),
            ),
            (
                "any_user",
                self.any_user.value != later.any_user.value,
                config.any_user.as_ref().map(Spanned::span),
            ),
        ];
        let (name, _, span) = spans.into_iter().find(|(_, differs, _)| *differs)?;
        let text = format!("`{name}` cannot change while `ccplane attach` is running");
        let fix = match span {
            Some(_) => {
                "restore it, or restart `attach`: with --keep, flows run on the fallback only \
                 briefly"
            }
            None => {
                "restore the old value, or restart `attach`: with --keep, flows run on the \
                 fallback only briefly"
            }
        };
        Some(config.problem(span.unwrap_or(0..0), text, fix))
    }
}

/// Merges options with the file: an option takes precedence.
struct Merge<'a>(Option<&'a AttachConfig>);

impl<'a> Merge<'a> {
    fn choose<T: Clone + 'a>(
        &self,
        asked: Option<T>,
        of: impl FnOnce(&'a AttachConfig) -> Option<&'a Spanned<T>>,
        default: T,
    ) -> Setting<T> {
        match (asked, self.0.and_then(of)) {
            (Some(value), _) => Setting {
                value,
                source: SettingSource::CommandLine,
            },
            (None, Some(file)) => self.written(file),
            (None, None) => Setting {
                value: default,
                source: SettingSource::Default,
            },
        }
    }

    fn written<T: Clone>(&self, at: &Spanned<T>) -> Setting<T> {
        let line = self
            .0
            .map_or(0, |config| config.source().line(at.span().start));
        Setting {
            value: at.get_ref().clone(),
            source: SettingSource::File(at.span(), line),
        }
    }
}

/// Returns the connections that the command line selects, which replace the file's rules.
fn selection(args: &AttachArgs) -> Result<Option<Selection>, Failure> {
    if args.cgroup.is_none() && args.to.is_none() && args.port.is_none() && !args.system {
        if args.percent < 100 {
            return Err(Failure::text(
                FailureKind::Usage,
                "--percent selects no connections by itself",
            )
            .hint("combine it with --cgroup, --to, --port or --system"));
        }
        return Ok(None);
    }
    let prefix = |text: &str| -> Result<Prefix, Failure> {
        let wrong = |why| Failure::text(FailureKind::Usage, format!("--to: `{text}`: {why}"));
        text.parse().map_err(|why: PrefixError| wrong(why))
    };
    let to = args.to.as_deref().map(prefix).transpose()?;
    Ok(Some(Selection {
        cgroup: args.cgroup.clone(),
        to,
        ports: args.port.as_ref().map(|ports| ports.0.clone()),
        system: args.system,
        percent: args.percent,
    }))
}

impl Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingSource::Default => f.write_str(" # default"),
            SettingSource::Measured(round_trip) => {
                write!(f, " # from the round-trip time to the agent, {round_trip}")
            }
            SettingSource::File(_, line) => write!(f, " # line {line}"),
            SettingSource::CommandLine => f.write_str(" # command line or environment"),
        }
    }
}

/// Writes an equivalent file, with every default and a comment on the source of each setting.
impl Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithms.value.as_slice() {
            [] => writeln!(f, "# algorithms: none")?,
            names => writeln!(
                f,
                "algorithms = {}{}",
                toml_list(names),
                self.algorithms.source
            )?,
        }
        match self.metrics.value {
            Some(address) => writeln!(f, "metrics = {}{}", text(address), self.metrics.source)?,
            None => writeln!(f, "# metrics: not served")?,
        }
        writeln!(f, "keep = {}{}", self.keep.value, self.keep.source)?;
        writeln!(
            f,
            "any_user = {}{}",
            self.any_user.value, self.any_user.source
        )?;
        writeln!(f, "\n[limits]")?;
        writeln!(
            f,
            "min_cwnd = {}{}",
            text(self.min_cwnd.value),
            self.min_cwnd.source
        )?;
        match self.max_cwnd.value.get() {
            u64::MAX => writeln!(f, "# max_cwnd: no limit")?,
            _ => writeln!(
                f,
                "max_cwnd = {}{}",
                text(self.max_cwnd.value),
                self.max_cwnd.source
            )?,
        }
        match self.max_rate.value.bytes_per_sec() {
            u64::MAX => writeln!(f, "# max_rate: no limit")?,
            _ => writeln!(
                f,
                "max_rate = {}{}",
                text(self.max_rate.value),
                self.max_rate.source
            )?,
        }
        writeln!(
            f,
            "fallback_after = {}{}",
            text(self.fallback_after.value),
            self.fallback_after.source
        )?;
        writeln!(
            f,
            "max_flows = {}{}",
            self.max_flows.value, self.max_flows.source
        )?;
        self.rules.iter().try_for_each(|rule| self.rule(f, rule))
    }
}

impl Settings {
    fn rule(
        &self,
        f: &mut fmt::Formatter<'_>,
        Setting {
            value: rule,
            source: from,
        }: &Setting<Rule>,
    ) -> fmt::Result {
        let first = || self.algorithms.value.first().map(Contender::algorithm);
        writeln!(f, "\n[[rule]]{from}")?;
        match rule.algorithm.as_deref().or_else(first) {
            Some(name) => writeln!(f, "algorithm = {}", text(name))?,
            None => writeln!(f, "# algorithm: the agent's first")?,
        }
        if let Some(path) = &rule.selection.cgroup {
            writeln!(f, "cgroup = {}", text(path.display()))?;
        }
        if let Some(to) = &rule.selection.to {
            writeln!(f, "to = {}", text(to))?;
        }
        if let Some(ports) = &rule.selection.ports {
            let ports = ccplane_gateway::config::Ports(ports.clone());
            writeln!(f, "port = {}", text(ports))?;
        }
        if rule.selection.system {
            writeln!(f, "system = true")?;
        }
        writeln!(f, "percent = {}", rule.selection.percent)
    }
}

#[cfg(test)]
mod tests;
