//! What a run recorded, wherever it ran: the simulator and real packets fill the same.

use ccplane_units::Duration;

use crate::experiment::Contender;
use crate::result::{Completion, Sample};

/// What a run recorded, wherever it ran.
pub(crate) struct Record {
    /// For how long bytes were counted.
    pub span: Duration,
    /// CLOCK_MONOTONIC of the first byte; 0 where time is virtual.
    pub started_ns: u64,
    /// The drawn link.
    pub link: LinkRecord,
    /// One for each workload of the scenario, in its order.
    pub workloads: Vec<WorkloadRecord>,
}

/// What the drawn link did.
pub(crate) struct LinkRecord {
    /// Packets that left while bytes were counted: (ns since the start, ns in the queue, bytes).
    pub departures: Vec<(u64, u64, u64)>,
    /// What it could have carried, bytes.
    pub capacity: f64,
    pub queue_drops: u64,
    pub random_losses: u64,
}

/// What became of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadRecord {
    pub name: String,
    /// Who controlled it; `None` for datagrams, which heed nothing.
    pub contender: Option<Contender>,
    /// Its algorithm is the contender whose turn it is (or every workload names its own).
    pub compared: bool,
    /// Bytes that receiving applications read, requests' responses included.
    pub received: u64,
    /// The same over time: ns since the start, and bytes by then. Where it is empty the samples of its flows say it.
    pub course: Vec<(u64, u64)>,
    /// Segments sent again; `None` where nobody does that, or where it is not known.
    pub retransmitted: Option<u64>,
    /// Flows without end: goodput of every one, Mbit/s.
    pub goodputs: Vec<f64>,
    /// A number for each of these that rises in the order in which flows of all workloads began; empty where only their
    /// order among themselves is known.
    pub order: Vec<u64>,
    /// Samples of those that were looked at (at most 64).
    pub flows: Vec<Vec<Sample>>,
    /// Flows or responses that ended.
    pub completed: Vec<Completion>,
    pub unfinished: u64,
    /// Flows of it that are served by their datapath's fallback at the end; flows given up.
    pub fell_back: u64,
    pub failed: u64,
}
