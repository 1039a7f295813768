//! Descriptions of networks: hosts, switches and links, common topologies, shortest paths.
//!
//! A [`Network`] is a plain value. The simulator runs it, and every backend plans a scenario from
//! it, so node names, node numbers and the random numbers of each link are the same on all
//! backends.
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
