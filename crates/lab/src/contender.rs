//! Requirements of an algorithm for the path and the transport.

use ccplane_algorithms::{Parameters, Registry, UnknownAlgorithm};
use ccplane_datapath::Capabilities;
pub use ccplane_scenario::Contender;

/// Returns the capabilities to enable for a contender, such as ECN or time stamps. Among the native
/// congestion controls of kernel and transport only DCTCP has a requirement, ECN. The requirements
/// of an algorithm in another process are known to its agent only: none are returned.
pub fn wants(contender: &Contender, registry: &Registry) -> Result<Capabilities, UnknownAlgorithm> {
    match contender {
        Contender::Native { name } if name == "dctcp" => Ok(Capabilities::ECN),
        Contender::Native { .. } | Contender::Remote { .. } => Ok(Capabilities::default()),
        Contender::Ccplane { name, parameters } => Ok(registry
            .by_name(name, &read(parameters))?
            .requested_capabilities()),
    }
}

/// Converts parameters in the user's spelling to the registry's type.
pub fn read(parameters: &[(String, String)]) -> Parameters {
    parameters
        .iter()
        .fold(Parameters::new(), |all, (name, value)| {
            all.with(name, value)
        })
}
