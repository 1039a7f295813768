//! Simulations of an experiment on all cores: each job's result is kept as soon as it is there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use ccplane_sim::SimError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::parts::Parts;

/// A job of an experiment.
pub(super) trait Job: Sync {
    /// What it gives.
    type Result: Serialize + DeserializeOwned + Send;

    /// The name of the file that keeps its result, without an extension; no other job of the experiment has it.
    fn name(&self) -> String;

    /// Everything that its result depends on, beside the program.
    fn key(&self) -> String;

    /// Does it.
    fn run(&self) -> Result<Self::Result, Error>;
}

/// Does every job whose result is not kept in `parts` yet, and gives all results in the order of the jobs.
///
/// A job shares nothing with others, so that the number of threads changes when a result is there, and not what it is.
pub(super) fn run<J: Job>(
    jobs: &[J],
    threads: usize,
    parts: &Parts,
    progress: &mut dyn Progress,
) -> Result<Vec<J::Result>, Error> {
    let file = |job: &J| format!("{}.json", job.name());
    let mut results: Vec<Option<J::Result>> = jobs.iter().map(|job| parts.kept(&file(job), &job.key())).collect();
    let open: Vec<usize> = (0..jobs.len())
        .filter(|i| results.get(*i).is_some_and(Option::is_none))
        .collect();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, open.len().max(1)) {
            let (tell, next, stop, open) = (tell.clone(), &next, &stop, &open);
            scope.spawn(move || {
                while let Some(at) = open.get(next.fetch_add(1, Ordering::Relaxed))
                    && !stop.load(Ordering::Relaxed)
                    && let Some(job) = jobs.get(*at)
                    && tell.send((*at, job.run())).is_ok()
                {}
            });
        }
        drop(tell);
        let mut done = jobs.len() - open.len();
        let mut failed = None;
        while let Ok((at, result)) = told.recv() {
            let job = jobs.get(at);
            let stored = result.and_then(|result| {
                if let Some(job) = job {
                    parts.keep(&file(job), &job.key(), &result)?;
                }
                Ok(result)
            });
            match stored {
                Ok(result) => {
                    done += 1;
                    progress.begin(&job.map(Job::name).unwrap_or_default(), done, jobs.len());
                    if let Some(place) = results.get_mut(at) {
                        *place = Some(result);
                    }
                }
                Err(error) => {
                    // The first that came; the others stop at their next job.
                    failed.get_or_insert(error);
                    stop.store(true, Ordering::Relaxed);
                }
            }
            if progress.cancelled() && failed.is_none() {
                stop.store(true, Ordering::Relaxed);
                failed = Some(Error::Interrupted);
            }
        }
        failed.map_or(Ok(()), Err)
    })?;
    // All are there: whatever did not come has failed.
    Ok(results.into_iter().flatten().collect())
}

/// A simulation of an experiment that could not be built or went wrong: who ran, with which seed, and what repeats it.
pub(super) fn broken(contender: &str, seed: u64, experiment: &str) -> impl Fn(SimError) -> Error + use<> {
    let (contender, repeat) = (
        contender.to_owned(),
        format!("ccplane paper {experiment} --datapath sim"),
    );
    move |error| Error::Broken {
        contender: contender.clone(),
        seed,
        what: error.to_string(),
        repeat: repeat.clone(),
    }
}

/// The mean of a figure over the results of the jobs that are meant: the seeds of one point.
pub(super) fn mean<J, R>(
    results: &[(&J, &R)],
    meant: impl Fn(&J) -> bool,
    figure: impl Fn(&R) -> Option<f64>,
) -> Option<f64> {
    let of = results.iter().filter(|(job, _)| meant(job));
    Distribution::new(of.filter_map(|(_, result)| figure(result))).mean()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccplane_lab::Quiet;

    struct Square(u64, &'static AtomicUsize);

    impl Job for Square {
        type Result = u64;
        fn name(&self) -> String {
            format!("square-{}", self.0)
        }
        fn key(&self) -> String {
            self.0.to_string()
        }
        fn run(&self) -> Result<u64, Error> {
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.0 == 13 {
                return Err(Error::NoContender);
            }
            Ok(self.0 * self.0)
        }
    }

    #[test]
    fn every_job_is_done_once_and_kept() {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let directory = std::env::temp_dir().join(format!("ccplane-pool-{}", std::process::id()));
        let parts = Parts::of_this_build(&directory);
        let jobs = |n| (0..n).map(|i| Square(i, &RUNS)).collect::<Vec<_>>();
        let squares = run(&jobs(5), 2, &parts, &mut Quiet).unwrap();
        assert_eq!((squares, RUNS.load(Ordering::Relaxed)), (vec![0, 1, 4, 9, 16], 5));
        let squares = run(&jobs(7), 3, &parts, &mut Quiet).unwrap();
        assert_eq!((squares.len(), squares[6], RUNS.load(Ordering::Relaxed)), (7, 36, 7));
        assert!(matches!(run(&jobs(14), 2, &parts, &mut Quiet), Err(Error::NoContender)));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
