//! Scoreboard: segments that were cut from the stream and are not acknowledged, with the counts of
//! those SACKed and lost.
//!
//! Only this module writes these fields, so each counter equals the number of segments that it
//! counts ([`Flight::check`]). The exception is `echoes`: [RC3](crate::rc3) keeps their list.
//!
//! `una..next` was sent by class 0, or skipped because RC3 had delivered it, and is not
//! cumulatively acknowledged. `next..cut` was cut from the stream for RC3, and is counted only when
//! `next` reaches it.

mod board;
#[cfg(test)]
mod tests;

use ccplane_units::Time;

use self::board::Board;
pub(crate) use self::board::SentSegment;
use super::rate::DeliveryRate;
use crate::number::SequenceNumber;

/// Outstanding segments of a connection. The fields are in the order of access by the fast path.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Flight {
    board: Board,
    una: SequenceNumber,
    next: SequenceNumber,
    cut: SequenceNumber,
    /// Segments of `una..next` that are SACKed, and those that are marked lost and not yet
    /// retransmitted.
    sacked: u32,
    lost: u32,
    /// SACKed segments that only RC3 sent. They were never in flight.
    skipped: u32,
    /// Segments that RC3 delivered, SACKed or acknowledged, while the copy of class 0 is still in
    /// flight.
    echoes: u32,
    /// Total number of loss marks, wrapping.
    lost_total: u32,
    /// Stream offsets of `una` and `cut`, bytes.
    una_offset: u64,
    cut_offset: u64,
}

impl Flight {
    /// Creates an empty scoreboard; `first` is the number of the first segment.
    pub fn new(first: SequenceNumber) -> Flight {
        Flight {
            board: Board::default(),
            una: first,
            next: first,
            cut: first,
            sacked: 0,
            lost: 0,
            skipped: 0,
            echoes: 0,
            lost_total: 0,
            una_offset: 0,
            cut_offset: 0,
        }
    }

    /// First unacknowledged number.
    #[inline(always)]
    pub fn una(&self) -> SequenceNumber {
        self.una
    }

    /// Number that class 0 sends next.
    #[inline(always)]
    pub fn next(&self) -> SequenceNumber {
        self.next
    }

    /// First number that is not cut from the stream.
    #[inline(always)]
    pub fn cut(&self) -> SequenceNumber {
        self.cut
    }

    /// Stream offset of `una`: bytes acknowledged.
    #[inline(always)]
    pub fn una_offset(&self) -> u64 {
        self.una_offset
    }

    /// Stream offset of `cut`: bytes cut so far.
    #[inline(always)]
    pub fn cut_offset(&self) -> u64 {
        self.cut_offset
    }

    /// Number of segments SACKed beyond the cumulative ACK.
    #[inline(always)]
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Number of segments marked lost and not yet retransmitted.
    #[inline(always)]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Number of SACKed segments that only RC3 sent.
    #[inline(always)]
    pub fn skipped(&self) -> u32 {
        self.skipped
    }

    /// Number of segments in flight although RC3 has delivered them.
    #[inline(always)]
    pub fn echoes(&self) -> u32 {
        self.echoes
    }

    /// Total number of loss marks, wrapping.
    #[inline(always)]
    pub fn lost_total(&self) -> u32 {
        self.lost_total
    }

    /// Packets sent and not cumulatively acknowledged.
    #[inline(always)]
    pub fn outstanding(&self) -> u32 {
        self.next.since(self.una)
    }

    /// Estimated packets in flight (RFC 6675's pipe, with RACK's losses): neither delivered nor
    /// marked lost.
    #[inline(always)]
    pub fn in_flight(&self) -> u32 {
        let arrived = self.sacked.wrapping_sub(self.echoes);
        self.outstanding()
            .wrapping_sub(arrived)
            .wrapping_sub(self.lost)
    }

    /// Returns true if nothing is SACKed, lost or an echo.
    #[inline(always)]
    pub fn is_in_order(&self) -> bool {
        self.sacked | self.lost | self.echoes == 0
    }

    /// Returns true if no sent segment is unacknowledged.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.una == self.next
    }

    /// Returns true if every segment that was cut is acknowledged.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.una == self.cut
    }

    /// Returns a segment of `una..cut`.
    #[inline(always)]
    pub fn get(&self, number: SequenceNumber) -> &SentSegment {
        self.board.get(number)
    }

    /// Stream offset of a segment. The scoreboard stores the low 32 bits.
    #[inline(always)]
    pub fn offset_of(&self, sent: &SentSegment) -> u64 {
        self.una_offset + u64::from(sent.offset.wrapping_sub(self.una_offset as u32))
    }

    /// Stream offset of the end of a segment.
    pub fn end_of(&self, number: SequenceNumber) -> u64 {
        let sent = self.get(number);
        self.offset_of(sent) + u64::from(sent.length)
    }

    /// Cuts the next segment from the stream.
    #[inline(always)]
    pub fn cut_segment(&mut self, length: u16, fin: bool) {
        let held = self.cut.since(self.una);
        self.board.push(
            self.una,
            held,
            SentSegment::new(self.cut_offset, length, fin),
        );
        self.cut = self.cut.wrapping_add(1);
        self.cut_offset += u64::from(length);
    }

    /// Cuts a new segment of `length` bytes and sends it. Nothing may be cut ahead.
    #[inline(always)]
    pub fn on_sent_new(
        &mut self,
        length: u16,
        now: Time,
        rate: &mut DeliveryRate,
    ) -> SequenceNumber {
        debug_assert!(self.next == self.cut, "earlier segments are sent first");
        let number = self.next;
        let mut sent = SentSegment::new(self.cut_offset, length, false);
        sent.sent_at = now;
        sent.transmission = 1;
        sent.on_send(rate, now, false);
        self.board.push(self.una, number.since(self.una), sent);
        self.next = number.wrapping_add(1);
        self.cut = self.next;
        self.cut_offset += u64::from(length);
        number
    }

    /// Takes the number of the next new segment, which the caller must send now.
    #[inline(always)]
    pub fn take_next(&mut self) -> SequenceNumber {
        let number = self.next;
        debug_assert!(number != self.cut && !self.get(number).has(SentSegment::SACKED_FLAG));
        self.next = number.wrapping_add(1);
        number
    }

    /// Records a transmission or retransmission in class 0. `idle`: nothing else is in flight.
    #[inline(always)]
    pub fn on_sent(
        &mut self,
        number: SequenceNumber,
        now: Time,
        idle: bool,
        rate: &mut DeliveryRate,
    ) -> SentSegment {
        debug_assert!(number.is_within(self.una, self.next));
        let sent = self.board.get_mut(number);
        sent.on_send(rate, now, idle);
        sent.sent_at = now;
        if sent.transmission == 0 && sent.has(SentSegment::SACKED_FLAG) {
            self.skipped -= 1; // class 0 has now sent it too, as a probe
        }
        sent.transmission = sent.transmission.saturating_add(1);
        *sent
    }

    /// Marks a segment for retransmission.
    pub fn mark_retransmitted(&mut self, number: SequenceNumber) {
        debug_assert!(number.is_within(self.una, self.next));
        let sent = self.board.get_mut(number);
        self.lost -= u32::from(sent.has(SentSegment::LOST_FLAG));
        sent.clear(SentSegment::LOST_FLAG);
        sent.set(SentSegment::RETRANSMITTED_FLAG);
    }

    /// Records a transmission by RC3.
    pub fn on_sent_rc3(&mut self, number: SequenceNumber, level: u8) -> SentSegment {
        debug_assert!(number.is_within(self.una, self.cut));
        let sent = self.board.get_mut(number);
        sent.set(SentSegment::RC3_FLAG);
        sent.level = level;
        *sent
    }

    /// Records that RC3's copy of a segment has arrived and is counted.
    pub fn on_rc3_arrived(&mut self, number: SequenceNumber) {
        self.board
            .get_mut(number)
            .set(SentSegment::RC3_ARRIVED_FLAG);
    }

    /// Marks a segment lost.
    pub fn on_lost(&mut self, number: SequenceNumber) {
        let sent = self.board.get_mut(number);
        debug_assert!(!sent.has(SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG));
        sent.clear(SentSegment::RETRANSMITTED_FLAG);
        sent.set(SentSegment::LOST_FLAG);
        self.lost += 1;
        self.lost_total = self.lost_total.wrapping_add(1);
    }

    /// Removes all loss marks. `marked` yields all marked segments.
    pub fn undo_losses(&mut self, marked: impl Iterator<Item = SequenceNumber>) {
        for number in marked {
            if number.is_within(self.una, self.next) {
                self.board.get_mut(number).clear(SentSegment::LOST_FLAG);
            }
        }
        self.lost = 0;
    }

    /// Records the delivery of a segment of class 0, which may just have been
    /// [acknowledged](Flight::step). Returns its previous state.
    pub fn on_delivered(&mut self, number: SequenceNumber) -> SentSegment {
        let sent = self.board.get_mut(number);
        let before = *sent;
        self.lost -= u32::from(before.has(SentSegment::LOST_FLAG));
        sent.clear(SentSegment::LOST_FLAG | SentSegment::RETRANSMITTED_FLAG);
        before
    }

    /// Records a SACK. If class 0 sent the segment, [`on_delivered`](Flight::on_delivered) must
    /// have been called before.
    pub fn on_sacked(&mut self, number: SequenceNumber) {
        let sent = self.board.get_mut(number);
        debug_assert!(!sent.has(SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG));
        sent.set(SentSegment::SACKED_FLAG);
        self.sacked += u32::from(number.is_before(self.next));
    }

    /// Records an echo: the segment will be SACKed because RC3's copy arrived, while the copy of
    /// class 0 is in flight. [`Flight::on_sacked`] must follow.
    pub fn on_echoed(&mut self, number: SequenceNumber) {
        let sent = self.board.get_mut(number);
        debug_assert!(sent.has(SentSegment::RC3_FLAG) && !sent.has(SentSegment::SACKED_FLAG));
        sent.set(SentSegment::ECHO_FLAG | SentSegment::RC3_ARRIVED_FLAG);
    }

    /// Sets the number of segments in flight that RC3 has delivered.
    #[inline(always)]
    pub fn set_echoes(&mut self, echoes: u32) {
        self.echoes = echoes;
    }

    /// Acknowledges everything before `ack`, which is `bytes` long. The flight must be
    /// [plain](Flight::is_plain).
    #[inline(always)]
    pub fn acknowledge(&mut self, ack: SequenceNumber, bytes: u64) {
        debug_assert!(self.is_in_order() && ack.since(self.una) <= self.outstanding());
        self.una = ack;
        self.una_offset += bytes;
    }

    /// Acknowledges the first segment. [`Flight::advance_next`] must follow, as `una` may pass
    /// `next`.
    pub fn acknowledge_first(&mut self) -> SentSegment {
        debug_assert!(
            self.una != self.cut,
            "only existing segments are acknowledged"
        );
        let sent = *self.get(self.una);
        if sent.has(SentSegment::SACKED_FLAG) && self.una.is_before(self.next) {
            self.sacked -= 1;
            self.skipped -= u32::from(sent.transmission == 0);
        }
        self.una_offset = self.offset_of(&sent) + u64::from(sent.length);
        self.una = self.una.wrapping_add(1);
        sent
    }

    /// Moves `next` past the acknowledged segments.
    pub fn advance_next(&mut self) {
        self.next = self.next.max(self.una);
    }

    /// Acknowledges everything before `ack`, regardless of its state. Calls `each` for every
    /// segment.
    pub fn acknowledge_all(&mut self, ack: SequenceNumber, mut each: impl FnMut(&SentSegment)) {
        while self.una != ack {
            each(&self.acknowledge_first());
        }
        self.advance_next();
        self.lost = 0; // `step` maintains the count of SACKed segments, but not of lost ones
    }

    /// Moves `next` past segments that RC3 has delivered.
    #[inline(always)]
    pub fn skip_delivered(&mut self) {
        while self.next != self.cut && self.get(self.next).has(SentSegment::SACKED_FLAG) {
            self.next = self.next.wrapping_add(1);
            self.sacked += 1;
            self.skipped += 1;
        }
    }

    /// Acknowledges the segments at `una` that RC3 delivered and class 0 skipped. Returns whether
    /// there were any.
    pub fn acknowledge_skipped(&mut self) -> bool {
        let before = self.una;
        while self.una != self.next {
            let sent = self.get(self.una);
            if sent.transmission != 0 || !sent.has(SentSegment::SACKED_FLAG) {
                break;
            }
            self.acknowledge_first();
        }
        self.una != before
    }

    /// Clears all SACK marks. Segments that class 0 skipped become like those that it sent. Calls
    /// `each` for every SACKed segment that class 0 never sent, with a flag for those that it
    /// skipped.
    pub fn clear_sacks(&mut self, mut each: impl FnMut(&SentSegment, bool)) {
        let mut number = self.una;
        while number != self.cut {
            let passed = number.is_before(self.next);
            let sent = self.board.get_mut(number);
            if sent.has(SentSegment::SACKED_FLAG) && sent.transmission == 0 {
                each(sent, passed);
            }
            sent.clear(SentSegment::SACKED_FLAG | SentSegment::ECHO_FLAG);
            sent.transmission = sent.transmission.max(u8::from(passed));
            number = number.wrapping_add(1);
        }
        (self.sacked, self.skipped) = (0, 0);
    }

    /// Frees the scoreboard. No segment may be accessed afterwards.
    pub fn free(&mut self) {
        self.board.free();
    }

    pub fn heap_bytes(&self) -> usize {
        self.board.heap_bytes()
    }

    /// Checks the invariants for tests: `una`, `next` and `cut` are ordered, the segments are
    /// contiguous in the stream, and each counter equals the number of segments that it counts.
    /// Visits every segment.
    pub fn check(&self) {
        let (una, next, cut) = (self.una, self.next, self.cut);
        assert!(
            next.since(una) <= cut.since(una),
            "next {next:?} is not within {una:?}..{cut:?}"
        );
        let (mut sacked, mut lost, mut passed, mut offset) = (0, 0, 0, self.una_offset);
        let mut number = una;
        while number != cut {
            let sent = self.get(number);
            assert_eq!(
                sent.offset, offset as u32,
                "{number:?} does not start at the end of the previous one"
            );
            offset += u64::from(sent.length);
            let both = sent.has(SentSegment::SACKED_FLAG) && sent.has(SentSegment::LOST_FLAG);
            assert!(!both, "{number:?} is both delivered and lost");
            if number.is_before(next) {
                assert!(
                    sent.transmission > 0 || sent.has(SentSegment::SACKED_FLAG),
                    "{number:?} was passed over but not delivered"
                );
                sacked += u32::from(sent.has(SentSegment::SACKED_FLAG));
                passed += u32::from(sent.has(SentSegment::SACKED_FLAG) && sent.transmission == 0);
                lost += u32::from(sent.has(SentSegment::LOST_FLAG));
            } else {
                assert!(
                    sent.transmission == 0 && !sent.has(SentSegment::LOST_FLAG),
                    "{number:?} was sent by class 0"
                );
            }
            number = number.wrapping_add(1);
        }
        assert_eq!(offset, self.cut_offset, "the end of the last segment");
        assert_eq!(
            (self.sacked, self.lost, self.skipped),
            (sacked, lost, passed),
            "SACKed, lost, passed over"
        );
    }
}
