//! Agents inside the simulation, and the datapath flows that they steer.
//!
//! A steered flow runs its program at every ACK at once. Its reports reach the agent, and the
//! agent's commands the flow, after a delay each: reading, deciding and writing take time outside a
//! simulation.

mod announce;

use ccplane_agent::datapath::{Brought, Delays, Here, Local, Shared, Way};
use ccplane_agent::{Agent, AlgorithmStats, DatapathId, Tables};
use ccplane_datapath::{Capabilities, Limits};
use ccplane_transport::{Native, State};
use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, Event};

use crate::end::{Controller, Steer};
use crate::event::Kind;
use crate::flow::FlowId;
use crate::packet::NONE;
use crate::{Simulation, Tracer, World};

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
    /// What its flows can do: what a connection can, or, for an agent that steers bundles, what a
    /// bundle can.
    pub capabilities: Capabilities,
    /// Of the reports that the agent gets, so many are kept, the first ones ([`World::heard`]); 0
    /// costs nothing.
    pub keep_reports: usize,
}

impl Default for SteerOptions {
    /// For connections, 20 µs each way: what CCP's authors measured between a kernel and its agent
    /// (papers/ccp-evaluation).
    fn default() -> SteerOptions {
        SteerOptions {
            to_agent: Duration::from_micros(20),
            from_agent: Duration::from_micros(20),
            limits: Limits::default(),
            capabilities: CAPABILITIES,
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

/// An agent's datapath: what the flows that it steers share.
pub(crate) struct Host {
    pub shared: Shared<Out>,
    /// The number of the host that keeps the agent, where this is another datapath of it.
    with: Option<u32>,
    keep_reports: usize,
    heard: Vec<HeardReport>,
    /// When the next of what goes either way is due, if that is planned, and when the agent's next
    /// deadline is.
    pub due: Time,
    pub deadline: Time,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// A steered flow; beside it the number of its [`Host`].
pub(crate) type Steered = Local<u32>;

/// What a steered flow takes in memory more than one under a native control, bytes.
pub const STEERED_FLOW_EXTRA_BYTES: usize = size_of::<Option<Steered>>() - size_of::<Native>();

/// To an agent and back.
pub(crate) struct Out {
    /// The agent. There is none in it where something stands in its place.
    here: Here,
    instead: Option<Box<dyn Way>>,
}

/// A flow's stamps are switched on in its transport's configuration.
const CAPABILITIES: Capabilities =
    ccplane_transport::CAPABILITIES.with(Capabilities::ONE_WAY_DELAY);

impl Host {
    /// One whose agent is there before the simulation begins: its programs are in place at time 0.
    pub fn new(agent: Agent, options: SteerOptions, index: u32) -> Host {
        let mut host = Host::through(agent, None, options, index);
        let datapath = host.shared.describe();
        host.agent_mut()
            .handle(Time::ZERO, DatapathId(index), Event::Ready { datapath });
        while let Some((_, command)) = host.agent_mut().poll() {
            host.take(Time::ZERO, &command, None);
        }
        host
    }

    /// One whose agents are where the flows do not see them.
    pub fn behind(way: Box<dyn Way>, options: SteerOptions, index: u32) -> Host {
        Host::through(Agent::default(), Some(way), options, index)
    }

    fn through(
        agent: Agent,
        instead: Option<Box<dyn Way>>,
        options: SteerOptions,
        index: u32,
    ) -> Host {
        let delays = Delays {
            to_agent: options.to_agent,
            from_agent: options.from_agent,
        };
        let here = Here::after(agent, DatapathId(index), delays);
        let tables = Tables::new(options.limits, options.capabilities);
        Host {
            shared: Shared::new(index, "sim", tables, Out { here, instead }),
            with: None,
            keep_reports: options.keep_reports,
            heard: Vec::new(),
            due: Time::MAX,
            deadline: Time::MAX,
        }
    }

    /// Whether it has an algorithm of this name; an empty one is the first.
    pub fn offers(&self, algorithm: &str) -> bool {
        let mut hosted = match self.shared.way.instead {
            Some(_) => return true,
            None => self.agent().hosted(),
        };
        match algorithm {
            "" => hosted.next().is_some(),
            _ => hosted.any(|hosted| *hosted.name == *algorithm || hosted.kernel_name == algorithm),
        }
    }

    pub fn agent(&self) -> &Agent {
        &self.shared.way.here.agent
    }

    fn agent_mut(&mut self) -> &mut Agent {
        &mut self.shared.way.here.agent
    }

    /// When something reaches either side next.
    #[inline]
    pub fn next_due(&self) -> Time {
        match &self.shared.way.instead {
            Some(way) => way.next_deadline().unwrap_or(Time::MAX),
            None => self.shared.way.here.next_due(),
        }
    }

    pub fn next_deadline(&self) -> Time {
        self.agent().next_deadline().unwrap_or(Time::MAX)
    }

    /// The agent gets what has come by now. `other` is the host that keeps the agent, where that is
    /// another one.
    pub fn deliver(&mut self, now: Time, other: Option<&mut Host>) {
        let (heard, most) = (&mut self.heard, self.keep_reports);
        let see = |event: &Event<'_>| {
            if let Event::Report {
                flow,
                program,
                urgent,
                fields,
            } = *event
                && heard.len() < most
            {
                heard.push(HeardReport {
                    at: now,
                    flow: FlowId(flow as u32),
                    program,
                    urgent,
                    fields: fields.to_vec(),
                });
            }
        };
        let here = &mut self.shared.way.here;
        match other {
            None => here.deliver(now, see),
            Some(other) => {
                here.deliver_to(other.agent_mut(), now, see);
                other.shared.way.here.collect(now);
            }
        }
    }

    /// The agent's deadline has come.
    pub fn on_deadline(&mut self, now: Time) {
        self.shared.way.here.on_deadline(now);
    }

    /// What reaches the datapath now. Commands that are for no flow are done at once.
    pub fn next_brought(&mut self, now: Time) -> Option<Brought> {
        loop {
            let brought = self.shared.way.bring(now)?;
            match &brought {
                Brought::Command(
                    command @ (Command::Offer(_)
                    | Command::Install { .. }
                    | Command::Heartbeat { .. }),
                ) => self.take(now, command, None),
                _ => return Some(brought),
            }
        }
    }

    /// Does what a command says, to its flow where that lives.
    pub fn take(&mut self, now: Time, command: &Command, flow: Option<&mut Steered>) {
        self.shared.take(now, command, |_| flow);
    }
}

impl Way for Out {
    #[inline(always)]
    fn report(&mut self, now: Time, report: &Event<'_>) -> bool {
        match &mut self.instead {
            Some(way) => way.report(now, report),
            None => self.here.report(now, report),
        }
    }

    fn tell(&mut self, now: Time, event: Event<'static>) {
        match &mut self.instead {
            Some(way) => way.tell(now, event),
            None => self.here.tell(now, event),
        }
    }

    fn bring(&mut self, now: Time) -> Option<Brought> {
        match &mut self.instead {
            Some(way) => way.bring(now),
            None => self.here.bring(now),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.instead {
            Some(way) => way.next_deadline(),
            None => self.here.next_deadline(),
        }
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

    /// Adds a way to agents, wherever these are: a link that loses messages, agents that die. It is
    /// asked for what it brings from the time that it says on; [`Way::look`] and [`Way::flush`] are
    /// not called.
    pub fn host_behind(&mut self, way: Box<dyn Way>, options: SteerOptions) -> AgentId {
        let id = self.hosts.len() as u32;
        self.hosts.push(Host::behind(way, options, id));
        self.plan_agent(id);
        AgentId(id)
    }

    /// Adds another datapath of an agent that is here: that of another host, with delays of its
    /// own. The same agent steers flows under the returned id. `None` where there is no such agent,
    /// or it is [behind a way](World::host_behind).
    pub fn host_also(&mut self, agent: AgentId, options: SteerOptions) -> Option<AgentId> {
        let with = self.keeper(agent.0);
        let keeper = self.hosts.get(with as usize)?;
        if keeper.shared.way.instead.is_some() {
            return None;
        }
        let id = self.hosts.len() as u32;
        let mut host = Host::through(Agent::default(), None, options, id);
        host.with = Some(with);
        let datapath = host.shared.describe();
        self.hosts.push(host);
        let keeper = with as usize;
        self.hosts[keeper]
            .agent_mut()
            .handle(self.now, DatapathId(id), Event::Ready { datapath });
        // Its programs are in place at once, as those of the first are.
        while let Some((to, command)) = self.hosts[keeper].agent_mut().poll() {
            if let Some(host) = self.hosts.get_mut(to.0 as usize) {
                host.take(self.now, &command, None);
            }
        }
        self.plan_agent(id);
        self.plan_agent(with);
        Some(AgentId(id))
    }

    /// The number of the host that keeps this one's agent: mostly this one.
    pub(crate) fn keeper(&self, agent: u32) -> u32 {
        self.hosts
            .get(agent as usize)
            .and_then(|host| host.with)
            .unwrap_or(agent)
    }

    /// An agent gets what has come by now from one of its datapaths.
    fn deliver(&mut self, agent: u32) {
        let (now, keeper) = (self.now, self.keeper(agent));
        match self
            .hosts
            .get_disjoint_mut([agent as usize, keeper as usize])
        {
            Ok([host, keeper]) => host.deliver(now, Some(keeper)),
            // They are one: the host keeps its agent itself.
            Err(_) => self.hosts[agent as usize].deliver(now, None),
        }
        self.pass_on(keeper);
        // For `agent` itself `steer` plans, when it has taken what is due.
        if keeper != agent {
            self.plan_agent(keeper);
        }
    }

    /// What an agent said to datapaths of other hosts than its keeper goes to them.
    pub(crate) fn pass_on(&mut self, keeper: u32) {
        let now = self.now;
        while let Some((to, command)) = self.hosts[keeper as usize].shared.way.here.next_elsewhere()
        {
            if let Some(host) = self.hosts.get_mut(to.0 as usize) {
                host.shared.way.here.take(now, command);
                self.plan_agent(to.0);
            }
        }
    }

    /// What an algorithm of an agent did so far.
    pub fn algorithm(&self, agent: AgentId, algorithm: &str) -> Option<AlgorithmStats> {
        self.agent(agent)?.stats(algorithm)
    }

    /// The reports that an agent got, as many as its [`SteerOptions`] keep.
    pub fn heard(&self, agent: AgentId) -> &[HeardReport] {
        self.hosts
            .get(agent.0 as usize)
            .map_or(&[], |host| &host.heard)
    }

    /// The agent itself.
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        Some(self.hosts.get(self.keeper(agent.0) as usize)?.agent())
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
        self.world.deliver(agent);
        while let Some(brought) = self.world.hosts[agent as usize].next_brought(now) {
            let world = &mut self.world;
            let (number, command) = match brought {
                Brought::Agent => {
                    world.announce(agent);
                    continue;
                }
                Brought::Command(command) => (flow_of(&command), command),
            };
            let Ok(number) = u32::try_from(number) else {
                self.steer_bundle(agent, number, &command);
                continue;
            };
            let pair = world
                .flows
                .get(number as usize)
                .map_or(NONE, |flow| flow.ends);
            let end = world
                .ends
                .get_mut(pair as usize)
                .filter(|end| end.flow == number);
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
                connection
                    .on_control_deadline(now, &mut host.shared.lend(u64::from(number), steered));
                self.pump(pair);
            }
        }
        self.world.plan_agent(agent);
    }
}

/// The number of the flow or bundle that a command is for; none has the highest of either.
fn flow_of(command: &Command) -> u64 {
    match command {
        Command::SetProgram { flow, .. }
        | Command::Update { flow, .. }
        | Command::Release { flow } => *flow,
        Command::Offer(_) | Command::Install { .. } | Command::Heartbeat { .. } => {
            u64::from(u32::MAX)
        }
    }
}
