//! Interpreter: runs a lowered program once on a register file.

use crate::bytecode::reg;
use crate::check::ratio;
use crate::lower::{Kind, LARGE_FILE_REGISTERS, LoweredCode, LoweredStep, slot_of};
use crate::program::Program;

/// Register file, numbered as in the lowered program; `N` is a power of two.
pub(crate) struct Registers<const N: usize>(pub [u64; N]);

impl<const N: usize> Registers<N> {
    #[inline(always)]
    pub fn get(&self, slot: u8) -> u64 {
        self.0[usize::from(slot) % N]
    }

    #[inline(always)]
    pub fn set(&mut self, slot: u8, value: u64) {
        self.0[usize::from(slot) % N] = value;
    }
}

/// Result of a run in addition to the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Number of operations on which the reference aborts.
    pub faults: u32,
    /// Smallest value of `Micros` that a guard still waits to exceed; `u64::MAX` if none waits.
    pub next_threshold: u64,
}

/// Runs the clauses in order, up to the first whose guard is true and whose body does not fall
/// through.
#[inline(never)]
pub(crate) fn run<const N: usize>(code: &LoweredCode, registers: &mut Registers<N>) -> Trace {
    let mut trace = Trace {
        faults: 0,
        next_threshold: u64::MAX,
    };
    // A body may change the threshold of an earlier guard, and guards after the last executed
    // clause were not evaluated. Then the threshold found during the run is not final.
    if run_steps::<N, false>(code.steps(), 0, registers, &mut trace) {
        trace.next_threshold = evaluate_waiting_guards(code, registers).next_threshold;
    }
    trace
}

/// Result of evaluating all waiting guards.
pub(crate) struct WaitingGuards {
    /// Smallest value of `Micros` that a guard still waits to exceed; `u64::MAX` if none waits.
    pub next_threshold: u64,
    /// A guard that waits for `Micros` is already true.
    pub is_ready: bool,
}

/// Evaluates every guard that waits for `Micros` without running any body, and returns the next
/// threshold. A guard that is already true has none, so a program that never resets `Micros` cannot
/// keep its flow's timer busy.
#[cold]
#[inline(never)]
pub(crate) fn evaluate_waiting_guards<const N: usize>(
    code: &LoweredCode,
    registers: &mut Registers<N>,
) -> WaitingGuards {
    let mut trace = Trace {
        faults: 0,
        next_threshold: u64::MAX,
    };
    let mut ready = false;
    for &start in code.waiting() {
        ready |= run_steps::<N, true>(code.steps(), usize::from(start), registers, &mut trace);
    }
    WaitingGuards {
        next_threshold: trace.next_threshold,
        is_ready: ready,
    }
}

/// Runs steps from `next` to the end of the program. Returns true if the guards must be evaluated
/// again. With `GUARD` it runs to the end of the guard that starts at `next`, and returns its
/// value.
#[inline(always)]
fn run_steps<const N: usize, const GUARD: bool>(
    steps: &[LoweredStep],
    mut next: usize,
    registers: &mut Registers<N>,
    trace: &mut Trace,
) -> bool {
    let mut stale = false;
    // All jumps go forward, so the loop ends after at most one iteration per step.
    while let Some(step) = steps.get(next) {
        next += 1;
        let a = registers.get(step.a);
        let b = registers.get(step.b);
        let imm = step.imm;
        let result = match step.kind {
            Kind::Move => b,
            Kind::MoveImm => imm,
            Kind::Add => add(a, b, trace),
            Kind::AddImm => add(a, imm, trace),
            Kind::Sub => sub(a, b, trace),
            Kind::SubImm => sub(a, imm, trace),
            Kind::Diff => a.saturating_sub(b),
            Kind::DiffImm => a.saturating_sub(imm),
            Kind::Mul => mul(a, b, trace),
            Kind::MulImm => mul(a, imm, trace),
            Kind::Div => div(a, b, trace),
            Kind::DivImm => div(a, imm, trace),
            Kind::MulRatio => mul_ratio(a, ratio(imm)),
            Kind::Max => a.max(b),
            Kind::MaxImm => a.max(imm),
            Kind::Min => a.min(b),
            Kind::MinImm => a.min(imm),
            Kind::MaxWrap => max_wrap(a, b),
            Kind::MaxWrapImm => max_wrap(a, imm),
            Kind::Eq => u64::from(a == b),
            Kind::EqImm => u64::from(a == imm),
            Kind::Ne => u64::from(a != b),
            Kind::NeImm => u64::from(a != imm),
            Kind::Gt => u64::from(a > b),
            Kind::GtImm => u64::from(a > imm),
            Kind::Ge => u64::from(a >= b),
            Kind::GeImm => u64::from(a >= imm),
            Kind::Lt => u64::from(a < b),
            Kind::LtImm => u64::from(a < imm),
            Kind::Le => u64::from(a <= b),
            Kind::LeImm => u64::from(a <= imm),
            Kind::After => after(registers.get(MICROS_SLOT), b, trace),
            Kind::AfterImm => after(registers.get(MICROS_SLOT), imm, trace),
            Kind::And => u64::from(a != 0 && b != 0),
            Kind::AndImm => u64::from(a != 0 && imm != 0),
            Kind::Or => u64::from(a | b != 0),
            Kind::OrImm => u64::from(a | imm != 0),
            Kind::Not => u64::from(b == 0),
            Kind::NotImm => u64::from(imm == 0),
            Kind::If => select(a != 0, b, registers.get(step.dst)),
            Kind::IfImm => select(a != 0, imm, registers.get(step.dst)),
            Kind::NotIf => select(a == 0, b, registers.get(step.dst)),
            Kind::NotIfImm => select(a == 0, imm, registers.get(step.dst)),
            Kind::Ewma => ewma(ratio(imm), registers.get(step.dst), b),
            Kind::EwmaVar => ewma(weight_in_tenths(a, trace), registers.get(step.dst), b),
            Kind::EwmaVarImm => ewma(weight_in_tenths(a, trace), registers.get(step.dst), imm),
            Kind::MoveMove => {
                registers.set(step.dst, b);
                registers.set(step.dst2, registers.get(step.b2));
                continue;
            }
            Kind::AddAdd => {
                registers.set(step.dst, add(a, b, trace));
                let sum = add(registers.get(step.dst2), registers.get(step.b2), trace);
                registers.set(step.dst2, sum);
                continue;
            }
            Kind::Guard
            | Kind::AndGuard
            | Kind::OrGuard
            | Kind::AfterGuard
            | Kind::AfterImmGuard => {
                let open = match step.kind {
                    Kind::AndGuard => a != 0 && b != 0,
                    Kind::OrGuard => a | b != 0,
                    Kind::AfterGuard => after(registers.get(MICROS_SLOT), b, trace) != 0,
                    Kind::AfterImmGuard => after(registers.get(MICROS_SLOT), imm, trace) != 0,
                    _ => a != 0,
                };
                if GUARD {
                    return open;
                }
                if !open {
                    next = usize::from(step.jump);
                }
                continue;
            }
            Kind::SkipIfZero => {
                if a == 0 {
                    next += imm as usize;
                }
                continue;
            }
            Kind::Stale => {
                stale = true;
                continue;
            }
            Kind::End | Kind::EndAfresh if registers.get(CONTINUE_SLOT) == 0 => {
                return stale || imm != 0;
            }
            Kind::End => continue,
            Kind::EndAfresh => {
                registers.set(CONTINUE_SLOT, 0);
                continue;
            }
            Kind::Stop => return stale || imm != 0,
        };
        registers.set(step.dst, result);
    }
    stale
}

const MICROS_SLOT: u8 = slot_of(reg::MICROS);
const CONTINUE_SLOT: u8 = slot_of(reg::SHOULD_CONTINUE);

/// Runs `program` once on registers numbered as in the bytecode, and counts faults, for the tests
/// of other back ends. Temporaries and [`reg::SHOULD_CONTINUE`] are undefined afterwards.
#[doc(hidden)]
pub fn interpret(program: &Program, registers: &mut [u64; 128]) -> u32 {
    let code = LoweredCode::new(program, false);
    let mut file = Registers([0; LARGE_FILE_REGISTERS]);
    let variables = usize::from(reg::VARS)..usize::from(reg::VARS) + program.vars().len();
    let both = || {
        let signals = (reg::SIGNALS..reg::SIGNALS_END)
            .filter(|&signal| signal != reg::PACED || program.reads(signal));
        signals
            .chain(reg::MICROS..=reg::CONSTANT_ONE)
            .map(usize::from)
            .chain(variables.clone())
    };
    for register in both() {
        file.set(code.slot(register as u8), registers[register]);
    }
    let trace = run(&code, &mut file);
    for register in both() {
        registers[register] = file.get(code.slot(register as u8));
    }
    trace.faults
}

#[inline(always)]
fn add(a: u64, b: u64, trace: &mut Trace) -> u64 {
    let (sum, fault) = a.overflowing_add(b);
    trace.faults += u32::from(fault);
    if fault { u64::MAX } else { sum }
}

#[inline(always)]
fn sub(a: u64, b: u64, trace: &mut Trace) -> u64 {
    trace.faults += u32::from(b > a);
    a.saturating_sub(b)
}

/// Saturates and counts a fault if the product does not fit. The reference's overflow test misses
/// some cases, such as 7 times 0x6000000000000000, and continues with the low bits of the product.
#[inline(always)]
fn mul(a: u64, b: u64, trace: &mut Trace) -> u64 {
    let (product, fault) = a.overflowing_mul(b);
    trace.faults += u32::from(fault);
    if fault { u64::MAX } else { product }
}

#[inline(always)]
fn div(a: u64, b: u64, trace: &mut Trace) -> u64 {
    trace.faults += u32::from(b == 0);
    a.checked_div(b).unwrap_or(0)
}

#[inline(always)]
fn after(micros: u64, b: u64, trace: &mut Trace) -> u64 {
    let late = micros > b;
    trace.next_threshold = trace.next_threshold.min(if late { u64::MAX } else { b });
    u64::from(late)
}

#[inline(always)]
fn select(new: bool, value: u64, old: u64) -> u64 {
    if new { value } else { old }
}

/// `a * num / den` in 128 bits; saturates. The check keeps `den` above 0.
#[inline(never)]
fn mul_ratio(a: u64, (num, den): (u64, u64)) -> u64 {
    let value = (u128::from(a) * u128::from(num)).checked_div(u128::from(den));
    u64::try_from(value.unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Returns a weight in tenths as a ratio.
fn weight_in_tenths(a: u64, trace: &mut Trace) -> (u64, u64) {
    trace.faults += u32::from(a > 10);
    (a.min(10), 10)
}

/// Exponentially weighted moving average that keeps `num/den` of the old value. The first sample is
/// taken unchanged.
#[inline(never)]
fn ewma((num, den): (u64, u64), old: u64, new: u64) -> u64 {
    if old == 0 {
        return new;
    }
    let kept = u128::from(num) * u128::from(old);
    let added = u128::from(den.saturating_sub(num)) * u128::from(new);
    u64::try_from((kept + added).checked_div(u128::from(den)).unwrap_or(0)).unwrap_or(u64::MAX)
}

/// Returns the later of two 32-bit sequence numbers, in the shorter direction around the circle; at
/// exactly half the circle the smaller number. 0 means unset.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytecode::{Clause, Instr, Op, Var};

    /// Signals, built-in state and each variable go in and come out.
    #[test]
    fn interpret_takes_and_returns_every_register() {
        let sum = |dst, a, b| Instr {
            op: Op::Add,
            has_imm: false,
            dst,
            a,
            b,
            imm: 0,
        };
        let (first, last) = (reg::VARS, reg::VARS + 2);
        let instrs = [
            sum(first, reg::PACED, reg::CWND),
            sum(last, last, reg::SIGNALS),
            sum(reg::RATE, last, last),
        ];
        let clause = Clause {
            flag: reg::CONSTANT_ONE,
            body_end: 3,
            ..Clause::default()
        };
        let program = Program::check(1, &instrs, &[clause], &[Var::default(); 3]).expect("good");
        let mut registers = [7; 128];
        registers[usize::from(reg::PACED)] = 1;
        registers[usize::from(reg::CWND)] = 100;
        registers[usize::from(last)] = u64::MAX;
        assert_eq!(interpret(&program, &mut registers), 2, "two sums overflow");
        let [one, two, three] = [first, last, reg::RATE].map(|r| registers[usize::from(r)]);
        assert_eq!((one, two, three), (101, u64::MAX, u64::MAX));
        assert_eq!(
            registers[usize::from(reg::TEMPS)],
            7,
            "not a register of the caller"
        );
    }
}
