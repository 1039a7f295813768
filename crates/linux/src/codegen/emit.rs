//! The eBPF of each operation.
//!
//! The code takes a pointer to a `struct fold_ctx` (`bpf/layout.h`) in r1 and works in place: all
//! values, including temporaries, live in that memory. The verifier does not track the contents of
//! such memory, so both arms of a branch end in equal states and are pruned where they join.
//! Verification is therefore linear in the length of the code, on old kernels too. The last value
//! written also stays in r0, which saves the next instruction a load.
//!
//! eBPF has no 128-bit arithmetic. Ratios and averages have a factor below 2^32, so products fit in
//! 96 bits. A quotient takes two steps of long division in base 2^32, both exact in 64 bits. If all
//! values are below 2^32, as is usual, 64 bits suffice and a shorter path is taken.

use ccplane_datapath::{Instr, Op, reg};

use crate::codegen::FlatStep;
use crate::codegen::asm::{Alu, Assembler, Cond, Insn, Label, Operand, Reg};

/// Offset of the fault counter in `struct fold_ctx`, after the 128 registers.
const FAULTS_OFFSET: i16 = 128 * 8;
/// Offsets of the guards' thresholds: the smallest one that `Micros` has not exceeded, and the
/// smallest one that it has.
const WAITS_OFFSET: i16 = FAULTS_OFFSET + 8;
const WAITED_OFFSET: i16 = FAULTS_OFFSET + 16;

/// Emits the code of `steps`, which ends by running off its end. `note` is called with the first
/// slot of each step.
pub(crate) fn emit(steps: &[FlatStep], note: impl FnMut(usize)) -> Vec<Insn> {
    let mut code = BpfCode::default();
    code.program(steps, note);
    code.asm.finish()
}

const CONTEXT_REG: Reg = Reg::R1;

const fn slot(register: u8) -> i16 {
    register as i16 * 8
}

/// Returns numerator and denominator of an instruction's ratio.
fn ratio(imm: u64) -> (u64, u64) {
    (imm >> 32, imm & 0xffff_ffff)
}

/// Weight of an average, below 2^32.
#[derive(Clone, Copy)]
enum Factor {
    Constant(u64),
    Reg(Reg),
}

#[derive(Default)]
struct BpfCode {
    asm: Assembler,
    /// The register whose value is also in r0.
    in_r0: Option<u8>,
}

impl BpfCode {
    fn program(&mut self, steps: &[FlatStep], mut note: impl FnMut(usize)) {
        let stop = self.asm.label();
        self.asm
            .jump_if(Cond::Eq, CONTEXT_REG, Operand::Imm(0), stop);
        // Pending jumps and the steps that they target.
        let mut skips = vec![(steps.len(), stop)];
        for (at, step) in steps.iter().enumerate() {
            for (_, label) in skips.extract_if(.., |(target, _)| *target == at) {
                self.join(label);
            }
            note(self.asm.slots());
            match *step {
                FlatStep::Run(instr) => {
                    if let Some(distance) = self.emit_instr(&instr) {
                        let label = self.skip_if_zero(instr.a);
                        skips.push((at + 1 + distance, label));
                    }
                }
                // After the last clause the run stops anyway.
                FlatStep::End if at + 1 < steps.len() => {
                    let end = self.skip_if_zero(reg::SHOULD_CONTINUE);
                    skips.push((steps.len(), end));
                    self.write(reg::SHOULD_CONTINUE, Operand::Imm(0));
                }
                FlatStep::End => (),
            }
        }
        for (_, label) in skips {
            self.join(label);
        }
    }

    /// Binds a label. If a jump reaches it, the contents of r0 are unknown.
    fn join(&mut self, label: Label) {
        if self.asm.bind(label) {
            self.in_r0 = None;
        }
    }

    fn skip_if_zero(&mut self, register: u8) -> Label {
        let label = self.asm.label();
        self.load(Reg::R0, register);
        self.in_r0 = Some(register);
        self.asm.jump_if(Cond::Eq, Reg::R0, Operand::Imm(0), label);
        label
    }

    /// Loads a register of the file, from r0 if its value is there. Loading another one into r0
    /// invalidates the cached value.
    fn load(&mut self, to: Reg, register: u8) {
        match (self.in_r0 == Some(register), to) {
            (true, Reg::R0) => (),
            (true, _) => self.asm.mov(to, Operand::Reg(Reg::R0)),
            (false, _) => {
                self.asm.load(to, CONTEXT_REG, slot(register));
                if to == Reg::R0 {
                    self.in_r0 = None;
                }
            }
        }
    }

    /// Returns the second operand: an immediate, or `scratch` loaded with the value. Must precede
    /// anything that overwrites r0.
    fn second_operand(&mut self, instr: &Instr, scratch: Reg) -> Operand {
        if !instr.has_imm {
            self.load(scratch, instr.b);
            return Operand::Reg(scratch);
        }
        self.constant(instr.imm, scratch)
    }

    fn constant(&mut self, value: u64, scratch: Reg) -> Operand {
        Operand::constant(value).unwrap_or_else(|| {
            self.asm.mov_constant(scratch, value);
            Operand::Reg(scratch)
        })
    }

    /// Stores to a register of the file.
    fn write(&mut self, register: u8, value: Operand) {
        self.asm.store(CONTEXT_REG, slot(register), value);
        match value {
            Operand::Reg(Reg::R0) => self.in_r0 = Some(register),
            _ if self.in_r0 == Some(register) => self.in_r0 = None,
            _ => (),
        }
    }

    /// Increments the fault counter. Clobbers r3.
    fn fault(&mut self) {
        self.asm.load(Reg::R3, CONTEXT_REG, FAULTS_OFFSET);
        self.asm.alu(Alu::Add, Reg::R3, Operand::Imm(1));
        self.asm
            .store(CONTEXT_REG, FAULTS_OFFSET, Operand::Reg(Reg::R3));
    }

    /// Emits one instruction. For a skip it returns the distance and leaves the jump to the caller.
    fn emit_instr(&mut self, instr: &Instr) -> Option<usize> {
        match instr.op {
            Op::SkipIfZero => return Some(usize::try_from(instr.imm).unwrap_or(usize::MAX)),
            Op::Move => self.copy(instr),
            Op::If => self.copy_unless(instr, Cond::Eq),
            Op::NotIf => self.copy_unless(instr, Cond::Ne),
            _ => {
                self.result(instr);
                self.write(instr.dst, Operand::Reg(Reg::R0));
            }
        }
        None
    }

    fn copy(&mut self, instr: &Instr) {
        let value = self.second_operand(instr, Reg::R0);
        self.write(instr.dst, value);
    }

    /// `dst = b`, skipped if `a` compares to 0 as `skip` states.
    fn copy_unless(&mut self, instr: &Instr, skip: Cond) {
        let end = self.asm.label();
        self.load(Reg::R2, instr.a);
        self.asm.jump_if(skip, Reg::R2, Operand::Imm(0), end);
        self.copy(instr);
        self.join(end);
    }

    /// Computes the result of an instruction into r0.
    fn result(&mut self, instr: &Instr) {
        match instr.op {
            Op::Add => self.add(instr),
            Op::Sub => self.subtract(instr, true),
            Op::Diff => self.subtract(instr, false),
            Op::Mul if instr.has_imm => self.multiply_constant(instr),
            Op::Mul => self.multiply(instr),
            Op::Div => self.divide(instr),
            Op::MulRatio => self.multiply_ratio(instr),
            Op::Max => self.choose(instr, Cond::Ge),
            Op::Min => self.choose(instr, Cond::Le),
            Op::MaxWrap => self.max_wrap(instr),
            Op::Eq => self.compare(instr.a, instr, Cond::Eq),
            Op::Ne => self.compare(instr.a, instr, Cond::Ne),
            Op::Gt => self.compare(instr.a, instr, Cond::Gt),
            Op::Ge => self.compare(instr.a, instr, Cond::Ge),
            Op::Lt => self.compare(instr.a, instr, Cond::Lt),
            Op::Le => self.compare(instr.a, instr, Cond::Le),
            Op::After => self.after(instr),
            Op::And => self.logic(instr, Cond::Eq, 0),
            Op::Or => self.logic(instr, Cond::Ne, 1),
            Op::Not => self.not(instr),
            Op::Ewma => self.ewma(instr),
            Op::EwmaVar => self.ewma_variable(instr),
            Op::Move | Op::If | Op::NotIf | Op::SkipIfZero => unreachable!("handled by the caller"),
        }
    }

    /// Loads `a` into r0 and returns `b`, the operands of most operations.
    fn operands(&mut self, instr: &Instr) -> Operand {
        let b = self.second_operand(instr, Reg::R2);
        self.load(Reg::R0, instr.a);
        b
    }

    fn add(&mut self, instr: &Instr) {
        let fits = self.asm.label();
        let b = self.operands(instr);
        self.asm.alu(Alu::Add, Reg::R0, b);
        self.asm.jump_if(Cond::Ge, Reg::R0, b, fits);
        self.fault();
        self.asm.mov(Reg::R0, Operand::Imm(-1));
        self.asm.bind(fits);
    }

    fn subtract(&mut self, instr: &Instr, fault: bool) {
        let fits = self.asm.label();
        let b = self.operands(instr);
        self.asm.jump_if(Cond::Ge, Reg::R0, b, fits);
        if fault {
            self.fault();
        }
        self.asm.mov(Reg::R0, b);
        self.asm.bind(fits);
        self.asm.alu(Alu::Sub, Reg::R0, b);
    }

    fn multiply_constant(&mut self, instr: &Instr) {
        let (fits, end) = (self.asm.label(), self.asm.label());
        let factor = self.operands(instr);
        if instr.imm > 1 {
            let largest = self.constant(u64::MAX / instr.imm, Reg::R3);
            self.asm.jump_if(Cond::Le, Reg::R0, largest, fits);
            self.fault();
            self.asm.mov(Reg::R0, Operand::Imm(-1));
            self.asm.jump(end);
        }
        self.asm.bind(fits);
        self.asm.alu(Alu::Mul, Reg::R0, factor);
        self.asm.bind(end);
    }

    /// Two factors below 2^32 cannot overflow. Otherwise the product divided by one factor must
    /// equal the other.
    fn multiply(&mut self, instr: &Instr) {
        let end = self.asm.label();
        let b = self.operands(instr);
        self.asm.mov(Reg::R4, Operand::Reg(Reg::R0));
        self.asm.mov(Reg::R3, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::Or, Reg::R3, b);
        self.asm.alu(Alu::RightShift, Reg::R3, Operand::Imm(32));
        self.asm.alu(Alu::Mul, Reg::R0, b);
        self.asm.jump_if(Cond::Eq, Reg::R3, Operand::Imm(0), end);
        self.asm.jump_if(Cond::Eq, Reg::R4, Operand::Imm(0), end);
        self.asm.mov(Reg::R3, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::Div, Reg::R3, Operand::Reg(Reg::R4));
        self.asm.jump_if(Cond::Eq, Reg::R3, b, end);
        self.fault();
        self.asm.mov(Reg::R0, Operand::Imm(-1));
        self.asm.bind(end);
    }

    fn divide(&mut self, instr: &Instr) {
        if instr.has_imm && instr.imm == 0 {
            // The verifier rejects division by an immediate 0.
            self.fault();
            return self.asm.mov(Reg::R0, Operand::Imm(0));
        }
        let divisor = self.operands(instr);
        if !instr.has_imm {
            let some = self.asm.label();
            self.asm.jump_if(Cond::Ne, Reg::R2, Operand::Imm(0), some);
            self.fault();
            self.asm.bind(some);
        }
        self.asm.alu(Alu::Div, Reg::R0, divisor);
    }

    fn choose(&mut self, instr: &Instr, keep: Cond) {
        let end = self.asm.label();
        let b = self.operands(instr);
        self.asm.jump_if(keep, Reg::R0, b, end);
        self.asm.mov(Reg::R0, b);
        self.asm.bind(end);
    }

    fn compare(&mut self, left: u8, instr: &Instr, cond: Cond) {
        let end = self.asm.label();
        let b = self.second_operand(instr, Reg::R2);
        self.load(Reg::R3, left);
        self.asm.mov(Reg::R0, Operand::Imm(1));
        self.asm.jump_if(cond, Reg::R3, b, end);
        self.asm.mov(Reg::R0, Operand::Imm(0));
        self.asm.bind(end);
    }

    /// `r0 = Micros > b`, and records the guard's threshold.
    fn after(&mut self, instr: &Instr) {
        let (above, end) = (self.asm.label(), self.asm.label());
        match instr.has_imm {
            true => self.asm.mov_constant(Reg::R2, instr.imm),
            false => self.load(Reg::R2, instr.b),
        }
        self.load(Reg::R3, reg::MICROS);
        self.asm.mov(Reg::R0, Operand::Imm(1));
        self.asm
            .jump_if(Cond::Gt, Reg::R3, Operand::Reg(Reg::R2), above);
        self.asm.mov(Reg::R0, Operand::Imm(0));
        self.store_min(WAITS_OFFSET, end);
        self.asm.jump(end);
        self.asm.bind(above);
        self.store_min(WAITED_OFFSET, end);
        self.asm.bind(end);
    }

    /// Stores r2 at `offset` if it is smaller than the word there, else jumps to `end`. Clobbers
    /// r3.
    fn store_min(&mut self, offset: i16, end: Label) {
        self.asm.load(Reg::R3, CONTEXT_REG, offset);
        self.asm
            .jump_if(Cond::Le, Reg::R3, Operand::Reg(Reg::R2), end);
        self.asm.store(CONTEXT_REG, offset, Operand::Reg(Reg::R2));
    }

    /// Yields `decided` if either operand compares to 0 as `cond` states, else the opposite.
    fn logic(&mut self, instr: &Instr, cond: Cond, decided: i32) {
        let end = self.asm.label();
        self.load(Reg::R3, instr.a);
        if instr.has_imm {
            self.asm
                .mov(Reg::R2, Operand::Imm(i32::from(instr.imm != 0)));
        } else {
            self.load(Reg::R2, instr.b);
        }
        self.asm.mov(Reg::R0, Operand::Imm(decided));
        self.asm.jump_if(cond, Reg::R3, Operand::Imm(0), end);
        self.asm.jump_if(cond, Reg::R2, Operand::Imm(0), end);
        self.asm.mov(Reg::R0, Operand::Imm(1 - decided));
        self.asm.bind(end);
    }

    fn not(&mut self, instr: &Instr) {
        if instr.has_imm {
            return self
                .asm
                .mov(Reg::R0, Operand::Imm(i32::from(instr.imm == 0)));
        }
        let end = self.asm.label();
        self.load(Reg::R2, instr.b);
        self.asm.mov(Reg::R0, Operand::Imm(1));
        self.asm.jump_if(Cond::Eq, Reg::R2, Operand::Imm(0), end);
        self.asm.mov(Reg::R0, Operand::Imm(0));
        self.asm.bind(end);
    }

    /// `dst = dst op value`, using r5 if the constant does not fit an immediate.
    fn alu_constant(&mut self, op: Alu, dst: Reg, value: u64) {
        let value = self.constant(value, Reg::R5);
        self.asm.alu(op, dst, value);
    }

    fn multiply_ratio(&mut self, instr: &Instr) {
        let (num, den) = ratio(instr.imm);
        let (wide, end) = (self.asm.label(), self.asm.label());
        self.load(Reg::R0, instr.a);
        self.asm.mov(Reg::R3, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::RightShift, Reg::R3, Operand::Imm(32));
        self.asm.jump_if(Cond::Ne, Reg::R3, Operand::Imm(0), wide);
        self.alu_constant(Alu::Mul, Reg::R0, num);
        self.alu_constant(Alu::Div, Reg::R0, den);
        self.asm.jump(end);

        // With a = high * 2^32 + low, the product is r3 * 2^32 + r0, where r3 = high * num + carry
        // and r0 is the low half.
        self.asm.bind(wide);
        self.asm.mov_low32(Reg::R0, Reg::R0);
        self.alu_constant(Alu::Mul, Reg::R0, num);
        self.alu_constant(Alu::Mul, Reg::R3, num);
        self.asm.mov(Reg::R2, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::RightShift, Reg::R2, Operand::Imm(32));
        self.asm.alu(Alu::Add, Reg::R3, Operand::Reg(Reg::R2));
        self.asm.mov_low32(Reg::R0, Reg::R0);
        let divisor = self.constant(den, Reg::R5);
        self.long_division(divisor);
        // r4 is the quotient's upper half. From 2^32 on the quotient does not fit.
        self.asm.mov(Reg::R2, Operand::Reg(Reg::R4));
        self.asm.alu(Alu::RightShift, Reg::R2, Operand::Imm(32));
        let fits = self.asm.label();
        self.asm.jump_if(Cond::Eq, Reg::R2, Operand::Imm(0), fits);
        self.asm.mov(Reg::R0, Operand::Imm(-1));
        self.asm.jump(end);
        self.asm.bind(fits);
        self.join_halves();
        self.asm.bind(end);
    }

    /// Divides `r3 * 2^32 + r0` (r0 below 2^32) by `divisor` (r5 or a constant, below 2^32). The
    /// quotient is r4 * 2^32 + r3. The remainder of the first step is below the divisor, so the
    /// second dividend fits and its quotient is below 2^32.
    fn long_division(&mut self, divisor: Operand) {
        self.asm.mov(Reg::R4, Operand::Reg(Reg::R3));
        self.asm.alu(Alu::Div, Reg::R4, divisor);
        self.asm.mov(Reg::R2, Operand::Reg(Reg::R4));
        self.asm.alu(Alu::Mul, Reg::R2, divisor);
        self.asm.alu(Alu::Sub, Reg::R3, Operand::Reg(Reg::R2));
        self.asm.alu(Alu::LeftShift, Reg::R3, Operand::Imm(32));
        self.asm.alu(Alu::Or, Reg::R3, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::Div, Reg::R3, divisor);
    }

    /// `r0 = r4 * 2^32 + r3`
    fn join_halves(&mut self) {
        self.asm.alu(Alu::LeftShift, Reg::R4, Operand::Imm(32));
        self.asm.alu(Alu::Or, Reg::R4, Operand::Reg(Reg::R3));
        self.asm.mov(Reg::R0, Operand::Reg(Reg::R4));
    }

    /// Yields the later of two numbers in modulo-2^32 order, or the smaller one if they are exactly
    /// 2^31 apart.
    fn max_wrap(&mut self, instr: &Instr) {
        let (other, end) = (self.asm.label(), self.asm.label());
        if instr.has_imm {
            self.asm.mov_constant(Reg::R2, instr.imm);
        } else {
            self.load(Reg::R2, instr.b);
        }
        self.load(Reg::R0, instr.a);
        self.asm.jump_if(Cond::Eq, Reg::R0, Operand::Imm(0), other);
        self.asm.jump_if(Cond::Eq, Reg::R2, Operand::Imm(0), end);
        self.asm.mov_low32(Reg::R0, Reg::R0);
        self.asm.mov_low32(Reg::R2, Reg::R2);
        self.asm.mov(Reg::R3, Operand::Reg(Reg::R2));
        self.asm.alu(Alu::Sub, Reg::R3, Operand::Reg(Reg::R0));
        self.asm.mov_low32(Reg::R3, Reg::R3);
        self.asm.mov_constant(Reg::R4, 1 << 31);
        self.asm
            .jump_if(Cond::Gt, Reg::R3, Operand::Reg(Reg::R4), end);
        self.asm
            .jump_if(Cond::Ne, Reg::R3, Operand::Reg(Reg::R4), other);
        self.asm
            .jump_if(Cond::Le, Reg::R0, Operand::Reg(Reg::R2), end);
        self.asm.bind(other);
        self.asm.mov(Reg::R0, Operand::Reg(Reg::R2));
        self.asm.bind(end);
    }

    fn ewma(&mut self, instr: &Instr) {
        let (num, den) = ratio(instr.imm);
        self.load(Reg::R2, instr.b);
        self.load(Reg::R0, instr.dst);
        self.weighted_average(
            Factor::Constant(num),
            Factor::Constant(den.saturating_sub(num)),
            den,
        );
    }

    fn ewma_variable(&mut self, instr: &Instr) {
        let valid = self.asm.label();
        self.load(Reg::R6, instr.a);
        self.asm.jump_if(Cond::Le, Reg::R6, Operand::Imm(10), valid);
        self.fault();
        self.asm.mov(Reg::R6, Operand::Imm(10));
        self.asm.bind(valid);
        self.asm.mov(Reg::R7, Operand::Imm(10));
        self.asm.alu(Alu::Sub, Reg::R7, Operand::Reg(Reg::R6));
        if instr.has_imm {
            self.asm.mov_constant(Reg::R2, instr.imm);
        } else {
            self.load(Reg::R2, instr.b);
        }
        self.load(Reg::R0, instr.dst);
        self.weighted_average(Factor::Reg(Reg::R6), Factor::Reg(Reg::R7), 10);
    }

    /// `r0 = (keep * r0 + take * r2) / den`, or r2 if r0 is 0. Since `keep + take = den`, no sum
    /// overflows.
    fn weighted_average(&mut self, keep: Factor, take: Factor, den: u64) {
        let (some, wide, end) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.jump_if(Cond::Ne, Reg::R0, Operand::Imm(0), some);
        self.asm.mov(Reg::R0, Operand::Reg(Reg::R2));
        self.asm.jump(end);
        self.asm.bind(some);
        self.asm.mov(Reg::R3, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::Or, Reg::R3, Operand::Reg(Reg::R2));
        self.asm.alu(Alu::RightShift, Reg::R3, Operand::Imm(32));
        self.asm.jump_if(Cond::Ne, Reg::R3, Operand::Imm(0), wide);
        self.scale(Reg::R0, keep);
        self.scale(Reg::R2, take);
        self.asm.alu(Alu::Add, Reg::R0, Operand::Reg(Reg::R2));
        self.alu_constant(Alu::Div, Reg::R0, den);
        self.asm.jump(end);

        // Separate halves: r0 is the low sum, r3 the high sum plus the carry of the low one.
        self.asm.bind(wide);
        self.asm.mov(Reg::R3, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::RightShift, Reg::R3, Operand::Imm(32));
        self.asm.mov(Reg::R4, Operand::Reg(Reg::R2));
        self.asm.alu(Alu::RightShift, Reg::R4, Operand::Imm(32));
        self.asm.mov_low32(Reg::R0, Reg::R0);
        self.asm.mov_low32(Reg::R2, Reg::R2);
        for (dst, weight) in [
            (Reg::R0, keep),
            (Reg::R3, keep),
            (Reg::R2, take),
            (Reg::R4, take),
        ] {
            self.scale(dst, weight);
        }
        self.asm.alu(Alu::Add, Reg::R0, Operand::Reg(Reg::R2));
        self.asm.alu(Alu::Add, Reg::R3, Operand::Reg(Reg::R4));
        self.asm.mov(Reg::R2, Operand::Reg(Reg::R0));
        self.asm.alu(Alu::RightShift, Reg::R2, Operand::Imm(32));
        self.asm.alu(Alu::Add, Reg::R3, Operand::Reg(Reg::R2));
        self.asm.mov_low32(Reg::R0, Reg::R0);
        let divisor = self.constant(den, Reg::R5);
        self.long_division(divisor);
        self.join_halves();
        self.asm.bind(end);
    }

    fn scale(&mut self, dst: Reg, factor: Factor) {
        match factor {
            Factor::Constant(value) => self.alu_constant(Alu::Mul, dst, value),
            Factor::Reg(reg) => self.asm.alu(Alu::Mul, dst, Operand::Reg(reg)),
        }
    }
}
