//! What every queue has in common: packets, backlog, limits, and the [`Qdisc`] trait.

use ccplane_units::{Duration, Rate, Time};

/// Priority classes that a packet can have: 0, the highest, to 7, as 802.1p has them.
pub const MAX_CLASSES: u8 = 8;

/// The two ECN bits of a packet (RFC 3168 section 5; RFC 9331 section 4 for what ECT(1) and CE say
/// of L4S).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// 00: its transport does not understand marks; congestion can only drop it.
    #[default]
    NotEct = 0b00,
    /// 01: it understands marks, and answers them as a scalable congestion control does (L4S).
    Ect1 = 0b01,
    /// 10: it understands marks, and answers one as it would a loss.
    Ect0 = 0b10,
    /// 11: marked; congestion was experienced.
    Ce = 0b11,
}

impl Ecn {
    /// From the two lowest bits of the traffic class (the TOS byte).
    pub const fn from_bits(bits: u8) -> Ecn {
        match bits & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Whether a mark will be understood, so that a queue may mark instead of drop.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

/// What a packet of the Rate Control Protocol carries for [`Rcp`](crate::Rcp) queues on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The lowest rate that the queues passed so far offer to the flow; the sender begins with what
    /// it would like.
    pub rate: Rate,
    /// The round-trip time that the sender measured last; zero while it knows none.
    pub rtt: Duration,
}

/// What a queue needs to know about a packet. Only the size is something every packet has; the rest
/// is for the queues that look at it.
pub trait Packet {
    /// Size in bytes, everything that the line has to carry included.
    fn bytes(&self) -> u32;

    /// A number that packets of one flow share and others most likely do not: fair queues tell
    /// flows apart by it.
    fn flow_hash(&self) -> u32 {
        0
    }

    /// The band in a strict-priority queue: 0 is served first.
    fn class(&self) -> u8 {
        0
    }

    /// The ECN field.
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    /// Sets the ECN field to [`Ecn::Ce`]. Queues call it for packets that are capable of it only.
    fn mark_ce(&mut self) {}

    /// What RCP queues read and write, if the packet has it.
    fn rate_stamp(&mut self) -> Option<&mut Stamp> {
        None
    }
}

/// Marks the packet if it understands marks; otherwise the queue has to drop it.
pub(crate) fn try_mark(packet: &mut impl Packet) -> bool {
    let capable = packet.ecn().is_capable();
    if capable {
        packet.mark_ce();
    }
    capable
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets waiting.
    pub packets: u64,
    /// Bytes waiting.
    pub bytes: u64,
}

impl Backlog {
    /// One more packet of this size waits.
    pub fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    /// This and one more packet of this size.
    #[inline]
    pub(crate) fn with(self, bytes: u32) -> Backlog {
        Backlog {
            packets: self.packets + 1,
            bytes: self.bytes + u64::from(bytes),
        }
    }

    /// A packet of this size no longer waits.
    pub fn remove(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }
}

/// How much a queue holds before it drops what comes.
///
/// Only waiting packets count. The packet being sent has left the queue, as in a router whose
/// transmitter holds it. Too small a limit leaves the line idle after each loss. Too large a one
/// only adds delay. One bandwidth-delay product is what a single Reno flow needs to keep the line
/// busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many packets wait.
    Packets(u64),
    /// At most this many bytes wait.
    Bytes(u64),
    /// Nothing is ever dropped.
    Unlimited,
}

impl Limit {
    /// Whether one more packet of this size may wait.
    #[inline]
    pub fn admits(self, waiting: Backlog, bytes: u32) -> bool {
        match self {
            Limit::Packets(limit) => waiting.packets < limit,
            Limit::Bytes(limit) => waiting.bytes + u64::from(bytes) <= limit,
            Limit::Unlimited => true,
        }
    }

    /// Whether more than this waits.
    #[inline]
    pub fn exceeded(self, waiting: Backlog) -> bool {
        match self {
            Limit::Packets(limit) => waiting.packets > limit,
            Limit::Bytes(limit) => waiting.bytes > limit,
            Limit::Unlimited => false,
        }
    }

    /// As people read it, in bytes and in full packets of `mtu` bytes.
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

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The queue was at its limit.
    Full,
    /// It waited, and had to make room for a packet that the queue prefers: of higher priority or
    /// of a thinner flow.
    PushedOut,
    /// It is larger than anything that the queue ever lets go.
    TooLarge,
    /// Active queue management dropped it, as a signal of congestion.
    Aqm,
    /// It was over the rate of a policer.
    Policed,
    /// Random loss on the path, [`Loss`](crate::Loss).
    Lost,
}

/// What a queue did with the packet it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It waits.
    Queued,
    /// It was dropped, and given to [`Drops`].
    Dropped(DropReason),
}

/// Where a queue puts the packets that it drops, its own arrival or others'.
pub trait Drops<P> {
    /// Takes a dropped packet.
    fn dropped(&mut self, packet: P, reason: DropReason);
}

impl<P, F: FnMut(P, DropReason)> Drops<P> for F {
    fn dropped(&mut self, packet: P, reason: DropReason) {
        self(packet, reason)
    }
}

/// A queue. Calls come with times that never decrease, and the caller takes what is ready
/// (`next_ready() <= now`) before it adds more.
pub trait Qdisc<P: Packet> {
    /// Takes a packet in, or drops it or another; whatever is dropped comes back through `drops`.
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict;

    /// The next packet that leaves at or before `now`. `None` if there is none: active queue
    /// management may drop everything that waited.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P>;

    /// When to call [`dequeue`](Qdisc::dequeue) next; `None` if nothing is queued. A queue that
    /// never makes a packet wait says [`Time::ZERO`].
    fn next_ready(&self) -> Option<Time>;

    /// What is queued.
    fn backlog(&self) -> Backlog;
}
