//! Reasons why a connection fails.

/// Reason why a connection ended before its streams were complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer did not answer the handshake.
    #[error(
        "no answer to {0} requests for a connection: is the peer there, and does the path carry its packets?"
    )]
    NoAnswer(u8),
    /// The maximum of consecutive retransmission timeouts was reached.
    #[error(
        "{0} retransmission timeouts in a row without an acknowledgement: the path or the peer is gone"
    )]
    TimedOut(u8),
    /// No segment arrived within the idle timeout.
    #[error(
        "nothing heard from the peer for the idle timeout; raise `idle_timeout` where silence is normal"
    )]
    Silent,
    /// The peer aborted the connection.
    #[error("the peer gave the connection up")]
    Reset,
    /// The peer acknowledged data without proving receipt of its nonces
    /// ([`Connection::require_proof`]).
    ///
    /// [`Connection::require_proof`]: crate::Connection::require_proof
    #[error(
        "the receiver acknowledged data that it did not get: it hides losses to be sent more than its path carries, \
         or its software is broken"
    )]
    FalseReceipt,
    /// The connection was aborted locally.
    #[error("given up on this side")]
    Aborted,
}

impl ConnectionError {
    /// Machine-readable name, without numbers.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionError::NoAnswer(_) => "no_answer",
            ConnectionError::TimedOut(_) => "timed_out",
            ConnectionError::Silent => "silent",
            ConnectionError::Reset => "reset",
            ConnectionError::FalseReceipt => "false_receipt",
            ConnectionError::Aborted => "aborted",
        }
    }
}
