//! Converts the rules of a configuration to choices of the kernel.

use ccplane_linux::AlgorithmSpec;
use ccplane_linux::select::{self, Choice};

use crate::config::{AttachConfig, Settings};
use crate::exit::{Failure, FailureKind};

/// Returns the choices to install while `known` are attached. Fails if this host cannot implement a
/// rule or if its algorithm is not attached.
pub(super) fn choices(
    settings: &Settings,
    config: Option<&AttachConfig>,
    known: &[AlgorithmSpec],
) -> Result<Vec<Choice>, Failure> {
    let choice = |rule: &crate::config::Setting<crate::config::Rule>| {
        let refuse = |why: String, fix: String| match rule.position(config) {
            Some((config, span)) => {
                Failure::diagnostic(FailureKind::Usage, config.problem(span, why, fix))
            }
            None if fix.is_empty() => Failure::text(FailureKind::Usage, why),
            None => Failure::text(FailureKind::Usage, why).hint(fix),
        };
        let spec = match &rule.value.algorithm {
            None => known.first(),
            Some(name) => known.iter().find(|spec| *spec.name == **name),
        };
        let spec = spec.ok_or_else(|| {
            let name = rule.value.algorithm.as_deref().unwrap_or("an algorithm");
            refuse(
                format!("{name} is not attached"),
                "use an algorithm that the agent runs".to_owned(),
            )
        })?;
        select::validate(&rule.value.selection).map_err(|why| {
            let text = why.to_string();
            let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
            refuse(what.to_owned(), fix.to_owned())
        })?;
        Ok(Choice {
            kernel_name: spec.kernel_name.clone(),
            selection: rule.value.selection.clone(),
        })
    };
    settings.rules.iter().map(choice).collect()
}
