//! What is going to happen, in order of time.
//!
//! An event is one 128-bit number: its time, what it is, and whose it is. Events of one moment
//! happen in the order of these numbers and not in that in which they were scheduled. So no count
//! that all parts of a network would have to share decides anything, and a network that is divided
//! over threads can give the same digest as one that is not. Events that agree in everything are
//! the same event, so that it does not matter which of them is first. They wait in a timing wheel,
//! which costs the same whatever their number.

mod heap;
#[cfg(test)]
mod independence;
mod wheel;

use ccplane_units::Time;

use wheel::Wheel;

/// What happens. Of what happens at one moment, the first of these is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The oldest packet on a link comes to its end.
    Arrive,
    /// A link whose queue decides at departure has something to do.
    LinkReady,
    /// A host's interface can take packets again.
    NicReady,
    /// A deadline of one end of a flow.
    Timeout,
    /// One end of a flow may send its next paced packet.
    Pace,
    /// One end of a flow has been given something to send.
    Kick,
    /// A host sends a datagram.
    Datagram,
    /// A flow begins.
    Start,
    /// An application asked to be woken.
    App,
    /// The network changes.
    Change,
    /// Reports come to the agents, or commands from them.
    Steer,
    /// The agents have something to do.
    AgentDeadline,
    /// A bundle's boxes have something to do.
    Bundle,
}

/// An event: time (56 bits, ns), kind (4 bits), rank (40 bits), which one (28 bits).
///
/// What is the network's own (a link, a host, an agent) keeps its number for the whole run, and has
/// rank 0. The place of a flow's end does not: which place is free depends on what else has ended.
/// Its events are ranked by the flow's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event(u128);

/// The last moment that a simulation can reach: 833 days.
pub(crate) const LAST: Time = Time::from_nanos((1 << 56) - 1);
/// Links, hosts, packets, ends of flows: of each at most so many.
pub(crate) const MOST: usize = 1 << 28;

impl Event {
    #[inline(always)]
    fn new(at: Time, kind: Kind, rank: u64, which: u32) -> Event {
        let high = at.as_nanos() << 8 | u64::from(kind as u8) << 4 | rank >> 36;
        Event(u128::from(high) << 64 | u128::from(rank << 28 | u64::from(which)))
    }

    #[inline(always)]
    fn nanos(self) -> u64 {
        (self.0 >> 72) as u64
    }

    /// When it happens.
    #[inline(always)]
    pub fn at(self) -> Time {
        Time::from_nanos(self.nanos())
    }

    /// What happens.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        const KINDS: [Kind; 16] = [
            Kind::Arrive,
            Kind::LinkReady,
            Kind::NicReady,
            Kind::Timeout,
            Kind::Pace,
            Kind::Kick,
            Kind::Datagram,
            Kind::Start,
            Kind::App,
            Kind::Change,
            Kind::Steer,
            Kind::AgentDeadline,
            Kind::Bundle,
            // Never made.
            Kind::Bundle,
            Kind::Bundle,
            Kind::Bundle,
        ];
        KINDS[(self.0 >> 68) as usize & 15]
    }

    /// To which link, host, packet or end.
    #[inline(always)]
    pub fn which(self) -> u32 {
        self.0 as u32 & (MOST as u32 - 1)
    }
}

/// Everything that is going to happen.
#[derive(Debug, Default)]
pub(crate) struct Events {
    wheel: Wheel,
    scheduled: u64,
}

impl Events {
    /// Schedules an event; one that lies beyond [`LAST`] never happens.
    #[inline(always)]
    pub fn push(&mut self, at: Time, kind: Kind, which: u32) {
        self.push_ranked(at, kind, 0, which);
    }

    /// The same for an end of a flow: `e` is its place, which is even at the sender.
    #[inline(always)]
    pub fn push_end(&mut self, at: Time, kind: Kind, flow: u32, e: u32) {
        self.push_ranked(at, kind, u64::from(flow) << 1 | u64::from(e & 1), e);
    }

    #[inline(always)]
    fn push_ranked(&mut self, at: Time, kind: Kind, rank: u64, which: u32) {
        if at > LAST {
            return;
        }
        self.wheel.push(Event::new(at, kind, rank, which));
        self.scheduled += 1;
    }

    /// The next event, if it happens by `until`.
    #[inline(always)]
    pub fn pop(&mut self, until: Time) -> Option<Event> {
        self.wheel.pop(until.as_nanos())
    }

    /// How many have happened.
    pub fn happened(&self) -> u64 {
        self.wheel.popped()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        (self.scheduled - self.wheel.popped()) as usize
    }

    /// Bytes of memory taken.
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
        let most = MOST as u32 - 1;
        let rank = (1 << 33) - 1;
        let event = Event::new(LAST, Kind::AgentDeadline, rank, most);
        assert_eq!(
            (event.at(), event.kind(), event.which()),
            (LAST, Kind::AgentDeadline, most)
        );
        let event = Event::new(Time::from_nanos(7), Kind::Pace, 1 << 32 | 5, 3);
        assert_eq!(
            (event.at(), event.kind(), event.which()),
            (Time::from_nanos(7), Kind::Pace, 3)
        );
        // Time first, then the kind, then the flow, and its place last.
        let ordered = [
            Event::new(Time::from_nanos(7), Kind::Arrive, rank, most),
            Event::new(Time::from_nanos(7), Kind::Timeout, 1, most),
            Event::new(Time::from_nanos(7), Kind::Timeout, 1 << 32, 0),
            Event::new(Time::from_nanos(7), Kind::Timeout, 1 << 32, 1),
            Event::new(Time::from_nanos(8), Kind::Arrive, 0, 0),
        ];
        assert!(ordered.is_sorted());
    }

    proptest! {
        /// Whatever comes in whatever order, and however many wait, events leave by time, then by
        /// kind, then by whose they are.
        #[test]
        fn leave_by_time_then_by_kind_then_by_rank(
            // How far ahead each is scheduled (log scale), what it is, and whether one is taken
            // after it.
            steps in prop::collection::vec((0_u32..40, any::<u32>(), any::<bool>(), 0_u64..1 << 33, 0_u8..3), 1..3_000),
        ) {
            let mut events = Events::default();
            let mut model = std::collections::BTreeSet::new();
            let mut now = 0;
            for (n, (log, noise, app, rank, takes)) in steps.into_iter().enumerate() {
                let ahead = (u64::from(noise) << 8) >> (40 - log);
                let kind = if app { Kind::App } else { Kind::Pace };
                events.push_ranked(Time::from_nanos(now + ahead), kind, rank, n as u32);
                model.insert((now + ahead, kind as u8, rank, n as u32));
                // Mostly more come than go, so that the wheel is used.
                if takes == 0 || n % 500 > 400 {
                    let until = now + (1 << 20);
                    let expected = model.first().copied().filter(|(at, ..)| *at <= until);
                    let event = events.pop(Time::from_nanos(until)).map(|e| (e.at().as_nanos(), e.which()));
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
            while let Some(event) = events.pop(LAST) {
                let expected = model.pop_first().map(|(at, .., which)| (at, which));
                prop_assert_eq!(expected, Some((event.at().as_nanos(), event.which())));
            }
            prop_assert!(model.is_empty());
        }
    }
}
