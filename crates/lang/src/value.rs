//! Values: atoms, and the forms that may only be the right-hand side of `:=`.

use crate::check::{CheckResult, Checker, abbreviate, not_whole_number, reserved};
use crate::diagnostics::{DiagnosticCode, Problem, Span};
use crate::literal::{self, Literal};
use crate::operation::{OperandShape, operator};
use crate::reader::{Children, Form, TokenKind};
use crate::scope::Binding;
use crate::tree::{Expr, Id, Ratio, Type};

impl Checker<'_, '_> {
    /// Checks the right-hand side of `:=`, where the forms that may keep the variable's value are
    /// allowed too.
    pub fn assigned_value(&mut self, index: u32) -> CheckResult<Id> {
        let form = self.forms.get(index);
        let mut parts = self.forms.children(index);
        let Some(head) = parts.next() else {
            return self.value(index);
        };
        let shape = operator(self.forms.text(self.forms.get(head)));
        match (shape, parts.clone().count()) {
            (Some(OperandShape::If), 2) => self.conditional_update(form, parts, Expr::If),
            (Some(OperandShape::NotIf), 2) => self.conditional_update(form, parts, Expr::NotIf),
            (Some(OperandShape::Ewma), _) => self.ewma(form, parts),
            _ => self.value(index),
        }
    }

    /// Checks `(if c v)` and `(!if c v)`.
    fn conditional_update(
        &mut self,
        form: Form,
        parts: Children<'_>,
        make: fn(Id, Id) -> Expr,
    ) -> CheckResult<Id> {
        let [cond, value] = self.operands(form, "if", parts)?;
        let span = self.forms.get(value).span;
        let (cond, value) = (self.condition(cond), self.value(value));
        let (cond, value) = (cond?, self.expect_whole(value?, span)?);
        let ty = self.tree.node(value).ty;
        Ok(self.tree.add(make(cond, value), ty))
    }

    /// Checks `(ewma weight x)`: a weight of 7, as in CCP, is 7/10.
    fn ewma(&mut self, form: Form, mut parts: Children<'_>) -> CheckResult<Id> {
        let (Some(weight), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
            let problem = Problem::new(
                DiagnosticCode::Syntax,
                form.span,
                "`ewma` takes a weight and a value",
                "wrong number of operands",
            )
            .with_help("(:= x (ewma 0.875 sample)) keeps 7/8 of the old value");
            return Err(self.report(problem));
        };
        let weight_form = self.forms.get(weight);
        let value_span = self.forms.get(value).span;
        let written = self.weight(weight_form);
        let (weight, value) = (self.number(weight), self.number(value));
        let (weight, value) = (weight?, self.expect_whole(value?, value_span)?);
        let ratio = match (written, self.tree.node(weight).expr) {
            (Some(ratio), _) | (None, Expr::Ratio(ratio)) => Some(ratio),
            (None, Expr::Num(tenths)) => Ratio::new(u128::from(tenths), 10),
            _ => return Ok(self.tree.add(Expr::EwmaVar(weight, value), Type::Num)),
        };
        match ratio {
            Some(ratio) if ratio.num <= ratio.den => {
                Ok(self.tree.add(Expr::Ewma(ratio, value), Type::Num))
            }
            _ => Err(self.report(
                Problem::new(
                    DiagnosticCode::Value,
                    weight_form.span,
                    "the weight must be between 0 and 1",
                    "greater than 1",
                )
                .with_help(
                    "a whole number means tenths of the old value, as in CCP: (ewma 7 x) keeps \
                     7/10; or write 0.875 or 7/8",
                ),
            )),
        }
    }

    /// Parses a weight written as a decimal or ratio, directly or as a constant.
    fn weight(&self, form: Form) -> Option<Ratio> {
        let text = self.forms.text(form);
        let literal = match literal::parse(text) {
            Some(literal) => literal.ok()?,
            None if form.kind == TokenKind::Word => match self.scope.resolve(text)? {
                Binding::Const(literal) => literal,
                Binding::Reg { .. } => return None,
            },
            None => return None,
        };
        match literal {
            Literal::Ratio(ratio) => Some(ratio),
            _ => None,
        }
    }

    /// Checks a boolean.
    pub fn condition(&mut self, index: u32) -> CheckResult<Id> {
        let id = self.value(index)?;
        self.expect_type(id, Type::Bool, self.forms.get(index))
    }

    /// Checks a number, which may be a ratio.
    pub fn number(&mut self, index: u32) -> CheckResult<Id> {
        let id = self.value(index)?;
        self.expect_type(id, Type::Num, self.forms.get(index))
    }

    pub fn expect_type(&mut self, id: Id, wanted: Type, form: Form) -> CheckResult<Id> {
        let ty = self.tree.node(id).ty;
        if ty == wanted {
            return Ok(id);
        }
        let text = abbreviate(self.forms.text(form));
        let fix = match wanted {
            Type::Bool => format!("compare it: (!= {text} 0)"),
            Type::Num => format!("convert it to a number: (if {text} 1 0)"),
        };
        let what = format!("expected {}, found {}", wanted.noun(), ty.noun());
        Err(self.report(
            Problem::new(
                DiagnosticCode::Type,
                form.span,
                what,
                format!("expected {}", wanted.noun()),
            )
            .with_help(fix),
        ))
    }

    /// Refuses a ratio where only whole numbers are allowed.
    pub fn expect_whole(&mut self, id: Id, span: Span) -> CheckResult<Id> {
        if matches!(self.tree.node(id).expr, Expr::Ratio(_)) {
            return Err(self.report(not_whole_number(span)));
        }
        Ok(id)
    }

    /// Checks a value of either type; a number may be a ratio.
    pub fn value(&mut self, index: u32) -> CheckResult<Id> {
        let form = self.forms.get(index);
        match form.kind {
            TokenKind::Word => self.name_or_literal(form),
            TokenKind::Sign => {
                let text = self.forms.text(form);
                let help = if text == "-" {
                    "there are no negative numbers; (diff a b) is a difference that stops at 0"
                } else {
                    "the operator comes first: (+ a b)"
                };
                Err(self.report(
                    Problem::new(
                        DiagnosticCode::Syntax,
                        form.span,
                        format!("`{text}` is an operator, not a value"),
                        "expected a value",
                    )
                    .with_help(help),
                ))
            }
            TokenKind::List => self.operation(index, form),
        }
    }

    fn name_or_literal(&mut self, form: Form) -> CheckResult<Id> {
        let text = self.forms.text(form);
        match literal::parse(text) {
            Some(Ok(value)) => return Ok(self.literal(value)),
            Some(Err(why)) => {
                return Err(self.report(
                    Problem::new(DiagnosticCode::Value, form.span, why.what, "in this number")
                        .with_help(why.fix),
                ));
            }
            None => {}
        }
        match self.scope.resolve(text) {
            Some(Binding::Reg { reg, ty, .. }) => Ok(self.tree.add(Expr::Reg(reg), ty)),
            Some(Binding::Const(value)) => Ok(self.literal(value)),
            None if text.starts_with("__") => Err(self.report(reserved(form.span, text))),
            None => {
                let help = match self.scope.nearest(text) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if text.starts_with("Flow.") || text.starts_with("Ack.") => {
                        "there is no such signal; docs/language.md lists them".to_owned()
                    }
                    None => format!(
                        "declare it in (def ({text} 0)), or set it first with (:= {text} …)"
                    ),
                };
                Err(self.report(
                    Problem::new(
                        DiagnosticCode::UnknownName,
                        form.span,
                        format!("`{text}` is not declared"),
                        "unknown name",
                    )
                    .with_help(help),
                ))
            }
        }
    }

    pub fn literal(&mut self, value: Literal) -> Id {
        match value.normal() {
            Literal::Num(value) => self.tree.add(Expr::Num(value), Type::Num),
            Literal::Bool(value) => self.tree.add(Expr::Bool(value), Type::Bool),
            Literal::Ratio(ratio) => self.tree.add(Expr::Ratio(ratio), Type::Num),
        }
    }
}
