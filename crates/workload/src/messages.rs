//! Open-loop messages over persistent connections, with queueing at the sender.

use std::collections::VecDeque;

use ccplane_units::{Bytes, Duration, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::draw::{draw_below, draw_exponential};
use super::{Action, ActiveTime, Pairs, RECORDS_MAX, SizeTable};

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// Connection, numbered in the order in which the workload opened them.
    pub connection: u32,
    /// Time at which the sender had the message or, with requests, the receiver had its request.
    pub arrived: Time,
    /// Time from which the connection served only this message; until then it waited for a
    /// connection, or behind earlier messages on its own.
    pub started: Time,
    /// Time at which its last byte was received.
    pub finished: Time,
    /// Size of the message.
    pub bytes: Bytes,
}

/// Policy that chooses the connection of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionPolicy {
    /// The idle connection that was busy last, as connection pools do. If all are busy, the message
    /// waits and the first connection to become idle takes the message that has waited longest.
    #[default]
    Last,
    /// A connection drawn at random, busy or not, as clients do that draw a server per request and
    /// keep one connection to each server. Messages on one connection form one stream: each follows
    /// the one before without a pause.
    Random,
}

/// Message generator. Each pair has its own connections, which are opened at the start without
/// data.
#[derive(Debug)]
pub(crate) struct MessageWorkload {
    policy: ConnectionPolicy,
    arrivals: MessageArrivals,
    sizes: SizeTable,
    /// Size of the request that the receiver sends for each message; `None`: no requests.
    request: Option<Bytes>,
    /// Limit on the number of messages.
    messages_max: u64,
    span: ActiveTime,
    random: Pcg64,
    /// Random numbers of [`ConnectionPolicy::Random`], separate so that arrivals and sizes do not
    /// depend on the policy.
    policy_random: Pcg64,
    /// Arrival time of the next message.
    next: Option<Time>,
    arrived: u64,
    finished: u64,
    /// Connections per pair, and the number of connections considered for opening so far.
    connections: u64,
    considered: u64,
    /// Time at which the last connection was opened.
    last_opened: Option<Time>,
    /// Indexed like the pairs.
    pair_states: Vec<PairState>,
    /// Indexed by slot.
    open: Vec<MessageConnection>,
    /// Set after the last arrival: each connection ends when it becomes idle.
    closing: bool,
    ready: VecDeque<Action>,
    delivered: Vec<DeliveredMessage>,
}

/// Messages and connections of one pair.
#[derive(Clone, Debug, Default)]
struct PairState {
    /// Messages without a connection.
    waiting: VecDeque<PendingMessage>,
    /// Slots of idle connections for [`ConnectionPolicy::Last`]; the last one was busy last.
    idle: Vec<u32>,
    /// Slots of all connections for [`ConnectionPolicy::Random`].
    slots: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PendingMessage {
    arrived: Time,
    bytes: Bytes,
}

#[derive(Clone, Debug)]
struct MessageConnection {
    pair: u32,
    /// Messages that were written or requested and have not been received, oldest first.
    written: VecDeque<PendingMessage>,
    /// Number of them whose request has been received.
    answered: usize,
    /// Start of service of the oldest of them.
    service_start: Time,
}

impl MessageConnection {
    fn push(&mut self, now: Time, message: PendingMessage) {
        if self.written.is_empty() {
            self.service_start = now;
        }
        self.written.push_back(message);
    }
}

/// Arrival times and pairs of messages.
#[derive(Debug)]
pub(crate) enum MessageArrivals {
    /// Poisson process, each for a random pair.
    Poisson {
        /// Mean time between arrivals, nanoseconds.
        mean_interval_ns: f64,
    },
    /// Times and places of pairs, the earliest last.
    Listed(Vec<(Time, usize)>),
}

impl MessageArrivals {
    /// Returns one arrival per pair, each up to `spread` after `at`.
    pub fn once(pairs: &Pairs, at: Time, spread: Duration, mut offsets: Pcg64) -> MessageArrivals {
        let spread_ns = spread.as_nanos().max(1);
        let places = (0..pairs.position_count()).filter(|place| pairs.get(*place).is_some());
        let arrival = |place| {
            let offset = Duration::from_nanos(offsets.next_u64() % spread_ns);
            (at + offset, place)
        };
        let mut listed: Vec<(Time, usize)> = places.map(arrival).collect();
        listed.sort_by(|one, other| other.cmp(one));
        MessageArrivals::Listed(listed)
    }
}

/// Parameters of [`MessageWorkload`] besides pairs, times and random numbers.
pub(crate) struct Demand {
    pub connections: u32,
    pub policy: ConnectionPolicy,
    pub arrivals: MessageArrivals,
    pub sizes: SizeTable,
    /// Size of the request for each message; `None`: no requests.
    pub request: Option<Bytes>,
    /// Limit on the number of messages.
    pub messages_max: Option<u64>,
}

impl MessageWorkload {
    pub fn new(
        demand: Demand,
        pairs: &Pairs,
        span: ActiveTime,
        random: Pcg64,
        servers: Pcg64,
    ) -> MessageWorkload {
        let mut messages = MessageWorkload {
            policy: demand.policy,
            arrivals: demand.arrivals,
            sizes: demand.sizes,
            request: demand.request,
            messages_max: demand.messages_max.unwrap_or(u64::MAX),
            span,
            random,
            policy_random: servers,
            next: None,
            arrived: 0,
            finished: 0,
            connections: demand.connections.into(),
            considered: 0,
            last_opened: None,
            pair_states: vec![PairState::default(); pairs.position_count()],
            open: Vec::new(),
            closing: false,
            ready: VecDeque::new(),
            delivered: Vec::new(),
        };
        messages.next = messages.draw_next_arrival(span.start);
        messages
    }

    /// Returns true if a connection can be opened with a message. An accepting end has nothing to
    /// write to before the connection exists, so requests wait for it.
    fn writes_at_open(&self) -> bool {
        self.policy == ConnectionPolicy::Last && self.request.is_none()
    }

    pub fn next_time(&self) -> Option<Time> {
        // Without messages no connection is opened.
        let begins = self.next.filter(|_| self.considered == 0);
        let next = self.next.map(|next| match self.last_opened {
            // A connection takes messages from the moment after it was opened.
            Some(opened) if !self.writes_at_open() => next.max(opened + Duration::from_nanos(1)),
            _ => next,
        });
        begins.map(|_| self.span.start).or(next)
    }

    pub fn poll(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        if now < self.span.start || (self.arrived == 0 && self.next.is_none()) {
            return None;
        }
        // Messages that arrived before the connections are opened: with `Last` a connection opens
        // with the first of them that waits; with `Random` or requests they are written after all
        // connections are open.
        if self.writes_at_open() {
            self.assign_arrivals(now, pairs);
        }
        if let Some(open) = self.open_connection(now, pairs) {
            return Some(open);
        }
        if !self.writes_at_open() && self.last_opened.is_some_and(|opened| now > opened) {
            self.assign_arrivals(now, pairs);
        }
        if !self.closing && self.next.is_none() {
            self.closing = true;
            match self.policy {
                ConnectionPolicy::Last => {
                    let idle = self
                        .pair_states
                        .iter_mut()
                        .flat_map(|desk| desk.idle.drain(..));
                    self.ready.extend(idle.map(finish));
                }
                ConnectionPolicy::Random => {
                    let idle = (0..)
                        .zip(&self.open)
                        .filter(|(_, connection)| connection.written.is_empty());
                    self.ready.extend(idle.map(|(slot, _)| finish(slot)));
                }
            }
        }
        self.ready.pop_front()
    }

    /// Handles the delivery of the oldest message written to the connection or, with `back`, of the
    /// oldest request.
    pub fn on_received(&mut self, now: Time, slot: u32, back: bool) {
        let Some(connection) = self.open.get_mut(slot as usize) else {
            return;
        };
        if back {
            let requested = connection.written.get(connection.answered);
            if let Some(message) = requested.filter(|_| self.request.is_some()) {
                connection.answered += 1;
                self.ready.push_back(write(slot, false, message.bytes));
            }
            return;
        }
        if self.request.is_some() && connection.answered == 0 {
            return;
        }
        let Some(message) = connection.written.pop_front() else {
            return;
        };
        connection.answered = connection.answered.saturating_sub(1);
        self.finished += 1;
        if self.delivered.len() < RECORDS_MAX {
            self.delivered.push(DeliveredMessage {
                connection: slot,
                arrived: message.arrived,
                started: connection.service_start,
                finished: now,
                bytes: message.bytes,
            });
        }
        connection.service_start = now;
        if !connection.written.is_empty() {
            return;
        }
        let Some(desk) = self.pair_states.get_mut(connection.pair as usize) else {
            return;
        };
        match desk.waiting.pop_front() {
            Some(next) => {
                connection.push(now, next);
                self.ready
                    .push_back(first_write(self.request, slot, next.bytes));
            }
            None if self.closing => self.ready.push_back(finish(slot)),
            None if self.policy == ConnectionPolicy::Last => desk.idle.push(slot),
            None => {}
        }
    }

    pub fn delivered(&self) -> &[DeliveredMessage] {
        &self.delivered
    }

    /// Returns the number of messages that have arrived but have not been received.
    pub fn unfinished(&self) -> u64 {
        self.arrived - self.finished
    }

    /// Returns true if all messages, including future ones, have been received.
    pub fn has_ended(&self) -> bool {
        self.next.is_none() && self.unfinished() == 0
    }

    /// Draws the arrival time after `at`; `None` after the last message or at the stop time.
    fn draw_next_arrival(&mut self, at: Time) -> Option<Time> {
        if self.arrived >= self.messages_max {
            return None;
        }
        let next = match &self.arrivals {
            MessageArrivals::Poisson { mean_interval_ns } => {
                at + draw_exponential(&mut self.random, *mean_interval_ns)
            }
            MessageArrivals::Listed(listed) => listed.last()?.0,
        };
        (!self.span.is_over(next)).then_some(next)
    }

    /// Assigns the messages that have arrived by now.
    fn assign_arrivals(&mut self, now: Time, pairs: &Pairs) {
        while let Some(arrived) = self.next.filter(|at| *at <= now) {
            let place = match &mut self.arrivals {
                MessageArrivals::Poisson { .. } => pairs
                    .draw(&mut self.random)
                    .map(|(place, _)| place as usize),
                MessageArrivals::Listed(listed) => listed.pop().map(|(_, place)| place),
            };
            let bytes = self.sizes.draw(&mut self.random);
            self.arrived += 1;
            self.next = self.draw_next_arrival(arrived);
            let message = PendingMessage { arrived, bytes };
            let Some((place, desk)) =
                place.and_then(|place| Some((place, self.pair_states.get_mut(place)?)))
            else {
                // Unreachable: there are pairs, and each has a desk.
                self.finished += 1;
                continue;
            };
            let slot = match self.policy {
                ConnectionPolicy::Last => {
                    debug_assert!(desk.idle.is_empty() || desk.waiting.is_empty(), "{place}");
                    desk.idle.pop()
                }
                ConnectionPolicy::Random => {
                    let server = draw_below(&mut self.policy_random, desk.slots.len());
                    desk.slots.get(server).copied()
                }
            };
            match slot.and_then(|slot| Some((slot, self.open.get_mut(slot as usize)?))) {
                Some((slot, connection)) => {
                    connection.push(now, message);
                    self.ready.push_back(first_write(self.request, slot, bytes));
                }
                None => desk.waiting.push_back(message),
            }
        }
    }

    /// Opens the next connection, with the message that has waited longest for one.
    fn open_connection(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        let places = pairs.position_count() as u64;
        while self.considered < places * self.connections {
            let place = (self.considered % places) as usize;
            self.considered += 1;
            let (Some((from, to)), Some(desk)) =
                (pairs.get(place), self.pair_states.get_mut(place))
            else {
                continue;
            };
            let slot = self.open.len() as u32;
            let first = desk.waiting.pop_front();
            match self.policy {
                ConnectionPolicy::Last if first.is_none() => desk.idle.push(slot),
                ConnectionPolicy::Last => {}
                ConnectionPolicy::Random => desk.slots.push(slot),
            }
            self.last_opened = Some(now);
            self.open.push(MessageConnection {
                pair: place as u32,
                written: first.into_iter().collect(),
                answered: 0,
                service_start: now,
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

/// Returns the first write for a message: its request, or the message if there are no requests.
fn first_write(request: Option<Bytes>, slot: u32, message: Bytes) -> Action {
    write(slot, request.is_some(), request.unwrap_or(message))
}

fn write(slot: u32, backward: bool, bytes: Bytes) -> Action {
    Action::Write {
        slot,
        backward,
        bytes: bytes.get(),
        finish: false,
    }
}

fn finish(slot: u32) -> Action {
    Action::Write {
        slot,
        backward: false,
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
    use crate::{Arrivals, NodeId, Workload, WorkloadGenerator, WorkloadSpec};

    fn spec(
        connections: u32,
        arrivals: Arrivals,
        sizes: SizeTable,
        messages: Option<u64>,
    ) -> WorkloadSpec {
        WorkloadSpec {
            name: "test".into(),
            pairs: Pairs::List(vec![(NodeId(0), NodeId(1)), (NodeId(0), NodeId(2))]),
            kind: Workload::Messages {
                connections,
                policy: ConnectionPolicy::Last,
                arrivals,
                sizes,
                messages,
                requested: false,
                request: None,
                seed: None,
            },
            start: Time::ZERO + Duration::from_millis(5),
            stop: None,
        }
    }

    fn drawn(mut spec: WorkloadSpec) -> WorkloadSpec {
        if let Workload::Messages { policy: pick, .. } = &mut spec.kind {
            *pick = ConnectionPolicy::Random;
        }
        spec
    }

    /// Runs the workload to its end on connections of the given rate, with a driver that is `late`.
    /// Returns its actions.
    fn drive(running: &mut WorkloadGenerator, rate: Rate, late: Duration) -> Vec<(Time, Action)> {
        let mut under_way: BTreeSet<(Time, u32)> = BTreeSet::new();
        let (mut done, mut now, mut slots) = (Vec::new(), Time::ZERO, 0);
        let mut free: Vec<Time> = Vec::new();
        let next = |running: &WorkloadGenerator, under_way: &BTreeSet<(Time, u32)>| {
            let arrival = under_way.first().map(|first| first.0);
            running
                .next_time()
                .map(|at| at + late)
                .into_iter()
                .chain(arrival)
                .min()
        };
        while let Some(at) = next(running, &under_way) {
            now = at.max(now);
            while let Some((at, slot)) = under_way.first().copied().filter(|first| first.0 <= now) {
                under_way.remove(&(at, slot));
                running.on_received(now, slot, false);
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
                    free.resize(free.len().max(slot as usize + 1), Time::ZERO);
                    let end = &mut free[slot as usize];
                    *end = now.max(*end) + takes;
                    under_way.insert((*end, slot));
                }
                done.push((now, action));
            }
        }
        done
    }

    /// With one connection and one message size this is an M/D/1 queue: the mean wait is ρ / 2(1 -
    /// ρ) service times (Pollaczek and Khinchine).
    #[test]
    fn waiting_is_as_queueing_theory_says() {
        for (load, tolerance) in [(0.3, 0.05), (0.7, 0.08)] {
            let arrivals = Arrivals::Load {
                share: load,
                link_rate: Rate::from_bytes_per_sec(1_000_000),
            };
            let mut one = spec(
                1,
                arrivals,
                SizeTable::fixed(Bytes::new(1_000)),
                Some(40_000),
            );
            one.pairs = Pairs::one(NodeId(0), NodeId(1));
            let mut running = WorkloadGenerator::new(one, 3, 0).expect("a valid workload");
            drive(
                &mut running,
                Rate::from_bytes_per_sec(1_000_000),
                Duration::ZERO,
            );
            let messages = running.messages();
            assert_eq!(messages.len(), 40_000);
            let waited = messages
                .iter()
                .map(|m| m.started.since(m.arrived).as_nanos() as f64);
            let mean = waited.sum::<f64>() / messages.len() as f64 / 1e6;
            let expected = load / (2.0 * (1.0 - load));
            assert!(
                (mean / expected - 1.0).abs() < tolerance,
                "{load}: {mean} ms, not {expected}"
            );
        }
    }

    #[test]
    fn random_draws_every_server_and_changes_neither_arrivals_nor_sizes() {
        let arrivals = Arrivals::PerSecond(1_000.0);
        let sizes = SizeTable::new(&[(1, 0.0), (40_000, 1.0)]).expect("ascending points");
        let last = spec(20, arrivals, sizes, Some(20_000));
        let messages = |spec: WorkloadSpec| {
            let mut running = WorkloadGenerator::new(spec, 7, 0).expect("a valid workload");
            drive(
                &mut running,
                Rate::from_bytes_per_sec(5_000_000),
                Duration::ZERO,
            );
            let mut messages = running.messages().to_vec();
            messages.sort_by_key(|message| message.arrived);
            messages
        };
        let (last, random) = (messages(last.clone()), messages(drawn(last)));
        let demand =
            |all: &[DeliveredMessage]| all.iter().map(|m| (m.arrived, m.bytes)).collect::<Vec<_>>();
        assert_eq!(demand(&last), demand(&random));
        // 500 messages on each of 40 connections; six standard deviations are 134.
        let mut counts = [0; 40];
        random
            .iter()
            .for_each(|m| counts[m.connection as usize] += 1);
        assert!(counts.iter().all(|n| (366..634).contains(n)), "{counts:?}");
        // The pool needs few connections: 1,000 messages per second of 4 ms each keep four busy on
        // average.
        let mut counts = [0; 40];
        last.iter().for_each(|m| counts[m.connection as usize] += 1);
        assert!(
            counts.iter().filter(|n| **n == 0).count() >= 10,
            "{counts:?}"
        );
    }

    /// A small message waits behind a large one on its connection and follows without a pause; in a
    /// pool there is no such wait.
    #[test]
    fn a_message_on_a_drawn_connection_is_written_at_once_and_waits_in_its_stream() {
        let late = Duration::from_micros(1);
        let sizes = SizeTable::new(&[(1, 0.0), (1_000_000, 1.0)]).expect("ascending points");
        let mut one = drawn(spec(1, Arrivals::PerSecond(20.0), sizes, Some(200)));
        one.pairs = Pairs::one(NodeId(0), NodeId(1));
        let mut running = WorkloadGenerator::new(one, 5, 0).expect("a valid workload");
        let actions = drive(&mut running, Rate::from_bytes_per_sec(10_000_000), late);
        let writes = actions.iter().filter_map(|(at, action)| match action {
            Action::Write { bytes, .. } if *bytes > 0 => Some((*at, *bytes)),
            _ => None,
        });
        let expected = running
            .messages()
            .iter()
            .map(|m| (m.arrived + late, m.bytes.get()));
        assert!(
            writes.eq(expected),
            "one connection: the order of arrivals is that of the writes"
        );
        let waited = |w: &&[DeliveredMessage]| {
            w[1].started == w[0].finished && w[1].started > w[1].arrived + late
        };
        let waited = running.messages().windows(2).filter(waited).count();
        assert!(waited > 100, "{waited}");
    }

    /// Each request takes 7 ms to the sender, and each message 7 ms back.
    #[test]
    fn a_requested_message_takes_the_time_of_its_request_too() {
        let way = Duration::from_millis(7);
        for drawn_connections in [false, true] {
            let size = SizeTable::fixed(Bytes::new(1_000));
            let mut spec = spec(2, Arrivals::PerSecond(100.0), size, Some(50));
            if let Workload::Messages { request, .. } = &mut spec.kind {
                *request = Some(Bytes::new(100));
            }
            let spec = if drawn_connections { drawn(spec) } else { spec };
            let mut running = WorkloadGenerator::new(spec, 1, 0).expect("a valid workload");
            let (mut under_way, mut now) = (BTreeSet::new(), Time::ZERO);
            let (mut writes, mut requests) = (0, 0);
            loop {
                let arrival = under_way
                    .first()
                    .map(|(at, ..): &(Time, u32, u32, bool)| *at);
                let Some(at) = running.next_time().into_iter().chain(arrival).min() else {
                    break;
                };
                now = at.max(now);
                while let Some(first) = under_way.first().copied().filter(|first| first.0 <= now) {
                    under_way.remove(&first);
                    running.on_received(now, first.2, first.3);
                }
                while let Some(action) = running.poll(now) {
                    match action {
                        Action::Open { bytes, .. } => assert_eq!(bytes, Some(0)),
                        Action::Write {
                            slot,
                            backward,
                            bytes,
                            ..
                        } if bytes > 0 => {
                            assert_eq!(bytes, if backward { 100 } else { 1_000 });
                            writes += 1;
                            requests += usize::from(backward);
                            under_way.insert((now + way, writes, slot, backward));
                        }
                        _ => {}
                    }
                }
            }
            assert_eq!((requests, running.messages().len()), (50, 50));
            assert!(running.has_ended());
            for message in running.messages() {
                // Requests follow each other on a drawn connection, and wait for one in a pool.
                let from = if drawn_connections {
                    message.arrived
                } else {
                    message.started
                };
                let took = message.finished.since(from).as_nanos();
                let expected = (way + way).as_nanos();
                assert!((expected..=expected + 1).contains(&took), "{message:?}");
            }
        }
    }

    #[test]
    fn every_pair_has_one_message_at_its_time() {
        let (at, spread) = (Duration::from_millis(1), Duration::from_micros(10));
        let size = SizeTable::fixed(Bytes::new(1_000));
        let once = spec(1, Arrivals::Once { at, spread }, size, None);
        let mut running = WorkloadGenerator::new(once, 3, 0).expect("a valid workload");
        let rate = Rate::from_bytes_per_sec(1_000_000);
        let actions = drive(&mut running, rate, Duration::ZERO);
        let start = Time::ZERO + Duration::from_millis(5);
        for (opened, action) in &actions[..2] {
            assert!(*opened == start && matches!(action, Action::Open { bytes: Some(0), .. }));
        }
        let arrivals: Vec<_> = running.messages().iter().map(|m| m.arrived).collect();
        assert!(
            arrivals
                .iter()
                .all(|time| (start + at..start + at + spread).contains(time))
        );
        let connections: BTreeSet<_> = running.messages().iter().map(|m| m.connection).collect();
        assert_eq!((connections.len(), arrivals.len()), (2, 2));
        assert!(running.has_ended());
    }

    #[test]
    fn messages_can_have_a_seed_of_their_own() {
        let size = SizeTable::new(&[(1, 0.0), (40_000, 1.0)]).expect("ascending points");
        let messages = |own, seed| {
            let mut spec = spec(2, Arrivals::PerSecond(100.0), size.clone(), Some(50));
            if let Workload::Messages { seed, .. } = &mut spec.kind {
                *seed = own;
            }
            let mut running = WorkloadGenerator::new(spec, seed, 0).expect("a valid workload");
            drive(
                &mut running,
                Rate::from_bytes_per_sec(1_000_000),
                Duration::ZERO,
            )
        };
        assert_eq!(messages(Some(7), 1), messages(None, 7));
        assert_ne!(messages(Some(7), 1), messages(None, 1));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let size = || SizeTable::fixed(Bytes::new(1_000));
        for (spec, why) in [
            (
                spec(0, Arrivals::PerSecond(1.0), size(), None),
                "no connections",
            ),
            (
                spec(1, Arrivals::PerSecond(1.0), size(), Some(0)),
                "no messages",
            ),
            (
                spec(1, Arrivals::PerSecond(0.0), size(), None),
                "never arrive",
            ),
            (
                spec(u32::MAX, Arrivals::PerSecond(1.0), size(), None),
                "the limit is",
            ),
        ] {
            let said = WorkloadGenerator::new(spec, 1, 0)
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn without_a_message_nothing_is_opened() {
        let mut short = spec(
            2,
            Arrivals::PerSecond(0.001),
            SizeTable::fixed(Bytes::new(1)),
            None,
        );
        short.stop = Some(Time::ZERO + Duration::from_millis(6));
        let mut running = WorkloadGenerator::new(short, 1, 0).expect("a valid workload");
        assert!(running.has_ended() && running.next_time().is_none());
        assert!(running.poll(Time::ZERO + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn connections_are_open_before_the_first_message_and_end_after_the_last() {
        let size = SizeTable::fixed(Bytes::new(1_000));
        let mut finite = spec(2, Arrivals::PerSecond(100.0), size, None);
        finite.stop = Some(Time::ZERO + Duration::from_secs(1));
        let mut running = WorkloadGenerator::new(finite, 1, 0).expect("a valid workload");
        let actions = drive(
            &mut running,
            Rate::from_bytes_per_sec(1_000_000),
            Duration::ZERO,
        );
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
        let last = running
            .messages()
            .iter()
            .map(|message| message.arrived)
            .max();
        let ends = actions.iter().rev().take(4);
        assert!(
            ends.clone()
                .all(|(_, action)| matches!(action, Action::Write { finish: true, .. }))
        );
        assert!(ends.clone().all(|(at, _)| Some(*at) >= last));
        assert!(running.has_ended() && running.unfinished() == 0 && running.messages().len() > 50);
        // Unexpected deliveries are ignored.
        running.on_received(opened, 0, true);
        running.on_received(opened, 0, false);
        running.on_received(opened, 99, false);
        assert_eq!(running.unfinished(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]

        /// Every message is delivered, a connection serves one message at a time, and messages are
        /// served in order of arrival: per pair with `Last`, where none waits while a connection of
        /// the pair is idle, and per connection with `Random`.
        #[test]
        fn every_message_is_served_in_its_turn(
            connections in 1_u32..5,
            per_second in 10.0_f64..2_000.0,
            largest in 1_000_u64..40_000,
            messages in prop::option::of(1_u64..300),
            stop_ms in 6_u64..600,
            late_us in prop_oneof![Just(0_u64), 1_u64..3_000],
            random: bool,
            seed: u64,
        ) {
            let sizes = SizeTable::new(&[(1, 0.0), (largest, 1.0)]).expect("ascending points");
            let mut spec = spec(
                connections,
                Arrivals::PerSecond(per_second),
                sizes,
                messages,
            );
            spec.stop = Some(Time::ZERO + Duration::from_millis(stop_ms));
            let spec = if random { drawn(spec) } else { spec };
            let run = || {
                let mut running = WorkloadGenerator::new(spec.clone(), seed, 0).expect("valid");
                let rate = Rate::from_bytes_per_sec(5_000_000);
                let actions = drive(&mut running, rate, Duration::from_micros(late_us));
                (actions, running)
            };
            let (actions, running) = run();
            prop_assert_eq!(&actions, &run().0);
            prop_assert!(running.has_ended() && running.unfinished() == 0);
            let all = running.messages();
            prop_assert!(messages.is_none_or(|messages_max| all.len() as u64 <= messages_max));
            let written: u64 = actions
                .iter()
                .map(|(_, action)| match action {
                    Action::Open { bytes, .. } => bytes.unwrap_or(0),
                    Action::Write { bytes, .. } => *bytes,
                    _ => 0,
                })
                .sum();
            prop_assert_eq!(written, all.iter().map(|m| m.bytes.get()).sum::<u64>());
            let opened = actions
                .iter()
                .filter(|(_, action)| matches!(action, Action::Open { .. }))
                .count();
            prop_assert_eq!(
                opened,
                if all.is_empty() {
                    0
                } else {
                    connections as usize * 2
                }
            );
            let ends = |slot: u32| {
                actions.iter().filter(|(_, action)| {
                matches!(action, Action::Write { slot: of, finish: true, .. } if *of == slot)
            }).count()
            };
            prop_assert!((0..opened as u32).all(|slot| ends(slot) == 1));

            let late = Duration::from_micros(late_us);
            for pair in 0..2 {
                let mut of_pair: Vec<&DeliveredMessage> =
                    all.iter().filter(|m| m.connection % 2 == pair).collect();
                of_pair.sort_by_key(|m| m.arrived);
                let ordered = of_pair.windows(2).all(|w| w[0].started <= w[1].started);
                prop_assert!(ordered || random, "{of_pair:?}");
                for m in &of_pair {
                    prop_assert!(m.arrived <= m.started && m.started < m.finished);
                    prop_assert!(Some(m.arrived) < spec.stop);
                    if m.started > m.arrived + late && !random {
                        // All connections were busy until then.
                        let busy = of_pair
                            .iter()
                            .filter(|o| o.started < m.started && o.finished >= m.started);
                        prop_assert!(busy.count() >= connections as usize, "{m:?} of {of_pair:?}");
                    }
                }
            }
            for slot in 0..connections * 2 {
                let mut of_slot: Vec<&DeliveredMessage> =
                    all.iter().filter(|m| m.connection == slot).collect();
                of_slot.sort_by_key(|m| m.started);
                prop_assert!(
                    of_slot.windows(2).all(|w| w[0].finished <= w[1].started),
                    "{of_slot:?}"
                );
                prop_assert!(
                    of_slot
                        .windows(2)
                        .all(|w| w[0].arrived <= w[1].arrived || !random),
                    "{of_slot:?}"
                );
                if random {
                    // The message is served at once, or when its predecessor ends.
                    let at_once = late * 2 + Duration::from_nanos(1);
                    let served = |w: &[&DeliveredMessage]| {
                        w[1].started <= w[0].finished.max(w[1].arrived + at_once)
                    };
                    prop_assert!(of_slot.windows(2).all(served), "{of_slot:?}");
                }
            }
        }
    }
}
