//! RACK-TLP, RFC 8985: a segment is lost if one sent later was delivered and the reordering window
//! has passed.
//!
//! No scan grows with the window. Segments sent once are in the order of their numbers, and a
//! cursor passes each of them once. Retransmissions are in a queue in the order of transmission.
//! Both are read from the front up to the first segment that is not overdue. Segments of RC3's
//! classes are in neither, as class 0 may overtake them.

#[cfg(test)]
mod tests;

use ccplane_units::{Duration, Time};

use crate::connection::{Connection, RecoveryPhase};
use crate::number::SequenceNumber;
use crate::send::flight::SentSegment;

/// RACK's per-connection state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: transmission time of the delivered segment that was sent
    /// last, and the number after it.
    pub xmit_ts: Time,
    pub end_seq: SequenceNumber,
    /// Number after the highest one delivered.
    pub fack: SequenceNumber,
    /// RTT of that delivery.
    pub rtt: Duration,
    /// Every segment before this number that was sent once has been checked.
    cursor: SequenceNumber,
}

/// Observed reordering of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reordering {
    /// A DSACK widens the window once per round. The round ends when everything before this number
    /// is acknowledged.
    dsack_round: Option<SequenceNumber>,
    /// RACK.reo_wnd_mult - 1: quarters of the minimum RTT beyond the first (RFC 8985 section 6.2,
    /// step 4).
    reo_wnd_extra: u8,
    /// RACK.reo_wnd_persist: recoveries left until `reo_wnd_extra` returns to 0.
    reo_wnd_persist: u8,
    /// RACK.reordering_seen.
    pub reordering_seen: bool,
}

/// Number of recoveries without a DSACK after which the window shrinks again (RFC 8985 section 6.2:
/// 16). A smaller number forgets the path's reordering too soon; a larger one delays loss detection
/// on a path that no longer reorders.
const REO_WND_PERSIST_RECOVERIES: u8 = 16;
/// Number of SACKed segments that sets the window to 0 while no reordering was seen (RFC 8985
/// section 6.2: DupThresh).
const DUP_THRESH_SEGMENTS: u32 = 3;

impl Rack {
    pub fn new(first: SequenceNumber) -> Rack {
        Rack {
            xmit_ts: Time::ZERO,
            end_seq: first,
            fack: first,
            rtt: Duration::ZERO,
            cursor: first,
        }
    }

    /// Records a delivered segment. Returns true if it shows reordering. `certain`: it is
    /// unambiguous which transmission arrived.
    #[inline]
    pub fn on_delivered(
        &mut self,
        number: SequenceNumber,
        sent: &SentSegment,
        now: Time,
        min_rtt: Duration,
        certain: bool,
    ) -> bool {
        let mut reordered = false;
        let rtt = now.since(sent.sent_at);
        if sent.transmission > 1 && !certain && rtt < min_rtt {
            return false; // ACK of an earlier transmission
        }
        let end = number.wrapping_add(1);
        if number.is_before(self.fack) {
            reordered = sent.transmission == 1;
        } else {
            self.fack = end;
        }
        if sent.sent_at > self.xmit_ts
            || (sent.sent_at == self.xmit_ts && self.end_seq.is_before(end))
        {
            self.xmit_ts = sent.sent_at;
            self.end_seq = end;
            self.rtt = rtt;
        }
        reordered
    }

    /// Restarts the scan at `una`, after loss marks were removed.
    pub fn restart_scan(&mut self, una: SequenceNumber) {
        self.cursor = una;
    }

    /// Ends the scan: everything before `next` has been checked.
    pub fn finish_scan(&mut self, next: SequenceNumber) {
        self.cursor = next;
    }

    /// Returns true if the segment was sent before the latest delivered one.
    #[inline]
    fn was_sent_before(&self, number: SequenceNumber, sent: &SentSegment) -> bool {
        sent.sent_at < self.xmit_ts
            || (sent.sent_at == self.xmit_ts && number.wrapping_add(1).is_before(self.end_seq))
    }
}

impl Reordering {
    /// Widens the window after a spurious retransmission (RFC 8985 section 6.2, step 4).
    pub fn on_duplicate(&mut self, una: SequenceNumber, next: SequenceNumber) {
        if self.dsack_round.is_none_or(|round| !una.is_before(round)) {
            self.dsack_round = Some(next);
            self.reo_wnd_extra = self.reo_wnd_extra.saturating_add(1);
            self.reo_wnd_persist = REO_WND_PERSIST_RECOVERIES;
        }
    }

    pub fn on_recovery_end(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            self.reo_wnd_extra = 0;
        }
    }
}

impl Connection {
    /// Reordering window (RFC 8985 section 6.2, step 4).
    fn reordering_window(&self) -> Duration {
        let reordering = self
            .repair
            .as_ref()
            .map(|repair| repair.reordering)
            .unwrap_or_default();
        if !reordering.reordering_seen
            && (self.phase >= RecoveryPhase::Recovery
                || self.flight.sacked() - self.flight.skipped() >= DUP_THRESH_SEGMENTS)
        {
            return Duration::ZERO;
        }
        (self.rtt.min_rtt() / 4 * (1 + u64::from(reordering.reo_wnd_extra))).min(self.rtt.srtt())
    }

    /// Marks segments that are lost by now and sets the time of the next loss. Returns the number
    /// marked.
    pub(crate) fn detect_losses(&mut self, now: Time) -> u32 {
        let before = self.flight.lost_total();
        let patience = self.rack.rtt + self.reordering_window();
        let mut reorder_at = Time::MAX;
        if self.rack.cursor.is_before(self.flight.una()) {
            self.rack.cursor = self.flight.una();
        }
        while self.rack.cursor.is_before(self.flight.next()) {
            let number = self.rack.cursor;
            let sent = *self.flight.get(number);
            if !sent.has(
                SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG | SentSegment::RETRANSMITTED_FLAG,
            ) {
                if !self.rack.was_sent_before(number, &sent) {
                    break;
                }
                if now < sent.sent_at + patience {
                    reorder_at = sent.sent_at + patience;
                    break;
                }
                self.mark_lost(number);
            }
            self.rack.cursor = number.wrapping_add(1);
        }
        while let Some(number) = self.repair_mut().retransmitted.front().copied() {
            if number.is_within(self.flight.una(), self.flight.next()) {
                let sent = *self.flight.get(number);
                if sent.has(SentSegment::RETRANSMITTED_FLAG)
                    && !sent.has(SentSegment::SACKED_FLAG | SentSegment::LOST_FLAG)
                {
                    // Among segments sent at the same time, retransmissions were sent after new
                    // data, independently of their numbers.
                    if sent.sent_at >= self.rack.xmit_ts {
                        break;
                    }
                    if now < sent.sent_at + patience {
                        reorder_at = reorder_at.min(sent.sent_at + patience);
                        break;
                    }
                    self.mark_lost(number);
                }
            }
            self.repair_mut().retransmitted.pop_front();
        }
        let (lost, repair) = (self.flight.lost(), self.repair_mut());
        debug_assert!(
            lost as usize <= repair.lost_queue.len(),
            "each lost segment is in the queue"
        );
        repair.reorder_deadline = reorder_at;
        self.flight.lost_total().wrapping_sub(before)
    }

    /// Marks a segment lost and queues it for retransmission.
    pub(crate) fn mark_lost(&mut self, number: SequenceNumber) {
        let first = self.flight.lost() == 0;
        self.flight.on_lost(number);
        let repair = self.repair_mut();
        if first {
            // Remaining entries in the queue were delivered after they were marked.
            repair.lost_queue.clear();
        }
        repair.lost_queue.push(number);
        repair.undo.losses_marked += 1;
    }

    /// Time at which a tail-loss probe is due (RFC 8985 section 7.2); `None` if none is allowed. It
    /// is 2 SRTT after the last transmission or progress. If only one segment is outstanding, the
    /// peer's maximum ACK delay is added.
    pub(crate) fn probe_deadline(&self) -> Option<Time> {
        let allowed = self.phase == RecoveryPhase::Open
            && !self.flags.tail_probe_in_flight
            && self.flight.sacked() == self.flight.skipped()
            && self.flight.lost() == 0
            && self.rtt.has_sample();
        if !allowed {
            return None;
        }
        let delay = if self.outstanding() - self.flight.skipped() == 1 && self.config.ack_every > 1
        {
            self.config.ack_delay
        } else {
            Duration::ZERO
        };
        Some(self.last_new_data.max(self.last_delivery) + self.rtt.srtt() * 2 + delay)
    }
}
