//! What a network is made of: hosts, switches, links. A description;
//! [`Simulation`](crate::Simulation) brings it to life.

use std::collections::BTreeMap;

use ccplane_qdisc::{DelayModel, LineSpec, LinkSeeds, LossModel, QueueSpec};
use ccplane_transport::MAX_CLASSES;
use ccplane_units::{Duration, Rate};
pub use ccplane_workload::NodeId;

use crate::SimError;
use crate::random::{self, Purpose};

/// A link, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(crate) u32);

impl LinkId {
    /// Links are numbered from 0 in the order in which they were added.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The link's seeds in a run with this seed. A link under real packets that takes them loses
    /// and delays the same packets as the simulated one, counted from the first.
    pub fn seeds(self, run: u64) -> LinkSeeds {
        LinkSeeds {
            loss: random::seed(run, Purpose::Loss, self.0),
            queue: random::seed(run, Purpose::Queue, self.0),
            delay: random::seed(run, Purpose::Delay, self.0),
        }
    }
}

/// One direction of a link: a queue, the line that serves it, the wire behind it.
///
/// A new packet is lost at random, queued, or dropped by the queue. The line sends it, and it
/// arrives `delay` after its last bit left. A host's own link asks the host for the next packet
/// only when the line can take it, so the queue there stays short, as with Linux' byte queue
/// limits.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// What serves the queue.
    pub line: LineSpec,
    /// Propagation.
    pub delay: DelayModel,
    /// The queue.
    pub queue: QueueSpec,
    /// Random loss of what comes, before the queue.
    pub loss: LossModel,
    /// The round-trip time that a queue in BDPs is counted by.
    pub rtt: Duration,
    /// The largest packet, bytes: a queue that does not hold one is refused.
    pub mtu: u32,
    /// What becomes of the class that a packet's marking says, before it comes to the queue.
    pub remark: Remark,
}

/// In a [`Remark`]: packets of the class are dropped.
const DROPPED: u8 = u8::MAX;

/// What a router makes of the class that a packet's marking (its DSCP) says. What the sender meant
/// stays in the packet, where only its receiver looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark([u8; MAX_CLASSES as usize]);

impl Remark {
    /// It leaves the marking alone.
    pub const KEEP: Remark = Remark([0, 1, 2, 3, 4, 5, 6, 7]);
    /// It removes the marking: all packets are of class 0 from here on ("bleaching").
    pub const STRIP: Remark = Remark([0; MAX_CLASSES as usize]);

    /// It drops packets of classes above 0.
    pub const REFUSE: Remark = Remark([
        0, DROPPED, DROPPED, DROPPED, DROPPED, DROPPED, DROPPED, DROPPED,
    ]);

    /// It makes `classes[n]` of class n, and drops what would be of a class that there is not.
    pub fn new(classes: [u8; MAX_CLASSES as usize]) -> Remark {
        Remark(classes.map(|class| if class < MAX_CLASSES { class } else { DROPPED }))
    }

    /// The class that it makes of this one; `None`: it drops it.
    pub(crate) fn of(self, class: u8) -> Option<u8> {
        let class = self.0[usize::from(class.min(MAX_CLASSES - 1))];
        (class != DROPPED).then_some(class)
    }
}

impl LinkSpec {
    /// A link of this rate and delay whose queue never drops.
    pub fn new(rate: Rate, delay: Duration) -> LinkSpec {
        LinkSpec {
            line: LineSpec::Constant(rate),
            ..LinkSpec::wire(delay)
        }
    }

    /// A link without a rate: packets take this long and never wait.
    pub fn wire(delay: Duration) -> LinkSpec {
        LinkSpec {
            line: LineSpec::Unlimited,
            delay: DelayModel::Fixed(delay),
            queue: QueueSpec::UNLIMITED,
            loss: LossModel::NONE,
            rtt: Duration::ZERO,
            mtu: 1_500,
            remark: Remark::KEEP,
        }
    }

    /// The same with this queue; where it is given in BDPs, `rtt` is the path's.
    #[must_use]
    pub fn with_queue(self, queue: QueueSpec, rtt: Duration) -> LinkSpec {
        LinkSpec { queue, rtt, ..self }
    }

    /// The same with this loss.
    #[must_use]
    pub fn with_loss(self, loss: LossModel) -> LinkSpec {
        LinkSpec { loss, ..self }
    }

    /// The same with this delay instead.
    #[must_use]
    pub fn with_delay(self, delay: DelayModel) -> LinkSpec {
        LinkSpec { delay, ..self }
    }

    /// The same with a router before it that changes markings.
    #[must_use]
    pub fn with_remark(self, remark: Remark) -> LinkSpec {
        LinkSpec { remark, ..self }
    }

    /// The same for packets of up to so many bytes.
    #[must_use]
    pub fn with_mtu(self, mtu: u32) -> LinkSpec {
        LinkSpec { mtu, ..self }
    }
}

/// Which of several shortest paths a packet takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// All packets of a flow take one, those of its other direction perhaps another.
    #[default]
    PerFlow,
    /// Both directions of a flow take the same path, where the network is the same seen from both
    /// ends.
    Symmetric,
    /// Each packet takes any.
    PerPacket,
}

/// A network under construction.
///
/// Mistakes are told when the simulation is made, all in terms of the names given here.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<Wire>,
    pub(crate) specs: Vec<LinkSpec>,
    pub(crate) names: BTreeMap<Box<str>, NodeId>,
    pub(crate) link_names: BTreeMap<Box<str>, LinkId>,
    pub(crate) routes: Vec<Route>,
    /// Which of several shortest paths packets take.
    pub spread: Spread,
    error: Option<SimError>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: Box<str>,
    pub host: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub from: u32,
    pub to: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub at: u32,
    pub to: u32,
    pub link: u32,
}

impl Network {
    /// Without nodes.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a host: flows begin and end there, and nothing passes through.
    pub fn host(&mut self, name: impl Into<String>) -> NodeId {
        self.node_named(name.into(), true)
    }

    /// Adds a switch (or router): packets pass through it in no time, and wait at the links that
    /// leave it.
    pub fn switch(&mut self, name: impl Into<String>) -> NodeId {
        self.node_named(name.into(), false)
    }

    /// Adds a link in one direction.
    pub fn link(&mut self, from: NodeId, to: NodeId, spec: LinkSpec) -> LinkId {
        let count = self.nodes.len();
        if let Some(node) = [from, to].into_iter().find(|node| node.index() >= count) {
            self.mistake(SimError::Unknown {
                what: "node",
                number: node.0,
                count,
            });
        } else if from == to {
            self.mistake(SimError::SelfLink(self.name(from).to_owned()));
        }
        let id = LinkId(self.links.len() as u32);
        self.links.push(Wire {
            from: from.0,
            to: to.0,
        });
        self.specs.push(spec);
        id
    }

    /// Adds a link in either direction: `forward` from `a` to `b`, `backward` from `b` to `a`.
    pub fn duplex(
        &mut self,
        a: NodeId,
        b: NodeId,
        forward: LinkSpec,
        backward: LinkSpec,
    ) -> (LinkId, LinkId) {
        (self.link(a, b, forward), self.link(b, a, backward))
    }

    /// Gives a link a name beside `from->to`.
    pub fn name_link(&mut self, link: LinkId, name: impl Into<String>) {
        let name = name.into();
        if self.link_names.insert(name.clone().into(), link).is_some() {
            self.mistake(SimError::DuplicateName(name));
        }
    }

    /// Sends what comes to `at` on its way to the host `to` over `link`, whatever the shortest path
    /// is.
    pub fn route(&mut self, at: NodeId, to: NodeId, link: LinkId) {
        self.routes.push(Route {
            at: at.0,
            to: to.0,
            link: link.0,
        });
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(node.index()).map_or("?", |node| &node.name)
    }

    /// Whether it is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|node| node.host)
    }

    /// The link of this name: one given, or `from->to`, which is the first such link.
    pub fn link_named(&self, name: &str) -> Option<LinkId> {
        if let Some(link) = self.link_names.get(name) {
            return Some(*link);
        }
        let (from, to) = name.split_once("->")?;
        let (from, to) = (self.node(from)?, self.node(to)?);
        let at = self
            .links
            .iter()
            .position(|l| l.from == from.0 && l.to == to.0)?;
        Some(LinkId(at as u32))
    }

    /// The name of a link: the one given, or `from->to`.
    pub fn link_name(&self, link: LinkId) -> String {
        if let Some((name, _)) = self.link_names.iter().find(|(_, named)| **named == link) {
            return name.to_string();
        }
        match self.links.get(link.index()) {
            Some(l) => format!("{}->{}", self.name(NodeId(l.from)), self.name(NodeId(l.to))),
            None => "?".into(),
        }
    }

    /// The ends of a link.
    pub fn ends(&self, link: LinkId) -> Option<(NodeId, NodeId)> {
        self.links
            .get(link.index())
            .map(|l| (NodeId(l.from), NodeId(l.to)))
    }

    /// All nodes.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes().filter(|node| self.is_host(*node))
    }

    /// All links.
    pub fn links(&self) -> impl ExactSizeIterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// The description of a link, for changes before the simulation is made.
    pub fn spec_mut(&mut self, link: LinkId) -> Option<&mut LinkSpec> {
        self.specs.get_mut(link.index())
    }

    /// The description of a link.
    pub fn spec(&self, link: LinkId) -> Option<&LinkSpec> {
        self.specs.get(link.index())
    }

    /// Bytes of memory taken, but for the descriptions of links.
    pub(crate) fn memory(&self) -> usize {
        let names: usize = self.nodes.iter().map(|node| 2 * node.name.len()).sum();
        // A B-tree's nodes are two thirds full on average.
        let map = self.names.len() * (size_of::<(Box<str>, NodeId)>() * 3 / 2);
        self.nodes.capacity() * size_of::<Node>()
            + self.links.capacity() * size_of::<Wire>()
            + names
            + map
    }

    fn node_named(&mut self, name: String, host: bool) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let name: Box<str> = name.into();
        if self.names.insert(name.clone(), id).is_some() {
            self.mistake(SimError::DuplicateName(name.to_string()));
        }
        self.nodes.push(Node { name, host });
        id
    }

    fn mistake(&mut self, error: SimError) {
        self.error.get_or_insert(error);
    }

    /// The first mistake in the description.
    pub(crate) fn check(&self) -> Result<(), SimError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        for (index, spec) in self.specs.iter().enumerate() {
            if spec
                .line
                .mean_rate()
                .is_some_and(|rate| rate.bytes_per_sec() == 0)
            {
                return Err(SimError::ZeroRate(self.link_name(LinkId(index as u32))));
            }
        }
        Ok(())
    }
}
