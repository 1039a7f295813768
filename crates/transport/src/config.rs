//! What an owner chooses for a connection.

use ccplane_qdisc::Ecn;
use ccplane_units::{Duration, Rate};

/// What an owner chooses for a connection. Connections share it by `Arc`, so that each of a hundred
/// thousand costs 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum segment size (MSS): payload bytes. The smaller value of both ends counts. A peer's
    /// value below 48 is taken as 48. The default, 1448, fills an Ethernet frame under IPv4 with
    /// time stamps.
    pub mss: u16,
    /// Header bytes of a segment on the wire: 52 is IPv4 and TCP with time stamps. Only the pacer,
    /// the simulator and figures use it.
    pub header_bytes: u16,
    /// Initial congestion window, segments (RFC 6928: 10). Larger finishes short flows sooner and
    /// overflows small buffers.
    pub initial_window: u16,
    /// JumpStart (Liu, Allman, Jin and Wang, PFLDnet 2007): the first window holds everything that
    /// was written before the handshake ended, and slow start is skipped. Use it with
    /// [`pacing`](Config::pacing), which spreads the window over the first round trip. It overflows
    /// the queue of a path that cannot carry so much.
    pub jump_start: bool,
    /// Receive buffer: bytes held for an application that does not read. Below the path's
    /// bandwidth-delay product it limits throughput.
    pub receive_buffer: u32,
    /// The application takes every byte at once and never calls `read`.
    pub discard: bool,
    /// At least one acknowledgement for every so many segments. 1 switches delayed acknowledgements
    /// off. RFC 5681, 4.2 allows 2.
    pub ack_every: u8,
    /// Longest delay of an acknowledgement. Linux: 40 ms. Longer slows small windows down, shorter
    /// sends more acknowledgements.
    pub ack_delay: Duration,
    /// Most packets of one ACK that slow start of the native controls counts: L of RFC 3465, which
    /// says 2. 0 means no limit, as in Linux. Below the receiver's `ack_every` it slows slow start
    /// down. A high limit lets a stretched ACK cause a burst.
    pub growth_limit: u8,
    /// So many segments at the beginning of a stream are acknowledged at once, so that slow start
    /// sees each of them. Linux: 16.
    pub quick_acks: u8,
    /// The RTO is at least the smoothed RTT plus this. Linux: 200 ms. RFC 6298, 2.4 says 1 s for
    /// the whole RTO. Too small, and a pause of the peer looks like a loss. Too large, and a lost
    /// tail waits long.
    pub min_rto: Duration,
    /// The RTO before the first RTT sample (RFC 6298, 2.1: 1 s). The handshake uses it too.
    pub initial_rto: Duration,
    /// Longest RTO after backoff. Linux: 120 s. RFC 6298, 2.5 allows any of at least 60 s.
    pub max_rto: Duration,
    /// The connection is given up after so many timeouts in a row. Linux: 15.
    pub max_retries: u8,
    /// The same for the handshake. Linux: 6.
    pub open_retries: u8,
    /// The connection is given up when the peer was not heard for so long; `Duration::MAX`: never.
    pub idle_timeout: Duration,
    /// Spread packets over the RTT: at 200 % of cwnd/srtt in slow start and 120 % after it, as
    /// Linux. A rate that the congestion control sets is kept to in any case.
    pub pacing: bool,
    /// Packets due within this time leave together as one batch. A driver that wakes up late or
    /// sends in batches needs it to reach its rate. Limits: a quarter of the RTT and 64 KiB. Larger
    /// makes longer bursts, smaller wakes the driver more often. Linux sizes bursts for about 1 ms.
    pub pacing_quantum: Duration,
    /// The owner's limit on the sending rate, headers included. No control exceeds it over any time
    /// longer than two quanta. A connection under a limit is always paced.
    pub max_rate: Option<Rate>,
    /// What data carries in its ECN field; [`Ecn::NotEct`] switches ECN off.
    pub ecn: Ecn,
    /// Put time stamps t1..t4 on data and acknowledgements. Both ends have to.
    pub stamps: bool,
    /// After an idle time of more than an RTO the window halves for every RTO (RFC 2861, as Linux).
    pub restart_after_idle: bool,
    /// RC3: sends the end of the stream outside of the window, in classes below class 0. `None`:
    /// the stream goes in order.
    pub rc3: Option<Rc3>,
    /// The number of the first segment, the same at both ends. Tests begin just below the wrap.
    #[doc(hidden)]
    pub first_number: u32,
}

/// RC3 (Mittal et al., NSDI 2014): buffered data is sent from its end backwards, in classes below
/// class 0, until it meets what class 0 has sent from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rc3 {
    /// How many classes RC3 uses, from class 1 on: 1 to 4, other values are clamped. With one
    /// class, long flows compete with short ones there. Each further class keeps flows of ten times
    /// the size apart from the others (section 2 of the paper).
    pub levels: u8,
    /// Segments from the end that are sent in class 1 (the paper: 40). Each further class takes ten
    /// times as many, and the last takes the rest. Fewer put the ends of short flows behind those
    /// of long ones, more let the ends of long flows compete with more short flows.
    pub first: u32,
    /// Most segments between the first unacknowledged one and the end that RC3 starts from. Each
    /// takes 32 bytes here: the default takes 4 MB when 190 MB are buffered. Fewer leave capacity
    /// of a long fast path unused.
    pub ahead: u32,
    /// RC3 stops where the path does not keep the marking, or where class 0 is delayed because of
    /// it.
    pub verify: bool,
}

impl Default for Rc3 {
    /// The paper's levels, verified.
    fn default() -> Rc3 {
        Rc3 {
            levels: Rc3::MOST_LEVELS,
            first: 40,
            ahead: 1 << 17,
            verify: true,
        }
    }
}

impl Rc3 {
    /// As many levels as there can be, which the paper uses.
    pub const MOST_LEVELS: u8 = 4;

    /// The class of the segment at this place from the end; the last one's is 1.
    pub fn class_at(&self, place: u64) -> u8 {
        let levels = self.levels.clamp(1, Rc3::MOST_LEVELS);
        let (mut class, mut share) = (1, u64::from(self.first));
        let mut reach = share;
        while class < levels && place > reach {
            class += 1;
            share = share.saturating_mul(10);
            reach = reach.saturating_add(share);
        }
        class
    }
}

impl Default for Config {
    /// As Linux comes, with a receive buffer that does not limit.
    fn default() -> Config {
        Config {
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

/// What time stamps take in every packet, bytes: a TCP option of three stamps of 32 bits with its
/// experiment's number (RFC 6994), as ccplane's datapath in Linux carries them.
const STAMPS: u16 = 16;

impl Config {
    /// With [`stamps`](Config::stamps) in packets of the same size. A receiver acknowledges each
    /// packet that is stamped at once.
    #[must_use]
    pub fn stamped(self) -> Config {
        Config {
            mss: self.mss.saturating_sub(STAMPS).max(1),
            header_bytes: self.header_bytes.saturating_add(STAMPS),
            stamps: true,
            ..self
        }
    }

    /// [`max_rate`](Config::max_rate) in bytes/s; `u64::MAX`: no limit.
    #[inline(always)]
    pub(crate) fn max_bytes_per_sec(&self) -> u64 {
        self.max_rate.map_or(u64::MAX, Rate::bytes_per_sec)
    }
}
