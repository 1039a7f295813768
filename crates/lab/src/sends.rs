//! How a workload sends its bytes: flows, exchanges, messages or datagrams. It decides which
//! figures there are, wherever it runs.

use ccplane_workload::{Carrier, Workload};

/// Flows of a workload that are looked at in time; of more, the first ones. More would fill a page
/// that nobody can read.
pub const SAMPLED_FLOWS_MAX: usize = 64;

/// What a workload's bytes are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sends {
    /// Flows without end.
    Lasting,
    /// Flows that end when their bytes have arrived.
    Finite,
    /// Connections that carry requests and responses.
    Exchanges,
    /// Connections that carry messages one way, one after the other.
    Messages {
        /// Each answers a request, whose way belongs to its time.
        requested: bool,
    },
    /// Packets without a connection.
    Datagrams,
}

impl Sends {
    /// Returns how the workload sends.
    pub fn of(kind: &Workload) -> Sends {
        match kind {
            Workload::Bulk { bytes: None, .. } => Sends::Lasting,
            Workload::Paced {
                carrier: Carrier::Datagrams { .. },
                ..
            } => Sends::Datagrams,
            Workload::Paced { .. } => Sends::Lasting,
            Workload::Requests { .. } => Sends::Exchanges,
            Workload::Messages { requested, .. } => Sends::Messages {
                requested: *requested,
            },
            Workload::Bulk { .. }
            | Workload::Poisson { .. }
            | Workload::Bursts { .. }
            | Workload::List { .. }
            | Workload::Trace { .. } => Sends::Finite,
        }
    }
}
