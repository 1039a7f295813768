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
        "{what} needs {needs} bytes, but {has} are left: it was truncated, or its length is wrong"
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
    #[error("{what} has a length of {says} bytes, but its contents need {needs}")]
    LengthMismatch {
        /// Message.
        what: &'static str,
        /// Value of the length field.
        says: usize,
        /// Length of the contents.
        needs: usize,
    },
    /// A quantity exceeds the limit of the format.
    #[error("{what} is {is}, but the format allows at most {most}")]
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
        "invalid {what} {value}: sender and receiver use different versions, or the data is not a \
         message"
    )]
    UnknownValue {
        /// Kind of number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The peer uses another version of the framing.
    #[error("the peer uses version {theirs}, this side uses version {ours}: update the older side")]
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
    #[error("invalid flow tags: {0}")]
    InvalidTag(#[from] TagError),
    /// A well-formed program does not pass the check.
    #[error("the program does not pass the check: {0}")]
    InvalidProgram(#[from] CheckError),
    /// CCP's format cannot express the message.
    #[error("CCP's format does not support {0}")]
    NotExpressible(NotExpressible),
}

/// Feature of ccplane's language that CCP's format cannot express. The message gives a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotExpressible {
    /// A signal after the first 15.
    #[error(
        "the signal `{0}`: compute it from the signals of CCP, or offer another program for CCP \
         datapaths"
    )]
    Signal(&'static str),
    /// The `Ssthresh` state.
    #[error(
        "`Ssthresh`: a CCP datapath has no slow-start threshold; keep it in a variable of the \
         program"
    )]
    Ssthresh,
    /// The `(reset)` statement.
    #[error("`(reset)`: bind each volatile variable to its initial value instead")]
    Reset,
    /// An `(if …)` statement.
    #[error(
        "a statement `(if …)`: write `(:= variable (if condition value))`, or a separate `when`"
    )]
    Statement,
    /// A weight that is not a multiple of a tenth.
    #[error("the ewma weight {0}/{1}: use a multiple of 1/10")]
    Weight(u64, u64),
    /// A constant that is too large.
    #[error(
        "the constant {0} here: constants are 31-bit numbers or +infinity; bind a larger one in a \
         clause"
    )]
    Constant(u64),
    /// An expression that is nested too deeply.
    #[error(
        "an expression that needs {0} temporaries: at most 8 are available; name an intermediate \
         value with `(:= name …)`"
    )]
    Temporaries(usize),
    /// Too many instructions.
    #[error(
        "a program of {0} instructions, including variable definitions: at most 255 are allowed"
    )]
    Instructions(usize),
    /// Too many variables.
    #[error("{0} variables of one kind: at most 110 are allowed")]
    Variables(usize),
    /// A report without fields.
    #[error(
        "a report without fields, because it signals the end of a flow: declare a report variable"
    )]
    EmptyReport,
    /// An update of `Micros` by the agent.
    #[error("an update of `Micros`: bind it in the program, at a condition on a control variable")]
    Micros,
    /// An update of a variable that is not a control variable.
    #[error(
        "an update of variable {0}, because it is not a control variable of the flow's program"
    )]
    Variable(u8),
    /// An IPv6 address.
    #[error("an IPv6 address: its CREATE message holds IPv4 addresses only")]
    Ipv6,
    /// A flow number that does not fit into 32 bits.
    #[error("the flow number {0}: flow numbers have 32 bits")]
    Flow(u64),
}
