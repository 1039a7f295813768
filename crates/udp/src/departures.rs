//! Transmit times from the kernel, looked up by the timestamp that a packet carries.
//!
//! A packet carries the time at which it was built; the kernel reports only later when the driver
//! sent it. Each packet therefore gets a unique timestamp (even packets built within one
//! nanosecond), which the peer echoes and which is looked up here. The echoed value serves only as
//! a key, so a forged echo cannot distort a measurement. DX does the same for timestamps that no
//! packet can carry (two-step clocks in IEEE 1588).

use ccplane_units::{Duration, Time};

use super::recent_items::RecentItems;

/// Packets remembered, enough for a path of 10 Gbit/s and 30 ms. Beyond it the oldest are dropped,
/// and their ACKs yield no sample.
const PACKETS_MAX: usize = 1 << 15;

/// Time since the last kernel timestamp during which further ones are expected. If the driver does
/// not timestamp at all, user-space times are used.
const KERNEL_TIMESTAMP_EXPIRY: Duration = Duration::from_secs(1);

/// Tolerance for a departure before the creation time, for differences between the two clocks. An
/// earlier departure belongs to an older packet with the same number, from before the counter
/// wrapped, and is ignored.
const CLOCK_TOLERANCE: Duration = Duration::from_micros(1);

/// Packets awaiting their kernel timestamps; see the [module](self).
#[derive(Debug)]
pub(super) struct Departures {
    /// Ordered by the kernel's packet number, and so also by creation time.
    packets: RecentItems<DeparturePacket>,
    /// Last creation time issued.
    last_creation_time: Time,
    /// Time of the last kernel timestamp.
    last_kernel_timestamp: Option<Time>,
    /// Echoes without a departure time; their samples were dropped.
    missed: u64,
}

#[derive(Clone, Copy, Debug)]
struct DeparturePacket {
    created: Time,
    bytes: u32,
    departed: Option<Time>,
}

impl Default for Departures {
    fn default() -> Departures {
        Departures {
            packets: RecentItems::new(PACKETS_MAX),
            last_creation_time: Time::ZERO,
            last_kernel_timestamp: None,
            missed: 0,
        }
    }
}

impl Departures {
    /// Returns a unique creation time: `now`, or slightly later.
    pub fn unique_time(&mut self, now: Time) -> Time {
        self.last_creation_time = now.max(self.last_creation_time + Duration::from_nanos(1));
        self.last_creation_time
    }

    /// Records that the packet with creation time `said`, a datagram of `bytes` bytes, was passed
    /// to the kernel as packet `number`.
    pub fn on_sent(&mut self, created: Time, number: u32, bytes: u32) {
        let packet = DeparturePacket {
            created,
            bytes,
            departed: None,
        };
        self.packets.push(number, packet);
    }

    /// Records the departure of the kernel's packet `number`. `at` computes the time from the
    /// datagram's length in bytes.
    pub fn on_departed(&mut self, number: u32, at: impl FnOnce(u32) -> Time) {
        if let Some(packet) = self.packets.get_mut(number) {
            let at = at(packet.bytes);
            if at + CLOCK_TOLERANCE >= packet.created {
                packet.departed = Some(at);
                self.last_kernel_timestamp = Some(at);
            }
        }
    }

    /// Returns the departure time of the packet with creation time `said`; `None` if the kernel
    /// should have reported one and did not.
    pub fn departure_time(&mut self, created: Time, now: Time) -> Option<Time> {
        let found = self.packets.find(&created, |packet| packet.created);
        let left = found.and_then(|packet| packet.departed);
        let known = found.is_some();
        let stamps = self
            .last_kernel_timestamp
            .is_some_and(|at| now.since(at) <= KERNEL_TIMESTAMP_EXPIRY);
        match left {
            Some(left) => Some(left),
            None if stamps => {
                self.missed += 1;
                None
            }
            None => known.then_some(created),
        }
    }

    /// Returns the number of echoes whose departure time was unknown.
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
        let said: Vec<Time> = (0..100).map(|_| departures.unique_time(at(5))).collect();
        assert!(said.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(departures.unique_time(at(6)), at(6));
        let first = u32::MAX - 50; // the kernel's counter wraps
        for (index, said) in said.iter().enumerate() {
            departures.on_sent(*said, first.wrapping_add(index as u32), 1400);
        }
        // User-space times are used until the first kernel timestamp.
        assert_eq!(departures.departure_time(said[3], at(10)), Some(said[3]));
        for index in (0..100u32).rev() {
            departures.on_departed(first.wrapping_add(index), |_| at(10 + u64::from(index)));
        }
        for (index, said) in said.iter().enumerate() {
            assert_eq!(
                departures.departure_time(*said, at(200)),
                Some(at(10 + index as u64))
            );
        }
        // A forged or forgotten timestamp yields no sample.
        assert_eq!(departures.departure_time(at(7), at(200)), None);
        departures.on_sent(at(150), 0, 99);
        assert_eq!(departures.departure_time(said[0], at(200)), None);
        departures.on_departed(0, |_| at(140));
        assert_eq!(
            departures.departure_time(at(150), at(200)),
            None,
            "a stamp of the count before"
        );
        departures.on_departed(0, |bytes| at(52 + u64::from(bytes)));
        assert_eq!(departures.departure_time(at(150), at(200)), Some(at(151)));
        assert_eq!(departures.missed(), 3);
    }

    #[test]
    fn memory_is_bounded_if_a_driver_stops_timestamping() {
        let mut departures = Departures::default();
        for number in 0..2 * PACKETS_MAX as u32 {
            let said = departures.unique_time(at(u64::from(number)));
            departures.on_sent(said, number, 1400);
            if number < 10 {
                departures.on_departed(number, |_| said);
            }
        }
        assert_eq!(departures.packets.len(), PACKETS_MAX);
        let last = at(2 * PACKETS_MAX as u64 - 1);
        assert_eq!(
            departures.departure_time(last, at(900)),
            None,
            "it stamped a moment ago"
        );
        assert_eq!(
            departures.departure_time(last, at(1_100_000)),
            Some(last),
            "not for a second"
        );
    }
}
