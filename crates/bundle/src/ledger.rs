//! What left under which numbers, and what the receivebox says of it: whether that can be true, and
//! what of it is new.

use ccplane_units::{Duration, Rate, Time};

use crate::feedback::{Feedback, Notice};
use crate::mark::{Every, Marks};
use crate::sent::{Boundary, Sent};

/// N is told at least so often: it is the only packet of an idle bundle.
const NOTICE: Duration = Duration::from_secs(1);
/// And no more often than this, though N may change with every tick.
const NOTICE_SOONEST: Duration = Duration::from_millis(100);
/// Weight of the last tick in the rate by which N is chosen: some 80 ms.
const PACE_GAIN: u64 = 8;

/// Feedback that cannot be true. It changes nothing and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlikely {
    /// Of a numbering that this sendbox does not have.
    #[error("feedback of session {0}, which this side does not have")]
    Session(u32),
    /// Of a packet that did not leave.
    #[error("feedback of packet {0}, which did not leave")]
    NeverSent(u64),
    /// More arrived than left, or more of it was marked or out of order than arrived.
    #[error("feedback of more packets or bytes than there were")]
    TooMuch,
    /// Held longer than it was out.
    #[error("feedback that was held for longer than its packet was out")]
    TooSoon,
}

/// Numberings of a bundle: the present one, and for a while the one before.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    marks: Marks,
    current: Numbering,
    /// The numbering before, until then.
    before: Option<(Numbering, Time)>,
    every: Every,
    /// When N was told last, and which; nothing of this numbering yet.
    told: Option<(Time, Every)>,
    /// Bytes that left since the last tick, and per tick, smoothed, times [`PACE_GAIN`].
    left: u64,
    pace: u64,
}

#[derive(Clone, Debug)]
struct Numbering {
    session: u32,
    sent: Sent,
    /// What the newest feedback said; `None` after a silence: the receivebox may be another by
    /// then, whose counts begin anywhere.
    heard: Option<Counts>,
}

/// Counts of a numbering as a receivebox has them, or how far they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub packets: u64,
    pub bytes: u64,
    pub out_of_order: u64,
    pub missing: u64,
    pub marked: u64,
}

/// What feedback brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Newer feedback came before it.
    Late,
    /// So much more arrived since the last.
    News {
        counts: Counts,
        /// The boundary that it is of, if that is of the present numbering and still known.
        boundary: Option<Boundary>,
    },
}

impl Ledger {
    /// Nothing left yet; every packet is a boundary.
    pub fn new(marks: Marks) -> Ledger {
        Ledger {
            marks,
            current: Numbering::new(0, marks),
            before: None,
            every: Every::ONE,
            told: None,
            left: 0,
            pace: 0,
        }
    }

    /// A packet left under this number.
    #[inline]
    pub fn left(&mut self, now: Time, number: u64, bytes: u32) {
        let boundary = self.every.is_boundary(number);
        self.current.sent.left(now, number, bytes, boundary);
        self.left += u64::from(bytes);
    }

    /// Packets are numbered anew; what is heard of the numbering before counts until then.
    pub fn renumber(&mut self, session: u32, until: Time) {
        let before = std::mem::replace(&mut self.current, Numbering::new(session, self.marks));
        self.before = Some((before, until));
        self.told = None;
    }

    /// What the receivebox says.
    pub fn take(&mut self, now: Time, feedback: &Feedback) -> Result<Heard, Unlikely> {
        if self.before.as_ref().is_some_and(|(_, until)| now >= *until) {
            self.before = None;
        }
        let current = feedback.session == self.current.session;
        let numbering = match &mut self.before {
            _ if current => &mut self.current,
            Some((before, _)) if before.session == feedback.session => before,
            _ => return Err(Unlikely::Session(feedback.session)),
        };
        let boundary = numbering.check(now, feedback, self.marks)?;
        Ok(match numbering.count(feedback) {
            None => Heard::Late,
            // The boundaries of two numberings make no epoch together.
            Some(counts) => Heard::News {
                counts,
                boundary: boundary.filter(|_| current),
            },
        })
    }

    /// After a silence nothing is known of who answers.
    pub fn forget(&mut self) {
        self.current.heard = None;
    }

    /// A tick, after `missed` that did not come: N follows what leaves and the shortest RTT.
    pub fn tick(&mut self, missed: u64, tick: Duration, min_rtt: Duration) {
        self.pace += self.left / (missed + 1);
        self.pace -= self.pace / PACE_GAIN;
        self.left = 0;
        let ticks = Duration::from_secs(1).as_nanos() / tick.as_nanos();
        self.every = Every::of(
            Rate::from_bytes_per_sec(self.pace / PACE_GAIN * ticks),
            min_rtt,
        );
    }

    /// N.
    pub fn every(&self) -> Every {
        self.every
    }

    /// N is to be told the other side, in a packet of the bundle.
    pub fn notice(&mut self, now: Time) -> Option<Notice> {
        if self.notice_due() > now {
            return None;
        }
        self.told = Some((now, self.every));
        Some(Notice {
            session: self.current.session,
            every: self.every,
        })
    }

    /// When it is.
    pub fn notice_due(&self) -> Time {
        match self.told {
            None => Time::ZERO,
            Some((at, every)) if every != self.every => at + NOTICE_SOONEST,
            Some((at, _)) => at + NOTICE,
        }
    }

    /// Packets and bytes that are not known to have arrived or to be missing; a missing packet
    /// counts for `mss`.
    pub fn in_flight(&self, mss: u64) -> (u64, u64) {
        let (sent, heard) = (&self.current.sent, self.current.heard.unwrap_or_default());
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

impl Numbering {
    fn new(session: u32, marks: Marks) -> Numbering {
        Numbering {
            session,
            sent: Sent::new(marks),
            heard: Some(Counts::default()),
        }
    }

    /// Whether feedback can be true; the boundary that it is of, if that is still known.
    fn check(
        &self,
        now: Time,
        feedback: &Feedback,
        marks: Marks,
    ) -> Result<Option<Boundary>, Unlikely> {
        let sent = &self.sent;
        if marks == Marks::Counter && feedback.boundary >= sent.next {
            return Err(Unlikely::NeverSent(feedback.boundary));
        }
        let accounted = feedback.packets.saturating_add(feedback.missing);
        let of_these = feedback.out_of_order.max(feedback.marked);
        if accounted > sent.packets
            || of_these > feedback.packets
            || feedback.bytes > sent.bytes
            || feedback.bytes_then > feedback.bytes
        {
            return Err(Unlikely::TooMuch);
        }
        let boundary = sent.find(feedback.boundary);
        if boundary.is_some_and(|boundary| boundary.at + feedback.hold > now) {
            return Err(Unlikely::TooSoon);
        }
        Ok(boundary)
    }

    /// How far the counts went; `None` where newer feedback came before.
    fn count(&mut self, feedback: &Feedback) -> Option<Counts> {
        let told = Counts {
            packets: feedback.packets,
            bytes: feedback.bytes,
            out_of_order: feedback.out_of_order,
            missing: feedback.missing,
            marked: feedback.marked,
        };
        let last = self.heard.unwrap_or(told);
        if told.packets < last.packets {
            return None;
        }
        self.heard = Some(told);
        Some(Counts {
            packets: told.packets - last.packets,
            bytes: told.bytes.saturating_sub(last.bytes),
            out_of_order: told.out_of_order.saturating_sub(last.out_of_order),
            missing: told.missing.saturating_sub(last.missing),
            marked: told.marked.saturating_sub(last.marked),
        })
    }
}
