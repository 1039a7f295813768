//! The bytecode: three-address instructions over one register file, in clauses.
//!
//! A program is a list of *clauses* (`when`): straight-line guard code, then straight-line body
//! code. The engine runs the clauses in order and stops after the first whose guard was true and
//! whose body did not say `(fallthrough)`. Only [`Op::SkipIfZero`] jumps, and only forward inside
//! its own range, so a program of n instructions runs at most n. A guard writes temporaries only,
//! so that looking at it changes nothing; a temporary lives inside one guard or body. All values
//! are u64, truth is 0 or 1, arithmetic is total: what CCP's reference aborts on saturates here and
//! counts a fault.

/// The register file: who lives where. An index is a u8.
pub mod reg {
    /// The first signal; signal n of [`crate::Signals`] is register n. 29 to 31 are reserved for
    /// signals to come.
    pub const SIGNALS: u8 = 0;
    /// `Ack.now`, which the engine fills in.
    pub const NOW: u8 = 5;
    /// `Flow.was_timeout`.
    pub const WAS_TIMEOUT: u8 = 14;
    /// `Flow.undone`.
    pub const UNDONE: u8 = 20;
    /// `Ack.owd_ns`, the first of the signals that come from the time stamps of both ends. Those
    /// before it every program is given.
    pub const STAMPS: u8 = 22;
    /// `Flow.paced`, the first after those from stamps.
    pub const PACED: u8 = 28;
    /// One past the last signal in use.
    pub const SIGNALS_END: u8 = 29;
    /// µs since the program was set or `(:= Micros v)`. Writable.
    pub const MICROS: u8 = 32;
    /// Congestion window, bytes. Writable.
    pub const CWND: u8 = 33;
    /// Pacing rate, bytes/s. Writable.
    pub const RATE: u8 = 34;
    /// Slow-start threshold, bytes. Writable; an extension of ccplane.
    pub const SSTHRESH: u8 = 35;
    /// `(report)` sets it to 1.
    pub const SHOULD_REPORT: u8 = 36;
    /// `(fallthrough)` sets it to 1; cleared before each clause's body.
    pub const SHOULD_CONTINUE: u8 = 37;
    /// `(reset)` sets it to 1: volatile variables go back to their initial values when the run
    /// ends.
    pub const SHOULD_RESET: u8 = 38;
    /// Always 1; the guard of `(when true …)`.
    pub const ONE: u8 = 39;
    /// The first of the temporaries: written before read within one statement or guard.
    pub const TEMPS: u8 = 40;
    /// One past the last temporary.
    pub const TEMPS_END: u8 = 64;
    /// The first of the program's variables, in the order of [`super::Var`]s.
    pub const VARS: u8 = 64;
}

/// Most instructions of a program. Enough for every published algorithm (BBR's probe-bandwidth has
/// 41); more would only lengthen the worst case of an ACK and the verifier's work.
pub const MAX_INSTRS: usize = 256;
/// Most clauses (`when`) of a program.
pub const MAX_CLAUSES: usize = 32;
/// Most variables of a program, over report, control and local ones together.
pub const MAX_VARS: usize = 64;

/// What the numbers 0xffffffff stand for in CCP: `+infinity`, and an RTT that is not known.
pub const INFINITY: u64 = 0xffff_ffff;

/// Operations. `b` stands for the second operand: register [`Instr::b`], or [`Instr::imm`] where
/// [`Instr::has_imm`]. Each says what it does on the inputs on which CCP's reference aborts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// dst = b
    Move = 0,
    /// dst = a + b; saturates at u64::MAX and counts a fault.
    Add,
    /// dst = a - b; below zero it is 0 and counts a fault.
    Sub,
    /// dst = a - b, or 0 where b is larger: `(diff a b)`, no fault.
    Diff,
    /// dst = a * b; saturates at u64::MAX and counts a fault.
    Mul,
    /// dst = a / b; 0 where b is 0, and counts a fault.
    Div,
    /// dst = a * num / den in 128 bits, saturating without a fault; imm = num << 32 | den, den > 0
    /// (checked). From decimals such as `(* Cwnd 1.25)`.
    MulRatio,
    /// dst = max(a, b)
    Max,
    /// dst = min(a, b)
    Min,
    /// dst = the later of two 32-bit sequence numbers modulo 2^32; 0 means unset.
    MaxWrap,
    /// dst = a == b
    Eq,
    /// dst = a != b
    Ne,
    /// dst = a > b
    Gt,
    /// dst = a >= b
    Ge,
    /// dst = a < b
    Lt,
    /// dst = a <= b
    Le,
    /// dst = Micros > b, and while that is false the flow's deadline is at most b + 1 µs after
    /// Micros was zero. In guards only; a body that wants to know compares with `Gt`.
    After,
    /// dst = a && b, both 0 or 1 (any other value counts as 1)
    And,
    /// dst = a || b, always 0 or 1
    Or,
    /// dst = !b: 1 where b is 0
    Not,
    /// dst = b where a is not 0, else unchanged: `(:= dst (if a b))`
    If,
    /// dst = b where a is 0, else unchanged: `(:= dst (!if a b))`
    NotIf,
    /// dst = b where dst is 0 (first sample), else (num*dst + (den-num)*b)/den in 128 bits; imm =
    /// num << 32 | den, 0 <= num <= den, den > 0 (checked); b is a register.
    Ewma,
    /// The same with weight a/10 from a register; a > 10 counts a fault and reads as 10.
    EwmaVar,
    /// Skip the next imm instructions where a is 0; the target lies in the same range (checked):
    /// statement `(if a …)`.
    SkipIfZero,
}

impl Op {
    /// Every operation, at the place of its number.
    pub const ALL: [Op; 25] = [
        Op::Move,
        Op::Add,
        Op::Sub,
        Op::Diff,
        Op::Mul,
        Op::Div,
        Op::MulRatio,
        Op::Max,
        Op::Min,
        Op::MaxWrap,
        Op::Eq,
        Op::Ne,
        Op::Gt,
        Op::Ge,
        Op::Lt,
        Op::Le,
        Op::After,
        Op::And,
        Op::Or,
        Op::Not,
        Op::If,
        Op::NotIf,
        Op::Ewma,
        Op::EwmaVar,
        Op::SkipIfZero,
    ];
}

/// One instruction, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instr {
    /// The operation.
    pub op: Op,
    /// True where the second operand is `imm` rather than register `b`. Not looked at by the
    /// operations that give `imm` a meaning of its own: [`Op::MulRatio`], [`Op::Ewma`] and
    /// [`Op::SkipIfZero`].
    pub has_imm: bool,
    /// The register written.
    pub dst: u8,
    /// The first operand's register.
    pub a: u8,
    /// The second operand's register.
    pub b: u8,
    /// The second operand's value, a ratio or a distance: see the operation.
    pub imm: u64,
}

/// A `when`: instructions `guard_start..body_start` compute `flag`, `body_start..body_end` is the
/// body. Clauses lie one behind the other, without gaps, and cover all instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Clause {
    /// The register that is not 0 when the body is to run; [`reg::ONE`] for `true`.
    pub flag: u8,
    /// First instruction of the guard.
    pub guard_start: u16,
    /// First instruction of the body, one past the guard.
    pub body_start: u16,
    /// One past the last instruction of the body.
    pub body_end: u16,
}

/// What a variable is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VarKind {
    /// Sent with every report, in order of declaration.
    #[default]
    Report = 0,
    /// Set by the agent, not sent.
    Control = 1,
    /// Made by a bind in a body: zero at the start, never reset.
    Local = 2,
}

/// A variable of a program. Report variables come first, then control, then local ones; the n-th is
/// register `reg::VARS + n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Var {
    /// What it is for.
    pub kind: VarKind,
    /// Goes back to `init` after every report that was queued.
    pub volatile: bool,
    /// Its value when the program is set.
    pub init: u64,
}
