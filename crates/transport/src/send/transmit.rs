//! Transmission: lost segments first, then new data, as window, pacing and the peer's buffer allow;
//! then acknowledgements and probes.

#[cfg(test)]
mod tests;

use ccplane_units::{Duration, Time};

use crate::connection::{Connection, ConnectionState, RecoveryPhase};
use crate::number::SequenceNumber;
use crate::segment::{Segment, SegmentKind, SideData};
use crate::send::flight::SentSegment;
use crate::send::recovery::WindowClamp;

impl Connection {
    /// Returns true if [`Connection::transmit`] has a segment in this class now. Pacing may delay
    /// data until [`Connection::next_send`].
    #[inline(always)]
    pub fn has_segment(&self, now: Time, class: u8) -> bool {
        if class != 0 {
            return self.has_low_class(now, class);
        }
        self.quota != 0
            || self.receiver.is_ack_due(0)
            || (!self.has_only_acks && self.has_segment_slow_path(now))
    }

    fn has_segment_slow_path(&self, now: Time) -> bool {
        self.flags.handshake_due
            || self.flags.window_probe
            || (self.wants_to_send() && self.pacer.can_send(now))
    }

    /// Returns the next segment to send in this class. `side` must be empty; it is filled if the
    /// segment has [`Segment::SIDE_FLAG`].
    pub fn transmit(&mut self, now: Time, class: u8, side: &mut SideData) -> Option<Segment> {
        let mut segment = Segment::default();
        self.transmit_into(now, class, &mut segment, side)
            .then_some(segment)
    }

    /// Returns true if class 0 cannot send before the next event. A quick check: false may be
    /// wrong, true is not.
    #[inline(always)]
    pub fn has_only_acks(&self) -> bool {
        self.quota == 0 && self.has_only_acks && !self.receiver.is_ack_due(0)
    }

    /// Writes the next segment into the driver's memory; see [`transmit`](Connection::transmit).
    /// Returns false if there is none. The old contents are lost in either case.
    #[inline(always)]
    pub fn transmit_into(
        &mut self,
        now: Time,
        class: u8,
        segment: &mut Segment,
        side: &mut SideData,
    ) -> bool {
        if class == 0 && self.quota != 0 {
            self.send_full(now, segment, side);
            return true;
        }
        if class == 0 && self.has_only_acks {
            let owes = self.receiver.is_ack_due(0);
            if owes {
                self.send_ack(now, segment, side);
            }
            return owes;
        }
        self.transmit_slow_path(now, class, segment, side)
    }

    /// Sends an acknowledgement without data.
    #[inline(always)]
    fn send_ack(&mut self, now: Time, segment: &mut Segment, side: &mut SideData) {
        *segment = Segment::default();
        segment.number = self.flight.next();
        self.receiver.acknowledge(now, segment, side, &self.config);
    }

    /// Sends a full segment of new data, as allowed by [`Connection::update_quota`].
    #[inline(always)]
    fn send_full(&mut self, now: Time, segment: &mut Segment, side: &mut SideData) {
        debug_assert!(
            self.in_flight() < self.window && self.flight.lost() == 0,
            "`allot` respects the window"
        );
        self.quota -= 1;
        let offset = self.flight.cut_offset();
        debug_assert!(
            offset + self.mss() <= self.written.min(self.peer_window_end),
            "`allot` respects the stream and the peer's window"
        );
        let number = self.flight.on_sent_new(self.mss, now, &mut self.rate);
        *segment = Segment::default();
        segment.kind = SegmentKind::Data;
        segment.number = number;
        segment.length = self.mss;
        segment.transmission = 1;
        segment.ecn = self.config.ecn;
        segment.set_offset(offset);
        self.last_new_data = now;
        if self.quota == 0 {
            self.record_window_usage();
            self.has_only_acks = self.in_flight() >= self.window;
        }
        self.receiver.acknowledge(now, segment, side, &self.config);
    }

    /// Returns true if class 0 has something other than an acknowledgement, perhaps delayed by
    /// pacing.
    #[inline(always)]
    fn can_send(&self) -> bool {
        self.flags.handshake_due || self.flags.window_probe || self.wants_to_send()
    }

    /// Computes how many full segments of new data may be sent without a further check: as many as
    /// fit into the window, if stream and peer have more than that, nothing is lost, and pacing,
    /// stamps and handshake are not involved.
    #[inline(always)]
    pub(crate) fn update_quota(&mut self) {
        let out = self.outstanding();
        let room = self.window.saturating_sub(out);
        let available = self.written.min(self.peer_window_end) - self.flight.cut_offset();
        let plain = self.flight.is_in_order()
            && self.state == ConnectionState::Open
            && self.phase == RecoveryPhase::Open
            && self.flight.next() == self.flight.cut()
            && out != 0
            && self.pacer.rate() == 0
            && !self.config.stamps
            && !self.flags.needs_slow_path();
        self.quota = match plain {
            true if available > u64::from(room) * u64::from(self.mss) => room,
            // The last available segment may be short or carry the end of the stream.
            true => (available.saturating_sub(1) as u32)
                .checked_div(u32::from(self.mss))
                .unwrap_or(0),
            false => 0,
        };
        debug_assert!(
            self.quota == 0 || out + self.quota <= self.window,
            "more than the window allows"
        );
        self.has_only_acks = self.quota == 0 && !self.can_send();
    }

    #[inline(never)]
    fn transmit_slow_path(
        &mut self,
        now: Time,
        class: u8,
        segment: &mut Segment,
        side: &mut SideData,
    ) -> bool {
        *segment = Segment::default();
        (segment.class, segment.band) = (class, class);
        if class == 0 && self.wants_to_send() && self.pacer.can_send(now) {
            self.send_data(now, segment, side);
            self.update_quota();
        } else if self.flags.handshake_due && class == 0 {
            self.send_handshake(now, segment);
            return true;
        } else if class != 0 && self.send_rc3(now, segment, side).is_some() {
            // The segment carries the acknowledgement due in its class.
        } else if self.receiver.is_ack_due(class) {
            segment.number = self.flight.next();
        } else if class == 0 && self.flags.window_probe {
            self.flags.window_probe = false;
            segment.number = self.flight.next();
            segment.flags = Segment::PROBE_FLAG;
        } else if class != 0 {
            return false;
        } else {
            self.has_only_acks = !self.can_send();
            return false;
        }
        if self.state == ConnectionState::ValidatingAddress {
            segment.flags |= Segment::PROOF_FLAG;
        }
        self.receiver.acknowledge(now, segment, side, &self.config);
        true
    }

    /// Returns true if there is a segment that window and peer allow. Pacing is not checked.
    #[inline(always)]
    pub(crate) fn wants_to_send(&self) -> bool {
        if !matches!(
            self.state,
            ConnectionState::Open | ConnectionState::ValidatingAddress
        ) {
            return false;
        }
        let probe = self.flags.tail_probe && self.flight.una() != self.flight.next();
        probe
            || (self.in_flight() < self.window && (self.flight.lost() != 0 || self.has_new_data()))
    }

    /// Returns true if there is new data within the peer's window, or the end of the stream.
    #[inline(always)]
    fn has_new_data(&self) -> bool {
        if self.flight.next() != self.flight.cut() {
            return self.flight.end_of(self.flight.next()) <= self.peer_window_end;
        }
        let unsent = self.written - self.flight.cut_offset();
        if unsent == 0 {
            return self.flags.finishing && !self.flags.fin_cut;
        }
        let room = self.peer_window_end - self.flight.cut_offset();
        // A window below one segment is used only if nothing else would open it (RFC 9293 section
        // 3.8.6.2.1).
        unsent.min(u64::from(self.mss)) <= room
            || (room > 0 && self.flight.una() == self.flight.next())
    }

    #[inline(always)]
    fn send_data(&mut self, now: Time, segment: &mut Segment, side: &mut SideData) {
        let idle = self.flight.is_idle();
        let number = if self.flight.lost() != 0 || self.flags.tail_probe {
            self.choose_retransmission()
        } else {
            None
        };
        let number = match number {
            Some(again) => again,
            None => {
                if idle {
                    self.on_idle_end(now);
                }
                if self.flight.next() == self.flight.cut() {
                    self.cut_segment();
                }
                self.last_new_data = now;
                self.flight.take_next()
            }
        };
        let sent = self.flight.on_sent(number, now, idle, &mut self.rate);
        if sent.has(SentSegment::RC3_FLAG)
            && sent.transmission == 1
            && !sent.has(SentSegment::SACKED_FLAG)
        {
            self.on_rc3_overtaken();
        }
        self.fill_data_segment(now, number, &sent, segment, side);
        segment.ecn = self.config.ecn;
        self.record_in_pacer(now, segment.length);
        if self.flight.next() != self.flight.cut() {
            self.skip_delivered();
        }
        self.record_window_usage();
    }

    /// Records `length` bytes of payload in the pacer.
    #[inline(always)]
    fn record_in_pacer(&mut self, now: Time, length: u16) {
        let (payload, headers) = (u64::from(length), u64::from(self.config.header_bytes));
        self.pacer
            .on_send(payload, headers, now, self.config.pacing_quantum, &self.rtt);
    }

    /// Fills a data segment.
    #[inline(always)]
    pub(crate) fn fill_data_segment(
        &self,
        now: Time,
        number: SequenceNumber,
        sent: &SentSegment,
        segment: &mut Segment,
        side: &mut SideData,
    ) {
        segment.kind = SegmentKind::Data;
        segment.number = number;
        segment.length = sent.length;
        segment.transmission = sent.transmission;
        segment.flags = if sent.has(SentSegment::FIN_FLAG) {
            Segment::FIN_FLAG
        } else {
            0
        };
        segment.set_offset(self.flight.offset_of(sent));
        if self.config.stamps {
            (side.t1, side.stamped) = (now, true);
            segment.flags |= Segment::SIDE_FLAG;
        }
    }

    /// Cuts the next segment from the stream.
    #[inline(always)]
    pub(crate) fn cut_segment(&mut self) {
        let unsent = self.written - self.flight.cut_offset();
        let room = self.peer_window_end - self.flight.cut_offset();
        debug_assert!(
            (unsent > 0 && room > 0) || self.flags.finishing,
            "no data to segment"
        );
        debug_assert!(!self.flags.fin_cut, "nothing follows the end");
        let length = unsent.min(u64::from(self.mss)).min(room) as u16;
        let fin = self.flags.finishing && u64::from(length) == unsent;
        self.flight.cut_segment(length, fin);
        self.flags.fin_cut |= fin;
    }

    /// Chooses the segment to retransmit, if any: the first lost one, or the last one sent for a
    /// tail-loss probe without new data.
    #[cold]
    #[inline(never)]
    fn choose_retransmission(&mut self) -> Option<SequenceNumber> {
        let next = self.flight.next();
        let number = if self.flags.tail_probe {
            self.flags.tail_probe = false;
            let fresh = self.flight.lost() == 0 && self.has_new_data();
            let last = if fresh {
                None
            } else {
                Some(self.last_missing())
            };
            let last = last.filter(|last| last.is_within(self.flight.una(), next));
            let probing = self.flight.lost() == 0;
            self.flags.tail_probe_in_flight = probing;
            let repair = self.repair_mut();
            // With new data the probe ends one segment later.
            repair.tlp_end_seq = if fresh { next.wrapping_add(1) } else { next };
            repair.probe_segment = last.unwrap_or(repair.tlp_end_seq);
            if self.flight.lost() == 0 {
                last
            } else {
                self.next_lost()
            }
        } else {
            self.next_lost()
        };
        let number = number?;
        debug_assert!(
            number.is_within(self.flight.una(), next),
            "only data in flight is retransmitted"
        );
        self.flight.mark_retransmitted(number);
        self.retransmitted = self.retransmitted.wrapping_add(1);
        let repair = self.repair_mut();
        repair.retransmitted.push_back(number);
        repair.undo.undo_retrans = repair.undo.undo_retrans.saturating_add(1);
        Some(number)
    }

    /// Returns the last segment that has not arrived, or the last one sent if all have.
    fn last_missing(&self) -> SequenceNumber {
        let last = self.flight.next().previous();
        let arrived = self
            .repair
            .as_ref()
            .and_then(|repair| repair.sacked.find(last));
        match arrived.map(|range| range.start.previous()) {
            Some(missing) if missing.is_within(self.flight.una(), self.flight.next()) => missing,
            _ => last,
        }
    }

    fn next_lost(&mut self) -> Option<SequenceNumber> {
        let (una, next) = (self.flight.una(), self.flight.next());
        let repair = self.repair.as_deref_mut()?;
        loop {
            let Some(number) = repair.lost_queue.pop() else {
                debug_assert!(self.flight.lost() == 0, "each lost segment is in the queue");
                return None;
            };
            if number.is_within(una, next) && self.flight.get(number).has(SentSegment::LOST_FLAG) {
                return Some(number);
            }
        }
    }

    /// Restarts the timers for the first segment after an idle time.
    #[cold]
    #[inline(never)]
    fn on_idle_end(&mut self, now: Time) {
        let idle = now.since(self.last_new_data.max(self.last_delivery));
        let rto = self.rto();
        if self.config.restart_after_idle && self.rtt.has_sample() && idle > rto {
            self.restart_after_idle(idle, rto);
        }
        self.last_delivery = now;
        self.last_new_data = now;
        self.backoff = 0; // from zero-window probes
        // Too early is harmless, too late is not. The peer's ACK delay is added when this deadline
        // expires.
        let probe = self.rtt.srtt() * 2;
        let first = if self.rtt.has_sample() {
            probe.min(rto)
        } else {
            rto
        };
        self.deadline = self.deadline.min(now + first);
    }

    /// Restarts after an idle time (RFC 5681 section 4.1; RFC 2861; Linux's `tcp_cwnd_restart`).
    /// The window halves per RTO of idle time, down to the initial window. The threshold becomes at
    /// least three quarters of the old window.
    fn restart_after_idle(&mut self, idle: Duration, rto: Duration) {
        let least = (u64::from(self.config.initial_window) * self.mss()).min(self.cwnd);
        if self.phase == RecoveryPhase::Open {
            self.ssthresh = self.ssthresh.max(self.cwnd - self.cwnd / 4);
        }
        let mut cwnd = self.cwnd;
        let mut left = idle.saturating_sub(rto);
        while left > Duration::ZERO && cwnd > least {
            cwnd /= 2;
            left = left.saturating_sub(rto);
        }
        let (before, cwnd) = (self.cwnd, cwnd.max(least));
        self.set_cwnd(cwnd);
        if self.flags.steered && cwnd < before && self.clamp() != WindowClamp::Timeout {
            // The control may store the old window and set it again.
            let repair = self.repair_mut();
            let until = match repair.clamp {
                WindowClamp::Idle => before.max(repair.resume_until),
                _ => before,
            };
            repair.clamp = WindowClamp::Idle;
            (
                repair.requested_window,
                repair.resume_limit,
                repair.resume_until,
            ) = (cwnd, cwnd, until);
        }
    }

    /// Records per round whether the window limits sending (Linux's `tcp_cwnd_validate`) or the
    /// application does.
    #[inline(always)]
    fn record_window_usage(&mut self) {
        let flying = self.in_flight();
        let out = self
            .outstanding()
            .wrapping_sub(self.flight.skipped())
            .wrapping_add(self.flight.echoes());
        let limited = flying >= self.window;
        if limited
            || !self.flight.una().is_before(self.usage_round_end)
            || (!self.flags.cwnd_limited && out > self.outstanding_max)
        {
            self.flags.cwnd_limited = limited;
            self.outstanding_max = out;
            self.usage_round_end = self.flight.next();
        }
        if !limited
            && self.flight.lost() == 0
            && self.written == self.flight.cut_offset()
            && self.flight.next() == self.flight.cut()
        {
            self.rate.set_app_limited(flying);
        }
        if self.phase != RecoveryPhase::Open {
            self.record_prr_sent();
        }
    }

    #[cold]
    fn record_prr_sent(&mut self) {
        if self.phase != RecoveryPhase::Loss
            && let Some(repair) = self.repair.as_deref_mut()
        {
            repair.prr.on_sent();
        }
    }
}
