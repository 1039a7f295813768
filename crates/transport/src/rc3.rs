//! RC3, the second control loop (R. Mittal et al., "Recursively Cautious Congestion Control", NSDI
//! 2014).
//!
//! Class 0 sends from the front, within its window. RC3 sends the buffered data from its end
//! backwards, in classes below class 0, without window, timer or retransmission, until both meet.
//! Queues serve a lower class only when no higher class waits, so RC3 uses only spare capacity.
//!
//! Class 0 treats a segment that RC3 sent as new until its arrival is reported, and then skips it.
//! RC3's segments do not count as in flight, give no RTT sample and are never marked lost. An
//! acknowledgement in a class above 0 only reports which of them arrived.
//!
//! Where both loops meet, some segments are sent by both. If RC3's copy arrives first, the copy of
//! class 0 is still in flight and counts as such until it is acknowledged; it is called an "echo"
//! here. Otherwise one acknowledgement would empty a full window, and another window would be sent
//! at once.
//!
//! The level of a segment follows from its distance to the end of the buffered data. If an
//! application writes in small pieces, every segment is near the end, and a long flow would send
//! everything in class 1. The distance is therefore at least the number of RC3's segments in
//! flight: a flow never has more than [`Rc3::first`] of them in class 1.

mod acks;
mod verify;

pub use verify::Rc3Stop;

use std::collections::VecDeque;

use ccplane_qdisc::Ecn;
use ccplane_units::Time;

use self::verify::RttMonitor;
use crate::config::Rc3;
use crate::connection::{Connection, ConnectionState};
use crate::number::SequenceNumber;
use crate::ranges::RangeSet;
use crate::segment::{Range, Segment, SideData};
use crate::send::flight::SentSegment;
use crate::send::recovery::Undo;

/// Number of levels with separate counters.
const LEVEL_COUNT: usize = Rc3::LEVELS_MAX as usize;

/// Statistics of RC3 on one connection, from the sender's acknowledgements. Index 0 is level 1,
/// which is class 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rc3Stats {
    /// Segments sent, by level.
    pub sent: [u64; LEVEL_COUNT],
    /// Payload bytes in those segments.
    pub sent_bytes: [u64; LEVEL_COUNT],
    /// Segments of `sent` whose arrival was reported. The others are in flight, were dropped, or
    /// arrived so close to the copy of class 0 that the copies were indistinguishable.
    pub arrived: [u64; LEVEL_COUNT],
    /// Segments of RC3 in flight: not reported as arrived, and not sent by class 0 either.
    pub in_flight: u32,
    /// Bytes delivered by RC3 before class 0 sent them.
    pub delivered_bytes: u64,
    /// Segments delivered by both class 0 and RC3.
    pub duplicates: u64,
    /// Number of times class 0 reached segments that were already acknowledged, and skipped them.
    pub skips: u32,
    /// Reason why RC3 stopped; `None` while it is enabled.
    pub stopped: Option<Rc3Stop>,
}

impl Rc3Stats {
    /// Segments per level whose arrival was not reported, including those in flight.
    pub fn unconfirmed(&self) -> [u64; LEVEL_COUNT] {
        let mut missing = self.sent;
        for (missing, arrived) in missing.iter_mut().zip(self.arrived) {
            *missing = missing.saturating_sub(arrived);
        }
        missing
    }
}

/// State of RC3, created with its first segment.
#[derive(Clone, Debug)]
pub(crate) struct Rc3Loop {
    /// RC3 continues with the last segment before this number that it did not send and that has not
    /// arrived.
    cursor: SequenceNumber,
    /// Segments that RC3 sent.
    sent: RangeSet,
    /// Last segment that RC3 cut with less than a full payload.
    short_segment: Option<SequenceNumber>,
    /// Echoes: segments of class 0 that are in flight although RC3's copy has arrived, in the order
    /// of transmission.
    echoes: VecDeque<(SequenceNumber, SentSegment)>,
    rtt_monitor: RttMonitor,
    pub stats: Rc3Stats,
}

impl Rc3Loop {
    fn new(next: SequenceNumber) -> Rc3Loop {
        Rc3Loop {
            cursor: next,
            sent: RangeSet::default(),
            short_segment: None,
            echoes: VecDeque::new(),
            rtt_monitor: RttMonitor::new(next),
            stats: Rc3Stats::default(),
        }
    }

    /// Handles the cumulative ACK `una`. Drops ranges sent long before it.
    fn on_cumulative_ack(&mut self, una: SequenceNumber) {
        self.sent
            .remove_before(una.wrapping_sub(SENT_HISTORY_SEGMENTS));
        if self.sent.is_empty() {
            self.sent = RangeSet::default();
        }
    }

    pub fn heap_bytes(&self) -> usize {
        size_of::<Rc3Loop>()
            + self.sent.heap_bytes()
            + self.echoes.capacity() * size_of::<(SequenceNumber, SentSegment)>()
    }
}

impl Connection {
    /// Bit set of the classes that have something to send (see
    /// [`has_segment`](Connection::has_segment)). RC3 uses one class at a time.
    #[inline]
    pub fn classes(&self, now: Time) -> u8 {
        let rc3 = match self.config.rc3 {
            Some(rc3) => self.rc3_class(now, &rc3).map_or(0, |class| 1 << class),
            None => 0,
        };
        self.receiver.low_acks_due() | rc3 | u8::from(self.has_segment(now, 0))
    }

    #[cold]
    pub(crate) fn has_low_class(&self, now: Time, class: u8) -> bool {
        self.receiver.is_ack_due(class)
            || self
                .config
                .rc3
                .is_some_and(|rc3| self.rc3_class(now, &rc3) == Some(class))
    }

    /// Returns true if RC3 has something to send. Pacing is not checked.
    pub(crate) fn has_rc3_segment(&self) -> bool {
        self.config
            .rc3
            .is_some_and(|rc3| self.next_distance(&rc3).is_some())
    }

    /// Class of RC3's next segment, if it may be sent now.
    fn rc3_class(&self, now: Time, rc3: &Rc3) -> Option<u8> {
        // RC3 uses the capacity that class 0 leaves, so only the operator's limit paces it.
        if self.pacer.next_rc3() > now {
            return None;
        }
        self.next_distance(rc3).map(|place| rc3.class_at(place))
    }

    /// Distance of RC3's next segment from the end of the buffered data, even if it is not cut yet.
    /// The last segment has distance 1.
    fn next_distance(&self, rc3: &Rc3) -> Option<u64> {
        let stopped = self
            .rc3
            .as_ref()
            .is_some_and(|rc3| rc3.stats.stopped.is_some());
        if stopped
            || !matches!(
                self.state,
                ConnectionState::Open | ConnectionState::ValidatingAddress
            )
        {
            return None;
        }
        let flying = self
            .rc3
            .as_ref()
            .map_or(0, |rc3| u64::from(rc3.stats.in_flight));
        let start = match self.cuttable_segments(rc3) {
            0 => self.flight.offset_of(self.flight.get(self.next_rc3()?)),
            segments => {
                let beyond_window = self.flight.cut().since(self.flight.next()) as u64 + segments
                    > u64::from(self.available_window());
                if !beyond_window {
                    return None;
                }
                self.flight.cut_offset() + (segments - 1) * u64::from(self.mss)
            }
        };
        let from_end = (self.written - start).div_ceil(u64::from(self.mss));
        Some(from_end.max(flying + 1))
    }

    /// Segments that class 0 may send before the next acknowledgement. RC3 skips them.
    fn available_window(&self) -> u32 {
        self.window.saturating_sub(self.in_flight())
    }

    /// RC3's next segment among those already cut.
    fn next_rc3(&self) -> Option<SequenceNumber> {
        let rc3 = self.rc3.as_deref()?;
        let sacked = self.repair.as_ref().map(|repair| &repair.sacked);
        let mut at = rc3.cursor;
        loop {
            let number = at.previous();
            if at.since(self.flight.next()) > self.flight.cut().since(self.flight.next())
                || number.since(self.flight.next()) < self.available_window()
                || at == self.flight.next()
            {
                return None;
            }
            let passed = rc3.sent.find(number).or_else(|| sacked?.find(number));
            match passed {
                Some(range) => at = range.start.max(self.flight.next()),
                None => return Some(number),
            }
        }
    }

    /// Number of segments that can be cut now: as many as the peer's window allows, up to
    /// [`Rc3::ahead`]. A short last segment waits while another short one is in flight (Minshall's
    /// variant of the Nagle algorithm), unless it ends the stream. A stream written in small pieces
    /// is therefore not sent in small segments.
    fn cuttable_segments(&self, rc3: &Rc3) -> u64 {
        let unsent = self.written - self.flight.cut_offset();
        let mss = u64::from(self.mss);
        let room = self
            .peer_window_end
            .saturating_sub(self.flight.cut_offset());
        let ahead = u64::from(
            rc3.distance_max
                .min(SEGMENTS_AHEAD_MAX)
                .saturating_sub(self.flight.cut().since(self.flight.una())),
        );
        let full = unsent.min(room) / mss;
        let short = unsent <= room
            && !unsent.is_multiple_of(mss)
            && (self.flags.finishing || !self.short_in_flight());
        (full + u64::from(short)).min(ahead)
    }

    /// Returns true if RC3 has a short segment in flight.
    fn short_in_flight(&self) -> bool {
        let short = self.rc3.as_ref().and_then(|rc3| rc3.short_segment);
        short.is_some_and(|short| {
            short.is_within(self.flight.next(), self.flight.cut())
                && !self.flight.get(short).has(SentSegment::SACKED_FLAG)
        })
    }

    /// Sends RC3's next segment if it belongs to the class of `segment`.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_rc3(
        &mut self,
        now: Time,
        segment: &mut Segment,
        side: &mut SideData,
    ) -> Option<()> {
        let rc3 = self.config.rc3?;
        if self.rc3_class(now, &rc3) != Some(segment.class) {
            return None;
        }
        let segments = self.cuttable_segments(&rc3);
        for _ in 0..segments {
            self.cut_segment();
        }
        let (cut, mss, next) = (self.flight.cut(), self.mss, self.flight.next());
        if segments > 0 {
            let last = cut.previous();
            let short = self.flight.get(last).length < mss;
            let una = self.flight.una();
            let rc3 = self.rc3.get_or_insert_with(|| Box::new(Rc3Loop::new(next)));
            rc3.cursor = cut;
            rc3.on_cumulative_ack(una);
            if short {
                rc3.short_segment = Some(last);
            }
            self.invalidate();
        }
        let number = self.next_rc3()?;
        let rc3 = self.rc3.as_deref_mut()?;
        let range = Range {
            start: number,
            end: number.wrapping_add(1),
        };
        rc3.sent.insert(range, 0, |_| ());
        rc3.cursor = number;
        if rc3.sent.is_full() {
            rc3.stats.stopped = Some(Rc3Stop::Scattered);
        }
        let level = usize::from(segment.class - 1) & (LEVEL_COUNT - 1);
        debug_assert!(
            !number.is_before(next)
                && !self
                    .flight
                    .get(number)
                    .has(SentSegment::SACKED_FLAG | SentSegment::RC3_FLAG)
        );
        let sent = self.flight.on_sent_rc3(number, level as u8);
        rc3.rtt_monitor.on_sent(now, rc3.stats.in_flight == 0);
        rc3.stats.in_flight += 1;
        rc3.stats.sent[level] += 1;
        rc3.stats.sent_bytes[level] += u64::from(sent.length);
        self.fill_data_segment(now, number, &sent, segment, side);
        segment.transmission = 1;
        segment.ecn = Ecn::NotEct;
        segment.band = segment.class;
        let bytes = u64::from(segment.length) + u64::from(self.config.header_bytes);
        let quantum = self.config.pacing_quantum;
        self.pacer.on_send_rc3(bytes, now, quantum, &self.rtt);
        Some(())
    }

    /// Updates the count when class 0 sends a segment that RC3 has sent and whose arrival was not
    /// reported.
    #[cold]
    pub(crate) fn on_rc3_overtaken(&mut self) {
        if let Some(rc3) = self.rc3.as_deref_mut() {
            rc3.stats.in_flight = rc3.stats.in_flight.saturating_sub(1);
        }
    }

    /// Frees RC3's state, except the statistics, after everything has arrived. A late copy of an
    /// RC3 segment would now look like a spurious retransmission, so earlier reductions can no
    /// longer be undone.
    pub(crate) fn release_rc3(&mut self) {
        let Some(rc3) = self
            .rc3
            .as_deref_mut()
            .filter(|_| self.flight.echoes() == 0)
        else {
            return;
        };
        (rc3.sent, rc3.echoes) = (RangeSet::default(), VecDeque::new());
        if let Some(repair) = self.repair.as_deref_mut() {
            repair.undo = Undo::default();
        }
    }
}

/// Maximum number of segments cut ahead, regardless of [`Rc3::ahead`]: 2^20 take 32 MB.
const SEGMENTS_AHEAD_MAX: u32 = 1 << 20;

/// Number of segments before `una` for which RC3 records whether it sent them. A late copy of such
/// a segment is a duplicate of RC3, not a sign of a spurious retransmission. With a smaller number,
/// a long-delayed copy undoes a justified reduction. With a larger one, a stream written in bursts
/// takes more memory, 24 bytes per range; from 2^15 on its ranges may reach their limit.
const SENT_HISTORY_SEGMENTS: u32 = 1 << 14;
