//! Lowered form of a program for the interpreter: one sequence of steps without clauses, on densely
//! numbered registers.
//!
//! Programs are lowered when they are installed, so that an ACK need not work out where a false
//! guard leads, whether a body always or never falls through, and after which bodies the guards
//! must be evaluated again.

use crate::bytecode::{CLAUSES_MAX, Clause, INSTRS_MAX, Instr, Op, reg};
use crate::program::Program;

/// Maximum steps: per clause the test of the guard and the end of the body, and the end of the
/// program.
const STEPS_MAX: usize = INSTRS_MAX + 3 * CLAUSES_MAX + 1;

/// Register counts of a small program and of any program: powers of two, so that a masked index
/// needs no bounds check. The file is cleared at every ACK; clearing the large one takes a tenth of
/// the ACK's cost.
pub(crate) const SMALL_FILE_REGISTERS: usize = 64;
pub(crate) const LARGE_FILE_REGISTERS: usize = 128;
/// Start of the built-in state. Signals, built-in state and variables are contiguous, so that
/// loading them leaves only the rest of the file to be cleared; temporaries are numbered down from
/// the other end. An unused variable may share its slot with a temporary: neither reads the other.
pub(crate) const STATE_SLOT: u8 = reg::STAMPS;
/// Start of the variables.
pub(crate) const VARS_SLOT: u8 = STATE_SLOT + (reg::CONSTANT_ONE + 1 - reg::MICROS);

/// Start of the signals from stamps, at the end of the large file: a program that reads them uses
/// the large file, and no other program has slots for them.
pub(crate) const STAMPS_SLOT: u8 = LARGE_FILE_REGISTERS as u8 - (reg::PACED - reg::STAMPS);

/// Slot of a bytecode register in the interpreter, for registers with the same slot in every
/// program.
pub(crate) const fn slot_of(register: u8) -> u8 {
    match register {
        reg::MICROS..=reg::CONSTANT_ONE => STATE_SLOT + (register - reg::MICROS),
        reg::VARS.. => VARS_SLOT + (register - reg::VARS),
        reg::STAMPS..reg::PACED => STAMPS_SLOT + (register - reg::STAMPS),
        signal => signal,
    }
}

/// Declares two kinds for every operation with an optional immediate: distinguishing them at every
/// step would cost a seventh of an ACK.
macro_rules! kinds {
    ($($op:ident $imm:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Kind {
            $($op, $imm,)*
            MulRatio,
            Ewma,
            SkipIfZero,
            /// Two moves in one step; the registers of the second are `dst2` and `b2`.
            MoveMove,
            /// Two additions in one step; the second adds `b2` to `dst2`.
            AddAdd,
            /// End of a guard: if register `a` is 0, continue with step `jump`, the next clause.
            Guard,
            /// End of a guard fused with the operation that computes its flag.
            AndGuard,
            OrGuard,
            AfterGuard,
            AfterImmGuard,
            /// End of a body that may change the threshold of an earlier guard: the guards must be
            /// evaluated again.
            Stale,
            /// End of a body that falls through if it executed `(fallthrough)`; otherwise end of
            /// the run, stale if `imm` is not 0.
            End,
            /// As `End`, but the next body must execute `(fallthrough)` again.
            EndAfresh,
            /// End of the run, stale if `imm` is not 0.
            Stop,
        }

        impl Kind {
            fn of(instr: &Instr) -> Kind {
                match (instr.op, instr.has_imm) {
                    $((Op::$op, false) => Kind::$op, (Op::$op, true) => Kind::$imm,)*
                    (Op::MulRatio, _) => Kind::MulRatio,
                    (Op::Ewma, _) => Kind::Ewma,
                    (Op::SkipIfZero, _) => Kind::SkipIfZero,
                }
            }
        }
    };
}

kinds! {
    Move MoveImm, Add AddImm, Sub SubImm, Diff DiffImm, Mul MulImm, Div DivImm, Max MaxImm,
    Min MinImm, MaxWrap MaxWrapImm, Eq EqImm, Ne NeImm, Gt GtImm, Ge GeImm, Lt LtImm, Le LeImm,
    After AfterImm, And AndImm, Or OrImm, Not NotImm, If IfImm, NotIf NotIfImm, EwmaVar EwmaVarImm,
}

/// Step with the fields of an [`Instr`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoweredStep {
    pub kind: Kind,
    pub dst: u8,
    pub a: u8,
    pub b: u8,
    pub dst2: u8,
    pub b2: u8,
    pub jump: u16,
    pub imm: u64,
}

impl LoweredStep {
    const fn new(kind: Kind, imm: u64) -> LoweredStep {
        LoweredStep {
            kind,
            dst: 0,
            a: 0,
            b: 0,
            dst2: 0,
            b2: 0,
            jump: 0,
            imm,
        }
    }

    /// Fuses this step with the next one if there is a fused kind. A saved step avoids 17 of the 20
    /// instructions that a step costs. Moves, additions and flags are most of what published
    /// programs execute.
    fn fuse_with_next(&self, next: &LoweredStep) -> Option<LoweredStep> {
        let kind = match (self.kind, next.kind) {
            (Kind::Move, Kind::Move) => Kind::MoveMove,
            (Kind::Add, Kind::Add) if next.a == next.dst => Kind::AddAdd,
            _ => return None,
        };
        Some(LoweredStep {
            kind,
            dst2: next.dst,
            b2: next.b,
            ..*self
        })
    }

    /// Fuses this step with the end of the guard whose flag it computes, if there is a fused kind.
    fn fuse_with_guard(&self, flag: u8) -> Option<LoweredStep> {
        let kind = match self.kind {
            _ if self.dst != flag => return None,
            Kind::And => Kind::AndGuard,
            Kind::Or => Kind::OrGuard,
            Kind::After => Kind::AfterGuard,
            Kind::AfterImm => Kind::AfterImmGuard,
            _ => return None,
        };
        Some(LoweredStep { kind, ..*self })
    }
}

/// Program as the interpreter runs it.
#[derive(Clone, Debug)]
pub(crate) struct LoweredCode {
    steps: [LoweredStep; STEPS_MAX],
    len: u16,
    /// One past the slot of the first temporary; the others lie below it. A program that reads
    /// signal 28 has it here.
    temps_end: u8,
    small: bool,
    waiting_len: u8,
    /// Start of the guards that wait for `Micros`.
    waiting: [u16; CLAUSES_MAX],
}

impl LoweredCode {
    #[inline(always)]
    pub fn steps(&self) -> &[LoweredStep] {
        self.steps.get(..usize::from(self.len)).unwrap_or_default()
    }

    pub fn waiting(&self) -> &[u16] {
        self.waiting
            .get(..usize::from(self.waiting_len))
            .unwrap_or_default()
    }

    /// Returns true if 64 registers suffice; the program then reads no signals from stamps.
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        self.small
    }

    /// Lowers `program`. `sticky`: one `(fallthrough)` applies to all clauses after it, as in
    /// libccp.
    pub fn new(program: &Program, sticky: bool) -> LoweredCode {
        let temps = (reg::TEMPS..reg::TEMPS_END)
            .filter(|&temp| program.writes(temp))
            .map(|temp| temp + 1 - reg::TEMPS);
        let paced = u8::from(program.reads_paced());
        let used = usize::from(VARS_SLOT)
            + program.vars().len()
            + usize::from(temps.max().unwrap_or(0) + paced);
        let small = used <= SMALL_FILE_REGISTERS && !program.reads_stamps();
        let end = if small {
            SMALL_FILE_REGISTERS as u8
        } else {
            STAMPS_SLOT
        };
        let stop = LoweredStep::new(Kind::Stop, 0);
        let mut code = LoweredCode {
            steps: [stop; STEPS_MAX],
            len: 0,
            temps_end: end - paced,
            small,
            waiting_len: 0,
            waiting: [0; CLAUSES_MAX],
        };
        let waiting = program.waiting_clauses();
        for (n, clause) in program.clauses().iter().enumerate() {
            let up_to_here = u32::MAX >> (31 - (n & 31));
            let waits = Waits {
                in_clause: waiting >> (n & 31) & 1 == 1,
                up_to_clause: waiting & up_to_here != 0,
                after_clause: waiting & !up_to_here != 0,
            };
            code.clause(program.instrs(), clause, waits, sticky);
        }
        code.push(stop);
        code
    }

    fn clause(&mut self, instrs: &[Instr], clause: &Clause, waits: Waits, sticky: bool) {
        let [start, body, end] =
            [clause.guard_start, clause.body_start, clause.body_end].map(usize::from);
        if waits.in_clause
            && let Some(slot) = self.waiting.get_mut(usize::from(self.waiting_len))
        {
            *slot = self.len;
            self.waiting_len += 1;
        }
        self.push_straight_line(&instrs[start..body], None);
        let guarded = clause.flag != reg::CONSTANT_ONE || waits.in_clause;
        if guarded {
            self.guard(self.slot(clause.flag), &instrs[start..body]);
        }
        let guard = usize::from(self.len).wrapping_sub(1);

        let body = &instrs[body..end];
        let exit = BodyExit::of_body(body, sticky);
        self.push_straight_line(body, exit.superfluous());
        let end = |kind, stale| LoweredStep::new(kind, u64::from(stale));
        match exit {
            BodyExit::Stops => self.push(end(Kind::Stop, waits.up_to_clause || waits.after_clause)),
            exit => {
                if waits.up_to_clause {
                    self.push(end(Kind::Stale, true));
                }
                if exit == BodyExit::Unknown {
                    self.push(end(
                        if sticky { Kind::End } else { Kind::EndAfresh },
                        waits.after_clause,
                    ));
                }
            }
        }

        let next = self.len;
        if let Some(guard) = self.steps.get_mut(guard).filter(|_| guarded) {
            guard.jump = next;
        }
    }

    /// Adds straight-line code without one superfluous instruction.
    fn push_straight_line(&mut self, instrs: &[Instr], superfluous: Option<usize>) {
        let begin = self.len;
        for (_, instr) in instrs
            .iter()
            .enumerate()
            .filter(|&(n, _)| Some(n) != superfluous)
        {
            let step = self.step(instr);
            match self
                .last_step_from(begin)
                .filter(|_| !has_skips(instrs))
                .map(|last| (last.fuse_with_next(&step), last))
            {
                Some((Some(both), last)) => *last = both,
                _ => self.push(step),
            }
        }
    }

    fn guard(&mut self, flag: u8, instrs: &[Instr]) {
        let begin = self.len.saturating_sub(instrs.len() as u16);
        match self
            .last_step_from(begin)
            .filter(|_| !has_skips(instrs))
            .map(|last| (last.fuse_with_guard(flag), last))
        {
            Some((Some(both), last)) => *last = both,
            _ => self.push(LoweredStep {
                a: flag,
                ..LoweredStep::new(Kind::Guard, 0)
            }),
        }
    }

    /// Returns the last step, if it is at `begin` or later.
    fn last_step_from(&mut self, begin: u16) -> Option<&mut LoweredStep> {
        let last = self.len.checked_sub(1).filter(|&last| last >= begin)?;
        self.steps.get_mut(usize::from(last))
    }

    fn step(&self, instr: &Instr) -> LoweredStep {
        LoweredStep {
            dst: self.slot(instr.dst),
            a: self.slot(instr.a),
            b: self.slot(instr.b),
            ..LoweredStep::new(Kind::of(instr), instr.imm)
        }
    }

    /// Slot of a bytecode register.
    pub fn slot(&self, register: u8) -> u8 {
        match register {
            reg::TEMPS..reg::TEMPS_END => self.temps_end - 1 - (register - reg::TEMPS),
            reg::PACED => self.temps_end,
            other => slot_of(other),
        }
    }

    fn push(&mut self, step: LoweredStep) {
        if let Some(slot) = self.steps.get_mut(usize::from(self.len)) {
            *slot = step;
            self.len += 1;
        }
    }
}

/// Guards that wait for `Micros`: the clause's own, one up to and including it, one after it.
struct Waits {
    in_clause: bool,
    up_to_clause: bool,
    after_clause: bool,
}

/// End of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyExit {
    /// Never falls through.
    Stops,
    /// Always falls through, and only this instruction sets the flag.
    FallsThrough(usize),
    /// Decided at run time.
    Unknown,
}

/// Returns true if the code contains a skip. Skips count instructions, so such code is not fused.
fn has_skips(instrs: &[Instr]) -> bool {
    instrs.iter().any(|instr| instr.op == Op::SkipIfZero)
}

impl BodyExit {
    /// Returns the instruction whose entire effect is known statically, so that it need not run.
    fn superfluous(self) -> Option<usize> {
        match self {
            BodyExit::FallsThrough(n) => Some(n),
            BodyExit::Stops | BodyExit::Unknown => None,
        }
    }

    fn of_body(body: &[Instr], sticky: bool) -> BodyExit {
        if sticky {
            return BodyExit::Unknown;
        }
        let mut skipped_until = 0;
        let mut exit = BodyExit::Stops;
        for (n, instr) in body.iter().enumerate() {
            if instr.op == Op::SkipIfZero {
                skipped_until = skipped_until.max(n as u64 + 1 + instr.imm);
            } else if instr.dst == reg::SHOULD_CONTINUE {
                let always = instr.op == Op::Move
                    && instr.has_imm
                    && instr.imm != 0
                    && n as u64 >= skipped_until;
                exit = if always && exit == BodyExit::Stops {
                    BodyExit::FallsThrough(n)
                } else {
                    BodyExit::Unknown
                };
            }
        }
        exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytecode::Var;

    const NONE: Instr = Instr {
        op: Op::Move,
        has_imm: false,
        dst: 0,
        a: 0,
        b: 0,
        imm: 0,
    };
    const VAR: u8 = reg::VARS;

    fn moves(dst: u8, from: u8) -> Instr {
        Instr {
            dst,
            b: from,
            ..NONE
        }
    }

    fn operation(op: Op, dst: u8, a: u8, b: u8) -> Instr {
        Instr {
            op,
            dst,
            a,
            b,
            ..NONE
        }
    }

    fn falls_through() -> Instr {
        Instr {
            has_imm: true,
            imm: 1,
            ..moves(reg::SHOULD_CONTINUE, 0)
        }
    }

    /// A program of clauses, each a guard, its flag and a body, with `vars` report variables.
    fn program(clauses: &[(&[Instr], u8, &[Instr])], vars: usize) -> Program {
        let (mut instrs, mut ranges) = (Vec::new(), Vec::new());
        for &(guard, flag, body) in clauses {
            let guard_start = instrs.len() as u16;
            instrs.extend_from_slice(guard);
            let body_start = instrs.len() as u16;
            instrs.extend_from_slice(body);
            ranges.push(Clause {
                flag,
                guard_start,
                body_start,
                body_end: instrs.len() as u16,
            });
        }
        Program::check(1, &instrs, &ranges, &vec![Var::default(); vars]).expect("a good program")
    }

    fn kinds(program: &Program) -> Vec<Kind> {
        let code = LoweredCode::new(program, false);
        code.steps().iter().map(|step| step.kind).collect()
    }

    #[test]
    fn pairs_of_moves_and_sums_are_joined() {
        let add = |dst| operation(Op::Add, dst, dst, 0);
        let body = [
            moves(VAR, 0),
            moves(VAR + 1, 1),
            add(VAR),
            add(VAR + 1),
            operation(Op::Sub, VAR, VAR, 0),
            moves(VAR, 3),
            add(VAR),
            operation(Op::Add, VAR + 1, VAR, 0),
        ];
        let code = LoweredCode::new(&program(&[(&[], reg::CONSTANT_ONE, &body)], 2), false);
        let steps: Vec<_> = code.steps().iter().map(|step| step.kind).collect();
        // The last sum has another register for its first operand, so that it is not joined.
        assert_eq!(
            steps,
            [
                Kind::MoveMove,
                Kind::AddAdd,
                Kind::Sub,
                Kind::Move,
                Kind::Add,
                Kind::Add,
                Kind::Stop,
                Kind::Stop
            ]
        );
        let [both, sums, ..] = code.steps() else {
            panic!("two steps")
        };
        let first = VARS_SLOT;
        assert_eq!(
            (both.dst, both.b, both.dst2, both.b2),
            (first, 0, first + 1, 1)
        );
        assert_eq!((sums.dst, sums.a, sums.dst2), (first, first, first + 1));
    }

    /// A clause may be jumped to, so that its first step stays its own.
    #[test]
    fn steps_of_different_clauses_are_not_joined() {
        let first = [moves(VAR, 0), falls_through()];
        let program = program(
            &[
                (&[], VAR, &first),
                (&[], reg::CONSTANT_ONE, &[moves(VAR + 1, 1)]),
            ],
            2,
        );
        assert_eq!(
            kinds(&program),
            [Kind::Guard, Kind::Move, Kind::Move, Kind::Stop, Kind::Stop]
        );
        assert_eq!(LoweredCode::new(&program, false).steps()[0].jump, 2);
    }

    #[test]
    fn skips_keep_the_steps_they_count() {
        let skip = Instr {
            imm: 1,
            ..operation(Op::SkipIfZero, 0, VAR, 0)
        };
        let body = [skip, moves(VAR, 0), moves(VAR + 1, 1)];
        let program = program(&[(&[], reg::CONSTANT_ONE, &body)], 2);
        assert_eq!(
            kinds(&program)[..3],
            [Kind::SkipIfZero, Kind::Move, Kind::Move]
        );
    }

    #[test]
    fn a_flag_and_the_end_of_its_guard_are_joined() {
        let temp = reg::TEMPS;
        for (op, kind) in [
            (Op::And, Kind::AndGuard),
            (Op::Or, Kind::OrGuard),
            (Op::After, Kind::AfterGuard),
        ] {
            let guard = [operation(op, temp, VAR, VAR)];
            let body = [moves(VAR, 0)];
            assert_eq!(kinds(&program(&[(&guard, temp, &body)], 1))[0], kind);
            // Another flag than the last result stays a step of its own.
            let two = [moves(temp + 1, VAR), guard[0]];
            let other = kinds(&program(&[(&two, temp + 1, &body)], 1));
            assert_eq!(other[2], Kind::Guard, "{other:?}");
        }
    }

    /// After a body, guards are looked at again only where one up to it waits for `Micros`, and
    /// the end of the run is stale only where one behind it does.
    #[test]
    fn bodies_make_only_guards_that_wait_stale() {
        let temp = reg::TEMPS;
        let after = [Instr {
            has_imm: true,
            imm: 5,
            ..operation(Op::After, temp, 0, 0)
        }];
        let body = [moves(VAR, 0), falls_through()];
        let stops = [moves(VAR, 0)];
        let waits: (&[Instr], u8, &[Instr]) = (&after, temp, &body);
        let plain: (&[Instr], u8, &[Instr]) = (&[], VAR, &body);
        let last: (&[Instr], u8, &[Instr]) = (&[], VAR, &stops);
        let ends = |clauses: &[(&[Instr], u8, &[Instr])]| {
            let code = LoweredCode::new(&program(clauses, 1), false);
            let steps = code.steps().iter().filter_map(|step| match step.kind {
                Kind::Stale => Some("stale"),
                Kind::Stop if step.imm == 1 => Some("stale end"),
                Kind::Stop => Some("end"),
                _ => None,
            });
            steps.collect::<Vec<_>>()
        };
        assert_eq!(ends(&[plain, last]), ["end", "end"]);
        assert_eq!(ends(&[waits, last]), ["stale", "stale end", "end"]);
        assert_eq!(ends(&[plain, waits, plain]), ["stale", "stale", "end"]);
        assert_eq!(ends(&[last, waits]), ["stale end", "stale", "end"]);
        assert_eq!(
            ends(&[waits, plain, waits]),
            ["stale", "stale", "stale", "end"]
        );
        let code = LoweredCode::new(&program(&[plain, waits, plain], 1), false);
        // A guard, a move, and the guard that waits.
        assert_eq!(code.waiting(), [2]);
        assert_eq!(code.steps()[2].kind, Kind::AfterImmGuard);
    }

    /// 30 built-in registers, 10 variables and 24 temporaries are 64 registers.
    #[test]
    fn a_program_is_small_up_to_64_registers() {
        let last = reg::TEMPS_END - 1;
        let body = |signal| [moves(last, signal), moves(VAR, last)];
        let small = |vars, signal| {
            LoweredCode::new(
                &program(&[(&[], reg::CONSTANT_ONE, &body(signal))], vars),
                false,
            )
            .is_small()
        };
        assert!(small(10, 0) && !small(11, 0));
        assert!(small(9, reg::PACED) && !small(10, reg::PACED));
        assert!(small(1, reg::STAMPS - 1) && !small(1, reg::STAMPS));
    }
}
