//! Compares generated code in a pad and the interpreter of the same object, both in the running
//! kernel, with the reference.

use ccplane_datapath::{Clause, INSTRS_MAX, Instr, Op, Program, reg};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::codegen::oracle::{self, Outcome, Registers, reference};
use crate::codegen::pad;
use crate::codegen::{self, compile, interpreter_code, listing};
use crate::map::layout::{PAD_COUNT, ProgramSlot};
use crate::testing;

const OBJECT: &[u8] = include_bytes!("../../bpf/prebuilt/probe.bpf.o");
/// Register files per call, `PROBE_COUNT` in `bpf/probe.bpf.c`.
const PROBE_COUNT: usize = 64;
const PROGRAM_COUNT: usize = 60;
const PAD_INDEX: u32 = 3;
/// Index of an interpreted program: the first one without a pad.
const INTERPRETED_INDEX: u32 = PAD_COUNT as u32;
const CODE_LEN_OFFSET: usize = std::mem::offset_of!(ProgramSlot, code_len);
const CODE_OFFSET: usize = std::mem::offset_of!(ProgramSlot, code);

/// Loads the probe with `program` both in a pad and for the interpreter.
fn load(program: &Program) -> Object {
    let mut bytes = OBJECT.to_vec();
    let code = compile(program).expect("a small program fits its pad");
    pad::patch(&mut bytes, PAD_INDEX as usize, &code).expect("the object has pads");
    let open = ObjectBuilder::default()
        .open_memory(&bytes)
        .expect("the object is readable");
    let object = open
        .load()
        .unwrap_or_else(|e| panic!("{e}\n{}", listing(program)));
    let code = interpreter_code(program);
    let mut value = vec![0; map(&object, "programs").value_size() as usize];
    value[CODE_LEN_OFFSET..][..4].copy_from_slice(&(code.len() as u32).to_ne_bytes());
    value[CODE_OFFSET..][..code.len() * 16].copy_from_slice(&code.concat());
    map(&object, "programs")
        .update(&INTERPRETED_INDEX.to_ne_bytes(), &value, MapFlags::ANY)
        .expect("an entry of the map");
    object
}

fn map<'a>(object: &'a Object, name: &str) -> impl MapCore + use<'a> {
    object
        .maps()
        .find(|map| map.name() == name)
        .expect("the object has this map")
}

/// Runs the program at index `program` over every register file, in place.
fn run(object: &Object, program: u32, all: &mut [Registers]) -> Vec<Outcome> {
    let probes = map(object, "probes");
    for (n, regs) in (0u32..).zip(all.iter()) {
        let mut value = u64::from(program).to_ne_bytes().to_vec();
        value.extend(regs.iter().flat_map(|word| word.to_ne_bytes()));
        value.resize(probes.value_size() as usize, 0);
        probes
            .update(&n.to_ne_bytes(), &value, MapFlags::ANY)
            .expect("an entry of the map");
    }
    let entry = object
        .progs_mut()
        .find(|entry| entry.name() == "probe")
        .expect("the object has its program");
    entry
        .test_run(ProgramInput::default())
        .expect("the probe runs");
    let mut outcomes = Vec::new();
    for (n, regs) in (0u32..).zip(all) {
        let value = probes
            .lookup(&n.to_ne_bytes(), MapFlags::ANY)
            .expect("a map")
            .expect("an entry of the map");
        let mut words = value[8..]
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        regs.fill_with(|| words.next().expect("128 registers"));
        let mut word = || words.next().expect("the counts behind the registers");
        outcomes.push(Outcome {
            faults: word(),
            waits: word(),
            waited: word(),
        });
    }
    outcomes
}

/// Draws register files, one for each probe.
fn draw(registers: impl Strategy<Value = Registers>, runner: &mut TestRunner) -> Vec<Registers> {
    std::iter::repeat_with(|| registers.new_tree(runner).expect("registers").current())
        .take(PROBE_COUNT)
        .collect()
}

/// Runs the program for `acks` ACKs from each register file, in the kernel as generated code and
/// interpreted, and compares registers and outcomes with the reference.
fn check_acks(
    object: &Object,
    program: &Program,
    mut before: Vec<Registers>,
    acks: u32,
    name: &str,
) {
    for ack in 0..acks {
        let mut expected = before.clone();
        let outcomes: Vec<Outcome> = expected
            .iter_mut()
            .map(|regs| reference(program, regs))
            .collect();
        for (number, what) in [
            (PAD_INDEX, "generated code"),
            (INTERPRETED_INDEX, "interpreter"),
        ] {
            let mut actual = before.clone();
            assert_eq!(
                run(object, number, &mut actual),
                outcomes,
                "{what} of {name}"
            );
            for ((before, actual), expected) in before.iter().zip(&actual).zip(&expected) {
                assert_eq!(
                    oracle::visible(actual),
                    oracle::visible(expected),
                    "registers after {what}, ACK {ack}, from {before:?}, of {name}"
                );
            }
        }
        before = expected;
    }
}

#[test]
fn kernel_matches_the_reference() {
    if let Some(missing) = testing::missing_requirement() {
        return testing::skip("kernel_matches_the_reference", &missing);
    }
    let mut runner = TestRunner::deterministic();
    for n in 0..PROGRAM_COUNT {
        let shape = oracle::program(1 + n % 4, 2 + n % 12);
        let program = shape.new_tree(&mut runner).expect("a program").current();
        let object = load(&program);
        let before = draw(oracle::registers(), &mut runner);
        check_acks(&object, &program, before, 1, &listing(&program));
    }
}

/// Shipped program files compute window and rate in the kernel: ten thousand states of each, and
/// four ACKs from each state.
#[test]
fn shipped_programs_match_the_reference_in_the_kernel() {
    if let Some(missing) = testing::missing_requirement() {
        return testing::skip(
            "shipped_programs_match_the_reference_in_the_kernel",
            &missing,
        );
    }
    const BATCH_COUNT: usize = 10_000_usize.div_ceil(PROBE_COUNT);
    let mut runner = TestRunner::deterministic();
    for text in [
        include_str!("../../../algorithms/text/reno.ccp"),
        include_str!("../../../algorithms/text/copa.ccp"),
        include_str!("../../../algorithms/text/cubic.ccp"),
        include_str!("../../../algorithms/text/vegas.ccp"),
    ] {
        let text = ccplane_lang::ProgramFile::read(text).unwrap_or_else(|why| panic!("{why}"));
        let program = text.program(&[]).expect("defaults are values");
        let compiled = ccplane_lang::compile(&program, &Default::default())
            .unwrap_or_else(|why| panic!("{why}"));
        let program = compiled.code().with_uid(1);
        let object = load(&program);
        let vars = u8::try_from(program.vars().len()).expect("at most 64");
        for _ in 0..BATCH_COUNT {
            let before = draw(oracle::registers_of(vars), &mut runner);
            check_acks(&object, &program, before, 4, text.name());
        }
    }
}

/// The verifier follows both arms of every branch. If their states differed where they join, the
/// work would double with each one.
#[test]
fn the_fullest_pad_passes_the_verifier() {
    if let Some(missing) = testing::missing_requirement() {
        return testing::skip("the_fullest_pad_passes_the_verifier", &missing);
    }
    let each = |op, has_imm| Instr {
        op,
        has_imm,
        dst: reg::CWND,
        a: reg::CWND,
        b: reg::RATE,
        imm: 3 << 32 | 4,
    };
    let all = [
        each(Op::Add, false),
        each(Op::Mul, false),
        each(Op::Ewma, true),
        each(Op::EwmaVar, false),
        each(Op::MulRatio, true),
        each(Op::MaxWrap, false),
        each(Op::If, false),
        each(Op::And, false),
    ];
    let program_of = |length: usize| {
        let instrs: Vec<Instr> = all.iter().copied().cycle().take(length).collect();
        let clause = Clause {
            flag: reg::CONSTANT_ONE,
            guard_start: 0,
            body_start: 0,
            body_end: length as u16,
        };
        Program::check(1, &instrs, &[clause], &[]).expect("a valid program")
    };
    let fitting = (1..=INSTRS_MAX)
        .map(program_of)
        .take_while(|program| compile(program).is_ok());
    let fullest = fitting.last().expect("one instruction fits");
    assert!(compile(&fullest).expect("it fits").len() > codegen::PAD_SLOTS_MAX * 9 / 10);
    drop(load(&fullest));
}
