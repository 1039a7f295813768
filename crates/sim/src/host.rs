//! A host's link, and who waits for it.
//!
//! The host gives its link a packet only when that can take one soon: what is not sent yet stays with its connection,
//! which may still decide otherwise, and flows take turns.

use std::collections::VecDeque;

use ccplane_units::{Duration, Time};

use crate::event::{Events, Kind};

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
