//! RC3, the second loop (R. Mittal et al., "Recursively Cautious Congestion Control", NSDI 2014).
//!
//! Class 0 sends from the front, with its window. RC3 sends what is buffered from its end
//! backwards, in classes below class 0, without window, timer or retransmission, until both meet.
//! Queues serve a lower class only when nothing of a higher one waits, so RC3 uses only spare
//! capacity.
//!
//! To class 0 a segment that RC3 sent is new until it is known to have arrived. Then class 0 skips
//! it. RC3's segments are not in flight, give no RTT sample and are never marked lost. An
//! acknowledgement in a class above 0 says only what of them has arrived.
//!
//! Where both meet, some segments are sent in both. When RC3's copy arrives first, class 0's own is
//! still on its way. It counts as in flight until it is answered: an "echo" here. Otherwise one
//! acknowledgement would empty a full window, and another windowful would leave at once.
//!
//! A segment's level follows from its distance to the end of what is buffered. Where an application
//! writes little by little, every segment is near the end, and a long flow would send everything in
//! class 1. So the distance is at least the number of RC3's segments in flight: a flow never has
//! more than [`Rc3::first`] of them in class 1.

mod answered;
mod verify;

pub use verify::Rc3Stop;

use std::collections::VecDeque;

use ccplane_qdisc::Ecn;
use ccplane_units::Time;

use self::verify::Watch;
use crate::config::Rc3;
use crate::connection::{Connection, State};
use crate::number::Number;
use crate::ranges::RangeSet;
use crate::segment::{Range, Segment, Side};
use crate::send::flight::Sent;
use crate::send::recovery::Undo;

/// Levels that are counted one by one.
const LEVELS: usize = Rc3::MOST_LEVELS as usize;

/// What RC3 did for one connection, as the sender knows it. Index 0 is level 1, which is class 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rc3Stats {
    /// Segments that it sent, by level.
    pub sent: [u64; LEVELS],
    /// Bytes of payload in them.
    pub sent_bytes: [u64; LEVELS],
    /// Segments of `sent` that are known to have arrived. The rest is in flight, was dropped, or
    /// arrived so close to class 0's copy that nothing said which of the two it was.
    pub arrived: [u64; LEVELS],
    /// Segments of RC3 in flight: not known to have arrived, and not sent by class 0 as well.
    pub flying: u32,
    /// Bytes that arrived by RC3 before class 0 had sent them.
    pub delivered_bytes: u64,
    /// Segments that arrived by class 0 and by RC3.
    pub duplicates: u64,
    /// How often class 0 reached segments that were acknowledged already, and skipped them.
    pub bumps: u32,
    /// Why it stopped, if it did.
    pub stopped: Option<Rc3Stop>,
}

impl Rc3Stats {
    /// Segments of each level that are not known to have arrived, those in flight included.
    pub fn missing(&self) -> [u64; LEVELS] {
        let mut missing = self.sent;
        for (missing, arrived) in missing.iter_mut().zip(self.arrived) {
            *missing = missing.saturating_sub(arrived);
        }
        missing
    }
}

/// RC3's state, from the first segment that it sends.
#[derive(Clone, Debug)]
pub(crate) struct Rc3Loop {
    /// It continues with the last segment before this that it did not send and that has not
    /// arrived.
    at: Number,
    /// What it sent.
    sent: RangeSet,
    /// The last segment that it cut short of a full payload.
    short: Option<Number>,
    /// Echoes: segments that class 0 has in flight although RC3's copy has arrived, in the order of
    /// sending.
    echoes: VecDeque<(Number, Sent)>,
    watch: Watch,
    pub stats: Rc3Stats,
}

impl Rc3Loop {
    fn new(next: Number) -> Rc3Loop {
        Rc3Loop {
            at: next,
            sent: RangeSet::default(),
            short: None,
            echoes: VecDeque::new(),
            watch: Watch::new(next),
            stats: Rc3Stats::default(),
        }
    }

    /// Everything before `una` is acknowledged. Forgets what was sent long before.
    fn forget_before(&mut self, una: Number) {
        self.sent.forget_before(una.minus(REMEMBERED));
        if self.sent.is_empty() {
            self.sent = RangeSet::default();
        }
    }

    pub fn heap_bytes(&self) -> usize {
        size_of::<Rc3Loop>()
            + self.sent.heap_bytes()
            + self.echoes.capacity() * size_of::<(Number, Sent)>()
    }
}

impl Connection {
    /// Classes that have something to send, a bit each, as [`has`](Connection::has) says of one.
    /// RC3 uses one class at a time.
    #[inline]
    pub fn classes(&self, now: Time) -> u8 {
        let rc3 = match self.config.rc3 {
            Some(rc3) => self.rc3_class(now, &rc3).map_or(0, |class| 1 << class),
            None => 0,
        };
        self.receiver.owed_low() | rc3 | u8::from(self.has(now, 0))
    }

    #[cold]
    pub(crate) fn has_below(&self, now: Time, class: u8) -> bool {
        self.receiver.owes(class)
            || self
                .config
                .rc3
                .is_some_and(|rc3| self.rc3_class(now, &rc3) == Some(class))
    }

    /// RC3 has something to send. Pacing is not checked.
    pub(crate) fn rc3_waits(&self) -> bool {
        self.config
            .rc3
            .is_some_and(|rc3| self.next_place(&rc3).is_some())
    }

    /// The class of RC3's next segment, if that may leave now.
    fn rc3_class(&self, now: Time, rc3: &Rc3) -> Option<u8> {
        // Only the owner's limit paces RC3: it is there to use what class 0 leaves.
        if self.pacer.next_low() > now {
            return None;
        }
        self.next_place(rc3).map(|place| rc3.class_at(place))
    }

    /// Distance of RC3's next segment from the end of what is buffered, also where it is not cut
    /// yet. The last segment's is 1.
    fn next_place(&self, rc3: &Rc3) -> Option<u64> {
        let stopped = self
            .rc3
            .as_ref()
            .is_some_and(|rc3| rc3.stats.stopped.is_some());
        if stopped || !matches!(self.state, State::Open | State::Proving) {
            return None;
        }
        let flying = self
            .rc3
            .as_ref()
            .map_or(0, |rc3| u64::from(rc3.stats.flying));
        let start = match self.cuttable(rc3) {
            0 => self.flight.offset_of(self.flight.get(self.next_rc3()?)),
            segments => {
                let beyond_window = self.flight.cut().since(self.flight.next()) as u64 + segments
                    > u64::from(self.window_room());
                if !beyond_window {
                    return None;
                }
                self.flight.cut_offset() + (segments - 1) * u64::from(self.mss)
            }
        };
        let from_end = (self.written - start).div_ceil(u64::from(self.mss));
        Some(from_end.max(flying + 1))
    }

    /// Segments that class 0 will send without waiting for an acknowledgement. RC3 leaves them
    /// alone.
    fn window_room(&self) -> u32 {
        self.window.saturating_sub(self.in_flight())
    }

    /// RC3's next segment among those that are cut.
    fn next_rc3(&self) -> Option<Number> {
        let rc3 = self.rc3.as_deref()?;
        let sacked = self.repair.as_ref().map(|repair| &repair.sacked);
        let mut at = rc3.at;
        loop {
            let number = at.previous();
            if at.since(self.flight.next()) > self.flight.cut().since(self.flight.next())
                || number.since(self.flight.next()) < self.window_room()
                || at == self.flight.next()
            {
                return None;
            }
            let passed = rc3.sent.find(number).or_else(|| sacked?.find(number));
            match passed {
                Some(range) => at = range.start.later(self.flight.next()),
                None => return Some(number),
            }
        }
    }

    /// How many segments can be cut now from what was not cut yet: as many as the peer takes, up to
    /// [`Rc3::ahead`]. A short last one waits while another short one is in flight (Minshall's form
    /// of the Nagle algorithm), unless it ends the stream. So a stream written in small pieces is
    /// not sent in small segments.
    fn cuttable(&self, rc3: &Rc3) -> u64 {
        let unsent = self.written - self.flight.cut_offset();
        let mss = u64::from(self.mss);
        let room = self.limit.saturating_sub(self.flight.cut_offset());
        let ahead = u64::from(
            rc3.ahead
                .min(MOST_CUT)
                .saturating_sub(self.flight.cut().since(self.flight.una())),
        );
        let full = unsent.min(room) / mss;
        let short = unsent <= room
            && !unsent.is_multiple_of(mss)
            && (self.flags.finishing || !self.short_flies());
        (full + u64::from(short)).min(ahead)
    }

    /// RC3 has a short segment in flight.
    fn short_flies(&self) -> bool {
        let short = self.rc3.as_ref().and_then(|rc3| rc3.short);
        short.is_some_and(|short| {
            short.within(self.flight.next(), self.flight.cut())
                && !self.flight.get(short).is(Sent::SACKED)
        })
    }

    /// Sends RC3's next segment, if it is of this class.
    #[cold]
    #[inline(never)]
    pub(crate) fn send_rc3(
        &mut self,
        now: Time,
        segment: &mut Segment,
        side: &mut Side,
    ) -> Option<()> {
        let rc3 = self.config.rc3?;
        if self.rc3_class(now, &rc3) != Some(segment.class) {
            return None;
        }
        let segments = self.cuttable(&rc3);
        for _ in 0..segments {
            self.cut_segment();
        }
        let (cut, mss, next) = (self.flight.cut(), self.mss, self.flight.next());
        if segments > 0 {
            let last = cut.previous();
            let short = self.flight.get(last).length < mss;
            let una = self.flight.una();
            let rc3 = self.rc3.get_or_insert_with(|| Box::new(Rc3Loop::new(next)));
            rc3.at = cut;
            rc3.forget_before(una);
            if short {
                rc3.short = Some(last);
            }
            self.invalidate();
        }
        let number = self.next_rc3()?;
        let rc3 = self.rc3.as_deref_mut()?;
        let range = Range {
            start: number,
            end: number.plus(1),
        };
        rc3.sent.insert(range, 0, |_| ());
        rc3.at = number;
        if rc3.sent.is_full() {
            rc3.stats.stopped = Some(Rc3Stop::Scattered);
        }
        let level = usize::from(segment.class - 1) & (LEVELS - 1);
        debug_assert!(
            !number.before(next) && !self.flight.get(number).is(Sent::SACKED | Sent::RC3)
        );
        let sent = self.flight.on_sent_below(number, level as u8);
        rc3.watch.sends(now, rc3.stats.flying == 0);
        rc3.stats.flying += 1;
        rc3.stats.sent[level] += 1;
        rc3.stats.sent_bytes[level] += u64::from(sent.length);
        self.describe(now, number, &sent, segment, side);
        segment.transmission = 1;
        segment.ecn = Ecn::NotEct;
        segment.band = segment.class;
        let bytes = u64::from(segment.length) + u64::from(self.config.header_bytes);
        let quantum = self.config.pacing_quantum;
        self.pacer.on_send_low(bytes, now, quantum, &self.rtt);
        Some(())
    }

    /// Class 0 sends a segment that RC3 has sent, as it is not known to have arrived.
    #[cold]
    pub(crate) fn overtake_rc3(&mut self) {
        if let Some(rc3) = self.rc3.as_deref_mut() {
            rc3.stats.flying = rc3.stats.flying.saturating_sub(1);
        }
    }

    /// Everything has arrived: of RC3's state only the figures stay. A late copy of what RC3 sent
    /// would now look like a needless retransmission, so earlier reductions are not undone any
    /// more.
    pub(crate) fn release_rc3(&mut self) {
        let Some(rc3) = self
            .rc3
            .as_deref_mut()
            .filter(|_| self.flight.echoes() == 0)
        else {
            return;
        };
        (rc3.sent, rc3.echoes) = (RangeSet::default(), VecDeque::new());
        if let Some(repair) = self.repair.as_deref_mut() {
            repair.undo = Undo::default();
        }
    }
}

/// Most segments that are cut ahead, whatever [`Rc3::ahead`] says: 2^20 take 32 MB.
const MOST_CUT: u32 = 1 << 20;

/// RC3 remembers for so many segments before `una` whether it sent them. A late copy of one of
/// those is a duplicate of RC3, not the sign of a needless retransmission. Fewer, and a copy that
/// was delayed for long undoes a reduction that was due. More, and a stream written in bursts takes
/// more memory, 24 bytes for each; from 2^15 on its ranges may reach their limit.
const REMEMBERED: u32 = 1 << 14;
