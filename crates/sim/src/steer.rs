//! Agents inside the simulation, and the datapath flows that they steer.
//!
//! A steered flow runs its program at every ACK at once. Its reports reach the agent, and the agent's commands the flow,
//! after a delay each: reading, deciding and writing take time outside a simulation.

mod between;

use std::collections::VecDeque;

use ccplane_agent::{Agent, AlgorithmStats, DatapathId, FlowInfo, FlowStats, MAX_PROGRAMS, MAX_VARS, TableId, Tables};
use ccplane_datapath::{self as datapath, Capabilities, Limits, Outcome, ProgramTable, Urgency};
use ccplane_transport::{Control, Event as Happened, Native, State};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{Command, Event};

use crate::end::{Controller, Steer};
use crate::event::Kind;
use crate::flow::FlowId;
use crate::packet::NONE;
use crate::{Simulation, Tracer, World};

pub use between::{Between, Brought};

/// An agent of a simulation, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub(crate) u32);

/// How an agent is connected to the flows that it steers.
#[derive(Clone, Copy, Debug)]
pub struct SteerOptions {
    /// How old a report is when the agent sees it.
    pub to_agent: Duration,
    /// How long a command takes to the flow.
    pub from_agent: Duration,
    /// What the owner of the hosts allows.
    pub limits: Limits,
    /// Of the reports that the agent gets, so many are kept, the first ones ([`World::heard`]); 0 costs nothing.
    pub keep_reports: usize,
}

impl Default for SteerOptions {
    /// 20 µs each way, what CCP's authors measured between a kernel and its agent (papers/ccp-evaluation).
    fn default() -> SteerOptions {
        SteerOptions {
            to_agent: Duration::from_micros(20),
            from_agent: Duration::from_micros(20),
            limits: Limits::default(),
            keep_reports: 0,
        }
    }
}

/// A report, as an agent got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeardReport {
    /// When.
    pub at: Time,
    /// Of which flow.
    pub flow: FlowId,
    /// The identity of the program that made it.
    pub program: u32,
    /// A loss, a timeout or an undo made it.
    pub urgent: bool,
    /// Values in the order of the program's fields.
    pub fields: Vec<u64>,
}

/// An agent with what lies between it and its flows.
pub(crate) struct Host {
    agent: Agent,
    /// What stands in the agent's place, if anything does.
    between: Option<Box<dyn Between>>,
    id: DatapathId,
    options: SteerOptions,
    tables: Tables,
    to_agent: VecDeque<(Time, Message)>,
    from_agent: VecDeque<(Time, Command)>,
    heard: Vec<HeardReport>,
    /// When the next of either is due, if that is planned, and when the agent's next deadline is.
    pub due: Time,
    pub deadline: Time,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A flow under an agent.
#[derive(Debug)]
pub(crate) struct Steered {
    pub flow: datapath::Flow<MAX_VARS>,
    pub host: u32,
    table: TableId,
    pub in_fallback: bool,
}

/// What a steered flow takes in memory more than one under a native control, bytes.
pub const STEERED_FLOW_EXTRA_BYTES: usize = size_of::<Option<Steered>>() - size_of::<Native>();

/// What is on its way to the agent.
enum Message {
    Report {
        flow: u32,
        program: u32,
        urgent: bool,
        count: u8,
        fields: [u64; MAX_VARS],
    },
    /// Anything but a report.
    Other(Event<'static>),
}

/// A flow's stamps are switched on in its transport's configuration.
const CAPABILITIES: Capabilities = ccplane_transport::CAPABILITIES.with(Capabilities::ONE_WAY_DELAY);

impl Host {
    pub fn new(agent: Agent, options: SteerOptions, index: u32) -> Host {
        let mut host = Host::empty(agent, options, index);
        // The agent is there before the simulation begins: its programs are in place at time 0.
        let datapath = host.tables.describe(index, "sim");
        host.agent.handle(Time::ZERO, host.id, Event::Ready { datapath });
        while let Some((_, command)) = host.agent.poll() {
            host.take(Time::ZERO, &command, None);
        }
        host
    }

    /// One whose agents are where the flows do not see them.
    pub fn behind(between: Box<dyn Between>, options: SteerOptions, index: u32) -> Host {
        Host {
            between: Some(between),
            ..Host::empty(Agent::default(), options, index)
        }
    }

    fn empty(agent: Agent, options: SteerOptions, index: u32) -> Host {
        Host {
            agent,
            between: None,
            id: DatapathId(index),
            options,
            tables: Tables::new(options.limits, CAPABILITIES),
            to_agent: VecDeque::new(),
            from_agent: VecDeque::new(),
            heard: Vec::new(),
            due: Time::MAX,
            deadline: Time::MAX,
        }
    }

    /// Whether it has an algorithm of this name; an empty one is the first.
    pub fn offers(&self, algorithm: &str) -> bool {
        let mut hosted = match self.between {
            Some(_) => return true,
            None => self.agent.hosted(),
        };
        match algorithm {
            "" => hosted.next().is_some(),
            _ => hosted.any(|hosted| *hosted.name == *algorithm || hosted.kernel_name == algorithm),
        }
    }

    pub fn stats(&self, algorithm: &str) -> Option<AlgorithmStats> {
        self.agent.stats(algorithm)
    }

    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    pub fn open(&mut self, now: Time, flow: u32, info: FlowInfo) {
        let flow = u64::from(flow);
        self.tell(now, Event::FlowOpened { flow, info });
    }

    pub fn close(&mut self, now: Time, flow: u32, stats: FlowStats) {
        let flow = u64::from(flow);
        self.tell(now, Event::FlowClosed { flow, stats });
    }

    fn tell(&mut self, now: Time, event: Event<'static>) {
        if let Some(between) = &mut self.between {
            between.say(now, &event);
            return;
        }
        self.to_agent
            .push_back((now + self.options.to_agent, Message::Other(event)));
    }

    /// When something reaches either side next.
    pub fn next_due(&self) -> Time {
        if let Some(between) = &self.between {
            return between.next_due();
        }
        let agent = self.to_agent.front().map_or(Time::MAX, |(due, _)| *due);
        let flows = self.from_agent.front().map_or(Time::MAX, |(due, _)| *due);
        agent.min(flows)
    }

    pub fn next_deadline(&self) -> Time {
        self.agent.next_deadline().unwrap_or(Time::MAX)
    }

    /// The agent gets what has come by now.
    pub fn deliver(&mut self, now: Time) {
        while let Some((due, _)) = self.to_agent.front()
            && *due <= now
            && let Some((_, message)) = self.to_agent.pop_front()
        {
            let event = match message {
                Message::Report {
                    flow,
                    program,
                    urgent,
                    count,
                    ref fields,
                } => {
                    let fields = fields.get(..usize::from(count)).unwrap_or_default();
                    if self.heard.len() < self.options.keep_reports {
                        self.heard.push(HeardReport {
                            at: now,
                            flow: FlowId(flow),
                            program,
                            urgent,
                            fields: fields.to_vec(),
                        });
                    }
                    Event::Report {
                        flow: u64::from(flow),
                        program,
                        urgent,
                        fields,
                    }
                }
                Message::Other(event) => event,
            };
            self.agent.handle(now, self.id, event);
        }
        self.collect(now);
    }

    /// The agent's deadline has come.
    pub fn on_deadline(&mut self, now: Time) {
        self.agent.on_deadline(now);
        self.collect(now);
    }

    fn collect(&mut self, now: Time) {
        while let Some((_, command)) = self.agent.poll() {
            self.from_agent.push_back((now + self.options.from_agent, command));
        }
    }

    /// What reaches the datapath now. Commands that are for no flow are done at once.
    pub fn next_brought(&mut self, now: Time) -> Option<Brought> {
        loop {
            let brought = match &mut self.between {
                Some(between) => between.bring(now)?,
                None => {
                    self.from_agent.front().filter(|(due, _)| *due <= now)?;
                    Brought::Command(self.from_agent.pop_front()?.1)
                }
            };
            match &brought {
                Brought::Command(
                    command @ (Command::Offer(_) | Command::Install { .. } | Command::Heartbeat { .. }),
                ) => {
                    self.take(now, command, None);
                }
                _ => return Some(brought),
            }
        }
    }

    /// Does what a command says, to its flow where that lives.
    pub fn take(&mut self, now: Time, command: &Command, flow: Option<&mut Steered>) {
        let flow = flow.map(|steered| (&mut steered.flow, &mut steered.table));
        if let Some(answer) = self.tables.handle(now, command, |_| flow) {
            self.tell(now, answer);
        }
    }
}

impl Steered {
    pub fn new(now: Time, host: u32, initial_window: Bytes) -> Steered {
        Steered {
            flow: datapath::Flow::new(now, initial_window.get()),
            host,
            table: TableId::NOBODY,
            in_fallback: false,
        }
    }
}

/// A steered flow and its agent, as the transport sees them.
pub(crate) struct Steering<'a> {
    pub steered: &'a mut Steered,
    pub host: &'a mut Host,
    /// The flow's number.
    pub number: u32,
}

impl Steering<'_> {
    #[inline(always)]
    fn answer(
        &mut self,
        now: Time,
        run: impl FnOnce(&mut datapath::Flow<MAX_VARS>, &ProgramTable<MAX_PROGRAMS>) -> Outcome,
    ) -> Outcome {
        let host = &mut *self.host;
        let programs = host.tables.of(self.steered.table);
        let outcome = run(&mut self.steered.flow, programs);
        self.steered.in_fallback = outcome.fallback;
        if let Some(urgency) = outcome.report {
            let values = self.steered.flow.report(programs);
            if let Some(between) = &mut host.between {
                let event = Event::Report {
                    flow: u64::from(self.number),
                    program: self.steered.flow.program_uid().unwrap_or(0),
                    urgent: urgency == Urgency::Urgent,
                    fields: values,
                };
                if between.say(now, &event) {
                    self.steered.flow.report_queued(programs);
                }
                return outcome;
            }
            let mut fields = [0; MAX_VARS];
            for (field, value) in fields.iter_mut().zip(values) {
                *field = *value;
            }
            let message = Message::Report {
                flow: self.number,
                program: self.steered.flow.program_uid().unwrap_or(0),
                urgent: urgency == Urgency::Urgent,
                count: values.len().min(MAX_VARS) as u8,
                fields,
            };
            host.to_agent.push_back((now + host.options.to_agent, message));
            self.steered.flow.report_queued(programs);
        }
        outcome
    }
}

impl Control for Steering<'_> {
    const STEERED: bool = true;

    #[inline(always)]
    fn on_event(&mut self, event: &Happened<'_>) -> Outcome {
        self.answer(event.now, |flow, programs| {
            flow.on_ack(&event.transport(), &event.signals(), programs)
        })
    }

    fn next_deadline(&self) -> Option<Time> {
        self.steered.flow.next_deadline()
    }

    fn on_deadline(&mut self, event: &Happened<'_>) -> Outcome {
        self.answer(event.now, |flow, programs| {
            flow.on_deadline(&event.transport(), programs)
        })
    }
}

impl World {
    /// Adds an agent and its algorithms.
    pub fn host_agent(&mut self, agent: Agent, options: SteerOptions) -> AgentId {
        let id = self.hosts.len() as u32;
        let host = Host::new(agent, options, id);
        self.hosts.push(host);
        self.plan_agent(id);
        AgentId(id)
    }

    /// Adds what stands between flows and their agents, wherever these are.
    pub fn host_between(&mut self, between: Box<dyn Between>, options: SteerOptions) -> AgentId {
        let id = self.hosts.len() as u32;
        self.hosts.push(Host::behind(between, options, id));
        self.plan_agent(id);
        AgentId(id)
    }

    /// What an algorithm of an agent did so far.
    pub fn algorithm(&self, agent: AgentId, algorithm: &str) -> Option<AlgorithmStats> {
        self.hosts.get(agent.0 as usize)?.stats(algorithm)
    }

    /// The reports that an agent got, as many as its [`SteerOptions`] keep.
    pub fn heard(&self, agent: AgentId) -> &[HeardReport] {
        self.hosts.get(agent.0 as usize).map_or(&[], |host| &host.heard)
    }

    /// The agent itself.
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        Some(self.hosts.get(agent.0 as usize)?.agent())
    }

    /// Sees that what goes to and from an agent has its event, and the agent's deadline.
    pub(crate) fn plan_agent(&mut self, agent: u32) {
        let host = &mut self.hosts[agent as usize];
        let due = host.next_due();
        if due < host.due {
            host.due = due;
            self.events.push(due, Kind::Steer, agent);
        }
        let deadline = host.next_deadline();
        if deadline < host.deadline {
            host.deadline = deadline;
            self.events.push(deadline, Kind::AgentDeadline, agent);
        }
    }

    pub(crate) fn add_steered(&mut self, steered: Steered) -> Controller {
        Controller::agent(match self.free_steered.pop() {
            Some(place) => {
                self.steered[place as usize] = Some(steered);
                place as usize
            }
            None => {
                self.steered.push(Some(steered));
                self.steered.len() - 1
            }
        })
    }
}

impl<T: Tracer> Simulation<T> {
    /// Reports come to an agent, commands to its flows.
    pub(crate) fn steer(&mut self, agent: u32) {
        let now = self.world.now;
        let host = &mut self.world.hosts[agent as usize];
        if host.due != now {
            return;
        }
        host.due = Time::MAX;
        host.deliver(now);
        while let Some(brought) = self.world.hosts[agent as usize].next_brought(now) {
            let world = &mut self.world;
            let (number, command) = match brought {
                Brought::Agent => {
                    world.announce(agent);
                    continue;
                }
                Brought::Command(command) => (between::flow_of(&command), command),
            };
            let pair = world.flows.get(number as usize).map_or(NONE, |flow| flow.ends);
            let end = world.ends.get_mut(pair as usize).filter(|end| end.flow == number);
            let place = match end.as_ref().map(|end| end.control.get()) {
                Some(Steer::Agent(place)) => place,
                _ => usize::MAX,
            };
            let host = &mut world.hosts[agent as usize];
            let Some(steered) = world.steered.get_mut(place).and_then(Option::as_mut) else {
                host.take(now, &command, None);
                continue;
            };
            host.take(now, &command, Some(steered));
            if let Some(connection) = end.and_then(|end| end.connection.as_mut())
                && matches!(connection.state(), State::Open)
            {
                connection.on_control_deadline(now, &mut Steering { steered, host, number });
                self.pump(pair);
            }
        }
        self.world.plan_agent(agent);
    }
}
