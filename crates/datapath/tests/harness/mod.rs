//! Fuzz harness of the bytecode: arbitrary input goes through the check; a program that passes
//! runs, and must agree with a second, plain interpreter written from the definition of the
//! bytecode. Used by `cargo test` and by the fuzz target.

mod model;

use ccplane_datapath::{
    Capabilities, Clause, Command, Compat, Flow, INFINITY, Instr, Op, OperatorLimits, Program,
    ProgramTable, Signals, Transport, VARS_MAX, Var, VarKind, reg,
};
use ccplane_units::splitmix::SplitMix64;
use ccplane_units::{Duration, Time};
use model::Model;

/// Result of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The check refused it.
    Refused,
    /// It ran and agreed with the model.
    Ran,
}

/// Takes arbitrary bytes; panics on a violated invariant.
pub fn bytecode(data: &[u8]) -> Verdict {
    let mut input = Input(data);
    let shaped = !input.one_in(8);
    let (instrs, clauses, vars) = if shaped {
        shaped_program(&mut input)
    } else {
        raw_program(&mut input)
    };
    match Program::check(1, &instrs, &clauses, &vars) {
        Ok(program) => {
            assert_eq!(program.instrs(), instrs);
            run(&program, &mut input);
            Verdict::Ran
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Verdict::Refused
        }
    }
}

/// Runs a checked program next to the model, on calls generated from the input.
fn run(program: &Program, input: &mut Input) {
    let compat = if input.one_in(4) {
        Compat::Libccp
    } else {
        Compat::Documented
    };
    let limits = OperatorLimits {
        min_cwnd: 1,
        agent_timeout: Duration::MAX,
        ..OperatorLimits::default()
    };
    let mut table: ProgramTable<1> =
        ProgramTable::with_compat(limits, Capabilities(u64::MAX), compat);
    table
        .install(program.clone())
        .expect("an empty table takes any program");
    let mut now = Time::from_micros(input.value());
    let mut flow: Flow<VARS_MAX> = Flow::new(now, 14_480);
    flow.apply(
        now,
        &Command::SetProgram {
            uid: 1,
            updates: &[],
        },
        &table,
    )
    .expect("the program is there");
    let mut model = Model::new(program, compat, now);

    let mut transport = Transport {
        cwnd: 14_480,
        rate: 0,
        ssthresh: u64::MAX,
        now,
    };
    // The first call is an ACK, which starts the new program.
    for call in 0..16 {
        transport.now = now;
        let outcome = if call == 0 || !input.one_in(4) {
            let signals = signals(input);
            let outcome = flow.on_ack(&transport, &signals, &table);
            model.on_ack(&transport, &signals);
            outcome
        } else {
            let outcome = flow.on_deadline(&transport, &table);
            model.on_deadline(&transport);
            outcome
        };
        assert_eq!(
            outcome,
            model.outcome(&transport),
            "call {call} of {program:?}"
        );
        assert_eq!(
            flow.report(&table),
            model.report(),
            "call {call} of {program:?}"
        );
        assert_eq!(flow.faults(), model.faults(), "call {call} of {program:?}");
        assert_eq!(
            flow.next_deadline(),
            model.next_deadline(),
            "call {call} of {program:?}"
        );
        assert!(model.longest_run() <= program.worst_case());

        transport.cwnd = outcome.cwnd.unwrap_or(transport.cwnd);
        transport.rate = outcome.rate.unwrap_or(transport.rate);
        transport.ssthresh = outcome.ssthresh.unwrap_or(transport.ssthresh);
        if outcome.report.is_some() && !input.one_in(4) {
            flow.report_queued(&table);
            model.report_queued();
        }
        now = match (input.byte() % 4, flow.next_deadline()) {
            // A jump of more than 292 years is taken for a clock that went back.
            (0, Some(deadline)) if deadline.since(now) < Duration::from_nanos(1 << 58) => {
                now.max(deadline)
            }
            (1, _) => now + Duration::from_nanos(input.value() % 3_000_000),
            _ => now + Duration::from_micros(u64::from(input.byte())),
        };
    }
}

fn signals(input: &mut Input) -> Signals {
    Signals {
        bytes_acked: input.value(),
        bytes_misordered: input.value(),
        lost_pkts_sample: u64::from(input.one_in(8)),
        packets_in_flight: input.value(),
        rate_incoming: input.value(),
        rate_outgoing: input.value(),
        rtt_sample_us: u64::from(input.byte()),
        was_timeout: u64::from(input.one_in(16)),
        srtt_us: u64::from(input.byte()),
        min_rtt_us: u64::from(input.byte()),
        mss: 1448,
        undone: u64::from(input.one_in(16)),
        owd_ns: u64::from(input.byte()),
        rtt_ns: u64::from(input.byte()),
        min_owd_ns: u64::from(input.byte()),
        min_rtt_ns: u64::from(input.byte()),
        queue_delay_ns: u64::from(input.byte()),
        queue_delay_valid: u64::from(input.one_in(2)),
        paced: u64::from(input.one_in(2)),
        ..Signals::default()
    }
}

/// Bytes, followed by an infinite number of zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    /// Returns true once in `n` times.
    fn one_in(&mut self, n: u8) -> bool {
        self.byte().is_multiple_of(n)
    }

    /// Returns a number, often a small one or one near a limit.
    fn value(&mut self) -> u64 {
        let byte = self.byte();
        match byte % 16 {
            0 => 0,
            1 => 1,
            2 => INFINITY,
            3 => u64::MAX,
            4 => u64::MAX - u64::from(self.byte()),
            5 => 1 << (self.byte() % 64),
            6 => (u64::from(self.byte()) << 32) | u64::from(self.byte()),
            7 => 0x6000_0000_0000_0000,
            8 => 1448 * u64::from(self.byte()),
            9 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            _ => u64::from(self.byte()),
        }
    }

    fn pick(&mut self, from: &[u8]) -> u8 {
        from[usize::from(self.byte()) % from.len()]
    }

    fn op(&mut self) -> Op {
        Op::ALL[usize::from(self.byte()) % Op::ALL.len()]
    }
}

fn raw_program(input: &mut Input) -> (Vec<Instr>, Vec<Clause>, Vec<Var>) {
    let kinds = [VarKind::Report, VarKind::Control, VarKind::Local];
    let count = usize::from(input.byte());
    let vars = (0..count % 80)
        .map(|_| Var {
            kind: kinds[usize::from(input.byte()) % 3],
            volatile: input.one_in(2),
            init: input.value(),
        })
        .collect();
    let mut index = || u16::from(input.byte()) + if input.byte() == 0 { 300 } else { 0 };
    let count = index() % 40;
    let clauses = (0..count)
        .map(|_| Clause {
            flag: index() as u8,
            guard_start: index(),
            body_start: index(),
            body_end: index(),
        })
        .collect();
    let count = index();
    let instrs = (0..count)
        .map(|_| Instr {
            op: input.op(),
            has_imm: input.one_in(2),
            dst: input.byte(),
            a: input.byte(),
            b: input.byte(),
            imm: input.value(),
        })
        .collect();
    (instrs, clauses, vars)
}

/// Returns a program that keeps most of the rules most of the time.
fn shaped_program(input: &mut Input) -> (Vec<Instr>, Vec<Clause>, Vec<Var>) {
    let mut vars = Vec::new();
    for kind in [VarKind::Report, VarKind::Control, VarKind::Local] {
        for _ in 0..input.byte() % 6 {
            vars.push(Var {
                kind,
                volatile: input.one_in(2),
                init: input.value(),
            });
        }
    }
    let vars_end = reg::VARS + vars.len() as u8;
    let variables: Vec<u8> = (reg::VARS..vars_end).collect();
    let (mut instrs, mut clauses) = (Vec::new(), Vec::new());
    for _ in 0..input.byte() % 6 {
        let guard_start = instrs.len() as u16;
        let mut written = Vec::new();
        for _ in 0..input.byte() % 4 {
            instrs.push(shaped_instr(input, &variables, &mut written, true));
        }
        let body_start = instrs.len() as u16;
        let flag = if written.is_empty() || input.one_in(4) {
            reg::CONSTANT_ONE
        } else {
            input.pick(&written)
        };
        written.clear();
        for _ in 0..input.byte() % 8 {
            instrs.push(shaped_instr(input, &variables, &mut written, false));
        }
        clauses.push(Clause {
            flag,
            guard_start,
            body_start,
            body_end: instrs.len() as u16,
        });
    }
    (instrs, clauses, vars)
}

fn shaped_instr(input: &mut Input, variables: &[u8], written: &mut Vec<u8>, guard: bool) -> Instr {
    const BUILT_IN_REGISTERS: [u8; 7] = [
        reg::MICROS,
        reg::CWND,
        reg::RATE,
        reg::SSTHRESH,
        reg::SHOULD_REPORT,
        reg::SHOULD_CONTINUE,
        reg::SHOULD_RESET,
    ];
    let temps: Vec<u8> = (reg::TEMPS..reg::TEMPS + 3)
        .chain([reg::TEMPS_END - 1])
        .collect();
    let mut sources: Vec<u8> = (reg::SIGNALS..reg::SIGNALS_END)
        .chain(reg::MICROS..=reg::SSTHRESH)
        .collect();
    for _ in 0..3 {
        sources.extend_from_slice(variables);
        sources.extend_from_slice(written);
    }
    // Instructions that are common in real programs, or handled specially by the interpreter, are
    // generated often.
    if !guard && input.one_in(6) {
        let falls_through = u64::from(!input.one_in(4));
        return Instr {
            op: Op::Move,
            has_imm: true,
            dst: reg::SHOULD_CONTINUE,
            a: 0,
            b: 0,
            imm: falls_through,
        };
    }
    let mut op = match input.byte() % 12 {
        0 | 1 => Op::Move,
        2 | 3 => Op::Add,
        4 => Op::SkipIfZero,
        5 => Op::And,
        6 => Op::Or,
        7 => Op::After,
        _ => input.op(),
    };
    if op == Op::After && !guard {
        op = Op::Gt;
    }
    let targets = if guard {
        temps
    } else {
        [variables, variables, &BUILT_IN_REGISTERS, &temps].concat()
    };
    let updates = matches!(op, Op::If | Op::NotIf | Op::Ewma | Op::EwmaVar);
    let dst = if updates && !written.is_empty() {
        input.pick(written)
    } else {
        input.pick(&targets)
    };
    let imm = match op {
        Op::SkipIfZero => u64::from(input.byte() % 3),
        Op::MulRatio | Op::Ewma => (u64::from(input.byte()) << 32) | u64::from(input.byte()),
        _ => input.value(),
    };
    let instr = Instr {
        op,
        has_imm: input.one_in(2),
        dst,
        a: input.pick(&sources),
        b: input.pick(&sources),
        imm,
    };
    if op != Op::SkipIfZero && (reg::TEMPS..reg::TEMPS_END).contains(&dst) {
        written.push(dst);
    }
    instr
}

/// Returns bytes from a seed, the same on every machine (SplitMix64).
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SplitMix64(seed);
    (0..len.div_ceil(8))
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .take(len)
        .collect()
}
