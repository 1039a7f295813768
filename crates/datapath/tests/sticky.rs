//! A program written for the reference's `(fallthrough)` behaves, once translated to the documented
//! one, as it does in the reference.

use crate::support::programs::{BYTES_ACKED, Code, temp};
use ccplane_datapath::{
    CheckErrorReason, Compat, Flow, INSTRS_MAX, Instr, Op, OperatorLimits, Program, ProgramTable,
    Signals, Transport, reg,
};
use ccplane_units::{Duration, Time};

/// Deterministic pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Clauses that record that they ran; each falls through always, never, or depending on the
/// acknowledged bytes.
fn program(dice: &mut Dice) -> Code {
    let mut code = Code::default();
    let (ran, kept) = (code.volatile(0), code.control(3));
    for clause in 0..1 + dice.below(7) {
        let bit = 1 << dice.below(4);
        let body = |code: &mut Code, how: u64| {
            code.imm(Op::Add, ran, ran, 1 << (4 * clause));
            code.report();
            match how {
                0 => code.fallthrough(),
                1 => {
                    // Both forms of `(if c (fallthrough))`.
                    code.imm(Op::Gt, temp(1), BYTES_ACKED, 7);
                    code.imm(Op::If, reg::SHOULD_CONTINUE, temp(1), 1);
                }
                2 => {
                    code.imm(Op::Gt, temp(1), BYTES_ACKED, 9);
                    code.instrs.push(Instr {
                        op: Op::SkipIfZero,
                        has_imm: true,
                        dst: 0,
                        a: temp(1),
                        b: 0,
                        imm: 2,
                    });
                    code.fallthrough();
                    code.imm(Op::Add, kept, kept, 1);
                    code.imm(Op::Add, reg::CWND, reg::CWND, 100);
                }
                _ => {}
            }
        };
        let how = dice.below(6);
        match dice.below(2) {
            0 => code.always(|code| body(code, how)),
            _ => code.when(
                |code| {
                    code.imm(Op::Div, temp(0), BYTES_ACKED, bit);
                    code.imm(Op::Gt, temp(0), temp(0), 1)
                },
                |code| body(code, how),
            ),
        }
    }
    code
}

struct Side {
    table: ProgramTable<1>,
    flow: Flow<64>,
    transport: Transport,
}

impl Side {
    fn new(program: Program, compat: Compat) -> Side {
        let limits = OperatorLimits {
            min_cwnd: 1,
            agent_timeout: Duration::MAX,
            ..OperatorLimits::default()
        };
        let mut table =
            ProgramTable::with_compat(limits, ccplane_datapath::Capabilities(u64::MAX), compat);
        table.install(program).expect("there is room");
        let mut flow = Flow::new(Time::ZERO, 10_000);
        let set = ccplane_datapath::Command::SetProgram {
            uid: 1,
            updates: &[],
        };
        flow.apply(Time::ZERO, &set, &table)
            .expect("it is installed");
        let transport = Transport {
            cwnd: 10_000,
            rate: 0,
            ssthresh: u64::MAX,
            now: Time::ZERO,
        };
        Side {
            table,
            flow,
            transport,
        }
    }

    /// Returns the window for the transport and the report for the agent.
    fn ack(&mut self, bytes: u64) -> (u64, Option<Vec<u64>>) {
        self.transport.now += Duration::from_micros(100);
        let signals = Signals {
            bytes_acked: bytes,
            ..Signals::default()
        };
        let outcome = self.flow.on_ack(&self.transport, &signals, &self.table);
        self.transport.cwnd = outcome.cwnd.unwrap_or(self.transport.cwnd);
        let report = outcome
            .report
            .map(|_| self.flow.report(&self.table).to_vec());
        self.flow.report_queued(&self.table);
        (self.transport.cwnd, report)
    }
}

#[test]
fn sticky_fallthrough_matches_the_reference() {
    let mut dice = Dice(7);
    let mut differ = 0;
    for _ in 0..500 {
        let plain = program(&mut dice).program(1);
        let sticky = plain
            .with_sticky_fallthrough()
            .expect("the program is short");
        let mut there = Side::new(plain.clone(), Compat::Libccp);
        let mut here = Side::new(sticky, Compat::Documented);
        let mut documented = Side::new(plain.clone(), Compat::Documented);
        for _ in 0..40 {
            let bytes = dice.below(20);
            let expected = there.ack(bytes);
            assert_eq!(here.ack(bytes), expected, "{plain:?}");
            differ += u32::from(documented.ack(bytes) != expected);
        }
    }
    assert!(
        differ > 1_000,
        "the two meanings differ in {differ} calls only: too few to tell"
    );
}

#[test]
fn a_program_that_has_no_room_for_it_is_refused_with_the_reason() {
    let mut code = Code::default();
    code.always(Code::fallthrough);
    code.always(|code| {
        for _ in 0..INSTRS_MAX - 2 {
            code.report();
        }
    });
    let refused = code
        .program(1)
        .with_sticky_fallthrough()
        .expect_err("the program is full");
    assert_eq!(refused.reason, CheckErrorReason::TooManyInstrs);
}
