//! Bytecode: three-address instructions on a register file, grouped in clauses.
//!
//! A program is a list of *clauses* (`when`): straight-line guard code followed by straight-line
//! body code. The engine runs the clauses in order and stops after the first whose guard is true
//! and whose body does not execute `(fallthrough)`. Only [`Op::SkipIfZero`] jumps, and only forward
//! within its own range, so a program of n instructions executes at most n. A guard writes only
//! temporaries, so that evaluating it has no side effects; a temporary lives within one guard or
//! body. All values are u64, truth is 0 or 1, and arithmetic is total: an operation on which CCP's
//! reference aborts saturates here and counts a fault.

/// Layout of the register file. An index is a u8.
pub mod reg {
    /// First signal; signal n of [`crate::Signals`] is register n. 29 to 31 are reserved for future
    /// signals.
    pub const SIGNALS: u8 = 0;
    /// `Ack.now`, set by the engine.
    pub const ACK_NOW: u8 = 5;
    /// `Flow.was_timeout`.
    pub const WAS_TIMEOUT: u8 = 14;
    /// `Flow.undone`.
    pub const UNDONE: u8 = 20;
    /// `Ack.owd_ns`, the first signal from the time stamps of both ends. Every program gets the
    /// signals before it.
    pub const STAMPS: u8 = 22;
    /// `Flow.paced`, the first signal after those from stamps.
    pub const PACED: u8 = 28;
    /// One past the last signal in use.
    pub const SIGNALS_END: u8 = 29;
    /// µs since the program was set or since `(:= Micros v)`. Writable.
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
    /// `(reset)` sets it to 1: volatile variables return to their initial values at the end of the
    /// run.
    pub const SHOULD_RESET: u8 = 38;
    /// Always 1; the guard of `(when true …)`.
    pub const CONSTANT_ONE: u8 = 39;
    /// First temporary. Temporaries are written before they are read within one statement or guard.
    pub const TEMPS: u8 = 40;
    /// One past the last temporary.
    pub const TEMPS_END: u8 = 64;
    /// First variable of the program, in the order of [`super::Var`]s.
    pub const VARS: u8 = 64;
}

/// Maximum instructions of a program. Enough for every published algorithm (BBR's probe-bandwidth
/// has 41); more would only lengthen the worst case of an ACK and the verifier's work.
pub const INSTRS_MAX: usize = 256;
/// Maximum clauses (`when`) of a program.
pub const CLAUSES_MAX: usize = 32;
/// Maximum variables of a program, including report, control and local ones.
pub const VARS_MAX: usize = 64;

/// CCP's 0xffffffff: `+infinity`, and an unknown RTT.
pub const INFINITY: u64 = 0xffff_ffff;

/// Operations. `b` is the second operand: register [`Instr::b`], or [`Instr::imm`] if
/// [`Instr::has_imm`] is set. Inputs on which CCP's reference aborts are defined for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// dst = b
    Move = 0,
    /// dst = a + b; saturates at u64::MAX and counts a fault.
    Add,
    /// dst = a - b; below zero it is 0 and counts a fault.
    Sub,
    /// dst = a - b, or 0 if b is larger: `(diff a b)`, no fault.
    Diff,
    /// dst = a * b; saturates at u64::MAX and counts a fault.
    Mul,
    /// dst = a / b; 0 if b is 0, and counts a fault.
    Div,
    /// dst = a * num / den in 128 bits, saturating without a fault; imm = num << 32 | den, den > 0
    /// (checked). Compiled from decimals such as `(* Cwnd 1.25)`.
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
    /// dst = Micros > b. While it is false, the flow's deadline is at most b + 1 µs after `Micros`
    /// was zero. Allowed in guards only; bodies use `Gt`.
    After,
    /// dst = a && b, both 0 or 1 (any other value counts as 1)
    And,
    /// dst = a || b, always 0 or 1
    Or,
    /// dst = !b: 1 if b is 0
    Not,
    /// dst = b if a is not 0, else unchanged: `(:= dst (if a b))`
    If,
    /// dst = b if a is 0, else unchanged: `(:= dst (!if a b))`
    NotIf,
    /// dst = b if dst is 0 (first sample), else (num*dst + (den-num)*b)/den in 128 bits; imm = num
    /// << 32 | den, 0 <= num <= den, den > 0 (checked); b is a register.
    Ewma,
    /// As `Ewma`, with weight a/10 from a register; a > 10 counts a fault and is read as 10.
    EwmaVar,
    /// Skips the next imm instructions if a is 0; the target lies in the same range (checked).
    /// Statement `(if a …)`.
    SkipIfZero,
}

impl Op {
    /// All operations, indexed by their numbers.
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

/// Instruction, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Instr {
    /// Operation.
    pub op: Op,
    /// True if the second operand is `imm` rather than register `b`. Ignored by the operations that
    /// use `imm` in another way: [`Op::MulRatio`], [`Op::Ewma`] and [`Op::SkipIfZero`].
    pub has_imm: bool,
    /// Register of the result.
    pub dst: u8,
    /// Register of the first operand.
    pub a: u8,
    /// Register of the second operand.
    pub b: u8,
    /// Immediate: the second operand's value, a ratio or a distance, depending on the operation.
    pub imm: u64,
}

/// Clause (`when`): instructions `guard_start..body_start` compute `flag`, `body_start..body_end`
/// is the body. Clauses are contiguous and cover all instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Clause {
    /// Register that must be non-zero for the body to run; [`reg::CONSTANT_ONE`] for `true`.
    pub flag: u8,
    /// First instruction of the guard.
    pub guard_start: u16,
    /// First instruction of the body, one past the guard.
    pub body_start: u16,
    /// One past the last instruction of the body.
    pub body_end: u16,
}

/// Kind of a variable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum VarKind {
    /// Sent with every report, in order of declaration.
    #[default]
    Report = 0,
    /// Set by the agent, not sent.
    Control = 1,
    /// Created by an assignment in a body: zero at the start, never reset.
    Local = 2,
}

/// Variable of a program. Report variables come first, then control, then local ones; the n-th is
/// register `reg::VARS + n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Var {
    /// Kind of the variable.
    pub kind: VarKind,
    /// The variable returns to `init` after every queued report.
    pub volatile: bool,
    /// Initial value.
    pub init: u64,
}
