//! A drop-tail queue and its line in one: because nothing overtakes, a packet's departure is known
//! when it comes.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::{Backlog, DropReason, Limit, Line, LineSpec};

/// A FIFO link. It keeps sizes, times and a number a packet; the caller keeps the packets.
///
/// A caller with a queue of its own in the same order calls [`enqueue`](FifoLink::enqueue), and the
/// link forgets what has left. A caller without one gives each packet a number with
/// [`admit`](FifoLink::admit), and gets it back in order: [`head`](FifoLink::head) tells when the
/// oldest packet leaves, [`take`](FifoLink::take) takes it out, when it has left or when it has
/// also crossed the wire behind the link. A waiting packet costs 16 bytes either way.
///
/// A change of the line plans anew for what has not left ([`set_line`](FifoLink::set_line)):
/// nothing is flushed, and what a packet being sent has already put on the line stays sent.
///
/// The whole is 128 bytes: two cache lines.
#[derive(Clone, Debug)]
pub struct FifoLink {
    line: Line,
    /// Bytes that have not left, the packet being sent included.
    inside: u64,
    limit: Bound,
    mark_above: Bound,
    packets: Ring,
    /// On a line whose packets do not begin as soon as the one before has left (a trace): when
    /// those that have not left begin. Everywhere else the first of them has begun.
    starts: Option<Box<Starts>>,
}

#[derive(Clone, Debug, Default)]
struct Starts(VecDeque<Time>);

/// What [`FifoLink::admit`] says of a packet that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// When its last bit will have left.
    pub departs: Time,
    /// Whether it found more waiting than the threshold for marks, and is to be marked if it
    /// understands marks.
    pub mark: bool,
    /// Whether it is the only packet that has not been taken: the [`head`](FifoLink::head).
    pub first: bool,
}

impl FifoLink {
    /// An empty link; a trace begins at `now`.
    pub fn new(line: &LineSpec, limit: Limit, now: Time) -> FifoLink {
        FifoLink::marking(line, limit, Limit::Unlimited, now)
    }

    /// [`new`](FifoLink::new), with marks for what finds more than `mark_above` waiting: the queue
    /// of [`EcnStep`](crate::EcnStep).
    pub fn marking(line: &LineSpec, limit: Limit, mark_above: Limit, now: Time) -> FifoLink {
        FifoLink {
            line: Line::new(line, now),
            inside: 0,
            limit: Bound::new(limit),
            mark_above: Bound::new(mark_above),
            packets: Ring::default(),
            starts: starts_apart(line),
        }
    }

    /// Takes a packet and says when its last bit will have left, or that the queue is full. Forgets
    /// what has left.
    #[inline]
    pub fn enqueue(&mut self, now: Time, bytes: u32) -> Result<Time, DropReason> {
        self.advance(now);
        self.admit(now, bytes, 0).map(|admitted| admitted.departs)
    }

    /// Takes a packet under a number of the caller's choice, or says that the queue is full.
    #[inline(always)]
    pub fn admit(&mut self, now: Time, bytes: u32, number: u32) -> Result<Admitted, DropReason> {
        let Some(line) = self.line.as_constant() else {
            return self.admit_elsewhere(now, bytes, number);
        };
        let mut mark = false;
        if line.until <= now {
            self.inside = 0;
            self.packets.departed = self.packets.end;
        } else {
            // The line is busy, so that something is inside, and the first of it has begun.
            let first = self.packets.depart(now, &mut self.inside);
            let waiting = Backlog {
                packets: u64::from(self.packets.inside()).saturating_sub(1),
                bytes: self.inside.saturating_sub(u64::from(first)),
            };
            if self.limit.is_below(waiting.with(bytes)) {
                return Err(DropReason::Full);
            }
            mark = self.mark_above.is_below(waiting);
        }
        let departs = line.send(now, bytes);
        let first = self.packets.push(Planned {
            departs,
            bytes,
            number,
        });
        self.inside += u64::from(bytes);
        Ok(Admitted {
            departs,
            mark,
            first,
        })
    }

    /// The same on a line that is not of constant rate.
    #[inline(never)]
    fn admit_elsewhere(
        &mut self,
        now: Time,
        bytes: u32,
        number: u32,
    ) -> Result<Admitted, DropReason> {
        self.depart(now);
        let starts = self.line.next_start(now);
        let mut mark = false;
        // A packet that begins at once never waits.
        if starts > now {
            let waiting = self.waiting(now);
            if self.limit.is_below(waiting.with(bytes)) {
                return Err(DropReason::Full);
            }
            mark = self.mark_above.is_below(waiting);
        }
        let departs = self.line.send(starts, bytes);
        if let Some(all) = &mut self.starts {
            all.0.push_back(starts);
        }
        let first = self.packets.push(Planned {
            departs,
            bytes,
            number,
        });
        self.inside += u64::from(bytes);
        Ok(Admitted {
            departs,
            mark,
            first,
        })
    }

    /// When the oldest packet that has not been taken leaves or left, and its number.
    #[inline]
    pub fn head(&self) -> Option<(Time, u32)> {
        let head = self.packets.head()?;
        Some((head.departs, head.number))
    }

    /// Takes out the oldest packet: when it left, and its number. One that has not left by the last
    /// call goes as if it had.
    #[inline(always)]
    pub fn take(&mut self) -> Option<(Time, u32)> {
        let head = *self.packets.head()?;
        if self.packets.departed == self.packets.head {
            self.inside -= u64::from(head.bytes);
            self.packets.departed = self.packets.departed.wrapping_add(1);
            if let Some(starts) = &mut self.starts {
                starts.0.pop_front();
            }
        }
        self.packets.forget_head();
        Some((head.departs, head.number))
    }

    /// [`take`](FifoLink::take) and [`head`](FifoLink::head) in one: the number of the oldest
    /// packet, and when the one behind it leaves.
    #[inline(always)]
    pub fn take_next(&mut self) -> Option<(u32, Option<Time>)> {
        let (_, number) = self.take()?;
        Some((number, self.packets.head().map(|head| head.departs)))
    }

    /// Forgets what has left by `now`.
    #[inline]
    pub fn advance(&mut self, now: Time) {
        self.depart(now);
        self.packets.forget_departed();
    }

    /// Changes the line at `now`. [`departures`](FifoLink::departures) then has the new plan.
    pub fn set_line(&mut self, now: Time, line: &LineSpec) {
        self.depart(now);
        let first_began = self.first_began(now);
        let first = self.packets.next().map_or(0, |first| first.bytes);
        let behind = self.inside - u64::from(first);
        let rest_of_first = self
            .line
            .work_after(now)
            .saturating_sub(u128::from(behind) * 1_000_000_000);
        self.line = Line::new(line, now);
        self.starts = starts_apart(line);
        for index in 0..self.packets.inside() {
            let planned = self.packets.inside_mut(index);
            let starts = self.line.next_start(now);
            planned.departs = match index {
                0 => self.line.send_rest(starts, rest_of_first),
                _ => self.line.send(starts, planned.bytes),
            };
            if let Some(all) = &mut self.starts {
                all.0.push_back(if index == 0 && first_began {
                    now
                } else {
                    starts
                });
            }
        }
    }

    /// Departures of everything that has not left by the last call, in order.
    pub fn departures(&self) -> impl ExactSizeIterator<Item = Time> + '_ {
        let first = self.packets.departed;
        (0..self.packets.inside())
            .map(move |index| self.packets.at(first.wrapping_add(index)).departs)
    }

    /// What has not left by the last call, the packet being sent included.
    pub fn backlog(&self) -> Backlog {
        Backlog {
            packets: u64::from(self.packets.inside()),
            bytes: self.inside,
        }
    }

    /// What has not left by `now`, which is not before the last call.
    pub fn backlog_at(&self, now: Time) -> Backlog {
        let mut backlog = self.backlog();
        let first = self.packets.departed;
        for index in 0..self.packets.inside() {
            let planned = self.packets.at(first.wrapping_add(index));
            if planned.departs > now {
                break;
            }
            backlog.remove(planned.bytes);
        }
        backlog
    }

    /// How many packets have not been taken or forgotten.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.end.wrapping_sub(self.packets.head) as usize
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory apart from the link itself.
    pub fn heap_bytes(&self) -> usize {
        let starts = self.starts.as_ref().map_or(0, |starts| {
            size_of::<Starts>() + starts.0.capacity() * size_of::<Time>()
        });
        size_of_val::<[Planned]>(&self.packets.slots) + starts
    }

    /// Counts out what has left.
    #[inline]
    fn depart(&mut self, now: Time) {
        let before = self.packets.departed;
        self.packets.depart(now, &mut self.inside);
        if let Some(starts) = &mut self.starts {
            let departed = self.packets.departed.wrapping_sub(before) as usize;
            starts.0.drain(..departed);
        }
    }

    /// What waits behind the packet being sent.
    #[inline]
    fn waiting(&self, now: Time) -> Backlog {
        let mut waiting = self.backlog();
        if let Some(first) = self.packets.next()
            && self.first_began(now)
        {
            waiting.remove(first.bytes);
        }
        waiting
    }

    #[inline]
    fn first_began(&self, now: Time) -> bool {
        match &self.starts {
            Some(starts) => starts.0.front().is_some_and(|&starts| starts <= now),
            None => true,
        }
    }
}

/// Room for starts, on a line where they have to be kept.
fn starts_apart(line: &LineSpec) -> Option<Box<Starts>> {
    matches!(line, LineSpec::Trace(_)).then(Box::default)
}

/// A [`Limit`] in eight bytes: the highest bit says that the others count bytes, not packets.
#[derive(Clone, Copy, Debug)]
struct Bound(u64);

impl Bound {
    const IN_BYTES: u64 = 1 << 63;

    fn new(limit: Limit) -> Bound {
        let most = Bound::IN_BYTES - 1;
        Bound(match limit {
            Limit::Packets(packets) => packets.min(most),
            Limit::Bytes(bytes) => bytes.min(most) | Bound::IN_BYTES,
            Limit::Unlimited => most,
        })
    }

    #[inline]
    fn is_below(self, waiting: Backlog) -> bool {
        let counted = if self.0 & Bound::IN_BYTES == 0 {
            waiting.packets
        } else {
            waiting.bytes
        };
        counted > self.0 & !Bound::IN_BYTES
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Planned {
    departs: Time,
    bytes: u32,
    number: u32,
}

/// Packets in order: taken | departed and not taken | inside. Positions count on and wrap; the
/// number of slots is a power of two, so that a position's slot is a mask away.
#[derive(Clone, Debug, Default)]
struct Ring {
    slots: Box<[Planned]>,
    /// The oldest that has not been taken.
    head: u32,
    /// The oldest that has not departed.
    departed: u32,
    /// Behind the newest.
    end: u32,
}

impl Ring {
    /// Puts a packet at the end, and says whether it is the only one.
    #[inline(always)]
    fn push(&mut self, planned: Planned) -> bool {
        let held = self.end.wrapping_sub(self.head);
        if held as usize == self.slots.len() {
            self.grow();
        }
        let slot = self.slot(self.end);
        self.slots[slot] = planned;
        self.end = self.end.wrapping_add(1);
        held == 0
    }

    /// Lets go what has left by `now`, off `bytes`; the size of the first that has not, or 0.
    #[inline(always)]
    fn depart(&mut self, now: Time, bytes: &mut u64) -> u32 {
        while let Some(first) = self.next() {
            if first.departs > now {
                return first.bytes;
            }
            *bytes -= u64::from(first.bytes);
            self.departed = self.departed.wrapping_add(1);
        }
        0
    }

    #[inline(always)]
    fn head(&self) -> Option<&Planned> {
        (self.head != self.end).then(|| self.at(self.head))
    }

    /// The first that has not departed.
    #[inline]
    fn next(&self) -> Option<&Planned> {
        (self.departed != self.end).then(|| self.at(self.departed))
    }

    #[inline]
    fn forget_head(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    #[inline]
    fn forget_departed(&mut self) {
        self.head = self.departed;
    }

    /// How many have not departed.
    fn inside(&self) -> u32 {
        self.end.wrapping_sub(self.departed)
    }

    fn inside_mut(&mut self, index: u32) -> &mut Planned {
        let slot = self.slot(self.departed.wrapping_add(index));
        &mut self.slots[slot]
    }

    #[inline]
    fn at(&self, position: u32) -> &Planned {
        &self.slots[self.slot(position)]
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        position as usize & self.slots.len().wrapping_sub(1)
    }

    /// Twice the slots; packets keep their order and positions begin at zero.
    #[cold]
    fn grow(&mut self) {
        let held = self.end.wrapping_sub(self.head);
        let larger = (self.slots.len() * 2).max(8);
        let mut slots = Vec::with_capacity(larger);
        slots.extend((0..held).map(|index| *self.at(self.head.wrapping_add(index))));
        slots.resize(larger, Planned::default());
        self.slots = slots.into_boxed_slice();
        (self.head, self.departed, self.end) = (0, self.departed.wrapping_sub(self.head), held);
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
    fn a_link_is_two_cache_lines_and_a_packet_a_quarter_of_one() {
        assert_eq!((size_of::<FifoLink>(), size_of::<Planned>()), (128, 16));
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
            assert_eq!(
                u128::from(departs.as_nanos()),
                bytes * 1_000_000_000 / 7_000_003
            );
        }
    }

    #[test]
    fn a_queue_of_one_bdp_holds_160_packets_behind_the_one_being_sent() {
        // 96 Mbit/s and 20 ms: 240 000 bytes, 125 µs a packet.
        let mut link = FifoLink::new(&rate(12_000_000), Limit::Bytes(240_000), Time::ZERO);
        let admitted = (0..1_000)
            .filter(|_| link.enqueue(Time::ZERO, 1_500).is_ok())
            .count();
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
        // After 1.5 ms the second packet is half sent; the rest of it takes 5 times as long, and so
        // does the third.
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
        assert!(
            link.departures()
                .all(|departs| departs == Time::from_micros(1_500))
        );
    }

    #[test]
    fn an_unlimited_line_never_fills_its_queue() {
        let mut link = FifoLink::new(&LineSpec::Unlimited, Limit::Packets(1), Time::ZERO);
        for _ in 0..10 {
            assert_eq!(
                link.enqueue(Time::from_micros(1), 1_500),
                Ok(Time::from_micros(1))
            );
        }
    }
}
