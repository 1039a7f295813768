//! What runs of a scenario cost.
//!
//! Times are CPU time of the one simulating thread, so that other load on the machine counts
//! little. Each is the median of several runs that simulate the same. Making the network and its
//! flows is not counted.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use ccplane_sim::{SimError, Simulation, parallel};
use ccplane_testbed::cpu::this_thread_ns;
use ccplane_units::Time;

use super::dumbbell;
use crate::rounds::{Turns, median};

/// What runs of one scenario came to.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Wall-clock time of the median run, s.
    pub wall_s: f64,
    /// Processor time of the median run, s.
    pub cpu_s: f64,
    /// Hops of one run.
    pub hops: u64,
    /// Events of one run.
    pub events: u64,
    /// Bytes that the simulation took at the end of a run.
    pub memory: usize,
    /// What every run came to; they have to agree.
    pub digest: u64,
}

impl Cost {
    /// Nanoseconds a hop.
    pub fn ns_per_hop(&self) -> f64 {
        self.cpu_s * 1e9 / self.hops.max(1) as f64
    }

    /// Events a hop.
    pub fn events_per_hop(&self) -> f64 {
        self.events as f64 / self.hops.max(1) as f64
    }
}

/// How many runs a figure is the median of.
pub const RUNS: usize = 5;

/// Times a scenario from `warm` to `end`: what comes before, slow start and cold caches, is not
/// counted. With [`Time::ZERO`] everything is.
pub fn cost(
    runs: usize,
    warm: Time,
    end: Time,
    make: impl Fn() -> Result<Simulation, SimError>,
) -> Result<Cost, SimError> {
    let mut all = Vec::with_capacity(runs);
    for _ in 0..runs.max(1) {
        let mut sim = make()?;
        if warm > Time::ZERO {
            sim.run_until(warm)?;
        }
        let before = sim.counters();
        let (began, began_cpu) = (Instant::now(), this_thread_ns());
        sim.run_until(end)?;
        let (wall_s, cpu_ns) = (began.elapsed().as_secs_f64(), this_thread_ns() - began_cpu);
        let after = sim.counters();
        all.push(Cost {
            wall_s,
            cpu_s: cpu_ns as f64 * 1e-9,
            hops: after.hops - before.hops,
            events: after.events - before.events,
            memory: sim.memory(),
            digest: sim.digest(),
        });
    }
    if all.iter().any(|run| run.digest != all[0].digest) {
        return Err(SimError::InvalidTopology(
            "two runs of one scenario differ; please report it".into(),
        ));
    }
    all.sort_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
    Ok(all[all.len() / 2])
}

/// How many times faster 50 seeds of the dumbbell (10 s each) are on two threads than on one.
pub fn parallel_speedup() -> Result<f64, SimError> {
    let one = |seed| -> Result<u64, SimError> {
        let mut sim = dumbbell(160, seed)?;
        sim.run_until(Time::from_micros(10_000_000))?;
        Ok(sim.digest())
    };
    let timed = |threads: usize| -> Result<(f64, Vec<u64>), SimError> {
        let began = Instant::now();
        let digests: Result<Vec<u64>, SimError> =
            parallel::run(1..51, threads, one).into_iter().collect();
        Ok((began.elapsed().as_secs_f64(), digests?))
    };
    let turns = Turns::take(RUNS, &[1, 2], |_, threads| timed(threads))?;
    let mut digests = turns.all().map(|(_, digests)| digests);
    let first = digests.next();
    if digests.any(|digests| Some(digests) != first) {
        return Err(SimError::InvalidTopology(
            "a result depends on the number of threads; please report it".into(),
        ));
    }
    Ok(median(turns.ratios(1, 2, |(seconds, _)| *seconds)))
}
