//! Rarely used features of a link: loss, queues that decide on dequeue, and changes.

use std::collections::VecDeque;

use ccplane_network::Remark;
use ccplane_qdisc::{
    AnyQdisc, Backlog, Delay, DelayModel, DropReason, Ecn, FifoLink, LineSpec, Loss, Packet, Qdisc,
    ShapedLink, Stamp,
};
use ccplane_units::{Duration, Time};

use crate::event::{EventKind, EventQueue};
use crate::probe::Sojourns;

/// Packet that left an observed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// Departure time of the last bit.
    pub departure: Time,
    /// Time from arrival to departure.
    pub sojourn: Duration,
    /// Size of the packet.
    pub bytes: u32,
}

/// State of a special link; see the module.
#[derive(Debug)]
pub(crate) struct GeneralLink {
    pub down: bool,
    pub loss: Option<Loss>,
    pub remark: Remark,
    pub queue: Queue,
    /// Packets whose departure is known, in order of arrival at the far end. Without reordering,
    /// the last ones are still in the queue and the others on the wire.
    pipe: VecDeque<PipePacket>,
    delay: Delay,
    /// Arrival time of the last packet that left the pipe.
    last_delivery: Time,
    /// Time of the queue's next event.
    pub ready_at: Time,
    /// Packets dropped by the queue and not yet collected.
    pub dropped: Vec<(u32, DropReason)>,
    pub crossings: Option<Vec<Crossing>>,
    pub sojourns: Option<Box<Sojourns>>,
}

#[derive(Debug)]
pub(crate) enum Queue {
    /// FIFO of the link.
    Fifo,
    /// Queue that decides on dequeue.
    Shaped(Box<ShapedLink<QueuedPacket, AnyQdisc<QueuedPacket>>>),
}

/// Packet in a queue that decides on dequeue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedPacket {
    pub id: u32,
    pub bytes: u32,
    pub hash: u32,
    pub class: u8,
    pub ecn: Ecn,
    pub enqueued_at: Time,
    /// Rate stamp of a flow under RCP, towards the receiver.
    pub stamp: Option<Stamp>,
}

impl Packet for QueuedPacket {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow_hash(&self) -> u32 {
        self.hash
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn ecn(&self) -> Ecn {
        self.ecn
    }

    fn mark_ce(&mut self) {
        self.ecn = Ecn::Ce;
    }

    fn rate_stamp(&mut self) -> Option<&mut Stamp> {
        self.stamp.as_mut()
    }
}

#[derive(Clone, Copy, Debug)]
struct PipePacket {
    arrival: Time,
    departure: Time,
    delivery: Time,
    id: u32,
    bytes: u32,
}

/// Packet that arrived at the far end.
pub(crate) struct DepartedPacket {
    pub id: u32,
    pub sojourn: Duration,
}

impl GeneralLink {
    pub fn new(delay: Duration) -> GeneralLink {
        GeneralLink {
            down: false,
            loss: None,
            remark: Remark::IDENTITY,
            queue: Queue::Fifo,
            pipe: VecDeque::new(),
            delay: Delay::new(delay),
            last_delivery: Time::ZERO,
            ready_at: Time::MAX,
            dropped: Vec::new(),
            crossings: None,
            sojourns: None,
        }
    }

    pub fn set_jitter(&mut self, delay: DelayModel, seed: u64) {
        self.delay = Delay::with_model(delay, seed);
    }

    /// Adds a packet with a known departure to the pipe. The first packet to arrive has the link's
    /// event.
    pub fn push_pipe(
        &mut self,
        came: Time,
        departs: Time,
        id: u32,
        bytes: u32,
        at: u32,
        events: &mut EventQueue,
    ) {
        let due = self.delay.schedule_arrival(departs);
        let before = match self.delay.reorders() {
            true => self.pipe.partition_point(|packet| packet.delivery <= due),
            false => self.pipe.len(),
        };
        if before == 0 {
            events.push(due, EventKind::Arrive, at);
        }
        let packet = PipePacket {
            arrival: came,
            departure: departs,
            delivery: due,
            id,
            bytes,
        };
        self.pipe.insert(before, packet);
    }

    /// Removes the first packet if it arrives now. After a change, an event may be obsolete.
    pub fn arrive(
        &mut self,
        now: Time,
        at: u32,
        events: &mut EventQueue,
    ) -> Option<DepartedPacket> {
        let first = *self.pipe.front().filter(|first| first.delivery <= now)?;
        self.pipe.pop_front();
        self.last_delivery = first.delivery;
        if let Some(next) = self.pipe.front() {
            events.push(next.delivery, EventKind::Arrive, at);
        }
        let sojourn = first.departure.since(first.arrival);
        if let Some(crossings) = &mut self.crossings {
            crossings.push(Crossing {
                departure: first.departure,
                sojourn,
                bytes: first.bytes,
            });
        }
        if let Some(sojourns) = &mut self.sojourns {
            sojourns.add(sojourn);
        }
        Some(DepartedPacket {
            id: first.id,
            sojourn,
        })
    }

    pub fn enqueue(&mut self, now: Time, waiting: QueuedPacket) {
        let GeneralLink { queue, dropped, .. } = self;
        if let Queue::Shaped(shaped) = queue {
            shaped.enqueue(now, waiting, &mut |packet: QueuedPacket, why| {
                dropped.push((packet.id, why))
            });
        }
    }

    pub fn dequeue(&mut self, now: Time) -> Option<QueuedPacket> {
        let GeneralLink { queue, dropped, .. } = self;
        match queue {
            Queue::Shaped(shaped) => shaped.dequeue(now, &mut |packet: QueuedPacket, why| {
                dropped.push((packet.id, why))
            }),
            Queue::Fifo => None,
        }
    }

    /// Schedules the queue's next event.
    pub fn schedule_ready(&mut self, at: u32, events: &mut EventQueue) {
        let Queue::Shaped(shaped) = &self.queue else {
            return;
        };
        if let Some(next) = shaped.next_ready()
            && next != self.ready_at
        {
            self.ready_at = next;
            events.push(next, EventKind::LinkReady, at);
        }
    }

    pub fn set_line(
        &mut self,
        now: Time,
        fifo: &mut FifoLink,
        line: &LineSpec,
        at: u32,
        events: &mut EventQueue,
    ) {
        let GeneralLink { queue, dropped, .. } = self;
        match queue {
            Queue::Fifo => {
                fifo.set_line(now, line);
                fifo.advance(now);
                self.replan(fifo, at, events);
            }
            Queue::Shaped(shaped) => {
                shaped.set_line(now, line, &mut |packet: QueuedPacket, why| {
                    dropped.push((packet.id, why))
                });
                self.schedule_ready(at, events);
            }
        }
    }

    pub fn set_delay(
        &mut self,
        now: Time,
        fifo: &mut FifoLink,
        delay: DelayModel,
        at: u32,
        events: &mut EventQueue,
    ) {
        self.delay.set_model(delay);
        fifo.advance(now);
        self.replan(fifo, at, events);
    }

    /// Replans the packets that are still in the queue. Packets on the wire arrive as planned.
    fn replan(&mut self, fifo: &FifoLink, at: u32, events: &mut EventQueue) {
        // Sorted by departure, like the queue. An overtaken packet keeps its later arrival.
        self.pipe
            .make_contiguous()
            .sort_by_key(|packet| packet.departure);
        let departures = fifo.departures();
        let past = self.pipe.len().saturating_sub(departures.len());
        // With reordering, the last packet to arrive is not the last one that departed.
        let last_past = self
            .pipe
            .iter()
            .take(past)
            .map(|packet| packet.delivery)
            .max();
        self.delay
            .set_last_arrival(last_past.unwrap_or(self.last_delivery));
        for (packet, departs) in self.pipe.iter_mut().skip(past).zip(departures) {
            packet.departure = departs;
            packet.delivery = self.delay.schedule_arrival(departs);
        }
        self.pipe
            .make_contiguous()
            .sort_by_key(|packet| packet.delivery);
        if let Some(first) = self.pipe.front() {
            events.push(first.delivery, EventKind::Arrive, at);
        }
    }

    /// Returns the number of packets inside, and the queue backlog.
    pub fn occupancy(&self, fifo: &FifoLink, now: Time) -> (u64, Backlog) {
        match &self.queue {
            Queue::Fifo => (self.pipe.len() as u64, fifo.backlog_at(now)),
            Queue::Shaped(shaped) => {
                let backlog = shaped.backlog();
                (
                    self.pipe.len() as u64 + backlog.packets + self.dropped.len() as u64,
                    backlog,
                )
            }
        }
    }

    pub fn heap_bytes(&self) -> usize {
        let crossings = self.crossings.as_ref().map_or(0, Vec::capacity);
        self.pipe.capacity() * size_of::<PipePacket>()
            + crossings * size_of::<Crossing>()
            + self
                .sojourns
                .as_ref()
                .map_or(0, |sojourns| sojourns.heap_bytes())
            + self.dropped.capacity() * size_of::<(u32, DropReason)>()
    }
}
