//! RACK-TLP, RFC 8985: a segment is lost when one sent later was delivered and the reordering
//! window has passed.
//!
//! No scan grows with the window. Segments sent once are in the order of their numbers, and a
//! cursor passes each of them once. Retransmissions are in a queue in the order of sending. Both
//! are read from the front up to the first segment that is not overdue. Segments of RC3's classes
//! are in neither: class 0 may overtake them.

#[cfg(test)]
mod tests;

use ccplane_units::{Duration, Time};

use crate::connection::{Connection, Phase};
use crate::number::Number;
use crate::send::flight::Sent;

/// What RACK remembers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: when the latest sent of the delivered segments was sent, and
    /// the number after it.
    pub at: Time,
    pub end: Number,
    /// The number after the highest delivered.
    pub furthest: Number,
    /// The RTT of that delivery.
    pub rtt: Duration,
    /// Every segment before it that was sent once has been checked.
    cursor: Number,
}

/// What is known of the path's reordering.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reordering {
    /// A DSACK widens the window once per round. The round is over when this is acknowledged.
    round: Option<Number>,
    /// RACK.reo_wnd_mult less 1: quarters of the least RTT beyond the first (RFC 8985, 6.2 step 4).
    wider: u8,
    /// RACK.reo_wnd_persist: recoveries left until `wider` returns to 0.
    persist: u8,
    /// RACK.reordering_seen.
    pub seen: bool,
}

/// After so many recoveries without a DSACK the window shrinks again (RFC 8985, 6.2: 16). Fewer
/// forget a path's reordering too soon. More delay loss detection on a path that has calmed.
const PERSIST: u8 = 16;
/// Where no reordering was seen, so many SACKed segments make the window 0 (RFC 8985, 6.2:
/// DupThresh).
const DUP_THRESHOLD: u32 = 3;

impl Rack {
    pub fn new(first: Number) -> Rack {
        Rack {
            at: Time::ZERO,
            end: first,
            furthest: first,
            rtt: Duration::ZERO,
            cursor: first,
        }
    }

    /// A segment was delivered. Returns whether that shows reordering. `certain`: it is known which
    /// of its transmissions arrived.
    #[inline]
    pub fn on_delivered(
        &mut self,
        number: Number,
        sent: &Sent,
        now: Time,
        min_rtt: Duration,
        certain: bool,
    ) -> bool {
        let mut reordered = false;
        let rtt = now.since(sent.at);
        if sent.transmission > 1 && !certain && rtt < min_rtt {
            return false; // the ACK of an earlier sending
        }
        let end = number.plus(1);
        if number.before(self.furthest) {
            reordered = sent.transmission == 1;
        } else {
            self.furthest = end;
        }
        if sent.at > self.at || (sent.at == self.at && self.end.before(end)) {
            self.at = sent.at;
            self.end = end;
            self.rtt = rtt;
        }
        reordered
    }

    /// Loss marks were taken back: everything from `una` on is checked again.
    pub fn look_again(&mut self, una: Number) {
        self.cursor = una;
    }

    /// Everything up to `next` has been checked.
    pub fn judged(&mut self, next: Number) {
        self.cursor = next;
    }

    /// Whether a segment was sent before the latest delivered one.
    #[inline]
    fn overtook(&self, number: Number, sent: &Sent) -> bool {
        sent.at < self.at || (sent.at == self.at && number.plus(1).before(self.end))
    }
}

impl Reordering {
    /// A retransmission proved to be a duplicate (RFC 8985, 6.2 step 4).
    pub fn on_duplicate(&mut self, una: Number, next: Number) {
        if self.round.is_none_or(|round| !una.before(round)) {
            self.round = Some(next);
            self.wider = self.wider.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    pub fn end_of_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.wider = 0;
        }
    }
}

impl Connection {
    /// RFC 8985, 6.2 step 4.
    fn reordering_window(&self) -> Duration {
        let reordering = self
            .repair
            .as_ref()
            .map(|repair| repair.reordering)
            .unwrap_or_default();
        if !reordering.seen
            && (self.phase >= Phase::Recovery
                || self.flight.sacked() - self.flight.passed() >= DUP_THRESHOLD)
        {
            return Duration::ZERO;
        }
        (self.rtt.least() / 4 * (1 + u64::from(reordering.wider))).min(self.rtt.smoothed())
    }

    /// Marks what is lost by now, and notes when the next segment will be. Returns how many were
    /// marked.
    pub(crate) fn detect_losses(&mut self, now: Time) -> u32 {
        let before = self.flight.lost_total();
        let patience = self.rack.rtt + self.reordering_window();
        let mut reorder_at = Time::MAX;
        if self.rack.cursor.before(self.flight.una()) {
            self.rack.cursor = self.flight.una();
        }
        while self.rack.cursor.before(self.flight.next()) {
            let number = self.rack.cursor;
            let sent = *self.flight.get(number);
            if !sent.is(Sent::SACKED | Sent::LOST | Sent::REPEATED) {
                if !self.rack.overtook(number, &sent) {
                    break;
                }
                if now < sent.at + patience {
                    reorder_at = sent.at + patience;
                    break;
                }
                self.mark_lost(number);
            }
            self.rack.cursor = number.plus(1);
        }
        while let Some(number) = self.repair_mut().repeats.front().copied() {
            if number.within(self.flight.una(), self.flight.next()) {
                let sent = *self.flight.get(number);
                if sent.is(Sent::REPEATED) && !sent.is(Sent::SACKED | Sent::LOST) {
                    // Of segments sent at one moment, a retransmission left after new ones,
                    // whatever their numbers.
                    if sent.at >= self.rack.at {
                        break;
                    }
                    if now < sent.at + patience {
                        reorder_at = reorder_at.min(sent.at + patience);
                        break;
                    }
                    self.mark_lost(number);
                }
            }
            self.repair_mut().repeats.pop_front();
        }
        let (lost, repair) = (self.flight.lost(), self.repair_mut());
        debug_assert!(
            lost as usize <= repair.queue.len(),
            "whatever is marked lost is in the queue"
        );
        repair.reorder_at = reorder_at;
        self.flight.lost_total().wrapping_sub(before)
    }

    /// Marks a segment lost and queues it for retransmission.
    pub(crate) fn mark_lost(&mut self, number: Number) {
        let first = self.flight.lost() == 0;
        self.flight.on_lost(number);
        let repair = self.repair_mut();
        if first {
            // Entries left in the queue have arrived since it was marked.
            repair.queue.clear();
        }
        repair.queue.push(number);
        repair.undo.marks += 1;
    }

    /// When a tail-loss probe is due (RFC 8985, 7.2); `None` where none may be sent. It is 2 SRTT
    /// after the last sending or progress. When only one segment is outstanding, the peer's longest
    /// ACK delay is added.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        let allowed = self.phase == Phase::Open
            && !self.flags.probing
            && self.flight.sacked() == self.flight.passed()
            && self.flight.lost() == 0
            && self.rtt.known();
        if !allowed {
            return None;
        }
        let delay = if self.outstanding() - self.flight.passed() == 1 && self.config.ack_every > 1 {
            self.config.ack_delay
        } else {
            Duration::ZERO
        };
        Some(self.sent.max(self.progress) + self.rtt.smoothed() * 2 + delay)
    }
}
