//! Operators: names, operand types, and constant folding.

use ccplane_datapath::{INSTRS_MAX, Op};

use crate::check::{CheckResult, Checker, not_whole_number};
use crate::diagnostics::{DiagnosticCode, Problem, ReportedError, Span};
use crate::fold::{self, Fold};
use crate::literal::Literal;
use crate::reader::{Children, Form};
use crate::tree::{Expr, Id, Type};

/// Types and number of the operands of an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperandShape {
    /// Two or more numbers to a number.
    Chain(Op),
    /// Two numbers to a number.
    Pair(Op),
    /// Two numbers to a boolean.
    Compare(Op),
    /// Two values of the same type to a boolean.
    Same(Op),
    /// Two or more booleans to a boolean.
    Logic(Op),
    Not,
    If,
    NotIf,
    Ewma,
}

pub(crate) fn operator(name: &str) -> Option<OperandShape> {
    Some(match name {
        "+" | "add" => OperandShape::Chain(Op::Add),
        "*" | "mul" => OperandShape::Chain(Op::Mul),
        "max" => OperandShape::Chain(Op::Max),
        "min" => OperandShape::Chain(Op::Min),
        "-" | "sub" => OperandShape::Pair(Op::Sub),
        "/" | "div" => OperandShape::Pair(Op::Div),
        "diff" => OperandShape::Pair(Op::Diff),
        "wrapped_max" => OperandShape::Pair(Op::MaxWrap),
        ">" | "gt" => OperandShape::Compare(Op::Gt),
        "<" | "lt" => OperandShape::Compare(Op::Lt),
        ">=" => OperandShape::Compare(Op::Ge),
        "<=" => OperandShape::Compare(Op::Le),
        "==" | "eq" => OperandShape::Same(Op::Eq),
        "!=" => OperandShape::Same(Op::Ne),
        "&&" | "and" => OperandShape::Logic(Op::And),
        "||" | "or" => OperandShape::Logic(Op::Or),
        "!" => OperandShape::Not,
        "if" => OperandShape::If,
        "!if" => OperandShape::NotIf,
        "ewma" => OperandShape::Ewma,
        _ => return None,
    })
}

/// All words that may follow `(`, for suggestions.
pub(crate) const FORM_HEADS: &str = "+ add * mul max min - sub / div diff wrapped_max > gt < lt >= \
                                     <= == eq != && and || or ! if !if ewma := bind report \
                                     fallthrough reset do when";

impl Checker<'_, '_> {
    pub fn operation(&mut self, index: u32, form: Form) -> CheckResult<Id> {
        let mut parts = self.forms.children(index);
        let Some(head) = parts.next() else {
            return Err(self.report(Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "`()` is not a value",
                "expected an operator",
            )));
        };
        let head = self.forms.get(head);
        let name = self.forms.text(head);
        let Some(shape) = operator(name) else {
            let problem = match name {
                ":=" | "bind" => Problem::new(
                    DiagnosticCode::Syntax,
                    form.span,
                    "a bind is a statement and has no value",
                    "expected a value",
                )
                .with_help("make it a statement of its own before this one"),
                "report" | "fallthrough" | "reset" | "do" => Problem::new(
                    DiagnosticCode::Syntax,
                    form.span,
                    format!("({name}) is a statement and has no value"),
                    "expected a value",
                )
                .with_help("a clause is (when condition statement …)"),
                _ => self.unknown_head(head, name, "operator"),
            };
            return Err(self.report(problem));
        };
        match shape {
            OperandShape::Chain(op) => self.chain(form, name, parts, op, Type::Num),
            OperandShape::Logic(op) => self.chain(form, name, parts, op, Type::Bool),
            OperandShape::Pair(op) | OperandShape::Compare(op) | OperandShape::Same(op) => {
                self.pair(form, name, parts, shape, op)
            }
            OperandShape::Not => {
                let [operand] = self.operands(form, name, parts)?;
                let operand = self.condition(operand)?;
                Ok(self.tree.not(operand))
            }
            OperandShape::If | OperandShape::NotIf => {
                self.choose(form, name, parts, shape == OperandShape::NotIf)
            }
            OperandShape::Ewma => Err(self.report(needs_variable(
                form.span,
                name,
                "(:= x (ewma 0.875 sample))",
            ))),
        }
    }

    /// Returns the operands if there are exactly N.
    pub fn operands<const N: usize>(
        &mut self,
        form: Form,
        name: &str,
        mut parts: Children<'_>,
    ) -> CheckResult<[u32; N]> {
        let found = parts.clone().count();
        if found != N {
            return Err(self.wrong_count(form, name, N, found));
        }
        Ok(std::array::from_fn(|_| {
            parts.next().unwrap_or(form.next_sibling)
        }))
    }

    #[cold]
    fn wrong_count(
        &mut self,
        form: Form,
        name: &str,
        wanted: usize,
        found: usize,
    ) -> ReportedError {
        let plural = if wanted == 1 { "" } else { "s" };
        let what = format!("`{name}` takes {wanted} operand{plural}, not {found}");
        let label = if found < wanted {
            "too few operands"
        } else {
            "too many operands"
        };
        let help = match (wanted, name) {
            (1, _) => format!("write ({name} x)"),
            (3, _) => format!("write ({name} condition value otherwise)"),
            (_, "-" | "/") if found > wanted => format!("write ({name} ({name} a b) c)"),
            _ => format!("write ({name} a b)"),
        };
        self.report(Problem::new(DiagnosticCode::Syntax, form.span, what, label).with_help(help))
    }

    /// Checks `+ * max min && ||` with two or more operands.
    fn chain(
        &mut self,
        form: Form,
        name: &str,
        parts: Children<'_>,
        op: Op,
        ty: Type,
    ) -> CheckResult<Id> {
        if parts.clone().nth(1).is_none() {
            let what = format!("`{name}` takes at least two operands");
            let problem = Problem::new(DiagnosticCode::Syntax, form.span, what, "too few operands");
            return Err(self.report(problem.with_help(format!("write ({name} a b)"))));
        }
        let mut fold = Fold::new(op);
        let mut rest = None;
        let mut failed = None;
        for part in parts {
            let operand = if ty == Type::Num {
                self.number(part)
            } else {
                self.condition(part)
            };
            let operand = match operand {
                Ok(operand) => operand,
                Err(noted) => {
                    failed = Some(noted);
                    continue;
                }
            };
            match self.tree.node(operand).expr {
                Expr::Ratio(_) if op != Op::Mul => {
                    failed = Some(self.report(not_whole_number(self.forms.get(part).span)))
                }
                Expr::Ratio(ratio) => fold.ratio(ratio),
                Expr::Num(value) => fold.num(value),
                Expr::Bool(value) => fold.num(u64::from(value)),
                _ => rest = Some(self.append_operand(form, op, ty, rest, operand)?),
            }
        }
        if let Some(noted) = failed {
            return Err(noted);
        }
        let constant = match fold.finish() {
            Ok(constant) => constant,
            Err(why) => return Err(self.overflow(form.span, why)),
        };
        Ok(match (rest, constant) {
            (Some(rest), None) => rest,
            (Some(rest), Some(constant)) => self.with_constant(op, rest, constant),
            (None, constant) if ty == Type::Bool => {
                self.literal(Literal::Bool(constant == Some(Literal::Num(1))))
            }
            (None, constant) => self.literal(constant.unwrap_or(Literal::Num(0))),
        })
    }

    /// Adds an operand to a chain.
    fn append_operand(
        &mut self,
        form: Form,
        op: Op,
        ty: Type,
        rest: Option<Id>,
        operand: Id,
    ) -> CheckResult<Id> {
        let Some(left) = rest else { return Ok(operand) };
        let chained = self.tree.add(Expr::Binary(op, left, operand), ty);
        // Refused here rather than by the length of the program, as all later passes recurse into
        // such a value.
        if self.tree.node(chained).height as usize > INSTRS_MAX {
            let what = format!("an expression of more than {INSTRS_MAX} operations");
            return Err(self.report(Problem::new(
                DiagnosticCode::Limit,
                form.span,
                what,
                "too long",
            )));
        }
        Ok(chained)
    }

    /// Combines the non-constant operands of a chain with the folded constant.
    fn with_constant(&mut self, op: Op, rest: Id, constant: Literal) -> Id {
        match (op, constant) {
            (_, Literal::Ratio(ratio)) => self.tree.add(Expr::Scale(rest, ratio), Type::Num),
            (Op::And | Op::Mul, Literal::Num(1)) | (Op::Or | Op::Add, Literal::Num(0)) => rest,
            (Op::And | Op::Or, Literal::Num(value)) => self.literal(Literal::Bool(value != 0)),
            // Otherwise the other operands could overflow before they are multiplied by 0.
            (Op::Mul, Literal::Num(0)) => self.literal(constant),
            _ => {
                let right = self.literal(constant);
                self.tree.add(Expr::Binary(op, rest, right), Type::Num)
            }
        }
    }

    #[cold]
    fn overflow(&mut self, span: Span, why: fold::NoValue) -> ReportedError {
        self.report(
            Problem::new(
                DiagnosticCode::Value,
                span,
                why.problem,
                "detected at compile time",
            )
            .with_help(why.fix),
        )
    }

    /// Checks `- / diff wrapped_max` and comparisons.
    fn pair(
        &mut self,
        form: Form,
        name: &str,
        parts: Children<'_>,
        shape: OperandShape,
        op: Op,
    ) -> CheckResult<Id> {
        let [left_at, right_at] = self.operands(form, name, parts)?;
        let (left, right) = (self.value(left_at), self.value(right_at));
        let (mut left, mut right) = (left?, right?);
        let (left_form, right_form) = (self.forms.get(left_at), self.forms.get(right_at));
        if let OperandShape::Same(_) = shape {
            let ty = self.tree.node(left).ty;
            right = self.expect_type(right, ty, right_form)?;
        } else {
            let checked = (
                self.expect_type(left, Type::Num, left_form),
                self.expect_type(right, Type::Num, right_form),
            );
            (left, right) = (checked.0?, checked.1?);
        }
        if matches!(self.tree.node(left).expr, Expr::Ratio(_))
            || matches!(self.tree.node(right).expr, Expr::Ratio(_))
        {
            return self.divide(op, (left, left_form.span), (right, right_form.span), form);
        }
        let ty = if let OperandShape::Pair(_) = shape {
            Type::Num
        } else {
            Type::Bool
        };
        if let (Some(a), Some(b)) = (self.tree.constant(left), self.tree.constant(right))
            && let Some(folded) = fold::fold_pair(op, a, b)
        {
            return match folded {
                Ok(value) if ty == Type::Bool => Ok(self.tree.add(Expr::Bool(value != 0), ty)),
                Ok(value) => Ok(self.tree.add(Expr::Num(value), ty)),
                Err(why) => Err(self.overflow(form.span, why)),
            };
        }
        if op == Op::Div && self.tree.constant(right) == Some(0) {
            return Err(self.overflow(form.span, fold::DIVISION_BY_ZERO));
        }
        Ok(self.tree.add(Expr::Binary(op, left, right), ty))
    }

    /// Checks a pair with a ratio: allowed only as a divisor, or if both sides are constant.
    fn divide(
        &mut self,
        op: Op,
        left: (Id, Span),
        right: (Id, Span),
        form: Form,
    ) -> CheckResult<Id> {
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
            (Op::Div, Some((a, b)), Some((c, d))) => fold::exact_quotient(a * d, b * c),
            (Op::Div, None, Some((c, d))) => fold::exact_quotient(d, c),
            _ => {
                let span = if matches!(self.tree.node(left.0).expr, Expr::Ratio(_)) {
                    left.1
                } else {
                    right.1
                };
                return Err(self.report(not_whole_number(span)));
            }
        };
        let quotient = match quotient {
            Ok(quotient) => quotient,
            Err(why) => return Err(self.overflow(form.span, why)),
        };
        Ok(match (above, quotient) {
            (None, Literal::Ratio(ratio)) => self.tree.add(Expr::Scale(left.0, ratio), Type::Num),
            (None, Literal::Num(by)) => {
                let by = self.tree.add(Expr::Num(by), Type::Num);
                self.tree.add(Expr::Binary(Op::Mul, left.0, by), Type::Num)
            }
            _ => self.literal(quotient),
        })
    }

    /// Checks `(if c a b)` as a value.
    fn choose(
        &mut self,
        form: Form,
        name: &str,
        parts: Children<'_>,
        negated: bool,
    ) -> CheckResult<Id> {
        if parts.clone().count() == 2 {
            return Err(self.report(needs_variable(
                form.span,
                name,
                "(:= x (if condition value))",
            )));
        }
        let [cond, a, b] = self.operands(form, name, parts)?;
        let (a_form, b_form) = (self.forms.get(a), self.forms.get(b));
        let (cond, a, b) = (self.condition(cond), self.value(a), self.value(b));
        let (cond, a, b) = (
            cond?,
            self.expect_whole(a?, a_form.span)?,
            self.expect_whole(b?, b_form.span)?,
        );
        let ty = self.tree.node(a).ty;
        let b = self.expect_type(b, ty, b_form)?;
        let (a, b) = if negated { (b, a) } else { (a, b) };
        if let Some(cond) = self.tree.constant(cond) {
            return Ok(if cond != 0 { a } else { b });
        }
        Ok(self.tree.add(Expr::Choose(cond, a, b), ty))
    }
}

fn needs_variable(span: Span, name: &str, example: &str) -> Problem {
    let what = format!(
        "this `{name}` keeps a variable's old value, so it must be the whole right side of :="
    );
    let help = match name {
        "ewma" => format!("write {example} and then use x"),
        _ => format!("write {example}, or give it an else: ({name} condition value otherwise)"),
    };
    Problem::new(DiagnosticCode::Syntax, span, what, "no variable to keep").with_help(help)
}
