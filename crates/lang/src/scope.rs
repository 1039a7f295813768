//! Names of a program: variables, constants, and built-in names.

use ccplane_datapath::{Var, VarKind, reg};

use crate::diagnostics::{DiagnosticCode, Problem, Span};
use crate::literal::{self, Literal};
use crate::reader::{Forms, TokenKind};
use crate::tree::{BUILTINS, Symbol, Type, builtin};

#[derive(Clone, Copy)]
pub(crate) enum Binding {
    /// Register; `writable` unless it is a signal.
    Reg {
        reg: u8,
        ty: Type,
        writable: bool,
    },
    Const(Literal),
}

pub(crate) struct Scope<'s> {
    source: &'s str,
    max_vars: usize,
    /// Variables by name; the n-th is described by the n-th of `vars`.
    pub symbols: Vec<Symbol>,
    pub vars: Vec<Var>,
    consts: Vec<(Span, Literal)>,
}

impl<'s> Scope<'s> {
    /// Creates the scope of the declared variables. Report variables come first, regardless of
    /// source order.
    pub fn new(
        source: &'s str,
        max_vars: usize,
        declared: &[(Symbol, Var)],
        consts: Vec<(Span, Literal)>,
    ) -> Scope<'s> {
        let (mut symbols, mut vars) = (
            Vec::with_capacity(declared.len() + 4),
            Vec::with_capacity(declared.len() + 4),
        );
        for kind in [VarKind::Report, VarKind::Control] {
            for &(symbol, var) in declared
                .iter()
                .filter(|(_, var)| var.kind == kind)
                .take(max_vars)
            {
                let reg = reg::VARS + vars.len() as u8;
                symbols.push(Symbol { reg, ..symbol });
                vars.push(var);
            }
        }
        Scope {
            source,
            max_vars,
            symbols,
            vars,
            consts,
        }
    }

    fn text(&self, span: Span) -> &'s str {
        &self.source[span.start as usize..span.end as usize]
    }

    /// Name of a variable; without `Report.` for a report variable.
    pub fn name(&self, symbol: &Symbol) -> &'s str {
        self.text(symbol.name)
    }

    pub fn resolve(&self, name: &str) -> Option<Binding> {
        let (report, bare) = match name.strip_prefix("Report.") {
            Some(bare) => (true, bare),
            None => (false, name),
        };
        for symbol in &self.symbols {
            if symbol.report == report && self.name(symbol) == bare {
                return Some(Binding::Reg {
                    reg: symbol.reg,
                    ty: symbol.ty,
                    writable: true,
                });
            }
        }
        if let Some((_, value)) = self
            .consts
            .iter()
            .find(|(span, _)| self.text(*span) == name)
        {
            return Some(Binding::Const(*value));
        }
        builtin(name).map(|found| Binding::Reg {
            reg: found.reg,
            ty: found.ty,
            writable: found.is_writable(),
        })
    }

    /// Creates a local variable for every unknown name that is assigned, in source order. This is
    /// done before anything is checked: a local keeps its value between calls, so it may be read
    /// above the line that sets it.
    pub fn find_locals(&mut self, forms: &Forms<'s>) {
        let mut opened = false;
        for (head, form) in forms.iter() {
            let binds = opened && matches!(forms.text(form), ":=" | "bind");
            opened = form.kind == TokenKind::List;
            let Some(target) = forms
                .at(head + 1)
                .filter(|target| binds && target.kind == TokenKind::Word)
            else {
                continue;
            };
            let name = forms.text(target);
            let reserved = name.starts_with("__") || name.starts_with("Report.");
            if reserved || literal::parse(name).is_some() || self.resolve(name).is_some() {
                continue;
            }
            if self.vars.len() >= self.max_vars {
                return;
            }
            let reg = reg::VARS + self.vars.len() as u8;
            self.symbols.push(Symbol {
                name: target.span,
                report: false,
                ty: Type::Num,
                type_unknown: true,
                reg,
            });
            self.vars.push(Var {
                kind: VarKind::Local,
                volatile: false,
                init: 0,
            });
        }
    }

    /// Error for a local variable beyond the limit.
    pub fn too_many_vars(&self, name: Span) -> Problem {
        let what = format!(
            "more than {} variables, the datapath's limit",
            self.max_vars
        );
        Problem::new(DiagnosticCode::Limit, name, what, "exceeds the limit")
            .with_help("locals count too; reuse a name whose old value is no longer needed")
    }

    /// Gives a local the type of the first value that is assigned to it; returns false if the type
    /// was already set.
    pub fn settle(&mut self, reg: u8, ty: Type) -> bool {
        let symbol = self
            .symbols
            .iter_mut()
            .find(|symbol| symbol.reg == reg && symbol.type_unknown);
        symbol
            .map(|symbol| (symbol.ty, symbol.type_unknown) = (ty, false))
            .is_some()
    }

    /// Returns the writable name that is closest to this one.
    pub fn nearest_writable(&self, name: &str) -> Option<String> {
        let declared = self
            .symbols
            .iter()
            .zip(&self.vars)
            .filter(|(_, var)| var.kind != VarKind::Local);
        let declared = declared.map(|(symbol, _)| self.full_name(symbol));
        let builtins = BUILTINS
            .iter()
            .filter(|builtin| builtin.is_writable())
            .map(|builtin| builtin.name.to_owned());
        let known: Vec<String> = declared.chain(builtins).collect();
        nearest(name, known.iter().map(String::as_str)).map(str::to_owned)
    }

    fn full_name(&self, symbol: &Symbol) -> String {
        let prefix = if symbol.report { "Report." } else { "" };
        format!("{prefix}{}", self.name(symbol))
    }

    /// Returns the known name that `wrong` was probably meant to be.
    pub fn nearest(&self, wrong: &str) -> Option<String> {
        let own = self.symbols.iter().map(|symbol| self.full_name(symbol));
        let consts = self
            .consts
            .iter()
            .map(|(span, _)| self.text(*span).to_owned());
        let literals = ["true", "false", "+infinity"].map(str::to_owned);
        let known: Vec<String> = own
            .chain(consts)
            .chain(literals)
            .chain(BUILTINS.iter().map(|b| b.name.to_owned()))
            .collect();
        nearest(wrong, known.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// Returns the candidate closest to `wrong`, if one is close: by edits, or equal after the last `.`
pub(crate) fn nearest<'c>(
    wrong: &str,
    candidates: impl Iterator<Item = &'c str>,
) -> Option<&'c str> {
    let wrong_tail = wrong.rsplit('.').next().unwrap_or(wrong);
    // Short names are close to everything.
    let allowed = (wrong.len() / 4).min(3);
    candidates
        .map(|candidate| {
            let tail = candidate.rsplit('.').next().unwrap_or(candidate);
            // `Flow.srtt` is short for `Flow.srtt_us`.
            let longer = |rest: &str| rest.starts_with('_') && wrong.contains('.');
            let by_tail = if tail.eq_ignore_ascii_case(wrong_tail)
                || candidate.strip_prefix(wrong).is_some_and(longer)
            {
                0
            } else {
                usize::MAX
            };
            (edit_distance(wrong, candidate).min(by_tail), candidate)
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance, ignoring case. Long words are not compared.
fn edit_distance(a: &str, b: &str) -> usize {
    const COMPARED_NAME_BYTES_MAX: usize = 40;
    if a.len() > COMPARED_NAME_BYTES_MAX || b.len() > COMPARED_NAME_BYTES_MAX {
        return usize::MAX;
    }
    strsim::levenshtein(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}
