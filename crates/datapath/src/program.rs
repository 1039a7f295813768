//! Checked program: the guarantees for the interpreter, the eBPF translator and the wire encoder.

use crate::bytecode::{CLAUSES_MAX, Clause, INSTRS_MAX, Instr, Op, VARS_MAX, Var, VarKind, reg};
use crate::check::{self, CheckError};
use crate::signals::Capabilities;

/// Program that passed [`Program::check`], of fixed size (about 5.5 kB) so that a datapath can
/// store it without allocation.
///
/// Invariants of every value:
/// * the clauses are contiguous and cover every instruction; within a clause the guard precedes the
///   body;
/// * guards write only temporaries; no instruction writes a signal, [`reg::CONSTANT_ONE`] or a
///   reserved register;
/// * every temporary is written before it is read, on every path through its guard or body;
/// * variables are in range, report variables first, then control, then local ones;
/// * [`Op::SkipIfZero`] lands within its own guard or body; ratios have denominators above 0;
///   [`Op::After`] occurs in guards only.
#[derive(Clone)]
pub struct Program {
    instrs: [Instr; INSTRS_MAX],
    clauses: [Clause; CLAUSES_MAX],
    vars: [Var; VARS_MAX],
    uid: u32,
    instrs_len: u16,
    clauses_len: u8,
    vars_len: u8,
    report_vars: u8,
    facts: Facts,
}

/// Facts collected by the check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Bit set of the registers that an instruction or clause reads.
    pub reads: u128,
    /// Bit set of the registers that an instruction writes.
    pub writes: u128,
    /// Number of instructions in guards that wait for `Micros`.
    pub waiting_instrs: u16,
    /// Bit set of the clauses whose guard has an [`Op::After`].
    pub waiting_clauses: u32,
}

impl Program {
    /// Checks an untrusted program, from agent or network, and copies it. The error names the
    /// location and the reason.
    pub fn check(
        uid: u32,
        instrs: &[Instr],
        clauses: &[Clause],
        vars: &[Var],
    ) -> Result<Program, CheckError> {
        let facts = check::check(instrs, clauses, vars)?;
        let mut program = Program {
            instrs: [check::FILLER_INSTR; INSTRS_MAX],
            clauses: [Clause::default(); CLAUSES_MAX],
            vars: [Var::default(); VARS_MAX],
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

    /// Number that identifies the program between agent and datapath; every report carries it.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the same program with another number.
    #[must_use]
    pub fn with_uid(&self, uid: u32) -> Program {
        Program {
            uid,
            ..self.clone()
        }
    }

    /// Instructions of all clauses.
    pub fn instrs(&self) -> &[Instr] {
        &self.instrs[..usize::from(self.instrs_len)]
    }

    /// Clauses, in the order of execution.
    pub fn clauses(&self) -> &[Clause] {
        &self.clauses[..usize::from(self.clauses_len)]
    }

    /// Variables: report, then control, then local ones.
    pub fn vars(&self) -> &[Var] {
        &self.vars[..usize::from(self.vars_len)]
    }

    /// Number of report variables, which come first.
    pub fn report_vars(&self) -> usize {
        usize::from(self.report_vars)
    }

    /// Maximum number of instructions that one ACK can execute: every clause once, and the guards
    /// that wait for `Micros` twice more, to find the next deadline after a body has run and after
    /// a report has reset the volatile variables.
    pub fn worst_case(&self) -> usize {
        usize::from(self.instrs_len) + 2 * usize::from(self.facts.waiting_instrs)
    }

    /// Returns true if a guard waits for `Micros`, so that the program should also run without an
    /// ACK. On a datapath without timers such a guard is evaluated on the ACK clock only, and fires
    /// late.
    pub fn uses_timers(&self) -> bool {
        self.facts.waiting_clauses != 0
    }

    /// Returns true if it reads `register`: a signal (with the number in [`crate::Signals`]), a
    /// variable or built-in state.
    pub fn reads(&self, register: u8) -> bool {
        register < 128 && self.facts.reads >> register & 1 == 1
    }

    /// Returns true if it reads a signal from the time stamps of both ends.
    #[inline(always)]
    pub(crate) fn reads_stamps(&self) -> bool {
        const STAMPS: u128 = (1 << reg::PACED) - (1 << reg::STAMPS);
        self.facts.reads & STAMPS != 0
    }

    #[inline(always)]
    pub(crate) fn reads_paced(&self) -> bool {
        self.facts.reads & 1 << reg::PACED != 0
    }

    /// Returns true if it writes `register`.
    pub fn writes(&self, register: u8) -> bool {
        register < 128 && self.facts.writes >> register & 1 == 1
    }

    /// Capabilities that the program requires of a datapath.
    pub fn required_capabilities(&self) -> Capabilities {
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
            |all, &(needed, capability)| if needed { all.union(capability) } else { all },
        )
    }

    /// Bit set of the clauses whose guard waits for `Micros`.
    #[inline(always)]
    pub(crate) fn waiting_clauses(&self) -> u32 {
        self.facts.waiting_clauses
    }

    /// Returns true if the program contains `op`, for translators that do not support it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_beyond_the_file_are_neither_read_nor_written() {
        let instr = Instr {
            op: Op::Add,
            has_imm: false,
            dst: 127,
            a: 127,
            b: reg::PACED,
            imm: 0,
        };
        let clause = Clause {
            flag: reg::CONSTANT_ONE,
            body_end: 1,
            ..Clause::default()
        };
        let program = Program::check(1, &[instr], &[clause], &[Var::default(); VARS_MAX]);
        let program = program.expect("register 127 is the last variable");
        let [read, written] = [Program::reads, Program::writes]
            .map(|has| (0..=255).filter(|&n| has(&program, n)).collect::<Vec<u8>>());
        assert_eq!(read, [reg::PACED, reg::CONSTANT_ONE, 127]);
        assert_eq!(written, [127]);
        assert!(program.reads_paced() && !program.reads_stamps());
    }
}
