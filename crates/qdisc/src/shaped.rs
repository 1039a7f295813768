//! Link built from a queue and a line.

use ccplane_units::Time;

use crate::{Backlog, Drops, Line, LineSpec, Packet, Qdisc, Verdict};

/// Link made of any [`Qdisc`] and a [`Line`]. Whenever the line is free, it dequeues the next
/// packet.
///
/// With a [`DropTail`](crate::DropTail) queue the departures are the same as in a
/// [`FifoLink`](crate::FifoLink), at the cost of one more event per packet.
#[derive(Clone, Debug)]
pub struct ShapedLink<P, Q> {
    queue: Q,
    line: Line,
    /// Packet in transmission and its departure time.
    in_transmission: Option<(P, Time)>,
    /// Next time at which the idle line can start a packet, if any is waiting.
    next_start: Option<Time>,
}

impl<P: Packet, Q: Qdisc<P>> ShapedLink<P, Q> {
    /// Creates an idle link; a trace starts at `now`.
    pub fn new(queue: Q, line: &LineSpec, now: Time) -> ShapedLink<P, Q> {
        ShapedLink {
            queue,
            line: Line::new(line, now),
            in_transmission: None,
            next_start: None,
        }
    }

    /// Returns the queue.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// Returns the packet in transmission.
    pub fn in_transmission(&self) -> Option<&P> {
        self.in_transmission.as_ref().map(|(packet, _)| packet)
    }

    /// Moves overdue departures to `since`, so that a driver that was delayed does not get the
    /// whole backlog in one burst.
    pub fn skip_missed_departures(&mut self, since: Time) {
        if let Some((_, departs)) = &mut self.in_transmission {
            *departs = since.max(*departs);
        }
        self.next_start = self.next_start.map(|at| at.max(since));
    }

    /// Changes the line at `now`. Bytes of the packet in transmission that were already sent stay
    /// sent.
    pub fn set_line(&mut self, now: Time, line: &LineSpec, drops: &mut impl Drops<P>) {
        let rest = self.line.remaining_work(now);
        self.line = Line::new(line, now);
        if let Some((_, departs)) = &mut self.in_transmission {
            *departs = self.line.send_remainder(self.line.next_start(now), rest);
        }
        self.start_next(now, drops);
    }

    /// Starts the next packet if the line is free at `at`.
    fn start_next(&mut self, at: Time, drops: &mut impl Drops<P>) {
        self.next_start = None;
        if self.in_transmission.is_some() {
            return;
        }
        let Some(ready) = self.queue.next_ready() else {
            return;
        };
        let starts = self.line.next_start(at.max(ready));
        if starts > at {
            self.next_start = Some(starts);
        } else if let Some(packet) = self.queue.dequeue(at, drops) {
            let departs = self.line.send(starts, packet.bytes());
            self.in_transmission = Some((packet, departs));
        } else {
            // The queue dropped everything, or holds its packets back.
            let later = self.queue.next_ready().filter(|&ready| ready > at);
            self.next_start = later.map(|ready| self.line.next_start(ready));
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for ShapedLink<P, Q> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let verdict = self.queue.enqueue(now, packet, drops);
        self.start_next(now, drops);
        verdict
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        if let Some(at) = self.next_start
            && at <= now
        {
            self.start_next(at, drops);
        }
        let (_, departs) = self.in_transmission.as_ref()?;
        let departs = *departs;
        if departs > now {
            return None;
        }
        let (packet, _) = self.in_transmission.take()?;
        // Starting at the departure time makes the schedule independent of late calls.
        self.start_next(departs, drops);
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        self.in_transmission
            .as_ref()
            .map(|(_, departs)| *departs)
            .or(self.next_start)
    }

    fn backlog(&self) -> Backlog {
        let mut backlog = self.queue.backlog();
        if let Some((packet, _)) = &self.in_transmission {
            backlog.add(packet.bytes());
        }
        backlog
    }
}
