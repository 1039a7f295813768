//! Why bytes are no message, or a message cannot be put into bytes.

use ccplane_datapath::CheckError;

use crate::BadTag;

/// What is wrong with a message, and where. Whoever receives such from a peer closes that peer's
/// connection, as nothing after it can be trusted to start where it seems to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end before the message does.
    #[error(
        "{what} needs {needs} bytes, {has} are left: the sender cut it, or its length is wrong"
    )]
    Short {
        /// Which message or part.
        what: &'static str,
        /// Bytes that it needs.
        needs: usize,
        /// Bytes that are there.
        has: usize,
    },
    /// A length field does not agree with what the message holds.
    #[error("{what} says {says} bytes, but its contents need {needs}")]
    Length {
        /// Which message.
        what: &'static str,
        /// What the length field says.
        says: usize,
        /// What it should say.
        needs: usize,
    },
    /// More than a message can hold.
    #[error("{what} is {is}, the format holds at most {most}")]
    TooLong {
        /// Which quantity.
        what: &'static str,
        /// How much it is.
        is: usize,
        /// How much fits.
        most: usize,
    },
    /// A number that stands for nothing.
    #[error(
        "{what} {value} does not exist: sender and receiver speak different versions, or this is no message"
    )]
    Unknown {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// Another version of the framing.
    #[error("the peer speaks version {theirs}, this side version {ours}: update the older one")]
    Version {
        /// The peer's.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// A text that is not one.
    #[error("{0} is not UTF-8 text")]
    Text(&'static str),
    /// A tag that is none, or too many of them.
    #[error("a flow's tags cannot be: {0}")]
    Tag(#[from] BadTag),
    /// A program that is in order as a message but does not pass the check.
    #[error("the program does not pass the check: {0}")]
    Program(#[from] CheckError),
    /// Something that CCP's format has no words for.
    #[error("CCP's format cannot say {0}")]
    Unsayable(Unsayable),
}

/// What of ccplane's language CCP's format has no words for, with what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsayable {
    /// A signal after the first 15.
    #[error(
        "the signal `{0}`: compute it from the signals of CCP, or offer another program for CCP datapaths"
    )]
    Signal(&'static str),
    /// `Ssthresh`.
    #[error(
        "`Ssthresh`: a CCP datapath has no slow-start threshold; keep it in a variable of the program"
    )]
    Ssthresh,
    /// `(reset)`.
    #[error("`(reset)`: bind each volatile variable to its initial value instead")]
    Reset,
    /// Statement `(if …)`.
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
    /// Too deep an expression.
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
    /// Setting `Micros` from the agent.
    #[error("an update of `Micros`: bind it in the program, at a condition on a control variable")]
    Micros,
    /// An update of a variable that is not a control variable.
    #[error("an update of variable {0}, which is no control variable of the flow's program")]
    Variable(u8),
    /// An IPv6 address.
    #[error("an IPv6 address: its CREATE has room for IPv4")]
    Ipv6,
    /// A flow number that does not fit.
    #[error("flow {0}: its flows have 32-bit numbers")]
    Flow(u64),
}
