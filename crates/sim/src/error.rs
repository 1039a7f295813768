//! Simulation errors.

use ccplane_qdisc::QueueSpecError;
use ccplane_units::Time;
use ccplane_workload::WorkloadError;

/// Error from building or running a simulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Two nodes have the same name.
    #[error("there are two nodes called `{0}`; give each its own name")]
    DuplicateName(String),
    /// A link leads from a node to itself.
    #[error("a link leads from `{0}` to itself; it would carry nothing")]
    SelfLink(String),
    /// A flow starts or ends at a switch.
    #[error("`{0}` is a switch; flows begin and end at hosts")]
    NotAHost(String),
    /// A node, link, flow or agent does not exist in this simulation.
    #[error("there is no {what} {number} in this simulation; it has {count}")]
    Unknown {
        /// Kind of object.
        what: &'static str,
        /// Number of the object.
        number: u32,
        /// Number of existing objects.
        count: usize,
    },
    /// A line has a rate of zero.
    #[error("the link `{0}` has a rate of zero; give it one, or `unlimited`")]
    ZeroRate(String),
    /// A queue cannot be built.
    #[error("the queue of the link `{link}` cannot be: {why}")]
    Queue {
        /// Name of the link.
        link: String,
        /// Error from the queue.
        why: QueueSpecError,
    },
    /// There is no path between two hosts.
    #[error(
        "no path leads from `{from}` to `{to}`; add links in that direction (hosts do not forward)"
    )]
    NoRoute {
        /// Source.
        from: String,
        /// Destination.
        to: String,
    },
    /// Explicit routes form a loop.
    #[error(
        "the routes to `{to}` lead round in a circle: {through}; change one of the explicit routes"
    )]
    RouteLoop {
        /// Destination.
        to: String,
        /// Nodes of the loop.
        through: String,
    },
    /// An explicit route uses a link that starts at another node.
    #[error(
        "the route at `{at}` to `{to}` is over the link `{link}`, which does not begin at `{at}`"
    )]
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
        "{what} would take about {needed} MB of memory and {limit} MB are allowed; make it smaller, or raise `memory_limit`"
    )]
    TooLarge {
        /// Object that is too large.
        what: String,
        /// Memory needed, MB.
        needed: u64,
        /// Memory limit, MB.
        limit: u64,
    },
    /// A topology has an invalid shape.
    #[error("{0}")]
    Shape(String),
    /// A flow could never make progress.
    #[error("the flow from `{from}` to `{to}` cannot be: {why}")]
    Flow {
        /// Source.
        from: String,
        /// Destination.
        to: String,
        /// Reason.
        why: String,
    },
    /// A link change was added after the link's first packet.
    #[error("a change of the link `{0}` has to be scheduled before its first packet")]
    LateChange(String),
    /// Events occur without progress.
    #[error("the simulation stands still at {at} (seed {seed}): {why}", at = .at.as_secs_f64())]
    Stalled {
        /// Seed to reproduce it.
        seed: u64,
        /// Simulated time.
        at: Time,
        /// Observation.
        why: String,
    },
    /// Packets are not conserved: a bug in the simulator.
    #[error(
        "packets are not conserved at {place} (seed {seed}): {why}; this is a defect of ccplane, please report it"
    )]
    NotConserved {
        /// Seed to reproduce it.
        seed: u64,
        /// Link, node or total.
        place: String,
        /// Counts that disagree.
        why: String,
    },
    /// The run exceeds the range of times or event numbers.
    #[error("the simulation is too long: {0}")]
    TooLong(&'static str),
    /// An agent rejected an algorithm, or a flow needs one that its agent lacks.
    #[error("no agent of this simulation offers `{0}`")]
    UnknownAlgorithm(String),
    /// A bundle is invalid.
    #[error("the bundle cannot be: {0}")]
    Bundle(String),
    /// A workload is invalid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A probe is invalid.
    #[error("the probe cannot be: {0}")]
    Probe(&'static str),
}
