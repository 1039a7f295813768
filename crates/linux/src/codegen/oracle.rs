//! Random programs and register files, and the reference implementation for all tests of code in
//! the kernel.

use ccplane_datapath::{Clause, Instr, Op, Program, Var, reg};
use ccplane_units::splitmix::SplitMix64;
use proptest::prelude::*;

/// The registers of `struct fold_ctx`.
pub type Registers = [u64; 128];

const VAR_COUNT: u8 = 6;

/// Raw material of an instruction. `Builder` turns any value into a valid instruction.
#[derive(Clone, Debug)]
struct Gene {
    op: u8,
    has_imm: bool,
    dst: u8,
    a: u8,
    b: u8,
    imm: u64,
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..3u64,
        3 => 0..20_000u64,
        1 => Just(0x7fff_ffff),
        1 => Just(0x8000_0000),
        1 => Just(0xffff_ffff),
        1 => Just(0x1_0000_0000),
        1 => Just(u64::MAX),
        1 => Just(u64::MAX - 1),
        2 => any::<u32>().prop_map(u64::from),
        2 => any::<u64>(),
        1 => (any::<u64>(), 0..64u32).prop_map(|(value, shift)| value >> shift),
    ]
}

fn gene() -> impl Strategy<Value = Gene> {
    (
        0..=Op::SkipIfZero as u8,
        any::<bool>(),
        any::<u8>(),
        any::<u8>(),
        any::<u8>(),
        value(),
    )
        .prop_map(|(op, has_imm, dst, a, b, imm)| Gene {
            op,
            has_imm,
            dst,
            a,
            b,
            imm,
        })
}

/// Generates a valid program of up to `clauses` clauses, with up to `length` instructions in each
/// guard and each body.
pub fn program(clauses: usize, length: usize) -> impl Strategy<Value = Program> {
    let genes = || prop::collection::vec(gene(), 0..=length);
    prop::collection::vec((any::<u8>(), genes(), genes()), 0..=clauses).prop_map(|clauses| {
        let mut builder = Builder::default();
        for (flag, guard, body) in &clauses {
            builder.clause(*flag, guard, body);
        }
        let vars = [Var::default(); VAR_COUNT as usize];
        Program::check(1, &builder.instrs, &builder.clauses, &vars)
            .expect("the builder makes valid programs")
    })
}

/// Generates a register file of ordinary and extreme values. It derives from one seed, since a
/// strategy tree per register would dominate the run time of the tests.
pub fn registers() -> impl Strategy<Value = Registers> {
    registers_of(VAR_COUNT)
}

/// Like [`registers`], with `vars` variables.
pub fn registers_of(vars: u8) -> impl Strategy<Value = Registers> {
    any::<u64>().prop_map(move |seed| {
        let mut rng = SplitMix64(seed);
        let mut regs = [0; 128];
        // Signals, then built-in state, then variables.
        for register in (0..16)
            .chain(reg::MICROS..reg::SHOULD_REPORT)
            .chain(reg::VARS..reg::VARS + vars)
        {
            let [kind, value] = [(); 2].map(|()| rng.next_u64());
            regs[usize::from(register)] = match kind % 8 {
                0 => value % 3,
                1 | 2 => value % 20_000,
                3 => [0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x1_0000_0000][(value % 4) as usize],
                4 => u64::MAX - value % 2,
                5 => value >> 32,
                6 => value >> (kind >> 3 & 63),
                _ => value,
            };
        }
        regs[usize::from(reg::CONSTANT_ONE)] = 1;
        regs
    })
}

#[derive(Default)]
struct Builder {
    instrs: Vec<Instr>,
    clauses: Vec<Clause>,
}

impl Builder {
    fn clause(&mut self, flag: u8, guard: &[Gene], body: &[Gene]) {
        let guard_start = self.instrs.len() as u16;
        let written = self.range(guard, true);
        let body_start = self.instrs.len() as u16;
        self.range(body, false);
        let flag = pick(flag, &readable(&written));
        let body_end = self.instrs.len() as u16;
        self.clauses.push(Clause {
            flag,
            guard_start,
            body_start,
            body_end,
        });
    }

    /// Appends a guard or a body. Returns the temporaries that are certainly written at its end,
    /// whichever instructions were skipped.
    fn range(&mut self, genes: &[Gene], guard: bool) -> Vec<u8> {
        let mut written = Vec::new();
        let mut skipped_until = 0;
        for (n, gene) in genes.iter().enumerate() {
            let mut op = op(gene.op);
            if op == Op::After && !guard {
                op = Op::Gt;
            }
            let sources = readable(&written);
            let reads_dst = matches!(op, Op::If | Op::NotIf | Op::Ewma | Op::EwmaVar);
            let mut targets: Vec<u8> = if reads_dst {
                written.clone()
            } else {
                (reg::TEMPS..reg::TEMPS + 4).collect()
            };
            if !guard {
                // Flags such as "report" are write-only.
                targets.extend(
                    reg::MICROS..if reads_dst {
                        reg::SHOULD_REPORT
                    } else {
                        reg::CONSTANT_ONE
                    },
                );
                targets.extend(reg::VARS..reg::VARS + VAR_COUNT);
            }
            if targets.is_empty() {
                op = Op::Move;
                targets.push(reg::TEMPS);
            }
            let dst = pick(gene.dst, &targets);
            let has_imm = match op {
                Op::MulRatio | Op::Ewma | Op::SkipIfZero => true,
                Op::EwmaVar => false,
                _ => gene.has_imm,
            };
            let imm = match op {
                Op::MulRatio if gene.imm as u32 == 0 => gene.imm | 1,
                Op::Ewma => {
                    let den = u64::from(gene.imm as u32).max(1);
                    ((gene.imm >> 32) % (den + 1)) << 32 | den
                }
                Op::SkipIfZero => gene.imm % (genes.len() - n) as u64,
                _ => gene.imm,
            };
            if op == Op::SkipIfZero {
                skipped_until = skipped_until.max(n + 1 + imm as usize);
            } else if n >= skipped_until
                && (reg::TEMPS..reg::TEMPS_END).contains(&dst)
                && !written.contains(&dst)
            {
                written.push(dst);
            }
            let (a, b) = (pick(gene.a, &sources), pick(gene.b, &sources));
            self.instrs.push(Instr {
                op,
                has_imm,
                dst,
                a,
                b,
                imm,
            });
        }
        written
    }
}

fn readable(written: &[u8]) -> Vec<u8> {
    let mut readable = written.to_vec();
    readable.extend(reg::VARS..reg::VARS + VAR_COUNT);
    readable.extend([
        0,
        4,
        13,
        reg::MICROS,
        reg::CWND,
        reg::RATE,
        reg::SSTHRESH,
        reg::CONSTANT_ONE,
    ]);
    readable
}

fn pick(selector: u8, from: &[u8]) -> u8 {
    from[usize::from(selector) % from.len()]
}

fn op(code: u8) -> Op {
    Op::ALL[usize::from(code)]
}

/// Results of a run other than the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub faults: u64,
    /// Smallest guard threshold that `Micros` has not exceeded; `u64::MAX` if there is none.
    pub waits: u64,
    /// Smallest guard threshold that `Micros` has exceeded; `u64::MAX` if there is none.
    pub waited: u64,
}

/// Runs a program with 128-bit arithmetic.
pub fn reference(program: &Program, regs: &mut Registers) -> Outcome {
    let mut outcome = Outcome {
        faults: 0,
        waits: u64::MAX,
        waited: u64::MAX,
    };
    for clause in program.clauses() {
        let [guard, body, end] =
            [clause.guard_start, clause.body_start, clause.body_end].map(usize::from);
        reference_range(&program.instrs()[guard..body], regs, &mut outcome);
        if regs[usize::from(clause.flag)] == 0 {
            continue;
        }
        regs[usize::from(reg::SHOULD_CONTINUE)] = 0;
        reference_range(&program.instrs()[body..end], regs, &mut outcome);
        if regs[usize::from(reg::SHOULD_CONTINUE)] == 0 {
            break;
        }
    }
    outcome
}

fn reference_range(instrs: &[Instr], regs: &mut Registers, outcome: &mut Outcome) {
    let mut at = 0;
    while let Some(i) = instrs.get(at) {
        at += 1;
        let a = regs[usize::from(i.a)];
        let b = if i.has_imm {
            i.imm
        } else {
            regs[usize::from(i.b)]
        };
        let old = regs[usize::from(i.dst)];
        let (num, den) = (u128::from(i.imm >> 32), u128::from(i.imm as u32));
        let mut or_fault = |value: Option<u64>, instead: u64| {
            value.unwrap_or_else(|| {
                outcome.faults += 1;
                instead
            })
        };
        let ewma = |num: u128, den: u128, new: u64| match old {
            0 => new,
            _ => ((num * u128::from(old) + (den - num) * u128::from(new)) / den) as u64,
        };
        regs[usize::from(i.dst)] = match i.op {
            Op::Move => b,
            Op::Add => or_fault(a.checked_add(b), u64::MAX),
            Op::Sub => or_fault(a.checked_sub(b), 0),
            Op::Diff => a.saturating_sub(b),
            Op::Mul => or_fault(a.checked_mul(b), u64::MAX),
            Op::Div => or_fault(a.checked_div(b), 0),
            Op::MulRatio => u64::try_from(u128::from(a) * num / den).unwrap_or(u64::MAX),
            Op::Max => a.max(b),
            Op::Min => a.min(b),
            Op::MaxWrap if a == 0 || b == 0 => a | b,
            Op::MaxWrap => match (a as u32, b as u32, (b as u32).wrapping_sub(a as u32) as i32) {
                (a, b, i32::MIN) => a.min(b).into(),
                (_, b, 0..) => b.into(),
                (a, _, _) => a.into(),
            },
            Op::Eq => (a == b).into(),
            Op::Ne => (a != b).into(),
            Op::Gt => (a > b).into(),
            Op::Ge => (a >= b).into(),
            Op::Lt => (a < b).into(),
            Op::Le => (a <= b).into(),
            Op::After => {
                let above = regs[usize::from(reg::MICROS)] > b;
                let least = if above {
                    &mut outcome.waited
                } else {
                    &mut outcome.waits
                };
                *least = b.min(*least);
                above.into()
            }
            Op::And => (a != 0 && b != 0).into(),
            Op::Or => (a != 0 || b != 0).into(),
            Op::Not => (b == 0).into(),
            Op::If => {
                if a != 0 {
                    b
                } else {
                    old
                }
            }
            Op::NotIf => {
                if a == 0 {
                    b
                } else {
                    old
                }
            }
            Op::Ewma => ewma(num, den, regs[usize::from(i.b)]),
            Op::EwmaVar => {
                let weight = or_fault((a <= 10).then_some(a), 10);
                ewma(weight.into(), 10, b)
            }
            Op::SkipIfZero => {
                if a == 0 {
                    at += i.imm as usize;
                }
                old
            }
        };
    }
}

/// Returns the registers that matter after a run. Temporaries are dead by then, and so is the
/// fallthrough flag.
pub fn visible(regs: &Registers) -> Vec<u64> {
    let dead = |register: u8| {
        register == reg::SHOULD_CONTINUE || (reg::TEMPS..reg::TEMPS_END).contains(&register)
    };
    (0..128)
        .map(|register| {
            if dead(register) {
                0
            } else {
                regs[usize::from(register)]
            }
        })
        .collect()
}
