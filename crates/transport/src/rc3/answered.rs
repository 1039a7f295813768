//! What comes back to the second loop, and what both loops have on its way.

use ccplane_units::Time;

use super::{LEVELS, Rc3Loop, Rc3Stats, Rc3Stop};
use crate::connection::Connection;
use crate::control::Ack;
use crate::number::Number;
use crate::receive::Rc3Arrivals;
use crate::segment::{Range, Segment, Side};
use crate::send::acknowledge::{Told, clip};
use crate::send::flight::{Flight, Sent};

/// The two calls at which an acknowledgement meets RC3.
impl Connection {
    /// The first, before anything is taken from it: what it tells class 0; `None` where that is nothing.
    pub(crate) fn hear(&mut self, segment: &Segment, side: &Side) -> Option<Told> {
        if segment.class != 0 {
            self.take_rc3(segment, side);
            return None;
        }
        let mut told = Told::read(segment, side, &self.flight, |start, end| self.sent_by_rc3(start, end))?;
        if let (Some(duplicate), Some(rc3)) = (told.duplicate, self.rc3.as_deref_mut())
            && rc3.sent.find(duplicate.start).is_some()
        {
            // The loops have met: nothing was sent again in vain.
            rc3.stats.duplicates += 1;
            told.duplicate = None;
        }
        if self.flight.echoes() != 0 {
            told.answered = self.take_echo(segment);
        }
        Some(told)
    }

    /// The second: class 0 takes what it is told, but for the segments that RC3 brought.
    pub(crate) fn deliver(&mut self, now: Time, segment: &Segment, told: &Told, ack: &mut Ack) {
        let Some(mut rc3) = self.rc3.take() else {
            self.take(now, segment, told, ack, |_, _, _| false);
            return;
        };
        let mut bumped = false;
        let sampled = self.take(now, segment, told, ack, |flight, number, sent| {
            sent.is(Sent::RC3) && rc3.claims(flight, (number, sent), segment, &mut bumped)
        });
        rc3.stats.bumps += u32::from(bumped);
        self.flight.set_echoes(rc3.echoes());
        self.rc3 = Some(rc3);
        if sampled {
            self.watch(ack.rtt, now);
        }
        self.pass_arrived();
    }
}

impl Connection {
    /// An ACK in a class above 0: it tells what of the tail arrived, and nothing else. No growth, no RTT, no loss. Where
    /// nothing is out in class 0, or everything has arrived, its cumulative part counts too, as no other ACK may come.
    fn take_rc3(&mut self, segment: &Segment, side: &Side) {
        let (una, next, cut) = (self.flight.una(), self.flight.next(), self.flight.cut());
        if segment.ack.since(una) > cut.since(una) && !segment.ack.before(una) {
            return; // of something never sent
        }
        self.note_answer(segment, side);
        if next != cut {
            self.repair_mut();
            let covered = Range {
                start: una,
                end: segment.ack,
            };
            let ranges = if segment.has_side() { side.ranges() } else { &[] };
            for range in ranges.iter().copied().chain([covered]) {
                if let Some(range) = clip(range, next, cut).filter(|range| self.sent_by_rc3(range.start, range.end)) {
                    self.arrived_by_rc3(range);
                }
            }
        }
        if segment.ack == cut && self.flags.fin_cut && (next == cut || self.sent_by_rc3(next, cut)) {
            self.settle(segment);
        }
        self.pass_arrived();
        if self.flight.una() == self.flight.next() && self.flight.una() == segment.ack {
            self.limit = self.limit.max(self.flight.una_offset() + u64::from(segment.window));
        }
    }

    /// All of these segments were sent by the second loop: an honest peer says nothing of others from `next` on.
    fn sent_by_rc3(&self, start: Number, end: Number) -> bool {
        self.rc3.as_deref().is_some_and(|rc3| rc3.sent_all(start, end))
    }

    /// Segments that the first loop has not sent have arrived.
    fn arrived_by_rc3(&mut self, range: Range) {
        let (Some(repair), Some(rc3)) = (self.repair.as_deref_mut(), self.rc3.as_deref_mut()) else {
            return;
        };
        let flight = &mut self.flight;
        repair.sacked.insert(range, 0, |fresh| {
            let mut number = fresh.start;
            while number != fresh.end {
                flight.on_sacked(number);
                rc3.brought(flight.get(number));
                number = number.plus(1);
            }
        });
    }

    /// Everything has arrived, and no ACK of class 0 need come to say so.
    fn settle(&mut self, segment: &Segment) {
        let rc3 = &mut self.rc3;
        self.flight.settle(segment.ack, |sent| {
            if let Some(rc3) = rc3.as_deref_mut()
                && sent.transmission == 0
                && !sent.is(Sent::SACKED)
            {
                rc3.brought(sent);
            }
        });
        (self.flags.probing, self.flags.tail_probe) = (false, false);
        self.forget_echoes();
        if let Some(repair) = self.repair.as_deref_mut() {
            repair.sacked.forget_before(segment.ack);
        }
    }

    /// Counts the segment that is being answered, and sees in which class it came.
    fn note_answer(&mut self, segment: &Segment, side: &Side) {
        let verify = self.config.rc3.is_some_and(|rc3| rc3.verify);
        let Some(rc3) = self.rc3.as_deref_mut() else { return };
        if segment.has_side()
            && side
                .duplicate()
                .is_some_and(|range| rc3.sent.find(range.start).is_some())
        {
            rc3.stats.duplicates += 1;
        }
        let echoed = segment.echo_transmission != 0 && segment.echo.within(self.flight.una(), self.flight.cut());
        if echoed {
            let sent = self.flight.get(segment.echo);
            if sent.is(Sent::RC3) && !sent.is(Sent::CAME) && sent.transmission > 0 {
                rc3.count(sent);
                self.flight.came(segment.echo);
            }
        }
        if segment.echo_band == 1 && verify && rc3.stats.stopped.is_none() {
            rc3.stats.stopped = Some(Rc3Stop::Marking { class: segment.class });
        }
    }

    /// What the second loop did; `None` where it never sent.
    pub fn rc3_stats(&self) -> Option<&Rc3Stats> {
        self.rc3.as_ref().map(|rc3| &rc3.stats)
    }

    /// What came of the peer's second loop; `None` where nothing did.
    pub fn rc3_arrivals(&self) -> Option<Rc3Arrivals> {
        self.receiver.rc3_arrivals()
    }

    /// `next` passes over segments of the tail that have arrived already.
    #[inline(always)]
    pub(crate) fn pass_arrived(&mut self) {
        self.flight.pass_arrived();
        if self.flight.passed() != 0 {
            self.join_passed();
        }
    }

    /// What class 0 need not send and follows what is acknowledged is as good as acknowledged.
    #[cold]
    fn join_passed(&mut self) {
        if self.flight.join_passed()
            && let (Some(repair), Some(rc3)) = (self.repair.as_deref_mut(), self.rc3.as_deref_mut())
        {
            repair.sacked.forget_before(self.flight.una());
            rc3.stats.bumps += 1;
        }
    }

    /// The segment of class 0 that is being answered, if the second loop had brought the same. Those sent before it are no
    /// longer in flight: their answers, or they, are lost.
    fn take_echo(&mut self, segment: &Segment) -> Option<(Number, Sent)> {
        let rc3 = self.rc3.as_deref_mut()?;
        debug_assert!(
            self.flight.echoes() == rc3.echoes(),
            "the flight counts what the list holds"
        );
        let mut met = None;
        while let Some((number, sent)) = rc3.echoes.front().copied() {
            if segment.echo.before(number) || segment.echo_transmission != 1 {
                break;
            }
            rc3.echoes.pop_front();
            met = (number == segment.echo).then_some((number, sent));
        }
        self.flight.set_echoes(rc3.echoes());
        met
    }

    /// When what is in flight although the same has arrived counts as lost.
    pub(crate) fn echoes_end(&self) -> Option<Time> {
        let (_, last) = self.rc3.as_ref().filter(|_| self.flight.echoes() != 0)?.echoes.back()?;
        Some(last.at + self.rto())
    }

    pub(crate) fn forget_echoes(&mut self) {
        self.flight.set_echoes(0);
        if let Some(rc3) = self.rc3.as_deref_mut() {
            rc3.echoes.clear();
        }
    }
}

impl Rc3Loop {
    /// All of these segments were sent here, at any time not long ago.
    pub fn sent_all(&self, start: Number, end: Number) -> bool {
        self.sent.find(start).is_some_and(|range| !range.end.before(end))
    }

    /// An ACK of class 0 newly covers a segment of the tail; true where that is no delivery of what class 0 sent. A segment that the
    /// cumulative ACK covers has left the flight already, one in a range has not.
    #[cold]
    #[inline(never)]
    fn claims(
        &mut self,
        flight: &mut Flight,
        (number, sent): (Number, &Sent),
        ack: &Segment,
        bumped: &mut bool,
    ) -> bool {
        let (cumulative, seen) = (number.before(flight.una()), sent.is(Sent::SACKED));
        let before = number.before(flight.next());
        if sent.transmission == 0 && (seen || !before) {
            // Class 0 never sent it.
            if !seen {
                self.brought(sent);
            }
            *bumped |= cumulative;
            return true;
        }
        if sent.is(Sent::ECHOED) {
            return true;
        }
        if !seen && sent.is_echo(number, ack) {
            // What the second loop sent has arrived, and class 0's own is still on its way.
            if !cumulative {
                flight.on_echoed(number);
            }
            self.add_echo(number, *sent);
            return true;
        }
        false
    }

    /// A segment arrived by this loop alone.
    pub fn brought(&mut self, sent: &Sent) {
        self.stats.flying = self.stats.flying.saturating_sub(1);
        self.stats.delivered_bytes += u64::from(sent.length);
        self.count(sent);
    }

    /// It is not believed any more that a segment arrived by this loop alone. `passed`: now it is the first's.
    pub fn disbelieve(&mut self, sent: &Sent, passed: bool) {
        self.stats.flying += u32::from(!passed);
        let bytes = &mut self.stats.delivered_bytes;
        *bytes = bytes.saturating_sub(u64::from(sent.length));
        let arrived = &mut self.stats.arrived[usize::from(sent.level) & (LEVELS - 1)];
        *arrived = arrived.saturating_sub(1);
    }

    fn count(&mut self, sent: &Sent) {
        let level = usize::from(sent.level) & (LEVELS - 1);
        self.stats.arrived[level] += 1;
    }

    /// How many are in flight in class 0 although the same has arrived.
    pub fn echoes(&self) -> u32 {
        self.echoes.len() as u32
    }

    /// A segment that class 0 has on its way has arrived by this loop.
    pub fn add_echo(&mut self, number: Number, sent: Sent) {
        if !sent.is(Sent::CAME) {
            self.count(&sent);
        }
        let place = self.echoes.partition_point(|(other, _)| other.before(number));
        self.echoes.insert(place, (number, sent));
    }
}

impl Sent {
    /// The ACK of class 0 covers this segment by what the second loop brought: what the first sent is younger than what is
    /// being answered.
    pub fn is_echo(&self, number: Number, ack: &Segment) -> bool {
        self.is(Sent::RC3) && self.transmission == 1 && !self.is(Sent::LOST) && ack.echo.before(number)
    }
}
