//! Log of the last 1,024 gateway and peer events, for status clients.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ccplane_units::Time;
use serde::Serialize;

/// Capacity of the log. A peer changes mode at most a few times per minute.
const EVENTS_MAX: usize = 1_024;

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayEvent {
    /// Sequence number, starting at 1.
    pub number: u64,
    /// Time since the gateway started, seconds.
    pub at: f64,
    /// Name of the peer; empty for events of the gateway itself.
    pub peer: String,
    /// Kind of event: `mode`, `endpoint`, `keys`, `reload`, …
    pub what: &'static str,
    /// Description for people.
    pub text: String,
}

#[derive(Debug, Default)]
pub(crate) struct EventLog {
    list: Mutex<(u64, VecDeque<GatewayEvent>)>,
    event_added: Condvar,
}

impl EventLog {
    /// Appends an event and wakes waiting clients.
    pub fn record(&self, now: Time, peer: &str, what: &'static str, text: String) {
        tracing::info!(peer, what, "{text}");
        let mut list = self.lock();
        list.0 += 1;
        let event = GatewayEvent {
            number: list.0,
            at: now.as_secs_f64(),
            peer: peer.to_owned(),
            what,
            text,
        };
        if list.1.len() == EVENTS_MAX {
            list.1.pop_front();
        }
        list.1.push_back(event);
        self.event_added.notify_all();
    }

    /// Returns the events after `number`; if there are none, waits up to `patience` for one.
    #[expect(
        clippy::disallowed_methods,
        reason = "the status thread waits in real time"
    )]
    pub fn events_after(&self, number: u64, timeout: Duration) -> Vec<GatewayEvent> {
        let list = self.lock();
        let none = |list: &mut (u64, VecDeque<GatewayEvent>)| list.0 <= number;
        let (list, _) = self
            .event_added
            .wait_timeout_while(list, timeout, none)
            .unwrap_or_else(PoisonError::into_inner);
        list.1
            .iter()
            .filter(|event| event.number > number)
            .cloned()
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, (u64, VecDeque<GatewayEvent>)> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_events_are_kept() {
        let events = EventLog::default();
        assert_eq!(events.events_after(0, Duration::ZERO), []);
        for n in 0..EVENTS_MAX + 10 {
            events.record(Time::from_micros(n as u64), "b", "mode", format!("{n}"));
        }
        let all = events.events_after(0, Duration::ZERO);
        assert_eq!((all.len(), all[0].number), (EVENTS_MAX, 11));
        let last = all[EVENTS_MAX - 1].number;
        assert_eq!(events.events_after(last, Duration::from_millis(1)), []);
        assert_eq!(events.events_after(last - 2, Duration::ZERO).len(), 2);
    }
}
