//! Engine that a datapath embeds: checked programs, the flows that run them at every ACK, and the
//! fallback for a silent agent.
//!
//! `no_std`, no allocation, no clock: the caller passes the time. A [`ProgramTable`] holds an
//! algorithm's programs and the operator's [`OperatorLimits`]. A [`Flow`] takes [`Signals`] at
//! every ACK and returns an [`Outcome`]: the window and rate to use, and whether a report is due.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod burst;
mod bytecode;
mod check;
mod clock;
mod command;
mod fallback;
mod flow;
mod interpreter;
mod last_state;
mod lower;
mod noise;
mod one_way_delay;
mod outcome;
mod program;
mod signals;
mod sticky_fallthrough;
mod table;
mod two_bucket_min;

pub use bytecode::{
    CLAUSES_MAX, Clause, INFINITY, INSTRS_MAX, Instr, Op, VARS_MAX, Var, VarKind, reg,
};
pub use check::{CheckError, CheckErrorReason, CodeLocation};
pub use command::{Command, CommandError, CommandTarget, Update};
pub use flow::{Flow, SteeredFlow};
#[doc(hidden)]
pub use interpreter::interpret;
pub use noise::RttNoise;
pub use one_way_delay::{ExchangeStamps, OneWay};
pub use outcome::{Outcome, Urgency};
pub use program::Program;
pub use signals::{Capabilities, Signals, Transport};
pub use table::{Compat, OperatorLimits, ProgramTable};
pub use two_bucket_min::{HalfWindowMin, MinSample, TwoBucketMin};
