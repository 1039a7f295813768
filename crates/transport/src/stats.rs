//! Figures of a connection, for people and reports.

use ccplane_units::Duration;

use crate::connection::Connection;

/// Figures of a connection at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Bytes that the application wrote.
    pub written: u64,
    /// Bytes of them that were sent at least once.
    pub sent: u64,
    /// Bytes of them that are acknowledged.
    pub acked: u64,
    /// Bytes that arrived in order.
    pub received: u64,
    /// Segments sent again.
    pub retransmitted: u32,
    /// Segments that were taken for lost, rightly or not.
    pub lost: u32,
    /// Retransmission timeouts.
    pub timeouts: u16,
    /// Packets delivered, by cumulative or selective acknowledgement; wraps.
    pub delivered: u32,
    /// Packets of data sent from here that arrived with CE; wraps.
    pub marked: u32,
    /// Acknowledgements whose time stamps cannot be true, and brought no sample of the one-way
    /// delay.
    pub samples_dropped: u32,
    /// The congestion window, bytes.
    pub cwnd: u64,
    /// The slow-start threshold, bytes.
    pub ssthresh: u64,
    /// The pacing rate, bytes/s; 0 when not paced.
    pub pacing_rate: u64,
    /// Packets in flight.
    pub in_flight: u32,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    /// The least RTT; zero before the first sample.
    pub min_rtt: Duration,
    /// The retransmission timeout now, before any backoff.
    pub rto: Duration,
}

impl Stats {
    pub(crate) fn of(connection: &Connection) -> Stats {
        Stats {
            written: connection.written,
            sent: connection.flight.cut_offset(),
            acked: connection.flight.una_offset(),
            received: connection.receiver.offset,
            retransmitted: connection.retransmitted,
            lost: connection.flight.lost_total(),
            timeouts: connection.timeouts,
            delivered: connection.rate.delivered(),
            marked: connection.ce_packets,
            samples_dropped: connection.one_way().dropped(),
            cwnd: connection.cwnd(),
            ssthresh: connection.ssthresh(),
            pacing_rate: connection.rate(),
            in_flight: connection.in_flight(),
            srtt: connection.srtt(),
            min_rtt: connection.min_rtt(),
            rto: connection.rto(),
        }
    }
}
