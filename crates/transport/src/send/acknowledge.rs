//! Processing of acknowledgements in the sending half.
//!
//! The fast path handles an ACK of segments that were sent once, while nothing is SACKed, lost or
//! being repaired. It reads only the last segment covered, so its cost does not depend on the
//! number of segments. All other ACKs go through `process_ack`.

#[cfg(test)]
mod tests;

use ccplane_datapath::ExchangeStamps;
use ccplane_units::{Duration, Time};

use crate::connection::{Connection, RecoveryPhase};
use crate::control::{Ack, CongestionControl, ControlEvent};
use crate::number::SequenceNumber;
use crate::segment::{Range, SACK_RANGES_MAX, Segment, SegmentKind, SideData};
use crate::send::flight::{Flight, SentSegment};
use crate::send::rack::Rack;
use crate::send::recovery::Undo;

impl Connection {
    /// Processes the acknowledgement in a segment. `arrived` is its arrival time stamp.
    #[inline(always)]
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &SideData,
        control: &mut impl CongestionControl,
    ) {
        if self.flight.is_idle()
            && segment.ack == self.flight.una()
            && !segment.has_side()
            && segment.class == 0
        {
            // Nothing is outstanding: the ACK can only open the window.
            let limit = self.flight.una_offset() + u64::from(segment.window);
            if limit > self.peer_window_end {
                self.peer_window_end = limit;
                self.invalidate();
            }
            return;
        }
        let advanced = segment.ack.since(self.flight.una());
        let marked = segment.ce_packets != self.ce_packets;
        let ordinary = self.phase == RecoveryPhase::Open
            && self.flight.is_in_order()
            && !self.flags.tail_probe_in_flight
            && !marked
            && advanced <= self.outstanding()
            && segment.class == 0
            && !segment.has_side();
        if !ordinary {
            return self.on_ack_slow_path(now, arrived, segment, side, control);
        }
        let mut ack = Ack::default();
        if advanced != 0 {
            let last = *self.flight.get(segment.ack.previous());
            if last.transmission != 1 || last.has(SentSegment::RC3_FLAG) {
                return self.on_ack_slow_path(now, arrived, segment, side, control);
            }
            let end = last.offset.wrapping_add(u32::from(last.length));
            ack.bytes = u64::from(end.wrapping_sub(self.flight.una_offset() as u32));
            ack.packets = advanced;
            ack.rtt = now.since(last.sent_at);
            self.flight.acknowledge(segment.ack, ack.bytes);
            self.last_delivery = now;
            self.backoff = 0;
            self.rtt.sample(ack.rtt, now);
            ack.rate =
                self.rate
                    .on_delivered(last.rate_sample_input(), advanced, now, self.rtt.min_rtt());
            self.rack.xmit_ts = last.sent_at;
            self.rack.end_seq = segment.ack;
            self.rack.fack = segment.ack;
            self.rack.rtt = ack.rtt;
        }
        self.peer_window_end = self
            .peer_window_end
            .max(self.flight.una_offset() + u64::from(segment.window));
        if self.rc3.is_some() && advanced != 0 {
            self.on_class0_rtt(ack.rtt, now);
        }
        if advanced != 0 {
            self.notify_control(now, ack, control);
        }
        self.update_quota();
    }

    #[cold]
    #[inline(never)]
    fn on_ack_slow_path(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &SideData,
        control: &mut impl CongestionControl,
    ) {
        if let Some(ack) = self.process_ack(now, arrived, segment, side) {
            self.notify_control(now, ack, control);
        }
        self.update_quota();
        // An ACK of RC3's classes does not move the timers of class 0.
        if segment.class == 0 {
            self.rearm();
        }
    }

    /// Calls the control with the event and applies its outcome.
    #[inline(always)]
    pub(crate) fn notify_control<C: CongestionControl>(
        &mut self,
        now: Time,
        ack: Ack,
        control: &mut C,
    ) {
        if C::STEERED {
            self.flags.steered = true;
        }
        let event = ControlEvent {
            now,
            ack,
            connection: self,
        };
        let outcome = control.on_event(&event);
        self.apply(&ack, &outcome);
    }

    /// Slow path of an ACK. Returns `None` if there is nothing to report to the control.
    ///
    /// RC3 has two hooks: `hear` removes the parts that do not concern class 0, and `deliver` skips
    /// segments that RC3 delivered.
    fn process_ack(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &SideData,
    ) -> Option<Ack> {
        let told = self.split_ack(segment, side)?;
        let mut ack = self.ce_increase(segment);
        ack.stamped = self.store_stamps(now, arrived, segment, side);
        self.apply_ack(now, segment, &told, &mut ack);
        ack.starts_reduction = self.probe_repaired_loss(segment, side);
        if self.flight.sacked() > 0 || self.phase != RecoveryPhase::Open {
            ack.lost = self.detect_losses(now);
        }
        self.update_recovery(&mut ack);
        if ack.ce_packets > 0
            && self.phase == RecoveryPhase::Open
            && ack.delivered() > 0
            && !ack.undone
        {
            ack.starts_reduction = true;
        }
        if ack.starts_reduction && self.phase == RecoveryPhase::Open {
            self.begin_reduction(RecoveryPhase::Reduction);
            self.repair_mut().undo = Undo::default();
        }
        let says = ack.bytes > 0 || ack.delivered() | ack.lost | ack.ce_packets > 0 || ack.undone;
        says.then_some(ack)
    }

    /// Applies an acknowledgement to class 0: the cumulative ACK, then SACK ranges, the duplicate
    /// and the window. Returns whether it gave an RTT sample.
    ///
    /// `claims` is called for each newly covered segment. It returns true if the ACK does not
    /// report the transmission of class 0.
    #[inline(always)]
    pub(crate) fn apply_to_class0(
        &mut self,
        now: Time,
        segment: &Segment,
        told: &AckInfo,
        ack: &mut Ack,
        mut claims: impl FnMut(&mut Flight, SequenceNumber, &SentSegment) -> bool,
    ) -> bool {
        let (advanced, min_rtt, after_timeout) = (
            segment.ack.since(self.flight.una()),
            self.rtt.min_rtt(),
            self.phase == RecoveryPhase::Loss,
        );
        self.repair_mut();
        let Some(repair) = self.repair.as_deref_mut() else {
            return false;
        };
        let mut delivery = Delivery {
            flight: &mut self.flight,
            rack: &mut self.rack,
            undo: &mut repair.undo,
            reordered: &mut repair.reordering.reordering_seen,
            echo: segment.echo,
            echo_transmission: segment.echo_transmission,
            after_timeout,
            now,
            min_rtt,
            latest: None,
        };
        if let Some((number, sent)) = told.acked_echo {
            delivery.on_echo_acked(number, sent, ack);
        }
        delivery.on_cumulative_ack(segment.ack, ack, &mut claims);
        repair.sacked.remove_before(segment.ack);
        for range in told.ranges() {
            repair
                .sacked
                .insert(*range, 0, |fresh| delivery.on_sack(fresh, ack, &mut claims));
        }
        let latest = delivery.latest;
        debug_assert!(latest.is_none() || ack.delivered() > 0 && self.flight.una() == segment.ack);
        if let Some(duplicate) = told.duplicate {
            let proved = self.proves_original(segment, duplicate.start);
            self.on_duplicate(duplicate, proved);
        }
        self.peer_window_end = self
            .peer_window_end
            .max(self.flight.una_offset() + u64::from(segment.window));
        if ack.delivered() == 0 {
            return false;
        }
        self.last_delivery = now;
        if advanced > 0 {
            self.backoff = 0;
        }
        let Some(LatestSegment {
            sent,
            is_unambiguous: certain,
            ..
        }) = latest
        else {
            return false;
        };
        if certain {
            ack.rtt = now.since(sent.sent_at);
            self.rtt.sample(ack.rtt, now);
        }
        ack.rate = self.rate.on_delivered(
            sent.rate_sample_input(),
            ack.delivered(),
            now,
            self.rtt.min_rtt(),
        );
        certain
    }

    /// Stores the time stamps of an exchange that this ACK completes. Returns false if they are
    /// implausible.
    #[inline]
    fn store_stamps(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &SideData,
    ) -> bool {
        if !side.stamped || !segment.has_side() || segment.kind != SegmentKind::Ack {
            return false;
        }
        let stamps = ExchangeStamps {
            t1: side.t1,
            t2: side.t2,
            t3: side.t3,
            t4: arrived,
        };
        self.repair_mut()
            .stamps
            .get_or_insert_default()
            .add_exchange(now, stamps)
    }

    /// Increase of the peer's CE counts since the last ACK. An older ACK has a smaller count and is
    /// ignored.
    fn ce_increase(&mut self, segment: &Segment) -> Ack {
        let mut ack = Ack::default();
        let packets = segment.ce_packets.wrapping_sub(self.ce_packets);
        if (packets as i32) > 0 {
            ack.ce_packets = packets;
            ack.ce_bytes = segment.ce_bytes.wrapping_sub(self.ce_bytes);
            self.ce_packets = segment.ce_packets;
            self.ce_bytes = segment.ce_bytes;
        }
        ack
    }

    /// Handles a DSACK. It counts only after a retransmission, as a network may duplicate packets
    /// too, and only if it proves that the original arrived.
    fn on_duplicate(&mut self, duplicate: Range, proved: bool) {
        let (una, next, probing) = (
            self.flight.una(),
            self.flight.next(),
            self.flags.tail_probe_in_flight,
        );
        let Some(repair) = self.repair.as_deref_mut() else {
            return;
        };
        let length = duplicate.end.since(duplicate.start);
        if probing && repair.probe_segment == duplicate.start
            || length > 1 << 16
            || repair.undo.undo_retrans == 0
            || !proved
        {
            return;
        }
        repair.undo.undo_retrans = repair.undo.undo_retrans.saturating_sub(length);
        repair.undo.duplicates = repair.undo.duplicates.saturating_add(length);
        repair.reordering.on_duplicate(una, next);
    }

    /// RFC 8985 section 7.4: returns true if a tail-loss probe has repaired a loss, which requires
    /// a reduction.
    fn probe_repaired_loss(&mut self, segment: &Segment, side: &SideData) -> bool {
        let Some(repair) = self
            .repair
            .as_ref()
            .filter(|_| self.flags.tail_probe_in_flight)
        else {
            return false;
        };
        if self.flight.una().is_before(repair.tlp_end_seq) {
            return false;
        }
        self.flags.tail_probe_in_flight = false;
        self.flags.tail_probe = false;
        let repeated = repair.probe_segment != repair.tlp_end_seq;
        let duplicate = segment.has_side() && side.duplicate().is_some();
        repeated
            && !duplicate
            && segment.echo == repair.probe_segment
            && segment.echo_transmission > 1
    }
}

/// Validated content of an acknowledgement for class 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckInfo {
    /// SACK ranges beyond the cumulative ACK.
    ranges: [Range; SACK_RANGES_MAX],
    count: u8,
    /// DSACK: range received twice.
    pub duplicate: Option<Range>,
    /// The segment that triggered the ACK, if the scoreboard had already counted it as acknowledged
    /// while it was still in flight.
    pub acked_echo: Option<(SequenceNumber, SentSegment)>,
}

impl AckInfo {
    /// Validates an acknowledgement. Returns `None` if it is old or acknowledges data not yet sent
    /// (RFC 9293 section 3.10.7.4).
    ///
    /// Class 0 has sent everything before the flight's `next`. `elsewhere` returns true if a range
    /// beyond it was sent completely in another class.
    pub fn read(
        segment: &Segment,
        side: &SideData,
        flight: &Flight,
        sent_in_other_class: impl Fn(SequenceNumber, SequenceNumber) -> bool,
    ) -> Option<AckInfo> {
        let (una, next, cut) = (flight.una(), flight.next(), flight.cut());
        let sent = |end: SequenceNumber, from: SequenceNumber| {
            !from.is_before(end) || sent_in_other_class(from, end)
        };
        if segment.ack.since(una) > cut.since(una) || !sent(segment.ack, next) {
            return None;
        }
        let mut told = AckInfo::default();
        if segment.has_side() {
            let beyond = next.max(segment.ack);
            for range in side.ranges() {
                if let Some(range) = clip(*range, segment.ack, cut)
                    && sent(range.end, beyond.max(range.start))
                {
                    told.push(range);
                }
            }
            told.duplicate = side.duplicate();
        }
        Some(told)
    }

    #[inline]
    fn push(&mut self, range: Range) {
        if let Some(place) = self.ranges.get_mut(usize::from(self.count)) {
            *place = range;
            self.count += 1;
        }
    }

    #[inline]
    fn ranges(&self) -> &[Range] {
        self.ranges
            .get(..usize::from(self.count))
            .unwrap_or(&self.ranges)
    }
}

/// Returns the part of `range` within `from..to`; `None` if the range is empty, inverted or reaches
/// beyond `to`.
#[inline]
pub(crate) fn clip(range: Range, from: SequenceNumber, to: SequenceNumber) -> Option<Range> {
    let room = to.since(from);
    let length = range.end.since(range.start);
    let end = range.end.since(from);
    if length == 0 || length > 1 << 30 || end == 0 || end > room {
        return None;
    }
    let start = if range.start.is_before(from) {
        from
    } else {
        range.start
    };
    Some(Range {
        start,
        end: range.end,
    })
}

/// State changed by newly delivered segments, whether covered by the cumulative ACK or a SACK
/// range.
struct Delivery<'a> {
    flight: &'a mut Flight,
    rack: &'a mut Rack,
    undo: &'a mut Undo,
    reordered: &'a mut bool,
    echo: SequenceNumber,
    echo_transmission: u8,
    after_timeout: bool,
    now: Time,
    min_rtt: Duration,
    latest: Option<LatestSegment>,
}

/// The newly delivered segment that was sent last.
#[derive(Clone, Copy)]
struct LatestSegment {
    sent: SentSegment,
    number: SequenceNumber,
    /// True if it is unambiguous which transmission arrived.
    is_unambiguous: bool,
}

impl Delivery<'_> {
    /// Records the delivery of an echo, which the scoreboard has already removed.
    #[cold]
    fn on_echo_acked(&mut self, number: SequenceNumber, sent: SentSegment, ack: &mut Ack) {
        ack.bytes += u64::from(sent.length);
        ack.packets += 1;
        self.rack
            .on_delivered(number, &sent, self.now, self.min_rtt, true);
        self.latest = Some(LatestSegment {
            sent,
            number,
            is_unambiguous: true,
        });
    }

    /// Handles the cumulative ACK up to `end`.
    #[inline(always)]
    fn on_cumulative_ack(
        &mut self,
        end: SequenceNumber,
        ack: &mut Ack,
        claims: &mut impl FnMut(&mut Flight, SequenceNumber, &SentSegment) -> bool,
    ) {
        while self.flight.una() != end {
            let (number, begin) = (self.flight.una(), self.flight.una_offset());
            let sent = self.flight.acknowledge_first();
            if claims(self.flight, number, &sent) {
                continue;
            }
            ack.bytes += self.flight.una_offset() - begin;
            if !sent.has(SentSegment::SACKED_FLAG) {
                ack.packets += 1;
                self.deliver(number, true);
            }
        }
        self.flight.advance_next();
    }

    /// Handles a range that is newly SACKed.
    #[inline(always)]
    fn on_sack(
        &mut self,
        fresh: Range,
        ack: &mut Ack,
        claims: &mut impl FnMut(&mut Flight, SequenceNumber, &SentSegment) -> bool,
    ) {
        let mut number = fresh.start;
        while number != fresh.end {
            let sent = *self.flight.get(number);
            if !claims(self.flight, number, &sent) {
                ack.sacked += 1;
                ack.sacked_bytes += u32::from(sent.length);
                self.deliver(number, false);
            }
            self.flight.on_sacked(number);
            number = number.wrapping_add(1);
        }
    }

    /// Records the delivery of a segment that class 0 sent.
    fn deliver(&mut self, number: SequenceNumber, cumulative: bool) {
        let sent = self.flight.on_delivered(number);
        let echoed = self.echo == number && self.echo_transmission != 0;
        let again = sent.transmission > 1;
        // If RC3 sent it too, RC3's copy may be the one that arrived.
        let again = again || sent.has(SentSegment::RC3_FLAG);
        let certain = !again || (echoed && self.echo_transmission == sent.transmission);
        let earlier = echoed
            && self.echo_transmission < sent.transmission
            && sent.has(SentSegment::RETRANSMITTED_FLAG);
        if sent.has(SentSegment::LOST_FLAG) {
            self.undo.spurious_marks += 1;
            self.undo.early |= self.after_timeout && cumulative && echoed;
        } else if earlier {
            self.undo.spurious_marks += 1;
            self.undo.early |= self.after_timeout && cumulative;
        }
        if earlier {
            return; // the time of that transmission is no longer stored
        }
        *self.reordered |= self
            .rack
            .on_delivered(number, &sent, self.now, self.min_rtt, certain);
        let later = |latest: &LatestSegment| {
            latest.sent.sent_at < sent.sent_at
                || (latest.sent.sent_at == sent.sent_at && latest.number.is_before(number))
        };
        if self.latest.as_ref().is_none_or(later) {
            self.latest = Some(LatestSegment {
                sent,
                number,
                is_unambiguous: certain,
            });
        }
    }
}
