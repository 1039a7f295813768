//! Event queue.
//!
//! An event is a 128-bit number: its time, kind, rank and object. Simultaneous events are ordered
//! by this number, not by the order of scheduling. The order therefore needs no global counter, and
//! a network partitioned over threads gives the same digest as on one thread. Events with equal
//! numbers are identical, so their order is irrelevant. Pending events are kept in a timing wheel,
//! whose cost per event does not depend on their number.

mod heap;
#[cfg(test)]
mod independence;
mod wheel;

use ccplane_units::Time;

use wheel::Wheel;

/// Kind of an event. Simultaneous events are handled in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EventKind {
    /// The oldest packet on a link arrives at the far end.
    Arrive,
    /// A link whose queue decides on dequeue has work to do.
    LinkReady,
    /// A host's interface can send again.
    NicReady,
    /// Timeout of an endpoint.
    Timeout,
    /// An endpoint may send its next paced packet.
    Pace,
    /// An endpoint got data to send.
    Kick,
    Datagram,
    Start,
    /// Wake-up of an application.
    App,
    Change,
    /// Reports reach the agents, or commands reach the datapaths.
    Steer,
    /// Deadline of an agent.
    AgentDeadline,
    /// Deadline of a sendbox or a receivebox.
    Bundle,
}

/// Event: time (56 bits, ns), kind (4 bits), rank (40 bits), object (28 bits).
///
/// Links, hosts and agents keep their numbers for the whole run and have rank 0. The index of an
/// endpoint is reused and depends on which other flows have ended, so its events are ranked by the
/// flow's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SimEvent(u128);

/// Latest possible time of a simulation: 833 days.
pub(crate) const TIME_MAX: Time = Time::from_nanos((1 << 56) - 1);
/// Maximum number of links, hosts, packets and endpoints, each.
pub(crate) const OBJECTS_MAX: usize = 1 << 28;
const _: () = assert!(ccplane_network::NODES_MAX <= OBJECTS_MAX);

impl SimEvent {
    #[inline(always)]
    fn new(at: Time, kind: EventKind, rank: u64, which: u32) -> SimEvent {
        let high = at.as_nanos() << 8 | u64::from(kind as u8) << 4 | rank >> 36;
        SimEvent(u128::from(high) << 64 | u128::from(rank << 28 | u64::from(which)))
    }

    #[inline(always)]
    fn nanos(self) -> u64 {
        (self.0 >> 72) as u64
    }

    /// Returns the time of the event.
    #[inline(always)]
    pub fn at(self) -> Time {
        Time::from_nanos(self.nanos())
    }

    /// Returns the kind of the event.
    #[inline(always)]
    pub fn kind(self) -> EventKind {
        const KINDS: [EventKind; 16] = [
            EventKind::Arrive,
            EventKind::LinkReady,
            EventKind::NicReady,
            EventKind::Timeout,
            EventKind::Pace,
            EventKind::Kick,
            EventKind::Datagram,
            EventKind::Start,
            EventKind::App,
            EventKind::Change,
            EventKind::Steer,
            EventKind::AgentDeadline,
            EventKind::Bundle,
            // Unused values of the 4-bit field.
            EventKind::Bundle,
            EventKind::Bundle,
            EventKind::Bundle,
        ];
        KINDS[(self.0 >> 68) as usize & 15]
    }

    /// Returns the index of the link, host, packet or endpoint.
    #[inline(always)]
    pub fn object_index(self) -> u32 {
        self.0 as u32 & (OBJECTS_MAX as u32 - 1)
    }
}

#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    wheel: Wheel,
    scheduled: u64,
}

impl EventQueue {
    /// Schedules an event. An event later than [`TIME_MAX`] is discarded.
    #[inline(always)]
    pub fn push(&mut self, at: Time, kind: EventKind, which: u32) {
        self.push_ranked(at, kind, 0, which);
    }

    /// Schedules an event of an endpoint. `e` is its index, which is even at the sender.
    #[inline(always)]
    pub fn push_end(&mut self, at: Time, kind: EventKind, flow: u32, e: u32) {
        self.push_ranked(at, kind, u64::from(flow) << 1 | u64::from(e & 1), e);
    }

    #[inline(always)]
    fn push_ranked(&mut self, at: Time, kind: EventKind, rank: u64, which: u32) {
        if at > TIME_MAX {
            return;
        }
        self.wheel.push(SimEvent::new(at, kind, rank, which));
        self.scheduled += 1;
    }

    /// Removes the next event if it is due by `until`.
    #[inline(always)]
    pub fn pop(&mut self, until: Time) -> Option<SimEvent> {
        self.wheel.pop(until.as_nanos())
    }

    /// Returns the number of events handled.
    pub fn handled(&self) -> u64 {
        self.wheel.popped()
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        (self.scheduled - self.wheel.popped()) as usize
    }

    /// Returns the memory used, bytes.
    pub fn memory(&self) -> usize {
        self.wheel.memory()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_keeps_what_it_was_made_of() {
        let most = OBJECTS_MAX as u32 - 1;
        let rank = (1 << 33) - 1;
        let event = SimEvent::new(TIME_MAX, EventKind::AgentDeadline, rank, most);
        assert_eq!(
            (event.at(), event.kind(), event.object_index()),
            (TIME_MAX, EventKind::AgentDeadline, most)
        );
        let event = SimEvent::new(Time::from_nanos(7), EventKind::Pace, 1 << 32 | 5, 3);
        assert_eq!(
            (event.at(), event.kind(), event.object_index()),
            (Time::from_nanos(7), EventKind::Pace, 3)
        );
        // Ordered by time, kind, flow and finally index.
        let ordered = [
            SimEvent::new(Time::from_nanos(7), EventKind::Arrive, rank, most),
            SimEvent::new(Time::from_nanos(7), EventKind::Timeout, 1, most),
            SimEvent::new(Time::from_nanos(7), EventKind::Timeout, 1 << 32, 0),
            SimEvent::new(Time::from_nanos(7), EventKind::Timeout, 1 << 32, 1),
            SimEvent::new(Time::from_nanos(8), EventKind::Arrive, 0, 0),
        ];
        assert!(ordered.is_sorted());
    }

    proptest! {
        /// Events leave in order of time, kind and rank, whatever the order and number of
        /// insertions.
        #[test]
        fn leave_by_time_then_by_kind_then_by_rank(
            // Per step: log scale of the delay, object, and whether an event is removed afterwards.
            steps in prop::collection::vec(
                (0_u32..40, any::<u32>(), any::<bool>(), 0_u64..1 << 33, 0_u8..3),
                1..3_000,
            ),
        ) {
            let mut events = EventQueue::default();
            let mut model = std::collections::BTreeSet::new();
            let mut now = 0;
            for (n, (log, noise, app, rank, takes)) in steps.into_iter().enumerate() {
                let ahead = (u64::from(noise) << 8) >> (40 - log);
                let kind = if app { EventKind::App } else { EventKind::Pace };
                events.push_ranked(Time::from_nanos(now + ahead), kind, rank, n as u32);
                model.insert((now + ahead, kind as u8, rank, n as u32));
                // More insertions than removals on average, so that the wheel fills up.
                if takes == 0 || n % 500 > 400 {
                    let until = now + (1 << 20);
                    let expected = model.first().copied().filter(|(at, ..)| *at <= until);
                    let event = events.pop(Time::from_nanos(until));
                    let event = event.map(|e| (e.at().as_nanos(), e.object_index()));
                    prop_assert_eq!(event, expected.map(|(at, .., which)| (at, which)));
                    match expected {
                        Some(first) => {
                            model.remove(&first);
                            now = first.0;
                        }
                        None => now = until,
                    }
                }
                prop_assert_eq!(events.len(), model.len());
            }
            while let Some(event) = events.pop(TIME_MAX) {
                let expected = model.pop_first().map(|(at, .., which)| (at, which));
                prop_assert_eq!(expected, Some((event.at().as_nanos(), event.object_index())));
            }
            prop_assert!(model.is_empty());
        }
    }
}
