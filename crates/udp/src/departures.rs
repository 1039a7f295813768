//! When packets really left: what they say of it was written before.
//!
//! A packet carries the time at which it was made, and the kernel tells later when its driver had
//! it. So each gets a time of its own (two made in the same nanosecond are told apart), the peer
//! echoes it, and here it is looked up: what the packet said, or the peer changed, is only a name
//! for what is known on this side. DX does the same for stamps that no packet can carry (two-step
//! clocks in IEEE 1588).

use ccplane_units::{Duration, Time};

use super::numbered::Numbered;

/// Packets remembered, which are all that a path of 10 Gbit/s and 30 ms holds. Beyond it the oldest
/// are forgotten: their acknowledgements bring no sample.
const MOST: usize = 1 << 15;

/// The kernel is believed to stamp as long as it did it so lately. A driver that does not stamp at
/// all leaves the times of user space.
const LATELY: Duration = Duration::from_secs(1);

/// A packet leaves after it was made, give or take what two clocks can be told apart by. What the
/// kernel says of an earlier packet of the same number, of before it counted anew, is not believed.
const SLACK: Duration = Duration::from_micros(1);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Departures {
    /// By the kernel's number, and so by what they said.
    packets: Numbered<Packet>,
    /// The last time given out.
    last: Time,
    /// When the kernel stamped last.
    stamped: Option<Time>,
    /// Echoes without a departure, whose samples were dropped.
    missed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    said: Time,
    bytes: u32,
    left: Option<Time>,
}

impl Default for Departures {
    fn default() -> Departures {
        Departures {
            packets: Numbered::new(MOST),
            last: Time::ZERO,
            stamped: None,
            missed: 0,
        }
    }
}

impl Departures {
    /// A time that no other packet says, `now` or a little later.
    pub fn name(&mut self, now: Time) -> Time {
        self.last = now.max(self.last + Duration::from_nanos(1));
        self.last
    }

    /// The packet that said so, a datagram of so many bytes, was handed to the kernel, which
    /// counted it as `number`.
    pub fn sent(&mut self, said: Time, number: u32, bytes: u32) {
        let packet = Packet {
            said,
            bytes,
            left: None,
        };
        self.packets.sent(number, packet);
    }

    /// The kernel's packet `number` left then, which may depend on how many bytes its datagram has.
    pub fn left(&mut self, number: u32, at: impl FnOnce(u32) -> Time) {
        if let Some(packet) = self.packets.of(number) {
            let at = at(packet.bytes);
            if at + SLACK >= packet.said {
                packet.left = Some(at);
                self.stamped = Some(at);
            }
        }
    }

    /// When the packet that said so left; `None` where that is not known and was to be.
    pub fn of(&mut self, said: Time, now: Time) -> Option<Time> {
        let found = self.packets.find(&said, |packet| packet.said);
        let left = found.and_then(|packet| packet.left);
        let known = found.is_some();
        let stamps = self.stamped.is_some_and(|at| now.since(at) <= LATELY);
        match left {
            Some(left) => Some(left),
            None if stamps => {
                self.missed += 1;
                None
            }
            None => known.then_some(said),
        }
    }

    /// Echoes whose packet's departure was not known.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_nanos(us * 1_000)
    }

    #[test]
    fn every_packet_has_a_name_and_is_found_by_it() {
        let mut departures = Departures::default();
        let said: Vec<Time> = (0..100).map(|_| departures.name(at(5))).collect();
        assert!(said.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(departures.name(at(6)), at(6));
        let first = u32::MAX - 50; // the kernel's count goes round
        for (index, said) in said.iter().enumerate() {
            departures.sent(*said, first.wrapping_add(index as u32), 1400);
        }
        // Until the kernel stamps anything, user space's times serve.
        assert_eq!(departures.of(said[3], at(10)), Some(said[3]));
        for index in (0..100u32).rev() {
            departures.left(first.wrapping_add(index), |_| at(10 + u64::from(index)));
        }
        for (index, said) in said.iter().enumerate() {
            assert_eq!(departures.of(*said, at(200)), Some(at(10 + index as u64)));
        }
        // What the peer made up brings no sample, and neither does what was forgotten.
        assert_eq!(departures.of(at(7), at(200)), None);
        departures.sent(at(150), 0, 99);
        assert_eq!(departures.of(said[0], at(200)), None);
        departures.left(0, |_| at(140));
        assert_eq!(
            departures.of(at(150), at(200)),
            None,
            "a stamp of the count before"
        );
        departures.left(0, |bytes| at(52 + u64::from(bytes)));
        assert_eq!(departures.of(at(150), at(200)), Some(at(151)));
        assert_eq!(departures.missed(), 3);
    }

    #[test]
    fn memory_is_bounded_and_a_driver_that_stamps_no_more_is_done_without() {
        let mut departures = Departures::default();
        for number in 0..2 * MOST as u32 {
            let said = departures.name(at(u64::from(number)));
            departures.sent(said, number, 1400);
            if number < 10 {
                departures.left(number, |_| said);
            }
        }
        assert_eq!(departures.packets.len(), MOST);
        let last = at(2 * MOST as u64 - 1);
        assert_eq!(
            departures.of(last, at(900)),
            None,
            "it stamped a moment ago"
        );
        assert_eq!(
            departures.of(last, at(1_100_000)),
            Some(last),
            "not for a second"
        );
    }
}
