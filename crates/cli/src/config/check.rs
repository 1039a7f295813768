//! Checks a configuration: every setting on its own, then settings against each other.

use std::ops::{Range, RangeInclusive};

use ccplane_lab::Contender;
use ccplane_linux::select::Selection;
use ccplane_scenario::{Problem, SourceText, SpannedValue};
use ccplane_units::{Bytes, Duration};
use toml::Spanned;

use super::file::{self, ConfigFile};
use super::{AttachConfig, Knows, Rule};

/// Shortest agent timeout: a scheduling delay must not look like a dead agent.
pub const AGENT_TIMEOUT_MIN: Duration = Duration::from_millis(10);
/// Capacity of a flow table: slots are numbered in 24 bits.
pub const FLOW_TABLE_BOUNDS: RangeInclusive<u32> = 1..=1 << 24;
/// Rules are evaluated in sequence when a connection is opened. The kernel accepts 64 programs per
/// cgroup.
const RULES_MAX: usize = 32;

/// Checks a whole file.
pub(super) fn config(
    source: SourceText<'_>,
    file: &ConfigFile,
    knows: Knows<'_>,
) -> Result<AttachConfig, Problem> {
    let context = ConfigContext { source, knows };
    let algorithms = context.algorithms(file.algorithms.as_ref())?;
    let limits = &file.limits;
    context.limits(limits)?;
    let flows = limits.max_flows.as_ref().map(|at| {
        let flows = source.number("the number of flows", at, FLOW_TABLE_BOUNDS, "")?;
        Ok(Spanned::new(at.span(), flows))
    });
    Ok(AttachConfig {
        file: source.file.to_owned(),
        text: source.text.to_owned(),
        rules: context.rules(&file.rule, algorithms.as_ref())?,
        algorithms,
        metrics: file
            .metrics
            .as_ref()
            .map(|at| Spanned::new(at.span(), at.get_ref().0.0)),
        keep: file.keep.clone(),
        any_user: file.any_user.clone(),
        min_cwnd: limits.min_cwnd.as_ref().map(plain),
        max_cwnd: limits.max_cwnd.as_ref().map(plain),
        max_rate: limits.max_rate.as_ref().map(plain),
        fallback_after: limits.fallback_after.as_ref().map(plain),
        max_flows: flows.transpose()?,
    })
}

/// Strips the parser's wrapper from a quantity.
fn plain<T: Copy>(written: &SpannedValue<T>) -> Spanned<T> {
    Spanned::new(written.span(), written.get_ref().0)
}

struct ConfigContext<'a> {
    source: SourceText<'a>,
    knows: Knows<'a>,
}

impl ConfigContext<'_> {
    fn algorithms(
        &self,
        written: Option<&Spanned<Vec<SpannedValue<Contender>>>>,
    ) -> Result<Option<Spanned<Vec<Contender>>>, Problem> {
        let Some(written) = written else {
            return Ok(None);
        };
        let mut all: Vec<Contender> = Vec::new();
        for one in written.get_ref() {
            let contender = &one.get_ref().0;
            (self.knows)(contender)
                .map_err(|why| self.source.problem_from_error(one, "here", &why))?;
            all.push(contender.clone());
        }
        let spans = written.get_ref().iter().map(Spanned::span);
        self.source.check_distinct(
            "algorithm",
            all.iter().map(Contender::algorithm).zip(spans),
            "remove one of them: each algorithm has a single set of parameters",
        )?;
        if all.is_empty() {
            let fix = "add one, such as algorithms = [\"cubic\"]; see `ccplane algorithms`";
            return Err(self
                .source
                .problem(written.span(), "no algorithm", "empty", fix));
        }
        Ok(Some(Spanned::new(written.span(), all)))
    }

    fn limits(&self, limits: &file::LimitsTable) -> Result<(), Problem> {
        let default = ccplane_datapath::OperatorLimits::default();
        let least = limits
            .min_cwnd
            .as_ref()
            .map_or(default.min_cwnd, |q| q.get_ref().0.get());
        let most = limits
            .max_cwnd
            .as_ref()
            .map_or(default.max_cwnd, |q| q.get_ref().0.get());
        if least > most {
            let at = limits.min_cwnd.as_ref().or(limits.max_cwnd.as_ref());
            let text = format!(
                "min_cwnd, {}, is above max_cwnd, {}",
                Bytes::new(least),
                Bytes::new(most)
            );
            let fix = "lower min_cwnd or raise max_cwnd";
            return Err(self
                .source
                .problem(at.map_or(0..0, Spanned::span), text, "here", fix));
        }
        match &limits.fallback_after {
            Some(time) if time.get_ref().0 < AGENT_TIMEOUT_MIN => {
                let text = format!("fallback_after, {}, is too short", time.get_ref().0);
                let fix = "use 100ms or more (minimum 10ms): with less, a scheduling delay looks \
                    like a dead agent";
                Err(self.source.problem(time.span(), text, "here", fix))
            }
            _ => Ok(()),
        }
    }

    fn rules(
        &self,
        written: &[Spanned<file::Rule>],
        algorithms: Option<&Spanned<Vec<Contender>>>,
    ) -> Result<Vec<Spanned<Rule>>, Problem> {
        let known: Vec<&str> = algorithms
            .iter()
            .flat_map(|all| all.get_ref())
            .map(Contender::algorithm)
            .collect();
        let mut all: Vec<Spanned<Rule>> = Vec::new();
        for at in written {
            let line = self.source.first_line(at);
            let rule = self.rule(at.get_ref(), line.clone(), &known)?;
            if let Some(before) = all.iter().find(|before| covers(before.get_ref(), &rule)) {
                let text = format!(
                    "no connection reaches this rule: an earlier rule, {}, matches all of its \
                     connections",
                    before.get_ref()
                );
                let fix =
                    "put the narrower rule first, or give the earlier one a `percent` below 100";
                return Err(self.source.problem(line, text, "never reached", fix));
            }
            if all.len() == RULES_MAX {
                let text = format!("more than {RULES_MAX} rules");
                let fix = "merge some: use port ranges or shorter prefixes";
                return Err(self.source.problem(line, text, "one too many", fix));
            }
            all.push(Spanned::new(line, rule));
        }
        Ok(all)
    }

    fn rule(&self, rule: &file::Rule, line: Range<usize>, known: &[&str]) -> Result<Rule, Problem> {
        let name = &rule.algorithm;
        if !known.contains(&name.get_ref().as_str()) {
            let text = format!(
                "`{}` is not an algorithm of this file",
                name.get_ref().escape_debug()
            );
            let near = ccplane_scenario::suggestions(name.get_ref(), known.iter().copied());
            let fix = match (near.first(), name.get_ref().split_once(':')) {
                (_, Some((alone, _))) => {
                    format!("write `{alone}` here, and set its parameters under `algorithms`")
                }
                (Some(near), None) => format!("did you mean `{near}`?"),
                (None, None) => "add it to `algorithms`".to_owned(),
            };
            return Err(self.source.problem(name.span(), text, "not listed", fix));
        }
        let narrowed = rule.cgroup.is_some() || rule.to.is_some() || rule.port.is_some();
        if narrowed && rule.system {
            let fix = "remove `system` or the other conditions";
            return Err(self.source.problem(
                line,
                "`system` cannot be combined with other conditions",
                "here",
                fix,
            ));
        }
        if !narrowed && !rule.system {
            let fix =
                "add `cgroup`, `to` or `port`, or `system = true` for all connections of this host";
            return Err(self
                .source
                .problem(line, "the rule selects no connections", "here", fix));
        }
        let percent = rule.percent.as_ref().map_or(Ok(100), |percent| {
            self.source.number("the percentage", percent, 1u8..=100, "")
        })?;
        Ok(Rule {
            algorithm: Some(name.get_ref().clone()),
            selection: Selection {
                cgroup: rule.cgroup.as_ref().map(|path| path.get_ref().clone()),
                to: rule.to.as_ref().map(|to| to.get_ref().0),
                ports: rule.port.as_ref().map(|ports| ports.get_ref().0.0.clone()),
                system: rule.system,
                percent,
            },
        })
    }
}

/// Returns true if `earlier` matches every connection that `later` selects. Overlapping prefixes
/// and ports are not compared.
fn covers(earlier: &Rule, later: &Rule) -> bool {
    let (a, b) = (&earlier.selection, &later.selection);
    a.percent == 100
        && a.cgroup == b.cgroup
        && (a.to.is_none() || a.to == b.to)
        && (a.ports.is_none() || a.ports == b.ports)
}
