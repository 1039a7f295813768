//! A queue that decides when it is asked, and the line that asks it.

use ccplane_units::Time;

use crate::{Backlog, Drops, Line, LineSpec, Packet, Qdisc, Verdict};

/// A link made of any [`Qdisc`] and a [`Line`]: whenever the line is free it takes the next packet
/// from the queue.
///
/// With a [`DropTail`](crate::DropTail) inside, departures are those of a
/// [`FifoLink`](crate::FifoLink), at the price of one more event a packet.
#[derive(Clone, Debug)]
pub struct Shaped<P, Q> {
    queue: Q,
    line: Line,
    /// The packet being sent and when it will have left.
    sending: Option<(P, Time)>,
    /// When the line can take the next packet, if one waits and none is being sent.
    begins: Option<Time>,
}

impl<P: Packet, Q: Qdisc<P>> Shaped<P, Q> {
    /// An idle link; a trace begins at `now`.
    pub fn new(queue: Q, line: &LineSpec, now: Time) -> Shaped<P, Q> {
        Shaped {
            queue,
            line: Line::new(line, now),
            sending: None,
            begins: None,
        }
    }

    /// The queue before the line.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The packet being sent.
    pub fn sending(&self) -> Option<&P> {
        self.sending.as_ref().map(|(packet, _)| packet)
    }

    /// What was due before `since` and nobody has asked for is due then, so that who asks late does
    /// not get all of it at once.
    pub fn forget_before(&mut self, since: Time) {
        if let Some((_, departs)) = &mut self.sending {
            *departs = since.max(*departs);
        }
        self.begins = self.begins.map(|at| at.max(since));
    }

    /// Changes the line at `now`; what the packet being sent has already put on the line stays
    /// sent.
    pub fn set_line(&mut self, now: Time, line: &LineSpec, drops: &mut impl Drops<P>) {
        let rest = self.line.work_after(now);
        self.line = Line::new(line, now);
        if let Some((_, departs)) = &mut self.sending {
            *departs = self.line.send_rest(self.line.next_start(now), rest);
        }
        self.begin(now, drops);
    }

    /// Lets the line take the next packet, if it is free at `at`.
    fn begin(&mut self, at: Time, drops: &mut impl Drops<P>) {
        self.begins = None;
        if self.sending.is_some() {
            return;
        }
        let Some(ready) = self.queue.next_ready() else {
            return;
        };
        let starts = self.line.next_start(at.max(ready));
        if starts > at {
            self.begins = Some(starts);
        } else if let Some(packet) = self.queue.dequeue(at, drops) {
            let departs = self.line.send(starts, packet.bytes());
            self.sending = Some((packet, departs));
        } else {
            // It dropped all it had, or holds back what it has.
            let later = self.queue.next_ready().filter(|&ready| ready > at);
            self.begins = later.map(|ready| self.line.next_start(ready));
        }
    }
}

impl<P: Packet, Q: Qdisc<P>> Qdisc<P> for Shaped<P, Q> {
    fn enqueue(&mut self, now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let verdict = self.queue.enqueue(now, packet, drops);
        self.begin(now, drops);
        verdict
    }

    fn dequeue(&mut self, now: Time, drops: &mut impl Drops<P>) -> Option<P> {
        if let Some(at) = self.begins
            && at <= now
        {
            self.begin(at, drops);
        }
        let (_, departs) = self.sending.as_ref()?;
        let departs = *departs;
        if departs > now {
            return None;
        }
        let (packet, _) = self.sending.take()?;
        // Whoever asks late still gets the departures that a caller on time would have had.
        self.begin(departs, drops);
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        self.sending
            .as_ref()
            .map(|(_, departs)| *departs)
            .or(self.begins)
    }

    fn backlog(&self) -> Backlog {
        let mut backlog = self.queue.backlog();
        if let Some((packet, _)) = &self.sending {
            backlog.add(packet.bytes());
        }
        backlog
    }
}
