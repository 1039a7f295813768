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
            ConnectionState::Proving | ConnectionState::Open => {
                if let Some(ack) = self.run_timers(now) {
                    self.tell(now, ack, control);
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
        if matches!(self.state, ConnectionState::Open | ConnectionState::Proving) {
            self.deadline = self.due();
        }
    }

    /// Time of the next timer of an open connection.
    fn due(&self) -> Time {
        let mut due = self.heard + self.config.idle_timeout;
        if self.flight.una() != self.flight.next() {
            due = due.min(self.rto_at());
            if let Some(probe) = self.probe_at() {
                due = due.min(probe);
            }
            if let Some(repair) = self.repair.as_ref() {
                due = due.min(repair.reorder_at);
            }
        } else if let Some(end) = self.echo_deadline() {
            due = due.min(end);
        } else if self.is_blocked() || self.state == ConnectionState::Proving {
            due = due.min(self.rto_at());
        }
        due
    }

    /// RFC 6298 sections 5.3 and 5.5: the RTO counts from the latest progress and doubles per
    /// consecutive timeout.
    fn rto_at(&self) -> Time {
        let backed_off = self.rto() * (1u64 << self.backoff.min(40));
        self.progress + backed_off.min(self.config.max_rto)
    }

    /// Returns true if only the peer's zero window prevents sending, and no ACK that could open it
    /// is in flight.
    pub(crate) fn is_blocked(&self) -> bool {
        let closed =
            self.limit <= self.flight.cut_offset() && self.written > self.flight.cut_offset();
        closed
            && self.flight.una() == self.flight.next()
            && matches!(self.state, ConnectionState::Open | ConnectionState::Proving)
    }

    /// Repeats the client's request after a timeout of the handshake, with a doubled RTO.
    fn retry_open(&mut self, now: Time) {
        if self.unanswered > self.config.open_retries {
            return self.fail(ConnectionError::NoAnswer(self.unanswered));
        }
        self.backoff = self.backoff.saturating_add(1);
        self.flags.handshake = true;
        self.progress = now;
        self.deadline = self.rto_at();
    }

    /// Runs expired timers. Returns the event to report to the control.
    fn run_timers(&mut self, now: Time) -> Option<Ack> {
        if self.heard + self.config.idle_timeout <= now {
            self.give_up(ConnectionError::Silent);
            return None;
        }
        if now < self.due() {
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
        if self.rto_at() <= now {
            return self.on_rto(now);
        }
        if self.probe_at().is_some_and(|at| at <= now) {
            self.flags.tail_probe = true;
            self.flags.probing = true;
            let next = self.flight.next();
            let repair = self.repair_mut();
            (repair.probe, repair.probe_end) = (next, next);
            return None;
        }
        let mut ack = Ack {
            lost: self.detect_losses(now),
            ..Ack::default()
        };
        self.judge(&mut ack);
        (ack.lost > 0).then_some(ack)
    }

    /// Frees memory that an idle connection does not need.
    fn release_idle(&mut self) {
        if self.flight.is_empty() && self.written == self.flight.cut_offset() {
            self.flight.free();
            self.release_rc3();
            let worth = |repair: &Repair| repair.reordering.seen || repair.stamps.is_some();
            let busy = self.phase != RecoveryPhase::Open || self.withheld() != WindowClamp::No;
            if !busy && !self.repair.as_deref().is_some_and(worth) {
                self.repair = None;
            }
        }
    }

    /// Probes a zero window (RFC 9293 section 3.8.6.1), or repeats a client's proof of address.
    fn on_probe_timer(&mut self, now: Time) {
        let most = if self.state == ConnectionState::Proving {
            self.config.open_retries
        } else {
            self.config.max_retries
        };
        // A peer that answers may keep its window closed indefinitely.
        self.unanswered = if self.heard >= self.sent && self.state == ConnectionState::Open {
            0
        } else {
            self.unanswered.saturating_add(1)
        };
        if self.unanswered > most {
            let failure = if self.state == ConnectionState::Proving {
                ConnectionError::NoAnswer(self.unanswered)
            } else {
                ConnectionError::TimedOut(self.unanswered)
            };
            return self.give_up(failure);
        }
        self.backoff = self.backoff.saturating_add(1);
        self.progress = now;
        self.sent = now;
        if self.state == ConnectionState::Proving {
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
            self.give_up(ConnectionError::TimedOut(self.backoff));
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
                .is_some_and(|repair| !self.flight.una().before(repair.high));
        self.timeouts = self.timeouts.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
        self.progress = now;
        self.flags.answered = false;
        self.flags.probing = false;
        self.flags.tail_probe = false;
        if first {
            if let Some(repair) = self.repair.as_deref_mut() {
                repair.undo = Default::default();
            }
            self.begin_reduction(RecoveryPhase::Loss);
            ack.reduces = true;
        }
        self.phase = RecoveryPhase::Loss;
        let repair = self.repair_mut();
        if repair.withheld != WindowClamp::Timeout {
            repair.withheld = WindowClamp::Timeout;
            repair.asked = 0;
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
            .is(SentSegment::SACKED_FLAG)
        {
            self.disbelieve();
        }
        let repair = self.repair_mut();
        repair.queue.clear();
        repair.repeats.clear();
        repair.reorder_at = Time::MAX;
        repair.high = next;
        let mut number = self.flight.una();
        while number != next {
            let sent = self.flight.get(number);
            if sent.is(SentSegment::LOST_FLAG) {
                self.repair_mut().queue.push(number);
            } else if !sent.is(SentSegment::SACKED_FLAG) {
                self.mark_lost(number);
            }
            number = number.wrapping_add(1);
        }
        self.rack.judged(next);
        debug_assert!(
            self.in_flight() == 0,
            "after a timeout nothing is in flight"
        );
        debug_assert!(
            self.flight.lost() as usize == self.repair_mut().queue.len(),
            "each lost segment is in the queue once"
        );
        self.flight.lost_total().wrapping_sub(before)
    }

    /// Drops all SACKs. The peer had SACKed the first unacknowledged segment and still does not
    /// acknowledge it, so it may have discarded the data (RFC 2018 section 8).
    #[cold]
    fn disbelieve(&mut self) {
        let rc3 = &mut self.rc3;
        self.flight.disbelieve(|sent, passed| {
            if let Some(rc3) = rc3.as_deref_mut() {
                rc3.disbelieve(sent, passed);
            }
        });
        self.repair_mut().sacked = RangeSet::default();
    }

    /// Ends the connection and notifies the peer.
    pub(crate) fn give_up(&mut self, failure: ConnectionError) {
        self.fail(failure);
        self.flags.handshake = true;
    }
}
