//! Processing of acknowledgements for RC3, and segments that both class 0 and RC3 have in flight.

#[cfg(test)]
mod tests;

use ccplane_units::Time;

use super::{LEVEL_COUNT, Rc3Loop, Rc3Stats, Rc3Stop};
use crate::connection::Connection;
use crate::control::Ack;
use crate::number::SequenceNumber;
use crate::receive::Rc3Arrivals;
use crate::segment::{Range, Segment, SideData};
use crate::send::acknowledge::{AckInfo, clip};
use crate::send::flight::{Flight, SentSegment};

/// The two hooks by which RC3 takes part in the processing of an ACK.
impl Connection {
    /// First hook, before any other processing. Returns the part of the ACK for class 0, or `None`
    /// if there is none.
    pub(crate) fn split_ack(&mut self, segment: &Segment, side: &SideData) -> Option<AckInfo> {
        if segment.class != 0 {
            self.on_low_class_ack(segment, side);
            return None;
        }
        let mut told = AckInfo::read(segment, side, &self.flight, |start, end| {
            self.is_sent_by_rc3(start, end)
        })?;
        if let (Some(duplicate), Some(rc3)) = (told.duplicate, self.rc3.as_deref_mut())
            && rc3.sent.find(duplicate.start).is_some()
        {
            // RC3 and class 0 have met: the duplicate is not a spurious retransmission.
            rc3.stats.duplicates += 1;
            told.duplicate = None;
        }
        if self.flight.echoes() != 0 {
            told.acked_echo = self.take_echo(segment);
        }
        Some(told)
    }

    /// Second hook: applies the ACK to class 0, without the segments that RC3 delivered.
    pub(crate) fn apply_ack(
        &mut self,
        now: Time,
        segment: &Segment,
        ack_info: &AckInfo,
        ack: &mut Ack,
    ) {
        let Some(mut rc3) = self.rc3.take() else {
            self.apply_to_class0(now, segment, ack_info, ack, |_, _, _| false);
            return;
        };
        let mut bumped = false;
        let sampled = self.apply_to_class0(now, segment, ack_info, ack, |flight, number, sent| {
            sent.has(SentSegment::RC3_FLAG)
                && rc3.claim_segment(flight, (number, sent), segment, &mut bumped)
        });
        rc3.stats.skips += u32::from(bumped);
        self.flight.set_echoes(rc3.echo_count());
        self.rc3 = Some(rc3);
        if sampled {
            self.on_class0_rtt(ack.rtt, now);
        }
        self.skip_delivered();
    }
}

impl Connection {
    /// Handles an ACK in a class above 0, which reports the segments of RC3 that arrived. It causes
    /// no window growth, RTT sample or loss. Its cumulative part counts for class 0 only if class 0
    /// has nothing in flight or everything has arrived, as there may be no other ACK then.
    fn on_low_class_ack(&mut self, segment: &Segment, side: &SideData) {
        let (una, next, cut) = (self.flight.una(), self.flight.next(), self.flight.cut());
        if segment.ack.since(una) > cut.since(una) && !segment.ack.is_before(una) {
            return; // it acknowledges segments that were never sent
        }
        self.count_ack_trigger(segment, side);
        if next != cut {
            self.repair_mut();
            let covered = Range {
                start: una,
                end: segment.ack,
            };
            let ranges = if segment.has_side() {
                side.ranges()
            } else {
                &[]
            };
            for range in ranges.iter().copied().chain([covered]) {
                if let Some(range) = clip(range, next, cut)
                    .filter(|range| self.is_sent_by_rc3(range.start, range.end))
                {
                    self.on_rc3_delivered(range);
                }
            }
        }
        if segment.ack == cut
            && self.flags.fin_cut
            && (next == cut || self.is_sent_by_rc3(next, cut))
        {
            self.on_stream_delivered(segment);
        }
        self.skip_delivered();
        if self.flight.una() == self.flight.next() && self.flight.una() == segment.ack {
            self.peer_window_end = self
                .peer_window_end
                .max(self.flight.una_offset() + u64::from(segment.window));
        }
    }

    /// Returns true if RC3 sent all of these segments. From `next` on, an honest peer acknowledges
    /// no others.
    fn is_sent_by_rc3(&self, start: SequenceNumber, end: SequenceNumber) -> bool {
        self.rc3
            .as_deref()
            .is_some_and(|rc3| rc3.has_sent(start, end))
    }

    /// Records the arrival of segments that class 0 has not sent.
    fn on_rc3_delivered(&mut self, range: Range) {
        let (Some(repair), Some(rc3)) = (self.repair.as_deref_mut(), self.rc3.as_deref_mut())
        else {
            return;
        };
        let flight = &mut self.flight;
        repair.sacked.insert(range, 0, |fresh| {
            let mut number = fresh.start;
            while number != fresh.end {
                flight.on_sacked(number);
                rc3.on_delivered(flight.get(number));
                number = number.wrapping_add(1);
            }
        });
    }

    /// Handles the arrival of the whole stream, after which there may be no further ACK in class 0.
    fn on_stream_delivered(&mut self, segment: &Segment) {
        let rc3 = &mut self.rc3;
        self.flight.acknowledge_all(segment.ack, |sent| {
            if let Some(rc3) = rc3.as_deref_mut()
                && sent.transmission == 0
                && !sent.has(SentSegment::SACKED_FLAG)
            {
                rc3.on_delivered(sent);
            }
        });
        (self.flags.tail_probe_in_flight, self.flags.tail_probe) = (false, false);
        self.clear_echoes();
        if let Some(repair) = self.repair.as_deref_mut() {
            repair.sacked.remove_before(segment.ack);
        }
    }

    /// Counts the segment that triggered the ACK, and checks the class in which it arrived.
    fn count_ack_trigger(&mut self, segment: &Segment, side: &SideData) {
        let verify = self.config.rc3.is_some_and(|rc3| rc3.verify);
        let Some(rc3) = self.rc3.as_deref_mut() else {
            return;
        };
        if segment.has_side()
            && side
                .duplicate()
                .is_some_and(|range| rc3.sent.find(range.start).is_some())
        {
            rc3.stats.duplicates += 1;
        }
        let echoed = segment.echo_transmission != 0
            && segment.echo.is_within(self.flight.una(), self.flight.cut());
        if echoed {
            let sent = self.flight.get(segment.echo);
            if sent.has(SentSegment::RC3_FLAG)
                && !sent.has(SentSegment::RC3_ARRIVED_FLAG)
                && sent.transmission > 0
            {
                rc3.count_arrival(sent);
                self.flight.on_rc3_arrived(segment.echo);
            }
        }
        if segment.echo_band == 1 && verify && rc3.stats.stopped.is_none() {
            rc3.stats.stopped = Some(Rc3Stop::Marking {
                class: segment.class,
            });
        }
    }

    /// Statistics of RC3 as a sender; `None` if it never sent.
    pub fn rc3_stats(&self) -> Option<&Rc3Stats> {
        self.rc3.as_ref().map(|rc3| &rc3.stats)
    }

    /// Statistics of segments received from the peer's RC3; `None` if there were none.
    pub fn rc3_arrivals(&self) -> Option<Rc3Arrivals> {
        self.receiver.rc3_arrivals()
    }

    /// Skips segments in class 0 that RC3 has delivered.
    #[inline(always)]
    pub(crate) fn skip_delivered(&mut self) {
        self.flight.skip_delivered();
        if self.flight.skipped() != 0 {
            self.acknowledge_skipped();
        }
    }

    /// Acknowledges skipped segments that directly follow the acknowledged ones.
    #[cold]
    fn acknowledge_skipped(&mut self) {
        if self.flight.acknowledge_skipped()
            && let (Some(repair), Some(rc3)) = (self.repair.as_deref_mut(), self.rc3.as_deref_mut())
        {
            repair.sacked.remove_before(self.flight.una());
            rc3.stats.skips += 1;
        }
    }

    /// Returns the segment that triggered the ACK of class 0 if it is an echo. Echoes sent before
    /// it are no longer in flight: they, or their ACKs, were lost.
    fn take_echo(&mut self, segment: &Segment) -> Option<(SequenceNumber, SentSegment)> {
        let rc3 = self.rc3.as_deref_mut()?;
        debug_assert!(
            self.flight.echoes() == rc3.echo_count(),
            "the flight matches the list"
        );
        let mut met = None;
        while let Some((number, sent)) = rc3.echoes.front().copied() {
            if segment.echo.is_before(number) || segment.echo_transmission != 1 {
                break;
            }
            rc3.echoes.pop_front();
            met = (number == segment.echo).then_some((number, sent));
        }
        self.flight.set_echoes(rc3.echo_count());
        met
    }

    /// Time at which the echoes in flight count as lost.
    pub(crate) fn echo_deadline(&self) -> Option<Time> {
        let (_, last) = self
            .rc3
            .as_ref()
            .filter(|_| self.flight.echoes() != 0)?
            .echoes
            .back()?;
        Some(last.sent_at + self.rto())
    }

    pub(crate) fn clear_echoes(&mut self) {
        self.flight.set_echoes(0);
        if let Some(rc3) = self.rc3.as_deref_mut() {
            rc3.echoes.clear();
        }
    }
}

impl Rc3Loop {
    /// Returns true if RC3 sent all of these segments recently.
    pub fn has_sent(&self, start: SequenceNumber, end: SequenceNumber) -> bool {
        self.sent
            .find(start)
            .is_some_and(|range| !range.end.is_before(end))
    }

    /// Decides about a segment of RC3 that an ACK of class 0 newly covers. Returns true if the ACK
    /// does not report the copy of class 0. The cumulative ACK has removed the segment from the
    /// scoreboard before this call; a SACK range has not marked it yet.
    #[cold]
    #[inline(never)]
    fn claim_segment(
        &mut self,
        flight: &mut Flight,
        (number, sent): (SequenceNumber, &SentSegment),
        ack: &Segment,
        bumped: &mut bool,
    ) -> bool {
        let (cumulative, seen) = (
            number.is_before(flight.una()),
            sent.has(SentSegment::SACKED_FLAG),
        );
        let before = number.is_before(flight.next());
        if sent.transmission == 0 && (seen || !before) {
            // Class 0 never sent it.
            if !seen {
                self.on_delivered(sent);
            }
            *bumped |= cumulative;
            return true;
        }
        if sent.has(SentSegment::ECHO_FLAG) {
            return true;
        }
        if !seen && sent.is_echo(number, ack) {
            // RC3's copy has arrived, and the copy of class 0 is in flight.
            if !cumulative {
                flight.on_echoed(number);
            }
            self.add_echo(number, *sent);
            return true;
        }
        false
    }

    /// Records a segment that only RC3 delivered.
    pub fn on_delivered(&mut self, sent: &SentSegment) {
        debug_assert!(
            sent.has(SentSegment::RC3_FLAG) && sent.transmission == 0,
            "sent by class 0, or not by RC3"
        );
        self.stats.in_flight = self.stats.in_flight.saturating_sub(1);
        self.stats.delivered_bytes += u64::from(sent.length);
        self.count_arrival(sent);
    }

    /// Marks a segment that only RC3 had delivered as missing again (SACK reneging). `passed`:
    /// class 0 had skipped it and must send it now.
    pub fn on_reneged(&mut self, sent: &SentSegment, passed: bool) {
        debug_assert!(
            sent.has(SentSegment::RC3_FLAG) && sent.transmission == 0,
            "only bytes that arrived by RC3 alone are counted"
        );
        self.stats.in_flight += u32::from(!passed);
        let bytes = &mut self.stats.delivered_bytes;
        *bytes = bytes.saturating_sub(u64::from(sent.length));
        let arrived = &mut self.stats.arrived[usize::from(sent.level) & (LEVEL_COUNT - 1)];
        *arrived = arrived.saturating_sub(1);
    }

    fn count_arrival(&mut self, sent: &SentSegment) {
        let level = usize::from(sent.level) & (LEVEL_COUNT - 1);
        self.stats.arrived[level] += 1;
    }

    pub fn echo_count(&self) -> u32 {
        self.echoes.len() as u32
    }

    /// Records that RC3's copy has arrived of a segment that class 0 has in flight.
    pub fn add_echo(&mut self, number: SequenceNumber, sent: SentSegment) {
        if !sent.has(SentSegment::RC3_ARRIVED_FLAG) {
            self.count_arrival(&sent);
        }
        debug_assert!(
            sent.has(SentSegment::RC3_FLAG) && sent.transmission == 1,
            "an echoed segment was sent once by each"
        );
        let place = self
            .echoes
            .partition_point(|(other, _)| other.is_before(number));
        self.echoes.insert(place, (number, sent));
    }
}

impl SentSegment {
    /// Returns true if the ACK covers this segment because RC3's copy arrived: class 0 sent its
    /// copy after the segment that triggered the ACK.
    pub fn is_echo(&self, number: SequenceNumber, ack: &Segment) -> bool {
        self.has(SentSegment::RC3_FLAG)
            && self.transmission == 1
            && !self.has(SentSegment::LOST_FLAG)
            && ack.echo.is_before(number)
    }
}
