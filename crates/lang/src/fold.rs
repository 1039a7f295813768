//! Exact evaluation of constant expressions. An expression without a value is a compile error, not
//! a fault of the flow.

use ccplane_datapath::Op;

use crate::literal::Literal;
use crate::tree::Ratio;

/// Reason why a constant expression has no value.
pub(crate) struct NoValue {
    pub problem: &'static str,
    pub fix: &'static str,
}

pub(crate) const DIVISION_BY_ZERO: NoValue = NoValue {
    problem: "division by zero",
    fix: "use a divisor other than 0",
};
const VALUE_OVERFLOW: NoValue = NoValue {
    problem: "this value does not fit in 64 bits",
    fix: "the largest value is 18446744073709551615",
};
const NEGATIVE_VALUE: NoValue = NoValue {
    problem: "this value is negative",
    fix: "there are no negative numbers; (diff a b) is a difference that stops at 0",
};
const RATIO_PRECISION_LOSS: NoValue = NoValue {
    problem: "too many digits for a ratio",
    fix: "both terms of the reduced ratio must fit in 32 bits",
};

/// Returns `num / den` as a literal, a whole number if possible.
pub(crate) fn exact_quotient(num: u128, den: u128) -> Result<Literal, NoValue> {
    if den == 0 {
        return Err(DIVISION_BY_ZERO);
    }
    if num.is_multiple_of(den) {
        return u64::try_from(num / den)
            .map(Literal::Num)
            .map_err(|_| VALUE_OVERFLOW);
    }
    Ratio::new(num, den)
        .map(Literal::Ratio)
        .ok_or(RATIO_PRECISION_LOSS)
}

/// Evaluates an operator on two whole constants; `None` if it is left to the datapath.
pub(crate) fn fold_pair(op: Op, a: u64, b: u64) -> Option<Result<u64, NoValue>> {
    Some(match op {
        Op::Add => a.checked_add(b).ok_or(VALUE_OVERFLOW),
        Op::Sub => a.checked_sub(b).ok_or(NEGATIVE_VALUE),
        Op::Mul => a.checked_mul(b).ok_or(VALUE_OVERFLOW),
        Op::Div => a.checked_div(b).ok_or(DIVISION_BY_ZERO),
        Op::Diff => Ok(a.saturating_sub(b)),
        Op::Max => Ok(a.max(b)),
        Op::Min => Ok(a.min(b)),
        Op::Eq => Ok(u64::from(a == b)),
        Op::Ne => Ok(u64::from(a != b)),
        Op::Gt => Ok(u64::from(a > b)),
        Op::Ge => Ok(u64::from(a >= b)),
        Op::Lt => Ok(u64::from(a < b)),
        Op::Le => Ok(u64::from(a <= b)),
        Op::And => Ok(u64::from(a != 0 && b != 0)),
        Op::Or => Ok(u64::from(a != 0 || b != 0)),
        _ => return None,
    })
}

/// Constants among the operands of `+ * max min && ||`. They may be combined, as the operators
/// commute.
pub(crate) struct Fold {
    op: Op,
    value: Option<u64>,
    /// Product of the ratios, if there was one.
    ratio: Option<Ratio>,
    error: Option<NoValue>,
}

impl Fold {
    pub fn new(op: Op) -> Fold {
        Fold {
            op,
            value: None,
            ratio: None,
            error: None,
        }
    }

    pub fn num(&mut self, value: u64) {
        match self
            .value
            .map_or(Some(Ok(value)), |before| fold_pair(self.op, before, value))
        {
            Some(Ok(value)) => self.value = Some(value),
            Some(Err(why)) => self.error = Some(why),
            None => {}
        }
    }

    pub fn ratio(&mut self, ratio: Ratio) {
        let Ratio { num, den } = self.ratio.unwrap_or(Ratio { num: 1, den: 1 });
        let product = |a: u32, b: u32| u128::from(a) * u128::from(b);
        match Ratio::new(product(num, ratio.num), product(den, ratio.den)) {
            Some(ratio) => self.ratio = Some(ratio),
            None => self.error = Some(RATIO_PRECISION_LOSS),
        }
    }

    /// Returns the combined constant; `None` if there were no constants.
    pub fn finish(self) -> Result<Option<Literal>, NoValue> {
        match (self.error, self.ratio) {
            (Some(why), _) => Err(why),
            (None, None) => Ok(self.value.map(Literal::Num)),
            (None, Some(Ratio { num, den })) => exact_quotient(
                u128::from(num) * u128::from(self.value.unwrap_or(1)),
                den.into(),
            )
            .map(Some),
        }
    }
}
