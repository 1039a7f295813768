//! Networks as plain values: hosts, switches and links, the usual topologies, shortest paths.
//!
//! A [`Network`] is a description. The simulator runs it; a scenario's plan is made of it on every
//! backend, so that names, numbers of nodes and a link's random numbers are the same everywhere.
#![forbid(unsafe_code)]

mod change;
mod error;
mod network;
pub mod random;
mod routing;
pub mod topology;

pub use ccplane_workload::NodeId;
pub use change::NetworkChange;
pub use error::NetworkError;
pub use network::{LinkId, LinkSpec, Network, Remark, Spread};
pub use routing::{MEMORY_LIMIT_DEFAULT_BYTES, NODES_MAX, NetworkPath, Routing};
