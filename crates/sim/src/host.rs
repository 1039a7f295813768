//! Network interface of a host and the scheduling of its endpoints.
//!
//! A host hands its link a packet only when the link can send it soon. Unsent data stays with its
//! connection, which decides what to send at the last moment. Flows are served round robin. Classes
//! have strict priority: a lower class sends only when no higher class has data waiting.

use std::collections::{BTreeMap, VecDeque};

use ccplane_transport::CLASS_COUNT;
use ccplane_units::{Duration, Time};

use crate::endpoint::FlowEndpoint;
use crate::event::{EventKind, EventQueue};
use crate::link::OfferOutcome;
use crate::{Simulation, Tracer, World};

/// Full-sized packets that may wait behind the one in transmission on a host's link. With none,
/// every packet would need its own event; with many, a high-priority packet would queue behind
/// them.
pub(crate) const NIC_QUEUE_PACKETS: u64 = 2;

/// Interface by which a host sends.
#[derive(Debug)]
pub(crate) struct Nic {
    pub link: u32,
    /// Time at which the link will have sent everything it was given.
    pub busy_until: Time,
    /// The interface can take another packet if the link's work takes no longer than this.
    pub slack: Duration,
    /// Maximum backlog in bytes, for a queue that decides on dequeue and therefore has no `until`.
    pub backlog_max: u64,
    /// An event is scheduled.
    pub event_scheduled: bool,
    /// Endpoints with packets of class 0, in round-robin order.
    pub waiting: VecDeque<u32>,
}

/// A `Nic` fills one cache line, and indexing is a shift.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Nic>() == 64);

/// Endpoints with packets in bands below the highest, in round-robin order, by interface and band.
#[derive(Debug, Default)]
pub(crate) struct LowBandQueues(BTreeMap<(u32, u8), VecDeque<u32>>);

impl Nic {
    pub fn new(link: u32, full_packet: Duration, mtu: u32) -> Nic {
        Nic {
            link,
            busy_until: Time::ZERO,
            slack: full_packet * NIC_QUEUE_PACKETS,
            backlog_max: NIC_QUEUE_PACKETS * u64::from(mtu),
            event_scheduled: false,
            waiting: VecDeque::new(),
        }
    }

    /// Returns true if the interface can take a packet.
    #[inline(always)]
    pub fn can_send(&self, now: Time) -> bool {
        self.busy_until <= now + self.slack
    }

    /// Returns true if the interface can take a packet of a lower class. It must be idle, since no
    /// higher-priority packet may wait behind it.
    fn can_send_low(&self, now: Time) -> bool {
        self.busy_until <= now
    }

    /// Schedules an event for the time at which the link is idle, because lower classes are
    /// waiting.
    fn schedule_low_fetch(&mut self, now: Time, me: u32, events: &mut EventQueue) {
        if !self.event_scheduled && self.busy_until != Time::MAX {
            self.event_scheduled = true;
            events.push(self.busy_until.max(now), EventKind::NicReady, me);
        }
    }

    /// Schedules an event for the time at which all but the last given packet are sent, because
    /// endpoints are waiting.
    pub fn schedule_fetch(&mut self, now: Time, me: u32, events: &mut EventQueue) {
        if !self.event_scheduled && self.busy_until != Time::MAX {
            self.event_scheduled = true;
            events.push(
                (self.busy_until - self.slack / NIC_QUEUE_PACKETS).max(now),
                EventKind::NicReady,
                me,
            );
        }
    }
}

impl LowBandQueues {
    /// Returns true if an endpoint waits at this interface in this band or a higher one.
    fn has_waiting(&self, nic: u32, band: u8) -> bool {
        let mut at_link = self.0.range((nic, 0)..=(nic, band));
        at_link.any(|(_, waiting)| !waiting.is_empty())
    }

    fn push(&mut self, nic: u32, band: u8, e: u32) {
        self.0.entry((nic, band)).or_default().push_back(e);
    }

    /// Removes the next endpoint of the highest band, and returns it with the band.
    fn pop(&mut self, nic: u32) -> Option<(u32, u8)> {
        let mut at_link = self.0.range_mut((nic, 0)..=(nic, u8::MAX));
        at_link.find_map(|((_, band), waiting)| Some((waiting.pop_front()?, *band)))
    }

    /// Removes an endpoint.
    pub fn remove_end(&mut self, nic: u32, e: u32) {
        let at_link = self.0.range_mut((nic, 0)..=(nic, u8::MAX));
        at_link.for_each(|(_, waiting)| waiting.retain(|waiting| *waiting != e));
    }

    /// Approximate heap memory, bytes.
    pub fn heap_bytes(&self) -> usize {
        let waiting: usize = self.0.values().map(VecDeque::capacity).sum();
        self.0.len() * size_of::<((u32, u8), VecDeque<u32>)>() + waiting * size_of::<u32>()
    }
}

impl<T: Tracer> Simulation<T> {
    /// Sends what an endpoint may send and schedules its timers.
    #[inline(always)]
    pub(crate) fn pump(&mut self, e: u32) {
        while let Some((nic, id, offered)) = self.pump_fast_path(e) {
            self.on_offered(nic, id, offered);
        }
    }

    /// Sends until an offered packet needs more than the common handling, which is left to the
    /// caller.
    #[inline(always)]
    fn pump_fast_path(&mut self, e: u32) -> Option<(u32, u32, OfferOutcome)> {
        let world = &mut self.world;
        let now = world.now;
        let end = &mut world.ends[e as usize];
        if end.flags & (FlowEndpoint::QUEUED | FlowEndpoint::BAND) == 0 {
            let nic = &mut world.nics[end.nic as usize];
            let latest = now + nic.slack;
            loop {
                if nic.busy_until > latest || !nic.waiting.is_empty() {
                    if end.has_data(now, 0) {
                        end.flags |= FlowEndpoint::QUEUED;
                        nic.waiting.push_back(e);
                        nic.schedule_fetch(now, end.nic, &mut world.events);
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
                    OfferOutcome::Departs(departs) if !T::ENABLED => nic.busy_until = departs,
                    rare => return Some((end.nic, sent.0, rare)),
                }
            }
        }
        if end.schedule_deadlines(now, e, &world.steered, &mut world.events)
            || end.has_flag(FlowEndpoint::USES_LOW_BANDS)
        {
            self.pump_slow_path(e);
        }
        None
    }

    /// Handles endpoints that send in lower bands or are closed.
    #[cold]
    #[inline(never)]
    fn pump_slow_path(&mut self, e: u32) {
        if self.world.ends[e as usize].has_flag(FlowEndpoint::USES_LOW_BANDS) {
            self.pump_low(e);
        }
        self.world.schedule_end(e);
    }

    /// Sends what an endpoint may send in lower bands.
    fn pump_low(&mut self, e: u32) {
        loop {
            let world = &mut self.world;
            let now = world.now;
            let end = &mut world.ends[e as usize];
            let place = end.nic;
            // The highest class that is not queued yet.
            let classes = end.low_classes(now);
            let class = classes.trailing_zeros() as u8;
            if class >= CLASS_COUNT {
                return;
            }
            let nic = &mut world.nics[place as usize];
            if !nic.can_send_low(now)
                || !nic.waiting.is_empty()
                || world.low_bands.has_waiting(place, end.band() + class)
            {
                world.queue_low(e, classes);
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
            self.on_offered(place, sent.0, offered);
        }
    }

    /// Handles the result of offering a packet to the host's link.
    fn on_offered(&mut self, nic: u32, id: u32, offered: OfferOutcome) {
        let link = self.world.nics[nic as usize].link;
        self.trace_offer(link, id, offered);
        match offered {
            OfferOutcome::Departs(departs) => self.world.nics[nic as usize].busy_until = departs,
            OfferOutcome::Queued => self.world.update_room(nic),
            OfferOutcome::Dropped(_) => {}
        }
    }

    /// Takes packets from the waiting endpoints in turn.
    pub(crate) fn send_waiting(&mut self, nic: u32) {
        let now = self.world.now;
        while self.world.nics[nic as usize].can_send(now) {
            let world = &mut self.world;
            let own = &mut world.nics[nic as usize];
            let first = own.waiting.pop_front().map(|e| (e, 0));
            let next = match first {
                None if own.can_send_low(now) => world.low_bands.pop(nic),
                first => first,
            };
            let Some((e, band)) = next else { break };
            let end = &mut world.ends[e as usize];
            let class = band.saturating_sub(end.band());
            let highest = first.is_some();
            let flag = if highest {
                FlowEndpoint::QUEUED
            } else {
                FlowEndpoint::low_queued(class)
            };
            end.set_flag(flag, false);
            let sent = end.send(
                now,
                (e, class),
                &mut world.packets,
                &mut world.clocks,
                world.spray,
            );
            if highest && sent.is_some() && end.has_data(now, 0) {
                end.set_flag(FlowEndpoint::QUEUED, true);
                world.nics[nic as usize].waiting.push_back(e);
            }
            if end.has_flag(FlowEndpoint::USES_LOW_BANDS) {
                // The next packet may be of another class.
                let classes = end.low_classes(now);
                world.queue_low(e, classes);
            }
            if let Some(sent) = sent {
                let link = world.nics[nic as usize].link;
                let offered =
                    world
                        .links
                        .offer(now, link, sent, &mut world.packets, &mut world.events);
                self.on_offered(nic, sent.0, offered);
            }
            self.world.schedule_end(e);
        }
        let world = &mut self.world;
        let own = &mut world.nics[nic as usize];
        if !own.waiting.is_empty() {
            own.schedule_fetch(now, nic, &mut world.events);
        } else if world.low_bands.has_waiting(nic, u8::MAX) {
            own.schedule_low_fetch(now, nic, &mut world.events);
        }
    }
}

impl World {
    /// Queues an endpoint with these classes in lower bands.
    fn queue_low(&mut self, e: u32, classes: u8) {
        let end = &mut self.ends[e as usize];
        let nic = end.nic;
        for class in (0..CLASS_COUNT).filter(|class| classes >> class & 1 != 0) {
            end.set_flag(FlowEndpoint::low_queued(class), true);
            self.low_bands.push(nic, end.band() + class, e);
        }
        let own = &mut self.nics[nic as usize];
        if classes != 0 && own.waiting.is_empty() {
            own.schedule_low_fetch(self.now, nic, &mut self.events);
        }
    }

    /// Schedules an endpoint's deadlines, and closes it if it is finished.
    fn schedule_end(&mut self, e: u32) {
        if self.ends[e as usize].schedule_deadlines(self.now, e, &self.steered, &mut self.events) {
            self.on_closed(e);
        }
    }

    /// Updates an interface whose queue decides on dequeue.
    pub(crate) fn update_room(&mut self, nic: u32) {
        let n = &mut self.nics[nic as usize];
        if let Some(backlog) = self.links.shaped_backlog(n.link) {
            n.busy_until = if backlog.bytes > n.backlog_max {
                Time::MAX
            } else {
                Time::ZERO
            };
        }
    }
}
