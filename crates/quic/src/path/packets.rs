//! What a path has sent and not yet settled, in the order of sending.
//!
//! A packet settles when it is acknowledged or lost. The left edge is the oldest that is still
//! outstanding: what is acknowledged before it is acknowledged in order, what is acknowledged
//! beyond it is misordered, as with SACK. A lost packet holds the edge no longer, since its number
//! never comes again.

use std::collections::VecDeque;

use ccplane_transport::Stamp;
use ccplane_units::{Duration, Time};

/// One packet.
#[derive(Clone, Copy, Debug)]
struct Packet {
    at: Time,
    /// The low half of its number.
    number: u32,
    /// The call that acknowledged it.
    call: u32,
    stamp: Stamp,
    bytes: u16,
    state: State,
    app_limited: bool,
}

/// A ring that grows by half has room for half as much again at most: 48 bytes a packet.
const _: () = assert!(size_of::<Packet>() <= 32);

/// Packets that a ring has room for at least, and that one keeps room for when nothing is in
/// flight.
const LEAST: usize = 16;
const KEPT: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Outstanding,
    Acked,
    Lost,
    /// The stack has dropped it without a word: of keys that are no more, or a probe for the path's
    /// MTU.
    Forgotten,
}

/// What became known of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// Its place in the order of sending.
    pub order: u64,
    pub at: Time,
    pub stamp: Stamp,
    pub app_limited: bool,
    pub bytes: u64,
    /// It had been taken for lost.
    pub was_lost: bool,
}

/// What the left edge passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passed {
    /// Acknowledged in this call: packets and bytes.
    pub packets: u32,
    pub bytes: u64,
    /// Acknowledged in earlier calls, out of order then.
    pub earlier_bytes: u64,
}

/// The packets of a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packets {
    ring: VecDeque<Packet>,
    /// The order of the ring's first.
    first: u64,
    /// The order of the left edge.
    edge: u64,
    /// Nothing of an order before this is outstanding. The edge moves only at the end of a call,
    /// and a call may lose a whole window packet by packet.
    searched: u64,
    /// Neither acknowledged nor lost.
    flying: u32,
    flying_bytes: u64,
    /// Counts the calls, so that what was acknowledged in this one is known without a scan.
    call: u32,
}

impl Packets {
    /// In flight, packets.
    pub fn flying(&self) -> u32 {
        self.flying
    }

    /// In flight, bytes.
    pub fn flying_bytes(&self) -> u64 {
        self.flying_bytes
    }

    /// The order of the next packet.
    pub fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// Everything before this has settled.
    pub fn edge(&self) -> u64 {
        self.edge
    }

    pub fn sent(&mut self, at: Time, number: u64, bytes: u16, stamp: Stamp, app_limited: bool) {
        if self.ring.len() == self.ring.capacity() {
            self.ring.reserve_exact((self.ring.len() / 2).max(LEAST));
        }
        self.ring.push_back(Packet {
            at,
            number: number as u32,
            call: 0,
            stamp,
            bytes,
            state: State::Outstanding,
            app_limited,
        });
        self.flying += 1;
        self.flying_bytes += u64::from(bytes);
    }

    /// Acknowledges the packet of this number that left at this time; nothing where there is none,
    /// or it was acknowledged before.
    pub fn acked(&mut self, number: u64, at: Time) -> Option<Settled> {
        let place = self.find_at(number, at)?;
        self.acked_at(place)
    }

    /// The place in the order of sending of the packet of this number that left at this time;
    /// nothing where it is gone: then everything before it has settled.
    pub fn order_of(&self, number: u64, at: Time) -> Option<u64> {
        Some(self.first + self.find_at(number, at)? as u64)
    }

    /// Acknowledges the newest packet that is outstanding and of this order at most; nothing where
    /// there is none. For stacks that tell the newest packet of an acknowledgement, and how many
    /// bytes it brought.
    pub fn acked_no_later(&mut self, order: u64) -> Option<Settled> {
        let place = self.outstanding_no_later(order)?;
        self.acked_at(place)
    }

    fn acked_at(&mut self, place: usize) -> Option<Settled> {
        let call = self.call;
        let order = self.first + place as u64;
        let packet = self.ring.get_mut(place)?;
        let was = std::mem::replace(&mut packet.state, State::Acked);
        packet.call = call;
        let packet = *packet;
        match was {
            State::Acked => return None,
            State::Outstanding => self.leave(packet.bytes),
            State::Lost | State::Forgotten => {}
        }
        Some(Settled {
            order,
            at: packet.at,
            stamp: packet.stamp,
            app_limited: packet.app_limited,
            bytes: packet.bytes.into(),
            was_lost: was == State::Lost,
        })
    }

    /// Acknowledges the first packet that left at this time and is outstanding, for stacks that
    /// tell no numbers.
    pub fn acked_of(&mut self, at: Time) -> Option<Settled> {
        let mut place = self.ring.partition_point(|packet| packet.at < at);
        let number = loop {
            let packet = self.ring.get(place).filter(|packet| packet.at == at)?;
            if packet.state == State::Outstanding {
                break packet.number;
            }
            place += 1;
        };
        self.acked(number.into(), at)
    }

    /// Marks the oldest outstanding packet lost, if it left no later than this: its order and size.
    pub fn oldest_lost(&mut self, until: Time) -> Option<(u64, u64)> {
        let place = self.oldest_outstanding()?;
        let left = self.ring.get(place)?.at;
        if left > until {
            return None;
        }
        self.settle_at(place, State::Lost)
    }

    /// Marks the newest packet lost that is outstanding and no newer than that of this number,
    /// which left at this time: its order and size.
    pub fn lost_no_later(&mut self, number: u64, at: Time) -> Option<(u64, u64)> {
        let place = self.outstanding_no_later(self.order_of(number, at)?)?;
        self.settle_at(place, State::Lost)
    }

    /// The stack has dropped the oldest outstanding packet: its order and size.
    pub fn oldest_dropped(&mut self) -> Option<(u64, u64)> {
        let place = self.oldest_outstanding()?;
        self.settle_at(place, State::Forgotten)
    }

    /// Marks a packet lost; its order. The stacks do not say when it left, so that its size has to
    /// do.
    pub fn lost(&mut self, number: u64, bytes: u16) -> Option<u64> {
        let place = self.find_sized(number, bytes)?;
        self.settle_at(place, State::Lost).map(|(order, _)| order)
    }

    /// Ends a call: moves the edge over what has settled. What left before `forget` and is still
    /// outstanding was dropped by the stack; what was lost and left before `keep` will not come any
    /// more.
    pub fn settle(&mut self, forget: Time, keep: Time) -> Passed {
        let mut passed = Passed::default();
        while let Some(packet) = self.ring.get_mut((self.edge - self.first) as usize) {
            match packet.state {
                State::Outstanding if packet.at < forget => {
                    packet.state = State::Forgotten;
                    let bytes = packet.bytes;
                    self.leave(bytes);
                }
                State::Outstanding => break,
                State::Acked if packet.call == self.call => {
                    passed.packets += 1;
                    passed.bytes += u64::from(packet.bytes);
                }
                State::Acked => passed.earlier_bytes += u64::from(packet.bytes),
                State::Lost | State::Forgotten => {}
            }
            self.edge += 1;
        }
        while let Some(packet) = self.ring.front() {
            let done = match packet.state {
                State::Outstanding => false,
                State::Acked => true,
                State::Lost | State::Forgotten => packet.at < keep,
            };
            if self.first >= self.edge || !done {
                break;
            }
            self.ring.pop_front();
            self.first += 1;
        }
        if self.ring.is_empty() && self.ring.capacity() > KEPT {
            self.ring.shrink_to(KEPT);
        }
        self.call = self.call.wrapping_add(1);
        passed
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<Packet>()
    }

    /// An outstanding packet flies no longer: its order and size.
    fn settle_at(&mut self, place: usize, state: State) -> Option<(u64, u64)> {
        let packet = self
            .ring
            .get_mut(place)
            .filter(|packet| packet.state == State::Outstanding)?;
        packet.state = state;
        let bytes = packet.bytes;
        self.leave(bytes);
        Some((self.first + place as u64, bytes.into()))
    }

    fn oldest_outstanding(&mut self) -> Option<usize> {
        self.searched = self.searched.max(self.edge);
        loop {
            let place = (self.searched - self.first) as usize;
            if self.ring.get(place)?.state == State::Outstanding {
                return Some(place);
            }
            self.searched += 1;
        }
    }

    /// The newest that is outstanding and of this order at most.
    fn outstanding_no_later(&self, order: u64) -> Option<usize> {
        let newest = order.checked_sub(self.first)? as usize;
        let from = (self.edge - self.first) as usize;
        (from..=newest).rev().find(|place| {
            self.ring
                .get(*place)
                .is_some_and(|packet| packet.state == State::Outstanding)
        })
    }

    fn leave(&mut self, bytes: u16) {
        self.flying -= 1;
        self.flying_bytes -= u64::from(bytes);
    }

    /// By number and time: numbers begin anew in each space, and stacks do not say which.
    fn find_at(&self, number: u64, at: Time) -> Option<usize> {
        let number = number as u32;
        let is = |place: &usize| {
            self.ring
                .get(*place)
                .is_some_and(|p| p.number == number && p.at == at)
        };
        if let Some(place) = self.guess(number).filter(is) {
            return Some(place);
        }
        let mut place = self.ring.partition_point(|packet| packet.at < at);
        while self.ring.get(place).is_some_and(|packet| packet.at == at) {
            if is(&place) {
                return Some(place);
            }
            place += 1;
        }
        None
    }

    fn find_sized(&self, number: u64, bytes: u16) -> Option<usize> {
        let number = number as u32;
        let is = |packet: &Packet| {
            packet.number == number && packet.bytes == bytes && packet.state == State::Outstanding
        };
        let fits = |place: &usize| self.ring.get(*place).is_some_and(is);
        let sorted = || Some(self.ring.partition_point(|packet| packet.number < number));
        let found = self
            .guess(number)
            .filter(fits)
            .or_else(|| sorted().filter(fits));
        // Only beside packets of another space.
        found.or_else(|| self.ring.iter().position(is))
    }

    /// Where a number is if none between was left out.
    fn guess(&self, number: u32) -> Option<usize> {
        let front = self.ring.front()?;
        Some(number.wrapping_sub(front.number) as usize)
    }
}

/// What left before this and is still outstanding, the stack has dropped. Something that left
/// later, at `judged_by`, was acknowledged in an earlier call, so that the stack has looked for
/// losses since: it would have found this one after 9/8 of the greater RTT, or a millisecond (RFC
/// 9002, 6.1.2). Half as much again is for a timer that is late; a packet forgotten too early
/// counts again when it is acknowledged.
pub(crate) fn forgotten_before(now: Time, judged_by: Time, srtt: Duration, rtt: Duration) -> Time {
    let longest = srtt.max(rtt) / 2 * 3 + Duration::from_millis(2);
    judged_by.min(now - longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_micros(ms * 1_000)
    }

    fn sent(packets: &mut Packets, ms: u64, number: u64) {
        packets.sent(at(ms), number, 1_200, Stamp::default(), false);
    }

    fn settle(packets: &mut Packets) -> (u32, u64, u64) {
        let passed = packets.settle(Time::ZERO, Time::ZERO);
        (passed.packets, passed.bytes, passed.earlier_bytes)
    }

    #[test]
    fn what_is_acknowledged_beyond_an_outstanding_packet_counts_in_order_once_that_has_settled() {
        let mut packets = Packets::default();
        (0..4).for_each(|n| sent(&mut packets, n, n));
        packets.acked(0, at(0)).unwrap();
        packets.acked(2, at(2)).unwrap();
        assert_eq!(settle(&mut packets), (1, 1_200, 0));
        packets.lost(1, 1_200).unwrap();
        packets.acked(3, at(3)).unwrap();
        assert_eq!(settle(&mut packets), (1, 1_200, 1_200));
        assert_eq!(
            (packets.flying(), packets.flying_bytes(), packets.edge()),
            (0, 0, 4)
        );
        // It had arrived all the same.
        assert!(
            packets
                .acked(1, at(1))
                .is_some_and(|settled| settled.was_lost)
        );
        assert!(packets.acked(1, at(1)).is_none(), "once");
    }

    #[test]
    fn the_oldest_outstanding_is_found_behind_what_has_settled() {
        let mut packets = Packets::default();
        (0..5).for_each(|n| sent(&mut packets, n, n));
        packets.acked(0, at(0)).unwrap();
        assert_eq!(packets.oldest_lost(at(9)), Some((1, 1_200)));
        packets.acked(2, at(2)).unwrap();
        assert_eq!(packets.oldest_lost(at(2)), None, "3 left later");
        assert_eq!(packets.oldest_lost(at(3)), Some((3, 1_200)));
        assert_eq!(packets.oldest_dropped(), Some((4, 1_200)));
        assert_eq!(packets.oldest_lost(at(9)), None);
        settle(&mut packets);
        sent(&mut packets, 5, 5);
        assert_eq!(packets.oldest_lost(at(9)), Some((5, 1_200)));
    }

    #[test]
    fn a_number_of_another_space_is_another_packet() {
        let mut packets = Packets::default();
        for (ms, number) in [(0, 0), (1, 1), (2, 0), (3, 0), (4, 1)] {
            sent(&mut packets, ms, number);
        }
        assert_eq!(packets.acked(0, at(3)).unwrap().order, 3);
        assert_eq!(packets.acked(1, at(4)).unwrap().order, 4);
        assert_eq!(packets.acked(1, at(1)).unwrap().order, 1);
        assert!(packets.acked(1, at(2)).is_none());
        assert!(packets.acked(9, at(1)).is_none());
    }

    #[test]
    fn what_the_stack_dropped_holds_the_edge_no_longer() {
        let mut packets = Packets::default();
        (0..3).for_each(|n| sent(&mut packets, n * 1_000, n));
        packets.acked(1, at(1_000)).unwrap();
        packets.acked(2, at(2_000)).unwrap();
        let rtt = Duration::from_millis(10);
        let passed = packets.settle(forgotten_before(at(2_010), at(2_000), rtt, rtt), Time::ZERO);
        assert_eq!(
            (passed.packets, packets.flying(), packets.edge()),
            (2, 0, 3)
        );
    }
}
