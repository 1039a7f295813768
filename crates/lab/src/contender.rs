//! What an algorithm wants of the path and the transport that carry it.

use ccplane_algorithms::{Parameters, Registry, UnknownAlgorithm};
use ccplane_datapath::Capabilities;
pub use ccplane_scenario::Contender;

/// What has to be switched on for a contender: its connections offer ECN, or carry time stamps. Of
/// those that are no algorithms of ours, kernel's or transport's, only DCTCP wants anything, ECN.
pub fn wants(contender: &Contender, registry: &Registry) -> Result<Capabilities, UnknownAlgorithm> {
    match contender {
        Contender::Native { name } if name == "dctcp" => Ok(Capabilities::ECN),
        Contender::Native { .. } => Ok(Capabilities::default()),
        Contender::Ccplane { name, parameters } => {
            Ok(registry.by_name(name, &read(parameters))?.wants())
        }
    }
}

/// Parameters as a user wrote them, for the registry.
pub fn read(parameters: &[(String, String)]) -> Parameters {
    parameters
        .iter()
        .fold(Parameters::new(), |all, (name, value)| {
            all.with(name, value)
        })
}
