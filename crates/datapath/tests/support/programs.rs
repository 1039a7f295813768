//! Hand-written programs for the tests, equivalent to those of CCP's algorithms.
#![allow(dead_code)]

use ccplane_datapath::{Clause, INFINITY, Instr, Op, Program, Var, VarKind, reg};

/// Program under construction.
#[derive(Default)]
pub struct Code {
    pub instrs: Vec<Instr>,
    pub clauses: Vec<Clause>,
    pub vars: Vec<Var>,
}

impl Code {
    /// Declares a variable; returns its register.
    pub fn var(&mut self, kind: VarKind, volatile: bool, init: u64) -> u8 {
        self.vars.push(Var {
            kind,
            volatile,
            init,
        });
        reg::VARS + self.vars.len() as u8 - 1
    }

    pub fn volatile(&mut self, init: u64) -> u8 {
        self.var(VarKind::Report, true, init)
    }

    pub fn control(&mut self, init: u64) -> u8 {
        self.var(VarKind::Control, false, init)
    }

    /// `dst = a op b`
    pub fn op(&mut self, op: Op, dst: u8, a: u8, b: u8) -> u8 {
        self.instrs.push(Instr {
            op,
            has_imm: false,
            dst,
            a,
            b,
            imm: 0,
        });
        dst
    }

    /// `dst = a op imm`
    pub fn imm(&mut self, op: Op, dst: u8, a: u8, imm: u64) -> u8 {
        self.instrs.push(Instr {
            op,
            has_imm: true,
            dst,
            a,
            b: reg::CONSTANT_ONE,
            imm,
        });
        dst
    }

    pub fn mov(&mut self, dst: u8, src: u8) {
        self.op(Op::Move, dst, reg::CONSTANT_ONE, src);
    }

    pub fn set(&mut self, dst: u8, value: u64) {
        self.imm(Op::Move, dst, reg::CONSTANT_ONE, value);
    }

    pub fn report(&mut self) {
        self.set(reg::SHOULD_REPORT, 1);
    }

    pub fn fallthrough(&mut self) {
        self.set(reg::SHOULD_CONTINUE, 1);
    }

    /// Adds a clause; `guard` returns the register of its flag.
    pub fn when(&mut self, guard: impl FnOnce(&mut Code) -> u8, body: impl FnOnce(&mut Code)) {
        let guard_start = self.instrs.len() as u16;
        let flag = guard(self);
        let body_start = self.instrs.len() as u16;
        body(self);
        self.clauses.push(Clause {
            flag,
            guard_start,
            body_start,
            body_end: self.instrs.len() as u16,
        });
    }

    pub fn always(&mut self, body: impl FnOnce(&mut Code)) {
        self.when(|_| reg::CONSTANT_ONE, body);
    }

    pub fn program(&self, uid: u32) -> Program {
        Program::check(uid, &self.instrs, &self.clauses, &self.vars).expect("a correct program")
    }
}

/// Register of the n-th temporary.
pub const fn temp(n: u8) -> u8 {
    reg::TEMPS + n
}

pub const BYTES_ACKED: u8 = 0;
pub const LOST_PKTS_SAMPLE: u8 = 4;
pub const PACKETS_MISORDERED: u8 = 7;
pub const PACKETS_IN_FLIGHT: u8 = 10;
pub const RATE_INCOMING: u8 = 11;
pub const RATE_OUTGOING: u8 = 12;
pub const RTT_SAMPLE: u8 = 13;
pub const WAS_TIMEOUT: u8 = 14;

/// The fold of Reno and Cubic: accumulate, report at once on loss or timeout, otherwise every
/// `interval_us`.
pub fn reno_fold(interval_us: u64) -> Code {
    let mut code = Code::default();
    let [acked, sacked, loss, timeout, rtt, inflight] = [0; 6].map(|init| code.volatile(init));
    let interval = code.control(interval_us);
    code.always(|code| {
        code.mov(inflight, PACKETS_IN_FLIGHT);
        code.mov(rtt, RTT_SAMPLE);
        code.op(Op::Add, acked, acked, BYTES_ACKED);
        code.op(Op::Add, sacked, sacked, PACKETS_MISORDERED);
        code.mov(loss, LOST_PKTS_SAMPLE);
        code.mov(timeout, WAS_TIMEOUT);
        code.fallthrough();
    });
    code.when(
        |code| {
            code.imm(Op::Gt, temp(0), loss, 0);
            code.op(Op::Or, temp(0), timeout, temp(0))
        },
        |code| {
            code.report();
            code.set(reg::MICROS, 0);
        },
    );
    code.when(
        |code| code.op(Op::After, temp(0), reg::CONSTANT_ONE, interval),
        |code| {
            code.report();
            code.set(reg::MICROS, 0);
        },
    );
    code
}

/// BBR's probe-bandwidth: fold loss, minimum RTT and delivery rate, and step through the pacing
/// gains by `Micros`.
pub fn bbr_probe_bw() -> Code {
    let mut code = Code::default();
    let loss = code.volatile(0);
    let min_rtt = code.volatile(INFINITY);
    let rate = code.volatile(0);
    let pulse = code.var(VarKind::Report, false, 0);
    let [state, cwnd_cap, bottle, three_fourths, five_fourths] =
        [0; 5].map(|init| code.control(init));
    code.always(|code| {
        code.op(Op::Add, loss, loss, LOST_PKTS_SAMPLE);
        code.op(Op::Min, min_rtt, min_rtt, RTT_SAMPLE);
        code.op(Op::Min, temp(0), RATE_OUTGOING, RATE_INCOMING);
        code.op(Op::Max, rate, rate, temp(0));
        code.mov(pulse, state);
        code.fallthrough();
    });
    let phases = [
        (1, three_fourths, 0, 1),
        (2, bottle, 1, 2),
        (8, five_fourths, 2, 0),
    ];
    for (rtts, gain, from, to) in phases {
        code.when(
            |code| {
                let wait = if rtts == 1 {
                    min_rtt
                } else {
                    code.imm(Op::Mul, temp(0), min_rtt, rtts)
                };
                code.op(Op::After, temp(1), reg::CONSTANT_ONE, wait);
                code.imm(Op::Eq, temp(2), state, from);
                code.op(Op::And, temp(1), temp(1), temp(2))
            },
            |code| {
                code.mov(reg::RATE, gain);
                code.set(state, to);
                if to == 0 {
                    code.mov(reg::CWND, cwnd_cap);
                    code.set(reg::MICROS, 0);
                }
                code.report();
            },
        );
    }
    code
}
