//! Commands of an agent to a flow, and the reasons for their refusal.

use core::fmt;

use crate::check::CheckError;
use crate::signals::Capabilities;

/// Command to one flow. It is applied or refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Run program `uid` from the next call on. Its variables start at their initial values, to
    /// which `updates` is applied.
    SetProgram {
        /// An installed program.
        uid: u32,
        /// Targets of the new program.
        updates: &'a [Update],
    },
    /// Apply these updates at the next call, before the program runs.
    Update(&'a [Update]),
    /// Return the flow to the built-in NewReno from the next call on, until a program is set.
    Release,
}

/// New value of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// The target.
    pub target: CommandTarget,
    /// Value in the unit of the target.
    pub value: u64,
}

/// Target that an agent may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTarget {
    /// Variable of the program with this index, which must be a control variable.
    Var(u8),
    /// Congestion window, bytes; 0 leaves it unchanged.
    Cwnd,
    /// Pacing rate, bytes/s; 0 leaves it unchanged.
    Rate,
    /// Slow-start threshold, bytes; 0 leaves it unchanged.
    Ssthresh,
    /// Clock of the program, µs.
    Micros,
}

/// Reason why a datapath refused a command. The flow continues unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// No program with this number is installed.
    UnknownProgram {
        /// Number in the command.
        uid: u32,
    },
    /// The target is a variable that the flow's program does not have, or that an agent may not
    /// set.
    BadTarget {
        /// Target in the command.
        target: CommandTarget,
        /// Number of variables of the program.
        vars: u8,
    },
    /// A variable was updated before any program was set.
    NoProgram,
    /// All program slots are in use.
    TableFull {
        /// Number of slots.
        places: usize,
    },
    /// The program has more variables than a flow of this datapath can hold.
    TooManyVars {
        /// Variables of the program.
        has: usize,
        /// Variables that a flow can hold.
        room: usize,
    },
    /// The program requires capabilities that this datapath lacks.
    MissingCapabilities(Capabilities),
    /// The program did not pass the check.
    InvalidProgram(CheckError),
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::UnknownProgram { uid } => {
                write!(f, "program {uid} is not installed; install it first")
            }
            CommandError::BadTarget {
                target: CommandTarget::Var(index),
                vars,
            } => write!(
                f,
                "cannot set variable {index}: the program has {vars} variables, and an agent can \
                only set its control variables"
            ),
            CommandError::BadTarget { target, .. } => write!(f, "cannot set {target:?}"),
            CommandError::NoProgram => {
                f.write_str("the flow has no program; set a program before its variables")
            }
            CommandError::TableFull { places } => {
                write!(
                    f,
                    "all {places} program slots are in use; remove a program that no flow runs"
                )
            }
            CommandError::TooManyVars { has, room } => {
                write!(
                    f,
                    "the program has {has} variables, but flows have room for {room}"
                )
            }
            CommandError::MissingCapabilities(missing) => {
                f.write_str("this datapath lacks capabilities that the program needs:")?;
                for (n, name) in missing.names().enumerate() {
                    write!(f, "{} {name}", if n == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            CommandError::InvalidProgram(error) => error.fmt(f),
        }
    }
}

// The message of an invalid program is the whole message: it has no other source.
impl core::error::Error for CommandError {}

impl From<CheckError> for CommandError {
    fn from(error: CheckError) -> CommandError {
        CommandError::InvalidProgram(error)
    }
}
