//! Traffic type of a workload (flows, exchanges, messages or datagrams), which determines its
//! metrics on every backend.

use ccplane_workload::{Carrier, Workload};

/// Maximum number of sampled flows per workload: the first ones. The page could not show more
/// legibly.
pub const SAMPLED_FLOWS_MAX: usize = 64;

/// Traffic type of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficKind {
    /// Flows without end.
    Unbounded,
    /// Flows that end when all their bytes have arrived.
    Finite,
    /// Connections that carry requests and responses.
    Exchanges,
    /// Connections that carry messages in one direction, one after the other.
    Messages {
        /// True if each message answers a request, whose delay is part of its completion time.
        requested: bool,
    },
    /// Datagrams without a connection.
    Datagrams,
}

impl TrafficKind {
    /// Returns the traffic type of the workload.
    pub fn from_workload(kind: &Workload) -> TrafficKind {
        match kind {
            Workload::Bulk { bytes: None, .. } => TrafficKind::Unbounded,
            Workload::Paced {
                carrier: Carrier::Datagrams { .. },
                ..
            } => TrafficKind::Datagrams,
            Workload::Paced { .. } => TrafficKind::Unbounded,
            Workload::Requests { .. } => TrafficKind::Exchanges,
            Workload::Messages { requested, .. } => TrafficKind::Messages {
                requested: *requested,
            },
            Workload::Bulk { .. }
            | Workload::Poisson { .. }
            | Workload::Bursts { .. }
            | Workload::List { .. }
            | Workload::Trace { .. } => TrafficKind::Finite,
        }
    }
}
