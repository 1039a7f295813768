//! Simulations of an experiment as jobs on all cores, and their errors.

use ccplane_lab::Error;
use ccplane_sim::SimError;

pub(super) use ccplane_lab::jobs::{Job, kept as run};

/// Returns the error of a failed simulation, with its contender, its seed and the command that
/// repeats it.
pub(super) fn broken(
    contender: &str,
    seed: u64,
    experiment: &str,
) -> impl Fn(SimError) -> Error + use<> {
    let (contender, repeat) = (
        contender.to_owned(),
        format!("ccplane paper {experiment} --datapath sim"),
    );
    move |error| Error::Internal {
        contender: contender.clone(),
        seed,
        what: error.to_string(),
        repeat: repeat.clone(),
    }
}
