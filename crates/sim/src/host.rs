//! A host's link, and who waits for it.
//!
//! The host gives its link a packet only when that can take one soon: what is not sent yet stays with its connection,
//! which may still decide otherwise, and flows take turns.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};

use crate::end::End;
use crate::event::{Events, Kind};
use crate::link::Offered;
use crate::{Simulation, Tracer, World};

/// How many full packets may wait behind the one that a host's link is sending. With none, each packet would need an
/// event of its own to be fetched; with many, a packet of high priority would wait behind them.
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
    /// Ends that have something to send, in turn.
    pub waiting: VecDeque<u32>,
}

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

    /// Sees that it has its event, if anyone waits for it: the next packets are fetched when all but the last of those
    /// that it has been given are sent.
    pub fn arm(&mut self, now: Time, me: u32, events: &mut Events) {
        if !self.armed && !self.waiting.is_empty() && self.until != Time::MAX {
            self.armed = true;
            events.push((self.until - self.slack / RING).max(now), Kind::NicReady, me);
        }
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
        if end.flags & End::QUEUED == 0 {
            let nic = &mut world.nics[end.nic as usize];
            let latest = now + nic.slack;
            loop {
                if nic.until > latest || !nic.waiting.is_empty() {
                    if end.has(now) {
                        end.flags |= End::QUEUED;
                        nic.waiting.push_back(e);
                        nic.arm(now, end.nic, &mut world.events);
                    }
                    break;
                }
                let Some(sent) = end.send(now, e, &mut world.packets, &mut world.spray) else {
                    break;
                };
                let offered = world
                    .links
                    .offer(now, nic.link, sent, &mut world.packets, &mut world.events);
                match offered {
                    Offered::Departs(departs) if !T::ON => nic.until = departs,
                    rare => return Some((end.nic, sent.0, rare)),
                }
            }
        }
        if end.plan(now, e, &world.steered, &mut world.events) {
            world.closed(e);
        }
        None
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
            let Some(e) = self.world.nics[nic as usize].waiting.pop_front() else {
                break;
            };
            let world = &mut self.world;
            let end = &mut world.ends[e as usize];
            end.flags &= !End::QUEUED;
            if let Some(sent) = end.send(now, e, &mut world.packets, &mut world.spray) {
                if end.has(now) {
                    end.flags |= End::QUEUED;
                    world.nics[nic as usize].waiting.push_back(e);
                }
                let link = world.nics[nic as usize].link;
                let offered = world
                    .links
                    .offer(now, link, sent, &mut world.packets, &mut world.events);
                self.settle(nic, sent.0, offered);
            }
            let world = &mut self.world;
            if world.ends[e as usize].plan(now, e, &world.steered, &mut world.events) {
                world.closed(e);
            }
        }
        self.world.nics[nic as usize].arm(now, nic, &mut self.world.events);
    }
}

impl World {
    /// A host's link whose queue decides at departure has room for so much.
    pub(crate) fn note_room(&mut self, nic: u32) {
        let n = &mut self.nics[nic as usize];
        if let Some(backlog) = self.links.waiting(n.link) {
            n.until = if backlog.bytes > n.room { Time::MAX } else { Time::ZERO };
        }
    }
}
