//! `attach --agent`: the algorithms run in another process, and this one relays reports and
//! commands.

use ccplane_link::AgentAddress;

use super::{CallbackRunner, ServingThread};
use crate::config::Settings;
use crate::exit::Failure;
use crate::remote_agent::{names, query_algorithms};

/// Returns the algorithms to register for the remote agent, with one connection each.
pub(super) fn steered(
    settings: &mut Settings,
    address: &AgentAddress,
) -> Result<Vec<ServingThread>, Failure> {
    let names = names(&settings.algorithms.value, address)?;
    let asked = query_algorithms(address, &names, settings.fallback_after.value)?;
    if let Some(round_trip) = asked.round_trip {
        settings.set_round_trip(round_trip);
    }
    let steered = asked.algorithms.into_iter().map(|one| ServingThread {
        runner: CallbackRunner::Remote(address.connection(&one.name)),
        specs: vec![one],
    });
    Ok(steered.collect())
}
