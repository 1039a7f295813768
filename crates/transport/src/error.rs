//! Reasons why a connection fails.

/// Reason why a connection ended before its streams were complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The peer did not answer the handshake.
    #[error(
        "no reply to {0} connection requests; check that the peer is running and that no firewall \
        drops its packets"
    )]
    NoAnswer(u8),
    /// The maximum of consecutive retransmission timeouts was reached.
    #[error(
        "{0} consecutive retransmission timeouts without an acknowledgement; the path or the peer \
        is down"
    )]
    TimedOut(u8),
    /// No segment arrived within the idle timeout.
    #[error(
        "no packet from the peer within the idle timeout; raise `idle_timeout` if longer pauses \
        are normal"
    )]
    IdleTimeout,
    /// The peer aborted the connection.
    #[error("the peer aborted the connection")]
    Reset,
    /// The peer acknowledged data without proving receipt of its nonces
    /// ([`Connection::require_proof`]).
    ///
    /// [`Connection::require_proof`]: crate::Connection::require_proof
    #[error(
        "the receiver acknowledged data that it did not receive: it conceals losses to get a \
        higher rate, or its software is faulty"
    )]
    FalseReceipt,
    /// The connection was aborted locally.
    #[error("aborted locally")]
    Aborted,
}

impl ConnectionError {
    /// Machine-readable name, without numbers.
    pub fn name(self) -> &'static str {
        match self {
            ConnectionError::NoAnswer(_) => "no_answer",
            ConnectionError::TimedOut(_) => "timed_out",
            ConnectionError::IdleTimeout => "silent",
            ConnectionError::Reset => "reset",
            ConnectionError::FalseReceipt => "false_receipt",
            ConnectionError::Aborted => "aborted",
        }
    }
}
