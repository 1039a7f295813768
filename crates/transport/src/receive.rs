//! Receiving half: received data, and the acknowledgements that are due.

#[cfg(test)]
mod tests;

use ccplane_qdisc::{CLASS_COUNT, Ecn};
use ccplane_units::Time;

use crate::config::TransportConfig;
use crate::number::SequenceNumber;
use crate::proof::Proof;
use crate::ranges::RangeSet;
use crate::segment::{Range, SACK_RANGES_MAX, Segment, SegmentKind, SideData};

/// Highest class that `Segment::echo_band` can encode. Higher ones are reported as this one.
const ECHO_BAND_MAX: u8 = CLASS_COUNT - 2;

/// Maximum distance of a valid number ahead of the next one: a quarter of the number space, so that
/// old and new numbers are distinguishable.
const NUMBER_DISTANCE_MAX: u32 = 1 << 30;

/// Receiving half of a connection.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Receiver {
    /// First number not yet received in order (RCV.NXT).
    pub next: SequenceNumber,
    echo: SequenceNumber,
    /// Bytes received in order.
    pub offset: u64,
    /// Bytes read by the application.
    read: u64,
    /// Right edge of the last advertised window.
    window_end: u64,
    /// Time at which a delayed acknowledgement is due.
    pub ack_deadline: Time,
    /// Data received with CE, wrapping.
    ce_packets: u32,
    ce_bytes: u32,
    /// Number after the stream's last segment; valid if `end_known`.
    end: SequenceNumber,
    /// Segments received since the last acknowledgement.
    unacked_segments: u8,
    /// Remaining segments that are acknowledged immediately.
    quick_acks: u8,
    /// Bit set of the classes in which an acknowledgement is due.
    acks_due: u8,
    echo_transmission: u8,
    /// Sum of the nonces of everything before `next`, and mark of the segment that triggers the
    /// next ACK.
    nonce_sum: u16,
    mark: u16,
    end_known: bool,
    /// The last data segment carried CE.
    last_was_ce: bool,
    /// The next ACK carries ranges or a duplicate.
    has_sack_info: bool,
    out_of_order: Option<Box<OutOfOrderData>>,
    stamps: Option<Box<ArrivalStamps>>,
    low_classes: Option<Box<LowArrivals>>,
}

/// Statistics of segments that an RC3 sender sent, and of refused segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rc3Arrivals {
    /// Segments per class in which they were sent; class 0 is not counted.
    pub arrived: [u64; CLASS_COUNT as usize],
    /// Segments of `arrived` that arrived in another class.
    pub remarked: u64,
    /// Segments of `arrived` that had arrived before.
    pub duplicates: u64,
    /// Dropped segments that no honest sender sends: beyond the advertised window, or of an
    /// undefined class.
    pub refused: u64,
    /// Bytes currently held because earlier data is missing.
    pub held_bytes: u64,
}

/// State of classes above 0.
#[derive(Clone, Copy, Debug, Default)]
struct LowArrivals {
    stats: Rc3Arrivals,
    /// Per class, for the next acknowledgement: the latest segment, and the class of highest
    /// priority in which one arrived.
    echo: [SequenceNumber; CLASS_COUNT as usize],
    band: [u8; CLASS_COUNT as usize],
    mark: [u16; CLASS_COUNT as usize],
}

/// Data received out of order.
#[derive(Clone, Debug, Default)]
struct OutOfOrderData {
    ranges: RangeSet,
    /// One number in each of the last reported ranges, the latest first.
    recent: [SequenceNumber; SACK_RANGES_MAX],
    /// Latest duplicate in class 0, and in the lower classes. The latter does not count in class 0.
    duplicate: Option<Range>,
    duplicate_low: Option<Range>,
    /// Bytes in the set.
    held: u64,
}

/// t1 and t2 of the segment that triggers the next ACK.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalStamps {
    t1: Time,
    t2: Time,
    fresh: bool,
}

impl Receiver {
    pub fn new(config: &TransportConfig) -> Receiver {
        let first = SequenceNumber(config.first_number);
        Receiver {
            next: first,
            echo: first,
            offset: 0,
            read: 0,
            window_end: u64::from(config.receive_buffer),
            ack_deadline: Time::MAX,
            ce_packets: 0,
            ce_bytes: 0,
            end: first,
            unacked_segments: 0,
            quick_acks: config.quick_acks,
            acks_due: 0,
            echo_transmission: 0,
            nonce_sum: 0,
            mark: 0,
            end_known: false,
            last_was_ce: false,
            has_sack_info: false,
            out_of_order: None,
            stamps: None,
            low_classes: None,
        }
    }

    /// Returns true if the whole stream has arrived.
    #[inline(always)]
    pub fn is_complete(&self) -> bool {
        self.end_known && self.next == self.end
    }

    /// Bytes that the application has not read.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.offset - self.read
    }

    /// Reads up to `bytes` bytes. A larger window is advertised at once if the sender may soon need
    /// it: at most half of the buffer is left, and the window at least doubles (Linux's
    /// `tcp_cleanup_rbuf`). Otherwise the next acknowledgement advertises it.
    pub fn read(&mut self, bytes: u64, config: &TransportConfig) -> u64 {
        let bytes = bytes.min(self.readable());
        self.read += bytes;
        let known = self.window_end.saturating_sub(self.offset);
        let short = known <= u64::from(config.receive_buffer) / 2;
        if bytes > 0
            && short
            && !self.is_complete()
            && self
                .new_window_end(config)
                .is_some_and(|edge| edge - self.offset >= 2 * known)
        {
            self.acks_due |= 1;
        }
        bytes
    }

    /// Right edge of the window that the buffer allows.
    #[inline(always)]
    fn window_limit(&self, config: &TransportConfig) -> u64 {
        let taken = if config.discard {
            self.offset
        } else {
            self.read
        };
        taken + u64::from(config.receive_buffer)
    }

    /// Returns the new right edge of the window if it may move: by at least two segments or half
    /// the buffer, to avoid silly window syndrome (RFC 9293 section 3.8.6.2.2).
    #[inline(always)]
    fn new_window_end(&self, config: &TransportConfig) -> Option<u64> {
        let limit = self.window_limit(config);
        let step = (u64::from(config.mss) * 2)
            .min(u64::from(config.receive_buffer) / 2)
            .max(1);
        (limit >= self.window_end + step).then_some(limit)
    }

    /// Handles received data; `arrived` is its time stamp.
    #[inline(always)]
    pub fn on_data(
        &mut self,
        (now, arrived): (Time, Time),
        segment: &Segment,
        side: &SideData,
        proof: &Proof,
        config: &TransportConfig,
    ) {
        if segment.ecn == Ecn::Ce && segment.class == 0 {
            self.ce_packets = self.ce_packets.wrapping_add(1);
            self.ce_bytes = self.ce_bytes.wrapping_add(u32::from(segment.length));
        }
        if has_stamps(segment, side) && segment.class == 0 {
            self.store_stamps(arrived, side);
        }
        let in_order = segment.number == self.next
            && segment.offset() == self.offset
            && self.offset + u64::from(segment.length) <= self.window_end
            && !self.end_known
            && !self.has_sack_info;
        if in_order && segment.class | (segment.flags & Segment::FIN_FLAG) == 0 {
            self.next = self.next.wrapping_add(1);
            self.offset += u64::from(segment.length);
            self.nonce_sum = self.nonce_sum.wrapping_add(proof.nonce);
            self.mark = proof.mark;
            self.echo = segment.number;
            self.echo_transmission = segment.transmission;
            self.unacked_segments = self.unacked_segments.saturating_add(1);
            // RFC 8257 section 3.2: a change of the CE mark is acknowledged at once, so that the
            // sender's count is exact.
            let changed = (segment.ecn == Ecn::Ce) != self.last_was_ce;
            self.last_was_ce ^= changed;
            if self.unacked_segments >= config.ack_every || self.quick_acks > 0 || changed {
                self.quick_acks = self.quick_acks.saturating_sub(1);
                self.acks_due |= 1;
            } else if self.ack_deadline == Time::MAX {
                self.ack_deadline = now + config.ack_delay;
            }
        } else {
            self.on_data_slow_path(segment, proof);
        }
    }

    /// Handles data that is out of order, duplicated, in another class, beyond the window, or the
    /// end of the stream. It is acknowledged at once.
    #[cold]
    #[inline(never)]
    fn on_data_slow_path(&mut self, segment: &Segment, proof: &Proof) {
        let number = segment.number;
        let end = segment.offset() + u64::from(segment.length);
        if segment.class == 0 {
            self.acks_due |= 1;
            self.last_was_ce = segment.ecn == Ecn::Ce;
        } else {
            self.schedule_low_ack(segment, proof);
        }
        if number.is_before(self.next) {
            return self.on_duplicate(segment, proof);
        }
        // Beyond the advertised window, beyond the end, or at an offset inconsistent with its
        // number.
        let ahead = number.since(self.next);
        let gap = segment.offset().wrapping_sub(self.offset);
        let misplaced = ahead > NUMBER_DISTANCE_MAX
            || (gap > 0) != (ahead > 0) && !(ahead > 0 && segment.has_flag(Segment::FIN_FLAG));
        let beyond_end = self.end_known && !number.is_before(self.end);
        if end > self.window_end || segment.offset() < self.offset || beyond_end || misplaced {
            return self.count_refused();
        }
        if segment.has_flag(Segment::FIN_FLAG) {
            let later = self
                .out_of_order
                .as_ref()
                .and_then(|beyond| beyond.ranges.last());
            if later.is_some_and(|span| number.wrapping_add(1).is_before(span.range.end)) {
                return;
            }
            self.end_known = true;
            self.end = number.wrapping_add(1);
        }
        if segment.class == 0 {
            self.quick_acks = self.quick_acks.saturating_sub(1);
        }
        if number == self.next {
            self.next = number.wrapping_add(1);
            self.offset = end;
            self.nonce_sum = self.nonce_sum.wrapping_add(proof.nonce);
            self.deliver_queued();
            self.set_ack_trigger(segment, proof);
        } else if self.insert(segment, end, proof) {
            self.set_ack_trigger(segment, proof);
        } else {
            self.on_duplicate(segment, proof);
        }
    }

    /// Counts a dropped segment that no honest sender sends.
    #[cold]
    pub fn count_refused(&mut self) {
        self.low_classes.get_or_insert_default().stats.refused += 1;
    }

    /// Schedules an acknowledgement in the segment's own class, above 0.
    fn schedule_low_ack(&mut self, segment: &Segment, proof: &Proof) {
        let class = segment.class;
        let low = self.low_classes.get_or_insert_default();
        let place = usize::from(class);
        let before = if self.acks_due >> class & 1 != 0 {
            low.band[place]
        } else {
            u8::MAX
        };
        low.band[place] = segment.band.min(ECHO_BAND_MAX).min(before);
        low.echo[place] = segment.number;
        low.mark[place] = proof.mark;
        low.stats.arrived[place] += 1;
        low.stats.remarked += u64::from(segment.band != segment.class);
        self.acks_due |= 1 << class;
    }

    /// Returns the statistics of RC3 and refused segments; `None` if there were none.
    pub fn rc3_arrivals(&self) -> Option<Rc3Arrivals> {
        let held_bytes = self.out_of_order.as_ref().map_or(0, |beyond| beyond.held);
        self.low_classes.as_ref().map(|low| Rc3Arrivals {
            held_bytes,
            ..low.stats
        })
    }

    /// Bit set of the classes above 0 in which an acknowledgement is due.
    #[inline(always)]
    pub fn low_acks_due(&self) -> u8 {
        self.acks_due & !1
    }

    /// Inserts an out-of-order segment. Returns true if it is new.
    fn insert(&mut self, segment: &Segment, end_offset: u64, proof: &Proof) -> bool {
        let number = segment.number;
        let beyond = self.out_of_order.get_or_insert_default();
        let mut fresh = false;
        let range = Range {
            start: number,
            end: number.wrapping_add(1),
        };
        if !beyond
            .ranges
            .insert_with(range, end_offset, proof.nonce, |_| fresh = true)
        {
            // No room for one more hole: the segment counts as lost.
            return true;
        }
        self.has_sack_info = true;
        beyond.held += if fresh { u64::from(segment.length) } else { 0 };
        beyond.set_most_recent(number);
        fresh
    }

    /// Records a segment that arrived a second time (RFC 2883).
    fn on_duplicate(&mut self, segment: &Segment, proof: &Proof) {
        if segment.class != 0
            && let Some(low) = self.low_classes.as_deref_mut()
        {
            low.stats.duplicates += 1;
        }
        let number = segment.number;
        let beyond = self.out_of_order.get_or_insert_default();
        let place = match segment.class {
            0 => &mut beyond.duplicate,
            _ => &mut beyond.duplicate_low,
        };
        *place = Some(Range {
            start: number,
            end: number.wrapping_add(1),
        });
        self.has_sack_info = true;
        self.set_ack_trigger(segment, proof);
    }

    /// Records the segment that triggers the next ACK. Class 0 acknowledges only class 0, so that
    /// RTT samples and losses of the classes stay separate.
    fn set_ack_trigger(&mut self, segment: &Segment, proof: &Proof) {
        if segment.class == 0 {
            self.mark = proof.mark;
            self.echo = segment.number;
            self.echo_transmission = segment.transmission;
        }
    }

    /// Delivers queued ranges after the first hole was filled.
    fn deliver_queued(&mut self) {
        let Some(beyond) = self.out_of_order.as_mut() else {
            return;
        };
        while let Some(first) = beyond.ranges.first() {
            if self.next.is_before(first.range.start) {
                break;
            }
            if self.next.is_before(first.range.end) {
                self.next = first.range.end;
                self.nonce_sum = self.nonce_sum.wrapping_add(first.nonce_sum);
                let offset = self.offset.max(first.end_offset);
                beyond.held = beyond.held.saturating_sub(offset - self.offset);
                self.offset = offset;
            }
            beyond.ranges.pop_first();
        }
        self.has_sack_info = beyond.has_report();
        if self.is_complete() {
            self.out_of_order = None;
            self.has_sack_info = false;
        }
    }

    #[cold]
    fn store_stamps(&mut self, arrived: Time, side: &SideData) {
        **self.stamps.get_or_insert_default() = ArrivalStamps {
            t1: side.t1,
            t2: arrived,
            fresh: true,
        };
        // An acknowledgement carries only the stamps of the last packet before it, so every packet
        // is acknowledged, regardless of `ack_every`.
        self.acks_due |= 1;
    }

    /// Returns true if an acknowledgement is due in `class`.
    #[inline(always)]
    pub fn is_ack_due(&self, class: u8) -> bool {
        self.acks_due >> class & 1 != 0
    }

    /// Makes an acknowledgement in class 0 due immediately.
    #[inline(always)]
    pub fn schedule_ack(&mut self) {
        self.acks_due |= 1;
    }

    /// Makes a delayed acknowledgement due if its timer has expired.
    #[inline]
    pub fn on_timeout(&mut self, now: Time) {
        if self.ack_deadline <= now {
            self.ack_deadline = Time::MAX;
            self.acks_due |= u8::from(self.unacked_segments > 0);
        }
    }

    /// Returns the segment that triggered the ACK and its transmission; 0 if none did.
    pub fn echo(&self) -> (SequenceNumber, u8) {
        (self.echo, self.echo_transmission)
    }

    /// Sum of the nonces of everything before the cumulative ACK and of `ranges`, which must be the
    /// ranges just reported.
    #[inline]
    pub fn nonce_sum(&self, ranges: &[Range]) -> u16 {
        let set = self.out_of_order.as_ref().map(|beyond| &beyond.ranges);
        ranges.iter().fold(self.nonce_sum, |sum, range| {
            let span = set.and_then(|set| set.find_span(range.start));
            sum.wrapping_add(span.map_or(0, |span| span.nonce_sum))
        })
    }

    /// Mark of the segment that triggered the ACK in this class.
    pub fn echo_mark(&self, class: u8) -> u16 {
        match (class, self.low_classes.as_deref()) {
            (0, _) => self.mark,
            (class, Some(low)) => low
                .mark
                .get(usize::from(class))
                .copied()
                .unwrap_or_default(),
            (_, None) => 0,
        }
    }

    /// Sets the segment that triggers the next ACK.
    pub fn set_echo(&mut self, number: SequenceNumber, transmission: u8) {
        (self.echo, self.echo_transmission) = (number, transmission);
    }

    /// Writes the acknowledgement into an outgoing segment. Any segment of class 0 carries the
    /// acknowledgement that is due there.
    #[inline(always)]
    pub fn acknowledge(
        &mut self,
        now: Time,
        segment: &mut Segment,
        side: &mut SideData,
        config: &TransportConfig,
    ) {
        if let Some(edge) = self.new_window_end(config) {
            debug_assert!(edge > self.window_end, "a granted window does not shrink");
            self.window_end = edge;
        }
        debug_assert!(
            self.offset <= self.window_end,
            "no data beyond the granted window"
        );
        segment.ack = self.next;
        segment.window = u32::try_from(self.window_end - self.offset).unwrap_or(u32::MAX);
        segment.ce_packets = self.ce_packets;
        segment.ce_bytes = self.ce_bytes;
        segment.echo = self.echo;
        segment.echo_transmission = self.echo_transmission;
        let alone = segment.kind == SegmentKind::Ack;
        if segment.class != 0 {
            self.acknowledge_low(segment);
        } else if !alone && self.stamps.is_some() {
            // Data carries its own stamps: a separate acknowledgement with the echoed stamps
            // follows.
        } else {
            self.acks_due &= !1;
            self.unacked_segments = 0;
            self.ack_deadline = Time::MAX;
        }
        if self.has_sack_info || self.stamps.is_some() {
            self.write_side(now, segment, side);
        }
    }

    /// Writes the acknowledgement of a class above 0.
    #[cold]
    fn acknowledge_low(&mut self, segment: &mut Segment) {
        let class = segment.class;
        (segment.echo, segment.echo_transmission) = (SequenceNumber(0), 0);
        if let Some(low) = self
            .low_classes
            .as_deref()
            .filter(|_| self.is_ack_due(class))
        {
            segment.echo = low.echo[usize::from(class)];
            segment.echo_transmission = 1;
            segment.echo_band = low.band[usize::from(class)] + 1;
        }
        self.acks_due &= !(1 << class);
    }

    #[cold]
    #[inline(never)]
    fn write_side(&mut self, now: Time, segment: &mut Segment, side: &mut SideData) {
        if let Some(beyond) = self.out_of_order.as_mut().filter(|_| self.has_sack_info) {
            beyond.report(self.next, segment.class, side);
            self.has_sack_info = beyond.has_report();
            if !side.is_empty() {
                segment.flags |= Segment::SIDE_FLAG;
            }
        }
        if let Some(arrival) = self.stamps.as_mut().filter(|arrival| {
            arrival.fresh && segment.kind == SegmentKind::Ack && segment.class == 0
        }) {
            arrival.fresh = false;
            (side.t1, side.t2, side.t3, side.stamped) = (arrival.t1, arrival.t2, now, true);
            segment.flags |= Segment::SIDE_FLAG;
        }
    }

    pub fn heap_bytes(&self) -> usize {
        let beyond = self.out_of_order.as_ref();
        beyond.map_or(0, |beyond| {
            size_of::<OutOfOrderData>() + beyond.ranges.heap_bytes()
        }) + self
            .stamps
            .as_ref()
            .map_or(0, |_| size_of::<ArrivalStamps>())
            + self
                .low_classes
                .as_ref()
                .map_or(0, |_| size_of::<LowArrivals>())
    }

    /// Frees memory that is not needed now.
    pub fn shrink(&mut self) {
        if !self.has_sack_info {
            self.out_of_order = None;
        }
    }

    /// Checks the invariants for tests: the application has read no more than was received, nothing
    /// was accepted beyond the advertised window, and queued data lies beyond the data received in
    /// order.
    pub fn check(&self) {
        assert!(
            self.read <= self.offset,
            "{} read of {}",
            self.read,
            self.offset
        );
        assert!(
            self.offset <= self.window_end,
            "{} arrived, {} granted",
            self.offset,
            self.window_end
        );
        if let Some(beyond) = &self.out_of_order {
            let first = beyond.ranges.first().map(|span| span.range.start);
            assert!(
                first.is_none_or(|first| self.next.is_before(first)),
                "{first:?} is buffered, {:?} is next",
                self.next
            );
            assert!(
                self.has_sack_info || !beyond.has_report(),
                "buffered data is not reported"
            );
            let room = self.window_end - self.offset;
            assert!(
                beyond.held <= room,
                "{} bytes buffered, {room} granted",
                beyond.held
            );
        }
    }
}

impl OutOfOrderData {
    /// Returns true if the next ACK carries ranges or a duplicate.
    fn has_report(&self) -> bool {
        !self.ranges.is_empty() || self.duplicate.is_some() || self.duplicate_low.is_some()
    }

    /// Moves the range that contains `number` to the front of the reported ranges.
    fn set_most_recent(&mut self, number: SequenceNumber) {
        let block = self.ranges.find(number);
        let mut kept = [number; SACK_RANGES_MAX];
        let others = self.recent.iter().filter(|old| match block {
            Some(block) => !old.is_within(block.start, block.end),
            None => true,
        });
        for (place, old) in kept.iter_mut().skip(1).zip(others) {
            *place = *old;
        }
        self.recent = kept;
    }

    /// RFC 2018 section 4: the range of the latest arrival comes first, then the ranges reported
    /// last, then others as room allows. A duplicate of class 0 is reported only in class 0, as it
    /// would not count elsewhere.
    fn report(&mut self, next: SequenceNumber, class: u8, side: &mut SideData) {
        let own = if class == 0 {
            self.duplicate.take()
        } else {
            None
        };
        if let Some(duplicate) = own.or_else(|| self.duplicate_low.take()) {
            side.set_duplicate(duplicate);
        }
        let mut told = [Range::default(); SACK_RANGES_MAX];
        let mut count = 0;
        let recent = self.recent.iter().filter(|number| !number.is_before(next));
        let recent = recent.filter_map(|number| self.ranges.find(*number));
        for range in recent.chain(
            self.ranges
                .iter()
                .take(SACK_RANGES_MAX)
                .map(|span| span.range),
        ) {
            if count == SACK_RANGES_MAX {
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
fn has_stamps(segment: &Segment, side: &SideData) -> bool {
    segment.has_side() && side.stamped
}
