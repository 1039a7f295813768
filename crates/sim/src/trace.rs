//! Looking at every packet. It costs nothing where nobody looks: the simulation is compiled without
//! it.

use ccplane_qdisc::DropReason;
use ccplane_transport::{Segment, Side};
use ccplane_units::Time;

use crate::{FlowId, LinkId, NodeId};

/// What happens to a packet at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It comes to the link's queue and is let in.
    Queued,
    /// It is dropped, by the queue or at random, also after it was let in.
    Dropped(DropReason),
    /// It comes out at the link's end.
    Arrived,
}

/// A packet as a tracer sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What happens to it.
    pub step: Step,
    /// Where.
    pub link: LinkId,
    /// By which it is known as long as it is under way; later packets have the same number again.
    pub id: u32,
    /// The flow that it belongs to; none for a datagram.
    pub flow: Option<FlowId>,
    /// It goes from the receiver to the sender.
    pub backward: bool,
    /// The host that sent it.
    pub from: NodeId,
    /// The host that it is for.
    pub to: NodeId,
    /// Size on the wire, bytes.
    pub bytes: u32,
    /// What it says.
    pub segment: &'a Segment,
    /// SACK ranges and time stamps, where it has them.
    pub side: Option<&'a Side>,
}

/// Sees every packet at every link.
pub trait Tracer {
    /// Whether there is anything to see it.
    const ON: bool = true;

    /// Something happens to a packet.
    fn see(&mut self, now: Time, seen: &Seen<'_>);
}

/// Nobody looks.
impl Tracer for () {
    const ON: bool = false;

    fn see(&mut self, _now: Time, _seen: &Seen<'_>) {}
}
