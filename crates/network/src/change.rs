//! Changes of a network while it runs.

use ccplane_qdisc::{DelayModel, LineSpec, LossModel};

use crate::network::{LinkId, NodeId};

/// Change of a network's links or routes.
#[derive(Clone, Debug)]
pub enum NetworkChange {
    /// Replaces the line of a link. Queued packets are replanned; bytes already transmitted stay
    /// transmitted.
    Line(LinkId, LineSpec),
    /// Replaces the delay of a link for packets still in its queue. Later packets never overtake
    /// earlier ones.
    Delay(LinkId, DelayModel),
    /// Replaces the random loss of a link.
    Loss(LinkId, LossModel),
    /// Takes a link down: packets sent to it are lost, and routes avoid it where possible. Packets
    /// on the link still arrive.
    Down(LinkId),
    /// Brings a link up.
    Up(LinkId),
    /// Routes packets at the first node to the second, a host, over this link.
    Route(NodeId, NodeId, LinkId),
}

impl NetworkChange {
    /// Returns the link that changes.
    pub fn link(&self) -> Option<LinkId> {
        match self {
            NetworkChange::Line(link, _)
            | NetworkChange::Delay(link, _)
            | NetworkChange::Loss(link, _) => Some(*link),
            NetworkChange::Down(link) | NetworkChange::Up(link) => Some(*link),
            NetworkChange::Route(..) => None,
        }
    }
}
