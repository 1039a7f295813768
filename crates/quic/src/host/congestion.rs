//! Who decides the windows of a host's connections.

use crate::{Plane, Stack};

/// What decides a connection's window.
#[derive(Clone, Debug)]
pub enum Congestion {
    /// One of the stack's own.
    Native(Native),
    /// A plane.
    Steered(Plane),
}

/// Congestion controls that stacks have of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// NewReno, as RFC 9002 has it.
    NewReno,
    /// Cubic (RFC 9438).
    Cubic,
    /// BBR version 1, as quinn has it.
    Bbr,
    /// BBR version 2, as s2n-quic has it.
    Bbr2,
    /// BBR version 3.
    Bbr3,
}

/// A name that is none of the stack's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stack} has no congestion control `{name}`; it has {known}")]
pub struct UnknownNative {
    stack: &'static str,
    name: String,
    known: String,
}

impl Native {
    /// A stack's own control of this name.
    pub fn of(stack: Stack, name: &str) -> Result<Native, UnknownNative> {
        let known = Native::all(stack);
        let found = known.iter().find(|native| native.name() == name);
        found
            .copied()
            .ok_or_else(|| UnknownNative::new(stack, name))
    }

    /// The error where a stack is asked for one that is not its own.
    pub(super) fn not_of(self, stack: Stack) -> UnknownNative {
        UnknownNative::new(stack, self.name())
    }

    fn all(stack: Stack) -> &'static [Native] {
        match stack {
            Stack::Noq => &[Native::NewReno, Native::Cubic, Native::Bbr3],
            Stack::Quinn => &[Native::NewReno, Native::Cubic, Native::Bbr],
            Stack::S2n => &[Native::Cubic, Native::Bbr2],
        }
    }

    /// Its name, as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Native::NewReno => "reno",
            Native::Cubic => "cubic",
            Native::Bbr => "bbr",
            Native::Bbr2 => "bbr2",
            Native::Bbr3 => "bbr3",
        }
    }
}

impl UnknownNative {
    fn new(stack: Stack, name: &str) -> UnknownNative {
        let names: Vec<&str> = Native::all(stack)
            .iter()
            .map(|native| native.name())
            .collect();
        UnknownNative {
            stack: stack.name(),
            name: name.to_owned(),
            known: names.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_that_the_stack_lacks_is_refused_with_those_that_it_has() {
        assert_eq!(Native::of(Stack::Noq, "bbr3"), Ok(Native::Bbr3));
        assert_eq!(Native::of(Stack::S2n, "bbr2"), Ok(Native::Bbr2));
        let why = Native::of(Stack::Quinn, "bbr3").unwrap_err().to_string();
        assert_eq!(
            why,
            "quinn has no congestion control `bbr3`; it has reno, cubic, bbr"
        );
    }
}
