//! Messages over connections that persist: they arrive whatever became of those before, and wait where all are busy.

use std::collections::VecDeque;

use ccplane_units::{Bytes, Time};
use rand_pcg::Pcg64;

use super::draw::exponential;
use super::{Action, MOST_RECORDS, Pairs, SizeTable, Span};

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The connection, in the order in which the workload opened them.
    pub connection: u32,
    /// When the sender had it; until it started it waited for a connection.
    pub arrived: Time,
    /// When it was written.
    pub started: Time,
    /// When its last byte arrived.
    pub finished: Time,
    /// Its size.
    pub bytes: Bytes,
}

/// Senders of messages. Each pair has connections of its own, which are opened at the start, without data.
///
/// A message goes to the connection of its pair that was busy last, as pools of connections do. Where all are busy it
/// waits, and the first one that is free takes the one that has waited longest.
#[derive(Debug)]
pub(crate) struct Messages {
    /// Nanoseconds between arrivals.
    gap: f64,
    sizes: SizeTable,
    /// Messages in all.
    most: u64,
    span: Span,
    random: Pcg64,
    /// When the next message arrives.
    next: Option<Time>,
    arrived: u64,
    finished: u64,
    /// Connections a pair, and how many of all were looked at for opening.
    connections: u64,
    considered: u64,
    /// By the places of the pairs.
    desks: Vec<Desk>,
    /// By slots.
    open: Vec<Connection>,
    /// The last message has come: connections end when they have nothing to do.
    closing: bool,
    ready: VecDeque<Action>,
    done: Vec<Message>,
}

/// What a pair has.
#[derive(Clone, Debug, Default)]
struct Desk {
    waiting: VecDeque<Waiting>,
    /// Slots of connections with nothing to do; the last one was busy last.
    idle: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    arrived: Time,
    bytes: Bytes,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    place: u32,
    /// What is under way, and since when.
    busy: Option<(Waiting, Time)>,
}

impl Messages {
    pub fn new(
        connections: u32,
        gap: f64,
        sizes: SizeTable,
        most: Option<u64>,
        pairs: &Pairs,
        span: Span,
        random: Pcg64,
    ) -> Messages {
        let mut messages = Messages {
            gap,
            sizes,
            most: most.unwrap_or(u64::MAX),
            span,
            random,
            next: None,
            arrived: 0,
            finished: 0,
            connections: connections.into(),
            considered: 0,
            desks: vec![Desk::default(); pairs.places()],
            open: Vec::new(),
            closing: false,
            ready: VecDeque::new(),
            done: Vec::new(),
        };
        messages.next = messages.after(span.start);
        messages
    }

    pub fn next_time(&self) -> Option<Time> {
        // Without a single message there is nothing to open.
        let begins = self.next.filter(|_| self.considered == 0);
        begins.map(|_| self.span.start).or(self.next)
    }

    pub fn poll(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        if now < self.span.start || (self.arrived == 0 && self.next.is_none()) {
            return None;
        }
        // What has arrived before the connections are open is written as they are opened.
        self.take_arrivals(now, pairs);
        if let Some(open) = self.open_one(now, pairs) {
            return Some(open);
        }
        if !self.closing && self.next.is_none() {
            self.closing = true;
            let idle = self.desks.iter_mut().flat_map(|desk| desk.idle.drain(..));
            self.ready.extend(idle.map(finish));
        }
        self.ready.pop_front()
    }

    /// All that was written to the connection has arrived.
    pub fn received(&mut self, now: Time, slot: u32, back: bool) {
        let Some(connection) = self.open.get_mut(slot as usize).filter(|_| !back) else {
            return;
        };
        let Some((message, started)) = connection.busy.take() else {
            return;
        };
        self.finished += 1;
        if self.done.len() < MOST_RECORDS {
            self.done.push(Message {
                connection: slot,
                arrived: message.arrived,
                started,
                finished: now,
                bytes: message.bytes,
            });
        }
        let Some(desk) = self.desks.get_mut(connection.place as usize) else {
            return;
        };
        match desk.waiting.pop_front() {
            Some(next) => {
                connection.busy = Some((next, now));
                self.ready.push_back(write(slot, next.bytes));
            }
            None if self.closing => self.ready.push_back(finish(slot)),
            None => desk.idle.push(slot),
        }
    }

    pub fn done(&self) -> &[Message] {
        &self.done
    }

    /// Messages that have come to their sender and not to their receiver.
    pub fn unfinished(&self) -> u64 {
        self.arrived - self.finished
    }

    /// Whether every message there will be has come to its receiver.
    pub fn ended(&self) -> bool {
        self.next.is_none() && self.unfinished() == 0
    }

    /// When the message after one that arrived `at` does; none after the last, or when the time is over.
    fn after(&mut self, at: Time) -> Option<Time> {
        if self.arrived >= self.most {
            return None;
        }
        let next = at + exponential(&mut self.random, self.gap);
        (!self.span.over(next)).then_some(next)
    }

    /// Messages that have arrived by now, each to a connection of its pair or behind those that wait.
    fn take_arrivals(&mut self, now: Time, pairs: &Pairs) {
        while let Some(arrived) = self.next.filter(|at| *at <= now) {
            let pair = pairs.draw(&mut self.random);
            let bytes = self.sizes.draw(&mut self.random);
            self.arrived += 1;
            self.next = self.after(arrived);
            let message = Waiting { arrived, bytes };
            let Some((place, desk)) = pair.and_then(|(place, _)| Some((place, self.desks.get_mut(place as usize)?)))
            else {
                // There are pairs, and each has its desk.
                self.finished += 1;
                continue;
            };
            debug_assert!(desk.idle.is_empty() || desk.waiting.is_empty(), "{place}");
            let idle = desk.idle.pop();
            match idle.and_then(|slot| Some((slot, self.open.get_mut(slot as usize)?))) {
                Some((slot, connection)) => {
                    connection.busy = Some((message, now));
                    self.ready.push_back(write(slot, bytes));
                }
                None => desk.waiting.push_back(message),
            }
        }
    }

    /// The next connection to open, with what waits for it.
    fn open_one(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        let places = pairs.places() as u64;
        while self.considered < places * self.connections {
            let place = (self.considered % places) as usize;
            self.considered += 1;
            let (Some((from, to)), Some(desk)) = (pairs.get(place), self.desks.get_mut(place)) else {
                continue;
            };
            let slot = self.open.len() as u32;
            let first = desk.waiting.pop_front();
            if first.is_none() {
                desk.idle.push(slot);
            }
            self.open.push(Connection {
                place: place as u32,
                busy: first.map(|message| (message, now)),
            });
            return Some(Action::Open {
                from,
                to,
                bytes: Some(first.map_or(0, |message| message.bytes.get())),
                finish: false,
                follow: true,
            });
        }
        None
    }
}

fn write(slot: u32, bytes: Bytes) -> Action {
    Action::Write {
        slot,
        back: false,
        bytes: bytes.get(),
        finish: false,
    }
}

fn finish(slot: u32) -> Action {
    Action::Write {
        slot,
        back: false,
        bytes: 0,
        finish: true,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ccplane_units::{Duration, Rate};
    use proptest::prelude::*;

    use super::*;
    use crate::{Arrivals, NodeId, Running, Workload, WorkloadSpec};

    fn spec(connections: u32, arrivals: Arrivals, sizes: SizeTable, messages: Option<u64>) -> WorkloadSpec {
        WorkloadSpec {
            name: "test".into(),
            pairs: Pairs::Each(vec![(NodeId(0), NodeId(1)), (NodeId(0), NodeId(2))]),
            kind: Workload::Messages {
                connections,
                arrivals,
                sizes,
                messages,
                requested: false,
            },
            start: Time::ZERO + Duration::from_millis(5),
            stop: None,
        }
    }

    /// Runs it to its end on connections that each carry so many bytes a second; what it did. The driver comes `late`.
    fn drive(running: &mut Running, rate: Rate, late: Duration) -> Vec<(Time, Action)> {
        let mut under_way: BTreeSet<(Time, u32)> = BTreeSet::new();
        let (mut done, mut now, mut slots) = (Vec::new(), Time::ZERO, 0);
        let next = |running: &Running, under_way: &BTreeSet<(Time, u32)>| {
            let arrival = under_way.first().map(|first| first.0);
            running.next_time().map(|at| at + late).into_iter().chain(arrival).min()
        };
        while let Some(at) = next(running, &under_way) {
            now = at.max(now);
            while let Some((at, slot)) = under_way.first().copied().filter(|first| first.0 <= now) {
                under_way.remove(&(at, slot));
                running.received(now, slot, false);
            }
            while let Some(action) = running.poll(now) {
                let written = match action {
                    Action::Open { bytes, .. } => {
                        slots += 1;
                        Some((slots - 1, bytes.unwrap_or(0)))
                    }
                    Action::Write { slot, bytes, .. } => Some((slot, bytes)),
                    _ => None,
                };
                if let Some((slot, bytes)) = written.filter(|(_, bytes)| *bytes > 0) {
                    let takes = Duration::from_nanos(bytes * 1_000_000_000 / rate.bytes_per_sec());
                    under_way.insert((now + takes, slot));
                }
                done.push((now, action));
            }
        }
        done
    }

    /// One connection, one size: an M/D/1 queue, in which a message waits ρ / 2(1 - ρ) of its service on average
    /// (Pollaczek and Khinchine).
    #[test]
    fn waiting_is_as_queueing_theory_says() {
        for (load, tolerance) in [(0.3, 0.05), (0.7, 0.08)] {
            let arrivals = Arrivals::Load {
                share: load,
                of: Rate::from_bytes_per_sec(1_000_000),
            };
            let mut one = spec(1, arrivals, SizeTable::fixed(Bytes::new(1_000)), Some(40_000));
            one.pairs = Pairs::one(NodeId(0), NodeId(1));
            let mut running = Running::new(one, 3, 0).expect("a sound workload");
            drive(&mut running, Rate::from_bytes_per_sec(1_000_000), Duration::ZERO);
            let messages = running.messages();
            assert_eq!(messages.len(), 40_000);
            let waited = messages.iter().map(|m| m.started.since(m.arrived).as_nanos() as f64);
            let mean = waited.sum::<f64>() / messages.len() as f64 / 1e6;
            let expected = load / (2.0 * (1.0 - load));
            assert!(
                (mean / expected - 1.0).abs() < tolerance,
                "{load}: {mean} ms, not {expected}"
            );
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let size = || SizeTable::fixed(Bytes::new(1_000));
        for (spec, why) in [
            (spec(0, Arrivals::PerSecond(1.0), size(), None), "no connections"),
            (spec(1, Arrivals::PerSecond(1.0), size(), Some(0)), "no messages"),
            (spec(1, Arrivals::PerSecond(0.0), size(), None), "never arrive"),
            (spec(u32::MAX, Arrivals::PerSecond(1.0), size(), None), "are the most"),
        ] {
            let said = Running::new(spec, 1, 0).map(drop).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn without_a_message_nothing_is_opened() {
        let mut short = spec(2, Arrivals::PerSecond(0.001), SizeTable::fixed(Bytes::new(1)), None);
        short.stop = Some(Time::ZERO + Duration::from_millis(6));
        let mut running = Running::new(short, 1, 0).expect("a sound workload");
        assert!(running.ended() && running.next_time().is_none());
        assert!(running.poll(Time::ZERO + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn connections_are_open_before_the_first_message_and_end_after_the_last() {
        let size = SizeTable::fixed(Bytes::new(1_000));
        let mut finite = spec(2, Arrivals::PerSecond(100.0), size, None);
        finite.stop = Some(Time::ZERO + Duration::from_secs(1));
        let mut running = Running::new(finite, 1, 0).expect("a sound workload");
        let actions = drive(&mut running, Rate::from_bytes_per_sec(1_000_000), Duration::ZERO);
        let opened = Time::ZERO + Duration::from_millis(5);
        for (at, action) in &actions[..4] {
            let open = matches!(
                action,
                Action::Open {
                    bytes: Some(0),
                    finish: false,
                    follow: true,
                    ..
                }
            );
            assert!(*at == opened && open, "{at:?} {action:?}");
        }
        let last = running.messages().iter().map(|message| message.arrived).max();
        let ends = actions.iter().rev().take(4);
        assert!(
            ends.clone()
                .all(|(_, action)| matches!(action, Action::Write { finish: true, .. }))
        );
        assert!(ends.clone().all(|(at, _)| Some(*at) >= last));
        assert!(running.ended() && running.unfinished() == 0 && running.messages().len() > 50);
        // What nobody asked for changes nothing.
        running.received(opened, 0, true);
        running.received(opened, 0, false);
        running.received(opened, 99, false);
        assert_eq!(running.unfinished(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// No message is lost, a connection serves one at a time, who waits longest is next, and nobody waits while a
        /// connection of the pair is idle.
        #[test]
        fn every_message_is_served_in_its_turn(
            connections in 1_u32..5,
            per_second in 10.0_f64..2_000.0,
            largest in 1_000_u64..40_000,
            messages in prop::option::of(1_u64..300),
            stop_ms in 6_u64..600,
            late_us in prop_oneof![Just(0_u64), 1_u64..3_000],
            seed: u64,
        ) {
            let sizes = SizeTable::new(&[(1, 0.0), (largest, 1.0)]).expect("it rises");
            let mut spec = spec(connections, Arrivals::PerSecond(per_second), sizes, messages);
            spec.stop = Some(Time::ZERO + Duration::from_millis(stop_ms));
            let run = || {
                let mut running = Running::new(spec.clone(), seed, 0).expect("a sound workload");
                let rate = Rate::from_bytes_per_sec(5_000_000);
                let actions = drive(&mut running, rate, Duration::from_micros(late_us));
                (actions, running)
            };
            let (actions, running) = run();
            prop_assert_eq!(&actions, &run().0);
            prop_assert!(running.ended() && running.unfinished() == 0);
            let all = running.messages();
            prop_assert!(messages.is_none_or(|most| all.len() as u64 <= most));
            let written: u64 = actions.iter().map(|(_, action)| match action {
                Action::Open { bytes, .. } => bytes.unwrap_or(0),
                Action::Write { bytes, .. } => *bytes,
                _ => 0,
            }).sum();
            prop_assert_eq!(written, all.iter().map(|m| m.bytes.get()).sum::<u64>());
            let opened = actions.iter().filter(|(_, action)| matches!(action, Action::Open { .. })).count();
            prop_assert_eq!(opened, if all.is_empty() { 0 } else { connections as usize * 2 });
            let ends = |slot: u32| actions.iter().filter(|(_, action)| {
                matches!(action, Action::Write { slot: of, finish: true, .. } if *of == slot)
            }).count();
            prop_assert!((0..opened as u32).all(|slot| ends(slot) == 1));

            let late = Duration::from_micros(late_us);
            for pair in 0..2 {
                let mut of_pair: Vec<&Message> = all.iter().filter(|m| m.connection % 2 == pair).collect();
                of_pair.sort_by_key(|m| m.arrived);
                prop_assert!(of_pair.windows(2).all(|w| w[0].started <= w[1].started), "{of_pair:?}");
                for m in &of_pair {
                    prop_assert!(m.arrived <= m.started && m.started < m.finished);
                    prop_assert!(Some(m.arrived) < spec.stop);
                    if m.started > m.arrived + late {
                        // All were busy until then.
                        let busy = of_pair.iter().filter(|o| o.started < m.started && o.finished >= m.started);
                        prop_assert!(busy.count() >= connections as usize, "{m:?} of {of_pair:?}");
                    }
                }
            }
            for slot in 0..connections * 2 {
                let mut of_slot: Vec<&Message> = all.iter().filter(|m| m.connection == slot).collect();
                of_slot.sort_by_key(|m| m.started);
                prop_assert!(of_slot.windows(2).all(|w| w[0].finished <= w[1].started), "{of_slot:?}");
            }
        }
    }
}
