//! Typed tree: a program after name resolution and constant folding.

use ccplane_datapath::{Op, reg};

use crate::diagnostics::Span;

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Unsigned 64-bit number.
    Num,
    /// Boolean: 0 or 1.
    Bool,
}

impl Type {
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Type::Num => "a number",
            Type::Bool => "a boolean",
        }
    }
}

/// Positive fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    pub num: u32,
    pub den: u32,
}

impl Ratio {
    /// Reduces `num / den`; `None` if `den` is 0 or the terms do not fit 32 bits.
    pub fn new(num: u128, den: u128) -> Option<Ratio> {
        if den == 0 {
            return None;
        }
        let common = gcd(num, den);
        let num = u32::try_from(num / common).ok()?;
        let den = u32::try_from(den / common).ok()?;
        Some(Ratio { num, den })
    }

    /// Immediate of the bytecode.
    pub fn packed(self) -> u64 {
        u64::from(self.num) << 32 | u64::from(self.den)
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// Index of a node in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id(pub u32);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Expr {
    Num(u64),
    Bool(bool),
    /// Constant that is not whole; only a factor, a divisor or a weight.
    Ratio(Ratio),
    /// Signal, flow state or variable.
    Reg(u8),
    Not(Id),
    Binary(Op, Id, Id),
    /// Value times a ratio.
    Scale(Id, Ratio),
    /// `(if c a b)`
    Choose(Id, Id, Id),
    /// `(if c v)`: v, or the variable's old value. Only the right-hand side of `:=`, like the next
    /// three.
    If(Id, Id),
    /// `(!if c v)`
    NotIf(Id, Id),
    Ewma(Ratio, Id),
    EwmaVar(Id, Id),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeNode {
    pub expr: Expr,
    pub ty: Type,
    /// Number of temporaries that its evaluation needs.
    pub needs: u8,
    /// Height of the tree in operators, each of which is at least one instruction.
    pub height: u32,
}

/// Statement; those inside an `if` follow it directly.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stmt {
    Bind {
        dst: u8,
        value: Id,
    },
    /// `(report)`, `(fallthrough)`, `(reset)`: sets this flag of the engine.
    Set(u8),
    /// Runs the statements up to `then_end` if `cond` is true, otherwise those from there up to
    /// `else_end`.
    If {
        cond: Id,
        then_end: u32,
        else_end: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clause {
    /// Position of `(when`, for problems of the whole clause.
    pub span: Span,
    pub guard: Id,
    pub body_start: u32,
    pub body_end: u32,
}

/// Variable, named by a span of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Name; without `Report.` for a report variable.
    pub name: Span,
    pub report: bool,
    pub ty: Type,
    /// True for a local whose type is not yet known from an assignment.
    pub type_unknown: bool,
    pub reg: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<TreeNode>,
    pub stmts: Vec<Stmt>,
    pub clauses: Vec<Clause>,
}

impl Tree {
    pub fn add(&mut self, expr: Expr, ty: Type) -> Id {
        let id = Id(self.nodes.len() as u32);
        let (needs, height) = (self.needs(expr), self.height(expr));
        self.nodes.push(TreeNode {
            expr,
            ty,
            needs,
            height,
        });
        id
    }

    fn height(&self, expr: Expr) -> u32 {
        let of = |id| self.node(id).height;
        1 + match expr {
            Expr::Num(_) | Expr::Bool(_) | Expr::Ratio(_) | Expr::Reg(_) => return 0,
            Expr::Not(a) | Expr::Scale(a, _) | Expr::Ewma(_, a) => of(a),
            Expr::Binary(_, a, b) | Expr::If(a, b) | Expr::NotIf(a, b) | Expr::EwmaVar(a, b) => {
                of(a).max(of(b))
            }
            Expr::Choose(c, a, b) => of(c).max(of(a)).max(of(b)),
        }
    }

    /// Adds the negation of a condition.
    pub fn not(&mut self, cond: Id) -> Id {
        let negated = self
            .constant(cond)
            .map_or(Expr::Not(cond), |value| Expr::Bool(value == 0));
        self.add(negated, Type::Bool)
    }

    /// Number of temporaries that an expression needs: one more than either if both operands need
    /// the same, otherwise the larger number (Sethi-Ullman).
    fn needs(&self, expr: Expr) -> u8 {
        let of = |id| self.node(id).needs;
        match expr {
            Expr::Num(_) | Expr::Bool(_) | Expr::Ratio(_) | Expr::Reg(_) => 0,
            Expr::Not(a) | Expr::Scale(a, _) | Expr::Ewma(_, a) => of(a).max(1),
            Expr::Binary(_, a, b) | Expr::If(a, b) | Expr::NotIf(a, b) | Expr::EwmaVar(a, b) => {
                if of(a) == of(b) {
                    of(a).saturating_add(1)
                } else {
                    of(a).max(of(b))
                }
            }
            Expr::Choose(c, a, b) => {
                let mut needs = [of(c), of(a), of(b)];
                needs.sort_unstable();
                needs[2]
                    .max(needs[1].saturating_add(1))
                    .max(needs[0].saturating_add(2))
            }
        }
    }

    pub fn node(&self, id: Id) -> TreeNode {
        self.nodes[id.0 as usize]
    }

    /// Value of a constant in the bytecode.
    pub fn constant(&self, id: Id) -> Option<u64> {
        match self.node(id).expr {
            Expr::Num(value) => Some(value),
            Expr::Bool(value) => Some(u64::from(value)),
            _ => None,
        }
    }

    /// Returns true if evaluating `id` reads register `wanted`.
    pub fn reads(&self, id: Id, wanted: u8) -> bool {
        match self.node(id).expr {
            Expr::Num(_) | Expr::Bool(_) | Expr::Ratio(_) => false,
            Expr::Reg(reg) => reg == wanted,
            Expr::Not(a) | Expr::Scale(a, _) | Expr::Ewma(_, a) => self.reads(a, wanted),
            Expr::Binary(_, a, b) | Expr::If(a, b) | Expr::NotIf(a, b) | Expr::EwmaVar(a, b) => {
                self.reads(a, wanted) || self.reads(b, wanted)
            }
            Expr::Choose(c, a, b) => {
                self.reads(c, wanted) || self.reads(a, wanted) || self.reads(b, wanted)
            }
        }
    }
}

/// Built-in name.
#[derive(Clone, Copy)]
pub(crate) struct Builtin {
    pub name: &'static str,
    pub reg: u8,
    pub ty: Type,
    /// True for CCP's names, which a program may not declare. It may declare the others, so that
    /// programs written before they existed keep their meaning.
    pub is_ccp: bool,
}

impl Builtin {
    pub fn is_writable(self) -> bool {
        self.reg >= reg::SIGNALS_END
    }
}

const fn num(name: &'static str, reg: u8) -> Builtin {
    Builtin {
        name,
        reg,
        ty: Type::Num,
        is_ccp: true,
    }
}

const fn flag(name: &'static str, reg: u8) -> Builtin {
    Builtin {
        name,
        reg,
        ty: Type::Bool,
        is_ccp: true,
    }
}

const fn new(builtin: Builtin) -> Builtin {
    Builtin {
        is_ccp: false,
        ..builtin
    }
}

/// All signals and flow state, by register number.
pub(crate) const BUILTINS: [Builtin; 33] = [
    num("Ack.bytes_acked", 0),
    num("Ack.bytes_misordered", 1),
    num("Ack.ecn_bytes", 2),
    num("Ack.ecn_packets", 3),
    num("Ack.lost_pkts_sample", 4),
    num("Ack.now", 5),
    num("Ack.packets_acked", 6),
    num("Ack.packets_misordered", 7),
    num("Flow.bytes_in_flight", 8),
    num("Flow.bytes_pending", 9),
    num("Flow.packets_in_flight", 10),
    num("Flow.rate_incoming", 11),
    num("Flow.rate_outgoing", 12),
    num("Flow.rtt_sample_us", 13),
    flag("Flow.was_timeout", 14),
    new(num("Flow.srtt_us", 15)),
    new(num("Flow.min_rtt_us", 16)),
    new(num("Flow.mss", 17)),
    new(flag("Flow.app_limited", 18)),
    new(flag("Flow.in_recovery", 19)),
    new(flag("Flow.undone", 20)),
    new(flag("Flow.cwnd_limited", 21)),
    new(num("Ack.owd_ns", 22)),
    new(num("Ack.rtt_ns", 23)),
    new(num("Flow.min_owd_ns", 24)),
    new(num("Flow.min_rtt_ns", 25)),
    new(num("Flow.queue_delay_ns", 26)),
    new(flag("Flow.queue_delay_valid", 27)),
    new(flag("Flow.paced", reg::PACED)),
    num("Micros", reg::MICROS),
    num("Cwnd", reg::CWND),
    num("Rate", reg::RATE),
    new(num("Ssthresh", reg::SSTHRESH)),
];

pub(crate) fn builtin(name: &str) -> Option<Builtin> {
    BUILTINS
        .iter()
        .find(|builtin| builtin.name == name)
        .copied()
}
