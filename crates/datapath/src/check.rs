//! Check that makes a program safe to run. It runs once, on arrival, so that the interpreter need
//! not check anything.

use core::fmt;

use crate::bytecode::{CLAUSES_MAX, Clause, INSTRS_MAX, Instr, Op, VARS_MAX, Var, VarKind, reg};
use crate::program::Facts;

/// Reason why a program must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// Location of the error.
    pub location: CodeLocation,
    /// The error.
    pub reason: CheckErrorReason,
}

/// Location of an error in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeLocation {
    /// The program as a whole.
    Program,
    /// The clause with this index.
    Clause(usize),
    /// The instruction with this index.
    Instr(usize),
    /// The variable with this index.
    Var(usize),
}

/// Error in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckErrorReason {
    /// More than [`INSTRS_MAX`] instructions.
    TooManyInstrs,
    /// More than [`CLAUSES_MAX`] clauses.
    TooManyClauses,
    /// More than [`VARS_MAX`] variables.
    TooManyVars,
    /// Variables are not in the order report, control, local.
    VarOrder,
    /// A clause does not begin at the end of the previous one, or its parts are out of order.
    ClauseRange,
    /// Instructions after the last clause.
    Unreachable,
    /// The register is neither a signal, nor built-in state, nor a variable of the program.
    NoSuchRegister(u8),
    /// A register that programs may not write.
    ReadOnly(u8),
    /// A register that programs may not read.
    WriteOnly(u8),
    /// A guard writes a register other than a temporary.
    ImpureGuard(u8),
    /// A temporary is read on a path that does not write it.
    Unwritten(u8),
    /// A skip leaves its guard or body.
    SkipTooFar,
    /// A ratio has the denominator 0.
    ZeroDenominator,
    /// A weight exceeds 1.
    WeightAboveOne,
    /// A wait for `Micros` occurs outside a guard.
    AfterInBody,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            CodeLocation::Program => f.write_str("the program ")?,
            CodeLocation::Clause(n) => write!(f, "clause {n} ")?,
            CodeLocation::Instr(n) => write!(f, "instruction {n} ")?,
            CodeLocation::Var(n) => write!(f, "variable {n} ")?,
        }
        match self.reason {
            CheckErrorReason::TooManyInstrs => write!(
                f,
                "has more than {INSTRS_MAX} instructions; split the work between programs"
            ),
            CheckErrorReason::TooManyClauses => write!(f, "has more than {CLAUSES_MAX} clauses"),
            CheckErrorReason::TooManyVars => write!(f, "has more than {VARS_MAX} variables"),
            CheckErrorReason::VarOrder => f.write_str(
                "is out of order: report variables come first, then control, then local ones",
            ),
            CheckErrorReason::ClauseRange => f.write_str(
                "does not start at the end of the previous clause, with its guard \
                    before its body, inside the program",
            ),
            CheckErrorReason::Unreachable => f.write_str("does not belong to a clause"),
            CheckErrorReason::NoSuchRegister(r) => {
                write!(
                    f,
                    "uses register {r}, which is not a signal, built-in state or variable of this \
                    program"
                )
            }
            CheckErrorReason::ReadOnly(r) => write!(f, "writes register {r}, which is read-only"),
            CheckErrorReason::WriteOnly(r) => write!(f, "reads register {r}, which is write-only"),
            CheckErrorReason::ImpureGuard(r) => write!(
                f,
                "writes register {r} in a guard; guards may only write temporaries"
            ),
            CheckErrorReason::Unwritten(r) => {
                write!(
                    f,
                    "reads temporary {r}, which is not written on every path to it within this \
                     guard or body"
                )
            }
            CheckErrorReason::SkipTooFar => f.write_str("skips past the end of its guard or body"),
            CheckErrorReason::ZeroDenominator => f.write_str("has a ratio with denominator 0"),
            CheckErrorReason::WeightAboveOne => f.write_str("has a weight above 1"),
            CheckErrorReason::AfterInBody => f.write_str(
                "waits for Micros in a body; only guards can wait, \
                so compare in a body",
            ),
        }
    }
}

impl core::error::Error for CheckError {}

/// Filler of unused instruction slots.
pub(crate) const FILLER_INSTR: Instr = Instr {
    op: Op::Move,
    has_imm: true,
    dst: reg::TEMPS,
    a: reg::CONSTANT_ONE,
    b: reg::CONSTANT_ONE,
    imm: 0,
};

/// Checks all invariants of [`crate::Program`].
pub(crate) fn check(
    instrs: &[Instr],
    clauses: &[Clause],
    vars: &[Var],
) -> Result<Facts, CheckError> {
    let program = |reason| {
        Err(CheckError {
            location: CodeLocation::Program,
            reason,
        })
    };
    if instrs.len() > INSTRS_MAX {
        return program(CheckErrorReason::TooManyInstrs);
    }
    if clauses.len() > CLAUSES_MAX {
        return program(CheckErrorReason::TooManyClauses);
    }
    if vars.len() > VARS_MAX {
        return program(CheckErrorReason::TooManyVars);
    }
    if let Some(late) = (1..vars.len()).find(|&n| order(vars[n].kind) < order(vars[n - 1].kind)) {
        return Err(CheckError {
            location: CodeLocation::Var(late),
            reason: CheckErrorReason::VarOrder,
        });
    }

    let mut checker = Checker {
        instrs,
        vars: vars.len(),
        clause: 0,
        facts: Facts::default(),
    };
    let mut end = 0;
    for (n, clause) in clauses.iter().enumerate() {
        let at = |reason| CheckError {
            location: CodeLocation::Clause(n),
            reason,
        };
        let [start, body, next] =
            [clause.guard_start, clause.body_start, clause.body_end].map(usize::from);
        if start != end || body < start || next < body || next > instrs.len() {
            return Err(at(CheckErrorReason::ClauseRange));
        }
        checker.clause = n;
        let written = checker.range(start, body, ProgramPart::Guard)?;
        checker.read(clause.flag, written).map_err(at)?;
        checker.range(body, next, ProgramPart::Body)?;
        if checker.facts.waiting_clauses >> n & 1 == 1 {
            checker.facts.waiting_instrs += clause.body_start - clause.guard_start;
        }
        end = next;
    }
    if end != instrs.len() {
        return Err(CheckError {
            location: CodeLocation::Instr(end),
            reason: CheckErrorReason::Unreachable,
        });
    }
    Ok(checker.facts)
}

fn order(kind: VarKind) -> u8 {
    match kind {
        VarKind::Report => 0,
        VarKind::Control => 1,
        VarKind::Local => 2,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramPart {
    Guard,
    Body,
}

fn bit(register: u8) -> u128 {
    1 << (register & 127)
}

struct Checker<'a> {
    instrs: &'a [Instr],
    vars: usize,
    clause: usize,
    facts: Facts,
}

impl Checker<'_> {
    /// Checks the straight-line code `start..end`; returns the temporaries written on every path to
    /// its end.
    fn range(&mut self, start: usize, end: usize, part: ProgramPart) -> Result<u128, CheckError> {
        // All jumps go forward, so one pass suffices: `landing[n]` is the set of temporaries that
        // every skip to n had written.
        let mut landing = [u128::MAX; INSTRS_MAX + 1];
        let mut written = 0;
        for n in start..end {
            written &= landing[n];
            let target = self
                .instr(n, end, part, &mut written)
                .map_err(|reason| CheckError {
                    location: CodeLocation::Instr(n),
                    reason,
                })?;
            if let Some(target) = target {
                landing[target] &= written;
            }
        }
        Ok(written & landing[end])
    }

    /// Checks instruction `n`, adds the temporary that it writes, and returns the target of its
    /// jump.
    fn instr(
        &mut self,
        n: usize,
        end: usize,
        part: ProgramPart,
        written: &mut u128,
    ) -> Result<Option<usize>, CheckErrorReason> {
        let instr = self.instrs[n];
        let Operands { a, b, dst } = Operands::for_op(instr.op);
        if a {
            self.read(instr.a, *written)?;
        }
        if b == SecondOperand::Register || (b == SecondOperand::Either && !instr.has_imm) {
            self.read(instr.b, *written)?;
        }
        // `(if c (report))` may become a conditional write to one of these flags; a program never
        // reads their old value.
        let flag = (reg::SHOULD_REPORT..=reg::SHOULD_RESET).contains(&instr.dst)
            && matches!(instr.op, Op::If | Op::NotIf);
        if dst == Dst::Updated && !flag {
            self.read(instr.dst, *written)?;
        }
        if dst != Dst::None {
            self.write(instr.dst, part)?;
            *written |= bit(instr.dst);
        }
        match instr.op {
            Op::MulRatio | Op::Ewma if ratio(instr.imm).1 == 0 => {
                Err(CheckErrorReason::ZeroDenominator)
            }
            Op::Ewma if ratio(instr.imm).0 > ratio(instr.imm).1 => {
                Err(CheckErrorReason::WeightAboveOne)
            }
            Op::After if part == ProgramPart::Body => Err(CheckErrorReason::AfterInBody),
            Op::After => {
                self.facts.waiting_clauses |= 1 << self.clause;
                self.facts.reads |= bit(reg::MICROS);
                Ok(None)
            }
            Op::SkipIfZero => {
                let room = end - n - 1;
                match usize::try_from(instr.imm) {
                    Ok(distance) if distance <= room => Ok(Some(n + 1 + distance)),
                    _ => Err(CheckErrorReason::SkipTooFar),
                }
            }
            _ => Ok(None),
        }
    }

    /// Checks that `register` may be read if `written` is the set of temporaries written so far.
    fn read(&mut self, register: u8, written: u128) -> Result<(), CheckErrorReason> {
        match register {
            reg::SHOULD_REPORT..=reg::SHOULD_RESET => {
                return Err(CheckErrorReason::WriteOnly(register));
            }
            reg::SIGNALS..reg::SIGNALS_END | reg::MICROS..=reg::CONSTANT_ONE => {}
            reg::TEMPS..reg::TEMPS_END if written & bit(register) == 0 => {
                return Err(CheckErrorReason::Unwritten(register));
            }
            reg::TEMPS..reg::TEMPS_END => {}
            _ => self.variable(register)?,
        }
        self.facts.reads |= bit(register);
        Ok(())
    }

    /// Checks that code in `part` may write `register`.
    fn write(&mut self, register: u8, part: ProgramPart) -> Result<(), CheckErrorReason> {
        match register {
            reg::TEMPS..reg::TEMPS_END => {}
            reg::SIGNALS..reg::SIGNALS_END | reg::CONSTANT_ONE => {
                return Err(CheckErrorReason::ReadOnly(register));
            }
            reg::MICROS..reg::CONSTANT_ONE => {}
            _ => self.variable(register)?,
        }
        if part == ProgramPart::Guard && !(reg::TEMPS..reg::TEMPS_END).contains(&register) {
            return Err(CheckErrorReason::ImpureGuard(register));
        }
        self.facts.writes |= bit(register);
        Ok(())
    }

    fn variable(&self, register: u8) -> Result<(), CheckErrorReason> {
        match register.checked_sub(reg::VARS) {
            Some(index) if usize::from(index) < self.vars => Ok(()),
            _ => Err(CheckErrorReason::NoSuchRegister(register)),
        }
    }
}

/// Operands that an operation uses.
struct Operands {
    a: bool,
    b: SecondOperand,
    dst: Dst,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SecondOperand {
    None,
    Register,
    /// A register or an immediate, according to the instruction.
    Either,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dst {
    None,
    Written,
    /// Read, then written.
    Updated,
}

impl Operands {
    fn for_op(op: Op) -> Operands {
        let (a, b, dst) = match op {
            Op::Move | Op::Not | Op::After => (false, SecondOperand::Either, Dst::Written),
            Op::MulRatio => (true, SecondOperand::None, Dst::Written),
            Op::If | Op::NotIf | Op::EwmaVar => (true, SecondOperand::Either, Dst::Updated),
            Op::Ewma => (false, SecondOperand::Register, Dst::Updated),
            Op::SkipIfZero => (true, SecondOperand::None, Dst::None),
            Op::Add | Op::Sub | Op::Diff | Op::Mul | Op::Div | Op::Max | Op::Min | Op::MaxWrap => {
                (true, SecondOperand::Either, Dst::Written)
            }
            Op::Eq | Op::Ne | Op::Gt | Op::Ge | Op::Lt | Op::Le | Op::And | Op::Or => {
                (true, SecondOperand::Either, Dst::Written)
            }
        };
        Operands { a, b, dst }
    }
}

/// Numerator and denominator of an immediate ratio.
pub(crate) fn ratio(imm: u64) -> (u64, u64) {
    (imm >> 32, imm & 0xffff_ffff)
}
