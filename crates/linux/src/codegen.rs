//! Compiles a checked program to eBPF, bit-exact with the interpreter of `ccplane-datapath`.
//!
//! The code goes into a pad of the BPF object (`pad`). A program that does not fit runs in the
//! object's interpreter. Both back ends start from the same flat list of steps.

pub(crate) mod asm;
mod emit;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod oracle_kernel;
pub(crate) mod pad;

use std::fmt::Write as _;

use ccplane_datapath::{Instr, Op, Program, reg};

use crate::codegen::asm::{Insn, longest_path};
use crate::codegen::emit::emit;

/// Instruction slots for a program in a pad: `CCP_PAD_INSNS` in `bpf/layout.h` less the overhead of
/// `pad`.
pub const PAD_SLOTS_MAX: usize = 2048 - crate::codegen::pad::OVERHEAD_SLOTS;

/// A program that exceeds the pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the compiled program has {needed} eBPF instructions, but the pad has room for {room}; it runs \
    in the interpreter instead"
)]
pub struct TooLarge {
    /// Slots the program needs.
    pub needed: usize,
    /// Slots available.
    pub room: usize,
}

/// One step of a program with flattened clauses, the input of both back ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlatStep {
    /// An instruction of the program, or one generated for a clause.
    Run(Instr),
    /// End of a clause. The run stops unless the body called `(fallthrough)`, whose flag is then
    /// cleared.
    End,
}

/// Flattens each clause into its guard, a skip over the rest if the flag is 0, its body, and an
/// end.
fn flatten(program: &Program) -> Vec<FlatStep> {
    let instrs = program.instrs();
    let range = |from: u16, to: u16| {
        instrs[usize::from(from)..usize::from(to)]
            .iter()
            .copied()
            .map(FlatStep::Run)
    };
    let mut steps = Vec::new();
    for clause in program.clauses() {
        steps.extend(range(clause.guard_start, clause.body_start));
        if clause.flag != reg::CONSTANT_ONE {
            steps.push(FlatStep::Run(Instr {
                op: Op::SkipIfZero,
                has_imm: true,
                dst: reg::TEMPS,
                a: clause.flag,
                b: reg::CONSTANT_ONE,
                imm: u64::from(clause.body_end - clause.body_start) + 1,
            }));
        }
        steps.extend(range(clause.body_start, clause.body_end));
        steps.push(FlatStep::End);
    }
    steps
}

/// Opcode of [`FlatStep::End`] in the interpreter: `OP_END` in `bpf/fold.h`.
const OP_END: u8 = 255;

/// Encodes the program as `struct ccp_insn`s for the interpreter in the BPF object. There are at
/// most `CCP_CODE`, which is [`ccplane_datapath::INSTRS_MAX`] plus two per clause. The
/// interpreter's caller has cleared [`reg::SHOULD_CONTINUE`].
pub fn interpreter_code(program: &Program) -> Vec<[u8; 16]> {
    let encode = |step| {
        let mut bytes = [0; 16];
        match step {
            FlatStep::Run(Instr {
                op,
                has_imm,
                dst,
                a,
                b,
                imm,
            }) => {
                bytes[..5].copy_from_slice(&[op as u8, has_imm.into(), dst, a, b]);
                bytes[8..].copy_from_slice(&imm.to_le_bytes());
            }
            FlatStep::End => bytes[0] = OP_END,
        }
        bytes
    };
    flatten(program).into_iter().map(encode).collect()
}

/// Compiles the program to eBPF for a pad. The code takes a pointer to a `struct fold_ctx` in r1
/// and does nothing if it is null. The caller has cleared [`reg::SHOULD_CONTINUE`]. The code ends
/// by running off its end, with r0 to r7 undefined.
///
/// # Errors
/// [`TooLarge`] if the code exceeds [`PAD_SLOTS_MAX`].
pub fn compile(program: &Program) -> Result<Vec<Insn>, TooLarge> {
    let code = generate(program);
    if code.len() > PAD_SLOTS_MAX {
        return Err(TooLarge {
            needed: code.len(),
            room: PAD_SLOTS_MAX,
        });
    }
    Ok(code)
}

fn generate(program: &Program) -> Vec<Insn> {
    emit(&flatten(program), |_| ())
}

/// Returns the largest number of eBPF instructions that one run of `program` can execute.
pub fn worst_case(program: &Program) -> usize {
    longest_path(&generate(program))
}

/// Returns the program's steps, each followed by its eBPF, as printed by `ccplane check`.
pub fn listing(program: &Program) -> String {
    let steps = flatten(program);
    let mut starts = Vec::with_capacity(steps.len());
    let code = emit(&steps, |at| starts.push(at));
    let mut text = String::new();
    for at in 0..=code.len() {
        for (step, _) in steps.iter().zip(&starts).filter(|(_, start)| **start == at) {
            let _ = writeln!(text, "; {}", describe(step));
        }
        if let Some(insn) = code.get(at) {
            let _ = writeln!(text, "{at:5}: {insn}");
        }
    }
    let _ = writeln!(
        text,
        "; {} slots, at most {} instructions per run",
        code.len(),
        longest_path(&code)
    );
    text
}

fn describe(step: &FlatStep) -> String {
    match step {
        FlatStep::End => format!("stop unless {}", register_name(reg::SHOULD_CONTINUE)),
        FlatStep::Run(i) => {
            let b = if i.has_imm {
                i.imm.to_string()
            } else {
                register_name(i.b)
            };
            let ratio = || format!("{}/{}", i.imm >> 32, i.imm as u32);
            match i.op {
                Op::SkipIfZero => format!("if not {}: skip {}", register_name(i.a), i.imm),
                Op::MulRatio => format!(
                    "{} = {} * {}",
                    register_name(i.dst),
                    register_name(i.a),
                    ratio()
                ),
                Op::Ewma => format!(
                    "{} = ewma {} of {}",
                    register_name(i.dst),
                    ratio(),
                    register_name(i.b)
                ),
                Op::Move | Op::Not | Op::After => {
                    format!("{} = {:?} {b}", register_name(i.dst), i.op)
                }
                _ => format!(
                    "{} = {:?} {} {b}",
                    register_name(i.dst),
                    i.op,
                    register_name(i.a)
                ),
            }
        }
    }
}

fn register_name(register: u8) -> String {
    match register {
        reg::MICROS => "Micros".to_owned(),
        reg::CWND => "Cwnd".to_owned(),
        reg::RATE => "Rate".to_owned(),
        reg::SSTHRESH => "Ssthresh".to_owned(),
        reg::SHOULD_REPORT => "should_report".to_owned(),
        reg::SHOULD_CONTINUE => "should_continue".to_owned(),
        reg::SHOULD_RESET => "should_reset".to_owned(),
        reg::CONSTANT_ONE => "one".to_owned(),
        r if r >= reg::VARS => format!("var{}", r - reg::VARS),
        r if (reg::TEMPS..reg::TEMPS_END).contains(&r) => format!("tmp{}", r - reg::TEMPS),
        r => format!("signal{r}"),
    }
}

#[cfg(test)]
mod tests {
    use ccplane_datapath::{Clause, INSTRS_MAX, interpret};
    use proptest::prelude::*;

    use super::*;
    use crate::codegen::oracle::{self, Outcome, Registers, reference};

    /// Runs generated code in a user-space eBPF machine.
    fn run(code: &[Insn], regs: &mut Registers) -> Outcome {
        let mut context = [0u8; 131 * 8];
        context[129 * 8..].fill(0xff);
        for (bytes, value) in context.chunks_exact_mut(8).zip(regs.iter()) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        let end = [Insn::CLEAR_RESULT, Insn::EXIT];
        let bytes: Vec<u8> = code
            .iter()
            .chain(&end)
            .flat_map(|insn| insn.to_bytes())
            .collect();
        let machine =
            rbpf::EbpfVmRaw::new(Some(&bytes)).expect("generated code passes the machine's checks");
        machine
            .execute_program(&mut context)
            .expect("generated code stays inside the context");
        let mut values = context
            .chunks_exact(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        regs.fill_with(|| values.next().unwrap());
        let mut value = || values.next().unwrap();
        Outcome {
            faults: value(),
            waits: value(),
            waited: value(),
        }
    }

    fn same(program: &Program, regs: &Registers) -> Result<(), TestCaseError> {
        let (mut expected, mut actual) = (*regs, *regs);
        let outcome = reference(program, &mut expected);
        let mut interpreted = *regs;
        prop_assert_eq!(
            u64::from(interpret(program, &mut interpreted)),
            outcome.faults,
            "faults of the interpreter"
        );
        prop_assert_eq!(
            oracle::visible(&interpreted),
            oracle::visible(&expected),
            "registers of the interpreter"
        );
        prop_assert_eq!(
            run(&generate(program), &mut actual),
            outcome,
            "outcome\n{}",
            listing(program)
        );
        prop_assert_eq!(
            oracle::visible(&actual),
            oracle::visible(&expected),
            "registers\n{}",
            listing(program)
        );
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
        #[test]
        fn programs_match_the_reference(
            program in oracle::program(3, 8),
            regs in oracle::registers(),
        ) {
            same(&program, &regs)?;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]
        #[test]
        fn instructions_match_the_reference(
            program in oracle::program(1, 2),
            regs in oracle::registers(),
        ) {
            same(&program, &regs)?;
        }
    }

    #[test]
    fn oversized_programs_are_refused_with_their_size() {
        let ewma = Instr {
            op: Op::Ewma,
            has_imm: true,
            dst: reg::CWND,
            a: reg::CWND,
            b: reg::RATE,
            imm: 7 << 32 | 8,
        };
        let clause = Clause {
            flag: reg::CONSTANT_ONE,
            guard_start: 0,
            body_start: 0,
            body_end: INSTRS_MAX as u16,
        };
        let program =
            Program::check(1, &[ewma; INSTRS_MAX], &[clause], &[]).expect("a valid program");
        let refused = compile(&program).expect_err("the program is too large");
        assert_eq!(refused.needed, generate(&program).len());
        assert!(refused.needed > PAD_SLOTS_MAX, "{refused}");
        assert_eq!(interpreter_code(&program).len(), INSTRS_MAX + 1);
    }

    #[test]
    fn the_listing_names_every_step() {
        let source = "(def (Report (volatile acked 0))) (when (> Micros 10000) \
                      (:= Report.acked (+ Report.acked 3)) (report))";
        let program = ccplane_lang::compile(source, &ccplane_lang::ProgramLimits::default())
            .expect("it compiles");
        let text = listing(program.code());
        for line in [
            "= After 10000",
            "var0 = Add var0 3",
            "should_report = Move 1",
            "stop unless should_continue",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        let insns = text.lines().filter(|line| !line.starts_with(';')).count();
        assert_eq!(insns, generate(program.code()).len());
        assert!(worst_case(program.code()) <= insns);
    }
}
