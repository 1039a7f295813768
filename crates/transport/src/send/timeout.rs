//! Timers with one lazy deadline. The deadline may precede the next timer: when it expires, the
//! timers are checked and the deadline moves. A packet therefore never touches a timer that is
//! already armed.

#[cfg(test)]
mod tests;

use ccplane_units::Time;

use crate::connection::{Connection, ConnectionState, RecoveryPhase};
use crate::control::{Ack, CongestionControl};
use crate::error::ConnectionError;
use crate::ranges::RangeSet;
use crate::send::flight::SentSegment;
use crate::send::recovery::{Repair, WindowClamp};

impl Connection {
    /// Runs expired timers. Call it at [`Connection::next_timeout`]; calling it early or twice does
    /// no harm. Afterwards there may be something to send.
    pub fn on_timeout(&mut self, now: Time, control: &mut impl CongestionControl) {
        self.receiver.on_timeout(now);
        if now >= self.deadline {
            self.invalidate();
        }
        if now < self.deadline {
            return;
        }
        match self.state {
            ConnectionState::Opening => self.retry_open(now),
            ConnectionState::Accepting => self.fail(ConnectionError::NoAnswer(self.unanswered)),
            ConnectionState::Draining => self.close(),
            ConnectionState::Closed => self.deadline = Time::MAX,
            ConnectionState::ValidatingAddress | ConnectionState::Open => {
                if let Some(ack) = self.run_timers(now) {
                    self.notify_control(now, ack, control);
                    if ack.timeout {
                        self.set_cwnd(self.mss());
                    }
                }
                if self.is_alive() {
                    self.update_quota();
                    self.rearm();
                }
            }
        }
    }

    /// Moves the deadline to the next timer.
    pub(crate) fn rearm(&mut self) {
        if matches!(
            self.state,
            ConnectionState::Open | ConnectionState::ValidatingAddress
        ) {
            self.deadline = self.next_timer();
        }
    }

    /// Time of the next timer of an open connection.
    fn next_timer(&self) -> Time {
        let mut due = self.last_received + self.config.idle_timeout;
        if self.flight.una() != self.flight.next() {
            due = due.min(self.rto_deadline());
            if let Some(probe) = self.probe_deadline() {
                due = due.min(probe);
            }
            if let Some(repair) = self.repair.as_ref() {
                due = due.min(repair.reorder_deadline);
            }
        } else if let Some(end) = self.echo_deadline() {
            due = due.min(end);
        } else if self.is_blocked() || self.state == ConnectionState::ValidatingAddress {
            due = due.min(self.rto_deadline());
        }
        due
    }

    /// RFC 6298 sections 5.3 and 5.5: the RTO counts from the latest progress and doubles per
    /// consecutive timeout.
    fn rto_deadline(&self) -> Time {
        let backed_off = self.rto() * (1u64 << self.backoff.min(40));
        self.last_delivery + backed_off.min(self.config.max_rto)
    }

    /// Returns true if only the peer's zero window prevents sending, and no ACK that could open it
    /// is in flight.
    pub(crate) fn is_blocked(&self) -> bool {
        let closed = self.peer_window_end <= self.flight.cut_offset()
            && self.written > self.flight.cut_offset();
        closed
            && self.flight.una() == self.flight.next()
            && matches!(
                self.state,
                ConnectionState::Open | ConnectionState::ValidatingAddress
            )
    }

    /// Repeats the client's request after a timeout of the handshake, with a doubled RTO.
    fn retry_open(&mut self, now: Time) {
        if self.unanswered > self.config.open_retries {
            return self.fail(ConnectionError::NoAnswer(self.unanswered));
        }
        self.backoff = self.backoff.saturating_add(1);
        self.flags.handshake_due = true;
        self.last_delivery = now;
        self.deadline = self.rto_deadline();
    }

    /// Runs expired timers. Returns the event to report to the control.
    fn run_timers(&mut self, now: Time) -> Option<Ack> {
        if self.last_received + self.config.idle_timeout <= now {
            self.abort_with(ConnectionError::IdleTimeout);
            return None;
        }
        if now < self.next_timer() {
            self.release_idle();
            return None;
        }
        if self.flight.una() == self.flight.next() {
            if self.echo_deadline().is_some_and(|end| end <= now) {
                self.clear_echoes();
                self.release_idle();
            } else {
                self.on_probe_timer(now);
            }
            return None;
        }
        if self.rto_deadline() <= now {
            return self.on_rto(now);
        }
        if self.probe_deadline().is_some_and(|at| at <= now) {
            self.flags.tail_probe = true;
            self.flags.tail_probe_in_flight = true;
            let next = self.flight.next();
            let repair = self.repair_mut();
            (repair.probe_segment, repair.tlp_end_seq) = (next, next);
            return None;
        }
        let mut ack = Ack {
            lost: self.detect_losses(now),
            ..Ack::default()
        };
        self.update_recovery(&mut ack);
        (ack.lost > 0).then_some(ack)
    }

    /// Frees memory that an idle connection does not need.
    fn release_idle(&mut self) {
        if self.flight.is_empty() && self.written == self.flight.cut_offset() {
            self.flight.free();
            self.release_rc3();
            let worth =
                |repair: &Repair| repair.reordering.reordering_seen || repair.stamps.is_some();
            let busy = self.phase != RecoveryPhase::Open || self.clamp() != WindowClamp::Unclamped;
            if !busy && !self.repair.as_deref().is_some_and(worth) {
                self.repair = None;
            }
        }
    }

    /// Probes a zero window (RFC 9293 section 3.8.6.1), or repeats a client's proof of address.
    fn on_probe_timer(&mut self, now: Time) {
        let most = if self.state == ConnectionState::ValidatingAddress {
            self.config.open_retries
        } else {
            self.config.max_retries
        };
        // A peer that answers may keep its window closed indefinitely.
        self.unanswered =
            if self.last_received >= self.last_new_data && self.state == ConnectionState::Open {
                0
            } else {
                self.unanswered.saturating_add(1)
            };
        if self.unanswered > most {
            let failure = if self.state == ConnectionState::ValidatingAddress {
                ConnectionError::NoAnswer(self.unanswered)
            } else {
                ConnectionError::TimedOut(self.unanswered)
            };
            return self.abort_with(failure);
        }
        self.backoff = self.backoff.saturating_add(1);
        self.last_delivery = now;
        self.last_new_data = now;
        if self.state == ConnectionState::ValidatingAddress {
            self.receiver.schedule_ack();
        } else {
            self.flags.window_probe = true;
        }
    }

    /// Retransmission timeout (RFC 6298 sections 5.4 to 5.6; RFC 8985 section 6.3): everything not
    /// SACKed is lost, and the window is one segment.
    fn on_rto(&mut self, now: Time) -> Option<Ack> {
        debug_assert!(
            !self.flight.is_idle(),
            "the timer runs only while data is in flight"
        );
        if self.backoff >= self.config.max_retries {
            self.abort_with(ConnectionError::TimedOut(self.backoff));
            return None;
        }
        let mut ack = Ack {
            timeout: true,
            ..Ack::default()
        };
        let first = self.phase < RecoveryPhase::Recovery
            || self
                .repair
                .as_ref()
                .is_some_and(|repair| !self.flight.una().is_before(repair.recovery_point));
        self.timeouts = self.timeouts.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
        self.last_delivery = now;
        self.flags.control_answered = false;
        self.flags.tail_probe_in_flight = false;
        self.flags.tail_probe = false;
        if first {
            if let Some(repair) = self.repair.as_deref_mut() {
                repair.undo = Default::default();
            }
            self.begin_reduction(RecoveryPhase::Loss);
            ack.starts_reduction = true;
        }
        self.phase = RecoveryPhase::Loss;
        let repair = self.repair_mut();
        if repair.clamp != WindowClamp::Timeout {
            repair.clamp = WindowClamp::Timeout;
            repair.requested_window = 0;
        }
        self.clear_echoes();
        ack.lost = self.mark_all_lost();
        Some(ack)
    }

    fn mark_all_lost(&mut self) -> u32 {
        let before = self.flight.lost_total();
        let next = self.flight.next();
        if self
            .flight
            .get(self.flight.una())
            .has(SentSegment::SACKED_FLAG)
        {
            self.drop_sacks();
        }
        let repair = self.repair_mut();
        repair.lost_queue.clear();
        repair.retransmitted.clear();
        repair.reorder_deadline = Time::MAX;
        repair.recovery_point = next;
        let mut number = self.flight.una();
        while number != next {
            let sent = self.flight.get(number);
            if sent.has(SentSegment::LOST_FLAG) {
                self.repair_mut().lost_queue.push(number);
            } else if !sent.has(SentSegment::SACKED_FLAG) {
                self.mark_lost(number);
            }
            number = number.wrapping_add(1);
        }
        self.rack.finish_scan(next);
        debug_assert!(
            self.in_flight() == 0,
            "after a timeout nothing is in flight"
        );
        debug_assert!(
            self.flight.lost() as usize == self.repair_mut().lost_queue.len(),
            "each lost segment is in the queue once"
        );
        self.flight.lost_total().wrapping_sub(before)
    }

    /// Drops all SACKs. The peer had SACKed the first unacknowledged segment and still does not
    /// acknowledge it, so it may have discarded the data (RFC 2018 section 8).
    #[cold]
    fn drop_sacks(&mut self) {
        let rc3 = &mut self.rc3;
        self.flight.clear_sacks(|sent, passed| {
            if let Some(rc3) = rc3.as_deref_mut() {
                rc3.on_reneged(sent, passed);
            }
        });
        self.repair_mut().sacked = RangeSet::default();
    }

    /// Ends the connection and notifies the peer.
    pub(crate) fn abort_with(&mut self, failure: ConnectionError) {
        self.fail(failure);
        self.flags.handshake_due = true;
    }
}
