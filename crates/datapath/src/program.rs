//! A checked program: what the interpreter, the eBPF translator and the wire encoder may rely on.

use crate::bytecode::{Clause, Instr, MAX_CLAUSES, MAX_INSTRS, MAX_VARS, Op, Var, VarKind, reg};
use crate::check::{self, CheckError};
use crate::signals::Capabilities;

/// A program that passed [`Program::check`], of fixed size (about 5.5 kB) so that a datapath can
/// hold it without allocating.
///
/// What holds for every value of this type:
/// * the clauses lie one after the other and cover every instruction; within a clause the guard
///   precedes the body;
/// * guards write temporaries only; no instruction writes a signal, [`reg::ONE`] or a reserved
///   register;
/// * every temporary is written before it is read, on every path through its guard or body;
/// * variables are in range, report variables first, then control, then local ones;
/// * [`Op::SkipIfZero`] lands inside its own guard or body; ratios have denominators above 0;
///   [`Op::After`] stands in guards only.
#[derive(Clone)]
pub struct Program {
    instrs: [Instr; MAX_INSTRS],
    clauses: [Clause; MAX_CLAUSES],
    vars: [Var; MAX_VARS],
    uid: u32,
    instrs_len: u16,
    clauses_len: u8,
    vars_len: u8,
    report_vars: u8,
    facts: Facts,
}

/// What the checker learned on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// One bit for each register that some instruction or clause reads.
    pub reads: u128,
    /// One bit for each register that some instruction writes.
    pub writes: u128,
    /// Instructions in guards that wait for `Micros`.
    pub waiting_instrs: u16,
    /// One bit for each clause whose guard has an [`Op::After`].
    pub waiting_clauses: u32,
}

impl Program {
    /// Checks a program from anywhere, agent or network, and copies it. The error names the place
    /// and the reason.
    pub fn check(
        uid: u32,
        instrs: &[Instr],
        clauses: &[Clause],
        vars: &[Var],
    ) -> Result<Program, CheckError> {
        let facts = check::check(instrs, clauses, vars)?;
        let mut program = Program {
            instrs: [check::NOTHING; MAX_INSTRS],
            clauses: [Clause::default(); MAX_CLAUSES],
            vars: [Var::default(); MAX_VARS],
            uid,
            // The check bounds all three lengths by the capacities, which fit.
            instrs_len: instrs.len() as u16,
            clauses_len: clauses.len() as u8,
            vars_len: vars.len() as u8,
            report_vars: vars
                .iter()
                .filter(|var| var.kind == VarKind::Report)
                .count() as u8,
            facts,
        };
        program.instrs[..instrs.len()].copy_from_slice(instrs);
        program.clauses[..clauses.len()].copy_from_slice(clauses);
        program.vars[..vars.len()].copy_from_slice(vars);
        Ok(program)
    }

    /// The number by which agent and datapath speak of it; every report carries it.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The same program under another number.
    #[must_use]
    pub fn with_uid(&self, uid: u32) -> Program {
        Program {
            uid,
            ..self.clone()
        }
    }

    /// The instructions of all clauses.
    pub fn instrs(&self) -> &[Instr] {
        &self.instrs[..usize::from(self.instrs_len)]
    }

    /// The clauses, in the order in which they run.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses[..usize::from(self.clauses_len)]
    }

    /// The variables: report, then control, then local ones.
    pub fn vars(&self) -> &[Var] {
        &self.vars[..usize::from(self.vars_len)]
    }

    /// How many of the variables, from the first on, are sent with a report.
    pub fn report_vars(&self) -> usize {
        usize::from(self.report_vars)
    }

    /// The most instructions that one ACK can cost: every clause once, and the guards that wait for
    /// `Micros` twice more, to find the next deadline after a body ran and after a report has reset
    /// the volatile variables.
    pub fn worst_case(&self) -> usize {
        usize::from(self.instrs_len) + 2 * usize::from(self.facts.waiting_instrs)
    }

    /// True when a guard waits for `Micros`, so that the program wants to be run at a time without
    /// an ACK. It also works, less punctually, on a datapath without timers, where such a guard is
    /// looked at on the ACK clock only.
    pub fn uses_timers(&self) -> bool {
        self.facts.waiting_clauses != 0
    }

    /// True when it reads register `register`: a signal (the numbers of [`crate::Signals`]), a
    /// variable or built-in state.
    pub fn reads(&self, register: u8) -> bool {
        register < 128 && self.facts.reads >> register & 1 == 1
    }

    /// True when it reads a signal that comes from the time stamps of both ends.
    #[inline(always)]
    pub(crate) fn reads_stamps(&self) -> bool {
        const STAMPS: u128 = (1 << reg::PACED) - (1 << reg::STAMPS);
        self.facts.reads & STAMPS != 0
    }

    /// True when it reads [`reg::PACED`].
    #[inline(always)]
    pub(crate) fn reads_paced(&self) -> bool {
        self.facts.reads & 1 << reg::PACED != 0
    }

    /// True when it writes register `register`.
    pub fn writes(&self, register: u8) -> bool {
        register < 128 && self.facts.writes >> register & 1 == 1
    }

    /// What a datapath must be able to do for this program to make sense there.
    pub fn needs(&self) -> Capabilities {
        let reads = |signals: &[u8]| signals.iter().any(|&signal| self.reads(signal));
        let needs = [
            (self.writes(reg::CWND), Capabilities::CWND),
            (self.writes(reg::RATE), Capabilities::PACING),
            (reads(&[13, 15, 16]), Capabilities::RTT),
            (reads(&[11, 12]), Capabilities::DELIVERY_RATE),
            (reads(&[2, 3]), Capabilities::ECN),
        ];
        let none = Capabilities::default();
        needs.iter().fold(
            none,
            |all, &(needed, capability)| if needed { all.with(capability) } else { all },
        )
    }

    /// One bit for each clause whose guard waits for `Micros`.
    #[inline(always)]
    pub(crate) fn waiting_clauses(&self) -> u32 {
        self.facts.waiting_clauses
    }

    /// Whether `op` occurs, for translators that lack it.
    pub fn uses(&self, op: Op) -> bool {
        self.instrs().iter().any(|instr| instr.op == op)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.uid == other.uid
            && self.instrs() == other.instrs()
            && self.clauses() == other.clauses()
            && self.vars() == other.vars()
    }
}

impl Eq for Program {}

impl core::fmt::Debug for Program {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Program")
            .field("uid", &self.uid)
            .field("clauses", &self.clauses())
            .field("instrs", &self.instrs())
            .field("vars", &self.vars())
            .finish()
    }
}
