//! Congestion-control algorithms, one per file, and the [`Registry`] that finds them by name.
//!
//! Results are bit-identical on every machine: time comes only from the agent's `now`, and
//! transcendental functions from `libm`.
#![forbid(unsafe_code)]

mod agent_only;
mod autorate;
mod base_rtt;
mod bbr;
mod bundler;
mod constant;
mod copa;
mod cubic;
mod dctcp;
mod dx;
pub mod external;
#[doc(hidden)]
pub mod fuzz;
mod group;
mod ledbat;
mod loss_reduction;
pub mod nimbus;
mod parameters;
mod program_file;
mod registry;
mod reno;
mod rules;
mod slow_start;
mod swift;
mod timely;
mod vegas;
mod vivace;
mod window;
mod windowed_min;

pub use agent_only::AgentOnly;
pub use autorate::Autorate;
pub use bbr::{Bbr, Bbr3};
pub use bundler::Bundler;
pub use constant::Constant;
pub use copa::Copa;
pub use cubic::Cubic;
pub use group::Group;
pub use ledbat::LedbatPlusPlus;
pub use nimbus::Nimbus;
pub use parameters::{BadParameter, ParameterDoc, Parameters};
pub use registry::{AlgorithmDoc, Registry, UnknownAlgorithm};
pub use reno::Reno;
pub use slow_start::{SlowStart, SlowStartExit};
pub use vegas::Vegas;
pub use vivace::Vivace;
pub use window::{LossBasedAlgorithm, Reporting, Split, WindowOptions};

use ccplane_agent::DynAlgorithm;

/// Algorithms that control a gateway's bundle, an aggregate of many connections. They do not work
/// on a single TCP connection.
pub const GATEWAY_ALGORITHMS: [&str; 2] = [autorate::DOC.name, bundler::DOC.name];

/// Returns a built-in algorithm, see [`Registry::by_name`].
pub fn by_name(
    name: &str,
    parameters: &Parameters,
) -> Result<Box<dyn DynAlgorithm>, UnknownAlgorithm> {
    Registry::builtin().by_name(name, parameters)
}

/// Returns the names of the built-in algorithms.
pub fn names() -> Vec<String> {
    Registry::builtin().names().map(str::to_owned).collect()
}
#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;
