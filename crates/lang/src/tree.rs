//! The typed tree: what a program means after names are resolved and constants are folded.

use ccplane_datapath::{Op, reg};

use crate::diagnostics::Span;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// An unsigned 64-bit number.
    Num,
    /// Truth: 0 or 1.
    Bool,
}

impl Type {
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Type::Num => "a number",
            Type::Bool => "a truth value",
        }
    }
}

/// A positive fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    pub num: u32,
    pub den: u32,
}

impl Ratio {
    /// Reduces `num / den`; none where `den` is 0 or the terms do not fit 32 bits.
    pub fn new(num: u128, den: u128) -> Option<Ratio> {
        if den == 0 {
            return None;
        }
        let common = gcd(num, den);
        let num = u32::try_from(num / common).ok()?;
        let den = u32::try_from(den / common).ok()?;
        Some(Ratio { num, den })
    }

    /// As an immediate of the bytecode.
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
    /// A constant that is not whole; only a factor, a divisor or a weight.
    Ratio(Ratio),
    /// A signal, state of the flow or a variable.
    Reg(u8),
    Not(Id),
    Binary(Op, Id, Id),
    /// A value times a ratio.
    Scale(Id, Ratio),
    /// `(if c a b)`
    Choose(Id, Id, Id),
    /// `(if c v)`: v, or what the variable held. Only directly right of `:=`, as the next three.
    If(Id, Id),
    /// `(!if c v)`
    NotIf(Id, Id),
    Ewma(Ratio, Id),
    EwmaVar(Id, Id),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub expr: Expr,
    pub ty: Type,
    /// Temporaries that its evaluation takes.
    pub needs: u8,
    /// Operators on the longest way down to a leaf: each is an instruction at least.
    pub height: u32,
}

/// A statement; those inside an `if` follow it directly.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stmt {
    Bind {
        dst: u8,
        value: Id,
    },
    /// `(report)`, `(fallthrough)`, `(reset)`: sets this flag of the engine.
    Set(u8),
    /// The statements up to `then_end` where `cond` holds, otherwise those from there up to
    /// `else_end`.
    If {
        cond: Id,
        then_end: u32,
        else_end: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clause {
    /// `(when`, for what concerns the whole clause.
    pub span: Span,
    pub guard: Id,
    pub body_start: u32,
    pub body_end: u32,
}

/// A variable, named by its place in the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    /// Its name, for a report variable without `Report.`
    pub name: Span,
    pub report: bool,
    pub ty: Type,
    /// A local whose type its first bind is still to say.
    pub open: bool,
    pub reg: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub nodes: Vec<Node>,
    pub stmts: Vec<Stmt>,
    pub clauses: Vec<Clause>,
}

impl Tree {
    pub fn add(&mut self, expr: Expr, ty: Type) -> Id {
        let id = Id(self.nodes.len() as u32);
        let (needs, height) = (self.needs(expr), self.height(expr));
        self.nodes.push(Node {
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

    /// The negation of a condition.
    pub fn not(&mut self, cond: Id) -> Id {
        let negated = self
            .constant(cond)
            .map_or(Expr::Not(cond), |value| Expr::Bool(value == 0));
        self.add(negated, Type::Bool)
    }

    /// Temporaries that an expression takes: equally needy operands one more than either, others as
    /// many as the needier (Sethi-Ullman).
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

    pub fn node(&self, id: Id) -> Node {
        self.nodes[id.0 as usize]
    }

    /// A constant's value as the datapath sees it.
    pub fn constant(&self, id: Id) -> Option<u64> {
        match self.node(id).expr {
            Expr::Num(value) => Some(value),
            Expr::Bool(value) => Some(u64::from(value)),
            _ => None,
        }
    }

    /// True where evaluating `id` reads register `wanted`.
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

/// What the language knows beside a program's own names.
#[derive(Clone, Copy)]
pub(crate) struct Builtin {
    pub name: &'static str,
    pub reg: u8,
    pub ty: Type,
    /// From CCP: a program may not declare a variable of this name. The others it may, so that no
    /// program that was written before they existed changes its meaning.
    pub ccp: bool,
}

impl Builtin {
    pub fn writable(self) -> bool {
        self.reg >= reg::SIGNALS_END
    }
}

const fn num(name: &'static str, reg: u8) -> Builtin {
    Builtin {
        name,
        reg,
        ty: Type::Num,
        ccp: true,
    }
}

const fn flag(name: &'static str, reg: u8) -> Builtin {
    Builtin {
        name,
        reg,
        ty: Type::Bool,
        ccp: true,
    }
}

const fn new(builtin: Builtin) -> Builtin {
    Builtin {
        ccp: false,
        ..builtin
    }
}

/// Every signal and all state of the flow, by the number of its register.
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
