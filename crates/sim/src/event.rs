//! What is going to happen, in order of time.
//!
//! An event is one 128-bit number: its time, the number under which it was scheduled, and what it is. Events of one
//! moment happen in the order in which they were scheduled, so that a run is the same everywhere. They wait in a timing
//! wheel, which costs the same whatever their number.

mod heap;
mod wheel;

use ccplane_units::Time;

use wheel::Wheel;

/// What happens.
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
}

/// An event: time (56 bits, ns), order (40 bits), kind (4 bits), which one (28 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event(u128);

/// The last moment that a simulation can reach: 833 days.
pub(crate) const LAST: Time = Time::from_nanos((1 << 56) - 1);
/// How many events a run may schedule.
const ORDER: u64 = 1 << 40;
/// Links, hosts, packets, ends of flows: of each at most so many.
pub(crate) const MOST: usize = 1 << 28;

impl Event {
    #[inline(always)]
    fn new(at: Time, order: u64, kind: Kind, which: u32) -> Event {
        let low = (order << 32) | (u64::from(kind as u8) << 28) | u64::from(which);
        Event((u128::from((at.as_nanos() << 8) | (order >> 32)) << 64) | u128::from(low))
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
            // Never made.
            Kind::AgentDeadline,
            Kind::AgentDeadline,
            Kind::AgentDeadline,
            Kind::AgentDeadline,
        ];
        KINDS[(self.0 as u32 >> 28) as usize]
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
    order: u64,
}

impl Events {
    /// Schedules an event; one that lies beyond [`LAST`] never happens.
    #[inline(always)]
    pub fn push(&mut self, at: Time, kind: Kind, which: u32) {
        if at > LAST {
            return;
        }
        self.wheel.push(Event::new(at, self.order, kind, which));
        self.order += 1;
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
        (self.order - self.wheel.popped()) as usize
    }

    /// Whether there were more events than a run can tell apart.
    pub fn exhausted(&self) -> bool {
        self.order >= ORDER
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
        let event = Event::new(LAST, ORDER - 1, Kind::AgentDeadline, MOST as u32 - 1);
        assert_eq!(
            (event.at(), event.kind(), event.which()),
            (LAST, Kind::AgentDeadline, MOST as u32 - 1)
        );
        let event = Event::new(Time::from_nanos(7), (1 << 39) + 5, Kind::Pace, 3);
        assert_eq!(
            (event.at(), event.kind(), event.which()),
            (Time::from_nanos(7), Kind::Pace, 3)
        );
        // Time first, then order, whatever the kind.
        assert!(
            Event::new(Time::from_nanos(7), 1 << 33, Kind::Arrive, 0)
                > Event::new(Time::from_nanos(7), 1, Kind::App, 9)
        );
        assert!(
            Event::new(Time::from_nanos(8), 0, Kind::Arrive, 0)
                > Event::new(Time::from_nanos(7), 1 << 39, Kind::App, 9)
        );
    }

    proptest! {
        /// Whatever comes in whatever order, and however many wait, events leave by time, then by order of scheduling.
        #[test]
        fn leave_by_time_then_by_order(
            // How far ahead each is scheduled (log scale), and whether one is taken after it.
            steps in prop::collection::vec((0_u32..40, any::<u32>(), 0_u8..3), 1..3_000),
        ) {
            let mut events = Events::default();
            let mut model = std::collections::BTreeSet::new();
            let mut now = 0;
            for (n, (log, noise, takes)) in steps.into_iter().enumerate() {
                let ahead = (u64::from(noise) << 8) >> (40 - log);
                events.push(Time::from_nanos(now + ahead), Kind::App, n as u32);
                model.insert((now + ahead, n as u32));
                // Mostly more come than go, so that the wheel is used.
                if takes == 0 || n % 500 > 400 {
                    let until = now + (1 << 20);
                    let expected = model.first().copied().filter(|(at, _)| *at <= until);
                    let event = events.pop(Time::from_nanos(until)).map(|e| (e.at().as_nanos(), e.which()));
                    prop_assert_eq!(event, expected);
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
                prop_assert_eq!(model.pop_first(), Some((event.at().as_nanos(), event.which())));
            }
            prop_assert!(model.is_empty());
        }
    }
}
