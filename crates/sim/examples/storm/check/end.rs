//! Invariant at the end: with all flows closed, nothing is left in the network, in the datapath or
//! at the agents.

use ccplane_sim::World;

use super::Violation;
use crate::channel::Line;

/// Checks for leftovers. With corrupted messages (`lies`), agents may have flows that never
/// existed.
pub fn check(world: &World, line: &Line, lies: bool) -> Result<(), Violation> {
    if let Some((what, count)) = world
        .resources_in_use()
        .into_iter()
        .find(|(_, count)| *count > 0)
    {
        return Err(format!("{count} {what} in use after all flows ended"));
    }
    world.check().map_err(|error| error.to_string())?;
    let flows = line.inner().known_flows(world.now());
    if flows > 0 && !lies {
        return Err(format!(
            "the agents still have {flows} flows after all flows closed"
        ));
    }
    Ok(())
}
