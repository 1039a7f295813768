//! Translation of a program with the reference's `(fallthrough)` into one with the documented
//! `(fallthrough)`.

use crate::bytecode::{CLAUSES_MAX, Clause, INSTRS_MAX, Instr, Op, VARS_MAX, Var, VarKind, reg};
use crate::check::{self, CheckError, CheckErrorReason, CodeLocation};
use crate::program::Program;

impl Program {
    /// Returns the program that behaves, if `(fallthrough)` applies to its own clause only, as this
    /// one does in the reference datapath. There one `(fallthrough)` applies to all later clauses
    /// of the same call. A local variable stores that state.
    ///
    /// Fails if the result exceeds the maximum size of a program.
    pub fn with_sticky_fallthrough(&self) -> Result<Program, CheckError> {
        let continues = |clause: &Clause| {
            self.body(clause)
                .iter()
                .any(|i| i.dst == reg::SHOULD_CONTINUE)
        };
        let first = self.clauses().iter().position(continues);
        // A fallthrough only in the last clause, or none at all, has no effect.
        if first.is_none_or(|first| first + 1 >= self.clauses().len()) {
            return Ok(self.clone());
        }
        let mut writer = StickyWriter {
            instrs: [check::FILLER_INSTR; INSTRS_MAX],
            len: 0,
        };
        let mut vars = [Var::default(); VARS_MAX];
        let count = self.vars().len();
        let full = |reason| CheckError {
            location: CodeLocation::Program,
            reason,
        };
        let room = vars
            .get_mut(..=count)
            .ok_or(full(CheckErrorReason::TooManyVars))?;
        room[..count].copy_from_slice(self.vars());
        room[count] = Var {
            kind: VarKind::Local,
            volatile: false,
            init: 0,
        };
        let sticky = reg::VARS + count as u8;

        let mut clauses = [Clause::default(); CLAUSES_MAX];
        let room = clauses
            .get_mut(..=self.clauses().len())
            .ok_or(full(CheckErrorReason::TooManyClauses))?;
        // Every call starts without it.
        writer.push(set(sticky, 0))?;
        writer.push(set(reg::SHOULD_CONTINUE, 1))?;
        room[0] = Clause {
            flag: reg::CONSTANT_ONE,
            guard_start: 0,
            body_start: 0,
            body_end: writer.position(),
        };
        for (new, old) in room[1..].iter_mut().zip(self.clauses()) {
            new.flag = old.flag;
            new.guard_start = writer.position();
            for instr in &self.instrs()[usize::from(old.guard_start)..usize::from(old.body_start)] {
                writer.push(*instr)?;
            }
            new.body_start = writer.position();
            writer.body(self.body(old), sticky)?;
            writer.push(Instr {
                op: Op::If,
                has_imm: true,
                dst: reg::SHOULD_CONTINUE,
                a: sticky,
                b: reg::CONSTANT_ONE,
                imm: 1,
            })?;
            new.body_end = writer.position();
        }
        Program::check(
            self.uid(),
            &writer.instrs[..writer.len],
            &clauses[..=self.clauses().len()],
            &vars[..=count],
        )
    }

    fn body(&self, clause: &Clause) -> &[Instr] {
        &self.instrs()[usize::from(clause.body_start)..usize::from(clause.body_end)]
    }
}

struct StickyWriter {
    instrs: [Instr; INSTRS_MAX],
    len: usize,
}

impl StickyWriter {
    fn position(&self) -> u16 {
        self.len as u16
    }

    fn push(&mut self, instr: Instr) -> Result<(), CheckError> {
        let place = self.instrs.get_mut(self.len).ok_or(CheckError {
            location: CodeLocation::Program,
            reason: CheckErrorReason::TooManyInstrs,
        })?;
        *place = instr;
        self.len += 1;
        Ok(())
    }

    /// Copies a body so that every write of the clause's flag also sets `sticky`.
    fn body(&mut self, body: &[Instr], sticky: u8) -> Result<(), CheckError> {
        let flags = |instrs: &[Instr]| {
            instrs
                .iter()
                .filter(|i| i.dst == reg::SHOULD_CONTINUE && i.op != Op::SkipIfZero)
                .count()
        };
        for (n, instr) in body.iter().enumerate() {
            let mut instr = *instr;
            if instr.op == Op::SkipIfZero {
                let skipped = body.get(n + 1..).unwrap_or_default();
                let skipped = skipped.get(..instr.imm as usize).unwrap_or(skipped);
                instr.imm += flags(skipped) as u64;
            }
            self.push(instr)?;
            if flags(&[instr]) == 1 {
                self.push(Instr {
                    dst: sticky,
                    ..instr
                })?;
            }
        }
        Ok(())
    }
}

fn set(register: u8, value: u64) -> Instr {
    Instr {
        op: Op::Move,
        has_imm: true,
        dst: register,
        a: register,
        b: 0,
        imm: value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A skip over the last instruction of its body goes over the copy of the flag, too.
    #[test]
    fn a_skip_covers_what_is_added() {
        let skip = Instr {
            op: Op::SkipIfZero,
            imm: 1,
            ..set(0, 0)
        };
        let first = [skip, set(reg::SHOULD_CONTINUE, 1)];
        let second = [set(reg::CWND, 5)];
        let clauses = [(0, 2), (2, 3)].map(|(start, end)| Clause {
            flag: reg::CONSTANT_ONE,
            guard_start: start,
            body_start: start,
            body_end: end,
        });
        let program = Program::check(1, &[first.as_slice(), &second].concat(), &clauses, &[]);
        let sticky = program
            .and_then(|program| program.with_sticky_fallthrough())
            .expect("there is room");
        let body = sticky.body(&sticky.clauses()[1]);
        assert_eq!((body[0].op, body[0].imm), (Op::SkipIfZero, 2));
        let written: Vec<u8> = body[1..].iter().map(|instr| instr.dst).collect();
        assert_eq!(
            written,
            [reg::SHOULD_CONTINUE, reg::VARS, reg::SHOULD_CONTINUE]
        );
    }
}
