//! A small eBPF assembler: the dozen instructions that compiled programs use, labels for forward
//! jumps, and the listing printed by `ccplane check`. Encodings follow RFC 9669.

use std::fmt;

/// A machine register. `R0` is the result, `R1` to `R5` are arguments and scratch, `R6` and up are
/// callee-saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
}

/// 64-bit unsigned arithmetic. The discriminant is the upper half of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    /// Division; by a register that is 0 it yields 0.
    Div = 0x30,
    Or = 0x40,
    LeftShift = 0x60,
    RightShift = 0x70,
}

/// Condition of a jump, unsigned. The discriminant is the upper half of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Cond {
    Eq = 0x10,
    Gt = 0x20,
    Ge = 0x30,
    Ne = 0x50,
    Lt = 0xa0,
    Le = 0xb0,
}

/// The second operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended to 64 bits.
    Imm(i32),
}

impl Operand {
    /// Returns `value` as an immediate if it is below 2^31. Large values that sign extension
    /// reproduces would be valid too, but implementations differ in comparisons with a negative
    /// immediate.
    pub fn constant(value: u64) -> Option<Operand> {
        i32::try_from(value).ok().map(Operand::Imm)
    }
}

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU32: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const SIZE_U64: u8 = 0x18;
const MODE_MEM: u8 = 0x60;
const SOURCE_REG: u8 = 0x08;
const ALU_MOV: u8 = 0xb0;
const JMP_ALWAYS: u8 = 0x00;
const JMP_EXIT: u8 = 0x90;

const LOAD: u8 = CLASS_LDX | SIZE_U64 | MODE_MEM;
const STORE: u8 = CLASS_STX | SIZE_U64 | MODE_MEM;
const STORE_IMM: u8 = CLASS_ST | SIZE_U64 | MODE_MEM;
const LOAD_IMM64: u8 = CLASS_LD | SIZE_U64;
const EXIT: u8 = CLASS_JMP | JMP_EXIT;

/// One slot of 8 bytes. A 64-bit constant takes two slots, the second with opcode 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    opcode: u8,
    dst: u8,
    src: u8,
    offset: i16,
    imm: i32,
}

impl Insn {
    /// `r0 = 0`, the filler of an empty pad.
    pub const CLEAR_RESULT: Insn = Insn {
        opcode: CLASS_ALU64 | ALU_MOV,
        dst: 0,
        src: 0,
        offset: 0,
        imm: 0,
    };
    /// `exit`.
    pub const EXIT: Insn = Insn {
        opcode: EXIT,
        dst: 0,
        src: 0,
        offset: 0,
        imm: 0,
    };

    /// `if r0 == 0 goto +distance`.
    pub const fn skip_if_result_is_zero(distance: i16) -> Insn {
        Insn {
            opcode: CLASS_JMP | Cond::Eq as u8,
            dst: 0,
            src: 0,
            offset: distance,
            imm: 0,
        }
    }

    /// Encodes the slot for a little-endian kernel.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [self.opcode, self.src << 4 | self.dst, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.imm.to_le_bytes());
        bytes
    }

    fn is_jump(self) -> bool {
        self.opcode & 0x07 == CLASS_JMP && self.opcode != EXIT
    }
}

/// A jump target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Code under construction. Jumps go forward only: a label is bound after every jump to it.
#[derive(Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    /// Jumps to each label that are not yet resolved.
    unresolved: Vec<Vec<usize>>,
}

impl Assembler {
    /// Creates an unbound label.
    pub fn label(&mut self) -> Label {
        self.unresolved.push(Vec::new());
        Label(self.unresolved.len() - 1)
    }

    /// Binds `label` to the current position. Returns true if any jump targets it.
    pub fn bind(&mut self, label: Label) -> bool {
        let here = self.insns.len();
        let jumps = std::mem::take(&mut self.unresolved[label.0]);
        for &from in &jumps {
            self.insns[from].offset = i16::try_from(here - from - 1)
                .expect("a program of at most MAX_INSTRS instructions makes less than 2^15 slots");
        }
        !jumps.is_empty()
    }

    /// Returns the number of slots emitted.
    pub fn slots(&self) -> usize {
        self.insns.len()
    }

    /// Returns the code. All labels that are jumped to must be bound.
    pub fn finish(self) -> Vec<Insn> {
        debug_assert!(
            self.unresolved.iter().all(Vec::is_empty),
            "a jump without a target"
        );
        self.insns
    }

    fn push(&mut self, opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) {
        self.insns.push(Insn {
            opcode,
            dst,
            src,
            offset,
            imm,
        });
    }

    fn push_with(&mut self, opcode: u8, dst: Reg, operand: Operand) {
        match operand {
            Operand::Reg(src) => self.push(opcode | SOURCE_REG, dst as u8, src as u8, 0, 0),
            Operand::Imm(imm) => self.push(opcode, dst as u8, 0, 0, imm),
        }
    }

    /// `dst = *(u64 *)(base + offset)`
    pub fn load(&mut self, dst: Reg, base: Reg, offset: i16) {
        self.push(LOAD, dst as u8, base as u8, offset, 0);
    }

    /// `*(u64 *)(base + offset) = src`
    pub fn store(&mut self, base: Reg, offset: i16, src: Operand) {
        match src {
            Operand::Reg(src) => self.push(STORE, base as u8, src as u8, offset, 0),
            Operand::Imm(imm) => self.push(STORE_IMM, base as u8, 0, offset, imm),
        }
    }

    /// `dst = src`
    pub fn mov(&mut self, dst: Reg, src: Operand) {
        self.push_with(CLASS_ALU64 | ALU_MOV, dst, src);
    }

    /// `dst = value`, in one slot if a 32-bit immediate of either extension yields `value`, else in
    /// two.
    pub fn mov_constant(&mut self, dst: Reg, value: u64) {
        if let Ok(imm) = i32::try_from(value as i64) {
            self.mov(dst, Operand::Imm(imm));
        } else if let Ok(low) = u32::try_from(value) {
            self.push(CLASS_ALU32 | ALU_MOV, dst as u8, 0, 0, low as i32);
        } else {
            self.push(LOAD_IMM64, dst as u8, 0, 0, value as u32 as i32);
            self.push(0, 0, 0, 0, (value >> 32) as u32 as i32);
        }
    }

    /// `dst = src & 0xffffffff`
    pub fn mov_low32(&mut self, dst: Reg, src: Reg) {
        self.push(
            CLASS_ALU32 | ALU_MOV | SOURCE_REG,
            dst as u8,
            src as u8,
            0,
            0,
        );
    }

    /// `dst = dst op operand`
    pub fn alu(&mut self, op: Alu, dst: Reg, operand: Operand) {
        self.push_with(CLASS_ALU64 | op as u8, dst, operand);
    }

    /// `goto target`
    pub fn jump(&mut self, target: Label) {
        self.unresolved[target.0].push(self.insns.len());
        self.push(CLASS_JMP | JMP_ALWAYS, 0, 0, 0, 0);
    }

    /// `if left cond right goto target`
    pub fn jump_if(&mut self, cond: Cond, left: Reg, right: Operand, target: Label) {
        self.unresolved[target.0].push(self.insns.len());
        self.push_with(CLASS_JMP | cond as u8, left, right);
    }
}

/// Returns the largest number of instructions that one run of `code` can execute: its longest path,
/// since all jumps are forward. A 64-bit constant counts as one.
pub fn longest_path(code: &[Insn]) -> usize {
    let mut longest = vec![0; code.len() + 1];
    for (at, insn) in code.iter().enumerate().rev() {
        let next = longest[at + 1];
        let target = longest
            .get(at + 1 + usize::try_from(insn.offset).unwrap_or(0))
            .copied()
            .unwrap_or(0);
        longest[at] = match insn.opcode {
            0 => next,
            EXIT => 1,
            opcode if opcode == CLASS_JMP | JMP_ALWAYS => 1 + target,
            _ if insn.is_jump() => 1 + next.max(target),
            _ => 1 + next,
        };
    }
    longest[0]
}

impl fmt::Display for Insn {
    /// Writes the instruction in the notation of the kernel's verifier.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dst, src, offset, imm) = (self.dst, self.src, self.offset, self.imm);
        let source = |wide: char| match self.opcode & SOURCE_REG {
            0 => format!("{imm}"),
            _ => format!("{wide}{src}"),
        };
        match self.opcode {
            0 => write!(f, "; upper half {:#x}", imm as u32),
            LOAD_IMM64 => write!(f, "r{dst} = {:#x} ll", imm as u32),
            LOAD => write!(f, "r{dst} = *(u64 *)(r{src} {offset:+})"),
            STORE => write!(f, "*(u64 *)(r{dst} {offset:+}) = r{src}"),
            STORE_IMM => write!(f, "*(u64 *)(r{dst} {offset:+}) = {imm}"),
            EXIT => write!(f, "exit"),
            opcode if opcode == CLASS_JMP | JMP_ALWAYS => write!(f, "goto {offset:+}"),
            opcode if self.is_jump() => {
                let cond = match opcode & 0xf0 {
                    0x10 => "==",
                    0x20 => ">",
                    0x30 => ">=",
                    0x50 => "!=",
                    0xa0 => "<",
                    _ => "<=",
                };
                write!(f, "if r{dst} {cond} {} goto {offset:+}", source('r'))
            }
            opcode if opcode & 0x07 == CLASS_ALU32 => write!(f, "w{dst} = {}", source('w')),
            opcode => {
                let op = match opcode & 0xf0 {
                    0x00 => "+=",
                    0x10 => "-=",
                    0x20 => "*=",
                    0x30 => "/=",
                    0x40 => "|=",
                    0x60 => "<<=",
                    0x70 => ">>=",
                    _ => "=",
                };
                write!(f, "r{dst} {op} {}", source('r'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_those_of_the_standard() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.jump_if(Cond::Eq, Reg::R1, Operand::Imm(0), end);
        asm.load(Reg::R0, Reg::R1, 264);
        asm.alu(Alu::Add, Reg::R0, Operand::Imm(-2));
        asm.store(Reg::R1, 8, Operand::Reg(Reg::R0));
        asm.mov_constant(Reg::R2, u64::MAX / 3);
        asm.mov_constant(Reg::R3, 0xffff_ffff);
        asm.bind(end);
        let bytes: Vec<[u8; 8]> = asm.finish().into_iter().map(Insn::to_bytes).collect();
        // Assembled by clang 14 from the same source.
        assert_eq!(
            bytes,
            [
                [0x15, 0x01, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00],
                [0x79, 0x10, 0x08, 0x01, 0x00, 0x00, 0x00, 0x00],
                [0x07, 0x00, 0x00, 0x00, 0xfe, 0xff, 0xff, 0xff],
                [0x7b, 0x01, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00],
                [0x18, 0x02, 0x00, 0x00, 0x55, 0x55, 0x55, 0x55],
                [0x00, 0x00, 0x00, 0x00, 0x55, 0x55, 0x55, 0x55],
                [0xb4, 0x03, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff],
            ]
        );
    }

    #[test]
    fn longest_path_takes_the_longer_arm() {
        let mut asm = Assembler::default();
        let (other, end) = (asm.label(), asm.label());
        asm.jump_if(Cond::Ne, Reg::R1, Operand::Imm(0), other);
        asm.mov_constant(Reg::R0, u64::MAX / 3);
        asm.jump(end);
        asm.bind(other);
        for _ in 0..5 {
            asm.mov(Reg::R0, Operand::Imm(0));
        }
        asm.bind(end);
        asm.mov(Reg::R0, Operand::Imm(0));
        assert_eq!(longest_path(&asm.finish()), 1 + 5 + 1);
    }

    #[test]
    fn listing_reads_like_the_verifier() {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.jump_if(Cond::Ge, Reg::R0, Operand::Reg(Reg::R2), end);
        asm.store(Reg::R1, 288, Operand::Imm(1));
        asm.mov_low32(Reg::R0, Reg::R2);
        asm.bind(end);
        let lines: Vec<String> = asm.finish().iter().map(Insn::to_string).collect();
        assert_eq!(
            lines,
            ["if r0 >= r2 goto +2", "*(u64 *)(r1 +288) = 1", "w0 = w2"]
        );
    }
}
