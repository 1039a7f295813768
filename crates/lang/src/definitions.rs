//! Reads `(def …)`: the variables and constants that a program declares.

use ccplane_datapath::{Var, VarKind};

use crate::ProgramLimits;
use crate::check::{CheckResult, not_whole_number};
use crate::diagnostics::{DiagnosticCode, Problem, Problems, Span};
use crate::literal::{self, Literal};
use crate::reader::{Form, Forms, TokenKind};
use crate::scope::Scope;
use crate::tree::{Symbol, Type, builtin};

/// Maximum constants: far more than a program within the limits can use. Names are searched
/// linearly.
const CONSTS_MAX: usize = 256;

/// Reads `(def …)`. Also returns true if `(compat libccp)` selects the reference's `(fallthrough)`,
/// which applies to all later clauses.
pub(crate) fn read<'s>(
    forms: &Forms<'s>,
    def: u32,
    limits: &ProgramLimits,
    problems: &mut Problems,
) -> (Scope<'s>, bool) {
    let declared = Vec::with_capacity(16);
    let mut reader = DefReader {
        forms,
        limits,
        problems,
        declared,
        consts: Vec::new(),
        sticky: false,
    };
    reader.definitions(def);
    let scope = Scope::new(
        forms.source,
        limits.max_vars,
        &reader.declared,
        reader.consts,
    );
    (scope, reader.sticky)
}

struct DefReader<'a, 's> {
    forms: &'a Forms<'s>,
    limits: &'a ProgramLimits,
    problems: &'a mut Problems,
    declared: Vec<(Symbol, Var)>,
    consts: Vec<(Span, Literal)>,
    sticky: bool,
}

impl<'s> DefReader<'_, 's> {
    fn definitions(&mut self, def: u32) {
        let mut block: Option<Form> = None;
        for child in self.forms.children(def).skip(1) {
            let form = self.forms.get(child);
            let mut parts = self.forms.children(child);
            let head = parts
                .next()
                .map_or("", |head| self.forms.text(self.forms.get(head)));
            match head {
                "Report"
                    if parts
                        .clone()
                        .all(|part| self.forms.get(part).kind == TokenKind::List) =>
                {
                    if let Some(first) = block.replace(form) {
                        let what = "more than one (Report …) block";
                        self.problems.push(
                            Problem::new(DiagnosticCode::Syntax, form.span, what, "second block")
                                .with_secondary_label(first.span, "first block")
                                .with_help("move its variables to the first block"),
                        );
                    }
                    for part in parts {
                        let _ = self.variable(part, true);
                        if self.must_stop() {
                            break;
                        }
                    }
                }
                "const" if parts.clone().count() == 2 => {
                    let _ = self.constant(child);
                }
                // With a value it is a variable of that name.
                "compat"
                    if parts
                        .clone()
                        .map(|part| self.forms.text(self.forms.get(part)))
                        .eq(["libccp"]) =>
                {
                    self.sticky = true;
                }
                _ => {
                    let _ = self.variable(child, false);
                }
            }
            if self.must_stop() {
                let (vars, consts) = (
                    self.declared.len() > self.limits.max_vars,
                    self.consts.len() > CONSTS_MAX,
                );
                let what = match (vars, consts) {
                    (true, _) => format!(
                        "more than {} variables, the datapath's limit",
                        self.limits.max_vars
                    ),
                    (_, true) => format!("more than {CONSTS_MAX} constants"),
                    _ => return,
                };
                self.problems.push(Problem::new(
                    DiagnosticCode::Limit,
                    form.span,
                    what,
                    "too many declarations",
                ));
                return;
            }
        }
    }

    /// Returns true if there is no point in reading on.
    fn must_stop(&self) -> bool {
        let too_many = self.declared.len() > self.limits.max_vars || self.consts.len() > CONSTS_MAX;
        too_many || self.problems.limit_reached().is_some()
    }

    /// Reads `([volatile] name literal)`.
    fn variable(&mut self, list: u32, in_block: bool) -> CheckResult<()> {
        let mut parts = self.forms.children(list).map(|part| self.forms.get(part));
        let mut name = parts.next();
        let volatile = name.is_some_and(|first| self.forms.text(first) == "volatile");
        if volatile {
            name = parts.next();
        }
        let (Some(name), Some(init), None) = (name, parts.next(), parts.next()) else {
            return Err(self.problems.push(self.not_a_declaration(list)));
        };
        let text = self.declarable_name(name)?;
        let (report, span) = match text.strip_prefix("Report.") {
            Some(_) if in_block => {
                let problem = Problem::new(
                    DiagnosticCode::Name,
                    name.span,
                    "duplicate prefix `Report.`",
                    "remove the prefix",
                )
                .with_help("inside (Report …), names have no prefix `Report.`");
                return Err(self.problems.push(problem));
            }
            Some("") => {
                let what = "a report variable without a name";
                return Err(self.problems.push(Problem::new(
                    DiagnosticCode::Name,
                    name.span,
                    what,
                    "a name must follow",
                )));
            }
            Some(_) => (
                true,
                Span {
                    start: name.span.start + "Report.".len() as u32,
                    end: name.span.end,
                },
            ),
            None => (in_block, name.span),
        };
        self.check_duplicate(span, report)?;
        let (ty, init) = match self.initial_value(init).normal() {
            Literal::Num(value) => (Type::Num, value),
            Literal::Bool(value) => (Type::Bool, u64::from(value)),
            Literal::Ratio(_) => {
                self.problems.push(not_whole_number(init.span));
                (Type::Num, 0)
            }
        };
        let kind = if report {
            VarKind::Report
        } else {
            VarKind::Control
        };
        let symbol = Symbol {
            name: span,
            report,
            ty,
            type_unknown: false,
            reg: 0,
        };
        self.declared.push((
            symbol,
            Var {
                kind,
                volatile,
                init,
            },
        ));
        Ok(())
    }

    #[cold]
    fn not_a_declaration(&self, list: u32) -> Problem {
        let span = self.forms.get(list).span;
        if self
            .forms
            .children(list)
            .any(|part| self.forms.text(self.forms.get(part)) == "-")
        {
            return Problem::new(
                DiagnosticCode::Value,
                span,
                "not an initial value",
                "negative",
            )
            .with_help(
                "there are no negative numbers; (diff a b) is a difference that stops at 0",
            );
        }
        Problem::new(
            DiagnosticCode::Syntax,
            span,
            "not a declaration",
            "expected a name and an initial value",
        )
        .with_help("write (name 0), (volatile name 0) or, for a constant, (const NAME 10ms)")
    }

    /// Reads `(const NAME literal)`.
    fn constant(&mut self, list: u32) -> CheckResult<()> {
        let mut parts = self
            .forms
            .children(list)
            .skip(1)
            .map(|part| self.forms.get(part));
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            return Err(self.problems.push(self.not_a_declaration(list)));
        };
        self.declarable_name(name)?;
        self.check_duplicate(name.span, false)?;
        let value = self.initial_value(value);
        self.consts.push((name.span, value));
        Ok(())
    }

    /// Returns the text of a name that may be declared.
    fn declarable_name(&mut self, form: Form) -> CheckResult<&'s str> {
        let text = self.forms.text(form);
        let problem = if form.kind != TokenKind::Word {
            Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "not a name",
                "expected a name",
            )
            .with_help("names consist of A-Z a-z 0-9 . and _")
        } else if literal::parse(text).is_some() {
            Problem::new(
                DiagnosticCode::Name,
                form.span,
                format!("`{text}` cannot be a name"),
                "expected a name",
            )
            .with_help("names do not begin with a digit; true, false and +infinity are values")
        } else if text.starts_with("__") {
            Problem::new(
                DiagnosticCode::Name,
                form.span,
                format!("`{text}` is reserved"),
                "names may not begin with __",
            )
            .with_help(format!("call it {}", text.trim_start_matches('_')))
        } else if builtin(text).is_some_and(|builtin| builtin.is_ccp) {
            Problem::new(
                DiagnosticCode::Name,
                form.span,
                format!("`{text}` is built in"),
                "cannot be declared",
            )
            .with_help("choose another name; built-in names need no declaration")
        } else {
            return Ok(text);
        };
        Err(self.problems.push(problem))
    }

    /// Refuses a duplicate name. A report variable and another one may share a name, as only the
    /// former is used with `Report.`
    fn check_duplicate(&mut self, span: Span, report: bool) -> CheckResult<()> {
        let text = self.text(span);
        let variable = self
            .declared
            .iter()
            .find(|(symbol, _)| symbol.report == report && self.text(symbol.name) == text);
        let constant = self
            .consts
            .iter()
            .find(|(name, _)| !report && self.text(*name) == text);
        let Some(first) = variable
            .map(|(symbol, _)| symbol.name)
            .or(constant.map(|(name, _)| *name))
        else {
            return Ok(());
        };
        let problem = Problem::new(
            DiagnosticCode::Name,
            span,
            format!("`{text}` is declared twice"),
            "second declaration",
        )
        .with_secondary_label(first, "first declaration")
        .with_help("rename or remove one");
        Err(self.problems.push(problem))
    }

    /// Reads an initial value: a literal or the name of a constant. If it is invalid, the name is
    /// declared nevertheless, so that its uses cause no further errors.
    fn initial_value(&mut self, form: Form) -> Literal {
        let text = self.forms.text(form);
        let problem = match literal::parse(text).filter(|_| form.kind == TokenKind::Word) {
            Some(Ok(value)) => return value,
            Some(Err(why)) => {
                Problem::new(DiagnosticCode::Value, form.span, why.what, "in this number")
                    .with_help(why.fix)
            }
            None => {
                if let Some((_, value)) = self
                    .consts
                    .iter()
                    .find(|(name, _)| self.text(*name) == text)
                {
                    return *value;
                }
                Problem::new(
                    DiagnosticCode::Value,
                    form.span,
                    "not an initial value",
                    "expected a literal",
                )
                .with_help(
                    "an initial value is a number, true, false, +infinity or a (const …) declared \
                     earlier; set anything else with (:= …) in a (when …)",
                )
            }
        };
        self.problems.push(problem);
        Literal::Num(0)
    }

    fn text(&self, span: Span) -> &'s str {
        &self.forms.source[span.start as usize..span.end as usize]
    }
}
