//! The interpreter: runs a checked program once over a register file.

use crate::bytecode::{Instr, MAX_INSTRS, Op, reg};
use crate::check::ratio;
use crate::program::Program;

/// Registers by number. 128 of them, so that an index of 7 bits needs no bounds check.
pub(crate) struct Registers(pub [u64; 128]);

impl Registers {
    #[inline(always)]
    pub fn get(&self, register: u8) -> u64 {
        self.0[usize::from(register & 127)]
    }

    #[inline(always)]
    pub fn set(&mut self, register: u8, value: u64) {
        self.0[usize::from(register & 127)] = value;
    }
}

/// What a run left behind, beside the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Operations that would have aborted the reference.
    pub faults: u32,
    /// The smallest value of `Micros` that some guard still waits to exceed; `u64::MAX` when none waits.
    pub waits_for: u64,
}

/// Runs the clauses in order, up to and with the first whose guard is true and whose body does not fall through.
/// `sticky`: one `(fallthrough)` holds for all clauses after it, as in libccp.
#[inline(always)]
pub(crate) fn run(program: &Program, registers: &mut Registers, sticky: bool) -> Trace {
    let mut trace = Trace {
        faults: 0,
        waits_for: u64::MAX,
    };
    // Bodies may change what an earlier guard waits for, and a guard behind the last clause run was not looked at: then
    // what was gathered on the way is not the whole truth.
    let mut stale = false;
    let waiting = program.waiting_clauses();
    for (n, clause) in program.clauses().iter().enumerate() {
        range(
            program.code(),
            clause.guard_start,
            clause.body_start,
            registers,
            &mut trace,
        );
        if registers.get(clause.flag) == 0 {
            continue;
        }
        if !sticky {
            registers.set(reg::SHOULD_CONTINUE, 0);
        }
        range(
            program.code(),
            clause.body_start,
            clause.body_end,
            registers,
            &mut trace,
        );
        let stop = registers.get(reg::SHOULD_CONTINUE) == 0;
        stale |= waiting & up_to(n) != 0 || (stop && waiting & !up_to(n) != 0);
        if stop {
            break;
        }
    }
    if stale {
        trace.waits_for = look_ahead(program, registers).waits_for;
    }
    trace
}

/// What a look at every guard found.
pub(crate) struct Ahead {
    /// The smallest value of `Micros` that some guard still waits to exceed; `u64::MAX` when none waits.
    pub waits_for: u64,
    /// Some guard that waits for `Micros` is true already.
    pub ready: bool,
}

/// Evaluates every guard without running any body: what is the next value of `Micros` that one waits for? A guard that
/// is true already waits for nothing, so a program that never resets `Micros` cannot keep its flow's timer busy.
#[cold]
pub(crate) fn look_ahead(program: &Program, registers: &mut Registers) -> Ahead {
    let mut trace = Trace {
        faults: 0,
        waits_for: u64::MAX,
    };
    let mut ready = false;
    for (n, clause) in program.clauses().iter().enumerate() {
        range(
            program.code(),
            clause.guard_start,
            clause.body_start,
            registers,
            &mut trace,
        );
        ready |= program.waiting_clauses() >> (n & 31) & 1 == 1 && registers.get(clause.flag) != 0;
    }
    Ahead {
        waits_for: trace.waits_for,
        ready,
    }
}

/// Clauses 0 to n as a set.
fn up_to(n: usize) -> u32 {
    u32::MAX >> (31 - (n & 31))
}

#[inline(always)]
fn range(code: &[Instr; MAX_INSTRS], start: u16, end: u16, registers: &mut Registers, trace: &mut Trace) {
    let end = usize::from(end);
    let mut next = usize::from(start);
    while next < end {
        let instr = &code[next % MAX_INSTRS];
        next += 1;
        let a = registers.get(instr.a);
        let b = if instr.has_imm {
            instr.imm
        } else {
            registers.get(instr.b)
        };
        let result = match instr.op {
            Op::Move => b,
            Op::Add => {
                let (sum, fault) = a.overflowing_add(b);
                trace.faults += u32::from(fault);
                if fault { u64::MAX } else { sum }
            }
            Op::Sub => {
                trace.faults += u32::from(b > a);
                a.saturating_sub(b)
            }
            Op::Diff => a.saturating_sub(b),
            Op::Mul => {
                let (product, fault) = a.overflowing_mul(b);
                trace.faults += u32::from(fault);
                if fault { u64::MAX } else { product }
            }
            Op::Div => match a.checked_div(b) {
                Some(quotient) => quotient,
                None => {
                    trace.faults += 1;
                    0
                }
            },
            Op::MulRatio => {
                let (num, den) = ratio(instr.imm);
                mul_ratio(a, num, den)
            }
            Op::Max => a.max(b),
            Op::Min => a.min(b),
            Op::MaxWrap => max_wrap(a, b),
            Op::Eq => u64::from(a == b),
            Op::Ne => u64::from(a != b),
            Op::Gt => u64::from(a > b),
            Op::Ge => u64::from(a >= b),
            Op::Lt => u64::from(a < b),
            Op::Le => u64::from(a <= b),
            Op::After => {
                let late = registers.get(reg::MICROS) > b;
                trace.waits_for = trace.waits_for.min(if late { u64::MAX } else { b });
                u64::from(late)
            }
            Op::And => u64::from(a != 0 && b != 0),
            Op::Or => u64::from(a | b != 0),
            Op::Not => u64::from(b == 0),
            Op::If => {
                if a != 0 {
                    b
                } else {
                    registers.get(instr.dst)
                }
            }
            Op::NotIf => {
                if a == 0 {
                    b
                } else {
                    registers.get(instr.dst)
                }
            }
            Op::Ewma => {
                let (num, den) = ratio(instr.imm);
                ewma(num, den, registers.get(instr.dst), registers.get(instr.b))
            }
            Op::EwmaVar => {
                trace.faults += u32::from(a > 10);
                ewma(a.min(10), 10, registers.get(instr.dst), b)
            }
            Op::SkipIfZero => {
                if a == 0 {
                    // Checked to stay inside the range.
                    next += instr.imm as usize;
                }
                continue;
            }
        };
        registers.set(instr.dst, result);
    }
}

/// `a * num / den` in 128 bits; saturates. The check keeps `den` above 0.
#[cold]
#[inline(never)]
fn mul_ratio(a: u64, num: u64, den: u64) -> u64 {
    let value = (u128::from(a) * u128::from(num))
        .checked_div(u128::from(den))
        .unwrap_or(0);
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// An exponentially weighted moving average that keeps `num/den` of the old value; the first sample is taken as it is.
#[inline(never)]
fn ewma(num: u64, den: u64, old: u64, new: u64) -> u64 {
    if old == 0 {
        return new;
    }
    let kept = u128::from(num) * u128::from(old);
    let added = u128::from(den.saturating_sub(num)) * u128::from(new);
    let value = (kept + added).checked_div(u128::from(den)).unwrap_or(0);
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The later of two 32-bit sequence numbers, by the shorter way around; at exactly half the circle the smaller number.
/// 0 means unset.
fn max_wrap(a: u64, b: u64) -> u64 {
    if a == 0 || b == 0 {
        return a | b;
    }
    let [a, b] = [a as u32, b as u32];
    let later = match b.wrapping_sub(a) {
        0x8000_0000 => a.min(b),
        ahead if ahead < 0x8000_0000 => b,
        _ => a,
    };
    u64::from(later)
}
