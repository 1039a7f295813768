//! Errors in the description of a network.

use ccplane_qdisc::QueueSpecError;

/// Reason that a network cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// Two nodes have the same name.
    #[error("duplicate node name `{0}`; give each node a unique name")]
    DuplicateName(String),
    /// A link leads from a node to itself.
    #[error("a link connects `{0}` to itself; change one of its ends")]
    SelfLink(String),
    /// A flow or a route starts or ends at a switch.
    #[error("`{0}` is a switch, but flows start and end at hosts; choose a host")]
    NotAHost(String),
    /// A node or link does not exist in this network.
    #[error("there is no {what} {number} in this simulation, which has {count}")]
    Unknown {
        /// `node` or `link`.
        what: &'static str,
        /// Its number, counted from 0.
        number: u32,
        /// Number of nodes or links in the network.
        count: usize,
    },
    /// A line has a rate of zero.
    #[error("the link `{0}` has a rate of zero; give it a positive rate or `unlimited`")]
    ZeroRate(String),
    /// A queue cannot be built.
    #[error("the queue of the link `{link}` is invalid: {why}")]
    Queue {
        /// Name of the link.
        link: String,
        /// Error from the queue.
        why: QueueSpecError,
    },
    /// There is no path between two hosts.
    #[error(
        "there is no path from `{from}` to `{to}`; add links in that direction (hosts do not \
         forward)"
    )]
    NoRoute {
        /// Source.
        from: String,
        /// Destination.
        to: String,
    },
    /// Explicit routes form a loop.
    #[error("the routes to `{to}` form a loop: {through}; change one of the explicit routes")]
    RouteLoop {
        /// Destination.
        to: String,
        /// Nodes of the loop.
        through: String,
    },
    /// An explicit route uses a link that starts at another node.
    #[error("the route at `{at}` to `{to}` uses the link `{link}`, which does not start at `{at}`")]
    RouteOverForeignLink {
        /// Node of the route.
        at: String,
        /// Destination of the route.
        to: String,
        /// Name of the link.
        link: String,
    },
    /// The memory limit would be exceeded.
    #[error(
        "{what} would need about {needed} MB of memory, but the limit is {limit} MB; make it \
         smaller, or raise `memory_limit`"
    )]
    TooLarge {
        /// Part that is too large.
        what: String,
        /// Memory it would take, MB.
        needed: u64,
        /// Memory limit, MB.
        limit: u64,
    },
    /// A topology has an invalid shape.
    #[error("{0}")]
    InvalidTopology(String),
}
