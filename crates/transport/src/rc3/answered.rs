//! What acknowledgements say to RC3, and what both class 0 and RC3 have in flight.

#[cfg(test)]
mod tests;

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
    /// The first call, before anything else. Returns what the ACK says to class 0, `None` where
    /// that is nothing.
    pub(crate) fn hear(&mut self, segment: &Segment, side: &Side) -> Option<Told> {
        if segment.class != 0 {
            self.take_rc3(segment, side);
            return None;
        }
        let mut told = Told::read(segment, side, &self.flight, |start, end| {
            self.sent_by_rc3(start, end)
        })?;
        if let (Some(duplicate), Some(rc3)) = (told.duplicate, self.rc3.as_deref_mut())
            && rc3.sent.find(duplicate.start).is_some()
        {
            // RC3 and class 0 have met: nothing was retransmitted in vain.
            rc3.stats.duplicates += 1;
            told.duplicate = None;
        }
        if self.flight.echoes() != 0 {
            told.answered = self.take_echo(segment);
        }
        Some(told)
    }

    /// The second call. Class 0 takes what the ACK says to it, without the segments that RC3
    /// delivered.
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
    /// An ACK in a class above 0 says which of RC3's segments arrived. It causes no growth, RTT
    /// sample or loss. Its cumulative part counts for class 0 only where class 0 has nothing in
    /// flight or everything has arrived, as no other ACK may come then.
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
            let ranges = if segment.has_side() {
                side.ranges()
            } else {
                &[]
            };
            for range in ranges.iter().copied().chain([covered]) {
                if let Some(range) =
                    clip(range, next, cut).filter(|range| self.sent_by_rc3(range.start, range.end))
                {
                    self.arrived_by_rc3(range);
                }
            }
        }
        if segment.ack == cut && self.flags.fin_cut && (next == cut || self.sent_by_rc3(next, cut))
        {
            self.settle(segment);
        }
        self.pass_arrived();
        if self.flight.una() == self.flight.next() && self.flight.una() == segment.ack {
            self.limit = self
                .limit
                .max(self.flight.una_offset() + u64::from(segment.window));
        }
    }

    /// RC3 sent all of these segments. An honest peer acknowledges no others from `next` on.
    fn sent_by_rc3(&self, start: Number, end: Number) -> bool {
        self.rc3
            .as_deref()
            .is_some_and(|rc3| rc3.sent_all(start, end))
    }

    /// Segments that class 0 has not sent have arrived.
    fn arrived_by_rc3(&mut self, range: Range) {
        let (Some(repair), Some(rc3)) = (self.repair.as_deref_mut(), self.rc3.as_deref_mut())
        else {
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

    /// Everything has arrived. No ACK of class 0 need come to say so.
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

    /// Counts the answered segment, and checks in which class it arrived.
    fn note_answer(&mut self, segment: &Segment, side: &Side) {
        let verify = self.config.rc3.is_some_and(|rc3| rc3.verify);
        let Some(rc3) = self.rc3.as_deref_mut() else {
            return;
        };
        if segment.has_side()
            && side
                .duplicate()
                .is_some_and(|range| rc3.sent.find(range.start).is_some())
        {
            rc3.stats.duplicates += 1;
        }
        let echoed = segment.echo_transmission != 0
            && segment.echo.within(self.flight.una(), self.flight.cut());
        if echoed {
            let sent = self.flight.get(segment.echo);
            if sent.is(Sent::RC3) && !sent.is(Sent::CAME) && sent.transmission > 0 {
                rc3.count(sent);
                self.flight.came(segment.echo);
            }
        }
        if segment.echo_band == 1 && verify && rc3.stats.stopped.is_none() {
            rc3.stats.stopped = Some(Rc3Stop::Marking {
                class: segment.class,
            });
        }
    }

    /// What RC3 did; `None` where it never sent.
    pub fn rc3_stats(&self) -> Option<&Rc3Stats> {
        self.rc3.as_ref().map(|rc3| &rc3.stats)
    }

    /// What the peer's RC3 has sent here; `None` where nothing came.
    pub fn rc3_arrivals(&self) -> Option<Rc3Arrivals> {
        self.receiver.rc3_arrivals()
    }

    /// Class 0 skips segments that RC3 has delivered.
    #[inline(always)]
    pub(crate) fn pass_arrived(&mut self) {
        self.flight.pass_arrived();
        if self.flight.passed() != 0 {
            self.join_passed();
        }
    }

    /// Skipped segments that follow what is acknowledged count as acknowledged.
    #[cold]
    fn join_passed(&mut self) {
        if self.flight.join_passed()
            && let (Some(repair), Some(rc3)) = (self.repair.as_deref_mut(), self.rc3.as_deref_mut())
        {
            repair.sacked.forget_before(self.flight.una());
            rc3.stats.bumps += 1;
        }
    }

    /// The answered segment of class 0, if it is an echo. Echoes sent before it are no longer in
    /// flight: they, or their answers, are lost.
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

    /// When the echoes in flight count as lost.
    pub(crate) fn echoes_end(&self) -> Option<Time> {
        let (_, last) = self
            .rc3
            .as_ref()
            .filter(|_| self.flight.echoes() != 0)?
            .echoes
            .back()?;
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
    /// RC3 sent all of these segments, not long ago.
    pub fn sent_all(&self, start: Number, end: Number) -> bool {
        self.sent
            .find(start)
            .is_some_and(|range| !range.end.before(end))
    }

    /// An ACK of class 0 newly covers a segment that RC3 sent. Returns true where class 0's own
    /// copy did not arrive by it. The cumulative ACK has stepped over a segment before this call; a
    /// SACK range has not marked it yet.
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
            // RC3's copy has arrived, and class 0's own is in flight.
            if !cumulative {
                flight.on_echoed(number);
            }
            self.add_echo(number, *sent);
            return true;
        }
        false
    }

    /// A segment arrived by RC3 alone.
    pub fn brought(&mut self, sent: &Sent) {
        debug_assert!(
            sent.is(Sent::RC3) && sent.transmission == 0,
            "class 0 has sent it, or RC3 has not"
        );
        self.stats.flying = self.stats.flying.saturating_sub(1);
        self.stats.delivered_bytes += u64::from(sent.length);
        self.count(sent);
    }

    /// A segment that had arrived by RC3 alone counts as missing again. `passed`: class 0 had
    /// skipped it, and has to send it now.
    pub fn disbelieve(&mut self, sent: &Sent, passed: bool) {
        debug_assert!(
            sent.is(Sent::RC3) && sent.transmission == 0,
            "only what arrived by RC3 alone was counted"
        );
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

    /// Number of echoes.
    pub fn echoes(&self) -> u32 {
        self.echoes.len() as u32
    }

    /// RC3's copy of a segment that class 0 has in flight has arrived.
    pub fn add_echo(&mut self, number: Number, sent: Sent) {
        if !sent.is(Sent::CAME) {
            self.count(&sent);
        }
        debug_assert!(
            sent.is(Sent::RC3) && sent.transmission == 1,
            "an echo was sent by both, once by each"
        );
        let place = self
            .echoes
            .partition_point(|(other, _)| other.before(number));
        self.echoes.insert(place, (number, sent));
    }
}

impl Sent {
    /// The ACK covers this segment because RC3's copy arrived: class 0's own was sent after the
    /// answered segment.
    pub fn is_echo(&self, number: Number, ack: &Segment) -> bool {
        self.is(Sent::RC3)
            && self.transmission == 1
            && !self.is(Sent::LOST)
            && ack.echo.before(number)
    }
}
