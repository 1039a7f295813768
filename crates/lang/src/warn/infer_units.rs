//! Inference of units, and warnings about values with different units in one operation.
//!
//! Signals and flow state have units, and literals may have one. A variable has the unit of the
//! values that it is set to; one that is not reported and is set to values of several units has
//! none. Values set by the agent have an unknown unit, which causes no warnings.

use ccplane_datapath::reg;

use super::CompiledSource;
use super::unit::{BYTES, BYTES_PER_SECOND, MICROSECONDS, NANOSECONDS, PACKETS, Unit};
use crate::check::abbreviate;
use crate::diagnostics::{DiagnosticCode, Problem, Problems};
use crate::literal::{self, Literal, Measure};
use crate::operation::{OperandShape, operator};
use crate::scope::Binding;
use crate::tree::Ratio;

/// Maximum iterations. Only longer chains of variables set to each other need more.
const INFERENCE_ROUNDS_MAX: usize = 8;

/// Units of the signals, by register number.
const SIGNAL_UNITS: [Unit; 29] = [
    BYTES,
    BYTES,
    BYTES,
    PACKETS,
    PACKETS,
    MICROSECONDS,
    PACKETS,
    PACKETS,
    BYTES,
    BYTES,
    PACKETS,
    BYTES_PER_SECOND,
    BYTES_PER_SECOND,
    MICROSECONDS,
    Unit::Bare,
    MICROSECONDS,
    MICROSECONDS,
    BYTES,
    Unit::Bare,
    Unit::Bare,
    Unit::Bare,
    Unit::Bare,
    NANOSECONDS,
    NANOSECONDS,
    NANOSECONDS,
    NANOSECONDS,
    NANOSECONDS,
    Unit::Bare,
    Unit::Bare,
];
const _: () = assert!(SIGNAL_UNITS.len() == reg::SIGNALS_END as usize);

/// Unit of a signal or of flow state; `None` for variables.
fn builtin(register: u8) -> Option<Unit> {
    match register {
        reg::MICROS => Some(MICROSECONDS),
        reg::CWND | reg::SSTHRESH => Some(BYTES),
        reg::RATE => Some(BYTES_PER_SECOND),
        other => SIGNAL_UNITS.get(usize::from(other)).copied(),
    }
}

/// Inferred unit of a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Variable {
    unit: Unit,
    /// True if only the program reads it, which may reuse it for several quantities: a local, or a
    /// control variable that serves as state. Report variables are read by the agent.
    internal: bool,
    /// True for such a variable with values of different units.
    has_mixed_units: bool,
}

pub(super) fn check_units(text: &CompiledSource<'_, '_>, def: u32, problems: &mut Problems) {
    let unknown = Variable {
        unit: Unit::Unknown,
        internal: true,
        has_mixed_units: false,
    };
    let mut units = Units {
        text,
        literals: Vec::new(),
        variables: vec![unknown; text.scope.symbols.len()],
        converged: false,
        problems: None,
    };
    units.declarations(def);
    // In the second pass, a variable of the program's own that is also set to an unknown unit
    // counts as unknown: it is used for several quantities. In the first pass, that unit may just
    // not have been inferred yet.
    for settled in [false, true] {
        units.converged = settled;
        for _ in 0..INFERENCE_ROUNDS_MAX {
            let before = units.variables.clone();
            units.clauses();
            if units.variables == before {
                break;
            }
        }
    }
    units.problems = Some(problems);
    units.clauses();
}

struct Units<'u, 't, 's> {
    text: &'u CompiledSource<'t, 's>,
    /// Constants with a unit.
    literals: Vec<(&'s str, Measure)>,
    /// Variables by register.
    variables: Vec<Variable>,
    /// All inferable units have been inferred.
    converged: bool,
    /// Receives the warnings, once all variables are known.
    problems: Option<&'u mut Problems>,
}

impl<'s> Units<'_, '_, 's> {
    /// Collects units of literals in `(def …)`.
    fn declarations(&mut self, def: u32) {
        let mut declarations = Vec::new();
        for child in self.text.forms.children(def).skip(1) {
            match self.text.list(child) {
                Some(("Report", block))
                    if block.iter().all(|&part| self.text.list(part).is_some()) =>
                {
                    declarations.extend(block.into_iter().map(|part| (part, "Report.")));
                }
                _ => declarations.push((child, "")),
            }
        }
        for (declaration, prefix) in declarations {
            let words: Vec<&str> = self
                .text
                .forms
                .children(declaration)
                .map(|part| self.text.text(part))
                .collect();
            let (["const", name, value] | ["volatile", name, value] | [name, value]) = words[..]
            else {
                continue;
            };
            let measure = literal::measure(value).or_else(|| self.literal_unit(value));
            if words[0] == "const" {
                self.literals.extend(measure.map(|measure| (name, measure)));
            } else if let Some(Binding::Reg { reg, .. }) =
                self.text.scope.resolve(&format!("{prefix}{name}"))
                && let Some(variable) = self.variable(reg)
            {
                variable.internal = prefix.is_empty();
                variable.unit = measure.map_or(Unit::Unknown, Unit::from);
            }
        }
    }

    fn literal_unit(&self, name: &str) -> Option<Measure> {
        let found = self.literals.iter().find(|(constant, _)| *constant == name);
        found.map(|(_, measure)| *measure)
    }

    fn variable(&mut self, register: u8) -> Option<&mut Variable> {
        self.variables
            .get_mut(usize::from(register.checked_sub(reg::VARS)?))
    }

    fn clauses(&mut self) {
        let text = self.text;
        for when in text.forms.top_level().skip(1) {
            for part in text.forms.children(when).skip(1) {
                self.infer(part);
            }
        }
    }

    /// Infers the unit of a statement or value.
    fn infer(&mut self, index: u32) -> Unit {
        match self.text.list(index) {
            Some((":=" | "bind", parts)) => {
                if let [target, value] = parts[..] {
                    self.bind(target, value);
                }
                Unit::Bare
            }
            Some((head, parts)) => self.operation(index, head, &parts),
            None => self.atom(index),
        }
    }

    fn atom(&self, index: u32) -> Unit {
        let word = self.text.text(index);
        if let Some(measure) = literal::measure(word).or_else(|| self.literal_unit(word)) {
            return measure.into();
        }
        match self.text.scope.resolve(word) {
            Some(Binding::Reg { reg, .. }) => builtin(reg).unwrap_or_else(|| {
                let variable = reg
                    .checked_sub(reg::VARS)
                    .and_then(|n| self.variables.get(usize::from(n)));
                variable.map_or(Unit::Unknown, |variable| variable.unit)
            }),
            _ => Unit::Bare,
        }
    }

    fn operation(&mut self, index: u32, head: &str, parts: &[u32]) -> Unit {
        let shape = operator(head);
        match (head, shape) {
            ("*" | "mul", _) => {
                let product =
                    |units: &mut Self, unit: Unit, &part: &u32| units.scaled(unit, part, 1);
                let unit = parts
                    .iter()
                    .fold(Unit::Bare, |unit, part| product(self, unit, part));
                self.unless_converted(unit, parts)
            }
            ("/" | "div", _) => match parts {
                [above, below] => {
                    let above = self.scaled(Unit::Bare, *above, 1);
                    let unit = self.scaled(above, *below, -1);
                    self.unless_converted(unit, parts)
                }
                _ => Unit::Unknown,
            },
            (_, Some(OperandShape::Chain(_) | OperandShape::Pair(_))) => {
                self.common_unit(index, parts)
            }
            (_, Some(OperandShape::Compare(_) | OperandShape::Same(_))) => {
                self.common_unit(index, parts);
                Unit::Bare
            }
            // The weight of an average has no unit.
            (_, Some(OperandShape::Ewma)) => parts
                .iter()
                .map(|&part| self.infer(part))
                .last()
                .unwrap_or(Unit::Unknown),
            (_, Some(OperandShape::If | OperandShape::NotIf)) => match parts {
                [condition, values @ ..] => {
                    self.infer(*condition);
                    self.common_unit(index, values)
                }
                [] => Unit::Unknown,
            },
            _ => {
                for &part in parts {
                    self.infer(part);
                }
                Unit::Bare
            }
        }
    }

    /// Unit of `unit` times, or divided by, a value.
    fn scaled(&mut self, unit: Unit, index: u32, sign: i8) -> Unit {
        unit.times(self.infer(index), sign)
    }

    /// Unit of a product or quotient, unless one of its parts may be a conversion factor.
    fn unless_converted(&self, unit: Unit, parts: &[u32]) -> Unit {
        let converts = parts.iter().any(|&part| self.converts(part));
        if converts { unit.converted() } else { unit }
    }

    /// Returns true if a literal or constant may be a conversion factor.
    fn converts(&self, index: u32) -> bool {
        let word = self.text.text(index);
        let literal = match literal::parse(word) {
            Some(Ok(literal)) => literal,
            Some(Err(_)) => return false,
            None => match self.text.scope.resolve(word) {
                Some(Binding::Const(literal)) => literal,
                _ => return false,
            },
        };
        let thousands = |number: u64| number >= 1_000;
        match literal {
            Literal::Num(number) => {
                literal::measure(word)
                    .or_else(|| self.literal_unit(word))
                    .is_none()
                    && thousands(number)
            }
            Literal::Ratio(Ratio { num, den }) => thousands(den.into()) || thousands(num.into()),
            Literal::Bool(_) => false,
        }
    }

    /// Infers the common unit of the operands of a sum, comparison or choice.
    fn common_unit(&mut self, whole: u32, parts: &[u32]) -> Unit {
        let mut unit = Unit::Bare;
        // Operand that determined the unit.
        let mut first = None;
        let mut misfit = false;
        // In a choice, a misfit is reported where the value is used: µs and ns next to +infinity
        // are equivalent.
        let silent = matches!(self.text.list(whole), Some(("if" | "!if", _)));
        for &part in parts {
            let found = self.infer(part);
            match unit.unify(found) {
                Some(both) => unit = both,
                None => {
                    misfit = true;
                    if !silent {
                        self.warn_mismatch(whole, (first.unwrap_or(part), unit), (part, found));
                    }
                }
            }
            if let (Unit::Known(_), None) = (found, first) {
                first = Some(part);
            }
        }
        // Report each error only once.
        if misfit { Unit::Unknown } else { unit }
    }

    fn bind(&mut self, target: u32, value: u32) {
        let (found, settled) = (self.infer(value), self.converged);
        let Some(Binding::Reg { reg, .. }) = self.text.scope.resolve(self.text.text(target)) else {
            return;
        };
        let held = match builtin(reg) {
            Some(unit) => unit,
            None => match self.variable(reg) {
                Some(variable) if variable.has_mixed_units => return,
                Some(variable) if settled && variable.internal && found == Unit::Unknown => {
                    (variable.has_mixed_units, variable.unit) = (true, Unit::Unknown);
                    return;
                }
                Some(variable) => variable.unit,
                None => return,
            },
        };
        match held.unify(found) {
            Some(both) => {
                if let Some(variable) = self.variable(reg)
                    && let Unit::Known(_) = both
                {
                    variable.unit = both;
                }
            }
            None => match self.variable(reg) {
                Some(variable) if variable.internal => {
                    (variable.has_mixed_units, variable.unit) = (true, Unit::Unknown);
                }
                _ => self.warn_mismatch(value, (target, held), (value, found)),
            },
        }
    }

    /// Warns that `left` and `right` have different units in `whole`.
    #[cold]
    fn warn_mismatch(&mut self, whole: u32, left: (u32, Unit), right: (u32, Unit)) {
        let (Unit::Known(a), Unit::Known(b)) = (left.1, right.1) else {
            return;
        };
        let text = self.text;
        let Some(problems) = &mut self.problems else {
            return;
        };
        let (one, other) = (
            abbreviate(text.text(left.0)),
            abbreviate(text.text(right.0)),
        );
        let what = format!(
            "mismatched units: `{one}` is in {}, `{other}` in {}",
            a.name(),
            b.name()
        );
        let help = match in_nanoseconds(text.text(right.0), right.1, left.1)
            .or_else(|| in_nanoseconds(text.text(left.0), left.1, right.1))
        {
            Some(help) => help,
            None => match b.conversion_to(a) {
                Some(how) => format!("`{other}`: {how}"),
                None => match a.conversion_to(b) {
                    Some(how) => format!("`{one}`: {how}"),
                    None => format!(
                        "one of the two is probably wrong; `{one}` needs a value in {}",
                        a.name()
                    ),
                },
            },
        };
        let mut problem = Problem::new(
            DiagnosticCode::Unit,
            text.span(right.0),
            what,
            format!("in {}", b.name()),
        )
        .with_help(help);
        if left.0 != right.0 && whole != right.0 {
            problem = problem.with_secondary_label(text.span(left.0), "the other unit");
        }
        problems.push(problem);
    }
}

/// Suggests nanoseconds for a literal such as `5ms` next to a value in ns: literals are in µs.
fn in_nanoseconds(word: &str, unit: Unit, other_unit: Unit) -> Option<String> {
    if (unit, other_unit) != (MICROSECONDS, NANOSECONDS) {
        return None;
    }
    let measure = literal::measure(word)?;
    let (Measure::Time, Some(Ok(Literal::Num(us)))) = (measure, literal::parse(word)) else {
        return None;
    };
    let ns = us.checked_mul(1_000)?;
    Some(format!(
        "time literals are in µs: `{word}` is {us}; in ns write {ns}"
    ))
}
