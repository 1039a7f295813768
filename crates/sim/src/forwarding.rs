//! Forwarding of a packet: over links and switches to its host.

use crate::link::OfferOutcome;
use crate::packet::NO_INDEX;
use crate::trace::{LinkStep, PacketEvent};
use crate::{FlowId, LinkId, NodeId, Simulation, Tracer};

impl<T: Tracer> Simulation<T> {
    /// Handles the arrival of a packet at the end of a link.
    #[inline(always)]
    pub(crate) fn on_arrival(&mut self, link: u32) {
        let world = &mut self.world;
        let Some((id, node)) = world.links.arrive(world.now, link, &mut world.events) else {
            return;
        };
        if T::ENABLED {
            self.trace_packet(LinkStep::Arrived, link, id);
        }
        if self.world.packets.get(id).to == node {
            self.receive_packet(id);
        } else if !self.world.bundles.has_bundles() || !self.handle_at_box(node, id) {
            self.forward(node, id);
        }
    }

    /// Forwards a packet at a node.
    #[inline(always)]
    pub(crate) fn forward(&mut self, node: u32, id: u32) {
        let world = &mut self.world;
        let packet = world.packets.get(id);
        match world.routing.next_link(node, packet.to, packet.hash) {
            Some(link) => {
                let bytes = packet.bytes;
                self.offer(link, id, bytes);
            }
            None => {
                world.counters.unroutable += 1;
                world.packets.release(id);
            }
        }
    }

    #[inline(always)]
    fn offer(&mut self, link: u32, id: u32, bytes: u32) {
        let world = &mut self.world;
        let offered = world.links.offer(
            world.now,
            link,
            (id, bytes),
            &mut world.packets,
            &mut world.events,
        );
        if T::ENABLED || !matches!(offered, OfferOutcome::Departs(_)) {
            self.trace_offer(link, id, offered);
        }
    }

    #[cold]
    pub(crate) fn on_link_ready(&mut self, link: u32) {
        let world = &mut self.world;
        world
            .links
            .serve_queue(world.now, link, &mut world.packets, &mut world.events);
        self.free_dropped(link);
        let nic = self.world.nic_of[link as usize];
        if nic != NO_INDEX {
            self.world.update_room(nic);
            self.send_waiting(nic);
        }
    }

    /// Traces the result of offering a packet to a link, and frees dropped packets.
    #[cold]
    pub(crate) fn trace_offer(&mut self, link: u32, id: u32, offered: OfferOutcome) {
        if T::ENABLED {
            let step = match offered {
                OfferOutcome::Departs(_) | OfferOutcome::Queued => LinkStep::Queued,
                OfferOutcome::Dropped(why) => LinkStep::Dropped(why),
            };
            self.trace_packet(step, link, id);
        }
        match offered {
            OfferOutcome::Departs(_) => {}
            OfferOutcome::Queued => self.free_dropped(link),
            OfferOutcome::Dropped(_) => {
                self.world.counters.dropped += 1;
                self.world.packets.release(id);
            }
        }
    }

    /// Frees the packets dropped by a queue that decides on dequeue.
    #[cold]
    fn free_dropped(&mut self, link: u32) {
        while let Some((id, why)) = self.world.links.pop_dropped(link, &self.world.packets) {
            if T::ENABLED {
                self.trace_packet(LinkStep::Dropped(why), link, id);
            }
            self.world.counters.dropped += 1;
            self.world.packets.release(id);
        }
    }

    #[cold]
    fn trace_packet(&mut self, step: LinkStep, link: u32, id: u32) {
        let world = &self.world;
        let packet = world.packets.get(id);
        let backward = packet.end & 1 == 0;
        let flow = world
            .flows
            .get(packet.flow as usize)
            .filter(|_| packet.end != NO_INDEX);
        let from = match flow {
            Some(flow) if backward => flow.to,
            Some(flow) => flow.from,
            // See `World::datagram`.
            None => packet.segment.echo.0,
        };
        let seen = PacketEvent {
            step,
            link: LinkId(link),
            id,
            flow: (packet.end != NO_INDEX).then_some(FlowId(packet.flow)),
            backward,
            from: NodeId(from),
            to: NodeId(packet.to),
            bytes: packet.bytes,
            segment: &packet.segment,
            side: world.packets.side(packet.side),
        };
        self.tracer.on_packet_event(world.now, &seen);
    }
}
