//! Translation from ccplane's bytecode to CCP's instructions.

use ccplane_datapath::{Clause, Instr, Op, Program, VarKind, reg};

use super::{
    CONTINUE, DEF_INFINITY, FLAG, INSTRS_MAX, LOCALS_MAX, RawEvent, RawInstr, Reg, TEMPS_MAX,
    VARS_MAX, op,
};
use crate::v1::{class, implicit};
use crate::{NotExpressible, WireError};

/// Program in CCP's instructions.
#[derive(Debug)]
pub(crate) struct EncodedProgram {
    pub events: Vec<RawEvent>,
    pub instrs: Vec<RawInstr>,
}

impl EncodedProgram {
    pub fn new(program: &Program) -> Result<EncodedProgram, WireError> {
        if program.report_vars() == 0 && program.writes(reg::SHOULD_REPORT) {
            return Err(WireError::NotExpressible(NotExpressible::EmptyReport));
        }
        let mut encoder = Encoder {
            program,
            scratch: scratch(program),
            instrs: Vec::new(),
        };
        encoder.define()?;
        let mut events = Vec::with_capacity(program.clauses().len());
        let mut fell_through = false;
        for (index, clause) in program.clauses().iter().enumerate() {
            let guard = encoder.instrs.len();
            encoder.guard(clause)?;
            let body = encoder.instrs.len();
            let instrs = program
                .instrs()
                .get(clause.body_start as usize..clause.body_end as usize)
                .unwrap_or_default();
            let continues = instrs.iter().any(|i| i.dst == reg::SHOULD_CONTINUE);
            let is_last = index + 1 == program.clauses().len();
            // The reference datapath clears the flag once per call, not once per clause.
            if fell_through && !continues && !is_last {
                let zero = Reg::constant(0)?;
                encoder.push(op::BIND, CONTINUE, CONTINUE, zero)?;
            }
            fell_through |= continues;
            for instr in instrs {
                encoder.instr(instr, None)?;
            }
            events.push(RawEvent {
                guard: guard as u32,
                guard_len: (body - guard) as u32,
                body: body as u32,
                body_len: (encoder.instrs.len() - body) as u32,
            });
        }
        match encoder.instrs.len() {
            n if n > INSTRS_MAX => Err(WireError::NotExpressible(NotExpressible::Instructions(n))),
            _ => Ok(EncodedProgram {
                events,
                instrs: encoder.instrs,
            }),
        }
    }
}

struct Encoder<'p> {
    program: &'p Program,
    /// A temporary that the program does not use, if there is one.
    scratch: Option<Reg>,
    instrs: Vec<RawInstr>,
}

impl Encoder<'_> {
    /// Appends an instruction. It never fails; the `Result` lets it be the last call of an
    /// expansion.
    fn push(&mut self, op: u8, result: Reg, left: Reg, right: Reg) -> Result<(), WireError> {
        let instr = RawInstr {
            op,
            result,
            left,
            right,
        };
        self.instrs.push(instr);
        Ok(())
    }

    /// Returns a register with this value. A constant of more than 31 bits is assembled in the
    /// scratch register, 30 bits at a time. It may be the value of `(* 65536 65536)`, which the
    /// reference's compiler does not fold.
    fn value(&mut self, value: u64) -> Result<Reg, WireError> {
        let (Err(_), Some(scratch)) = (Reg::constant(value), self.scratch) else {
            return Reg::constant(value);
        };
        const PART_BITS: u32 = 30;
        let part = |n: u32| Reg::constant((value >> (n * PART_BITS)) & ((1 << PART_BITS) - 1));
        let shift = Reg::constant(1 << PART_BITS)?;
        let highest = if value >> (2 * PART_BITS) == 0 { 1 } else { 2 };
        let mut so_far = part(highest)?;
        for lower in (0..highest).rev() {
            self.push(op::MUL, scratch, so_far, shift)?;
            so_far = scratch;
            let part = part(lower)?;
            if part.index != 0 {
                self.push(op::ADD, scratch, scratch, part)?;
            }
        }
        Ok(scratch)
    }

    fn define(&mut self) -> Result<(), WireError> {
        for (index, var) in self.program.vars().iter().enumerate() {
            let register = self.variable(index)?;
            if register.class == class::LOCAL {
                continue;
            }
            if var.init == DEF_INFINITY {
                return Err(WireError::NotExpressible(NotExpressible::Constant(
                    var.init,
                )));
            }
            let value = Reg::constant(var.init)?;
            self.push(op::DEF, register, register, value)?;
        }
        Ok(())
    }

    /// Encodes the condition, with its result in the flag register.
    fn guard(&mut self, clause: &Clause) -> Result<(), WireError> {
        let range = clause.guard_start as usize..clause.body_start as usize;
        let instrs = self.program.instrs().get(range).unwrap_or_default();
        let reads_result = |op| matches!(op, Op::If | Op::NotIf | Op::Ewma | Op::EwmaVar);
        match instrs.split_last() {
            Some((last, rest)) if last.dst == clause.flag && !reads_result(last.op) => {
                rest.iter().try_for_each(|instr| self.instr(instr, None))?;
                self.instr(last, Some(FLAG))
            }
            _ => {
                instrs
                    .iter()
                    .try_for_each(|instr| self.instr(instr, None))?;
                let flag = self.register(clause.flag)?;
                self.push(op::BIND, FLAG, FLAG, flag)
            }
        }
    }

    /// Encodes one instruction as one or more of CCP's; `result` replaces its result register.
    fn instr(&mut self, instr: &Instr, result: Option<Reg>) -> Result<(), WireError> {
        let dst = match result {
            Some(result) => result,
            None => self.register(instr.dst)?,
        };
        let b = match instr.op {
            Op::MulRatio | Op::SkipIfZero => dst,
            _ if instr.has_imm && instr.op != Op::Ewma => self.value(instr.imm)?,
            _ => self.register(instr.b)?,
        };
        let zero = Reg::constant(0)?;
        let (num, den) = (instr.imm >> 32, instr.imm & 0xffff_ffff);
        let plain = match instr.op {
            Op::Move => return self.push(op::BIND, dst, dst, b),
            Op::Add => op::ADD,
            Op::Sub => op::SUB,
            Op::Mul => op::MUL,
            Op::Div => op::DIV,
            Op::Max => op::MAX,
            Op::Min => op::MIN,
            Op::MaxWrap => op::MAXWRAP,
            Op::Eq => op::EQUIV,
            Op::Gt => op::GT,
            Op::Lt => op::LT,
            Op::If => op::IF,
            Op::NotIf => op::NOTIF,
            Op::EwmaVar => op::EWMA,
            // For truth values the product is "and", and the maximum is "or".
            Op::And => op::MUL,
            Op::Or => op::MAX,
            Op::After => {
                let micros = Reg {
                    class: class::IMPLICIT,
                    index: implicit::MICROS,
                };
                return self.push(op::GT, dst, micros, b);
            }
            Op::Not => return self.push(op::EQUIV, dst, b, zero),
            Op::Ne | Op::Ge | Op::Le => {
                let opposite = match instr.op {
                    Op::Ne => op::EQUIV,
                    Op::Ge => op::LT,
                    _ => op::GT,
                };
                let a = self.register(instr.a)?;
                self.push(opposite, dst, a, b)?;
                return self.push(op::EQUIV, dst, dst, zero);
            }
            Op::Diff => {
                let a = self.register(instr.a)?;
                return if b != dst {
                    self.push(op::MAX, dst, a, b)?;
                    self.push(op::SUB, dst, dst, b)
                } else if a != dst {
                    self.push(op::MIN, dst, a, b)?;
                    self.push(op::SUB, dst, a, dst)
                } else {
                    self.push(op::BIND, dst, dst, zero)
                };
            }
            Op::MulRatio => {
                let (a, num) = (self.register(instr.a)?, self.value(num)?);
                self.push(op::MUL, dst, a, num)?;
                let den = self.value(den)?;
                return self.push(op::DIV, dst, dst, den);
            }
            Op::Ewma => {
                let tenths = (num * 10)
                    .checked_div(den)
                    .filter(|tenths| tenths * den == num * 10);
                let tenths =
                    tenths.ok_or(WireError::NotExpressible(NotExpressible::Weight(num, den)))?;
                return self.push(op::EWMA, dst, Reg::constant(tenths)?, b);
            }
            Op::SkipIfZero => return Err(WireError::NotExpressible(NotExpressible::Statement)),
        };
        let a = self.register(instr.a)?;
        self.push(plain, dst, a, b)
    }

    fn register(&self, register: u8) -> Result<Reg, WireError> {
        let implicit = |index| {
            Ok(Reg {
                class: class::IMPLICIT,
                index,
            })
        };
        match register {
            signal @ 0..=14 => Ok(Reg {
                class: class::PRIMITIVE,
                index: u32::from(signal),
            }),
            reg::MICROS => implicit(implicit::MICROS),
            reg::CWND => implicit(implicit::CWND),
            reg::RATE => implicit(implicit::RATE),
            reg::SHOULD_REPORT => implicit(implicit::REPORT),
            reg::SHOULD_CONTINUE => implicit(implicit::CONTINUE),
            reg::CONSTANT_ONE => Reg::constant(1),
            reg::SSTHRESH => Err(WireError::NotExpressible(NotExpressible::Ssthresh)),
            reg::SHOULD_RESET => Err(WireError::NotExpressible(NotExpressible::Reset)),
            temp @ reg::TEMPS..reg::TEMPS_END => match usize::from(temp - reg::TEMPS) {
                index if index < TEMPS_MAX => Ok(Reg {
                    class: class::TEMPORARY,
                    index: index as u32,
                }),
                index => Err(WireError::NotExpressible(NotExpressible::Temporaries(
                    index + 1,
                ))),
            },
            var @ reg::VARS.. => self.variable(usize::from(var - reg::VARS)),
            signal => Err(WireError::NotExpressible(NotExpressible::Signal(
                signal_name(signal),
            ))),
        }
    }

    fn variable(&self, index: usize) -> Result<Reg, WireError> {
        let vars = self.program.vars();
        let var = vars.get(index).copied().unwrap_or_default();
        let before = |kind| vars.iter().take(index).filter(|v| v.kind == kind).count();
        let controls = || vars.iter().filter(|v| v.kind == VarKind::Control).count();
        let (class, index) = match (var.kind, var.volatile) {
            (VarKind::Report, true) => (class::VOLATILE_REPORT, before(VarKind::Report)),
            (VarKind::Report, false) => (class::REPORT, before(VarKind::Report)),
            (VarKind::Control, true) => (class::VOLATILE_CONTROL, before(VarKind::Control)),
            (VarKind::Control, false) => (class::CONTROL, before(VarKind::Control)),
            (VarKind::Local, _) => match before(VarKind::Local) {
                local if local < LOCALS_MAX => (class::LOCAL, local),
                // A local that is never reset is a control variable that the agent does not set.
                local => (class::CONTROL, controls() + local - LOCALS_MAX),
            },
        };
        if index >= VARS_MAX {
            return Err(WireError::NotExpressible(NotExpressible::Variables(
                index + 1,
            )));
        }
        Ok(Reg {
            class,
            index: index as u32,
        })
    }
}

/// Returns the first temporary after those that the program uses.
fn scratch(program: &Program) -> Option<Reg> {
    let used = program
        .instrs()
        .iter()
        .flat_map(|instr| [instr.dst, instr.a, instr.b]);
    let temps = used.filter(|register| (reg::TEMPS..reg::TEMPS_END).contains(register));
    let first = temps
        .map(|temp| usize::from(temp - reg::TEMPS) + 1)
        .max()
        .unwrap_or(0);
    (first < TEMPS_MAX).then_some(Reg {
        class: class::TEMPORARY,
        index: first as u32,
    })
}

/// Name of a signal that CCP does not have.
fn signal_name(register: u8) -> &'static str {
    match register {
        15 => "Flow.srtt_us",
        16 => "Flow.min_rtt_us",
        17 => "Flow.mss",
        18 => "Flow.app_limited",
        19 => "Flow.in_recovery",
        20 => "Flow.undone",
        21 => "Flow.cwnd_limited",
        28 => "Flow.paced",
        _ => "a newer one",
    }
}
