//! What every queue has in common: packets, backlog, limits, and the [`Qdisc`] trait.

use ccplane_units::Time;

/// What a queue needs to know about a packet.
pub trait Packet {
    /// Size in bytes, everything that the line has to carry included.
    fn bytes(&self) -> u32;
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

    /// A packet of this size no longer waits.
    pub fn remove(&mut self, bytes: u32) {
        self.packets -= 1;
        self.bytes -= u64::from(bytes);
    }
}

/// How much a queue holds before it drops what comes.
///
/// Only waiting packets count: the one that the line is carrying has left the queue, as in a router whose
/// transmitter holds the packet being sent. Too small a limit leaves the line idle after each loss, too large a one
/// only adds delay; one bandwidth-delay product is what a single Reno flow needs to keep the line busy.
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
    pub fn admits(self, waiting: Backlog, bytes: u32) -> bool {
        match self {
            Limit::Packets(limit) => waiting.packets < limit,
            Limit::Bytes(limit) => waiting.bytes + u64::from(bytes) <= limit,
            Limit::Unlimited => true,
        }
    }

    /// As people read it, in bytes and in full packets of `mtu` bytes.
    pub fn describe(self, mtu: u32) -> String {
        let mtu = u64::from(mtu.max(1));
        match self {
            Limit::Packets(packets) => format!("{packets} packets ({} bytes)", packets.saturating_mul(mtu)),
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

/// A queue. Calls come with times that never decrease, and the caller takes what is ready (`next_ready() <= now`)
/// before it adds more.
pub trait Qdisc<P: Packet> {
    /// Takes a packet in, or drops it or another; whatever is dropped comes back through `drops`.
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict;

    /// The next packet that leaves at or before `now`.
    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P>;

    /// When to call [`dequeue`](Qdisc::dequeue) next; `None` if nothing is queued. A queue that never makes a packet
    /// wait says [`Time::ZERO`].
    fn next_ready(&self) -> Option<Time>;

    /// What is queued.
    fn backlog(&self) -> Backlog;
}
