//! A host's link, and who waits for it.
//!
//! A host gives its link a packet only when the link can take one soon. What is not sent yet stays
//! with its connection, which may still decide otherwise. Flows take turns. Classes have strict
//! priority: a lower class sends only when nothing of a higher one waits.

use std::collections::{BTreeMap, VecDeque};

use ccplane_transport::MAX_CLASSES;
use ccplane_units::{Duration, Time};

use crate::end::End;
use crate::event::{Events, Kind};
use crate::link::Offered;
use crate::{Simulation, Tracer, World};

/// Full packets that may wait behind the one that a host's link is sending. With none, each packet
/// would need an event of its own. With many, a packet of high priority would wait behind them.
pub(crate) const RING: u64 = 2;

/// The link by which a host sends, as the host sees it.
#[derive(Debug)]
pub(crate) struct Nic {
    pub link: u32,
    /// When all it was given will have left.
    pub until: Time,
    /// It can take another packet when what it has takes no longer than this.
    pub slack: Duration,
    /// Most bytes in a queue that decides at departure, and so has no `until`.
    pub room: u64,
    /// An event for it is planned.
    pub armed: bool,
    /// Ends that have something to send in class 0, in turn.
    pub waiting: VecDeque<u32>,
}

/// A cache line, and its place in a list is found by a shift.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Nic>() == 64);

/// Ends that have something to send in a band below the highest, in turn, by their host's link and
/// the band.
#[derive(Debug, Default)]
pub(crate) struct Low(BTreeMap<(u32, u8), VecDeque<u32>>);

impl Nic {
    pub fn new(link: u32, full_packet: Duration, mtu: u32) -> Nic {
        Nic {
            link,
            until: Time::ZERO,
            slack: full_packet * RING,
            room: RING * u64::from(mtu),
            armed: false,
            waiting: VecDeque::new(),
        }
    }

    /// Whether it can take a packet.
    #[inline(always)]
    pub fn takes(&self, now: Time) -> bool {
        self.until <= now + self.slack
    }

    /// Whether it can take a packet of a class below class 0: nothing is to wait behind that.
    fn takes_low(&self, now: Time) -> bool {
        self.until <= now
    }

    /// Sees that it has its event, when it has sent all, since someone waits for it with classes
    /// below class 0.
    fn arm_low(&mut self, now: Time, me: u32, events: &mut Events) {
        if !self.armed && self.until != Time::MAX {
            self.armed = true;
            events.push(self.until.max(now), Kind::NicReady, me);
        }
    }

    /// Sees that it has its event, since someone waits for it: the next packets are fetched when
    /// all but the last of those that it has been given are sent.
    pub fn arm(&mut self, now: Time, me: u32, events: &mut Events) {
        if !self.armed && self.until != Time::MAX {
            self.armed = true;
            events.push(
                (self.until - self.slack / RING).max(now),
                Kind::NicReady,
                me,
            );
        }
    }
}

impl Low {
    /// Whether someone waits at this link with something of this band or a higher one.
    fn has(&self, nic: u32, band: u8) -> bool {
        let mut at_link = self.0.range((nic, 0)..=(nic, band));
        at_link.any(|(_, waiting)| !waiting.is_empty())
    }

    fn push(&mut self, nic: u32, band: u8, e: u32) {
        self.0.entry((nic, band)).or_default().push_back(e);
    }

    /// Whose turn it is at this link, and in what band.
    fn pop(&mut self, nic: u32) -> Option<(u32, u8)> {
        let mut at_link = self.0.range_mut((nic, 0)..=(nic, u8::MAX));
        at_link.find_map(|((_, band), waiting)| Some((waiting.pop_front()?, *band)))
    }

    /// An end is no more.
    pub fn forget(&mut self, nic: u32, e: u32) {
        let at_link = self.0.range_mut((nic, 0)..=(nic, u8::MAX));
        at_link.for_each(|(_, waiting)| waiting.retain(|waiting| *waiting != e));
    }

    /// Bytes on the heap, about.
    pub fn heap_bytes(&self) -> usize {
        let waiting: usize = self.0.values().map(VecDeque::capacity).sum();
        self.0.len() * size_of::<((u32, u8), VecDeque<u32>)>() + waiting * size_of::<u32>()
    }
}

impl<T: Tracer> Simulation<T> {
    /// An end sends what it may, and its timers are planned.
    #[inline(always)]
    pub(crate) fn pump(&mut self, e: u32) {
        while let Some((nic, id, offered)) = self.pump_until_rare(e) {
            self.settle(nic, id, offered);
        }
    }

    /// An end sends until something other than a departure comes of it, which is for the caller.
    #[inline(always)]
    fn pump_until_rare(&mut self, e: u32) -> Option<(u32, u32, Offered)> {
        let world = &mut self.world;
        let now = world.now;
        let end = &mut world.ends[e as usize];
        if end.flags & (End::QUEUED | End::BAND) == 0 {
            let nic = &mut world.nics[end.nic as usize];
            let latest = now + nic.slack;
            loop {
                if nic.until > latest || !nic.waiting.is_empty() {
                    if end.has(now, 0) {
                        end.flags |= End::QUEUED;
                        nic.waiting.push_back(e);
                        nic.arm(now, end.nic, &mut world.events);
                    }
                    break;
                }
                let Some(sent) = end.send(
                    now,
                    (e, 0),
                    &mut world.packets,
                    &mut world.clocks,
                    world.spray,
                ) else {
                    break;
                };
                let offered =
                    world
                        .links
                        .offer(now, nic.link, sent, &mut world.packets, &mut world.events);
                match offered {
                    Offered::Departs(departs) if !T::ON => nic.until = departs,
                    rare => return Some((end.nic, sent.0, rare)),
                }
            }
        }
        if end.plan(now, e, &world.steered, &mut world.events) || end.is(End::LOW) {
            self.finish_pump(e);
        }
        None
    }

    /// What is left to do for an end that sends in bands below the highest, or is over.
    #[cold]
    #[inline(never)]
    fn finish_pump(&mut self, e: u32) {
        if self.world.ends[e as usize].is(End::LOW) {
            self.pump_low(e);
        }
        self.world.plan_end(e);
    }

    /// An end sends what it may in bands below the highest.
    fn pump_low(&mut self, e: u32) {
        loop {
            let world = &mut self.world;
            let now = world.now;
            let end = &mut world.ends[e as usize];
            let place = end.nic;
            // The highest of those in which it does not wait already.
            let classes = end.low_classes(now);
            let class = classes.trailing_zeros() as u8;
            if class >= MAX_CLASSES {
                return;
            }
            let nic = &mut world.nics[place as usize];
            if !nic.takes_low(now)
                || !nic.waiting.is_empty()
                || world.low.has(place, end.band() + class)
            {
                world.wait_low(e, classes);
                return;
            }
            let Some(sent) = end.send(
                now,
                (e, class),
                &mut world.packets,
                &mut world.clocks,
                world.spray,
            ) else {
                return;
            };
            let offered =
                world
                    .links
                    .offer(now, nic.link, sent, &mut world.packets, &mut world.events);
            self.settle(place, sent.0, offered);
        }
    }

    /// What comes of a packet that a host has given its link.
    fn settle(&mut self, nic: u32, id: u32, offered: Offered) {
        let link = self.world.nics[nic as usize].link;
        self.note(link, id, offered);
        match offered {
            Offered::Departs(departs) => self.world.nics[nic as usize].until = departs,
            Offered::Waits => self.world.note_room(nic),
            Offered::Dropped(_) => {}
        }
    }

    /// A host's link takes packets from those that wait, in turn.
    pub(crate) fn fetch(&mut self, nic: u32) {
        let now = self.world.now;
        while self.world.nics[nic as usize].takes(now) {
            let world = &mut self.world;
            let own = &mut world.nics[nic as usize];
            let first = own.waiting.pop_front().map(|e| (e, 0));
            let next = match first {
                None if own.takes_low(now) => world.low.pop(nic),
                first => first,
            };
            let Some((e, band)) = next else { break };
            let end = &mut world.ends[e as usize];
            let class = band.saturating_sub(end.band());
            let highest = first.is_some();
            let flag = if highest {
                End::QUEUED
            } else {
                End::low_queued(class)
            };
            end.set(flag, false);
            let sent = end.send(
                now,
                (e, class),
                &mut world.packets,
                &mut world.clocks,
                world.spray,
            );
            if highest && sent.is_some() && end.has(now, 0) {
                end.set(End::QUEUED, true);
                world.nics[nic as usize].waiting.push_back(e);
            }
            if end.is(End::LOW) {
                // What is next may be of another class than what it waited with.
                let classes = end.low_classes(now);
                world.wait_low(e, classes);
            }
            if let Some(sent) = sent {
                let link = world.nics[nic as usize].link;
                let offered =
                    world
                        .links
                        .offer(now, link, sent, &mut world.packets, &mut world.events);
                self.settle(nic, sent.0, offered);
            }
            self.world.plan_end(e);
        }
        let world = &mut self.world;
        let own = &mut world.nics[nic as usize];
        if !own.waiting.is_empty() {
            own.arm(now, nic, &mut world.events);
        } else if world.low.has(nic, u8::MAX) {
            own.arm_low(now, nic, &mut world.events);
        }
    }
}

impl World {
    /// An end waits for its turn with these classes, in bands below the highest.
    fn wait_low(&mut self, e: u32, classes: u8) {
        let end = &mut self.ends[e as usize];
        let nic = end.nic;
        for class in (0..MAX_CLASSES).filter(|class| classes >> class & 1 != 0) {
            end.set(End::low_queued(class), true);
            self.low.push(nic, end.band() + class, e);
        }
        let own = &mut self.nics[nic as usize];
        if classes != 0 && own.waiting.is_empty() {
            own.arm_low(self.now, nic, &mut self.events);
        }
    }

    /// Sees to an end's deadlines, and to its end.
    fn plan_end(&mut self, e: u32) {
        if self.ends[e as usize].plan(self.now, e, &self.steered, &mut self.events) {
            self.closed(e);
        }
    }

    /// A host's link whose queue decides at departure has room for so much.
    pub(crate) fn note_room(&mut self, nic: u32) {
        let n = &mut self.nics[nic as usize];
        if let Some(backlog) = self.links.waiting(n.link) {
            n.until = if backlog.bytes > n.room {
                Time::MAX
            } else {
                Time::ZERO
            };
        }
    }
}
