//! What a datapath embeds.
#![no_std]
#![forbid(unsafe_code)]

mod bytecode;
mod signals;

pub use bytecode::{Clause, INFINITY, Instr, MAX_CLAUSES, MAX_INSTRS, MAX_VARS, Op, Var, VarKind, reg};
pub use signals::{Capabilities, Signals, Transport};
