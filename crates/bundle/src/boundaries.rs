//! Send history of a session: the boundaries, their send times, and the bytes sent up to each.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::epoch::PacketNumbering;

/// Number of stored boundaries: 8 s at one per 2 ms, the feedback rate, which exceeds any RTT. Each
/// takes 24 bytes.
pub const BOUNDARIES_MAX: usize = 4_096;

/// A boundary packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    pub number: u64,
    pub sent_at: Time,
    /// Bytes of the session sent up to and including this packet.
    pub bytes: u64,
}

/// Boundaries of a session, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct SentBoundaries {
    numbering: PacketNumbering,
    boundaries: VecDeque<Boundary>,
    /// Packets and bytes of the session sent so far.
    pub packets: u64,
    pub bytes: u64,
    /// Highest number sent plus one.
    pub next: u64,
}

impl SentBoundaries {
    pub fn new(marks: PacketNumbering) -> SentBoundaries {
        SentBoundaries {
            numbering: marks,
            boundaries: VecDeque::new(),
            packets: 0,
            bytes: 0,
            next: 0,
        }
    }

    /// Records a packet; `boundary` states whether it is one.
    #[inline]
    pub fn on_sent(&mut self, now: Time, number: u64, bytes: u32, boundary: bool) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.next = self.next.max(number.saturating_add(1));
        if boundary {
            if self.boundaries.len() == BOUNDARIES_MAX {
                self.boundaries.pop_front();
            }
            self.boundaries.push_back(Boundary {
                number,
                sent_at: now,
                bytes: self.bytes,
            });
        }
    }

    /// Returns the boundary with this number.
    pub fn find(&self, number: u64) -> Option<Boundary> {
        let at = match self.numbering {
            PacketNumbering::Counter => self
                .boundaries
                .binary_search_by_key(&number, |boundary| boundary.number)
                .ok()?,
            PacketNumbering::Hash => self
                .boundaries
                .iter()
                .rposition(|boundary| boundary.number == number)?,
        };
        self.boundaries.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use ccplane_units::Duration;

    use super::*;

    #[test]
    fn the_last_boundaries_are_found_and_older_ones_forgotten() {
        for marks in [PacketNumbering::Counter, PacketNumbering::Hash] {
            let mut sent = SentBoundaries::new(marks);
            let many = BOUNDARIES_MAX as u64 + 100;
            for n in 0..many {
                sent.on_sent(Time::ZERO + Duration::from_micros(n), n, 100, true);
            }
            assert_eq!(sent.find(99), None, "{marks:?}");
            let boundary = sent
                .find(100)
                .map(|boundary| (boundary.sent_at.as_micros(), boundary.bytes));
            assert_eq!(boundary, Some((100, 10_100)));
            assert_eq!(sent.find(many), None);
            assert_eq!(
                (sent.packets, sent.bytes, sent.next),
                (many, many * 100, many)
            );
        }
    }
}
