//! Simulation errors.

use ccplane_network::NetworkError;
use ccplane_units::Time;
use ccplane_workload::WorkloadError;

/// Error from building or running a simulation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The network is invalid.
    #[error(transparent)]
    Network(#[from] NetworkError),
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
    /// The memory limit would be exceeded.
    #[error(
        "{what} would need about {needed} MB of memory, but the limit is {limit} MB; make it \
         smaller, or raise `memory_limit`"
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
    InvalidTopology(String),
    /// A flow could never make progress.
    #[error("invalid flow from `{from}` to `{to}`: {why}")]
    Flow {
        /// Source.
        from: String,
        /// Destination.
        to: String,
        /// Reason.
        why: String,
    },
    /// A link change was added after the link's first packet.
    #[error("a change of the link `{0}` must be scheduled before the first packet of the link")]
    LateChange(String),
    /// Events occur without progress.
    #[error("the simulation made no progress at {at} (seed {seed}): {why}", at = .at.as_secs_f64())]
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
        "packets are not conserved at {place} (seed {seed}): {why}; this is a bug in ccplane, \
         please report it"
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
    #[error("invalid bundle: {0}")]
    Bundle(String),
    /// A workload is invalid.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A probe is invalid.
    #[error("invalid probe: {0}")]
    Probe(&'static str),
}
