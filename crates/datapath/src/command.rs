//! What an agent tells a flow, and why a datapath refuses it.

use core::fmt;

use crate::check::CheckError;
use crate::signals::Capabilities;

/// One command to one flow. It takes effect as a whole or is refused as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Run the program `uid` from the next call on: variables at their initial values, then
    /// `updates` on top of them.
    SetProgram {
        /// An installed program.
        uid: u32,
        /// Targets of the new program.
        updates: &'a [Update],
    },
    /// Set these at the next call, before the program runs.
    Update(&'a [Update]),
    /// Give the flow to its own NewReno, from the next call on and until it is set a program.
    Release,
}

/// A value for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    /// What to set.
    pub target: Target,
    /// In the unit of the target.
    pub value: u64,
}

/// What an agent may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The program's variable of this index, which must be a control variable.
    Var(u8),
    /// The congestion window, bytes; 0 leaves it as it is.
    Cwnd,
    /// The pacing rate, bytes/s; 0 leaves it as it is.
    Rate,
    /// The slow-start threshold, bytes; 0 leaves it as it is.
    Ssthresh,
    /// The program's clock, µs.
    Micros,
}

/// Why a datapath did not do as it was told. The flow goes on as before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No program of this number is installed.
    UnknownProgram {
        /// The number asked for.
        uid: u32,
    },
    /// A variable that the flow's program does not have, or that an agent may not set.
    BadTarget {
        /// The target asked for.
        target: Target,
        /// Variables that the program has.
        vars: u8,
    },
    /// An update of a variable before any program was set.
    NoProgram,
    /// Every place for a program is taken.
    TableFull {
        /// Places in all.
        places: usize,
    },
    /// The program has more variables than a flow of this datapath can hold.
    TooManyVars {
        /// Variables of the program.
        has: usize,
        /// Room in a flow.
        room: usize,
    },
    /// The program relies on what this datapath cannot do.
    Missing(Capabilities),
    /// The program did not pass the check.
    Invalid(CheckError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::UnknownProgram { uid } => {
                write!(f, "program {uid} is not installed here; install it first")
            }
            Refused::BadTarget {
                target: Target::Var(index),
                vars,
            } => write!(
                f,
                "variable {index} cannot be set: the program has {vars} variables, and only its control variables are an agent's to set"
            ),
            Refused::BadTarget { target, .. } => write!(f, "{target:?} cannot be set"),
            Refused::NoProgram => f.write_str(
                "the flow runs no program whose variables could be set; set a program first",
            ),
            Refused::TableFull { places } => {
                write!(
                    f,
                    "all {places} places for programs are taken; remove one that no flow runs"
                )
            }
            Refused::TooManyVars { has, room } => {
                write!(
                    f,
                    "the program has {has} variables, a flow here has room for {room}"
                )
            }
            Refused::Missing(missing) => {
                f.write_str("the program needs what this datapath lacks:")?;
                for (n, name) in missing.names().enumerate() {
                    write!(f, "{} {name}", if n == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Refused::Invalid(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Refused {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Refused::Invalid(error) => Some(error),
            _ => None,
        }
    }
}

impl From<CheckError> for Refused {
    fn from(error: CheckError) -> Refused {
        Refused::Invalid(error)
    }
}
