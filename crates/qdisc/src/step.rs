//! The queue of a data-centre switch for DCTCP: first in, first out, marking what finds more than K
//! waiting.

use ccplane_units::Time;

use crate::qdisc::try_mark;
use crate::{Backlog, DropTail, Drops, Limit, Packet, Qdisc, Verdict};

/// A drop-tail queue that marks an arriving packet if more than a threshold waits at that instant,
/// no average and no probability (Alizadeh et al., Data Center TCP, SIGCOMM 2010, section 3.1).
/// Packets that do not understand marks pass unmarked until the queue is full.
///
/// Too low a threshold empties the queue between marks and loses throughput. The paper asks for
/// more than a seventh of the bandwidth-delay product; it used 20 packets at 1 Gbit/s and 65 at 10
/// Gbit/s. Too high a one only adds delay.
#[derive(Clone, Debug)]
pub struct EcnStep<P> {
    threshold: Limit,
    queue: DropTail<P>,
}

impl<P: Packet> EcnStep<P> {
    /// An empty queue that marks above `threshold` and drops at `limit`.
    pub fn new(threshold: Limit, limit: Limit) -> EcnStep<P> {
        EcnStep {
            threshold,
            queue: DropTail::new(limit),
        }
    }
}

impl<P: Packet> Qdisc<P> for EcnStep<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if self.threshold.exceeded(self.queue.backlog()) {
            try_mark(&mut packet);
        }
        self.queue.enqueue(now, packet, drops)
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        self.queue.dequeue(now, drops)
    }

    fn next_ready(&self) -> Option<Time> {
        self.queue.next_ready()
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }
}
