//! Links: queue, transmission, loss and propagation of packets.
//!
//! On most links the departure time is known when a packet arrives ([`FifoLink`]). Only the oldest
//! packet in flight has an event; its arrival schedules the next one. Links with random loss, with
//! a queue that decides on dequeue, or with changes are [`GeneralLink`].

mod general;

use ccplane_network::{LinkId, Network, NetworkError, Remark};
use ccplane_qdisc::{
    Backlog, Delay, DelayModel, DropReason, Ecn, FifoLimit, FifoLink, LineSpec, Loss, LossModel,
    ShapedLink,
};
use ccplane_units::{Duration, Time};

use crate::event::{EventKind, EventQueue};
use crate::packet::{NO_INDEX, PacketArena};
use crate::probe::Sojourns;

pub use general::Crossing;
pub(crate) use general::QueuedPacket;
use general::{GeneralLink, Queue};

/// One direction of a link.
#[derive(Debug)]
#[repr(C, align(64))]
struct SimLink {
    fifo: FifoLink,
    delay: Duration,
    to: u32,
    general_index: u32,
    accepted: u64,
    bytes: u64,
    /// Sum and maximum of the sojourn times, ns.
    sojourn_sum: u64,
    sojourn_max: u64,
    drops: Drops,
}

/// Counters of dropped and marked packets.
#[derive(Clone, Copy, Debug, Default)]
struct Drops {
    queue: u64,
    lost: u64,
    bytes: u64,
    marked: u64,
}

/// Counters and state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Packets offered to the link.
    pub arrived: u64,
    /// Packets delivered at the far end.
    pub delivered: u64,
    /// Packets accepted by the queue.
    pub accepted: u64,
    /// Bytes of the accepted packets.
    pub accepted_bytes: u64,
    /// Packets dropped by the queue.
    pub queue_drops: u64,
    /// Packets lost at random or while the link was down.
    pub losses: u64,
    /// Bytes of the dropped and lost packets.
    pub dropped_bytes: u64,
    /// Packets marked with CE.
    pub marked: u64,
    /// Queue backlog, including the packet in transmission.
    pub backlog: Backlog,
    /// Packets in the queue and on the wire.
    pub occupancy: u64,
    /// Sum of the sojourn times (arrival to departure) of the accepted packets; divide by
    /// `accepted` for the mean. A queue that decides on dequeue counts packets when they depart.
    pub sojourn_sum: Duration,
    /// Maximum sojourn time.
    pub sojourn_max: Duration,
    /// Rate of the line, bytes per second; `None` without a limit.
    pub rate: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Links {
    links: Vec<SimLink>,
    general_links: Vec<GeneralLink>,
    lines: Vec<LineSpec>,
}

/// Result of offering a packet to a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferOutcome {
    /// Departs at this time, unless the link changes.
    Departs(Time),
    /// Waits in a queue that decides on dequeue.
    Queued,
    /// Dropped on arrival.
    Dropped(DropReason),
}

impl Links {
    pub fn new(network: &Network, seed: u64) -> Result<Links, NetworkError> {
        let mut all = Links {
            links: Vec::with_capacity(network.specs().len()),
            general_links: Vec::new(),
            lines: network
                .specs()
                .iter()
                .map(|spec| spec.line.clone())
                .collect(),
        };
        for (id, spec) in network.links().zip(network.specs()) {
            let rate = spec.line.mean_rate();
            let wrong = |why| NetworkError::Queue {
                link: network.link_name(id),
                why,
            };
            let fifo = spec
                .queue
                .fifo_limit(rate, spec.rtt, spec.mtu)
                .map_err(wrong)?;
            let limits = fifo.unwrap_or(FifoLimit {
                limit: ccplane_qdisc::Limit::Unlimited,
                mark_above: ccplane_qdisc::Limit::Unlimited,
            });
            all.links.push(SimLink {
                fifo: FifoLink::with_marking(
                    &spec.line,
                    limits.limit,
                    limits.mark_above,
                    Time::ZERO,
                ),
                delay: Delay::with_model(spec.delay, 0).min_delay(),
                to: network.endpoints(id).map_or(NO_INDEX, |(_, to)| to.0),
                general_index: NO_INDEX,
                accepted: 0,
                bytes: 0,
                sojourn_sum: 0,
                sojourn_max: 0,
                drops: Drops::default(),
            });
            let link = id.0;
            if fifo.is_none() {
                let draws = id.seeds(seed).queue;
                let queue = spec
                    .queue
                    .build(rate, spec.rtt, spec.mtu, draws)
                    .map_err(wrong)?;
                let shaped = ShapedLink::new(queue, &spec.line, Time::ZERO);
                all.general_mut(link).queue = Queue::Shaped(Box::new(shaped));
            }
            if spec.loss != LossModel::NONE {
                all.set_loss(link, spec.loss, seed);
            }
            if spec.remark != Remark::IDENTITY {
                all.general_mut(link).remark = spec.remark;
            }
            if let DelayModel::Jitter { .. } = spec.delay {
                let draws = id.seeds(seed).delay;
                all.general_mut(link).set_jitter(spec.delay, draws);
            }
        }
        Ok(all)
    }

    /// Offers a packet to a link. If it is dropped, the caller keeps it.
    #[inline(always)]
    pub fn offer(
        &mut self,
        now: Time,
        at: u32,
        (id, bytes): (u32, u32),
        packets: &mut PacketArena,
        events: &mut EventQueue,
    ) -> OfferOutcome {
        let link = &mut self.links[at as usize];
        if link.general_index != NO_INDEX {
            return self.offer_general(now, at, id, packets, events);
        }
        let admitted = match link.fifo.admit(now, bytes, id) {
            Ok(admitted) => admitted,
            Err(why) => {
                link.drops.queue += 1;
                link.drops.bytes += u64::from(bytes);
                return OfferOutcome::Dropped(why);
            }
        };
        if admitted.mark && packets.mark(id) {
            link.drops.marked += 1;
        }
        let sojourn = admitted.departure.since(now).as_nanos();
        link.accepted += 1;
        link.bytes += u64::from(bytes);
        link.sojourn_sum += sojourn;
        link.sojourn_max = link.sojourn_max.max(sojourn);
        if admitted.is_head {
            events.push(admitted.departure + link.delay, EventKind::Arrive, at);
        }
        OfferOutcome::Departs(admitted.departure)
    }

    /// Removes the packet that arrives now, schedules the arrival of the next one, and returns the
    /// packet with its destination node.
    #[inline(always)]
    pub fn arrive(&mut self, now: Time, at: u32, events: &mut EventQueue) -> Option<(u32, u32)> {
        let link = &mut self.links[at as usize];
        if link.general_index != NO_INDEX {
            return self.arrive_general(now, at, events);
        }
        let (id, next) = link.fifo.take_next()?;
        if let Some(departs) = next {
            events.push(departs + link.delay, EventKind::Arrive, at);
        }
        Some((id, link.to))
    }

    /// Returns the counters and state as of `now`.
    pub fn view(&self, now: Time, at: u32) -> LinkView {
        let link = &self.links[at as usize];
        let (inside, backlog) = match self.general_links.get(link.general_index as usize) {
            Some(special) => special.occupancy(&link.fifo, now),
            None => (link.fifo.len() as u64, link.fifo.backlog_at(now)),
        };
        LinkView {
            arrived: link.accepted + link.drops.queue + link.drops.lost,
            delivered: link.accepted - inside,
            accepted: link.accepted,
            accepted_bytes: link.bytes,
            queue_drops: link.drops.queue,
            losses: link.drops.lost,
            dropped_bytes: link.drops.bytes,
            marked: link.drops.marked,
            backlog,
            occupancy: inside,
            sojourn_sum: Duration::from_nanos(link.sojourn_sum),
            sojourn_max: Duration::from_nanos(link.sojourn_max),
            rate: self.lines[at as usize]
                .mean_rate()
                .map(|rate| rate.bytes_per_sec()),
        }
    }

    /// Returns the transmission time of `bytes`; zero without a rate.
    pub fn time_for(&self, at: u32, bytes: u64) -> Duration {
        let rate = self.lines[at as usize].mean_rate();
        rate.map_or(Duration::ZERO, |rate| {
            rate.transmission_time(ccplane_units::Bytes::new(bytes))
        })
    }

    pub fn rate(&self, at: u32) -> Option<ccplane_units::Rate> {
        self.lines[at as usize].mean_rate()
    }

    pub fn delay(&self, at: u32) -> Duration {
        self.links[at as usize].delay
    }

    /// Returns true if a packet was ever offered to the link.
    pub fn has_traffic(&self, at: u32) -> bool {
        let link = &self.links[at as usize];
        link.accepted + link.drops.queue + link.drops.lost > 0
    }

    /// Returns the number of hops so far: packets delivered by links.
    pub fn hops(&self) -> u64 {
        self.links
            .iter()
            .map(|link| {
                let inside = match self.general_links.get(link.general_index as usize) {
                    Some(special) => special.occupancy(&link.fifo, Time::ZERO).0,
                    None => link.fifo.len() as u64,
                };
                link.accepted - inside
            })
            .sum()
    }

    /// Returns the memory used, bytes.
    pub fn memory(&self) -> usize {
        let heap: usize = self.links.iter().map(|link| link.fifo.heap_bytes()).sum();
        let specials: usize = self.general_links.iter().map(GeneralLink::heap_bytes).sum();
        self.links.capacity() * size_of::<SimLink>()
            + heap
            + self.general_links.capacity() * size_of::<GeneralLink>()
            + specials
            + self.lines.capacity() * size_of::<LineSpec>()
    }

    /// Returns the rarely used part of a link, created on first use.
    pub fn general_mut(&mut self, at: u32) -> &mut GeneralLink {
        let link = &mut self.links[at as usize];
        if link.general_index == NO_INDEX {
            link.general_index = self.general_links.len() as u32;
            self.general_links.push(GeneralLink::new(link.delay));
        }
        &mut self.general_links[link.general_index as usize]
    }

    /// Starts to record every departing packet with its sojourn time.
    pub fn record_crossings(&mut self, at: u32) {
        self.general_mut(at).crossings.get_or_insert_default();
    }

    /// Starts to record a histogram of the sojourn times.
    pub fn record_sojourns(&mut self, at: u32) {
        self.general_mut(at)
            .sojourns
            .get_or_insert_with(|| Box::new(Sojourns::new()));
    }

    /// Returns the histogram of [`record_sojourns`](Links::record_sojourns).
    pub fn sojourns(&self, at: u32) -> Option<&Sojourns> {
        let link = self.links.get(at as usize)?;
        self.general_links
            .get(link.general_index as usize)?
            .sojourns
            .as_deref()
    }

    /// Returns the records of [`observe`](Links::observe).
    pub fn crossings(&self, at: u32) -> &[Crossing] {
        self.general_links
            .get(self.links[at as usize].general_index as usize)
            .and_then(|special| special.crossings.as_deref())
            .unwrap_or_default()
    }
}

/// Handling of special links.
impl Links {
    #[cold]
    fn offer_general(
        &mut self,
        now: Time,
        at: u32,
        id: u32,
        packets: &mut PacketArena,
        events: &mut EventQueue,
    ) -> OfferOutcome {
        let link = &mut self.links[at as usize];
        let special = &mut self.general_links[link.general_index as usize];
        let packet = packets.get_mut(id);
        let band = special.remark.map_class(packet.segment.band);
        packet.segment.band = band.unwrap_or_default();
        let packet = &*packet;
        let bytes = packet.bytes;
        if special.down || band.is_none() || special.loss.as_mut().is_some_and(Loss::next_is_lost) {
            link.drops.lost += 1;
            link.drops.bytes += u64::from(bytes);
            return OfferOutcome::Dropped(DropReason::Lost);
        }
        match &mut special.queue {
            Queue::Fifo => {
                link.fifo.advance(now);
                let admitted = match link.fifo.admit(now, bytes, id) {
                    Ok(admitted) => admitted,
                    Err(why) => {
                        link.drops.queue += 1;
                        link.drops.bytes += u64::from(bytes);
                        return OfferOutcome::Dropped(why);
                    }
                };
                if admitted.mark && packets.mark(id) {
                    link.drops.marked += 1;
                }
                link.accepted += 1;
                link.bytes += u64::from(bytes);
                special.push_pipe(now, admitted.departure, id, bytes, at, events);
                OfferOutcome::Departs(admitted.departure)
            }
            Queue::Shaped(_) => {
                let segment = &packet.segment;
                let waiting = QueuedPacket {
                    id,
                    bytes,
                    hash: packet.hash,
                    class: segment.band,
                    ecn: segment.ecn,
                    enqueued_at: now,
                    stamp: packets.rcp_headers.stamp_of(id),
                };
                link.accepted += 1;
                link.bytes += u64::from(bytes);
                special.enqueue(now, waiting);
                special.schedule_ready(at, events);
                OfferOutcome::Queued
            }
        }
    }

    #[cold]
    fn arrive_general(
        &mut self,
        now: Time,
        at: u32,
        events: &mut EventQueue,
    ) -> Option<(u32, u32)> {
        let link = &mut self.links[at as usize];
        let special = &mut self.general_links[link.general_index as usize];
        let crossed = special.arrive(now, at, events)?;
        if matches!(special.queue, Queue::Fifo) {
            let sojourn = crossed.sojourn.as_nanos();
            link.sojourn_sum += sojourn;
            link.sojourn_max = link.sojourn_max.max(sojourn);
        }
        Some((crossed.id, link.to))
    }

    /// Serves a queue that decides on dequeue. Packets that it drops are returned by
    /// [`Links::dropped`].
    pub fn serve_queue(
        &mut self,
        now: Time,
        at: u32,
        packets: &mut PacketArena,
        events: &mut EventQueue,
    ) {
        let link = &mut self.links[at as usize];
        let Some(special) = self.general_links.get_mut(link.general_index as usize) else {
            return;
        };
        if special.ready_at != now {
            return;
        }
        special.ready_at = Time::MAX;
        while let Some(left) = special.dequeue(now) {
            if let Some(stamp) = left.stamp {
                packets.rcp_headers.set_stamp(left.id, stamp);
            }
            let packet = packets.get_mut(left.id);
            if left.ecn == Ecn::Ce && packet.segment.ecn != Ecn::Ce {
                packet.segment.ecn = Ecn::Ce;
                link.drops.marked += 1;
            }
            let sojourn = now.since(left.enqueued_at).as_nanos();
            link.sojourn_sum += sojourn;
            link.sojourn_max = link.sojourn_max.max(sojourn);
            special.push_pipe(left.enqueued_at, now, left.id, left.bytes, at, events);
        }
        special.schedule_ready(at, events);
    }

    /// Returns the next packet that was accepted and then dropped by the queue of this link. The
    /// caller has to free it.
    pub fn pop_dropped(&mut self, at: u32, packets: &PacketArena) -> Option<(u32, DropReason)> {
        let link = &mut self.links[at as usize];
        let (id, why) = self
            .general_links
            .get_mut(link.general_index as usize)?
            .dropped
            .pop()?;
        let bytes = u64::from(packets.get(id).bytes);
        link.accepted -= 1;
        link.bytes -= bytes;
        link.drops.queue += 1;
        link.drops.bytes += bytes;
        Some((id, why))
    }

    /// Returns the backlog of a queue that decides on dequeue; `None` for other links.
    pub fn shaped_backlog(&self, at: u32) -> Option<Backlog> {
        let link = &self.links[at as usize];
        match self
            .general_links
            .get(link.general_index as usize)
            .map(|special| &special.queue)
        {
            Some(Queue::Shaped(shaped)) => Some(ccplane_qdisc::Qdisc::<QueuedPacket>::backlog(
                shaped.as_ref(),
            )),
            _ => None,
        }
    }

    pub fn set_line(&mut self, now: Time, at: u32, line: LineSpec, events: &mut EventQueue) {
        self.general_mut(at);
        let link = &mut self.links[at as usize];
        let special = &mut self.general_links[link.general_index as usize];
        special.set_line(now, &mut link.fifo, &line, at, events);
        self.lines[at as usize] = line;
    }

    pub fn set_delay(&mut self, now: Time, at: u32, delay: DelayModel, events: &mut EventQueue) {
        self.general_mut(at);
        let link = &mut self.links[at as usize];
        link.delay = Delay::with_model(delay, 0).min_delay();
        let special = &mut self.general_links[link.general_index as usize];
        special.set_delay(now, &mut link.fifo, delay, at, events);
    }

    pub fn set_loss(&mut self, at: u32, loss: LossModel, seed: u64) {
        let special = self.general_mut(at);
        match &mut special.loss {
            Some(model) => model.set_model(loss),
            None => special.loss = Some(Loss::with_model(loss, LinkId(at).seeds(seed).loss)),
        }
    }

    pub fn set_up(&mut self, at: u32, up: bool) {
        self.general_mut(at).down = !up;
    }

    pub fn is_up(&self, at: u32) -> bool {
        let special = self.links[at as usize].general_index;
        self.general_links
            .get(special as usize)
            .is_none_or(|special| !special.down)
    }
}
