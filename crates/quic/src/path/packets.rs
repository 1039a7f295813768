//! Sent packets of a path that are not settled yet, in the order of sending.
//!
//! A packet is settled once it is acknowledged or lost. The left edge is the oldest outstanding
//! packet: packets acknowledged before it are in order, packets acknowledged beyond it are
//! misordered, as with SACK. A lost packet does not hold the edge back, since QUIC never reuses its
//! number.

use std::collections::VecDeque;

use ccplane_transport::Stamp;
use ccplane_units::{Duration, Time};

#[derive(Clone, Copy, Debug)]
struct TrackedPacket {
    sent_at: Time,
    /// Low 32 bits of its packet number.
    number: u32,
    /// Call that acknowledged it.
    call: u32,
    stamp: Stamp,
    bytes: u16,
    state: PacketState,
    app_limited: bool,
}

/// The ring grows by half, so a packet takes at most 48 bytes of memory.
const _: () = assert!(size_of::<TrackedPacket>() <= 32);

/// Minimum capacity of the ring in packets, and the capacity kept when nothing is in flight.
const CAPACITY_PACKETS_MIN: usize = 16;
const IDLE_CAPACITY_PACKETS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketState {
    Outstanding,
    Acked,
    Lost,
    /// Dropped by the stack without a report: with its keys, or as a lost MTU probe.
    Discarded,
}

/// Packet that was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPacket {
    /// Index in the order of sending.
    pub order: u64,
    pub sent_at: Time,
    pub stamp: Stamp,
    pub app_limited: bool,
    pub bytes: u64,
    /// True if it had been declared lost.
    pub was_lost: bool,
}

/// Acknowledged packets passed by the left edge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassedPackets {
    /// Acknowledged in this call: packets and bytes.
    pub packets: u32,
    pub bytes: u64,
    /// Acknowledged in earlier calls, as misordered.
    pub earlier_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PacketTracker {
    ring: VecDeque<TrackedPacket>,
    /// Order of the first packet in the ring.
    first_order: u64,
    /// Order of the left edge.
    left_edge: u64,
    /// Order before which no packet is outstanding. Unlike the edge, which moves only at the end of
    /// a call, it advances during a call, which may lose an entire window packet by packet.
    searched: u64,
    /// Packets neither acknowledged nor lost.
    in_flight: u32,
    bytes_in_flight: u64,
    /// Number of the current call, stored with packets that it acknowledges to avoid a scan.
    call: u32,
}

impl PacketTracker {
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub fn bytes_in_flight(&self) -> u64 {
        self.bytes_in_flight
    }

    /// Returns the order of the next packet.
    pub fn next_order(&self) -> u64 {
        self.first_order + self.ring.len() as u64
    }

    /// Returns the left edge: all packets before it are settled.
    pub fn left_edge(&self) -> u64 {
        self.left_edge
    }

    pub fn on_sent(&mut self, at: Time, number: u64, bytes: u16, stamp: Stamp, app_limited: bool) {
        if self.ring.len() == self.ring.capacity() {
            self.ring
                .reserve_exact((self.ring.len() / 2).max(CAPACITY_PACKETS_MIN));
        }
        self.ring.push_back(TrackedPacket {
            sent_at: at,
            number: number as u32,
            call: 0,
            stamp,
            bytes,
            state: PacketState::Outstanding,
            app_limited,
        });
        self.in_flight += 1;
        self.bytes_in_flight += u64::from(bytes);
    }

    /// Acknowledges the packet with this number and send time; `None` if there is none or it was
    /// already acknowledged.
    pub fn on_acked(&mut self, number: u64, at: Time) -> Option<SentPacket> {
        let place = self.find_at(number, at)?;
        self.ack_index(place)
    }

    /// Returns the order of the packet with this number and send time; `None` if it was removed, in
    /// which case all packets before it are settled.
    pub fn order_of(&self, number: u64, at: Time) -> Option<u64> {
        Some(self.first_order + self.find_at(number, at)? as u64)
    }

    /// Acknowledges the newest outstanding packet up to `order`. For stacks that report only the
    /// newest packet and the bytes of an ACK.
    pub fn on_acked_up_to(&mut self, order: u64) -> Option<SentPacket> {
        let place = self.newest_outstanding_up_to(order)?;
        self.ack_index(place)
    }

    fn ack_index(&mut self, index: usize) -> Option<SentPacket> {
        let call = self.call;
        let order = self.first_order + index as u64;
        let packet = self.ring.get_mut(index)?;
        let was = std::mem::replace(&mut packet.state, PacketState::Acked);
        packet.call = call;
        let packet = *packet;
        match was {
            PacketState::Acked => return None,
            PacketState::Outstanding => self.subtract_in_flight(packet.bytes),
            PacketState::Lost | PacketState::Discarded => {}
        }
        Some(SentPacket {
            order,
            sent_at: packet.sent_at,
            stamp: packet.stamp,
            app_limited: packet.app_limited,
            bytes: packet.bytes.into(),
            was_lost: was == PacketState::Lost,
        })
    }

    /// Acknowledges the first outstanding packet with this send time, for stacks that do not report
    /// numbers.
    pub fn on_acked_sent_at(&mut self, at: Time) -> Option<SentPacket> {
        let mut place = self.ring.partition_point(|packet| packet.sent_at < at);
        let number = loop {
            let packet = self.ring.get(place).filter(|packet| packet.sent_at == at)?;
            if packet.state == PacketState::Outstanding {
                break packet.number;
            }
            place += 1;
        };
        self.on_acked(number.into(), at)
    }

    /// Marks the oldest outstanding packet as lost if it was sent no later than `until`. Returns
    /// its order and size.
    pub fn mark_oldest_lost(&mut self, until: Time) -> Option<(u64, u64)> {
        let place = self.oldest_outstanding()?;
        let left = self.ring.get(place)?.sent_at;
        if left > until {
            return None;
        }
        self.remove_from_flight(place, PacketState::Lost)
    }

    /// Marks the newest outstanding packet up to the given one as lost. Returns its order and size.
    pub fn on_lost_up_to(&mut self, number: u64, at: Time) -> Option<(u64, u64)> {
        let place = self.newest_outstanding_up_to(self.order_of(number, at)?)?;
        self.remove_from_flight(place, PacketState::Lost)
    }

    /// Removes the oldest outstanding packet, which the stack dropped. Returns its order and size.
    pub fn discard_oldest(&mut self) -> Option<(u64, u64)> {
        let place = self.oldest_outstanding()?;
        self.remove_from_flight(place, PacketState::Discarded)
    }

    /// Marks a packet as lost and returns its order. It is found by number and size, since stacks
    /// do not report its send time.
    pub fn on_lost(&mut self, number: u64, bytes: u16) -> Option<u64> {
        let place = self.find_sized(number, bytes)?;
        self.remove_from_flight(place, PacketState::Lost)
            .map(|(order, _)| order)
    }

    /// Ends a call and moves the edge past settled packets. Packets sent before `forget` that are
    /// still outstanding were dropped by the stack; lost packets sent before `keep` are not
    /// expected to arrive any more.
    pub fn end_call(&mut self, forget: Time, keep: Time) -> PassedPackets {
        let mut passed = PassedPackets::default();
        while let Some(packet) = self
            .ring
            .get_mut((self.left_edge - self.first_order) as usize)
        {
            match packet.state {
                PacketState::Outstanding if packet.sent_at < forget => {
                    packet.state = PacketState::Discarded;
                    let bytes = packet.bytes;
                    self.subtract_in_flight(bytes);
                }
                PacketState::Outstanding => break,
                PacketState::Acked if packet.call == self.call => {
                    passed.packets += 1;
                    passed.bytes += u64::from(packet.bytes);
                }
                PacketState::Acked => passed.earlier_bytes += u64::from(packet.bytes),
                PacketState::Lost | PacketState::Discarded => {}
            }
            self.left_edge += 1;
        }
        while let Some(packet) = self.ring.front() {
            let done = match packet.state {
                PacketState::Outstanding => false,
                PacketState::Acked => true,
                PacketState::Lost | PacketState::Discarded => packet.sent_at < keep,
            };
            if self.first_order >= self.left_edge || !done {
                break;
            }
            self.ring.pop_front();
            self.first_order += 1;
        }
        if self.ring.is_empty() && self.ring.capacity() > IDLE_CAPACITY_PACKETS {
            self.ring.shrink_to(IDLE_CAPACITY_PACKETS);
        }
        self.call = self.call.wrapping_add(1);
        passed
    }

    pub fn heap_bytes(&self) -> usize {
        self.ring.capacity() * size_of::<TrackedPacket>()
    }

    /// Takes an outstanding packet out of flight. Returns its order and size.
    fn remove_from_flight(&mut self, index: usize, state: PacketState) -> Option<(u64, u64)> {
        let packet = self
            .ring
            .get_mut(index)
            .filter(|packet| packet.state == PacketState::Outstanding)?;
        packet.state = state;
        let bytes = packet.bytes;
        self.subtract_in_flight(bytes);
        Some((self.first_order + index as u64, bytes.into()))
    }

    fn oldest_outstanding(&mut self) -> Option<usize> {
        self.searched = self.searched.max(self.left_edge);
        loop {
            let place = (self.searched - self.first_order) as usize;
            if self.ring.get(place)?.state == PacketState::Outstanding {
                return Some(place);
            }
            self.searched += 1;
        }
    }

    /// Returns the newest outstanding packet up to `order`.
    fn newest_outstanding_up_to(&self, order: u64) -> Option<usize> {
        let newest = order.checked_sub(self.first_order)? as usize;
        let from = (self.left_edge - self.first_order) as usize;
        (from..=newest).rev().find(|place| {
            self.ring
                .get(*place)
                .is_some_and(|packet| packet.state == PacketState::Outstanding)
        })
    }

    fn subtract_in_flight(&mut self, bytes: u16) {
        self.in_flight -= 1;
        self.bytes_in_flight -= u64::from(bytes);
    }

    /// Finds a packet by number and send time. Numbers restart in each packet number space, and
    /// stacks do not report the space.
    fn find_at(&self, number: u64, at: Time) -> Option<usize> {
        let number = number as u32;
        let is = |place: &usize| {
            self.ring
                .get(*place)
                .is_some_and(|p| p.number == number && p.sent_at == at)
        };
        if let Some(place) = self.index_without_gaps(number).filter(is) {
            return Some(place);
        }
        let mut place = self.ring.partition_point(|packet| packet.sent_at < at);
        while self
            .ring
            .get(place)
            .is_some_and(|packet| packet.sent_at == at)
        {
            if is(&place) {
                return Some(place);
            }
            place += 1;
        }
        None
    }

    fn find_sized(&self, number: u64, bytes: u16) -> Option<usize> {
        let number = number as u32;
        let is = |packet: &TrackedPacket| {
            packet.number == number
                && packet.bytes == bytes
                && packet.state == PacketState::Outstanding
        };
        let fits = |place: &usize| self.ring.get(*place).is_some_and(is);
        let sorted = || Some(self.ring.partition_point(|packet| packet.number < number));
        let found = self
            .index_without_gaps(number)
            .filter(fits)
            .or_else(|| sorted().filter(fits));
        // Needed only while several packet number spaces are in use.
        found.or_else(|| self.ring.iter().position(is))
    }

    /// Returns the index of a number if no number was skipped.
    fn index_without_gaps(&self, number: u32) -> Option<usize> {
        let front = self.ring.front()?;
        Some(number.wrapping_sub(front.number) as usize)
    }
}

/// Returns the time before which an outstanding packet must have been dropped by the stack. A
/// packet sent later, at `judged_by`, was acknowledged in an earlier call, so the stack has run
/// loss detection since. It would have declared the older packet lost after 9/8 of the larger RTT,
/// or one millisecond (RFC 9002, section 6.1.2). The factor of 1.5 allows for a late timer; a
/// packet removed too early is counted again when it is acknowledged.
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

    fn sent(packets: &mut PacketTracker, ms: u64, number: u64) {
        packets.on_sent(at(ms), number, 1_200, Stamp::default(), false);
    }

    fn settle(packets: &mut PacketTracker) -> (u32, u64, u64) {
        let passed = packets.end_call(Time::ZERO, Time::ZERO);
        (passed.packets, passed.bytes, passed.earlier_bytes)
    }

    #[test]
    fn misordered_bytes_become_in_order_once_the_gap_closes() {
        let mut packets = PacketTracker::default();
        (0..4).for_each(|n| sent(&mut packets, n, n));
        packets.on_acked(0, at(0)).unwrap();
        packets.on_acked(2, at(2)).unwrap();
        assert_eq!(settle(&mut packets), (1, 1_200, 0));
        packets.on_lost(1, 1_200).unwrap();
        packets.on_acked(3, at(3)).unwrap();
        assert_eq!(settle(&mut packets), (1, 1_200, 1_200));
        assert_eq!(
            (
                packets.in_flight(),
                packets.bytes_in_flight(),
                packets.left_edge()
            ),
            (0, 0, 4)
        );
        // The packet declared lost arrives after all.
        assert!(
            packets
                .on_acked(1, at(1))
                .is_some_and(|settled| settled.was_lost)
        );
        assert!(packets.on_acked(1, at(1)).is_none(), "once");
    }

    #[test]
    fn the_oldest_outstanding_packet_is_found_after_completed_ones() {
        let mut packets = PacketTracker::default();
        (0..5).for_each(|n| sent(&mut packets, n, n));
        packets.on_acked(0, at(0)).unwrap();
        assert_eq!(packets.mark_oldest_lost(at(9)), Some((1, 1_200)));
        packets.on_acked(2, at(2)).unwrap();
        assert_eq!(packets.mark_oldest_lost(at(2)), None, "3 left later");
        assert_eq!(packets.mark_oldest_lost(at(3)), Some((3, 1_200)));
        assert_eq!(packets.discard_oldest(), Some((4, 1_200)));
        assert_eq!(packets.mark_oldest_lost(at(9)), None);
        settle(&mut packets);
        sent(&mut packets, 5, 5);
        assert_eq!(packets.mark_oldest_lost(at(9)), Some((5, 1_200)));
    }

    #[test]
    fn a_number_of_another_space_is_another_packet() {
        let mut packets = PacketTracker::default();
        for (ms, number) in [(0, 0), (1, 1), (2, 0), (3, 0), (4, 1)] {
            sent(&mut packets, ms, number);
        }
        assert_eq!(packets.on_acked(0, at(3)).unwrap().order, 3);
        assert_eq!(packets.on_acked(1, at(4)).unwrap().order, 4);
        assert_eq!(packets.on_acked(1, at(1)).unwrap().order, 1);
        assert!(packets.on_acked(1, at(2)).is_none());
        assert!(packets.on_acked(9, at(1)).is_none());
    }

    #[test]
    fn dropped_packets_do_not_hold_the_edge() {
        let mut packets = PacketTracker::default();
        (0..3).for_each(|n| sent(&mut packets, n * 1_000, n));
        packets.on_acked(1, at(1_000)).unwrap();
        packets.on_acked(2, at(2_000)).unwrap();
        let rtt = Duration::from_millis(10);
        let passed = packets.end_call(forgotten_before(at(2_010), at(2_000), rtt, rtt), Time::ZERO);
        assert_eq!(
            (passed.packets, packets.in_flight(), packets.left_edge()),
            (2, 0, 3)
        );
    }
}
