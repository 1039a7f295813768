//! Congestion-control algorithms, one file each, and the [`Registry`] by which a command line finds them.
//!
//! All time comes from the agent's `now`, and transcendental functions from `libm`: a simulation gives the same bytes
//! on every machine.
#![forbid(unsafe_code)]

mod cubic;
mod parameters;
mod registry;
mod reno;
mod slow_start;
mod window;

pub use cubic::Cubic;
pub use parameters::{BadParameter, ParameterDoc, Parameters};
pub use registry::{AlgorithmDoc, Registry, UnknownAlgorithm};
pub use reno::Reno;
pub use slow_start::{Exit, SlowStart};
pub use window::{LossBased, Reporting, WindowOptions};

use ccplane_agent::DynAlgorithm;

/// A built-in algorithm by name, see [`Registry::by_name`].
pub fn by_name(name: &str, parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, UnknownAlgorithm> {
    Registry::builtin().by_name(name, parameters)
}

/// Names of the built-in algorithms.
pub fn names() -> Vec<String> {
    Registry::builtin().names().map(str::to_owned).collect()
}
#[cfg(test)]
mod tests;
