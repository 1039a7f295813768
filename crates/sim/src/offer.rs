//! RCP headers of packets: the lowest rate offered by the routers towards the receiver, echoed to
//! the sender. Stored apart from the packets, because few simulations use RCP.

use ccplane_qdisc::Stamp;
use ccplane_transport::{Native, SegmentKind};
use ccplane_units::{Duration, Rate, Time};

use crate::World;
use crate::end::{ControllerKind, FlowEndpoint};

/// RCP headers of all packets and endpoints.
#[derive(Debug, Default)]
pub(crate) struct RcpHeaders {
    /// Indexed by packet.
    carried: Vec<RcpHeader>,
    /// Last header received, indexed by endpoint.
    heard: Vec<RcpHeader>,
}

/// RCP header with the send time of the packet that was stamped.
#[derive(Clone, Copy, Debug)]
struct RcpHeader {
    stamp: Stamp,
    sent: Time,
    way: OfferPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferPath {
    /// No header.
    None,
    /// Towards the receiver: queues lower the rate.
    Out,
    /// Echo to the sender: queues leave it unchanged.
    Back,
}

impl Default for RcpHeader {
    fn default() -> RcpHeader {
        let (rate, rtt) = (Rate::from_bytes_per_sec(u64::MAX), Duration::ZERO);
        RcpHeader {
            stamp: Stamp { rate, rtt },
            sent: Time::ZERO,
            way: OfferPath::None,
        }
    }
}

impl RcpHeaders {
    /// Returns true if any packet carries a header.
    #[inline(always)]
    pub fn any(&self) -> bool {
        !self.carried.is_empty()
    }

    /// Sets the header of a packet that endpoint `e` sends: the sender requests an unlimited rate,
    /// the receiver echoes the last header received.
    pub fn stamp(&mut self, now: Time, id: u32, e: u32, rtt: Duration) {
        let offer = if e & 1 == 0 {
            let rate = Rate::from_bytes_per_sec(u64::MAX);
            RcpHeader {
                stamp: Stamp { rate, rtt },
                sent: now,
                way: OfferPath::Out,
            }
        } else {
            let heard = self.heard.get(e as usize).copied().unwrap_or_default();
            RcpHeader {
                way: if heard.way == OfferPath::None {
                    OfferPath::None
                } else {
                    OfferPath::Back
                },
                ..heard
            }
        };
        *entry_mut(&mut self.carried, id) = offer;
    }

    /// Returns the stamp that queues may lower.
    #[inline(always)]
    pub fn stamp_of(&self, id: u32) -> Option<Stamp> {
        let offer = self.carried.get(id as usize)?;
        (offer.way == OfferPath::Out).then_some(offer.stamp)
    }

    /// Stores the stamp lowered by a queue.
    pub fn lower(&mut self, id: u32, stamp: Stamp) {
        entry_mut(&mut self.carried, id).stamp = stamp;
    }

    /// Clears the header of a packet that left the network.
    #[inline(always)]
    pub fn forget(&mut self, id: u32) {
        if let Some(offer) = self.carried.get_mut(id as usize) {
            offer.way = OfferPath::None;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        (self.carried.capacity() + self.heard.capacity()) * size_of::<RcpHeader>()
    }
}

/// Returns the entry at this index and grows the list if needed.
fn entry_mut(offers: &mut Vec<RcpHeader>, at: u32) -> &mut RcpHeader {
    let at = at as usize;
    if offers.len() <= at {
        offers.resize(at + 1, RcpHeader::default());
    }
    &mut offers[at]
}

impl World {
    /// Processes the RCP header of a packet that arrived at its host.
    #[cold]
    pub(crate) fn receive_stamp(&mut self, id: u32) {
        let offer = self
            .packets
            .offers
            .carried
            .get(id as usize)
            .copied()
            .unwrap_or_default();
        let packet = self.packets.get(id);
        let (e, kind) = (packet.end, packet.segment.kind);
        let Some(end) = self
            .ends
            .get_mut(e as usize)
            .filter(|end| end.flow == packet.flow && end.is(FlowEndpoint::RCP_STAMPED))
        else {
            return;
        };
        match offer.way {
            OfferPath::None => {}
            OfferPath::Out => *entry_mut(&mut self.packets.offers.heard, e) = offer,
            OfferPath::Back => {
                if let ControllerKind::Native(at) = end.control.get()
                    && let Some(native) = self.natives.get_mut(at)
                    && let Native::Rcp(rcp) = native
                {
                    rcp.offer(offer.stamp.rate, self.now.since(offer.sent));
                    // The server's reply carries the initial rate. ACKs trigger the controller
                    // themselves.
                    if kind == SegmentKind::OpenReply
                        && let Some(connection) = &mut end.connection
                    {
                        connection.on_control_deadline(self.now, native);
                    }
                }
            }
        }
    }
}
