//! Channel between flows and their agents. Messages are encoded to bytes and are subject to the
//! faults of the plan; so are the agents.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_agent::datapath::{self, Incoming};
use ccplane_agent::{Agent, AgentOptions, DatapathId};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use crate::bus::Stream;
use crate::check::fallback::Model;
use crate::codec::Speech;
use crate::plan::{Fault, FaultKind, Harm, Plan};
use crate::random::Draw;
use crate::tenant::Tenant;

/// Retry interval of a connection to an absent agent, as in `agent::datapath::There`.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of messages that wait for an agent. Beyond it a report stays in its flow, and
/// other messages are lost, as on a full socket.
pub const QUEUED_MESSAGES_MAX: usize = 200;
/// Messages of a datapath that an agent reads per turn, as in `link::FlowState`.
pub const MESSAGES_PER_TURN: usize = 16;
/// Maximum number of calls at one time. More indicates an endless loop of messages.
const CALLS_PER_INSTANT_MAX: u32 = 20_000;
/// Start of the agents' clocks, ns, so that a step back does not reach negative times.
const AGENT_EPOCH_NS: i64 = 1_000_000_000_000;

/// Channel, shared between the simulation and the checks.
#[derive(Clone, Debug)]
pub struct Line(Arc<Mutex<Inner>>);

#[derive(Debug)]
pub struct Inner {
    plan: Arc<Plan>,
    seats: Vec<Seat>,
    draw: Draw,
    next_datapath: u32,
    /// Commands that have arrived at the datapath and wait for the completion of the previous one.
    ready: VecDeque<WireCommand>,
    /// Agent to which the datapath is announcing itself.
    announcing: Option<usize>,
    /// Latest time, and the number of calls at that time.
    busy: (Time, u32),
    /// Record of the datapath's commands and events, for the checks.
    pub model: Model,
    /// Messages sent, and messages affected by a fault.
    pub messages: u64,
    pub harmed: u64,
    pub wrong: Option<String>,
}

/// Agent and its connection.
struct Seat {
    agent: Agent,
    /// Lifetime of the agent.
    here: (Time, Time),
    datapath: DatapathId,
    speech: Speech,
    /// Time of the next connection attempt; `None` while connected.
    look: Option<Time>,
    since: Time,
    to_agent: MessageQueue,
    to_flows: MessageQueue,
    /// Hostile datapaths at the same agent.
    tenants: Vec<Tenant>,
    /// End of the agent's current turn.
    free: Time,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("here", &self.here)
            .finish_non_exhaustive()
    }
}

/// Messages in flight in one direction, by arrival time.
#[derive(Debug, Default)]
pub struct MessageQueue {
    under_way: BTreeMap<(Time, u64), Vec<u8>>,
    sent: u64,
    /// Latest arrival time of the messages that keep their order.
    last: Time,
    /// Stream socket, if messages travel as a byte stream.
    stream: Option<Stream>,
    /// Error: the socket delivered data that was not sent.
    wrong: Option<String>,
}

impl Line {
    pub fn new(plan: &Arc<Plan>) -> Line {
        let mut inner = Inner {
            plan: Arc::clone(plan),
            seats: Vec::new(),
            draw: Draw::new(plan.seed, 2),
            next_datapath: 0,
            ready: VecDeque::new(),
            announcing: None,
            busy: (Time::ZERO, 0),
            model: Model::new(plan.limits.agent_timeout),
            messages: 0,
            harmed: 0,
            wrong: None,
        };
        // Successive agents for the first seat, and additional ones for limited times.
        let mut from = Time::ZERO;
        let mut algorithm = plan.algorithms[0];
        let mut deaths: Vec<&Fault> = plan
            .faults
            .iter()
            .filter(|f| matches!(f.what, FaultKind::Dies(_)))
            .collect();
        deaths.sort_by_key(|fault| fault.at);
        for fault in deaths {
            let FaultKind::Dies(next) = fault.what else {
                continue;
            };
            inner.seat(algorithm, from, fault.at.max(from));
            (from, algorithm) = (fault.end().max(from), next);
        }
        inner.seat(algorithm, from, plan.calm);
        for fault in &plan.faults {
            if let FaultKind::Second(algorithm) = fault.what {
                inner.seat(algorithm, fault.at, fault.end());
            }
        }
        // At the end there is one new agent without any state.
        inner.seat(algorithm, plan.calm, Time::MAX);
        Line(Arc::new(Mutex::new(inner)))
    }

    pub fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl datapath::AgentChannel for Line {
    fn try_report(&mut self, now: Time, report: &WireEvent<'_>) -> bool {
        self.inner().say(now, report)
    }

    fn send(&mut self, now: Time, event: WireEvent<'static>) {
        self.inner().say(now, &event);
    }

    fn next_deadline(&self) -> Option<Time> {
        Some(self.inner().next_due())
    }

    fn recv(&mut self, now: Time) -> Option<Incoming> {
        self.inner().bring(now)
    }
}

impl Inner {
    fn seat(&mut self, algorithm: &str, from: Time, until: Time) {
        let mut agent = Agent::new(AgentOptions::default());
        // Every built-in algorithm accepts its defaults, as tests of the registry ensure.
        let made = Registry::builtin().by_name(algorithm, &Parameters::new());
        match made.map(|made| agent.add_boxed(made)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.wrong = Some(error.to_string()),
            Err(error) => self.wrong = Some(error.to_string()),
        }
        self.seats.push(Seat {
            agent,
            here: (from, until),
            datapath: DatapathId(u32::MAX),
            speech: Speech::new(self.plan.version),
            look: Some(from),
            since: Time::ZERO,
            to_agent: MessageQueue::new(&self.plan),
            to_flows: MessageQueue::new(&self.plan),
            tenants: Tenant::all(&self.plan),
            free: Time::ZERO,
        });
    }

    /// Returns the number of flows that the agents have.
    pub fn known_flows(&self, now: Time) -> usize {
        let here = self.seats.iter().filter(|seat| seat.is_here(now));
        here.map(Seat::flows).sum()
    }

    fn say(&mut self, now: Time, event: &WireEvent<'_>) -> bool {
        self.model.answer(event);
        let plan = Arc::clone(&self.plan);
        let report = matches!(event, WireEvent::Report { .. });
        let copies = match plan
            .faults
            .iter()
            .find(|f| f.is_on(now) && matches!(f.what, FaultKind::Flood(_)))
        {
            Some(Fault {
                what: FaultKind::Flood(copies),
                ..
            }) if report => *copies,
            _ => 1,
        };
        let mut taken = false;
        for index in 0..self.seats.len() {
            if self.announcing.is_some_and(|only| only != index)
                || !self.seats[index].is_connected(now)
            {
                continue;
            }
            if self.seats[index].to_agent.is_full() {
                continue;
            }
            taken = true;
            let bytes = match self.seats[index].speech.event(event) {
                Ok(bytes) if bytes.is_empty() => continue,
                Ok(bytes) => bytes,
                Err(wrong) => {
                    self.wrong.get_or_insert(wrong);
                    continue;
                }
            };
            for _ in 0..copies {
                if self.seats[index].to_agent.is_full() {
                    break;
                }
                let Inner {
                    draw,
                    harmed,
                    messages,
                    seats,
                    ..
                } = self;
                *messages += 1;
                *harmed += u64::from(seats[index].to_agent.send(now, &plan, draw, &bytes));
            }
        }
        taken
    }

    fn next_due(&self) -> Time {
        let due = self
            .seats
            .iter()
            .map(|seat| seat.next_due(&self.plan, self.busy.0))
            .min();
        due.unwrap_or(Time::MAX).max(self.busy.0)
    }

    fn bring(&mut self, now: Time) -> Option<Incoming> {
        self.announcing = None;
        self.model.settle();
        self.busy = if self.busy.0 == now {
            (now, self.busy.1 + 1)
        } else {
            (now, 0)
        };
        if self.busy.1 > CALLS_PER_INSTANT_MAX {
            self.wrong
                .get_or_insert(format!("more than {CALLS_PER_INSTANT_MAX} calls at {now}"));
            return None;
        }
        if self.ready.is_empty()
            && let Some(index) = self.look(now)
        {
            self.announcing = Some(index);
            return Some(Incoming::AgentConnected);
        }
        let plan = Arc::clone(&self.plan);
        let Inner {
            seats,
            ready,
            draw,
            messages,
            harmed,
            next_datapath,
            wrong,
            ..
        } = self;
        if ready.is_empty() {
            for seat in seats.iter_mut() {
                seat.run(now, &plan, draw, next_datapath, (messages, harmed));
                seat.receive(now, &plan, ready);
                if let Some(found) = seat.to_agent.wrong.take().or(seat.to_flows.wrong.take()) {
                    wrong.get_or_insert(found);
                }
            }
        }
        let command = ready.pop_front()?;
        self.model.command(now, &command);
        Some(Incoming::Command(command))
    }

    /// Connects to agents that are due, and disconnects from those that are gone.
    fn look(&mut self, now: Time) -> Option<usize> {
        let plan = Arc::clone(&self.plan);
        for index in 0..self.seats.len() {
            let seat = &mut self.seats[index];
            if seat.look.is_none()
                && let Some((given_up, next)) = plan.given_up(seat.since)
                && now >= given_up
            {
                // The agent is notified when the datapath reconnects.
                seat.lose_messages();
                seat.look = Some(next);
            }
            if seat.is_connected(now) && plan.reset_after(seat.since) <= now {
                seat.disconnect(now);
            }
            if seat.look.is_none() && now >= seat.here.1 {
                // The agent is gone, and messages in flight to it are lost.
                seat.look = Some(Time::MAX);
                seat.lose_messages();
            }
            if seat.look.is_some_and(|look| look <= now) {
                if !seat.is_here(now) {
                    seat.look = Some(Time::MAX);
                    continue;
                }
                if let Some(end) = plan.cut_until(now) {
                    seat.look = Some(end + RETRY_INTERVAL);
                    continue;
                }
                seat.agent.on_disconnect(seat.datapath);
                (seat.look, seat.since) = (None, now);
                seat.datapath = DatapathId(self.next_datapath);
                self.next_datapath += 1;
                seat.speech.connected(now, seat.datapath);
                return Some(index);
            }
        }
        None
    }
}

impl Seat {
    /// Returns the agent's flows, without those of connected hostile datapaths.
    fn flows(&self) -> usize {
        let hostile: usize = self
            .tenants
            .iter()
            .map(|tenant| tenant.flows(&self.agent))
            .sum();
        // Flows that are being closed are counted by `flows_held` only.
        self.agent.flow_count().saturating_sub(hostile)
    }

    fn is_here(&self, now: Time) -> bool {
        self.here.0 <= now && now < self.here.1
    }

    fn is_connected(&self, now: Time) -> bool {
        self.look.is_none() && self.is_here(now)
    }

    /// Returns the end of the agent's current hang, if any.
    fn hangs_until(&self, plan: &Plan, now: Time) -> Option<Time> {
        let hangs = plan
            .faults
            .iter()
            .filter(|f| f.what == FaultKind::Hangs && f.is_on(now));
        hangs.map(Fault::end).max()
    }

    fn next_due(&self, plan: &Plan, now: Time) -> Time {
        if let Some(look) = self.look {
            return look;
        }
        let deadline = self
            .agent
            .next_deadline()
            .map_or(Time::MAX, |due| Seat::simulated_time(plan, now, due));
        let tenants = self.tenants.iter().map(|tenant| tenant.next_due()).min();
        let mut own = deadline
            .min(self.to_agent.next())
            .min(tenants.unwrap_or(Time::MAX));
        own = own.max(self.free).max(now);
        while let Some(until) = self.hangs_until(plan, own) {
            own = until;
        }
        let heartbeat = self.speech.next_deadline().unwrap_or(Time::MAX);
        let given_up = plan
            .given_up(self.since)
            .map_or(Time::MAX, |(given_up, _)| given_up);
        let reset = plan.reset_after(self.since);
        let all = [
            self.to_flows.next(),
            heartbeat,
            self.here.1,
            given_up,
            reset,
        ];
        all.into_iter().fold(own, Time::min)
    }

    /// Returns the offset of the agent's clock from the simulation's, ns.
    fn ahead(plan: &Plan, now: Time) -> i64 {
        let steps = plan
            .faults
            .iter()
            .filter(|fault| fault.at <= now && now < plan.calm);
        let micros: i64 = steps
            .filter_map(|fault| match fault.what {
                FaultKind::Clock(micros) => Some(micros),
                _ => None,
            })
            .sum();
        AGENT_EPOCH_NS + micros * 1_000
    }

    fn agent_time(plan: &Plan, now: Time) -> Time {
        Time::from_nanos((now.as_nanos() as i64 + Seat::ahead(plan, now)).max(0) as u64)
    }

    /// Returns the time at which the agent's clock reaches `due`, not before `now`.
    fn simulated_time(plan: &Plan, now: Time, due: Time) -> Time {
        let steps = plan
            .faults
            .iter()
            .filter(|fault| matches!(fault.what, FaultKind::Clock(_)))
            .map(|fault| fault.at);
        let mut begins: Vec<Time> = [Time::ZERO, plan.calm].into_iter().chain(steps).collect();
        begins.sort();
        for (index, begin) in begins.iter().enumerate() {
            let end = begins.get(index + 1).copied().unwrap_or(Time::MAX);
            let shown = due.as_nanos() as i64 - Seat::ahead(plan, *begin);
            let shown = Time::from_nanos(shown.max(0) as u64).max(*begin).max(now);
            if shown < end {
                return shown;
            }
        }
        Time::MAX
    }

    /// Runs a turn of the agent, as in `link::run_sendbox`: some messages of each datapath,
    /// deadlines, then commands, which leave at the end of the turn.
    fn run(
        &mut self,
        now: Time,
        plan: &Plan,
        draw: &mut Draw,
        next_datapath: &mut u32,
        (messages, harmed): (&mut u64, &mut u64),
    ) {
        if !self.is_connected(now) || now < self.free || self.hangs_until(plan, now).is_some() {
            return;
        }
        let clock = Seat::agent_time(plan, now);
        let (before, mut read) = (self.agent.work_units(), 0);
        for _ in 0..MESSAGES_PER_TURN {
            let Some(bytes) = self.to_agent.arrived(now) else {
                break;
            };
            let Seat {
                agent,
                datapath,
                speech,
                ..
            } = self;
            read += 1;
            if !speech.hear(clock, *datapath, &bytes, agent) && plan.strict {
                return self.disconnect(now);
            }
        }
        for tenant in &mut self.tenants {
            tenant.turn(
                (now, clock),
                plan,
                &mut self.agent,
                next_datapath,
                &mut read,
            );
        }
        if self.agent.next_deadline().is_some_and(|due| due <= clock) {
            self.agent.on_deadline(clock);
        }
        let mut commands = Vec::new();
        while let Some((to, command)) = self.agent.poll() {
            if to == self.datapath
                && let Some(bytes) = self.speech.command(clock, &command, &mut self.agent)
            {
                commands.push(bytes);
            }
        }
        self.free = now + plan.work * (read + self.agent.work_units() - before);
        for bytes in commands {
            *messages += 1;
            *harmed += u64::from(self.to_flows.send(self.free, plan, draw, &bytes));
        }
    }

    /// Reads the messages that have arrived at the datapath.
    fn receive(&mut self, now: Time, plan: &Plan, ready: &mut VecDeque<WireCommand>) {
        while self.look.is_none()
            && let Some(bytes) = self.to_flows.arrived(now)
        {
            if !self.speech.read(now, &bytes, ready) && plan.strict {
                self.disconnect(now);
            }
        }
        if self.is_connected(now) {
            self.speech.on_deadline(now, ready);
        }
    }

    fn lose_messages(&mut self) {
        self.to_agent.reset();
        self.to_flows.reset();
    }

    /// Ends the connection: messages in flight are lost, and the datapath will reconnect.
    fn disconnect(&mut self, now: Time) {
        self.agent.on_disconnect(self.datapath);
        self.lose_messages();
        self.look = Some(now + RETRY_INTERVAL);
    }
}

impl MessageQueue {
    pub fn new(plan: &Plan) -> MessageQueue {
        MessageQueue {
            stream: plan.bus.map(Stream::new),
            ..MessageQueue::default()
        }
    }

    /// Drops the messages in flight.
    pub fn reset(&mut self) {
        let mut stream = self.stream.take();
        if let Some(stream) = &mut stream {
            stream.reset();
        }
        *self = MessageQueue {
            stream,
            wrong: self.wrong.take(),
            ..MessageQueue::default()
        };
    }

    pub fn next(&self) -> Time {
        match &self.stream {
            Some(stream) => stream.next(),
            None => self
                .under_way
                .first_key_value()
                .map_or(Time::MAX, |((due, _), _)| *due),
        }
    }

    pub fn is_full(&self) -> bool {
        let waiting = self
            .stream
            .as_ref()
            .map_or(self.under_way.len(), Stream::waiting);
        waiting >= QUEUED_MESSAGES_MAX
    }

    pub fn arrived(&mut self, now: Time) -> Option<Vec<u8>> {
        if let Some(stream) = &mut self.stream {
            return stream.receive(now).unwrap_or_else(|wrong| {
                self.wrong.get_or_insert(wrong);
                None
            });
        }
        let first = self
            .under_way
            .first_entry()
            .filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }

    /// Sends a message. Returns true if a fault affected it.
    fn send(&mut self, now: Time, plan: &Plan, draw: &mut Draw, bytes: &[u8]) -> bool {
        let mut bytes = bytes.to_vec();
        // Each message has its own stream of random numbers, so that a fault of one does not affect
        // the next.
        let own = draw.next();
        let (mut copies, mut late, mut overtaken, mut harmed) = (1, Duration::ZERO, false, false);
        for fault in plan.faults.iter().filter(|fault| fault.is_on(now)) {
            let FaultKind::Messages(harm, share) = fault.what else {
                continue;
            };
            let mut draw = Draw::new(own, 3 + fault.id);
            if !draw.hits(share) {
                continue;
            }
            harmed = true;
            match harm {
                Harm::Late => late = late + Duration::from_micros(draw.log(100, 500_000)),
                Harm::Lost => copies = 0,
                Harm::Doubled => copies = draw.from(2, 3),
                Harm::Overtaken => {
                    (late, overtaken) = (late + Duration::from_micros(draw.log(10, 100_000)), true);
                }
                Harm::Truncated => bytes.truncate(draw.below(bytes.len() as u64) as usize),
                Harm::Flipped => {
                    for _ in 0..draw.log(1, 8) {
                        let bit = draw.below(8 * bytes.len().max(1) as u64);
                        if let Some(byte) = bytes.get_mut(bit as usize / 8) {
                            *byte ^= 1 << (bit % 8);
                        }
                    }
                }
            }
        }
        // TCP retransmits after the cut.
        if let Some(end) = plan.cut_until(now) {
            harmed = true;
            late = late + end.since(now);
        }
        for _ in 0..copies {
            self.put(now + plan.message + late, !overtaken, bytes.clone());
        }
        harmed
    }

    /// Sends bytes that are no valid message.
    pub fn send_invalid(&mut self, due: Time, bytes: Vec<u8>) {
        match &mut self.stream {
            Some(stream) => stream.send_garbage(due, &bytes),
            None => self.put(due, true, bytes),
        }
    }

    /// Schedules the arrival of bytes; `in_order` means not before earlier ones.
    pub fn put(&mut self, mut due: Time, in_order: bool, bytes: Vec<u8>) {
        if in_order {
            due = due.max(self.last);
            self.last = due;
        }
        if let Some(stream) = &mut self.stream {
            return stream.send(due, bytes);
        }
        self.under_way.insert((due, self.sent), bytes);
        self.sent += 1;
    }
}
