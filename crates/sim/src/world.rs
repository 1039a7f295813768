//! Everything in a simulation: the network, flows, agents and applications, and the time it is there.

use std::any::Any;

use ccplane_agent::{Agent, AlgorithmStats};
use ccplane_transport::{Connection, Native};
use ccplane_units::{Duration, Rate, Time};

use crate::app::{App, AppId};
use crate::change::Change;
use crate::digest::Digest;
use crate::event::{Events, Kind, MOST};
use crate::flow::{
    Congestion, Controller, Direction, End, Flow, FlowId, FlowSpec, FlowView, Rest, Steer, Wanted, same_kind,
};
use crate::host::Nic;
use crate::link::{Crossing, LinkView, Links};
use crate::network::{LinkId, Network, NodeId, Spread};
use crate::packet::{NONE, Packets};
use crate::probe::Sojourns;
use crate::random::{self, Purpose};
use crate::routing::{self, Routing};
use crate::steer::{AgentId, Host, SteerOptions, Steered};
use crate::{SimError, datagram::Datagrams};

/// How a simulation runs.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// All random numbers follow from it.
    pub seed: u64,
    /// Bytes that the network may take; a network that needs more is refused before it is made.
    pub memory_limit: u64,
}

impl Default for SimOptions {
    /// Seed 1, and 4 GB.
    fn default() -> SimOptions {
        SimOptions {
            seed: 1,
            memory_limit: 4_000_000_000,
        }
    }
}

/// What a simulation did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that happened.
    pub events: u64,
    /// Packets that crossed a link.
    pub hops: u64,
    /// Packets that hosts sent.
    pub sent: u64,
    /// Packets that hosts took.
    pub taken: u64,
    /// Packets dropped by links.
    pub dropped: u64,
    /// Packets that came to a switch that knew no way on.
    pub unroutable: u64,
    /// Packets of flows that were over.
    pub late: u64,
}

/// A path through the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Links on it.
    pub links: usize,
    /// Sum of the delays.
    pub delay: Duration,
    /// The lowest rate; `None` where no link has one.
    pub rate: Option<Rate>,
}

/// See the module. [`Simulation`](crate::Simulation) runs it.
#[derive(Debug)]
pub struct World {
    pub(crate) now: Time,
    pub(crate) options: SimOptions,
    pub(crate) network: Network,
    pub(crate) routing: Routing,
    pub(crate) links: Links,
    pub(crate) packets: Packets,
    pub(crate) events: Events,
    pub(crate) nics: Vec<Nic>,
    /// Of each link that leaves a host: its place in `nics`.
    pub(crate) nic_of: Vec<u32>,
    pub(crate) ends: Vec<End>,
    /// Places of pairs of ends that are free.
    pub(crate) free: Vec<u32>,
    pub(crate) flows: Vec<Flow>,
    /// Flows that have not finished.
    pub(crate) unfinished: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) natives: Vec<Native>,
    pub(crate) free_natives: Vec<u32>,
    pub(crate) steered: Vec<Option<Steered>>,
    pub(crate) free_steered: Vec<u32>,
    pub(crate) apps: Vec<Installed>,
    pub(crate) changes: Vec<Option<Change>>,
    pub(crate) datagrams: Datagrams,
    pub(crate) counters: Counters,
    /// Where each packet has a path of its own: a number of its own for each.
    pub(crate) spray: Option<u64>,
    /// Why an application cannot go on: the run ends with it.
    pub(crate) failed: Option<SimError>,
}

/// An application and its next event.
pub(crate) struct Installed {
    pub app: Option<Box<dyn App>>,
    pub next: Time,
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl World {
    pub(crate) fn new(network: Network, options: SimOptions) -> Result<World, SimError> {
        network.check()?;
        routing::check(&network)?;
        let needed = Routing::estimate(&network) + network.links.len() as u64 * 500;
        if needed > options.memory_limit || network.links.len().max(network.nodes.len()) >= MOST {
            return Err(SimError::TooLarge {
                what: format!(
                    "a network of {} nodes and {} links",
                    network.nodes.len(),
                    network.links.len()
                ),
                needed: needed / 1_000_000,
                limit: options.memory_limit / 1_000_000,
            });
        }
        let routing = Routing::new(&network, |_| true)?;
        let links = Links::new(&network, options.seed)?;
        let (mut nics, mut nic_of) = (Vec::new(), vec![NONE; network.links.len()]);
        for (index, (wire, spec)) in network.links.iter().zip(&network.specs).enumerate() {
            if network.nodes[wire.from as usize].host {
                nic_of[index] = nics.len() as u32;
                let full = links.time_for(index as u32, u64::from(spec.mtu));
                nics.push(Nic::new(index as u32, full, spec.mtu));
            }
        }
        let mut network = network;
        network.specs = Vec::new();
        let spray = (network.spread == Spread::PerPacket).then_some(0);
        Ok(World {
            now: Time::ZERO,
            options,
            network,
            routing,
            links,
            packets: Packets::default(),
            events: Events::default(),
            nics,
            nic_of,
            ends: Vec::new(),
            free: Vec::new(),
            flows: Vec::new(),
            unfinished: 0,
            hosts: Vec::new(),
            natives: Vec::new(),
            free_natives: Vec::new(),
            steered: Vec::new(),
            free_steered: Vec::new(),
            apps: Vec::new(),
            changes: Vec::new(),
            datagrams: Datagrams::default(),
            counters: Counters::default(),
            spray,
            failed: None,
        })
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// The network: its nodes, links and names. Descriptions of its links are no longer in it.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Adds a flow. One whose time has passed begins at once.
    pub fn add_flow(&mut self, spec: FlowSpec) -> Result<FlowId, SimError> {
        self.add(NONE, spec)
    }

    /// Adds a flow whose application is told what becomes of it.
    pub fn add_flow_of(&mut self, app: AppId, spec: FlowSpec) -> Result<FlowId, SimError> {
        self.add(app.0, spec)
    }

    fn add(&mut self, app: u32, spec: FlowSpec) -> Result<FlowId, SimError> {
        let (from, to) = (self.host_of(spec.from)?, self.host_of(spec.to)?);
        let wrong = |why: &str| SimError::Flow {
            from: self.network.name(spec.from).into(),
            to: self.network.name(spec.to).into(),
            why: why.into(),
        };
        if from == to {
            return Err(wrong("it would lead from a host to itself; take two hosts"));
        }
        if spec.transport.mss == 0 {
            return Err(wrong(
                "its segments carry nothing; give `mss` in the transport's settings",
            ));
        }
        if self.flows.len() + 1 >= MOST / 2 {
            return Err(SimError::TooLong("it has more than 134 million flows"));
        }
        self.routing.path(&self.network, from, to, 0)?;
        self.routing.path(&self.network, to, from, 0)?;
        let control = match spec.congestion {
            Congestion::Native(native) => Wanted::Native(native),
            Congestion::Steered(agent, algorithm) => {
                let host = self.hosts.get(agent.0 as usize).ok_or(SimError::Unknown {
                    what: "agent",
                    number: agent.0,
                    count: self.hosts.len(),
                })?;
                if !host.offers(&algorithm) {
                    return Err(SimError::UnknownAlgorithm(algorithm.as_ref().into()));
                }
                Wanted::Steered {
                    agent: agent.0,
                    algorithm,
                }
            }
        };
        let id = FlowId(self.flows.len() as u32);
        self.unfinished += u64::from(spec.bytes.is_some());
        self.flows.push(Flow {
            from,
            to,
            start: spec.start.max(self.now),
            finished: Time::MAX,
            bytes: spec.bytes.unwrap_or(u64::MAX),
            finish: spec.finish,
            ends: NONE,
            app,
            transport: spec.transport,
            rest: Some(Box::new(Rest::Waiting(control))),
        });
        self.events.push(spec.start.max(self.now), Kind::Start, id.0);
        Ok(id)
    }

    /// Adds bytes to a stream of a flow that lives; with `finish` they are its last. False when the flow has not begun
    /// or is over.
    pub fn write(&mut self, flow: FlowId, direction: Direction, bytes: u64, finish: bool) -> bool {
        let Some(pair) = self
            .flows
            .get(flow.index())
            .map(|flow| flow.ends)
            .filter(|ends| *ends != NONE)
        else {
            return false;
        };
        let (writer, reader) = match direction {
            Direction::Forward => (pair, pair + 1),
            Direction::Backward => (pair + 1, pair),
        };
        let Some(connection) = &mut self.ends[writer as usize].connection else {
            return false;
        };
        connection.write(bytes);
        if finish {
            connection.finish();
        }
        let end = &mut self.ends[reader as usize];
        end.written = end.written.saturating_add(bytes);
        end.set(End::AWAITS, true);
        if self.ends[writer as usize].control == Controller::NOBODY {
            // An end that was only to receive answers under a control of the same kind.
            let native = match self.ends[pair as usize].control.get() {
                Steer::Native(place) => same_kind(&self.natives[place]),
                Steer::Agent(_) | Steer::Nobody => Native::cubic(),
            };
            self.ends[writer as usize].control = self.add_native(native);
        }
        self.events.push(self.now, Kind::Kick, writer);
        true
    }

    /// Gives a flow up, at its sender; the receiver is told by a packet. False when it has not begun or is over.
    pub fn abort(&mut self, flow: FlowId) -> bool {
        let pair = self.flows.get(flow.index()).map_or(NONE, |flow| flow.ends);
        let sender = self.ends.get_mut(pair as usize).and_then(|end| end.connection.as_mut());
        let Some(connection) = sender else { return false };
        connection.abort();
        self.events.push(self.now, Kind::Kick, pair);
        true
    }

    /// Ends the run with an error: for applications, which have nobody else to tell.
    pub fn fail(&mut self, error: SimError) {
        self.failed.get_or_insert(error);
    }

    /// Adds an agent and its algorithms.
    pub fn host_agent(&mut self, agent: Agent, options: SteerOptions) -> AgentId {
        let id = self.hosts.len() as u32;
        let host = Host::new(agent, options, id);
        self.hosts.push(host);
        self.plan_agent(id);
        AgentId(id)
    }

    /// What an algorithm of an agent did so far.
    pub fn algorithm(&self, agent: AgentId, algorithm: &str) -> Option<AlgorithmStats> {
        self.hosts.get(agent.0 as usize)?.stats(algorithm)
    }

    /// The agent itself.
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        Some(self.hosts.get(agent.0 as usize)?.agent())
    }

    /// Adds an application, which is woken first at this time.
    pub fn add_app(&mut self, app: Box<dyn App>, first: Time) -> AppId {
        let id = self.apps.len() as u32;
        let first = first.max(self.now);
        self.apps.push(Installed {
            app: Some(app),
            next: first,
        });
        self.events.push(first, Kind::App, id);
        AppId(id)
    }

    /// An application, as what it is.
    pub fn app<A: App>(&self, id: AppId) -> Option<&A> {
        let app = self.apps.get(id.0 as usize)?.app.as_deref()?;
        (app as &dyn Any).downcast_ref()
    }

    /// Changes the network at a time to come. Changes of a link have to be scheduled before its first packet.
    pub fn schedule(&mut self, at: Time, change: Change) -> Result<(), SimError> {
        change.check(self)?;
        if let Some(link) = change.link() {
            if self.links.used(link.0) {
                return Err(SimError::LateChange(self.network.link_name(link)));
            }
            self.links.special(link.0);
        }
        self.events
            .push(at.max(self.now), Kind::Change, self.changes.len() as u32);
        self.changes.push(Some(change));
        Ok(())
    }

    /// Records every packet that crosses this link from now on: see [`World::crossings`]. It has to be called before the
    /// link's first packet.
    pub fn observe(&mut self, link: LinkId) -> Result<(), SimError> {
        self.known_link(link)?;
        if self.links.used(link.0) {
            return Err(SimError::LateChange(self.network.link_name(link)));
        }
        self.links.observe(link.0);
        Ok(())
    }

    /// Keeps a histogram of the times that packets take through this link from now on: see [`World::sojourns`]. It has to
    /// be called before the link's first packet.
    pub fn observe_sojourns(&mut self, link: LinkId) -> Result<(), SimError> {
        self.known_link(link)?;
        if self.links.used(link.0) {
            return Err(SimError::LateChange(self.network.link_name(link)));
        }
        self.links.observe_sojourns(link.0);
        Ok(())
    }

    /// The times that packets took through a link; `None` for one that is not observed.
    pub fn sojourns(&self, link: LinkId) -> Option<&Sojourns> {
        self.links.sojourns(link.0)
    }

    /// What crossed an observed link, in order.
    pub fn crossings(&self, link: LinkId) -> &[Crossing] {
        self.links.crossings(link.0)
    }

    /// What a link did so far; `None` for a link of another simulation.
    pub fn link(&self, link: LinkId) -> Option<LinkView> {
        self.known_link(link).ok()?;
        Some(self.links.view(self.now, link.0))
    }

    /// What a flow did so far; `None` for a flow of another simulation.
    pub fn flow(&self, flow: FlowId) -> Option<FlowView> {
        let flow = self.flows.get(flow.index())?;
        Some(match flow.rest.as_deref() {
            Some(Rest::Over(view)) => *view,
            _ => self.flow_view(flow),
        })
    }

    /// All flows.
    pub fn flows(&self) -> impl ExactSizeIterator<Item = FlowId> + use<> {
        (0..self.flows.len() as u32).map(FlowId)
    }

    /// The path of most flows from one host to another, without queues.
    pub fn path(&self, from: NodeId, to: NodeId) -> Result<Path, SimError> {
        let (from, to) = (self.host_of(from)?, self.host_of(to)?);
        let links = self.routing.path(&self.network, from, to, 0)?;
        Ok(Path {
            links: links.len(),
            delay: links
                .iter()
                .fold(Duration::ZERO, |sum, link| sum + self.links.delay(*link)),
            rate: links.iter().filter_map(|link| self.links.rate(*link)).min(),
        })
    }

    /// What the simulation did so far.
    pub fn counters(&self) -> Counters {
        Counters {
            events: self.events.happened(),
            hops: self.links.hops(),
            sent: self.packets.made,
            ..self.counters
        }
    }

    /// Bytes of memory that the simulation takes, by the capacity of everything that it holds.
    pub fn memory(&self) -> usize {
        let live = self.ends.iter().filter_map(|end| end.connection.as_ref());
        let connections: usize = live.map(|c| c.memory_bytes() - size_of::<Connection>()).sum();
        self.network.memory()
            + self.routing.memory()
            + self.links.memory()
            + self.packets.memory()
            + self.events.memory()
            + self
                .nics
                .iter()
                .map(|nic| size_of::<Nic>() + nic.waiting.capacity() * 4)
                .sum::<usize>()
            + self.nic_of.capacity() * 4
            + self.ends.capacity() * size_of::<End>()
            + connections
            + self.flows.capacity() * size_of::<Flow>()
            + self.natives.capacity() * size_of::<Native>()
            + self.steered.capacity() * size_of::<Option<Steered>>()
    }

    /// Bytes on the heap that the connections of these flows take.
    pub(crate) fn connection_heap_bytes(&self, flows: std::ops::Range<usize>) -> usize {
        let pairs = self
            .flows
            .get(flows)
            .unwrap_or_default()
            .iter()
            .map(|flow| flow.ends as usize);
        let ends = pairs.filter_map(|pair| self.ends.get(pair..pair + 2)).flatten();
        let live = ends.filter_map(|end| end.connection.as_ref());
        live.map(|c| c.memory_bytes() - size_of::<Connection>()).sum()
    }

    /// A number that stands for everything that was simulated: the same for the same scenario and seed, anywhere.
    pub fn digest(&self) -> u64 {
        let mut digest = Digest::default();
        let counters = self.counters();
        digest.add(self.now.as_nanos());
        for value in [
            counters.events,
            counters.hops,
            counters.sent,
            counters.taken,
            counters.dropped,
        ] {
            digest.add(value);
        }
        for link in 0..self.network.links.len() as u32 {
            let view = self.links.view(self.now, link);
            for value in [
                view.arrived,
                view.delivered,
                view.accepted_bytes,
                view.queue_drops,
                view.losses,
                view.marked,
                view.backlog.bytes,
                view.sojourn_sum.as_nanos(),
                view.sojourn_max.as_nanos(),
            ] {
                digest.add(value);
            }
        }
        for id in self.flows() {
            let Some(view) = self.flow(id) else { continue };
            for value in [
                view.started.as_nanos(),
                view.finished.map_or(u64::MAX, Time::as_nanos),
                view.received,
                view.acked,
                view.retransmitted,
                view.timeouts,
                view.cwnd,
                view.ssthresh,
                view.srtt.as_nanos(),
                view.min_rtt.as_nanos(),
                view.rate,
            ] {
                digest.add(value);
            }
        }
        digest.value()
    }

    pub(crate) fn known_link(&self, link: LinkId) -> Result<(), SimError> {
        let count = self.network.links.len();
        match link.index() < count {
            true => Ok(()),
            false => Err(SimError::Unknown {
                what: "link",
                number: link.0,
                count,
            }),
        }
    }

    pub(crate) fn host_of(&self, node: NodeId) -> Result<u32, SimError> {
        let count = self.network.nodes.len();
        match self.network.nodes.get(node.index()) {
            None => Err(SimError::Unknown {
                what: "node",
                number: node.0,
                count,
            }),
            Some(described) if !described.host => Err(SimError::NotAHost(described.name.to_string())),
            Some(_) => Ok(node.0),
        }
    }

    /// By which the paths of an end's packets are chosen.
    pub(crate) fn hash_of(&self, flow: u32, backward: bool) -> u32 {
        let which = match self.network.spread {
            Spread::Symmetric => flow * 2,
            Spread::PerFlow | Spread::PerPacket => flow * 2 + u32::from(backward),
        };
        random::seed(self.options.seed, Purpose::Paths, which) as u32
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

    pub(crate) fn flow_view(&self, flow: &Flow) -> FlowView {
        let mut view = FlowView {
            from: NodeId(flow.from),
            to: NodeId(flow.to),
            started: flow.start,
            finished: (flow.finished != Time::MAX).then_some(flow.finished),
            failure: None,
            bytes: (flow.bytes != u64::MAX).then_some(flow.bytes),
            app: (flow.app != NONE).then_some(AppId(flow.app)),
            received: 0,
            acked: 0,
            retransmitted: 0,
            lost: 0,
            timeouts: 0,
            cwnd: 0,
            ssthresh: u64::MAX,
            srtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            rate: 0,
            in_flight: 0,
            in_fallback: false,
        };
        let pair = self.ends.get(flow.ends as usize..flow.ends.saturating_add(2) as usize);
        if let Some([sender, receiver]) = pair {
            if let Some(connection) = &sender.connection {
                let stats = connection.stats();
                view.failure = connection.failure();
                view.acked = stats.acked;
                view.retransmitted = u64::from(stats.retransmitted);
                view.lost = u64::from(stats.lost);
                view.timeouts = u64::from(stats.timeouts);
                view.cwnd = connection.cwnd();
                view.ssthresh = connection.ssthresh();
                view.srtt = connection.srtt();
                view.min_rtt = connection.min_rtt();
                view.rate = connection.rate();
                view.in_flight = connection.in_flight();
            }
            view.received = receiver.connection.as_ref().map_or(0, |c| c.stats().received);
            if let Steer::Agent(place) = sender.control.get() {
                let steered = self.steered.get(place).and_then(Option::as_ref);
                view.in_fallback = steered.is_some_and(|steered| steered.in_fallback);
            }
        }
        view
    }
}
