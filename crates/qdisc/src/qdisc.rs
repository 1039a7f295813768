//! Parts common to all queues: packets, backlogs, limits and the [`Qdisc`] trait.

use ccplane_units::{Duration, Rate, Time};

/// Number of priority classes, from 0 (highest) to 7, as in 802.1p.
pub const CLASS_COUNT: u8 = 8;

/// ECN field of a packet (RFC 3168 section 5; RFC 9331 section 4 for the L4S meaning of ECT(1) and
/// CE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// 00: the transport is not ECN-capable; a queue can only drop the packet.
    #[default]
    NotEct = 0b00,
    /// 01: ECN-capable, with scalable congestion control (L4S).
    Ect1 = 0b01,
    /// 10: ECN-capable; the transport responds to a mark as to a loss.
    Ect0 = 0b10,
    /// 11: congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// Decodes the two low bits of the traffic class (TOS byte).
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns true if a queue may mark the packet instead of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

/// RCP header of a packet, read and written by [`Rcp`](crate::Rcp) queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Lowest rate offered by the queues so far. The sender initialises it with its desired rate.
    pub rate: Rate,
    /// RTT last measured by the sender; zero if unknown.
    pub rtt: Duration,
}

/// Properties of a packet that queues use. Only the size is required; the other methods serve
/// particular queues.
///
/// ```
/// use ccplane_qdisc::Packet;
///
/// struct Frame(Vec<u8>);
///
/// impl Packet for Frame {
///     fn bytes(&self) -> u32 {
///         self.0.len() as u32
///     }
/// }
/// ```
pub trait Packet {
    /// Returns the size in bytes as it occupies the line.
    fn bytes(&self) -> u32;

    /// Returns a hash of the flow. Fair queues classify packets by it.
    fn flow_hash(&self) -> u32 {
        0
    }

    /// Returns the priority class: 0 is served first.
    fn class(&self) -> u8 {
        0
    }

    /// Returns the ECN field.
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    /// Sets the ECN field to [`Ecn::Ce`]. Queues call it on ECN-capable packets only.
    fn mark_ce(&mut self) {}

    /// Returns the RCP header, if there is one.
    fn rate_stamp(&mut self) -> Option<&mut Stamp> {
        None
    }
}

/// Marks the packet if it is ECN-capable. If it returns false, the queue has to drop the packet.
pub(crate) fn try_mark(packet: &mut impl Packet) -> bool {
    let capable = packet.ecn().is_capable();
    if capable {
        packet.mark_ce();
    }
    capable
}

/// Backlog of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Backlog {
    /// Adds a packet of this size.
    pub fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// Returns the backlog with a packet of this size added.
    #[inline]
    pub(crate) fn with_packet(self, bytes: u32) -> Backlog {
        Backlog {
            packets: self.packets + 1,
            bytes: self.bytes + u64::from(bytes),
        }
    }

    /// Removes a packet of this size.
    pub fn remove(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }
}

/// Buffer size of a queue.
///
/// Only waiting packets count. The packet in transmission has left the queue, as in a router whose
/// transmitter holds it. With too small a limit the link idles after each loss; too large a limit
/// only adds delay. A single Reno flow needs one bandwidth-delay product to keep the link busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Maximum number of packets.
    Packets(u64),
    /// Maximum number of bytes.
    Bytes(u64),
    /// No limit: the queue never overflows.
    Unlimited,
}

impl Limit {
    /// Returns true if a packet of this size fits next to `waiting`.
    #[inline]
    pub fn admits(self, waiting: Backlog, bytes: u32) -> bool {
        match self {
            Limit::Packets(limit) => waiting.packets < limit,
            Limit::Bytes(limit) => waiting.bytes + u64::from(bytes) <= limit,
            Limit::Unlimited => true,
        }
    }

    /// Returns true if `waiting` is over the limit.
    #[inline]
    pub fn is_exceeded_by(self, waiting: Backlog) -> bool {
        match self {
            Limit::Packets(limit) => waiting.packets > limit,
            Limit::Bytes(limit) => waiting.bytes > limit,
            Limit::Unlimited => false,
        }
    }

    /// Formats the limit for people, in bytes and in packets of `mtu` bytes.
    pub fn describe(self, mtu: u32) -> String {
        let mtu = u64::from(mtu.max(1));
        match self {
            Limit::Packets(packets) => {
                format!("{packets} packets ({} bytes)", packets.saturating_mul(mtu))
            }
            Limit::Bytes(bytes) => format!("{bytes} bytes ({} packets of {mtu})", bytes / mtu),
            Limit::Unlimited => "no limit".into(),
        }
    }
}

/// Reason of a packet drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue was full.
    Full,
    /// The packet was queued, but had to make room for a packet of higher priority or of a flow
    /// with a shorter queue.
    PushedOut,
    /// The packet is larger than the burst of a token bucket.
    TooLarge,
    /// Active queue management dropped it as a congestion signal.
    Aqm,
    /// The packet exceeded the rate of a policer.
    Policed,
    /// Random loss on the path ([`Loss`](crate::Loss)).
    Lost,
}

/// Result of enqueuing a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet was queued.
    Queued,
    /// The packet was dropped and passed to [`Drops`].
    Dropped(DropReason),
}

/// Receiver of dropped packets, both the arriving packet and packets that were queued.
///
/// A closure is a receiver:
///
/// ```
/// use ccplane_qdisc::{DropReason, Drops};
///
/// let mut lost = 0;
/// let mut count = |_packet: u32, _reason: DropReason| lost += 1;
/// count.dropped(7, DropReason::Full);
/// assert_eq!(lost, 1);
/// ```
pub trait Drops<P> {
    /// Receives a dropped packet.
    fn dropped(&mut self, packet: P, reason: DropReason);
}

impl<P, F: FnMut(P, DropReason)> Drops<P> for F {
    fn dropped(&mut self, packet: P, reason: DropReason) {
        self(packet, reason)
    }
}

/// Queueing discipline. Times of successive calls must not decrease, and the caller dequeues what
/// is ready (`next_ready() <= now`) before it enqueues more.
///
/// ```
/// use ccplane_qdisc::{Backlog, DropReason, Drops, Packet, Qdisc, Verdict};
/// use ccplane_units::Time;
///
/// /// Last in, first out, with room for `limit` packets.
/// struct Stack<P> {
///     packets: Vec<P>,
///     limit: usize,
/// }
///
/// impl<P: Packet> Qdisc<P> for Stack<P> {
///     fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
///         if self.packets.len() == self.limit {
///             drops.dropped(packet, DropReason::Full);
///             return Verdict::Dropped(DropReason::Full);
///         }
///         self.packets.push(packet);
///         Verdict::Queued
///     }
///
///     fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
///         self.packets.pop()
///     }
///
///     fn next_ready(&self) -> Option<Time> {
///         (!self.packets.is_empty()).then_some(Time::ZERO)
///     }
///
///     fn backlog(&self) -> Backlog {
///         let bytes = self.packets.iter().map(|packet| u64::from(packet.bytes()));
///         Backlog {
///             packets: self.packets.len() as u64,
///             bytes: bytes.sum(),
///         }
///     }
/// }
/// ```
pub trait Qdisc<P: Packet> {
    /// Enqueues a packet. Dropped packets go to `drops`: this packet with the reason of the
    /// verdict, or queued packets with [`DropReason::PushedOut`]. The verdict is
    /// [`Verdict::Dropped`] if and only if this packet was dropped. A [`Tbf`](crate::Tbf) in front
    /// of active queue management is the exception: it dequeues its next packet here, so queued
    /// packets are also dropped with [`DropReason::Aqm`].
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict;

    /// Returns the next packet that is ready at `now`. `None` if there is none: active queue
    /// management may drop the whole backlog. Drops have the reason [`DropReason::Aqm`] only.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P>;

    /// Returns the time of the next [`dequeue`](Qdisc::dequeue), or `None` if the queue is empty. A
    /// queue that never delays packets returns [`Time::ZERO`].
    fn next_ready(&self) -> Option<Time>;

    /// Returns the backlog.
    fn backlog(&self) -> Backlog;
}
