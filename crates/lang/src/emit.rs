//! Translation of the typed tree to bytecode.
//!
//! A value is computed directly into the variable that it is assigned to. The operand that needs
//! more temporaries is computed first (Sethi and Ullman, 1970), and a temporary is freed when it is
//! read, so a program within the instruction limit practically never runs out of temporaries.

use ccplane_datapath::{Clause, Instr, Op, reg};

use crate::tree::{Expr, Id, Stmt, Tree};

/// Bytecode of a program, not yet checked.
pub(crate) struct EmittedCode {
    pub instrs: Vec<Instr>,
    pub clauses: Vec<Clause>,
    /// Maximum number of instructions that the clauses can execute in one run.
    pub worst: usize,
    /// Instructions of all guards.
    pub guards: usize,
}

/// Error: a statement needs more temporaries than available.
pub(crate) struct OutOfTemps;

/// Clause with that statement.
pub(crate) struct TooDeep {
    pub clause: usize,
}

type EmitResult<T> = Result<T, OutOfTemps>;

/// All temporaries, as bits from [`reg::TEMPS`].
const FREE_TEMPS_MASK: u32 = (1 << (reg::TEMPS_END - reg::TEMPS)) - 1;

pub(crate) fn emit(tree: &Tree) -> Result<EmittedCode, TooDeep> {
    let mut emitter = Emitter {
        tree,
        instrs: Vec::with_capacity(tree.nodes.len()),
        free: FREE_TEMPS_MASK,
        in_guard: false,
    };
    let mut clauses = Vec::with_capacity(tree.clauses.len());
    let mut worst = WorstPath::default();
    let mut guards = 0;
    for (n, clause) in tree.clauses.iter().enumerate() {
        let too_deep = |OutOfTemps| TooDeep { clause: n };
        let guard_start = emitter.instrs.len();
        let flag = emitter.guard(clause.guard).map_err(too_deep)?;
        let body_start = emitter.instrs.len();
        let (body, may_continue) = emitter
            .body(clause.body_start, clause.body_end)
            .map_err(too_deep)?;
        let body_end = emitter.instrs.len();
        worst.clause(body_start - guard_start, body, may_continue);
        guards += body_start - guard_start;
        clauses.push(Clause {
            flag,
            guard_start: instr_position(guard_start),
            body_start: instr_position(body_start),
            body_end: instr_position(body_end),
        });
    }
    Ok(EmittedCode {
        instrs: emitter.instrs,
        clauses,
        worst: worst.total(),
        guards,
    })
}

/// Converts a position. Saturates: a program of that size is refused by its number of instructions.
fn instr_position(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Longest path through the clauses: a body that cannot fall through is the last one to run.
#[derive(Default)]
struct WorstPath {
    continuing: usize,
    longest_ended: usize,
}

impl WorstPath {
    fn clause(&mut self, guard: usize, body: usize, may_continue: bool) {
        self.continuing += guard;
        self.longest_ended = self.longest_ended.max(self.continuing + body);
        if may_continue {
            self.continuing += body;
        }
    }

    fn total(&self) -> usize {
        self.longest_ended.max(self.continuing)
    }
}

#[derive(Clone, Copy)]
enum Operand {
    Reg(u8),
    Imm(u64),
}

impl Operand {
    fn is_reg(self, reg: u8) -> bool {
        matches!(self, Operand::Reg(mine) if mine == reg)
    }
}

/// Operator with swapped operands: `a < b` equals `b > a`.
fn with_swapped_operands(op: Op) -> Option<Op> {
    Some(match op {
        Op::Add | Op::Mul | Op::Max | Op::Min | Op::Eq | Op::Ne | Op::And | Op::Or => op,
        Op::Gt => Op::Lt,
        Op::Lt => Op::Gt,
        Op::Ge => Op::Le,
        Op::Le => Op::Ge,
        _ => return None,
    })
}

struct Emitter<'t> {
    tree: &'t Tree,
    instrs: Vec<Instr>,
    /// Bit n is set if temporary n is free.
    free: u32,
    in_guard: bool,
}

impl Emitter<'_> {
    fn allocate_temp(&mut self) -> EmitResult<u8> {
        let n = self.free.trailing_zeros();
        if n >= u32::from(reg::TEMPS_END - reg::TEMPS) {
            return Err(OutOfTemps);
        }
        self.free &= !(1 << n);
        Ok(reg::TEMPS + n as u8)
    }

    /// Frees an operand's register if it is a temporary.
    fn release(&mut self, operand: Operand) {
        if let Operand::Reg(reg) = operand
            && (reg::TEMPS..reg::TEMPS_END).contains(&reg)
        {
            self.free |= 1 << (reg - reg::TEMPS);
        }
    }

    fn push(&mut self, op: Op, dst: u8, a: u8, b: Operand) {
        let (has_imm, b, imm) = match b {
            Operand::Reg(reg) => (false, reg, 0),
            Operand::Imm(value) => (true, 0, value),
        };
        self.instrs.push(Instr {
            op,
            has_imm,
            dst,
            a,
            b,
            imm,
        });
    }

    /// Appends an instruction with a ratio or a distance instead of a second operand.
    fn push_with(&mut self, op: Op, dst: u8, a: u8, b: u8, imm: u64) {
        self.instrs.push(Instr {
            op,
            has_imm: op != Op::Ewma,
            dst,
            a,
            b,
            imm,
        });
    }

    /// Emits a guard; returns its flag register.
    fn guard(&mut self, guard: Id) -> EmitResult<u8> {
        self.in_guard = true;
        let value = self.operand(guard)?;
        self.in_guard = false;
        self.free = FREE_TEMPS_MASK;
        Ok(match value {
            Operand::Reg(flag) => flag,
            Operand::Imm(0) => {
                self.push(Op::Move, reg::TEMPS, 0, value);
                reg::TEMPS
            }
            Operand::Imm(_) => reg::CONSTANT_ONE,
        })
    }

    /// Emits statements; returns the maximum number of instructions that they execute, and whether
    /// they can fall through.
    fn body(&mut self, start: u32, end: u32) -> EmitResult<(usize, bool)> {
        let (mut worst, mut may_continue) = (0, false);
        let mut at = start;
        while at < end {
            let before = self.instrs.len();
            match self.tree.stmts[at as usize] {
                Stmt::Bind { dst, value } => {
                    self.value_into(value, dst)?;
                    worst += self.instrs.len() - before;
                    at += 1;
                }
                Stmt::Set(flag) => {
                    self.push(Op::Move, flag, 0, Operand::Imm(1));
                    may_continue |= flag == reg::SHOULD_CONTINUE;
                    worst += 1;
                    at += 1;
                }
                Stmt::If {
                    cond,
                    then_end,
                    else_end,
                } => {
                    let (most, continues) = self.branch(cond, at + 1, then_end, else_end)?;
                    worst += most;
                    may_continue |= continues;
                    at = else_end;
                }
            }
        }
        Ok((worst, may_continue))
    }

    fn branch(
        &mut self,
        cond: Id,
        then: u32,
        then_end: u32,
        else_end: u32,
    ) -> EmitResult<(usize, bool)> {
        let before = self.instrs.len();
        let cond = match self.tree.constant(cond) {
            Some(0) => return self.body(then_end, else_end),
            Some(_) => return self.body(then, then_end),
            None if then_end == else_end => self.operand(cond)?,
            // With an else the condition is read twice, and the first branch may change its inputs.
            None => Operand::Reg(self.emit_to_temp(cond)?),
        };
        let Operand::Reg(flag) = cond else {
            return self.body(then, then_end);
        };
        if then_end == else_end {
            self.release(cond);
            if let Some((dst, value)) = self.simple(then, then_end) {
                self.push(Op::If, dst, flag, value);
                return Ok((self.instrs.len() - before, dst == reg::SHOULD_CONTINUE));
            }
        }
        let skip = self.skip(flag);
        let head = self.instrs.len() - before;
        let (then_most, then_continues) = self.body(then, then_end)?;
        self.set_skip_target(skip);
        if then_end == else_end {
            return Ok((head + then_most, then_continues));
        }
        self.push(Op::Not, flag, 0, Operand::Reg(flag));
        let skip = self.skip(flag);
        self.release(cond);
        let (else_most, else_continues) = self.body(then_end, else_end)?;
        self.set_skip_target(skip);
        Ok((
            head + 2 + then_most.max(else_most),
            then_continues || else_continues,
        ))
    }

    /// Returns the only assignment of a branch, if its value needs no instruction of its own.
    fn simple(&self, start: u32, end: u32) -> Option<(u8, Operand)> {
        if end != start + 1 {
            return None;
        }
        match self.tree.stmts[start as usize] {
            Stmt::Set(flag) => Some((flag, Operand::Imm(1))),
            Stmt::Bind { dst, value } => self.materialised_operand(value).map(|value| (dst, value)),
            Stmt::If { .. } => None,
        }
    }

    fn skip(&mut self, flag: u8) -> usize {
        self.push_with(Op::SkipIfZero, 0, flag, 0, 0);
        self.instrs.len() - 1
    }

    /// Sets the target of a skip to the current position.
    fn set_skip_target(&mut self, skip: usize) {
        self.instrs[skip].imm = (self.instrs.len() - skip - 1) as u64;
    }

    /// Returns a value that is already in a register or constant.
    fn materialised_operand(&self, id: Id) -> Option<Operand> {
        match self.tree.node(id).expr {
            Expr::Reg(reg) => Some(Operand::Reg(reg)),
            _ => self.tree.constant(id).map(Operand::Imm),
        }
    }

    fn operand(&mut self, id: Id) -> EmitResult<Operand> {
        match self.materialised_operand(id) {
            Some(ready) => Ok(ready),
            None => self.emit_to_temp(id).map(Operand::Reg),
        }
    }

    /// Emits an operand into a register, even if it is constant.
    fn register(&mut self, id: Id) -> EmitResult<u8> {
        match self.operand(id)? {
            Operand::Reg(reg) => Ok(reg),
            Operand::Imm(_) => self.emit_to_temp(id),
        }
    }

    /// Emits a value into a temporary, which is taken after the operands were computed and may be
    /// one of theirs.
    fn emit_to_temp(&mut self, id: Id) -> EmitResult<u8> {
        match self.tree.node(id).expr {
            Expr::Choose(cond, a, b) => self.choose(cond, a, b),
            Expr::Binary(op, a, b) => {
                let (a, b) = self.emit_pair(a, b)?;
                self.release(a);
                self.release(b);
                let dst = self.allocate_temp()?;
                self.binary(op, dst, a, b)?;
                Ok(dst)
            }
            Expr::Not(a) | Expr::Scale(a, _) => {
                let a = self.register(a)?;
                self.release(Operand::Reg(a));
                let dst = self.allocate_temp()?;
                self.unary(id, dst, a);
                Ok(dst)
            }
            _ => {
                let dst = self.allocate_temp()?;
                self.value_into(id, dst)?;
                Ok(dst)
            }
        }
    }

    /// Emits two operands, the one that needs more temporaries first.
    fn emit_pair(&mut self, a: Id, b: Id) -> EmitResult<(Operand, Operand)> {
        if self.tree.node(b).needs > self.tree.node(a).needs {
            let b = self.operand(b)?;
            Ok((self.operand(a)?, b))
        } else {
            let a = self.operand(a)?;
            Ok((a, self.operand(b)?))
        }
    }

    /// Emits a value; only the last instruction writes `dst`, so that the value may read it.
    fn value_into(&mut self, id: Id, dst: u8) -> EmitResult<()> {
        match self.tree.node(id).expr {
            Expr::Num(_) | Expr::Bool(_) | Expr::Reg(_) | Expr::Ratio(_) => {
                if let Some(value) = self.materialised_operand(id)
                    && !value.is_reg(dst)
                {
                    self.push(Op::Move, dst, 0, value);
                }
            }
            Expr::Not(a) | Expr::Scale(a, _) => {
                let a = self.register(a)?;
                self.release(Operand::Reg(a));
                self.unary(id, dst, a);
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = self.emit_pair(a, b)?;
                self.release(a);
                self.release(b);
                self.binary(op, dst, a, b)?;
            }
            Expr::Choose(cond, a, b) => self.choose_into(cond, a, b, dst)?,
            Expr::If(cond, value) => self.emit_conditional_move(Op::If, cond, value, dst)?,
            Expr::NotIf(cond, value) => self.emit_conditional_move(Op::NotIf, cond, value, dst)?,
            Expr::Ewma(weight, value) => {
                let value = self.register(value)?;
                self.release(Operand::Reg(value));
                self.push_with(Op::Ewma, dst, 0, value, weight.packed());
            }
            Expr::EwmaVar(weight, value) => {
                let (weight, value) = self.emit_pair(weight, value)?;
                let weight = self.materialise(weight)?;
                self.release(Operand::Reg(weight));
                self.release(value);
                self.push(Op::EwmaVar, dst, weight, value);
            }
        }
        Ok(())
    }

    /// Moves a constant to a temporary, for an instruction without an immediate operand.
    fn materialise(&mut self, operand: Operand) -> EmitResult<u8> {
        match operand {
            Operand::Reg(reg) => Ok(reg),
            Operand::Imm(_) => {
                let temp = self.allocate_temp()?;
                self.push(Op::Move, temp, 0, operand);
                Ok(temp)
            }
        }
    }

    fn unary(&mut self, id: Id, dst: u8, operand: u8) {
        match self.tree.node(id).expr {
            Expr::Scale(_, ratio) => self.push_with(Op::MulRatio, dst, operand, 0, ratio.packed()),
            _ => self.push(Op::Not, dst, 0, Operand::Reg(operand)),
        }
    }

    fn binary(&mut self, op: Op, dst: u8, a: Operand, b: Operand) -> EmitResult<()> {
        if self.in_guard && self.wait(op, dst, a, b)? {
            return Ok(());
        }
        match (a, b, with_swapped_operands(op)) {
            (Operand::Reg(a), b, _) => self.push(op, dst, a, b),
            (Operand::Imm(_), Operand::Reg(b), Some(op)) => self.push(op, dst, b, a),
            (Operand::Imm(_), b, _) => {
                // Both operands are already freed, and `b` may be in the temporary that would be
                // taken next.
                let kept = self.free;
                if let Operand::Reg(reg) = b
                    && (reg::TEMPS..reg::TEMPS_END).contains(&reg)
                {
                    self.free &= !(1 << (reg - reg::TEMPS));
                }
                let a = self.materialise(a)?;
                self.free = kept;
                self.push(op, dst, a, b);
            }
        }
        Ok(())
    }

    /// Emits a guard that compares `Micros` as a wait, which gives the engine the time at which it
    /// becomes true.
    fn wait(&mut self, op: Op, dst: u8, a: Operand, b: Operand) -> EmitResult<bool> {
        let (op, limit) = match op {
            _ if a.is_reg(reg::MICROS) => (op, b),
            _ if b.is_reg(reg::MICROS) => (with_swapped_operands(op).unwrap_or(op), a),
            _ => return Ok(false),
        };
        match (op, limit) {
            (Op::Gt, _) => self.push(Op::After, dst, reg::MICROS, limit),
            (Op::Ge, Operand::Imm(limit)) if limit > 0 => {
                self.push(Op::After, dst, reg::MICROS, Operand::Imm(limit - 1))
            }
            // Micros >= x is Micros > x - 1, and true if x is 0.
            (Op::Ge, Operand::Reg(limit)) => {
                let late = if limit == dst {
                    self.allocate_temp()?
                } else {
                    dst
                };
                self.push(Op::Diff, late, limit, Operand::Imm(1));
                self.push(Op::After, late, reg::MICROS, Operand::Reg(late));
                self.push(Op::NotIf, late, limit, Operand::Imm(1));
                if late != dst {
                    self.release(Operand::Reg(late));
                    self.push(Op::Move, dst, 0, Operand::Reg(late));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets `dst` to `value` if `cond` is true (or false, for `NotIf`); otherwise it is unchanged.
    fn emit_conditional_move(&mut self, op: Op, cond: Id, value: Id, dst: u8) -> EmitResult<()> {
        if let Some(cond) = self.tree.constant(cond) {
            if (cond != 0) == (op == Op::If) {
                self.value_into(value, dst)?;
            }
            return Ok(());
        }
        let (cond, value) = self.emit_pair(cond, value)?;
        self.release(cond);
        self.release(value);
        if let Operand::Reg(cond) = cond {
            self.push(op, dst, cond, value);
        }
        Ok(())
    }

    fn choose_into(&mut self, cond: Id, a: Id, b: Id, dst: u8) -> EmitResult<()> {
        if self.materialised_operand(b).is_some_and(|b| b.is_reg(dst)) {
            return self.emit_conditional_move(Op::If, cond, a, dst);
        }
        if self.materialised_operand(a).is_some_and(|a| a.is_reg(dst)) {
            return self.emit_conditional_move(Op::NotIf, cond, b, dst);
        }
        if self.tree.reads(cond, dst) || self.tree.reads(a, dst) {
            let chosen = self.choose(cond, a, b)?;
            self.release(Operand::Reg(chosen));
            self.push(Op::Move, dst, 0, Operand::Reg(chosen));
            return Ok(());
        }
        self.value_into(b, dst)?;
        self.emit_conditional_move(Op::If, cond, a, dst)
    }

    /// Emits `(if cond a b)` into a temporary: b, replaced by a if the condition is true.
    fn choose(&mut self, cond: Id, a: Id, b: Id) -> EmitResult<u8> {
        let needs = |id| self.tree.node(id).needs;
        let first = needs(b) >= needs(cond).max(needs(a));
        let early = if first {
            Some(self.emit_to_temp(b)?)
        } else {
            None
        };
        let (cond, a) = self.emit_pair(cond, a)?;
        let chosen = match early {
            Some(chosen) => chosen,
            None => self.emit_to_temp(b)?,
        };
        self.release(cond);
        self.release(a);
        if let Operand::Reg(cond) = cond {
            self.push(Op::If, chosen, cond, a);
        }
        Ok(chosen)
    }
}
