//! Invariant of the counters: data sent is acknowledged, in flight, or waiting for retransmission.

use ccplane_sim::Connection;

use super::Violation;
use super::stream::Stream;

/// Compares a sender's counters with the packets seen on the network.
pub fn check(sender: &Connection, stream: &Stream) -> Result<(), Violation> {
    let stats = sender.stats();
    let wrong = |what: String| Err(what);
    if stats.acked > stats.sent || stats.sent > stats.written {
        return wrong(format!(
            "{} written, {} sent, {} acknowledged",
            stats.written, stats.sent, stats.acked
        ));
    }
    if stats.in_flight > sender.outstanding() {
        return wrong(format!(
            "{} packets in flight, but {} outstanding",
            stats.in_flight,
            sender.outstanding()
        ));
    }
    let again = stream.sent - stream.segments();
    if u64::from(stats.retransmitted) != again {
        return wrong(format!(
            "{} segments retransmitted, but {again} observed",
            stats.retransmitted
        ));
    }
    if u64::from(stats.delivered) > stream.sent {
        return wrong(format!(
            "{} packets delivered, but {} sent",
            stats.delivered, stream.sent
        ));
    }
    Ok(())
}
