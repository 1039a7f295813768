//! Programs in CCP's INSTALL, in both directions.
//!
//! An event is four u32: first instruction and number of instructions of the condition, then of the body. An instruction
//! is a u8 operation and three registers (result, left, right), each a u8 type and a u32 index or constant. Instructions
//! that define the variables come first. The condition's result goes to the implicit register 0.

use ccplane_datapath::{Clause, INFINITY, Instr, Op, Program, Var, VarKind, reg};

use super::{class, implicit};
use crate::bytes::{Put, Reader};
use crate::{Unsayable, WireError};

/// Most instructions: the reference's datapath counts them in a u8 and loops for ever at 256.
const MAX_INSTRS: usize = 255;
/// Temporaries of the reference's datapath; a write beyond them is lost.
const MAX_TEMPS: usize = 8;
/// Report, and control, registers of the reference's datapath.
const MAX_VARS: usize = 110;
/// Local registers that the reference's compiler uses; more of them become control registers.
const MAX_LOCALS: usize = 6;
/// A definition with this value means +infinity to the reference.
const DEF_INFINITY: u64 = 0x3fff_ffff;

/// Operations by number.
mod op {
    pub const ADD: u8 = 0;
    pub const BIND: u8 = 1;
    pub const DEF: u8 = 2;
    pub const DIV: u8 = 3;
    pub const EQUIV: u8 = 4;
    pub const EWMA: u8 = 5;
    pub const GT: u8 = 6;
    pub const IF: u8 = 7;
    pub const LT: u8 = 8;
    pub const MAX: u8 = 9;
    pub const MAXWRAP: u8 = 10;
    pub const MIN: u8 = 11;
    pub const MUL: u8 = 12;
    pub const NOTIF: u8 = 13;
    pub const SUB: u8 = 14;
}

/// A register as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    class: u8,
    index: u32,
}

const FLAG: Reg = Reg {
    class: class::IMPLICIT,
    index: implicit::FLAG,
};
const CONTINUE: Reg = Reg {
    class: class::IMPLICIT,
    index: implicit::CONTINUE,
};

impl Reg {
    fn constant(value: u64) -> Result<Reg, WireError> {
        if value < 1 << 31 || value == INFINITY {
            Ok(Reg {
                class: class::IMMEDIATE,
                index: value as u32,
            })
        } else {
            Err(WireError::Unsayable(Unsayable::Constant(value)))
        }
    }

    fn read(body: &mut Reader<'_>) -> Result<Reg, WireError> {
        Ok(Reg {
            class: body.u8()?,
            index: body.u32()?,
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        out.put_u8(self.class);
        out.put_u32(self.index);
    }
}

/// An instruction as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawInstr {
    op: u8,
    result: Reg,
    left: Reg,
    right: Reg,
}

impl RawInstr {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_u8(self.op);
        [self.result, self.left, self.right]
            .into_iter()
            .for_each(|r| r.write(out));
    }
}

/// An event as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    guard: u32,
    guard_len: u32,
    body: u32,
    body_len: u32,
}

impl RawEvent {
    pub fn write(&self, out: &mut Vec<u8>) {
        [self.guard, self.guard_len, self.body, self.body_len]
            .into_iter()
            .for_each(|n| out.put_u32(n));
    }
}

/// A program in CCP's terms.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub events: Vec<RawEvent>,
    pub instrs: Vec<RawInstr>,
}

impl Encoded {
    pub fn new(program: &Program) -> Result<Encoded, WireError> {
        if program.report_vars() == 0 && program.writes(reg::SHOULD_REPORT) {
            return Err(WireError::Unsayable(Unsayable::EmptyReport));
        }
        let mut encoder = Encoder {
            program,
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
            // The reference's datapath clears the flag once a call, not once a clause.
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
            n if n > MAX_INSTRS => Err(WireError::Unsayable(Unsayable::Instructions(n))),
            _ => Ok(Encoded {
                events,
                instrs: encoder.instrs,
            }),
        }
    }
}

struct Encoder<'p> {
    program: &'p Program,
    instrs: Vec<RawInstr>,
}

impl Encoder<'_> {
    /// Never fails; a `Result` so that the last instruction of an expansion is its result.
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

    fn define(&mut self) -> Result<(), WireError> {
        for (index, var) in self.program.vars().iter().enumerate() {
            let register = self.variable(index)?;
            if register.class == class::LOCAL {
                continue;
            }
            if var.init == DEF_INFINITY {
                return Err(WireError::Unsayable(Unsayable::Constant(var.init)));
            }
            let value = Reg::constant(var.init)?;
            self.push(op::DEF, register, register, value)?;
        }
        Ok(())
    }

    /// The condition, its result in the flag register.
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
                instrs.iter().try_for_each(|instr| self.instr(instr, None))?;
                let flag = self.register(clause.flag)?;
                self.push(op::BIND, FLAG, FLAG, flag)
            }
        }
    }

    /// One instruction as one or two of CCP's; `result` replaces its result register.
    fn instr(&mut self, instr: &Instr, result: Option<Reg>) -> Result<(), WireError> {
        let dst = match result {
            Some(result) => result,
            None => self.register(instr.dst)?,
        };
        let b = match instr.op {
            Op::MulRatio | Op::SkipIfZero => dst,
            _ if instr.has_imm && instr.op != Op::Ewma => Reg::constant(instr.imm)?,
            _ => self.register(instr.b)?,
        };
        let a = || self.register(instr.a);
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
            // Of two truth values the product is "and", the larger one "or".
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
                let a = a()?;
                self.push(opposite, dst, a, b)?;
                return self.push(op::EQUIV, dst, dst, zero);
            }
            Op::Diff => {
                let a = a()?;
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
                let (a, num, den) = (a()?, Reg::constant(num)?, Reg::constant(den)?);
                self.push(op::MUL, dst, a, num)?;
                return self.push(op::DIV, dst, dst, den);
            }
            Op::Ewma => {
                let tenths = (num * 10).checked_div(den).filter(|tenths| tenths * den == num * 10);
                let tenths = tenths.ok_or(WireError::Unsayable(Unsayable::Weight(num, den)))?;
                return self.push(op::EWMA, dst, Reg::constant(tenths)?, b);
            }
            Op::SkipIfZero => return Err(WireError::Unsayable(Unsayable::Statement)),
        };
        let a = a()?;
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
            reg::ONE => Reg::constant(1),
            reg::SSTHRESH => Err(WireError::Unsayable(Unsayable::Ssthresh)),
            reg::SHOULD_RESET => Err(WireError::Unsayable(Unsayable::Reset)),
            temp @ reg::TEMPS..reg::TEMPS_END => match usize::from(temp - reg::TEMPS) {
                index if index < MAX_TEMPS => Ok(Reg {
                    class: class::TEMPORARY,
                    index: index as u32,
                }),
                index => Err(WireError::Unsayable(Unsayable::Temporaries(index + 1))),
            },
            var @ reg::VARS.. => self.variable(usize::from(var - reg::VARS)),
            signal => Err(WireError::Unsayable(Unsayable::Signal(signal_name(signal)))),
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
                local if local < MAX_LOCALS => (class::LOCAL, local),
                // A local that is never reset is a control variable that nobody sets.
                local => (class::CONTROL, controls() + local - MAX_LOCALS),
            },
        };
        if index >= MAX_VARS {
            return Err(WireError::Unsayable(Unsayable::Variables(index + 1)));
        }
        Ok(Reg {
            class,
            index: index as u32,
        })
    }
}

/// Signals that CCP does not have.
fn signal_name(register: u8) -> &'static str {
    match register {
        15 => "Flow.srtt_us",
        16 => "Flow.min_rtt_us",
        17 => "Flow.mss",
        18 => "Flow.app_limited",
        19 => "Flow.in_recovery",
        20 => "Flow.undone",
        21 => "Flow.cwnd_limited",
        _ => "a newer one",
    }
}

/// An INSTALL whose lengths have been checked, its contents not yet.
#[derive(Clone, Copy, Debug)]
pub struct Install<'a> {
    /// The program's number.
    pub program: u32,
    events: &'a [[u8; 16]],
    instrs: &'a [[u8; 16]],
}

impl<'a> Install<'a> {
    pub(super) fn read(mut body: Reader<'a>, says: usize) -> Result<Install<'a>, WireError> {
        let (program, events, instrs) = (body.u32()?, body.u32()? as usize, body.u32()? as usize);
        let (chunks, over) = body.rest().as_chunks();
        let needs = events.saturating_add(instrs);
        if needs != chunks.len() || !over.is_empty() {
            let needs = needs.saturating_mul(16).saturating_add(20);
            return Err(WireError::Length {
                what: "INSTALL",
                says,
                needs,
            });
        }
        let (events, instrs) = chunks.split_at(events);
        Ok(Install {
            program,
            events,
            instrs,
        })
    }

    /// The program, checked: what a CCP datapath would run, but with arithmetic that cannot fail.
    pub fn decode(&self) -> Result<Program, WireError> {
        let instrs: Vec<RawInstr> = self.instrs.iter().map(raw_instr).collect::<Result<_, _>>()?;
        let defs = instrs.iter().take_while(|i| i.op == op::DEF).count();
        let decoder = Decoder::new(&instrs, defs)?;
        let (mut out, mut clauses) = (Vec::new(), Vec::new());
        let mut next = defs;
        for event in self.events {
            let mut event = Reader::new("an event", event);
            let [guard, guard_len, body, body_len] = [event.u32()?, event.u32()?, event.u32()?, event.u32()?];
            // In this order is how the reference's compiler writes them; anything else could run an instruction twice.
            if guard as usize != next || body as usize != next.saturating_add(guard_len as usize) {
                return Err(WireError::Unknown {
                    what: "order of events, instruction",
                    value: u64::from(guard),
                });
            }
            let range = |from: u32, len: u32| {
                let needs = (from as usize).saturating_add(len as usize);
                let range = instrs.get(from as usize..needs);
                range.ok_or(WireError::Short {
                    what: "an event",
                    needs,
                    has: instrs.len(),
                })
            };
            let guard_start = out.len() as u16;
            range(guard, guard_len)?
                .iter()
                .try_for_each(|i| decoder.instr(i, true, &mut out))?;
            let body_start = out.len() as u16;
            range(body, body_len)?
                .iter()
                .try_for_each(|i| decoder.instr(i, false, &mut out))?;
            clauses.push(Clause {
                flag: FLAG_TEMP,
                guard_start,
                body_start,
                body_end: out.len() as u16,
            });
            next = body as usize + body_len as usize;
        }
        if next != instrs.len() {
            return Err(WireError::Length {
                what: "INSTALL",
                says: instrs.len(),
                needs: next,
            });
        }
        Ok(Program::check(self.program, &out, &clauses, &decoder.vars)?)
    }
}

fn raw_instr(bytes: &[u8; 16]) -> Result<RawInstr, WireError> {
    let mut reader = Reader::new("an instruction", bytes);
    let op = reader.u8()?;
    Ok(RawInstr {
        op,
        result: Reg::read(&mut reader)?,
        left: Reg::read(&mut reader)?,
        right: Reg::read(&mut reader)?,
    })
}

/// Where the flag and constants on the left go: temporaries that no CCP program has.
const FLAG_TEMP: u8 = reg::TEMPS + MAX_TEMPS as u8;
const LEFT_TEMP: u8 = FLAG_TEMP + 1;
const RIGHT_TEMP: u8 = FLAG_TEMP + 2;

struct Decoder {
    vars: Vec<Var>,
    reports: usize,
    controls: usize,
}

impl Decoder {
    /// Collects the variables: those that are defined, and those that are only used.
    fn new(instrs: &[RawInstr], defs: usize) -> Result<Decoder, WireError> {
        let (mut reports, mut controls, mut locals) = (Vec::new(), Vec::new(), Vec::new());
        for (index, instr) in instrs.iter().enumerate() {
            for register in [instr.result, instr.left, instr.right] {
                let (list, kind) = match register.class {
                    class::REPORT | class::VOLATILE_REPORT => (&mut reports, VarKind::Report),
                    class::CONTROL | class::VOLATILE_CONTROL => (&mut controls, VarKind::Control),
                    class::LOCAL => (&mut locals, VarKind::Local),
                    _ => continue,
                };
                let at = register.index as usize;
                if at >= MAX_VARS {
                    return Err(WireError::Unknown {
                        what: "variable",
                        value: u64::from(register.index),
                    });
                }
                if list.len() <= at {
                    list.resize(
                        at + 1,
                        Var {
                            kind,
                            volatile: false,
                            init: 0,
                        },
                    );
                }
                if index < defs {
                    if instr.right.class != class::IMMEDIATE {
                        return Err(WireError::Unknown {
                            what: "value of a definition, register type",
                            value: instr.right.class.into(),
                        });
                    }
                    let volatile = matches!(register.class, class::VOLATILE_REPORT | class::VOLATILE_CONTROL);
                    let value = u64::from(instr.right.index);
                    let init = if value == DEF_INFINITY { INFINITY } else { value };
                    list[at] = Var { kind, volatile, init };
                }
            }
        }
        let (report_vars, control_vars) = (reports.len(), controls.len());
        let vars = [reports, controls, locals].concat();
        if vars.len() > usize::from(u8::MAX - reg::VARS) {
            return Err(WireError::TooLong {
                what: "number of variables",
                is: vars.len(),
                most: usize::from(u8::MAX - reg::VARS),
            });
        }
        Ok(Decoder {
            vars,
            reports: report_vars,
            controls: control_vars,
        })
    }

    /// One of CCP's instructions as one to three.
    fn instr(&self, raw: &RawInstr, guard: bool, out: &mut Vec<Instr>) -> Result<(), WireError> {
        let dst = self.register(raw.result)?;
        if raw.op == op::EWMA {
            return self.ewma(raw, dst, out);
        }
        let mut op = match raw.op {
            op::ADD => Op::Add,
            op::BIND => Op::Move,
            op::DIV => Op::Div,
            op::EQUIV => Op::Eq,
            op::GT => Op::Gt,
            op::IF => Op::If,
            op::LT => Op::Lt,
            op::MAX => Op::Max,
            op::MAXWRAP => Op::MaxWrap,
            op::MIN => Op::Min,
            op::MUL => Op::Mul,
            op::NOTIF => Op::NotIf,
            op::SUB => Op::Sub,
            unknown => {
                return Err(WireError::Unknown {
                    what: "operation",
                    value: u64::from(unknown),
                });
            }
        };
        let micros = Reg {
            class: class::IMPLICIT,
            index: implicit::MICROS,
        };
        if guard && op == Op::Gt && raw.left == micros {
            op = Op::After;
        }
        // The left operand of BIND says nothing.
        let a = if matches!(op, Op::Move | Op::After) {
            dst
        } else {
            self.in_register(raw.left, LEFT_TEMP, out)?
        };
        let constant = raw.right.class == class::IMMEDIATE;
        let (b, imm) = if constant {
            (0, u64::from(raw.right.index))
        } else {
            (self.register(raw.right)?, 0)
        };
        out.push(Instr {
            op,
            has_imm: constant,
            dst,
            a,
            b,
            imm,
        });
        Ok(())
    }

    fn ewma(&self, raw: &RawInstr, dst: u8, out: &mut Vec<Instr>) -> Result<(), WireError> {
        let b = self.in_register(raw.right, RIGHT_TEMP, out)?;
        let tenths = u64::from(raw.left.index);
        if raw.left.class == class::IMMEDIATE && tenths <= 10 {
            out.push(Instr {
                op: Op::Ewma,
                has_imm: true,
                dst,
                a: dst,
                b,
                imm: tenths << 32 | 10,
            });
        } else {
            let a = self.in_register(raw.left, LEFT_TEMP, out)?;
            out.push(Instr {
                op: Op::EwmaVar,
                has_imm: false,
                dst,
                a,
                b,
                imm: 0,
            });
        }
        Ok(())
    }

    /// The register that holds an operand, a constant moved into `temp` first.
    fn in_register(&self, register: Reg, temp: u8, out: &mut Vec<Instr>) -> Result<u8, WireError> {
        if register.class != class::IMMEDIATE {
            return self.register(register);
        }
        out.push(Instr {
            op: Op::Move,
            has_imm: true,
            dst: temp,
            a: temp,
            b: 0,
            imm: u64::from(register.index),
        });
        Ok(temp)
    }

    fn register(&self, register: Reg) -> Result<u8, WireError> {
        let unknown = Err(WireError::Unknown {
            what: "register of type",
            value: u64::from(register.class) << 32 | u64::from(register.index),
        });
        let at = register.index as usize;
        // `new` has seen every variable, so that these sums stay below 256.
        let var = |at: usize| Ok(reg::VARS + at as u8);
        match register.class {
            class::REPORT | class::VOLATILE_REPORT => var(at),
            class::CONTROL | class::VOLATILE_CONTROL => var(self.reports + at),
            class::LOCAL => var(self.reports + self.controls + at),
            class::PRIMITIVE if at < 15 => Ok(at as u8),
            class::TEMPORARY if at < MAX_TEMPS => Ok(reg::TEMPS + at as u8),
            class::IMPLICIT => match register.index {
                implicit::FLAG => Ok(FLAG_TEMP),
                implicit::CONTINUE => Ok(reg::SHOULD_CONTINUE),
                implicit::REPORT => Ok(reg::SHOULD_REPORT),
                implicit::MICROS => Ok(reg::MICROS),
                implicit::CWND => Ok(reg::CWND),
                implicit::RATE => Ok(reg::RATE),
                _ => unknown,
            },
            _ => unknown,
        }
    }
}
