//! Translation from CCP's instructions to ccplane's bytecode.

use ccplane_datapath::{Clause, INFINITY, Instr, Op, Program, Var, VarKind, reg};

use super::{DEF_INFINITY, Install, RawInstr, Reg, TEMPS_MAX, VARS_MAX, op};
use crate::WireError;
use crate::message_reader::MessageReader;
use crate::v1::{class, implicit};

impl Install<'_> {
    /// Decodes and checks the program. It behaves as in a CCP datapath, except that arithmetic
    /// cannot fail.
    pub fn decode(&self) -> Result<Program, WireError> {
        let instrs: Vec<RawInstr> = self
            .instrs
            .iter()
            .map(raw_instr)
            .collect::<Result<_, _>>()?;
        let defs = instrs.iter().take_while(|i| i.op == op::DEF).count();
        let decoder = Decoder::new(&instrs, defs)?;
        let (mut out, mut clauses) = (Vec::new(), Vec::new());
        let mut next = defs;
        for event in self.events {
            let mut event = MessageReader::new("an event", event);
            let [guard, guard_len, body, body_len] =
                [event.u32()?, event.u32()?, event.u32()?, event.u32()?];
            // The reference's compiler writes events in this order; any other could execute an
            // instruction twice.
            if guard as usize != next || body as usize != next.saturating_add(guard_len as usize) {
                return Err(WireError::UnknownValue {
                    what: "event order at instruction",
                    value: u64::from(guard),
                });
            }
            let range = |from: u32, len: u32| {
                let needs = (from as usize).saturating_add(len as usize);
                let range = instrs.get(from as usize..needs);
                range.ok_or(WireError::Truncated {
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
            return Err(WireError::LengthMismatch {
                what: "INSTALL",
                says: instrs.len(),
                needs: next,
            });
        }
        Ok(Program::check(self.program, &out, &clauses, &decoder.vars)?)
    }
}

fn raw_instr(bytes: &[u8; 16]) -> Result<RawInstr, WireError> {
    let mut reader = MessageReader::new("an instruction", bytes);
    let op = reader.u8()?;
    Ok(RawInstr {
        op,
        result: Reg::read(&mut reader)?,
        left: Reg::read(&mut reader)?,
        right: Reg::read(&mut reader)?,
    })
}

/// Temporaries for the flag and for constants on the left, unused by CCP programs.
const FLAG_TEMP: u8 = reg::TEMPS + TEMPS_MAX as u8;
const LEFT_TEMP: u8 = FLAG_TEMP + 1;
const RIGHT_TEMP: u8 = FLAG_TEMP + 2;

struct Decoder {
    vars: Vec<Var>,
    reports: usize,
    controls: usize,
}

impl Decoder {
    /// Collects the variables, both defined and only used.
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
                if at >= VARS_MAX {
                    return Err(WireError::UnknownValue {
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
                        return Err(WireError::UnknownValue {
                            what: "definition value register type",
                            value: instr.right.class.into(),
                        });
                    }
                    let volatile = matches!(
                        register.class,
                        class::VOLATILE_REPORT | class::VOLATILE_CONTROL
                    );
                    let value = u64::from(instr.right.index);
                    let init = if value == DEF_INFINITY {
                        INFINITY
                    } else {
                        value
                    };
                    list[at] = Var {
                        kind,
                        volatile,
                        init,
                    };
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

    /// Decodes one of CCP's instructions into one to three.
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
                return Err(WireError::UnknownValue {
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
        // The left operand of BIND is unused.
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

    /// Returns the register that holds an operand; a constant is first moved into `temp`.
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
        let unknown = Err(WireError::UnknownValue {
            what: "register type",
            value: u64::from(register.class) << 32 | u64::from(register.index),
        });
        let at = register.index as usize;
        // `new` has counted every variable, so these sums stay below 256.
        let var = |at: usize| Ok(reg::VARS + at as u8);
        match register.class {
            class::REPORT | class::VOLATILE_REPORT => var(at),
            class::CONTROL | class::VOLATILE_CONTROL => var(self.reports + at),
            class::LOCAL => var(self.reports + self.controls + at),
            class::PRIMITIVE if at < 15 => Ok(at as u8),
            class::TEMPORARY if at < TEMPS_MAX => Ok(reg::TEMPS + at as u8),
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
