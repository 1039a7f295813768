//! Receiving end of a bundle: counts packets and sends feedback for boundaries.

use ccplane_qdisc::Ecn;
use ccplane_units::{Duration, Time};

use crate::epoch::{EpochSize, PacketNumbering};
use crate::feedback::{Feedback, Notice};

/// Minimum interval between feedback messages. A shorter one would send more than the control loop
/// can use; with a longer one, a loop with a period of 10 ms would often lack feedback.
pub const FEEDBACK_INTERVAL_MIN: Duration = Duration::from_millis(2);
/// Maximum interval between feedback messages while data arrives; repeats the last boundary if
/// there is no new one. Silence is declared after 250 ms, so ten messages in a row must be lost for
/// that.
pub const FEEDBACK_INTERVAL_MAX: Duration = Duration::from_millis(25);
/// Reordering window: a packet is missing when one sent this many packets later has arrived. With a
/// smaller window, packets delayed by several paths would count as lost.
pub const REORDER_WINDOW_PACKETS: u64 = 1_024;
/// Numbers tracked in the bitmap: the window, plus as many that one arrival may skip.
const BITMAP_PACKETS: u64 = 2 * REORDER_WINDOW_PACKETS;

/// Counts the packets of one session. A rekey of the tunnel starts a new one, see
/// [`Receivebox::start_session`].
#[derive(Clone, Debug)]
pub struct Receivebox {
    numbering: PacketNumbering,
    session: u32,
    epoch_size: EpochSize,
    /// Highest number received plus one; 0 before the first packet.
    next: u64,
    /// Bitmap of the received numbers among the last [`BITMAP_PACKETS`] below `next`, indexed by
    /// number modulo `BITMAP_PACKETS`.
    arrival_bitmap: [u64; (BITMAP_PACKETS / 64) as usize],
    /// Lower numbers have either arrived or are counted as missing.
    missing_counted_end: u64,
    packets: u64,
    bytes: u64,
    out_of_order: u64,
    missing: u64,
    marked: u64,
    boundary: Option<Boundary>,
    /// True if there is a boundary for which no feedback was sent.
    boundary_pending: bool,
    /// True if a packet has arrived since the last feedback.
    packet_pending: bool,
    /// Time of the last feedback; zero before the first.
    last_feedback: Time,
}

#[derive(Clone, Copy, Debug)]
struct Boundary {
    number: u64,
    received_at: Time,
    bytes: u64,
}

impl Receivebox {
    /// Creates a receivebox. Every packet is a boundary until the first notice.
    pub fn new(marks: PacketNumbering) -> Receivebox {
        Receivebox {
            numbering: marks,
            session: 0,
            epoch_size: EpochSize::SINGLE_PACKET,
            next: 0,
            arrival_bitmap: [0; (BITMAP_PACKETS / 64) as usize],
            missing_counted_end: 0,
            packets: 0,
            bytes: 0,
            out_of_order: 0,
            missing: 0,
            marked: 0,
            boundary: None,
            boundary_pending: false,
            packet_pending: false,
            last_feedback: Time::ZERO,
        }
    }

    /// Starts a new session with new packet numbers. The driver must filter out packets of the old
    /// session that are still in flight; it may keep the old receivebox for two RTTs.
    pub fn start_session(&mut self, session: u32) {
        *self = Receivebox {
            session,
            epoch_size: self.epoch_size,
            last_feedback: self.last_feedback,
            ..Receivebox::new(self.numbering)
        };
    }

    /// Returns the session that is being counted.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Records a packet with its number, its bytes on the wire, and its ECN field at arrival.
    pub fn on_packet(&mut self, now: Time, number: u64, bytes: u32, ecn: Ecn) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.marked += u64::from(ecn == Ecn::Ce);
        self.packet_pending = true;
        if self.numbering == PacketNumbering::Counter && !self.record_number(number) {
            return;
        }
        if self.epoch_size.is_boundary(number) {
            self.boundary = Some(Boundary {
                number,
                received_at: now,
                bytes: self.bytes,
            });
            self.boundary_pending = true;
        }
    }

    /// Records a number. Returns whether it is the highest so far.
    fn record_number(&mut self, number: u64) -> bool {
        if number < self.next {
            self.out_of_order += 1;
            if number >= self.missing_counted_end {
                self.set_arrived(number);
            }
            return false;
        }
        if self.packets == 1 {
            // Packets before the first one may not have been sent to this box.
            self.missing_counted_end = number;
        } else if number - self.next >= REORDER_WINDOW_PACKETS {
            // No number in between has arrived, and all earlier ones leave the window.
            self.count_missing_below(self.next);
            self.missing += number - REORDER_WINDOW_PACKETS - self.next;
            self.missing_counted_end = number - REORDER_WINDOW_PACKETS;
            self.arrival_bitmap = [0; (BITMAP_PACKETS / 64) as usize];
        } else {
            // Judge before clearing: both use the same bits of the bitmap.
            self.count_missing_below(number.saturating_sub(REORDER_WINDOW_PACKETS));
            (self.next..number).for_each(|skipped| self.clear_arrived(skipped));
        }
        self.set_arrived(number);
        self.next = number.saturating_add(1);
        true
    }

    /// Counts the numbers below `below` that have not arrived as missing.
    fn count_missing_below(&mut self, below: u64) {
        while self.missing_counted_end < below {
            let (word, bit) = place(self.missing_counted_end);
            self.missing += u64::from(self.arrival_bitmap[word] & bit == 0);
            self.missing_counted_end += 1;
        }
    }

    fn set_arrived(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.arrival_bitmap[word] |= bit;
    }

    fn clear_arrived(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.arrival_bitmap[word] &= !bit;
    }

    /// Applies a notice. One for another session is early or late and has no effect.
    pub fn on_notice(&mut self, notice: &Notice) {
        if notice.session == self.session {
            self.epoch_size = notice.epoch_size;
        }
    }

    /// Returns the feedback that is due; the driver must send it immediately, because it contains a
    /// hold time.
    pub fn poll(&mut self, now: Time) -> Option<Feedback> {
        if self.next_deadline()? > now {
            return None;
        }
        let boundary = self.boundary?;
        (
            self.boundary_pending,
            self.packet_pending,
            self.last_feedback,
        ) = (false, false, now);
        Some(Feedback {
            session: self.session,
            boundary: boundary.number,
            received_at: boundary.received_at,
            boundary_bytes: boundary.bytes,
            hold: now.since(boundary.received_at),
            epoch_size: self.epoch_size,
            packets: self.packets,
            bytes: self.bytes,
            out_of_order: self.out_of_order,
            missing: self.missing,
            marked: self.marked,
        })
    }

    /// Returns the time of the next [`poll`](Receivebox::poll) if no packet arrives before.
    pub fn next_deadline(&self) -> Option<Time> {
        let after = match (self.boundary_pending, self.packet_pending) {
            (true, _) => FEEDBACK_INTERVAL_MIN,
            (false, true) => FEEDBACK_INTERVAL_MAX,
            (false, false) => return None,
        };
        self.boundary.map(|_| match self.last_feedback {
            Time::ZERO => Time::ZERO,
            told => told + after,
        })
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % BITMAP_PACKETS;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn with(every: u32) -> Receivebox {
        let mut receivebox = Receivebox::new(PacketNumbering::Counter);
        receivebox.on_notice(&Notice {
            session: 0,
            epoch_size: EpochSize::new(every).unwrap_or(EpochSize::SINGLE_PACKET),
        });
        receivebox
    }

    #[test]
    fn feedback_comes_at_boundaries_no_sooner_than_2_ms_and_no_later_than_25() {
        let mut receivebox = with(4);
        assert_eq!(receivebox.next_deadline(), None);
        let mut told = Vec::new();
        // One packet per ms, a boundary every 4 ms.
        for n in 0..20 {
            receivebox.on_packet(at(n + 1), n, 100, Ecn::NotEct);
            told.extend(
                receivebox
                    .poll(at(n + 1))
                    .map(|feedback| (n, feedback.boundary, feedback.boundary_bytes)),
            );
        }
        assert_eq!(
            told,
            [
                (0, 0, 100),
                (4, 4, 500),
                (8, 8, 900),
                (12, 12, 1_300),
                (16, 16, 1_700)
            ]
        );
        // Packets 17 to 19 are no boundaries, so the last boundary is repeated with the new totals.
        assert_eq!(receivebox.next_deadline(), Some(at(17 + 25)));
        assert_eq!(receivebox.poll(at(41)), None);
        let again = receivebox.poll(at(42)).expect("25 ms have passed");
        assert_eq!(
            (
                again.boundary,
                again.boundary_bytes,
                again.bytes,
                again.hold
            ),
            (16, 1_700, 2_000, Duration::from_millis(25))
        );
        assert_eq!(receivebox.next_deadline(), None, "no packet since");

        let mut busy = with(1);
        let times: Vec<u64> = (0..100)
            .filter(|n| {
                busy.on_packet(Time::from_nanos((n + 1) * 500_000), *n, 100, Ecn::Ce);
                busy.poll(Time::from_nanos((n + 1) * 500_000)).is_some()
            })
            .collect();
        assert_eq!(times.len(), 25, "50 ms");
        assert_eq!(busy.marked, 100);
    }

    #[test]
    fn notices_of_another_session_are_ignored() {
        let mut receivebox = with(8);
        assert_eq!(receivebox.session(), 0);
        receivebox.start_session(3);
        assert_eq!(receivebox.session(), 3);
        receivebox.on_notice(&Notice {
            session: 0,
            epoch_size: EpochSize::SINGLE_PACKET,
        });
        receivebox.on_packet(at(1), 7, 100, Ecn::NotEct);
        assert_eq!(receivebox.poll(at(1)), None);
        receivebox.on_packet(at(2), 8, 100, Ecn::NotEct);
        assert_eq!(
            receivebox
                .poll(at(2))
                .map(|feedback| (feedback.session, feedback.boundary)),
            Some((3, 8))
        );
    }

    proptest! {
        /// Numbers in any order with gaps of any size: the counts match a plain set.
        #[test]
        fn losses_and_order_are_counted_as_a_set_would(
            steps in prop::collection::vec(
                (
                    prop_oneof![
                        8 => 0..4_u64,
                        1 => 1_000..1_100_u64,
                        1 => 2_000..2_100_u64,
                        1 => 5_000..9_000_u64,
                    ],
                    prop_oneof![5 => Just(0_u64), 1 => 1..1_500_u64],
                ),
                1..300,
            ),
        ) {
            let mut receivebox = Receivebox::new(PacketNumbering::Counter);
            let (mut arrived, mut highest, mut late) = (BTreeSet::new(), 10_000_u64, 0);
            let first = highest;
            receivebox.on_packet(at(1), first, 1, Ecn::NotEct);
            arrived.insert(first);
            // A packet that arrives after it was counted as missing stays counted.
            let (mut missing, mut judged) = (0, first);
            for (ahead, back) in steps {
                let number = if back > 0 {
                    highest.saturating_sub(back).max(first)
                } else {
                    highest + 1 + ahead
                };
                if !arrived.insert(number) {
                    continue;
                }
                receivebox.on_packet(at(1), number, 1, Ecn::NotEct);
                late += u64::from(number < highest);
                highest = highest.max(number);
                while judged + REORDER_WINDOW_PACKETS < highest {
                    missing += u64::from(!arrived.contains(&judged));
                    judged += 1;
                }
            }
            prop_assert_eq!(receivebox.out_of_order, late);
            prop_assert_eq!(receivebox.missing, missing);
            prop_assert_eq!(receivebox.packets, arrived.len() as u64);
        }

        #[test]
        fn extreme_numbers_are_handled(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut receivebox = Receivebox::new(PacketNumbering::Counter);
            for number in numbers {
                receivebox.on_packet(at(1), number, u32::MAX, Ecn::Ce);
                receivebox.poll(at(1));
            }
        }
    }
}
