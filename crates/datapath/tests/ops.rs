//! Single operations, including inputs on which the reference aborts.

use crate::support::programs::Code;
use crate::support::{Rig, ack_of};
use ccplane_datapath::{INFINITY, Op, VarKind, reg};

/// Runs `dst = a op b` once with an initial `dst`; returns dst and the faults. The operand `b`
/// comes from a register and, if there is such an encoding, from the instruction: both must agree.
fn eval_from(op: Op, old: u64, a: u64, b: u64) -> (u64, u32) {
    let mut results = [false, true].map(|immediate| {
        let mut code = Code::default();
        let dst = code.volatile(old);
        let a = code.control(a);
        let register = code.control(b);
        code.always(|code| {
            if immediate {
                code.imm(op, dst, a, b)
            } else {
                code.op(op, dst, a, register)
            };
            code.report();
        });
        let mut rig = Rig::new(&code);
        let _ = rig.ack(ack_of(0));
        (rig.last_report()[0], rig.flow.faults())
    });
    if op == Op::Ewma {
        results[1] = results[0];
    }
    assert_eq!(
        results[0], results[1],
        "{op:?} of a register and of an immediate"
    );
    results[0]
}

fn eval(op: Op, a: u64, b: u64) -> u64 {
    let (value, faults) = eval_from(op, 0, a, b);
    assert_eq!(faults, 0, "{op:?}({a}, {b}) counts no fault");
    value
}

fn fault(op: Op, a: u64, b: u64) -> u64 {
    let (value, faults) = eval_from(op, 0, a, b);
    assert_eq!(faults, 1, "{op:?}({a}, {b}) counts a fault");
    value
}

/// Runs `dst = a * num / den` or the average, whose immediate is a ratio.
fn eval_ratio(op: Op, old: u64, value: u64, num: u64, den: u64) -> u64 {
    let mut code = Code::default();
    let dst = code.volatile(old);
    let source = code.control(value);
    code.always(|code| {
        code.imm(op, dst, source, num << 32 | den);
        code.instrs.last_mut().expect("the instruction").b = source;
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.flow.faults(), 0);
    rig.last_report()[0]
}

#[test]
fn arithmetic() {
    assert_eq!(eval(Op::Move, 5, 7), 7);
    assert_eq!(eval(Op::Add, 5, 7), 12);
    assert_eq!(eval(Op::Sub, 7, 5), 2);
    assert_eq!(eval(Op::Sub, 7, 7), 0);
    assert_eq!(eval(Op::Diff, 7, 5), 2);
    assert_eq!(eval(Op::Diff, 5, 7), 0);
    assert_eq!(eval(Op::Mul, 5, 7), 35);
    assert_eq!(eval(Op::Mul, 0, u64::MAX), 0);
    assert_eq!(eval(Op::Div, 37, 7), 5);
    assert_eq!(eval(Op::Max, 5, 7), 7);
    assert_eq!(eval(Op::Min, 5, 7), 5);
}

#[test]
fn arithmetic_that_aborts_the_reference_saturates_and_is_counted() {
    assert_eq!(fault(Op::Add, u64::MAX, 1), u64::MAX);
    assert_eq!(fault(Op::Sub, 5, 7), 0);
    assert_eq!(fault(Op::Mul, u64::MAX, 2), u64::MAX);
    assert_eq!(fault(Op::Div, 5, 0), 0);
    // The limits themselves are not faults.
    assert_eq!(eval(Op::Add, u64::MAX - 1, 1), u64::MAX);
    assert_eq!(eval(Op::Mul, u64::MAX, 1), u64::MAX);
}

#[test]
fn comparisons_and_logic() {
    for (a, b) in [(1, 2), (2, 2), (3, 2), (0, u64::MAX)] {
        assert_eq!(eval(Op::Eq, a, b), u64::from(a == b));
        assert_eq!(eval(Op::Ne, a, b), u64::from(a != b));
        assert_eq!(eval(Op::Gt, a, b), u64::from(a > b));
        assert_eq!(eval(Op::Ge, a, b), u64::from(a >= b));
        assert_eq!(eval(Op::Lt, a, b), u64::from(a < b));
        assert_eq!(eval(Op::Le, a, b), u64::from(a <= b));
    }
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 4)] {
        assert_eq!(eval(Op::And, a, b), u64::from(a != 0 && b != 0));
        assert_eq!(eval(Op::Or, a, b), u64::from(a != 0 || b != 0));
        assert_eq!(eval(Op::Not, a, b), u64::from(b == 0));
    }
}

#[test]
fn conditional_moves_keep_the_old_value() {
    assert_eq!(eval_from(Op::If, 9, 1, 4), (4, 0));
    assert_eq!(eval_from(Op::If, 9, 0, 4), (9, 0));
    assert_eq!(eval_from(Op::NotIf, 9, 1, 4), (9, 0));
    assert_eq!(eval_from(Op::NotIf, 9, 0, 4), (4, 0));
}

#[test]
fn wrapped_max_takes_the_shorter_way_around() {
    assert_eq!(eval(Op::MaxWrap, 5, 7), 7);
    assert_eq!(eval(Op::MaxWrap, 7, 5), 7);
    assert_eq!(eval(Op::MaxWrap, 0xffff_fff0, 5), 5);
    assert_eq!(eval(Op::MaxWrap, 5, 0xffff_fff0), 5);
    assert_eq!(eval(Op::MaxWrap, 0, 5), 5);
    assert_eq!(eval(Op::MaxWrap, 5, 0), 5);
    // Only the low 32 bits are a sequence number.
    assert_eq!(eval(Op::MaxWrap, 0x1_0000_0005, 3), 5);
    // At half the circle either could be later; the reference takes the smaller.
    assert_eq!(eval(Op::MaxWrap, 1, 0x8000_0001), 1);
    assert_eq!(eval(Op::MaxWrap, 0x8000_0001, 1), 1);
}

#[test]
fn ratios_are_exact_in_128_bits() {
    assert_eq!(eval_ratio(Op::MulRatio, 0, 1000, 5, 4), 1250);
    assert_eq!(eval_ratio(Op::MulRatio, 0, 1001, 1, 2), 500);
    assert_eq!(eval_ratio(Op::MulRatio, 0, u64::MAX, 3, 3), u64::MAX);
    assert_eq!(eval_ratio(Op::MulRatio, 0, u64::MAX, 2, 1), u64::MAX);
}

#[test]
fn averages_take_the_first_sample_as_it_is() {
    assert_eq!(eval_ratio(Op::Ewma, 0, 100, 7, 8), 100);
    assert_eq!(eval_ratio(Op::Ewma, 100, 180, 7, 8), 110);
    assert_eq!(eval_ratio(Op::Ewma, 100, 180, 8, 8), 100);
    assert_eq!(eval_ratio(Op::Ewma, 100, 180, 0, 8), 180);
    // Values at which the reference's products wrap.
    assert_eq!(eval_ratio(Op::Ewma, u64::MAX, u64::MAX, 9, 10), u64::MAX);
    assert_eq!(eval_from(Op::EwmaVar, 100, 3, 200), (170, 0));
    assert_eq!(eval_from(Op::EwmaVar, 0, 3, 200), (200, 0));
}

#[test]
fn a_skip_passes_over_its_instructions() {
    for (condition, expected) in [(0, [0, 2]), (1, [1, 2])] {
        let mut code = Code::default();
        let [first, second] = [0; 2].map(|init| code.volatile(init));
        let condition = code.control(condition);
        code.always(|code| {
            code.imm(Op::SkipIfZero, first, condition, 1);
            code.set(first, 1);
            code.set(second, 2);
            code.report();
        });
        let mut rig = Rig::new(&code);
        let _ = rig.ack(ack_of(0));
        assert_eq!(rig.last_report(), expected);
    }
}

/// Two consecutive moves or additions are one step of the interpreter, unless a skip may separate
/// them.
#[test]
fn skips_may_split_pairs() {
    for op in [Op::Move, Op::Add] {
        for (condition, expected) in [(0, [0, 5, 5]), (1, [5, 5, 5])] {
            let mut code = Code::default();
            let sums: [u8; 3] = [0; 3].map(|init| code.volatile(init));
            let condition = code.control(condition);
            let five = code.control(5);
            code.always(|code| {
                code.imm(Op::SkipIfZero, five, condition, 1);
                for sum in sums {
                    code.op(op, sum, sum, five);
                }
                code.report();
            });
            let mut rig = Rig::new(&code);
            let _ = rig.ack(ack_of(0));
            assert_eq!(rig.last_report(), expected, "{op:?}");
        }
    }
}

#[test]
fn fallthrough_inside_a_skip_is_decided_at_run_time() {
    for (condition, runs) in [(0, 0), (1, 2)] {
        let mut code = Code::default();
        let second_ran = code.volatile(0);
        let condition = code.control(condition);
        code.always(|code| {
            code.report();
            code.imm(Op::SkipIfZero, second_ran, condition, 1);
            code.fallthrough();
        });
        code.always(|code| {
            code.imm(Op::Add, second_ran, second_ran, 1);
            code.imm(Op::Add, second_ran, second_ran, 1);
        });
        let mut rig = Rig::new(&code);
        let _ = rig.ack(ack_of(0));
        assert_eq!(rig.last_report(), [runs]);
    }
}

#[test]
fn unknown_times_read_as_infinity() {
    let mut code = Code::default();
    let times: [u8; 3] = [0; 3].map(|init| code.volatile(init));
    code.always(|code| {
        for (time, signal) in times.into_iter().zip([13, 15, 16]) {
            code.mov(time, signal);
        }
        code.report();
    });
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ccplane_datapath::Signals::default());
    assert_eq!(rig.last_report(), [INFINITY; 3]);
}

#[test]
fn locals_start_at_zero_and_persist() {
    let mut code = Code::default();
    let count = code.volatile(0);
    let local = code.var(VarKind::Local, false, 0);
    code.always(|code| {
        code.imm(Op::Add, local, local, 1);
        code.mov(count, local);
        code.report();
    });
    let mut rig = Rig::new(&code);
    for expected in 1..=3 {
        let _ = rig.ack(ack_of(0));
        assert_eq!(rig.last_report(), [expected]);
    }
}

#[test]
fn now_counts_microseconds_of_the_transports_clock() {
    let mut code = Code::default();
    let now = code.volatile(0);
    code.always(|code| {
        code.mov(now, reg::ACK_NOW);
        code.report();
    });
    let mut rig = Rig::new(&code);
    rig.advance_us(123);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [1_000_123]);
}

/// The bare interpreter, with which other back ends are compared, agrees with a flow.
#[test]
fn the_bare_interpreter_agrees_with_a_flow() {
    let mut code = Code::default();
    let [sum, seen] = [1, 2].map(|init| code.volatile(init));
    code.always(|code| {
        code.op(Op::Add, sum, sum, 0);
        code.mov(seen, reg::CWND);
        code.imm(Op::Sub, reg::RATE, reg::RATE, 1);
        code.report();
    });
    let mut registers = [0; 128];
    registers[0] = 1448;
    registers[usize::from(reg::CWND)] = 14_480;
    registers[usize::from(reg::CONSTANT_ONE)] = 1;
    (registers[64], registers[65]) = (1, 2);
    let faults = ccplane_datapath::interpret(&code.program(1), &mut registers);
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(1448));
    assert_eq!(rig.last_report(), [registers[64], registers[65]]);
    assert_eq!(
        (
            rig.flow.faults(),
            registers[usize::from(reg::SHOULD_REPORT)]
        ),
        (faults, 1)
    );
}

#[test]
fn a_repeated_fallthrough_does_not_reach_the_next_body() {
    let mut code = Code::default();
    let ran = code.volatile(0);
    let never = code.control(0);
    code.always(|code| {
        code.report();
        code.fallthrough();
        code.fallthrough();
    });
    code.always(|code| {
        code.imm(Op::SkipIfZero, ran, never, 1);
        code.fallthrough();
    });
    code.always(|code| code.set(ran, 1));
    let mut rig = Rig::new(&code);
    let _ = rig.ack(ack_of(0));
    assert_eq!(rig.last_report(), [0]);
}
