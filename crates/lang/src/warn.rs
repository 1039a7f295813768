//! Warnings about a program that compiles but probably does not do what was intended.
//!
//! They cost nothing at compile time: they are computed on request, from the forms, as the tree has
//! no positions.

mod infer_units;
mod infinite_averages;
mod reachability;
mod repeated_samples;
mod unit;

use ccplane_datapath::reg;

use crate::definitions;
use crate::diagnostics::{DiagnosticCode, Diagnostics, Problem, Problems, Span};
use crate::program::Program;
use crate::reader::Forms;
use crate::scope::{Scope, nearest};
use crate::tree::{BUILTINS, builtin};
use crate::{ProgramLimits, tree::Tree};

/// Returns all warnings, in source order.
pub(crate) fn warnings(program: &Program) -> Option<Diagnostics> {
    let source = program.source();
    let mut none = Problems::default();
    let forms = Forms::read(source, &mut none);
    let limits = ProgramLimits {
        max_vars: usize::from(u8::MAX - reg::VARS),
        ..ProgramLimits::default()
    };
    let def = forms.top_level().next()?;
    let (mut scope, sticky) = definitions::read(&forms, def, &limits, &mut none);
    scope.find_locals(&forms);
    let mut problems = Problems::default();
    let text = CompiledSource {
        forms: &forms,
        scope: &scope,
        tree: &program.tree,
        sticky,
    };
    named_as_signals(&text, def, &mut problems);
    reachability::check_reachability(&text, &mut problems);
    infer_units::check_units(&text, def, &mut problems);
    infinite_averages::check_infinite_averages(&text, &mut problems);
    repeated_samples::check_repeated_samples(&text, &mut problems);
    (!problems.is_empty()).then(|| problems.into_diagnostics(source))
}

/// Compiled program in the representations that the passes use.
struct CompiledSource<'t, 's> {
    forms: &'t Forms<'s>,
    scope: &'t Scope<'s>,
    tree: &'t Tree,
    /// True for `(compat libccp)`.
    sticky: bool,
}

impl<'s> CompiledSource<'_, 's> {
    fn text(&self, index: u32) -> &'s str {
        self.forms.text(self.forms.get(index))
    }

    fn span(&self, index: u32) -> Span {
        self.forms.get(index).span
    }

    /// Returns the head of a list and the forms after it; `None` for an atom.
    fn list(&self, index: u32) -> Option<(&'s str, Vec<u32>)> {
        let mut parts = self.forms.children(index);
        let head = self.text(parts.next()?);
        Some((head, parts.collect()))
    }
}

/// Warns about a variable that looks like a signal, as in `(def (Flow.srtt 0))`.
fn named_as_signals(text: &CompiledSource<'_, '_>, def: u32, problems: &mut Problems) {
    for declaration in text.forms.children(def).skip(1) {
        let name = text
            .forms
            .children(declaration)
            .find(|&part| text.text(part) != "volatile");
        let Some(name) = name.filter(|&name| {
            ["Flow.", "Ack."]
                .iter()
                .any(|of| text.text(name).starts_with(of))
        }) else {
            continue;
        };
        let what = format!(
            "`{}` is a variable of this program, not a signal",
            text.text(name)
        );
        let help = match builtin(text.text(name)) {
            Some(_) => "remove it from (def …) to read the signal".to_owned(),
            None => match nearest(text.text(name), BUILTINS.iter().map(|builtin| builtin.name)) {
                Some(near) => format!(
                    "remove it and read `{near}` if you mean the signal; otherwise rename it"
                ),
                None => "rename it".to_owned(),
            },
        };
        problems.push(
            Problem::new(
                DiagnosticCode::NamedAsSignal,
                text.span(name),
                what,
                "declared here",
            )
            .with_help(help),
        );
    }
}
