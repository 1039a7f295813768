//! RCP headers of packets: the lowest rate offered by the routers towards the receiver, echoed to
//! the sender. Stored apart from the packets, because few simulations use RCP.

use ccplane_qdisc::Stamp;
use ccplane_transport::{Native, SegmentKind};
use ccplane_units::{Duration, Rate, Time};

use crate::World;
use crate::endpoint::{ControllerKind, FlowEndpoint};

/// RCP headers of all packets and endpoints.
#[derive(Debug, Default)]
pub(crate) struct RcpHeaders {
    /// Indexed by packet.
    packet_headers: Vec<RcpHeader>,
    /// Last header received, indexed by endpoint.
    received_headers: Vec<RcpHeader>,
}

/// RCP header with the send time of the packet that was stamped.
#[derive(Clone, Copy, Debug)]
struct RcpHeader {
    stamp: Stamp,
    sent_at: Time,
    direction: OfferPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferPath {
    /// No header.
    None,
    /// Towards the receiver: queues lower the rate.
    Forward,
    /// Echo to the sender: queues leave it unchanged.
    Echo,
}

impl Default for RcpHeader {
    fn default() -> RcpHeader {
        let (rate, rtt) = (Rate::from_bytes_per_sec(u64::MAX), Duration::ZERO);
        RcpHeader {
            stamp: Stamp { rate, rtt },
            sent_at: Time::ZERO,
            direction: OfferPath::None,
        }
    }
}

impl RcpHeaders {
    /// Returns true if any packet carries a header.
    #[inline(always)]
    pub fn has_headers(&self) -> bool {
        !self.packet_headers.is_empty()
    }

    /// Sets the header of a packet that endpoint `e` sends: the sender requests an unlimited rate,
    /// the receiver echoes the last header received.
    pub fn stamp(&mut self, now: Time, id: u32, e: u32, rtt: Duration) {
        let offer = if e & 1 == 0 {
            let rate = Rate::from_bytes_per_sec(u64::MAX);
            RcpHeader {
                stamp: Stamp { rate, rtt },
                sent_at: now,
                direction: OfferPath::Forward,
            }
        } else {
            let heard = self
                .received_headers
                .get(e as usize)
                .copied()
                .unwrap_or_default();
            RcpHeader {
                direction: if heard.direction == OfferPath::None {
                    OfferPath::None
                } else {
                    OfferPath::Echo
                },
                ..heard
            }
        };
        *entry_mut(&mut self.packet_headers, id) = offer;
    }

    /// Returns the stamp that queues may lower.
    #[inline(always)]
    pub fn stamp_of(&self, id: u32) -> Option<Stamp> {
        let offer = self.packet_headers.get(id as usize)?;
        (offer.direction == OfferPath::Forward).then_some(offer.stamp)
    }

    /// Stores the stamp lowered by a queue.
    pub fn set_stamp(&mut self, id: u32, stamp: Stamp) {
        entry_mut(&mut self.packet_headers, id).stamp = stamp;
    }

    /// Clears the header of a packet that left the network.
    #[inline(always)]
    pub fn clear(&mut self, id: u32) {
        if let Some(offer) = self.packet_headers.get_mut(id as usize) {
            offer.direction = OfferPath::None;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        (self.packet_headers.capacity() + self.received_headers.capacity()) * size_of::<RcpHeader>()
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
            .rcp_headers
            .packet_headers
            .get(id as usize)
            .copied()
            .unwrap_or_default();
        let packet = self.packets.get(id);
        let (e, kind) = (packet.end, packet.segment.kind);
        let Some(end) = self
            .ends
            .get_mut(e as usize)
            .filter(|end| end.flow == packet.flow && end.has_flag(FlowEndpoint::RCP_STAMPED))
        else {
            return;
        };
        match offer.direction {
            OfferPath::None => {}
            OfferPath::Forward => {
                *entry_mut(&mut self.packets.rcp_headers.received_headers, e) = offer
            }
            OfferPath::Echo => {
                if let ControllerKind::Native(at) = end.control.get()
                    && let Some(native) = self.natives.get_mut(at)
                    && let Native::Rcp(rcp) = native
                {
                    rcp.set_offered_rate(offer.stamp.rate, self.now.since(offer.sent_at));
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
