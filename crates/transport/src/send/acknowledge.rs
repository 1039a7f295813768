//! What an acknowledgement does to the sending half.
//!
//! The ordinary one advances over segments that were sent once, with nothing SACKed, lost or under repair: it costs the same
//! however many segments it covers, as only the last of them is looked at. Everything else is in `digest`.

use ccplane_datapath::Stamps;
use ccplane_units::{Duration, Time};

use crate::connection::{Connection, Phase};
use crate::control::{Ack, Control, Event};
use crate::number::Number;
use crate::rc3::{Cover, Rc3Loop, clip};
use crate::segment::{Kind, Range, Segment, Side};
use crate::send::flight::{Flight, Sent};
use crate::send::rack::Rack;
use crate::send::recovery::Undo;

impl Connection {
    /// Takes what the segment acknowledges; `arrived` is its stamp.
    #[inline(always)]
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        arrived: Time,
        segment: &Segment,
        side: &Side,
        control: &mut impl Control,
    ) {
        if self.flight.is_idle() && segment.ack == self.flight.una() && !segment.has_side() && segment.class == 0 {
            // Nothing is out: all that it can say is a window.
            let limit = self.flight.una_offset() + u64::from(segment.window);
            if limit > self.limit {
                self.limit = limit;
                self.invalidate();
            }
            return;
        }
        let advanced = segment.ack.since(self.flight.una());
        let marked = segment.ce_packets != self.ce_packets;
        let ordinary = self.phase == Phase::Open
            && self.flight.is_plain()
            && !self.flags.probing
            && !marked
            && advanced <= self.outstanding()
            && segment.class == 0
            && !segment.has_side();
        if !ordinary {
            return self.on_other_ack(now, arrived, segment, side, control);
        }
        let mut ack = Ack::default();
        if advanced != 0 {
            let last = *self.flight.get(segment.ack.previous());
            if last.transmission != 1 || last.is(Sent::RC3) {
                return self.on_other_ack(now, arrived, segment, side, control);
            }
            let end = last.offset.wrapping_add(u32::from(last.length));
            ack.bytes = u64::from(end.wrapping_sub(self.flight.una_offset() as u32));
            ack.packets = advanced;
            ack.rtt = now.since(last.at);
            self.flight.acknowledge(segment.ack, ack.bytes);
            self.progress = now;
            self.backoff = 0;
            self.rtt.sample(ack.rtt, now);
            ack.rate = self.rate.on_delivered(last.sampled(), advanced, now, self.rtt.least());
            self.rack.at = last.at;
            self.rack.end = segment.ack;
            self.rack.furthest = segment.ack;
            self.rack.rtt = ack.rtt;
        }
        self.limit = self.limit.max(self.flight.una_offset() + u64::from(segment.window));
        if self.rc3.is_some() && advanced != 0 {
            self.watch(ack.rtt, now);
        }
        if advanced != 0 {
            self.tell(now, ack, control);
        }
        self.allot();
    }

    #[cold]
    #[inline(never)]
    fn on_other_ack(&mut self, now: Time, arrived: Time, segment: &Segment, side: &Side, control: &mut impl Control) {
        if let Some(ack) = self.digest(now, arrived, segment, side) {
            self.tell(now, ack, control);
        }
        self.allot();
        // What is told of RC3 leaves the timers as class 0 has put them.
        if segment.class == 0 {
            self.rearm();
        }
    }

    /// Tells the control, and does what it says.
    #[inline(always)]
    pub(crate) fn tell<C: Control>(&mut self, now: Time, ack: Ack, control: &mut C) {
        if C::STEERED {
            self.flags.steered = true;
        }
        let event = Event {
            now,
            ack,
            connection: self,
        };
        let outcome = control.on_event(&event);
        self.apply(&ack, &outcome);
    }

    /// An ACK in its general form; `None` when it says nothing to the control.
    fn digest(&mut self, now: Time, arrived: Time, segment: &Segment, side: &Side) -> Option<Ack> {
        let (una, next) = (self.flight.una(), self.flight.next());
        let advanced = segment.ack.since(una);
        if segment.class != 0 {
            self.take_rc3(segment, side);
            return None;
        }
        if advanced > self.flight.cut().since(una) || (next.before(segment.ack) && !self.sent_by_rc3(next, segment.ack))
        {
            // Old, or of something never sent.
            return None;
        }
        let mut ack = self.marks(segment);
        if side.stamped && segment.has_side() && segment.kind == Kind::Ack {
            let stamps = Stamps {
                t1: side.t1,
                t2: side.t2,
                t3: side.t3,
                t4: arrived,
            };
            ack.stamped = self.repair_mut().stamps.get_or_insert_default().take(now, stamps);
        }
        let min_rtt = self.rtt.least();
        let phase = self.phase;
        let met = if self.flight.echoes() != 0 {
            self.take_echo(segment)
        } else {
            None
        };
        self.repair_mut();
        let repair = self.repair.as_deref_mut()?;
        let mut delivery = Delivery {
            flight: &mut self.flight,
            rack: &mut self.rack,
            undo: &mut repair.undo,
            reordered: &mut repair.reordering.seen,
            echo: segment.echo,
            echo_transmission: segment.echo_transmission,
            after_timeout: phase == Phase::Loss,
            now,
            min_rtt,
            latest: None,
        };
        if let Some((number, sent)) = met {
            // It counts when the first loop's own has arrived, as if the second had never sent it.
            ack.bytes += u64::from(sent.length);
            ack.packets += 1;
            delivery.rack.on_delivered(number, &sent, now, min_rtt, true);
            delivery.latest = Some(Latest {
                sent,
                number,
                certain: true,
            });
        }
        // The cumulative ACK. It may cover segments that only RC3 sent.
        let mut bumped = false;
        while delivery.flight.una() != segment.ack {
            let (number, begin) = (delivery.flight.una(), delivery.flight.una_offset());
            let sent = delivery.flight.step();
            if sent.is(Sent::RC3) {
                let cover = Rc3Loop::cover(&mut self.rc3, (number, &sent), number.before(next), segment);
                bumped |= cover == Cover::Unsent;
                if cover != Cover::Delivered {
                    continue;
                }
            }
            ack.bytes += delivery.flight.una_offset() - begin;
            if !sent.is(Sent::SACKED) {
                ack.packets += 1;
                delivery.take(number, true);
            }
        }
        if bumped && let Some(rc3) = self.rc3.as_deref_mut() {
            rc3.stats.bumps += 1;
        }
        delivery.flight.catch_up();
        repair.sacked.forget_before(segment.ack);
        if segment.has_side() {
            for range in side.ranges() {
                let flight = &*delivery.flight;
                let Some(range) = clip(*range, flight.una(), flight.cut()) else {
                    continue;
                };
                let beyond = flight.next().later(range.start);
                if beyond.before(range.end) && !self.rc3.as_deref().is_some_and(|rc3| rc3.sent_all(beyond, range.end)) {
                    continue;
                }
                let (sacked, bytes, rc3) = (&mut ack.sacked, &mut ack.sacked_bytes, &mut self.rc3);
                repair.sacked.insert(range, 0, |fresh| {
                    let mut number = fresh.start;
                    while number != fresh.end {
                        let sent = *delivery.flight.get(number);
                        if number.before(next) && sent.is_echo(number, segment) {
                            delivery.flight.on_echoed(number);
                            if let Some(rc3) = rc3.as_deref_mut() {
                                rc3.add_echo(number, sent);
                            }
                        } else {
                            if number.before(next) {
                                *sacked += 1;
                                *bytes += u32::from(sent.length);
                                delivery.take(number, false);
                            } else if let Some(rc3) = rc3.as_deref_mut() {
                                rc3.brought(&sent);
                            }
                            delivery.flight.on_sacked(number);
                        }
                        number = number.plus(1);
                    }
                });
            }
        }
        let latest = delivery.latest;
        if let Some(rc3) = &self.rc3 {
            self.flight.set_echoes(rc3.echoes());
        }
        if let Some(duplicate) = side.duplicate().filter(|_| segment.has_side()) {
            self.on_duplicate(duplicate);
        }
        self.limit = self.limit.max(self.flight.una_offset() + u64::from(segment.window));
        if ack.delivered() > 0 {
            self.progress = now;
            if advanced > 0 {
                self.backoff = 0;
            }
            if let Some(Latest { sent, certain, .. }) = latest {
                if certain {
                    ack.rtt = now.since(sent.at);
                    self.rtt.sample(ack.rtt, now);
                    if self.rc3.is_some() {
                        self.watch(ack.rtt, now);
                    }
                }
                ack.rate = self
                    .rate
                    .on_delivered(sent.sampled(), ack.delivered(), now, self.rtt.least());
            }
        }
        self.pass_arrived();
        ack.reduces = self.judge_probe(segment, side);
        if self.flight.sacked() > 0 || self.phase != Phase::Open {
            ack.lost = self.detect_losses(now);
        }
        self.judge(&mut ack);
        if ack.ce_packets > 0 && self.phase == Phase::Open && ack.delivered() > 0 && !ack.undone {
            ack.reduces = true;
        }
        if ack.reduces && self.phase == Phase::Open {
            self.begin_reduction(Phase::Reduction);
            self.repair_mut().undo = Undo::default();
        }
        let says = ack.bytes > 0 || ack.delivered() | ack.lost | ack.ce_packets > 0 || ack.undone;
        says.then_some(ack)
    }

    /// Growth of the peer's counts of data that arrived with CE. A smaller count is an older one.
    fn marks(&mut self, segment: &Segment) -> Ack {
        let mut ack = Ack::default();
        let packets = segment.ce_packets.wrapping_sub(self.ce_packets);
        if (packets as i32) > 0 {
            ack.ce_packets = packets;
            ack.ce_bytes = segment.ce_bytes.wrapping_sub(self.ce_bytes);
            self.ce_packets = segment.ce_packets;
            self.ce_bytes = segment.ce_bytes;
        }
        ack
    }

    /// A segment arrived twice. It counts where something was sent again; a network may duplicate too.
    fn on_duplicate(&mut self, duplicate: Range) {
        let (una, next, probing) = (self.flight.una(), self.flight.next(), self.flags.probing);
        if let Some(rc3) = self.rc3.as_deref_mut().filter(|rc3| rc3.has_sent(duplicate.start)) {
            rc3.stats.duplicates += 1;
            return; // the loops have met: nothing was sent again in vain
        }
        let Some(repair) = self.repair.as_deref_mut() else {
            return;
        };
        let length = duplicate.end.since(duplicate.start);
        if probing && repair.probe == duplicate.start || length > 1 << 16 || repair.undo.repeats == 0 {
            return;
        }
        repair.undo.repeats = repair.undo.repeats.saturating_sub(length);
        repair.undo.duplicates = repair.undo.duplicates.saturating_add(length);
        repair.reordering.on_duplicate(una, next);
    }

    /// RFC 8985, 7.4: whether a tail-loss probe turned out to have repaired a loss, which then calls for a reduction.
    fn judge_probe(&mut self, segment: &Segment, side: &Side) -> bool {
        let Some(repair) = self.repair.as_ref().filter(|_| self.flags.probing) else {
            return false;
        };
        if self.flight.una().before(repair.probe_end) {
            return false;
        }
        self.flags.probing = false;
        self.flags.tail_probe = false;
        let repeated = repair.probe != repair.probe_end;
        let duplicate = segment.has_side() && side.duplicate().is_some();
        repeated && !duplicate && segment.echo == repair.probe && segment.echo_transmission > 1
    }
}

/// What newly delivered segments change. One place for those of the cumulative ACK and those of SACK ranges.
struct Delivery<'a> {
    flight: &'a mut Flight,
    rack: &'a mut Rack,
    undo: &'a mut Undo,
    reordered: &'a mut bool,
    echo: Number,
    echo_transmission: u8,
    after_timeout: bool,
    now: Time,
    min_rtt: Duration,
    latest: Option<Latest>,
}

/// Of the newly delivered segments, the one sent last.
#[derive(Clone, Copy)]
struct Latest {
    sent: Sent,
    number: Number,
    /// It is known which of its transmissions arrived.
    certain: bool,
}

impl Delivery<'_> {
    fn take(&mut self, number: Number, cumulative: bool) {
        let sent = self.flight.on_delivered(number);
        let echoed = self.echo == number && self.echo_transmission != 0;
        let again = sent.transmission > 1;
        // Of one that was sent in both loops, the other may be the one that arrived.
        let again = again || sent.is(Sent::RC3);
        let certain = !again || (echoed && self.echo_transmission == sent.transmission);
        let earlier = echoed && self.echo_transmission < sent.transmission && sent.is(Sent::REPEATED);
        if sent.is(Sent::LOST) {
            self.undo.wrong += 1;
            self.undo.early |= self.after_timeout && cumulative && echoed;
        } else if earlier {
            self.undo.wrong += 1;
            self.undo.early |= self.after_timeout && cumulative;
        }
        if earlier {
            return; // when that transmission left is not known any more
        }
        *self.reordered |= self.rack.on_delivered(number, &sent, self.now, self.min_rtt, certain);
        let later = |latest: &Latest| {
            (latest.sent.at, 0) < (sent.at, 0) || (latest.sent.at == sent.at && latest.number.before(number))
        };
        if self.latest.as_ref().is_none_or(later) {
            self.latest = Some(Latest { sent, number, certain });
        }
    }
}
