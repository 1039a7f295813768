//! Why a connection ended before its streams did.

/// Why a connection ended before its streams did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The handshake was not answered.
    #[error(
        "no answer to {0} requests for a connection: is the peer there, and does the path carry its packets?"
    )]
    NoAnswer(u8),
    /// Data was sent again and again and never acknowledged.
    #[error(
        "{0} retransmission timeouts in a row without an acknowledgement: the path or the peer is gone"
    )]
    TimedOut(u8),
    /// Nothing was heard for the idle timeout.
    #[error(
        "nothing heard from the peer for the idle timeout; raise `idle_timeout` where silence is normal"
    )]
    Silent,
    /// The peer gave the connection up.
    #[error("the peer gave the connection up")]
    Reset,
    /// The peer acknowledged data without the nonces that came with it
    /// ([`Connection::require_proof`]).
    ///
    /// [`Connection::require_proof`]: crate::Connection::require_proof
    #[error(
        "the receiver acknowledged data that it did not get: it hides losses to be sent more than its path carries, \
         or its software is broken"
    )]
    FalseReceipt,
    /// `abort` was called here.
    #[error("given up on this side")]
    Aborted,
}

impl Failure {
    /// Name for machines, without numbers.
    pub fn name(self) -> &'static str {
        match self {
            Failure::NoAnswer(_) => "no_answer",
            Failure::TimedOut(_) => "timed_out",
            Failure::Silent => "silent",
            Failure::Reset => "reset",
            Failure::FalseReceipt => "false_receipt",
            Failure::Aborted => "aborted",
        }
    }
}
