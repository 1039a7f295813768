//! What packets of flows under RCP carry beside their segments: towards the receiver the lowest
//! rate that routers offered so far, and back to the sender what came there. Few simulations have
//! such flows, so it is kept apart.

use ccplane_qdisc::Stamp;
use ccplane_transport::{Kind, Native};
use ccplane_units::{Duration, Rate, Time};

use crate::World;
use crate::end::{End, Steer};

/// What all packets and ends of flows under RCP carry and know.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// By the packet's place.
    carried: Vec<Offer>,
    /// By the end's place: what the last packet that came there said.
    heard: Vec<Offer>,
}

/// A stamp, and when the packet was sent that was stamped.
#[derive(Clone, Copy, Debug)]
struct Offer {
    stamp: Stamp,
    sent: Time,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing is carried.
    None,
    /// To the receiver: queues lower it.
    Out,
    /// To the sender: nobody touches it.
    Back,
}

impl Default for Offer {
    fn default() -> Offer {
        let (rate, rtt) = (Rate::from_bytes_per_sec(u64::MAX), Duration::ZERO);
        Offer {
            stamp: Stamp { rate, rtt },
            sent: Time::ZERO,
            way: Way::None,
        }
    }
}

impl Offers {
    /// Whether any packet carries a stamp.
    #[inline(always)]
    pub fn any(&self) -> bool {
        !self.carried.is_empty()
    }

    /// The end at this place sends this packet: the sender asks for all there is, the receiver
    /// returns what it heard.
    pub fn stamp(&mut self, now: Time, id: u32, e: u32, rtt: Duration) {
        let offer = if e & 1 == 0 {
            let rate = Rate::from_bytes_per_sec(u64::MAX);
            Offer {
                stamp: Stamp { rate, rtt },
                sent: now,
                way: Way::Out,
            }
        } else {
            let heard = self.heard.get(e as usize).copied().unwrap_or_default();
            Offer {
                way: if heard.way == Way::None {
                    Way::None
                } else {
                    Way::Back
                },
                ..heard
            }
        };
        *place(&mut self.carried, id) = offer;
    }

    /// What a queue may lower.
    #[inline(always)]
    pub fn stamp_of(&self, id: u32) -> Option<Stamp> {
        let offer = self.carried.get(id as usize)?;
        (offer.way == Way::Out).then_some(offer.stamp)
    }

    /// A queue has stamped the packet.
    pub fn lower(&mut self, id: u32, stamp: Stamp) {
        place(&mut self.carried, id).stamp = stamp;
    }

    /// The packet is no more.
    #[inline(always)]
    pub fn forget(&mut self, id: u32) {
        if let Some(offer) = self.carried.get_mut(id as usize) {
            offer.way = Way::None;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        (self.carried.capacity() + self.heard.capacity()) * size_of::<Offer>()
    }
}

/// The place of this number, which is made where there is none.
fn place(offers: &mut Vec<Offer>, at: u32) -> &mut Offer {
    let at = at as usize;
    if offers.len() <= at {
        offers.resize(at + 1, Offer::default());
    }
    &mut offers[at]
}

impl World {
    /// A packet has come to its host, and may carry a stamp.
    #[cold]
    pub(crate) fn hear_offer(&mut self, id: u32) {
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
            .filter(|end| end.flow == packet.flow && end.is(End::OFFERED))
        else {
            return;
        };
        match offer.way {
            Way::None => {}
            Way::Out => *place(&mut self.packets.offers.heard, e) = offer,
            Way::Back => {
                if let Steer::Native(at) = end.control.get()
                    && let Some(native) = self.natives.get_mut(at)
                    && let Native::Rcp(rcp) = native
                {
                    rcp.offer(offer.stamp.rate, self.now.since(offer.sent));
                    // The answer of a server brings the rate to begin with; ACKs tell the control
                    // by themselves.
                    if kind == Kind::OpenReply
                        && let Some(connection) = &mut end.connection
                    {
                        connection.on_control_deadline(self.now, native);
                    }
                }
            }
        }
    }
}
