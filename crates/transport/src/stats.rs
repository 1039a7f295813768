//! Statistics of a connection, for users and reports.

use ccplane_units::Duration;

use crate::connection::Connection;

/// Statistics of a connection at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Bytes written by the application.
    pub written: u64,
    /// Written bytes that were sent at least once.
    pub sent: u64,
    /// Written bytes that are acknowledged.
    pub acked: u64,
    /// Bytes received in order.
    pub received: u64,
    /// Retransmitted segments.
    pub retransmitted: u32,
    /// Segments marked lost, including those marked spuriously.
    pub lost: u32,
    /// Retransmission timeouts.
    pub timeouts: u16,
    /// Packets delivered, by cumulative or selective acknowledgement; wraps.
    pub delivered: u32,
    /// Data packets that the peer received with CE; wraps.
    pub marked: u32,
    /// Acknowledgements whose time stamps are implausible and therefore gave no sample of the
    /// one-way delay.
    pub samples_dropped: u32,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Slow-start threshold, bytes.
    pub ssthresh: u64,
    /// Pacing rate, bytes/s; 0 when not paced.
    pub pacing_rate: u64,
    /// Packets in flight.
    pub in_flight: u32,
    /// Smoothed RTT; zero before the first sample.
    pub srtt: Duration,
    /// Minimum RTT; zero before the first sample.
    pub min_rtt: Duration,
    /// Retransmission timeout before any backoff.
    pub rto: Duration,
}

impl ConnectionStats {
    pub(crate) fn from_connection(connection: &Connection) -> ConnectionStats {
        ConnectionStats {
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
