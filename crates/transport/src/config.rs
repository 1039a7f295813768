//! Configuration of a connection.

use ccplane_qdisc::Ecn;
use ccplane_units::{Duration, Rate};

/// Configuration of a connection. Connections share it by `Arc`, which costs each of them 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// Maximum segment size (MSS), bytes of payload. The smaller value of both ends applies. A
    /// value below 48 from the peer is raised to 48. The default, 1448, fills an Ethernet frame
    /// under IPv4 with TCP timestamps.
    pub mss: u16,
    /// Header bytes per segment on the wire: 52 is IPv4 and TCP with timestamps. Used only by the
    /// pacer, the simulator and metrics.
    pub header_bytes: u16,
    /// Initial congestion window, segments (RFC 6928: 10). A larger window finishes short flows
    /// sooner but overflows small buffers.
    pub initial_window: u16,
    /// JumpStart (Liu, Allman, Jin and Wang, PFLDnet 2007): the first window holds everything
    /// written before the handshake ended, and slow start is skipped. Use it with
    /// [`pacing`](TransportConfig::pacing), which spreads the window over the first round trip. It
    /// overflows the queue of a path that cannot carry the whole window.
    pub jump_start: bool,
    /// Receive buffer: bytes held until the application reads them. Below the path's
    /// bandwidth-delay product it limits throughput.
    pub receive_buffer: u32,
    /// The application takes every byte at once and never calls `read`.
    pub discard: bool,
    /// Send an acknowledgement at least every `ack_every` segments. 1 disables delayed
    /// acknowledgements. RFC 5681 section 4.2 allows 2.
    pub ack_every: u8,
    /// Maximum delay of an acknowledgement. Linux: 40 ms. A longer delay slows small windows down;
    /// a shorter one sends more acknowledgements.
    pub ack_delay: Duration,
    /// Maximum packets per ACK that slow start of the native controls counts: L of RFC 3465, which
    /// recommends 2. 0 means no limit, as in Linux. A value below the receiver's `ack_every` slows
    /// slow start down. A high value lets a stretched ACK cause a burst.
    pub growth_limit: u8,
    /// Number of segments at the start of a stream that are acknowledged immediately, so that slow
    /// start gets an ACK for each. Linux: 16.
    pub quick_acks: u8,
    /// Minimum of RTO - SRTT. Linux: 200 ms. RFC 6298 section 2.4 sets a minimum of 1 s for the
    /// whole RTO. If it is too small, a pause of the peer looks like a loss. If it is too large, a
    /// lost tail waits long.
    pub min_rto: Duration,
    /// RTO before the first RTT sample (RFC 6298 section 2.1: 1 s). The handshake uses it too.
    pub initial_rto: Duration,
    /// Maximum RTO after backoff. Linux: 120 s. RFC 6298 section 2.5 allows any value of at least
    /// 60 s.
    pub max_rto: Duration,
    /// Consecutive timeouts after which the connection fails. Linux: 15.
    pub max_retries: u8,
    /// Consecutive timeouts after which the handshake fails. Linux: 6.
    pub open_retries: u8,
    /// Time without a segment from the peer after which the connection fails; `Duration::MAX`
    /// disables it.
    pub idle_timeout: Duration,
    /// Spread packets over the RTT: at 200 % of cwnd/SRTT in slow start and 120 % after it, as in
    /// Linux. A rate set by the congestion control applies in any case.
    pub pacing: bool,
    /// Packets due within this time are sent together as one batch. A driver that wakes up late or
    /// sends in batches needs it to reach its rate. A batch is limited to a quarter of the RTT and
    /// to 64 KiB. A larger quantum makes longer bursts; a smaller one wakes the driver more often.
    /// Linux sizes bursts for about 1 ms.
    pub pacing_quantum: Duration,
    /// Operator's limit on the sending rate, headers included. No control exceeds it over any time
    /// longer than two quanta. A connection with a limit is always paced.
    pub max_rate: Option<Rate>,
    /// ECN codepoint of data packets; [`Ecn::NotEct`] disables ECN.
    pub ecn: Ecn,
    /// Put time stamps t1 to t4 on data and acknowledgements. Both ends must enable it.
    pub stamps: bool,
    /// After an idle time longer than an RTO, halve the window once per RTO (RFC 2861, as in
    /// Linux).
    pub restart_after_idle: bool,
    /// RC3: sends the end of the stream outside the window, in classes below class 0. `None` sends
    /// the stream in order.
    pub rc3: Option<Rc3>,
    /// Number of the first segment, equal at both ends. Tests start just below the wrap.
    #[doc(hidden)]
    pub first_number: u32,
}

/// RC3 (Mittal et al., NSDI 2014): sends buffered data from its end backwards, in classes below
/// class 0, until it meets the data that class 0 has sent from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rc3 {
    /// Number of classes that RC3 uses, from class 1 on: 1 to 4; other values are clamped. With one
    /// class, long flows compete with short ones there. Each further class separates flows of ten
    /// times the size (section 2 of the paper).
    pub levels: u8,
    /// Segments counted from the end that are sent in class 1 (the paper: 40). Each further class
    /// takes ten times as many, and the last takes the rest. A smaller number puts the ends of
    /// short flows behind those of long flows. A larger one lets the ends of long flows compete
    /// with more short flows.
    pub first_level_segments: u32,
    /// Maximum segments between the first unacknowledged one and the segment from which RC3 starts.
    /// Each takes 32 bytes of memory: the default takes 4 MB when 190 MB are buffered. A smaller
    /// number leaves capacity of a long fast path unused.
    pub distance_max: u32,
    /// Stop RC3 where the path does not keep the DSCP marking, or where RC3 delays class 0.
    pub verify: bool,
}

impl Default for Rc3 {
    /// The paper's levels, with verification.
    fn default() -> Rc3 {
        Rc3 {
            levels: Rc3::LEVELS_MAX,
            first_level_segments: 40,
            distance_max: 1 << 17,
            verify: true,
        }
    }
}

impl Rc3 {
    /// Maximum number of levels, as in the paper.
    pub const LEVELS_MAX: u8 = 4;

    /// Returns the class of the segment at distance `place` from the end; the last segment has
    /// distance 1.
    pub fn class_at(&self, distance: u64) -> u8 {
        let levels = self.levels.clamp(1, Rc3::LEVELS_MAX);
        let (mut class, mut share) = (1, u64::from(self.first_level_segments));
        let mut reach = share;
        while class < levels && distance > reach {
            class += 1;
            share = share.saturating_mul(10);
            reach = reach.saturating_add(share);
        }
        class
    }
}

impl Default for TransportConfig {
    /// Linux's defaults, with a receive buffer large enough not to limit throughput.
    fn default() -> TransportConfig {
        TransportConfig {
            mss: 1448,
            header_bytes: 52,
            initial_window: 10,
            jump_start: false,
            receive_buffer: 1 << 30,
            discard: false,
            ack_every: 2,
            ack_delay: Duration::from_millis(40),
            growth_limit: 0,
            quick_acks: 16,
            min_rto: Duration::from_millis(200),
            initial_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(120),
            max_retries: 15,
            open_retries: 6,
            idle_timeout: Duration::MAX,
            pacing: false,
            pacing_quantum: Duration::ZERO,
            max_rate: None,
            ecn: Ecn::NotEct,
            stamps: false,
            restart_after_idle: true,
            rc3: None,
            first_number: 0,
        }
    }
}

/// Bytes that time stamps take in each packet: a TCP option with an experiment identifier (RFC
/// 6994) and three stamps of 32 bits, as in ccplane's datapath in Linux.
const STAMP_OPTION_BYTES: u16 = 16;

impl TransportConfig {
    /// Enables [`stamps`](TransportConfig::stamps) without changing the packet size. A receiver
    /// acknowledges each stamped packet immediately.
    #[must_use]
    pub fn stamped(self) -> TransportConfig {
        TransportConfig {
            mss: self.mss.saturating_sub(STAMP_OPTION_BYTES).max(1),
            header_bytes: self.header_bytes.saturating_add(STAMP_OPTION_BYTES),
            stamps: true,
            ..self
        }
    }

    /// [`max_rate`](TransportConfig::max_rate) in bytes/s; `u64::MAX`: no limit.
    #[inline(always)]
    pub(crate) fn max_bytes_per_sec(&self) -> u64 {
        self.max_rate.map_or(u64::MAX, Rate::bytes_per_sec)
    }
}
