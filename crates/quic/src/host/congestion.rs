//! Congestion control of a host's connections.

use crate::{QuicPlane, Stack};

/// Congestion control of a connection.
#[derive(Clone, Debug)]
pub enum QuicCongestion {
    /// One of the stack's own algorithms.
    Native(Native),
    /// Controlled by a plane.
    Steered(QuicPlane),
}

/// Congestion-control algorithms built into the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// NewReno of RFC 9002.
    NewReno,
    /// Cubic (RFC 9438).
    Cubic,
    /// BBR version 1, in quinn.
    Bbr,
    /// BBR version 2, in s2n-quic.
    Bbr2,
    /// BBR version 3.
    Bbr3,
}

/// Error for an algorithm that the stack does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stack} has no congestion control `{name}`; use one of {known}")]
pub struct UnknownNative {
    stack: &'static str,
    name: String,
    known: String,
}

impl Native {
    /// Returns the stack's algorithm of this name.
    pub fn by_name(stack: Stack, name: &str) -> Result<Native, UnknownNative> {
        let known = Native::supported_by(stack);
        let found = known.iter().find(|native| native.name() == name);
        found
            .copied()
            .ok_or_else(|| UnknownNative::new(stack, name))
    }

    /// Returns the error for an algorithm that the stack does not have.
    pub(super) fn unsupported_by(self, stack: Stack) -> UnknownNative {
        UnknownNative::new(stack, self.name())
    }

    fn supported_by(stack: Stack) -> &'static [Native] {
        match stack {
            Stack::Noq => &[Native::NewReno, Native::Cubic, Native::Bbr3],
            Stack::Quinn => &[Native::NewReno, Native::Cubic, Native::Bbr],
            Stack::S2n => &[Native::Cubic, Native::Bbr2],
        }
    }

    /// Returns the name used in options and messages.
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
        let names: Vec<&str> = Native::supported_by(stack)
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
        assert_eq!(Native::by_name(Stack::Noq, "bbr3"), Ok(Native::Bbr3));
        assert_eq!(Native::by_name(Stack::S2n, "bbr2"), Ok(Native::Bbr2));
        let why = Native::by_name(Stack::Quinn, "bbr3")
            .unwrap_err()
            .to_string();
        assert_eq!(
            why,
            "quinn has no congestion control `bbr3`; use one of reno, cubic, bbr"
        );
    }
}
