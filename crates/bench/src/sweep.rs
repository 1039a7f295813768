//! `ccplane bench sweep`: cost of a sweep besides its simulations, for runs that are as short as
//! runs can be.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ccplane::SweepFolder;
use ccplane_algorithms::Registry;
use ccplane_lab::scenario::Sweep;
use ccplane_lab::sweep::{self, RunStore, RunTable, SweepOptions, SweepPlan};
use ccplane_lab::{NoProgress, Sim};

use crate::rounds::median;
use crate::{Error, Figures};

/// Odd, so that a median is a run.
const ROUNDS: usize = 5;
/// Runs of the large sweep.
const MANY_RUNS: usize = 10_000;
/// Runs per round for the cost of one.
const ROUND_RUNS: usize = 400;

/// Runs the benchmark.
pub fn run(registry: &Registry) -> Result<Figures, Error> {
    let folder = std::env::temp_dir().join(format!("ccplane-bench-sweep-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let figures = measured(registry, &folder);
    let _ = fs::remove_dir_all(&folder);
    figures
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn measured(registry: &Registry, folder: &Path) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    // First, while the process is small.
    let begun = Instant::now();
    let plan = plan(MANY_RUNS, "10ms", registry)?;
    let planned_s = begun.elapsed().as_secs_f64();
    let out = folder.join("many");
    let begun = Instant::now();
    make_runs(&plan, registry, &out, 2)?;
    let many_s = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let (opened, store) = SweepFolder::open(&out)?;
    opened.write_tables(&plan.planned, &store, false, "")?;
    let collect_s = begun.elapsed().as_secs_f64();
    figures
        .add(
            "memory_mb",
            peak_memory_mb(),
            "MB at most, 10,000 runs of 10 ms",
        )
        .at_most(200.0);
    figures
        .add(
            "collect_s",
            collect_s,
            "s, 10,000 rows read, CSV, Parquet and page written",
        )
        .at_most(3.0);
    figures.add("plan_s", planned_s, "s, 10,000 runs planned");
    figures.add("many_s", many_s, "s, 10,000 runs of 10 ms on two threads");
    let (mut overheads, mut speedups) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let plan = self::plan(ROUND_RUNS, "10ms", registry)?;
        let out = folder.join(format!("short-{round}"));
        let begun = Instant::now();
        let store = make_runs(&plan, registry, &out, 1)?;
        let all_s = begun.elapsed().as_secs_f64();
        let table = RunTable::of_timing(&plan.planned, &store);
        let wall = table.column("wall_s");
        let simulated_s: f64 = (0..table.rows()).filter_map(|row| wall?.number(row)).sum();
        overheads.push((all_s - simulated_s) / ROUND_RUNS as f64 * 1e3);
        // Long enough that the threads and not the file matter.
        let plan = self::plan(ROUND_RUNS / 10, "20s", registry)?;
        let [one, two] = [1, 2].map(|threads| {
            let out = folder.join(format!("long-{round}-{threads}"));
            let begun = Instant::now();
            make_runs(&plan, registry, &out, threads).map(|_| begun.elapsed().as_secs_f64())
        });
        speedups.push(one? / two?);
    }
    figures
        .add(
            "overhead_ms",
            median(overheads),
            "ms per run besides its simulation",
        )
        .at_most(5.0);
    figures
        .add("speedup_2_threads", median(speedups), "x one thread")
        .at_least(1.85);
    figures.note(format!(
        "medians of {ROUNDS} rounds; the first four are of one sweep"
    ));
    figures.note("`python -m ccplane.bench` compares Dask with threads, if it is installed");
    Ok(figures)
}

/// Plans a sweep of `runs` runs over two points.
fn plan(runs: usize, duration: &str, registry: &Registry) -> Result<SweepPlan, Error> {
    let text = format!(
        "seeds = \"1..{}\"\n[scenario]\nduration = \"{duration}\"\nworkload = [{{ bulk = {{}} }}]\n\
         topology.dumbbell = {{ rate = \"10mbit\", rtt = \"10ms\", loss = \"0.1%\" }}\n\
         [grid]\ncontenders = [\"reno\", \"cubic\"]\n",
        runs / 2
    );
    let sweep = Sweep::parse("bench", &text, Path::new(""))
        .map_err(|problem| Error::Lab(ccplane_lab::Error::Scenario(problem)))?;
    SweepPlan::new(sweep, &Sim::default(), registry).map_err(Error::Lab)
}

fn make_runs(
    plan: &SweepPlan,
    registry: &Registry,
    out: &Path,
    threads: usize,
) -> Result<RunStore, Error> {
    let options = SweepOptions {
        threads,
        shard: None,
        limit: None,
        keep: None,
        flows: false,
        cpu_time: ccplane::thread_cpu_time,
        machine: ccplane::machine_name(),
    };
    let mut store = RunStore::open(out).map_err(|why| Error::Lab(why.into()))?;
    let sim = Sim::default();
    sweep::run(plan, &sim, registry, &options, &mut store, &NoProgress).map_err(Error::Lab)?;
    Ok(store)
}

/// Returns the largest resident memory of this process, MB.
fn peak_memory_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes * 1.024e-3)
}
