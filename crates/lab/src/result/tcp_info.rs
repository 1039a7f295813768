//! State of a TCP socket, like Linux's `tcp_info`.

use serde::{Deserialize, Serialize};

/// State of a socket at one time. Windows and counts are in segments where the kernel counts
/// segments, otherwise in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpInfo {
    /// 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// True if the two ends negotiated ECN.
    #[serde(default)]
    pub ecn: bool,
    /// True if the latest delivery-rate sample was application-limited.
    pub app_limited: bool,
    /// Maximum segment size, bytes of payload.
    pub mss: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments marked lost and not yet retransmitted.
    pub lost: u32,
    /// Smoothed round-trip time, µs.
    pub srtt_us: u32,
    /// Mean deviation of the round-trip time, µs.
    pub rttvar_us: u32,
    /// Slow-start threshold, segments; 0x7fffffff before the first loss.
    pub ssthresh: u32,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Segments retransmitted since the connection began.
    pub retrans: u32,
    /// Pacing rate, bytes/s; all ones without pacing.
    pub pacing_rate: u64,
    /// Segments that the peer reported with CE since the connection began.
    #[serde(default)]
    pub delivered_ce: u32,
    /// Bytes acknowledged since the connection began.
    pub bytes_acked: u64,
    /// Minimum round-trip time, µs.
    pub min_rtt_us: u32,
    /// Latest delivery-rate sample, bytes/s.
    pub delivery_rate: u64,
    /// Time with data to send, µs.
    pub busy_us: u64,
    /// Time in which the receiver's window limited the sender, µs.
    pub rwnd_limited_us: u64,
    /// Time in which the sender's buffer limited the sender, µs.
    pub sndbuf_limited_us: u64,
    /// Bytes retransmitted since the connection began.
    pub bytes_retrans: u64,
}
