//! A drop-tail queue and its line in one: because nothing overtakes, a packet's departure is known when it comes.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::{Backlog, DropReason, Limit, Line, LineSpec};

/// A FIFO link. It keeps sizes and times only; the caller keeps the packets, in the same order.
///
/// A change of the line plans anew for what has not left ([`set_line`](FifoLink::set_line)): nothing is flushed, and
/// what a packet being sent has already put on the line stays sent.
#[derive(Clone, Debug)]
pub struct FifoLink {
    line: Line,
    limit: Limit,
    /// What has not left, in order. The front one may have begun.
    inside: VecDeque<Planned>,
    backlog: Backlog,
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    starts: Time,
    departs: Time,
    bytes: u32,
}

impl FifoLink {
    /// An empty link; a trace begins at `now`.
    pub fn new(line: &LineSpec, limit: Limit, now: Time) -> FifoLink {
        FifoLink {
            line: Line::new(line, now),
            limit,
            inside: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    /// Takes a packet and says when its last bit will have left, or that the queue is full.
    pub fn enqueue(&mut self, now: Time, bytes: u32) -> Result<Time, DropReason> {
        self.advance(now);
        let starts = self.line.next_start(now);
        // A packet that begins at once never waits.
        if starts > now && !self.limit.admits(self.waiting(now), bytes) {
            return Err(DropReason::Full);
        }
        let departs = self.line.send(starts, bytes);
        self.inside.push_back(Planned { starts, departs, bytes });
        self.backlog.add(bytes);
        Ok(departs)
    }

    /// Forgets what has left by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some(front) = self.inside.front()
            && front.departs <= now
        {
            self.backlog.remove(front.bytes);
            self.inside.pop_front();
        }
    }

    /// Changes the line at `now`. [`departures`](FifoLink::departures) then has the new plan.
    pub fn set_line(&mut self, now: Time, line: &LineSpec) {
        self.advance(now);
        let behind: u64 = self.inside.iter().skip(1).map(|p| u64::from(p.bytes)).sum();
        let rest_of_first = self
            .line
            .work_after(now)
            .saturating_sub(u128::from(behind) * 1_000_000_000);
        self.line = Line::new(line, now);
        for (index, planned) in self.inside.iter_mut().enumerate() {
            let starts = self.line.next_start(now);
            if index > 0 || planned.starts > now {
                planned.starts = starts;
            }
            planned.departs = match index {
                0 => self.line.send_rest(starts, rest_of_first),
                _ => self.line.send(starts, planned.bytes),
            };
        }
    }

    /// Departures of everything that has not left, in order.
    pub fn departures(&self) -> impl ExactSizeIterator<Item = Time> + '_ {
        self.inside.iter().map(|planned| planned.departs)
    }

    /// What has not left by the last call, the packet being sent included.
    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// What waits behind the packet being sent.
    fn waiting(&self, now: Time) -> Backlog {
        let mut waiting = self.backlog;
        if let Some(front) = self.inside.front()
            && front.starts <= now
        {
            waiting.remove(front.bytes);
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Rate;

    use super::*;

    fn rate(bytes_per_sec: u64) -> LineSpec {
        LineSpec::Constant(Rate::from_bytes_per_sec(bytes_per_sec))
    }

    #[test]
    fn departures_do_not_drift() {
        // 7 000 003 bytes/s divides nothing, so that every departure has a remainder.
        let mut link = FifoLink::new(&rate(7_000_003), Limit::Unlimited, Time::ZERO);
        let mut bytes = 0_u128;
        for n in 0..1_000_000_u32 {
            let size = 40 + n * 17 % 1_461;
            bytes += u128::from(size);
            let departs = link.enqueue(Time::ZERO, size).expect("no limit");
            assert_eq!(u128::from(departs.as_nanos()), bytes * 1_000_000_000 / 7_000_003);
        }
    }

    #[test]
    fn a_queue_of_one_bdp_holds_160_packets_behind_the_one_being_sent() {
        // 96 Mbit/s and 20 ms: 240 000 bytes, 125 µs a packet.
        let mut link = FifoLink::new(&rate(12_000_000), Limit::Bytes(240_000), Time::ZERO);
        let admitted = (0..1_000).filter(|_| link.enqueue(Time::ZERO, 1_500).is_ok()).count();
        assert_eq!(admitted, 161);
        assert_eq!(link.departures().last(), Some(Time::from_micros(161 * 125)));
        // One leaves, one may come.
        assert!(link.enqueue(Time::from_micros(125), 1_500).is_ok());
        assert!(link.enqueue(Time::from_micros(125), 1_500).is_err());
    }

    #[test]
    fn a_new_rate_keeps_what_has_been_sent() {
        let mut link = FifoLink::new(&rate(1_500_000), Limit::Unlimited, Time::ZERO);
        for _ in 0..3 {
            link.enqueue(Time::ZERO, 1_500).expect("no limit");
        }
        // After 1.5 ms the second packet is half sent; the rest of it takes 5 times as long, and so does the third.
        link.set_line(Time::from_micros(1_500), &rate(300_000));
        let plan: Vec<_> = link.departures().collect();
        assert_eq!(
            plan,
            [
                Time::from_micros(1_500 + 2_500),
                Time::from_micros(1_500 + 2_500 + 5_000)
            ]
        );
        link.set_line(Time::from_micros(1_500), &LineSpec::Unlimited);
        assert!(link.departures().all(|departs| departs == Time::from_micros(1_500)));
    }

    #[test]
    fn an_unlimited_line_never_fills_its_queue() {
        let mut link = FifoLink::new(&LineSpec::Unlimited, Limit::Packets(1), Time::ZERO);
        for _ in 0..10 {
            assert_eq!(link.enqueue(Time::from_micros(1), 1_500), Ok(Time::from_micros(1)));
        }
    }
}
