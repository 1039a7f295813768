//! What some links have beyond a queue whose departures are known: loss, queues that decide at
//! departure, changes.

use std::collections::VecDeque;

use ccplane_qdisc::{
    AnyQdisc, Backlog, Delay, DelayModel, DropReason, Ecn, FifoLink, LineSpec, Loss, Packet, Qdisc,
    Shaped, Stamp,
};
use ccplane_units::{Duration, Time};

use crate::event::{Events, Kind};
use crate::network::Remark;
use crate::probe::Sojourns;

/// A packet that left an observed link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// When its last bit left the queue.
    pub left: Time,
    /// How long that took from its coming.
    pub sojourn: Duration,
    /// Its size.
    pub bytes: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Special {
    pub down: bool,
    pub loss: Option<Loss>,
    pub remark: Remark,
    pub queue: Queue,
    /// Packets whose departure is known, in the order in which they arrive. Unless packets
    /// overtake, the last ones wait in the queue and the others are past it.
    pipe: VecDeque<Piped>,
    delay: Delay,
    /// When the packet before the oldest one arrived.
    last_due: Time,
    /// When the queue's next event is.
    pub ready_at: Time,
    /// What the queue has dropped and nobody has taken.
    pub dropped: Vec<(u32, DropReason)>,
    pub crossings: Option<Vec<Crossing>>,
    pub sojourns: Option<Box<Sojourns>>,
}

#[derive(Debug)]
pub(crate) enum Queue {
    /// The link's own.
    Fifo,
    /// One that decides at departure.
    Shaped(Box<Shaped<Waiting, AnyQdisc<Waiting>>>),
}

/// A packet in a queue that decides at departure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub id: u32,
    pub bytes: u32,
    pub hash: u32,
    pub class: u8,
    pub ecn: Ecn,
    pub since: Time,
    /// Of a flow under RCP, on its way to the receiver.
    pub stamp: Option<Stamp>,
}

impl Packet for Waiting {
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
struct Piped {
    came: Time,
    departs: Time,
    due: Time,
    id: u32,
    bytes: u32,
}

/// A packet that has come out at the end.
pub(crate) struct Crossed {
    pub id: u32,
    pub sojourn: Duration,
}

impl Special {
    pub fn new(delay: Duration) -> Special {
        Special {
            down: false,
            loss: None,
            remark: Remark::KEEP,
            queue: Queue::Fifo,
            pipe: VecDeque::new(),
            delay: Delay::new(delay),
            last_due: Time::ZERO,
            ready_at: Time::MAX,
            dropped: Vec::new(),
            crossings: None,
            sojourns: None,
        }
    }

    pub fn jitter(&mut self, delay: DelayModel, seed: u64) {
        self.delay = Delay::with_model(delay, seed);
    }

    /// A packet's departure is known. The packet that arrives first has the link's event.
    pub fn wire(
        &mut self,
        came: Time,
        departs: Time,
        id: u32,
        bytes: u32,
        at: u32,
        events: &mut Events,
    ) {
        let due = self.delay.arrives(departs);
        let before = match self.delay.reorders() {
            true => self.pipe.partition_point(|packet| packet.due <= due),
            false => self.pipe.len(),
        };
        if before == 0 {
            events.push(due, Kind::Arrive, at);
        }
        let packet = Piped {
            came,
            departs,
            due,
            id,
            bytes,
        };
        self.pipe.insert(before, packet);
    }

    /// The oldest packet, if it arrives now: an event may be one that was planned before a change.
    pub fn arrive(&mut self, now: Time, at: u32, events: &mut Events) -> Option<Crossed> {
        let first = *self.pipe.front().filter(|first| first.due <= now)?;
        self.pipe.pop_front();
        self.last_due = first.due;
        if let Some(next) = self.pipe.front() {
            events.push(next.due, Kind::Arrive, at);
        }
        let sojourn = first.departs.since(first.came);
        if let Some(crossings) = &mut self.crossings {
            crossings.push(Crossing {
                left: first.departs,
                sojourn,
                bytes: first.bytes,
            });
        }
        if let Some(sojourns) = &mut self.sojourns {
            sojourns.add(sojourn);
        }
        Some(Crossed {
            id: first.id,
            sojourn,
        })
    }

    pub fn enqueue(&mut self, now: Time, waiting: Waiting) {
        let Special { queue, dropped, .. } = self;
        if let Queue::Shaped(shaped) = queue {
            shaped.enqueue(now, waiting, &mut |packet: Waiting, why| {
                dropped.push((packet.id, why))
            });
        }
    }

    pub fn dequeue(&mut self, now: Time) -> Option<Waiting> {
        let Special { queue, dropped, .. } = self;
        match queue {
            Queue::Shaped(shaped) => shaped.dequeue(now, &mut |packet: Waiting, why| {
                dropped.push((packet.id, why))
            }),
            Queue::Fifo => None,
        }
    }

    /// Sees that the queue has its event.
    pub fn rearm(&mut self, at: u32, events: &mut Events) {
        let Queue::Shaped(shaped) = &self.queue else {
            return;
        };
        if let Some(next) = shaped.next_ready()
            && next != self.ready_at
        {
            self.ready_at = next;
            events.push(next, Kind::LinkReady, at);
        }
    }

    pub fn set_line(
        &mut self,
        now: Time,
        fifo: &mut FifoLink,
        line: &LineSpec,
        at: u32,
        events: &mut Events,
    ) {
        let Special { queue, dropped, .. } = self;
        match queue {
            Queue::Fifo => {
                fifo.set_line(now, line);
                fifo.advance(now);
                self.plan(fifo, at, events);
            }
            Queue::Shaped(shaped) => {
                shaped.set_line(now, line, &mut |packet: Waiting, why| {
                    dropped.push((packet.id, why))
                });
                self.rearm(at, events);
            }
        }
    }

    pub fn set_delay(
        &mut self,
        now: Time,
        fifo: &mut FifoLink,
        delay: DelayModel,
        at: u32,
        events: &mut Events,
    ) {
        self.delay.set_model(delay);
        fifo.advance(now);
        self.plan(fifo, at, events);
    }

    /// Plans again for packets that are still in the queue. Those past it arrive as planned.
    fn plan(&mut self, fifo: &FifoLink, at: u32, events: &mut Events) {
        // By departure, as in the queue. A packet that has been overtaken is due later in any case.
        self.pipe
            .make_contiguous()
            .sort_by_key(|packet| packet.departs);
        let departures = fifo.departures();
        let past = self.pipe.len().saturating_sub(departures.len());
        // The last to arrive, which is not the last to have left where packets overtook.
        let last_past = self.pipe.iter().take(past).map(|packet| packet.due).max();
        self.delay.replan_after(last_past.unwrap_or(self.last_due));
        for (packet, departs) in self.pipe.iter_mut().skip(past).zip(departures) {
            packet.departs = departs;
            packet.due = self.delay.arrives(departs);
        }
        self.pipe.make_contiguous().sort_by_key(|packet| packet.due);
        if let Some(first) = self.pipe.front() {
            events.push(first.due, Kind::Arrive, at);
        }
    }

    /// Packets inside in all, and what has not left the queue.
    pub fn inside(&self, fifo: &FifoLink, now: Time) -> (u64, Backlog) {
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
        self.pipe.capacity() * size_of::<Piped>()
            + crossings * size_of::<Crossing>()
            + self
                .sojourns
                .as_ref()
                .map_or(0, |sojourns| sojourns.heap_bytes())
            + self.dropped.capacity() * size_of::<(u32, DropReason)>()
    }
}
