//! Type checker: forms to the typed tree, for clauses and statements. Values are in
//! [`crate::value`] and [`crate::operation`].

use ccplane_datapath::{VarKind, reg};

use crate::diagnostics::{DiagnosticCode, Problem, Problems, ReportedError, Span};
use crate::literal;
use crate::operation::{FORM_HEADS, operator};
use crate::reader::{Children, Form, Forms, TokenKind};
use crate::scope::{Binding, Scope, nearest};
use crate::tree::{Clause, Expr, Stmt, Tree, Type};

/// Checked part of the program, or the proof that its problem was reported.
pub(crate) type CheckResult<T> = Result<T, ReportedError>;

pub(crate) struct Checker<'a, 's> {
    pub forms: &'a Forms<'s>,
    pub scope: &'a mut Scope<'s>,
    pub problems: &'a mut Problems,
    pub tree: Tree,
}

/// Checks all `(when …)` clauses.
pub(crate) fn check<'s>(
    forms: &Forms<'s>,
    whens: Children<'_>,
    scope: &mut Scope<'s>,
    problems: &mut Problems,
) -> Tree {
    let tree = Tree {
        nodes: Vec::with_capacity(64),
        stmts: Vec::with_capacity(32),
        clauses: Vec::with_capacity(8),
    };
    let mut checker = Checker {
        forms,
        scope,
        problems,
        tree,
    };
    for when in whens {
        if checker.problems.limit_reached().is_some() {
            break;
        }
        let _ = checker.clause(when); // its problems are reported; others are checked too
    }
    checker.warn_unused_locals();
    checker.tree
}

impl Checker<'_, '_> {
    #[cold]
    pub fn report(&mut self, problem: Problem) -> ReportedError {
        self.problems.push(problem)
    }

    /// Checks `(when guard statement …)`.
    fn clause(&mut self, when: u32) -> CheckResult<()> {
        let form = self.forms.get(when);
        let mut parts = self.forms.children(when);
        let head = parts
            .next()
            .map(|head| self.forms.text(self.forms.get(head)));
        if head != Some("when") {
            let problem = match head {
                Some("def") => Problem::new(
                    DiagnosticCode::Syntax,
                    form.span,
                    "a second (def …)",
                    "expected (when …)",
                )
                .with_help("a program has one (def …), at the start"),
                _ => Problem::new(
                    DiagnosticCode::Syntax,
                    first_line(form.span, self.forms),
                    "not a clause",
                    "expected (when condition statement …)",
                )
                .with_help("put statements in a clause: (when true …) runs on every ACK"),
            };
            return Err(self.report(problem));
        }
        let (Some(guard), true) = (parts.next(), parts.clone().next().is_some()) else {
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "a clause needs a condition and a statement",
                "incomplete",
            )
            .with_help("for example, write (when true (report))");
            return Err(self.report(problem));
        };
        let guard = self.condition(guard);
        let body_start = self.tree.stmts.len() as u32;
        for statement in parts {
            if let Some(noted) = self.problems.limit_reached() {
                return Err(noted);
            }
            let _ = self.statement(statement);
        }
        let body_end = self.tree.stmts.len() as u32;
        let span = Span {
            start: form.span.start,
            end: form.span.start + 5,
        };
        self.tree.clauses.push(Clause {
            span,
            guard: guard?,
            body_start,
            body_end,
        });
        Ok(())
    }

    fn statement(&mut self, index: u32) -> CheckResult<()> {
        let form = self.forms.get(index);
        let mut parts = self.forms.children(index);
        let Some(head) = parts.next() else {
            let text = self.forms.text(form);
            if matches!(text, "report" | "fallthrough" | "reset") {
                let problem = Problem::new(
                    DiagnosticCode::Syntax,
                    form.span,
                    "not a statement",
                    "expected parentheses",
                );
                return Err(self.report(problem.with_help(format!("write ({text})"))));
            }
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "not a statement",
                "expected (:= name value), (report), (fallthrough), (reset) or (if …)",
            );
            return Err(self.report(problem));
        };
        let head = self.forms.get(head);
        match self.forms.text(head) {
            ":=" | "bind" => self.bind(form, parts),
            "report" => self.command(form, parts, reg::SHOULD_REPORT),
            "fallthrough" => self.command(form, parts, reg::SHOULD_CONTINUE),
            "reset" => self.command(form, parts, reg::SHOULD_RESET),
            "if" => self.branch(form, parts, false),
            "!if" => self.branch(form, parts, true),
            "do" => {
                if parts.clone().next().is_none() {
                    let problem = Problem::new(
                        DiagnosticCode::Syntax,
                        form.span,
                        "(do …) without a statement",
                        "expected a statement",
                    );
                    return Err(self.report(problem));
                }
                for part in parts {
                    let _ = self.statement(part);
                }
                Ok(())
            }
            name => {
                let problem = if head.kind == TokenKind::List || operator(name).is_some() {
                    Problem::new(
                        DiagnosticCode::Syntax,
                        form.span,
                        "this value is not used",
                        "expected a statement",
                    )
                    .with_help("assign it with (:= name value)")
                } else {
                    self.unknown_head(head, name, "statement")
                };
                Err(self.report(problem))
            }
        }
    }

    pub fn unknown_head(&self, head: Form, name: &str, what: &str) -> Problem {
        let help = match (nearest(name, FORM_HEADS.split(' ')), name) {
            (_, "when") => "clauses cannot be nested: close the previous clause first".to_owned(),
            (_, "not") => "write (! x)".to_owned(),
            (_, "=" | "set" | "let") => "write (:= name value)".to_owned(),
            (_, "%" | "mod") => {
                "there is no remainder operator; use (- a (* b (/ a b)))".to_owned()
            }
            (_, "else") => "write (if condition statement statement): the second statement is the \
                            else"
                .to_owned(),
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, _) => {
                "statements are := if do report fallthrough reset; operators + - * / max min diff \
                 wrapped_max ewma if > >= < <= == != && || !"
                    .to_owned()
            }
        };
        Problem::new(
            DiagnosticCode::Syntax,
            head.span,
            format!("unknown {what} `{name}`"),
            format!("not a known {what}"),
        )
        .with_help(help)
    }

    /// Checks a command without operands, such as `(report)`.
    fn command(&mut self, form: Form, mut parts: Children<'_>, flag: u8) -> CheckResult<()> {
        if parts.next().is_some() {
            let text = self
                .forms
                .text(form)
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned();
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "this command takes no operands",
                "too many operands",
            )
            .with_help(format!("write {text})"));
            return Err(self.report(problem));
        }
        self.tree.stmts.push(Stmt::Set(flag));
        Ok(())
    }

    /// Checks `(if condition then [else])` as a statement.
    fn branch(&mut self, form: Form, mut parts: Children<'_>, negated: bool) -> CheckResult<()> {
        let (Some(cond), Some(then), otherwise, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "malformed (if …)",
                "expected a condition, a statement and optionally an else statement",
            )
            .with_help("use (do a b) for several statements");
            return Err(self.report(problem));
        };
        let cond = self.condition(cond);
        let place = self.tree.stmts.len();
        self.tree.stmts.push(Stmt::Set(reg::SHOULD_CONTINUE)); // replaced below with its ends
        let done = self.statement(then);
        let then_end = self.tree.stmts.len() as u32;
        let also = otherwise.map_or(Ok(()), |otherwise| self.statement(otherwise));
        let else_end = self.tree.stmts.len() as u32;
        let mut cond = cond?;
        if negated {
            cond = self.tree.not(cond);
        }
        self.tree.stmts[place] = Stmt::If {
            cond,
            then_end,
            else_end,
        };
        done.and(also)
    }

    /// Checks `(:= name value)`.
    fn bind(&mut self, form: Form, mut parts: Children<'_>) -> CheckResult<()> {
        let (Some(target), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
            let text = self.forms.text(form);
            let help = if text.contains(" -") {
                "write (:= name value); there are no negative numbers, (- a b) is a difference"
            } else {
                "write (:= name value)"
            };
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "malformed bind",
                "expected a name and one value",
            );
            return Err(self.report(problem.with_help(help)));
        };
        let target = self.forms.get(target);
        let name = self.forms.text(target);
        if target.kind != TokenKind::Word || literal::parse(name).is_some() {
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                target.span,
                "only a variable can be set",
                "expected a name",
            )
            .with_help("write (:= name value)");
            return Err(self.report(problem));
        }
        let value_form = self.forms.get(value);
        let (dst, ty) = match self.scope.resolve(name) {
            Some(Binding::Reg {
                reg,
                ty,
                writable: true,
            }) => (reg, ty),
            Some(_) => return Err(self.report(read_only(target.span, name))),
            None if name.starts_with("__") => return Err(self.report(reserved(target.span, name))),
            None if name.starts_with("Report.") => {
                return Err(self.report(self.undeclared_report(target.span, name)));
            }
            // Assigned names are local variables, as long as there was room.
            None => return Err(self.report(self.scope.too_many_vars(target.span))),
        };
        let value = self.assigned_value(value)?;
        let value = self.expect_whole(value, value_form.span)?;
        let found = self.tree.node(value).ty;
        let settled = self.scope.settle(dst, found);
        let number_into_flag = (ty, found) == (Type::Bool, Type::Num)
            && !matches!(self.tree.constant(value), Some(0 | 1));
        if number_into_flag && !settled {
            let what = format!("`{name}` is a boolean, but this value is a number");
            let problem = Problem::new(
                DiagnosticCode::Type,
                value_form.span,
                what,
                "expected a boolean",
            )
            .with_help("compare it, as in (> x 0), or initialise the variable with a number");
            return Err(self.report(problem));
        }
        self.tree.stmts.push(Stmt::Bind { dst, value });
        Ok(())
    }

    fn undeclared_report(&self, span: Span, name: &str) -> Problem {
        let near = self
            .scope
            .nearest(name)
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Problem::new(
            DiagnosticCode::UnknownName,
            span,
            format!("`{name}` is not declared"),
            "no such report variable",
        )
        .with_help(format!("declare it in (def (Report …)){near}"))
    }

    /// Warns about locals that are probably typos. A local that is never read has no effect; it is
    /// legal, as in CCP, unless its name is close to one that has an effect.
    fn warn_unused_locals(&mut self) {
        let mut read: u128 = 0;
        for node in &self.tree.nodes {
            if let Expr::Reg(reg) = node.expr {
                read |= 1u128.checked_shl(reg.into()).unwrap_or(0);
            }
        }
        for n in 0..self.scope.symbols.len() {
            let symbol = self.scope.symbols[n];
            if self.scope.vars[n].kind != VarKind::Local
                || read & 1u128.checked_shl(symbol.reg.into()).unwrap_or(0) != 0
            {
                continue;
            }
            let name = self.scope.name(&symbol);
            if let Some(near) = self.scope.nearest_writable(name) {
                let what = format!("`{name}` is set but never read");
                self.problems.push(
                    Problem::new(
                        DiagnosticCode::UnknownName,
                        symbol.name,
                        what,
                        "this is a new variable",
                    )
                    .with_help(format!("did you mean `{near}`?")),
                );
            }
        }
    }
}

fn read_only(span: Span, name: &str) -> Problem {
    Problem::new(
        DiagnosticCode::ReadOnly,
        span,
        format!("`{name}` cannot be set"),
        "read-only",
    )
    .with_help(
        "a program can set its own variables and Micros, Cwnd, Rate and Ssthresh; signals and \
         constants cannot be set",
    )
}

pub(crate) fn reserved(span: Span, name: &str) -> Problem {
    let help = match name {
        "__shouldReport" => "write (report)",
        "__shouldContinue" => "write (fallthrough)",
        "__eventFlag" => "use the condition of the (when …)",
        _ => "names may not begin with __",
    };
    Problem::new(
        DiagnosticCode::Name,
        span,
        format!("`{name}` is reserved"),
        "not usable in programs",
    )
    .with_help(help)
}

/// Returns the part of `span` up to the end of its first line.
fn first_line(span: Span, forms: &Forms<'_>) -> Span {
    let text = &forms.source[span.start as usize..span.end as usize];
    let end = text
        .find('\n')
        .map_or(span.end, |at| span.start + at as u32);
    Span {
        start: span.start,
        end,
    }
}

/// Text for a hint; a long text is abbreviated.
pub(crate) fn abbreviate(text: &str) -> &str {
    const HINT_TEXT_BYTES_MAX: usize = 32;
    if text.len() <= HINT_TEXT_BYTES_MAX && !text.contains('\n') {
        text
    } else {
        "…"
    }
}

/// Error for a decimal where only a whole number is allowed.
pub(crate) fn not_whole_number(span: Span) -> Problem {
    Problem::new(
        DiagnosticCode::Value,
        span,
        "not a whole number",
        "values are whole numbers",
    )
    .with_help(
        "multiply or divide by it, as in (* Cwnd 1.25), or use a unit in which it is whole, \
         as in 1.5ms (1500 µs)",
    )
}
