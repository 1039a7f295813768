//! Parallel runs: independent simulations on several threads, with the results of sequential
//! execution.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs `one` for every seed on `threads` threads and returns the results in order of the seeds.
///
/// Simulations share no state, so the assignment to threads does not affect the results.
pub fn run<R: Send>(seeds: Range<u64>, threads: usize, one: impl Fn(u64) -> R + Sync) -> Vec<R> {
    let next = AtomicU64::new(seeds.start);
    let results = Mutex::new(Vec::with_capacity(
        usize::try_from(seeds.end.saturating_sub(seeds.start)).unwrap_or(0),
    ));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let result = one(seed);
                    match results.lock() {
                        Ok(mut results) => results.push((seed, result)),
                        // Another thread has panicked; the scope propagates the panic.
                        Err(_) => break,
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(seed, _)| *seed);
    results.into_iter().map(|(_, result)| result).collect()
}
