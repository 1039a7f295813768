//! Agents in the simulation and the datapath flows that they control.
//!
//! A steered flow runs its program on every ACK without delay. Its reports to the agent, and the
//! agent's commands, have a delay each, which models the time to read, decide and write outside a
//! simulation.

mod announce;

use ccplane_agent::datapath::{
    AgentChannel, DatapathCore, Delays, FlowState, Incoming, InlineChannel,
};
use ccplane_agent::{Agent, AlgorithmStats, DatapathId, ProgramTables};
use ccplane_datapath::{Capabilities, OperatorLimits};
use ccplane_transport::{ConnectionState, Native};
use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use crate::endpoint::{Controller, ControllerKind};
use crate::event::EventKind;
use crate::flow::FlowId;
use crate::packet::NO_INDEX;
use crate::{Simulation, Tracer, World};

/// Agent, numbered in the order of addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub(crate) u32);

/// Connection between an agent and its flows.
#[derive(Clone, Copy, Debug)]
pub struct SteerOptions {
    /// Delay of reports.
    pub to_agent: Duration,
    /// Delay of commands.
    pub from_agent: Duration,
    /// Limits set by the operator of the hosts.
    pub limits: OperatorLimits,
    /// Capabilities of the flows: of a connection or, for an agent that controls bundles, of a
    /// bundle.
    pub capabilities: Capabilities,
    /// Number of reports to record, from the first ([`World::recorded_reports`]); 0 has no cost.
    pub keep_reports: usize,
}

impl Default for SteerOptions {
    /// For connections: 20 µs each way, as CCP's authors measured between a kernel and its agent
    /// (papers/ccp-evaluation).
    fn default() -> SteerOptions {
        SteerOptions {
            to_agent: Duration::from_micros(20),
            from_agent: Duration::from_micros(20),
            limits: OperatorLimits::default(),
            capabilities: CONNECTION_CAPABILITIES,
            keep_reports: 0,
        }
    }
}

/// Report as received by an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedReport {
    /// Time of receipt.
    pub at: Time,
    /// Flow of the report.
    pub flow: FlowId,
    /// Identity of the program.
    pub program: u32,
    /// The report was caused by a loss, a timeout or an undo.
    pub urgent: bool,
    /// Values in the order of the program's fields.
    pub fields: Vec<u64>,
}

/// Datapath of an agent: the part that all its flows share.
pub(crate) struct AgentHost {
    pub shared: DatapathCore<SimAgentChannel>,
    /// Index of the host that stores the agent, if this is another datapath of the same agent.
    agent_host: Option<u32>,
    keep_reports: usize,
    recorded_reports: Vec<RecordedReport>,
    /// Time of the scheduled event for messages in either direction, and of the agent's next
    /// deadline.
    pub due: Time,
    pub deadline: Time,
}

impl std::fmt::Debug for AgentHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host")
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// Steered flow, with the index of its [`AgentHost`] as user data.
pub(crate) type HostedFlow = FlowState<u32>;

/// Additional memory of a steered flow over one under native control, bytes.
pub const STEERED_FLOW_EXTRA_BYTES: usize = size_of::<Option<HostedFlow>>() - size_of::<Native>();

/// Channel between the datapath and its agent.
pub(crate) struct SimAgentChannel {
    /// The agent, stored inline; empty if `instead` is used.
    inline: InlineChannel,
    channel: Option<Box<dyn AgentChannel>>,
}

/// The transport configuration of a flow enables its timestamps.
const CONNECTION_CAPABILITIES: Capabilities =
    ccplane_transport::CAPABILITIES.union(Capabilities::ONE_WAY_DELAY);

impl AgentHost {
    /// Creates a host with an agent that was connected before the simulation starts: its programs
    /// are installed at time 0.
    pub fn new(agent: Agent, options: SteerOptions, index: u32) -> AgentHost {
        let mut host = AgentHost::with_channel(agent, None, options, index);
        let datapath = host.shared.describe();
        host.agent_mut()
            .handle(Time::ZERO, DatapathId(index), WireEvent::Ready { datapath });
        while let Some((_, command)) = host.agent_mut().poll() {
            host.execute(Time::ZERO, &command, None);
        }
        host
    }

    /// Creates a host whose agents are behind a channel.
    pub fn behind_channel(
        way: Box<dyn AgentChannel>,
        options: SteerOptions,
        index: u32,
    ) -> AgentHost {
        AgentHost::with_channel(Agent::default(), Some(way), options, index)
    }

    fn with_channel(
        agent: Agent,
        instead: Option<Box<dyn AgentChannel>>,
        options: SteerOptions,
        index: u32,
    ) -> AgentHost {
        let delays = Delays {
            to_agent: options.to_agent,
            from_agent: options.from_agent,
        };
        let here = InlineChannel::with_delays(agent, DatapathId(index), delays);
        let tables = ProgramTables::new(options.limits, options.capabilities);
        AgentHost {
            shared: DatapathCore::new(
                index,
                "sim",
                tables,
                SimAgentChannel {
                    inline: here,
                    channel: instead,
                },
            ),
            agent_host: None,
            keep_reports: options.keep_reports,
            recorded_reports: Vec::new(),
            due: Time::MAX,
            deadline: Time::MAX,
        }
    }

    /// Returns true if the agent has an algorithm of this name; an empty name matches its first
    /// algorithm.
    pub fn has_algorithm(&self, algorithm: &str) -> bool {
        let mut hosted = match self.shared.channel.channel {
            Some(_) => return true,
            None => self.agent().hosted_algorithms(),
        };
        match algorithm {
            "" => hosted.next().is_some(),
            _ => hosted.any(|hosted| *hosted.name == *algorithm || hosted.kernel_name == algorithm),
        }
    }

    pub fn agent(&self) -> &Agent {
        &self.shared.channel.inline.agent
    }

    fn agent_mut(&mut self) -> &mut Agent {
        &mut self.shared.channel.inline.agent
    }

    /// Returns the time at which the next message arrives at either side.
    #[inline]
    pub fn next_due(&self) -> Time {
        match &self.shared.channel.channel {
            Some(way) => way.next_deadline().unwrap_or(Time::MAX),
            None => self.shared.channel.inline.next_delivery(),
        }
    }

    pub fn next_deadline(&self) -> Time {
        self.agent().next_deadline().unwrap_or(Time::MAX)
    }

    /// Delivers the messages due by now to the agent. `other` is the host that stores the agent, if
    /// it is another one.
    pub fn deliver(&mut self, now: Time, other: Option<&mut AgentHost>) {
        let (heard, most) = (&mut self.recorded_reports, self.keep_reports);
        let see = |event: &WireEvent<'_>| {
            if let WireEvent::Report {
                flow,
                program,
                urgent,
                fields,
            } = *event
                && heard.len() < most
            {
                heard.push(RecordedReport {
                    at: now,
                    flow: FlowId(flow as u32),
                    program,
                    urgent,
                    fields: fields.to_vec(),
                });
            }
        };
        let here = &mut self.shared.channel.inline;
        match other {
            None => here.deliver(now, see),
            Some(other) => {
                here.deliver_to(other.agent_mut(), now, see);
                other.shared.channel.inline.collect_commands(now);
            }
        }
    }

    /// Handles the agent's deadline.
    pub fn on_deadline(&mut self, now: Time) {
        self.shared.channel.inline.on_deadline(now);
    }

    /// Returns the next message that arrives at the datapath now. Commands that concern no flow are
    /// executed immediately.
    pub fn next_message(&mut self, now: Time) -> Option<Incoming> {
        loop {
            let brought = self.shared.channel.recv(now)?;
            match &brought {
                Incoming::Command(
                    command @ (WireCommand::Offer(_)
                    | WireCommand::Install { .. }
                    | WireCommand::Heartbeat { .. }),
                ) => self.execute(now, command, None),
                _ => return Some(brought),
            }
        }
    }

    /// Executes a command, on its flow if that is still open.
    pub fn execute(&mut self, now: Time, command: &WireCommand, flow: Option<&mut HostedFlow>) {
        self.shared.apply_command(now, command, |_| flow);
    }
}

impl AgentChannel for SimAgentChannel {
    #[inline(always)]
    fn try_report(&mut self, now: Time, report: &WireEvent<'_>) -> bool {
        match &mut self.channel {
            Some(way) => way.try_report(now, report),
            None => self.inline.try_report(now, report),
        }
    }

    fn send(&mut self, now: Time, event: WireEvent<'static>) {
        match &mut self.channel {
            Some(way) => way.send(now, event),
            None => self.inline.send(now, event),
        }
    }

    fn recv(&mut self, now: Time) -> Option<Incoming> {
        match &mut self.channel {
            Some(way) => way.recv(now),
            None => self.inline.recv(now),
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        match &self.channel {
            Some(way) => way.next_deadline(),
            None => self.inline.next_deadline(),
        }
    }
}

impl World {
    /// Adds an agent with its algorithms.
    pub fn host_agent(&mut self, agent: Agent, options: SteerOptions) -> AgentId {
        let id = self.hosts.len() as u32;
        let host = AgentHost::new(agent, options, id);
        self.hosts.push(host);
        self.schedule_agent(id);
        AgentId(id)
    }

    /// Adds a channel to agents outside of the simulator's control, for example one that loses
    /// messages, or whose agents crash. It is polled from its deadline on; [`AgentChannel::poll`]
    /// and [`AgentChannel::flush`] are not called.
    pub fn host_behind_channel(
        &mut self,
        way: Box<dyn AgentChannel>,
        options: SteerOptions,
    ) -> AgentId {
        let id = self.hosts.len() as u32;
        self.hosts.push(AgentHost::behind_channel(way, options, id));
        self.schedule_agent(id);
        AgentId(id)
    }

    /// Adds another datapath to an existing agent: another host, with its own delays. The agent
    /// controls the flows under the returned id. `None` if the agent does not exist or is [behind a
    /// channel](World::host_behind_channel).
    pub fn host_additional_datapath(
        &mut self,
        agent: AgentId,
        options: SteerOptions,
    ) -> Option<AgentId> {
        let with = self.agent_owner(agent.0);
        let keeper = self.hosts.get(with as usize)?;
        if keeper.shared.channel.channel.is_some() {
            return None;
        }
        let id = self.hosts.len() as u32;
        let mut host = AgentHost::with_channel(Agent::default(), None, options, id);
        host.agent_host = Some(with);
        let datapath = host.shared.describe();
        self.hosts.push(host);
        let keeper = with as usize;
        self.hosts[keeper].agent_mut().handle(
            self.now,
            DatapathId(id),
            WireEvent::Ready { datapath },
        );
        // Programs are installed immediately, as on the first datapath.
        while let Some((to, command)) = self.hosts[keeper].agent_mut().poll() {
            if let Some(host) = self.hosts.get_mut(to.0 as usize) {
                host.execute(self.now, &command, None);
            }
        }
        self.schedule_agent(id);
        self.schedule_agent(with);
        Some(AgentId(id))
    }

    /// Returns the index of the host that stores this host's agent, usually itself.
    pub(crate) fn agent_owner(&self, agent: u32) -> u32 {
        self.hosts
            .get(agent as usize)
            .and_then(|host| host.agent_host)
            .unwrap_or(agent)
    }

    /// Delivers the messages due from one of an agent's datapaths.
    fn deliver(&mut self, agent: u32) {
        let (now, keeper) = (self.now, self.agent_owner(agent));
        match self
            .hosts
            .get_disjoint_mut([agent as usize, keeper as usize])
        {
            Ok([host, keeper]) => host.deliver(now, Some(keeper)),
            // The indices are equal: the host stores its agent itself.
            Err(_) => self.hosts[agent as usize].deliver(now, None),
        }
        self.forward_commands(keeper);
        // `steer` schedules `agent` itself after it has handled what is due.
        if keeper != agent {
            self.schedule_agent(keeper);
        }
    }

    /// Passes an agent's commands for other hosts on to them.
    pub(crate) fn forward_commands(&mut self, keeper: u32) {
        let now = self.now;
        while let Some((to, command)) = self.hosts[keeper as usize]
            .shared
            .channel
            .inline
            .next_other_command()
        {
            if let Some(host) = self.hosts.get_mut(to.0 as usize) {
                host.shared.channel.inline.push_command(now, command);
                self.schedule_agent(to.0);
            }
        }
    }

    /// Returns the statistics of an agent's algorithm.
    pub fn algorithm(&self, agent: AgentId, algorithm: &str) -> Option<AlgorithmStats> {
        self.agent(agent)?.stats(algorithm)
    }

    /// Returns the recorded reports of an agent; see [`SteerOptions::keep_reports`].
    pub fn recorded_reports(&self, agent: AgentId) -> &[RecordedReport] {
        self.hosts
            .get(agent.0 as usize)
            .map_or(&[], |host| &host.recorded_reports)
    }

    /// Returns an agent.
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        Some(self.hosts.get(self.agent_owner(agent.0) as usize)?.agent())
    }

    /// Schedules the next message of an agent and its deadline.
    pub(crate) fn schedule_agent(&mut self, agent: u32) {
        let host = &mut self.hosts[agent as usize];
        let due = host.next_due();
        if due < host.due {
            host.due = due;
            self.events.push(due, EventKind::Steer, agent);
        }
        let deadline = host.next_deadline();
        if deadline < host.deadline {
            host.deadline = deadline;
            self.events.push(deadline, EventKind::AgentDeadline, agent);
        }
    }

    pub(crate) fn add_steered(&mut self, steered: HostedFlow) -> Controller {
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
    /// Delivers reports to an agent and commands to its flows.
    pub(crate) fn steer(&mut self, agent: u32) {
        let now = self.world.now;
        let host = &mut self.world.hosts[agent as usize];
        if host.due != now {
            return;
        }
        host.due = Time::MAX;
        self.world.deliver(agent);
        while let Some(brought) = self.world.hosts[agent as usize].next_message(now) {
            let world = &mut self.world;
            let (number, command) = match brought {
                Incoming::AgentConnected => {
                    world.announce(agent);
                    continue;
                }
                Incoming::Command(command) => (command_flow(&command), command),
            };
            let Ok(number) = u32::try_from(number) else {
                self.steer_bundle(agent, number, &command);
                continue;
            };
            let pair = world
                .flows
                .get(number as usize)
                .map_or(NO_INDEX, |flow| flow.ends);
            let end = world
                .ends
                .get_mut(pair as usize)
                .filter(|end| end.flow == number);
            let place = match end.as_ref().map(|end| end.control.get()) {
                Some(ControllerKind::Agent(place)) => place,
                _ => usize::MAX,
            };
            let host = &mut world.hosts[agent as usize];
            let Some(steered) = world.steered.get_mut(place).and_then(Option::as_mut) else {
                host.execute(now, &command, None);
                continue;
            };
            host.execute(now, &command, Some(steered));
            if let Some(connection) = end.and_then(|end| end.connection.as_mut())
                && matches!(connection.state(), ConnectionState::Open)
            {
                connection.on_control_deadline(
                    now,
                    &mut host.shared.flow_mut(u64::from(number), steered),
                );
                self.pump(pair);
            }
        }
        self.world.schedule_agent(agent);
    }
}

/// Returns the flow or bundle of a command; the highest number for commands that concern none.
fn command_flow(command: &WireCommand) -> u64 {
    match command {
        WireCommand::SetProgram { flow, .. }
        | WireCommand::Update { flow, .. }
        | WireCommand::Release { flow } => *flow,
        WireCommand::Offer(_) | WireCommand::Install { .. } | WireCommand::Heartbeat { .. } => {
            u64::from(u32::MAX)
        }
    }
}
