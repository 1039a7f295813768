//! One thread pool for runs, experiments and evaluations.
//!
//! Jobs share no state, so the number of threads changes the time of a result and not its value.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::parts::Parts;
use crate::progress::Progress;

/// Runs the jobs of `order`, in that order, on `threads` threads. `done` receives each result as it
/// arrives, on the calling thread. An error of a job or of `done` starts no further jobs. If
/// several jobs fail, the error of the first one in `order` is returned.
pub fn each<T: Send>(
    order: &[usize],
    threads: usize,
    work: impl Fn(usize) -> Result<T, Error> + Sync,
    mut done: impl FnMut(usize, T) -> Result<(), Error>,
) -> Result<(), Error> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, order.len().max(1)) {
            let (tell, next, stop, work) = (tell.clone(), &next, &stop, &work);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = order.get(place) else { return };
                    let result = work(*job);
                    // Stops the other threads at once, before the receiver handles the error.
                    if result.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if tell.send((place, *job, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut failed: Option<(usize, Error)> = None;
        while let Ok((place, job, result)) = told.recv() {
            if let Err(error) = result.and_then(|result| done(job, result)) {
                stop.store(true, Ordering::Relaxed);
                if failed.as_ref().is_none_or(|(first, _)| place < *first) {
                    failed = Some((place, error));
                }
            }
        }
        failed.map_or(Ok(()), |(_, error)| Err(error))
    })
}

/// Job whose result is cached.
pub trait Job: Sync {
    /// Result of the job.
    type Result: Serialize + DeserializeOwned + Send;

    /// Returns the name of the file with its result, without extension. It is unique in the
    /// experiment.
    fn name(&self) -> String;

    /// Returns the cache key: everything that the result depends on except the program itself.
    fn key(&self) -> String;

    /// Runs the job.
    fn run(&self) -> Result<Self::Result, Error>;
}

/// Runs every job whose result is not cached in `parts`, and returns all results in the order of
/// the jobs.
pub fn kept<J: Job>(
    jobs: &[J],
    threads: usize,
    parts: &Parts,
    progress: &dyn Progress,
) -> Result<Vec<J::Result>, Error> {
    let file = |job: &J| format!("{}.json", job.name());
    let mut results: Vec<Option<J::Result>> = jobs
        .iter()
        .map(|job| parts.kept(&file(job), &job.key()))
        .collect();
    let open: Vec<usize> = (0..jobs.len())
        .filter(|i| results.get(*i).is_some_and(Option::is_none))
        .collect();
    let mut ready = jobs.len() - open.len();
    let work = |at: usize| match jobs.get(at) {
        _ if progress.is_cancelled() => Err(Error::Interrupted),
        Some(job) => job.run(),
        None => Err(Error::Interrupted),
    };
    each(&open, threads, work, |at, result| {
        if let (Some(job), Some(place)) = (jobs.get(at), results.get_mut(at)) {
            parts.keep(&file(job), &job.key(), &result)?;
            *place = Some(result);
            ready += 1;
            progress.on_progress(ready as f64 / jobs.len() as f64, &job.name());
        }
        Ok(())
    })?;
    // Complete: a missing result would have returned an error above.
    Ok(results.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

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
        static RUN_COUNT: AtomicUsize = AtomicUsize::new(0);
        let directory = std::env::temp_dir().join(format!("ccplane-jobs-{}", std::process::id()));
        let parts = Parts::of_this_build(&directory);
        let jobs = |n| (0..n).map(|i| Square(i, &RUN_COUNT)).collect::<Vec<_>>();
        let squares = kept(&jobs(5), 2, &parts, &NoProgress).unwrap();
        assert_eq!(
            (squares, RUN_COUNT.load(Ordering::Relaxed)),
            (vec![0, 1, 4, 9, 16], 5)
        );
        let squares = kept(&jobs(7), 3, &parts, &NoProgress).unwrap();
        assert_eq!(
            (squares.len(), squares[6], RUN_COUNT.load(Ordering::Relaxed)),
            (7, 36, 7)
        );
        assert!(matches!(
            kept(&jobs(14), 2, &parts, &NoProgress),
            Err(Error::NoContender)
        ));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_first_error_in_order_is_given_and_nothing_begins_after_it() {
        let begun = AtomicUsize::new(0);
        let order: Vec<usize> = (0..100).rev().collect();
        let work = |at: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if at < 95 {
                Err(Error::Interrupted)
            } else {
                Ok(at)
            }
        };
        let mut seen = Vec::new();
        let outcome = each(&order, 1, work, |at, result| {
            seen.push((at, result));
            Ok(())
        });
        assert!(matches!(outcome, Err(Error::Interrupted)));
        assert_eq!((seen.len(), begun.load(Ordering::Relaxed)), (5, 6));
        // An error of the receiver also ends the work.
        let refused = each(&order, 2, Ok, |at, _| {
            if at == 97 {
                Err(Error::NoContender)
            } else {
                Ok(())
            }
        });
        assert!(matches!(refused, Err(Error::NoContender)));
    }
}
