//! Forms to the typed tree: names, types, constants, and every rule of the language.

use ccplane_datapath::{Op, reg};

use crate::diagnostics::{Code, Problem, Problems, Span};
use crate::fold::{self, Fold};
use crate::literal::{self, Literal};
use crate::reader::{Children, Form, Forms, Kind};
use crate::scope::{Meaning, Noted, Scope, nearest, not_whole};
use crate::tree::{Clause, Expr, Id, Node, Ratio, Stmt, Tree, Type};

type Checked<T> = Result<T, Noted>;

/// How the operands of an operator are typed and how many there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Two or more numbers to a number.
    Chain(Op),
    /// Two numbers to a number.
    Pair(Op),
    /// Two numbers to a truth value.
    Compare(Op),
    /// Two of the same type to a truth value.
    Same(Op),
    /// Two or more truth values to one.
    Logic(Op),
    Not,
    If,
    NotIf,
    Ewma,
}

fn operator(name: &str) -> Option<Shape> {
    Some(match name {
        "+" | "add" => Shape::Chain(Op::Add),
        "*" | "mul" => Shape::Chain(Op::Mul),
        "max" => Shape::Chain(Op::Max),
        "min" => Shape::Chain(Op::Min),
        "-" | "sub" => Shape::Pair(Op::Sub),
        "/" | "div" => Shape::Pair(Op::Div),
        "diff" => Shape::Pair(Op::Diff),
        "wrapped_max" => Shape::Pair(Op::MaxWrap),
        ">" | "gt" => Shape::Compare(Op::Gt),
        "<" | "lt" => Shape::Compare(Op::Lt),
        ">=" => Shape::Compare(Op::Ge),
        "<=" => Shape::Compare(Op::Le),
        "==" | "eq" => Shape::Same(Op::Eq),
        "!=" => Shape::Same(Op::Ne),
        "&&" | "and" => Shape::Logic(Op::And),
        "||" | "or" => Shape::Logic(Op::Or),
        "!" => Shape::Not,
        "if" => Shape::If,
        "!if" => Shape::NotIf,
        "ewma" => Shape::Ewma,
        _ => return None,
    })
}

/// Everything that may stand after `(`, for suggestions.
const HEADS: [&str; 36] = [
    "+",
    "add",
    "*",
    "mul",
    "max",
    "min",
    "-",
    "sub",
    "/",
    "div",
    "diff",
    "wrapped_max",
    ">",
    "gt",
    "<",
    "lt",
    ">=",
    "<=",
    "==",
    "eq",
    "!=",
    "&&",
    "and",
    "||",
    "or",
    "!",
    "if",
    "!if",
    "ewma",
    ":=",
    "bind",
    "report",
    "fallthrough",
    "reset",
    "do",
    "when",
];

pub(crate) struct Checker<'a, 's> {
    forms: &'a Forms<'s>,
    scope: &'a mut Scope<'s>,
    problems: &'a mut Problems,
    tree: Tree,
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
        let _ = checker.clause(when);
    }
    checker.tree
}

impl Checker<'_, '_> {
    #[cold]
    fn note(&mut self, problem: Problem) -> Noted {
        self.problems.push(problem);
        Noted
    }

    /// `(when guard statement …)`
    fn clause(&mut self, when: u32) -> Checked<()> {
        let form = self.forms.get(when);
        let mut parts = self.forms.children(when);
        let head = parts.next().map(|head| self.forms.text(self.forms.get(head)));
        if head != Some("when") {
            let problem = match head {
                Some("def") => Problem::new(Code::Syntax, form.span, "a second (def …)", "expected (when …)")
                    .help("a program has one (def …), at its beginning"),
                _ => Problem::new(
                    Code::Syntax,
                    first_line(form.span, self.forms),
                    "not a clause",
                    "expected (when condition statement …)",
                )
                .help("statements belong into a clause: (when true …) runs at every ACK"),
            };
            return Err(self.note(problem));
        }
        let (Some(guard), true) = (parts.next(), parts.clone().next().is_some()) else {
            let problem = Problem::new(
                Code::Syntax,
                form.span,
                "a clause needs a condition and a statement",
                "incomplete",
            )
            .help("write (when true (report)), for instance");
            return Err(self.note(problem));
        };
        let guard = self.condition(guard);
        let body_start = self.tree.stmts.len() as u32;
        for statement in parts {
            let _ = self.statement(statement);
        }
        let body_end = self.tree.stmts.len() as u32;
        self.tree.clauses.push(Clause {
            guard: guard?,
            body_start,
            body_end,
        });
        Ok(())
    }

    fn statement(&mut self, index: u32) -> Checked<()> {
        let form = self.forms.get(index);
        let mut parts = self.forms.children(index);
        let Some(head) = parts.next() else {
            let problem = Problem::new(
                Code::Syntax,
                form.span,
                "not a statement",
                "expected (:= name value), (report), (fallthrough), (reset) or (if …)",
            );
            return Err(self.note(problem));
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
                        Code::Syntax,
                        form.span,
                        "(do …) without a statement",
                        "expected a statement",
                    );
                    return Err(self.note(problem));
                }
                for part in parts {
                    let _ = self.statement(part);
                }
                Ok(())
            }
            name => {
                let problem = if head.kind == Kind::List || operator(name).is_some() {
                    Problem::new(
                        Code::Syntax,
                        form.span,
                        "this value is not used",
                        "expected a statement",
                    )
                    .help("keep it with (:= name value)")
                } else {
                    self.unknown_head(head, name, "statement")
                };
                Err(self.note(problem))
            }
        }
    }

    fn unknown_head(&self, head: Form, name: &str, what: &str) -> Problem {
        let help = match (nearest(name, HEADS.iter().copied()), name) {
            (_, "when") => "a clause cannot stand inside another: close the one before it".to_owned(),
            (_, "not") => "write (! x)".to_owned(),
            (_, "=" | "set" | "let") => "write (:= name value)".to_owned(),
            (_, "%" | "mod") => "there is no remainder; (- a (* b (/ a b))) computes it".to_owned(),
            (_, "else") => "write (if condition statement statement): the second statement is the else".to_owned(),
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, _) => {
                "statements are := if do report fallthrough reset; operators + - * / max min diff wrapped_max \
                          ewma if > >= < <= == != && || !"
                    .to_owned()
            }
        };
        Problem::new(
            Code::Syntax,
            head.span,
            format!("`{name}` is no {what}"),
            format!("expected a {what}"),
        )
        .help(help)
    }

    /// `(report)` and its like take nothing.
    fn command(&mut self, form: Form, mut parts: Children<'_>, flag: u8) -> Checked<()> {
        if parts.next().is_some() {
            let text = self
                .forms
                .text(form)
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned();
            let problem = Problem::new(
                Code::Syntax,
                form.span,
                "this command takes nothing",
                "too many operands",
            )
            .help(format!("write {text})"));
            return Err(self.note(problem));
        }
        self.tree.stmts.push(Stmt::Set(flag));
        Ok(())
    }

    /// `(if condition then [else])` as a statement.
    fn branch(&mut self, form: Form, mut parts: Children<'_>, negated: bool) -> Checked<()> {
        let (Some(cond), Some(then), otherwise, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            let problem = Problem::new(
                Code::Syntax,
                form.span,
                "not an (if …)",
                "expected a condition, a statement and perhaps an else statement",
            )
            .help("several statements make one as (do a b)");
            return Err(self.note(problem));
        };
        let cond = self.condition(cond);
        let place = self.tree.stmts.len();
        self.tree.stmts.push(Stmt::Set(reg::SHOULD_CONTINUE)); // replaced below, once its ends are known
        let done = self.statement(then);
        let then_end = self.tree.stmts.len() as u32;
        let also = otherwise.map_or(Ok(()), |otherwise| self.statement(otherwise));
        let else_end = self.tree.stmts.len() as u32;
        let mut cond = cond?;
        if negated {
            cond = self.not(cond);
        }
        self.tree.stmts[place] = Stmt::If {
            cond,
            then_end,
            else_end,
        };
        done.and(also)
    }

    /// `(:= name value)`
    fn bind(&mut self, form: Form, mut parts: Children<'_>) -> Checked<()> {
        let (Some(target), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
            let problem = Problem::new(Code::Syntax, form.span, "not a bind", "expected a name and one value")
                .help("write (:= name value)");
            return Err(self.note(problem));
        };
        let target = self.forms.get(target);
        let name = self.forms.text(target);
        if target.kind != Kind::Word || literal::parse(name).is_some() {
            let problem = Problem::new(Code::Syntax, target.span, "only a name can be set", "expected a name")
                .help("write (:= name value)");
            return Err(self.note(problem));
        }
        let value_form = self.forms.get(value);
        let value = self.bound(value);
        let found = self.scope.find(name);
        let (dst, ty) = match found {
            Some(Meaning::Reg {
                reg,
                ty,
                writable: true,
            }) => (reg, Some(ty)),
            Some(_) => return Err(self.note(read_only(target.span, name))),
            None if name.starts_with("__") => return Err(self.note(reserved(target.span, name))),
            None if name.starts_with("Report.") => {
                let near = self
                    .scope
                    .nearest(name)
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let problem = Problem::new(
                    Code::UnknownName,
                    target.span,
                    format!("`{name}` is not declared"),
                    "no such report variable",
                )
                .help(format!("declare it in (def (Report …)){near}"));
                return Err(self.note(problem));
            }
            None => {
                // Made even where its value is wrong, so that its later uses are not reported as well.
                let ty = value.as_ref().map_or(Type::Num, |&id| self.tree.node(id).ty);
                (self.scope.local(target.span, ty, self.problems)?, None)
            }
        };
        let value = self.whole(value?, value_form.span)?;
        if ty == Some(Type::Bool)
            && self.tree.node(value).ty == Type::Num
            && !matches!(self.tree.constant(value), Some(0 | 1))
        {
            let problem = Problem::new(
                Code::Type,
                value_form.span,
                format!("`{name}` is true or false, this is a number"),
                "expected a truth value",
            )
            .help("compare it, as (> x 0), or declare the variable with a number");
            return Err(self.note(problem));
        }
        self.tree.stmts.push(Stmt::Bind { dst, value });
        Ok(())
    }

    /// A value directly right of `:=`, where also the forms that keep what the variable held are legal.
    fn bound(&mut self, index: u32) -> Checked<Id> {
        let form = self.forms.get(index);
        let mut parts = self.forms.children(index);
        let Some(head) = parts.next() else {
            return self.value(index);
        };
        let shape = operator(self.forms.text(self.forms.get(head)));
        match (shape, parts.clone().count()) {
            (Some(Shape::If), 2) => self.keep(parts, Expr::If),
            (Some(Shape::NotIf), 2) => self.keep(parts, Expr::NotIf),
            (Some(Shape::Ewma), _) => self.ewma(form, parts),
            _ => self.value(index),
        }
    }

    /// `(if c v)`, `(!if c v)`
    fn keep(&mut self, mut parts: Children<'_>, make: fn(Id, Id) -> Expr) -> Checked<Id> {
        let (Some(cond), Some(value)) = (parts.next(), parts.next()) else {
            return Err(Noted);
        };
        let span = self.forms.get(value).span;
        let (cond, value) = (self.condition(cond), self.value(value));
        let (cond, value) = (cond?, self.whole(value?, span)?);
        let ty = self.tree.node(value).ty;
        let needs = self.needs(cond, value);
        Ok(self.add(make(cond, value), ty, needs))
    }

    /// `(ewma weight x)`: a weight of 7, as in CCP, is 7/10.
    fn ewma(&mut self, form: Form, mut parts: Children<'_>) -> Checked<Id> {
        let (Some(weight), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
            let problem = Problem::new(
                Code::Syntax,
                form.span,
                "not an (ewma …)",
                "expected a weight and a value",
            )
            .help("(:= x (ewma 0.875 sample)) keeps 7/8 of the old value");
            return Err(self.note(problem));
        };
        let weight_form = self.forms.get(weight);
        let value_span = self.forms.get(value).span;
        let written = self.weight(weight_form);
        let (weight, value) = (self.number(weight), self.number(value));
        let (weight, value) = (weight?, self.whole(value?, value_span)?);
        let ratio = match (written, self.tree.node(weight).expr) {
            (Some(ratio), _) | (None, Expr::Ratio(ratio)) => Some(ratio),
            (None, Expr::Num(tenths)) => Ratio::new(u128::from(tenths), 10),
            _ => {
                let needs = self.needs(weight, value);
                return Ok(self.add(Expr::EwmaVar(weight, value), Type::Num, needs));
            }
        };
        match ratio {
            Some(ratio) if ratio.num <= ratio.den => {
                let needs = self.tree.node(value).needs.max(1);
                Ok(self.add(Expr::Ewma(ratio, value), Type::Num, needs))
            }
            _ => Err(self.note(
                Problem::new(Code::Value, weight_form.span, "a weight lies between 0 and 1", "more than 1").help(
                    "a whole weight is tenths of the old value, as in CCP: (ewma 7 x) keeps 7/10; otherwise write 0.875 or 7/8",
                ),
            )),
        }
    }

    /// A weight written as a decimal or ratio, by itself or as a constant.
    fn weight(&self, form: Form) -> Option<Ratio> {
        let text = self.forms.text(form);
        let literal = match literal::parse(text) {
            Some(literal) => literal.ok()?,
            None if form.kind == Kind::Word => match self.scope.find(text)? {
                Meaning::Const(literal) => literal,
                Meaning::Reg { .. } => return None,
            },
            None => return None,
        };
        match literal {
            Literal::Ratio(ratio) => Some(ratio),
            _ => None,
        }
    }

    /// A truth value.
    fn condition(&mut self, index: u32) -> Checked<Id> {
        let id = self.value(index)?;
        self.expect(id, Type::Bool, self.forms.get(index))
    }

    /// A number, perhaps a ratio.
    fn number(&mut self, index: u32) -> Checked<Id> {
        let id = self.value(index)?;
        self.expect(id, Type::Num, self.forms.get(index))
    }

    fn expect(&mut self, id: Id, wanted: Type, form: Form) -> Checked<Id> {
        let ty = self.tree.node(id).ty;
        if ty == wanted {
            return Ok(id);
        }
        let text = shorten(self.forms.text(form));
        let fix = match wanted {
            Type::Bool => format!("compare it: (!= {text} 0)"),
            Type::Num => format!("choose a number by it: (if {text} 1 0)"),
        };
        let what = format!("{} is needed here, this is {}", wanted.noun(), ty.noun());
        Err(self.note(Problem::new(Code::Type, form.span, what, format!("expected {}", wanted.noun())).help(fix)))
    }

    /// Refuses a ratio where only whole numbers go.
    fn whole(&mut self, id: Id, span: Span) -> Checked<Id> {
        if matches!(self.tree.node(id).expr, Expr::Ratio(_)) {
            return Err(self.note(not_whole(span)));
        }
        Ok(id)
    }

    /// Any value, of either type; a number may be a ratio.
    fn value(&mut self, index: u32) -> Checked<Id> {
        let form = self.forms.get(index);
        match form.kind {
            Kind::Word => self.word(index, form),
            Kind::Sign => {
                let text = self.forms.text(form);
                let help = if text == "-" {
                    "there are no negative numbers; (diff a b) is a difference that stops at 0"
                } else {
                    "an operator stands first: (+ a b)"
                };
                Err(self.note(
                    Problem::new(
                        Code::Syntax,
                        form.span,
                        format!("`{text}` is an operator, not a value"),
                        "expected a value",
                    )
                    .help(help),
                ))
            }
            Kind::List => self.operation(index, form),
        }
    }

    fn word(&mut self, index: u32, form: Form) -> Checked<Id> {
        let text = self.forms.text(form);
        match literal::parse(text) {
            Some(Ok(value)) => return Ok(self.literal(value)),
            Some(Err(why)) => {
                return Err(self.note(Problem::new(Code::Value, form.span, why.what, "in this number").help(why.fix)));
            }
            None => {}
        }
        match self.scope.find(text) {
            Some(Meaning::Reg { reg, ty, .. }) => Ok(self.add(Expr::Reg(reg), ty, 0)),
            Some(Meaning::Const(value)) => Ok(self.literal(value)),
            None if text.starts_with("__") => Err(self.note(reserved(form.span, text))),
            None if self.bound_later(index, text) => {
                let reg = self.scope.local(form.span, Type::Num, self.problems)?;
                Ok(self.add(Expr::Reg(reg), Type::Num, 0))
            }
            None => {
                let help = match self.scope.nearest(text) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("declare it in (def ({text} 0)), or set it first with (:= {text} …)"),
                };
                Err(self.note(
                    Problem::new(
                        Code::UnknownName,
                        form.span,
                        format!("`{text}` is not declared"),
                        "unknown name",
                    )
                    .help(help),
                ))
            }
        }
    }

    /// A local may be read in the text before it is bound: it holds what the call before left there.
    #[cold]
    fn bound_later(&self, index: u32, name: &str) -> bool {
        let mut previous = "";
        for at in index.. {
            let Some(form) = self.forms.at(at) else { return false };
            let text = self.forms.text(form);
            if text == name && matches!(previous, ":=" | "bind") {
                return true;
            }
            previous = text;
        }
        false
    }

    fn literal(&mut self, value: Literal) -> Id {
        match value.normal() {
            Literal::Num(value) => self.add(Expr::Num(value), Type::Num, 0),
            Literal::Bool(value) => self.add(Expr::Bool(value), Type::Bool, 0),
            Literal::Ratio(ratio) => self.add(Expr::Ratio(ratio), Type::Num, 0),
        }
    }

    fn operation(&mut self, index: u32, form: Form) -> Checked<Id> {
        let mut parts = self.forms.children(index);
        let Some(head) = parts.next() else {
            return Err(self.note(Problem::new(
                Code::Syntax,
                form.span,
                "`()` is no value",
                "expected an operator",
            )));
        };
        let head = self.forms.get(head);
        let name = self.forms.text(head);
        let Some(shape) = operator(name) else {
            let problem = match name {
                ":=" | "bind" => Problem::new(
                    Code::Syntax,
                    form.span,
                    "a bind is a statement, it has no value",
                    "expected a value",
                )
                .help("make it a statement of its own before this one"),
                "report" | "fallthrough" | "reset" | "do" => Problem::new(
                    Code::Syntax,
                    form.span,
                    format!("({name}) is a statement, it has no value"),
                    "expected a value",
                )
                .help("a clause is (when condition statement …)"),
                _ => self.unknown_head(head, name, "operator"),
            };
            return Err(self.note(problem));
        };
        match shape {
            Shape::Chain(op) => self.chain(form, name, parts, op, Type::Num),
            Shape::Logic(op) => self.chain(form, name, parts, op, Type::Bool),
            Shape::Pair(op) | Shape::Compare(op) | Shape::Same(op) => self.pair(form, name, parts, shape, op),
            Shape::Not => {
                let [operand] = self.operands(form, name, parts, "(! x)")?;
                let operand = self.condition(operand)?;
                Ok(self.not(operand))
            }
            Shape::If | Shape::NotIf => self.choose(form, name, parts, shape == Shape::NotIf),
            Shape::Ewma => Err(self.note(needs_variable(form.span, name, "(:= x (ewma 0.875 sample))"))),
        }
    }

    fn operands<const N: usize>(
        &mut self,
        form: Form,
        name: &str,
        mut parts: Children<'_>,
        example: &str,
    ) -> Checked<[u32; N]> {
        let found = parts.clone().count();
        let mut operands = [0; N];
        for operand in &mut operands {
            *operand = parts.next().unwrap_or(form.next);
        }
        if found == N {
            return Ok(operands);
        }
        let what = format!(
            "`{name}` takes {N} operand{}, not {found}",
            if N == 1 { "" } else { "s" }
        );
        let label = if found < N {
            "too few operands"
        } else {
            "too many operands"
        };
        Err(self.note(Problem::new(Code::Syntax, form.span, what, label).help(format!("write {example}"))))
    }

    /// `+ * max min && ||`, of two or more operands.
    fn chain(&mut self, form: Form, name: &str, parts: Children<'_>, op: Op, ty: Type) -> Checked<Id> {
        if parts.clone().nth(1).is_none() {
            let what = format!("`{name}` takes at least two operands");
            return Err(self.note(
                Problem::new(Code::Syntax, form.span, what, "too few operands").help(format!("write ({name} a b)")),
            ));
        }
        let mut fold = Fold::new(op);
        let mut rest = None;
        let mut failed = false;
        for part in parts {
            let operand = if ty == Type::Num {
                self.number(part)
            } else {
                self.condition(part)
            };
            let Ok(operand) = operand else {
                failed = true;
                continue;
            };
            let span = self.forms.get(part).span;
            match self.tree.node(operand).expr {
                Expr::Ratio(_) if op != Op::Mul => {
                    failed = true;
                    self.problems.push(not_whole(span));
                }
                Expr::Ratio(ratio) => fold.ratio(ratio),
                Expr::Num(value) => fold.num(value),
                Expr::Bool(value) => fold.num(u64::from(value)),
                _ => {
                    rest = Some(match rest {
                        Some(left) => self.binary(op, left, operand, ty),
                        None => operand,
                    });
                }
            }
        }
        if failed {
            return Err(Noted);
        }
        let constant = match fold.finish() {
            Ok(constant) => constant,
            Err(why) => return Err(self.overflow(form.span, why)),
        };
        Ok(match (rest, constant) {
            (None, fold::Constant::None) => return Err(Noted),
            (Some(rest), fold::Constant::None) => rest,
            (Some(rest), fold::Constant::Ratio(ratio)) => self.scale(rest, ratio),
            (None, fold::Constant::Ratio(ratio)) => self.add(Expr::Ratio(ratio), Type::Num, 0),
            (Some(rest), fold::Constant::Num(value)) if ty == Type::Bool => match (op, value != 0) {
                (Op::And, true) | (Op::Or, false) => rest,
                (_, value) => self.add(Expr::Bool(value), Type::Bool, 0),
            },
            (None, fold::Constant::Num(value)) if ty == Type::Bool => self.add(Expr::Bool(value != 0), Type::Bool, 0),
            (Some(rest), fold::Constant::Num(value)) if (op, value) == (Op::Add, 0) || (op, value) == (Op::Mul, 1) => {
                rest
            }
            (Some(rest), fold::Constant::Num(value)) => {
                let right = self.add(Expr::Num(value), Type::Num, 0);
                self.binary(op, rest, right, Type::Num)
            }
            (None, fold::Constant::Num(value)) => self.add(Expr::Num(value), Type::Num, 0),
        })
    }

    #[cold]
    fn overflow(&mut self, span: Span, why: fold::NoValue) -> Noted {
        self.note(Problem::new(Code::Value, span, why.what, "this is known before the program runs").help(why.fix))
    }

    /// `- / diff wrapped_max` and comparisons.
    fn pair(&mut self, form: Form, name: &str, parts: Children<'_>, shape: Shape, op: Op) -> Checked<Id> {
        let example = if matches!(op, Op::Sub | Op::Div) {
            format!("({name} a b); nest it for more: ({name} ({name} a b) c)")
        } else {
            format!("({name} a b)")
        };
        let [left_at, right_at] = self.operands(form, name, parts, &example)?;
        let (left, right) = (self.value(left_at), self.value(right_at));
        let (mut left, mut right) = (left?, right?);
        let (left_form, right_form) = (self.forms.get(left_at), self.forms.get(right_at));
        if let Shape::Same(_) = shape {
            let ty = self.tree.node(left).ty;
            right = self.expect(right, ty, right_form)?;
        } else {
            let checked = (
                self.expect(left, Type::Num, left_form),
                self.expect(right, Type::Num, right_form),
            );
            (left, right) = (checked.0?, checked.1?);
        }
        if matches!(self.tree.node(left).expr, Expr::Ratio(_)) || matches!(self.tree.node(right).expr, Expr::Ratio(_)) {
            return self.divide(op, (left, left_form.span), (right, right_form.span), form);
        }
        let ty = if let Shape::Pair(_) = shape {
            Type::Num
        } else {
            Type::Bool
        };
        if let (Some(a), Some(b)) = (self.tree.constant(left), self.tree.constant(right))
            && let Some(folded) = fold::pair(op, a, b)
        {
            return match folded {
                Ok(value) if ty == Type::Bool => Ok(self.add(Expr::Bool(value != 0), ty, 0)),
                Ok(value) => Ok(self.add(Expr::Num(value), ty, 0)),
                Err(why) => Err(self.overflow(form.span, why)),
            };
        }
        if op == Op::Div && self.tree.constant(right) == Some(0) {
            return Err(self.overflow(form.span, fold::BY_ZERO));
        }
        Ok(self.binary(op, left, right, ty))
    }

    /// A pair with a ratio in it: only as a divisor, or where both sides are constants.
    fn divide(&mut self, op: Op, left: (Id, Span), right: (Id, Span), form: Form) -> Checked<Id> {
        let fraction = |expr| match expr {
            Expr::Ratio(ratio) => Some((u128::from(ratio.num), u128::from(ratio.den))),
            Expr::Num(value) => Some((u128::from(value), 1)),
            _ => None,
        };
        let (above, below) = (
            fraction(self.tree.node(left.0).expr),
            fraction(self.tree.node(right.0).expr),
        );
        let quotient = match (op, above, below) {
            (Op::Div, Some((a, b)), Some((c, d))) => fold::exact(a * d, b * c),
            (Op::Div, None, Some((c, d))) => fold::exact(d, c),
            _ => {
                let span = if matches!(self.tree.node(left.0).expr, Expr::Ratio(_)) {
                    left.1
                } else {
                    right.1
                };
                return Err(self.note(not_whole(span)));
            }
        };
        let quotient = match quotient {
            Ok(quotient) => quotient,
            Err(why) => return Err(self.overflow(form.span, why)),
        };
        Ok(match (above, quotient) {
            (None, Literal::Ratio(ratio)) => self.scale(left.0, ratio),
            (None, Literal::Num(by)) => {
                let by = self.add(Expr::Num(by), Type::Num, 0);
                self.binary(Op::Mul, left.0, by, Type::Num)
            }
            _ => self.literal(quotient),
        })
    }

    /// `(if c a b)` as a value.
    fn choose(&mut self, form: Form, name: &str, parts: Children<'_>, negated: bool) -> Checked<Id> {
        if parts.clone().count() == 2 {
            return Err(self.note(needs_variable(form.span, name, "(:= x (if condition value))")));
        }
        let [cond, a, b] = self.operands(form, name, parts, &format!("({name} condition value otherwise)"))?;
        let (a_form, b_form) = (self.forms.get(a), self.forms.get(b));
        let (cond, a, b) = (self.condition(cond), self.value(a), self.value(b));
        let (cond, a, b) = (cond?, self.whole(a?, a_form.span)?, self.whole(b?, b_form.span)?);
        let ty = self.tree.node(a).ty;
        let b = self.expect(b, ty, b_form)?;
        let (a, b) = if negated { (b, a) } else { (a, b) };
        if let Some(cond) = self.tree.constant(cond) {
            return Ok(if cond != 0 { a } else { b });
        }
        let mut needs = [cond, a, b].map(|id| self.tree.node(id).needs);
        needs.sort_unstable();
        let needs = needs[2].max(needs[1].saturating_add(1)).max(needs[0].saturating_add(2));
        Ok(self.add(Expr::Choose(cond, a, b), ty, needs))
    }

    fn add(&mut self, expr: Expr, ty: Type, needs: u8) -> Id {
        let id = Id(self.tree.nodes.len() as u32);
        self.tree.nodes.push(Node { expr, ty, needs });
        id
    }

    fn binary(&mut self, op: Op, left: Id, right: Id, ty: Type) -> Id {
        let needs = self.needs(left, right);
        self.add(Expr::Binary(op, left, right), ty, needs)
    }

    fn scale(&mut self, value: Id, ratio: Ratio) -> Id {
        let needs = self.tree.node(value).needs.max(1);
        self.add(Expr::Scale(value, ratio), Type::Num, needs)
    }

    fn not(&mut self, operand: Id) -> Id {
        match self.tree.constant(operand) {
            Some(value) => self.add(Expr::Bool(value == 0), Type::Bool, 0),
            None => {
                let needs = self.tree.node(operand).needs.max(1);
                self.add(Expr::Not(operand), Type::Bool, needs)
            }
        }
    }

    /// Sethi-Ullman: equally needy operands take one temporary more than either, others no more than the needier.
    fn needs(&self, left: Id, right: Id) -> u8 {
        let (left, right) = (self.tree.node(left).needs, self.tree.node(right).needs);
        if left == right {
            left.saturating_add(1)
        } else {
            left.max(right)
        }
    }
}

fn read_only(span: Span, name: &str) -> Problem {
    Problem::new(Code::ReadOnly, span, format!("`{name}` cannot be set"), "read only").help(
        "programs set their own variables and Micros, Cwnd, Rate and Ssthresh; signals and constants are only read",
    )
}

fn reserved(span: Span, name: &str) -> Problem {
    let help = match name {
        "__shouldReport" => "write (report)",
        "__shouldContinue" => "write (fallthrough)",
        "__eventFlag" => "the condition of the (when …) decides",
        _ => "names may not begin with __",
    };
    Problem::new(
        Code::Name,
        span,
        format!("`{name}` is reserved"),
        "not a name for programs",
    )
    .help(help)
}

fn needs_variable(span: Span, name: &str, example: &str) -> Problem {
    let what = format!("this `{name}` keeps what a variable held, so it stands directly right of :=");
    let mut problem = Problem::new(Code::Syntax, span, what, "no variable here");
    problem = match name {
        "ewma" => problem.help(format!("write {example} and then use x")),
        _ => problem.help(format!(
            "write {example}, or give it an else: ({name} condition value otherwise)"
        )),
    };
    problem
}

/// The part of `span` up to the end of its first line.
fn first_line(span: Span, forms: &Forms<'_>) -> Span {
    let text = &forms.source[span.start as usize..span.end as usize];
    let end = text.find('\n').map_or(span.end, |at| span.start + at as u32);
    Span { start: span.start, end }
}

/// Text for a hint; what is long is only hinted at.
fn shorten(text: &str) -> &str {
    const LONGEST: usize = 32;
    if text.len() <= LONGEST && !text.contains('\n') {
        text
    } else {
        "…"
    }
}
