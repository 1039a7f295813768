//! Drop-tail queue and line in one type: in a FIFO the departure time is known on arrival.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::{Backlog, DropReason, Limit, Line, LineSpec};

/// FIFO link. It stores the size, departure time and a number per packet; the caller stores the
/// packets.
///
/// A caller that keeps its packets in a queue of the same order uses
/// [`enqueue`](FifoLink::enqueue), and the link forgets packets that have departed. Otherwise the
/// caller passes a number for each packet to [`admit`](FifoLink::admit) and gets the numbers back
/// in order: [`head`](FifoLink::head) returns the departure time of the oldest packet, and
/// [`take`](FifoLink::take) removes it, after its departure or after its propagation delay. Both
/// ways take 16 bytes per queued packet.
///
/// A change of the line ([`set_line`](FifoLink::set_line)) replans the packets that have not
/// departed. No packet is dropped, and bytes already transmitted stay transmitted.
///
/// The struct takes 128 bytes, two cache lines.
#[derive(Clone, Debug)]
pub struct FifoLink {
    line: Line,
    /// Bytes that have not departed, including the packet in transmission.
    backlog_bytes: u64,
    limit: PackedLimit,
    mark_above: PackedLimit,
    packets: PacketRing,
    /// Start times of the packets that have not departed. Used only on traces, where a packet does
    /// not start when its predecessor departs; on all other lines the first packet has always
    /// started.
    starts: Option<Box<Starts>>,
}

#[derive(Clone, Debug, Default)]
struct Starts(VecDeque<Time>);

/// Result of [`FifoLink::admit`] for an accepted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionResult {
    /// Time at which the last bit departs.
    pub departure: Time,
    /// The backlog was above the marking threshold: mark the packet if it is ECN-capable.
    pub mark: bool,
    /// The packet is now the [`head`](FifoLink::head).
    pub is_head: bool,
}

impl FifoLink {
    /// Creates an empty link; a trace starts at `now`.
    pub fn new(line: &LineSpec, limit: Limit, now: Time) -> FifoLink {
        FifoLink::with_marking(line, limit, Limit::Unlimited, now)
    }

    /// Creates a link that also marks packets that find more than `mark_above` waiting, like
    /// [`EcnStep`](crate::EcnStep).
    pub fn with_marking(line: &LineSpec, limit: Limit, mark_above: Limit, now: Time) -> FifoLink {
        FifoLink {
            line: Line::new(line, now),
            backlog_bytes: 0,
            limit: PackedLimit::new(limit),
            mark_above: PackedLimit::new(mark_above),
            packets: PacketRing::default(),
            starts: allocate_starts(line),
        }
    }

    /// Enqueues a packet and returns the departure time of its last bit, or an error if the queue
    /// is full. Forgets departed packets.
    #[inline]
    pub fn enqueue(&mut self, now: Time, bytes: u32) -> Result<Time, DropReason> {
        self.advance(now);
        self.admit(now, bytes, 0).map(|admitted| admitted.departure)
    }

    /// Enqueues a packet under a number chosen by the caller.
    #[inline(always)]
    pub fn admit(
        &mut self,
        now: Time,
        bytes: u32,
        number: u32,
    ) -> Result<AdmissionResult, DropReason> {
        let Some(line) = self.line.as_constant() else {
            return self.admit_slow_path(now, bytes, number);
        };
        let mut mark = false;
        if line.busy_until <= now {
            self.backlog_bytes = 0;
            self.packets.departed = self.packets.end;
        } else {
            // The line is busy, so there is a packet in transmission.
            let first = self.packets.depart(now, &mut self.backlog_bytes);
            let waiting = Backlog {
                packets: u64::from(self.packets.backlog_packets()).saturating_sub(1),
                bytes: self.backlog_bytes.saturating_sub(u64::from(first)),
            };
            if self.limit.is_exceeded_by(waiting.with_packet(bytes)) {
                return Err(DropReason::Full);
            }
            mark = self.mark_above.is_exceeded_by(waiting);
        }
        let departs = line.send(now, bytes);
        let first = self.packets.push(PlannedDeparture {
            departure: departs,
            bytes,
            number,
        });
        self.backlog_bytes += u64::from(bytes);
        Ok(AdmissionResult {
            departure: departs,
            mark,
            is_head: first,
        })
    }

    /// [`admit`](FifoLink::admit) for lines that are not of constant rate.
    #[inline(never)]
    fn admit_slow_path(
        &mut self,
        now: Time,
        bytes: u32,
        number: u32,
    ) -> Result<AdmissionResult, DropReason> {
        self.depart(now);
        let starts = self.line.next_start(now);
        let mut mark = false;
        // A packet that starts at once finds no queue.
        if starts > now {
            let waiting = self.waiting_backlog(now);
            if self.limit.is_exceeded_by(waiting.with_packet(bytes)) {
                return Err(DropReason::Full);
            }
            mark = self.mark_above.is_exceeded_by(waiting);
        }
        let departs = self.line.send(starts, bytes);
        if let Some(all) = &mut self.starts {
            all.0.push_back(starts);
        }
        let first = self.packets.push(PlannedDeparture {
            departure: departs,
            bytes,
            number,
        });
        self.backlog_bytes += u64::from(bytes);
        Ok(AdmissionResult {
            departure: departs,
            mark,
            is_head: first,
        })
    }

    /// Returns the departure time and the number of the oldest packet that has not been taken.
    #[inline]
    pub fn head(&self) -> Option<(Time, u32)> {
        let head = self.packets.head()?;
        Some((head.departure, head.number))
    }

    /// Removes the oldest packet and returns its departure time and number. A packet that has not
    /// departed yet counts as departed.
    #[inline(always)]
    pub fn take(&mut self) -> Option<(Time, u32)> {
        let head = *self.packets.head()?;
        if self.packets.departed == self.packets.head {
            self.backlog_bytes -= u64::from(head.bytes);
            self.packets.departed = self.packets.departed.wrapping_add(1);
            if let Some(starts) = &mut self.starts {
                starts.0.pop_front();
            }
        }
        self.packets.pop_head();
        Some((head.departure, head.number))
    }

    /// Removes the oldest packet. Returns its number and the departure time of its successor:
    /// [`take`](FifoLink::take) and [`head`](FifoLink::head) in one call.
    #[inline(always)]
    pub fn take_next(&mut self) -> Option<(u32, Option<Time>)> {
        let (_, number) = self.take()?;
        Some((number, self.packets.head().map(|head| head.departure)))
    }

    /// Forgets packets that have departed by `now`.
    #[inline]
    pub fn advance(&mut self, now: Time) {
        self.depart(now);
        self.packets.discard_departed();
    }

    /// Changes the line at `now` and recomputes the [`departures`](FifoLink::departures).
    pub fn set_line(&mut self, now: Time, line: &LineSpec) {
        self.depart(now);
        let first_began = self.head_started(now);
        let first = self.packets.next().map_or(0, |first| first.bytes);
        let behind = self.backlog_bytes - u64::from(first);
        let rest_of_first = self
            .line
            .remaining_work(now)
            .saturating_sub(u128::from(behind) * 1_000_000_000);
        self.line = Line::new(line, now);
        self.starts = allocate_starts(line);
        for index in 0..self.packets.backlog_packets() {
            let planned = self.packets.queued_mut(index);
            let starts = self.line.next_start(now);
            planned.departure = match index {
                0 => self.line.send_remainder(starts, rest_of_first),
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

    /// Returns the departure times of all packets inside at the last call, in order.
    pub fn departures(&self) -> impl ExactSizeIterator<Item = Time> + '_ {
        let first = self.packets.departed;
        (0..self.packets.backlog_packets())
            .map(move |index| self.packets.at(first.wrapping_add(index)).departure)
    }

    /// Returns the backlog at the last call, including the packet in transmission.
    pub fn backlog(&self) -> Backlog {
        Backlog {
            packets: u64::from(self.packets.backlog_packets()),
            bytes: self.backlog_bytes,
        }
    }

    /// Returns the backlog at `now`, which must not be earlier than the last call.
    pub fn backlog_at(&self, now: Time) -> Backlog {
        let mut backlog = self.backlog();
        let first = self.packets.departed;
        for index in 0..self.packets.backlog_packets() {
            let planned = self.packets.at(first.wrapping_add(index));
            if planned.departure > now {
                break;
            }
            backlog.remove(planned.bytes);
        }
        backlog
    }

    /// Returns the number of packets that have been neither taken nor forgotten.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.end.wrapping_sub(self.packets.head) as usize
    }

    /// Returns true if all packets were taken or forgotten.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the heap memory of the link.
    pub fn heap_bytes(&self) -> usize {
        let starts = self.starts.as_ref().map_or(0, |starts| {
            size_of::<Starts>() + starts.0.capacity() * size_of::<Time>()
        });
        size_of_val::<[PlannedDeparture]>(&self.packets.slots) + starts
    }

    /// Removes the packets that have departed by `now` from the backlog.
    #[inline]
    fn depart(&mut self, now: Time) {
        let before = self.packets.departed;
        self.packets.depart(now, &mut self.backlog_bytes);
        if let Some(starts) = &mut self.starts {
            let departed = self.packets.departed.wrapping_sub(before) as usize;
            starts.0.drain(..departed);
        }
    }

    /// Returns the backlog without the packet in transmission.
    #[inline]
    fn waiting_backlog(&self, now: Time) -> Backlog {
        let mut waiting = self.backlog();
        if let Some(first) = self.packets.next()
            && self.head_started(now)
        {
            waiting.remove(first.bytes);
        }
        waiting
    }

    #[inline]
    fn head_started(&self, now: Time) -> bool {
        match &self.starts {
            Some(starts) => starts.0.front().is_some_and(|&starts| starts <= now),
            None => true,
        }
    }
}

/// Allocates the start times if the line needs them.
fn allocate_starts(line: &LineSpec) -> Option<Box<Starts>> {
    matches!(line, LineSpec::Trace(_)).then(Box::default)
}

/// A [`Limit`] in eight bytes. The highest bit selects bytes instead of packets.
#[derive(Clone, Copy, Debug)]
struct PackedLimit(u64);

impl PackedLimit {
    const BYTES_FLAG: u64 = 1 << 63;

    fn new(limit: Limit) -> PackedLimit {
        let value_max = PackedLimit::BYTES_FLAG - 1;
        PackedLimit(match limit {
            Limit::Packets(packets) => packets.min(value_max),
            Limit::Bytes(bytes) => bytes.min(value_max) | PackedLimit::BYTES_FLAG,
            Limit::Unlimited => value_max,
        })
    }

    #[inline]
    fn is_exceeded_by(self, waiting: Backlog) -> bool {
        let counted = if self.0 & PackedLimit::BYTES_FLAG == 0 {
            waiting.packets
        } else {
            waiting.bytes
        };
        counted > self.0 & !PackedLimit::BYTES_FLAG
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PlannedDeparture {
    departure: Time,
    bytes: u32,
    number: u32,
}

/// Ring buffer: taken | departed but not taken | inside. Positions increase and wrap; the number of
/// slots is a power of two, so that a mask maps a position to its slot.
#[derive(Clone, Debug, Default)]
struct PacketRing {
    slots: Box<[PlannedDeparture]>,
    /// Position of the oldest packet that has not been taken.
    head: u32,
    /// Position of the oldest packet that has not departed.
    departed: u32,
    /// One past the newest packet.
    end: u32,
}

impl PacketRing {
    /// Appends a packet and returns true if it is the only one.
    #[inline(always)]
    fn push(&mut self, planned: PlannedDeparture) -> bool {
        let held = self.end.wrapping_sub(self.head);
        if held as usize == self.slots.len() {
            self.grow();
        }
        let slot = self.slot(self.end);
        self.slots[slot] = planned;
        self.end = self.end.wrapping_add(1);
        held == 0
    }

    /// Advances past the packets that departed by `now` and subtracts their sizes from `bytes`.
    /// Returns the size of the first remaining packet, or 0.
    #[inline(always)]
    fn depart(&mut self, now: Time, bytes: &mut u64) -> u32 {
        while let Some(first) = self.next() {
            if first.departure > now {
                return first.bytes;
            }
            *bytes -= u64::from(first.bytes);
            self.departed = self.departed.wrapping_add(1);
        }
        0
    }

    #[inline(always)]
    fn head(&self) -> Option<&PlannedDeparture> {
        (self.head != self.end).then(|| self.at(self.head))
    }

    /// Returns the oldest packet that has not departed.
    #[inline]
    fn next(&self) -> Option<&PlannedDeparture> {
        (self.departed != self.end).then(|| self.at(self.departed))
    }

    #[inline]
    fn pop_head(&mut self) {
        self.head = self.head.wrapping_add(1);
    }

    #[inline]
    fn discard_departed(&mut self) {
        self.head = self.departed;
    }

    /// Returns the number of packets that have not departed.
    fn backlog_packets(&self) -> u32 {
        self.end.wrapping_sub(self.departed)
    }

    fn queued_mut(&mut self, index: u32) -> &mut PlannedDeparture {
        let slot = self.slot(self.departed.wrapping_add(index));
        &mut self.slots[slot]
    }

    #[inline]
    fn at(&self, position: u32) -> &PlannedDeparture {
        &self.slots[self.slot(position)]
    }

    #[inline]
    fn slot(&self, position: u32) -> usize {
        position as usize & self.slots.len().wrapping_sub(1)
    }

    /// Doubles the slots, keeps the packets in order and restarts the positions at zero.
    #[cold]
    fn grow(&mut self) {
        let held = self.end.wrapping_sub(self.head);
        let larger = (self.slots.len() * 2).max(8);
        let mut slots = Vec::with_capacity(larger);
        slots.extend((0..held).map(|index| *self.at(self.head.wrapping_add(index))));
        slots.resize(larger, PlannedDeparture::default());
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
        assert_eq!(
            (size_of::<FifoLink>(), size_of::<PlannedDeparture>()),
            (128, 16)
        );
    }

    #[test]
    fn departures_do_not_drift() {
        // 7,000,003 bytes/s divides no transmission time evenly, so every departure has a
        // remainder.
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
        // 96 Mbit/s and 20 ms: 240,000 bytes, 125 µs per packet.
        let mut link = FifoLink::new(&rate(12_000_000), Limit::Bytes(240_000), Time::ZERO);
        let admitted = (0..1_000)
            .filter(|_| link.enqueue(Time::ZERO, 1_500).is_ok())
            .count();
        assert_eq!(admitted, 161);
        assert_eq!(link.departures().last(), Some(Time::from_micros(161 * 125)));
        // One packet departs and makes room for one.
        assert!(link.enqueue(Time::from_micros(125), 1_500).is_ok());
        assert!(link.enqueue(Time::from_micros(125), 1_500).is_err());
    }

    #[test]
    fn a_new_rate_keeps_what_has_been_sent() {
        let mut link = FifoLink::new(&rate(1_500_000), Limit::Unlimited, Time::ZERO);
        for _ in 0..3 {
            link.enqueue(Time::ZERO, 1_500).expect("no limit");
        }
        // After 1.5 ms the second packet is half sent. Its second half and the third packet take 5
        // times as long.
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
