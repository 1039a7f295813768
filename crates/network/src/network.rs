//! Description of a network: hosts, switches, links.

use std::collections::BTreeMap;

use ccplane_qdisc::{CLASS_COUNT, DelayModel, LineSpec, LinkSeeds, LossModel, QueueSpec};
use ccplane_units::{Duration, Rate};
pub use ccplane_workload::NodeId;

use crate::NetworkError;
use crate::random::{self, Purpose};

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// Returns the number of the link, counted from 0 in the order of addition.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the link's seeds for a run seed. An emulated link with the same seeds loses and
    /// delays the same packets, counted from the first.
    pub fn seeds(self, run: u64) -> LinkSeeds {
        LinkSeeds {
            loss: random::seed(run, Purpose::Loss, self.0),
            queue: random::seed(run, Purpose::Queue, self.0),
            delay: random::seed(run, Purpose::Delay, self.0),
        }
    }
}

/// One direction of a link: a queue, the line that serves it, and a propagation delay.
///
/// Random loss is applied before the queue. A packet arrives `delay` after the transmission of its
/// last bit. A host's own link requests packets only when the line can send them, so its queue
/// stays short, as with Linux's byte queue limits (BQL).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Line that serves the queue.
    pub line: LineSpec,
    /// Propagation delay.
    pub delay: DelayModel,
    /// Queue in front of the line.
    pub queue: QueueSpec,
    /// Random loss, applied before the queue.
    pub loss: LossModel,
    /// Base RTT, for queues sized in BDPs.
    pub rtt: Duration,
    /// MTU, bytes. A queue that cannot hold one such packet is rejected.
    pub mtu: u32,
    /// Rewriting of the class marking before the queue.
    pub remark: Remark,
}

/// Value in a [`Remark`] for classes whose packets are dropped.
const DROPPED_CLASS: u8 = u8::MAX;

/// Treatment of the class marking (DSCP) by a router. The simulated packet also carries the
/// sender's original class, which only its receiver reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark([u8; CLASS_COUNT as usize]);

impl Remark {
    /// Keeps the marking.
    pub const IDENTITY: Remark = Remark([0, 1, 2, 3, 4, 5, 6, 7]);
    /// Clears the marking ("bleaching"): all packets become class 0.
    pub const BLEACHING: Remark = Remark([0; CLASS_COUNT as usize]);

    /// Drops packets of classes above 0.
    pub const PRIORITY_DROP: Remark = Remark([
        0,
        DROPPED_CLASS,
        DROPPED_CLASS,
        DROPPED_CLASS,
        DROPPED_CLASS,
        DROPPED_CLASS,
        DROPPED_CLASS,
        DROPPED_CLASS,
    ]);

    /// Maps class n to `classes[n]`, and drops packets that would get an invalid class.
    pub fn new(classes: [u8; CLASS_COUNT as usize]) -> Remark {
        Remark(classes.map(|class| {
            if class < CLASS_COUNT {
                class
            } else {
                DROPPED_CLASS
            }
        }))
    }

    /// Returns the new class, or `None` if the packet is dropped.
    #[inline]
    pub fn map_class(self, class: u8) -> Option<u8> {
        let class = self.0[usize::from(class.min(CLASS_COUNT - 1))];
        (class != DROPPED_CLASS).then_some(class)
    }
}

impl LinkSpec {
    /// Creates a link with an unlimited queue.
    pub fn new(rate: Rate, delay: Duration) -> LinkSpec {
        LinkSpec {
            line: LineSpec::Constant(rate),
            ..LinkSpec::wire(delay)
        }
    }

    /// Creates a link without a rate limit: packets are only delayed.
    pub fn wire(delay: Duration) -> LinkSpec {
        LinkSpec {
            line: LineSpec::Unlimited,
            delay: DelayModel::Fixed(delay),
            queue: QueueSpec::UNLIMITED,
            loss: LossModel::NONE,
            rtt: Duration::ZERO,
            mtu: 1_500,
            remark: Remark::IDENTITY,
        }
    }

    /// Sets the queue. `rtt` is the base RTT of the path, for sizes in BDPs.
    #[must_use]
    pub fn with_queue(self, queue: QueueSpec, rtt: Duration) -> LinkSpec {
        LinkSpec { queue, rtt, ..self }
    }

    /// Sets the random loss.
    #[must_use]
    pub fn with_loss(self, loss: LossModel) -> LinkSpec {
        LinkSpec { loss, ..self }
    }

    /// Sets the delay model.
    #[must_use]
    pub fn with_delay(self, delay: DelayModel) -> LinkSpec {
        LinkSpec { delay, ..self }
    }

    /// Sets the treatment of class markings.
    #[must_use]
    pub fn with_remark(self, remark: Remark) -> LinkSpec {
        LinkSpec { remark, ..self }
    }

    /// Sets the MTU, bytes.
    #[must_use]
    pub fn with_mtu(self, mtu: u32) -> LinkSpec {
        LinkSpec { mtu, ..self }
    }
}

/// Load balancing over equal-cost paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// One path per flow and direction.
    #[default]
    PerFlow,
    /// One path per flow, the same in both directions if the topology is symmetric.
    Symmetric,
    /// A random path per packet.
    PerPacket,
}

/// Builder of a network. [`Network::routing`] reports errors, with the names given here.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub(crate) nodes: Vec<NetworkNode>,
    pub(crate) links: Vec<Wire>,
    pub(crate) specs: Vec<LinkSpec>,
    pub(crate) names: BTreeMap<Box<str>, NodeId>,
    pub(crate) link_names: BTreeMap<Box<str>, LinkId>,
    pub(crate) routes: Vec<NextHop>,
    /// Load balancing over equal-cost paths.
    pub spread: Spread,
    error: Option<NetworkError>,
}

#[derive(Clone, Debug)]
pub(crate) struct NetworkNode {
    pub name: Box<str>,
    pub is_host: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wire {
    pub from: u32,
    pub to: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NextHop {
    pub at: u32,
    pub to: u32,
    pub link: u32,
}

impl Network {
    /// Creates an empty network.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a host. Flows start and end at hosts; hosts do not forward.
    pub fn add_host(&mut self, name: impl Into<String>) -> NodeId {
        self.add_node(name.into(), true)
    }

    /// Adds a switch or router. It forwards packets without delay; they queue at its outgoing
    /// links.
    pub fn add_switch(&mut self, name: impl Into<String>) -> NodeId {
        self.add_node(name.into(), false)
    }

    /// Adds a link in one direction.
    pub fn add_link(&mut self, from: NodeId, to: NodeId, spec: LinkSpec) -> LinkId {
        let count = self.nodes.len();
        if let Some(node) = [from, to].into_iter().find(|node| node.index() >= count) {
            self.record_error(NetworkError::Unknown {
                what: "node",
                number: node.0,
                count,
            });
        } else if from == to {
            self.record_error(NetworkError::SelfLink(self.name(from).to_owned()));
        }
        let id = LinkId(self.links.len() as u32);
        self.links.push(Wire {
            from: from.0,
            to: to.0,
        });
        self.specs.push(spec);
        id
    }

    /// Adds a pair of links: `forward` from `a` to `b`, `backward` from `b` to `a`.
    pub fn add_duplex_link(
        &mut self,
        a: NodeId,
        b: NodeId,
        forward: LinkSpec,
        backward: LinkSpec,
    ) -> (LinkId, LinkId) {
        (self.add_link(a, b, forward), self.add_link(b, a, backward))
    }

    /// Names a link, in addition to `from->to`.
    pub fn name_link(&mut self, link: LinkId, name: impl Into<String>) {
        let name = name.into();
        if self.link_names.insert(name.clone().into(), link).is_some() {
            self.record_error(NetworkError::DuplicateName(name));
        }
    }

    /// Routes packets at `at` for the host `to` over `link`, instead of a shortest path.
    pub fn add_route(&mut self, at: NodeId, to: NodeId, link: LinkId) {
        self.routes.push(NextHop {
            at: at.0,
            to: to.0,
            link: link.0,
        });
    }

    /// Returns the node with this name.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// Returns the name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(node.index()).map_or("?", |node| &node.name)
    }

    /// Returns true if the node is a host.
    pub fn is_host(&self, node: NodeId) -> bool {
        self.nodes
            .get(node.index())
            .is_some_and(|node| node.is_host)
    }

    /// Returns the link with this name, or the first link `from->to`.
    pub fn find_link(&self, name: &str) -> Option<LinkId> {
        if let Some(link) = self.link_names.get(name) {
            return Some(*link);
        }
        let (from, to) = name.split_once("->")?;
        let (from, to) = (self.find_node(from)?, self.find_node(to)?);
        let at = self
            .links
            .iter()
            .position(|l| l.from == from.0 && l.to == to.0)?;
        Some(LinkId(at as u32))
    }

    /// Returns the name of a link: the given one, or `from->to`.
    pub fn link_name(&self, link: LinkId) -> String {
        if let Some((name, _)) = self.link_names.iter().find(|(_, named)| **named == link) {
            return name.to_string();
        }
        match self.links.get(link.index()) {
            Some(l) => format!("{}->{}", self.name(NodeId(l.from)), self.name(NodeId(l.to))),
            None => "?".into(),
        }
    }

    /// Returns the source and destination of a link.
    pub fn endpoints(&self, link: LinkId) -> Option<(NodeId, NodeId)> {
        self.links
            .get(link.index())
            .map(|l| (NodeId(l.from), NodeId(l.to)))
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// Returns all hosts.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes().filter(|node| self.is_host(*node))
    }

    /// Returns all links.
    pub fn links(&self) -> impl ExactSizeIterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// Returns the description of a link for modification.
    pub fn spec_mut(&mut self, link: LinkId) -> Option<&mut LinkSpec> {
        self.specs.get_mut(link.index())
    }

    /// Returns the description of a link.
    pub fn spec(&self, link: LinkId) -> Option<&LinkSpec> {
        self.specs.get(link.index())
    }

    /// Returns the descriptions of all links, in their order.
    pub fn specs(&self) -> &[LinkSpec] {
        &self.specs
    }

    /// Drops the descriptions of the links, which a running simulation does not need.
    pub fn clear_specs(&mut self) {
        self.specs = Vec::new();
    }

    /// Changes or adds the route at `at` to the host `to`.
    pub fn reroute(&mut self, at: NodeId, to: NodeId, link: LinkId) {
        self.routes
            .retain(|route| (route.at, route.to) != (at.0, to.0));
        self.add_route(at, to, link);
    }

    /// Returns the memory used, bytes, without the link descriptions.
    pub fn memory(&self) -> usize {
        let names: usize = self.nodes.iter().map(|node| 2 * node.name.len()).sum();
        // B-tree nodes are two thirds full on average.
        let map = self.names.len() * (size_of::<(Box<str>, NodeId)>() * 3 / 2);
        self.nodes.capacity() * size_of::<NetworkNode>()
            + self.links.capacity() * size_of::<Wire>()
            + names
            + map
    }

    fn add_node(&mut self, name: String, host: bool) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let name: Box<str> = name.into();
        if self.names.insert(name.clone(), id).is_some() {
            self.record_error(NetworkError::DuplicateName(name.to_string()));
        }
        self.nodes.push(NetworkNode {
            name,
            is_host: host,
        });
        id
    }

    fn record_error(&mut self, error: NetworkError) {
        self.error.get_or_insert(error);
    }

    /// Checks that the queue of every link can be built.
    pub fn check_queues(&self) -> Result<(), NetworkError> {
        self.specs.iter().zip(0..).try_for_each(|(spec, index)| {
            let queue = spec.queue;
            queue
                .check(spec.line.mean_rate(), spec.rtt, spec.mtu)
                .map_err(|why| NetworkError::Queue {
                    link: self.link_name(LinkId(index)),
                    why,
                })
        })
    }

    /// Returns the first error in the description.
    pub(crate) fn validate(&self) -> Result<(), NetworkError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        for (index, spec) in self.specs.iter().enumerate() {
            if spec
                .line
                .mean_rate()
                .is_some_and(|rate| rate.bytes_per_sec() == 0)
            {
                return Err(NetworkError::ZeroRate(self.link_name(LinkId(index as u32))));
            }
        }
        Ok(())
    }
}
