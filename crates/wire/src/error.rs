//! Errors of decoding and encoding.

use ccplane_datapath::CheckError;

use crate::TagError;

/// Error in a message. A receiver closes the connection of the peer that sent it, as the start of
/// the next message is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the message does.
    #[error(
        "{what} needs {needs} bytes, {has} are left: the sender cut it, or its length is wrong"
    )]
    Truncated {
        /// Message or part.
        what: &'static str,
        /// Bytes required.
        needs: usize,
        /// Bytes available.
        has: usize,
    },
    /// A length field disagrees with the contents of the message.
    #[error("{what} says {says} bytes, but its contents need {needs}")]
    LengthMismatch {
        /// Message.
        what: &'static str,
        /// Value of the length field.
        says: usize,
        /// Length of the contents.
        needs: usize,
    },
    /// A quantity exceeds the limit of the format.
    #[error("{what} is {is}, the format holds at most {most}")]
    TooLong {
        /// Quantity.
        what: &'static str,
        /// Its value.
        is: usize,
        /// Maximum value.
        most: usize,
    },
    /// A number has no defined meaning.
    #[error(
        "{what} {value} does not exist: sender and receiver speak different versions, or this is no message"
    )]
    UnknownValue {
        /// Kind of number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The peer uses another version of the framing.
    #[error("the peer speaks version {theirs}, this side version {ours}: update the older one")]
    UnsupportedVersion {
        /// Version of the peer.
        theirs: u16,
        /// Own version.
        ours: u16,
    },
    /// A text is not valid UTF-8.
    #[error("{0} is not UTF-8 text")]
    InvalidUtf8(&'static str),
    /// A tag is invalid, or there are too many.
    #[error("a flow's tags cannot be: {0}")]
    InvalidTag(#[from] TagError),
    /// A well-formed program does not pass the check.
    #[error("the program does not pass the check: {0}")]
    InvalidProgram(#[from] CheckError),
    /// CCP's format cannot express the message.
    #[error("CCP's format cannot say {0}")]
    NotExpressible(NotExpressible),
}

/// Feature of ccplane's language that CCP's format cannot express. The message gives a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotExpressible {
    /// A signal after the first 15.
    #[error(
        "the signal `{0}`: compute it from the signals of CCP, or offer another program for CCP datapaths"
    )]
    Signal(&'static str),
    /// The `Ssthresh` state.
    #[error(
        "`Ssthresh`: a CCP datapath has no slow-start threshold; keep it in a variable of the program"
    )]
    Ssthresh,
    /// The `(reset)` statement.
    #[error("`(reset)`: bind each volatile variable to its initial value instead")]
    Reset,
    /// An `(if …)` statement.
    #[error(
        "a statement `(if …)`: write `(:= variable (if condition value))`, or a `when` of its own"
    )]
    Statement,
    /// A weight that is not a multiple of a tenth.
    #[error("the ewma weight {0}/{1}: its weights are tenths")]
    Weight(u64, u64),
    /// A constant that is too large.
    #[error(
        "the constant {0} here: its constants have 31 bits, and +infinity; bind a larger one in a clause"
    )]
    Constant(u64),
    /// An expression that is nested too deeply.
    #[error(
        "an expression that needs {0} temporaries: it has 8; name an intermediate value with `(:= name …)`"
    )]
    Temporaries(usize),
    /// Too many instructions.
    #[error(
        "a program of {0} instructions, with those that define its variables: it has room for 255"
    )]
    Instructions(usize),
    /// Too many variables.
    #[error("{0} variables of a kind: it has room for 110")]
    Variables(usize),
    /// A report without fields.
    #[error(
        "a report without fields, which would say that the flow ended: declare a report variable"
    )]
    EmptyReport,
    /// An update of `Micros` by the agent.
    #[error("an update of `Micros`: bind it in the program, at a condition on a control variable")]
    Micros,
    /// An update of a variable that is not a control variable.
    #[error("an update of variable {0}, which is no control variable of the flow's program")]
    Variable(u8),
    /// An IPv6 address.
    #[error("an IPv6 address: its CREATE has room for IPv4")]
    Ipv6,
    /// A flow number that does not fit into 32 bits.
    #[error("flow {0}: its flows have 32-bit numbers")]
    Flow(u64),
}
