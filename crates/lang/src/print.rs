//! Printing of programs: the typed tree as source, and the bytecode with names.

use std::fmt::{self, Display, Formatter, Write};

use ccplane_datapath::{Clause, INFINITY, Instr, Op, VarKind, reg};

use crate::Program;
use crate::tree::{BUILTINS, Expr, Id, Ratio, Stmt, Symbol, TreeNode, Type};

/// Typed tree, printed as source that compiles to the same bytecode: constants are folded, and
/// units are gone.
pub struct TreeView<'p>(pub(crate) &'p Program);

/// Bytecode, printed with one instruction per line.
pub struct Bytecode<'p>(pub(crate) &'p Program);

const INDENT_COLUMNS: usize = 4;

struct Number(u64);

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            INFINITY => f.write_str("+infinity"),
            value => write!(f, "{value}"),
        }
    }
}

impl Display for Ratio {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.num, self.den)
    }
}

/// Register, printed by its name in the source.
struct Name<'p>(&'p Program, u8);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Name(program, register) = *self;
        match register {
            reg::SHOULD_REPORT => f.write_str("(report)"),
            reg::SHOULD_CONTINUE => f.write_str("(fallthrough)"),
            reg::SHOULD_RESET => f.write_str("(reset)"),
            reg::CONSTANT_ONE => f.write_str("true"),
            reg::TEMPS..reg::TEMPS_END => write!(f, "t{}", register - reg::TEMPS),
            _ => {
                if let Some(symbol) = program.symbols.iter().find(|symbol| symbol.reg == register) {
                    let prefix = if symbol.report { "Report." } else { "" };
                    return write!(f, "{prefix}{}", program.name(symbol));
                }
                let builtin = BUILTINS.iter().find(|builtin| builtin.reg == register);
                f.write_str(builtin.map_or("?", |builtin| builtin.name))
            }
        }
    }
}

impl Display for TreeView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.def(f)?;
        for clause in &self.0.tree.clauses {
            f.write_str("\n(when ")?;
            self.expr(f, clause.guard)?;
            self.body(f, clause.body_start, clause.body_end, INDENT_COLUMNS)?;
            f.write_char(')')?;
        }
        f.write_char('\n')
    }
}

impl TreeView<'_> {
    fn node(&self, id: Id) -> TreeNode {
        self.0.tree.node(id)
    }

    fn def(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("(def")?;
        if self.0.report_names().next().is_some() {
            f.write_str("\n    (Report")?;
            self.declarations(f, VarKind::Report, 2 * INDENT_COLUMNS)?;
            f.write_char(')')?;
        }
        self.declarations(f, VarKind::Control, INDENT_COLUMNS)?;
        f.write_char(')')
    }

    fn declarations(&self, f: &mut Formatter<'_>, kind: VarKind, indent: usize) -> fmt::Result {
        for (symbol, var) in self
            .0
            .symbols
            .iter()
            .zip(self.0.code.vars())
            .filter(|(_, var)| var.kind == kind)
        {
            let Symbol { ty, .. } = *symbol;
            let volatile = if var.volatile { "volatile " } else { "" };
            write!(f, "\n{:indent$}({volatile}{} ", "", self.0.name(symbol))?;
            match ty {
                Type::Bool => write!(f, "{})", var.init != 0)?,
                Type::Num => write!(f, "{})", Number(var.init))?,
            }
        }
        Ok(())
    }

    fn body(&self, f: &mut Formatter<'_>, start: u32, end: u32, indent: usize) -> fmt::Result {
        let mut at = start;
        while at < end {
            write!(f, "\n{:indent$}", "")?;
            at = self.stmt(f, at, indent)?;
        }
        Ok(())
    }

    /// Writes one statement; returns the index of the next.
    fn stmt(&self, f: &mut Formatter<'_>, at: u32, indent: usize) -> Result<u32, fmt::Error> {
        match self.0.tree.stmts[at as usize] {
            Stmt::Bind { dst, value } => {
                write!(f, "(:= {} ", Name(self.0, dst))?;
                self.expr(f, value)?;
                f.write_char(')')?;
                Ok(at + 1)
            }
            Stmt::Set(flag) => {
                write!(f, "{}", Name(self.0, flag))?;
                Ok(at + 1)
            }
            Stmt::If {
                cond,
                then_end,
                else_end,
            } => {
                f.write_str("(if ")?;
                self.expr(f, cond)?;
                self.block(f, at + 1, then_end, indent + INDENT_COLUMNS)?;
                if then_end < else_end {
                    self.block(f, then_end, else_end, indent + INDENT_COLUMNS)?;
                }
                f.write_char(')')?;
                Ok(else_end)
            }
        }
    }

    /// Writes a branch; several statements are enclosed in a `do`.
    fn block(&self, f: &mut Formatter<'_>, start: u32, end: u32, indent: usize) -> fmt::Result {
        let single = match self.0.tree.stmts[start as usize] {
            Stmt::If { else_end, .. } => else_end == end,
            _ => start + 1 == end,
        };
        if single {
            return self.body(f, start, end, indent);
        }
        write!(f, "\n{:indent$}(do", "")?;
        self.body(f, start, end, indent + INDENT_COLUMNS)?;
        f.write_char(')')
    }

    fn expr(&self, f: &mut Formatter<'_>, id: Id) -> fmt::Result {
        match self.node(id).expr {
            Expr::Num(value) => write!(f, "{}", Number(value)),
            Expr::Bool(value) => write!(f, "{value}"),
            Expr::Ratio(ratio) => write!(f, "{ratio}"),
            Expr::Reg(register) => write!(f, "{}", Name(self.0, register)),
            Expr::Not(a) => self.list(f, "!", &[a]),
            Expr::Binary(op, a, b) => {
                write!(f, "({} ", sign(op))?;
                self.left(f, op, a)?;
                f.write_char(' ')?;
                self.expr(f, b)?;
                f.write_char(')')
            }
            Expr::Scale(a, ratio) => {
                f.write_str("(* ")?;
                self.expr(f, a)?;
                write!(f, " {ratio})")
            }
            Expr::Choose(c, a, b) => self.list(f, "if", &[c, a, b]),
            Expr::If(c, value) => self.list(f, "if", &[c, value]),
            Expr::NotIf(c, value) => self.list(f, "!if", &[c, value]),
            Expr::Ewma(weight, value) => {
                write!(f, "(ewma {weight} ")?;
                self.expr(f, value)?;
                f.write_char(')')
            }
            Expr::EwmaVar(weight, value) => self.list(f, "ewma", &[weight, value]),
        }
    }

    /// Writes the left operand. A chain, `(+ a b c)`, is written flat, so that the printed source
    /// does not nest deeper than the original. A chain with a constant inside stays nested, as the
    /// constants of one chain are combined.
    fn left(&self, f: &mut Formatter<'_>, op: Op, id: Id) -> fmt::Result {
        match self.node(id).expr {
            Expr::Binary(inner, a, b)
                if inner == op && chains(op) && self.0.tree.constant(b).is_none() =>
            {
                self.left(f, op, a)?;
                f.write_char(' ')?;
                self.expr(f, b)
            }
            _ => self.expr(f, id),
        }
    }

    fn list(&self, f: &mut Formatter<'_>, head: &str, operands: &[Id]) -> fmt::Result {
        write!(f, "({head}")?;
        for &operand in operands {
            f.write_char(' ')?;
            self.expr(f, operand)?;
        }
        f.write_char(')')
    }
}

fn chains(op: Op) -> bool {
    matches!(op, Op::Add | Op::Mul | Op::Max | Op::Min | Op::And | Op::Or)
}

fn sign(op: Op) -> &'static str {
    match op {
        Op::Add => "+",
        Op::Sub => "-",
        Op::Diff => "diff",
        Op::Mul | Op::MulRatio => "*",
        Op::Div => "/",
        Op::Max => "max",
        Op::Min => "min",
        Op::MaxWrap => "wrapped_max",
        Op::Eq => "==",
        Op::Ne => "!=",
        Op::Gt | Op::After => ">",
        Op::Ge => ">=",
        Op::Lt => "<",
        Op::Le => "<=",
        Op::And => "&&",
        Op::Or => "||",
        Op::Not => "!",
        Op::Move => ":=",
        Op::If | Op::SkipIfZero => "if",
        Op::NotIf => "!if",
        Op::Ewma | Op::EwmaVar => "ewma",
    }
}

impl Display for Bytecode<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let instrs = self.0.code.instrs();
        let range = |f: &mut Formatter<'_>, from: u16, to: u16| {
            (from..to)
                .zip(&instrs[from.into()..to.into()])
                .try_for_each(|(at, instr)| self.instr(f, at, instr))
        };
        for (n, clause) in self.0.code.clauses().iter().enumerate() {
            let Clause {
                flag,
                guard_start,
                body_start,
                body_end,
            } = *clause;
            writeln!(f, "clause {n}")?;
            range(f, guard_start, body_start)?;
            writeln!(f, "      when {}", Name(self.0, flag))?;
            range(f, body_start, body_end)?;
        }
        Ok(())
    }
}

impl Bytecode<'_> {
    fn instr(&self, f: &mut Formatter<'_>, at: u16, instr: &Instr) -> fmt::Result {
        let Instr {
            op,
            has_imm,
            dst,
            a,
            b,
            imm,
        } = *instr;
        let (dst, a) = (Name(self.0, dst), Name(self.0, a));
        let second: &dyn Display = if has_imm {
            &Number(imm)
        } else {
            &Name(self.0, b)
        };
        let (num, den) = (imm >> 32, imm & 0xffff_ffff);
        write!(f, "{at:4}  ")?;
        match op {
            Op::Move => writeln!(f, "{dst} = {second}"),
            Op::Not => writeln!(f, "{dst} = ! {second}"),
            Op::MulRatio => writeln!(f, "{dst} = {a} * {num}/{den}"),
            Op::After => writeln!(f, "{dst} = {a} > {second}, and wait for it"),
            Op::If => writeln!(f, "{dst} = {second} if {a}"),
            Op::NotIf => writeln!(f, "{dst} = {second} if ! {a}"),
            Op::Ewma => writeln!(f, "{dst} = ewma {num}/{den} {}", Name(self.0, b)),
            Op::EwmaVar => writeln!(f, "{dst} = ewma {a}/10 {second}"),
            Op::SkipIfZero => writeln!(f, "skip to {} if ! {a}", u64::from(at) + 1 + imm),
            Op::Diff | Op::Max | Op::Min | Op::MaxWrap => {
                writeln!(f, "{dst} = {} {a} {second}", sign(op))
            }
            _ => writeln!(f, "{dst} = {a} {} {second}", sign(op)),
        }
    }
}
