//! Accounts of the packets sent per session. Checks feedback against them for plausibility and
//! computes what is new in it.

use ccplane_units::{Duration, Rate, Time};

use crate::boundaries::{Boundary, SentBoundaries};
use crate::epoch::{EpochSize, PacketNumbering};
use crate::feedback::{Feedback, Notice};

/// Longest interval between notices, which are the only packets of an idle bundle.
const NOTICE_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Shortest interval between notices, even if the epoch size changes with every tick.
const NOTICE_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Inverse weight of the last tick in the rate that determines the epoch size; averages over about
/// 80 ms.
const PACE_INVERSE_GAIN: u64 = 8;

/// Error of implausible feedback, which is counted but otherwise ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImplausibleFeedback {
    /// The session is unknown.
    #[error("feedback for unknown session {0}")]
    UnknownSession(u32),
    /// The boundary was never sent.
    #[error("feedback for packet {0}, which was not sent")]
    NeverSent(u64),
    /// The counts exceed what was sent, or more packets were marked or out of order than arrived.
    #[error("feedback for more packets or bytes than were sent")]
    ExcessiveCounts,
    /// The hold time exceeds the time since the boundary was sent.
    #[error("the hold time exceeds the time since the packet was sent")]
    ExcessiveHoldTime,
}

/// Sessions of a bundle: the current one, and the previous one for a while.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    numbering: PacketNumbering,
    current: SessionLedger,
    /// Previous session, and the time until which its feedback counts.
    previous: Option<(SessionLedger, Time)>,
    epoch_size: EpochSize,
    /// Time and epoch size of the last notice; `None` before the first of this session.
    last_notice: Option<(Time, EpochSize)>,
    /// Bytes sent since the last tick, and smoothed bytes per tick times [`PACE_INVERSE_GAIN`].
    sent_bytes: u64,
    smoothed_bytes: u64,
}

#[derive(Clone, Debug)]
struct SessionLedger {
    session: u32,
    sent: SentBoundaries,
    /// Counts of the newest feedback. `None` after a silence, because the receivebox may have
    /// restarted with other counts.
    last_counts: Option<NumberingCounts>,
}

/// Counts of a session as reported by a receivebox, or the difference of two reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NumberingCounts {
    pub packets: u64,
    pub bytes: u64,
    pub out_of_order: u64,
    pub missing: u64,
    pub marked: u64,
}

/// Result of processing feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedbackOutcome {
    /// Newer feedback was processed before.
    Stale,
    /// Difference to the previous feedback.
    Newer {
        counts: NumberingCounts,
        /// The boundary, if it belongs to the current session and is still stored.
        boundary: Option<Boundary>,
    },
}

impl Ledger {
    /// Creates an empty ledger with an epoch size of 1.
    pub fn new(marks: PacketNumbering) -> Ledger {
        Ledger {
            numbering: marks,
            current: SessionLedger::new(0, marks),
            previous: None,
            epoch_size: EpochSize::SINGLE_PACKET,
            last_notice: None,
            sent_bytes: 0,
            smoothed_bytes: 0,
        }
    }

    /// Records a packet sent with this number.
    #[inline]
    pub fn on_sent(&mut self, now: Time, number: u64, bytes: u32) {
        let boundary = self.epoch_size.is_boundary(number);
        self.current.sent.on_sent(now, number, bytes, boundary);
        self.sent_bytes += u64::from(bytes);
    }

    /// Starts a new session. Feedback for the previous one counts until `until`.
    pub fn start_session(&mut self, session: u32, until: Time) {
        let before = std::mem::replace(
            &mut self.current,
            SessionLedger::new(session, self.numbering),
        );
        self.previous = Some((before, until));
        self.last_notice = None;
    }

    /// Processes feedback.
    pub fn on_feedback(
        &mut self,
        now: Time,
        feedback: &Feedback,
    ) -> Result<FeedbackOutcome, ImplausibleFeedback> {
        if self
            .previous
            .as_ref()
            .is_some_and(|(_, until)| now >= *until)
        {
            self.previous = None;
        }
        let current = feedback.session == self.current.session;
        let numbering = match &mut self.previous {
            _ if current => &mut self.current,
            Some((before, _)) if before.session == feedback.session => before,
            _ => return Err(ImplausibleFeedback::UnknownSession(feedback.session)),
        };
        let boundary = numbering.validate(now, feedback, self.numbering)?;
        Ok(match numbering.count(feedback) {
            None => FeedbackOutcome::Stale,
            // An epoch must not span two sessions.
            Some(counts) => FeedbackOutcome::Newer {
                counts,
                boundary: boundary.filter(|_| current),
            },
        })
    }

    /// Forgets the last feedback after a silence: the receivebox may have been replaced.
    pub fn clear_last_counts(&mut self) {
        self.current.last_counts = None;
    }

    /// Updates the epoch size from the sending rate and the minimum RTT. `missed` ticks were
    /// skipped before this one.
    pub fn tick(&mut self, missed: u64, tick: Duration, min_rtt: Duration) {
        self.smoothed_bytes += self.sent_bytes / (missed + 1);
        self.smoothed_bytes -= self.smoothed_bytes / PACE_INVERSE_GAIN;
        self.sent_bytes = 0;
        let ticks = Duration::from_secs(1).as_nanos() / tick.as_nanos();
        self.epoch_size = EpochSize::for_path(
            Rate::from_bytes_per_sec(self.smoothed_bytes / PACE_INVERSE_GAIN * ticks),
            min_rtt,
        );
    }

    /// Returns the epoch size.
    pub fn epoch_size(&self) -> EpochSize {
        self.epoch_size
    }

    /// Returns a notice to be sent as a packet of the bundle, if one is due.
    pub fn poll_notice(&mut self, now: Time) -> Option<Notice> {
        if self.next_notice_time() > now {
            return None;
        }
        self.last_notice = Some((now, self.epoch_size));
        Some(Notice {
            session: self.current.session,
            epoch_size: self.epoch_size,
        })
    }

    /// Returns the time of the next notice.
    pub fn next_notice_time(&self) -> Time {
        match self.last_notice {
            None => Time::ZERO,
            Some((at, every)) if every != self.epoch_size => at + NOTICE_INTERVAL_MIN,
            Some((at, _)) => at + NOTICE_INTERVAL_MAX,
        }
    }

    /// Returns packets and bytes in flight, that is neither received nor missing. A missing packet
    /// counts `mss` bytes.
    pub fn in_flight(&self, mss: u64) -> (u64, u64) {
        let (sent, heard) = (
            &self.current.sent,
            self.current.last_counts.unwrap_or_default(),
        );
        let missing = heard.missing;
        (
            sent.packets
                .saturating_sub(heard.packets)
                .saturating_sub(missing),
            sent.bytes
                .saturating_sub(heard.bytes)
                .saturating_sub(missing.saturating_mul(mss)),
        )
    }
}

impl SessionLedger {
    fn new(session: u32, marks: PacketNumbering) -> SessionLedger {
        SessionLedger {
            session,
            sent: SentBoundaries::new(marks),
            last_counts: Some(NumberingCounts::default()),
        }
    }

    /// Checks feedback for plausibility. Returns its boundary, if that is still stored.
    fn validate(
        &self,
        now: Time,
        feedback: &Feedback,
        marks: PacketNumbering,
    ) -> Result<Option<Boundary>, ImplausibleFeedback> {
        let sent = &self.sent;
        if marks == PacketNumbering::Counter && feedback.boundary >= sent.next {
            return Err(ImplausibleFeedback::NeverSent(feedback.boundary));
        }
        let accounted = feedback.packets.saturating_add(feedback.missing);
        let of_these = feedback.out_of_order.max(feedback.marked);
        if accounted > sent.packets
            || of_these > feedback.packets
            || feedback.bytes > sent.bytes
            || feedback.boundary_bytes > feedback.bytes
        {
            return Err(ImplausibleFeedback::ExcessiveCounts);
        }
        let boundary = sent.find(feedback.boundary);
        if boundary.is_some_and(|boundary| boundary.sent_at + feedback.hold > now) {
            return Err(ImplausibleFeedback::ExcessiveHoldTime);
        }
        Ok(boundary)
    }

    /// Returns the increase of the counts, or `None` if newer feedback was processed before.
    fn count(&mut self, feedback: &Feedback) -> Option<NumberingCounts> {
        let told = NumberingCounts {
            packets: feedback.packets,
            bytes: feedback.bytes,
            out_of_order: feedback.out_of_order,
            missing: feedback.missing,
            marked: feedback.marked,
        };
        let last = self.last_counts.unwrap_or(told);
        if told.packets < last.packets {
            return None;
        }
        self.last_counts = Some(told);
        Some(NumberingCounts {
            packets: told.packets - last.packets,
            bytes: told.bytes.saturating_sub(last.bytes),
            out_of_order: told.out_of_order.saturating_sub(last.out_of_order),
            missing: told.missing.saturating_sub(last.missing),
            marked: told.marked.saturating_sub(last.marked),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTT: Duration = Duration::from_millis(50);
    const TICK: Duration = Duration::from_millis(10);

    /// Sends packets of `bytes` bytes and ends a tick after `missed` missed ones. Returns the epoch
    /// size.
    fn tick(ledger: &mut Ledger, bytes: u32, missed: u64) -> u32 {
        ledger.on_sent(Time::ZERO, 0, bytes);
        ledger.tick(missed, TICK, MIN_RTT);
        ledger.epoch_size().get()
    }

    /// Returns the epoch size after a thousand ticks.
    fn converged(bytes: u32, missed: u64) -> u32 {
        let mut ledger = Ledger::new(PacketNumbering::Counter);
        (0..1_000)
            .map(|_| tick(&mut ledger, bytes, missed))
            .last()
            .unwrap_or_default()
    }

    /// The average converges to 7/8 of the rate. 87,771 bytes in 10 ms make 256 packets in 50 ms.
    #[test]
    fn the_epoch_size_follows_the_rate_however_late_the_ticks() {
        for missed in [0, 1, 9] {
            let ticks = missed as u32 + 1;
            assert_eq!(converged(87_700 * ticks, missed), 32, "{missed} missed");
            assert_eq!(converged(87_900 * ticks, missed), 64, "{missed} missed");
        }
    }

    #[test]
    fn the_rate_is_averaged_over_eight_ticks() {
        let mut ledger = Ledger::new(PacketNumbering::Counter);
        // Twice the rate of 256 packets per RTT: 1 - (7/8)^6 is the first share above one half.
        let rise: Vec<u32> = (0..8).map(|_| tick(&mut ledger, 175_542, 0)).collect();
        assert_eq!(rise, [16, 16, 32, 32, 32, 64, 64, 64]);
        (0..1_000).for_each(|_| {
            tick(&mut ledger, 175_542, 0);
        });
        let fall: Vec<u32> = (0..8).map(|_| tick(&mut ledger, 0, 0)).collect();
        assert_eq!(fall, [64, 64, 64, 64, 64, 32, 32, 32]);
    }
}
