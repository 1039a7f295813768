//! The receiving half: what arrived, which acknowledgements are due, and what they say.

#[cfg(test)]
mod tests;

use ccplane_qdisc::{Ecn, MAX_CLASSES};
use ccplane_units::Time;

use crate::config::Config;
use crate::number::Number;
use crate::proof::Proof;
use crate::ranges::RangeSet;
use crate::segment::{Kind, MAX_RANGES, Range, Segment, Side};

/// The lowest class that an answer can name. Those below count as this one.
const MOST_ECHO: u8 = MAX_CLASSES - 2;

/// How far ahead of the next number a number may be: a quarter of the number space, so that older
/// and newer stay apart.
const FURTHEST: u32 = 1 << 30;

/// The receiving half of a connection.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// Everything before it has arrived.
    pub next: Number,
    echo: Number,
    /// Bytes that arrived in order.
    pub offset: u64,
    /// Bytes that the application took.
    read: u64,
    /// The right edge of the window, as the sender was last told.
    edge: u64,
    /// When a delayed acknowledgement is due.
    pub ack_at: Time,
    /// Data that arrived with CE, wrapping.
    ce_packets: u32,
    ce_bytes: u32,
    /// The number after the stream's last, when `end_known`.
    end: Number,
    /// Segments that arrived since the last acknowledgement.
    pending: u8,
    /// So many more segments are acknowledged at once.
    quick: u8,
    /// Classes in which an acknowledgement is due, a bit each.
    owed: u8,
    echo_transmission: u8,
    /// Sum of the nonces of everything before `next`, and mark of the segment to be answered.
    sum: u16,
    mark: u16,
    end_known: bool,
    /// The last data arrived with CE.
    congested: bool,
    /// There is something to say beyond the cumulative ACK: ranges or a duplicate.
    has_beyond: bool,
    beyond: Option<Box<Beyond>>,
    stamps: Option<Box<Arrival>>,
    low: Option<Box<LowArrivals>>,
}

/// Unusual arrivals at the receiving half of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rc3Arrivals {
    /// Segments by the class in which their sender sent them; class 0 is not counted.
    pub arrived: [u64; MAX_CLASSES as usize],
    /// Of those, how many arrived in another class.
    pub remarked: u64,
    /// Of those, how many had arrived before.
    pub duplicates: u64,
    /// Dropped segments: beyond the granted window, where no honest sender puts them, or of a class
    /// that does not exist.
    pub refused: u64,
    /// Bytes held now because others before them are missing.
    pub held_bytes: u64,
}

/// What came in classes above 0.
#[derive(Clone, Copy, Debug, Default)]
struct LowArrivals {
    stats: Rc3Arrivals,
    /// Per class, of the segments to be answered: the latest, and the highest-priority class in
    /// which one arrived.
    echo: [Number; MAX_CLASSES as usize],
    band: [u8; MAX_CLASSES as usize],
    mark: [u16; MAX_CLASSES as usize],
}

/// What arrived out of order.
#[derive(Clone, Debug, Default)]
struct Beyond {
    set: RangeSet,
    /// A number in each of the last reported ranges, the latest first.
    recent: [Number; MAX_RANGES],
    /// The latest duplicate of class 0, and of a class below. The latter is no news for class 0.
    duplicate: Option<Range>,
    duplicate_low: Option<Range>,
    /// Bytes in the set.
    held: u64,
}

/// t1 and t2 of the segment to be answered.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    t1: Time,
    t2: Time,
    fresh: bool,
}

impl Receiver {
    pub fn new(config: &Config) -> Receiver {
        let first = Number(config.first_number);
        Receiver {
            next: first,
            echo: first,
            offset: 0,
            read: 0,
            edge: u64::from(config.receive_buffer),
            ack_at: Time::MAX,
            ce_packets: 0,
            ce_bytes: 0,
            end: first,
            pending: 0,
            quick: config.quick_acks,
            owed: 0,
            echo_transmission: 0,
            sum: 0,
            mark: 0,
            end_known: false,
            congested: false,
            has_beyond: false,
            beyond: None,
            stamps: None,
            low: None,
        }
    }

    /// The whole stream has arrived.
    #[inline(always)]
    pub fn ended(&self) -> bool {
        self.end_known && self.next == self.end
    }

    /// Bytes that the application has not taken.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.offset - self.read
    }

    /// The application takes up to so many bytes. A window that opens is announced at once where
    /// the sender may soon need it: at most half of the buffer is left, and the new window is at
    /// least twice that (Linux' `tcp_cleanup_rbuf`). Else the next acknowledgement announces it.
    pub fn read(&mut self, bytes: u64, config: &Config) -> u64 {
        let bytes = bytes.min(self.readable());
        self.read += bytes;
        let known = self.edge.saturating_sub(self.offset);
        let short = known <= u64::from(config.receive_buffer) / 2;
        if bytes > 0
            && short
            && !self.ended()
            && self
                .opens(config)
                .is_some_and(|edge| edge - self.offset >= 2 * known)
        {
            self.owed |= 1;
        }
        bytes
    }

    /// How far the sender may go.
    #[inline(always)]
    fn limit(&self, config: &Config) -> u64 {
        let taken = if config.discard {
            self.offset
        } else {
            self.read
        };
        taken + u64::from(config.receive_buffer)
    }

    /// The new right edge of the window, if it may move: by at least two segments or half the
    /// buffer, so that the sender does not send small segments (RFC 9293, 3.8.6.2.2).
    #[inline(always)]
    fn opens(&self, config: &Config) -> Option<u64> {
        let limit = self.limit(config);
        let step = (u64::from(config.mss) * 2)
            .min(u64::from(config.receive_buffer) / 2)
            .max(1);
        (limit >= self.edge + step).then_some(limit)
    }

    /// Data has arrived; `arrived` is its stamp.
    #[inline(always)]
    pub fn on_data(
        &mut self,
        (now, arrived): (Time, Time),
        segment: &Segment,
        side: &Side,
        proof: &Proof,
        config: &Config,
    ) {
        if segment.ecn == Ecn::Ce && segment.class == 0 {
            self.ce_packets = self.ce_packets.wrapping_add(1);
            self.ce_bytes = self.ce_bytes.wrapping_add(u32::from(segment.length));
        }
        if side_stamped(segment, side) && segment.class == 0 {
            self.keep_stamps(arrived, side);
        }
        let in_order = segment.number == self.next
            && segment.offset() == self.offset
            && self.offset + u64::from(segment.length) <= self.edge
            && !self.end_known
            && !self.has_beyond;
        if in_order && segment.class | (segment.flags & Segment::FIN) == 0 {
            self.next = self.next.plus(1);
            self.offset += u64::from(segment.length);
            self.sum = self.sum.wrapping_add(proof.nonce);
            self.mark = proof.mark;
            self.echo = segment.number;
            self.echo_transmission = segment.transmission;
            self.pending = self.pending.saturating_add(1);
            // RFC 8257, 3.2: a change of the CE mark is acknowledged at once, so that the sender's
            // count is exact.
            let changed = (segment.ecn == Ecn::Ce) != self.congested;
            self.congested ^= changed;
            if self.pending >= config.ack_every || self.quick > 0 || changed {
                self.quick = self.quick.saturating_sub(1);
                self.owed |= 1;
            } else if self.ack_at == Time::MAX {
                self.ack_at = now + config.ack_delay;
            }
        } else {
            self.on_other_data(segment, proof);
        }
    }

    /// Data out of order, duplicated, of another class, beyond the window, or the last:
    /// acknowledged at once.
    #[cold]
    #[inline(never)]
    fn on_other_data(&mut self, segment: &Segment, proof: &Proof) {
        let number = segment.number;
        let end = segment.offset() + u64::from(segment.length);
        if segment.class == 0 {
            self.owed |= 1;
            self.congested = segment.ecn == Ecn::Ce;
        } else {
            self.owe_low(segment, proof);
        }
        if number.before(self.next) {
            return self.on_duplicate(segment, proof);
        }
        // Beyond the announced window, beyond the end, or where no honest sender puts it.
        let ahead = number.since(self.next);
        let gap = segment.offset().wrapping_sub(self.offset);
        let misplaced = ahead > FURTHEST
            || (gap > 0) != (ahead > 0) && !(ahead > 0 && segment.has(Segment::FIN));
        let beyond_end = self.end_known && !number.before(self.end);
        if end > self.edge || segment.offset() < self.offset || beyond_end || misplaced {
            return self.refuse();
        }
        if segment.has(Segment::FIN) {
            let later = self.beyond.as_ref().and_then(|beyond| beyond.set.last());
            if later.is_some_and(|span| number.plus(1).before(span.range.end)) {
                return;
            }
            self.end_known = true;
            self.end = number.plus(1);
        }
        if segment.class == 0 {
            self.quick = self.quick.saturating_sub(1);
        }
        if number == self.next {
            self.next = number.plus(1);
            self.offset = end;
            self.sum = self.sum.wrapping_add(proof.nonce);
            self.join();
            self.answer(segment, proof);
        } else if self.insert(segment, end, proof) {
            self.answer(segment, proof);
        } else {
            self.on_duplicate(segment, proof);
        }
    }

    /// Counts a dropped segment that no honest sender makes.
    #[cold]
    pub fn refuse(&mut self) {
        self.low.get_or_insert_default().stats.refused += 1;
    }

    /// Data of a class above 0 is answered in that class.
    fn owe_low(&mut self, segment: &Segment, proof: &Proof) {
        let class = segment.class;
        let low = self.low.get_or_insert_default();
        let place = usize::from(class);
        let before = if self.owed >> class & 1 != 0 {
            low.band[place]
        } else {
            u8::MAX
        };
        low.band[place] = segment.band.min(MOST_ECHO).min(before);
        low.echo[place] = segment.number;
        low.mark[place] = proof.mark;
        low.stats.arrived[place] += 1;
        low.stats.remarked += u64::from(segment.band != segment.class);
        self.owed |= 1 << class;
    }

    /// What the peer's RC3 has sent here, and what was refused; `None` where neither happened.
    pub fn rc3_arrivals(&self) -> Option<Rc3Arrivals> {
        let held_bytes = self.beyond.as_ref().map_or(0, |beyond| beyond.held);
        self.low.as_ref().map(|low| Rc3Arrivals {
            held_bytes,
            ..low.stats
        })
    }

    /// Classes above 0 in which an acknowledgement is due, a bit each.
    #[inline(always)]
    pub fn owed_low(&self) -> u8 {
        self.owed & !1
    }

    /// Adds a segment to what waits. Returns true when it is new.
    fn insert(&mut self, segment: &Segment, end_offset: u64, proof: &Proof) -> bool {
        let number = segment.number;
        let beyond = self.beyond.get_or_insert_default();
        let mut fresh = false;
        let range = Range {
            start: number,
            end: number.plus(1),
        };
        if !beyond
            .set
            .insert_with(range, end_offset, proof.nonce, |_| fresh = true)
        {
            // No room for one more hole: it counts as lost.
            return true;
        }
        self.has_beyond = true;
        beyond.held += if fresh { u64::from(segment.length) } else { 0 };
        beyond.remember(number);
        fresh
    }

    /// A segment arrived a second time (RFC 2883).
    fn on_duplicate(&mut self, segment: &Segment, proof: &Proof) {
        if segment.class != 0
            && let Some(low) = self.low.as_deref_mut()
        {
            low.stats.duplicates += 1;
        }
        let number = segment.number;
        let beyond = self.beyond.get_or_insert_default();
        let place = match segment.class {
            0 => &mut beyond.duplicate,
            _ => &mut beyond.duplicate_low,
        };
        *place = Some(Range {
            start: number,
            end: number.plus(1),
        });
        self.has_beyond = true;
        self.answer(segment, proof);
    }

    /// Class 0 answers only class 0, so that its RTTs and losses are its own.
    fn answer(&mut self, segment: &Segment, proof: &Proof) {
        if segment.class == 0 {
            self.mark = proof.mark;
            self.echo = segment.number;
            self.echo_transmission = segment.transmission;
        }
    }

    /// The hole before the first range was filled.
    fn join(&mut self) {
        let Some(beyond) = self.beyond.as_mut() else {
            return;
        };
        while let Some(first) = beyond.set.first() {
            if self.next.before(first.range.start) {
                break;
            }
            if self.next.before(first.range.end) {
                self.next = first.range.end;
                self.sum = self.sum.wrapping_add(first.nonces);
                let offset = self.offset.max(first.end_offset);
                beyond.held = beyond.held.saturating_sub(offset - self.offset);
                self.offset = offset;
            }
            beyond.set.pop_first();
        }
        self.has_beyond = beyond.tells();
        if self.ended() {
            self.beyond = None;
            self.has_beyond = false;
        }
    }

    #[cold]
    fn keep_stamps(&mut self, arrived: Time, side: &Side) {
        **self.stamps.get_or_insert_default() = Arrival {
            t1: side.t1,
            t2: arrived,
            fresh: true,
        };
        // An acknowledgement answers only the last packet before it, so each packet gets its own,
        // whatever `ack_every` says.
        self.owed |= 1;
    }

    /// Whether an acknowledgement is due in the class.
    #[inline(always)]
    pub fn owes(&self, class: u8) -> bool {
        self.owed >> class & 1 != 0
    }

    /// An acknowledgement is due at once, in class 0.
    #[inline(always)]
    pub fn owe(&mut self) {
        self.owed |= 1;
    }

    /// A delayed acknowledgement becomes due, if its time has come.
    #[inline]
    pub fn on_timeout(&mut self, now: Time) {
        if self.ack_at <= now {
            self.ack_at = Time::MAX;
            self.owed |= u8::from(self.pending > 0);
        }
    }

    /// The segment that is being answered, and its transmission; 0 for none.
    pub fn echo(&self) -> (Number, u8) {
        (self.echo, self.echo_transmission)
    }

    /// Sum of the nonces of everything before the cumulative ACK and of `ranges`, which were
    /// reported now.
    #[inline]
    pub fn sum(&self, ranges: &[Range]) -> u16 {
        let set = self.beyond.as_ref().map(|beyond| &beyond.set);
        ranges.iter().fold(self.sum, |sum, range| {
            let span = set.and_then(|set| set.find_span(range.start));
            sum.wrapping_add(span.map_or(0, |span| span.nonces))
        })
    }

    /// Mark of the segment that is being answered in this class.
    pub fn echo_mark(&self, class: u8) -> u16 {
        match (class, self.low.as_deref()) {
            (0, _) => self.mark,
            (class, Some(low)) => low
                .mark
                .get(usize::from(class))
                .copied()
                .unwrap_or_default(),
            (_, None) => 0,
        }
    }

    /// Sets the segment that is being answered.
    pub fn set_echo(&mut self, number: Number, transmission: u8) {
        (self.echo, self.echo_transmission) = (number, transmission);
    }

    /// Writes the acknowledgement into a segment. Whatever leaves in class 0 settles what is due
    /// there.
    #[inline(always)]
    pub fn acknowledge(
        &mut self,
        now: Time,
        segment: &mut Segment,
        side: &mut Side,
        config: &Config,
    ) {
        if let Some(edge) = self.opens(config) {
            debug_assert!(edge > self.edge, "a granted window does not shrink");
            self.edge = edge;
        }
        debug_assert!(
            self.offset <= self.edge,
            "nothing is taken beyond what was granted"
        );
        segment.ack = self.next;
        segment.window = u32::try_from(self.edge - self.offset).unwrap_or(u32::MAX);
        segment.ce_packets = self.ce_packets;
        segment.ce_bytes = self.ce_bytes;
        segment.echo = self.echo;
        segment.echo_transmission = self.echo_transmission;
        let alone = segment.kind == Kind::Ack;
        if segment.class != 0 {
            self.answer_low(segment);
        } else if !alone && self.stamps.is_some() {
            // Data carries its own stamps: an acknowledgement with those of the answer follows.
        } else {
            self.owed &= !1;
            self.pending = 0;
            self.ack_at = Time::MAX;
        }
        if self.has_beyond || self.stamps.is_some() {
            self.fill(now, segment, side);
        }
    }

    /// A segment of a class above 0 answers its class.
    #[cold]
    fn answer_low(&mut self, segment: &mut Segment) {
        let class = segment.class;
        (segment.echo, segment.echo_transmission) = (Number(0), 0);
        if let Some(low) = self.low.as_deref().filter(|_| self.owes(class)) {
            segment.echo = low.echo[usize::from(class)];
            segment.echo_transmission = 1;
            segment.echo_band = low.band[usize::from(class)] + 1;
        }
        self.owed &= !(1 << class);
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, now: Time, segment: &mut Segment, side: &mut Side) {
        if let Some(beyond) = self.beyond.as_mut().filter(|_| self.has_beyond) {
            beyond.report(self.next, segment.class, side);
            self.has_beyond = beyond.tells();
            if !side.is_empty() {
                segment.flags |= Segment::SIDE;
            }
        }
        if let Some(arrival) = self
            .stamps
            .as_mut()
            .filter(|arrival| arrival.fresh && segment.kind == Kind::Ack && segment.class == 0)
        {
            arrival.fresh = false;
            (side.t1, side.t2, side.t3, side.stamped) = (arrival.t1, arrival.t2, now, true);
            segment.flags |= Segment::SIDE;
        }
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let beyond = self.beyond.as_ref();
        beyond.map_or(0, |beyond| size_of::<Beyond>() + beyond.set.heap_bytes())
            + self.stamps.as_ref().map_or(0, |_| size_of::<Arrival>())
            + self.low.as_ref().map_or(0, |_| size_of::<LowArrivals>())
    }

    /// Gives back what is not needed now.
    pub fn shrink(&mut self) {
        if !self.has_beyond {
            self.beyond = None;
        }
    }

    /// Checks the invariants: the application took no more than has arrived, nothing arrived beyond
    /// the granted window, and what waits lies beyond what arrived in order. For tests.
    pub fn check(&self) {
        assert!(
            self.read <= self.offset,
            "{} read of {}",
            self.read,
            self.offset
        );
        assert!(
            self.offset <= self.edge,
            "{} arrived, {} granted",
            self.offset,
            self.edge
        );
        if let Some(beyond) = &self.beyond {
            let first = beyond.set.first().map(|span| span.range.start);
            assert!(
                first.is_none_or(|first| self.next.before(first)),
                "{first:?} waits, {:?} is next",
                self.next
            );
            assert!(self.has_beyond || !beyond.tells(), "what waits is not told");
            let room = self.edge - self.offset;
            assert!(
                beyond.held <= room,
                "{} bytes wait, where {room} were granted",
                beyond.held
            );
        }
    }
}

impl Beyond {
    /// There is something to say.
    fn tells(&self) -> bool {
        !self.set.is_empty() || self.duplicate.is_some() || self.duplicate_low.is_some()
    }

    /// `number` is in the range of the latest arrival.
    fn remember(&mut self, number: Number) {
        let block = self.set.find(number);
        let mut kept = [number; MAX_RANGES];
        let others = self.recent.iter().filter(|old| match block {
            Some(block) => !old.within(block.start, block.end),
            None => true,
        });
        for (place, old) in kept.iter_mut().skip(1).zip(others) {
            *place = *old;
        }
        self.recent = kept;
    }

    /// RFC 2018, section 4: the range of the latest arrival comes first, then those reported last.
    /// Others fill the remaining room. A duplicate of class 0 is told only in class 0: elsewhere it
    /// would not count.
    fn report(&mut self, next: Number, class: u8, side: &mut Side) {
        let own = if class == 0 {
            self.duplicate.take()
        } else {
            None
        };
        if let Some(duplicate) = own.or_else(|| self.duplicate_low.take()) {
            side.set_duplicate(duplicate);
        }
        let mut told = [Range::default(); MAX_RANGES];
        let mut count = 0;
        let recent = self.recent.iter().filter(|number| !number.before(next));
        let recent = recent.filter_map(|number| self.set.find(*number));
        for range in recent.chain(self.set.iter().take(MAX_RANGES).map(|span| span.range)) {
            if count == MAX_RANGES {
                break;
            }
            if !told[..count].contains(&range) {
                told[count] = range;
                count += 1;
                if !side.push(range) {
                    break;
                }
            }
        }
    }
}

#[inline(always)]
fn side_stamped(segment: &Segment, side: &Side) -> bool {
    segment.has_side() && side.stamped
}
