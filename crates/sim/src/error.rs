//! What can be wrong with a simulation.

use ccplane_qdisc::QueueSpecError;
use ccplane_units::Time;
use ccplane_workload::WorkloadError;

/// Why a simulation cannot be made, or cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Two nodes of one name.
    #[error("there are two nodes called `{0}`; give each its own name")]
    DuplicateName(String),
    /// A link from a node to itself.
    #[error("a link leads from `{0}` to itself; it would carry nothing")]
    SelfLink(String),
    /// A flow from or to what is not a host.
    #[error("`{0}` is a switch; flows begin and end at hosts")]
    NotAHost(String),
    /// A node, link, flow or agent of another simulation.
    #[error("there is no {what} {number} in this simulation; it has {count}")]
    Unknown {
        /// What was asked for.
        what: &'static str,
        /// Its number.
        number: u32,
        /// How many there are.
        count: usize,
    },
    /// A line that never carries anything.
    #[error("the link `{0}` has a rate of zero; give it one, or `unlimited`")]
    ZeroRate(String),
    /// A queue that cannot be built.
    #[error("the queue of the link `{link}` cannot be: {why}")]
    Queue {
        /// The link.
        link: String,
        /// Why.
        why: QueueSpecError,
    },
    /// No path.
    #[error(
        "no path leads from `{from}` to `{to}`; add links in that direction (hosts do not forward)"
    )]
    NoRoute {
        /// Where it would begin.
        from: String,
        /// Where it would end.
        to: String,
    },
    /// Explicit routes that lead round.
    #[error(
        "the routes to `{to}` lead round in a circle: {through}; change one of the explicit routes"
    )]
    RouteLoop {
        /// The destination.
        to: String,
        /// The nodes of the circle.
        through: String,
    },
    /// An explicit route over a link that does not begin there.
    #[error(
        "the route at `{at}` to `{to}` is over the link `{link}`, which does not begin at `{at}`"
    )]
    RouteOverForeignLink {
        /// Where.
        at: String,
        /// To what host.
        to: String,
        /// The link.
        link: String,
    },
    /// More than the memory allowed.
    #[error(
        "{what} would take about {needed} MB of memory and {limit} MB are allowed; make it smaller, or raise `memory_limit`"
    )]
    TooLarge {
        /// What is large.
        what: String,
        /// MB it would take.
        needed: u64,
        /// MB allowed.
        limit: u64,
    },
    /// A topology of a shape that does not exist.
    #[error("{0}")]
    Shape(String),
    /// A flow that can never do anything.
    #[error("the flow from `{from}` to `{to}` cannot be: {why}")]
    Flow {
        /// Where it begins.
        from: String,
        /// Where it ends.
        to: String,
        /// What is wrong.
        why: String,
    },
    /// A change that comes too late.
    #[error("a change of the link `{0}` has to be scheduled before its first packet")]
    LateChange(String),
    /// Events, but no progress.
    #[error("the simulation stands still at {at} (seed {seed}): {why}", at = .at.as_secs_f64())]
    Stalled {
        /// The seed that repeats it.
        seed: u64,
        /// When.
        at: Time,
        /// What was seen.
        why: String,
    },
    /// Packets that came from nowhere or went nowhere: an error in the simulator.
    #[error(
        "packets are not conserved at {place} (seed {seed}): {why}; this is a defect of ccplane, please report it"
    )]
    NotConserved {
        /// The seed that repeats it.
        seed: u64,
        /// Where.
        place: String,
        /// What was counted.
        why: String,
    },
    /// More events or time than can be told apart.
    #[error("the simulation is too long: {0}")]
    TooLong(&'static str),
    /// An agent did not accept an algorithm, or a flow wants one that it lacks.
    #[error("no agent of this simulation offers `{0}`")]
    UnknownAlgorithm(String),
    /// A bundle that cannot be.
    #[error("the bundle cannot be: {0}")]
    Bundle(String),
    /// A workload that cannot be.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A probe that cannot be.
    #[error("the probe cannot be: {0}")]
    Probe(&'static str),
}
