//! State of a simulation: network, flows, agents, applications and the current time.

use std::collections::{BTreeMap, VecDeque};

use ccplane_network::{
    LinkId, MEMORY_LIMIT_DEFAULT_BYTES, Network, NetworkChange, NetworkError, NodeId, Routing,
    Spread,
};
use ccplane_qdisc::DropReason;
use ccplane_transport::Native;
use ccplane_units::Time;

use crate::SimError;
use crate::app::{AppId, InstalledApp};
use crate::bundle::Bundles;
use crate::datagram::DatagramTable;
use crate::endpoint::FlowEndpoint;
use crate::event::{EventKind, EventQueue};
use crate::flow::SimFlow;
use crate::host::{LowBandQueues, Nic};
use crate::link::Links;
use crate::packet::{NO_INDEX, PacketArena};
use crate::stamps::Clocks;
use crate::steer::{AgentHost, HostedFlow};
use crate::view::SimCounters;

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Memory limit of the network, bytes; a larger network is rejected before it is built.
    pub memory_limit: u64,
}

impl SimOptions {
    /// Returns the default options with this seed.
    pub fn seeded(seed: u64) -> SimOptions {
        SimOptions {
            seed,
            ..SimOptions::default()
        }
    }
}

impl Default for SimOptions {
    /// Seed 1 and 4 GB.
    fn default() -> SimOptions {
        SimOptions {
            seed: 1,
            memory_limit: MEMORY_LIMIT_DEFAULT_BYTES,
        }
    }
}

/// State of a simulation. [`Simulation`](crate::Simulation) runs it.
#[derive(Debug)]
pub struct World {
    pub(crate) now: Time,
    pub(crate) options: SimOptions,
    pub(crate) network: Network,
    pub(crate) routing: Routing,
    pub(crate) links: Links,
    pub(crate) packets: PacketArena,
    pub(crate) events: EventQueue,
    pub(crate) nics: Vec<Nic>,
    pub(crate) low_bands: LowBandQueues,
    /// Index in `nics` of each link that starts at a host.
    pub(crate) nic_of: Vec<u32>,
    pub(crate) ends: Vec<FlowEndpoint>,
    /// Per receiving endpoint: stream offsets of the ends of all writes after
    /// [`FlowEndpoint::written`].
    pub(crate) writes: BTreeMap<u32, VecDeque<u64>>,
    /// Per accepting endpoint that has no connection yet: bytes to write once it has one, and true
    /// if the stream ends after them.
    pub(crate) early_writes: BTreeMap<u32, (u64, bool)>,
    /// Free slots for pairs of endpoints.
    pub(crate) free_ends: Vec<u32>,
    pub(crate) flows: Vec<SimFlow>,
    /// Number of finite flows that have not finished.
    pub(crate) unfinished: u64,
    pub(crate) hosts: Vec<AgentHost>,
    pub(crate) natives: Vec<Native>,
    pub(crate) free_natives: Vec<u32>,
    pub(crate) steered: Vec<Option<HostedFlow>>,
    pub(crate) free_steered: Vec<u32>,
    pub(crate) apps: Vec<InstalledApp>,
    pub(crate) changes: Vec<Option<NetworkChange>>,
    pub(crate) datagrams: DatagramTable,
    pub(crate) clocks: Clocks,
    pub(crate) counters: SimCounters,
    pub(crate) bundles: Bundles,
    /// Buffer for the packets that a sendbox drops in one call, reused to avoid allocations.
    pub(crate) box_drops: Vec<(u32, DropReason)>,
    /// Every packet hashes to its own path.
    pub(crate) spray: bool,
    /// Error of an application, which ends the run.
    pub(crate) error: Option<SimError>,
    /// Workloads that the current run waits for.
    pub(crate) awaited: Vec<AppId>,
}

impl World {
    pub(crate) fn new(network: Network, options: SimOptions) -> Result<World, SimError> {
        let routing = network.routing(options.memory_limit)?;
        let links = Links::new(&network, options.seed)?;
        let (mut nics, mut nic_of) = (Vec::new(), vec![NO_INDEX; network.links().len()]);
        for (link, spec) in network.links().zip(network.specs()) {
            let from = network.endpoints(link).map(|(from, _)| from);
            if from.is_some_and(|from| network.is_host(from)) {
                nic_of[link.index()] = nics.len() as u32;
                let full = links.time_for(link.0, u64::from(spec.mtu));
                nics.push(Nic::new(link.0, full, spec.mtu));
            }
        }
        let mut network = network;
        network.clear_specs();
        let spray = network.spread == Spread::PerPacket;
        Ok(World {
            now: Time::ZERO,
            options,
            network,
            routing,
            links,
            packets: PacketArena::default(),
            events: EventQueue::default(),
            nics,
            low_bands: LowBandQueues::default(),
            nic_of,
            ends: Vec::new(),
            writes: BTreeMap::new(),
            early_writes: BTreeMap::new(),
            free_ends: Vec::new(),
            flows: Vec::new(),
            unfinished: 0,
            hosts: Vec::new(),
            natives: Vec::new(),
            free_natives: Vec::new(),
            steered: Vec::new(),
            free_steered: Vec::new(),
            apps: Vec::new(),
            changes: Vec::new(),
            datagrams: DatagramTable::default(),
            clocks: Clocks::default(),
            counters: SimCounters::default(),
            bundles: Bundles::default(),
            box_drops: Vec::new(),
            spray,
            error: None,
            awaited: Vec::new(),
        })
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// Returns the network: nodes, links and names, without the link descriptions.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Schedules a change of the network. A change of a link has to be scheduled before the link's
    /// first packet.
    pub fn schedule(&mut self, at: Time, change: NetworkChange) -> Result<(), SimError> {
        self.check_change(&change)?;
        if let Some(link) = change.link() {
            if self.links.has_traffic(link.0) {
                return Err(SimError::LateChange(self.network.link_name(link)));
            }
            self.links.general_mut(link.0);
        }
        self.events.push(
            at.max(self.now),
            EventKind::Change,
            self.changes.len() as u32,
        );
        self.changes.push(Some(change));
        Ok(())
    }

    pub(crate) fn check_link(&self, link: LinkId) -> Result<(), SimError> {
        let count = self.network.links().len();
        match link.index() < count {
            true => Ok(()),
            false => Err(SimError::Unknown {
                what: "link",
                number: link.0,
                count,
            }),
        }
    }

    pub(crate) fn host_index(&self, node: NodeId) -> Result<u32, SimError> {
        self.known_node(node)?;
        match self.network.is_host(node) {
            true => Ok(node.0),
            false => Err(NetworkError::NotAHost(self.network.name(node).to_owned()).into()),
        }
    }

    pub(crate) fn known_node(&self, node: NodeId) -> Result<(), SimError> {
        let count = self.network.nodes().len();
        match node.index() < count {
            true => Ok(()),
            false => Err(SimError::Unknown {
                what: "node",
                number: node.0,
                count,
            }),
        }
    }

    /// The ends of a link that exists.
    pub(crate) fn ends_of(&self, link: u32) -> (NodeId, NodeId) {
        self.network
            .endpoints(LinkId(link))
            .unwrap_or((NodeId(NO_INDEX), NodeId(NO_INDEX)))
    }

    pub(crate) fn stalled_error(&self, why: &str) -> SimError {
        SimError::Stalled {
            seed: self.options.seed,
            at: self.now,
            why: why.into(),
        }
    }
}
