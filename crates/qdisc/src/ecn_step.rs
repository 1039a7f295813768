//! DCTCP's switch queue: a FIFO that marks packets that find more than K waiting.

use ccplane_units::Time;

use crate::qdisc::try_mark;
use crate::{Backlog, DropTail, Drops, Limit, Packet, Qdisc, Verdict};

/// Drop-tail queue that marks arriving packets while the instantaneous backlog exceeds a threshold,
/// without an average or a probability (Alizadeh et al., Data Center TCP, SIGCOMM 2010, section
/// 3.1). Packets that are not ECN-capable pass unmarked until the queue is full.
///
/// Too low a threshold empties the queue between marks and loses throughput; too high a threshold
/// only adds delay. The paper requires more than a seventh of the bandwidth-delay product, and used
/// 20 packets at 1 Gbit/s and 65 at 10 Gbit/s.
#[derive(Clone, Debug)]
pub struct EcnStep<P> {
    threshold: Limit,
    queue: DropTail<P>,
}

impl<P: Packet> EcnStep<P> {
    /// Creates an empty queue that marks above `threshold` and drops at `limit`.
    pub fn new(threshold: Limit, limit: Limit) -> EcnStep<P> {
        EcnStep {
            threshold,
            queue: DropTail::new(limit),
        }
    }
}

impl<P: Packet> Qdisc<P> for EcnStep<P> {
    fn enqueue(&mut self, now: Time, mut packet: P, drops: &mut impl Drops<P>) -> Verdict {
        if self.threshold.is_exceeded_by(self.queue.backlog()) {
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
