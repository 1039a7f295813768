//! FIFO queue with tail drop.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// A drop-tail queue.
#[derive(Clone, Debug)]
pub struct DropTail<P> {
    limit: Limit,
    waiting: VecDeque<P>,
    backlog: Backlog,
}

impl<P: Packet> DropTail<P> {
    /// Creates an empty queue.
    pub fn new(limit: Limit) -> DropTail<P> {
        DropTail {
            limit,
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }
}

impl<P: Packet> Qdisc<P> for DropTail<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if !self.limit.admits(self.backlog, packet.bytes()) {
            drops.dropped(packet, DropReason::Full);
            return Verdict::Dropped(DropReason::Full);
        }
        self.backlog.add(packet.bytes());
        self.waiting.push_back(packet);
        Verdict::Queued
    }

    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.backlog.remove(packet.bytes());
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        (!self.waiting.is_empty()).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
