//! Simulations of an experiment as jobs on all cores, their errors, and means over seeds.

use ccplane_lab::Error;
use ccplane_lab::metrics::Distribution;
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

/// Returns the mean of a value over the results of the selected jobs: the seeds of one point.
pub(super) fn mean<J, R>(
    results: &[(&J, &R)],
    meant: impl Fn(&J) -> bool,
    figure: impl Fn(&R) -> Option<f64>,
) -> Option<f64> {
    let of = results.iter().filter(|(job, _)| meant(job));
    Distribution::new(of.filter_map(|(_, result)| figure(result))).mean()
}
