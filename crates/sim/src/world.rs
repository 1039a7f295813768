//! Everything in a simulation: the network, flows, agents and applications, and the time it is
//! there.

use std::collections::{BTreeMap, VecDeque};

use ccplane_qdisc::DropReason;
use ccplane_transport::Native;
use ccplane_units::Time;

use crate::SimError;
use crate::app::{AppId, Installed};
use crate::bundle::Bundles;
use crate::change::Change;
use crate::datagram::Datagrams;
use crate::end::End;
use crate::event::{Events, Kind, MOST};
use crate::flow::Flow;
use crate::host::{Low, Nic};
use crate::link::Links;
use crate::network::{LinkId, Network, NodeId, Spread};
use crate::packet::{NONE, Packets};
use crate::routing::{self, Routing};
use crate::stamps::Clocks;
use crate::steer::{Host, Steered};
use crate::view::Counters;

/// How a simulation runs.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// All random numbers follow from it.
    pub seed: u64,
    /// Bytes that the network may take; a network that needs more is refused before it is made.
    pub memory_limit: u64,
}

impl SimOptions {
    /// That seed, and the rest as [`Default`] has it.
    pub fn seeded(seed: u64) -> SimOptions {
        SimOptions {
            seed,
            ..SimOptions::default()
        }
    }
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
    pub(crate) low: Low,
    /// Of each link that leaves a host: its place in `nics`.
    pub(crate) nic_of: Vec<u32>,
    pub(crate) ends: Vec<End>,
    /// By receiving end: total bytes after each write behind the one that [`End::written`] is the
    /// end of.
    pub(crate) writes: BTreeMap<u32, VecDeque<u64>>,
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
    pub(crate) clocks: Clocks,
    pub(crate) counters: Counters,
    pub(crate) bundles: Bundles,
    /// Room for what a sendbox drops in one call, kept so that a call allocates nothing.
    pub(crate) box_drops: Vec<(u32, DropReason)>,
    /// Each packet has a path of its own.
    pub(crate) spray: bool,
    /// Why an application cannot go on: the run ends with it.
    pub(crate) failed: Option<SimError>,
    /// Workloads that a run waits for, and that have not ended.
    pub(crate) awaited: Vec<AppId>,
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
        let spray = network.spread == Spread::PerPacket;
        Ok(World {
            now: Time::ZERO,
            options,
            network,
            routing,
            links,
            packets: Packets::default(),
            events: Events::default(),
            nics,
            low: Low::default(),
            nic_of,
            ends: Vec::new(),
            writes: BTreeMap::new(),
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
            clocks: Clocks::default(),
            counters: Counters::default(),
            bundles: Bundles::default(),
            box_drops: Vec::new(),
            spray,
            failed: None,
            awaited: Vec::new(),
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

    /// Changes the network at a time to come. Changes of a link have to be scheduled before its
    /// first packet.
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
            Some(described) if !described.host => {
                Err(SimError::NotAHost(described.name.to_string()))
            }
            Some(_) => Ok(node.0),
        }
    }

    pub(crate) fn stalled(&self, why: &str) -> SimError {
        SimError::Stalled {
            seed: self.options.seed,
            at: self.now,
            why: why.into(),
        }
    }
}
