//! Strict priority: a band is served only while every band above it is empty; within a band, first in, first out.

use std::collections::VecDeque;

use ccplane_units::Time;

use crate::{Backlog, DropReason, Drops, Limit, Packet, Qdisc, Verdict};

/// How the bands share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// Every band has this much of its own, as in Linux' `prio` with its default inner queues: a full high band drops
    /// while a low one has room.
    PerBand(Limit),
    /// All bands share this much. What finds it full pushes packets out of the tail of the lowest band that is not
    /// empty, strictly below its own, until it fits, and is dropped itself if that does not make it fit. RC3's
    /// routers are such queues: the low-priority loop never costs a normal packet its place.
    Shared(Limit),
}

/// A strict-priority queue; [`Packet::class`] is the band, and those beyond the last one are in the last.
#[derive(Clone, Debug)]
pub struct Prio<P> {
    buffer: Buffer,
    bands: Vec<Band<P>>,
    backlog: Backlog,
}

#[derive(Clone, Debug)]
struct Band<P> {
    waiting: VecDeque<P>,
    backlog: Backlog,
}

impl<P: Packet> Prio<P> {
    /// An empty queue of so many bands, at least one.
    pub fn new(bands: u8, buffer: Buffer) -> Prio<P> {
        let empty = || Band {
            waiting: VecDeque::new(),
            backlog: Backlog::default(),
        };
        Prio {
            buffer,
            bands: (0..bands.max(1)).map(|_| empty()).collect(),
            backlog: Backlog::default(),
        }
    }

    /// What waits in one band.
    pub fn band_backlog(&self, band: u8) -> Backlog {
        self.bands
            .get(usize::from(band))
            .map_or_else(Backlog::default, |band| band.backlog)
    }

    /// Whether the arrival fits, after what it may push out has been.
    fn make_room(&mut self, band: usize, bytes: u32, drops: &mut impl Drops<P>) -> bool {
        let limit = match self.buffer {
            Buffer::PerBand(limit) => return limit.admits(self.bands[band].backlog, bytes),
            Buffer::Shared(limit) => limit,
        };
        let mut lowest = self.bands.len() - 1;
        while !limit.admits(self.backlog, bytes) {
            while lowest > band && self.bands[lowest].waiting.is_empty() {
                lowest -= 1;
            }
            if lowest == band {
                return false;
            }
            if let Some(victim) = self.bands[lowest].waiting.pop_back() {
                self.bands[lowest].backlog.remove(victim.bytes());
                self.backlog.remove(victim.bytes());
                drops.dropped(victim, DropReason::PushedOut);
            }
        }
        true
    }
}

impl<P: Packet> Qdisc<P> for Prio<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drops: &mut impl Drops<P>) -> Verdict {
        let band = usize::from(packet.class()).min(self.bands.len() - 1);
        if !self.make_room(band, packet.bytes(), drops) {
            drops.dropped(packet, DropReason::Full);
            return Verdict::Dropped(DropReason::Full);
        }
        self.backlog.add(packet.bytes());
        self.bands[band].backlog.add(packet.bytes());
        self.bands[band].waiting.push_back(packet);
        Verdict::Queued
    }

    fn dequeue(&mut self, _now: Time, _drops: &mut impl Drops<P>) -> Option<P> {
        let band = self.bands.iter_mut().find(|band| !band.waiting.is_empty())?;
        let packet = band.waiting.pop_front()?;
        band.backlog.remove(packet.bytes());
        self.backlog.remove(packet.bytes());
        Some(packet)
    }

    fn next_ready(&self) -> Option<Time> {
        (self.backlog.packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
